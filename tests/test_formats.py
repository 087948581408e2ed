"""Number formats: every code of up to 16 bits against ml_dtypes and NumPy, every rounding against the exact model."""

from __future__ import annotations

import itertools
import math
import warnings
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest
from exact import numbers
from hypothesis import example, given
from hypothesis import strategies as st

import tcsim
from tcsim import FormatError
from tcsim.formats import CLASS_NAMES
from tcsim.rounding import Rounding

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
UNSIGNED = ("ue8m0", "ue4m3")
MODES: tuple[Rounding, ...] = ("rne", "rz", "rm", "rp", "rna")
BITS32 = st.integers(0, 2**32 - 1)


def all_codes(name: str) -> npt.NDArray[Any]:
    """Every code of a format of at most 16 bits."""
    return np.arange(1 << tcsim.format(name).bits, dtype=tcsim.format(name).dtype)


def as_float64(values: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    """Values as float64; NumPy warns when a signalling NaN changes its type."""
    with np.errstate(invalid="ignore"):
        return values.astype(np.float64)


def same(x: npt.NDArray[np.float64], y: npt.NDArray[np.float64]) -> npt.NDArray[np.bool_]:
    """Where two arrays hold the same value: zeros by sign, NaN equal to NaN."""
    return ((x == y) & (np.signbit(x) == np.signbit(y))) | (np.isnan(x) & np.isnan(y))


# ---- what there is


def test_the_vocabulary_and_its_numbers() -> None:
    """Exactly the formats of the vocabulary exist, with the widths and limits of their specifications."""
    assert set(tcsim.FORMATS) == set(FLOATS) | set(INTEGERS)
    assert len(tcsim.FORMATS) == 18
    for name, (bits, container, exponent_bits, fraction_bits, bias, largest, least, nan) in FLOATS.items():
        row = tcsim.format(name)
        assert (row.name, row.kind) == (name, "float")
        assert (row.bits, row.container_bits, row.dtype) == (bits, container, np.dtype(f"uint{container}"))
        assert (row.exponent_bits, row.fraction_bits, row.bias) == (exponent_bits, fraction_bits, bias)
        assert (row.largest, row.canonical_nan) == (largest, nan)
        assert row.signed == (name not in UNSIGNED)
        one = 0 if name == "ue8m0" else 1  # a power of two has no zero below its least number
        code = np.array([one << row.ignored_low_bits], row.dtype)
        assert tcsim.decode(code, name)[0] == least
        assert row.source
    for name, (bits, container, low, high) in INTEGERS.items():
        row = tcsim.format(name)
        assert row.kind == ("bit" if name == "b1" else "integer")
        assert (row.bits, row.container_bits, row.signed) == (bits, container, low < 0)
        assert row.largest == high


def test_a_format_is_found_by_name_only_if_it_exists() -> None:
    """A row stands for itself; an unknown name lists the nearest and all."""
    assert tcsim.format(tcsim.format("e4m3")) is tcsim.format("e4m3")
    with pytest.raises(FormatError, match=r"no number format 'e4m2'; nearest: .*e4m3.*; all: f16, bf16, tf32, .*s32"):
        tcsim.format("e4m2")
    for call in (tcsim.encode, tcsim.decode, tcsim.as_codes):
        with pytest.raises(FormatError, match="no number format 'fp8'"):
            call(np.zeros(1, np.uint8), "fp8")


# ---- decoding


def test_every_code_decodes_as_in_ml_dtypes_and_numpy() -> None:
    """All codes of every format of at most 16 bits that another library has."""
    compared = 0
    for name, dtype in TWINS.items():
        codes = all_codes(name)
        values = tcsim.decode(codes, name)
        assert values.dtype == (np.float64 if name in FLOATS else np.int64)
        assert same(values.astype(np.float64), as_float64(codes.view(dtype))).all(), name
        compared += codes.size
    assert compared == 2 * 65536 + 3 * 256 + 2 * 64 + 16 + 2 * 256 + 2 * 16 + 2


def test_ue8m0_and_ue4m3() -> None:
    """ue8m0 is 2**(code - 127) but for its NaN; ue4m3 is e4m3 whose sign bit is ignored."""
    powers = tcsim.decode(all_codes("ue8m0"), "ue8m0")
    assert powers[0] == 2.0**-127
    assert [math.log2(value) for value in powers[:-1]] == list(range(-127, 128))
    assert np.isnan(powers[-1])
    octets = np.arange(256, dtype=np.uint8)
    unsigned = tcsim.decode(octets, "ue4m3")
    assert same(unsigned, tcsim.decode(octets & np.uint8(0x7F), "e4m3")).all()


def test_wide_codes_decode_as_in_numpy() -> None:
    """f32, f64 and s32 are views; tf32 is the f32 without its low 13 bits. Every exponent with both signs."""
    words = np.random.Generator(np.random.PCG64(1)).integers(0, 2**64, 40_000, np.uint64)
    halves = (words >> np.uint64(32)).astype(np.uint32)
    assert len(np.unique(halves >> np.uint32(23))) == 512
    assert same(tcsim.decode(words, "f64"), words.view(np.float64)).all()
    assert same(tcsim.decode(halves, "f32"), as_float64(halves.view(np.float32))).all()
    kept = halves & np.uint32(0xFFFFE000)
    assert same(tcsim.decode(halves, "tf32"), as_float64(kept.view(np.float32))).all()
    assert (tcsim.decode(halves, "s32") == halves.view(np.int32)).all()


@pytest.mark.parametrize(
    ("name", "code"), [("f16", 0x7C01), ("bf16", 0x7F81), ("tf32", 0x7F802000), ("f32", 0x7F800001)]
)
def test_a_signalling_nan_decodes_in_silence(name: str, code: int) -> None:
    """It is a NaN like any other: no warning of NumPy's gets out."""
    codes = np.array([code], tcsim.format(name).dtype)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert np.isnan(tcsim.decode(codes, name)).all()
        if name in ("f16", "f32"):
            assert tcsim.encode(codes.view(TWINS.get(name, np.float32)), name) == tcsim.format(name).canonical_nan


def test_fields_against_the_exact_model() -> None:
    """Sign, exponent, significand and class of every code of at most 16 bits, and of samples of the wider formats."""
    compared = 0
    stream = np.random.Generator(np.random.PCG64(2))
    for name in FLOATS:
        row = tcsim.format(name)
        if row.container_bits <= 16:
            codes = np.arange(1 << row.container_bits, dtype=row.dtype)
            codes = codes[codes < 1 << max(8, row.bits)] if name == "ue4m3" else all_codes(name)
        else:
            codes = stream.integers(0, 1 << row.container_bits, 4000, np.uint64).astype(row.dtype)
            edges = [0, 1, row.largest_code, row.largest_code + 1, row.largest_code + 2, 1 << row.fraction_bits]
            sign = 1 << row.sign_shift
            both = np.array([e | s for e in edges for s in (0, sign)], np.uint64)
            codes = np.concatenate([codes, (both << np.uint64(row.ignored_low_bits)).astype(row.dtype)])
        parts = row.fields(codes)
        for place, code in enumerate(codes.tolist()):
            truth = numbers.decode(code, name)
            assert CLASS_NAMES[parts.kind[place]] == truth.kind, (name, code)
            assert parts.sign[place] == truth.sign
            if truth.kind in ("zero", "subnormal", "normal"):
                assert truth.fraction_bits == row.fraction_bits
                assert (parts.exponent[place], parts.significand[place]) == (truth.exponent, truth.significand)
            compared += 1
    assert compared == 2 * 65536 + 4 * 256 + 2 * 64 + 16 + 3 * 4012
    with pytest.raises(FormatError, match="s8 is an integer format"):
        tcsim.format("s8").fields(np.zeros(1, np.uint8))


def test_fields_drop_what_lies_outside_the_code() -> None:
    """Bits above an fp6 or fp4 code, and the low bits of tf32, do not count."""
    for name, noise in (("e3m2", 0xC0), ("e2m3", 0x40), ("e2m1", 0xF0)):
        codes = all_codes(name)
        clean, noisy = (tcsim.format(name).fields(array) for array in (codes, codes | np.uint8(noise)))
        assert (clean.sign == noisy.sign).all()
        assert (clean.exponent == noisy.exponent).all()
        assert (clean.significand == noisy.significand).all()
        assert (clean.kind == noisy.kind).all()
    infinity = tcsim.format("tf32").fields(np.array([0x7F801FFF], np.uint32))
    assert CLASS_NAMES[infinity.kind[0]] == "infinity"


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
        if target == "ue4m3":
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
        rounded_to_zero = name == "ue4m3" and numbers.encode(Fraction(value), 1, "e4m3", mode, True) == 0x80
        return 0 if rounded_to_zero else row.canonical_nan
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
        len(finite) == {"e4m3": 127, "e5m2": 124, "e3m2": 32, "e2m3": 32, "e2m1": 8, "ue8m0": 255, "ue4m3": 127}[name]
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
    assert checked == 12


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
    assert compared == 256 + 256 + 16 + 16 + 2 + 7


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


def test_floats_of_more_than_64_bits_are_refused() -> None:
    """They would be rounded twice: 1 + 2**-11 + 2**-63 is nearer to the f16 above 1, but a tie once it is a float64."""
    value = np.longdouble(1) + np.longdouble(2) ** -11 + np.longdouble(2) ** -63
    if value.dtype.itemsize > 8:
        with pytest.raises(FormatError, match="wider than 64 bits"):
            tcsim.encode(value, "f16")
    assert int(tcsim.encode(np.float64(value), "f16")) == 0x3C00  # to nearest even, from the tie


# ---- codes


def test_as_codes_takes_exactly_the_format() -> None:
    """The container's codes, and arrays of the very same type under another name; no copies of other values."""
    taken = 0
    for name in tcsim.FORMATS:
        codes = np.zeros((2, 3), tcsim.format(name).dtype)
        assert (tcsim.as_codes(codes, name) == codes).all()
        taken += 1
    wide = [("f32", np.float32), ("tf32", np.float32), ("f64", np.float64), ("s32", np.int32)]
    aliases: list[tuple[str, Any]] = [*TWINS.items(), *wide]
    for name, dtype in aliases:
        codes = np.array([[0, 1], [1, 1]], tcsim.format(name).dtype) << tcsim.format(name).ignored_low_bits
        values = codes.view(dtype)
        taken_as = tcsim.as_codes(values, name)
        assert taken_as.dtype == codes.dtype
        assert (taken_as == codes).all()
        assert (tcsim.decode(values, name) == values.astype(np.float64)).all()
        assert (tcsim.as_codes(values[::-1, 1:], name) == codes[::-1, 1:]).all()
        taken += 1
    assert taken == 18 + 17
    assert tcsim.as_codes(np.array([-1, 7], ml_dtypes.int4), "s4").tolist() == [15, 7]


# (what, format, complaint) of arrays that hold no codes of the format
REFUSALS: list[tuple[Any, str, str]] = [
    (np.zeros(1, np.float32), "f16", "dtype float32 does not hold codes of f16; valid: uint16, float16"),
    (np.zeros(1, np.float16), "bf16", "valid: uint16, bfloat16"),
    (np.zeros(1, np.int16), "f16", "dtype int16"),
    (np.zeros(1, np.uint32), "f16", "dtype uint32"),
    (np.zeros(1, np.int8), "u8", r"valid: uint8 \(or convert with tcsim.encode\(x, 'u8'\)\)"),
    (np.zeros(1, np.uint16), "e4m3", "valid: uint8, float8_e4m3fn"),
    (np.zeros(1, np.float64), "tf32", "valid: uint32"),
    ([0, 1], "s32", "dtype int64 does not hold codes of s32; valid: uint32, int32"),
    (np.zeros(1, np.uint8), "s32", "dtype uint8"),
    (np.array([16], np.uint8), "s4", "0x10 is not a code of s4, which has 4 bits: valid codes are 0 to 0xf"),
    (np.array([3, 0x1F], np.uint8), "u4", "0x1f is not a code of u4"),
    (np.array([2], np.uint8), "b1", "0x2 is not a code of b1"),
    (np.array([0x40], np.uint8), "e3m2", "0x40 is not a code of e3m2"),
    (np.array([0x80], np.uint8), "e2m3", "0x80 is not a code of e2m3"),
    (np.array([0x10], np.uint8), "e2m1", "0x10 is not a code of e2m1"),
]


@pytest.mark.parametrize(("what", "name", "complaint"), REFUSALS)
def test_as_codes_refuses_everything_else(what: Any, name: str, complaint: str) -> None:
    """Another type, or bits outside the code: the error names both and what would be valid."""
    with pytest.raises(FormatError, match=complaint):
        tcsim.as_codes(what, name)
    with pytest.raises(FormatError, match=f"b of the call: .*{complaint}"):
        tcsim.as_codes(what, name, "b of the call")


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
        for mode in MODES:
            assert (tcsim.encode(values, name, mode) == want).all(), (name, mode)
            compared += codes.size
    assert compared == 5 * (2 * 65536 + 3 * 256 + 128 + 2 * 64 + 16 + 2 * 256 + 2 * 16 + 2 + 4 * 20_000)
