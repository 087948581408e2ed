"""The special function unit (MUFU): reciprocals, roots, powers, logarithms, sines and tanh of f32, exact to the bit.

One fixed-point interpolator serves every function. The upper bits of an input pick a segment with three integers (C0, C1, C2),
the 17 bits below are X, and in units of 2**-40

    S = (C0 << a0) + ((C1 * X) << a1) + ((C2 * square(X)) << a2) + bias

is cut, never rounded, to 24 significant bits. The square is a folded sum of partial products whose columns below 2**19 are
left out. Tables and rules were derived from the answers of an H200 (sm_90): every one of the 2**32 inputs of each function
agrees, on an H100 too. Of other archs nothing is measured. The tables are integers per segment, in mufu_sm90.npz beside this file.

Inputs and results are codes: uint32 arrays of f32 (uint16 of f16 and bf16, the high words of f64).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib import resources

import numpy as np
import numpy.typing as npt

Codes = npt.NDArray[np.uint32]
Integers = npt.NDArray[np.int64]

NAN = np.uint32(0x7FFFFFFF)
INFINITY = np.uint32(0x7F800000)
SIGN = np.uint32(0x80000000)
ONE = np.uint32(0x3F800000)

X_BITS = 17
SQUARE_CUT = 19  # columns of the square below this power of two are left out
MEASURED = ("sm_90",)
"""Archs on which every input was compared."""


@dataclass(frozen=True)
class Function:
    """How one function uses the interpolator."""

    table: str  # rows of (C0, C1, C2) in the file
    shifts: tuple[int, int, int]  # a0, a1, a2
    bias: int


FUNCTIONS = {
    "rcp": Function("rcp", (14, 0, 1), 4046),
    "rsqrt": Function("rsq", (14, 0, 2), -1),
    "sqrt": Function("sqrt", (15, 0, 1), -1),  # a1 is 1 for odd exponents
    "ex2": Function("ex2", (15, 2, 2), 24456),
    "lg2": Function("lg2", (14, 2, 3), 3348),
    "sin": Function("sin", (15, 3, 3), 0),
    "cos": Function("sin", (15, 3, 3), 0),
    "tanh": Function("tanh", (14, 1, 2), 0),
}


@cache
def tables() -> dict[str, Integers]:
    """The segments of each table: (rows, 3) integers C0, C1, C2; tanh_seg: exponent, log2 of segments, first row."""
    with resources.files("tcsim.arithmetic").joinpath("mufu_sm90.npz").open("rb") as file, np.load(file) as data:
        return {name: data[name].astype(np.int64) for name in data.files}


def square(x: Integers) -> Integers:
    """The square of 17 bits, folded, without its columns below 2**19, in units of 2**19.

    >>> square(np.array([0, 1000, 131071])).tolist()
    [0, 0, 32759]
    """
    total = np.zeros_like(x)
    for i in range(X_BITS):
        bit = x >> i & 1
        if 2 * i >= SQUARE_CUT:
            total += bit << 2 * i
        low = max(i + 1, SQUARE_CUT - 1 - i)  # the columns i + j + 1 that count
        if low < X_BITS:
            total += bit * (x >> low << low + i + 1)
    return total >> SQUARE_CUT


@cache
def _squares() -> Integers:
    """The square of every X."""
    return square(np.arange(1 << X_BITS))


def interpolate(function: str, row: Integers, x: Integers, odd: Integers | None = None) -> Integers:
    """S of a function for a row of its table and X, in units of 2**-40; `odd`: of sqrt, whether the exponent is odd."""
    own = FUNCTIONS[function]
    c0, c1, c2 = np.moveaxis(tables()[own.table][row], -1, 0)
    a0, a1, a2 = own.shifts
    middle = c1 * x << a1 if odd is None else c1 * x << odd
    return (c0 << a0) + middle + (c2 * _squares()[x] << a2) + own.bias


def _split(codes: Codes) -> tuple[Codes, Integers, Integers]:
    """Sign bit, biased exponent and mantissa."""
    bits = codes.astype(np.int64)
    return codes & SIGN, bits >> 23 & 0xFF, bits & 0x7FFFFF


def _flushed(codes: Codes) -> Codes:
    """Subnormal numbers as zeros of their sign."""
    return np.where(codes & INFINITY == 0, codes & SIGN, codes)


def _normalised(value: Integers, unit: int) -> Codes:
    """A positive integer in units of 2**unit, cut to 24 significant bits, as the code of an f32; zero stays zero.

    Results below 2**-126 become zero; none here is too large.
    """
    length = np.zeros_like(value)
    rest = value.copy()
    for step in (32, 16, 8, 4, 2, 1):
        above = rest >> step > 0
        length += step * above
        rest = np.where(above, rest >> step, rest)
    shift = length - 23  # the highest bit goes to bit 23
    mantissa = np.where(shift >= 0, value >> np.maximum(shift, 0), value << np.maximum(-shift, 0))
    exponent = length + unit + 127
    code = (exponent << 23) + (mantissa & 0x7FFFFF)
    return np.where((value > 0) & (exponent > 0), code, 0).astype(np.uint32)


def _packed(significand: Integers, exponent: Integers) -> Codes:
    """significand * 2**(exponent - 23) with a significand in [2**23, 2**24], as a code; below 2**-126 zero, above all infinity."""
    biased = exponent + 127 + (significand >> 24)
    code = np.where(significand >> 24, 0, significand & 0x7FFFFF) + (biased << 23)
    return np.where(biased <= 0, 0, np.where(biased >= 255, np.int64(INFINITY), code)).astype(np.uint32)


def rcp(codes: Codes) -> Codes:
    """1 / x, as MUFU.RCP.

    >>> hex(rcp(np.array([0x40400000], np.uint32))[0])  # of 3
    '0x3eaaaaab'
    """
    sign, exponent, mantissa = _split(codes)
    found = interpolate("rcp", mantissa >> 16, (mantissa & 0xFFFF) << 1) >> 16
    result = _packed(found, 126 - exponent + 1 - 1)  # 1 / (1.m * 2**e) = (S / 2**24) * 2**-e, and S / 2**24 is 1/2 to 1
    result = np.where(exponent == 255, np.uint32(0), result)
    result = np.where(exponent == 0, INFINITY, result) | sign
    return _nan(codes, result)


def _nan(codes: Codes, result: Codes) -> Codes:
    """The result, and NaN where the input is one."""
    return np.where(codes & ~SIGN > INFINITY, NAN, result).astype(np.uint32)


def _root_row(exponent: Integers, mantissa: Integers) -> tuple[Integers, Integers, Integers]:
    """Whether the unbiased exponent is odd, the row and X of the root tables."""
    odd = exponent + 1 & 1  # 127 is odd: biased even is unbiased odd
    return odd, 64 * odd + (mantissa >> X_BITS), mantissa & 0x1FFFF


def rsqrt(codes: Codes) -> Codes:
    """1 / sqrt(x), as MUFU.RSQ.

    >>> hex(rsqrt(np.array([0x40800000], np.uint32))[0])  # of 4
    '0x3f000000'
    """
    sign, exponent, mantissa = _split(codes)
    odd, row, x = _root_row(exponent, mantissa)
    half = exponent - 127 >> 1  # floor
    result = _packed(interpolate("rsqrt", row, x) >> 16, -half - 1)
    exact = (odd == 0) & (mantissa == 0)
    result = np.where(exact, (127 - half << 23).astype(np.uint32), result)
    result = np.where(sign != 0, NAN, result)
    result = np.where(exponent == 0, INFINITY | sign, result)
    result = np.where(codes == INFINITY, np.uint32(0), result)
    return _nan(codes, result)


def sqrt(codes: Codes) -> Codes:
    """The square root, as MUFU.SQRT.

    >>> hex(sqrt(np.array([0x40000000], np.uint32))[0])  # of 2
    '0x3fb504f3'
    """
    sign, exponent, mantissa = _split(codes)
    odd, row, x = _root_row(exponent, mantissa)
    result = _packed(interpolate("sqrt", row, x, odd) >> 17, exponent - 127 >> 1)
    result = np.where(sign != 0, NAN, result)
    result = np.where(exponent == 0, sign, result)
    result = np.where(codes == INFINITY, INFINITY, result)
    return _nan(codes, result)


def _fixed(codes: Codes, fraction_bits: int, most: int) -> Integers:
    """floor(|x| * 2**fraction_bits), for |x| below 2**most; what is larger gives anything."""
    _, exponent, mantissa = _split(_flushed(codes))
    significand = np.where(exponent == 0, 0, mantissa | 1 << 23)
    shift = exponent - 127 - 23 + fraction_bits
    left = np.clip(shift, 0, most + fraction_bits)
    return np.where(shift >= 0, significand << left, significand >> np.clip(-shift, 0, 63))


def ex2(codes: Codes) -> Codes:
    """2 ** x, as MUFU.EX2.

    >>> hex(ex2(np.array([0x3F000000], np.uint32))[0])  # of 0.5
    '0x3fb504f3'
    """
    sign, exponent, _ = _split(codes)
    large = exponent >= 127 + 8  # |x| >= 256: the limits decide
    cut = np.where(large, 0, _fixed(np.where(large, np.uint32(0), codes), 23, 8))
    fixed = np.where(sign == 0, cut, np.where(cut & 0x7FFFFF == 0, -cut, ~cut))
    whole, fraction = fixed >> 23, fixed & 0x7FFFFF
    found = interpolate("ex2", fraction >> X_BITS, fraction & 0x1FFFF) >> 17
    result = _packed(np.where(fraction == 0, 1 << 23, found), whole)
    positive = codes.view(np.float32)
    with np.errstate(invalid="ignore"):
        result = np.where(positive >= 128, INFINITY, result)
        result = np.where(positive < -126, np.uint32(0), result)
    return _nan(codes, result)


def lg2(codes: Codes) -> Codes:
    """The logarithm to base 2, as MUFU.LG2.

    >>> hex(lg2(np.array([0x3E800000], np.uint32))[0])  # of 0.25: not quite -2
    '0xbfffffff'
    """
    sign, exponent, mantissa = _split(codes)
    found = interpolate("lg2", mantissa >> X_BITS, mantissa & 0x1FFFF) >> 4
    total = (exponent - 127 << 36) + found
    negative = total < 0
    result = _normalised(np.where(negative, ~total, total), -36) | np.where(negative, SIGN, np.uint32(0))
    result = np.where(codes == ONE, np.uint32(0), result)
    result = np.where(sign != 0, NAN, result)
    result = np.where(exponent == 0, INFINITY | SIGN, result)
    result = np.where(codes == INFINITY, INFINITY, result)
    return _nan(codes, result)


def _wave(codes: Codes, quarter: int) -> Codes:
    """The sine of x revolutions, a number of quarters of a revolution on."""
    sign, exponent, _ = _split(codes)
    large = exponent >= 127 + 23  # no fraction is left
    cut = np.where(large, 0, _fixed(np.where(large, np.uint32(0), codes), 25, 23)) & 0x1FFFFFF
    quadrant, z = (cut >> 23) + quarter, cut & 0x7FFFFF
    odd = quadrant & 1 == 1
    full = odd & (z == 0)
    z = np.where(odd, ~z & 0x7FFFFF, z)
    result = _normalised(interpolate("sin", z >> X_BITS, z & 0x1FFFF), -40)
    result = np.where(full, ONE, result)
    result = result ^ np.where(quadrant & 2 == 2, SIGN, np.uint32(0)) ^ (np.uint32(0) if quarter else sign)
    result = np.where(exponent == 255, NAN, result)
    return _nan(codes, result)


def sin(codes: Codes) -> Codes:
    """The sine of x revolutions, as MUFU.SIN.

    >>> hex(sin(np.array([0x3E800000], np.uint32))[0])  # of a quarter
    '0x3f800000'
    """
    return _wave(codes, 0)


def cos(codes: Codes) -> Codes:
    """The cosine of x revolutions, as MUFU.COS.

    >>> hex(cos(np.array([0], np.uint32))[0])
    '0x3f800000'
    """
    return _wave(codes, 1)


def tanh(codes: Codes) -> Codes:
    """The hyperbolic tangent, as MUFU.TANH.

    >>> hex(tanh(np.array([0x41000000], np.uint32))[0])  # of 8
    '0x3f800000'
    """
    sign, exponent, mantissa = _split(codes)
    segments = tables()["tanh_seg"]
    binade = np.clip(exponent - 127 - segments[0, 0], 0, len(segments) - 1)
    _, wide, first = np.moveaxis(segments[binade], -1, 0)
    z = mantissa >> 6 - wide
    found = interpolate("tanh", first + (z >> X_BITS), z & 0x1FFFF)
    result = _normalised(found, -40) | sign
    result = np.where(exponent < 127 - 8, codes, result)
    result = np.where(exponent >= 127 + 3, ONE | sign, result)
    return _nan(codes, result)


UNIT: dict[str, Callable[[Codes], Codes]] = {
    "rcp": rcp, "rsqrt": rsqrt, "sqrt": sqrt, "ex2": ex2, "lg2": lg2, "sin": sin, "cos": cos, "tanh": tanh,
}  # fmt: skip
"""What the unit computes, by the name of the function in PTX."""


def narrow(function: str, codes: npt.NDArray[np.uint16], format: str) -> npt.NDArray[np.uint16]:
    """A function of f16 or bf16 (`format`): the f32 result of the widened input, cut to the format.

    >>> hex(narrow("ex2", np.array([0x3800], np.uint16), "f16")[0])  # of 0.5
    '0x3da8'
    """
    if format == "bf16":
        wide = codes.astype(np.uint32) << np.uint32(16)
        cut = (UNIT[function](wide) >> np.uint32(16)).astype(np.uint16)
        return np.where(codes & 0x7FFF > 0x7F80, np.uint16(0x7FFF), cut)
    result = UNIT[function](codes.view(np.float16).astype(np.float32).view(np.uint32))
    return np.where(codes & 0x7FFF > 0x7C00, np.uint16(0x7FFF), _cut_to_f16(result))


def _cut_to_f16(codes: Codes) -> npt.NDArray[np.uint16]:
    sign, exponent, mantissa = _split(codes)
    significand = mantissa | 1 << 23
    shift = np.clip(13 + np.maximum(113 - exponent, 0), 13, 40)
    subnormal = significand >> shift
    normal = (exponent - 112 << 10) + (mantissa >> 13)
    found = np.where(exponent >= 113, np.where(exponent >= 143, 0x7C00, normal), np.where(exponent == 0, 0, subnormal))
    found = np.where(codes & ~SIGN > INFINITY, 0x7FFF, found | (sign >> np.uint32(16)).astype(np.int64))
    return found.astype(np.uint16)


def high_word(function: str, words: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint32]:
    """rcp or rsqrt of an f64, from its high word to the result's; both low words are zero (`.approx.ftz.f64`).

    >>> hex(high_word("rcp", np.array([0x40080000], np.uint32))[0])  # of 3.0
    '0x3fd55555'
    """
    bits = words.astype(np.int64)
    sign, exponent, mantissa = bits & 0x80000000, bits >> 20 & 0x7FF, (bits & 0xFFFFF) << 3
    if function == "rcp":
        found = interpolate("rcp", mantissa >> 16, (mantissa & 0xFFFF) << 1) >> 19
        biased = 2045 - exponent + (found >> 21)
        result = (biased << 20) + np.where(found >> 21, 0, found & 0xFFFFF)
        result = np.where(biased <= 0, 0, result)
        zero, infinite = np.int64(0x7FF00000) | sign, sign
        result = result | sign
    else:
        odd = exponent + 1 & 1
        half = exponent - 1023 >> 1
        found = interpolate("rsqrt", 64 * odd + (mantissa >> X_BITS), mantissa & 0x1FFFF) >> 19
        biased = 1022 - half + (found >> 21)
        result = (biased << 20) + np.where(found >> 21, 0, found & 0xFFFFF)
        result = np.where((odd == 0) & (mantissa == 0), 1023 - half << 20, result)
        result = np.where(sign != 0, 0x7FFFFFFF, result)
        zero, infinite = np.int64(0x7FF00000) | sign, np.where(sign != 0, 0x7FFFFFFF, 0)
    result = np.where(exponent == 0, zero, result)
    result = np.where(exponent == 0x7FF, np.where(mantissa == 0, infinite, 0x7FFFFFFF), result)
    return result.astype(np.uint32)
