"""tcsim.quantize and the block formats MX and NVFP4: cvt, ml_dtypes, exact fractions, the recipes, wrong use."""

from __future__ import annotations

import re
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest

import tcsim
from conformance.isa import testbench_of
from tcsim import FormatError, OperandError
from tcsim.numbers.codec import FLOAT_DTYPES
from tcsim.numbers.quantize import MX_BLOCKS, MX_FORMATS, NVFP4_BLOCK
from tests.exact import numbers as exact

DTYPES = {name: dtype for dtype, name in FLOAT_DTYPES.items()}
MX_LARGEST = {"e4m3": 448, "e5m2": 57344, "e3m2": 28, "e2m3": Fraction(15, 2), "e2m1": 6}


def random_floats(count: int, seed: int, low: int = -160, high: int = 130) -> npt.NDArray[np.float64]:
    """Numbers with exponents all over a range, and 24 significant bits."""
    draw = np.random.Generator(np.random.PCG64(seed))
    significands = draw.integers(1 << 23, 1 << 24, count) * draw.choice([-1, 1], count)
    return np.ldexp(significands.astype(np.float64), draw.integers(low, high, count) - 23)


def edges(mnemonic: str, count: int) -> npt.NDArray[np.float32]:
    """Numbers around every boundary of an instruction's target, with NaN and infinities."""
    item = tcsim.instruction(mnemonic, arch="sm_107a")
    codes: npt.NDArray[np.uint32] = testbench_of("cvt").inputs(item, "edges", 9, count)["a"]
    return codes.view(np.float32)


# ---- one number, one code


@pytest.mark.parametrize(
    ("format", "rounding", "mnemonic"),
    [
        *((name, "rne", f"cvt.rn.satfinite.{name}x2.f32") for name in MX_FORMATS),
        *((name, "rz", f"cvt.rz.satfinite.{name}x2.f32") for name in MX_FORMATS),
        *((name, mode, f"cvt.{word}.satfinite.{name}.f32") for name in ("f16", "bf16", "tf32")
          for mode, word in (("rne", "rn"), ("rz", "rz"))),
    ],
)  # fmt: skip
def test_quantize_is_cvt(format: str, rounding: Any, mnemonic: str) -> None:
    """The same bits as the instruction, 20,000 numbers each."""
    x = edges(mnemonic, 20_000)
    item = tcsim.instruction(mnemonic, arch="sm_107a")
    zero = np.zeros_like(x)
    want = item.execute(a=zero, b=x) if "b" in item.registers else item.execute(a=x)
    assert np.array_equal(tcsim.quantize(x, format, rounding), want)
    with np.errstate(invalid="ignore"):  # a signalling NaN
        assert np.array_equal(tcsim.quantize(x.astype(np.float64), format, rounding), want)


@pytest.mark.parametrize("format", ["f16", "bf16", *MX_FORMATS])
def test_quantize_is_ml_dtypes(format: str) -> None:
    """Numbers within the format's range, from f32 and from each code of f16 and bf16."""
    limit = tcsim.format(format).largest
    halves = np.arange(1 << 16, dtype=np.uint16)
    sources = [random_floats(100_000, 1, -40, 20).astype(np.float32), halves.view(np.float16)]
    sources.append(halves.view(ml_dtypes.bfloat16))
    for x in sources:
        with np.errstate(invalid="ignore"):  # a signalling NaN
            near = x[np.abs(x.astype(np.float64)) <= limit]
        assert len(near) > 10_000
        want = near.astype(DTYPES[format])
        assert np.array_equal(tcsim.quantize(near, format), want.view(tcsim.format(format).dtype))


def test_quantize_to_ue8m0() -> None:
    """Powers of two: as ml_dtypes to nearest, as cvt upwards and downwards."""
    x = np.abs(random_floats(20_000, 2, -126, 127)).astype(np.float32)
    want = x.astype(ml_dtypes.float8_e8m0fnu).view(np.uint8)
    assert np.array_equal(tcsim.quantize(x, "ue8m0"), want)
    for word in ("rz", "rp"):
        item = tcsim.instruction(f"cvt.{word}.satfinite.ue8m0x2.f32", arch="sm_100a")
        assert np.array_equal(tcsim.quantize(x, "ue8m0", word), item.execute(a=x, b=x) & 0xFF)
    assert tcsim.quantize([0.0, -0.0, np.inf, np.nan, 3.0], "ue8m0", "rp").tolist() == [0, 0, 0xFE, 0xFF, 0x81]


