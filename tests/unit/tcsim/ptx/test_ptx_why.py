"""`Session.why`: from a byte to the elements of global memory that it was made of, through every kind of instruction on the way."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

import tcsim
from tcsim.core.errors import OperandError
from tcsim.launchers.recording import from_fields
from tcsim.launchers.stepped import session as session_of
from tcsim.ptx import Memory, parse
from tcsim.ptx.stepping.why import Node, Why
from tests.kernels.test_ptx_launches import KEPT
from tests.support.ptx_copies import text
from tests.support.stepped_kernels import NAMES, Launched


def ended(name: str, **arrays: tuple[tuple[int, ...], str]) -> Any:
    """The session of a recorded launch at its end, some of its arrays with a shape."""
    made = session_of(from_fields(KEPT[name], name).job("sm_90"))
    for own, (shape, format) in arrays.items():
        made.name(own, made.arrays[own].start, shape, format)
    assert made.run().ended and made.result.completed
    return made


def every(why: Why) -> list[Node]:
    """All nodes of a tree."""
    found, pending = [], list(why.nodes)
    while pending:
        found.append(pending.pop())
        pending += found[-1].children
    return found


def operands(why: Why) -> dict[str, str]:
    """Where the operands of the product come from, by their letter."""
    return {node.label[0]: node.origin for node in every(why) if node.label}


PRODUCTS = {
    "gemm_sm70_wmma_shared_bf16_bf16_72x40x96_sm_90": (72, 40, 96, "bf16", "bf16"),
    "gemm_sm75_mma_ldmatrix_f16_f16_72x40x96_sm_90": (72, 40, 96, "f16", "f16"),
    "gemm_sm90_wgmma_specialized_tf32_f32_136x72x160_sm_90a": (136, 72, 160, "f32", "f32"),
}
"""Kernels whose A and B lie in rows of K: M, N, K and the formats of A and D."""


@pytest.mark.parametrize("name", PRODUCTS)
def test_an_output_comes_from_its_row_of_a_and_its_column_of_b(name: str) -> None:
    m, n, k, format, result = PRODUCTS[name]
    session = ended(name, a=((m, k), format), b=((n, k), format), d=((m, n), result))
    for row, column in ((3, 5), (m - 1, n - 2)):
        found = operands(session.why(f"d[{row}, {column}]"))
        assert found["A"].split(", ", 2)[:2] == [f"a[{row}", f"0:{k}]"], found
        assert found["B"].split(", ", 2)[:2] == [f"b[{column}", f"0:{k}]"], found


def test_a_sparse_product_and_one_whose_result_goes_out_by_tma() -> None:
    arrays = {"a": ((136, 80), "f32"), "b": ((72, 160), "f32"), "d": ((136, 72), "f32")}
    found = operands(ended("gemm_sm90_wgmma_sparse_tf32_f32_136x72x160_sm_90a", **arrays).why("d[131, 71]"))
    assert found["A"].startswith("a[131, 0:80]") and found["B"].startswith("b[71, 0:160]")


def test_the_three_wrong_kernels_are_explained() -> None:
    wrong, right = ({name: Launched(name, kind) for name in NAMES} for kind in (True, False))
    asked = {"transposed": "c[0, 1]", "late": "c[0, 1]", "swizzled": "c[9, 1]"}
    found = {}
    for kind, launched in (("wrong", wrong), ("right", right)):
        for name, own in launched.items():
            session = own.session()
            session.run()
            why = session.why(asked[name])
            found[name, kind] = operands(why)["A"], operands(why)["B"], [note for _, note in why.remarks]
    assert found["transposed", "right"] == ("a[0, 0:16]", "b[0:16, 1]", [])
    assert found["transposed", "wrong"] == ("a[0, 0:16]", "b[1, 0:8], b[9, 0:8]", [])
    flying = [
        f"line {Launched('late').line('cp.async.ca', place)} was in flight to these bytes: nothing waited for it"
        for place in (4, 5)
    ]
    assert found["late", "right"] == ("a[0, 0:64]", "b[0:64, 1]", [])
    assert found["late", "wrong"] == ("a[0, 0:48], a[0, 16:32]", "b[0:48, 1], b[16:32, 1]", flying)
    assert found["swizzled", "right"] == ("a[9, 0:64]", "b[1, 0:64]", [])
    assert found["swizzled", "wrong"] == ("a[4, 0:32], a[5, 32:64]", "b[1, 0:64]", [])
    session, line = wrong["swizzled"].session(), wrong["swizzled"].line("wgmma.mma_async")
    session.run(line)
    assert np.array_equal(session.fragment(line, "a").values[9], wrong["swizzled"].array("a")[4, :16])


def test_a_value_that_lanes_exchanged_that_was_sent_and_that_functions_returned() -> None:
    session = ended("cuda_shuffles_sm_90a", out=((640,), "f32"), **{"in": ((128,), "f32")})
    leaves = [node.head() for node in every(session.why("out[37]")) if not node.records]
    assert leaves[0].startswith("in[34] = ")
    sent = [node.instruction for node in every(ended("cuda_send_sm_90a", out=((128,), "f32")).why("out[37]"))]
    for opcode in (
        "st.async.shared::cluster",
        "cp.async.bulk.shared::cluster.shared::cta",
        "st.shared.u32",
        "ld.shared.u32",
    ):
        assert any(opcode in text for text in sent), opcode
    called = [node.instruction for node in every(ended("cuda_recursion_sm_90a", out=((128,), "f32")).why("out[37]"))]
    assert sum("ret;" in text for text in called) >= 4 and any("st.param.b32" in text for text in called)


def test_halves_of_a_word_have_sources_of_their_own() -> None:
    body = """
    mul.lo.u32 %r1, %r0, 3;
    add.u32 %r2, %r0, 100;
    cvt.rn.f32.u32 %f1, %r1;
    cvt.rn.f32.u32 %f2, %r2;
    cvt.rn.f16x2.f32 %r3, %f2, %f1;
    mov.b32 {%h1, %h2}, %r3;
    mov.b32 %r4, {%h2, %h1};
    movmatrix.sync.aligned.m8n8.trans.b16 %r5, %r4;
    redux.sync.add.u32 %r6, %r5, -1;
    """
    source = text("", body)
    line = {
        words.split()[0] + " " + words.split()[1]: number
        for number, words in enumerate(source.splitlines(), 1)
        if len(words.split()) > 1
    }
    session = parse(source).kernel().session(Memory(), [], block=(32, 1, 1))
    session.run()
    low = session.why(line["mov.b32 {%h1,"], "%h1", 5)
    assert [node.head() for node in every(low)][:3] == [
        "%h1 warp 0 lane 5 = 0x4b80",
        "%r3 warp 0 lane 5 = 0x56904b80",
        "%f1 warp 0 lane 5 = 15",
    ]
    (top,) = session.why((line["movmatrix.sync.aligned.m8n8.trans.b16 %r5,"], "%r5", 4)).nodes  # row 1, columns 0 and 1
    (matrix,) = top.children
    assert matrix.head() == "%r4 warp 0 lanes 0, 4"  # of rows 0 and 1, column 1
    (summed,) = session.why(line["redux.sync.add.u32 %r6,"], "%r6", 0).nodes
    assert summed.children[0].head() == "%r5 warp 0 lanes 0-31"


def test_tensor_memory_is_followed_through_the_product() -> None:
    tiles = [
        tcsim.MatrixDescriptor.for_tile(rows, 16, "f16", arch="sm_100", swizzle="NONE", start_address=at)
        for rows, at in ((64, 1024), (8, 3072))
    ]
    idesc = tcsim.InstructionDescriptor(kind="f16", a_format="f16", m=64, n=8).encode()
    body = f"""
    ld.param.u64 %rd1, [a];
    mul.wide.u32 %rd2, %r0, 16;
    add.s64 %rd3, %rd1, %rd2;
    mov.u32 %r1, smem;
    shl.b32 %r2, %r0, 4;
    add.u32 %r3, %r1, %r2;
    setp.lt.u32 %p2, %r0, 144;
    @%p2 ld.global.v4.b32 {{%r4, %r5, %r6, %r7}}, [%rd3];
    @%p2 st.shared.v4.b32 [%r3], {{%r4, %r5, %r6, %r7}};
    bar.sync 0;
    setp.ge.u32 %p3, %r0, 32;
    @%p3 bra END;
    tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [smem+8192], 32;
    ld.shared.u32 %r8, [smem+8192];
    setp.ne.u32 %p0, %r0, 0;
    setp.ne.u32 %p1, 0, 0;
    @%p0 bra WAIT;
    mbarrier.init.shared::cta.b64 [smem+8200], 1;
    mov.b64 %rd4, {tiles[0].descriptor.encode()};
    mov.b64 %rd5, {tiles[1].descriptor.encode()};
    mov.b32 %r9, {idesc};
    tcgen05.mma.cta_group::1.kind::f16 [%r8], %rd4, %rd5, %r9, %p1;
    tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [smem+8200];
    WAIT:
    bar.warp.sync -1;
    AGAIN:
    mbarrier.try_wait.parity.shared::cta.b64 %p4, [smem+8200], 0;
    @!%p4 bra AGAIN;
    tcgen05.ld.sync.aligned.32x32b.x8.b32 {{%r10, %r11, %r12, %r13, %r14, %r15, %r16, %r17}}, [%r8];
    tcgen05.wait::ld.sync.aligned;
    mov.b32 %r18, %r13;
    END:
    """
    random = np.random.default_rng(0)
    a, b = (random.integers(-4, 5, (rows, 16)).astype(np.float16) for rows in (64, 8))
    image = np.concatenate([tile.image(own) for tile, own in zip(tiles, (a, b), strict=True)])
    memory = Memory()
    at = memory.allocate(image)
    source = text(".param .u64 a", body, target="sm_100a")
    session = parse(source).kernel().session(memory, [at], block=(160, 1, 1))
    session.name("image", at, (144, 8), "f16")  # rows of core matrices
    session.run()
    assert session.result.completed, session.hazards
    line = next(
        number for number, words in enumerate(source.splitlines(), 1) if words.strip().startswith("mov.b32 %r18")
    )
    row, column = 5, 3
    why = session.why(line, "%r18", row)
    found = operands(why)
    codes = np.float32(a[row]) @ np.float32(b[column])
    assert np.uint32(session.registers("%r18", 0).codes[row]).view(np.float32) == codes
    rows = {
        tile: own.addresses(64 if not tile else 8, 16, "f16")[row if not tile else column]
        for tile, own in enumerate(t.descriptor for t in tiles)
    }
    expected = [[((int(place) - 1024) // 16, (int(place) - 1024) % 16 // 2) for place in rows[tile]] for tile in (0, 1)]
    assert found["A"] == session.arrays["image"].text(expected[0]) and found["B"] == session.arrays["image"].text(
        expected[1]
    )


def test_bytes_by_their_address_and_registers_by_line_and_lane() -> None:
    own = Launched("transposed")
    session = own.session()
    session.run(own.line("mma.sync"))
    shared = session.why(1024 + 2)
    assert [node.head() for node in every(shared)] == ["shared 0x402 to 0x402", f"a[0, 1] = {own.array('a')[0, 1]:g}"]
    assert session.why(session.arrays["a"].start).nodes[0].head().startswith("a[0, 0] = ")
    before = session.why(own.line("ldmatrix"), "%a0", 4)
    assert before.nodes[0].children[0].origin == "a[1, 0:2]"
    assert session.why("c[3, 3]").nodes[0].head() == "c[3, 3] = 0"  # nothing wrote it yet


def test_a_tree_fits_on_a_screen_and_expands_and_is_plain_data() -> None:
    own = Launched("late")
    session = own.session()
    session.run()
    why = session.why("c[0, 1]")
    assert len(why.lines()) <= 22 and max(map(len, why.lines())) <= 80 and len(why.lines(200)) > 30
    assert any("... 1.1.2" in line for line in why.lines())
    part = why.expand("1.1.2.2")
    assert part.lines()[0].endswith(", 1.1.2.2") and part.nodes[0].path == "1.1.2.2"
    data = json.loads(json.dumps(why.as_dict()))
    assert data["tree"][0]["line"] == own.line("st.global") and data["remarks"][0]["path"] == "1.1.1.2"
    assert data["tree"][0]["children"][0]["executions"] == 4
    with pytest.raises(OperandError, match=r"no node '1.7'; valid: 1.1"):
        why.expand("1.7")


def test_a_small_log_forgets_what_is_oldest_and_says_so() -> None:
    own = Launched("transposed")
    session = own.session(log=12_000)
    session.run()
    assert 0 < session.stepper.log.bytes <= 12_000 and session.stepper.log.first > 0
    assert "the log still has" in session.why("c[0, 1]").remarks[-1][1]


def test_wrong_questions_are_refused() -> None:
    own = Launched("transposed")
    session = own.session()
    session.run(own.line("mma.sync"))
    for question, said in (
        (("x[0]",), "valid: an element of a, b, c"), (("c[99, 0]",), r"valid: indices below \(16, 8\)"), ((1 << 40,), "neither mapped nor in shared"),
        ((own.line("mma.sync"), "%f0", 0), "nothing was executed at line"), ((own.line("ldmatrix"), "%f0", 0), "did not write %f0"),
        ((own.line("ldmatrix"), "%a0", 99), "valid: a thread of the block"), ((own.line("ldmatrix"), "%zz", 0), "no register '%zz'"),
    ):  # fmt: skip
        with pytest.raises(OperandError, match=said):
            session.why(*question)
