"""What a code means, and which code an exact rational number rounds to. Python integers and fractions only."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from operator import index
from typing import Literal, NamedTuple

Kind = Literal["zero", "subnormal", "normal", "infinity", "nan"]
Mode = Literal["rne", "rz", "rm", "rp", "rna"]  # to nearest even, to zero, to -inf, to +inf, to nearest and ties away
MODES: tuple[Mode, ...] = ("rne", "rz", "rm", "rp", "rna")


class Number(NamedTuple):
    """One decoded code: (-1)^sign * significand * 2^(exponent - fraction_bits) when it is finite."""

    kind: Kind
    sign: int  # 0 or 1; also set for zeros, infinities and NaNs
    exponent: int  # of the significand's units bit; a subnormal has its format's minimum exponent
    significand: int  # integer, implicit bit included: below 2^fraction_bits for a subnormal
    fraction_bits: int  # how many bits of the significand lie behind its point

    @property
    def value(self) -> Fraction:
        """The exact value of a finite number."""
        if self.kind in ("infinity", "nan"):
            raise ValueError(f"{self.kind} has no rational value")
        magnitude = scaled(self.significand, self.exponent - self.fraction_bits)
        return -magnitude if self.sign else magnitude


@dataclass(frozen=True)
class FloatFormat:
    """A floating-point format. A code is, from the top: sign, exponent field, fraction field, ignored bits."""

    name: str
    bits: int  # width of the code
    exponent_bits: int
    fraction_bits: int
    bias: int  # exponent = exponent field - bias
    specials: Literal["ieee", "nan", "none"]  # "nan": only the code whose exponent and fraction are all ones is special
    sign: Literal["used", "ignored", "absent"] = "used"
    ignored_bits: int = 0  # low bits of the code that carry nothing
    subnormals: bool = True  # whether exponent field 0 means zero and subnormals

    @property
    def min_exponent(self) -> int:
        """The exponent of the smallest normal number, which is also the exponent of every subnormal."""
        return 1 - self.bias if self.subnormals else -self.bias

    @property
    def largest_finite(self) -> int:
        """The exponent and fraction fields of the largest finite number, as one integer."""
        if self.specials == "ieee":
            return (((1 << self.exponent_bits) - 1) << self.fraction_bits) - 1
        all_ones = (1 << (self.exponent_bits + self.fraction_bits)) - 1
        return all_ones - 1 if self.specials == "nan" else all_ones


@dataclass(frozen=True)
class IntegerFormat:
    """An integer format; a signed one is two's complement in its own width, or a sign bit and a magnitude."""

    name: str
    bits: int
    signed: bool
    magnitude_bits: int = 0  # of sign and magnitude; the bits between the two are zeros

    @property
    def smallest(self) -> int:
        """The smallest representable integer."""
        if self.magnitude_bits:
            return -self.largest
        return -(1 << (self.bits - 1)) if self.signed else 0

    @property
    def largest(self) -> int:
        """The largest representable integer."""
        if self.magnitude_bits:
            return (1 << self.magnitude_bits) - 1
        return (1 << (self.bits - self.signed)) - 1


FLOAT_FORMATS: dict[str, FloatFormat] = {
    item.name: item
    for item in (
        FloatFormat("f64", 64, 11, 52, 1023, "ieee"),
        FloatFormat("f32", 32, 8, 23, 127, "ieee"),
        FloatFormat("f16", 16, 5, 10, 15, "ieee"),
        FloatFormat("bf16", 16, 8, 7, 127, "ieee"),
        FloatFormat("tf32", 32, 8, 10, 127, "ieee", ignored_bits=13),  # section 1.8
        FloatFormat("e8m13", 32, 8, 13, 127, "ieee", ignored_bits=10),  # section 1.5: 14 significant bits in an f32
        FloatFormat("e5m2", 8, 5, 2, 15, "ieee"),
        FloatFormat("e4m3", 8, 4, 3, 7, "nan"),
        FloatFormat("e3m2", 6, 3, 2, 3, "none"),
        FloatFormat("e2m3", 6, 2, 3, 1, "none"),
        FloatFormat("e2m1", 4, 2, 1, 1, "none"),
        FloatFormat("ue8m0", 8, 8, 0, 127, "nan", sign="absent", subnormals=False),  # section 4: 0x00 is 2^-127
        FloatFormat("ue4m3", 8, 4, 3, 7, "nan", sign="ignored"),  # section 4
        FloatFormat("ue5m3", 8, 5, 3, 15, "nan", sign="absent"),
    )
}
INTEGER_FORMATS: dict[str, IntegerFormat] = {
    item.name: item
    for item in (
        IntegerFormat("s32", 32, True),
        IntegerFormat("s8", 8, True),
        IntegerFormat("u8", 8, False),
        IntegerFormat("s4", 4, True),
        IntegerFormat("u4", 4, False),
        IntegerFormat("b1", 1, False),
        IntegerFormat("s1z4m11", 16, True, magnitude_bits=11),
    )
}
FORMATS: dict[str, FloatFormat | IntegerFormat] = {**FLOAT_FORMATS, **INTEGER_FORMATS}

