"""Number formats as data: what each bit of a code means.

A *code* is the bit pattern of one value in an unsigned integer. A format is a row of `FORMATS`; everything that
decodes, encodes, packs or adds reads that row.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import Literal, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from tcsim.core.display import Shown
from tcsim.core.errors import FormatError, listing, nearest, shortened
from tcsim.core.versions import PTX_MANUAL
from tcsim.lowering.traced import asarray
from tcsim.numbers.names import meant

_T = TypeVar("_T", bound=np.generic)
ZERO, SUBNORMAL, NORMAL, INFINITY, NAN = range(5)
CLASS_NAMES = ("zero", "subnormal", "normal", "infinity", "nan")
NO_EXPONENT = -16_000
"""Stands for the exponent of a zero: the sum of two fits int16 and lies below every other exponent."""


class Fields(NamedTuple):
    """The parts of codes: value = (-1)**sign * significand * 2**(exponent - fraction_bits) for finite classes.

    A subnormal keeps the smallest exponent of its format and a significand below 2**fraction_bits.
    """

    sign: npt.NDArray[np.uint8]  # 1 for negative
    exponent: npt.NDArray[np.int32]  # unbiased
    significand: npt.NDArray[np.uint64]  # integer, hidden bit included
    kind: npt.NDArray[np.uint8]  # ZERO, SUBNORMAL, NORMAL, INFINITY or NAN: an index of CLASS_NAMES


@dataclass(frozen=True)
class Format(Shown):
    """One number format.

    >>> e4m3 = tcsim.format("e4m3")
    >>> e4m3.largest, e4m3.values(np.uint8([0x38, 0x7E])), e4m3.exponents(np.uint8([0x38, 0x40]))
    (448.0, array([  1., 448.]), array([0, 1], dtype=int16))
    >>> e4m3.fields(np.uint8([0xC4])).significand
    array([12], dtype=uint64)
    """

    name: str  # as PTX spells the type
    kind: Literal["float", "integer", "bit"]  # how a code is read
    bits: int  # width of a code, padding excluded
    container_bits: int  # width of the unsigned integer that holds one code
    exponent_bits: int = 0  # width of the exponent field
    fraction_bits: int = 0  # width of the fraction field: the hidden bit is not counted
    bias: int = 0  # exponent field minus bias is the exponent
    signed: bool = True  # has a sign bit, or is two's complement
    sign_magnitude: bool = False  # an integer with a sign bit of its own on top, not in two's complement
    zero_bits: int = 0  # bits of a code that must be 0
    infinity: bool = False  # all-ones exponent with zero fraction is an infinity
    nan: Literal["ieee", "all_ones", "none"] = "none"  # which codes are NaN: any fraction, only all ones, or none
    zero: bool = True  # a zero exponent field means zero or subnormal
    ignored_low_bits: int = 0  # low bits of the container that the hardware does not read
    canonical_nan: int | None = None  # the NaN that the hardware writes where it makes one (measured on H200)
    source: str = ""  # where the facts of this row come from

    @cached_property
    def dtype(self) -> np.dtype:
        """The unsigned NumPy dtype of an array of codes."""
        return np.dtype(f"u{self.container_bits // 8}")

    @cached_property
    def code_mask(self) -> int:
        """The container's bits that a valid code may set."""
        return ((1 << (self.bits + self.ignored_low_bits)) - 1) & ~self.zero_bits

    @cached_property
    def minimum_exponent(self) -> int:
        """The exponent of the smallest normal number, which subnormals share."""
        return 1 - self.bias if self.zero else -self.bias

    @cached_property
    def sign_shift(self) -> int:
        """The position of the sign bit inside the code without its ignored low bits."""
        return self.bits - 1 if self.sign_magnitude else self.exponent_bits + self.fraction_bits

    @cached_property
    def largest_code(self) -> int:
        """The code, sign and ignored bits left out, of the largest finite number."""
        top = (1 << self.sign_shift) - 1
        if self.infinity:
            return top - (1 << self.fraction_bits)
        return top - 1 if self.nan == "all_ones" else top

    @cached_property
    def infinity_code(self) -> int | None:
        """The code of +infinity without ignored bits, or None."""
        return self.largest_code + 1 if self.infinity else None

    @cached_property
    def largest(self) -> float:
        """The largest finite value."""
        if self.kind != "float":
            return float(self.limits[1])
        code = np.array([self.largest_code << self.ignored_low_bits], dtype=self.dtype)
        return float(self.values(code)[0])

    @cached_property
    def limits(self) -> tuple[int, int]:
        """The smallest and the largest integer of an integer format."""
        high = ((1 << (self.bits - int(self.signed))) - 1) & ~self.zero_bits
        return (-high if self.sign_magnitude else -high - 1) if self.signed else 0, high

    def fields(self, codes: npt.ArrayLike) -> Fields:
        """Split float codes into sign, exponent, significand and class.

        Bits above the code's width, and ignored low bits, do not count.

        Raises FormatError for an integer format.
        """
        if self.kind != "float":
            raise FormatError(f"{self.name} is an integer format: it has no exponent; decode() gives its values")
        raw = asarray(codes).astype(np.uint64) >> np.uint64(self.ignored_low_bits)
        fraction = raw & np.uint64((1 << self.fraction_bits) - 1)
        field = ((raw >> np.uint64(self.fraction_bits)) & np.uint64((1 << self.exponent_bits) - 1)).astype(np.int32)
        sign = (raw >> np.uint64(self.sign_shift)) & np.uint64(1) if self.signed else np.zeros_like(raw)
        hidden = np.ones(raw.shape, bool) if not self.zero else field > 0
        kind = np.where(hidden, NORMAL, np.where(fraction > 0, SUBNORMAL, ZERO)).astype(np.uint8)
        top = field == (1 << self.exponent_bits) - 1
        if self.nan == "ieee":
            kind = np.where(top & (fraction > 0), np.uint8(NAN), kind)
        elif self.nan == "all_ones":
            kind = np.where(top & (fraction == (1 << self.fraction_bits) - 1), np.uint8(NAN), kind)
        if self.infinity:
            kind = np.where(top & (fraction == 0), np.uint8(INFINITY), kind)
        significand = fraction | (hidden.astype(np.uint64) << np.uint64(self.fraction_bits))
        exponent = np.where(hidden, field - self.bias, self.minimum_exponent).astype(np.int32)
        return Fields(sign.astype(np.uint8), exponent, significand, kind)

    def values(self, codes: npt.NDArray[np.unsignedinteger]) -> npt.NDArray[np.float64]:
        """Decode float codes to float64, which holds every value of every format exactly."""
        if self.container_bits <= 16:
            return _looked_up(self._value_table, codes)
        if self.bits == 64:
            return codes.view(np.float64)
        kept = codes & np.uint32(0xFFFFFFFF ^ ((1 << self.ignored_low_bits) - 1))
        with np.errstate(invalid="ignore"):  # a signalling NaN
            return kept.view(np.float32).astype(np.float64)

    def exponents(self, codes: npt.NDArray[np.unsignedinteger]) -> npt.NDArray[np.int16]:
        """The unnormalised exponent of every code; `NO_EXPONENT` where the value is zero or not finite."""
        if self.container_bits <= 16:
            return _looked_up(self._exponent_table, codes)
        if self.bits + self.ignored_low_bits != 32 or not self.infinity:
            return self._exponents(self.fields(codes))
        magnitude = codes & np.uint32(0x7FFFFFFF ^ ((1 << self.ignored_low_bits) - 1))
        field = (magnitude >> np.uint32(31 - self.exponent_bits)).astype(np.int16)
        none = (magnitude == 0) | (field == (1 << self.exponent_bits) - 1)
        return np.where(none, np.int16(NO_EXPONENT), np.maximum(field, np.int16(1)) - np.int16(self.bias))

    @staticmethod
    def _exponents(parts: Fields) -> npt.NDArray[np.int16]:
        finite = (parts.kind == NORMAL) | (parts.kind == SUBNORMAL)
        return np.where(finite, parts.exponent, NO_EXPONENT).astype(np.int16)

    @cached_property
    def _all_fields(self) -> Fields:
        return self.fields(np.arange(1 << self.container_bits, dtype=np.uint32))

    @cached_property
    def _exponent_table(self) -> npt.NDArray[np.int16]:
        return self._exponents(self._all_fields)

    @cached_property
    def _value_table(self) -> npt.NDArray[np.float64]:
        parts = self._all_fields
        values = np.ldexp(parts.significand.astype(np.float64), parts.exponent - self.fraction_bits)
        values[parts.kind == INFINITY] = np.inf
        values[parts.kind == NAN] = np.nan
        return np.where(parts.sign == 1, -values, values)


