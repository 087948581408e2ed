"""Conversion of codes from one number format to another: how a value is scaled, rounded and saturated.

What one element becomes is a `Conversion`, data alone; `convert` does it to arrays.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from tcsim.core.chunks import ELEMENTS, chunks
from tcsim.core.versions import PTX_MANUAL
from tcsim.lowering.traced import Traced, entries
from tcsim.numbers.codec import decode
from tcsim.numbers.formats import FORMATS, INFINITY, NAN, SUBNORMAL, Format
from tcsim.numbers.rounding import U64, Rounding, bit_length, round_narrow, round_to_code

Codes = npt.NDArray[Any]

_PTX = f"{PTX_MANUAL}, sections Alternate Floating-Point Data Formats and Fixed-point Data format"

OTHER_FORMATS: MappingProxyType[str, Format] = MappingProxyType(
    {
        row.name: row
        for row in (
            # two's complement in units of 2**-6: the fraction bits of an integer format
            Format("s2f6", "integer", 8, 8, fraction_bits=6, source=_PTX),
            Format("s16", "integer", 16, 16, source=_PTX),
            Format("u16", "integer", 16, 16, signed=False, source=_PTX),
            Format("u32", "integer", 32, 32, signed=False, source=_PTX),
            Format("s2", "integer", 2, 8, source=_PTX),
            Format("u2", "integer", 2, 8, signed=False, source=_PTX),
        )
    }
)
"""Formats that only conversions read or write."""


def conversion_format(name: str) -> Format:
    """A format of `tcsim.FORMATS` or of `OTHER_FORMATS`.

    >>> conversion_format("s2").bits
    2
    """
    return FORMATS[name] if name in FORMATS else OTHER_FORMATS[name]


def nan_code(target: Format) -> int:
    """The code that a converter writes for every NaN.

    A float format without NaN gets its largest number, and so does fixed point; an integer gets 0. The low 13 bits of
    tf32 are zeros, as in every result of a conversion.

    >>> hex(nan_code(FORMATS["e5m2"])), hex(nan_code(FORMATS["e2m1"])), nan_code(FORMATS["s8"])
    ('0x7f', '0x7', 0)
    """
    if target.kind != "float":
        return (1 << (target.bits - 1)) - 1 if target.fraction_bits else 0
    code = target.largest_code if target.canonical_nan is None else target.canonical_nan
    return code >> target.ignored_low_bits << target.ignored_low_bits


def numbers(codes: Codes, format: Format) -> npt.NDArray[np.float64]:
    """The values of codes, which float64 holds exactly.

    >>> numbers(np.uint8([0x7F, 0x80]), OTHER_FORMATS["s2f6"])
    array([ 1.984375, -2.      ])
    """
    if format.kind == "float":
        return format.values(codes)
    return decode(codes, format) / (1 << format.fraction_bits)


@dataclass(frozen=True)
class Conversion:
    """What becomes of one element."""

    source: Format
    target: Format
    rounding: Rounding = "rne"  # ignored with random bits
    saturate: bool = False  # .satfinite: infinity and larger numbers become the largest number; integers always clamp
    relu: bool = False  # negative results, -0 too, become +0
    positive_zero: bool = False  # .pzo: -0 becomes +0
    scale: Literal["", "multiply", "divide"] = ""  # by a power of two, exactly, before the one rounding
    flush_source: bool = False  # subnormal sources are zeros of the same sign
    random_bits: int = 0  # .rs: bits added below the last place that is kept; the carry out of them rounds
    nan: int | None = 0  # the code of every NaN; None: sign and leading payload bits are kept
    quiet: bool = True  # a kept payload gets the quiet bit
    nan_decrement: int = 0  # what is subtracted from a kept NaN, which then may be an infinity


# --- one element ----------------------------------------------------------------------------------------------------


@dataclass
class _Values:
    """Values as (-1)**sign * significand * 2**exponent, and what kind each is."""

    sign: U64
    significand: U64  # of NaN and infinity: 0
    exponent: npt.NDArray[np.int64]
    kind: npt.NDArray[np.uint8]


def _values(codes: Codes, format: Format) -> _Values:
    if format.kind == "float":
        fields = format.fields(codes)
        finite = np.where(fields.kind >= INFINITY, np.uint64(0), fields.significand)
        exponent = fields.exponent.astype(np.int64) - format.fraction_bits
        return _Values(fields.sign.astype(np.uint64), finite, exponent, fields.kind)
    raw = codes.astype(np.uint64)
    top = np.uint64(1 << (format.bits - 1)) if format.signed else np.uint64(0)
    negative = (raw & top) != 0
    magnitude = np.where(negative, np.uint64(1 << format.bits) - raw, raw)
    exponent = np.full(raw.shape, -format.fraction_bits, np.int64)
    return _Values(negative.astype(np.uint64), magnitude, exponent, np.full(raw.shape, SUBNORMAL + 1, np.uint8))


def convert(codes: Codes, conversion: Conversion, scale: Codes | None = None, random: Codes | None = None) -> Codes:
    """The code in `conversion.target` of every code of `conversion.source`.

    `scale` holds ue8m0 codes, `random` integers below 2**random_bits; both broadcast to the shape of `codes`.

    >>> e4m3 = Conversion(FORMATS["f32"], FORMATS["e4m3"], saturate=True, nan=0x7F)
    >>> [hex(code) for code in convert(np.float32([1.0, 1000.0, np.nan]).view(np.uint32), e4m3)]
    ['0x38', '0x7e', '0x7f']
    """
    if conversion.source.container_bits <= 16 and scale is None and random is None:
        table: Codes = entries(_table(conversion), codes)
        return table
    if isinstance(codes, Traced):
        return _convert(codes, conversion, scale, random)
    flat = [None if x is None else np.broadcast_to(x, codes.shape).reshape(-1) for x in (scale, random)]
    values, out = codes.reshape(-1), np.empty(codes.size, conversion.target.dtype)
    for part in chunks(out.size, most=ELEMENTS):
        out[part] = _convert(values[part], conversion, *(None if x is None else x[part] for x in flat))
    return out.reshape(codes.shape)


@cache
def _table(conversion: Conversion) -> Codes:
    source = conversion.source
    return _convert(np.arange(1 << source.container_bits, dtype=source.dtype), conversion, None, None)


def _convert(codes: Codes, conversion: Conversion, scale: Codes | None, random: Codes | None) -> Codes:
    values = _values(codes, conversion.source)
    if conversion.flush_source:
        values.significand = np.where(values.kind == SUBNORMAL, np.uint64(0), values.significand)
    not_a_number = values.kind == NAN
    if scale is not None:
        power = scale.astype(np.int64) - FORMATS["ue8m0"].bias
        values.exponent = values.exponent + (power if conversion.scale == "multiply" else -power)
        not_a_number = not_a_number | (scale == FORMATS["ue8m0"].canonical_nan)
    target = conversion.target
    if target.kind == "float":
        out = _to_float(values, conversion, random)
    else:
        out = _to_integer(values, conversion)
    negative = (out & _sign_bit(target)) != 0
    if conversion.relu:
        out = np.where(negative, np.uint64(0), out)
    if conversion.positive_zero:
        out = np.where(out == _sign_bit(target), np.uint64(0), out)
    return np.where(not_a_number, _nan_codes(codes, conversion), out).astype(target.dtype)


def _sign_bit(format: Format) -> np.uint64:
    """The bit that is set in negative codes; 0 if there is none."""
    if not format.signed:
        return np.uint64(0)
    return np.uint64(1 << (format.bits + format.ignored_low_bits - 1))


def _to_float(values: _Values, conversion: Conversion, random: Codes | None) -> U64:
    target = conversion.target
    sign = values.sign if target.signed else np.zeros_like(values.sign)  # without a sign bit the magnitude counts
    significand, exponent, rounding = values.significand, values.exponent, conversion.rounding
    if random is not None:
        significand, exponent = _dithered(significand, exponent, conversion, random)
        rounding = "rne"  # exact now, but for overflow
    if conversion.source.kind != "float" and conversion.source.bits > 53:
        zeros = np.zeros_like(significand)
        out = round_to_code(sign, zeros, significand, exponent, target, rounding, conversion.saturate)
    else:
        out = round_narrow(sign, significand, exponent, target, rounding, conversion.saturate)
    above = conversion.saturate or target.nan == "none"
    infinite = np.uint64(target.largest_code if above else target.largest_code + 1)
    out = np.where(values.kind == INFINITY, infinite | (sign << np.uint64(target.sign_shift)), out)
    return out << np.uint64(target.ignored_low_bits)


def _dithered(
    significand: U64, exponent: npt.NDArray[np.int64], conversion: Conversion, random: Codes
) -> tuple[U64, npt.NDArray[np.int64]]:
    """Truncate to the target's last place after adding random bits right below it: the carry out of them rounds."""
    target, bits = conversion.target, conversion.random_bits
    leading = exponent + bit_length(significand) - 1
    quantum = np.maximum(leading, target.minimum_exponent) - target.fraction_bits
    right = np.clip(quantum - bits - exponent, 0, 63).astype(np.uint64)
    left = np.clip(exponent - quantum + bits, 0, 63).astype(np.uint64)
    total = ((significand >> right) << left) + random.astype(np.uint64)
    return total >> np.uint64(bits), quantum


