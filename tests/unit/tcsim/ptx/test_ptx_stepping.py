"""A launch that is stepped through does what it does otherwise; what a session says of it is what is there."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from tcsim import MatrixDescriptor
from tcsim.core.errors import OperandError
from tcsim.launchers.job import execute
from tcsim.launchers.recording import from_fields
from tcsim.launchers.stepped import session as session_of
from tcsim.layouts.layout import Layout
from tcsim.ptx import LaunchError, Memory, parse
from tcsim.ptx.stepping.breakpoints import OnHazard, Phase
from tests.kernels.test_ptx_launches import KEPT
from tests.support.ptx_copies import text
from tests.support.stepped_kernels import NAMES, Launched

SAMPLE = (
    "cuda_recursion_sm_90a", "cuda_ring_sm_90a", "cuda_multicast_sm_90a", "cuda_matmul_sm_90a", "triton_matmul_f16_sm_90a",
    "triton_scans_sm_80", "cuda_contraction_sm_80",
)  # fmt: skip


@pytest.mark.parametrize("name", SAMPLE)
@pytest.mark.parametrize("schedule", ["late", 3])
def test_a_stepped_launch_does_what_the_launch_does(name: str, schedule: str | int) -> None:
    job = from_fields(KEPT[name], name).job("sm_90", schedule)
    plain = execute(job)
    with session_of(job) as session:
        for _ in range(5):
            session.step()
        session.run()
    regions = {own.name: own for own in job.regions}
    left = {own: session.memory.read(plain.addresses[own], len(region.before)) for own, region in regions.items()}
    assert session.result == plain.run and plain.run.completed
    assert {own: data.tobytes() for own, data in left.items()} == {
        own: data.tobytes() for own, data in plain.after.items()
    }
    compared = [own for own, region in regions.items() if region.expected is not None]
    assert compared and all(np.array_equal(left[own], regions[own].expected) for own in compared)


@pytest.mark.parametrize("name", NAMES)
def test_the_wrong_kernels_are_wrong_and_the_right_ones_right(name: str) -> None:
    for wrong in (False, True):
        own = Launched(name, wrong)
        with own.session() as session:
            session.run()
            differing = int((own.result(session) != own.expected).sum())
            assert session.result.completed and (differing > 100) == wrong and (differing == 0) != wrong


def test_steps_of_anyone_of_a_warp_and_of_a_block() -> None:
    body = """
    setp.lt.u32 %p0, %r0, 32;
    @%p0 bra FIRST;
    add.u32 %r1, %r0, 1;
    bra END;
    FIRST:
    add.u32 %r1, %r0, 2;
    END:
    bar.sync 0;
    """
    source = text("", body)
    line = {words: number for number, words in enumerate(source.splitlines(), 1)}
    with parse(source).kernel().session(Memory(), [], grid=(2, 1, 1), block=(64, 1, 1)) as session:
        assert session.position == 0 and session.line == line["    mov.u32 %r0, %tid.x;"] and len(session.threads) == 64
        session.run(line["    @%p0 bra FIRST;"])
        first, second = line["    add.u32 %r1, %r0, 2;"], line["    add.u32 %r1, %r0, 1;"]
        session.step(warp=0)
        assert session.line == first and session.threads == tuple(range(32))
        session.step(warp=0)
        assert session.line == line["    bar.sync 0;"]  # where all meet: the other warp came there too
        assert session.registers("%r1", warp=0).values[:2] == (2, 3) and session.registers("%r1", warp=1).values[
            :2
        ] == (33, 34)
        session.go_to(0)
        session.run(second)
        assert session.threads == tuple(range(32, 64))
        session.step(block=(1, 0, 0))
        assert session.block == (1, 0, 0) and session.line == line["    mov.u32 %r0, %tid.x;"]
        assert session.run().ended and session.result.completed


def test_going_back_is_going_there_again() -> None:
    own = Launched("transposed")
    session = own.session()
    session.run(own.line("mma.sync"))
    seen = session.fragment(own.line("mma.sync"), "b").as_dict(), session.position
    session.run()
    assert session.ended and (own.result(session) != 0).any()
    session.go_to(seen[1])
    assert session.line == own.line("mma.sync") and (own.result(session) == 0).all()
    assert session.fragment(own.line("mma.sync"), "b").as_dict() == seen[0]
    session.back(2)
    assert session.position == seen[1] - 2


def test_breakpoints_stop_at_lines_conditions_phases_and_hazards() -> None:
    own = Launched("swizzled")
    session = own.session()
    wait = own.line("mbarrier.try_wait")
    number = session.break_at(wait)
    assert session.run().reason == f"breakpoint {number}: line {wait}"
    (barrier,) = session.mbarriers()
    assert (barrier.expected, barrier.pending, barrier.bytes, barrier.phase) == (1, 0, 9216, 0)
    assert [(own.kind, own.group, own.read) for own in session.groups()] == [("", None, False)] * 2
    assert session.groups()[0].writes == ("shared 0x400 to 0x23ff",)
    session.remove(number)
    assert session.run(Phase(barrier.address)).reason.startswith("mbarrier 0x2800")
    assert session.mbarriers()[0].phase == 1 and session.groups() == []
    session.run(lambda at: at.line and at.registers("%f0", warp=1).codes[0])
    assert session.line is not None and session.line > own.line("wgmma.wait_group") and not session.ended
    assert session.run("nowhere.cu:1").ended
    with pytest.raises(OperandError, match="no breakpoint 1; valid: there is none"):
        session.remove(1)
    trapping = (
        parse(text("", "@%p0 trap; setp.eq.u32 %p1, %r0, 3; @%p1 trap;"))
        .kernel()
        .session(Memory(), [], block=(32, 1, 1))
    )
    where = trapping.run(OnHazard())
    assert where.ended and where.reason == "ended by a hazard" and [own.name for own in trapping.hazards] == ["TRAP"]
    assert not trapping.result.completed


def test_a_source_line_is_a_place_to_stop_and_to_step_to() -> None:
    body = ".loc 1 10 0\nadd.u32 %r1, %r0, 1;\nadd.u32 %r2, %r1, 1;\n.loc 1 11 0\nadd.u32 %r3, %r2, 1;\n.loc 1 12 0\nadd.u32 %r4, %r3, 1;"
    source = text("", body).replace(".visible", '.file 1 "a.cu"\n.visible')
    session = parse(source).kernel().session(Memory(), [], block=(32, 1, 1))
    assert session.run("a.cu:10").threads[0].source == "a.cu:10"
    assert session.step_source().threads[0].source == "a.cu:11"
    assert session.run("12").threads[0].text == "add.u32 %r4, %r3, 1;"


def test_fragments_are_the_matrices_that_the_kernel_meant() -> None:
    own = Launched("transposed", wrong=False)
    session, line = own.session(), own.line("mma.sync")
    session.run(line)
    a, b = own.array("a"), own.array("b")
    assert np.array_equal(session.fragment(line, "a").values, a) and np.array_equal(
        session.fragment(line, "b").values, b
    )
    assert session.fragment(line, "a").element(8, 6) == {
        "name": "A[8, 6]", "value": float(a[8, 6]), "code": int(a.view(np.uint16)[8, 6]), "place": "%a1 lane 3 [15:0]",
    }  # fmt: skip
    session.step()
    assert np.array_equal(session.fragment(line, "d").values, own.expected)
    loaded = own.line("ldmatrix", 1)
    turned = np.concatenate([b[:8].T, b[8:].T])
    assert np.array_equal(session.fragment(loaded, "d", format="f16").values, turned)
    assert np.array_equal(session.fragment(loaded, "d").values, turned.view(np.uint16))
    with pytest.raises(OperandError, match=f"line {line - 1} has mov.f32"):
        session.fragment(line - 1, "a")
    with pytest.raises(OperandError, match="no matrix 'e'; valid: d, a, b, c"):
        session.fragment(line, "e")


def test_shared_memory_is_shown_as_bytes_through_a_swizzle_and_as_the_tile_that_it_is() -> None:
    own = Launched("swizzled", wrong=False)
    session, line = own.session(), own.line("wgmma.mma_async", 1)
    session.run(line)
    a, b = own.array("a"), own.array("b")
    assert np.array_equal(session.fragment(line, "a").values, a[:, 16:32])
    assert np.array_equal(session.fragment(line, "b").values, b[:, 16:32])
    map_a, descriptor = (
        own.job.params[0].tensor_map,
        MatrixDescriptor(start_address=1024, stride_byte_offset=1024, swizzle="128B"),
    )
    shown = [
        session.shared(1024, tile=map_a),
        session.shared(tile=descriptor, rows=64, columns=64, format="f16"),
        session.shared(1024, rows=64, columns=64, format="f16", pitch=128, swizzle="128B"),
        session.shared(1024, tile=Layout((64, 64), (64, 1)), format="f16", swizzle="128B"),
    ]
    assert all(np.array_equal(tile.values, a) for tile in shown)  # type: ignore[attr-defined]
    assert session.shared(1024, 1024, swizzle="128B").data == a[:8].tobytes()  # type: ignore[attr-defined]
    assert session.shared(1024 + 128, 16).data == a[1, 8:16].tobytes()  # type: ignore[attr-defined]
    with pytest.raises(OperandError, match="valid: inside the block's shared memory"):
        session.shared(10_000, rows=64, columns=64, format="f16")
    session.run(own.line("wgmma.wait_group"))
    assert [(own.kind, own.group, len(own.threads)) for own in session.groups()] == [("wgmma", 0, 128)] * 4


def test_groups_say_which_wait_is_for_them() -> None:
    own = Launched("late")
    session = own.session()
    session.run(own.line("cp.async.wait_group"))
    assert [(item.kind, item.group) for item in session.groups()] == [("cp.async", 1)] * 2 + [("cp.async", 0)] * 2
    assert {item.line for item in session.groups()} == {own.line("cp.async.ca", place) for place in range(4)}


def test_tensor_memory_is_a_matrix() -> None:
    body = """
    tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [smem], 32;
    ld.shared.u32 %r1, [smem];
    cvt.rn.f32.u32 %f0, %r0;
    mov.b32 %r2, %f0;
    tcgen05.st.sync.aligned.32x32b.x1.b32 [%r1], {%r2};
    tcgen05.wait::st.sync.aligned;
    """
    session = parse(text("", body, target="sm_100a")).kernel().session(Memory(), [], block=(32, 1, 1))
    session.run()
    shown = session.tmem(columns=(0, 2), lanes=(0, 32))
    assert [line[0] for line in shown.values] == list(range(32)) and shown.element(5, 1)["place"] == "lane 5 column 1"
    with pytest.raises(OperandError, match="valid: up to 128 lanes, 512 columns"):
        session.tmem(columns=(0, 513))


def every_answer(session: Any, line: int) -> list[Any]:
    return [
        session.where(), session.registers("%f0", type="f32"), session.fragment(line, "d"), session.shared(size=64), *session.mbarriers(),
        *session.groups(), session.shared(rows=4, columns=64, format="f16"),
    ]  # fmt: skip


def test_every_answer_is_plain_data_and_fits_80_columns() -> None:
    own = Launched("swizzled")
    session = own.session()
    session.run(own.line("wgmma.wait_group"))
    answers = every_answer(session, own.line("wgmma.mma_async"))
    session.run(own.line("mbarrier.try_wait"))
    for answer in (*answers, *every_answer(session, own.line("wgmma.mma_async"))):
        assert json.loads(json.dumps(answer.as_dict())) and answer.lines()
        assert max(map(len, str(answer).splitlines())) <= 80


def test_wrong_use_is_refused() -> None:
    own = Launched("transposed")
    with pytest.raises(LaunchError, match="valid: bytes, an integer above 0"):
        own.session(log=0)
    session = own.session()
    with pytest.raises(OperandError, match="no register '%nothing' in product; nearest"):
        session.registers("%nothing")
    with pytest.raises(OperandError, match=r"no block \(4, 0, 0\) runs; valid: \(0, 0, 0\)"):
        session.registers("%lane", block=(4, 0, 0))
    with pytest.raises(OperandError, match="valid: a line"):
        session.break_at(1.5)  # type: ignore[arg-type]
