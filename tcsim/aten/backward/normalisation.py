"""Gradients of layer_norm and fused rms_norm as PyTorch 2.11 computes them on an H200: the input's row by row, the parameters' by a tree over rows that follows from the shape."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from tcsim.aten.blocks import MULTIPROCESSORS, WARP
from tcsim.aten.formats import F32, rounded
from tcsim.aten.reductions import sum as sum_of
from tcsim.aten.softmax import halves
from tcsim.libdevice.operations import fma

Array = npt.NDArray[Any]

THREADS, VECTOR = 128, 4
TILES = ((64, 1, 8), (128, 8, 64), (256, 16, 128), (1 << 62, 32, 256))
"""Each entry: below this many rows, how many threads share a column and how many rows a block takes at once."""
MANY_ROWS, ROWS_AT_ONCE, MOST_BLOCKS = 64 * 1024, 32, 32 * 1024


def layer_norm(grad: Array, x: Array, mean: F32, rstd: F32, weight: Array | None = None) -> tuple[Array, Array, Array]:
    """Gradients of x, of weight and of bias (both also where there are none).

    grad, x: float32, bfloat16 or float16 (..., n), normalised over the last len(mean)-th part of the elements: mean and rstd are float32, one for each row, as
    `tcsim.aten.normalisation.layer_norm_statistics` returns them; weight: of x's dtype. The results have x's dtype; the parameters' are flat.

    >>> dx, dweight, dbias = layer_norm(np.float32([[1, 2]]), np.float32([[-1, 1]]), np.float32([0]), np.float32([1]))
    >>> dweight.tolist(), dbias.tolist()
    ([-1.0, 2.0], [1.0, 2.0])
    """
    g, wide, w = _widened(grad, x, weight, len(mean))
    with np.errstate(all="ignore"):
        centred = wide - mean[:, None]
        dx = _of_input(g, centred, rstd, w, True)
        dweight, dbias = _of_parameters(g, centred, rstd, x.dtype)
    return rounded(dx, x.dtype).reshape(x.shape), dweight, dbias


def rms_norm(grad: Array, x: Array, rstd: F32, weight: Array | None = None) -> tuple[Array, Array]:
    """Gradients of x and of weight, of torch.nn.functional.rms_norm; arguments as `layer_norm` takes them.

    >>> rms_norm(np.float32([[1, 2]]), np.float32([[-1, 1]]), np.float32([1]))[1].tolist()
    [-1.0, 2.0]
    """
    g, wide, w = _widened(grad, x, weight, len(rstd))
    with np.errstate(all="ignore"):
        dx = _of_input(g, wide, rstd, w, False)
        dweight = _of_parameters(g, wide, rstd, x.dtype)[0]
    return rounded(dx, x.dtype).reshape(x.shape), dweight


def _widened(grad: Array, x: Array, weight: Array | None, rows: int) -> tuple[F32, F32, F32]:
    n = prod(x.shape) // max(rows, 1)
    w = np.ones(n, np.float32) if weight is None else weight.astype(np.float32).reshape(-1)
    return grad.astype(np.float32).reshape(rows, n), x.astype(np.float32).reshape(rows, n), w


def _block_sum(x: F32) -> F32:
    return halves(halves(x.reshape(len(x), -1, WARP)))


def _of_input(g: F32, centred: F32, rstd: F32, w: F32, centres: bool) -> F32:
    """rstd / n * (n * w * g - x' * rstd * sum(w * g * x' * rstd) - sum(w * g)); thread t adds vectors t, t + 128, ..."""
    rows, n = g.shape
    scaled, r = g * w, rstd[:, None]
    rounds = -(-n // (THREADS * VECTOR))

    def parted(x: F32) -> F32:
        full = np.zeros((rows, rounds * THREADS * VECTOR), np.float32)
        full[:, :n] = x
        return full.reshape(rows, rounds, THREADS, VECTOR)

    plain, product = parted(scaled), parted(scaled * centred)
    total, projection = np.zeros((rows, THREADS), np.float32), np.zeros((rows, THREADS), np.float32)
    valid = (np.arange(rounds * THREADS * VECTOR) < n).reshape(rounds, THREADS, VECTOR)
    for i in range(rounds):
        for k in range(VECTOR):
            total = np.where(valid[i, :, k], total + plain[:, i, :, k], total)
            projection = np.where(valid[i, :, k], fma(product[:, i, :, k], r, projection), projection)
    of_projection = _block_sum(projection)[:, None]
    own = fma(np.float32(n) * w, g, -(centred * r * of_projection))
    if centres:
        own = own - _block_sum(total)[:, None]
    return own * (np.float32(1) / np.float32(n) * r)


def _of_parameters(g: F32, centred: F32, rstd: F32, dtype: npt.DTypeLike) -> tuple[Array, Array]:
    """Sums over rows of g * x' * rstd and of g. A thread takes its part of the rows of a block at once, in order; then the threads in halves.

    More than 65,536 rows of few columns: blocks of 32 rows each, whose sums are rounded and added by a reduction of their own.
    """
    rows, n = g.shape
    split = rows > MANY_ROWS and n // WARP < MULTIPROCESSORS // 2
    if split:
        threads = min(MOST_BLOCKS // -(-n // WARP), -(-rows // ROWS_AT_ONCE))
        at_once = threads * ROWS_AT_ONCE
    else:
        threads, at_once = next((threads, at_once) for limit, threads, at_once in TILES if rows < limit)
    rounds = -(-rows // at_once)

    def parted(x: F32) -> F32:
        full = np.zeros((rounds * at_once, *x.shape[1:]), np.float32)
        full[:rows] = x
        return full.reshape(rounds, threads, at_once // threads, *x.shape[1:])

    product, plain, r = parted(g * centred), parted(g), parted(rstd)
    dweight, dbias = np.zeros((threads, n), np.float32), np.zeros((threads, n), np.float32)
    for i in range(rounds):
        for k in range(at_once // threads):
            dweight = fma(product[i, :, k], r[i, :, k, None], dweight)
            dbias = dbias + plain[i, :, k]
    if split:
        return sum_of(rounded(dweight, dtype), 0), sum_of(rounded(dbias, dtype), 0)
    return rounded(halves(dweight.T), dtype), rounded(halves(dbias.T), dtype)
