"""Exponentials: expf, exp2f, exp10f, expm1f."""

from __future__ import annotations

from typing import Any

from tcsim.libdevice.operations import (
    bits,
    clipped,
    ex2,
    floats,
    fma,
    fma_down,
    horner,
    magnitude,
    nearest,
    number,
    select,
)

_ZERO, _HALF, _ONE, _INFINITY = floats(0, 0x3F000000, 0x3F800000, 0x7F800000)
_LOG2_E, _SPAN, _SHIFT, _UNSHIFT = floats(0x3FB8AA3B, 0x437C0000, 0x4B400001, 0xCB40007F)
_E, _TEN = floats(0x3BBB989D, 0x3FB8AA3B, 0x32A57060), floats(0x3C57FA62, 0x40549A78, 0x33979A37)
_LEAST, _TWO = floats(0xC2FC0000, 0x40000000)
_SMALL, _LARGEST, _LOWEST = floats(0x3ED1EB85, 0x43000000, 0xC1C80000)
_LN2_HIGH, _LN2_LOW = floats(0xBF317200, 0xB5BFBE8E)
_EXPM1 = floats(0x3AB5EBE6, 0x3C095663, 0x3D2AABE3, 0x3E2AA9F6, 0x3EFFFFFE)


def _power(x: Any, base: Any) -> Any:
    """base ** x: the whole part of x * log2(base), at least -126, by the exponent and the rest by MUFU."""
    shifted = fma_down(clipped(fma(x, base[0], _HALF)), _SPAN, _SHIFT)
    part = shifted + _UNSHIFT
    return ex2(fma(x, base[2], fma(x, base[1], -part))) * number(bits(shifted) << 23)


def exp(x: Any) -> Any:
    """e ** x."""
    return _power(x, _E)


def exp10(x: Any) -> Any:
    """10 ** x."""
    return _power(x, _TEN)


def exp2(x: Any) -> Any:
    """2 ** x."""
    low = x < _LEAST
    found = ex2(select(low, x * _HALF, x))
    return select(low, found * found, found)


def expm1(x: Any) -> Any:
    """e ** x - 1."""
    power = select(magnitude(x) < _SMALL, _ZERO, nearest(x * _LOG2_E))
    rest = fma(power, _LN2_LOW, fma(power, _LN2_HIGH, x))
    largest = power == _LARGEST
    power = select(largest, power - _ONE, power)
    series = fma(rest * horner(rest, _EXPM1), rest, rest)
    scale = exp2(power)
    found = fma(series, scale, scale - _ONE)
    found = select(largest, found + found, found)
    found = select(power > _LARGEST, _INFINITY, found)
    found = select(power < _LOWEST, -_ONE, found)
    return select(x == _ZERO, x + x, found)
