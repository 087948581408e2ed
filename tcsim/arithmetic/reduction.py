"""What one element of a reduction in memory becomes: integers, bits and floats, as codes.

Source: PTX ISA, sections cp.reduce.async.bulk (operations, rounding, subnormals) and red, atom (inc, dec). It does
not say what a NaN becomes; measured on an NVIDIA H200: add gives the format's canonical NaN, but of f64 the source's or the
old NaN (`add_f64`); min and max give the other operand's number, as PTX's `min` does.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from tcsim.numbers import ieee
from tcsim.numbers.formats import FORMATS

Codes = npt.NDArray[Any]


@dataclass(frozen=True)
class Reduction:
    """An operation and the type of the elements."""

    operation: str  # "add", "min", "max", "inc", "dec", "and", "or", "xor"
    type: str  # "u32", "s64", "b32", "f16", "bf16", "f32", "f64"

    @property
    def bits(self) -> int:
        """Of one element."""
        return int(self.type.lstrip("subf"))

    @property
    def float(self) -> bool:
        """Whether the elements are floats."""
        return self.type in FORMATS and FORMATS[self.type].kind == "float"

    @property
    def ordered(self) -> bool:
        """Whether the result depends on the order in which several operands come: sums of floats round, inc and dec wrap."""
        return self.operation in ("inc", "dec") or (self.float and self.operation == "add")


def _increment(old: Codes, top: Codes) -> Codes:
    return np.where(old >= top, old.dtype.type(0), old + old.dtype.type(1))


def _decrement(old: Codes, top: Codes) -> Codes:
    return np.where((old == 0) | (old > top), top, old - old.dtype.type(1))


_INTEGER: MappingProxyType[str, Callable[[Codes, Codes], Codes]] = MappingProxyType(
    {
        "add": np.add,  # modulo 2**bits: a signed sum has the same bits
        "min": np.minimum,
        "max": np.maximum,
        "inc": _increment,
        "dec": _decrement,
        "and": np.bitwise_and,
        "or": np.bitwise_or,
        "xor": np.bitwise_xor,
    }
)


def reduce_codes(reduction: Reduction, old: Codes, new: Codes) -> Codes:
    """The codes that stay: `old` from the destination and `new` from the source, unsigned arrays of the type's width.

    >>> reduce_codes(Reduction("min", "s32"), np.array([1], np.uint32), np.array([0xFFFF_FFFF], np.uint32)).tolist()
    [4294967295]
    """
    if reduction.float:
        return _reduce_floats(reduction, old, new)
    if reduction.type[0] == "s" and reduction.operation in ("min", "max"):
        signed = f"<i{reduction.bits // 8}"
        found = _INTEGER[reduction.operation](old.view(signed), new.view(signed))
        return np.ascontiguousarray(found).view(old.dtype)
    return _INTEGER[reduction.operation](old, new)


F64_INVALID = 0xFFF8_0000_0000_0000
"""What infinity minus infinity gives in memory (measured on an H200)."""


def add_f64(old: Codes, new: Codes) -> Codes:
    """f64 codes added in memory: a NaN of the source stays as it is, bit for bit, else a NaN that was there.

    Source: measured on an NVIDIA H200, cp.reduce.async.bulk.add.f64 and cp.reduce.async.bulk.tensor with .add of FLOAT64.

    >>> [hex(code) for code in add_f64(np.uint64([0x7FF0_0000_0000_0001, 1]), np.uint64([0x3FF0_0000_0000_0000, 1]))]
    ['0x7ff0000000000001', '0x2']
    """
    format = FORMATS["f64"]
    total = ieee.add(old, new, (format, format), format)
    nan = [(codes & np.uint64(0x7FFF_FFFF_FFFF_FFFF)) > np.uint64(0x7FF0_0000_0000_0000) for codes in (old, new, total)]
    total = np.where(nan[2], np.uint64(F64_INVALID), total)
    return np.where(nan[1], new, np.where(nan[0], old, total))


def _reduce_floats(reduction: Reduction, old: Codes, new: Codes) -> Codes:
    format = FORMATS[reduction.type]
    if reduction.operation == "add":
        if reduction.type == "f64":
            return add_f64(old, new)
        return ieee.add(old, new, (format, format), format)
    sign = old.dtype.type(1 << (reduction.bits - 1))
    magnitude = sign - old.dtype.type(1)
    infinity = old.dtype.type(format.infinity_code)
    # an order of codes as unsigned numbers: minus the largest first, -0 before +0
    ordered = [np.where(codes & sign, ~codes, codes | sign) for codes in (old, new)]
    nan = [(codes & magnitude) > infinity for codes in (old, new)]
    first = ordered[0] <= ordered[1] if reduction.operation == "min" else ordered[0] >= ordered[1]
    chosen = np.where(nan[1] | (first & ~nan[0]), old, new)
    return np.where(nan[0] & nan[1], old.dtype.type(format.canonical_nan), chosen)
