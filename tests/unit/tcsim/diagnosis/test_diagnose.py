"""tcsim.diagnose names planted mistakes, and nothing else."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tcsim
from tcsim.catalog import on_arch
from tests.support import planted
from tests.support.extent import WHOLE
from tests.support.planted import Planted
from tests.unit.tcsim.diagnosis import planted_memory, planted_moves, planted_scales

FAMILIES = {
    "mma.sync": (planted.MATRIX + planted.REGISTERS, 40),
    "mma.sp": (planted_memory.SPARSE, 70),
    "wgmma.sp": (planted_memory.SPARSE, 20),
    "mma.sync.block_scale": (planted_scales.SCALED, 35),
    "tcgen05.mma": (planted_scales.TENSOR, 35),
    "wmma.mma": (planted.MATRIX + planted.REGISTERS, 40),
    "wgmma": (planted.MATRIX + planted_memory.MEMORY, 70),
    "ldmatrix": (planted_moves.MOVES, 30),
    "stmatrix": (planted_moves.MOVES, 20),
    "movmatrix": (planted_moves.MOVES, 1),
    "wmma.load": (planted_moves.MOVES, 40),
    "wmma.store": (planted_moves.MOVES, 30),
    "cvt": (planted_moves.MOVES, 90),
}
"""By family: what is planted, and how many cases."""
ARCH = {"mma.sync.block_scale": "sm_120", "tcgen05.mma": "sm_100"}
"""Where a family runs, if not on sm_90."""


def said(found: tcsim.diagnosis.Diagnosis) -> set[str]:
    """The names of the mistakes that explain everything, with other names of the same."""
    also = (other for item in found.explanations for other in item.also)
    return {item.mistake for item in found.explanations} | {other.partition(" (")[0] for other in also}


def count_of(family: str) -> int:
    """How many cases of a family are asked: a quarter, all of them with TCSIM_WHOLE=1."""
    return FAMILIES[family][1] if WHOLE else -(-FAMILIES[family][1] // 4)


def cases(family: str) -> Iterator[Planted]:
    """The family's cases: its instructions in even steps, each mistake in turn."""
    plants, wanted = FAMILIES[family][0], count_of(family)
    rows = list(on_arch(ARCH.get(family, "sm_90"), family))
    if family.startswith("wgmma"):
        rows = [row for row in rows if row.shape[1] <= 128]  # quicker, and the same mistakes
    made = 0
    for turn in range(40 * wanted):
        row = rows[turn * 37 % len(rows)]
        plant = plants[(turn + turn // len(rows)) % len(plants)]
        case = plant(
            np.random.default_rng((turn, len(rows))), tcsim.instruction(row.mnemonic, arch=ARCH.get(family, "sm_90"))
        )
        if case is None:
            continue
        made += 1
        yield case
        if made == wanted:
            return


@pytest.mark.parametrize("family", FAMILIES)
def test_planted_mistakes_are_named(family: str) -> None:
    """At least 95 % of the cases, and none is given another name with confidence."""
    count, named, wrong = 0, 0, []
    verdicts: Counter[str] = Counter()
    for case in cases(family):
        found = tcsim.diagnose(case.instruction, **case.arguments)
        count += 1
        verdicts[found.verdict] += 1
        names = said(found)
        named += case.mistake in names
        if found.verdict == "explained" and case.mistake not in names:
            wrong.append(f"{case.instruction.mnemonic}: {case.mistake} was called {found.mistake}")
    assert count >= count_of(family) * 0.9, f"only {count} cases"
    assert not wrong
    assert named >= 0.95 * count, verdicts


@pytest.mark.parametrize(
    ("plant", "mnemonic", "arch", "detail"),
    [
        (planted_memory.SPARSE[0], "mma.sp.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32", "sm_90", "in each 4 along K the two halves are exchanged"),
        (planted_scales.TENSOR[4], "tcgen05.mma.cta_group::2.kind::mxf8f6f4.block_scale.block32", "sm_100", "blocks of 4 exchanged in pairs"),
    ],
)  # fmt: skip
def test_the_plainest_of_several_names_is_said(plant: Any, mnemonic: str, arch: str, detail: str) -> None:
    """The halves of the metadata, and the table of factors before columns that are scaled."""
    case = plant(np.random.default_rng(0), tcsim.instruction(mnemonic, arch=arch))
    found = tcsim.diagnose(case.instruction, **case.arguments)
    assert (found.verdict, found.mistake) == ("explained", case.mistake), str(found)
    assert detail in found.explanations[0].detail and found.explanations[0].bits


def test_there_are_five_hundred_cases() -> None:
    """Over all families that execute."""
    assert sum(count for _, count in FAMILIES.values()) >= 500


MMA = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
WGMMA = "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16"


def tile(
    mnemonic: str, seed: int, times: tuple[int, int, int] = (1, 1, 2)
) -> tuple[tcsim.Instruction, dict[str, np.ndarray]]:
    """An instruction and random operands."""
    ins = tcsim.instruction(mnemonic, arch="sm_90")
    random = np.random.default_rng(seed)
    m, n, k = (size * by for size, by in zip(ins.shape, times, strict=True))
    shapes = {"a": (m, k), "b": (k, n), "c": (m, n)}
    return ins, {name: planted.codes(random, shape, ins.formats[name]) for name, shape in shapes.items()}


@pytest.mark.parametrize("mnemonic", [MMA, WGMMA, "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32"])
def test_the_right_result_is_correct(mnemonic: str) -> None:
    """No mistake is seen where there is none."""
    ins, given = tile(mnemonic, 1)
    found = tcsim.diagnose(ins, **given, observed=tcsim.gemm(given["a"], given["b"], given["c"], instruction=ins))
    assert (found.verdict, found.right, found.mistake) == ("correct", found.outputs, None)
    assert str(found) == f"correct: all {found.outputs:,} outputs are what the model says"


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("mnemonic", [MMA, WGMMA, "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32"])
def test_garbage_is_not_explained(mnemonic: str, seed: int) -> None:
    """Random results, and results of operands that no mistake makes."""
    ins, given = tile(mnemonic, seed)
    random = np.random.default_rng(seed + 1000)
    noise = planted.codes(random, given["c"].shape, ins.operands["d"].format)
    other = planted.codes(random, given["a"].shape, ins.formats["a"])
    for observed in (noise, tcsim.gemm(other, given["b"], given["c"], instruction=ins)):
        found = tcsim.diagnose(ins, **given, observed=observed)
        assert found.verdict == "not explained"
        assert not found.explanations and found.attempts > 50
        assert "not explained: none of" in str(found)


@pytest.mark.parametrize("seed", range(5))
def test_an_unknown_permutation_is_read_off_the_data(seed: int) -> None:
    """Rows of A shuffled at random: no rule is known, and the map itself is the answer."""
    ins, given = tile(MMA, seed)
    order = np.random.default_rng(seed).permutation(16)
    observed = tcsim.gemm(given["a"][order], given["b"], given["c"], instruction=ins)
    found = tcsim.diagnose(ins, **given, observed=observed)
    assert (found.verdict, found.mistake) == ("explained", "a: rows of another block")
    row = next(row for row in range(16) if order[row] != row and order[row - 1] + 1 != order[row])
    assert f"rows {row}" in found.explanations[0].detail and f"are rows {order[row]}" in found.explanations[0].detail


@pytest.mark.parametrize("seed", range(5))
def test_half_a_result_is_partly_explained(seed: int) -> None:
    """One mistake in most rows, something else in the others."""
    ins, given = tile(MMA, 3, (4, 2, 2))
    observed = tcsim.gemm(given["a"], given["b"], None, instruction=ins)
    observed[:8] = planted.codes(np.random.default_rng(seed), (8, 16), ins.operands["d"].format)
    found = tcsim.diagnose(ins, **given, observed=observed)
    assert (found.verdict, found.nearest[0].mistake) == ("partly explained", "accumulator ignored")
    assert found.nearest[0].matched == 56 * 16 and found.fraction == 56 / 64


def test_a_part_that_was_never_written() -> None:
    """Rows that hold what was there before, beside another mistake: both are named."""
    ins, given = tile(MMA, 3, (4, 2, 2))
    observed = tcsim.gemm(given["a"], given["b"], None, instruction=ins)
    observed[:8] = 0x7FC00000
    found = tcsim.diagnose(ins, **given, observed=observed)
    assert found.mistake == "accumulator ignored + part of the output never written"
    assert "rows 0-7, columns 0-15" in str(found)


@pytest.mark.parametrize("row", range(3, 64, 10))
def test_one_output_that_does_not_fit_spoils_an_explanation(row: int) -> None:
    """Wherever it lies: also outside of the outputs that every mistake is tried on first."""
    ins, given = tile(MMA, 7, (4, 4, 2))
    observed = tcsim.gemm(given["a"], given["b"], None, instruction=ins)
    observed[row, 21] ^= 1
    found = tcsim.diagnose(ins, **given, observed=observed)
    assert (found.verdict, found.nearest[0].mistake) == ("partly explained", "accumulator ignored")
    assert found.nearest[0].matched == found.outputs - 1


def test_data_that_cannot_tell_mistakes_apart() -> None:
    """Constant matrices: whatever explains the result, many others would."""
    ins, given = tile(MMA, 4, (1, 1, 1))
    given["a"] = tcsim.encode(np.full((16, 16), 2.0), "f16")
    given["b"] = tcsim.encode(np.full((16, 8), 3.0), "f16")
    observed = tcsim.gemm(given["a"], tcsim.encode(np.full((16, 8), -3.0), "f16"), given["c"], instruction=ins)
    found = tcsim.diagnose(ins, **given, observed=observed)
    assert found.verdict == "ambiguous" and found.mistake is None
    assert {"a negated", "b negated"} <= said(found)
    assert "cannot tell" in str(found)


def test_a_constant_result_was_never_computed() -> None:
    """All zeros, or a pattern that filled the memory before."""
    ins, given = tile(MMA, 5, (1, 1, 1))
    for code in (0, 0xCDCDCDCD):
        found = tcsim.diagnose(ins, **given, observed=np.full((16, 8), code, np.uint32))
        assert found.mistake == "output never written" and f"{code:#x}" in str(found)
    a, b = (np.ones(shape, np.float16) for shape in ((16, 64), (64, 8)))
    found = tcsim.diagnose(MMA, arch="sm_90", a=a, b=b, observed=np.zeros((16, 8), np.float32))
    assert found.verdict == "ambiguous"  # of a whole kernel, or an empty slice of split-K was stored last
    assert {"output never written", "zeros stored over the output"} <= said(found)
    a, b = (np.arange(size, dtype=np.float16).reshape(-1, 64) for size in (1024, 512))
    found = tcsim.diagnose(MMA, arch="sm_90", a=a, b=b.T, observed=np.zeros((16, 8), np.float32))
    assert "the data cannot tell which" in found.note and "behind the end of M = 16" in str(found)


@pytest.mark.parametrize(("written", "read"), [("f16", ml_dtypes.bfloat16), ("bf16", np.float16)])
@pytest.mark.parametrize("slices", [1, 2])
def test_results_that_are_read_in_the_other_format(written: str, read: Any, slices: int) -> None:
    """In the model's order, and as two slices of split-K."""
    random = np.random.default_rng(9)
    a, b = (random.standard_normal(shape).astype(np.float16) for shape in ((32, 64), (64, 24)))
    parts = [slice(64 // slices * place, 64 // slices * (place + 1)) for place in range(slices)]
    sums = [tcsim.gemm(a[:, part], b[part], instruction=MMA).view(np.float32) for part in parts]
    codes = tcsim.encode(np.sum(sums, axis=0, dtype=np.float32), written).astype(np.uint16)
    found = tcsim.diagnose(MMA, arch="sm_90", a=a, b=b, observed=codes.view(read))
    assert found.mistake == f"d: {written} read as {'bf16' if written == 'f16' else 'f16'}"
    assert found.explanations[0].bits or slices > 1
    right = tcsim.diagnose(MMA, arch="sm_90", a=a, b=b, observed=tcsim.decode(codes, written).astype(read))
    assert right.mistake is None or "read as" not in right.mistake


def test_descriptors_that_were_meant_find_those_that_were_sent() -> None:
    """wgmma with shared memory: the descriptor as meant, the result of one with LBO and SBO swapped."""
    ins = tcsim.instruction("wgmma.mma_async.sync.aligned.m64n16k16.f32.f16.f16", arch="sm_90a")
    smem = tcsim.encode(np.random.default_rng(0).standard_normal(4096), "f16").view(np.uint8)
    right = tcsim.MatrixDescriptor(leading_byte_offset=1024, stride_byte_offset=128)
    wrong = tcsim.MatrixDescriptor(leading_byte_offset=128, stride_byte_offset=1024)
    b = tcsim.MatrixDescriptor(start_address=4096, leading_byte_offset=128, stride_byte_offset=256).encode()
    c = np.zeros((128, 8), np.uint32)
    observed = ins.execute(smem, wrong.encode(), b, c)
    found = tcsim.diagnose(ins, smem=smem, a=right.encode(), b=b, c=c, observed=observed)
    assert found.mistake == "a: LBO and SBO swapped"


@pytest.mark.parametrize("sign", [1, -1])
def test_descriptors_and_metadata_of_sparse_wgmma(sign: int) -> None:
    """The same with a sparse A behind a descriptor, with another selector, and with a sign that is turned."""
    ins: Any = tcsim.instruction("wgmma.mma_async.sp.sync.aligned.m64n16k32.f32.f16.f16", arch="sm_90a")
    random = np.random.default_rng(1)
    smem = tcsim.encode(random.standard_normal(4096), "f16").view(np.uint8)
    right = tcsim.MatrixDescriptor(leading_byte_offset=1024, stride_byte_offset=128)
    wrong = tcsim.MatrixDescriptor(leading_byte_offset=128, stride_byte_offset=1024)
    b = tcsim.MatrixDescriptor(start_address=4096, leading_byte_offset=128, stride_byte_offset=512).encode()
    groups = random.choice(np.array(ins.sparsity.valid, np.uint8), (2, 64, ins.sparsity.groups))
    words = [ins.encode_metadata(ins.sparsity.positions_of(own), selector) for selector, own in enumerate(groups)]
    given = {"smem": smem, "b": b, "c": np.zeros((128, 8), np.uint32), "metadata": words[0] | words[1], "scale_b": sign}
    a = {"a": right.encode()}
    cases = (
        ("a: LBO and SBO swapped", ins.execute(a=wrong.encode(), **given)),
        ("metadata selector wrong", ins.execute(**a, **given, selector=1)),
        (None, ins.execute(**a, **given)),
    )
    for mistake, observed in cases:
        found = tcsim.diagnose(ins, **a, **given, observed=observed)
        assert (found.verdict, found.mistake) == (("explained", mistake) if mistake else ("correct", None)), str(found)
    found = tcsim.diagnose(ins, **a, **given, observed=ins.execute(**a, **given | {"scale_b": -sign}))
    assert found.verdict in ("explained", "ambiguous") and "negated" in str(found)


@pytest.mark.parametrize(
    ("changed", "error", "text"),
    [
        ({"x": 1}, tcsim.OperandError, "unknown operand x; valid: a, b, c, metadata"),
        ({"b": np.zeros((16, 8), np.uint16)}, tcsim.OperandError, r"b is \(16, 8\)"),
        ({"a": np.zeros((16, 0), np.uint16), "b": np.zeros((0, 8), np.uint16)}, tcsim.OperandError, "K = 0; valid"),
        ({"a": np.zeros((16, 32), np.float32)}, tcsim.FormatError, "a: dtype float32"),
    ],
)
def test_wrong_use(changed: dict[str, object], error: type[Exception], text: str) -> None:
    """Errors say what would be valid."""
    ins, given = tile(MMA, 6)
    with pytest.raises(error, match=text):
        tcsim.diagnose(ins, **{**given, **changed}, observed=given["c"])


def test_a_missing_operand_and_a_strange_instruction() -> None:
    """Named errors."""
    with pytest.raises(tcsim.OperandError, match="b is missing"):
        tcsim.diagnose(MMA, a=np.zeros((16, 16), np.uint16), observed=np.zeros((16, 8), np.uint32))
    with pytest.raises(tcsim.InstructionError, match="valid: a mnemonic"):
        tcsim.diagnose(3, observed=0)