@pytest.mark.parametrize("rounding", exact.MODES)
@pytest.mark.parametrize("format", ["f16", "e5m2", "e4m3", "e2m3", "e2m1", "s8", "u4"])
def test_every_rounding_agrees_with_fractions(format: str, rounding: Any) -> None:
    """Random numbers, and ties."""
    target = tcsim.format(format)
    scale = 2.0 ** (3 - target.fraction_bits)
    x = np.concatenate([random_floats(150, 3, -12, 8), np.arange(-200, 200) * scale / 16])
    got = tcsim.quantize(x, format, rounding)
    for value, code in zip(x.tolist(), got.tolist(), strict=True):
        sign = int(value < 0 or str(value) == "-0.0")
        assert code == exact.encode(Fraction(value), sign, format, rounding, saturate=True), (value, format)


def test_without_saturation_overflow_is_what_the_format_has() -> None:
    """Infinity, NaN, or the largest number; with saturation always the largest number."""
    x = [1e9, -1e9, np.inf, -np.inf]
    assert tcsim.quantize(x, "f16", saturate=False).tolist() == [0x7C00, 0xFC00, 0x7C00, 0xFC00]
    assert tcsim.quantize(x, "f16").tolist() == [0x7BFF, 0xFBFF, 0x7BFF, 0xFBFF]
    assert tcsim.quantize(x, "e4m3", saturate=False).tolist() == [0x7F, 0xFF, 0x7F, 0xFF]
    assert tcsim.quantize(x, "e2m1", saturate=False).tolist() == [7, 15, 7, 15]
    assert tcsim.quantize([300.0, -300.0, np.nan, 2.5], "s8", saturate=False).tolist() == [127, 128, 0, 2]
    assert tcsim.quantize([65519.0], "f16", "rz", saturate=False).tolist() == [0x7BFF]


def test_quantize_takes_any_real_array() -> None:
    """Shapes, dtypes, layouts; what is not real is refused."""
    x = np.linspace(-8, 8, 24).reshape(2, 3, 4)
    want = tcsim.quantize(x, "e2m1")
    assert (want.shape, want.dtype) == ((2, 3, 4), np.uint8)
    assert np.array_equal(tcsim.quantize(x.transpose(2, 0, 1), "e2m1"), want.transpose(2, 0, 1))
    assert tcsim.quantize(3, "e2m1").shape == ()
    assert int(tcsim.quantize(3, "e2m1")) == 5
    assert tcsim.quantize([], "e4m3").shape == (0,)
    assert tcsim.quantize(np.int8([-3, 4]), "s4").tolist() == [13, 4]
    assert tcsim.quantize(np.array([1.5], ml_dtypes.float8_e5m2), "f16").tolist() == [0x3E00]
    large = np.zeros(100_000, np.float32)
    large[-1] = 1.0
    assert int(tcsim.quantize(large, "f16")[-1]) == 0x3C00
    with pytest.raises(FormatError, match=r'tcsim\.quantize\(x, "e4m3"\): x is complex128; valid: integers, float16,'):
        tcsim.quantize(1j, "e4m3")
    with pytest.raises(FormatError, match=r"integers beyond 2\*\*53 would be rounded twice; valid: float64"):
        tcsim.quantize([2**53 + 1], "f32")
    with pytest.raises(FormatError, match=r'tcsim\.quantize\(x, "ue4m3"\): -1\.0 is negative, and ue4m3 has no sign'):
        tcsim.quantize([1.0, -1.0], "ue4m3")
    with pytest.raises(FormatError, match=r'tcsim\.quantize\(x, "b1"\): b1 holds bits, not numbers; valid: f16, bf16'):
        tcsim.quantize([1], "b1")
    with pytest.raises(FormatError, match="no number format 'e4m4'; nearest: e4m3"):
        tcsim.quantize([1], "e4m4")
    with pytest.raises(FormatError, match=r"no rounding 'nearest'; valid: rne"):
        tcsim.quantize([1], "e4m3", "nearest")  # type: ignore[arg-type]


# ---- MX

MODES = ("floor", "rceil", "ceil", "even")


