"""The exact model's numbers: formats against `struct`, rounding against neighbours."""

from __future__ import annotations

import itertools
import math
from bisect import bisect_left
from collections.abc import Sequence
from fractions import Fraction

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.exact.exact_cases import (
    F32_INFINITY,
    F32_LARGEST,
    F32_NEGATIVE_INFINITY,
    bits16,
    bits32,
    bits64,
    check_decoded,
    code_of,
    modes,
    nearest_float,
)
from tests.exact.numbers import (
    FLOAT_FORMATS,
    FORMATS,
    MODES,
    Mode,
    decode,
    encode,
    encode_rz_overflow_to_infinity,
    floor_log2,
    infinity,
    scaled,
)

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
            if name == "s1z4m11" and code & 0x7800:  # bits that must be 0
                continue
            number = decode(code, name)
            if number.kind in ("infinity", "nan"):
                continue
            modes_here: Sequence[Mode] = [mode for mode in MODES if name != "ue8m0" or mode != "rne"]
            for mode in modes_here:
                back = encode(number.value, number.sign, name, mode)
                assert back == {"ue4m3": code & 0x7F, "s1z4m11": code if number.value else 0}.get(name, code)
                compared += 1
    f16, bf16, e5m2, e4m3, small, scales = 63488, 65280, 248, 254, 64 + 64 + 16, 255 * 4 + 254 * 5
    integers = 256 + 256 + 16 + 16 + 2 + 4096
    assert compared == 5 * (f16 + bf16 + e5m2 + e4m3 + small + integers) + scales + 5 * 255


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
