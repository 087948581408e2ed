"""Encoding: every rounding against the exact model, ml_dtypes and NumPy; integers; round trips."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import tcsim
from tcsim import FormatError
from tcsim.numbers.codec import as_scale_codes, negated
from tcsim.numbers.rounding import Rounding
from tests.exact import numbers
from tests.unit.tcsim.numbers.format_cases import (
    BITS32,
    FLOATS,
    INTEGERS,
    MODES,
    NARROW,
    TWINS,
    UNSIGNED,
    all_codes,
    as_float64,
)

# ---- encoding


@pytest.mark.parametrize("source", ["f16", "bf16"])
def test_every_16_bit_number_encodes_as_in_ml_dtypes(source: str) -> None:
    """All finite f16 and bf16 values to every format of at most 8 bits, rounding to nearest even."""
    values = all_codes(source).view(TWINS[source])
    values = values[np.isfinite(as_float64(values))]
    finite = {"f16": 63488, "bf16": 65280}[source]
    assert values.size == finite
    compared = 0
    for target in NARROW:
        if target not in TWINS:
            continue
        codes = tcsim.encode(values, target)
        with np.errstate(over="ignore", invalid="ignore"):
            twin = values.astype(np.float32).astype(TWINS[target]).view(np.uint8)
        agree = codes == twin
        if target == "ue8m0":
            # below 2**-126, the least normal f32, ml_dtypes takes all but 2**-127 up, and +0 for a NaN
            wide = values.astype(np.float64)
            tiny = ~np.signbit(wide) & (wide < 2.0**-126)
            assert (codes[tiny] == (wide[tiny] >= 1.5 * 2.0**-127)).all()
            agree |= tiny
        assert agree.all(), (target, values[~agree][:5])
        compared += codes.size
    assert compared == 6 * finite


@pytest.mark.parametrize("target", ["f16", "bf16"])
def test_f32_around_every_tie_of_a_16_bit_format(target: str) -> None:
    """Between all neighbours of f16 and bf16: the f32 tie and the f32 numbers on either side of it."""
    codes = all_codes(target)
    finite = codes[np.isfinite(as_float64(codes.view(TWINS[target])))]
    below = finite.view(TWINS[target]).astype(np.float64)
    above = (finite + np.uint16(1)).view(TWINS[target]).astype(np.float64)
    limit = 2.0**16 if target == "f16" else 2.0**128
    above = np.where(np.isinf(above), np.copysign(limit, above), above)
    middle = ((below + above) / 2).astype(np.float32)
    assert (middle == (below + above) / 2).all()  # f32 holds every tie
    compared = 0
    for near in (np.nextafter(middle, np.float32(-np.inf)), middle, np.nextafter(middle, np.float32(np.inf))):
        with np.errstate(over="ignore"):
            twin = near.astype(TWINS[target]).view(np.uint16)
        assert (tcsim.encode(near, target) == twin).all()
        compared += near.size
    assert compared == 3 * {"f16": 63488, "bf16": 65280}[target]


@given(BITS32)
@example(0x7F7FFFFF)
@example(0x477FF000)  # 65520, the tie with f16's infinity
@example(0x477FEFFF)
@example(0x33000000)  # half of the least f16
@example(0x33000001)
@example(0x00008000)  # half of the least bf16
@example(0x7F800000)
@example(0xFF800000)
def test_f32_to_16_bits_as_in_numpy(code: int) -> None:
    """Any f32, and its neighbours, to f16 and bf16."""
    codes = np.clip(np.arange(-3, 4, dtype=np.int64) + code, 0, 2**32 - 1).astype(np.uint32)
    values = codes.view(np.float32)
    values = values[~np.isnan(values)]
    for target in ("f16", "bf16"):
        with np.errstate(over="ignore"):
            twin = values.astype(TWINS[target]).view(np.uint16)
        assert (tcsim.encode(values, target) == twin).all()


@given(st.floats(allow_nan=False))
@example(float(np.finfo(np.float32).max) + 2.0**102)
@example(2.0**128 - 2.0**103)
@example(2.0**-150)
@example(math.nextafter(2.0**-150, 1))
def test_f64_to_f32_as_in_numpy(value: float) -> None:
    """Any f64 to f32, and to itself."""
    with np.errstate(over="ignore"):
        twin = np.float64(value).astype(np.float32).view(np.uint32)
    assert tcsim.encode(value, "f32") == twin
    assert tcsim.encode(value, "f64") == np.float64(value).view(np.uint64)


def expected_code(value: float, name: str, mode: Rounding, saturate: bool) -> int:
    """The exact model's code, with what tcsim promises where that model raises."""
    row = tcsim.format(name)
    sign = int(math.copysign(1, value) < 0)
    if name == "ue8m0" and 0 <= value < 2.0**-127 and not sign:
        return 0  # no zero and no subnormals: the least number
    if row.canonical_nan is not None and name in UNSIGNED and sign:
        mirrored: dict[str, Rounding] = {"rm": "rp", "rp": "rm"}  # what the mode does to the magnitude
        kept = row.zero and numbers.encode(abs(Fraction(value)), 0, name, mirrored.get(mode, mode), True)
        return row.canonical_nan if kept or not row.zero else 0
    if name == "ue8m0" and mode == "rne":  # the exact model knows no even neighbour: ties go up, as in ml_dtypes
        mode = "rna"
    return numbers.encode(Fraction(value), sign, name, mode, saturate or row.nan == "none")


