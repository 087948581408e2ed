# mypy: disable-error-code="no-untyped-def, untyped-decorator"
"""Triton's kernels of the recorded products: tl.dot in a loop over K, and a split of K with a second kernel that adds."""

import triton
import triton.language as tl


@triton.jit
def matmul(
    a, b, d, M, N, K, part, SPLIT: tl.constexpr, INTERLEAVED: tl.constexpr, SEPARATE: tl.constexpr, BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, ACCUMULATOR: tl.constexpr, PRECISION: tl.constexpr, IMPRECISE: tl.constexpr,
):  # fmt: skip
    """D of one part of K: its own blocks one after another, or every SPLIT-th block."""
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    columns = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    piece = tl.program_id(2)
    inside = tl.arange(0, BLOCK_K)
    total = tl.zeros((BLOCK_M, BLOCK_N), dtype=ACCUMULATOR)
    for step in range(part // BLOCK_K):
        if INTERLEAVED:
            start = (step * SPLIT + piece) * BLOCK_K
        else:
            start = piece * part + step * BLOCK_K
        left = tl.load(a + rows[:, None] * K + (start + inside)[None, :])
        right = tl.load(b + (start + inside)[:, None] * N + columns[None, :])
        if SEPARATE:
            total += tl.dot(left, right, out_dtype=ACCUMULATOR, input_precision=PRECISION)
        else:
            total = tl.dot(
                left, right, total, out_dtype=ACCUMULATOR, input_precision=PRECISION, max_num_imprecise_acc=IMPRECISE
            )
    places = piece * M * N + rows[:, None] * N + columns[None, :]
    tl.store(d + places, total.to(d.dtype.element_ty))


@triton.jit
def add_parts(parts, d, count, SPLIT: tl.constexpr, BLOCK: tl.constexpr):
    """The parts, one after another."""
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.load(parts + places)
    for piece in range(1, SPLIT):
        total += tl.load(parts + piece * count + places)
    tl.store(d + places, total.to(d.dtype.element_ty))
