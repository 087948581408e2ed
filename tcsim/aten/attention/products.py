"""What all attention kernels are made of: products on tensor cores, sums over the columns of a quad, the numbers of one call."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from tcsim.aten.attention import split
from tcsim.aten.formats import F32
from tcsim.catalog import instruction
from tcsim.libdevice.operations import fma
from tcsim.model.instruction import Instruction
from tcsim.multiplication import gemm

Array = npt.NDArray[Any]

LOG2E = np.float32(1.4426950408889634)
QUAD = 4
_HIDDEN = np.float32(-np.inf)
LARGEST = 1 << 23  # scores computed at once
ROWS = 128  # of a causal call, at once: whole tiles of keys end where theirs do, in every kernel


@dataclass(frozen=True)
class Call:
    """One call: q (heads, M, D), k and v (heads, N, D) of bfloat16 or float16 (or float32); bias (heads, M, N) that is added to the scores, or None; rows: q's row numbers in the causal mask, or None."""

    q: Array
    k: Array
    v: Array
    scale: np.float32
    bias: F32 | None = None
    rows: npt.NDArray[np.int64] | None = None

    @property
    def keys(self) -> int:
        """N."""
        return int(self.k.shape[1])

    def hidden(self, scores: F32) -> F32:
        """The scores with -inf where the causal mask hides a key."""
        if self.rows is None:
            return scores
        return np.where(np.arange(self.keys) <= self.rows[:, None], scores, np.float32(-np.inf))

    def pieces(self, tile: int) -> Iterator[tuple[tuple[slice, slice], Call]]:
        """The call in parts that fit in memory, and their places; hidden keys beyond the last tile that is needed are left out."""
        heads, m, _ = self.q.shape
        height = max(1, min(m, LARGEST // max(self.keys, 1)))
        if self.rows is not None:
            height = min(1 << height.bit_length() - 1, ROWS)
        some = max(1, LARGEST // (height * max(self.keys, 1)))
        for head in range(0, heads, some):
            for row in range(0, m, height):
                h, r = slice(head, head + some), slice(row, row + height)
                rows = None if self.rows is None else self.rows[r]
                last = self.keys if rows is None else min(self.keys, -(-(int(rows.max()) + 1) // tile) * tile)
                bias = None if self.bias is None else self.bias[h, r]
                yield (
                    (h, r),
                    replace(self, q=self.q[h, r], k=self.k[h, :last], v=self.v[h, :last], bias=bias, rows=rows),
                )


def added(mask: Array, shape: tuple[int, int, int, int], hidden: np.float32 = _HIDDEN) -> F32:
    """What a mask, bool or of numbers, adds to the scores (batch, heads, M, N): (batch * heads, M, N); hidden: to a key that a bool mask hides."""
    numbers = np.where(mask, np.float32(0), hidden) if mask.dtype == np.bool_ else mask.astype(np.float32)
    return np.broadcast_to(numbers, shape).reshape(-1, *shape[2:])


@cache
def _instruction(dtype: str, k: int) -> Instruction:
    name = {"bfloat16": "bf16", "float16": "f16"}[dtype]
    return instruction(f"mma.sync.aligned.m16n8k{k}.row.col.f32.{name}.{name}.f32", arch="sm_90")


def product(a: Array, b: Array, c: F32 | None = None, k: int = 16) -> F32:
    """c + a b on tensor cores, steps of k ascending: a (heads, M, K), b (heads, K, N) of one dtype. wgmma's steps of 16 are those of mma; float32 is split."""
    if a.dtype == np.float32:
        return split.product(a, b, c)
    left, right = (np.ascontiguousarray(x).view(np.uint16) for x in (a, b))
    d = gemm(
        left,
        right,
        None if c is None else np.ascontiguousarray(c).view(np.uint32),
        instruction=_instruction(a.dtype.name, k),
    )
    return d.view(np.float32)


def scores(call: Call, k: int = 16) -> F32:
    """q k^T, as the accumulators hold it."""
    return product(call.q, call.k.swapaxes(-1, -2), None, k)


def columns(p: F32, width: int, start: F32 | None = None, rescale: F32 | None = None) -> F32:
    """The sums that the four threads of a quad have of their columns of a row (..., n), one after another; padded with zeros to `width`.

    Thread t of a quad holds columns 8 j + 2 t and 8 j + 2 t + 1.
    """
    padded = np.zeros((*p.shape[:-1], width), np.float32)
    padded[..., : p.shape[-1]] = p
    own = padded.reshape(*p.shape[:-1], width // 8, QUAD, 2)
    total = np.zeros((*p.shape[:-1], QUAD), np.float32) if start is None else start
    for j in range(width // 8):
        for i in range(2):
            if i == j == 0 and rescale is not None:
                total = fma(total, rescale, own[..., 0, :, 0])
            else:
                total = total + own[..., j, :, i]
    return total


def neighbours_first(x: F32) -> F32:
    """The sum of a quad: threads 1 apart, then 2."""
    return (x[..., 0] + x[..., 1]) + (x[..., 2] + x[..., 3])


def distant_first(x: F32) -> F32:
    """The sum of a quad: threads 2 apart, then 1."""
    return (x[..., 0] + x[..., 2]) + (x[..., 1] + x[..., 3])


def finite(largest: F32) -> F32:
    """The largest scores, zero where all are -inf."""
    return np.where(np.isneginf(largest), np.float32(0), largest)
