"""Tests of the exact model: formats against `struct`, rounding against neighbours, steps against hand-made sums."""

from __future__ import annotations

import itertools
import math
import random
import struct
from bisect import bisect_left
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import partial

import pytest
from exact.machine import DATAPATHS, element, mma
from exact.mnemonics import (
    FP6_FP4,
    FP8,
    GENERATION,
    INT4,
    INT8,
    Instruction,
    generation,
    parse,
)
from exact.numbers import (
    FLOAT_FORMATS,
    FORMATS,
    INTEGER_FORMATS,
    MODES,
    Mode,
    canonical_nan,
    decode,
    encode,
    encode_rz_overflow_to_infinity,
    floor_log2,
    infinity,
    scaled,
)
from exact.steps import (
    Output,
    bit_dot,
    convert,
    dot_add,
    ieee_add,
    ieee_fma,
    ieee_mul,
    integer_add,
    integer_dot,
)
from hypothesis import example, given
from hypothesis import strategies as st

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


# ---- formats ----


def test_every_f16_code_against_struct() -> None:
    compared = 0
    for code in range(1 << 16):
        check_decoded(code, "f16")
        compared += 1
    assert compared == 65536


@given(bits32)
@example(0x0000_0001)
@example(0x807F_FFFF)
@example(F32_LARGEST)
def test_f32_codes_against_struct(code: int) -> None:
    check_decoded(code, "f32")


@given(bits64)
@example(0x0000_0000_0000_0001)
@example(0x800F_FFFF_FFFF_FFFF)
@example(0x7FEF_FFFF_FFFF_FFFF)
def test_f64_codes_against_struct(code: int) -> None:
    check_decoded(code, "f64")


def test_every_bf16_and_tf32_code_is_the_f32_that_it_abbreviates() -> None:
    compared = 0
    for name, dropped in (("bf16", 16), ("tf32", 13), ("e8m13", 10)):
        for top in range(0, 1 << (32 - dropped), 1 if dropped == 16 else 7):
            code = top if name == "bf16" else top << dropped
            short, long = decode(code, name), decode(top << dropped, "f32")
            assert (short.kind, short.sign, short.exponent) == (long.kind, long.sign, long.exponent)
            if short.kind not in ("infinity", "nan"):
                assert short.value == long.value
            compared += 1
    assert compared == 65536 + math.ceil(2**19 / 7) + math.ceil(2**22 / 7)


def test_every_e5m2_code_is_the_f16_that_it_abbreviates() -> None:
    for code in range(256):
        short, long = decode(code, "e5m2"), decode(code << 8, "f16")
        assert (short.kind, short.sign, short.exponent) == (long.kind, long.sign, long.exponent)
        if short.kind not in ("infinity", "nan"):
            assert short.value == long.value


@pytest.mark.parametrize(
    ("name", "code", "kind", "sign", "exponent", "value"),
    [
        ("e4m3", 0x7F, "nan", 0, None, None),
        ("e4m3", 0xFF, "nan", 1, None, None),
        ("e4m3", 0x7E, "normal", 0, 8, Fraction(448)),
        ("e4m3", 0x80, "zero", 1, -6, Fraction(0)),
        ("e4m3", 0x01, "subnormal", 0, -6, Fraction(1, 512)),
        ("e4m3", 0x08, "normal", 0, -6, Fraction(1, 64)),
        ("e5m2", 0x7B, "normal", 0, 15, Fraction(57344)),
        ("e5m2", 0xFC, "infinity", 1, None, None),
        ("e5m2", 0x7D, "nan", 0, None, None),
        ("e5m2", 0x01, "subnormal", 0, -14, Fraction(1, 65536)),
        ("e3m2", 0x1F, "normal", 0, 4, Fraction(28)),
        ("e3m2", 0x21, "subnormal", 1, -2, Fraction(-1, 16)),
        ("e2m3", 0x1F, "normal", 0, 2, Fraction(15, 2)),
        ("e2m3", 0x01, "subnormal", 0, 0, Fraction(1, 8)),
        ("e2m1", 0x7, "normal", 0, 2, Fraction(6)),
        ("e2m1", 0x9, "subnormal", 1, 0, Fraction(-1, 2)),
        ("ue8m0", 0xFF, "nan", 0, None, None),
        ("ue8m0", 0x00, "normal", 0, -127, Fraction(1, 2**127)),
        ("ue8m0", 0x7F, "normal", 0, 0, Fraction(1)),
        ("ue8m0", 0xFE, "normal", 0, 127, Fraction(2**127)),
        ("ue4m3", 0x7F, "nan", 0, None, None),
        ("ue4m3", 0xFF, "nan", 0, None, None),
        ("ue4m3", 0xB8, "normal", 0, 0, Fraction(1)),
        ("tf32", 0x3F80_1FFF, "normal", 0, 0, Fraction(1)),
        ("tf32", 0x0000_1FFF, "zero", 0, -126, Fraction(0)),
        ("tf32", 0x7F80_0001, "infinity", 0, None, None),
        ("tf32", 0x7F80_2000, "nan", 0, None, None),
        ("bf16", 0x8001, "subnormal", 1, -126, Fraction(-1, 2**133)),
        ("s8", 0x80, "normal", 1, 0, Fraction(-128)),
        ("u8", 0x80, "normal", 0, 0, Fraction(128)),
        ("s4", 0xF, "normal", 1, 0, Fraction(-1)),
        ("u4", 0xF, "normal", 0, 0, Fraction(15)),
        ("b1", 1, "normal", 0, 0, Fraction(1)),
        ("s32", 0x8000_0000, "normal", 1, 0, Fraction(-(2**31))),
    ],
)
def test_decoded_codes(
    name: str, code: int, kind: str, sign: int, exponent: int | None, value: Fraction | None
) -> None:
    number = decode(code, name)
    assert (number.kind, number.sign) == (kind, sign)
    if value is not None:
        assert (number.exponent, number.value) == (exponent, value)


def test_every_code_of_a_small_format_survives_a_round_trip() -> None:
    compared = 0
    for name, fmt in FORMATS.items():
        if fmt.bits > 16:
            continue
        for code in range(1 << fmt.bits):
            number = decode(code, name)
            if number.kind in ("infinity", "nan"):
                continue
            modes_here: Sequence[Mode] = [mode for mode in MODES if name != "ue8m0" or mode != "rne"]
            for mode in modes_here:
                back = encode(number.value, number.sign, name, mode)
                assert back == (code & 0x7F if name == "ue4m3" else code)
                compared += 1
    f16, bf16, e5m2, e4m3, small, scales = 63488, 65280, 248, 254, 64 + 64 + 16, 255 * 4 + 254 * 5
    integers = 256 + 256 + 16 + 16 + 2
    assert compared == 5 * (f16 + bf16 + e5m2 + e4m3 + small + integers) + scales


def test_codes_and_names_that_do_not_exist_raise() -> None:
    for code, name in ((1 << 16, "f16"), (-1, "f32"), (16, "e2m1"), (2, "b1"), (0, "f8")):
        with pytest.raises(ValueError, match=r"is not a code|no format"):
            decode(code, name)


# ---- rounding ----


@given(st.floats(allow_nan=False, allow_infinity=False))
@example(65519.99)
@example(65520.0)
@example(2.0**-25)
@example(math.nextafter(2.0**-25, 1))
@example(3.4028235677973366e38)
@example(-(2.0**-150))
def test_rne_of_a_float_against_struct(value: float) -> None:
    sign_of_zero = int(math.copysign(1, value) < 0)
    for name in ("f16", "f32", "f64"):
        assert encode(Fraction(value), sign_of_zero, name, "rne") == code_of(value, name)


@given(st.fractions(), st.integers(-1100, 1000))
def test_f64_rne_of_a_fraction_against_python(value: Fraction, exponent: int) -> None:
    value *= scaled(1, exponent)
    assert encode(value, 0, "f64", "rne") == code_of(nearest_float(value), "f64")


def expected_by_neighbours(value: Fraction, name: str, mode: Mode) -> Fraction:
    """The finite number of format `name` that `value` rounds to, chosen between its two neighbours by definition."""
    numbers = sorted_numbers(name)
    position = bisect_left(numbers, value)
    above = numbers[position]
    if above == value:
        return value
    below = numbers[position - 1]
    if mode == "rm":
        return below
    if mode == "rp":
        return above
    nearer_zero, farther = (below, above) if value > 0 else (above, below)
    if mode == "rz":
        return nearer_zero
    if value - below != above - value:
        return below if value - below < above - value else above
    if mode == "rna":
        return farther
    return next(number for number in (below, above) if encode(number, 0, name, "rz") % 2 == 0)


