"""The launches of wide_loops.cu, and what NumPy or plain Python says of them: loops as long as their data say, early exits, calls."""

from __future__ import annotations

from math import comb

import numpy as np

from tests.kernels.corpora.case import Array, Close, Inputs, Launch, call
from tests.kernels.corpora.cuda.launches import exact, wide, windows


def _collatz(numbers: Array) -> Array:
    x, counts = numbers.astype(np.int64), np.zeros(numbers.shape, np.int64)
    while (left := x != 1).any():
        counts += left
        x = np.where(left, np.where(x & 1, 3 * x + 1, x >> 1), 1)
    return counts


@wide("loops")
def collatz(inputs: Inputs) -> Launch:
    first, stride, blocks = 7, 11, 131
    counts = _collatz(first + stride * np.arange(blocks * 64)[:, None] + np.arange(5))
    out = np.stack([counts.sum(axis=1), counts.max(axis=1)], -1)
    return call({}, {"steps": exact(out, np.uint16)}, np.uint32(first), np.uint32(stride), grid=blocks, block=64)


@wide("loops")
def newton(inputs: Inputs) -> Launch:
    n, one, two, third = 989 * 64 - 45, np.float32(1), np.float32(2), np.float32(1 / 3)
    a = np.resize(inputs.uniform((1009,), high=12.0), n)
    a = np.exp2(np.rint(a * 8) / 8).astype(np.float32)
    tolerance = np.exp2(-6 - (np.arange(n) // 64 % 16)).astype(np.float32)
    x, rounds, going = np.maximum(a, one), np.zeros(n, np.uint8), np.ones(n, bool)
    for _ in range(200):
        q = a / (x * x)
        following = (two.astype(np.float64) * x + q).astype(
            np.float32
        ) * third  # 2 * x is exact: fused or not is the same
        rounds += going
        going &= np.abs(following - x) > tolerance * x
        x = np.where(going, following, x)
    return call(
        {"in": a}, {"roots": exact(x, np.float32), "rounds": exact(rounds, np.uint8)}, np.int32(n), grid=989, block=64
    )


@wide("loops")
def sparse_rows(inputs: Inputs) -> Launch:
    rows, width = 485 * 4 - 3, 509
    lengths = inputs.integers(0, 9, (rows,)) ** 2 * inputs.integers(0, 4, (rows,))
    starts = np.concatenate([[0], np.cumsum(lengths)])
    count = int(starts[-1])
    columns = np.resize(inputs.integers(0, width - 1, (1021,), np.uint16), count)
    values, x = np.resize(inputs.normal((991,)), count), inputs.normal((width,))
    products = np.concatenate([[0], np.cumsum(values.astype(np.float64) * x[columns])])
    out = products[starts[1:]] - products[starts[:-1]]
    return call(
        {"starts": starts.astype(np.int32), "columns": columns, "values": values, "x": x},
        {"out": Close(out, np.float32, 1e-5, 1e-4)}, np.int32(rows), grid=485, block=128,
    )  # fmt: skip


@wide("loops")
def early_exits(inputs: Inputs) -> Launch:
    blocks, rounds = 515, 24
    active = inputs.integers(0, 5, (blocks,), np.uint8) % 4
    x = windows(inputs.integers(-999, 999, (1021,), np.int16), 37 * np.arange(blocks), 96)
    line = np.zeros((blocks, 98), np.int64)
    inside = np.arange(96) < 32 * active[:, None]
    line[:, 1:97] = np.where(inside, x, 0)
    for _ in range(rounds):
        line[:, 1:97] = np.where(inside, (line[:, :96] + 2 * line[:, 1:97] + line[:, 2:]) >> 2, 0)
    return call(
        {"active": active, "in": x}, {"out": exact(line[:, 1:97], np.int32)}, np.int32(rounds), grid=blocks, block=96
    )


@wide("loops")
def calls(inputs: Inputs) -> Launch:
    width, height = 13 * 8 - 3, 19 * 4 - 1
    image = inputs.integers(0, 255, (height, width), np.uint8)
    out = np.zeros((height, width), np.uint8)
    for y in range(height):
        for x in range(width):
            window = sorted(image[max(y - 1, 0) : y + 2, max(x - 1, 0) : x + 2].reshape(-1).tolist())
            n = x // 8 % 5
            out[y, x] = (window[(x + y) % len(window)] + comb(n, y // 4 % 3 % (n + 1))) & 0xFF
    return call({"image": image}, {"out": exact(out, np.uint8)}, np.int32(width), np.int32(height), grid=(13, 19, 1), block=32)  # fmt: skip
