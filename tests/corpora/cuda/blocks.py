"""The launches of blocks.cu, and what NumPy or plain Python says of them: kernels of a block: sums, sorts, products, copies in flight."""

from __future__ import annotations

import ml_dtypes
import numpy as np

from tests.corpora.case import Close, Inputs, Launch, Pointer
from tests.corpora.cuda.launches import cuda, exact


@cuda("blocks")
def reduce(inputs: Inputs) -> Launch:
    n = 700
    x = inputs.normal((n,))
    lane = np.arange(n) % 256 // 128
    sums = [x[lane == block].astype(np.float64).sum() for block in range(2)]
    where = [int(np.flatnonzero(lane == block)[np.argmax(x[lane == block])]) for block in range(2)]
    return Launch(
        {"in": x, "sums": np.zeros(2, np.float32), "where": np.zeros(2, np.int32)},
        (Pointer("in"), Pointer("sums"), Pointer("where"), np.int32(n)),
        {"sums": Close(np.array(sums), np.float32, 1e-5, 1e-4), "where": exact(where, np.int32)}, (2, 1, 1), (128, 1, 1),
    )  # fmt: skip


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
    return Launch(
        {"in": x, "keys": np.zeros((2, 256), np.float32), "positions": np.zeros((2, 256), np.int32)},
        (Pointer("in"), Pointer("keys"), Pointer("positions")),
        {"keys": exact(np.sort(x), np.float32), "positions": exact(np.argsort(x, kind="stable"), np.int32)},
        (2, 1, 1), (256, 1, 1), shared_bytes=2048,
    )  # fmt: skip


@cuda("blocks")
def transpose(inputs: Inputs) -> Launch:
    x = inputs.integers(0, 65535, (50, 70), np.uint16)
    return Launch(
        {"in": x, "out": np.zeros((70, 50), np.uint16)}, (Pointer("in"), Pointer("out"), np.int32(50), np.int32(70)),
        {"out": exact(x.T, np.uint16)}, (3, 2, 1), (32, 4, 1),
    )  # fmt: skip


@cuda("blocks")
def matmul(inputs: Inputs) -> Launch:
    a, b = inputs.normal((20, 24)), inputs.normal((24, 19))
    return Launch(
        {"a": a, "b": b, "d": np.zeros((20, 19), np.float32)},
        (Pointer("a"), Pointer("b"), Pointer("d"), np.int32(20), np.int32(19), np.int32(24)),
        {"d": Close(a.astype(np.float64) @ b.astype(np.float64), np.float32, 1e-5, 1e-5)}, (2, 2, 1), (16, 16, 1),
    )  # fmt: skip


@cuda("blocks")
def softmax(inputs: Inputs) -> Launch:
    x = inputs.normal((3, 200), ml_dtypes.bfloat16, 2.0)
    e = np.exp(x.astype(np.float64) - x.astype(np.float64).max(axis=1, keepdims=True))
    return Launch(
        {"in": x, "out": np.zeros((3, 200), ml_dtypes.bfloat16)}, (Pointer("in"), Pointer("out"), np.int32(200)),
        {"out": Close(e / e.sum(axis=1, keepdims=True), ml_dtypes.bfloat16, 2**-7)}, (3, 1, 1), (96, 1, 1),
    )  # fmt: skip


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
    return Launch(
        {"in": x, "out": np.zeros_like(x)}, (Pointer("in"), Pointer("out"), np.int32(5)), {"out": exact(out, np.float32)},
        (2, 1, 1), (64, 1, 1),
    )  # fmt: skip
