"""The logarithm of the gamma function: lgammaf."""

from __future__ import annotations

from typing import Any

from tcsim.libdevice.logarithm import log
from tcsim.libdevice.operations import below, floats, fma, horner, integer, magnitude, nearest, rcp, seldom, select

_ZERO, _HALF, _ONE, _TWO, _THREE, _INFINITY = floats(0, 0x3F000000, 0x3F800000, 0x40000000, 0x40400000, 0x7F800000)
_TO_ONE, _TO_TWO, _TO_THREE, _TO_FAR = floats(0x3F333333, 0x3FC00000, 0x40400000, 0x40F9999A)  # 0.7, 1.5, 3, 7.8
_NEAR_ZERO = floats(0x3B6B1C86, 0xBBB34878, 0xBD36CAEF, 0x3E2B5555, 0xBD2C96C7, 0xBF27E6EB, 0x3F13C463)
_NEAR_ONE = floats(
    0x3D3BEF76, 0x3DD47577, 0x3DFB8079, 0x3E0295B5, 0x3E12A765, 0x3E2D6867, 0x3E5462BF, 0x3E8A8A72, 0x3ECD26A4, 0x3F528D32, 0x3F13C468,
)  # fmt: skip
_NEAR_TWO = floats(
    0x385007FA, 0xB967A002, 0x3A0DE6FC, 0xBA9DE0E2, 0x3B3D05B7, 0xBBF1EB10, 0x3CA89A28, 0xBD89F01A, 0x3EA51A66, 0x3ED87730,
)  # fmt: skip
_ABOVE, _BENEATH = (
    floats(0xC43B38FB, 0xC640F6F8, 0xC7206560, 0xC73CB6AA, 0xC80BAE5A),
    floats(0x3F800000, 0xC381A020, 0xC62864B8, 0xC7B50686, 0xC8498465),
)
_FAR = floats(0x3A4BE755, 0xBB360953, 0x3DAAAAA3)
(_HALF_LN_TAU,) = floats(0x3F6B3F8E)
_SMALL, _PI, _LN_PI = floats(0x1FEC1E4A, 0x40490FDB, 0x3F928682)
_SIN = floats(0xB94D4153, 0x3C0885E4, 0xBE2AAAA8)
_COS = floats(0x37CBAC00, 0xBAB607ED, 0x3D2AAABB, 0xBEFFFFFF)


def _to_one(size: Any) -> Any:
    return -log(fma(size * horner(size, _NEAR_ZERO), size, size))


def _to_two(size: Any) -> Any:
    rest = _ONE - size
    return rest * horner(rest, _NEAR_ONE)


def _to_three(size: Any) -> Any:
    rest = size - _TWO
    return rest * horner(rest, _NEAR_TWO)


def _to_far(size: Any) -> Any:
    rest = size - _THREE
    return fma(horner(rest, _ABOVE), rcp(horner(rest, _BENEATH)), rest)


def _far(size: Any) -> Any:
    """Stirling's series."""
    inverse = rcp(size)
    power = log(size) * _HALF * (size - _HALF)
    series = fma(horner(inverse * inverse, _FAR), inverse, _HALF_LN_TAU)
    return select(size == _INFINITY, size, power - size + (power + series))


def _sine(size: Any) -> Any:
    """sin(pi x), of either sign."""
    quarters = nearest(size + size)
    angle = fma(-quarters, _HALF, size) * _PI
    square = angle * angle
    odd = (integer(quarters) & 1) == 1
    factor = select(odd, _ONE, angle)
    return fma(select(odd, horner(square, _COS), horner(square, _SIN)), square * factor, factor)


def _reflected(size: Any, found: Any) -> Any:
    """Below zero, between whole numbers: by sin(pi x) and the value above zero."""
    return select(size < _SMALL, -log(size), _LN_PI - log(size * magnitude(_sine(size))) - found)


def lgamma(x: Any) -> Any:
    """The logarithm of the size of gamma(x)."""
    size = magnitude(x)
    found = seldom(size < _TO_ONE, _to_one, size, size)
    found = seldom((size >= _TO_ONE) & (size < _TO_TWO), _to_two, found, size)
    found = seldom((size >= _TO_TWO) & (size < _TO_THREE), _to_three, found, size)
    found = seldom((size >= _TO_THREE) & (size < _TO_FAR), _to_far, found, size)
    found = seldom(size >= _TO_FAR, _far, found, size)
    whole = size == below(size)
    found = seldom((x < _ZERO) & ~whole, _reflected, found, size, found)
    return select((x < _ZERO) & whole, _INFINITY, found)
