# mypy: disable-error-code="no-untyped-def, untyped-decorator"
"""The order of summation of a plan on the GPU itself: chunks of K, each one chain of the GPU's tensor cores, added in f32 in ascending order."""

from typing import Any

import torch
import triton
import triton.language as tl

from tcsim.plans.record import FP8

STEPS = {"tf32": 32, "s8": 128} | dict.fromkeys(FP8, 128)
"""Elements of k that one step of the kernel loads; else 64. Chunks are multiples of it."""


@triton.jit(do_not_specialize=["M", "N", "per"])
def _chain(
    a, b, d, M, N, K, per, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, TF32: tl.constexpr, PROMOTED: tl.constexpr, INTEGER: tl.constexpr
):  # fmt: skip
    """D of a (M, K) and b (N, K), `per` steps of BK a chunk."""
    across = tl.cdiv(N, BN)
    rows = ((tl.program_id(0) // across) * BM + tl.arange(0, BM)).to(tl.int64)
    columns = ((tl.program_id(0) % across) * BN + tl.arange(0, BN)).to(tl.int64)
    inside = tl.arange(0, BK)
    steps = tl.cdiv(K, BK)
    kind: tl.constexpr = tl.int32 if INTEGER else tl.float32
    total = tl.zeros((BM, BN), dtype=kind)
    start = 0
    while start < steps:
        acc = tl.zeros((BM, BN), dtype=kind)
        for step in range(start, tl.minimum(start + per, steps)):
            k = step * BK + inside
            left = tl.load(a + rows[:, None] * K + k[None, :], mask=(rows[:, None] < M) & (k[None, :] < K), other=0.0)
            right = tl.load(
                b + columns[None, :] * K + k[:, None], mask=(columns[None, :] < N) & (k[:, None] < K), other=0.0
            )
            if PROMOTED:
                acc = tl.dot(left, right, acc, input_precision="ieee", max_num_imprecise_acc=BK)
            elif INTEGER:
                acc = tl.dot(left, right, acc, out_dtype=tl.int32)
            else:
                acc = tl.dot(left, right, acc, input_precision="tf32" if TF32 else "ieee")
        if start == 0:
            total = acc
        else:
            total = total + acc
        start += per
    tl.store(d + rows[:, None] * N + columns[None, :], total, mask=(rows[:, None] < M) & (columns[None, :] < N))


def chain(x: Any, w: Any, chunk: int, format: str, fast: bool = True) -> Any:
    """x (M, K), w (N, K), contiguous; chunk in elements of k -> f32 or s32 (M, N).

    Raises ValueError for a chunk that is not a multiple of the format's step and shorter than K.
    """
    (m, k), n, step = x.shape, w.shape[0], STEPS.get(format, 64)
    if format in FP8 and fast:
        step = 64
    if chunk % step and chunk < k:
        raise ValueError(f"chunk {chunk}; valid: multiples of {step}")
    integer = format == "s8"
    d = torch.empty((m, n), dtype=torch.int32 if integer else torch.float32, device="cuda")
    grid = (triton.cdiv(m, 64) * triton.cdiv(n, 128),)
    promoted = format in FP8 and not fast
    _chain[grid](
        x,
        w,
        d,
        m,
        n,
        k,
        -(-chunk // step),
        64,
        128,
        step,
        format == "tf32",
        promoted,
        integer,
        num_warps=4,
        num_stages=3,
    )
    return d
