"""layer_norm, rms_norm and group_norm as PyTorch 2.11 computes them on a GPU."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from tcsim.aten.formats import F32, rounded
from tcsim.aten.reductions import KERNELS
from tcsim.aten.tree import Accumulation, State, halved
from tcsim.libdevice import rsqrt
from tcsim.libdevice.operations import fma

Array = npt.NDArray[Any]

VECTOR = 4
THREADS = 128  # of the kernel of vectors
MOMENT_THREADS = 512
SHORT = 512  # group_norm: shorter rows take one warp
_ONE = np.float32(1)


def _online(state: State, x: F32) -> State:
    """One more element in Welford's mean and sum of squares, with a reciprocal instead of a division."""
    mean, m2, n = state
    delta, n = x - mean, n + _ONE
    mean = fma(delta, _ONE / n, mean)
    return mean, fma(delta, x - mean, m2), n


def _combined(own: State, other: State) -> State:
    delta, n = own[0] - other[0], other[2] + own[2]
    share = _ONE / n
    of_other, of_own = other[2] * share, own[2] * share
    mean = fma(of_other, other[0], of_own * own[0])
    m2 = fma(delta * delta * other[2], of_own, other[1] + own[1])
    some = n > 0
    return np.where(some, mean, np.float32(0)), np.where(some, m2, np.float32(0)), n


MOMENTS = Accumulation((np.float32(0),) * 3, _online, _combined)
SQUARES = KERNELS["norm2"].accumulation
WELFORD = KERNELS["var"].accumulation