def _looked_up(table: npt.NDArray[_T], codes: npt.NDArray[np.unsignedinteger]) -> npt.NDArray[_T]:
    """Entries of a table: as `table[codes]`, in a third of the time. `take` refuses indices of 64 bits without a sign."""
    return table.take(codes if codes.itemsize < 8 else codes.astype(np.int64))


def _float(name: str, exponent_bits: int, fraction_bits: int, bias: int, **rest: object) -> Format:
    bits = exponent_bits + fraction_bits + (1 if rest.get("signed", True) else 0)
    container = 1 << max(3, (bits + int(str(rest.get("ignored_low_bits", 0))) - 1).bit_length())
    return Format(name, "float", bits, container, exponent_bits, fraction_bits, bias, **rest)  # type: ignore[arg-type]


_PTX = "PTX ISA, section Fundamental Types and Alternate Floating-Point Data Formats"
_OCP8 = "OCP 8-bit Floating Point Specification 1.0"
_RUBIN = f"{PTX_MANUAL}, sections Matrix fragments and Matrix Shape of tcgen05: S1Z4M11, -2047 to 2047; the split by its name"
_MX = "OCP Microscaling Formats Specification 1.0"

_ROWS = (
    _float("f16", 5, 10, 15, infinity=True, nan="ieee", canonical_nan=0x7FFF, source="IEEE 754 binary16"),
    _float("bf16", 8, 7, 127, infinity=True, nan="ieee", canonical_nan=0x7FFF, source=_PTX),
    # an f32 bit pattern whose low 13 bits the tensor core does not read
    _float("tf32", 8, 10, 127, infinity=True, nan="ieee", ignored_low_bits=13, canonical_nan=0x7FFFFFFF, source=_PTX),
    _float("e4m3", 4, 3, 7, nan="all_ones", canonical_nan=0x7F, source=_OCP8),
    _float("e5m2", 5, 2, 15, infinity=True, nan="ieee", canonical_nan=0x7F, source=_OCP8),
    _float("e3m2", 3, 2, 3, source=_MX),
    _float("e2m3", 2, 3, 1, source=_MX),
    _float("e2m1", 2, 1, 1, source=_MX),
    # a power of two; no zero, no sign; 0x00 is 2**-127
    _float("ue8m0", 8, 0, 127, signed=False, nan="all_ones", zero=False, canonical_nan=0xFF, source=_MX),
    # e4m3 whose sign bit the hardware ignores
    _float("ue4m3", 4, 3, 7, signed=False, nan="all_ones", canonical_nan=0x7F, source=_PTX),
    # a scale format of sm_107: no sign, no infinity
    _float("ue5m3", 5, 3, 15, signed=False, nan="all_ones", canonical_nan=0xFF, source=_PTX),
    _float("f32", 8, 23, 127, infinity=True, nan="ieee", canonical_nan=0x7FFFFFFF, source="IEEE 754 binary32"),
    _float("f64", 11, 52, 1023, infinity=True, nan="ieee", canonical_nan=0xFFF8 << 48, source="IEEE 754 binary64"),
    Format("s8", "integer", 8, 8, source=_PTX),
    Format("u8", "integer", 8, 8, signed=False, source=_PTX),
    Format("s4", "integer", 4, 8, source=_PTX),
    Format("u4", "integer", 4, 8, signed=False, source=_PTX),
    Format("b1", "bit", 1, 8, signed=False, source=_PTX),
    Format("s32", "integer", 32, 32, source=_PTX),
    # a sign, four bits that must be 0, a magnitude: 2**15 stands for minus zero, which counts as 0
    Format("s1z4m11", "integer", 16, 16, sign_magnitude=True, zero_bits=0x7800, source=_RUBIN),
)

FORMATS: MappingProxyType[str, Format] = MappingProxyType({row.name: row for row in _ROWS})


def format(name: str | Format) -> Format:
    """Look a format up by its PTX name.

    Raises FormatError for a name that is not in `FORMATS`.

    >>> tcsim.format("bf16").exponent_bits
    8
    """
    if isinstance(name, Format):
        return name
    if not isinstance(name, str) or name not in FORMATS:
        known = meant(name) if isinstance(name, str) else ""
        why = f": {known}" if known else f"; nearest: {listing(nearest(str(name), FORMATS, 2))}"
        raise FormatError(f"no number format {shortened(name)}{why}; all: {listing(FORMATS)}")
    return FORMATS[name]