def slow_mx(block: list[float], format: str, choice: str) -> tuple[list[int], int]:
    """One block by the specification, in fractions."""
    limit = Fraction(MX_LARGEST[format])
    amax = max(abs(Fraction(value)) for value in block)
    if amax == 0:
        power = -127
    elif choice in ("floor", "ceil", "even"):
        power = exact.floor_log2(amax)
        if choice == "ceil":
            power += amax > exact.scaled(1, power)
        elif choice == "even":
            bits = tcsim.format(format).fraction_bits
            power += amax / exact.scaled(1, power) + Fraction(1, 2 << bits) >= 2
        power -= exact.floor_log2(limit)
    else:
        power = exact.floor_log2(amax / limit)
        power += amax > limit * exact.scaled(1, power)
    power = min(max(power, -127), 127)
    codes = []
    for value in block:
        sign = int(value < 0 or str(value) == "-0.0")
        codes.append(exact.encode(Fraction(value) / exact.scaled(1, power), sign, format, "rne", saturate=True))
    return codes, power + 127


@pytest.mark.parametrize("choice", MODES)
@pytest.mark.parametrize("format", MX_FORMATS)
def test_mx_blocks_agree_with_fractions(format: str, choice: Any) -> None:
    """Blocks of similar numbers, of numbers far apart, at both ends of the scale factors, with the largest a limit."""
    rows = [random_floats(32, 10 + place, center - 6, center + 1) for place, center in enumerate((-3, 0, 2, 40))]
    rows += [random_floats(32, 20), random_floats(32, 21, -160, -120), random_floats(32, 22, 120, 190)]
    rows += [np.zeros(32), -np.zeros(32)]
    limit = float(MX_LARGEST[format])
    for largest in (limit, np.nextafter(limit, 1e9), np.nextafter(limit, 0), limit * 8, 1.0, 2.0):
        rows.append(np.append(random_floats(31, 23, -6, -3), largest))
    codes, scales = tcsim.quantize_mx(np.stack(rows), format, scale=choice)
    for row, got, scale in zip(rows, codes.tolist(), scales[:, 0].tolist(), strict=True):
        assert (got, scale) == slow_mx(row.tolist(), format, choice)


@pytest.mark.parametrize("format", MX_FORMATS)
def test_scale_factors_rounded_up_are_those_of_cvt(format: str) -> None:
    """cvt.rp.satfinite.ue8m0x2.f32 of the quotient, for f32 data; no element saturates, and rounding down makes some."""
    draw = np.random.Generator(np.random.PCG64(4))
    x = (draw.normal(size=(2_000, 32)) * np.exp2(draw.integers(-40, 40, (2_000, 1)))).astype(np.float32)
    x[:500, 3] = (np.float32(MX_LARGEST[format]) * np.exp2(draw.integers(-40, 40, 500))).astype(np.float32)
    codes, scales = tcsim.quantize_mx(x, format, scale="rceil")
    quotient = np.abs(x).max(1) / np.float32(MX_LARGEST[format])
    item = tcsim.instruction("cvt.rp.satfinite.ue8m0x2.f32", arch="sm_100a")
    assert np.array_equal(scales[:, 0], item.execute(a=quotient, b=quotient) & 0xFF)
    scaled = np.ldexp(np.abs(x).max(1).astype(np.float64), 127 - scales[:, 0].astype(int))
    assert (scaled <= float(MX_LARGEST[format])).all()
    _, lower = tcsim.quantize_mx(x, format)
    assert set((scales - lower).reshape(-1).tolist()) == {0, 1}


def test_mx_round_trip() -> None:
    """What was quantised once does not change; the error is within the format's."""
    x = random_floats(64 * 32, 5, -8, 8).reshape(64, 32)
    for format in MX_FORMATS:
        for choice in MODES:
            codes, scales = tcsim.quantize_mx(x, format, scale=choice)  # type: ignore[arg-type]
            back = tcsim.dequantize_mx(codes, scales, format)
            assert np.array_equal(back, np.ldexp(tcsim.decode(codes, format), scales.astype(int) - 127))
            again = tcsim.dequantize_mx(*tcsim.quantize_mx(back, format, scale=choice), format)  # type: ignore[arg-type]
            assert np.array_equal(again, back)
            if choice == "rceil":
                step = 2.0 ** -(tcsim.format(format).fraction_bits + 1)
                tiny = np.ldexp(2.0 ** (tcsim.format(format).minimum_exponent), scales.astype(int) - 127)
                assert (np.abs(back - x) <= step * np.maximum(np.abs(x), tiny)).all()