def _to_integer(values: _Values, conversion: Conversion) -> U64:
    """Round to a multiple of the target's unit, then clamp to its range. float64 is exact here."""
    target = conversion.target
    finite = np.ldexp(values.significand.astype(np.float64), values.exponent + target.fraction_bits)
    magnitude = np.where(values.kind == INFINITY, np.inf, finite)
    number = np.where(values.sign == 1, -magnitude, magnitude)
    rounded = _TO_INTEGRAL[conversion.rounding](number)
    low = -(1 << (target.bits - 1)) if target.signed else 0
    high = (1 << (target.bits - int(target.signed))) - 1
    return np.clip(rounded, low, high).astype(np.int64).view(np.uint64) & np.uint64(target.code_mask)


def _ties_away(x: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    return np.copysign(np.floor(np.abs(x) + 0.5), x)


_TO_INTEGRAL: dict[Rounding, Callable[[npt.NDArray[np.float64]], npt.NDArray[np.float64]]] = {
    "rne": np.rint, "rz": np.trunc, "rm": np.floor, "rp": np.ceil, "rna": _ties_away,
}  # fmt: skip


def _nan_codes(codes: Codes, conversion: Conversion) -> U64:
    """What a NaN becomes, for every code (meaningless where it is a number)."""
    source, target = conversion.source, conversion.target
    if conversion.nan is not None:
        return np.full(codes.shape, conversion.nan, np.uint64)
    fields = source.fields(codes)
    payload = fields.significand & np.uint64((1 << source.fraction_bits) - 1)
    wider = target.fraction_bits - source.fraction_bits
    payload = payload << np.uint64(wider) if wider >= 0 else payload >> np.uint64(-wider)
    if conversion.quiet:
        payload = payload | np.uint64(1 << (target.fraction_bits - 1))
    head = (fields.sign.astype(np.uint64) << np.uint64(target.sign_shift)) | np.uint64(target.largest_code + 1)
    return ((head | payload) - np.uint64(conversion.nan_decrement)) << np.uint64(target.ignored_low_bits)
