"""The operations that the functions are made of, on NumPy arrays of f32: one rounding each, exact to the bit.

`tcsim.libdevice.compiled` has the same names for single numbers, which numba compiles. Integers are int64 that hold 32 bits;
`bits` gives them with their sign.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from tcsim.arithmetic import mufu

Floats = npt.NDArray[np.float32]
Integers = npt.NDArray[np.int64]

_TINY = 2.0**-126
_HALF_UNIT, _LOW = np.int64(1 << 28), np.int64((1 << 29) - 1)


def floats(*codes: int) -> tuple[np.float32, ...]:
    """f32 constants by their codes.

    >>> floats(0x3F800000, 0xBF000000)
    (np.float32(1.0), np.float32(-0.5))
    """
    return tuple(np.array(codes, np.uint32).view(np.float32))


def bits(x: Any) -> Any:
    """The code of an f32 as a signed integer."""
    return np.asarray(x).view(np.int32).astype(np.int64)


def number(code: Any) -> Any:
    """The f32 of the low 32 bits of an integer."""
    return np.asarray(code).astype(np.int32).view(np.float32)


def select(condition: Any, a: Any, b: Any) -> Any:
    """a where the condition holds, b elsewhere."""
    return np.where(condition, a, b)


def seldom(condition: Any, function: Callable[..., Any], otherwise: Any, *operands: Any) -> Any:
    """function(*operands) where the condition holds, which few elements do."""
    where = np.flatnonzero(condition)
    if not where.size:
        return otherwise
    result = otherwise.copy()
    result[where] = function(*(operand[where] for operand in operands))
    return result


def fma(a: Any, b: Any, c: Any) -> Any:
    """a * b + c with one rounding.

    The product is exact in f64. Rounding the sum twice goes wrong only if the first result lies halfway between two f32, or
    below the normal numbers: those are rounded to odd first.

    >>> one, small = floats(0x3F800001, 0xBF800002)
    >>> float(fma(np.array([one]), one, small)[0]) == 2.0**-46
    True
    """
    product = np.multiply(a, b, dtype=np.float64)
    total = np.asarray(product + c)
    rounded = np.asarray(total.astype(np.float32))
    doubtful = (total.view(np.int64) & _LOW == _HALF_UNIT) | (np.abs(total) < _TINY)
    if doubtful.any():
        rounded[doubtful] = _odd(
            *(np.broadcast_to(x, total.shape)[doubtful] for x in (product, np.asarray(c, np.float64)))
        ).astype(np.float32)
    return rounded


def _odd(a: Any, b: Any) -> Any:
    """a + b in f64, rounded to odd."""
    total = a + b
    error = _error(a, b, total)
    code = total.view(np.int64)
    wrong = (error != 0) & (code & 1 == 0)
    return np.where(wrong, code + np.where((error > 0) == (total > 0), 1, -1), code).view(np.float64)


def _error(a: Any, b: Any, total: Any) -> Any:
    """What the rounded sum of two f64 lacks, exactly."""
    part = total - a
    return (a - (total - part)) + (b - part)


def _directed(a: Any, b: Any, toward_zero: bool) -> Any:
    total = a + b
    near = total.astype(np.float32)
    rest = (total - near) + _error(a, b, total)
    code = near.view(np.int32)
    smaller = np.where(near > 0, rest < 0, (rest > 0) & toward_zero)
    larger = (near < 0) & (rest < 0) & (not toward_zero)
    return (code - smaller + larger).astype(np.int32).view(np.float32)


def fma_down(a: Any, b: Any, c: Any) -> Any:
    """a * b + c rounded down (fma.rm); the sum is not zero."""
    return _directed(np.multiply(a, b, dtype=np.float64), np.float64(c), False)


def fma_to_zero(a: Any, b: Any, c: Any) -> Any:
    """a * b + c rounded toward zero (fma.rz)."""
    return _directed(np.multiply(a, b, dtype=np.float64), np.asarray(c, np.float64), True)


def add_to_zero(a: Any, b: Any) -> Any:
    """a + b rounded toward zero (add.rz)."""
    return _directed(np.asarray(a, np.float64), np.float64(b), True)


def clipped(x: Any) -> Any:
    """x between 0 and 1, NaN as 0 (cvt.sat)."""
    return np.where(x > 0, np.minimum(x, np.float32(1)), np.float32(0))


def nearest(x: Any) -> Any:
    """The nearest integer, even ones of two (cvt.rni)."""
    return np.rint(x)


def whole(x: Any) -> Any:
    """The integer next toward zero (cvt.rzi)."""
    return np.trunc(x)


def below(x: Any) -> Any:
    """The integer next below (cvt.rmi)."""
    return np.floor(x)


def integer(x: Any) -> Any:
    """A whole f32 as an integer of 32 bits, what is too large as the largest, NaN as 0 (cvt to s32)."""
    limited = np.clip(np.where(np.isnan(x), np.float32(0), x).astype(np.float64), -(2.0**31), 2.0**31 - 1)
    return limited.astype(np.int64)


def single(x: Any) -> Any:
    """An integer as f32 (cvt.rn.f32.s32)."""
    return np.asarray(x).astype(np.float32)


def scaled_double(x: Any, scale: float) -> Any:
    """A 64-bit integer times an f64, in f64, then as f32."""
    return (np.asarray(x).astype(np.float64) * np.float64(scale)).astype(np.float32)


def magnitude(x: Any) -> Any:
    """|x|."""
    return np.abs(x)


def with_sign(size: Any, sign: Any) -> Any:
    """The size with the sign of the other number (copysign)."""
    return np.copysign(size, sign)


def root(x: Any) -> Any:
    """The square root, correctly rounded (sqrt.rn)."""
    return np.sqrt(x)


def quotient(a: Any, b: Any) -> Any:
    """a / b, correctly rounded (div.rn)."""
    return np.divide(a, b, dtype=np.float32)


def horner(x: Any, coefficients: tuple[np.float32, ...]) -> Any:
    """A polynomial by FMAs, the highest coefficient first."""
    total = fma(coefficients[0], x, coefficients[1])
    for i in range(2, len(coefficients)):
        total = fma(total, x, coefficients[i])
    return total


def remainder_of_whole(x: Any, y: Any) -> Any:
    """x less y times their quotient cut to an integer, exactly (fmodf)."""
    return np.fmod(x, y, dtype=np.float64).astype(np.float32)


def remainder_of_nearest(x: Any, y: Any) -> Any:
    """x less y times their quotient rounded to the nearest integer, exactly (remainderf)."""
    size = np.abs(np.asarray(y, np.float64))
    rest = np.fmod(np.abs(x), size + size, dtype=np.float64)
    less = rest - size
    less = np.where(less + less >= size, less - size, less)
    rest = np.where(rest + rest > size, less, rest)
    return np.where(np.signbit(x), -rest, rest).astype(np.float32)


def _unit(function: str, x: Any) -> Any:
    return mufu.unit().compute(function, np.ascontiguousarray(x).view(np.uint32)).view(np.float32)


def ex2(x: Any) -> Any:
    """2 ** x by MUFU (ex2.approx.ftz)."""
    return _unit("ex2", x)


def lg2(x: Any) -> Any:
    """The logarithm to base 2 by MUFU (lg2.approx.ftz)."""
    return _unit("lg2", x)


def rcp(x: Any) -> Any:
    """1 / x by MUFU (rcp.approx.ftz)."""
    return _unit("rcp", x)


def rsqrt(x: Any) -> Any:
    """1 / sqrt(x) by MUFU (rsqrt.approx.ftz)."""
    return _unit("rsqrt", x)
