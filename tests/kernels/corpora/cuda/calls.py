"""The launches of calls.cu, and what NumPy or plain Python says of them: kernels with calls, structures, local memory and module variables."""

from __future__ import annotations

import struct

import numpy as np

from tests.kernels.corpora.case import Close, Inputs, Launch, call, case
from tests.kernels.corpora.cuda.launches import U32, cuda, exact, source


def _ackermann(m: int, n: int) -> int:
    return n + 1 if m == 0 else n + 2 if m == 1 else 2 * n + 3


@cuda("calls")
def recursion(inputs: Inputs) -> Launch:
    out = [_ackermann(i & 1, i % 9) + _ackermann(2, i % 3) for i in range(48)]
    return call({}, {"out": exact(out, np.uint32)}, block=48)


@cuda("calls")
def structs(inputs: Inputs) -> Launch:
    x = inputs.normal((64, 7))
    sums, counts = np.full(64, 0.5), np.full(64, 3)
    for k in range(7):
        sums, counts = sums + x[:, k], counts + (x[:, k] > 0)
    return call(
        {"in": x}, {"sums": exact(sums, np.float64), "counts": exact(counts, np.int32)}, np.int32(7), grid=2, block=32
    )


@cuda("calls")
def function_pointers(inputs: Inputs) -> Launch:
    n = 90
    x = inputs.integers(-500, 500, (n,))
    i = 3 * np.arange(n)
    out = np.choose(x & 3, [x + i, x - i, x * i, np.maximum(x, i)])
    return call({"in": x}, {"out": exact(out, np.int32)}, np.int32(n), grid=2, block=64)


@cuda("calls")
def local_sort(inputs: Inputs) -> Launch:
    x = inputs.integers(-99, 99, (40, 13))
    out = [np.roll(np.sort(row), -i % 13) for i, row in enumerate(x)]
    return call({"in": x}, {"out": exact(out, np.int32)}, np.int32(13), block=40)


@cuda("calls")
def unaligned(inputs: Inputs) -> Launch:
    n, given, out = 40, bytearray(), bytearray(1)
    words, numbers = inputs.integers(0, U32 >> 1, (n, 3), np.int64), inputs.normal((n,), np.float64)
    for (tag, word, half), number in zip(words.tolist(), numbers.tolist(), strict=True):
        tag, half = tag & 0xFF, half & 0xFFFF
        given += struct.pack("<BIHd", tag, word, half, number)
        word = word * 3 + tag & U32
        out += struct.pack("<BIHd", tag >> 1, word, half ^ word & 0xFFFF, number * 0.5)
    return call(
        {"in": np.frombuffer(bytes(given), np.uint8)},
        {"out": exact(np.frombuffer(bytes(out), np.uint8), np.uint8)},
        np.int32(n),
        grid=2,
        block=32,
    )


@case(source("calls"), "print", ("sm_80", "sm_90a"), "printf")
def printf(inputs: Inputs) -> Launch:
    x = inputs.integers(-1000, 1000, (4,))
    lines = [
        f"thread {t} of block 0: {v} {'below' if v < 0 else 'above'} {v * 0.25:.3f} {chr(97 + t)} {'0x%x' % (v & U32) if v else 0} {signed64(v << 33)}%\n"
        for t, v in enumerate(x.tolist()[:3])
    ]  # fmt: skip
    return call({"in": x}, {"out": exact(x + 1, np.int32)}, block=4, output="".join(lines))


def signed64(x: int) -> int:
    """A 64-bit word as a signed number."""
    return (x & (1 << 64) - 1) - (1 << 64 if x >> 63 & 1 else 0)


@cuda("calls")
def module_variables(inputs: Inputs) -> Launch:
    x = inputs.normal((32,))
    weights, y = np.array([1, -2, 3.5, 0.25, -0.5, 6, 7, -8]), x.astype(np.float64)
    for k in range(8):
        y = y * 0.5 + weights[(k + np.arange(32)) & 7]
    y[0] += 40
    return call({"in": x}, {"out": Close(y, np.float32, 1e-5, 1e-5)}, block=32)
