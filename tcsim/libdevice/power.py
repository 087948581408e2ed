"""Powers, roots and lengths: powf, rsqrtf, sqrtf, cbrtf, hypotf."""

from __future__ import annotations

from typing import Any

from tcsim.libdevice.operations import (
    below,
    bits,
    ex2,
    floats,
    fma,
    horner,
    integer,
    lg2,
    magnitude,
    nearest,
    number,
    rcp,
    root,
    select,
    single,
    whole,
)
from tcsim.libdevice.operations import rsqrt as mufu_rsqrt

_ZERO, _HALF, _ONE, _THREE, _INFINITY, _NAN = floats(0, 0x3F000000, 0x3F800000, 0x40400000, 0x7F800000, 0x7FFFFFFF)
_NORMAL, _UP, _DOWN, _UNIT = floats(0x00800000, 0x4B800000, 0xC1C00000, 0x34000000)
_LOG2_E, _LOG2_E_LOW, _LN2, _LARGE = floats(0x3FB8AA3B, 0x32A55E34, 0x3F317218, 0x43180000)
_ATANH = floats(0x3A2C32E4, 0x3B52E7DB, 0x3C93BB73, 0x3DF6384F)
_EXP2 = floats(0x391FCB8E, 0x3AAF85ED, 0x3C1D9856, 0x3D6357BB, 0x3E75FDEC, 0x3F317218, 0x3F800000)
_MINUS_TWO_THIRDS, _THIRD = floats(0xBF2AAAAB, 0x3EAAAAAB)
_RSQRT_ROOT, _LG2_DOWN = floats(0x45800000, 0xC1C00000)
_ROOT_HALF, _EXPONENT = 1060439283, -8388608
_LOWER = -2097152000


def rsqrt(x: Any) -> Any:
    """1 / sqrt(x)."""
    small = magnitude(x) < _NORMAL
    found = mufu_rsqrt(select(small, x * _UP, x))
    return select(small, found * _RSQRT_ROOT, found)


def sqrt(x: Any) -> Any:
    """The square root."""
    return root(x)


def cbrt(x: Any) -> Any:
    """The cube root."""
    size = magnitude(x)
    small = size < _NORMAL
    logarithm = lg2(select(small, size * _UP, size))
    logarithm = select(small, logarithm + _LG2_DOWN, logarithm)
    inverse = ex2(logarithm * _MINUS_TWO_THIRDS)
    near = size * inverse
    found = fma(near, fma(near, -(inverse * near), _ONE) * _THIRD, near)
    double = x + x
    return select(double == x, double, select(x < _ZERO, -found, found))


def _logarithm(size: Any) -> tuple[Any, Any]:
    """log2 of a positive number in two parts."""
    small = size < _NORMAL
    scaled = select(small, size * _UP, size)
    code = bits(scaled)
    power = code - _ROOT_HALF & _EXPONENT
    mantissa = number(code - power)
    exponent = fma(single(power), _UNIT, select(small, _DOWN, _ZERO))
    less = mantissa - _ONE
    inverse = rcp(mantissa + _ONE)
    ratio = (less + less) * inverse
    square = ratio * ratio
    rest = less - ratio
    low = inverse * fma(-ratio, less, rest + rest)
    series = horner(square, _ATANH) * square
    head = fma(ratio, _LOG2_E, exponent)
    tail = fma(ratio, _LOG2_E, exponent - head)
    tail = fma(ratio, _LOG2_E_LOW, fma(low, _LOG2_E, tail))
    tail = fma(series, ratio, fma(series * _THREE, low, tail))
    high = head + tail
    return high, tail + -(high + -head)


def _power(size: Any, y: Any) -> Any:
    """size ** y, both finite and not zero."""
    high, low = _logarithm(size)
    product = high * y
    rest = fma(low, y, fma(high, y, -product))
    power = nearest(product)
    rest = rest + (product - power)
    lower = select(power > _ZERO, 0, _LOWER)
    found = horner(rest, _EXP2) * number(lower + 0x7F000000) * number((integer(power) << 23) - lower)
    return select(magnitude(product) > _LARGE, select(product < _ZERO, _ZERO, _INFINITY), found)


def pow(x: Any, y: Any) -> Any:
    """x ** y."""
    size, odd = magnitude(x), magnitude(y - (whole(y * _HALF) + whole(y * _HALF))) == _ONE
    found = _power(size, y)
    negative = select(below(y) != y, _NAN, select(odd, -found, found))
    found = select(x >= _ZERO, found, negative)
    found = select((x == -_ONE) & (magnitude(y) == _INFINITY), _ONE, found)
    double = bits(x + x)
    limit = select(y < _ZERO, double ^ 0x7F800000, double)
    limit = number(select(odd, limit, limit & 0x7FFFFFFF))
    found = select((x == _ZERO) | (size == _INFINITY), limit, found)
    found = select((size <= _INFINITY) & (magnitude(y) <= _INFINITY), found, x + y)
    return select((x == _ONE) | (y == _ZERO), _ONE, found)


def hypot(x: Any, y: Any) -> Any:
    """sqrt(x * x + y * y)."""
    width, height = magnitude(x), magnitude(y)
    smaller, larger = (
        select(bits(width) < bits(height), width, height),
        select(bits(width) < bits(height), height, width),
    )
    exponent = bits(larger) & -33554432
    scale = number(0x7E800000 - exponent)
    short, long = smaller * scale, larger * scale
    found = root(fma(long, long, short * short)) * number(exponent | 0x00800000)
    found = select(smaller == _ZERO, larger, found)
    return select(smaller == _INFINITY, _INFINITY, found)
