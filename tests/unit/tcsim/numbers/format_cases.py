"""The formats as their specifications have them, and what compares their values, for the tests of formats."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
from hypothesis import strategies as st

import tcsim
from tcsim.numbers.rounding import Rounding

# By the format specifications: width, container, exponent bits, fraction bits, bias, largest, least, canonical NaN.
FLOATS: dict[str, tuple[int, int, int, int, int, float, float, int | None]] = {
    "f16": (16, 16, 5, 10, 15, 65504.0, 2.0**-24, 0x7FFF),
    "bf16": (16, 16, 8, 7, 127, 2.0**128 - 2.0**120, 2.0**-133, 0x7FFF),
    "tf32": (19, 32, 8, 10, 127, 2.0**128 - 2.0**117, 2.0**-136, 0x7FFFFFFF),
    "e4m3": (8, 8, 4, 3, 7, 448.0, 2.0**-9, 0x7F),
    "e5m2": (8, 8, 5, 2, 15, 57344.0, 2.0**-16, 0x7F),
    "e3m2": (6, 8, 3, 2, 3, 28.0, 2.0**-4, None),
    "e2m3": (6, 8, 2, 3, 1, 7.5, 2.0**-3, None),
    "e2m1": (4, 8, 2, 1, 1, 6.0, 0.5, None),
    "ue8m0": (8, 8, 8, 0, 127, 2.0**127, 2.0**-127, 0xFF),
    "ue4m3": (7, 8, 4, 3, 7, 448.0, 2.0**-9, 0x7F),
    "ue5m3": (8, 8, 5, 3, 15, 114688.0, 2.0**-17, 0xFF),
    "f32": (32, 32, 8, 23, 127, 2.0**128 - 2.0**104, 2.0**-149, 0x7FFFFFFF),
    "f64": (64, 64, 11, 52, 1023, float(np.finfo(np.float64).max), 2.0**-1074, 0xFFF8 << 48),
}
# Width, container, least and greatest value.
INTEGERS: dict[str, tuple[int, int, int, int]] = {
    "s8": (8, 8, -128, 127),
    "u8": (8, 8, 0, 255),
    "s4": (4, 8, -8, 7),
    "u4": (4, 8, 0, 15),
    "b1": (1, 8, 0, 1),
    "s32": (32, 32, -(2**31), 2**31 - 1),
    "s1z4m11": (16, 16, -2047, 2047),
}
# The independent implementation of each format that has one.
TWINS: dict[str, Any] = {
    "f16": np.float16,
    "bf16": ml_dtypes.bfloat16,
    "e4m3": ml_dtypes.float8_e4m3fn,
    "e5m2": ml_dtypes.float8_e5m2,
    "e3m2": ml_dtypes.float6_e3m2fn,
    "e2m3": ml_dtypes.float6_e2m3fn,
    "e2m1": ml_dtypes.float4_e2m1fn,
    "ue8m0": ml_dtypes.float8_e8m0fnu,
    "s8": np.int8,
    "u8": np.uint8,
    "s4": ml_dtypes.int4,
    "u4": ml_dtypes.uint4,
    "b1": np.bool_,
}
NARROW = [name for name in FLOATS if FLOATS[name][1] == 8]  # the float formats of at most 8 bits
UNSIGNED = ("ue8m0", "ue4m3", "ue5m3")
MODES: tuple[Rounding, ...] = ("rne", "rz", "rm", "rp", "rna")
BITS32 = st.integers(0, 2**32 - 1)


def all_codes(name: str) -> npt.NDArray[Any]:
    """Every code of a format of at most 16 bits."""
    codes = np.arange(1 << tcsim.format(name).bits, dtype=tcsim.format(name).dtype)
    return codes[(codes & tcsim.format(name).zero_bits) == 0]


def as_float64(values: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    """Values as float64; NumPy warns when a signalling NaN changes its type."""
    with np.errstate(invalid="ignore"):
        return values.astype(np.float64)


def same(x: npt.NDArray[np.float64], y: npt.NDArray[np.float64]) -> npt.NDArray[np.bool_]:
    """Where two arrays hold the same value: zeros by sign, NaN equal to NaN."""
    return ((x == y) & (np.signbit(x) == np.signbit(y))) | (np.isnan(x) & np.isnan(y))
