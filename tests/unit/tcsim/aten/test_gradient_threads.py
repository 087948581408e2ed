"""A thread at a time: the sums over rows of layer_norm's gradient, of an embedding's, and a block's sum in softmax's, against the fast ones."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tcsim.aten.backward import loss, normalisation, softmax


def _normal(shape: tuple[int, ...], seed: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


@given(rows=st.integers(1, 600), seed=st.integers(0, 1000))
def test_bias_of_layer_norm(rows: int, seed: int) -> None:
    grad = _normal((rows, 1), seed)
    threads, each = (1, 8) if rows < 64 else (8, 8) if rows < 128 else (16, 8) if rows < 256 else (32, 8)
    sums = [np.float32(0)] * threads
    for start in range(0, rows, threads * each):
        for thread in range(threads):
            for row in range(start + thread * each, min(start + (thread + 1) * each, rows)):
                sums[thread] = sums[thread] + grad[row, 0]
    apart = threads // 2
    while apart:
        sums = [sums[lane] + sums[lane ^ apart] for lane in range(threads)]
        apart //= 2
    ones = np.ones(rows, np.float32)
    assert normalisation.layer_norm(grad, grad, ones, ones)[2][0] == sums[0]


@given(count=st.integers(1, 200), seed=st.integers(0, 1000))
def test_embedding(count: int, seed: int) -> None:
    grad, index = _normal((count, 1), seed).astype(np.float16), np.random.default_rng(seed).integers(0, 7, count)
    table = np.zeros(7, np.float16)
    for start in range(0, count, 32):
        sums: dict[int, np.float32] = {}
        for place in range(start, min(start + 32, count)):
            name, own = int(index[place]), np.float32(grad[place, 0])
            sums[name] = sums[name] + own if name in sums else own
        for name, own in sums.items():
            table[name] = np.float16(np.float32(table[name]) + np.float32(np.float16(own)))
    assert np.array_equal(loss.embedding(grad, index, 7)[:, 0], table)


@given(n=st.integers(1025, 5000).filter(lambda n: n % 4), seed=st.integers(0, 1000))
def test_block_of_log_softmax(n: int, seed: int) -> None:
    grad = _normal((1, n), seed)
    threads = 32
    while threads < min(n // 4, 1024) // 2:
        threads *= 2
    sums = [np.float32(0)] * threads
    whole = n - n % (4 * threads)
    for place in range(whole):
        thread = place // 4 % threads
        sums[thread] = sums[thread] + grad[0, place]
    for place in range(whole, n):
        sums[(place - whole) % threads] = sums[(place - whole) % threads] + grad[0, place]
    warps = [np.float32(0)] * (threads // 32)
    for thread in range(threads):
        warps[thread // 32] = warps[thread // 32] + sums[thread]
    total = np.float32(0)
    for warp in warps:
        total = total + warp
    found = softmax.log_softmax(grad, np.zeros((1, n), np.float32))
    assert np.array_equal(found, grad - total)