def _by_threads(op: Accumulation, x: F32, threads: int, vector: int) -> State:
    """Thread t takes vectors t, t + threads, ...; the states of (rows, threads)."""
    rows, n = x.shape
    rounds = -(-n // (threads * vector))
    padded = np.zeros((rows, rounds * threads * vector), np.float32)
    padded[:, :n] = x
    padded = padded.reshape(rows, rounds, threads, vector)
    valid = (np.arange(rounds * threads * vector) < n).reshape(rounds, threads, vector)
    state: State = tuple(np.full((rows, threads), s) for s in op.start)
    for r in range(rounds):
        for v in range(vector):
            new = op.take(state, padded[:, r, :, v])
            state = (
                new
                if valid[r, :, v].all()
                else tuple(np.where(valid[r, :, v], a, b) for a, b in zip(new, state, strict=True))
            )
    return state


def _by_warps(op: Accumulation, state: State) -> State:
    """(rows, threads) joined within each warp, then the warps' states."""
    warps = tuple(s.reshape(len(s), -1, 32) for s in state)
    return halved(op, halved(op, warps))


def _flat(x: Array, axes: int) -> tuple[F32, int]:
    n = prod(x.shape[x.ndim - axes :])
    return x.reshape(-1, n).astype(np.float32), n


def _vectors(n: int, misaligned: tuple[int, ...]) -> bool:
    return n % VECTOR == 0 and not any(m % VECTOR for m in misaligned)


def _affine(x: F32, mean: F32, rstd: F32, weight: F32 | None, bias: F32 | None, vectors: bool) -> F32:
    scaled = rstd * (x - mean)
    if not vectors:
        return fma(scaled, _ONE if weight is None else weight, np.float32(0) if bias is None else bias)
    if bias is None:
        return scaled if weight is None else weight * scaled
    return scaled + bias if weight is None else fma(weight, scaled, bias)


def _parameter(w: Array | None) -> F32 | None:
    return None if w is None else w.astype(np.float32).reshape(-1)


def layer_norm(
    x: Array,
    axes: int = 1,
    weight: Array | None = None,
    bias: Array | None = None,
    eps: float = 1e-5,
    misaligned: tuple[int, ...] = (),
) -> Array:
    """(x - mean) / sqrt(var + eps) * weight + bias over the last `axes` axes, as torch.nn.functional.layer_norm.

    x: float32, bfloat16 or float16; weight and bias: of the shape of those axes and of x's dtype, or None; misaligned: of x, weight and bias, the
    elements between the last 16-byte boundary and the first one (torch's own allocations have 0). The result has x's shape and dtype.

    >>> layer_norm(np.float32([[1, -1, 1, -1]]), eps=0.0).tolist()
    [[1.0, -1.0, 1.0, -1.0]]
    """
    return layer_norm_statistics(x, axes, weight, bias, eps, misaligned)[0]


def layer_norm_statistics(
    x: Array,
    axes: int = 1,
    weight: Array | None = None,
    bias: Array | None = None,
    eps: float = 1e-5,
    misaligned: tuple[int, ...] = (),
) -> tuple[Array, F32, F32]:
    """What `layer_norm` returns, and mean and 1 / sqrt(var + eps) of each row in float32, which its gradient needs.

    >>> [s.tolist() for s in layer_norm_statistics(np.float32([[1, -1, 1, -1]]), eps=0.0)[1:]]
    [[0.0], [1.0]]
    """
    rows, n = _flat(x, axes)
    vectors = _vectors(n, (misaligned[:1] if x.flags.c_contiguous else ()) + misaligned[1:])
    with np.errstate(all="ignore"):
        if vectors:
            mean, m2, _ = _by_warps(MOMENTS, _by_threads(MOMENTS, rows, THREADS, VECTOR))
        else:
            mean, m2, _ = _by_warps(WELFORD, _by_threads(WELFORD, rows, MOMENT_THREADS, 1))
        rstd = rsqrt(np.divide(m2, np.float32(n)) + np.float32(eps))
        y = _affine(rows, mean[:, None], rstd[:, None], _parameter(weight), _parameter(bias), vectors)
    return rounded(y, x.dtype).reshape(x.shape), mean, rstd


EPSILON = 2.0**-23  # where none is given, whatever the dtype: sums are float32


def rms_norm(
    x: Array, axes: int = 1, weight: Array | None = None, eps: float | None = None, misaligned: tuple[int, ...] = ()
) -> Array:
    """x / sqrt(mean of squares + eps) * weight over the last `axes` axes, as torch.nn.functional.rms_norm; eps: None for float32's epsilon.

    The other arguments are as `layer_norm` takes them. Models that write it out (x.pow(2).mean(-1), rsqrt, products) run those operations one by one instead.

    >>> rms_norm(np.float32([[2, -2, 2, -2]]), eps=0.0).tolist()
    [[1.0, -1.0, 1.0, -1.0]]
    """
    return rms_norm_statistics(x, axes, weight, eps, misaligned)[0]


def rms_norm_statistics(
    x: Array, axes: int = 1, weight: Array | None = None, eps: float | None = None, misaligned: tuple[int, ...] = ()
) -> tuple[Array, F32]:
    """What `rms_norm` returns, and 1 / sqrt(mean of squares + eps) of each row in float32, which its gradient needs.

    >>> rms_norm_statistics(np.float32([[2, -2, 2, -2]]), eps=0.0)[1].tolist()
    [0.5]
    """
    rows, n = _flat(x, axes)
    vectors = _vectors(n, (misaligned[:1] if x.flags.c_contiguous else ()) + misaligned[1:])
    epsilon = np.float32(EPSILON if eps is None else eps)
    with np.errstate(all="ignore"):
        if vectors:
            (total,) = _by_warps(SQUARES, _by_threads(SQUARES, rows, THREADS, VECTOR))
            square: F32 = np.divide(total, np.float32(n))
        else:
            mean, m2, _ = _by_warps(WELFORD, _by_threads(WELFORD, rows, MOMENT_THREADS, 1))
            square = fma(mean, mean, m2 / np.float32(n))
        rstd = rsqrt(square + epsilon)
        scaled = rstd[:, None] * rows
        w = _parameter(weight)
        y = scaled if w is None else w * scaled
    return rounded(y, x.dtype).reshape(x.shape), rstd


def group_norm(
    x: Array, groups: int, weight: Array | None = None, bias: Array | None = None, eps: float = 1e-5
) -> Array:
    """layer_norm of each group of channels, as torch.nn.functional.group_norm; mean and 1 / sqrt(var + eps) are rounded to x's dtype.

    x: (batch, channels, ...), contiguous; weight and bias: (channels,), or None.

    >>> group_norm(np.float32([[1, -1, 1, -1]]), 1, eps=0.0).tolist()
    [[1.0, -1.0, 1.0, -1.0]]
    """
    batch, channels = x.shape[:2]
    rows = x.reshape(batch * groups, -1).astype(np.float32)
    n = rows.shape[1]
    w, b = _parameter(weight), _parameter(bias)
    with np.errstate(all="ignore"):
        mean, m2, _ = _by_warps(WELFORD, _by_threads(WELFORD, rows, 32 if n < SHORT else MOMENT_THREADS, 1))
        rstd = rounded(rsqrt(np.divide(m2, np.float32(n)) + np.float32(np.asarray(eps, x.dtype))), x.dtype).astype(
            np.float32
        )
        mean = rounded(mean, x.dtype).astype(np.float32)
        by_channel = x.reshape(batch, groups, channels // groups, -1).astype(np.float32)
        mean, rstd = (s.reshape(batch, groups, 1, 1) for s in (mean, rstd))
        w, b = (None if p is None else p.reshape(1, groups, -1, 1) for p in (w, b))
        if by_channel.shape[-1] == 1 or (w is None and b is None):
            y = (by_channel - mean) * rstd
            if w is not None or b is not None:
                y = fma(y, _ONE if w is None else w, np.float32(0) if b is None else b)
        else:
            scale = rstd if w is None else rstd * w
            y = fma(by_channel, scale, -scale * mean + (np.float32(0) if b is None else b))
    return rounded(y, x.dtype).reshape(x.shape)