F64_NAN = 0xFFF8_0000_0000_0000  # what DMMA writes for an invalid operation; measured on an H200 (section 3)
CANONICAL_NAN = {"f16": 0x7FFF, "f32": 0x7FFF_FFFF, "e8m13": 0x7FFF_FFFF, "f64": F64_NAN}  # section 1.7


def scaled(integer: int, exponent: int) -> Fraction:
    """The exact number integer * 2^exponent."""
    return Fraction(integer << exponent) if exponent >= 0 else Fraction(integer, 1 << -exponent)


def format_of(name: str) -> FloatFormat | IntegerFormat:
    """The format called `name`."""
    if name not in FORMATS:
        raise ValueError(f"no format {name!r}; there are {', '.join(FORMATS)}")
    return FORMATS[name]


@lru_cache(maxsize=1 << 16)
def decode(code: int, name: str) -> Number:
    """The number that `code` means in format `name` (docs/numerics.md sections 1, 2 and 4)."""
    fmt = format_of(name)
    code = index(code)  # a plain Python integer, whatever integer type the caller counts in
    if not 0 <= code < 1 << fmt.bits:
        raise ValueError(f"{code:#x} is not a code of {name}, which has {fmt.bits} bits")
    if isinstance(fmt, IntegerFormat) and fmt.magnitude_bits:
        sign, magnitude = divmod(code, 1 << (fmt.bits - 1))
        if magnitude > fmt.largest:
            raise ValueError(f"{code:#x} is not a code of {name}: bits between sign and magnitude are set")
        return Number("normal" if magnitude else "zero", sign, 0, magnitude, 0)
    if isinstance(fmt, IntegerFormat):
        integer = code - (1 << fmt.bits) if code > fmt.largest else code
        return Number("normal" if integer else "zero", int(integer < 0), 0, abs(integer), 0)

    width = fmt.exponent_bits + fmt.fraction_bits
    magnitude = (code >> fmt.ignored_bits) & ((1 << width) - 1)
    sign = (code >> (fmt.ignored_bits + width)) & 1 if fmt.sign == "used" else 0
    field, fraction = divmod(magnitude, 1 << fmt.fraction_bits)
    if magnitude > fmt.largest_finite:
        is_infinity = fmt.specials == "ieee" and fraction == 0
        return Number("infinity" if is_infinity else "nan", sign, field - fmt.bias, 0, fmt.fraction_bits)
    if field == 0 and fmt.subnormals:
        return Number("subnormal" if fraction else "zero", sign, fmt.min_exponent, fraction, fmt.fraction_bits)
    implicit_bit = 1 << fmt.fraction_bits
    return Number("normal", sign, field - fmt.bias, implicit_bit + fraction, fmt.fraction_bits)


def encode(value: Fraction, sign_of_zero: int, name: str, mode: Mode, saturate: bool = False) -> int:
    """The code of `value` rounded once to format `name`; `sign_of_zero` is the sign of a value that is exactly 0.

    Overflow is IEEE's: to infinity for rne and rna, to the largest finite number for rz, and for rm and rp
    whichever lies in their direction. A format without infinity gives its NaN, or, having none, raises unless
    `saturate`, which makes every overflow the largest finite number. Integers out of range raise unless `saturate`.
    """
    if mode not in MODES:
        raise ValueError(f"no rounding mode {mode!r}; there are {', '.join(MODES)}")
    fmt = format_of(name)
    if isinstance(fmt, IntegerFormat):
        return _encode_integer(value, fmt, mode, saturate)
    sign = int(value < 0) if value else sign_of_zero
    magnitude = _round_to_fields(value, fmt, mode)
    if magnitude > fmt.largest_finite:
        toward_zero = mode == "rz" or (mode == "rm" and not sign) or (mode == "rp" and sign)
        if saturate or toward_zero:
            magnitude = fmt.largest_finite
        elif fmt.specials == "none":
            raise ValueError(f"{value} overflows {name}, which has neither infinity nor NaN; ask for saturate")
        else:
            magnitude = fmt.largest_finite + 1  # the infinity of an IEEE format, the NaN of e4m3, ue4m3 and ue8m0
    return _join(sign, magnitude, fmt)


