"""Products of float32 on tensor cores, as CUTLASS makes them of three tf32 products: OpMultiplyAddFastF32 with staged sums.

Source: CUTLASS, gemm/warp/mma_tensor_op_fast_f32.h (BSD-3-Clause); PyTorch, mem_eff_attention/gemm/custom_mma_multistage.h. The code is our own.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import numpy.typing as npt

from tcsim.aten.formats import F32
from tcsim.catalog import instruction
from tcsim.multiplication import gemm

STEP = 8
STAGE = 4  # steps of a stage; the first step of a stage closes the sum of those before it
Words = npt.NDArray[np.uint32]


def parts(x: F32) -> tuple[Words, Words]:
    """The upper 19 bits of numbers, and the rest with half a unit added; the tensor core drops what is below."""
    words = np.ascontiguousarray(x).view(np.uint32)
    upper = words & np.uint32(0xFFFFE000)
    rest: Words = np.subtract(x, upper.view(np.float32)).view(np.uint32) + np.uint32(0x1000)
    return upper, rest


def _in_steps(three: tuple[Words, Words, Words], axis: int) -> Words:
    """Eight of each of three matrices in turn along an axis, padded with zeros."""
    stacked = np.moveaxis(np.stack(three), axis, -1)
    padded = np.pad(stacked, [(0, 0)] * (stacked.ndim - 1) + [(0, -stacked.shape[-1] % STEP)])
    steps = padded.reshape(*padded.shape[:-1], -1, STEP)
    turns = np.moveaxis(steps, 0, -2)  # ..., steps, three, STEP
    return np.moveaxis(turns.reshape(*turns.shape[:-3], -1), -1, axis)


def product(a: F32, b: F32, c: F32 | None = None) -> F32:
    """c + a b: a (heads, M, K), b (heads, K, N)."""
    upper_a, rest_a = parts(a)
    upper_b, rest_b = parts(b)
    left, right = _in_steps((rest_a, upper_a, upper_a), -1), _in_steps((upper_b, rest_b, upper_b), -2)
    steps = left.shape[-1] // (3 * STEP)
    mma = instruction(f"mma.sync.aligned.m16n8k{STEP}.row.col.f32.tf32.tf32.f32", arch="sm_90")
    total = np.zeros((*a.shape[:-1], b.shape[-1]), np.float32) if c is None else c
    edges = sorted({0, 1, *range(1 + STAGE, steps, STAGE), steps})
    for first, last in pairwise(edges):
        k = slice(first * 3 * STEP, last * 3 * STEP)
        total = total + gemm(left[..., k], right[..., k, :], instruction=mma).view(np.float32)
    return total
