"""The CUDA kernels' launches, and what NumPy or plain Python says of them."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np

import tcsim
from tests.corpora.case import Array, Close, Inputs, Launch, Map, Pointer, Source, case, tensor_map

HOPPER = ("sm_90a",)
U32 = 0xFFFFFFFF


def exact(values: Any, dtype: Any) -> Close:
    """Every element as given."""
    return Close(np.asarray(values).astype(dtype), dtype)


def source(file: str, *flags: str) -> Source:
    """A file of this folder."""
    return Source("cuda", f"{file}.cu", options=tuple((flag, "") for flag in flags))


def cuda(file: str, targets: tuple[str, ...] = ("sm_80", "sm_90a")) -> Callable[[Any], Any]:
    """Register a case whose entry has the function's name."""

    def register(make: Any) -> Any:
        return case(source(file), make.__name__, targets)(make)

    return register


def signed(x: int) -> int:
    """A 32-bit word as a signed number."""
    return (x & U32) - (1 << 32 if x & 0x80000000 else 0)


# --- warps.cu


@cuda("warps")
def divergent_loops(inputs: Inputs) -> Launch:
    n = 150
    given = inputs.integers(1, 3000, (n,), np.uint32)
    steps, peaks = np.zeros(n, np.uint32), np.zeros(n, np.uint32)
    for i, word in enumerate(given.tolist()):
        count = peak = outer = 0
        while outer < word % 5:
            x = word + outer
            while x > 1:
                if x & 1:
                    x = 3 * x + 1
                    peak = max(peak, x)
                else:
                    x >>= 1
                count += 1
                if count > 700:
                    break
            if not count & 8:
                count += outer
            outer += 1
        steps[i], peaks[i] = count, peak
    return Launch(
        {"in": given, "steps": np.zeros(n, np.uint32), "peaks": np.zeros(n, np.uint32)},
        (Pointer("in"), Pointer("steps"), Pointer("peaks"), np.int32(n)),
        {"steps": exact(steps, np.uint32), "peaks": exact(peaks, np.uint32)}, (3, 1, 1), (64, 1, 1),
    )  # fmt: skip


@cuda("warps")
def votes(inputs: Inputs) -> Launch:
    n = 84
    given = inputs.integers(0, 99, (n,))
    out, total = np.zeros(n, np.uint32), 0
    for warp in range(3):
        lanes = {lane: int(given[warp * 32 + lane]) for lane in range(32) if warp * 32 + lane < n}
        odd = [lane for lane, x in lanes.items() if x & 1]
        even = [lane for lane, x in lanes.items() if not x & 1]
        large = [lane for lane in odd if lanes[lane] > 50]
        total += len(large)
        result = {}
        for lane in odd:
            any3 = any(lanes[k] == 3 for k in odd)
            result[lane] = len(large) << 8 | len(odd) | all(lanes[k] < 1000 for k in odd) << 16 | any3 << 17
        same = len({lanes[k] for k in even}) == 1
        for lane in even:
            peers = sum(1 << k for k in even if lanes[k] % 4 == lanes[lane] % 4)
            result[lane] = peers ^ (sum(1 << k for k in even) if same else 0) ^ int(same) << 31
        for lane in lanes:
            out[warp * 32 + lane] = (result[lane] + (result[(lane + 1) & 7] & 0xFF)) & U32
    return Launch(
        {"in": given, "out": np.zeros(n, np.uint32), "total": np.zeros(1, np.uint32)},
        (Pointer("in"), Pointer("out"), Pointer("total"), np.int32(n)),
        {"out": exact(out, np.uint32), "total": exact([total], np.uint32)}, (1, 1, 1), (96, 1, 1),
    )  # fmt: skip


