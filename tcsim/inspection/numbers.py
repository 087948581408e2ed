"""One number of one format taken apart: its fields, its neighbours, and what every rounding makes of a value."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, get_args

import numpy as np

from tcsim.core.errors import FormatError, shortened
from tcsim.numbers.codec import decode, encode
from tcsim.numbers.formats import CLASS_NAMES, Format
from tcsim.numbers.formats import format as find_format
from tcsim.numbers.rounding import Rounding, round_to_code

LONGEST_TEXT = 2000
"""Letters of a number: the smallest f64, written out, has 1,076."""
LARGEST_EXPONENT = 1000
"""Of ten: beyond every format, and small enough that the exact value stays small."""

_CODE = re.compile(r"0x_?[0-9a-f]+(_[0-9a-f]+)*|0b_?[01]+(_[01]+)*")
_WORD = re.compile(r"[+-]?(inf|infinity|nan)")
_DECIMAL = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)(e(?P<exponent>[+-]?[0-9]{1,9}))?")
_FRACTION = re.compile(r"[+-]?[0-9]+/[0-9]+")
_BEYOND = Fraction(2**2000)
"""What is larger overflows in every format as this does, and what is smaller than its inverse vanishes as that does."""
_KEPT = 120
"""Significant bits of an exact value that are given to the rounding; below them one sticky bit says if there are more."""


@dataclass(frozen=True)
class NumberCode:
    """A code and what it stands for."""

    code: int
    hex: str
    value: float | int

    def as_dict(self) -> dict[str, Any]:
        """The keys of JSON."""
        return {"code": self.code, "hex": self.hex, "value": self.value}


@dataclass(frozen=True)
class NumberReport:
    """What `inspect_number` answers."""

    format: Format
    asked: str
    exact: str  # the value asked for, as a fraction or a word; of a code: its own
    code: NumberCode  # the code asked for; of a value: the one to nearest even
    kind: str  # zero, subnormal, normal, infinity, nan; of integers: integer
    bits: str  # the code's bits, fields apart
    fields: dict[str, int]  # sign, exponent field, fraction field, as far as the format has them
    exponent: int | None  # unbiased
    significand: str | None  # in binary, hidden bit included
    below: NumberCode | None  # the next smaller value
    above: NumberCode | None  # the next larger value
    roundings: dict[str, NumberCode]  # of a value; of a code none
    saturated: NumberCode | None  # of a value: to nearest even with saturation

    def as_dict(self) -> dict[str, Any]:
        """The keys of JSON."""
        return {
            "format": self.format.name, "asked": self.asked, "exact": self.exact, "code": self.code.as_dict(),
            "class": self.kind, "bits": self.bits, "fields": self.fields, "exponent": self.exponent,
            "significand": self.significand,
            "below": self.below.as_dict() if self.below else None,
            "above": self.above.as_dict() if self.above else None,
            "roundings": {name: item.as_dict() for name, item in self.roundings.items()},
            "saturated": self.saturated.as_dict() if self.saturated else None,
        }  # fmt: skip


def inspect_number(format: str | Format, text: str) -> NumberReport:
    """Take a number apart. `text` is a code if it begins with 0x or 0b, else a value: decimal, a fraction, inf or nan.

    A decimal is taken exactly: "0.1" is one tenth and rounded once.

    Raises FormatError for an unknown format, a text that is neither, a code that the format does not have, or a value
    that an integer format cannot hold.

    >>> report = inspect_number("e4m3", "0.3")
    >>> report.code.hex, report.code.value, report.below.value, report.above.value, report.roundings["rp"].hex
    ('0x2a', 0.3125, 0.28125, 0.34375, '0x2a')
    """
    kind = find_format(format)
    stripped = text.strip().lower() if len(text) <= LONGEST_TEXT else ""
    call = f"number {kind.name} {shortened(text)}"
    if _CODE.fullmatch(stripped):
        code = int(stripped.replace("_", ""), 0)
        if code & ~kind.code_mask:
            raise FormatError(
                f"{call} is not a code of {kind.name}, which has {kind.bits + kind.ignored_low_bits} bits: valid "
                f"codes are 0x0 to {kind.code_mask:#x}"
            )
        return _report(kind, text, None, code, {}, None)
    value = _value(stripped, call)
    if kind.kind != "float":
        value = Fraction(0) if value == 0 else value
        if isinstance(value, float) or value.denominator != 1:
            raise FormatError(f"{call}: {kind.name} has whole numbers only; valid: codes like 0x1, integers")
        low, high = kind.limits
        if not low <= value <= high:
            raise FormatError(f"{call} is outside {kind.name}; valid: {low} to {high}")
        code = int(encode(int(value), kind))
        return _report(kind, text, value, code, {}, _number(kind, int(encode(int(value), kind, saturate=True))))
    if (isinstance(value, float) and math.isnan(value)) and kind.canonical_nan is None:
        encode(value, kind)  # says that the format has no NaN
    roundings = {mode: _number(kind, _rounded(value, kind, mode, False)) for mode in get_args(Rounding)}
    saturated = None
    if not (isinstance(value, float) and math.isnan(value)):
        saturated = _number(kind, _rounded(value, kind, "rne", True))
    return _report(kind, text, value, roundings["rne"].code, roundings, saturated)


def _value(text: str, call: str) -> Fraction | float:
    if _WORD.fullmatch(text):
        return float(text)
    found = _DECIMAL.fullmatch(text) or _FRACTION.fullmatch(text)
    exponent = found.groupdict().get("exponent") if found else None
    if found and abs(int(exponent or 0)) <= LARGEST_EXPONENT:
        try:
            value = Fraction(text)
            return -0.0 if not value and text.startswith("-") else value
        except ZeroDivisionError:
            pass
    raise FormatError(
        f"{call}: neither a code nor a value; valid: a code like 0x3c or 0b111100, a number like 1.5, -1e-3 or 1/3 of at "
        f"most {LONGEST_TEXT} letters with an exponent of at most {LARGEST_EXPONENT}, inf, nan"
    )


def _rounded(value: Fraction | float, format: Format, mode: Rounding, saturate: bool) -> int:
    """The code of a value after one rounding of its exact self."""
    if isinstance(value, float):
        return int(encode(value, format, rounding=mode, saturate=saturate))
    magnitude = abs(value)
    if magnitude == 0:
        return int(encode(0.0, format))
    magnitude = min(max(magnitude, 1 / _BEYOND), _BEYOND)
    scale = _KEPT - (magnitude.numerator.bit_length() - magnitude.denominator.bit_length())
    scaled = magnitude * Fraction(2) ** scale
    whole = scaled.numerator // scaled.denominator
    whole = whole << 1 | int(scaled.denominator != 1)
    high, low = (np.array([part], np.uint64) for part in (whole >> 64, whole & ((1 << 64) - 1)))
    sign = np.array([int(value < 0)], np.uint8)
    exponent = np.array([-scale - 1], np.int64)
    code = int(round_to_code(sign, high, low, exponent, format, mode, saturate)[0])
    return code << format.ignored_low_bits


def _number(format: Format, code: int) -> NumberCode:
    value = decode(np.array([code], format.dtype), format)[0].item()
    digits = -(-(format.bits + format.ignored_low_bits) // 4)
    return NumberCode(code, f"0x{code:0{digits}x}", value)


def _report(
    format: Format,
    asked: str,
    value: Fraction | float | None,
    code: int,
    roundings: dict[str, NumberCode],
    saturated: NumberCode | None,
) -> NumberReport:
    number = _number(format, code)
    exact = str(value) if value is not None else str(number.value)
    if isinstance(value, Fraction) and value.denominator != 1:
        exact = f"{value.numerator}/{value.denominator}"
    whole = f"{code:0{format.bits + format.ignored_low_bits}b}"
    below, above = _neighbours(format, code)
    if format.kind != "float":
        return NumberReport(
            format,
            asked,
            exact,
            number,
            format.kind,
            whole,
            {"code": code},
            None,
            None,
            below,
            above,
            roundings,
            saturated,
        )
    parts = format.fields(np.array([code], format.dtype))
    name = CLASS_NAMES[int(parts.kind[0])]
    raw = code >> format.ignored_low_bits
    fields = {"sign": raw >> format.sign_shift & 1} if format.signed else {}
    fields["exponent"] = raw >> format.fraction_bits & ((1 << format.exponent_bits) - 1)
    if format.fraction_bits:
        fields["fraction"] = raw & ((1 << format.fraction_bits) - 1)
    cuts = [int(format.signed), format.exponent_bits, format.fraction_bits, format.ignored_low_bits]
    pieces, at = [], 0
    for cut in cuts:
        if cut:
            pieces.append(whole[at : at + cut])
        at += cut
    finite = name in ("subnormal", "normal")
    digits = f"{int(parts.significand[0]):0{format.fraction_bits + 1}b}"
    return NumberReport(
        format, asked, exact, number, name, " ".join(pieces), fields, int(parts.exponent[0]) if finite else None,
        (digits[:1] + ("." + digits[1:] if format.fraction_bits else "")) if finite else None,
        below, above, roundings, saturated,
    )  # fmt: skip


def _neighbours(format: Format, code: int) -> tuple[NumberCode | None, NumberCode | None]:
    """The codes of the next smaller and next larger value; None beyond the ends, and for NaN and infinities."""
    if format.kind != "float":
        low, high = format.limits
        value = _number(format, code).value
        found = [
            _number(format, int(encode(int(x), format))) if low <= x <= high else None for x in (value - 1, value + 1)
        ]
        return found[0], found[1]
    raw = code >> format.ignored_low_bits
    magnitude = raw & ((1 << format.sign_shift) - 1)
    negative = bool(format.signed and raw >> format.sign_shift & 1)
    if magnitude > format.largest_code:
        return None, None
    place = -magnitude if negative else magnitude
    return _at(format, place - 1), _at(format, place + 1)


def _at(format: Format, place: int) -> NumberCode | None:
    """The number that lies this many codes above zero."""
    if abs(place) > format.largest_code or (place < 0 and not format.signed):
        return None
    sign = (1 << format.sign_shift) if place < 0 else 0
    return _number(format, (abs(place) | sign) << format.ignored_low_bits)
