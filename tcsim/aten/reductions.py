"""sum, mean, amax, amin, argmax, argmin, var, std, norm, logsumexp and cumsum as PyTorch 2.11 computes them on an H200, over any axes of any view."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tcsim.aten.blocks import division
from tcsim.aten.formats import F32, FORMATS, rounded
from tcsim.aten.iteration import arranged
from tcsim.aten.tree import Accumulation, State, reduced
from tcsim.core.errors import NotModelledError
from tcsim.libdevice import exp, log
from tcsim.libdevice.operations import fma

Array = npt.NDArray[Any]
Axes = int | Sequence[int] | None


@dataclass(frozen=True)
class Kernel:
    """An accumulation with the kernel's template arguments: accumulators of a thread, elements of one load by bytes of the type."""

    accumulation: Accumulation
    accumulators: int
    vectors: dict[int, int]


def _added(a: State, b: State) -> State:
    return (a[0] + b[0],)


def _greater(a: Array, b: Array) -> Array:
    return np.where(np.isnan(a) | (a > b), a, b)


def _smaller(a: Array, b: Array) -> Array:
    return np.where(np.isnan(a) | (a < b), a, b)


def _welford(state: State, x: F32) -> State:
    mean, m2, n = state
    n = n + np.float32(1)
    delta = x - mean
    mean = mean + delta / n
    return mean, fma(delta, x - mean, m2), n


def _welford_joined(a: State, b: State) -> State:
    delta = b[0] - a[0]
    n = a[2] + b[2]
    share = b[2] / n
    joined = (fma(delta, share, a[0]), fma(delta * delta * a[2], share, a[1] + b[1]), n)
    return tuple(
        np.where(a[2] == 0, of_b, np.where(b[2] == 0, of_a, of_both))
        for of_a, of_b, of_both in zip(a, b, joined, strict=True)
    )


_ZERO, _LOWEST, _HIGHEST = (np.float32(v) for v in (0, -np.inf, np.inf))
_FOURS = {4: 4, 2: 4}
_WIDE = {4: 4, 2: 8}

KERNELS = {
    "sum": Kernel(Accumulation((_ZERO,), lambda s, x: (s[0] + x,), _added), 4, _WIDE),
    "amax": Kernel(
        Accumulation((_LOWEST,), lambda s, x: (_greater(s[0], x),), lambda a, b: (_greater(a[0], b[0]),)), 4, _FOURS
    ),
    "amin": Kernel(
        Accumulation((_HIGHEST,), lambda s, x: (_smaller(s[0], x),), lambda a, b: (_smaller(a[0], b[0]),)), 4, _FOURS
    ),
    "var": Kernel(Accumulation((_ZERO, _ZERO, _ZERO), _welford, _welford_joined), 2, {4: 2, 2: 2}),
    "norm1": Kernel(Accumulation((_ZERO,), lambda s, x: (s[0] + np.abs(x),), _added), 4, _FOURS),
    "norm2": Kernel(Accumulation((_ZERO,), lambda s, x: (fma(x, x, s[0]),), _added), 4, _FOURS),
}


def _axes(x: Array, dim: Axes) -> tuple[int, ...]:
    chosen = (
        range(x.ndim)
        if dim is None or (not isinstance(dim, int) and not len(dim))
        else (dim,)
        if isinstance(dim, int)
        else dim
    )
    return tuple(sorted({d % x.ndim for d in chosen})) if x.ndim else ()


def _reduced(name: str, x: Array, dim: Axes, misaligned: int) -> tuple[State, tuple[int, ...], int]:
    """The states, the result's shape, and the elements of one output."""
    kernel, given = KERNELS[name], arranged(x, _axes(x, dim), misaligned)
    if x.size == 0:
        state = tuple(np.full(len(given.rows), s) for s in kernel.accumulation.start)
    else:
        d = division(given.iteration, kernel.accumulators, kernel.vectors[x.itemsize])
        with np.errstate(all="ignore"):
            state = reduced(
                kernel.accumulation, given.rows.astype(np.float32), d, given.starts % d.vector if d.vector else None
            )
    return state, given.shape, given.rows.shape[1]