def encode_rz_overflow_to_infinity(value: Fraction, name: str) -> int:
    """The tensor core's rounding: truncate, yet from 2^(maximum exponent + 1) on give infinity (section 1.5).

    The sign of a value that truncates to zero is kept here; the step replaces such a result by +0.
    """
    fmt = FLOAT_FORMATS[name]
    return _join(int(value < 0), min(_round_to_fields(value, fmt, "rz"), fmt.largest_finite + 1), fmt)


def infinity(sign: int, name: str) -> int:
    """The code of +infinity (sign 0) or -infinity (sign 1)."""
    fmt = FLOAT_FORMATS[name]
    if fmt.specials != "ieee":
        raise ValueError(f"{name} has no infinity")
    return _join(sign, fmt.largest_finite + 1, fmt)


def canonical_nan(name: str) -> int:
    """The one NaN that operations with results in format `name` produce (section 1.7)."""
    return CANONICAL_NAN[name]


def floor_log2(value: Fraction) -> int:
    """The largest e with 2^e <= value, for value > 0."""
    exponent = value.numerator.bit_length() - value.denominator.bit_length()
    return exponent if scaled(1, exponent) <= value else exponent - 1


def round_to_integer(value: Fraction, mode: Mode) -> int:
    """`value` rounded to an integer."""
    below, remainder = divmod(value.numerator, value.denominator)  # below <= value < below + 1
    if remainder == 0:
        return below
    twice = 2 * remainder
    match mode:
        case "rm":
            up = False
        case "rp":
            up = True
        case "rz":
            up = value < 0
        case "rne":
            up = twice > value.denominator or (twice == value.denominator and below % 2 == 1)
        case "rna":
            up = twice > value.denominator or (twice == value.denominator and value > 0)
    return below + up


def _round_to_fields(value: Fraction, fmt: FloatFormat, mode: Mode) -> int:
    """The exponent and fraction fields, as one integer, of |rounded value|, as if exponents had no upper limit."""
    if value < 0 and fmt.sign != "used":
        raise ValueError(f"{fmt.name} has no negative numbers")
    if not fmt.subnormals and (mode == "rne" or value < scaled(1, fmt.min_exponent)):
        raise ValueError(f"{fmt.name} cannot hold {value} rounded {mode}: no zero, no even neighbour in a tie")
    if value == 0:
        return 0
    exponent = max(floor_log2(abs(value)), fmt.min_exponent)
    ulp = scaled(1, exponent - fmt.fraction_bits)
    significand = abs(round_to_integer(value / ulp, mode))
    if significand == 2 << fmt.fraction_bits:  # rounded up to the next power of two
        significand, exponent = 1 << fmt.fraction_bits, exponent + 1
    implicit_bit = 1 << fmt.fraction_bits
    if significand < implicit_bit:
        return significand  # zero or subnormal: exponent field 0
    return ((exponent + fmt.bias) << fmt.fraction_bits) + (significand - implicit_bit)


def _join(sign: int, magnitude: int, fmt: FloatFormat) -> int:
    """The code made of a sign and the exponent and fraction fields."""
    width = fmt.exponent_bits + fmt.fraction_bits
    sign_field = sign << width if fmt.sign == "used" else 0
    return (sign_field | magnitude) << fmt.ignored_bits


def _encode_integer(value: Fraction, fmt: IntegerFormat, mode: Mode, saturate: bool) -> int:
    """The code of `value` rounded to an integer; there is no code of minus zero."""
    integer = round_to_integer(value, mode)
    if saturate:
        integer = min(max(integer, fmt.smallest), fmt.largest)
    if not fmt.smallest <= integer <= fmt.largest:
        raise ValueError(f"{integer} is outside {fmt.smallest} .. {fmt.largest} of {fmt.name}; ask for saturate")
    if fmt.magnitude_bits:
        return (integer < 0) << (fmt.bits - 1) | abs(integer)
    return integer % (1 << fmt.bits)