@cuda("warps")
def shuffles(inputs: Inputs) -> Launch:
    x = inputs.normal((128,))
    out = np.zeros((5, 128), np.float32)
    for i in range(128):
        base, lane = i & ~31, i & 31
        out[0, i] = x[i - 3] if lane % 8 >= 3 else x[i]
        out[1, i] = x[i + 5] if lane % 16 + 5 < 16 else x[i]
        out[2, i] = x[base + (lane ^ 21)]
        out[3, i] = x[base + lane * 7 % 32]
    for base in range(0, 128, 32):
        low, high = x[base : base + 16].copy(), x[base + 16 : base + 32].copy()
        for step in (8, 4, 2, 1):
            low = low + low[np.arange(16) ^ step]
            other = np.array([high[k + step] if k + step < 16 else high[k] for k in range(16)])
            high = np.maximum(high, other)
        out[4, base : base + 16], out[4, base + 16 : base + 32] = low, high
    return Launch(
        {"in": x, "out": np.zeros((5, 128), np.float32)}, (Pointer("in"), Pointer("out")),
        {"out": exact(out, np.float32)}, (2, 1, 1), (64, 1, 1),
    )  # fmt: skip


@cuda("warps")
def early_exit(inputs: Inputs) -> Launch:
    n = 230
    given = inputs.integers(-50, 50, (n,))
    padded = np.zeros(256, np.int64)
    padded[:n] = given
    out = np.zeros(256, np.int64)
    for block in range(2):
        part = padded[block * 128 : block * 128 + 128]
        out[block * 128 + 96 : block * 128 + 128] = -1
        out[block * 128 + 64 : block * 128 + 96] = part[:32]
        out[block * 128 : block * 128 + 64] = part[:64].sum() + np.arange(64)
    # threads 64 to 95 read part[t - 64] while others add to it: only what is added later differs, so they read after bar 1
    expected = exact(out, np.int32)
    return Launch(
        {"in": given, "out": np.zeros(256, np.int32)}, (Pointer("in"), Pointer("out"), np.int32(n)), {"out": expected},
        (2, 1, 1), (128, 1, 1),
    )  # fmt: skip


@cuda("warps")
def barrier_counts(inputs: Inputs) -> Launch:
    given = inputs.integers(-99, 99, (3, 80))
    given[1, 5], given[2, 7] = 7, -100
    given[0][given[0] == 7] = 8
    out = [(row > 0).sum() << 2 | (row > -100).all() << 1 | (row == 7).any() for row in given]
    return Launch(
        {"in": given, "out": np.zeros((3, 80), np.int32)}, (Pointer("in"), Pointer("out")),
        {"out": exact(np.repeat(np.array(out)[:, None], 80, 1), np.int32)}, (3, 1, 1), (80, 1, 1),
    )  # fmt: skip


@cuda("warps")
def spin_lock(inputs: Inputs) -> Launch:
    given = inputs.integers(-1000, 1000, (64,))
    both = [given.sum(), np.bitwise_xor.reduce(given << 1)]
    return Launch(
        {"lock": np.zeros(1, np.int32), "sum": np.zeros(2, np.int32), "in": given},
        (Pointer("lock"), Pointer("sum"), Pointer("in")),
        {"lock": exact([0], np.int32), "sum": exact(both, np.int32)}, (2, 1, 1), (32, 1, 1),
    )  # fmt: skip


@cuda("warps")
def atomics(inputs: Inputs) -> Launch:
    x, start = inputs.integers(0, 1 << 30, (96,), np.uint32), np.zeros(128, np.uint32)
    start[1], start[3], start[6], start[7] = U32, U32, 4, 3
    start[16:24] = np.where(np.arange(8) % 2, np.arange(8), 99)
    for k in range(1, 8, 2):  # whoever comes first changes it: all of them would write the same
        x[k::8] = x[k::8] // 3 * 3 + k % 3
    return _atomics_of(x, start)


