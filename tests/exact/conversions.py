"""What cvt writes, one element at a time in fractions, read off the spelling and written next to the PTX manual.

A result of at most 16 bits is looked up among all numbers of its format, so that no rounding arithmetic is shared with
anything. NaN results follow NVIDIA's host headers and machine code (docs/conversions.md). Nothing here is fast.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from dataclasses import dataclass
from fractions import Fraction
from functools import cache, lru_cache
from typing import Literal, NamedTuple

from tests.exact.numbers import encode, floor_log2, scaled

Kind = Literal["finite", "infinity", "nan"]


class Float(NamedTuple):
    """A float format: the widths of its fields, and what the all-ones exponent means."""

    exponent: int
    fraction: int
    bias: int
    specials: Literal["ieee", "last", "none"]  # "last": the code of all ones is NaN
    signed: bool = True
    unread: int = 0  # low bits of the register that carry nothing

    @property
    def bits(self) -> int:
        """Width of a code."""
        return self.signed + self.exponent + self.fraction + self.unread


class Whole(NamedTuple):
    """Two's complement, or unsigned, in units of 2**-point."""

    bits: int
    signed: bool
    point: int = 0


FLOATS = {
    "f64": Float(11, 52, 1023, "ieee"),
    "f32": Float(8, 23, 127, "ieee"),
    "tf32": Float(8, 10, 127, "ieee", unread=13),
    "f16": Float(5, 10, 15, "ieee"),
    "bf16": Float(8, 7, 127, "ieee"),
    "e5m2": Float(5, 2, 15, "ieee"),
    "e4m3": Float(4, 3, 7, "last"),
    "e3m2": Float(3, 2, 3, "none"),
    "e2m3": Float(2, 3, 1, "none"),
    "e2m1": Float(2, 1, 1, "none"),
    "ue8m0": Float(8, 0, 127, "last", signed=False),
    "ue5m3": Float(5, 3, 15, "last", signed=False),
}
WHOLES = {
    "s32": Whole(32, True),
    "s16": Whole(16, True),
    "u16": Whole(16, False),
    "s8": Whole(8, True),
    "u8": Whole(8, False),
    "s4": Whole(4, True),
    "u4": Whole(4, False),
    "s2": Whole(2, True),
    "u2": Whole(2, False),
    "s2f6": Whole(8, True, 6),
}

# The one code of every NaN, where there is one. Formats without NaN have their largest number there.
NAN = {
    "f16": 0x7FFF, "bf16": 0x7FFF, "tf32": 0x7FFFE000, "f32": 0x7FFFFFFF, "e5m2": 0x7F, "e4m3": 0x7F, "e3m2": 0x1F,
    "e2m3": 0x1F, "e2m1": 0x7, "ue8m0": 0xFF, "ue5m3": 0xFF, "s2f6": 0x7F,
}  # fmt: skip


@dataclass(frozen=True)
class Spelling:
    """What a mnemonic says."""

    words: tuple[str, ...]  # modifiers, without their dots
    to: str
    to_count: int
    source: str
    source_count: int

    @property
    def rounding(self) -> str:
        """The rounding that is written, or rn."""
        return next((word for word in self.words if re.fullmatch(r"r[nzmp]i?|rna|rs", word)), "rn")


TYPE = r"(\w+?)(?:x(\d))?"


@cache
def parse(mnemonic: str) -> Spelling:
    """The parts of a mnemonic; ValueError if it is not cvt's."""
    packed = re.fullmatch(r"cvt\.pack\.sat\.(\w+)\.s32(?:\.b32)?", mnemonic)
    if packed:
        return Spelling(("pack",), packed[1], 2, "s32", 1)
    match = re.fullmatch(rf"cvt\.(.*?)\.?{TYPE}\.{TYPE}", mnemonic)
    if match is None:
        raise ValueError(f"{mnemonic!r} is not cvt")
    words, to, to_count, source, source_count = match.groups()
    return Spelling(tuple(filter(None, words.split("."))), to, int(to_count or 1), source, int(source_count or 1))


def width(name: str) -> int:
    """Bits from one element of a packed register to the next."""
    bits = (FLOATS.get(name) or WHOLES[name]).bits
    return 8 if bits == 6 else bits


def convert(mnemonic: str, registers: dict[str, int]) -> int:
    """The register d for the operand registers by name."""
    spelling = parse(mnemonic)
    fields: list[int] = []
    for name in ("a", "b", "e", "f"):
        if name in registers:
            step = width(spelling.source)
            mask = (1 << (FLOATS.get(spelling.source) or WHOLES[spelling.source]).bits) - 1
            places = reversed(range(spelling.source_count))
            fields += [registers[name] >> (step * place) & mask for place in places]
    results = []
    for place, field in enumerate(fields):
        random = random_bits(spelling, registers["rbits"], place) if "rs" in spelling.words else None
        scale = scale_of(spelling, registers, place)
        results.append(element(spelling, field, scale, random))
    if spelling.to_count == 1:
        (result,) = results
        whole = WHOLES.get(spelling.to)
        if whole and whole.signed and whole.bits == 8 and result & 0x80:
            return result | 0xFF00  # the sign fills the 16-bit register
        return result
    step = width(spelling.to)
    register = 0
    for result in results:  # the first operand is the highest
        register = register << step | result
    return (register | registers.get("c", 0) << (2 * step)) & 0xFFFFFFFF


