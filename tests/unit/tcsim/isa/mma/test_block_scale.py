"""Block-scaled mma.sync and mma.sp: rows against the assembler's inventory, operands, scale layouts, wrong use."""

from __future__ import annotations

import csv
from typing import Any

import numpy as np
import pytest

import tcsim
from tcsim import catalog
from tcsim.core.errors import FormatError, InstructionError, OperandError
from tcsim.core.targets import TARGETS
from tcsim.isa.mma.scaled_multiply import ScaledMatrixMultiply, ScaledRow
from tcsim.layouts.block_scales import ScaleLayout
from tcsim.model.row import Row
from tests.exact import block_scaling as exact
from tests.support.ptx_copies import run, text
from tests.support.scale_cases import MX4, MX8, NEAR_MISSES, NV4, ROWS, SPARSE_MX4
from tests.support.tables import TABLES

INVENTORY = TABLES / "mma_block_scale_inventory.csv"


def inventory() -> dict[str, dict[str, str]]:
    """What ptxas accepts, by mnemonic."""
    lines = [line for line in INVENTORY.read_text().splitlines() if not line.startswith("#")]
    return {line["mnemonic"]: line for line in csv.DictReader(lines)}


def scaled(row: Row) -> ScaledRow:
    """A row with its scales."""
    assert isinstance(row, ScaledRow)
    return row


def instruction(mnemonic: str, arch: str = "sm_120") -> ScaledMatrixMultiply:
    """An instruction of these families."""
    found = tcsim.instruction(mnemonic, arch=arch)
    assert isinstance(found, ScaledMatrixMultiply)
    return found


# ---- rows


def test_the_registry_is_the_inventory() -> None:
    """Exactly the spellings that ptxas accepts, each with exactly its targets and version; and the SASS it was seen as."""
    wanted = inventory()
    assert set(ROWS) == set(wanted)
    assert len(wanted) == 110
    for mnemonic, line in wanted.items():
        row = ROWS[mnemonic]
        assert (row.targets, row.ptx_version, row.documented) == (
            tuple(line["targets"].split()), line["min_ptx_isa"], line["documented"] == "1",
        )  # fmt: skip
        assert instruction(mnemonic).lowering.opcodes == ((line["sass_sm120a"], 1),)


def test_nothing_of_both_families_is_left_out() -> None:
    """Of 227 mma.sync and 197 mma.sp spellings that ptxas accepts, the registry has all: plain, sparse, block-scaled."""
    rows = catalog.rows()
    assert sum(name.startswith("mma.sync.") for name in rows) == 227
    assert sum(name.startswith(("mma.sp.", "mma.sp::")) for name in rows) == 197


def test_shape_and_formats_are_those_of_the_spelling() -> None:
    checked = 0
    for mnemonic, row in ROWS.items():
        said = exact.parse(mnemonic)
        assert row.shape == (16, 8, said.k)
        assert [row.operands[name].format.name for name in "dabc"] == ["f32", said.a, said.b, "f32"]
        assert row.operands["a"].shape == (16, said.kept)
        assert row.operands["b"].shape == (said.k, 8)
        own = scaled(row)
        assert (own.arithmetic, own.scale_a.format.name, own.scale_b.format.name) == (said.kind, said.scale, said.scale)
        assert (own.scale_a.shape, own.scale_b.shape) == ((16, said.blocks), (said.blocks, 8))
        assert (own.sparsity is not None) == said.sparse
        assert instruction(mnemonic).block == said.k // said.blocks
        checked += 1
    assert checked == 110


