"""What one element of a reduction in memory becomes: integers, bits and floats, as codes.

Source: PTX ISA, sections cp.reduce.async.bulk (operations, rounding, subnormals) and red, atom (inc, dec). What a NaN becomes
is not said there; here it is the format's canonical one for add, and the other operand's number for min and max, as in PTX's
`add` and `min`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from tcsim import ieee
from tcsim.formats import FORMATS

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


def _reduce_floats(reduction: Reduction, old: Codes, new: Codes) -> Codes:
    format = FORMATS[reduction.type]
    if reduction.operation == "add":
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
