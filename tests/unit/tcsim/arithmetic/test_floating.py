"""The fast ordinary arithmetic against the integer code of tcsim.numbers.ieee, and that instructions use it."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from fractions import Fraction
from math import isqrt
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import tcsim
from tcsim.arithmetic import double, floating
from tcsim.arithmetic.ordinary import Operation, compute
from tcsim.numbers import ieee
from tcsim.numbers.formats import FORMATS, Format
from tcsim.numbers.rounding import Rounding
from tests.exact import numbers

Codes = npt.NDArray[Any]
MODES: tuple[Rounding, ...] = ("rne", "rz", "rm", "rp", "rna")
SLOW: dict[str, Callable[..., Codes]] = {
    "fma": ieee.fma,
    "add": ieee.add,
    "mul": ieee.multiply,
    "convert": ieee.convert,
}
OPERANDS = {"fma": 3, "add": 2, "mul": 2, "convert": 1}
RANDOM = 4_000  # operands of one kind


def landmarks(format: Format) -> Codes:
    """Zero, the least numbers, around one, the largest, infinity and NaN of both kinds, with either sign."""
    one, top, largest = format.bias << format.fraction_bits, 1 << format.fraction_bits, format.largest_code
    positive = [0, 1, 2, top - 1, top, top + 1, one - 1, one, one + 1, one + top // 2, largest - 1, largest]
    positive += [largest + 1, largest + 2, largest + 1 + top // 2, largest + top]
    codes = [code | sign << format.sign_shift for code in positive for sign in (0, 1)]
    return np.array(codes, format.dtype) << format.dtype.type(format.ignored_low_bits)


def ranges(format: Format) -> dict[str, tuple[int, int]]:
    """Ranges of exponents: whose sums stay near, span a significand, underflow or overflow; "any": all there are."""
    bits, bias = format.fraction_bits, format.bias
    return {
        "any": (-bias, bias + 2),
        "near": (-3, 4),
        "apart": (-bits - 3, bits + 4),
        "low": (-bias, -bias + bits + 6),
        "high": (bias - 8, bias + 1),
        "halfway down": (-bias // 2 - bits, -bias // 2 + bits),
    }


def drawn(format: Format, kind: str, short: bool, random: np.random.Generator) -> Codes:
    """Codes with exponents of a range; `short`: of few significant bits, so that sums are exact or ties."""
    bits = format.fraction_bits + format.ignored_low_bits
    fraction = random.integers(0, 1 << bits, RANDOM, dtype=np.uint64)
    if short:
        drop = random.integers(0, bits + 1, RANDOM).astype(np.uint64)
        fraction = fraction >> drop << drop
    field = (random.integers(*ranges(format)[kind], RANDOM) + format.bias).astype(np.uint64)
    sign = random.integers(0, 2, RANDOM).astype(np.uint64)
    codes = fraction | field << np.uint64(bits) | sign << np.uint64(format.sign_shift + format.ignored_low_bits)
    return codes.astype(format.dtype)


def samples(op: Operation, formats: tuple[Format, ...], out: Format) -> Iterator[tuple[Codes, ...]]:
    """All combinations of landmarks, random codes, and for an fma addends that nearly cancel the product."""
    grid = np.meshgrid(*(landmarks(format) for format in formats), indexing="ij")
    yield tuple(codes.ravel() for codes in grid)
    random = np.random.default_rng([ord(letter) for letter in f"{op} {[format.name for format in formats]} {out.name}"])
    for kind, short in itertools.product(ranges(out), (False, True)):
        operands = tuple(drawn(format, kind, short, random) for format in formats)
        yield operands
        if op == "fma" and formats[2] == out:
            product = SLOW["mul"](*operands[:2], formats[:2], out)
            offset = random.integers(-3, 4, RANDOM).astype(np.int64).astype(out.dtype)
            yield (*operands[:2], (product ^ out.dtype.type(1 << out.sign_shift)) + offset)


CASES: list[tuple[Operation, str, str]] = [
    ("fma", "f64 f64 f64", "f64"),
    ("fma", "f32 f32 f32", "f32"),
    ("fma", "f16 f16 f32", "f32"),
    ("fma", "bf16 tf32 f32", "f32"),
    ("fma", "f16 f16 f16", "f16"),
    ("fma", "bf16 bf16 bf16", "bf16"),
    ("add", "f32 f32", "f32"),
    ("add", "f16 f32", "f32"),
    ("add", "f16 f16", "f16"),
    ("add", "bf16 bf16", "bf16"),
    ("add", "f32 f16", "f16"),
    ("mul", "f32 f32", "f32"),
    ("mul", "f16 e4m3", "f32"),
    ("mul", "f16 f16", "f16"),
    ("mul", "bf16 bf16", "bf16"),
    *(("convert", source, out) for source in ("f16", "bf16", "tf32", "f32", "e5m2") for out in ("f16", "bf16", "f32")),
]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("op", "names", "result"), CASES)
def test_every_bit_is_that_of_the_integer_code(op: Operation, names: str, result: str, mode: Rounding) -> None:
    """Whichever code `compute` chooses, for landmarks and random operands, in every rounding."""
    formats, out = tuple(FORMATS[name] for name in names.split()), FORMATS[result]
    compared = 0
    for operands in samples(op, formats, out):
        got, truth = compute(op, operands, formats, out, mode), SLOW[op](*operands, formats, out, mode)
        assert got.dtype == truth.dtype == out.dtype
        wrong = np.flatnonzero(got != truth)
        assert not wrong.size, [hex(int(codes[wrong[0]])) for codes in (*operands, got, truth)]
        compared += got.size
    assert compared >= 12 * RANDOM


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("order", ["bca", "abc", "c"])
def test_nan_of_f64_passes_through_in_the_order_asked_for(mode: Rounding, order: str) -> None:
    """All triples of landmarks, as the 64-bit tensor core passes NaN on."""
    f64 = FORMATS["f64"]
    operands = next(samples("fma", (f64,) * 3, f64))
    assert (
        double.fma(operands[0], operands[1], operands[2], mode, order)
        == SLOW["fma"](*operands, (f64,) * 3, f64, mode, order)
    ).all()


def test_operands_broadcast() -> None:
    """A column, a row and a matrix; with elements that only the integer code can compute, and without; none at all."""
    f64, random = FORMATS["f64"], np.random.default_rng(5)
    for kind in ("near", "any"):
        a, b = (
            drawn(f64, kind, False, random)[:90].reshape(3, 30, 1),
            drawn(f64, kind, False, random)[:6].reshape(3, 1, 2),
        )
        c = drawn(f64, kind, True, random)[:180].reshape(3, 30, 2)
        for addend in (c, c[:1, :1, :1]):
            got = double.fma(a, b, addend, "rne", "bca")
            assert (got == ieee.fma(a, b, addend, (f64,) * 3, f64, "rne", "bca")).all() and got.shape == (3, 30, 2)
    assert double.fma(a[:0], b[:0], c[:0]).shape == (0, 30, 2)


def test_conversions_read_the_bits_that_the_format_has() -> None:
    """One in tf32 is 1.0 though its code lies above 13 bits that do not count."""
    code, tf32, f32 = np.array([0x3FC01FFF], np.uint32), FORMATS["tf32"], FORMATS["f32"]
    assert compute("convert", (code,), (tf32,), f32) == ieee.convert(code, (tf32,), f32) == 0x3FC00000
    assert compute("add", (code, code), (tf32, tf32), f32) == ieee.add(code, code, (tf32, tf32), f32) == 0x40400000


# ---- what only tcsim.arithmetic.floating has


def of_f32(codes: Codes) -> list[Fraction]:
    """Exact values."""
    return [Fraction(float(value)) for value in codes.view(np.float32)]


@pytest.mark.parametrize("mode", MODES[:4])
def test_quotients_against_fractions(mode: Rounding) -> None:
    """f32 quotients of numbers of like size and of all sizes, rounded by the exact model."""
    random = np.random.default_rng(9)
    for kind in ("near", "low", "high", "halfway down", "apart"):
        a, b = (drawn(FORMATS["f32"], kind, short, random)[:400] for short in (False, True))
        usable = (b & np.uint32(0x7FFFFFFF) != 0) & (a & np.uint32(0x7FFFFFFF) != 0)
        usable &= np.isfinite(a.view(np.float32)) & np.isfinite(b.view(np.float32))
        a, b = a[usable], b[usable]
        got = floating.divide(a, b, "f32", mode).tolist()
        for code, x, y in zip(got, of_f32(a), of_f32(b), strict=True):
            assert code == numbers.encode(x / y, int((x < 0) != (y < 0)), "f32", mode), (x, y)
        assert len(got) > 300


@pytest.mark.parametrize("mode", MODES[:4])
def test_roots_against_integers(mode: Rounding) -> None:
    """f32 square roots: the integer root of a shifted significand, and whether anything is left."""
    random = np.random.default_rng(10)
    codes = np.concatenate(
        [drawn(FORMATS["f32"], kind, short, random)[:300] for kind in ("near", "any", "low") for short in (False, True)]
    )
    codes &= np.uint32(0x7FFFFFFF)
    codes = codes[np.isfinite(codes.view(np.float32)) & (codes != 0)]
    for code, x in zip(floating.root(codes, "f32", mode).tolist(), of_f32(codes), strict=True):
        shifted = x * 4**400
        root = isqrt(int(shifted))
        odd = Fraction(2 * root + (root * root != shifted), 2 * 2**400)  # half a unit stands for any rest
        assert code == numbers.encode(odd, 0, "f32", mode), x


# ---- instructions

FAST = (
    ("mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32", "sm_90"),
    ("mma.sync.aligned.m16n8k32.row.col.f16.e5m2.e4m3.f16", "sm_90"),
    ("mma.sync.aligned.m8n8k4.row.col.f32.f16.f16.f32", "sm_90"),
    ("mma.sync.aligned.m8n8k4.row.col.f16.f16.f16.f16", "sm_80"),
    ("mma.sync.aligned.m16n8k16.row.col.f64.f64.f64.f64", "sm_90"),
    ("mma.sync.aligned.m8n8k4.row.col.rm.f64.f64.f64.f64", "sm_80"),
)


@pytest.mark.parametrize(("mnemonic", "arch"), FAST)
def test_instructions_do_not_need_the_integer_code(mnemonic: str, arch: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of normally distributed values no element is left to tcsim.numbers.ieee, which is some 20 times slower."""
    instruction, random = tcsim.instruction(mnemonic, arch=arch), np.random.default_rng(11)
    a, b, c = (
        tcsim.encode(random.standard_normal((20, *instruction.operands[name].shape)), instruction.formats[name])
        for name in "abc"
    )
    truth = instruction.matmul(a, b, c)

    def called(*_: object, **__: object) -> None:
        raise AssertionError("the integer code was called")

    for name in ("fma", "add", "multiply", "convert"):
        monkeypatch.setattr(ieee, name, called)
    monkeypatch.setattr("tcsim.arithmetic.ordinary._EXACT", dict.fromkeys(SLOW, called))
    assert (instruction.matmul(a, b, c) == truth).all()