def test_every_target_takes_exactly_its_instructions() -> None:
    """sm_120f lacks the sparse fp4 kinds; no target without a suffix, and none before sm_120, has any."""
    counts = {"sm_120f": 105, "sm_120a": 110, "sm_121f": 105, "sm_121a": 110}
    taken, refused = dict.fromkeys(TARGETS, 0), 0
    for mnemonic, row in ROWS.items():
        for target in TARGETS:
            if target in ("sm_120", "sm_121"):  # as archs: they run the suffixed targets' code
                assert tcsim.instruction(mnemonic, arch=target).targets == tuple(
                    t for t in row.targets if t.startswith(target)
                )
            elif target in row.targets:
                assert tcsim.instruction(mnemonic, arch=target).targets == (target,)
                taken[target] += 1
            else:
                with pytest.raises(InstructionError, match=r"needs one of sm_120.*; .* has "):
                    tcsim.instruction(mnemonic, arch=target)
                refused += 1
    assert {target: count for target, count in taken.items() if count} == counts
    assert refused == 110 * 26 - sum(counts.values())


@pytest.mark.parametrize(("right", "old", "new"), NEAR_MISSES)
def test_near_misses_are_refused(right: str, old: str, new: str) -> None:
    """None is guessed at; up to three that exist are named. tests/unit/hwkernels/probes/test_block_scale_probes.py: ptxas refuses them too."""
    with pytest.raises(InstructionError, match="no such instruction; nearest: ") as caught:
        tcsim.instruction(right.replace(old, new), arch="sm_120a")
    offered = str(caught.value).split("nearest: ")[1].split(";")[0].split(", ")
    assert 1 <= len(offered) <= 3
    assert set(offered) <= set(catalog.rows())


def test_evidence_says_no_more_than_is_known() -> None:
    """Nothing was measured; of fp6, of sm_121 and of sparse kinds not even a model speaks, but results of some."""
    levels: dict[str, int] = {}
    for mnemonic, row in ROWS.items():
        said = exact.parse(mnemonic)
        for arch in ("sm_120", "sm_121"):
            evidence = tcsim.instruction(mnemonic, arch=arch).evidence
            if evidence.level == "published":  # tests/unit/conformance/suite/test_published.py says of which
                levels["published"] = levels.get("published", 0) + 1
                assert arch == "sm_120"
                continue
            known = arch == "sm_120" and not said.sparse and not {"e3m2", "e2m3"} & {said.a, said.b}
            assert evidence.level == ("literature" if known else "inferred"), (row.mnemonic, arch)
            assert evidence.source
            levels[evidence.level] = levels.get(evidence.level, 0) + 1
    assert levels == {"published": 12, "literature": 17, "inferred": 220 - 12 - 17}


# ---- operands and scales


def test_fragments_are_where_the_manual_says() -> None:
    """Every element of A, B and C against the slow model's formula: fp4 of mxf4 kinds packed, others a byte each."""
    checked = 0
    for mnemonic in (MX8, MX8.replace("e4m3.e4m3", "e2m1.e3m2"), MX4, NV4, SPARSE_MX4):
        own, row = exact.parse(mnemonic), ROWS[mnemonic]
        for name in "abc":
            layout = row.operands[name].layout
            assert layout.element_bits == (32 if name == "c" else own.stored_bits)
            for m in range(layout.rows):
                for n in range(layout.columns):
                    lane, register, slot = layout.where(m, n)
                    bit = slot * layout.element_bits
                    assert (lane, register, bit) == exact.element_place(own, name, m, n)
                    checked += 1
    assert checked == 2 * (16 * 32 + 32 * 8 + 128) + 2 * (16 * 64 + 64 * 8 + 128) + 16 * 64 + 128 * 8 + 128


