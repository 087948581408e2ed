"""cuDNN's attention as PyTorch 2.11 calls it on an H200: one kernel of wgmma for several queries; for one query kernels of mma, by the number of keys.

With one query and more than 256 keys two runs of cuDNN differ now and then in the last bit: the row's sum is added up by four warps in no fixed order.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tcsim.aten.attention.products import LOG2E, QUAD, Array, Call, columns, finite, neighbours_first, product, scores
from tcsim.aten.blocks import MULTIPROCESSORS
from tcsim.aten.formats import F32
from tcsim.libdevice.operations import ex2, fma, rcp

WGMMA_TILE = 128
HIDDEN = -65504.0
"""What torch adds, rounded to the type, to the scores that a bool mask hides: a row that is hidden as a whole is computed as if it were seen."""
SHORT = ((32, 32), (256, 64))
"""One query: up to this many keys, blocks of so many."""
LONGEST_UNSPLIT = 512
LEAST_SPLITS = 4
WARPS = 4  # more keys than that: of a block of 128, each of four warps takes 32


def hidden(dtype: npt.DTypeLike) -> np.float32:
    """HIDDEN in a type.

    >>> float(hidden(np.float16))
    -65504.0
    """
    return np.float32(np.asarray(HIDDEN, dtype))


def scaled(call: Call, s: F32, one: bool) -> tuple[F32, np.float32]:
    """Scores and the factor of the exponent; one: of a call of one query."""
    if call.bias is not None:
        return fma(s, call.scale, call.bias), LOG2E
    if not one:
        return s, np.float32(call.scale * LOG2E)
    return s * call.scale, LOG2E


def attention(call: Call, groups: int) -> F32:
    """The outputs (heads, M, D) in float32; groups: heads of keys in all of a batch."""
    one = call.q.shape[1] == 1
    tile = next((tile for most, tile in SHORT if call.keys <= most), WGMMA_TILE) if one else WGMMA_TILE
    result = np.empty(call.q.shape, np.float32)
    for at, piece in call.pieces(tile):
        s, factor = scaled(piece, scores(piece), one)
        s = piece.hidden(s)
        if one and call.keys > SHORT[-1][0]:
            result[at] = _by_warps(s, piece.v, factor, splits(call.keys, groups))
        else:
            result[at] = by_blocks(s, piece.v, factor, tile)[0]
    return result


def by_blocks(s: F32, v: Array, factor: np.float32, tile: int = WGMMA_TILE) -> tuple[F32, F32, F32]:
    """Outputs, largest scores, and sums of exponentials of rows of scores; factor: of the exponent."""
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
    sums = neighbours_first(total)
    return outputs * rcp(sums)[..., None], largest, sums


def splits(keys: int, blocks: int) -> int:
    """Into how many parts more than 256 keys are split; blocks: of threads without a split, one for each group of each batch.

    >>> splits(300, 8), splits(1000, 8), splits(4096, 32)
    (1, 4, 8)
    """
    most = _power(2 * MULTIPROCESSORS // blocks)
    return 1 if keys <= LONGEST_UNSPLIT or most < LEAST_SPLITS else min(_power((keys + 1) // WGMMA_TILE), most)


def _power(n: int) -> int:
    return 1 << max(n.bit_length() - 1, 0)


def _by_warps(s: F32, v: Array, factor: np.float32, count: int) -> F32:
    """Part i takes blocks i, i + count, ...; what the parts have is joined one after another."""
    blocks = [slice(start, start + WGMMA_TILE) for start in range(0, s.shape[-1], WGMMA_TILE)]
    outputs, total, largest = _part(s, v, factor, blocks[::count])
    for part in range(1, min(count, len(blocks))):
        more, more_total, more_largest = _part(s, v, factor, blocks[part::count])
        before, largest = largest, np.maximum(largest, more_largest)
        own, other = ex2((before - largest) * LOG2E), ex2((more_largest - largest) * LOG2E)
        outputs = fma(outputs, own[..., None], more * other[..., None])
        total = fma(total, own, more_total * other)
    return outputs * rcp(total)[..., None]


def _part(s: F32, v: Array, factor: np.float32, blocks: list[slice]) -> tuple[F32, F32, F32]:
    """Outputs, sums and largest scores of some blocks of keys. The GPU adds the four warps' sums in no fixed order; here it is one of them."""
    width = WGMMA_TILE // WARPS
    largest = np.full(s.shape[:-1], -np.inf, np.float32)
    totals = [np.zeros((*s.shape[:-1], QUAD), np.float32)] * WARPS
    outputs = [np.zeros((*s.shape[:-1], v.shape[-1]), np.float32)] * WARPS
    for block in blocks:
        part = np.full((*s.shape[:-1], WGMMA_TILE), -np.inf, np.float32)
        part[..., : s[..., block].shape[-1]] = s[..., block]
        values = np.zeros((v.shape[0], WGMMA_TILE, v.shape[-1]), v.dtype)
        values[:, : v[:, block].shape[1]] = v[:, block]
        before, largest = largest, np.maximum(largest, part.max(-1))
        shift = (finite(largest) * factor)[..., None]
        rescale = ex2(before[..., None] * factor - shift)
        for warp in range(WARPS):
            own = slice(warp * width, (warp + 1) * width)
            p = ex2(part[..., own] * factor - shift)
            totals[warp] = fma(totals[warp], rescale, columns(p, width))
            outputs[warp] = product(p.astype(v.dtype), values[:, own], outputs[warp] * rescale)
    sums = [neighbours_first(total) for total in totals]
    return (outputs[0] + outputs[2]) + (outputs[1] + outputs[3]), (sums[0] + sums[2]) + (sums[1] + sums[3]), largest
