"""The error function, its complement and its inverse: erff, erfcf, erfinvf."""

from __future__ import annotations

from typing import Any

from tcsim.libdevice.hyperbolic import scaled_exp
from tcsim.libdevice.operations import ex2, floats, fma, horner, lg2, magnitude, rcp, rsqrt, select, with_sign

_ZERO, _ONE, _TWO, _FOUR, _SPLIT, _LAST = floats(0, 0x3F800000, 0x40000000, 0x40800000, 0x3F8060FE, 0x4120E148)
_INNER = floats(0x38B1E96A, 0xBA574D20, 0x3BAAD5EA, 0xBCDC1BE7, 0x3DE718AF, 0xBEC093AC, 0x3E0375D3)
_OUTER = floats(0x38EB4C3A, 0xBAAE005B, 0x3C09919F, 0xBD24D99A, 0x3E235519, 0x3F69B4F9, 0x3F210A14)
_ERFC = floats(
    0x3A69A091, 0x3BE6E05B, 0xBC81FB4B, 0x3D15373B, 0xBD887C5A, 0x3DC021D5, 0xBDCED424, 0x3D8B74DE, 0x3C7BF170, 0xBE0EF8D4, 0x3F9DD2C9,
)  # fmt: skip
(_SCALE,) = floats(0x4B40007F)
_CENTRE = floats(
    0xAF8A6370,
    0x3221F645,
    0xB4016FDA,
    0x3468F846,
    0x370742AA,
    0xB804DB4D,
    0xBA4AFEA1,
    0x3BB5C027,
    0x3E24AE0F,
    0x3F62DFC4,
)
_TAIL = floats(0xBF1704A1, 0xBF29BAA5, 0x3FCC6ADC, 0xBF2CDAED, 0xBDC30537, 0x3F55D9B9)
_TAIL_FROM, _INFINITY = floats(0x41033333, 0x7F800000)


def erf(x: Any) -> Any:
    """The error function."""
    size = magnitude(x)
    outer = size >= _SPLIT
    near = fma(horner(x * x, _INNER), x, x)
    far = fma(horner(size, _OUTER), -size, -size)
    return select(outer, with_sign(_ONE - ex2(far), x), near)


def erfc(x: Any) -> Any:
    """1 - erf(x)."""
    size = magnitude(x)
    inverse = rcp(size + _FOUR)
    ratio = (size - _FOUR) * inverse
    rest = fma(-ratio, size, fma(-_FOUR, ratio + _ONE, size))
    series = horner(fma(inverse, rest, ratio), _ERFC)
    inverse = rcp(fma(_TWO, size, _ONE))
    near = series * inverse
    factor = fma(fma(size, near * -_TWO, series) - near, inverse, near)
    square = size * size
    power = scaled_exp(-square, _SCALE)
    power = fma(power, fma(-size, size, square), power)
    found = select(size > _LAST, _ZERO, factor * power)
    return select(x < _ZERO, _TWO - found, found)


def erfinv(x: Any) -> Any:
    """The number whose error function is x."""
    size = -lg2(fma(x, -x, _ONE))
    root = rsqrt(size)
    tail = select(size == _INFINITY, size, root * size * horner(root, _TAIL))
    return select(size > _TAIL_FROM, with_sign(tail, x), x * horner(size, _CENTRE))
