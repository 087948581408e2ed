"""The dot-add in float32 is the one in float64: where it is taken, every code is the same, at the ends of every range too."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from tcsim.arithmetic.dot import Factors, add_terms, aligned_terms, dot_add
from tcsim.arithmetic.units import UNITS
from tcsim.numbers.formats import FORMATS, Format

NAMES = ("f16", "bf16", "tf32", "e4m3", "e5m2", "e2m1")
M, N, BATCH = 4, 8, 8


def _codes(format: Format, shape: tuple[int, ...], kind: str, stream: np.random.Generator) -> np.ndarray:
    """Codes of one kind, either sign."""
    ignored, sign = format.ignored_low_bits, 1 << format.sign_shift
    largest, one = format.largest_code, format.bias << format.fraction_bits
    near = np.arange(max(1, one - (4 << format.fraction_bits)), min(largest, one + (4 << format.fraction_bits)))
    choices = {
        "any": np.arange(1 << min(format.bits, 19)),
        "near one": near,
        "ends": np.array([0, 1, largest, 1 << format.fraction_bits]),
        "largest": np.array([largest]),
        "below one": np.arange(min(one, 1 << 19)) * max(1, one >> 19),
        "low": max(1, one - (54 << format.fraction_bits)) + np.arange(2 << format.fraction_bits),
        "zero": np.array([0]),
    }[kind]
    raw = stream.choice(choices, shape) ^ stream.choice(np.array([0, sign]), shape)
    return (raw << ignored).astype(format.dtype)


@pytest.mark.parametrize("name", NAMES)
def test_dot_add_in_float32(name: str) -> None:
    """Every unit, kinds of codes on both sides, addends of every size."""
    taken = compared = 0
    stream = np.random.default_rng(NAMES.index(name))
    units = {unit.datapath("f32", shift) for unit in UNITS for shift in (0, 15)} | {UNITS[-4].datapath("f16")}
    kinds = (
        ("any", "any"),
        ("near one", "near one"),
        ("ends", "near one"),
        ("largest", "largest"),
        ("below one", "below one"),
        ("low", "low"),
        ("zero", "ends"),
    )
    for unit, kind, k in itertools.product(sorted(units, key=str), kinds, (4, 16, 64)):
        format, addend = FORMATS[name], FORMATS["f16" if unit.output == "f16" else "f32"]
        formats = (format, format, addend)
        a, b = _codes(format, (BATCH, M, k), kind[0], stream), _codes(format, (BATCH, k, N), kind[1], stream)
        if kind[0] == "largest":
            a[0] &= ~np.array(1 << (format.sign_shift + format.ignored_low_bits), a.dtype)  # one sum as large as can be
            b[0] &= ~np.array(1 << (format.sign_shift + format.ignored_low_bits), b.dtype)
        c = stream.integers(0, 1 << addend.bits, (BATCH, M, N), np.uint64).astype(addend.dtype)
        if kind[0] in ("zero", "low"):  # every exponent of the addend
            c = (np.arange(c.size, dtype=c.dtype) << addend.fraction_bits).reshape(c.shape)
        found = dot_add(a, b, c, formats, unit)
        expected = add_terms(aligned_terms(a, b, c, formats, unit), unit)
        assert np.array_equal(found, expected), (unit, kind, k)
        taken += Factors.of(a, b, formats).fit_float32(formats, unit)
        compared += found.size
    assert compared == len(units) * len(kinds) * 3 * BATCH * M * N
    assert taken >= len(units), f"float32 was taken {taken} times"


def test_products_of_many_bits_are_not_taken() -> None:
    """Two f32 numbers have a product of 48 bits."""
    f32 = FORMATS["f32"]
    one = np.full((1, 1, 1), 0x3F800001, np.uint32)
    assert not Factors.of(one, one, (f32, f32, f32)).fit_float32((f32, f32, f32), UNITS[0].datapath("f32"))