@pytest.mark.parametrize("blocks", [1, 2, 4])
def test_scales_are_where_the_manual_says(blocks: int) -> None:
    """Both ways, for all selectors, against the slow model's formula; bytes that are not read say so."""
    checked = 0
    for side, extent, place in (("a", 16, exact.scale_place_a), ("b", 8, exact.scale_place_b)):
        layout = ScaleLayout("a" if side == "a" else "b", extent, blocks)
        for byte_id in layout.byte_ids:
            for thread_id in layout.thread_ids:
                selectors = {"byte_id": byte_id, "thread_id": thread_id}
                read = set()
                for outer in range(extent):
                    for block in range(blocks):
                        row, column = (outer, block) if side == "a" else (block, outer)
                        lane, register, slot = layout.where(row, column, **selectors)
                        assert (lane, slot) == place(outer, block, byte_id, thread_id)
                        assert register == 0
                        assert layout(lane, 0, slot, **selectors) == (row, column)
                        read.add((lane, slot))
                        checked += 1
                for lane in range(32):
                    for slot in range(4):
                        if (lane, slot) not in read:
                            with pytest.raises(OperandError, match="is not read with byte_id_"):
                                layout(lane, 0, slot, **selectors)
    assert checked == blocks * len(layout.byte_ids) * (2 * 16 + 4 * 8)


def test_scale_layouts_print_as_cute_layouts_of_bytes() -> None:
    """From (row, block) to the byte of the 128 that a warp holds."""
    mma = instruction(NV4)
    assert str(mma.scales["scale_a"].layout) == "((8,2),4):((16,4),1) + 8*thread_id + byte_id"
    assert str(mma.scales["scale_b"].layout) == "(8,4):(16,1) + 4*thread_id + byte_id"
    rows, columns = mma.scales["scale_a"].layout(np.arange(8) * 4, 0, 3)
    assert (rows.tolist(), columns.tolist()) == (list(range(8)), [3] * 8)
    lanes, registers, slots = mma.scales["scale_b"].layout.where(np.full(8, 2), np.arange(8), thread_id=3)
    assert (lanes.tolist(), registers.tolist(), slots.tolist()) == ([4 * n + 3 for n in range(8)], [0] * 8, [2] * 8)


def test_scale_registers_and_matrices_are_inverse() -> None:
    generator, checked = np.random.default_rng(7), 0
    for mnemonic in (MX8, MX4, NV4):
        mma = instruction(mnemonic)
        for side in ("a", "b"):
            operand = mma.scales[f"scale_{side}"]
            scales = generator.integers(0, 256, (3, *operand.shape)).astype(np.uint8)
            for byte_id in operand.layout.byte_ids:
                for thread_id in operand.layout.thread_ids:
                    words = mma.scale_registers("a" if side == "a" else "b", scales, byte_id, thread_id)
                    assert (words.shape, words.dtype) == ((3, 32), np.uint32)
                    back = mma.scale_matrix("a" if side == "a" else "b", words, byte_id, thread_id)
                    assert (back == scales).all()
                    checked += scales.size
    assert checked == 3 * (4 * (2 * 16 + 4 * 8) + 2 * 2 * (2 * 16 + 4 * 8) + 4 * (2 * 16 + 4 * 8))


# ---- wrong use


def good(mma: ScaledMatrixMultiply) -> dict[str, Any]:
    """Registers that execute takes."""
    registers: dict[str, Any] = {
        name: np.zeros((32, mma.operands[name].registers), np.uint32) for name in ("a", "b", "c")
    }
    return {**registers, "scale_a": np.zeros(32, np.uint32), "scale_b": np.zeros(32, np.uint32)}


