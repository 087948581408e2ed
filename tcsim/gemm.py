"""A whole GEMM, bit for bit: one tensor-core instruction applied block after block along K."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tcsim.codec import as_codes
from tcsim.errors import InstructionError, OperandError
from tcsim.formats import Format
from tcsim.instruction import broadcast
from tcsim.instruction import instruction as find_instruction
from tcsim.multiply import MatrixMultiply
from tcsim.sparse_multiply import SparseMatrixMultiply
from tcsim.warpgroup_multiply import WarpgroupMultiply

_CHUNK_PRODUCTS = 1 << 17  # products computed at a time: their float64 terms stay in the L2 cache
_TILE_ROWS = 64  # rows of a chunk


def gemm(
    a: Any,
    b: Any,
    c: Any = None,
    *,
    instruction: Any,
    arch: str = "sm_90",
    k_order: Sequence[int] | None = None,
) -> npt.NDArray[Any]:
    """d = a b + c as a kernel computes it that feeds each result of an instruction to the next as its accumulator.

    a: codes (..., M, K); b: codes (..., K, N); c: codes (..., M, N), or None for zeros; the result (..., M, N) in the
    instruction's D format. Leading dimensions broadcast. M, N and K need not be multiples of the instruction's shape:
    the ends are zero products, as kernels make them. instruction: a mnemonic of a dense multiply, or what
    `tcsim.instruction` gives. k_order: the blocks of the instruction's K in the order they are accumulated; ascending if
    None. How rows and columns are cut into tiles does not matter: no output depends on another's operands.

    Raises OperandError for other shapes, a k_order that is no permutation, or several blocks where D is no accumulator, FormatError for another dtype,
    InstructionError for an instruction that multiplies no dense matrices.

    >>> a, b = np.ones((20, 40), np.float16), np.ones((40, 10), np.float16)
    >>> d = tcsim.gemm(a, b, instruction="mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", arch="sm_90")
    >>> d.shape, float(tcsim.decode(d, "f32")[19, 9])
    ((20, 10), 40.0)
    """
    multiply = find_instruction(instruction, arch=arch) if isinstance(instruction, str) else instruction
    call = f"tcsim.gemm with {multiply!r}"
    if not isinstance(multiply, MatrixMultiply | WarpgroupMultiply) or isinstance(multiply, SparseMatrixMultiply):
        raise InstructionError(f"{call}: it multiplies no dense matrices; valid: mma.sync, wmma.mma, wgmma.mma_async")
    formats = (multiply.formats["a"], multiply.formats["b"], multiply.formats["c"])
    codes_a, codes_b = (as_codes(x, f, f"{call}: {n}") for n, x, f in zip("ab", (a, b), formats, strict=False))
    if codes_a.ndim < 2 or codes_b.ndim < 2 or codes_a.shape[-1] != codes_b.shape[-2]:
        raise OperandError(f"{call}: a is {codes_a.shape} and b {codes_b.shape}; valid: (..., M, K) and (..., K, N)")
    m, n = codes_a.shape[-2], codes_b.shape[-1]
    if c is None:
        codes_c = np.zeros((m, n), formats[2].dtype)
    else:
        codes_c = as_codes(c, formats[2], f"{call}: c")
    if codes_c.shape[-2:] != (m, n):
        raise OperandError(f"{call}: c is {codes_c.shape}; valid: (..., {m}, {n})")
    order = _order(k_order, -(-codes_a.shape[-1] // multiply.shape[2]), call)
    if len(order) > 1 and formats[2].dtype != multiply.operands["d"].format.dtype:
        raise OperandError(
            f"{call}: its result ({multiply.operands['d'].format.name}) is no accumulator for it ({formats[2].name}); "
            f"valid: K up to {multiply.shape[2]}"
        )
    batch = broadcast([x.shape[:-2] for x in (codes_a, codes_b, codes_c)], call)
    flat = [np.broadcast_to(x, (*batch, *x.shape[-2:])).reshape(-1, *x.shape[-2:]) for x in (codes_a, codes_b, codes_c)]
    out = np.empty((len(flat[0]), m, n), multiply.operands["d"].format.dtype)
    for place in range(len(out)):
        one_a, one_b, one_c = (x[place] for x in flat)
        _accumulate(multiply, one_a, one_b, one_c, formats, order, out[place])
    return out.reshape(*batch, m, n)


def _order(k_order: Sequence[int] | None, blocks: int, call: str) -> list[int]:
    if k_order is None:
        return list(range(blocks))
    order = [int(block) for block in k_order]
    if sorted(order) != list(range(blocks)):
        raise OperandError(f"{call}: k_order={order}; valid: each of the blocks 0 to {blocks - 1} once")
    return order


def _accumulate(
    multiply: MatrixMultiply | WarpgroupMultiply,
    a: npt.NDArray[Any],
    b: npt.NDArray[Any],
    c: npt.NDArray[Any],
    formats: tuple[Format, Format, Format],
    order: list[int],
    out: npt.NDArray[Any],
) -> None:
    """One matrix product into `out`, in chunks of rows and columns that stay in the cache."""
    step = multiply.shape[2]
    short = -a.shape[1] % step
    a, b = np.pad(a, ((0, 0), (0, short))), np.pad(b, ((0, short), (0, 0)))
    rows = min(len(a), _TILE_ROWS)
    columns = max(1, _CHUNK_PRODUCTS // (rows * step))
    for top in range(0, len(a), rows):
        for left in range(0, b.shape[1], columns):
            part = slice(top, top + rows), slice(left, left + columns)
            total = c[part][None]
            for block in order:
                k = slice(block * step, (block + 1) * step)
                total = multiply.lowering.run(a[None, part[0], k], b[None, k, part[1]], total, formats)
            out[part] = total[0]
