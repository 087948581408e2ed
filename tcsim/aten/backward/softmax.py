"""Gradients of softmax and log_softmax as PyTorch 2.11 computes them on a GPU: a warp a row up to 1,024 elements, else a block a row."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from tcsim.aten.formats import F32, FORMATS, rounded
from tcsim.aten.softmax import SHARED_MEMORY, added, column_sum, halves, padded, vector_sum, warp_sum
from tcsim.libdevice import exp
from tcsim.libdevice.operations import fma

Array = npt.NDArray[Any]

LONGEST_OF_A_WARP = 1024
MOST_THREADS = 1024
WARP = 32


def _threads(n: int, vector: int) -> int:
    """Threads of a block: the power of two from half the vectors of a row on, 32 to 512."""
    half = min(n // vector, MOST_THREADS) // 2
    return max(WARP, 1 << max(half - 1, 0).bit_length())


def _one_by_one(threads: F32) -> F32:
    """The sum of a block: a thread adds the values of each warp in order, one more the warps' sums."""
    return added(added(threads.reshape(len(threads), -1, WARP), 2), 1)


def _by_shuffles(threads: F32) -> F32:
    return halves(halves(threads.reshape(len(threads), -1, WARP)))


def _row_sum(x: F32, itemsize: int, misaligned: int) -> F32:
    """The sums of rows (rows, n) longer than a warp takes."""
    rows, n = x.shape
    vector = 16 // itemsize
    threads = _threads(n, vector)
    start = np.zeros((rows, threads), np.float32)
    if misaligned == 0 and n % vector == 0 and n < (SHARED_MEMORY - threads // WARP * 4) // itemsize:
        return _by_shuffles(vector_sum(padded(x, vector * threads), vector, start))
    shifts = (misaligned + np.arange(rows) * n) % vector
    total = np.empty(rows, np.float32)
    for shift in np.unique(shifts):
        some = x[shifts == shift]
        first, rest = start[: len(some)].copy(), some
        if shift:  # threads from `shift` on take one element each
            head = some[:, : threads - shift]
            first[:, shift : shift + head.shape[1]] += head
            rest = some[:, threads - shift :]
        total[shifts == shift] = _one_by_one(vector_sum(rest, vector, first))
    return total


def _computed(grad: Array, y: Array, dim: int, out: str | None, misaligned: int, slope: Callable[[F32], F32]) -> Array:
    dim %= max(y.ndim, 1)
    n, inner = (y.shape[dim] if y.ndim else 1), prod(y.shape[dim + 1 :])
    dtype = y.dtype if out is None else FORMATS[out]
    if y.size == 0:
        return np.zeros(y.shape, dtype)
    with np.errstate(all="ignore"):
        g, e = (x.astype(np.float32).reshape(-1, n, inner) for x in (grad, y))
        if inner > 1:
            total = column_sum(g)
        elif n <= LONGEST_OF_A_WARP:
            total = warp_sum(g[:, :, 0])[:, None]
        else:
            total = _row_sum(g[:, :, 0], y.itemsize, misaligned)[:, None]
        return rounded(fma(-slope(e), total[:, None], g), dtype).reshape(y.shape)


def softmax(grad: Array, y: Array, dim: int = -1, out: str | None = None, misaligned: int = 0) -> Array:
    """p - y * sum(p) with p = grad * y rounded to the type: the gradient of softmax from its output y.

    grad and y: float32, bfloat16 or float16 of one shape; out: "f16" if y is the float32 that softmax made of float16; misaligned: of grad, as
    `tcsim.aten.softmax.softmax` takes it.

    >>> softmax(np.float32([[1, 0]]), np.float32([[0.5, 0.5]])).tolist()
    [[0.25, -0.25]]
    """
    with np.errstate(all="ignore"):
        product = rounded(grad.astype(np.float32) * y.astype(np.float32), y.dtype)
    return _computed(product, y, dim, out, 0, lambda e: e)


def log_softmax(grad: Array, y: Array, dim: int = -1, out: str | None = None, misaligned: int = 0) -> Array:
    """grad - exp(y) * sum(grad): the gradient of log_softmax from its output y; arguments as `softmax` takes them.

    >>> log_softmax(np.float32([[1, 0]]), np.float32([[0, -np.inf]])).tolist()
    [[0.0, 0.0]]
    """
    return _computed(grad, y, dim, out, misaligned, exp)
