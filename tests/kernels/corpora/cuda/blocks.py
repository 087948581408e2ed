"""The launches of blocks.cu, and what NumPy or plain Python says of them: kernels of a block: sums, sorts, products, copies in flight."""

from __future__ import annotations

import ml_dtypes
import numpy as np

from tests.kernels.corpora.case import Close, Inputs, Launch, Pointer, call
from tests.kernels.corpora.cuda.launches import cuda, exact


@cuda("blocks")
def reduce(inputs: Inputs) -> Launch:
    n = 700
    x = inputs.normal((n,))
    lane = np.arange(n) % 256 // 128
    sums = [x[lane == block].astype(np.float64).sum() for block in range(2)]
    where = [int(np.flatnonzero(lane == block)[np.argmax(x[lane == block])]) for block in range(2)]
    return call(
        {"in": x},
        {"sums": Close(np.array(sums), np.float32, 1e-5, 1e-4), "where": exact(where, np.int32)},
        np.int32(n),
        grid=2,
        block=128,
    )


@cuda("blocks")
def scan(inputs: Inputs) -> Launch:
    n = 333
    x = inputs.integers(-9, 99, (n,))
    out = np.cumsum(x)
    flags = np.zeros(3, np.int32)
    return Launch(
        {"in": x, "out": np.zeros(n, np.int32), "flags": flags, "carry": np.zeros(3, np.int32)},
        (Pointer("in"), Pointer("out"), Pointer("flags"), Pointer("carry"), np.int32(n)),
        {"out": exact(out, np.int32), "flags": exact([1, 1, 1], np.int32),
         "carry": exact([out[127], out[255], out[-1]], np.int32)}, (3, 1, 1), (128, 1, 1),
    )  # fmt: skip


@cuda("blocks")
def histogram(inputs: Inputs) -> Launch:
    x = inputs.integers(0, 255, (300, 4), np.uint8)
    return Launch(
        {"in": x, "bins": np.arange(64, dtype=np.uint32)}, (Pointer("in"), Pointer("bins"), np.int32(300)),
        {"bins": exact(np.bincount(x.reshape(-1) & 63, minlength=64) + np.arange(64), np.uint32)}, (2, 1, 1), (96, 1, 1),
    )  # fmt: skip


@cuda("blocks")
def bitonic_sort(inputs: Inputs) -> Launch:
    x = inputs.normal((2, 256))
    return call(
        {"in": x},
        {"keys": exact(np.sort(x), np.float32), "positions": exact(np.argsort(x, kind="stable"), np.int32)},
        grid=2,
        block=256,
        shared_bytes=2048,
    )


@cuda("blocks")
def transpose(inputs: Inputs) -> Launch:
    x = inputs.integers(0, 65535, (50, 70), np.uint16)
    return call({"in": x}, {"out": exact(x.T, np.uint16)}, np.int32(50), np.int32(70), grid=(3, 2, 1), block=(32, 4, 1))


@cuda("blocks")
def matmul(inputs: Inputs) -> Launch:
    a, b = inputs.normal((20, 24)), inputs.normal((24, 19))
    return call(
        {"a": a, "b": b},
        {"d": Close(a.astype(np.float64) @ b.astype(np.float64), np.float32, 1e-5, 1e-5)},
        np.int32(20),
        np.int32(19),
        np.int32(24),
        grid=(2, 2, 1),
        block=(16, 16, 1),
    )


@cuda("blocks")
def softmax(inputs: Inputs) -> Launch:
    x = inputs.normal((3, 200), ml_dtypes.bfloat16, 2.0)
    e = np.exp(x.astype(np.float64) - x.astype(np.float64).max(axis=1, keepdims=True))
    return call(
        {"in": x},
        {"out": Close(e / e.sum(axis=1, keepdims=True), ml_dtypes.bfloat16, 2**-7)},
        np.int32(200),
        grid=3,
        block=96,
    )


@cuda("blocks")
def async_ring(inputs: Inputs) -> Launch:
    x = inputs.normal((2, 5, 64, 4))
    seen = x.copy()
    seen[:, 2:, 3::4, 2:] = 0  # half of these copies is filled with zeros
    seen = seen[:, :, np.arange(64) ^ 1]
    out, sums = np.zeros_like(x), np.zeros((2, 64, 4), np.float32)
    for step in range(5):
        sums[..., 0] += seen[:, step, :, 0]
        sums[..., 1] += 2 * seen[:, step, :, 1]
        sums[..., 2] -= seen[:, step, :, 2]
        sums[..., 3] = np.maximum(sums[..., 3], seen[:, step, :, 3])
        out[:, step] = sums
    return call({"in": x}, {"out": exact(out, np.float32)}, np.int32(5), grid=2, block=64)
