"""Arithmetic on arrays of float32 as CUDA's instructions and functions round it: fma, exp, log and the fast ones of the special function unit."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

from tcsim.arithmetic.mufu import unit

F32 = npt.NDArray[np.float32]
F64 = npt.NDArray[np.float64]

FLOATS: dict[str, np.dtype[Any]] = {
    "f32": np.dtype(np.float32),
    "bf16": np.dtype(ml_dtypes.bfloat16),
    "f16": np.dtype(np.float16),
}


def _f(code: int) -> np.float32:
    return np.uint32(code).view(np.float32)


def rounded(x: F32, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """x in another float type, to nearest even."""
    with np.errstate(all="ignore"):
        return x.astype(dtype)


def fma(a: npt.ArrayLike, b: npt.ArrayLike, c: npt.ArrayLike) -> F32:
    """a * b + c with one rounding, on arrays of float32.

    >>> float(fma(np.float32(1 + 2**-23), np.float32(1 - 2**-23), np.float32(-1))) == -(2.0**-46)
    True
    """
    with np.errstate(all="ignore"):
        product: F64 = np.multiply(a, b, dtype=np.float64)  # exact
        addend = np.asarray(c, dtype=np.float64)
        total = np.asarray(product + addend)
        part = total - product
        error = (product - (total - part)) + (addend - part)
        bits = total.view(np.int64)
        # round to odd: a sum that is not exact gets an odd last bit, so that the rounding to float32 sees on which side it lies
        even = (error != 0) & (bits & 1 == 0) & np.isfinite(total)
        return (
            (bits + np.where(even, np.where((error > 0) == (total > 0), 1, -1), 0)).view(np.float64).astype(np.float32)
        )


def _by_unit(function: str, x: npt.ArrayLike) -> F32:
    codes = np.ascontiguousarray(x, dtype=np.float32).view(np.uint32)
    result: F32 = (
        np.ascontiguousarray(getattr(unit(), function)(codes.reshape(-1)), dtype=np.uint32)
        .view(np.float32)
        .reshape(np.shape(x))
    )
    return result


def _small(x: F32) -> npt.NDArray[np.bool_]:
    return np.abs(x) < _f(0x00800000)


def ex2(x: npt.ArrayLike) -> F32:
    """ex2.approx.ftz.f32."""
    return _by_unit("ex2", x)


def rcp(x: npt.ArrayLike) -> F32:
    """rcp.approx.ftz.f32."""
    return _by_unit("rcp", x)


def lg2(x: npt.ArrayLike) -> F32:
    """lg2.approx.ftz.f32."""
    return _by_unit("lg2", x)


def rsqrt(x: npt.ArrayLike) -> F32:
    """rsqrtf: the approximation, subnormal numbers scaled first."""
    x = np.asarray(x, dtype=np.float32)
    small = _small(x)
    with np.errstate(all="ignore"):
        return np.where(small, _by_unit("rsqrt", x * _f(0x4B800000)) * np.float32(4096), _by_unit("rsqrt", x)).astype(
            np.float32
        )


def exp(x: npt.ArrayLike) -> F32:
    """expf of CUDA without fast mathematics, exact to the bit.

    >>> exp(np.float32([0, 1, -np.inf])).tolist()
    [1.0, 2.7182817459106445, 0.0]
    """
    x = np.asarray(x, dtype=np.float32)
    with np.errstate(all="ignore"):
        scaled = fma(x, _f(0x3BBB989D), np.float32(0.5))
        scaled = np.where(np.isnan(scaled), np.float32(0), np.clip(scaled, np.float32(0), np.float32(1)))
        # fma.rm of multiples of 2**-23 times 252: the sum's unit is 1, so it is the floor
        power = np.floor(scaled.astype(np.float64) * 252).astype(np.float32) + np.float32(12582913)
        whole = power - np.float32(12583039)
        rest = fma(x, _f(0x32A57060), fma(x, _f(0x3FB8AA3B), -whole))
        factor = (power.view(np.uint32) << np.uint32(23)).view(np.float32)
        return (ex2(rest) * factor).astype(np.float32)


_LOG = tuple(
    _f(code)
    for code in (
        0xBE055027,
        0x3E1039F6,
        0xBDF8CDCC,
        0x3E0F2955,
        0xBE2AD8B9,
        0x3E4CED0B,
        0xBE7FFF22,
        0x3EAAAA78,
        0xBF000000,
    )
)


def log(x: npt.ArrayLike) -> F32:
    """logf of CUDA without fast mathematics, exact to the bit.

    >>> log(np.float32([1, 2, 0])).tolist()
    [0.0, 0.6931471824645996, -inf]
    """
    x = np.asarray(x, dtype=np.float32)
    with np.errstate(all="ignore"):
        small = x < _f(0x00800000)
        a = np.where(small, x * np.float32(2**23), x).astype(np.float32)
        bits = a.view(np.int32)
        exponent = (bits - np.int32(0x3F2AAAAB)) & np.int32(-8388608)
        k = fma(exponent.astype(np.float32), np.float32(2**-23), np.where(small, np.float32(-23), np.float32(0)))
        m = (bits - exponent).view(np.float32) - np.float32(1)
        series = np.broadcast_to(_LOG[0], m.shape)
        for coefficient in _LOG[1:]:
            series = fma(series, m, coefficient)
        result = fma(k, _f(0x3F317218), fma(m * series, m, m))
        result = np.where(
            a.view(np.uint32) >= np.uint32(0x7F800000), a * np.float32(np.inf) + np.float32(np.inf), result
        )
        return np.where(a == 0, np.float32(-np.inf), result).astype(np.float32)
