"""The launches of numbers.cu, and what NumPy or plain Python says of them: arithmetic: double, half and bfloat16, functions, contraction, conversions."""

from __future__ import annotations

import math
from collections.abc import Callable

import ml_dtypes
import numpy as np

from tests.kernels.corpora.case import Array, Close, Inputs, Launch, call, case
from tests.kernels.corpora.cuda.launches import U32, cuda, exact, signed, source


@cuda("numbers")
def doubles(inputs: Inputs) -> Launch:
    n = 60
    x, y = inputs.normal((n,), np.float64, 3.0), inputs.normal((n,), np.float64, 2.0)
    x[:2] = 0.0, -1e300
    with np.errstate(over="ignore"):
        whole = np.clip(np.trunc(x * 1e10), -(2.0**63), 2.0**63 - 1)
    out = np.stack([
        x / y, np.sqrt(np.abs(x)), x * y + 1.0, (x + y) + x * y,
        np.floor(x * 8) - np.rint(y * 8) + np.trunc(x + y) + np.ceil(x - y),
        whole + y.astype(np.float32) + np.fmin(x, y) + 1.0 / y,
    ])  # fmt: skip
    return call({"a": x, "b": y}, {"out": Close(out, np.float64, 1e-14, 1e-13)}, np.int32(n), grid=2, block=32)


@cuda("numbers")
def functions(inputs: Inputs) -> Launch:
    n = 90
    x = inputs.normal((n,), np.float32, 2.0)
    v = x.astype(np.float64)
    p = np.abs(v) + np.float64(np.float32(1e-3))
    erf = np.array([math.erf(t) for t in v])
    out = np.stack([
        np.exp(v), np.log(p), np.sin(v) + np.cos(v), p ** (v * 0.25), 1 / np.sqrt(p) + np.sqrt(p), np.tanh(v), erf,
        np.exp(v) + np.log(p) + np.sin(v) + np.cos(v) + p**0.3, v / p + v / p + 1 / p,
        np.exp2(v) + np.log1p(p) + np.cbrt(v) + np.fmod(v, np.float64(np.float32(0.7))),
    ])  # fmt: skip
    return call({"in": x}, {"out": Close(out, np.float32, 2e-6, 5e-6)}, np.int32(n), grid=3, block=32)


def _contraction(inputs: Inputs, fused: bool) -> Launch:
    n = 96
    a, b = inputs.normal((n,)), inputs.normal((n,))
    c = (-a * b * (1 + inputs.normal((n,), np.float64, 1e-6))).astype(np.float32)  # sums that cancel show the rounding
    x, y, z = (own.astype(np.float64) for own in (a, b, c))
    first = x * y + z if fused else (a * b).astype(np.float64) + c
    near = np.abs(x * y).max() * 2**-22  # of the others: one rounding of the product
    out = np.stack([first, (a * b).astype(np.float64) + c, 2 * (x * y) + z - z, x * y - z])
    out[2] = x * y - z + (x * y + z)
    size = np.stack(
        [np.abs(first) * 2**-24 + 1e-30, np.abs(out[1]) * 2**-24 + 1e-30, np.full(n, near * 8), np.abs(out[3]) * 2**-24]
    )
    return call({"a": a, "b": b, "c": c}, {"out": Close(out, np.float32, 0.0, size)}, np.int32(n), grid=3, block=32)


@cuda("numbers")
def contraction(inputs: Inputs) -> Launch:
    return _contraction(inputs, True)


@case(source("numbers", "-fmad=false"), "contraction", ("sm_90a",))
def no_contraction(inputs: Inputs) -> Launch:
    return _contraction(inputs, False)


@cuda("numbers")
def halves(inputs: Inputs) -> Launch:
    n = 100
    a, b = inputs.normal((n, 2), np.float16), inputs.normal((n, 2), np.float16, 2.0)
    b[b == 0] = 1
    x, y = a.astype(np.float64), b.astype(np.float64)
    last = np.stack([np.where(x[:, 0] > y[:, 0], x[:, 1], y[:, 1]), x[:, 0] * 1.1], -1)
    out = np.stack([
        x * y + x, np.clip(x + y, 0, 1), (x - y) * -y, np.maximum(x, y), np.maximum(x * y + y, 0), np.exp2(x), x / np.abs(y), last
    ])  # fmt: skip
    return call({"a": a, "b": b}, {"out": Close(out, np.float16, 2**-9, 2**-14)}, np.int32(n), grid=2, block=64)


@cuda("numbers")
def bfloats(inputs: Inputs) -> Launch:
    n = 100
    a, b = inputs.normal((n, 2), ml_dtypes.bfloat16), inputs.normal((n, 2), ml_dtypes.bfloat16, 2.0)
    x, y = a.astype(np.float64), b.astype(np.float64)
    last = np.stack([x[:, 0] * np.float32(1.3), y[:, 1] / 3], -1)
    out = np.stack([x * y + x, x + y, np.minimum(x, y), x * -y, last])
    return call({"a": a, "b": b}, {"out": Close(out, ml_dtypes.bfloat16, 2**-8, 1e-30)}, np.int32(n), grid=2, block=64)


def _truncated(x: int, y: int) -> tuple[int, int]:
    quotient = abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1)
    return quotient, x - quotient * y


