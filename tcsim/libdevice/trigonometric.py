"""Trigonometric functions and their inverses: sinf, cosf, tanf, asinf, acosf, atanf, atan2f.

Arguments of at least 105,615 are reduced with 192 bits of 2/pi (Payne and Hanek).
"""

from __future__ import annotations

from typing import Any

from tcsim.libdevice.operations import (
    bits,
    floats,
    fma,
    horner,
    integer,
    magnitude,
    nearest,
    quotient,
    rcp,
    rsqrt,
    scaled_double,
    seldom,
    select,
    with_sign,
)

_ZERO, _HALF, _ONE, _TWO, _INFINITY = floats(0, 0x3F000000, 0x3F800000, 0x40000000, 0x7F800000)
_TWO_OVER_PI, _LARGE = floats(0x3F22F983, 0x47CE4780)
_PI_HALVES = floats(0xBFC90FDA, 0xB3A22168, 0xA7C234C5)
_WORDS = (0x3C439041, 0xDB629599, 0xF534DDC0, 0xFC2757D1, 0x4E441529, 0xA2F9836E)  # 2/pi, the lowest first
_STEP = float.fromhex("0x1.921fb54442d19p-64")  # pi/2 of 2**64 units
_SIN0, _SIN1, _SIN2 = floats(0xB94D4153, 0x3C0885E4, 0xBE2AAAA8)
_COS0, _COS1, _COS2, _COS3 = floats(0x37CBAC00, 0xBAB607ED, 0x3D2AAABB, 0xBEFFFFFF)
_TAN = floats(0x3C190000, 0x3B560000, 0x3CC70000, 0x3D5B0000, 0x3E089438, 0x3EAAAA88)
_TAN_EXACT, _ASIN_SPLIT, _PI_1, _PI_2, _PI_2_TWICE = floats(0x3A00B43C, 0x3F0F5C29, 0x3FD774EB, 0x3F6EE581, 0x3FEEE581)
_ASIN = floats(0x3D4DD2F7, 0x3C99CA97, 0x3D3F90E8, 0x3D993CCF, 0x3E2AAC04)
_ACOS = floats(0x3D10ECEF, 0x3C8B1ABB, 0x3CFC028C, 0x3D372139, 0x3D9993DB, 0x3E2AAAC6)
_ATAN = floats(0x3B2090AA, 0xBC6BE14F, 0x3D23397E, 0xBD948A7A, 0x3DD76B21, 0xBE111E88, 0x3E4CAF60, 0xBEAAAA27)
_ATAN2 = floats(0x3B33710B, 0xBC807748, 0x3D2CDAB2, 0xBD992D10, 0x3DD9EA6C, 0xBE117CB1, 0x3E4CBCE0, 0xBEAAAA7D)
_PI, _PI_3_4, _PI_1_4 = floats(0x40490FDB, 0x4016CBE4, 0x3F490FDB)
_WORD = 0xFFFFFFFF


def _turns(x: Any) -> Any:
    """|x| * 2/pi modulo 4 in units of 2**-62, of a large number."""
    code = bits(x)
    significand = code << 8 & _WORD | 0x80000000
    exponent = (code >> 23 & 255) - 128
    skipped, shift = exponent >> 5, exponent & 31
    low = middle = high = carry = significand & 0
    for i in range(7):
        total = significand * _WORDS[i] + carry if i < 6 else carry  # modulo 2**64
        word, carry = total & _WORD, total >> 32 & _WORD
        low = select(4 - skipped == i, word, low)
        middle = select(5 - skipped == i, word, middle)
        high = select(6 - skipped == i, word, high)
    upper = (high << shift | middle >> 32 - shift) & _WORD
    lower = (middle << shift | low >> 32 - shift) & _WORD
    return upper << 32 | lower


def _far_quadrant(x: Any) -> Any:
    turns = _turns(x)
    quadrant = (turns >> 62 & 3) + (turns >> 61 & 1)
    return select(x == magnitude(x), quadrant, -quadrant)


def _far_rest(x: Any) -> Any:
    rest = _turns(x) << 2  # of a quadrant, in units of 2**-64, from -1/2 to 1/2
    size = scaled_double(select(rest < 0, ~rest, rest), _STEP)
    return select((rest < 0) == (x < _ZERO), size, -size)