@pytest.mark.parametrize("name", NARROW)
def test_every_mode_between_all_neighbours(name: str) -> None:
    """Every rounding mode, saturating or not, at and between all neighbours of the small formats and past the end."""
    finite = np.unique(np.abs(tcsim.decode(all_codes(name), name)))
    finite = finite[np.isfinite(finite)]
    step = finite[-1] - finite[-2]
    ladder = [0.0, *finite.tolist(), finite[-1] + step, 2 * finite[-1], 2.0**300]
    points = []
    for below, above in itertools.pairwise(ladder):
        gap = above - below
        points += [
            below,
            below + gap / 2**20,
            below + gap / 4,
            below + gap / 2,
            below + 3 * gap / 4,
            above - gap / 2**20,
        ]
    values = np.array([sign * point for point in points for sign in (1.0, -1.0)])
    compared = 0
    for mode in MODES:
        for saturate in (False, True):
            codes = tcsim.encode(values, name, mode, saturate)
            for value, code in zip(values.tolist(), codes.tolist(), strict=True):
                assert code == expected_code(value, name, mode, saturate), (value, mode, saturate)
                compared += 1
    assert compared == len(MODES) * 2 * 2 * 6 * (len(finite) + 3)
    assert (
        len(finite)
        == {"e4m3": 127, "e5m2": 124, "e3m2": 32, "e2m3": 32, "e2m1": 8, "ue8m0": 255, "ue4m3": 127, "ue5m3": 255}[name]
    )


@st.composite
def near_codes(draw: st.DrawFn) -> tuple[str, float]:
    """A format and a value at, or a random part of the way to the next one from, one of its numbers."""
    name = draw(st.sampled_from(["f16", "bf16", "tf32", "f32"]))
    row = tcsim.format(name)
    low = draw(st.integers(0, row.largest_code))
    codes = np.array([low, min(low + 1, row.largest_code)], np.uint64) << np.uint64(row.ignored_low_bits)
    below, above = tcsim.decode(codes.astype(row.dtype), name).tolist()
    part = draw(st.sampled_from([0.0, 2.0**-20, 0.25, 0.5, 0.75, 1 - 2.0**-20]) | st.floats(0, 1))
    return name, draw(st.sampled_from([1.0, -1.0])) * (below + part * (above - below))


@given(near_codes(), st.sampled_from(MODES), st.booleans())
@example(("f32", 2.0**128 - 2.0**103), "rne", False)
@example(("f32", 2.0**128 - 2.0**103), "rz", False)
@example(("f16", -65519.99), "rm", False)
@example(("f16", 65519.99), "rp", True)
@example(("bf16", -(2.0**-134)), "rne", False)
@example(("tf32", 2.0**-137), "rp", False)
@example(("f32", -0.0), "rp", False)
def test_every_mode_of_the_wide_formats(drawn: tuple[str, float], mode: Rounding, saturate: bool) -> None:
    """f16, bf16, tf32 and f32 between neighbours: every rounding mode against the exact model."""
    name, value = drawn
    assert int(tcsim.encode(value, name, mode, saturate)) == expected_code(value, name, mode, saturate)


@given(
    st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from(sorted(FLOATS)),
    st.sampled_from(MODES),
    st.booleans(),
)
def test_any_float_in_any_format_and_mode(value: float, name: str, mode: Rounding, saturate: bool) -> None:
    """Any f64, mostly far outside: overflow and underflow in every mode."""
    assert int(tcsim.encode(value, name, mode, saturate)) == expected_code(value, name, mode, saturate)