def _atomics_of(x: Array, start: Array) -> Launch:
    words, sums = [int(v) for v in x], start.copy()
    sums[0] = sum(words) & U32
    sums[1] = min(words)
    sums[2] = max(words)
    sums[3] = int(np.bitwise_and.reduce(x | 0xFF))
    sums[4] = int(np.bitwise_or.reduce(x & 0xF0F0))
    sums[5] = int(np.bitwise_xor.reduce(x))
    for _ in words:
        sums[6] = 0 if sums[6] >= 10 else sums[6] + 1
        sums[7] = 6 if sums[7] == 0 or sums[7] > 6 else sums[7] - 1
    sums[8] = -sum(v >> 3 for v in words) & U32
    for k in range(1, 8, 2):
        sums[16 + k] = k % 3
    sums[31], sums[32:128] = 5, x
    old = start[32:128].copy()
    wide = [sum(v << 20 for v in words), max(v * v for v in words)]
    return Launch(
        {"in": x, "sums": start, "wide": np.zeros(2, np.uint64), "floats": np.zeros(1, np.float32),
         "old": np.zeros(96, np.uint32)},
        (Pointer("in"), Pointer("sums"), Pointer("wide"), Pointer("floats"), Pointer("old")),
        {"sums": exact(sums, np.uint32), "wide": exact(wide, np.uint64), "old": exact(old, np.uint32),
         "floats": exact([sum(v & 15 for v in words)], np.float32)}, (3, 1, 1), (32, 1, 1),
    )  # fmt: skip