_SORTED: dict[str, list[Fraction]] = {}


def sorted_numbers(name: str) -> list[Fraction]:
    """All finite numbers of a small format, ascending."""
    if name not in _SORTED:
        numbers = (decode(code, name) for code in range(1 << FORMATS[name].bits))
        _SORTED[name] = sorted({number.value for number in numbers if number.kind not in ("infinity", "nan")})
    return _SORTED[name]


def test_rounding_modes_against_neighbours() -> None:
    compared = 0
    for name in ("e4m3", "e5m2", "e3m2", "e2m3", "e2m1", "s8", "u4"):
        numbers = sorted_numbers(name)
        for below, above in itertools.pairwise(numbers):
            for part in (Fraction(1, 10**9), Fraction(1, 3), Fraction(1, 2), Fraction(2, 3), Fraction(999999, 1000000)):
                value = below + part * (above - below)
                for mode in MODES:
                    code = encode(value, 0, name, mode)
                    assert decode(code, name).value == expected_by_neighbours(value, name, mode), (name, value, mode)
                    compared += 1
    distinct = 253 + 247 + 63 + 63 + 15 + 256 + 16
    assert compared == (distinct - 7) * 5 * 5


@given(bits16, st.fractions(0, 1), modes, st.sampled_from(["f16", "bf16"]))
def test_rounding_modes_of_16_bits_against_neighbours(code: int, part: Fraction, mode: Mode, name: str) -> None:
    below = decode(code & 0x7FFF, name)
    above = decode(min((code & 0x7FFF) + 1, 0x7FFF), name)
    if "nan" in (below.kind, above.kind) or "infinity" in (below.kind, above.kind):
        return
    value = below.value + part * (above.value - below.value)
    for signed in (value, -value):
        assert decode(encode(signed, 0, name, mode), name).value == expected_by_neighbours(signed, name, mode)


@pytest.mark.parametrize("name", ["f16", "f32", "f64", "bf16", "tf32", "e5m2"])
def test_overflow_in_every_mode(name: str) -> None:
    fmt = FLOAT_FORMATS[name]
    largest = fmt.largest_finite << fmt.ignored_bits
    half_ulp = scaled(1, fmt.bias - fmt.fraction_bits - 1)
    sign = 1 << (fmt.bits - 1)
    tie = decode(largest, name).value + half_ulp
    under = tie - half_ulp / 3
    expected = {  # (tie, just under the tie), then the same below zero
        "rne": (infinity(0, name), largest, infinity(1, name), sign | largest),
        "rna": (infinity(0, name), largest, infinity(1, name), sign | largest),
        "rz": (largest, largest, sign | largest, sign | largest),
        "rm": (largest, largest, infinity(1, name), infinity(1, name)),
        "rp": (infinity(0, name), infinity(0, name), sign | largest, sign | largest),
    }
    for mode in MODES:
        assert tuple(encode(value, 0, name, mode) for value in (tie, under, -tie, -under)) == expected[mode]
        assert encode(2 * tie, 0, name, mode, saturate=True) == largest
        assert encode(-2 * tie, 0, name, mode, saturate=True) == sign | largest


def test_overflow_without_infinity() -> None:
    assert encode(Fraction(464), 0, "e4m3", "rne") == 0x7E  # the tie with the missing 480 goes to the even 448
    assert encode(Fraction(465), 0, "e4m3", "rne") == 0x7F
    assert encode(Fraction(-465), 0, "e4m3", "rne") == 0xFF
    assert encode(Fraction(-465), 0, "e4m3", "rne", saturate=True) == 0xFE
    assert encode(Fraction(-465), 0, "e4m3", "rz") == 0xFE
    assert encode(Fraction(7), 0, "e2m1", "rz") == 0x7
    with pytest.raises(ValueError, match="overflows e2m1"):
        encode(Fraction(7), 0, "e2m1", "rne")
    assert encode(Fraction(7), 0, "e2m1", "rne", saturate=True) == 0x7
    with pytest.raises(ValueError, match="outside"):
        encode(Fraction(128), 0, "s8", "rne")
    assert encode(Fraction(-1000), 0, "s8", "rne", saturate=True) == 0x80
    with pytest.raises(ValueError, match="no negative"):
        encode(Fraction(-1), 0, "ue4m3", "rne")
    assert encode(Fraction(3, 2), 0, "ue8m0", "rp") == 0x80
    assert encode(Fraction(3, 2), 0, "ue8m0", "rz") == 0x7F


def test_signs_of_zero() -> None:
    for mode in MODES:
        assert encode(Fraction(0), 0, "f32", mode) == 0
        assert encode(Fraction(0), 1, "f32", mode) == 0x8000_0000
    tiny = scaled(1, -200)
    assert encode(-tiny, 0, "f32", "rne") == 0x8000_0000
    assert encode(-tiny, 0, "f32", "rm") == 0x8000_0001
    assert encode(tiny, 0, "f32", "rp") == 0x0000_0001


def test_rz_that_overflows_to_infinity() -> None:
    limit = scaled(1, 128)
    assert encode_rz_overflow_to_infinity(limit - scaled(1, 90), "f32") == F32_LARGEST
    assert encode_rz_overflow_to_infinity(limit, "f32") == F32_INFINITY
    assert encode_rz_overflow_to_infinity(-limit, "f32") == F32_NEGATIVE_INFINITY
    assert encode(limit, 0, "f32", "rz") == F32_LARGEST
    assert encode_rz_overflow_to_infinity(limit - 1, "e8m13") == 0x7F7F_FC00
    assert encode_rz_overflow_to_infinity(2 - scaled(1, -23), "e8m13") == 0x3FFF_FC00
    assert encode_rz_overflow_to_infinity(scaled(3, -150), "f32") == 0x0000_0001


@given(st.fractions(min_value=Fraction(1, 10**30)), st.integers(-300, 300))
def test_floor_log2_brackets(value: Fraction, shift: int) -> None:
    value *= scaled(1, shift)
    exponent = floor_log2(value)
    assert scaled(1, exponent) <= value < scaled(1, exponent + 1)


# ---- IEEE operations ----


def assert_ieee(code: int, truth: float, name: str) -> None:
    """Compare a result with the float it should be. A NaN is canonical, but f64 passes the NaN of an operand on."""
    if math.isnan(truth) and name == "f64":
        assert decode(code, name).kind == "nan"
    else:
        assert code == (canonical_nan(name) if math.isnan(truth) else code_of(truth, name))


@given(bits64, bits64)
@example(0x8000_0000_0000_0000, 0x8000_0000_0000_0000)
@example(0x3FF0_0000_0000_0000, 0xBFF0_0000_0000_0000)
@example(0x7FF0_0000_0000_0000, 0xFFF0_0000_0000_0000)
@example(0x7FEF_FFFF_FFFF_FFFF, 0x7C90_0000_0000_0000)
@example(0x0000_0000_0000_0003, 0x3FE0_0000_0000_0000)
@example(0x7FF0_0000_0000_0000, 0x0000_0000_0000_0000)
def test_f64_add_and_mul_against_python(a: int, b: int) -> None:
    x, y = float_of(a, "f64"), float_of(b, "f64")
    assert_ieee(ieee_add(a, b, "f64"), x + y, "f64")
    assert_ieee(ieee_mul(a, b, "f64"), x * y, "f64")


@given(bits32, bits32)
@example(0x8000_0000, 0x8000_0000)
@example(0x3F80_0000, 0x3300_0000)
def test_f32_and_f16_add_and_mul_against_python(a: int, b: int) -> None:
    """A double has more than twice the bits of an f32, so rounding twice is rounding once."""
    for name, x, y in (("f32", a, b), ("f16", a & 0xFFFF, b & 0xFFFF)):
        real_x, real_y = float_of(x, name), float_of(y, name)
        assert_ieee(ieee_add(x, y, name), real_x + real_y, name)
        assert_ieee(ieee_mul(x, y, name), real_x * real_y, name)


