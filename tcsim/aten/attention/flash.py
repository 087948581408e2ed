"""FlashAttention 2 as PyTorch 2.11 builds it: blocks of keys from the last to the first; few queries and many keys are split over blocks of threads."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tcsim.aten.attention.products import Call, columns, distant_first, finite, product, scores
from tcsim.aten.blocks import MULTIPROCESSORS
from tcsim.aten.formats import F32
from tcsim.libdevice import exp, log
from tcsim.libdevice.operations import ex2, fma, lg2

TILES = ((64, 128), (256, 64))
"""Keys of a block where keys are not split: up to this head size, so many."""
SPLIT_TILES = ((64, 256), (128, 128), (256, 64))
SPLIT_QUERIES = 64
MOST_SPLITS = 128
LN2 = np.float32(0.6931471805599453)


def _tile(table: tuple[tuple[int, int], ...], size: int) -> int:
    return next(tile for most, tile in table if size <= most)


def splits(heads: int, queries: int, keys: int, size: int, multiprocessors: int = MULTIPROCESSORS) -> int:
    """Into how many parts the keys of a call are split; heads counts those of all of a batch (of keys, where one query is shared by a group).

    >>> splits(2, 1, 4096, 128), splits(32, 1024, 1024, 128)
    (32, 1)
    """
    blocks = heads * -(-queries // SPLIT_QUERIES)
    places = multiprocessors * 2
    tiles = -(-keys // _tile(SPLIT_TILES, size))
    if blocks >= np.float32(0.8) * places:
        return 1
    counts = [
        s for s in range(1, min(MOST_SPLITS, places, tiles) + 1) if s == 1 or -(-tiles // s) != -(-tiles // (s - 1))
    ]
    waves = np.array([blocks * s for s in counts], np.float32) / np.float32(places)
    efficiency = waves / np.ceil(waves)
    return next(s for s, e in zip(counts, efficiency, strict=True) if e >= np.float32(0.85) * efficiency.max())


def _part(s: F32, v: npt.NDArray, tile: int, factor: np.float32) -> tuple[F32, F32, F32]:  # type: ignore[type-arg]
    """Unnormalised outputs, largest scores and sums of exponentials of one part of the keys."""
    largest, outputs, total = np.empty(0, np.float32), np.empty(0, np.float32), None
    for start in range((s.shape[-1] - 1) // tile * tile, -1, -tile):
        part = s[..., start : start + tile]
        before, largest = largest, part.max(-1) if total is None else np.maximum(largest, part.max(-1))
        shift = finite(largest)
        p = ex2(part * factor - (shift * factor)[..., None])
        if total is None:
            total, addend = columns(p, tile), None
        else:
            rescale = ex2((before - shift) * factor)[..., None]
            total, addend = columns(p, tile, total, rescale), outputs * rescale
        outputs = product(p.astype(v.dtype), v[:, start : start + tile], addend)
    assert total is not None
    return outputs, largest, distant_first(total)


def _normalised(outputs: F32, total: F32) -> F32:
    empty = (total == 0) | np.isnan(total)
    return outputs * np.where(empty, np.float32(1), np.float32(1) / total)[..., None]


def _combined(parts: list[tuple[F32, F32, F32]], scale: np.float32) -> F32:
    """Parts weighted with exp(their logarithmic sum - the logarithmic sum of all)."""
    logarithms = [
        np.where(total == 0, np.float32(-np.inf), fma(largest, scale, lg2(total) * LN2)) for _, largest, total in parts
    ]
    largest = finite(np.max(logarithms, axis=0))
    e = [exp(x - largest) for x in logarithms]
    e += [np.zeros_like(largest)] * ((1 << (len(e) - 1).bit_length()) - len(e))
    while len(e) > 1:
        e = [a + b for a, b in zip(e[: len(e) // 2], e[len(e) // 2 :], strict=True)]
    whole = log(e[0]) + largest
    result = np.zeros_like(parts[0][0])
    for x, (outputs, _, total) in zip(logarithms, parts, strict=True):
        result = fma(exp(x - whole)[..., None], _normalised(outputs, total), result)
    return result


def attention(call: Call, count: int) -> F32:
    """The outputs (heads, M, D) in float32; count: `splits` of the call."""
    size, keys = call.q.shape[-1], call.keys
    tile = _tile(TILES if count == 1 else SPLIT_TILES, size)
    tiles = -(-keys // tile)
    each = -(-tiles // count) * tile
    factor = np.float32(np.float64(call.scale) * np.log2(np.e))
    result = np.empty(call.q.shape, np.float32)
    for at, piece in call.pieces(tile):
        s = piece.hidden(scores(piece))
        parts = [
            _part(s[..., start : start + each], piece.v[:, start : start + each], tile, factor)
            for start in range(0, s.shape[-1], each)
        ]
        result[at] = _normalised(parts[0][0], parts[0][2]) if count == 1 else _combined(parts, call.scale)
    return result