def _bytes(x: int, y: int, i: int) -> list[int]:
    own, other = x.to_bytes(4, "little"), y.to_bytes(4, "little")

    def s8(byte: int) -> int:
        return byte - 256 * (byte > 127)

    def each(function: Callable[[int, int], int]) -> int:
        return int.from_bytes(bytes(function(p, q) & 0xFF for p, q in zip(own, other, strict=True)), "little")

    both, selector = own + other, 0x5140 ^ (i & 7)
    permuted = [both[selector >> 4 * k & 7] for k in range(4)]
    left = ((x | y << 32) << (i & 31) >> 32) & U32
    right = (x | y << 32) >> min((40 - i) & U32, 32) & U32
    sad = (abs((signed(x) >> 4) - (signed(y) >> 4)) + 3) & U32
    low24 = [v & 0xFFFFFF for v in (x, y)]
    low24 = [v - (1 << 24) * (v >> 23) for v in low24]
    divisor = signed(y >> 8) | 1
    wide = (x << (i & 31)) & (1 << 64) - 1
    halves = [(v & 0xFFFF, v >> 16) for v in (x, y)]
    low = sum(
        ((v & 0xFFFF) - (1 << 16) * (v >> 15 & 1)) * s8(byte)
        for v, byte in zip((x & 0xFFFF, x >> 16), other[:2], strict=True)
    )
    less = sum((1 if p < q else 0) << 16 * k for k, (p, q) in enumerate(zip(*halves, strict=True)))
    return [
        7 + sum(s8(p) * s8(q) for p, q in zip(own, other, strict=True)),
        int.from_bytes(bytes(permuted), "little"),
        each(lambda p, q: p + q) ^ each(lambda p, q: max(s8(p), s8(q))),
        left + right,
        sad + low24[0] * low24[1] + (x * y >> 32),
        (x * y + x) % (1 << 64) // (y | 1) + _truncated(signed(x) << 12, divisor)[1],
        int(format(x, "032b")[::-1], 2) ^ (64 - wide.bit_length()) ^ (x.bit_count() + y.bit_count()) ^ each(lambda p, q: p + q + 1 >> 1),
        less + each(lambda p, q: p + q >> 1) + (x + y >> 1) + low + 1,
    ]  # fmt: skip


@case(source("numbers"), "bytes", ("sm_80", "sm_90a"), "packed_bytes")
def packed_bytes(inputs: Inputs) -> Launch:
    n = 40
    a, b = (inputs.integers(0, (1 << 31) - 1, (n,), np.uint32) * np.uint32(2) + np.uint32(1) for _ in range(2))
    rows = [_bytes(int(x), int(y), i) for i, (x, y) in enumerate(zip(a, b, strict=True))]
    out = np.array(rows, object).T & U32
    return call({"a": a, "b": b}, {"out": exact(out, np.uint32)}, np.int32(n), grid=2, block=32)


@cuda("numbers")
def conversions(inputs: Inputs) -> Launch:
    n = 100
    x = inputs.normal((n,), np.float32, 10.0)
    x[:4] = 0.0, 500.0, -1000.0, 1e-3
    v = x.astype(np.float64)
    fp8 = np.stack([
        np.clip(x, -448, 448).astype(ml_dtypes.float8_e4m3fn).view(np.uint8),
        np.clip(x, -57344, 57344).astype(ml_dtypes.float8_e5m2).view(np.uint8),
    ])  # fmt: skip
    whole = np.rint((x * np.float32(100)).astype(np.float64)).astype(np.int64)
    third = np.trunc((x * np.float32(3)).astype(np.float64)).astype(np.int64)
    second = (
        np.trunc(v).astype(np.int64) + third.astype(np.int8) + np.ceil(np.abs(v)).astype(np.int64).astype(np.uint16)
    )
    thousand = whole.astype(np.int32) * np.int32(12345)
    cut = thousand.astype(np.float64).astype(np.float32)
    cut = np.where(
        np.abs(cut.astype(np.float64)) > np.abs(thousand.astype(np.float64)), np.nextafter(cut, np.float32(0)), cut
    )
    floor = np.floor((x * np.float32(1e9)).astype(np.float64)).astype(np.int64).astype(np.int32)
    half = x.astype(np.float16)
    up = _bf16_up(x)
    short = np.trunc((x * np.float32(1000)).astype(np.float64)).astype(np.int64).astype(np.int16)
    wide = np.trunc(np.abs((x * np.float32(50)).astype(np.float64)))
    down = wide.astype(np.float16)
    down = np.where(down.astype(np.float64) > wide, np.nextafter(down, np.float16(0)), down)
    with np.errstate(over="ignore"):
        mixed = short.astype(np.float32).astype(np.float16).view(np.uint16) ^ down.view(np.uint16)
    return call(
        {"in": x},
        {
            "fp8": exact(fp8, np.uint8),
            "whole": exact(np.stack([whole, second, cut.view(np.int32) ^ floor]), np.int32),
            "half": exact(np.stack([half.view(np.uint16), up.view(np.uint16), mixed]), np.uint16),
        },
        np.int32(n),
        grid=2,
        block=64,
    )


def _bf16_up(x: Array) -> Array:
    """To bf16, towards positive infinity."""
    words = x.view(np.uint32)
    cut = (words >> 16).astype(np.uint16)
    more = ((words & 0xFFFF) != 0) & (x > 0)
    return (cut + more.astype(np.uint16)).view(ml_dtypes.bfloat16)
