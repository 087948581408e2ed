"""Hyperbolic functions and their inverses: sinhf, coshf, tanhf, asinhf, acoshf, atanhf."""

from __future__ import annotations

from typing import Any

from tcsim.libdevice.logarithm import log1p
from tcsim.libdevice.operations import (
    bits,
    ex2,
    floats,
    fma,
    horner,
    magnitude,
    number,
    rcp,
    rsqrt,
    select,
    whole,
    with_sign,
)

_ZERO, _ONE, _TWO, _HALF, _INFINITY = floats(0, 0x3F800000, 0x40000000, 0x3F000000, 0x7F800000)
_LOG2_E, _LARGEST, _LN2_HIGH, _LN2_LOW, _LN2 = floats(0x3FB8AA3B, 0x42FC0000, 0xBF317218, 0x3102E308, 0x3F317218)
_SCALE, _EIGHTH = floats(0x4B40007D, 0x3E000000)
_SINH = floats(0x363D0ADA, 0x394FFF49, 0x3C08889A, 0x3E2AAAAB)
_TANH = floats(0x3C80F082, 0xBD563CAE, 0x3E085941, 0xBEAAA9ED, 0x00000000)
_TWICE_LOG2_E, _TANH_ONE, _TANH_SERIES = floats(0x4038AA3B, 0x41102CB4, 0x3F19999A)
_WHOLE, _PAST_ONE, _HUGE = floats(0x4B000000, 0xBF800001, 0x7E800000)


def scaled_exp(x: Any, scale: Any) -> Any:
    """A power of two times exp(x): `scale` is 3 * 2**22 + 127 + the power."""
    power = whole(x * _LOG2_E)
    power = select(magnitude(power) > _LARGEST, with_sign(_LARGEST, power), power)
    rest = fma(power, _LN2_LOW, fma(power, _LN2_HIGH, x))
    return ex2(rest * _LOG2_E) * number(bits(power + scale) << 23)


def sinh(x: Any) -> Any:
    """The hyperbolic sine."""
    size = magnitude(x)
    quarter = scaled_exp(size, _SCALE)
    found = fma(_TWO, quarter, -_EIGHTH * rcp(quarter))
    square = x * x
    return select(size >= _ONE, with_sign(found, x), fma(square * horner(square, _SINH), x, x))


def cosh(x: Any) -> Any:
    """The hyperbolic cosine."""
    quarter = scaled_exp(magnitude(x), _SCALE)
    return fma(_TWO, quarter, _EIGHTH * rcp(quarter))


def tanh(x: Any) -> Any:
    """The hyperbolic tangent."""
    size = magnitude(x)
    found = fma(rcp(ex2(size * _TWICE_LOG2_E) + _ONE), -_TWO, _ONE)
    found = with_sign(select(size >= _TANH_ONE, _ONE, found), x)
    return select(size >= _TANH_SERIES, found, fma(horner(x * x, _TANH), x, x))


def asinh(x: Any) -> Any:
    """The inverse of sinh."""
    size = magnitude(x)
    square = fma(x, x, _ONE)
    large = size > _WHOLE
    found = fma(size, size * rcp(fma(square, rsqrt(square), _ONE)), size)
    found = log1p(select(large, size, found))
    found = select(large, found + _LN2, found)
    return select(size <= _INFINITY, with_sign(found, x), found)


def acosh(x: Any) -> Any:
    """The inverse of cosh."""
    less = x - _ONE
    large = (bits(less) & 0xFFFFFFFF) > 0x4B000000
    square = fma(x, x, -_ONE)
    inverse = rsqrt(square)
    near = square * inverse
    found = fma(fma(-near, near, square), inverse * _HALF, near)
    found = select(square == _ZERO, _ZERO, found)
    found = log1p(less + select(large, _PAST_ONE, found))
    return select(large, found + _LN2, found)


def atanh(x: Any) -> Any:
    """The inverse of tanh."""
    size = magnitude(x)
    inverse = rcp(_ONE - size)
    found = select(size > _HUGE, -_TWO, size * (inverse + inverse))
    return with_sign(_HALF, x) * log1p(found)
