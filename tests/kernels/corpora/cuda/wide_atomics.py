"""The launches of wide_atomics.cu, and what NumPy says of them: many small blocks that meet in global memory, in any order."""

from __future__ import annotations

import numpy as np

from tests.kernels.corpora.case import Inputs, Launch, call
from tests.kernels.corpora.cuda.launches import exact, wide


@wide("atomics")
def histogram(inputs: Inputs) -> Launch:
    blocks, vectors = 131, 131 * 96 - 7
    x = np.resize(inputs.integers(0, 255, (1021,), np.uint8) * np.uint8(3), vectors * 16)
    bins = np.bincount(x & 63, minlength=64)
    block = np.arange(vectors) % (blocks * 32) // 32
    own = np.bincount(np.repeat(block, 16) * 64 + (x & 63), minlength=blocks * 64).reshape(blocks, 64)
    fullest = (own.max(axis=1) << 16 | np.arange(blocks)).max()
    return call(
        {"in": x},
        {"bins": exact(bins, np.uint32), "fullest": exact([fullest], np.uint32)},
        np.int32(vectors),
        grid=blocks,
        block=32,
    )


@wide("atomics")
def first_visits(inputs: Inputs) -> Launch:
    blocks, n = 245, 245 * 64 * 2 - 11
    places = np.resize(inputs.integers(0, 4095, (8009,), np.uint16), n)
    seen = np.zeros(4096, np.uint32)
    seen[places] = 1
    words = (seen.reshape(128, 32) << np.arange(32, dtype=np.uint32)).sum(axis=1)
    counts = np.append(np.bincount(places[:blocks] & 7, minlength=8), seen.sum())
    return call(
        {"places": places},
        {"seen": exact(words, np.uint32), "counts": exact(counts, np.uint32), "finished": exact([blocks], np.uint32),
         "total": exact([(counts * np.arange(1, 10)).sum()], np.uint32)},
        np.int32(n), grid=blocks, block=64,
    )  # fmt: skip


@wide("atomics")
def float_atomics(inputs: Inputs) -> Launch:
    blocks, each = 143, 5
    x = np.resize(inputs.integers(-99, 99, (1021,), np.int8), blocks * each * 64)
    segments = np.resize(inputs.integers(0, 15, (509,), np.uint8), x.shape)
    wide_x = x.astype(np.int64)
    sums = np.bincount(segments, wide_x, 16)
    squares = np.bincount(segments, np.where(wide_x > 0, wide_x * wide_x, 0), 16)
    return call(
        {"in": x, "segments": segments},
        {"sums": exact(sums, np.float32), "squares": exact(squares, np.float64)},
        np.int32(each),
        grid=blocks,
        block=64,
    )


@wide("atomics")
def many_warps(inputs: Inputs) -> Launch:
    blocks = 8448
    keys = (np.arange(blocks * 32, dtype=np.uint32) * np.uint32(2654435761) >> np.uint32(18)).reshape(blocks, 32)
    keys = np.sort(keys)
    gaps = (keys[:, 1:] - keys[:, :-1]).max(axis=1)
    largest = (gaps << np.uint32(16) | np.arange(blocks, dtype=np.uint32)).max()
    words = keys[:, 0].astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15) + np.arange(blocks, dtype=np.uint64)
    bins = np.bincount(keys[:, ::8].reshape(-1) >> 8, minlength=64)
    return call(
        {},
        {"bins": exact(bins, np.uint32), "largest": exact([largest], np.uint32), "mixed": exact([np.bitwise_xor.reduce(words)], np.uint64),
         "medians": exact(keys[:, 16], np.uint16)},
        grid=blocks, block=32,
    )  # fmt: skip
