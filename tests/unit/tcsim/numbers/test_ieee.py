"""IEEE operations on codes against the exact model and against the floats of Python and NumPy."""

from __future__ import annotations

import itertools
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import tcsim
from tcsim.numbers import ieee
from tcsim.numbers.formats import Format
from tcsim.numbers.rounding import Rounding
from tests.exact import numbers, steps

NAMES = ("f16", "f32", "f64")
MODES: tuple[Rounding, ...] = ("rne", "rz", "rm", "rp", "rna")
FLOAT: dict[str, Any] = {"f16": np.float16, "f32": np.float32, "f64": np.float64}
# The 64-bit unit passes on the NaN of b, else of c, else of a; so does the exact model.
NAN_ORDER = {"f16": "", "f32": "", "f64": "bca"}


def codes_of(format: Format, *codes: int) -> npt.NDArray[Any]:
    """Codes as an array."""
    return np.array(codes, format.dtype)


def fma(name: str, a: int, b: int, c: int, mode: Rounding, nan_order: str = "") -> int:
    """tcsim's a * b + c in one format."""
    format = tcsim.format(name)
    x, y, z = (codes_of(format, code) for code in (a, b, c))
    return int(ieee.fma(x, y, z, (format,) * 3, format, mode, nan_order)[0])


def add(name: str, a: int, c: int, mode: Rounding) -> int:
    """tcsim's a + c in one format."""
    format = tcsim.format(name)
    return int(ieee.add(codes_of(format, a), codes_of(format, c), (format,) * 2, format, mode)[0])


def multiply(name: str, a: int, b: int, mode: Rounding) -> int:
    """tcsim's a * b in one format."""
    format = tcsim.format(name)
    return int(ieee.multiply(codes_of(format, a), codes_of(format, b), (format,) * 2, format, mode)[0])


def convert(source: str, target: str, code: int, mode: Rounding) -> int:
    """tcsim's conversion of one code."""
    origin = tcsim.format(source)
    return int(ieee.convert(codes_of(origin, code), (origin,), tcsim.format(target), mode)[0])


def is_nan(code: int, name: str) -> bool:
    """Whether a code is a NaN, by the exact model."""
    return numbers.decode(code, name).kind == "nan"


