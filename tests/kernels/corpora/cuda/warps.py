"""The launches of warps.cu, and what NumPy or plain Python says of them: kernels of lanes and warps: divergence, votes, shuffles, atomics, jump tables."""

from __future__ import annotations

import math

import numpy as np

from tests.kernels.corpora.case import Array, Inputs, Launch, Pointer, call
from tests.kernels.corpora.cuda.launches import U32, cuda, exact, signed


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
    return call(
        {"in": given},
        {"steps": exact(steps, np.uint32), "peaks": exact(peaks, np.uint32)},
        np.int32(n),
        grid=3,
        block=64,
    )


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
    return call(
        {"in": given}, {"out": exact(out, np.uint32), "total": exact([total], np.uint32)}, np.int32(n), block=96
    )


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
    return call({"in": x}, {"out": exact(out, np.float32)}, grid=2, block=64)


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
    return call({"in": given}, {"out": expected}, np.int32(n), grid=2, block=128)


@cuda("warps")
def barrier_counts(inputs: Inputs) -> Launch:
    given = inputs.integers(-99, 99, (3, 80))
    given[1, 5], given[2, 7] = 7, -100
    given[0][given[0] == 7] = 8
    out = [(row > 0).sum() << 2 | (row > -100).all() << 1 | (row == 7).any() for row in given]
    return call({"in": given}, {"out": exact(np.repeat(np.array(out)[:, None], 80, 1), np.int32)}, grid=3, block=80)


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
    return call({"in": given}, {"out": exact(out, np.int32)}, np.int32(n), grid=2, block=64)


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
    return call({"in": given}, {"out": exact(out, np.int32)}, block=64)