near_one = st.floats(-4, 4).filter(lambda value: value == 0 or abs(value) > 1e-100)


@given(near_one, near_one, near_one, st.integers(-540, 540), st.integers(-540, 480))
@example(1 + 2.0**-30, 1 - 2.0**-30, -1.0, 0, 0)
def test_f64_fma_against_exact_fractions(x: float, y: float, z: float, scale_x: int, scale_y: int) -> None:
    x, y, z = math.ldexp(x, scale_x), math.ldexp(y, scale_y), math.ldexp(z, min(scale_x + scale_y, 1000))
    exact = Fraction(x) * Fraction(y) + Fraction(z)
    code = ieee_fma(code_of(x, "f64"), code_of(y, "f64"), code_of(z, "f64"), "f64")
    if exact != 0:
        assert code == code_of(nearest_float(exact), "f64")
    elif x == 0 or y == 0:
        assert code == code_of(x * y + z, "f64")  # only signs of zeros are at stake, and Python knows them
    else:
        assert code == 0


@given(bits32, bits32, bits32, modes)
def test_f32_fma_in_every_mode_against_exact_fractions(a: int, b: int, c: int, mode: Mode) -> None:
    numbers = [decode(code, "f32") for code in (a, b, c)]
    if any(number.kind in ("infinity", "nan") for number in numbers):
        return
    exact = numbers[0].value * numbers[1].value + numbers[2].value
    if exact == 0:
        return
    result = decode(ieee_fma(a, b, c, "f32", mode), "f32")
    assert result.sign == (exact < 0)
    if result.kind == "infinity":
        assert abs(exact) > decode(F32_LARGEST, "f32").value
        return
    error = result.value - exact
    assert abs(error) < scaled(1, max(floor_log2(abs(exact)), -126) - 23) or abs(exact) >= scaled(1, 128)
    directions = {"rm": error <= 0, "rp": error >= 0, "rz": abs(result.value) <= abs(exact)}
    assert directions.get(mode, True)


def test_special_cases_of_fma() -> None:
    one, minus_one, zero, minus_zero = F32_ONE, 0xBF80_0000, 0, 0x8000_0000
    plus_infinity, minus_infinity, nan = F32_INFINITY, F32_NEGATIVE_INFINITY, 0x7F80_0001
    cases: list[tuple[int, int, int, Mode, int]] = [
        (zero, plus_infinity, one, "rne", F32_NAN),
        (plus_infinity, minus_zero, nan, "rne", F32_NAN),
        (plus_infinity, one, minus_infinity, "rne", F32_NAN),
        (plus_infinity, one, plus_infinity, "rne", plus_infinity),
        (plus_infinity, minus_one, one, "rne", minus_infinity),
        (F32_LARGEST, F32_LARGEST, minus_infinity, "rne", minus_infinity),
        (F32_LARGEST, F32_LARGEST, one, "rne", plus_infinity),
        (F32_LARGEST, F32_LARGEST, one, "rz", F32_LARGEST),
        (one, nan, one, "rne", F32_NAN),
        (one, one, 0xFFC0_0000, "rne", F32_NAN),
        (one, one, minus_one, "rne", zero),
        (one, one, minus_one, "rp", zero),
        (one, one, minus_one, "rm", minus_zero),
        (minus_zero, one, minus_zero, "rne", minus_zero),
        (minus_zero, one, zero, "rne", zero),
        (minus_zero, one, zero, "rm", minus_zero),
        (minus_zero, minus_one, zero, "rm", zero),
        (0x0000_0001, 0x8000_0001, zero, "rne", minus_zero),  # underflows, and keeps its sign
        (0x0000_0001, 0x8000_0001, zero, "rm", 0x8000_0001),
    ]
    for a, b, c, mode, expected in cases:
        assert ieee_fma(a, b, c, "f32", mode) == expected, (hex(a), hex(b), hex(c), mode)
    assert ieee_add(minus_zero, minus_zero, "f32") == minus_zero
    assert ieee_mul(minus_zero, one, "f32") == minus_zero
    assert ieee_mul(plus_infinity, zero, "f32") == F32_NAN
    assert ieee_mul(0x7FFF, F16_ONE, "f16") == F16_NAN
    one, infinite = 0x3FF0_0000_0000_0000, 0x7FF0_0000_0000_0000
    assert ieee_fma(infinite, 0, one, "f64") == canonical_nan("f64") == 0xFFF8_0000_0000_0000
    a, b, c = 0x7FF0_0000_0000_0001, 0xFFF0_0000_0000_0002, 0x7FF8_0000_0000_0003  # b before c before a, made quiet
    assert ieee_fma(a, b, c, "f64") == 0xFFF8_0000_0000_0002
    assert ieee_fma(a, one, c, "f64") == c
    assert ieee_fma(a, one, one, "f64") == 0x7FF8_0000_0000_0001


def test_conversions() -> None:
    assert convert(0x7F, "e4m3", "f16") == F16_NAN
    assert convert(0x01, "e4m3", "f16") == 0x1800  # 2^-9: subnormal before, normal after
    assert convert(0xFC, "e5m2", "f16") == 0xFC00
    assert convert(0x80, "e4m3", "f16") == 0x8000
    assert convert(exactly(65520, "f32"), "f32", "f16") == 0x7C00
    assert convert(exactly(1 + Fraction(1, 2**11), "f32"), "f32", "f16") == F16_ONE


# ---- integers ----


def test_integer_dots() -> None:
    products = {("s8", "s8"): (0x80, 0x80, 16384), ("s8", "u8"): (0x80, 0xFF, -32640), ("u8", "u8"): (255, 255, 65025)}
    for (a_format, b_format), (x, y, product) in products.items():
        for saturate in (False, True):
            result = integer_dot([x] * 3, [y] * 3, 5, a_format=a_format, b_format=b_format, saturate=saturate)
            assert result == (3 * product + 5) % 2**32
    dot = partial(integer_dot, a_format="s8", b_format="s8")
    assert dot([1, 1], [1, 1], 0x7FFF_FFFF) == 0x8000_0001
    assert dot([1, 1], [1, 1], 0x7FFF_FFFF, saturate=True) == 0x7FFF_FFFF
    assert dot([0xFF], [1], 0x8000_0000) == 0x7FFF_FFFF
    assert dot([0xFF], [1], 0x8000_0000, saturate=True) == 0x8000_0000
    # Clamped once, after the exact sum: passing through 2^31 on the way leaves no trace.
    assert dot([1, 0xFF], [1, 1], 0x7FFF_FFFF, saturate=True) == 0x7FFF_FFFF
    assert dot([1, 0xFE], [1, 1], 0x7FFF_FFFF, saturate=True) == 0x7FFF_FFFE
    assert integer_dot([0xF], [0xF], 0, a_format="s4", b_format="u4") == 2**32 - 15
    assert integer_add(0x7FFF_FFFF, 1) == 0x8000_0000
    assert integer_add(0x7FFF_FFFF, 1, saturate=True) == 0x7FFF_FFFF
    assert integer_add(0x8000_0000, 0xFFFF_FFFF, saturate=True) == 0x8000_0000


def test_bit_dots() -> None:
    assert bit_dot([0, 0, 1, 1], [0, 1, 0, 1], 10, operation="xor") == 12
    assert bit_dot([0, 0, 1, 1], [0, 1, 0, 1], 10, operation="and") == 11
    assert bit_dot([1], [1], 0xFFFF_FFFF, operation="and") == 0
    assert bit_dot([1], [0], 0x7FFF_FFFF, operation="xor") == 0x8000_0000


# ---- the fused step, rule by rule: sums made by hand ----


def step(
    products: Sequence[tuple[float, float]],
    c: int = 0,
    *,
    inputs: str = "f16",
    c_format: str = "f32",
    fraction_bits: int = 25,
    floor: int = -133,
    output: Output = "f32",
) -> int:
    """A dot-add of products of exactly representable values; the defaults are sm_90's f16 with f32 output."""
    a = [exactly(x, inputs) for x, _ in products]
    b = [exactly(y, inputs) for _, y in products]
    formats = {"a_format": inputs, "b_format": inputs, "c_format": c_format}
    return dot_add(a, b, c, **formats, fraction_bits=fraction_bits, floor=floor, output=output)