def test_infinities_and_nan() -> None:
    """Infinity where there is one, else NaN, else the largest number; NaN is the canonical one or an error."""
    checked = 0
    for name in FLOATS:
        row = tcsim.format(name)
        sign = (0 if name in UNSIGNED else 1 << row.sign_shift) << row.ignored_low_bits
        largest = row.largest_code << row.ignored_low_bits
        plus = largest if row.nan == "none" else (row.largest_code + 1) << row.ignored_low_bits
        assert int(tcsim.encode(math.inf, name)) == plus
        assert int(tcsim.encode(math.inf, name, saturate=True)) == largest
        if name in UNSIGNED:
            assert int(tcsim.encode(-math.inf, name)) == row.canonical_nan
        else:
            assert int(tcsim.encode(-math.inf, name)) == plus | sign
            assert int(tcsim.encode(-math.inf, name, saturate=True)) == largest | sign
        for nan in (math.nan, -math.nan):
            if row.canonical_nan is None:
                with pytest.raises(FormatError, match=f"NaN has no code in {name}; formats with NaN: f16, .*f64"):
                    tcsim.encode([1.0, nan], name)
            else:
                assert int(tcsim.encode(nan, name)) == row.canonical_nan
        checked += 1
    assert checked == 13


def test_encode_keeps_the_shape_and_takes_every_real_type() -> None:
    """Scalars, lists, strided arrays, integers and ml_dtypes arrays are values of the same kind."""
    assert tcsim.encode(1.0, "f16").shape == ()
    table = np.arange(12.0).reshape(3, 4)
    want = table.astype(np.float16).view(np.uint16)
    for given_ in (
        table,
        table.tolist(),
        table.astype(np.int8),
        table.astype(np.uint64),
        table.astype(ml_dtypes.bfloat16),
    ):
        assert (tcsim.encode(given_, "f16") == want).all()
    assert (tcsim.encode(table.T[::2], "f16") == want.T[::2]).all()
    assert (tcsim.decode(want.T[::2], "f16") == table.T[::2]).all()
    assert tcsim.encode(np.zeros((0, 3)), "e2m1").shape == (0, 3)


def test_encode_refuses_what_it_would_have_to_guess() -> None:
    """Unknown modes, complex numbers, text, and integers that float64 would round."""
    for name in ("f16", "s8"):
        with pytest.raises(FormatError, match=r"no rounding 'up'; valid: rne, rz, rm, rp, rna"):
            tcsim.encode(1.0, name, "up")  # type: ignore[arg-type]
    with pytest.raises(FormatError, match="not real"):
        tcsim.encode([1 + 1j], "f16")
    with pytest.raises(FormatError, match="not real"):
        tcsim.encode(["1"], "f16")
    assert int(tcsim.encode(2**53, "f64")) == 0x4340000000000000
    for number in (2**53 + 1, -(2**53) - 1):
        with pytest.raises(FormatError, match="rounded twice"):
            tcsim.encode(number, "f32")


# ---- integers


def test_integers() -> None:
    """In range both ways; out of range an error, or clamped."""
    compared = 0
    for name, (bits, _, low, high) in INTEGERS.items():
        values = np.arange(low, high + 1) if bits <= 8 else np.array([low, low + 1, -1, 0, 1, high - 1, high])
        codes = tcsim.encode(values, name)
        assert codes.dtype == tcsim.format(name).dtype
        if name != "s1z4m11":
            assert (codes == (values & ((1 << bits) - 1))).all()
        assert (tcsim.decode(codes, name) == values).all()
        assert (tcsim.encode(values.astype(np.float64), name) == codes).all()
        for outside, nearest in ((low - 1, low), (high + 1, high), (-(2**40), low), (2**40, high)):
            with pytest.raises(
                FormatError, match=f"{outside} is outside {name}, {low} to {high}; saturate=True clamps"
            ):
                tcsim.encode([0, outside], name)
            assert tcsim.decode(tcsim.encode([outside], name, saturate=True), name)[0] == nearest
        compared += values.size
    assert compared == 256 + 256 + 16 + 16 + 2 + 7 + 7
    assert tcsim.encode([-2047, -1, 0, 2047], "s1z4m11").tolist() == [0x87FF, 0x8001, 0, 0x7FF]
    assert tcsim.decode(np.uint16([0x8000]), "s1z4m11").tolist() == [0]  # minus zero
    assert (tcsim.format("s8").limits, tcsim.format("s1z4m11").limits) == ((-128, 127), (-2047, 2047))
    for call in (tcsim.decode, tcsim.as_codes):
        with pytest.raises(FormatError, match="0x4001 is not a code of s1z4m11, bits 0x7800 of a code must be 0"):
            call(np.uint16([0x8001, 0x4001]), "s1z4m11")