def test_axes_and_blocks() -> None:
    """Any axis; 32 or 16 elements; the scale factors stand where the blocks were."""
    x = random_floats(3 * 64 * 2, 6, -4, 4).reshape(3, 64, 2)
    for block in MX_BLOCKS:
        last, factors = tcsim.quantize_mx(np.moveaxis(x, 1, -1), "e2m1", block=block)
        for axis in (1, -2):
            codes, scales = tcsim.quantize_mx(x, "e2m1", axis=axis, block=block)
            assert (codes.shape, scales.shape) == ((3, 64, 2), (3, 64 // block, 2))
            assert np.array_equal(np.moveaxis(codes, 1, -1), last)
            assert np.array_equal(np.moveaxis(scales, 1, -1), factors)
            back = tcsim.dequantize_mx(codes, scales, "e2m1", axis=axis, block=block)
            assert np.array_equal(np.moveaxis(back, 1, -1), tcsim.dequantize_mx(last, factors, "e2m1", block=block))
            half = scales.view(ml_dtypes.float8_e8m0fnu)
            assert np.array_equal(tcsim.dequantize_mx(codes, half, "e2m1", axis=axis, block=block), back)
    codes, scales, tensor = tcsim.quantize_nvfp4(x, axis=1)
    assert (codes.shape, scales.shape) == ((3, 64, 2), (3, 4, 2))
    assert np.array_equal(codes, np.moveaxis(tcsim.quantize_nvfp4(np.moveaxis(x, 1, -1))[0], -1, 1))
    assert tcsim.dequantize_nvfp4(codes, scales, tensor, axis=1).shape == x.shape
    assert [array.shape for array in tcsim.quantize_mx(np.zeros((2, 0)), "e4m3")] == [(2, 0), (2, 0)]


def test_special_blocks() -> None:
    """Zeros, infinity, NaN: the scale factor says it, and a NaN makes the block NaN."""
    x = np.ones((4, 32))
    x[0], x[1, 5], x[2, 7] = 0, -np.inf, np.nan
    for choice in MODES:
        for format in MX_FORMATS:
            codes, scales = tcsim.quantize_mx(x, format, scale=choice)  # type: ignore[arg-type]
            assert scales[:3, 0].tolist() == [0x00, 0xFE, 0xFF]
            assert not codes[0].any()
            target = tcsim.format(format)
            assert int(codes[1, 5]) == target.largest_code | 1 << target.sign_shift
            back = tcsim.dequantize_mx(codes, scales, format)
            assert (back[0] == 0).all()
            assert np.isnan(back[2]).all()
            assert np.allclose(back[3], 1, rtol=0.15)
    codes, scales, tensor = tcsim.quantize_nvfp4(x)
    assert scales[:3].tolist() == [[0, 0], [0x7E, 0x23], [0x7F, 0x23]]
    assert float(tensor) == 1.0
    back = tcsim.dequantize_nvfp4(codes, scales, tensor)
    assert np.isnan(back[2, :16]).all()
    assert np.isfinite(back[2, 16:]).all()
    codes, scales, tensor = tcsim.quantize_nvfp4(np.zeros((2, 16)))
    assert (codes.any(), scales.any(), float(tensor)) == (False, False, 1.0)


WRONG: dict[str, tuple[Callable[[], object], type[Exception], str]] = {
    "length": (
        lambda: tcsim.quantize_mx(np.zeros((4, 40)), "e4m3"), OperandError,
        'tcsim.quantize_mx(x, "e4m3"): axis -1 of shape (4, 40) has 40 elements; valid: multiples of 32'),
    "block": (
        lambda: tcsim.quantize_mx(np.zeros(64), "e4m3", block=64), OperandError,
        'tcsim.quantize_mx(x, "e4m3"): block=64; valid: 32, 16'),
    "axis": (
        lambda: tcsim.quantize_mx(np.zeros((32, 2)), "e4m3", axis=2), OperandError,
        'tcsim.quantize_mx(x, "e4m3"): axis=2 of an array of shape (32, 2); valid: -2 to 1'),
    "scalar": (
        lambda: tcsim.quantize_nvfp4(1.0), OperandError,
        "tcsim.quantize_nvfp4(x): axis=-1 of an array of shape (); valid: none, it has no axis"),
    "format": (
        lambda: tcsim.quantize_mx(np.zeros(32), "f16"), FormatError,
        'tcsim.quantize_mx(x, "f16"): MX blocks do not hold f16; valid: e4m3, e5m2, e3m2, e2m3, e2m1'),
    "scale": (
        lambda: tcsim.quantize_mx(np.zeros(32), "e4m3", scale="RCEIL"), OperandError,  # type: ignore[arg-type]
        "tcsim.quantize_mx(x, \"e4m3\"): scale='RCEIL'; valid: 'floor', 'rceil', 'ceil', 'even'"),
    "real": (
        lambda: tcsim.quantize_mx(np.zeros(32, complex), "e4m3"), FormatError,
        'tcsim.quantize_mx(x, "e4m3"): x is complex128; valid: integers,'),
    "nvfp4 length": (
        lambda: tcsim.quantize_nvfp4(np.zeros(24)), OperandError,
        "tcsim.quantize_nvfp4(x): axis -1 of shape (24,) has 24 elements; valid: multiples of 16"),
    "scales": (
        lambda: tcsim.dequantize_mx(np.zeros((4, 64), np.uint8), np.zeros(4, np.uint8), "e4m3"), OperandError,
        'tcsim.dequantize_mx(codes, scales, "e4m3"): scales have shape (4,); valid: (4, 2), one for each block'),
    "codes": (
        lambda: tcsim.dequantize_mx(np.full(32, 16, np.uint8), np.zeros(1, np.uint8), "e2m1"), FormatError,
        "codes: 0x10 is not a code of e2m1, which has 4 bits"),
    "scales dtype": (
        lambda: tcsim.dequantize_nvfp4(np.zeros(16, np.uint8), np.zeros(1), 1.0), FormatError,
        "scales: dtype float64 does not hold codes of ue4m3"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_wrong_use_of_blocks_is_refused(name: str) -> None:
    """Errors quote the call and say what is valid."""
    call, kind, text = WRONG[name]
    with pytest.raises(kind, match=re.escape(text)):
        call()


# ---- NVFP4


@np.errstate(over="ignore")
def slow_nvfp4(x: npt.NDArray[np.float32]) -> tuple[list[list[int]], list[int], np.float32]:
    """The recipe, one f32 operation after the other, on blocks (n, 16)."""
    f32, most = np.float32, np.finfo(np.float32).max
    amax = max(abs(value) for value in x.reshape(-1))
    encode = min(f32(2688) / amax, most) if amax else f32(1)
    codes, scales = [], []
    for block in x:
        wanted = max(abs(value) for value in block) * (encode * (f32(1) / f32(6)))
        scale = exact.encode(Fraction(float(min(wanted, most))), 0, "e4m3", "rne", saturate=True)
        number = f32(float(exact.decode(scale, "e4m3").value)) * (f32(1) / encode)
        inverse = min(f32(1) / number, most) if number else most
        scaled = [value * inverse for value in block]
        scaled = [min(max(value, -most), most) for value in scaled]
        codes.append([exact.encode(Fraction(float(v)), int(np.signbit(v)), "e2m1", "rne", True) for v in scaled])
        scales.append(scale)
    return codes, scales, f32(1) / encode


@pytest.mark.parametrize("spread", [0, 3, 12, 30])
def test_nvfp4_agrees_with_the_recipe(spread: int) -> None:
    """Blocks of like and of unlike magnitude, down to those whose scale rounds to zero."""
    draw = np.random.Generator(np.random.PCG64(spread))
    x = draw.normal(size=(120, NVFP4_BLOCK)) * np.exp2(draw.integers(-spread, 1, (120, 1)))
    for data in (x.astype(np.float32), (x * 1e30).astype(np.float32), (x * 1e-38).astype(np.float32)):
        codes, scales, tensor = tcsim.quantize_nvfp4(data)
        want_codes, want_scales, want_tensor = slow_nvfp4(data)
        assert scales[:, 0].tolist() == want_scales
        assert codes.tolist() == want_codes
        assert tensor == want_tensor
        usable = tensor > np.finfo(np.float32).tiny  # else encode is at its limit
        assert (scales.max() == 0x7E) == usable == (np.abs(data).max() > 1e-35)
        back = tcsim.dequantize_nvfp4(codes, scales, tensor)
        assert np.array_equal(back, tcsim.decode(codes, "e2m1") * tcsim.decode(scales, "e4m3") * np.float64(tensor))
        fp8 = tcsim.dequantize_nvfp4(codes, scales.view(ml_dtypes.float8_e4m3fn), tensor)
        assert np.array_equal(fp8, back)
        largest = np.abs(data).max(1, keepdims=True).astype(np.float64)
        usual = scales[:, 0] >= 0x08  # normal scale factors: 1/16 off at most; elements 1/6 of the largest
        assert not usable or (np.abs(back - data)[usual] <= 0.24 * largest[usual]).all()


def test_the_scale_is_within_a_code_of_other_orders_of_operations() -> None:
    """Division by 6 instead of multiplication by f32(1/6), as some versions have it: at most the next scale factor."""
    x = np.random.Generator(np.random.PCG64(7)).normal(size=(4_000, 16)).astype(np.float32)
    _, scales, tensor = tcsim.quantize_nvfp4(x)
    divided = np.abs(x).max(1) / np.float32(6) * (np.float32(2688) / np.abs(x).max())
    other = tcsim.quantize(divided, "e4m3")
    assert np.abs(scales[:, 0].astype(int) - other).max() <= 1
    assert (scales[:, 0] != other).mean() < 0.01
    assert float(tensor) == pytest.approx(float(np.abs(x).max()) / 2688)


# ---- scale modes, squares, random bits


def test_how_much_floor_may_cost() -> None:
    """The largest element of a block loses up to an eighth (e4m3, e5m2) or a quarter (e2m1); the others' modes lose nothing."""
    for format, lost in (("e4m3", 0.125), ("e5m2", 0.125), ("e3m2", 0.125), ("e2m3", 0.0625), ("e2m1", 0.25)):
        x = np.full((1, 32), np.nextafter(2.0, 0) * 64)
        back = {mode: tcsim.dequantize_mx(*tcsim.quantize_mx(x, format, scale=mode), format) for mode in MODES}  # type: ignore[arg-type]
        assert abs(1 - back["floor"][0, 0] / x[0, 0] - lost) < 1e-12
        assert all(back[mode][0, 0] >= x[0, 0] for mode in MODES[1:])


def test_modes_that_differ() -> None:
    """Largest magnitudes at which each mode's factor steps, for e2m1 (largest 6, one fraction bit)."""
    exponents = {
        "floor": [0, 0, 0, 0, 0, 1],
        "rceil": [0, 0, 0, 1, 1, 1],
        "ceil": [0, 1, 1, 1, 1, 1],
        "even": [0, 0, 0, 0, 1, 1],
    }
    x = np.repeat([[4.0], [5.0], [6.0], [6.5], [7.0], [8.0]], 32, axis=1)
    for mode, wanted in exponents.items():
        assert (tcsim.quantize_mx(x, "e2m1", scale=mode)[1][:, 0].astype(int) - 127).tolist() == wanted  # type: ignore[arg-type]


def test_random_bits_are_those_of_cvt() -> None:
    """cvt.rs of e4m3: element by element, with the bits that the instruction gathers from rbits."""
    draw = np.random.Generator(np.random.PCG64(12))
    x = (draw.normal(size=4096) * np.exp2(draw.integers(-6, 6, 4096))).astype(np.float32)
    random = draw.integers(0, 1 << 16, x.shape)
    low, high = (tcsim.decode(tcsim.quantize(x, "e2m1", rounding), "e2m1") for rounding in ("rm", "rp"))  # type: ignore[arg-type]
    got = tcsim.decode(tcsim.quantize(x, "e2m1", "rs", random=random), "e2m1")
    assert ((got == low) | (got == high)).all()
    assert {0, 1} == set(((got == high) & (low != high)).astype(int).tolist())
    item = tcsim.instruction("cvt.rs.satfinite.f16x2.f32", arch="sm_100a")
    bits = item.row.random  # type: ignore[attr-defined]
    rbits = draw.integers(0, 1 << 32, 2048, np.uint32)
    packed = item.execute(a=x[:2048], b=x[2048:], rbits=rbits)  # type: ignore[attr-defined]
    for place, (numbers, shift) in enumerate(((x[:2048], 16), (x[2048:], 0))):
        own = sum(
            ((rbits >> bit) & 1).astype(np.int64) << (len(bits[place]) - 1 - k) for k, bit in enumerate(bits[place])
        )
        assert np.array_equal(packed >> shift & 0xFFFF, tcsim.quantize(numbers, "f16", "rs", random=own))
    mean = tcsim.decode(tcsim.quantize(np.full(1 << 16, 2.25), "e2m1", "rs", random=np.arange(1 << 16)), "e2m1").mean()
    assert mean == 2.25
    for wrong in (
        {"rounding": "rs"},
        {"random": 1},
        {"rounding": "rs", "random": 1 << 16},
        {"rounding": "rs", "random": [1, 2]},
    ):
        with pytest.raises(OperandError, match="random"):
            tcsim.quantize([1.0], "e2m1", **wrong)  # type: ignore[arg-type]


def test_square_blocks() -> None:
    """One factor for 16 x 16; the transpose has the same codes; random bits reach the elements."""
    x = random_floats(48 * 32, 9, -4, 4).reshape(48, 32)
    codes, scales, tensor = tcsim.quantize_nvfp4(x, square=True)
    assert (codes.shape, scales.shape) == ((48, 32), (48, 2))
    assert np.array_equal(scales[::16].repeat(16, 0), scales)
    other, turned, same = tcsim.quantize_nvfp4(x, axis=0, square=True)
    assert (
        np.array_equal(other, codes) and np.array_equal(turned[:, ::16], scales[::16].reshape(3, 2)) and same == tensor
    )
    _, lines, _ = tcsim.quantize_nvfp4(x)
    assert np.array_equal(lines.reshape(3, 16, 2).max(1), scales[::16])
    drawn = np.random.Generator(np.random.PCG64(1)).integers(0, 1 << 16, x.shape)
    up, factors, _ = tcsim.quantize_nvfp4(x, square=True, random=drawn)
    assert np.array_equal(factors, scales) and 0.1 < (up != codes).mean() < 0.5
    for shape, axis in (((24, 16), -1), ((16,), -1), ((16, 16, 16), 0)):
        with pytest.raises(OperandError, match=r"square=True.*valid: one of the last two axes"):
            tcsim.quantize_nvfp4(np.ones(shape), axis, square=True)


def test_nvfp4_with_ue5m3_scales() -> None:
    """The figures of TransformerEngine's test of its UE5M3 scale utilities: amax 12, blocks of 3 and 6."""
    x = np.zeros((3, 16), np.float32)
    x[0, 3], x[1, 5], x[2, 7] = 3, -6, 12
    codes, scales, tensor = tcsim.quantize_nvfp4(x, scale="ue5m3")
    assert np.float32(1) / tensor == pytest.approx(6 * 114688 / 12)
    wanted = tcsim.quantize(np.float32([3, 6, 12]) * np.float32(114688 / 12), "ue5m3")
    assert scales[:, 0].tolist() == wanted.tolist() == [0xEE, 0xF6, 0xFE]
    back = tcsim.dequantize_nvfp4(codes, scales, tensor, scale="ue5m3")
    np.testing.assert_allclose(back, x, rtol=1e-6)
    assert (codes[x != 0] == tcsim.quantize(np.float32([6, -6, 6]), "e2m1")).all()


def test_ue5m3_reaches_further_down() -> None:
    """A block 2**-20 as large as the largest keeps its numbers, which e4m3 scales make zero."""
    x = np.concatenate([np.full(16, 6.0), np.full(16, 6.0 * 2.0**-20)])
    for scale, kept in (("e4m3", False), ("ue5m3", True)):
        codes, scales, tensor = tcsim.quantize_nvfp4(x, scale=scale)  # type: ignore[arg-type]
        back = tcsim.dequantize_nvfp4(codes, scales, tensor, scale=scale)  # type: ignore[arg-type]
        assert (back[16:] != 0).all() == kept
    with pytest.raises(OperandError, match="scale='e5m2'; valid: 'e4m3', 'ue5m3'"):
        tcsim.quantize_nvfp4(x, scale="e5m2")  # type: ignore[arg-type]