@pytest.mark.parametrize(
    ("mnemonic", "selectors", "complaint"),
    [
        (MX8, {"byte_id_a": 4}, r"byte_id_a 4 does not exist with .scale_vec::1X; valid: 0, 1, 2, 3"),
        (MX4, {"byte_id_a": 1}, r"byte_id_a 1 does not exist with .scale_vec::2X; valid: 0, 2"),
        (MX4, {"byte_id_b": 3}, r"byte_id_b 3 does not exist with .scale_vec::2X; valid: 0, 2"),
        (NV4, {"byte_id_b": 2}, r"byte_id_b 2 does not exist with .scale_vec::4X; valid: 0$"),
        (MX8, {"thread_id_a": 2}, r"thread_id_a 2 does not exist with .scale_vec::1X; valid: 0, 1$"),
        (NV4, {"thread_id_b": 4}, r"thread_id_b 4 does not exist with .scale_vec::4X; valid: 0, 1, 2, 3"),
        (NV4, {"thread_id_b": -1}, r"thread_id_b -1 does not exist"),
        (NV4, {"thread_id_a": 0.5}, r"thread_id_a 0.5 is not an integer; valid: 0, 1"),
        (NV4, {"thread_id_a": np.array([0, 3])}, r"thread_id_a 3 does not exist"),
        (NV4, {"thread_id_a": np.array([0, 1]), "thread_id_b": np.array([0, 1, 2])}, r"do not broadcast"),
    ],
)
def test_selectors_that_do_not_exist(mnemonic: str, selectors: dict[str, Any], complaint: str) -> None:
    """The call, the selector, and what would be valid."""
    mma = instruction(mnemonic)
    with pytest.raises(OperandError, match=complaint) as caught:
        mma.execute(**good(mma), **selectors)
    assert str(caught.value).startswith(f'tcsim.instruction("{mnemonic}", arch="sm_120").execute: ')


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"scale_a": None}, r"scale_a is object \(\); valid: uint32 \(..., 32\)"),
        ({"scale_b": np.zeros(16, np.uint32)}, r"scale_b is uint32 \(16,\)"),
        ({"scale_b": np.zeros(32, np.uint8)}, r"scale_b is uint8 \(32,\)"),
        ({"a": np.zeros((32, 2), np.uint32)}, r"a is uint32 \(32, 2\); valid: uint32 \(..., 32, 4\)"),
        ({"a": np.zeros((2, 32, 4), np.uint32), "scale_a": np.zeros((3, 32), np.uint32)}, "do not broadcast"),
    ],
)
def test_registers_that_do_not_fit(change: dict[str, Any], complaint: str) -> None:
    mma = instruction(NV4)
    with pytest.raises(OperandError, match=complaint):
        mma.execute(**{**good(mma), **change})


def test_scales_may_be_words_or_registers() -> None:
    """(..., 32), or (..., 32, 1) as other operands have it."""
    mma = instruction(NV4)
    operands = good(mma) | {"scale_a": np.arange(32, dtype=np.uint32), "a": np.full((32, 4), 0x22222222, np.uint32)}
    operands["b"], operands["scale_b"] = np.full((32, 2), 0x22222222, np.uint32), np.full(32, 0x38383838, np.uint32)
    column = {name: operands[name][:, None] for name in ("scale_a", "scale_b")}
    assert (mma.execute(**operands) == mma.execute(**{**operands, **column})).all()


@pytest.mark.parametrize(
    ("change", "kind", "complaint"),
    [
        ({"scale_a": np.zeros((16, 2), np.uint8)}, OperandError, r"scale_a has shape \(16, 2\); valid: \(..., 16, 4\)"),
        ({"scale_b": np.zeros((8, 4), np.uint8)}, OperandError, r"scale_b has shape \(8, 4\); valid: \(..., 4, 8\)"),
        ({"scale_a": None}, FormatError, r"scale_a is None; valid: codes of ue4m3, \(..., 16, 4\)"),
        ({"scale_a": np.zeros((16, 4), np.float32)}, FormatError, "dtype float32 does not hold codes of ue4m3"),
        ({"a": np.zeros((16, 32), np.uint8)}, OperandError, r"a has shape \(16, 32\); valid: \(..., 16, 64\)"),
        ({"b": np.full((64, 8), 16, np.uint8)}, FormatError, "0x10 is not a code of e2m1"),
    ],
)
def test_matrices_that_do_not_fit(change: dict[str, Any], kind: type[Exception], complaint: str) -> None:
    mma = instruction(NV4)
    operands: dict[str, Any] = {
        "a": np.zeros((16, 64), np.uint8), "b": np.zeros((64, 8), np.uint8), "c": np.zeros((16, 8), np.float32),
        "scale_a": np.zeros((16, 4), np.uint8), "scale_b": np.zeros((4, 8), np.uint8),
    }  # fmt: skip
    mma.matmul(**operands)
    with pytest.raises(kind, match=complaint):
        mma.matmul(**{**operands, **change})