half_step = partial(step, c_format="f16", floor=-21, output="f16")  # sm_90's f16 with f16 output
ada_step = partial(step, inputs="e4m3", fraction_bits=13, output="e8m13")  # sm_89's fp8 with f32 output
raw_step = partial(  # sm_90's f16 with f32 output, on codes
    dot_add, a_format="f16", b_format="f16", c_format="f32", fraction_bits=25, floor=-133, output="f32"
)


def test_terms_are_truncated_one_by_one() -> None:
    dropped, kept = (2.0**-13, 2.0**-13), (2.0**-13, 2.0**-12)  # 2^-26 and 2^-25 beside a 1, F = 25
    assert step([dropped] * 16, F32_ONE) == F32_ONE  # exact: 1 + 2^-22
    assert step([kept] * 16, F32_ONE) == 0x3F80_0004  # 1 + 2^-21
    assert step([kept] * 16, F32_ONE, fraction_bits=24) == F32_ONE
    assert step([(1.0, 1.0)], exactly(2.0**-26 + 2.0**-25, "f32")) == F32_ONE  # c is truncated like the others


def test_truncation_is_toward_zero_in_sign_and_magnitude() -> None:
    assert step([(-(2.0**-13), 2.0**-13)], F32_ONE) == F32_ONE  # toward -infinity it would be 0x3F7FFFFF
    assert step([(-1.0, 1.0), (2.0**-13, 2.0**-13)]) == 0xBF80_0000
    assert step([(-1.0, 1.0), (-(2.0**-13), 2.0**-13)]) == 0xBF80_0000


def test_there_is_no_sticky_bit() -> None:
    # 1 - 2^-25 truncates to 0x3F7FFFFF; a dropped 2^-26 on top must not bring it back.
    assert step([(-(2.0**-13), 2.0**-12)], F32_ONE) == 0x3F7F_FFFF
    assert step([(-(2.0**-13), 2.0**-12), (2.0**-13, 2.0**-13)], F32_ONE) == 0x3F7F_FFFF
    # A dropped term does not break an f16 tie either: 1 + 2^-11 stays even.
    tie = [(1.0, 1.0), (2.0**-11, 1.0), (2.0**-13, 2.0**-13)]
    assert half_step(tie) == F16_ONE


def test_products_are_not_renormalised() -> None:
    two_and_a_quarter = (1.5, 1.5)  # exponent 0, significand 2.25
    small = (2.0**-13, 2.0**-12)  # 2^-25: kept beside exponent 0, dropped beside exponent 1
    assert step([two_and_a_quarter, (-1.5, 1.5), small]) == exactly(2.0**-25, "f32")
    # The same value as an addend has exponent 1.
    assert step([two_and_a_quarter, small], exactly(-2.25, "f32")) == 0
    # All-ones significands: 16 products just under 4 fit without loss.
    assert step([(2047 / 1024, 2047 / 1024)] * 16) == exactly(Fraction(16 * 2047**2, 2**20), "f32")


def test_subnormal_inputs_keep_the_minimum_exponent() -> None:
    subnormal = (2.0**-24, 1.0)  # exponent -14, value 2^-24
    assert step([subnormal, (2.0**-20, 2.0**-20)]) == exactly(2.0**-24, "f32")  # 2^-40 < 2^(-14 - 25): dropped
    assert step([subnormal, (2.0**-20, 2.0**-19)]) == exactly(2.0**-24 + 2.0**-39, "f32")
    # An f16 addend too (Volta, F = 23): the same value as an f32 addend has exponent -24 and keeps 2^-40.
    volta = partial(raw_step, [0x0010], [0x0010], fraction_bits=23, floor=-131)
    assert volta(0x0001, c_format="f16") == exactly(2.0**-24, "f32")
    assert volta(exactly(2.0**-24, "f32")) == exactly(2.0**-24 + 2.0**-40, "f32")


def test_zeros_contribute_only_the_floor() -> None:
    assert step([(0.0, 32768.0), (2.0**-14, 2.0**-14)]) == exactly(2.0**-28, "f32")
    assert step([(2.0**-14, 2.0**-14), (0.0, 0.0), (-0.0, 1.0)], 0x8000_0000) == exactly(2.0**-28, "f32")


@pytest.mark.parametrize(("fraction_bits", "floor", "last"), [(25, -133, -158), (24, -132, -156), (23, -131, -154)])
def test_the_floor_of_f32(fraction_bits: int, floor: int, last: int) -> None:
    tiny = (2.0**-75, 2.0**-74)  # 2^-149, the smallest f32
    for exponent, expected in ((last, 0), (last - 1, 1)):  # 2^last is the unit of the sum; what is below it is dropped
        products = [tiny, (-(2.0**-80), 2.0 ** (exponent + 80))]
        assert step(products, inputs="bf16", fraction_bits=fraction_bits, floor=floor) == expected


@pytest.mark.parametrize(("fraction_bits", "floor", "last"), [(25, -21, -46), (24, -20, -44), (23, -19, -42)])
def test_the_floor_of_f16(fraction_bits: int, floor: int, last: int) -> None:
    tie = (2.0**-12, 2.0**-13)  # 2^-25, half of the smallest f16
    for exponent, expected in ((last, 1), (last - 1, 0)):
        products = [tie, (2.0**-23, 2.0 ** (exponent + 23))]
        assert half_step(products, fraction_bits=fraction_bits, floor=floor) == expected


def test_order_inside_a_step_does_not_matter() -> None:
    numbers = random.Random(1)
    compared = 0
    for _ in range(50):
        pairs = [(numbers.randrange(0x7C00), numbers.randrange(0x7C00) | 0x8000 * (k % 2)) for k in range(16)]
        results = set()
        for _ in range(4):
            numbers.shuffle(pairs)
            results.add(raw_step([x for x, _ in pairs], [y for _, y in pairs], F32_ONE))
            compared += 1
        assert len(results) == 1
    assert compared == 200


def test_f32_output_truncates_and_keeps_subnormals() -> None:
    assert step([(1.0, 1.0), (2.0**-12, 2.0**-12), (2.0**-13, 2.0**-12)]) == F32_ONE  # 1 + 2^-24 + 2^-25, RNE: 1 + ulp
    assert step([(-1.0, 1.0), (-(2.0**-12), 2.0**-12), (-(2.0**-13), 2.0**-12)]) == 0xBF80_0000
    assert step([(2.0**-70, 2.0**-70)], inputs="bf16") == 0x0000_0200  # 2^-140
    assert step([(2.0**-75, 1.5 * 2.0**-74)], inputs="bf16") == 0x0000_0001
    assert step([], 0x807F_FFFF) == 0x807F_FFFF


def test_f32_overflow_is_infinite_though_the_mode_is_rz() -> None:
    huge = (2.0**127, 1.0)
    assert step([huge, huge], inputs="bf16") == F32_INFINITY
    assert step([(-(2.0**127), 1.0)] * 2, inputs="bf16") == F32_NEGATIVE_INFINITY
    assert step([(2.0**103, 1.0)], F32_LARGEST, inputs="bf16") == F32_LARGEST  # 2^128 - 2^103
    assert step([(2.0**104, 1.0)], F32_LARGEST, inputs="bf16") == F32_INFINITY  # 2^128


def test_a_product_is_never_infinite_by_magnitude() -> None:
    beyond = [(2.0**100, 2.0**100), (-(2.0**100), 2.0**100)]
    assert step(beyond, F32_ONE, inputs="bf16") == 0  # they cancel; the 1 is far below the unit 2^(200 - 25)
    assert step(beyond, F32_LARGEST, inputs="bf16") == 0


def test_f16_is_rounded_once_to_nearest_even() -> None:
    above_tie = [(1.0, 1.0), (2.0**-11, 1.0), (2.0**-13, 2.0**-12)]  # 1 + 2^-11 + 2^-25
    assert half_step(above_tie) == 0x3C01  # by way of an f32 it would be 0x3C00
    assert half_step(above_tie[:2]) == 0x3C00
    odd_tie = [(2.0**-11, 1.0)]
    assert half_step(odd_tie, 0x3C01) == 0x3C02
    assert half_step([(16.0, 1.0)], 0x7BFF) == 0x7C00  # 65520, a tie away from infinity
    assert half_step([(15.0, 1.0)], 0x7BFF) == 0x7BFF
    assert half_step([(-16.0, 1.0)], 0xFBFF) == 0xFC00
    assert half_step([(2.0**-12, 1.5 * 2.0**-12)]) == 0x0002  # 1.5 * 2^-24: a tie


