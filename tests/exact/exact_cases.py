"""Codes, constants and strategies for the tests of the exact model."""

from __future__ import annotations

import math
import struct
from fractions import Fraction

from hypothesis import strategies as st

from tests.exact.numbers import (
    FLOAT_FORMATS,
    MODES,
    decode,
    encode,
    scaled,
)

F16_ONE, F32_ONE = 0x3C00, 0x3F80_0000
F16_NAN, F32_NAN = 0x7FFF, 0x7FFF_FFFF
F32_INFINITY, F32_NEGATIVE_INFINITY, F32_LARGEST = 0x7F80_0000, 0xFF80_0000, 0x7F7F_FFFF

bits16 = st.integers(0, 0xFFFF)
bits32 = st.integers(0, 0xFFFF_FFFF)
bits64 = st.integers(0, 0xFFFF_FFFF_FFFF_FFFF)
modes = st.sampled_from(MODES)


def float_of(code: int, name: str) -> float:
    """What Python's struct module says an f16, f32 or f64 code means."""
    integer, real = {"f16": ("<H", "<e"), "f32": ("<I", "<f"), "f64": ("<Q", "<d")}[name]
    return float(struct.unpack(real, struct.pack(integer, code))[0])


def code_of(value: float, name: str) -> int:
    """The code that Python's struct module rounds (to nearest even) a float to; overflow gives infinity."""
    integer, real = {"f16": ("<H", "<e"), "f32": ("<I", "<f"), "f64": ("<Q", "<d")}[name]
    try:
        packed = struct.pack(real, value)
    except OverflowError:
        packed = struct.pack(real, math.copysign(math.inf, value))
    return int(struct.unpack(integer, packed)[0])


def nearest_float(value: Fraction) -> float:
    """The float nearest to a fraction, ties to even: Python divides integers with one correct rounding."""
    try:
        magnitude = abs(value).numerator / abs(value).denominator
    except OverflowError:
        magnitude = math.inf
    return -magnitude if value < 0 else magnitude


def exactly(value: float | Fraction, name: str) -> int:
    """The code of a value that format `name` holds exactly."""
    sign_of_zero = int(math.copysign(1, value) < 0)
    code = encode(Fraction(value), sign_of_zero, name, "rz")
    assert decode(code, name).value == value, f"{value} is no {name}"
    return code


def check_decoded(code: int, name: str) -> None:
    """Compare one decoded code with struct, and its parts with its value."""
    number, truth = decode(code, name), float_of(code, name)
    if math.isnan(truth):
        assert number.kind == "nan"
        return
    assert number.sign == (math.copysign(1, truth) < 0)
    if math.isinf(truth):
        assert number.kind == "infinity"
        return
    assert number.value == Fraction(truth)
    fmt = FLOAT_FORMATS[name]
    smallest_normal = scaled(1, fmt.min_exponent)
    expected = "zero" if truth == 0 else "subnormal" if abs(number.value) < smallest_normal else "normal"
    assert number.kind == expected
    if expected == "normal":
        assert number.exponent == math.frexp(truth)[1] - 1
    else:
        assert number.exponent == fmt.min_exponent
    assert encode(number.value, number.sign, name, "rne") == code
