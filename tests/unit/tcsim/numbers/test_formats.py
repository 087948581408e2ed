"""Number formats: what they are, and every code of up to 16 bits against ml_dtypes and NumPy."""

from __future__ import annotations

import math
import warnings
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tcsim
from tcsim import FormatError
from tcsim.numbers.formats import CLASS_NAMES, NO_EXPONENT
from tests.exact import numbers
from tests.unit.tcsim.numbers.format_cases import FLOATS, INTEGERS, TWINS, UNSIGNED, all_codes, as_float64, same

# ---- what there is


def test_the_vocabulary_and_its_numbers() -> None:
    """Exactly the formats of the vocabulary exist, with the widths and limits of their specifications."""
    assert set(tcsim.FORMATS) == set(FLOATS) | set(INTEGERS)
    assert len(tcsim.FORMATS) == 20
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
    assert compared == 2 * 65536 + 5 * 256 + 2 * 64 + 16 + 3 * 4012
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
    assert taken == 20 + 17
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


@pytest.mark.parametrize("name", ["f32", "tf32"])
def test_exponents_of_wide_formats_are_those_of_their_fields(name: str) -> None:
    """Of random codes, subnormal numbers, infinities and NaN, whose exponents do not come from a table."""
    row, random = tcsim.format(name), np.random.default_rng(3)
    codes = random.integers(0, 1 << 32, (4, 5_000), dtype=np.uint32)
    codes[1] &= np.uint32(0x807FFFFF)
    codes[2] |= np.uint32(0x7F800000)
    codes[3] &= np.uint32(0x80001FFF)
    parts, exponents = row.fields(codes), row.exponents(codes)
    finite = np.isin(parts.kind, [CLASS_NAMES.index("subnormal"), CLASS_NAMES.index("normal")])
    assert exponents.dtype == np.int16 and finite.any() and not finite.all()
    assert (exponents == np.where(finite, parts.exponent, NO_EXPONENT)).all()
