"""The launches of clusters.cu, and what NumPy or plain Python says of them: kernels of clusters: distributed shared memory, multicast, dependent launches."""

from __future__ import annotations

import numpy as np

from tests.kernels.corpora.case import Inputs, Launch, call
from tests.kernels.corpora.cuda.launches import HOPPER, cuda, exact


@cuda("clusters", HOPPER)
def dsmem_sum(inputs: Inputs) -> Launch:
    x = inputs.integers(-99, 99, (2, 4, 64))
    out = np.zeros((2, 4, 64), np.int64)
    for rank in range(4):
        for r in range(4):
            out[:, rank] = out[:, rank] * 3 + x[:, (rank + r) & 3][:, np.arange(64) ^ r]
    return call({"in": x}, {"out": exact(out, np.int32)}, grid=8, block=64)


@cuda("clusters", HOPPER)
def dsmem_histogram(inputs: Inputs) -> Launch:
    x = inputs.integers(0, 999, (2, 192), np.uint32)
    out = [np.bincount(row & 63, minlength=64) for row in x]
    return call({"in": x}, {"out": exact(out, np.uint32)}, grid=4, block=96)


@cuda("clusters", HOPPER)
def multicast(inputs: Inputs) -> Launch:
    x = inputs.normal((2, 128))
    out = np.roll(x, -1, 1)[:, None] + np.arange(4, dtype=np.float32)[:, None]
    return call({"in": x}, {"out": exact(out, np.float32)}, grid=8, block=128)


@cuda("clusters", HOPPER)
def send(inputs: Inputs) -> Launch:
    x = inputs.integers(0, 9999, (2, 2, 64))
    peer = x[:, ::-1]
    return call({"in": x}, {"out": exact((peer[:, :, ::-1] + 1) ^ peer * 5, np.int32)}, grid=4, block=64)


@cuda("clusters", HOPPER)
def ring(inputs: Inputs) -> Launch:
    out, x = np.zeros((2, 4), np.int64), 0
    for _ in range(2):
        for rank in range(4):
            x = x * 3 + rank + 1
            out[:, rank] = x
    return call({}, {"out": exact(out, np.int32)}, grid=8, block=32)


@cuda("clusters", HOPPER)
def secondary(inputs: Inputs) -> Launch:
    n = 200
    x = inputs.integers(-99, 99, (n,))
    middle = x * x - 7
    return call(
        {"in": x},
        {"middle": exact(middle, np.int32), "out": exact(middle[::-1] + x, np.int32)},
        np.int32(n),
        grid=4,
        block=64,
        before="primary",
    )