def test_e8m13_output() -> None:
    one_ulp = exactly(1 + 2.0**-13, "f32")
    assert ada_step([(0.0, 0.0)], one_ulp) == one_ulp
    assert ada_step([(1.0, 1.0)], one_ulp) == exactly(2.0, "f32")  # 14 bits end at 2^-12
    assert ada_step([(-1.0, 1.0)], one_ulp) == exactly(2.0**-13, "f32")
    assert ada_step([(2.0**-7, 2.0**-7)] * 3, F32_ONE) == F32_ONE  # 2^-14: dropped each
    assert ada_step([(0.0, 0.0)], 0x3FFF_FFFF) == 0x3FFF_FC00
    assert ada_step([(0.0, 0.0)], 0x0000_07FF) == 0x0000_0400  # a subnormal f32
    assert ada_step([(0.0, 0.0)], 0x7FC0_0000) == F32_NAN
    assert ada_step([(0.0, 0.0)], F32_NEGATIVE_INFINITY) == F32_NEGATIVE_INFINITY


def test_a_zero_result_is_positive() -> None:
    assert step([(-0.0, 1.0), (-0.0, 1.0)], 0x8000_0000) == 0
    assert step([(1.0, -1.0)], F32_ONE) == 0
    assert step([(-(2.0**-75), 2.0**-75)], inputs="bf16") == 0  # -2^-150
    assert half_step([(-0.0, 1.0)], 0x8000) == 0
    assert half_step([(-(2.0**-13), 2.0**-13)], 0x8000) == 0  # -2^-26
    assert ada_step([(-0.0, 1.0)], 0x8000_0000) == 0


def test_nan_and_infinity() -> None:
    infinite, negative, nan, zero, one = 0x7C00, 0xFC00, 0xFE01, 0x8000, F16_ONE
    largest = 0x7BFF
    cases = [
        ([nan, one], [one, one], F32_ONE, F32_NAN),
        ([one, one], [zero, nan], F32_ONE, F32_NAN),
        ([one, one], [one, one], 0xFF80_0001, F32_NAN),
        ([infinite, one], [zero, one], F32_ONE, F32_NAN),
        ([zero], [negative], F32_INFINITY, F32_NAN),
        ([infinite, negative], [one, one], 0, F32_NAN),
        ([infinite, infinite], [one, negative], 0, F32_NAN),
        ([infinite], [one], F32_NEGATIVE_INFINITY, F32_NAN),
        ([infinite, infinite], [one, infinite], F32_INFINITY, F32_INFINITY),
        ([negative], [one], 0, F32_NEGATIVE_INFINITY),
        ([negative], [negative], 0, F32_INFINITY),
        ([one], [one], F32_NEGATIVE_INFINITY, F32_NEGATIVE_INFINITY),
        ([infinite], [0x8001], 0, F32_NEGATIVE_INFINITY),  # a subnormal factor is no zero
        ([largest], [largest], F32_NEGATIVE_INFINITY, F32_NEGATIVE_INFINITY),
    ]
    for a, b, c, expected in cases:
        assert raw_step(a, b, c) == expected, (a, b, hex(c))
    raw_half = partial(raw_step, c_format="f16", floor=-21, output="f16")
    assert raw_half([nan], [one], 0) == F16_NAN
    assert raw_half([infinite], [one], 0xFC00) == F16_NAN
    assert raw_half([infinite], [one], one) == 0x7C00
    assert raw_step([0xFF], [0x00], 0, a_format="e4m3", b_format="e4m3") == F32_NAN


def test_tf32_ignores_the_low_13_bits() -> None:
    tf32 = partial(raw_step, a_format="tf32", b_format="tf32")
    assert tf32([0x3F80_1FFF], [0x3F80_0000], 0) == F32_ONE
    assert tf32([0x3F80_2000], [0x3F80_0000], 0) == 0x3F80_2000
    assert tf32([0x0000_1FFF], [0x7F00_0000], 0) == 0


# ---- instructions and lowering ----


def row(values: dict[int, float], k: int, name: str) -> list[int]:
    """K codes that are zero except at the given positions."""
    return [exactly(values.get(position, 0.0), name) for position in range(k)]


def dense(shape: str, inputs: str, d: str, kind: str = "") -> str:
    """The mnemonic of a plain floating-point instruction whose C has the format of its D."""
    return f"mma.sync.aligned{kind}.{shape}.row.col.{d}.{inputs}.{inputs}.{d}"


def test_steps_are_chained_over_ascending_k() -> None:
    mnemonic = dense("m16n8k16", "f16", "f32")
    small, less_small = dict.fromkeys(range(8), 2.0**-13), dict.fromkeys(range(8), 2.0**-12)
    first = row({**small, 8: 1.0}, 16, "f16"), row({**less_small, 8: 1.0}, 16, "f16")
    last = first[0][8:] + first[0][:8], first[1][8:] + first[1][:8]
    for arch in ("sm_80", "sm_86", "sm_87", "sm_88", "sm_89"):  # F = 24: 2^-25 is lost beside a 1
        assert element(mnemonic, arch, *first, 0) == 0x3F80_0002  # 8 * 2^-25, then 1
        assert element(mnemonic, arch, *last, 0) == F32_ONE
    for arch in ("sm_90", "sm_100", "sm_103", "sm_107", "sm_110", "sm_120", "sm_121"):  # one step, F = 25
        assert element(mnemonic, arch, *first, 0) == element(mnemonic, arch, *last, 0) == 0x3F80_0002


@pytest.mark.parametrize(
    ("shape", "inputs", "arch", "products"),
    [
        ("m16n8k8", "f16", "sm_75", 8),
        ("m16n8k16", "f16", "sm_80", 8),
        ("m16n8k16", "bf16", "sm_89", 8),
        ("m16n8k8", "tf32", "sm_80", 4),
        ("m16n8k16", "f16", "sm_90", 16),
        ("m16n8k16", "bf16", "sm_103", 16),
        ("m16n8k8", "tf32", "sm_90", 8),
        ("m16n8k16", "e5m2", "sm_120", 16),
        ("m16n8k32", "e5m2", "sm_120", 32),
    ],
)
def test_products_of_one_step(shape: str, inputs: str, arch: str, products: int) -> None:
    """Two halves of an ulp beside a 1 make an ulp if they meet in one step; each alone is truncated."""
    mnemonic = dense(shape, inputs, "f32")
    k = parse(mnemonic).k
    for last in range(2, k):
        values = {0: 1.0, 1: 2.0**-12, last: 2.0**-12}
        codes_of_both = row(values, k, inputs)
        expected = 0x3F80_0001 if last < products else F32_ONE
        assert element(mnemonic, arch, codes_of_both, codes_of_both, 0) == expected
    assert products <= k


def test_f16_results_are_rounded_after_each_step() -> None:
    mnemonic = dense("m16n8k16", "f16", "f16")
    a, ones = row({0: 1.0, 1: 2.0**-11, 8: 2.0**-11}, 16, "f16"), [F16_ONE] * 16
    assert element(mnemonic, "sm_80", a, ones, 0) == 0x3C00  # each half ulp is a tie that goes back to 1
    assert element(mnemonic, "sm_90", a, ones, 0) == 0x3C01


@pytest.mark.parametrize(
    ("shape", "inputs", "arch", "last"),
    [
        ("m16n8k16", "bf16", "sm_80", -156),
        ("m16n8k8", "bf16", "sm_89", -156),
        ("m16n8k4", "tf32", "sm_86", -156),
        ("m16n8k8", "bf16", "sm_90", -158),
        ("m16n8k16", "bf16", "sm_100", -158),
        ("m16n8k4", "tf32", "sm_90", -158),
        ("m16n8k8", "tf32", "sm_121", -158),
    ],
)
def test_f32_floors_of_every_datapath(shape: str, inputs: str, arch: str, last: int) -> None:
    """2^last is the last bit beside the smallest f32; fp8 and f16 products are too large to show a floor of f32."""
    mnemonic = dense(shape, inputs, "f32")
    k = parse(mnemonic).k
    for exponent, expected in ((last, 0), (last - 1, 1)):
        a, b = row({0: 2.0**-75, 1: -(2.0**-80)}, k, inputs), row({0: 2.0**-74, 1: 2.0 ** (exponent + 80)}, k, inputs)
        assert element(mnemonic, arch, a, b, 0) == expected


