"""CUTLASS's memory-efficient attention as PyTorch 2.11 builds it for sm_80: blocks of keys from the first to the last, mma of 8 products."""

from __future__ import annotations

import numpy as np

from tcsim.aten.attention.products import LOG2E, Call, columns, finite, neighbours_first, product, scores
from tcsim.aten.formats import F32
from tcsim.libdevice.operations import ex2, fma

WARP_COLUMNS = 32
STEP = 8
LARGEST_IN_REGISTERS = 128  # larger heads keep their outputs in memory between blocks of keys


def _sum(p: F32, tile: int, total: F32) -> F32:
    """total + the sums of each warp's 32 columns, one after another."""
    padded = np.zeros((*p.shape[:-1], tile), np.float32)
    padded[..., : p.shape[-1]] = p
    for warp in np.moveaxis(padded.reshape(*p.shape[:-1], tile // WARP_COLUMNS, WARP_COLUMNS), -2, 0):
        total = total + neighbours_first(columns(warp, WARP_COLUMNS))
    return total


def attention(call: Call) -> F32:
    """The outputs (heads, M, D) in float32."""
    size = call.q.shape[-1]
    tile = 64 if size <= 64 else 128
    result = np.empty(call.q.shape, np.float32)
    for at, piece in call.pieces(tile):
        result[at] = _outputs(piece, tile, size > LARGEST_IN_REGISTERS)
    return result


def _outputs(call: Call, tile: int, in_memory: bool) -> F32:
    s = scores(call, STEP) * call.scale
    s = call.hidden((s if call.bias is None else s + call.bias) * LOG2E)
    largest, total = np.full(s.shape[:-1], -np.inf, np.float32), np.zeros(s.shape[:-1], np.float32)
    outputs: F32 | None = None
    for start in range(0, call.keys, tile):
        part, v = s[..., start : start + tile], call.v[:, start : start + tile]
        before, largest = largest, np.maximum(largest, part.max(-1))
        p = ex2(part - finite(largest)[..., None])
        rescale = np.where(np.isneginf(largest), np.float32(1), ex2(before - largest))
        total = _sum(p, tile, total * rescale)
        p = p.astype(v.dtype)
        if not in_memory:
            outputs = product(p, v, None if outputs is None else outputs * rescale[..., None], STEP)
            continue
        fresh = product(p, v, None, STEP)
        if start + tile < call.keys:
            outputs = fresh if outputs is None else fma(rescale[..., None], outputs, fresh)
        else:
            factor = np.float32(1) / total
            outputs = (
                factor[..., None] * fresh
                if outputs is None
                else fma(factor[..., None], fresh, (factor * rescale)[..., None] * outputs)
            )
    assert outputs is not None
    return outputs if in_memory else outputs * (np.float32(1) / total)[..., None]
