"""tcsim.gemm with a compressed A is the instruction's own matmul, block after block; whole matrices are compressed as one row after another."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import tcsim
from conformance.kernels.gemm import pruned
from conformance.stimuli.stream import Stream
from tcsim.isa.mma.sparse_operand import SparseOperand
from tests.support import planted

MNEMONICS = (
    "mma.sp::ordered_metadata.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32",
    "mma.sp.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16",
    "mma.sp::ordered_metadata.sync.aligned.m16n8k16.row.col.f32.tf32.tf32.f32",
    "mma.sp::ordered_metadata.sync.aligned.m16n8k64.row.col.f32.e4m3.e5m2.f32",
    "mma.sp::ordered_metadata.sync.aligned.m16n8k64.row.col.s32.s8.u8.s32",
    "wgmma.mma_async.sp.sync.aligned.m64n24k32.f32.bf16.bf16",
    "wgmma.mma_async.sp.sync.aligned.m64n8k64.f32.e4m3.e4m3",
)


def sparse(mnemonic: str, arch: str = "sm_90") -> SparseOperand:
    """A sparse instruction."""
    found = tcsim.instruction(mnemonic, arch=arch)
    assert isinstance(found, SparseOperand)
    return found


def operands(ins: SparseOperand, sizes: tuple[int, int, int], seed: int) -> tuple[np.ndarray, ...]:
    """Random codes of a dense a that is sparse enough, b and c."""
    random, (m, n, k) = np.random.default_rng(seed), sizes
    formats = [ins.operands["a"].format, ins.row.format_b if ins.row.family == "wgmma.sp" else ins.formats["b"]]  # type: ignore[attr-defined]
    a, b = (planted.codes(random, shape, f) for shape, f in zip(((m, k), (k, n)), formats, strict=True))
    return (
        pruned(a, ins.sparsity.group, Stream("sparse", seed)),
        b,
        planted.codes(random, (m, n), ins.operands["c"].format),
    )


def by_instruction(
    ins: SparseOperand, a: np.ndarray, b: np.ndarray, c: np.ndarray, order: tuple[int, ...]
) -> np.ndarray:
    """Whole tiles only, each with the instruction's own compress and matmul."""
    m, n, k = ins.shape
    out = np.empty(c.shape, ins.operands["d"].format.dtype)
    for top in range(0, a.shape[0], m):
        for left in range(0, b.shape[1], n):
            total = c[top : top + m, left : left + n]
            for block in order:
                inner = slice(block * k, block * k + k)
                kept, positions = ins.compress(a[top : top + m, inner])
                total = ins.matmul(kept, b[inner, left : left + n], total, metadata=positions)  # type: ignore[attr-defined]
            out[top : top + m, left : left + n] = total
    return out