def sum(x: Array, dim: Axes = None, out: str | None = None, misaligned: int = 0) -> Array:
    """The sum over `dim`, as torch.sum.

    x: float32, bfloat16 or float16, with any strides; dim: axes, None for all; out: "f32" for torch's dtype=torch.float32; misaligned: elements
    between the last 16-byte boundary and x's first one (torch's own allocations have 0). The result has x's dtype.

    >>> float(sum(np.ones((3, 5), np.float32)))
    15.0
    """
    state, shape, _ = _reduced("sum", x, dim, misaligned)
    return rounded(state[0].reshape(shape), x.dtype if out is None else FORMATS[out])


def mean(x: Array, dim: Axes = None, out: str | None = None, misaligned: int = 0) -> Array:
    """The sum times the reciprocal of the count, as torch.mean; arguments as `sum` takes them.

    >>> float(mean(np.float32([1, 2, 3, 6])))
    3.0
    """
    state, shape, n = _reduced("sum", x, dim, misaligned)
    outputs = np.float32(state[0].size)
    with np.errstate(all="ignore"):
        return rounded(
            (state[0] * (outputs / np.float32(x.size))).reshape(shape), x.dtype if out is None else FORMATS[out]
        )


def amax(x: Array, dim: Axes = None, misaligned: int = 0) -> Array:
    """The largest element, NaN if there is one, as torch.amax.

    >>> float(amax(np.float32([1, 3, 2])))
    3.0
    """
    state, shape, _ = _reduced("amax", x, dim, misaligned)
    return state[0].reshape(shape).astype(x.dtype)


def amin(x: Array, dim: Axes = None, misaligned: int = 0) -> Array:
    """The smallest element, NaN if there is one, as torch.amin.

    >>> float(amin(np.float32([3, 1, 2])))
    1.0
    """
    state, shape, _ = _reduced("amin", x, dim, misaligned)
    return state[0].reshape(shape).astype(x.dtype)


def argmax(x: Array, dim: int | None = None) -> npt.NDArray[np.int64]:
    """The index of the largest element, the first of equal ones, of a NaN if there is one, as torch.argmax.

    >>> int(argmax(np.float32([1, 3, 3])))
    1
    """
    return np.asarray(np.argmax(x.astype(np.float32), axis=dim), dtype=np.int64)


def argmin(x: Array, dim: int | None = None) -> npt.NDArray[np.int64]:
    """The index of the smallest element, the first of equal ones, of a NaN if there is one, as torch.argmin.

    >>> int(argmin(np.float32([2, 1, 1])))
    1
    """
    return np.asarray(np.argmin(x.astype(np.float32), axis=dim), dtype=np.int64)


def _variance(x: Array, dim: Axes, correction: float, misaligned: int) -> tuple[F32, tuple[int, ...]]:
    (_, m2, n), shape, _ = _reduced("var", x, dim, misaligned)
    with np.errstate(all="ignore"):
        divisor: F32 = np.where(n > np.float32(correction), n - np.float32(correction), np.float32(0))
        variance: F32 = np.divide(m2, divisor)
    return variance.reshape(shape), shape


def var(x: Array, dim: Axes = None, correction: float = 1, misaligned: int = 0) -> Array:
    """The variance by Welford's method, as torch.var; the other arguments as `sum` takes them.

    >>> float(var(np.float32([1, 2, 3])))
    1.0
    """
    return rounded(_variance(x, dim, correction, misaligned)[0], x.dtype)


def std(x: Array, dim: Axes = None, correction: float = 1, misaligned: int = 0) -> Array:
    """The root of the variance, as torch.std.

    >>> float(std(np.float32([1, 2, 3])))
    1.0
    """
    with np.errstate(all="ignore"):
        return rounded(np.sqrt(_variance(x, dim, correction, misaligned)[0]), x.dtype)