def scale_of(spelling: Spelling, registers: dict[str, int], place: int) -> int | None:
    """The ue8m0 code that scales an element: n1 has one for both, n2 the higher one for the higher element."""
    if "scale" not in registers:
        return None
    one = any("n1::" in word for word in spelling.words)
    return (registers["scale"] if one or place == 1 else registers["scale"] >> 8) & 0xFF


def random_bits(spelling: Spelling, rbits: int, place: int) -> tuple[int, int]:
    """How many random bits an element has, and their value."""
    if spelling.to == "f16":
        return 13, (rbits >> 16 if place == 0 else rbits) & 0x1FFF
    if spelling.to == "bf16":
        return 16, (rbits >> 16 if place == 0 else rbits) & 0xFFFF
    high, low = rbits >> 16, rbits & 0xFFFF
    if spelling.to == "e2m1":  # bytes 3 and 1, then bytes 2 and 0
        high, low = rbits >> 16 & 0xFF00 | rbits >> 8 & 0xFF, rbits >> 8 & 0xFF00 | rbits & 0xFF
    half = high if place < 2 else low
    return 16, half if place % 2 else int(f"{half:016b}"[::-1], 2)


def element(spelling: Spelling, code: int, scale: int | None, random: tuple[int, int] | None) -> int:
    """The result of one element."""
    to, source = spelling.to, spelling.source
    sign, kind, value = decode(code, source)
    if scale is not None:
        if "n1" in " ".join(spelling.words) and kind == "finite" and abs(value) < smallest_normal(source):
            value = Fraction(0)
        if scale == 0xFF:
            kind = "nan"
        else:
            up = width(source) < width(to)
            value *= scaled(1, scale - 127 if up else 127 - scale)
    if kind == "nan":
        return nan(spelling, code)
    if to in WHOLES:
        result = to_whole(spelling, sign, kind, value)
    else:
        result = to_float(spelling, sign, kind, value, random)
    if "relu" in spelling.words and sign:
        return 0
    top = 1 << (width(to) - 1) if width(to) != 8 or to in ("e4m3", "e5m2") else 1 << 5
    return 0 if "pzo" in spelling.words and result == top and to not in WHOLES else result


def decode(code: int, name: str) -> tuple[int, Kind, Fraction]:
    """Sign, kind and value (of finite codes) of a code."""
    if name in WHOLES:
        whole = WHOLES[name]
        integer = code - (1 << whole.bits) if whole.signed and code >> (whole.bits - 1) else code
        return int(integer < 0), "finite", Fraction(integer, 1 << whole.point)
    form = FLOATS[name]
    code >>= form.unread
    fraction = code & ((1 << form.fraction) - 1)
    field = code >> form.fraction & ((1 << form.exponent) - 1)
    sign = code >> (form.exponent + form.fraction) if form.signed else 0
    top = field == (1 << form.exponent) - 1
    if top and form.specials == "ieee":
        return sign, "nan" if fraction else "infinity", Fraction(0)
    if top and form.specials == "last" and fraction == (1 << form.fraction) - 1:
        return sign, "nan", Fraction(0)
    if name == "ue8m0":
        magnitude = scaled(1, field - 127)
    elif field:
        magnitude = scaled(fraction + (1 << form.fraction), field - form.bias - form.fraction)
    else:
        magnitude = scaled(fraction, 1 - form.bias - form.fraction)
    return sign, "finite", -magnitude if sign else magnitude


def smallest_normal(name: str) -> Fraction:
    """The smallest normal number of a format."""
    return scaled(1, 1 - FLOATS[name].bias)


def nan(spelling: Spelling, code: int) -> int:
    """What becomes of a NaN: kept between f64 and the 16-bit formats and by cvt.rna and bf16 to f32, else one code."""
    to, source = spelling.to, spelling.source
    if to in WHOLES and to != "s2f6":
        return 0
    if spelling.rounding == "rna":  # the low 13 bits go
        return (code & 0xFFFFE000) - (0x2000 if "satfinite" in spelling.words else 0)
    if (to, source) == ("f32", "bf16"):
        return code << 16
    if "f64" in (to, source):
        wide, narrow = FLOATS[source], FLOATS[to]
        negative = code >> (wide.bits - 1)
        payload = code & ((1 << wide.fraction) - 1)
        moved = narrow.fraction - wide.fraction
        payload = payload << moved if moved > 0 else payload >> -moved
        quiet = 1 << (narrow.fraction - 1)
        exponent = ((1 << narrow.exponent) - 1) << narrow.fraction
        return negative << (narrow.bits - 1) | exponent | payload | quiet
    return NAN[to]