@pytest.mark.parametrize("value", [1.5, math.nan, math.inf])
@pytest.mark.parametrize("dtype", [np.float64, np.float16, ml_dtypes.bfloat16])
def test_an_integer_format_takes_integral_values_only(value: float, dtype: Any) -> None:
    """A fraction, a NaN or an infinity has no integer code, whatever the type of the array that holds it."""
    with pytest.raises(FormatError, match=r"integral|outside"):
        tcsim.encode(np.array([value], dtype), "s8")


@pytest.mark.parametrize("value", [1 + 1j, "1"])
def test_an_integer_format_takes_real_values_only(value: object) -> None:
    """Complex numbers and text are refused, as for the float formats."""
    with pytest.raises(FormatError, match="not real"):
        tcsim.encode([value], "s8")


def test_a_negated_code_is_the_negated_number() -> None:
    """Of every code of every signed float format, of tf32's too, whose low bits are ignored; no other bit changes."""
    compared = 0
    for name, row in tcsim.FORMATS.items():
        if row.kind == "float" and row.signed:
            codes = all_codes(name) if row.bits <= 16 else np.array([0, 1 << 20, 0x3F80_0000, 0x7F80_1FFF], row.dtype)
            found = negated(codes, row)
            np.testing.assert_array_equal(tcsim.decode(found, name), -tcsim.decode(codes, name))
            assert np.unique(found ^ codes).size == 1
            compared += codes.size
    assert compared == 2 * 65536 + 2 * 256 + 2 * 64 + 16 + 3 * 4


def test_signed_e4m3_is_taken_for_ue4m3_alone() -> None:
    """The codes of scales: an array of float8_e4m3fn counts as ue4m3; for another format it is a wrong dtype, as anywhere."""
    scales = np.array([1.0, 2.0], ml_dtypes.float8_e4m3fn)
    assert as_scale_codes(scales, "ue4m3").tolist() == [0x38, 0x40]
    with pytest.raises(FormatError, match="dtype float8_e4m3fn does not hold codes of ue8m0"):
        as_scale_codes(scales, "ue8m0")
    with pytest.raises(FormatError, match="dtype float32 does not hold codes of ue4m3"):
        as_scale_codes(scales.astype(np.float32), "ue4m3")


def test_floats_of_more_than_64_bits_are_refused() -> None:
    """They would be rounded twice: 1 + 2**-11 + 2**-63 is nearer to the f16 above 1, but a tie once it is a float64."""
    value = np.longdouble(1) + np.longdouble(2) ** -11 + np.longdouble(2) ** -63
    if value.dtype.itemsize > 8:
        with pytest.raises(FormatError, match="wider than 64 bits"):
            tcsim.encode(value, "f16")
    assert int(tcsim.encode(np.float64(value), "f16")) == 0x3C00  # to nearest even, from the tie


# ---- round trips


def test_every_code_survives_a_round_trip() -> None:
    """decode, then encode in any mode: the same code, but for NaN (canonical), ue4m3's sign and tf32's low bits."""
    compared = 0
    stream = np.random.Generator(np.random.PCG64(3))
    for name, row in tcsim.FORMATS.items():
        if row.bits <= 16:
            codes = all_codes(name)
        else:
            codes = stream.integers(0, 1 << row.container_bits, 20_000, np.uint64).astype(row.dtype)
        values = tcsim.decode(codes, name)
        want = codes
        if row.kind == "float":
            want = codes >> row.ignored_low_bits << row.ignored_low_bits
            if row.canonical_nan is not None:
                want = np.where(np.isnan(values), row.dtype.type(row.canonical_nan), want)
        elif row.sign_magnitude:
            want = np.where(values == 0, 0, codes)  # minus zero is 0
        for mode in MODES:
            assert (tcsim.encode(values, name, mode) == want).all(), (name, mode)
            compared += codes.size
    assert compared == 5 * (2 * 65536 + 4096 + 4 * 256 + 128 + 2 * 64 + 16 + 2 * 256 + 2 * 16 + 2 + 4 * 20_000)
