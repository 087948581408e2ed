"""softmax and log_softmax as PyTorch 2.11 computes them on a GPU of 32 lanes a warp: a warp a row, a block a row, or a block for many columns."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from tcsim.aten.formats import F32, FORMATS
from tcsim.libdevice import exp, log

Array = npt.NDArray[Any]

LONGEST_OF_A_WARP = 2048
LONGEST_WIDENED = 1024  # of a warp that reads float16 and writes float32
THREADS = 1024
REGISTERS = 9  # elements of one thread that stay in registers
SHARED_MEMORY = 48 * 1024


def added(x: F32, axis: int) -> F32:
    """The sum along an axis, one after another from zero."""
    total = np.zeros_like(np.take(x, 0, axis))
    for part in np.moveaxis(x, axis, 0):
        total = total + part
    return total


def halves(x: F32) -> F32:
    """The sum along the last axis, a power of two long: the first half with the second, until one is left."""
    while (n := x.shape[-1]) > 1:
        x = x[..., : n // 2] + x[..., n // 2 :]
    return x[..., 0]


def padded(x: F32, width: int) -> F32:
    """With zeros at the end of the last axis, up to a multiple of `width`."""
    return np.concatenate([x, np.zeros((*x.shape[:-1], -x.shape[-1] % width), np.float32)], axis=-1)


def warp_sum(e: F32) -> F32:
    """Lane l adds l, l + 32, ...; then lanes 16, 8, 4, 2, 1 apart. Fewer lanes for rows of fewer than 32."""
    lanes = min(32, 1 << max(e.shape[-1] - 1, 0).bit_length())
    return halves(added(padded(e, lanes).reshape(len(e), -1, lanes), 1))


def _block_sum(threads: F32) -> F32:
    """The sums of 1,024 threads: within each warp, then of the warps."""
    return halves(halves(threads.reshape(len(threads), -1, 32)))


def _strided_sum(e: F32) -> F32:
    """Thread t adds t, t + 1024, ..."""
    return _block_sum(added(padded(e, THREADS).reshape(len(e), -1, THREADS), 1))


def vector_sum(e: F32, vector: int, threads: F32 | None = None) -> F32:
    """Thread t of 1,024, or of as many as have something, adds vectors t, t + threads, ..., element by element, to what it has; elements beyond whole rounds one each."""
    total = np.zeros((len(e), THREADS), np.float32) if threads is None else threads
    count = total.shape[1]
    rounds = e.shape[1] // (vector * count)
    whole = rounds * vector * count
    for r in np.moveaxis(e[:, :whole].reshape(len(e), rounds, count, vector), 1, 0):
        for v in range(vector):
            total = total + r[:, :, v]
    for r in np.moveaxis(padded(e[:, whole:], count).reshape(len(e), -1, count), 1, 0):
        total = total + r
    return total


def _shared_sum(e: F32, vector: int) -> F32:
    """As `vector_sum`, with the last round in vectors too."""
    return _block_sum(vector_sum(padded(e, vector * THREADS), vector))


def _shifted_sum(e: F32, vector: int, shift: int) -> F32:
    """As `vector_sum`, after threads from `shift` on took one element each so that the rest is aligned."""
    if not shift:
        return _block_sum(vector_sum(e, vector))
    first = np.concatenate([np.zeros((len(e), shift), np.float32), e[:, : THREADS - shift]], axis=1)
    return _block_sum(vector_sum(e[:, THREADS - shift :], vector, np.zeros_like(first) + first))


def _row_sum(e: F32, itemsize: int, misaligned: int, widens: bool) -> F32:
    """The sum of exponentials of rows (rows, n) that are too long for a warp; widens: whether float16 becomes float32."""
    rows, n = e.shape
    vector = 16 // itemsize
    if -(-n // THREADS) <= REGISTERS and not widens:
        return _strided_sum(e)
    if misaligned == 0 and n % vector == 0 and n < (SHARED_MEMORY - 128) // itemsize:
        return _shared_sum(e, vector)
    shifts = (misaligned + np.arange(rows) * n) % vector
    total = np.empty(rows, np.float32)
    for shift in np.unique(shifts):
        total[shifts == shift] = _shifted_sum(e[shifts == shift], vector, int(shift))
    return total


def column_sum(e: F32) -> F32:
    """The sums over the middle axis of (outer, n, inner): a thread a column, or some where columns are few and long."""
    outer, n, inner = e.shape
    threads, wide = 1, min(inner, THREADS)
    if wide <= 64 and n >= 64:
        while wide * threads <= THREADS and threads <= n:
            threads *= 2
        threads //= 2
    e = np.moveaxis(e, 1, 2)
    return halves(added(padded(e, threads).reshape(outer, inner, -1, threads), 2))


def _computed(x: Array, dim: int, finish: Callable[[F32, F32, F32], F32], out: str | None, misaligned: int) -> Array:
    dtype = x.dtype if out is None else FORMATS[out]
    widens = x.dtype == np.float16 and dtype == np.float32
    if x.dtype != dtype and not widens:
        x, misaligned = x.astype(dtype), 0
    dim %= max(x.ndim, 1)
    n, inner = (x.shape[dim] if x.ndim else 1), prod(x.shape[dim + 1 :])
    if x.size == 0:
        return np.zeros(x.shape, dtype)
    columns = x.astype(np.float32).reshape(-1, n, inner)
    with np.errstate(all="ignore"):
        shifted = columns - columns.max(axis=1, keepdims=True)
        e = exp(shifted)
        if inner > 1:
            total = column_sum(e)
        elif n <= (LONGEST_WIDENED if widens else LONGEST_OF_A_WARP):
            total = warp_sum(e[:, :, 0])[:, None]
        else:
            total = _row_sum(e[:, :, 0], x.itemsize, misaligned if x.flags.c_contiguous else 0, widens)[:, None]
        return finish(shifted, e, total[:, None]).astype(dtype).reshape(x.shape)


def softmax(x: Array, dim: int = -1, out: str | None = None, misaligned: int = 0) -> Array:
    """exp(x - max) / sum along `dim`, as torch.softmax.

    x: float32, bfloat16 or float16 of any shape and strides; out: "f32" for torch's dtype=torch.float32; misaligned: elements between
    the last 16-byte boundary and x's first element (torch's own allocations have 0). The result has x's shape.

    >>> softmax(np.float32([[0, 0, 0, 0]])).tolist()
    [[0.25, 0.25, 0.25, 0.25]]
    """
    return _computed(x, dim, lambda shifted, e, total: e / total, out, misaligned)


def log_softmax(x: Array, dim: int = -1, out: str | None = None, misaligned: int = 0) -> Array:
    """x - max - log(sum) along `dim`, as torch.log_softmax; arguments as `softmax` takes them.

    >>> log_softmax(np.float32([[0, 0]])).tolist()
    [[-0.6931471824645996, -0.6931471824645996]]
    """
    return _computed(x, dim, lambda shifted, e, total: shifted - log(total), out, misaligned)
