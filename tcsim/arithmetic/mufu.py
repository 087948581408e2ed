"""The special function unit (MUFU): reciprocals, roots, powers, logarithms, sines and tanh of f32, exact to the bit.

One fixed-point interpolator serves every function. The upper bits of an input pick a segment with three integers (C0, C1, C2),
the 17 bits below are X, and in units of 2**-40

    S = (C0 << a0) + ((C1 * X) << a1) + ((C2 * square(X)) << a2) + bias

is cut, never rounded, to 24 significant bits. The square is a folded sum of partial products whose columns below 2**19 are
left out. Tables and rules were derived from the answers of an H200 (sm_90); of other archs nothing is measured. The tables
are integers per segment, in mufu_sm90.npz beside this file. Their origin and the search for them: docs/conversions.md.

Inputs and results are codes: uint32 arrays of f32 (uint16 of f16 and bf16, the high words of f64).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property
from importlib import resources
from types import MappingProxyType

import numpy as np
import numpy.typing as npt

from tcsim.lowering.traced import entries

Codes = npt.NDArray[np.uint32]
Halves = npt.NDArray[np.uint16]
Integers = npt.NDArray[np.int64]

NAN = np.uint32(0x7FFFFFFF)
INFINITY = np.uint32(0x7F800000)
SIGN = np.uint32(0x80000000)
ONE = np.uint32(0x3F800000)
ZERO = np.uint32(0)

X_BITS = 17
MANY = 1 << 16
"""Powers of two from which a table of 32 MiB is worth its half second."""
SQUARE_CUT = 19  # columns of the square below this power of two are left out
MEASURED = ("sm_90",)
"""Archs whose answers the tables were derived from."""


@dataclass(frozen=True)
class Special:
    """The result for an input that bypasses the interpolator."""

    code: np.uint32
    signed: bool = False  # it has the sign of the input


@dataclass(frozen=True)
class Function:
    """How one function uses the interpolator."""

    table: str  # rows of (C0, C1, C2) in the file
    shifts: tuple[int, int, int]  # a0, a1, a2
    bias: int  # in units of 2**-40
    cut: int = 0  # low bits of S that are dropped; 0: all but the upper 24 significant bits
    zero: Special | None = None  # of zeros and subnormal numbers
    infinite: Special | None = None
    negative: Special | None = None


_SIGNED_ZERO, _SIGNED_INFINITY = Special(ZERO, signed=True), Special(INFINITY, signed=True)
_NAN = Special(NAN)

FUNCTIONS: Mapping[str, Function] = MappingProxyType({
    "rcp": Function("rcp", (14, 0, 1), 4046, 16, _SIGNED_INFINITY, _SIGNED_ZERO),
    "rsqrt": Function("rsq", (14, 0, 2), -1, 16, _SIGNED_INFINITY, Special(ZERO), _NAN),
    "sqrt": Function("sqrt", (15, 0, 1), -1, 17, _SIGNED_ZERO, Special(INFINITY), _NAN),  # a1 is 1 for odd exponents
    "ex2": Function("ex2", (15, 2, 2), 24456, 17),
    "lg2": Function("lg2", (14, 2, 3), 3348, 4, Special(INFINITY | SIGN), Special(INFINITY), _NAN),
    "sin": Function("sin", (15, 3, 3), 0, infinite=_NAN),
    "cos": Function("sin", (15, 3, 3), 0, infinite=_NAN),
    "tanh": Function("tanh", (14, 1, 2), 0),
})  # fmt: skip


@cache
def tables() -> Mapping[str, Integers]:
    """The segments of each table: (rows, 3) integers C0, C1, C2; tanh_seg: exponent, log2 of segments, first row."""
    with resources.files("tcsim.arithmetic").joinpath("mufu_sm90.npz").open("rb") as file, np.load(file) as data:
        return MappingProxyType({name: data[name].astype(np.int64) for name in data.files})


def square(x: Integers, cut: int = SQUARE_CUT) -> Integers:
    """The square of 17 bits, folded, without its columns below 2**cut, in units of 2**cut.

    >>> square(np.array([0, 1000, 131071])).tolist()
    [0, 0, 32759]
    """
    total = np.zeros_like(x)
    for i in range(X_BITS):
        bit = x >> i & 1
        if 2 * i >= cut:
            total += bit << 2 * i
        low = max(i + 1, cut - 1 - i)  # the columns i + j + 1 that count
        if low < X_BITS:
            total += bit * (x >> low << low + i + 1)
    return total >> cut


@cache
def squares() -> Integers:
    """The square of every X."""
    return square(np.arange(1 << X_BITS))


class _Tables(Mapping[str, Integers]):
    """The tables of the file, read when the first is asked for: instructions are made without it, in the frozen generators too."""

    def __getitem__(self, name: str) -> Integers:
        return tables()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(tables())

    def __len__(self) -> int:
        return len(tables())


@dataclass(frozen=True)
class Argument:
    """What an input becomes before it is interpolated."""

    row: Integers  # of the table
    x: Integers  # 17 bits
    odd: Integers | None = None  # of sqrt: whether the exponent is odd, which shifts C1 * X


@dataclass(frozen=True)
class Unit:
    """The unit with its tables and widths; the methods are its functions, from codes to codes.

    A mutant is a unit with another function, table, square or cut.
    """

    functions: Mapping[str, Function] = field(default_factory=lambda: FUNCTIONS)
    tables: Mapping[str, Integers] = field(default_factory=_Tables, repr=False)
    squares: Integers = field(default_factory=squares, repr=False)
    rounded: bool = False  # whether S is rounded where it is cut: never, in the hardware
    keeps_subnormals: bool = False  # whether subnormal inputs count

    # --- the interpolator

    def terms(self, function: str, at: Argument) -> tuple[Integers, Integers, Integers]:
        """The three terms of S, in units of 2**-40."""
        own = self.functions[function]
        c0, c1, c2 = np.moveaxis(entries(self.tables[own.table], at.row), -1, 0)
        a0, a1, a2 = own.shifts
        return c0 << a0, c1 * at.x << (a1 if at.odd is None else at.odd), c2 * entries(self.squares, at.x) << a2

    def interpolate(self, function: str, at: Argument) -> Integers:
        """S, in units of 2**-40."""
        constant, linear, quadratic = self.terms(function, at)
        return constant + linear + quadratic + self.functions[function].bias

    def _cut(self, function: str, at: Argument, more: int = 0) -> Integers:
        """S without its low bits."""
        bits = self.functions[function].cut + more
        total = self.interpolate(function, at)
        return total + (1 << bits - 1 if self.rounded else 0) >> bits

    # --- what an input becomes

    def argument(self, function: str, codes: Codes) -> Argument:
        """Row and X of each input that is interpolated; of another input, anything.

        >>> at = unit().argument("rcp", np.array([0x3FC00000], np.uint32))  # of 1.5
        >>> at.row.tolist(), at.x.tolist()
        ([64], [0])
        """
        _, exponent, mantissa = _split(codes)
        if function == "rcp":
            return Argument(mantissa >> 16, (mantissa & 0xFFFF) << 1)
        if function in ("rsqrt", "sqrt"):
            odd = exponent + 1 & 1  # 127 is odd: biased even is unbiased odd
            return Argument(64 * odd + (mantissa >> X_BITS), mantissa & 0x1FFFF, odd if function == "sqrt" else None)
        if function == "tanh":
            segments = self.tables["tanh_seg"]
            binade = np.clip(exponent - 127 - segments[0, 0], 0, len(segments) - 1)
            _, wide, first = np.moveaxis(entries(segments, binade), -1, 0)
            z = mantissa >> 6 - wide
            return Argument(first + (z >> X_BITS), z & 0x1FFFF)
        if function == "ex2":
            return _segment(self._power(codes) & 0x7FFFFF)
        if function in ("sin", "cos"):
            quadrant, z = self._turn(function, codes)
            return _segment(np.where(quadrant & 1 == 1, ~z & 0x7FFFFF, z))
        return _segment(mantissa)

    def interpolated(self, function: str, codes: Codes) -> npt.NDArray[np.bool_]:
        """Which inputs are interpolated; the others have a result of their own.

        >>> unit().interpolated("lg2", np.array([0x3F800000, 0x3F800001, 0x7F800000], np.uint32)).tolist()
        [False, True, False]
        """
        own, (sign, exponent, mantissa) = self.functions[function], _split(codes)
        finite = exponent < 255
        if own.zero is not None:
            finite &= exponent > 0
        if own.negative is not None:
            finite &= sign == 0
        if function == "rsqrt":
            return finite & ((exponent & 1 == 0) | (mantissa != 0))
        if function == "ex2":
            value = np.where(finite, codes, ZERO).astype(np.uint32).view(np.float32)
            return finite & (value >= -126) & (value < 128)
        if function == "tanh":
            return (exponent >= 127 - 8) & (exponent < 127 + 3)
        return finite & (codes != ONE) if function == "lg2" else finite

    def _power(self, codes: Codes) -> Integers:
        """The input of ex2 as an integer of 23 fraction bits: cut toward zero, negative ones in one's complement."""
        sign, exponent, _ = _split(codes)
        large = exponent >= 127 + 8  # |x| >= 256: the limits decide
        cut = np.where(large, 0, self._fixed(np.where(large, ZERO, codes), 23, 8))
        return np.where(sign == 0, cut, np.where(cut & 0x7FFFFF == 0, -cut, ~cut))

    def _turn(self, function: str, codes: Codes) -> tuple[Integers, Integers]:
        """Quadrant, and 23 bits of the fraction of a quarter revolution; a cosine is a quarter ahead."""
        _, exponent, _ = _split(codes)
        large = exponent >= 127 + 23  # no fraction is left
        cut = np.where(large, 0, self._fixed(np.where(large, ZERO, codes), 25, 23)) & 0x1FFFFFF
        return (cut >> 23) + (function == "cos"), cut & 0x7FFFFF

    def _fixed(self, codes: Codes, fraction_bits: int, most: int) -> Integers:
        """floor(|x| * 2**fraction_bits), for |x| below 2**most; what is larger gives anything."""
        _, exponent, mantissa = _split(codes)
        significand = np.where(exponent == 0, 0, mantissa | 1 << 23)
        shift = exponent - 127 - 23 + fraction_bits
        left = np.clip(shift, 0, most + fraction_bits)
        return np.where(shift >= 0, significand << left, significand >> np.clip(-shift, 0, 63))

    # --- the functions

    def rcp(self, codes: Codes) -> Codes:
        """1 / x, as MUFU.RCP.

        >>> hex(unit().rcp(np.array([0x40400000], np.uint32))[0])  # of 3
        '0x3eaaaaab'
        """
        sign, exponent, _ = _split(codes)
        # 1 / (1.m * 2**e) = (S / 2**24) * 2**-e, and S / 2**24 is 1/2 to 1
        result = _packed(self._cut("rcp", self.argument("rcp", codes)), 126 - exponent) | sign
        return self._bypassed("rcp", codes, result)

    def rsqrt(self, codes: Codes) -> Codes:
        """1 / sqrt(x), as MUFU.RSQ.

        >>> hex(unit().rsqrt(np.array([0x40800000], np.uint32))[0])  # of 4
        '0x3f000000'
        """
        _, exponent, mantissa = _split(codes)
        half = exponent - 127 >> 1  # floor
        result = _packed(self._cut("rsqrt", self.argument("rsqrt", codes)), -half - 1)
        exact = (exponent & 1 == 1) & (mantissa == 0)  # powers of four
        result = np.where(exact, (127 - half << 23).astype(np.uint32), result)
        return self._bypassed("rsqrt", codes, result)

    def sqrt(self, codes: Codes) -> Codes:
        """The square root, as MUFU.SQRT.

        >>> hex(unit().sqrt(np.array([0x40000000], np.uint32))[0])  # of 2
        '0x3fb504f3'
        """
        _, exponent, _ = _split(codes)
        result = _packed(self._cut("sqrt", self.argument("sqrt", codes)), exponent - 127 >> 1)
        return self._bypassed("sqrt", codes, result)

    def ex2(self, codes: Codes) -> Codes:
        """2 ** x, as MUFU.EX2.

        >>> hex(unit().ex2(np.array([0x3F000000], np.uint32))[0])  # of 0.5
        '0x3fb504f3'
        """
        return self._ex2_of_many(codes) if codes.size >= MANY else self._ex2_of_few(codes)

    def _ex2_of_few(self, codes: Codes) -> Codes:
        result = _packed(self._cut("ex2", self.argument("ex2", codes)), self._power(codes) >> 23)
        value = codes.view(np.float32)
        with np.errstate(invalid="ignore"):
            result = np.where(value >= 128, INFINITY, result)
            result = np.where(value < -126, ZERO, result)
        return self._bypassed("ex2", codes, result)

    @cached_property
    def _powers(self) -> npt.NDArray[np.int32]:
        """The code of 2 ** f for every fraction f of 23 bits."""
        fractions = np.arange(1 << 23, dtype=np.uint32).reshape(-1, MANY // 2)
        codes = [self._ex2_of_few(ONE + own) for own in fractions]  # of 1 + f
        return np.concatenate(codes).view(np.int32) - np.int32(1 << 23)

    def _ex2_of_many(self, codes: Codes) -> Codes:
        """The same by a table of all fractions, in half the time or less."""
        value = codes.view(np.float32)
        with np.errstate(invalid="ignore"):
            inside = (value >= -126) & (value < 128)
            cut = (np.where(inside, value, np.float32(0)).astype(np.float64) * (1 << 23)).astype(np.int32)
            cut -= (value < 0) & (cut & 0x7FFFFF != 0)  # in one's complement, but whole numbers
            result = (self._powers[cut & 0x7FFFFF] + (cut >> 23 << 23)).view(np.uint32)
            result = np.where(inside, result, np.where(value >= 128, INFINITY, ZERO))
        special = np.flatnonzero((codes & 0x7F800000) % INFINITY == 0)
        result.reshape(-1)[special] = self._bypassed("ex2", codes.reshape(-1)[special], result.reshape(-1)[special])
        return result

    def lg2(self, codes: Codes) -> Codes:
        """The logarithm to base 2, as MUFU.LG2.

        >>> hex(unit().lg2(np.array([0x3E800000], np.uint32))[0])  # of 0.25: not quite -2
        '0xbfffffff'
        """
        _, exponent, _ = _split(codes)
        total = (exponent - 127 << 36) + self._cut("lg2", self.argument("lg2", codes))
        negative = total < 0
        result = self._normalised(np.where(negative, ~total, total), -36) | np.where(negative, SIGN, ZERO)
        result = np.where(codes == ONE, ZERO, result)
        return self._bypassed("lg2", codes, result)

    def sin(self, codes: Codes) -> Codes:
        """The sine of x revolutions, as MUFU.SIN.

        >>> hex(unit().sin(np.array([0x3E800000], np.uint32))[0])  # of a quarter
        '0x3f800000'
        """
        return self._wave("sin", codes) ^ np.where(codes & ~SIGN < INFINITY, codes & SIGN, ZERO)

    def cos(self, codes: Codes) -> Codes:
        """The cosine of x revolutions, as MUFU.COS.

        >>> hex(unit().cos(np.array([0], np.uint32))[0])
        '0x3f800000'
        """
        return self._wave("cos", codes)

    def _wave(self, function: str, codes: Codes) -> Codes:
        quadrant, _ = self._turn(function, codes)
        result = self._normalised(self.interpolate(function, self.argument(function, codes)), -40)
        result = result ^ np.where(quadrant & 2 == 2, SIGN, ZERO)
        return self._bypassed(function, codes, result)

    def tanh(self, codes: Codes) -> Codes:
        """The hyperbolic tangent, as MUFU.TANH.

        >>> hex(unit().tanh(np.array([0x41000000], np.uint32))[0])  # of 8
        '0x3f800000'
        """
        sign, exponent, _ = _split(codes)
        result = self._normalised(self.interpolate("tanh", self.argument("tanh", codes)), -40) | sign
        result = np.where(exponent < 127 - 8, codes, result)
        result = np.where(exponent >= 127 + 3, ONE | sign, result)
        return self._bypassed("tanh", codes, result)

    def _bypassed(self, function: str, codes: Codes, result: Codes) -> Codes:
        """The result, but of zeros, infinities, negative numbers and NaN what the function has for them."""
        own, magnitude, sign = self.functions[function], codes & ~SIGN, codes & SIGN
        small = magnitude == 0 if self.keeps_subnormals else magnitude < np.uint32(1 << 23)
        for special, where in (
            (own.negative, sign != 0), (own.infinite, magnitude == INFINITY), (own.zero, small),
        ):  # fmt: skip
            if special is not None:
                if special is own.infinite and own.negative is not None:
                    where = where & (sign == 0)
                result = np.where(where, special.code | sign if special.signed else special.code, result)
        return np.where(magnitude > INFINITY, NAN, result).astype(np.uint32)

    def _normalised(self, value: Integers, unit: int) -> Codes:
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
        right = np.maximum(shift, 0)
        half = np.where(right > 0, np.int64(1) << np.maximum(right - 1, 0), 0) if self.rounded else 0
        mantissa = np.where(shift >= 0, value + half >> right, value << np.maximum(-shift, 0))
        exponent = length + unit + 127
        code = (exponent << 23) + mantissa - (1 << 23)
        return np.where((value > 0) & (exponent > 0), code, 0).astype(np.uint32)

    # --- other widths

    def compute(self, function: str, codes: Codes) -> Codes:
        """A function of f32 codes by its name in PTX."""
        found: Codes = getattr(self, function)(codes)
        return found

    def narrow(self, function: str, codes: Halves, format: str) -> Halves:
        """A function of f16 or bf16 (`format`): the f32 result of the widened input, cut to the format.

        >>> hex(unit().narrow("ex2", np.array([0x3800], np.uint16), "f16")[0])  # of 0.5
        '0x3da8'
        """
        if format == "bf16":
            wide = codes.astype(np.uint32) << np.uint32(16)
            cut = (self.compute(function, wide) >> np.uint32(16)).astype(np.uint16)
            return np.where(codes & 0x7FFF > 0x7F80, np.uint16(0x7FFF), cut)
        result = self.compute(function, codes.view(np.float16).astype(np.float32).view(np.uint32))
        return np.where(codes & 0x7FFF > 0x7C00, np.uint16(0x7FFF), _cut_to_f16(result))

    def high_word(self, function: str, words: Codes) -> Codes:
        """rcp or rsqrt of an f64, from its high word to the result's; both low words are zero (`.approx.ftz.f64`).

        >>> hex(unit().high_word("rcp", np.array([0x40080000], np.uint32))[0])  # of 3.0
        '0x3fd55555'
        """
        bits = words.astype(np.int64)
        exponent, mantissa = bits >> 20 & 0x7FF, (bits & 0xFFFFF) << 3
        near_one = ((exponent & 1) + 126 << 23 | mantissa).astype(np.uint32)  # an exponent of the same parity
        found = self._cut(function, self.argument(function, near_one), 3)
        half = exponent - 1023 >> 1
        biased = (2045 - exponent if function == "rcp" else 1022 - half) + (found >> 21)
        result = (biased << 20) + np.where(found >> 21, 0, found & 0xFFFFF)
        if function == "rsqrt":
            result = np.where((exponent & 1 == 1) & (mantissa == 0), 1023 - half << 20, result)
        result = np.where(biased <= 0, 0, result)
        special = np.where(exponent == 0, 0, np.where(mantissa == 0, INFINITY, NAN)).astype(np.uint32)
        sign = words & SIGN
        result = result | (sign if function == "rcp" else 0)
        own = self.compute(function, np.where((exponent == 0) | (exponent == 0x7FF), special | sign, ONE | sign))
        own = np.where(own & ~SIGN == INFINITY, own & SIGN | np.uint32(0x7FF00000), own)
        plain = (exponent > 0) & (exponent < 0x7FF) & ((sign == 0) | (self.functions[function].negative is None))
        return np.where(plain, result, own).astype(np.uint32)


def _split(codes: Codes) -> tuple[Codes, Integers, Integers]:
    """Sign bit, biased exponent and mantissa."""
    bits = codes.astype(np.int64)
    return codes & SIGN, bits >> 23 & 0xFF, bits & 0x7FFFFF


def _segment(fraction: Integers) -> Argument:
    """The row and X of 23 bits in 64 segments."""
    return Argument(fraction >> X_BITS, fraction & 0x1FFFF)


def _packed(significand: Integers, exponent: Integers) -> Codes:
    """significand * 2**(exponent - 23) with a significand in [2**23, 2**24], as a code; below 2**-126 zero, above all infinity."""
    biased = exponent + 127 + (significand >> 24)
    code = np.where(significand >> 24, 0, significand & 0x7FFFFF) + (biased << 23)
    return np.where(biased <= 0, 0, np.where(biased >= 255, np.int64(INFINITY), code)).astype(np.uint32)


def _cut_to_f16(codes: Codes) -> Halves:
    sign, exponent, mantissa = _split(codes)
    significand = mantissa | 1 << 23
    shift = np.clip(13 + np.maximum(113 - exponent, 0), 13, 40)
    subnormal = significand >> shift
    normal = (exponent - 112 << 10) + (mantissa >> 13)
    found = np.where(exponent >= 113, np.where(exponent >= 143, 0x7C00, normal), np.where(exponent == 0, 0, subnormal))
    found = np.where(codes & ~SIGN > INFINITY, 0x7FFF, found | (sign >> np.uint32(16)).astype(np.int64))
    return found.astype(np.uint16)


@cache
def unit() -> Unit:
    """The unit of sm_90."""
    return Unit()
