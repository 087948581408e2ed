"""The exact model's steps: IEEE operations against Python and fractions, fused sums against sums made by hand."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from fractions import Fraction
from functools import partial

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.exact.exact_cases import (
    F16_NAN,
    F16_ONE,
    F32_INFINITY,
    F32_LARGEST,
    F32_NAN,
    F32_NEGATIVE_INFINITY,
    F32_ONE,
    bits32,
    bits64,
    code_of,
    exactly,
    float_of,
    modes,
    nearest_float,
)
from tests.exact.numbers import (
    Mode,
    canonical_nan,
    decode,
    floor_log2,
    scaled,
)
from tests.exact.steps import (
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