def test_sparse_wrong_use() -> None:
    """The one selector of metadata, undefined metadata, positions that 4-bit elements cannot have."""
    mma = tcsim.instruction(SPARSE_MX4, arch="sm_120")
    operands = good(mma)
    words = np.full(32, 0x44444444, np.uint32)
    assert mma.execute(**operands, metadata=words).shape == (32, 4)
    with pytest.raises(OperandError, match="selector 1 does not exist; valid: 0"):
        mma.execute(**operands, metadata=words, selector=1)
    with pytest.raises(OperandError, match=r"metadata 0b0000 of row 0, group 0 is undefined; valid: 0b0100"):
        mma.execute(**operands, metadata=words & 0)
    with pytest.raises(OperandError, match=r"metadata 0b0001 of row 0"):  # ordered_metadata promises increasing indices
        mma.execute(**operands, metadata=np.full(32, 0x11111111, np.uint32))
    a, b = np.zeros((16, 64), np.uint8), np.zeros((128, 8), np.uint8)
    scales = {"scale_a": np.zeros((16, 2), np.uint8), "scale_b": np.zeros((2, 8), np.uint8)}
    with pytest.raises(OperandError, match="4-bit elements are kept in pairs"):
        mma.matmul(a, b, np.zeros((16, 8), np.float32), **scales, metadata=np.tile([0, 2, 4, 6], (16, 16)))


def test_a_scale_register_in_braces() -> None:
    """`{%r3}` is `%r3`, and ids in registers are those that are written as numbers: so CUTLASS writes them, and so a lane's own scale counts."""
    name = "mma.sync.aligned.m16n8k32.row.col.kind::mxf8f6f4.block_scale.f32.e4m3.e4m3.f32.ue8m0"
    body = """
    ld.param.u64 %rd1, [out]; mov.u32 %r2, 0x38383838; add.u32 %r3, %r0, 120; mov.f32 %f5, 0f00000000;
    mov.b16 %h1, 0; mov.b16 %h2, 1;
    MMA {%f1, %f2, %f3, %f4}, {%r2, %r2, %r2, %r2}, {%r2, %r2}, {%f5, %f5, %f5, %f5}, SCALES;
    shl.b32 %r4, %r0, 4; cvt.u64.u32 %rd2, %r4; add.u64 %rd1, %rd1, %rd2;
    st.global.v4.f32 [%rd1], {%f1, %f2, %f3, %f4};
    """
    found = []
    for scales in ("%r3, {0, 1}, %r3, {0, 0}", "{%r3}, {0, 1}, {%r3}, {0, 0}", "{%r3}, {%h1, %h2}, {%r3}, {%h1, %h1}"):
        source = text(".param .u64 out", body.replace("MMA", name).replace("SCALES", scales), "sm_120a")
        ran, memory = run(source, {0x10000: np.zeros(128, np.float32)}, [0x10000], "late")
        assert ran.completed and not ran.hazards
        found.append(memory[0x10000].view(np.float32))
    # Row m of A takes its scale from lane 4 * (m % 8) + 2 + m // 8, column n of B from lane 4 * n; d has rows m and m + 8.
    row, column = np.divmod(np.arange(32), 4)
    want = np.stack(
        [32 * 2.0 ** (4 * row + 2 + high + 4 * (2 * column + low) - 14) for high in (0, 1) for low in (0, 1)], 1
    )
    assert np.array_equal(found[0], want.reshape(-1).astype(np.float32))
    assert np.array_equal(found[0], found[1]) and np.array_equal(found[0], found[2])
