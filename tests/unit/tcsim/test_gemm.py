"""tcsim.gemm is the instruction's own matmul, block after block."""

from __future__ import annotations

import numpy as np
import pytest

import tcsim
from tests.support import planted

MNEMONICS = (
    "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32",
    "mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16",
    "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32",
    "mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e5m2.f32",
    "mma.sync.aligned.m16n8k32.row.col.s32.s8.u8.s32",
    "wmma.mma.sync.aligned.row.col.m16n16k16.f32.f32",
    "wgmma.mma_async.sync.aligned.m64n24k16.f32.bf16.bf16",
)


def operands(
    ins: tcsim.Instruction, sizes: tuple[int, int, int], seed: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Random codes of a, b and c."""
    random, (m, n, k) = np.random.default_rng(seed), sizes
    a, b, c = (planted.codes(random, s, ins.formats[x]) for x, s in zip("abc", ((m, k), (k, n), (m, n)), strict=True))
    return a, b, c


@pytest.mark.parametrize("mnemonic", MNEMONICS)
@pytest.mark.parametrize("order", [None, (2, 0, 1)])
def test_equals_the_instruction_block_after_block(mnemonic: str, order: tuple[int, ...] | None) -> None:
    """Tiles of the instruction's shape, each accumulated on its own."""
    ins = tcsim.instruction(mnemonic, arch="sm_90")
    m, n, k = ins.shape
    a, b, c = operands(ins, (2 * m, 2 * n, 3 * k), 1)
    want = planted.run(ins, a, b, c, order)
    got = tcsim.gemm(a, b, c, instruction=mnemonic, arch="sm_90", k_order=order)
    assert got.dtype == want.dtype and got.size == 4 * m * n
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("mnemonic", MNEMONICS)
def test_ragged_sizes_are_padded_with_zeros(mnemonic: str) -> None:
    """Any M, N and K; the largest chunk and more."""
    ins = tcsim.instruction(mnemonic, arch="sm_90")
    m, n, k = ins.shape
    sizes = (m + 3, n + 5, 2 * k + 2)
    a, b, c = operands(ins, sizes, 2)
    wide = [
        np.zeros(s, x.dtype) for s, x in zip(((2 * m, 3 * k), (3 * k, 2 * n), (2 * m, 2 * n)), (a, b, c), strict=True)
    ]
    for big, small in zip(wide, (a, b, c), strict=True):
        big[: small.shape[0], : small.shape[1]] = small
    want = planted.run(ins, *wide)[: sizes[0], : sizes[1]]
    np.testing.assert_array_equal(tcsim.gemm(a, b, c, instruction=ins), want)


@pytest.mark.parametrize("size", [(0, 4, 32), (4, 0, 32), (3, 4, 0)])
def test_a_product_may_be_empty(size: tuple[int, int, int]) -> None:
    m, n, k = size
    a, b = np.zeros((m, k), np.float16), np.zeros((k, n), np.float16)
    found = tcsim.gemm(a, b, instruction="mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", arch="sm_90")
    assert found.shape == (m, n) and not found.any()


def test_leading_dimensions_broadcast_and_chunks_do_not_show() -> None:
    """A batch of A against one B, rows and columns beyond a chunk."""
    ins = tcsim.instruction(MNEMONICS[0], arch="sm_80")
    random = np.random.default_rng(3)
    a = random.standard_normal((2, 130, 48)).astype(np.float16)
    b = random.standard_normal((48, 200)).astype(np.float16)
    got = tcsim.gemm(a, b, instruction=ins)
    assert got.shape == (2, 130, 200)
    picked = tcsim.gemm(a[1, 100:116], b[:, 150:158], instruction=ins)
    np.testing.assert_array_equal(got[1, 100:116, 150:158], picked)


@pytest.mark.parametrize(
    ("change", "error", "text"),
    [
        ({"k_order": (0, 0)}, tcsim.OperandError, "each of the blocks 0 to 1 once"),
        ({"b": np.zeros((31, 8), np.float16)}, tcsim.OperandError, r"a is \(16, 32\) and b \(31, 8\)"),
        ({"c": np.zeros((16, 9), np.float32)}, tcsim.OperandError, r"c is \(16, 9\); valid: \(..., 16, 8\)"),
        ({"instruction": "ldmatrix.sync.aligned.m8n8.x4.shared.b16"}, tcsim.InstructionError, "multiplies no matrices"),
        (
            {"instruction": "mma.sync.aligned.m8n8k4.row.col.f32.f16.f16.f16"},
            tcsim.OperandError,
            "cannot be its accumulator",
        ),
    ],
)
def test_wrong_use(change: dict[str, object], error: type[Exception], text: str) -> None:
    """Errors say what would be valid."""
    given = {"a": np.zeros((16, 32), np.float16), "b": np.zeros((32, 8), np.float16), "instruction": MNEMONICS[0]}
    with pytest.raises(error, match=text):
        tcsim.gemm(**{**given, **change})  # type: ignore[arg-type]
