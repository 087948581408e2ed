"""What the TMA unit computes: the reductions of cp.reduce.async.bulk.tensor, and the rounding of loads to tf32.

Measured on an NVIDIA H200 (driver 580.159.04): each reduction that exists, and for f16, bf16, f32 and f64 what becomes of NaNs
and subnormal numbers. Where the manual differs (PTX ISA, cp.reduce.async.bulk.tensor and cp.reduce.async.bulk), the
measurement stands: bitwise operations of 64 bits exist for UINT64 alone, and only FLOAT32_FTZ flushes.
"""

from __future__ import annotations

from collections.abc import Callable
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from tcsim.arithmetic.reduction import add_f64
from tcsim.core.errors import listing
from tcsim.numbers import ieee
from tcsim.numbers.formats import FORMATS
from tcsim.tma.types import TensorMapError, TensorType

Codes = npt.NDArray[Any]

_INTEGERS = ("UINT32", "INT32", "UINT64")
_HALVES = ("FLOAT16", "BFLOAT16")

REDUCTIONS: MappingProxyType[str, tuple[str, ...]] = MappingProxyType(
    {
        "add": (*_INTEGERS, *_HALVES, "FLOAT32", "FLOAT32_FTZ", "TFLOAT32", "FLOAT64"),
        "min": (*_INTEGERS, "INT64", *_HALVES),
        "max": (*_INTEGERS, "INT64", *_HALVES),
        "inc": ("UINT32",),
        "dec": ("UINT32",),
        "and": _INTEGERS,
        "or": _INTEGERS,
        "xor": _INTEGERS,
    }
)
"""The data types that each reduction takes: with others it is CUDA_ERROR_ILLEGAL_INSTRUCTION on an H200.

Of add and and every type was tried there but TFLOAT32_FTZ; of the others not UINT8, UINT16, FLOAT64, FLOAT32_FTZ, TFLOAT32.
"""

FLOATING = {
    "FLOAT16": "f16", "BFLOAT16": "bf16", "FLOAT32": "f32", "FLOAT32_FTZ": "f32", "TFLOAT32": "f32", "FLOAT64": "f64",
}  # fmt: skip
"""How numbers are added: TFLOAT32 as f32, without rounding to tf32."""

TF32_NAN = 0x7FFFE000
"""What a load of TFLOAT32 or TFLOAT32_FTZ makes of any NaN."""


class ReductionError(TensorMapError):
    """A reduction that does not exist, or not for the map's data type."""


def check_reduction(op: str, data_type: TensorType, call: str) -> None:
    """Raise ReductionError unless a data type has the reduction."""
    if not isinstance(op, str) or op not in REDUCTIONS:
        raise ReductionError(f"{call}: no reduction {op!r:.40}; valid: {listing(REDUCTIONS)}")
    if data_type.name not in REDUCTIONS[op]:
        others = [name for name, types in REDUCTIONS.items() if data_type.name in types]
        raise ReductionError(
            f"{call}: {op} of {data_type.name}: no such reduction; {op} takes {listing(REDUCTIONS[op])}; "
            f"{data_type.name} has {listing(others) or 'no reduction'}"
        )


def reduce_codes(op: str, data_type: TensorType, old: Codes, source: Codes) -> Codes:
    """The new element in global memory, from the old one and the one in shared memory: unsigned integers of the type's size.

    >>> from tcsim.tma.types import DATA_TYPES
    >>> reduce_codes("inc", DATA_TYPES["UINT32"], np.uint32([0, 6, 7, 8]), np.uint32(7)).tolist()
    [1, 7, 0, 0]
    """
    if op in ("and", "or", "xor"):
        return _BITWISE[op](old, source)
    if op == "inc":
        return np.where(old >= source, 0, old + old.dtype.type(1)).astype(old.dtype)
    if op == "dec":
        return np.where((old == 0) | (old > source), source, old - old.dtype.type(1)).astype(old.dtype)
    if data_type.name in FLOATING:
        return _floating(op, data_type, old, source)
    if op == "add":
        return old + source
    kind = "i" if data_type.name.startswith("INT") else "u"
    signed = f"{kind}{old.dtype.itemsize}"
    pick = np.minimum if op == "min" else np.maximum
    result: Codes = pick(old.view(signed), source.view(signed)).view(old.dtype)
    return result


_BITWISE: dict[str, Callable[[Codes, Codes], Codes]] = {
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
}


def _floating(op: str, data_type: TensorType, old: Codes, source: Codes) -> Codes:
    format = FORMATS[FLOATING[data_type.name]]
    if op == "add":
        if data_type.name == "FLOAT32_FTZ":
            total = ieee.add(flush(old), flush(source), (format, format), format)
            return flush(total.astype(old.dtype))
        if format.name == "f64":
            return add_f64(old, source).astype(old.dtype, copy=False)
        return ieee.add(old, source, (format, format), format).astype(old.dtype)
    sign = old.dtype.type(1 << format.bits - 1)
    nan = old.dtype.type((1 << format.bits - 1) - 1)
    infinity = old.dtype.type(((1 << format.bits - 1 - format.fraction_bits) - 1) << format.fraction_bits)
    old_nan, source_nan = ((codes & nan) > infinity for codes in (old, source))
    first = _order(old, sign) <= _order(source, sign)  # -0 is below +0
    chosen = np.where(first if op == "min" else ~first, old, source)
    chosen = np.where(old_nan, source, np.where(source_nan, old, chosen))
    return np.where(old_nan & source_nan, nan, chosen).astype(old.dtype)


def _order(codes: Codes, sign: Any) -> npt.NDArray[np.int64]:
    """Integers in the order of the numbers."""
    magnitude = (codes & ~sign).astype(np.int64)
    return np.where(codes & sign, -magnitude - 1, magnitude)


def flush(codes: Codes) -> Codes:
    """f32 codes with subnormal numbers turned into zeros of the same sign.

    >>> [hex(code) for code in flush(np.uint32([0x807FFFFF, 0x00800000]))]
    ['0x80000000', '0x800000']
    """
    return np.where(codes & np.uint32(0x7F800000), codes, codes & np.uint32(0x80000000)).astype(np.uint32)


def round_tf32(codes: Codes) -> Codes:
    """f32 codes rounded to tf32, to nearest even; subnormal numbers too; any NaN becomes 0x7FFFE000.

    Measured on an NVIDIA H200: 49,152 codes, every kind of them, ties and subnormal numbers among them; both types alike.

    >>> [hex(code) for code in round_tf32(np.uint32([0x3F801000, 0x3F803000, 0xFF800001, 0xFF800000]))]
    ['0x3f800000', '0x3f804000', '0x7fffe000', '0xff800000']
    """
    codes = np.asarray(codes, np.uint32)
    rounded = codes + np.uint32(0xFFF) + (codes >> np.uint32(13) & np.uint32(1)) & np.uint32(0xFFFFE000)
    return np.where((codes & np.uint32(0x7FFFFFFF)) > 0x7F800000, np.uint32(TF32_NAN), rounded)