def _jump(x: int) -> int:
    shifted, case_ = x >> 2, x & 15
    if case_ == 9:
        y = x
        for k in range(int(math.fmod(x >> 4, 9))):
            y = y * 5 + k
        return y
    quotient, rest = int(abs(x) // 9) * (1 if x >= 0 else -1), int(math.fmod(x, 7))
    bits = format(x & U32, "032b")
    table = [
        x * 3, x ^ 0x55, -x, shifted + 100, x + 100, bits.count("1"), len(bits) - len(bits.lstrip("0")),
        int(bits[::-1], 2), (x & -x).bit_length(), 0, rest, quotient, x * 0x12345678 >> 32,
    ]  # fmt: skip
    return table[case_] if case_ < 13 else ~x


@cuda("warps")
def jump_table(inputs: Inputs) -> Launch:
    n = 120
    given = inputs.integers(-2000, 200000, (n,))
    given[:16] = np.arange(16)
    out = [signed(_jump(int(x))) for x in given]
    return Launch(
        {"in": given, "out": np.zeros(n, np.int32)}, (Pointer("in"), Pointer("out"), np.int32(n)),
        {"out": exact(out, np.int32)}, (2, 1, 1), (64, 1, 1),
    )  # fmt: skip


@cuda("warps")
def redux(inputs: Inputs) -> Launch:
    given = inputs.integers(-(1 << 30), 1 << 30, (64,))
    out = np.zeros((4, 64), np.int64)
    bits = [k for k in range(32) if 0x9249A5F1 >> k & 1]
    for base in (0, 32):
        x = [int(v) for v in given[base : base + 32]]
        odd = 0
        for v in x[1::2]:
            odd |= v & U32
        every = 0
        for v in x:
            every ^= v & U32
        for lane in range(32):
            out[0, base + lane] = signed(sum(x) + (odd if lane & 1 else 0))
            out[1, base + lane] = min(x)
            out[2, base + lane] = signed(max(v & U32 for v in x))
            out[3, base + lane] = signed(every + bits[lane & 7])
    return Launch(
        {"in": given, "out": np.zeros((4, 64), np.int32)}, (Pointer("in"), Pointer("out")),
        {"out": exact(out, np.int32)}, (1, 1, 1), (64, 1, 1),
    )  # fmt: skip


# --- blocks.cu


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


# --- calls.cu


def _ackermann(m: int, n: int) -> int:
    return n + 1 if m == 0 else n + 2 if m == 1 else 2 * n + 3


@cuda("calls")
def recursion(inputs: Inputs) -> Launch:
    out = [_ackermann(i & 1, i % 9) + _ackermann(2, i % 3) for i in range(48)]
    return Launch(
        {"out": np.zeros(48, np.uint32)}, (Pointer("out"),), {"out": exact(out, np.uint32)}, (1, 1, 1), (48, 1, 1)
    )


@cuda("calls")
def structs(inputs: Inputs) -> Launch:
    x = inputs.normal((64, 7))
    sums, counts = np.full(64, 0.5), np.full(64, 3)
    for k in range(7):
        sums, counts = sums + x[:, k], counts + (x[:, k] > 0)
    return Launch(
        {"in": x, "sums": np.zeros(64), "counts": np.zeros(64, np.int32)},
        (Pointer("in"), Pointer("sums"), Pointer("counts"), np.int32(7)),
        {"sums": exact(sums, np.float64), "counts": exact(counts, np.int32)}, (2, 1, 1), (32, 1, 1),
    )  # fmt: skip


@cuda("calls")
def function_pointers(inputs: Inputs) -> Launch:
    n = 90
    x = inputs.integers(-500, 500, (n,))
    i = 3 * np.arange(n)
    out = np.choose(x & 3, [x + i, x - i, x * i, np.maximum(x, i)])
    return Launch(
        {"in": x, "out": np.zeros(n, np.int32)}, (Pointer("in"), Pointer("out"), np.int32(n)), {"out": exact(out, np.int32)},
        (2, 1, 1), (64, 1, 1),
    )  # fmt: skip


@cuda("calls")
def local_sort(inputs: Inputs) -> Launch:
    x = inputs.integers(-99, 99, (40, 13))
    out = [np.roll(np.sort(row), -i % 13) for i, row in enumerate(x)]
    return Launch(
        {"in": x, "out": np.zeros((40, 13), np.int32)}, (Pointer("in"), Pointer("out"), np.int32(13)),
        {"out": exact(out, np.int32)}, (1, 1, 1), (40, 1, 1),
    )  # fmt: skip


@cuda("calls")
def unaligned(inputs: Inputs) -> Launch:
    n, given, out = 40, bytearray(), bytearray(1)
    words, numbers = inputs.integers(0, U32 >> 1, (n, 3), np.int64), inputs.normal((n,), np.float64)
    for (tag, word, half), number in zip(words.tolist(), numbers.tolist(), strict=True):
        tag, half = tag & 0xFF, half & 0xFFFF
        given += struct.pack("<BIHd", tag, word, half, number)
        word = word * 3 + tag & U32
        out += struct.pack("<BIHd", tag >> 1, word, half ^ word & 0xFFFF, number * 0.5)
    return Launch(
        {"in": np.frombuffer(bytes(given), np.uint8), "out": np.zeros(len(out), np.uint8)},
        (Pointer("in"), Pointer("out"), np.int32(n)), {"out": exact(np.frombuffer(bytes(out), np.uint8), np.uint8)},
        (2, 1, 1), (32, 1, 1),
    )  # fmt: skip


@case(source("calls"), "print", ("sm_80", "sm_90a"), "printf")
def printf(inputs: Inputs) -> Launch:
    x = inputs.integers(-1000, 1000, (4,))
    lines = [
        f"thread {t} of block 0: {v} {'below' if v < 0 else 'above'} {v * 0.25:.3f} {chr(97 + t)} {'0x%x' % (v & U32) if v else 0} {signed64(v << 33)}%\n"
        for t, v in enumerate(x.tolist()[:3])
    ]  # fmt: skip
    return Launch(
        {"in": x, "out": np.zeros(4, np.int32)}, (Pointer("in"), Pointer("out")), {"out": exact(x + 1, np.int32)},
        (1, 1, 1), (4, 1, 1), output="".join(lines),
    )  # fmt: skip


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
    return Launch(
        {"in": x, "out": np.zeros(32, np.float32)}, (Pointer("in"), Pointer("out")), {"out": Close(y, np.float32, 1e-5, 1e-5)},
        (1, 1, 1), (32, 1, 1),
    )  # fmt: skip


# --- numbers.cu


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
    return Launch(
        {"a": x, "b": y, "out": np.zeros((6, n))}, (Pointer("a"), Pointer("b"), Pointer("out"), np.int32(n)),
        {"out": Close(out, np.float64, 1e-14, 1e-13)}, (2, 1, 1), (32, 1, 1),
    )  # fmt: skip


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
    return Launch(
        {"in": x, "out": np.zeros((10, n), np.float32)}, (Pointer("in"), Pointer("out"), np.int32(n)),
        {"out": Close(out, np.float32, 2e-6, 5e-6)}, (3, 1, 1), (32, 1, 1),
    )  # fmt: skip


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
    return Launch(
        {"a": a, "b": b, "c": c, "out": np.zeros((4, n), np.float32)},
        (Pointer("a"), Pointer("b"), Pointer("c"), Pointer("out"), np.int32(n)),
        {"out": Close(out, np.float32, 0.0, size)}, (3, 1, 1), (32, 1, 1),
    )  # fmt: skip


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
    return Launch(
        {"a": a, "b": b, "out": np.zeros((8, n, 2), np.float16)}, (Pointer("a"), Pointer("b"), Pointer("out"), np.int32(n)),
        {"out": Close(out, np.float16, 2**-9, 2**-14)}, (2, 1, 1), (64, 1, 1),
    )  # fmt: skip


@cuda("numbers")
def bfloats(inputs: Inputs) -> Launch:
    n = 100
    a, b = inputs.normal((n, 2), ml_dtypes.bfloat16), inputs.normal((n, 2), ml_dtypes.bfloat16, 2.0)
    x, y = a.astype(np.float64), b.astype(np.float64)
    last = np.stack([x[:, 0] * np.float32(1.3), y[:, 1] / 3], -1)
    out = np.stack([x * y + x, x + y, np.minimum(x, y), x * -y, last])
    return Launch(
        {"a": a, "b": b, "out": np.zeros((5, n, 2), ml_dtypes.bfloat16)},
        (Pointer("a"), Pointer("b"), Pointer("out"), np.int32(n)),
        {"out": Close(out, ml_dtypes.bfloat16, 2**-8, 1e-30)}, (2, 1, 1), (64, 1, 1),
    )  # fmt: skip


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
    return Launch(
        {"a": a, "b": b, "out": np.zeros((8, n), np.uint32)}, (Pointer("a"), Pointer("b"), Pointer("out"), np.int32(n)),
        {"out": exact(out, np.uint32)}, (2, 1, 1), (32, 1, 1),
    )  # fmt: skip


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
    return Launch(
        {"in": x, "fp8": np.zeros((2, n), np.uint8), "whole": np.zeros((3, n), np.int32), "half": np.zeros((3, n), np.uint16)},
        (Pointer("in"), Pointer("fp8"), Pointer("whole"), Pointer("half"), np.int32(n)),
        {"fp8": exact(fp8, np.uint8), "whole": exact(np.stack([whole, second, cut.view(np.int32) ^ floor]), np.int32),
         "half": exact(np.stack([half.view(np.uint16), up.view(np.uint16), mixed]), np.uint16)}, (2, 1, 1), (64, 1, 1),
    )  # fmt: skip


def _bf16_up(x: Array) -> Array:
    """To bf16, towards positive infinity."""
    words = x.view(np.uint32)
    cut = (words >> 16).astype(np.uint16)
    more = ((words & 0xFFFF) != 0) & (x > 0)
    return (cut + more.astype(np.uint16)).view(ml_dtypes.bfloat16)


# --- clusters.cu


@cuda("clusters", HOPPER)
def dsmem_sum(inputs: Inputs) -> Launch:
    x = inputs.integers(-99, 99, (2, 4, 64))
    out = np.zeros((2, 4, 64), np.int64)
    for rank in range(4):
        for r in range(4):
            out[:, rank] = out[:, rank] * 3 + x[:, (rank + r) & 3][:, np.arange(64) ^ r]
    return Launch(
        {"in": x, "out": np.zeros((2, 4, 64), np.int32)}, (Pointer("in"), Pointer("out")), {"out": exact(out, np.int32)},
        (8, 1, 1), (64, 1, 1),
    )  # fmt: skip


@cuda("clusters", HOPPER)
def dsmem_histogram(inputs: Inputs) -> Launch:
    x = inputs.integers(0, 999, (2, 192), np.uint32)
    out = [np.bincount(row & 63, minlength=64) for row in x]
    return Launch(
        {"in": x, "out": np.zeros((2, 64), np.uint32)}, (Pointer("in"), Pointer("out")), {"out": exact(out, np.uint32)},
        (4, 1, 1), (96, 1, 1),
    )  # fmt: skip


@cuda("clusters", HOPPER)
def multicast(inputs: Inputs) -> Launch:
    x = inputs.normal((2, 128))
    out = np.roll(x, -1, 1)[:, None] + np.arange(4, dtype=np.float32)[:, None]
    return Launch(
        {"in": x, "out": np.zeros((2, 4, 128), np.float32)}, (Pointer("in"), Pointer("out")),
        {"out": exact(out, np.float32)}, (8, 1, 1), (128, 1, 1),
    )  # fmt: skip


@cuda("clusters", HOPPER)
def send(inputs: Inputs) -> Launch:
    x = inputs.integers(0, 9999, (2, 2, 64))
    peer = x[:, ::-1]
    return Launch(
        {"in": x, "out": np.zeros((2, 2, 64), np.int32)}, (Pointer("in"), Pointer("out")),
        {"out": exact((peer[:, :, ::-1] + 1) ^ peer * 5, np.int32)}, (4, 1, 1), (64, 1, 1),
    )  # fmt: skip


@cuda("clusters", HOPPER)
def ring(inputs: Inputs) -> Launch:
    out, x = np.zeros((2, 4), np.int64), 0
    for _ in range(2):
        for rank in range(4):
            x = x * 3 + rank + 1
            out[:, rank] = x
    return Launch(
        {"out": np.zeros((2, 4), np.int32)}, (Pointer("out"),), {"out": exact(out, np.int32)}, (8, 1, 1), (32, 1, 1)
    )


@cuda("clusters", HOPPER)
def secondary(inputs: Inputs) -> Launch:
    n = 200
    x = inputs.integers(-99, 99, (n,))
    middle = x * x - 7
    return Launch(
        {"in": x, "middle": np.zeros(n, np.int32), "out": np.zeros(n, np.int32)},
        (Pointer("in"), Pointer("middle"), Pointer("out"), np.int32(n)),
        {"middle": exact(middle, np.int32), "out": exact(middle[::-1] + x, np.int32)}, (4, 1, 1), (64, 1, 1), before="primary",
    )  # fmt: skip


# --- copies.cu


@cuda("copies", HOPPER)
def specialised(inputs: Inputs) -> Launch:
    x = inputs.integers(-99, 99, (2, 7, 64))
    out = np.zeros((2, 64), np.int64)
    for step in range(7):
        out = out * 7 + x[:, step, ::-1]
    return Launch(
        {"in": x, "out": np.zeros((2, 64), np.int32)}, (Pointer("in"), Pointer("out"), np.int32(7)),
        {"out": exact(out, np.int32)}, (2, 1, 1), (96, 1, 1),
    )  # fmt: skip


@cuda("copies", HOPPER)
def bulk_store(inputs: Inputs) -> Launch:
    x = inputs.integers(0, 9999, (3, 64))
    half = (0x3C00 + (np.arange(64) << 10) % 0x1000).astype(np.uint16).view(np.float16)
    sums = np.concatenate([3 * x.sum(axis=0), 3 * x.max(axis=0)[:32]])
    return Launch(
        {"in": x, "copy": np.zeros((3, 64), np.int32), "sum": np.zeros(96, np.uint32), "halves": np.zeros(64, np.float16)},
        (Pointer("in"), Pointer("copy"), Pointer("sum"), Pointer("halves")),
        {"copy": exact(3 * x, np.int32), "sum": exact(sums, np.uint32), "halves": exact(3 * half, np.float16)},
        (3, 1, 1), (64, 1, 1),
    )  # fmt: skip


@cuda("copies", HOPPER)
def tensor_2d(inputs: Inputs) -> Launch:
    x = inputs.integers(-999, 999, (40, 80))
    padded = np.zeros((64, 128), np.int64)
    padded[4:44, 8:88] = x
    out, sums = np.zeros((48, 96), np.int64), np.zeros((40, 80), np.int64)
    for by in range(3):
        for bx in range(3):
            tile = padded[by * 16 : by * 16 + 16, bx * 32 : bx * 32 + 32] + np.arange(512).reshape(16, 32)
            out[by * 16 : by * 16 + 16, bx * 32 : bx * 32 + 32] = tile
            sums[3:19, :32] += tile
    item = tensor_map(x, "INT32", (32, 16))
    return Launch(
        {"from": x, "to": np.zeros_like(x), "sum": np.zeros_like(x)}, (Map("from", item), Map("to", item), Map("sum", item)),
        {"to": exact(out[:40, :80], np.int32), "sum": exact(sums, np.int32)}, (3, 3, 1), (64, 1, 1),
    )  # fmt: skip


@cuda("copies", HOPPER)
def tensor_swizzled(inputs: Inputs) -> Launch:
    x, cube = inputs.normal((50, 128), np.float16), inputs.integers(0, 255, (4, 8, 32), np.uint8)
    out = np.zeros((2, 64, 64), np.uint16)
    out[:, 3:53] = x.view(np.uint16).reshape(50, 2, 64).transpose(1, 0, 2)
    rest = np.zeros((2, 3, 4, 16), np.uint8)
    for block in range(2):
        picked = cube[block + 2 : block + 5, 5:9, 16:32]
        rest[block, : len(picked), : picked.shape[1]] = picked
    swizzled = tensor_map(x, "FLOAT16", (64, 64), "128B")
    box = tensor_map(cube, "UINT8", (16, 4, 3))
    return Launch(
        {"from": x, "cube": cube, "out": np.zeros((2, 64, 64), np.uint16), "rest": np.zeros((2, 192), np.uint8)},
        (Map("from", swizzled), Map("cube", box), Pointer("out"), Pointer("rest")),
        {"out": exact(out, np.uint16), "rest": exact(rest.reshape(2, 192), np.uint8)}, (2, 1, 1), (128, 1, 1),
    )  # fmt: skip


@cuda("copies", HOPPER)
def im2col(inputs: Inputs) -> Launch:
    image = inputs.normal((2, 6, 7, 64), np.float16)  # N, H, W, C
    out = np.zeros((5, 32, 64), np.uint16)
    words = image.view(np.uint16)
    # base pixels run over W from the lower corner -1 to 7 - 1 + (-1), and over H from 0 to 5 - 1: a filter of 3 x 2
    for block in range(5):
        w, h, n = block - 1, 0, 0
        for pixel in range(32):
            x, y = w + block % 3, h + 1
            if 0 <= x < 7 and 0 <= y < 6 and n < 2:
                out[block, pixel] = words[n, y, x]
            w += 1
            if w > 5:
                w, h = -1, h + 1
            if h > 4:
                h, n = 0, n + 1
    item = tcsim.TensorMap.im2col("FLOAT16", (64, 7, 6, 2), (128, 896, 5376), (-1, 0), (-1, -1), 64, 32, swizzle="NONE")
    return Launch(
        {"image": image, "out": np.zeros((5, 32, 64), np.uint16)}, (Map("image", item), Pointer("out")),
        {"out": exact(out, np.uint16)}, (5, 1, 1), (64, 1, 1),
    )  # fmt: skip


@cuda("copies", HOPPER)
def async_arrive(inputs: Inputs) -> Launch:
    x = inputs.integers(-99, 99, (2, 64, 4))
    out = x[:, np.arange(64) ^ 33].copy()
    out[:, :32, 3] *= -1
    return Launch(
        {"in": x, "out": np.zeros((2, 64, 4), np.int32)}, (Pointer("in"), Pointer("out")), {"out": exact(out, np.int32)},
        (2, 1, 1), (64, 1, 1),
    )  # fmt: skip
