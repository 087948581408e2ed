"""Number formats of the machines, and what a code means in them: written for these tests, independent of tcsim.numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Format:
    """A binary format: sign, exponent, fraction."""

    exponent_bits: int
    fraction_bits: int
    bias: int
    specials: str  # "ieee": infinities and NaNs; "nan": the code of all ones; "none"
    unused: int = 0  # low bits of the container that are ignored
    container: type[np.unsignedinteger[Any]] = np.uint8

    @property
    def lowest(self) -> int:
        """Exponent of the smallest normal number, and of every subnormal one."""
        return 1 - self.bias

    @property
    def highest(self) -> int:
        """Exponent of the largest finite number."""
        return (1 << self.exponent_bits) - 1 - self.bias - (self.specials == "ieee")

    @property
    def bits(self) -> int:
        """Of the container that mean something, with the sign."""
        return 1 + self.exponent_bits + self.fraction_bits

    @property
    def unit(self) -> int:
        """Every finite number is a multiple of 2**unit."""
        return self.lowest - self.fraction_bits


FORMATS = {
    "f32": Format(8, 23, 127, "ieee", container=np.uint32),
    "tf32": Format(8, 10, 127, "ieee", unused=13, container=np.uint32),
    "bf16": Format(8, 7, 127, "ieee", container=np.uint16),
    "f16": Format(5, 10, 15, "ieee", container=np.uint16),
    "e5m2": Format(5, 2, 15, "ieee"),
    "e4m3": Format(4, 3, 7, "nan"),
    "e3m2": Format(3, 2, 3, "none"),
    "e2m3": Format(2, 3, 1, "none"),
    "e2m1": Format(2, 1, 1, "none"),
    "ue4m3": Format(4, 3, 7, "nan"),  # its sign bit is ignored
}


class Numbers(NamedTuple):
    """Arrays of one shape: (-1)**negative * magnitude * 2**unit, aligned at `exponent`."""

    negative: Array
    magnitude: Array  # int64; 0 for zeros, infinities and NaNs
    unit: Array
    exponent: Array
    nan: Array
    infinite: Array


def bit_length(x: Array) -> Array:
    """Bits of each integer from 0 to 2**62."""
    high = x >> 31
    return np.where(high > 0, 31 + np.frexp(high.astype(np.float64))[1], np.frexp(x.astype(np.float64))[1]).astype(
        np.int64
    )


def unpack(codes: Array, name: str, *, flush: bool = False, widen: str | None = None) -> Numbers:
    """What codes mean. `widen`: read as numbers of that format first; `flush`: subnormal numbers are zeros of their sign."""
    form = FORMATS[name]
    word = codes.astype(np.int64) >> form.unused
    field = (word >> form.fraction_bits) & ((1 << form.exponent_bits) - 1)
    fraction = word & ((1 << form.fraction_bits) - 1)
    negative = (word >> (form.bits - 1)) & 1 == 1
    top = field == (1 << form.exponent_bits) - 1
    none = np.zeros(codes.shape, bool)
    if form.specials == "ieee":
        infinite, nan = top & (fraction == 0), top & (fraction != 0)
    else:
        infinite, nan = none, none if form.specials == "none" else top & (fraction == (1 << form.fraction_bits) - 1)
    exponent = np.maximum(field, 1) - form.bias
    magnitude = np.where(infinite | nan, 0, fraction + ((field > 0).astype(np.int64) << form.fraction_bits))
    unit = exponent - form.fraction_bits
    lowest = form.lowest
    if widen is not None:
        lowest = FORMATS[widen].lowest
        exponent = np.where(magnitude > 0, np.maximum(unit + bit_length(magnitude) - 1, lowest), exponent)
    if flush:
        magnitude = np.where(unit + bit_length(magnitude) - 1 < lowest, 0, magnitude)
    return Numbers(negative, magnitude, unit, exponent, nan, infinite)


def scale_factors(codes: Array, name: str) -> Numbers:
    """What codes of block scales mean; never negative."""
    if name == "ue8m0":
        exponent = codes.astype(np.int64) - 127
        none = np.zeros(codes.shape, bool)
        return Numbers(none, np.ones_like(exponent), exponent, exponent, codes == 0xFF, none)
    return unpack(codes & 0x7F, name)