def landmarks(name: str) -> list[int]:
    """Zero, the least numbers, around one, the largest, infinity and NaN of both kinds, with either sign."""
    format = tcsim.format(name)
    one = format.bias << format.fraction_bits
    top = 1 << format.fraction_bits
    half = one - top
    positive = [0, 1, top - 1, top, half | 1, one, one + 1, format.largest_code, format.largest_code + 1]
    positive += [format.largest_code + 2, format.largest_code + 1 + top // 2]
    return [code | sign << format.sign_shift for code in positive for sign in (0, 1)]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("mode", MODES)
def test_every_combination_of_landmarks(name: str, mode: Rounding) -> None:
    """fma over all triples, add and multiply over all pairs of the codes at the edges of a format."""
    format, codes = tcsim.format(name), landmarks(name)
    triples = np.array(list(itertools.product(codes, repeat=3)), format.dtype)
    got = ieee.fma(triples[:, 0], triples[:, 1], triples[:, 2], (format,) * 3, format, mode, NAN_ORDER[name])
    compared = 0
    for (a, b, c), code in zip(triples.tolist(), got.tolist(), strict=True):
        assert code == steps.ieee_fma(a, b, c, name, mode), (hex(a), hex(b), hex(c))
        compared += 1
    pairs = np.array(list(itertools.product(codes, repeat=2)), format.dtype)
    sums = ieee.add(pairs[:, 0], pairs[:, 1], (format,) * 2, format, mode)
    products = ieee.multiply(pairs[:, 0], pairs[:, 1], (format,) * 2, format, mode)
    for (a, b), total, product in zip(pairs.tolist(), sums.tolist(), products.tolist(), strict=True):
        exact = steps.ieee_add(a, b, name, mode)
        assert total == (format.canonical_nan if is_nan(exact, name) else exact), (hex(a), hex(b))
        assert product == steps.ieee_mul(a, b, name, mode), (hex(a), hex(b))
        compared += 2
    assert compared == 22**3 + 2 * 22**2


@st.composite
def operands(draw: st.DrawFn, name: str) -> tuple[int, int, int]:
    """Three codes: any, of like size, or an addend that nearly cancels the product."""
    format = tcsim.format(name)
    bits = st.integers(0, (1 << format.bits) - 1)
    a, b, c = draw(bits), draw(bits), draw(bits)
    kind = draw(st.sampled_from(["any", "near one", "cancelling", "tiny"]))
    fraction, sign = (1 << format.fraction_bits) - 1, 1 << format.sign_shift
    if kind == "near one":
        fields = st.integers(-format.fraction_bits - 3, format.fraction_bits + 3)
        a, b, c = ((format.bias + draw(fields)) << format.fraction_bits | x & fraction | x & sign for x in (a, b, c))
    if kind == "tiny":
        c &= sign | fraction
        b = (b & (sign | fraction)) | draw(st.integers(0, format.fraction_bits)) << format.fraction_bits
    if kind == "cancelling":
        product = steps.ieee_mul(a, b, name)
        offset = draw(st.integers(-2, 2))
        c = min(max((product & (sign - 1)) + offset, 0), sign - 1) | (product & sign) ^ sign
    return a, b, c


def check(name: str, codes: tuple[int, int, int], mode: Rounding) -> None:
    """All operations on three codes of a format."""
    format = tcsim.format(name)
    a, b, c = codes
    assert fma(name, a, b, c, mode, NAN_ORDER[name]) == steps.ieee_fma(a, b, c, name, mode)
    assert multiply(name, a, b, mode) == steps.ieee_mul(a, b, name, mode)
    exact = steps.ieee_add(a, c, name, mode)
    assert add(name, a, c, mode) == (format.canonical_nan if is_nan(exact, name) else exact)


@given(operands("f16"), st.sampled_from(MODES))
@example((0x0001, 0x3800, 0x0000), "rne")  # half of the least number: to even, which is zero
@example((0x7BFF, 0x3C01, 0x0000), "rz")
@example((0x3C00, 0x3C00, 0xBC00), "rm")
def test_f16(codes: tuple[int, int, int], mode: Rounding) -> None:
    check("f16", codes, mode)


@given(operands("f32"), st.sampled_from(MODES))
@example((0x00800001, 0x3F7FFFFF, 0x80000000), "rne")
@example((0x3F800001, 0x3F800001, 0xBF800002), "rne")  # what only a fused operation sees
def test_f32(codes: tuple[int, int, int], mode: Rounding) -> None:
    check("f32", codes, mode)


@given(operands("f64"), st.sampled_from(MODES))
@example((0x3FF0000000000001, 0x3FF0000000000001, 0xBFF0000000000002), "rne")
@example((0x7FEFFFFFFFFFFFFF, 0x7FEFFFFFFFFFFFFF, 0x0000000000000001), "rz")
@example((0x0000000000000001, 0x0000000000000001, 0x3FF0000000000000), "rp")
@example((0x8000000000000001, 0x0000000000000001, 0x0000000000000000), "rm")
def test_f64(codes: tuple[int, int, int], mode: Rounding) -> None:
    check("f64", codes, mode)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("mode", MODES)
def test_addends_at_every_distance_from_the_product(name: str, mode: Rounding) -> None:
    """Random fractions near one; c from far above a * b to far below it, so that carries run through every bit."""
    format, count = tcsim.format(name), 4000
    stream = np.random.Generator(np.random.PCG64(4))
    reach = min(2 * format.fraction_bits + 4, format.bias - 1)
    words = stream.integers(0, 1 << format.bits, (3, count), np.uint64)
    kept = words & np.uint64(1 << format.sign_shift | (1 << format.fraction_bits) - 1)
    exponents = np.full((3, count), format.bias)
    exponents[2] += stream.integers(-reach, reach // 4, count)
    a, b, c = (kept | exponents.astype(np.uint64) << np.uint64(format.fraction_bits)).astype(format.dtype)
    got = ieee.fma(a, b, c, (format,) * 3, format, mode)
    compared = 0
    for triple, code in zip(zip(a.tolist(), b.tolist(), c.tolist(), strict=True), got.tolist(), strict=True):
        assert code == steps.ieee_fma(*triple, name, mode), [hex(x) for x in triple]
        compared += 1
    assert compared == count


@given(st.integers(0, 2**16 - 1), st.integers(0, 2**16 - 1), st.integers(0, 2**32 - 1), st.sampled_from(MODES))
@example(0x0001, 0x0001, 0x00000001, "rne")
@example(0x7BFF, 0xFBFF, 0x4F7FC004, "rm")
def test_operands_are_read_in_their_own_formats(a: int, b: int, c: int, mode: Rounding) -> None:
    """f16 * f16 + f32 into f32, and f32 + f16 into f32: widening is exact, so the f32 operation says the same."""
    f16, f32 = tcsim.format("f16"), tcsim.format("f32")
    wide_a, wide_b = (steps.convert(x, "f16", "f32") for x in (a, b))
    mixed = ieee.fma(codes_of(f16, a), codes_of(f16, b), codes_of(f32, c), (f16, f16, f32), f32, mode)
    assert int(mixed[0]) == steps.ieee_fma(wide_a, wide_b, c, "f32", mode)
    total = ieee.add(codes_of(f32, c), codes_of(f16, a), (f32, f16), f32, mode)
    assert int(total[0]) == steps.ieee_add(c, wide_a, "f32", mode)
    product = ieee.multiply(codes_of(f16, a), codes_of(f16, b), (f16, f16), f32, mode)
    assert int(product[0]) == steps.ieee_mul(wide_a, wide_b, "f32", mode)


CONVERSIONS = [(source, target) for source in NAMES for target in (*NAMES, "bf16") if source != target]


@given(st.integers(0, 2**64 - 1), st.sampled_from(CONVERSIONS), st.sampled_from(MODES))
@example(0x33000000, ("f32", "f16"), "rne")
@example(0x477FF000, ("f32", "f16"), "rne")
@example(0x477FF000, ("f32", "f16"), "rz")
@example(0xB3000000, ("f32", "f16"), "rm")
@example(0x80000000, ("f32", "f16"), "rp")
def test_convert(code: int, formats: tuple[str, str], mode: Rounding) -> None:
    """Between the wide formats; the lowest bits of the drawn code are taken."""
    source, target = formats
    code &= (1 << tcsim.format(source).bits) - 1
    if is_nan(code, source):
        assert convert(source, target, code, mode) == tcsim.format(target).canonical_nan
    else:
        assert convert(source, target, code, mode) == steps.convert(code, source, target, mode)


def test_every_f16_converts_to_f32_as_in_numpy() -> None:
    """All f16 codes; and every f16 as f32 back again, in every mode."""
    f16, f32 = tcsim.format("f16"), tcsim.format("f32")
    codes = np.arange(1 << 16, dtype=np.uint16)
    with np.errstate(invalid="ignore"):
        twin = codes.view(np.float16).astype(np.float32)
    nan = np.isnan(twin)
    compared = 0
    for mode in MODES:
        wide = ieee.convert(codes, (f16,), f32, mode)
        assert (wide[~nan] == twin.view(np.uint32)[~nan]).all()
        assert (wide[nan] == f32.canonical_nan).all()
        assert (ieee.convert(wide, (f32,), f16, mode)[~nan] == codes[~nan]).all()
        compared += codes.size
    assert compared == len(MODES) * 65536


@pytest.mark.parametrize("name", NAMES)
def test_nan_passes_through_in_the_order_asked_for(name: str) -> None:
    """Of several NaN the first of `nan_order` comes out, quiet; an invalid operation gives the canonical one."""
    format = tcsim.format(name)
    infinity, quiet = format.largest_code + 1, 1 << (format.fraction_bits - 1)
    given_ = {"a": infinity + 1, "b": infinity + 2 | 1 << format.sign_shift, "c": infinity + 3}
    one = format.bias << format.fraction_bits
    checked = 0
    for order in ("abc", "bca", "cab", "acb"):
        for nans in ("a", "b", "c", "ab", "bc", "ac", "abc"):
            a, b, c = (given_[operand] if operand in nans else one for operand in "abc")
            first = next(operand for operand in order if operand in nans)
            assert fma(name, a, b, c, "rne", order) == given_[first] | quiet
            assert fma(name, a, b, c, "rne") == format.canonical_nan
            checked += 1
        assert fma(name, infinity, 0, one, "rne", order) == format.canonical_nan
        assert fma(name, infinity, 0, given_["c"], "rne", order) == given_["c"] | quiet
    assert checked == 4 * 7


# ---- against the machine's own floats


def random_pairs(seed: int, count: int) -> npt.NDArray[np.float64]:
    """Two rows of f64: every bit random, and exponents close to each other."""
    words = np.random.Generator(np.random.PCG64(seed)).integers(0, 2**64, (2, count), np.uint64)
    close = words.copy()
    close[1] = (words[0] & np.uint64(0x7FF << 52)) ^ (words[1] & np.uint64((1 << 63) | (63 << 52) | (1 << 52) - 1))
    return np.concatenate([words, close], axis=1).view(np.float64)


def assert_codes(codes: npt.NDArray[Any], truth: npt.NDArray[Any], name: str) -> int:
    """Compare result codes with floats; a NaN is the canonical one. The number compared."""
    format = tcsim.format(name)
    want = np.where(np.isnan(truth), format.dtype.type(format.canonical_nan or 0), truth.view(format.dtype))
    assert (codes == want).all()
    return codes.size


def test_f64_add_and_multiply_as_this_processor_does() -> None:
    """NumPy adds and multiplies f64 in IEEE arithmetic, to nearest even."""
    format = tcsim.format("f64")
    x, y = random_pairs(1, 100_000)
    a, b = x.view(np.uint64), y.view(np.uint64)
    with np.errstate(all="ignore"):
        compared = assert_codes(ieee.add(a, b, (format,) * 2, format), x + y, "f64")
        compared += assert_codes(ieee.multiply(a, b, (format,) * 2, format), x * y, "f64")
    assert compared == 400_000


@pytest.mark.parametrize("name", ["f16", "f32"])
def test_f16_and_f32_add_and_multiply_as_this_processor_does(name: str) -> None:
    """NumPy's f32 is IEEE's; its f16 is the f32 result rounded again, which for + and * is the f16 result."""
    format = tcsim.format(name)
    stream = np.random.Generator(np.random.PCG64(2))
    a, b = stream.integers(0, 1 << format.bits, (2, 200_000), np.uint64).astype(format.dtype)
    x, y = a.view(FLOAT[name]), b.view(FLOAT[name])
    with np.errstate(all="ignore"):
        compared = assert_codes(ieee.add(a, b, (format,) * 2, format), x + y, name)
        compared += assert_codes(ieee.multiply(a, b, (format,) * 2, format), x * y, name)
    assert compared == 400_000


def nearest_f64(value: Fraction) -> float:
    """The float nearest to a fraction: Python divides integers with one correct rounding."""
    try:
        return value.numerator / value.denominator
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")


finite = st.floats(allow_nan=False, allow_infinity=False)
near_one = st.floats(-4, 4).filter(lambda value: value == 0 or abs(value) > 1e-12)


@given(finite | near_one, finite | near_one, finite | near_one)
@example(1 + 2.0**-30, 1 - 2.0**-30, -1.0)
@example(2.0**-600, 2.0**-474, 0.0)
@example(2.0**600, 2.0**500, -1.0)
def test_f64_fma_against_fractions(x: float, y: float, z: float) -> None:
    """The exact sum as a fraction, rounded once by Python; its zero has IEEE's sign."""
    exact = Fraction(x) * Fraction(y) + Fraction(z)
    a, b, c = (int(np.float64(value).view(np.uint64)) for value in (x, y, z))
    code = fma("f64", a, b, c, "rne")
    if exact:
        assert np.uint64(code).view(np.float64) == nearest_f64(exact)
        assert code >> 63 == (exact < 0)
    else:
        minus = (a ^ b) >> 63 & c >> 63
        assert code == minus << 63


def test_arrays_broadcast() -> None:
    """Operands broadcast as in NumPy, arrays without dimensions included."""
    format = tcsim.format("f32")
    a = np.arange(6, dtype=np.float32).reshape(2, 3, 1)
    b = np.arange(4, dtype=np.float32)
    c = np.array(0.5, np.float32)
    codes = ieee.fma(a.view(np.uint32), b.view(np.uint32), c.view(np.uint32), (format,) * 3, format)
    assert codes.dtype == np.uint32
    assert (codes.view(np.float32) == a * b + c).all()
    assert codes.shape == (2, 3, 4)
    assert ieee.add(b.view(np.uint32), c.view(np.uint32), (format,) * 2, format).shape == (4,)