@pytest.mark.parametrize(
    ("shape", "arch", "last"),
    [
        ("m8n8k4", "sm_70", -42),
        ("m8n8k4", "sm_75", -42),
        ("m16n8k8", "sm_75", -44),
        ("m16n8k8", "sm_80", -44),
        ("m16n8k16", "sm_89", -44),
        ("m16n8k8", "sm_90", -46),
        ("m16n8k16", "sm_100", -46),
        ("m16n8k16", "sm_120", -46),
    ],
)
def test_f16_floors_of_every_datapath(shape: str, arch: str, last: int) -> None:
    """2^last is the last bit that breaks the tie between 0 and the smallest f16; fp8 products are too large to."""
    mnemonic = dense(shape, "f16", "f16")
    k = parse(mnemonic).k
    for exponent, expected in ((last, 1), (last - 1, 0)):
        a, b = row({0: 2.0**-12, 1: 2.0**-23}, k, "f16"), row({0: 2.0**-13, 1: 2.0 ** (exponent + 23)}, k, "f16")
        assert element(mnemonic, arch, a, b, 0) == expected


@pytest.mark.parametrize(
    ("shape", "inputs", "arch", "bits"),
    [
        ("m8n8k4", "f16", "sm_70", 23),
        ("m8n8k4", "f16", "sm_72", 23),
        ("m8n8k4", "f16", "sm_75", 23),
        ("m16n8k8", "f16", "sm_75", 24),
        ("m16n8k8", "f16", "sm_80", 24),
        ("m16n8k8", "bf16", "sm_86", 24),
        ("m16n8k4", "tf32", "sm_87", 24),
        ("m16n8k8", "f16", "sm_89", 24),
        ("m16n8k16", "f16", "sm_90a", 25),
        ("m16n8k16", "bf16", "sm_100", 25),
        ("m16n8k8", "tf32", "sm_110", 25),
        ("m16n8k8", "f16", "sm_120", 25),
        ("m16n8k32", "e5m2", "sm_89", 13),
        ("m16n8k32", "e5m2", "sm_121", 25),
    ],
)
def test_kept_bits_of_every_datapath(shape: str, inputs: str, arch: str, bits: int) -> None:
    """1 - 1 + 2^-n is 2^-n down to n = F, where it is 0."""
    mnemonic = dense(shape, inputs, "f32")
    k = parse(mnemonic).k
    for n, expected in ((bits, 2.0**-bits), (bits + 1, 0.0)):
        half = n // 2
        a = row({0: 1.0, 1: -1.0, 2: 2.0**-half}, k, inputs)
        b = row({0: 1.0, 1: 1.0, 2: 2.0 ** (half - n)}, k, inputs)
        assert element(mnemonic, arch, a, b, 0) == exactly(expected, "f32")


def test_native_fp8_of_ada() -> None:
    mnemonic = dense("m16n8k32", "e4m3", "f32")
    early = row({0: 1.0, 16: 2.0**-7}, 32, "e4m3"), row({0: 1.0, 16: 2.0**-7}, 32, "e4m3")
    assert element(mnemonic, "sm_89", *early, 0) == F32_ONE  # 2^-14 beside a 1
    two_steps = row({0: 2.0**-7, 15: 2.0**-7, 16: 1.0}, 32, "e4m3"), row({0: 2.0**-7, 15: 2.0**-7, 16: 1.0}, 32, "e4m3")
    assert element(mnemonic, "sm_89", *two_steps, 0) == exactly(1 + 2.0**-13, "f32")  # summed before they meet the 1
    late = row({16: 1.0}, 32, "e4m3")  # 2 + 2^-13 in step 2, whose 14 significant bits end at 2^-12
    assert element(mnemonic, "sm_89", late, late, exactly(1 + 2.0**-13, "f32")) == exactly(2.0, "f32")
    one_step = row({1: 2.0**-7, 15: 2.0**-7, 0: 1.0}, 32, "e4m3"), row({1: 2.0**-7, 15: 2.0**-7, 0: 1.0}, 32, "e4m3")
    assert element(mnemonic, "sm_89", *one_step, 0) == F32_ONE


EMULATED_FP8 = [
    (dense(shape, "e4m3", "f32", kind), arch)
    for shape in ("m16n8k16", "m16n8k32")
    for arch in ("sm_90", "sm_90a", "sm_100", "sm_103", "sm_107", "sm_110")
    for kind in (("",) if arch.startswith("sm_90") else ("", ".kind::f8f6f4"))
]


@pytest.mark.parametrize(("mnemonic", "arch"), EMULATED_FP8)
def test_emulated_fp8(mnemonic: str, arch: str) -> None:
    k = parse(mnemonic).k
    big, tiny = 256.0, 2.0**-5  # big^2 = 2^16; tiny^2 = 2^-10 is lost in one step with it (F = 25)

    def run(a: dict[int, float], b: dict[int, float], c: float = 0.0) -> int:
        return element(mnemonic, arch, row(a, k, "e4m3"), row(b, k, "e4m3"), exactly(c, "f32"))

    def squares(at_big: int, at_minus_big: int, at_tiny: int) -> int:
        a = {at_big: big, at_minus_big: -big, at_tiny: tiny}
        return run(a, {at_big: big, at_minus_big: big, at_tiny: tiny})

    for first, second in ((0, 1), (0, 5), (k - 4, k - 3)):  # the big ones cancel within step 1
        assert squares(first, second, 2) == exactly(2.0**-10, "f32")
        assert squares(first, second, k - 1) == exactly(2.0**-10, "f32")
        assert squares(first, second, 8) == 0
    assert squares(2, 3, 0) == 0  # step 1 keeps 2^-10, and step 2 aligns it to 2^16
    assert squares(0, 2, 1) == squares(0, 2, 3) == squares(0, 2, 4) == 0

    # c comes last, by an f32 addition to nearest even: 1 + 2^-24 + 2^-26 is more than half an ulp above 1.
    assert run({0: 1.0}, {0: 1.0}, 2.0**-24 + 2.0**-26) == 0x3F80_0001
    assert run({0: 1.0}, {0: 1.0}, 2.0**-24) == F32_ONE
    assert run({0: big, 1: -big}, {0: big, 1: big}, 2.0**-60) == exactly(2.0**-60, "f32")
    assert element(mnemonic, arch, [0x80] * k, [0x38] * k, 0x8000_0000) == 0
    assert element(mnemonic, arch, [0x7F] + [0] * (k - 1), [0] * k, 0) == F32_NAN
    assert element(mnemonic, arch, [0] * k, [0] * k, 0xFFC0_0000) == F32_NAN
    assert element(mnemonic, arch, [0] * k, [0] * k, F32_LARGEST) == F32_LARGEST


def test_emulated_fp8_with_f16_accumulator_rounds_three_times() -> None:
    mnemonic = dense("m16n8k32", "e4m3", "f16")
    half_ulp = 2.0**-11
    a = row({0: 1.0, 1: 2.0**-5, 2: 2.0**-5}, 32, "e4m3")
    b = row({0: 1.0, 1: 2.0**-6, 2: 2.0**-6}, 32, "e4m3")
    c = exactly(half_ulp, "f16")
    assert element(mnemonic, "sm_90", a, b, c) == F16_ONE  # three ties, each back to 1
    assert element(mnemonic, "sm_120", a, b, c) == 0x3C02  # 1 + 3 * 2^-11: one tie, to the even neighbour
    assert element(mnemonic, "sm_89", a, b, c) == 0x3C02
    c_only = row({}, 32, "e4m3")
    assert element(mnemonic, "sm_90", c_only, c_only, 0x8000) == 0


def test_fp8_subnormals_are_normal_f16_numbers_in_the_emulation() -> None:
    # e4m3 2^-9 times e5m2 2^15: exponent 6 by way of f16, 9 natively (-6 + 15). 2^-19 is lost beside 9, kept beside 6.
    mnemonic = "mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e5m2.f32"
    a = row({0: 2.0**-9, 4: -(2.0**-9), 1: 2.0**-9}, 32, "e4m3")
    b = row({0: 2.0**15, 4: 2.0**15, 1: 2.0**-10}, 32, "e5m2")
    assert element(mnemonic, "sm_90", a, b, 0) == exactly(2.0**-19, "f32")
    assert element(mnemonic, "sm_120", a, b, 0) == 0


