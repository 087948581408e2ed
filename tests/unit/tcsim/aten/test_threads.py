"""A thread at a time: the softmax of a warp and the sum along a row, against the fast ones."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tcsim.aten.reductions import sum as fast_sum
from tcsim.aten.softmax import softmax
from tcsim.libdevice import exp


def _row(n: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=n).astype(np.float32)


@given(n=st.integers(1, 2048), seed=st.integers(0, 1000))
def test_softmax_of_a_warp(n: int, seed: int) -> None:
    x = _row(n, seed)
    lanes = 32 if n > 16 else 1 << (n - 1).bit_length()
    e = exp(x - x.max())
    sums = [np.float32(0)] * lanes
    for i in range(n):
        sums[i % lanes] = sums[i % lanes] + e[i]
    apart = lanes // 2
    while apart:
        sums = [sums[lane] + sums[lane ^ apart] for lane in range(lanes)]
        apart //= 2
    assert np.array_equal(softmax(x[None])[0], e / sums[0])


@given(n=st.integers(128, 4000), seed=st.integers(0, 1000))
def test_sum_of_one_row(n: int, seed: int) -> None:
    x = _row(n, seed)
    threads = min(512, 1 << ((n // 4).bit_length() - 1))
    totals = []
    for thread in range(threads):
        own = [np.float32(0)] * 4
        for vector in range(thread, n // 4, threads):
            for i in range(4):
                own[i] = own[i] + x[4 * vector + i]
        if thread < n % 4:
            own[0] = own[0] + x[n - n % 4 + thread]
        totals.append(((own[0] + own[1]) + own[2]) + own[3])
    while len(totals) > 1:
        half = len(totals) // 2
        totals = [totals[t] + totals[t + half] for t in range(half)]
    assert fast_sum(x[None], -1)[0] == totals[0]