MODES = {"rn": "rne", "rz": "rz", "rm": "rm", "rp": "rp"}


def to_whole(spelling: Spelling, sign: int, kind: Kind, value: Fraction) -> int:
    """An integer or fixed-point result: rounded, then clamped."""
    whole = WHOLES[spelling.to]
    lowest = -(1 << (whole.bits - 1)) if whole.signed else 0
    highest = lowest + (1 << whole.bits) - 1
    if kind == "infinity":
        return (lowest if sign else highest) % (1 << whole.bits)
    exact = value * (1 << whole.point)
    floor = exact.numerator // exact.denominator
    rest = exact - floor
    mode = spelling.rounding.removesuffix("i")
    if mode == "rn":
        up = rest > Fraction(1, 2) or (rest == Fraction(1, 2) and floor % 2 == 1)
    else:
        up = rest > 0 and (mode == "rp" or (mode == "rz" and value < 0))
    return min(max(floor + up, lowest), highest) % (1 << whole.bits)


def to_float(spelling: Spelling, sign: int, kind: Kind, value: Fraction, random: tuple[int, int] | None) -> int:
    """A float result."""
    to, saturate = spelling.to, "satfinite" in spelling.words
    form = FLOATS[to]
    if not form.signed:
        sign, value = 0, abs(value)
    sign_bit = sign << (form.bits - 1)
    if kind == "infinity":
        magnitude = largest(to) if saturate or form.specials == "none" else beyond(to)
    elif random is not None:
        magnitude = stochastic(abs(value), to, saturate, *random)
    elif form.bits > 16:
        if spelling.rounding == "rna":
            return rna_tf32(sign, value, saturate)
        return encode(value, sign, to, MODES[spelling.rounding], saturate)  # type: ignore[arg-type]
    else:
        magnitude = look_up(abs(value), sign, to, spelling.rounding, saturate)
    return sign_bit | magnitude


@cache
def magnitudes(name: str) -> list[Fraction]:
    """The finite numbers of a format without sign, in ascending order; the index of a number is its code."""
    form = FLOATS[name]
    codes = range(1 << (form.exponent + form.fraction))
    decoded = [decode(code, name) for code in codes]
    return [number for _, kind, number in decoded if kind == "finite"]


def largest(name: str) -> int:
    """The code of the largest number."""
    form = FLOATS[name]
    all_ones = (1 << (form.exponent + form.fraction)) - 1
    last = {"none": all_ones, "last": all_ones - 1, "ieee": all_ones - (1 << form.fraction)}
    return last[form.specials] << form.unread


def beyond(name: str) -> int:
    """The code after the largest number: infinity, or the one NaN."""
    return largest(name) + (1 << FLOATS[name].unread)


@lru_cache(maxsize=1 << 14)
def look_up(magnitude: Fraction, sign: int, name: str, rounding: str, saturate: bool) -> int:
    """The code, without sign, of the neighbour that the rounding chooses."""
    numbers = magnitudes(name)
    below = bisect_right(numbers, magnitude) - 1
    if below < 0:  # smaller than everything that the format has: ue8m0 alone
        return 0
    if numbers[below] == magnitude:
        return below
    over = below + 1 == len(numbers)
    above = 2 * numbers[-1] - numbers[-2] if over else numbers[below + 1]  # where the next number would be
    if name == "ue8m0" and over:
        above = 2 * numbers[-1]
    if rounding == "rn":
        low, high = magnitude - numbers[below], above - magnitude
        up = high < low or (high == low and below % 2 == 1)
    else:
        up = rounding == ("rm" if sign else "rp")
    if up and over:
        return below if saturate or FLOATS[name].specials == "none" else below + 1
    return below + up


def stochastic(magnitude: Fraction, name: str, saturate: bool, bits: int, random: int) -> int:
    """Cut off at the target's last place; up if the bits that are cut off and the random ones add up to a carry."""
    if magnitude == 0:
        return 0
    form = FLOATS[name]
    exponent = max(floor_log2(magnitude), 1 - form.bias)
    units = magnitude / scaled(1, exponent - form.fraction)
    whole = units.numerator // units.denominator
    cut = (units - whole) * (1 << bits)
    up = cut.numerator // cut.denominator + random >= 1 << bits
    number = (whole + up) * scaled(1, exponent - form.fraction)
    return look_up(number, 0, name, "rn", saturate)


def rna_tf32(sign: int, value: Fraction, saturate: bool) -> int:
    """To nearest, ties away from zero: half a last place more, then cut off."""
    if value == 0:
        return sign << 31
    magnitude = abs(value)
    quantum = scaled(1, max(floor_log2(magnitude), -126) - 10)
    number = (magnitude / quantum + Fraction(1, 2)).__floor__() * quantum
    if number >= scaled(1, 128):
        return sign << 31 | (largest("tf32") if saturate else beyond("tf32"))
    return sign << 31 | encode(number, 0, "tf32", "rz")
