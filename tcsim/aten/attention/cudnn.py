"""cuDNN's attention as PyTorch 2.11 calls it on an H200: one kernel of wgmma for several queries; for one query kernels of mma, by the number of keys."""

from __future__ import annotations

import numpy as np

from tcsim.aten.attention.products import LOG2E, QUAD, Array, Call, columns, finite, neighbours_first, product, scores
from tcsim.aten.single import F32, ex2, fma, rcp

WGMMA_TILE = 128
SHORT = ((32, 32), (256, 64))
"""One query: up to this many keys, blocks of so many."""
WARPS = 4  # more keys than that: of a block of 128, each of four warps takes 32


def _scaled(call: Call, s: F32) -> tuple[F32, np.float32]:
    """Scores and the factor of the exponent."""
    if call.bias is not None:
        return fma(s, call.scale, call.bias), LOG2E
    if call.q.shape[1] > 1:
        return s, np.float32(call.scale * LOG2E)
    return s * call.scale, LOG2E


def attention(call: Call) -> F32:
    """The outputs (heads, M, D) in float32."""
    one = call.q.shape[1] == 1
    tile = next((tile for most, tile in SHORT if call.keys <= most), WGMMA_TILE) if one else WGMMA_TILE
    result = np.empty(call.q.shape, np.float32)
    for at, piece in call.pieces(tile):
        s, factor = _scaled(piece, scores(piece))
        s = piece.hidden(s)
        if one and call.keys > SHORT[-1][0]:
            result[at] = _by_warps(s, piece.v, factor, splits(call.keys))
        else:
            result[at] = _by_blocks(s, piece.v, factor, tile)
    return result


def _by_blocks(s: F32, v: Array, factor: np.float32, tile: int) -> F32:
    largest = np.full(s.shape[:-1], -np.inf, np.float32)
    total = np.zeros((*s.shape[:-1], QUAD), np.float32)
    outputs: F32 | None = None
    for start in range(0, s.shape[-1], tile):
        part = s[..., start : start + tile]
        before, largest = largest, np.maximum(largest, part.max(-1))
        shift = (finite(largest) * factor)[..., None]
        p = ex2(part * factor - shift)
        rescale = ex2(before[..., None] * factor - shift)
        total = fma(total, rescale, columns(p, tile))
        outputs = product(p.astype(v.dtype), v[:, start : start + tile], None if outputs is None else outputs * rescale)
    assert outputs is not None
    return outputs * rcp(neighbours_first(total))[..., None]


def splits(keys: int) -> int:
    """Into how many parts the keys of a block of four warps are split."""
    raise NotImplementedError(f"cuDNN's attention with one query and {keys} keys: the kernel that splits keys; modelled: up to {SHORT[-1][0]} keys")


def _by_warps(s: F32, v: Array, factor: np.float32, count: int) -> F32:
    raise NotImplementedError
