"""Logarithms: logf, log2f, log10f, log1pf."""

from __future__ import annotations

from typing import Any

from tcsim.libdevice.operations import add_to_zero, bits, floats, fma, horner, number, select, single

_ZERO, _ONE, _NORMAL, _INFINITY, _UNIT = floats(0, 0x3F800000, 0x00800000, 0x7F800000, 0x34000000)
_UP, _DOWN, _LN2, _LOG10_E, _LOG2_E = floats(0x4B000000, 0xC1B80000, 0x3F317218, 0x3EDE5BD9, 0x3FB8AA3B)
_NEGATIVE_ZERO, _QUARTER = floats(0x80000000, 0x3E800000)
_LN = floats(0xBE055027, 0x3E1039F6, 0xBDF8CDCC, 0x3E0F2955, 0xBE2AD8B9, 0x3E4CED0B, 0xBE7FFF22, 0x3EAAAA78, 0xBF000000)
_LOG2 = floats(
    0x3DC6B27F, 0xBE2C7F30, 0x3E2FCF2A, 0xBE374E43, 0x3E520BF4, 0xBE763C8B, 0x3E93BF99, 0xBEB8AA49, 0x3EF6384A, 0xBF38AA3B,
)  # fmt: skip
_LOG1P = floats(
    0xBD39BF78, 0x3DD80012, 0xBE0778E0, 0x3E146475, 0xBE2A68DD, 0x3E4CAF9E, 0xBE800042, 0x3EAAAAE6, 0xBF000000
)
_THIRDS_2, _ROOT_HALF = 1059760811, 1060439283  # the codes of the lowest mantissa: about 2/3 and sqrt(1/2)
_EXPONENT = -8388608
_FINITE = 0x7F800000
_ABOVE_MINUS_ONE = -0x407FFFFF  # the code of the number below zero next to -1, as a signed integer


def _special(x: Any, found: Any) -> Any:
    """Infinity and NaN, and numbers below zero."""
    return select((bits(x) & 0xFFFFFFFF) < _FINITE, found, fma(x, _INFINITY, _INFINITY))


def log(x: Any) -> Any:
    """The natural logarithm."""
    small = x < _NORMAL
    x = select(small, x * _UP, x)
    code = bits(x)
    power = code - _THIRDS_2 & _EXPONENT
    exponent = fma(single(power), _UNIT, select(small, _DOWN, _ZERO))
    rest = number(code - power) - _ONE
    found = fma(exponent, _LN2, fma(rest * horner(rest, _LN), rest, rest))
    return select(x == _ZERO, -_INFINITY, _special(x, found))


def log10(x: Any) -> Any:
    """The logarithm to base 10."""
    return log(x) * _LOG10_E


def log2(x: Any) -> Any:
    """The logarithm to base 2."""
    small = x < _NORMAL
    x = select(small, x * _UP, x)
    code = bits(x)
    power = code - _ROOT_HALF & _EXPONENT
    exponent = fma(single(power), _UNIT, select(small, _DOWN, _ZERO))
    rest = number(code - power) - _ONE
    found = exponent + fma(rest, _LOG2_E, rest * (rest * horner(rest, _LOG2)))
    return select(x == _ZERO, -_INFINITY, _special(x, found))


def log1p(x: Any) -> Any:
    """log(1 + x)."""
    power = bits(add_to_zero(x, _ONE)) - 0x3F400000 & _EXPONENT
    code = bits(x)
    rest = fma(_QUARTER, number(0x40800000 - power), -_ONE) + number(code - power)
    found = fma(single(power) * _UNIT, _LN2, fma(rest * horner(rest, _LOG1P), rest, rest))
    unusual = select(code >= _ABOVE_MINUS_ONE, fma(x, _INFINITY, _INFINITY), found)
    return select((code & 0xFFFFFFFF) < _FINITE, found, select(x == _ZERO, _NEGATIVE_ZERO, unusual))