M8N8K4 = "mma.sync.aligned.m8n8k4.row.col."


@pytest.mark.parametrize("arch", ["sm_80", "sm_89", "sm_90", "sm_100", "sm_121"])
def test_m8n8k4_without_tensor_core(arch: str) -> None:
    ones = [F16_ONE] * 4
    tiny = exactly(2.0**-24, "f16")
    into_f32, from_f16, into_f16 = M8N8K4 + "f32.f16.f16.f32", M8N8K4 + "f32.f16.f16.f16", M8N8K4 + "f16.f16.f16.f16"
    up = [F16_ONE, tiny, tiny, 0]  # fma by fma, each 2^-24 is a tie that goes back to 1
    down = [tiny, tiny, F16_ONE, 0]  # 2^-23 first
    minus_one = 0xBF80_0000
    assert element(into_f32, arch, up, ones, minus_one) == 0
    assert element(into_f32, arch, down, ones, minus_one) == exactly(2.0**-23, "f32")
    assert element(from_f16, arch, up, ones, 0xBC00) == 0
    assert element(from_f16, arch, down, ones, 0xBC00) == exactly(2.0**-23, "f32")
    assert element(into_f32, arch, [F16_ONE, 0, 0, 0], ones, exactly(2.0**-24 + 2.0**-26, "f32")) == 0x3F80_0001  # RNE
    minus_zeros = [0x8000] * 4
    assert element(into_f32, arch, minus_zeros, ones, 0x8000_0000) == 0  # the chain starts from +0
    assert element(into_f16, arch, minus_zeros, ones, 0x8000) == 0x8000
    # (c + p01) + p23 in f32, then f16: 2^-25 is lost in f32 and the tie goes back to 1; exact it would be 0x3C01.
    a, b = [0, exactly(2.0**-11, "f16"), exactly(2.0**-12, "f16"), 0], [0, F16_ONE, exactly(2.0**-13, "f16"), 0]
    assert element(into_f16, arch, a, b, F16_ONE) == F16_ONE
    assert element(into_f16, arch, [exactly(32752.0, "f16")] * 2 + [0, 0], ones, exactly(16.0, "f16")) == 0x7C00
    assert element(into_f16, arch, [0x7C00, 0xFC00, 0, 0], ones, 0) == F16_NAN
    assert element(into_f32, arch, [0x7C00, 0, 0, 0], [0x8000] * 4, 0) == F32_NAN


def test_m8n8k4_f16_sums_in_pairs() -> None:
    # c = 0.375 and the products 2^22, 0.25, -2^22, 0. Beside 2^22 an f32 has steps of 0.5: p01 = 2^22,
    # c + p01 = 2^22 + 0.5. Products added to c one by one would give 1, c added last 0.375; the tensor core of sm_70
    # drops whatever is below 0.5 and gives 0.
    a = [exactly(value, "f16") for value in (2048.0, 0.25, 2048.0, 0.0)]
    b = [exactly(value, "f16") for value in (2048.0, 1.0, -2048.0, 0.0)]
    c = exactly(0.375, "f16")
    assert element(M8N8K4 + "f16.f16.f16.f16", "sm_90", a, b, c) == exactly(0.5, "f16")
    assert element(M8N8K4 + "f16.f16.f16.f16", "sm_70", a, b, c) == 0
    # Within a pair the second product is fused: a0*b0 = 1 + 2^-9 + 2^-20 and -(1 + 2^-9), exact both, leave 2^-20.
    a = [exactly(value, "f16") for value in (1 + 2.0**-10, 1 + 2.0**-9, 0.0, 0.0)]
    b = [exactly(value, "f16") for value in (1 + 2.0**-10, -1.0, 0.0, 0.0)]
    assert element(M8N8K4 + "f16.f16.f16.f16", "sm_90", a, b, 0) == exactly(2.0**-20, "f16")


def test_m8n8k4_of_volta_takes_an_f16_addend_as_it_is() -> None:
    mnemonic = M8N8K4 + "f32.f16.f16.f16"
    a = [0x0010, 0, 0, 0]  # 2^-20, whose square 2^-40 is lost beside the exponent -14 of a subnormal f16 addend
    assert element(mnemonic, "sm_70", a, a, 0x0001) == exactly(2.0**-24, "f32")
    assert element(mnemonic, "sm_80", a, a, 0x0001) == exactly(2.0**-24 + 2.0**-40, "f32")


def test_f64_is_a_chain_of_fma_over_ascending_k() -> None:
    one, tiny = code_of(1.0, "f64"), code_of(2.0**-53, "f64")
    ones = [one] * 4
    plain = "mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64"
    assert element(plain, "sm_80", [tiny, tiny, 0, 0], ones, one) == one  # each 2^-53 is a tie that goes back to 1
    assert element(plain, "sm_80", [tiny, one, 0, 0], ones, tiny) == code_of(1 + 2.0**-52, "f64")
    expected = {"rn": 1.0, "rz": 1.0, "rm": 1.0, "rp": 1 + 2.0**-51}
    minus = {"rn": -1.0, "rz": -1.0, "rm": -1 - 2.0**-51, "rp": -1.0}
    for modifier in expected:
        mnemonic = f"mma.sync.aligned.m8n8k4.row.col.{modifier}.f64.f64.f64.f64"
        assert element(mnemonic, "sm_90", [tiny, tiny, 0, 0], ones, one) == code_of(expected[modifier], "f64")
        negative = [tiny | 1 << 63, tiny | 1 << 63, 0, 0]
        assert element(mnemonic, "sm_90", negative, ones, one | 1 << 63) == code_of(minus[modifier], "f64")
    x = code_of(1 + 2.0**-30, "f64")
    minus_square = code_of(-1 - 2.0**-29, "f64")  # all of x^2 but its 2^-60
    assert element(plain, "sm_90", [x, 0, 0, 0], [x, 0, 0, 0], minus_square) == code_of(2.0**-60, "f64")
    assert element(plain, "sm_90", [0] * 4, ones, 1 << 63) == 0
    assert element(plain, "sm_90", [1 << 63] * 4, ones, 1 << 63) == 1 << 63


def test_int4_and_int8_clamp_once_everywhere() -> None:
    compared = 0
    for arch in ("sm_80", "sm_90", "sm_100", "sm_120"):
        for shape, inputs in (("m16n8k32", "s8"), ("m16n8k32", "s4")):
            for modifier, expected in (("", 0x8000_0000), (".satfinite", 0x7FFF_FFFF)):
                mnemonic = f"mma.sync.aligned.{shape}.row.col{modifier}.s32.{inputs}.{inputs}.s32"
                ones = [1] * 32
                assert element(mnemonic, arch, ones, ones, 2**31 - 32) == expected
                assert element(mnemonic, arch, ones, ones, 2**31 - 33) == 0x7FFF_FFFF
                all_ones = (1 << INTEGER_FORMATS[inputs].bits) - 1  # -1
                low = element(mnemonic, arch, ones, [all_ones] * 32, 2**31)
                assert low == (0x8000_0000 if modifier else 2**31 - 32)
                compared += 3
    assert compared == 48


# ---- every instruction ----