def norm(x: Array, ord: float = 2, dim: Axes = None, misaligned: int = 0) -> Array:
    """The norm of order 1 or 2, as torch.linalg.vector_norm.

    Raises NotModelledError for another order.

    >>> float(norm(np.float32([3, 4])))
    5.0
    """
    if ord not in (1, 2):
        raise NotModelledError(f"norm of order {ord}; modelled: 1, 2")
    state, shape, _ = _reduced(f"norm{ord:g}", x, dim, misaligned)
    with np.errstate(all="ignore"):
        return rounded((state[0] if ord == 1 else np.sqrt(state[0])).reshape(shape), x.dtype)


def logsumexp(x: Array, dim: Axes = None, misaligned: int = 0) -> Array:
    """max + log(sum(exp(x - max))), each operation rounded to x's dtype, as torch.logsumexp.

    >>> float(logsumexp(np.float32([0, 0])))
    0.6931471824645996
    """
    axes = _axes(x, dim)
    kept = tuple(1 if d in axes else n for d, n in enumerate(x.shape))
    with np.errstate(all="ignore"):
        largest = amax(x, axes, misaligned)
        largest = np.where(np.abs(largest.astype(np.float32)) == np.inf, x.dtype.type(0), largest)
        e = np.empty_like(x)  # in x's order of axes, as torch's elementwise kernels write
        e[...] = exp(
            rounded(x.astype(np.float32) - largest.astype(np.float32).reshape(kept), x.dtype).astype(np.float32)
        )
        logarithm = rounded(log(sum(e, axes).astype(np.float32)), x.dtype)
        return rounded(logarithm.astype(np.float32) + largest.astype(np.float32), x.dtype)


def _scan_threads(rows: int, n: int) -> int:
    """Threads along a row, 16 to 512: about 512 for all rows, in the ratio of the logarithms of both sizes."""
    return 1 << max(4, min(9, (9 + (n - 1).bit_length() - (rows - 1).bit_length()) // 2))


def cumsum(x: Array, dim: int = -1) -> Array:
    """The running sum along `dim`, every addition rounded to x's dtype, as torch.cumsum.

    Raises NotModelledError for one row alone, whose order of additions is not fixed.

    >>> cumsum(np.float32([[1, 2, 3]] * 2)).tolist()
    [[1.0, 3.0, 6.0], [1.0, 3.0, 6.0]]
    """
    dim %= x.ndim
    n = x.shape[dim]
    if x.size == n:
        raise NotModelledError("cumsum of a single row: CUB's scan, whose order depends on the run")
    rows = np.moveaxis(x, dim, -1).reshape(-1, n)
    scanned = _scanned(rows) if dim == x.ndim - 1 else _one_by_one(rows)
    return np.moveaxis(scanned.reshape(*x.shape[:dim], *x.shape[dim + 1 :], n), -1, dim)


def _plus(a: Array, b: Array) -> Array:
    return rounded(a.astype(np.float32) + b.astype(np.float32), a.dtype)


def _one_by_one(rows: Array) -> Array:
    result, total = np.empty_like(rows), np.zeros(len(rows), rows.dtype)
    for k in range(rows.shape[1]):
        result[:, k] = total = _plus(total, rows[:, k])
    return result


def _scanned(rows: Array) -> Array:
    """Tiles of two elements a thread, each by Sklansky's method; the total so far is added to a tile's first element."""
    count, n = rows.shape
    width = 2 * _scan_threads(count, n)
    result, total = np.empty_like(rows), np.zeros(count, rows.dtype)
    for start in range(0, n, width):
        part = rows[:, start : start + width]
        tile = np.zeros((count, width), rows.dtype)
        tile[:, : part.shape[1]] = part
        tile[:, 0] = _plus(tile[:, 0], total)
        half = 1
        while half < width:
            groups = tile.reshape(count, -1, 2, half)
            groups[:, :, 1] = _plus(groups[:, :, 1], groups[:, :, 0, -1:])
            half *= 2
        result[:, start : start + width] = tile[:, : part.shape[1]]
        total = tile[:, -1]
    return result