@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
@pytest.mark.parametrize("mnemonic", MNEMONICS)
def test_equals_the_instruction_block_after_block(mnemonic: str, arch: str) -> None:
    """Ragged sizes are filled up with zeros; K in another order too."""
    if arch == "sm_80" and ("wgmma" in mnemonic or "e4m3" in mnemonic):
        with pytest.raises(tcsim.InstructionError):
            sparse(mnemonic, arch)
        return
    ins = sparse(mnemonic, arch)
    m, n, k = ins.shape
    sizes = m + 3, n + 5, 2 * k + k // 2 + 3
    a, b, c = operands(ins, sizes, 2)
    wide = [
        np.zeros(s, x.dtype) for s, x in zip(((2 * m, 3 * k), (3 * k, 2 * n), (2 * m, 2 * n)), (a, b, c), strict=True)
    ]
    for big, small in zip(wide, (a, b, c), strict=True):
        big[: small.shape[0], : small.shape[1]] = small
    kept, positions = ins.sparsity.compress_matrix(a, ins.operands["a"].format.name)
    assert kept.shape == (sizes[0], -(-sizes[2] // ins.sparsity.group) * ins.sparsity.group // 2)
    for order in ((0, 1, 2), (2, 0, 1)):
        want = by_instruction(ins, *wide, order)[: sizes[0], : sizes[1]]
        got = tcsim.gemm(kept, b, c, metadata=positions, instruction=ins, k_order=order)
        assert len(np.unique(want)) > 100
        np.testing.assert_array_equal(got, want)


def test_a_kept_zero_is_multiplied_and_a_dropped_one_is_not() -> None:
    """That is where sparse and dense differ: zero times infinity."""
    ins = sparse(MNEMONICS[0])
    a, b = np.zeros((1, 4), np.float16), np.zeros((4, 1), np.float16)
    a[0, 3] = 1
    b[0] = np.inf
    kept, positions = ins.sparsity.compress_matrix(a, "f16")
    assert positions.tolist() == [[0, 3]]  # the lowest zero fills up
    assert np.isnan(tcsim.gemm(kept, b, metadata=positions, instruction=ins).view(np.float32)).all()
    assert tcsim.gemm(kept, b, metadata=np.array([[1, 3]]), instruction=ins).tolist() == [[0]]


def test_leading_dimensions_broadcast_and_chunks_do_not_show() -> None:
    """A batch of sparse A against one B, rows and columns beyond a chunk."""
    ins, random = sparse(MNEMONICS[0], "sm_80"), np.random.default_rng(3)
    a = pruned(random.standard_normal((260, 70)).astype(np.float16), 4, Stream("chunks")).reshape(2, 130, 70)
    b = random.standard_normal((70, 300)).astype(np.float16)
    kept, positions = ins.sparsity.compress_matrix(a, "f16")
    got = tcsim.gemm(kept, b, metadata=positions, instruction=ins)
    assert got.shape == (2, 130, 300)
    part = slice(100, 116), slice(250, 258)
    picked = tcsim.gemm(kept[1, part[0]], b[:, part[1]], metadata=positions[1, part[0]], instruction=ins)
    np.testing.assert_array_equal(got[1][part], picked)
    np.testing.assert_array_equal(tcsim.gemm(kept[1], b, metadata=positions, instruction=ins)[1], got[1])


def compressed_by_hand(row: list[float], group: int) -> tuple[list[float], list[int]]:
    """One row, element by element: nonzeros, and the first zeros where there are fewer."""
    kept, positions = [], []
    row = row + [0.0] * (-len(row) % group)
    for start in range(0, len(row), group):
        part = row[start : start + group]
        used = [i for i, value in enumerate(part) if value]
        spare = [i for i, value in enumerate(part) if not value]
        chosen = sorted(used + spare[: group // 2 - len(used)])
        kept += [part[i] for i in chosen]
        positions += chosen
    return kept, positions


@pytest.mark.parametrize("mnemonic", MNEMONICS)
@pytest.mark.parametrize("k", [1, 2, 3, 64, 143])
def test_a_matrix_is_compressed_as_by_hand(mnemonic: str, k: int) -> None:
    """Whatever its size."""
    ins, random = sparse(mnemonic), np.random.default_rng(k)
    format_, group = ins.operands["a"].format.name, ins.sparsity.group
    values = pruned(random.integers(-2, 3, (5, k)).astype(float), group, Stream("by hand"))
    if format_ == "u8":
        values = np.abs(values)
    kept, positions = ins.sparsity.compress_matrix(tcsim.encode(values, format_), format_)
    want = [compressed_by_hand(list(row), group) for row in values]
    assert tcsim.decode(kept, format_).tolist() == [item[0] for item in want]
    assert positions.tolist() == [item[1] for item in want]
    columns = replace(ins.sparsity, rows=5, k=2 * kept.shape[1]).columns(positions)
    dense = np.zeros((5, 2 * kept.shape[1]))
    np.put_along_axis(dense, columns, tcsim.decode(kept, format_).astype(float), axis=-1)
    np.testing.assert_array_equal(dense[:, :k], values)


A, POSITIONS = np.zeros((16, 16), np.float16), np.tile([0, 1], (16, 8))
GIVEN = {"a": A, "b": np.zeros((32, 8), np.float16), "metadata": POSITIONS, "instruction": MNEMONICS[0]}


@pytest.mark.parametrize(
    ("change", "error", "text"),
    [
        ({"metadata": None}, tcsim.OperandError, "metadata is missing"),
        ({"metadata": POSITIONS[:8]}, tcsim.OperandError, r"metadata is int64 \(8, 16\); valid: integers.*16, 16"),
        ({"metadata": POSITIONS * 1.0}, tcsim.OperandError, "metadata is float64"),
        ({"metadata": POSITIONS * 0}, tcsim.OperandError, "0b0000 of row 0, group 0 is undefined"),
        ({"metadata": POSITIONS[:, ::-1]}, tcsim.OperandError, "0b0001 of row 0"),
        ({"metadata": POSITIONS + 3}, tcsim.OperandError, "positions must be 0 to 3"),
        ({"a": np.zeros((16, 32), np.float16)}, tcsim.OperandError, "for each 4 rows of b 2 kept elements of a"),
        ({"instruction": "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", "b": np.zeros((16, 8), np.float16)},
         tcsim.OperandError, "metadata is not an operand of it"),
    ],
)  # fmt: skip
def test_wrong_use(change: dict[str, object], error: type[Exception], text: str) -> None:
    """Errors say what would be valid."""
    with pytest.raises(error, match=text):
        tcsim.gemm(**{**GIVEN, **change})  # type: ignore[arg-type]


def test_a_matrix_that_is_not_sparse_enough_is_refused() -> None:
    """With the place of the first group; zeros of tf32 are what the tensor core takes for zero."""
    half, single = (sparse(MNEMONICS[place]).sparsity for place in (0, 2))
    dense = np.zeros((20, 40), np.float16)
    dense[17, 20:23] = 1
    with pytest.raises(tcsim.OperandError, match="row 17, columns 20 to 23: more than 2 of 4 elements are nonzero"):
        half.compress_matrix(dense, "f16")
    with pytest.raises(tcsim.OperandError, match=r"compress_matrix: shape \(40,\)"):
        half.compress_matrix(dense[0], "f16")
    low = np.array([[0x3F800000, 0x00001FFF]], np.uint32)  # below the 19 bits that are read
    assert single.compress_matrix(low, "tf32")[1].tolist() == [[0]]
    with pytest.raises(tcsim.OperandError, match="row 0, columns 0 to 1: more than 1 of 2 elements"):
        single.compress_matrix(np.array([[0x3F800000, 0x00002000]], np.uint32), "tf32")


@pytest.mark.parametrize("format_", ["f16", "bf16", "e4m3", "e5m2", "e3m2", "e2m1", "s8", "u8"])
def test_every_code_but_the_zeros_is_kept(format_: str) -> None:
    """Beside three zeros, a code that is no zero is the one whose position is said."""
    item = tcsim.FORMATS[format_]
    codes = np.arange(1 << item.bits).astype(item.dtype)
    dense = np.zeros((len(codes), 4), item.dtype)
    dense[:, 3] = codes
    kept, positions = sparse(MNEMONICS[4]).sparsity.compress_matrix(dense, format_)
    zero = np.asarray(tcsim.decode(codes, format_)).astype(float) == 0
    assert zero.sum() == 1 + (item.kind == "float")
    np.testing.assert_array_equal(positions[:, 1] == 3, ~zero)
    np.testing.assert_array_equal(kept[~zero, 1], codes[~zero])