def all_mnemonics() -> list[str]:
    """Every mma.sync mnemonic without block scaling, spelled out here a second time."""
    names = []
    for layouts in ("row.row", "row.col", "col.row", "col.col"):
        names += [f"m8n8k4.{layouts}.{d}.f16.f16.{c}" for d, c in (("f16", "f16"), ("f32", "f16"), ("f32", "f32"))]
    for shape in ("m16n8k8.row.col", "m16n8k16.row.col"):
        names += [f"{shape}.f16.f16.f16.f16", f"{shape}.f32.f16.f16.f32", f"{shape}.f32.bf16.bf16.f32"]
    names += ["m16n8k4.row.col.f32.tf32.tf32.f32", "m16n8k8.row.col.f32.tf32.tf32.f32"]
    for shape, modifier in itertools.product(
        ("m8n8k4", "m16n8k4", "m16n8k8", "m16n8k16"), ("", "rn", "rz", "rm", "rp")
    ):
        names.append(f"{shape}.row.col.{modifier + '.' if modifier else ''}f64.f64.f64.f64")
    integer_shapes = {INT8: ("m8n8k16", "m16n8k16", "m16n8k32"), INT4: ("m8n8k32", "m16n8k32", "m16n8k64")}
    for inputs, shapes in integer_shapes.items():
        for shape, a, b, modifier in itertools.product(shapes, inputs, inputs, ("", "satfinite.")):
            names.append(f"{shape}.row.col.{modifier}s32.{a}.{b}.s32")
    for shape, operation in itertools.product(("m8n8k128", "m16n8k128", "m16n8k256"), ("xor", "and")):
        names.append(f"{shape}.row.col.s32.b1.b1.s32.{operation}.popc")
    for a, b, d in itertools.product(FP8 + FP6_FP4, FP8 + FP6_FP4, ("f16", "f32")):
        names.append(f"kind::f8f6f4.m16n8k32.row.col.{d}.{a}.{b}.{d}")
        if a in FP8 and b in FP8:
            names.append(f"kind::f8f6f4.m16n8k16.row.col.{d}.{a}.{b}.{d}")
            names += [f"{shape}.row.col.{d}.{a}.{b}.{d}" for shape in ("m16n8k16", "m16n8k32")]
    return [f"mma.sync.aligned.{name}" for name in names]


def exists(instruction: Instruction, arch: str) -> bool:
    """Whether `arch` has the instruction."""
    try:
        generation(instruction, arch)
    except ValueError:
        return False
    return True


def test_every_mnemonic_parses_and_exists_where_it_should() -> None:
    names = all_mnemonics()
    assert len(set(names)) == 168
    count = {f"sm_{number}": sum(exists(parse(name), f"sm_{number}") for name in names) for number in GENERATION}
    ampere = {"sm_80": 79, "sm_86": 79, "sm_87": 79, "sm_88": 79}
    blackwell = {"sm_100": 126, "sm_103": 126, "sm_107": 126, "sm_110": 126}
    expected = {"sm_70": 12, "sm_72": 12, "sm_75": 31, **ampere, "sm_89": 95, "sm_90": 110, **blackwell}
    assert count == {**expected, "sm_120": 168, "sm_121": 168}


@pytest.mark.parametrize(
    ("mnemonic", "arch", "why"),
    [
        ("mma.sync.aligned.m8n8k4.row.col.f32.bf16.bf16.f32", "sm_80", "has the shapes"),
        ("mma.sync.aligned.m16n8k16.row.row.f32.f16.f16.f32", "sm_80", "layout"),
        ("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f16", "sm_80", "do not go with"),
        ("mma.sync.aligned.m16n8k16.row.col.f32.f16.bf16.f32", "sm_80", "no instruction multiplies"),
        ("mma.sync.aligned.m16n8k16.row.col.satfinite.f32.f16.f16.f32", "sm_80", "satfinite"),
        ("mma.sync.aligned.m16n8k16.row.col.rz.f32.f16.f16.f32", "sm_80", "rounding"),
        ("mma.sync.aligned.m16n8k32.row.col.f32.e3m2.e4m3.f32", "sm_120", "kind::f8f6f4"),
        ("mma.sync.aligned.kind::f8f6f4.m16n8k16.row.col.f32.f16.f16.f32", "sm_120", "kind::f8f6f4"),
        ("mma.sync.aligned.m8n8k128.row.col.s32.b1.b1.s32", "sm_80", "popc"),
        ("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32.xor.popc", "sm_80", "popc"),
        ("mma.sp.aligned.m16n8k16.row.col.f32.f16.f16.f32", "sm_80", "not spelled"),
        ("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", "sm_75", "needs sm_80"),
        ("mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32", "sm_80", "needs sm_89"),
        ("mma.sync.aligned.kind::f8f6f4.m16n8k32.row.col.f32.e4m3.e4m3.f32", "sm_90", "needs sm_100"),
        ("mma.sync.aligned.m8n8k128.row.col.s32.b1.b1.s32.and.popc", "sm_75", "needs sm_80"),
        ("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", "sm_99", "no arch"),
    ],
)
def test_what_does_not_exist_raises(mnemonic: str, arch: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        generation(parse(mnemonic), arch)


def small_operands(instruction: Instruction) -> tuple[list[list[int]], list[list[int]], list[list[int]]]:
    """Matrices of small integers, different at every place, as values: A, B, C."""
    numbers = random.Random(instruction.mnemonic)

    def matrix(name: str, rows: int, columns: int) -> list[list[int]]:
        choices = {"b1": (0, 1), "u4": (0, 1, 2, 15), "u8": (0, 1, 2, 255)}.get(name, (-2, -1, 0, 1, 2))
        return [[numbers.choice(choices) for _ in range(columns)] for _ in range(rows)]

    m, n, k = instruction.m, instruction.n, instruction.k
    return matrix(instruction.a, m, k), matrix(instruction.b, k, n), matrix(instruction.c, m, n)


def codes(matrix: Sequence[Sequence[int]], name: str) -> list[list[int]]:
    """The codes of a matrix of integers."""
    return [[exactly(value, name) for value in line] for line in matrix]


def test_small_integers_are_exact_on_every_arch() -> None:
    compared = 0
    for mnemonic in all_mnemonics():
        instruction = parse(mnemonic)
        a, b, c = small_operands(instruction)
        combine: Callable[[int, int], int] = lambda x, y: x * y  # noqa: E731
        if instruction.bit_operation:
            combine = {"xor": int.__xor__, "and": int.__and__}[instruction.bit_operation]
        place = compared % instruction.m, compared % instruction.n
        column = [line[place[1]] for line in b]
        addend = c[place[0]][place[1]]
        truth = sum(combine(x, y) for x, y in zip(a[place[0]], column, strict=True)) + addend
        if truth == 0:  # whose sign is another test's question
            truth, addend = 1, addend + 1
        a_row, b_column = codes([a[place[0]]], instruction.a)[0], codes([column], instruction.b)[0]
        for number in GENERATION:
            if exists(instruction, f"sm_{number}"):
                result = element(mnemonic, f"sm_{number}", a_row, b_column, exactly(addend, instruction.c))
                assert result == exactly(truth, instruction.d), (mnemonic, number)
                compared += 1
    assert compared == 2 * 12 + 31 + 4 * 79 + 95 + 110 + 4 * 126 + 2 * 168


@pytest.mark.parametrize(
    ("mnemonic", "arch"),
    [
        ("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", "sm_90"),
        ("mma.sync.aligned.m8n8k4.row.col.f32.f16.f16.f32", "sm_70"),
        ("mma.sync.aligned.m16n8k32.row.col.s32.u8.s8.s32", "sm_80"),
        ("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64", "sm_80"),
    ],
)
def test_whole_matrices(mnemonic: str, arch: str) -> None:
    instruction = parse(mnemonic)
    a, b, c = small_operands(instruction)
    d = mma(mnemonic, arch, codes(a, instruction.a), codes(b, instruction.b), codes(c, instruction.c))
    compared = 0
    for i, j in itertools.product(range(instruction.m), range(instruction.n)):
        truth = sum(a[i][k] * b[k][j] for k in range(instruction.k)) + c[i][j]
        assert d[i][j] == exactly(truth, instruction.d)
        compared += 1
    assert compared == instruction.m * instruction.n


def test_operands_of_the_wrong_size_raise() -> None:
    mnemonic = "mma.sync.aligned.m8n8k4.row.col.f32.f16.f16.f32"
    good = [[0] * 4] * 8, [[0] * 8] * 4, [[0] * 8] * 8
    assert mma(mnemonic, "sm_70", *good) == [[0] * 8] * 8
    for position, name in enumerate("ABC"):
        bad = [list(matrix) for matrix in good]
        bad[position] = bad[position][:-1]
        with pytest.raises(ValueError, match=f"{name} must be"):
            mma(mnemonic, "sm_70", *bad)
    with pytest.raises(ValueError, match="takes 4 elements"):
        element(mnemonic, "sm_70", [0] * 3, [0] * 4, 0)


def test_no_two_datapaths_overlap() -> None:
    keys = [key for path in DATAPATHS for key in itertools.product(path.generations, path.shapes, path.inputs)]
    assert len(keys) == len(set(keys)) == 2 + 1 + 8 + 4 + 4 + 12 + 6 + 10