def _reduced(x: Any, quadrant: Any) -> Any:
    """x less a multiple of pi/2."""
    rest = fma(quadrant, _PI_HALVES[2], fma(quadrant, _PI_HALVES[1], fma(quadrant, _PI_HALVES[0], x)))
    large = magnitude(x) >= _LARGE
    rest = seldom(large, _far_rest, rest, x)
    return select(magnitude(x) == _INFINITY, x * _ZERO, rest)


def _quadrant(x: Any) -> Any:
    return nearest(x * _TWO_OVER_PI) + _ZERO  # an integer: never -0


def _whole_quadrant(x: Any, quadrant: Any) -> Any:
    size = magnitude(x)
    return seldom((size >= _LARGE) & (size < _INFINITY), _far_quadrant, integer(quadrant), x)


def _wave(rest: Any, quadrant: Any) -> Any:
    """The sine of rest + quadrant * pi/2."""
    even = quadrant & 1 == 0
    square = rest * rest
    first = select(even, rest, _ONE)
    series = select(even, _SIN0, fma(_COS0, square, _COS1))
    series = fma(fma(series, square, select(even, _SIN1, _COS2)), square, select(even, _SIN2, _COS3))
    found = fma(series, fma(square, first, _ZERO), first)
    return select(quadrant & 2 == 0, found, fma(found, -_ONE, _ZERO))


def sin(x: Any) -> Any:
    """The sine."""
    near = _quadrant(x)
    return _wave(_reduced(x, near), _whole_quadrant(x, near))


def cos(x: Any) -> Any:
    """The cosine."""
    near = _quadrant(x)
    return _wave(_reduced(x, near), _whole_quadrant(x, near) + 1)


def tan(x: Any) -> Any:
    """The tangent."""
    near = _quadrant(x)
    rest = _reduced(x, near)
    square = rest * rest
    found = fma(horner(square, _TAN), square * rest, rest)
    found = select(magnitude(rest) == _TAN_EXACT, rest, found)
    return select(_whole_quadrant(x, near) & 1 == 1, rcp(-found), found)


def _chord(size: Any) -> Any:
    """sqrt((1 - |x|) / 2) where |x| is large, else |x|."""
    half = fma(_HALF, -size, _HALF)
    inverse = rsqrt(half)
    near = half * inverse
    found = fma(near, fma(-near, inverse * _HALF, _HALF), near)
    return select(size > _ASIN_SPLIT, select(size == _ONE, _ZERO, found), size)


def asin(x: Any) -> Any:
    """The arc sine."""
    size = magnitude(x)
    chord = _chord(size)
    square = chord * chord
    found = fma(square * horner(square, _ASIN), chord, chord)
    found = select(size > _ASIN_SPLIT, fma(_PI_2, _PI_1, found * -_TWO), found)
    return select(found <= _INFINITY, with_sign(found, x), found)


def acos(x: Any) -> Any:
    """The arc cosine."""
    size = magnitude(x)
    far = size > _ASIN_SPLIT
    chord = with_sign(_chord(size), x)
    square = chord * chord
    found = fma(square * horner(square, _ACOS), chord, chord)
    found = select(x > _ASIN_SPLIT, found, fma(_PI_2, _PI_1, select(far, found, -found)))
    return select(far, found + found, found)


def atan(x: Any) -> Any:
    """The arc tangent."""
    size = magnitude(x)
    large = size > _ONE
    small = select(large, rcp(size), size)
    square = small * small
    found = fma(square * horner(square, _ATAN), small, small)
    found = select(large, fma(_PI_2, _PI_1, -found), found)
    return select(size <= _INFINITY, with_sign(found, x), found)


def atan2(y: Any, x: Any) -> Any:
    """The angle of the point (x, y)."""
    height, width = magnitude(y), magnitude(x)
    steep = height > width
    larger = select(steep, height, width)
    ratio = quotient(select(steep, width, height), larger)
    square = ratio * ratio
    found = fma(square * horner(square, _ATAN2), ratio, ratio)
    left = bits(x) < 0
    upright = fma(_PI_2, _PI_1, select(left, found, -found))
    found = select(steep, upright, select(left, fma(_PI_2_TWICE, _PI_1, -found), found))
    found = select(width == height, select(left, _PI_3_4, _PI_1_4), found)
    found = select(larger == _ZERO, select(left, _PI, _ZERO), found)
    total = width + height
    return select(magnitude(total) <= _INFINITY, with_sign(found, y), total)
