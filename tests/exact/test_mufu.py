"""The special function unit: the array model against one written separately, and both against mathematics."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tcsim.arithmetic import mufu
from tests.exact.mufu import mufu as one
from tests.support.extent import examples

CORNERS = [
    code | sign
    for sign in (0, 1 << 31)
    for base in (0, 0x00800000, 0x3F800000, 0x40000000, 0x3B800000, 0x41000000, 0x42FE0000, 0x43000000, 0x4B000000, 0x7E800000, 0x7F000000, 0x7F800000)
    for code in (base, base + 1, max(base - 1, 0))
]  # fmt: skip


@pytest.mark.parametrize("function", mufu.FUNCTIONS)
def test_corners_and_every_exponent(function: str) -> None:
    """Ends of ranges, and 24 mantissas of every exponent and sign."""
    generator = np.random.default_rng(7)
    exponents = np.repeat(np.arange(512, dtype=np.uint32) << np.uint32(23), 24)
    codes = np.concatenate(
        [np.array(CORNERS, np.uint32), exponents | generator.integers(0, 1 << 23, len(exponents), np.uint32)]
    )
    found = mufu.unit().compute(function, codes)
    wrong = [
        (hex(code), hex(result), hex(one(function, int(code))))
        for code, result in zip(codes, found, strict=True)
        if result != one(function, int(code))
    ]
    assert not wrong[:5]
    assert len(codes) > 12_000


@examples(300)
@given(function=st.sampled_from(sorted(mufu.FUNCTIONS)), code=st.integers(0, 2**32 - 1))
def test_any_input(function: str, code: int) -> None:
    """The two models agree."""
    assert int(mufu.unit().compute(function, np.array([code], np.uint32))[0]) == one(function, code)


MATHEMATICS: dict[str, tuple[Callable[[np.ndarray], np.ndarray], float, float, float]] = {
    "rcp": (lambda x: 1 / x, 1e-3, 1e3, 1.2e-7),
    "rsqrt": (lambda x: 1 / np.sqrt(x), 1e-3, 1e3, 1.3e-7),
    "sqrt": (np.sqrt, 1e-3, 1e3, 2.5e-7),
    "ex2": (np.exp2, -20, 20, 1.5e-7),
    "tanh": (np.tanh, 0.01, 4, 5e-4),
}


@pytest.mark.parametrize("function", MATHEMATICS)
def test_near_the_true_function(function: str) -> None:
    """Relative errors stay below what the manual promises, or a little more than was seen."""
    true, low, high, bound = MATHEMATICS[function]
    x = np.linspace(low, high, 20_001).astype(np.float32)
    found = mufu.unit().compute(function, x.view(np.uint32)).view(np.float32).astype(np.float64)
    want = true(x.astype(np.float64))
    assert float((abs(found - want) / abs(want)).max()) < bound


@pytest.mark.parametrize("format", ["f16", "bf16"])
@pytest.mark.parametrize("function", ["ex2", "tanh"])
def test_narrow_forms_cut_the_wide_result(function: str, format: str) -> None:
    """All 65,536 inputs: NaN stays NaN, and the result is the f32 one with bits cut off."""
    codes = np.arange(1 << 16, dtype=np.uint16)
    found = mufu.unit().narrow(function, codes, format)
    wide = (
        codes.view(np.float16).astype(np.float32)
        if format == "f16"
        else (codes.astype(np.uint32) << np.uint32(16)).view(np.float32)
    )
    result = mufu.unit().compute(function, wide.view(np.uint32)).view(np.float32).astype(np.float64)
    back = (
        found.view(np.float16).astype(np.float32)
        if format == "f16"
        else (found.astype(np.uint32) << np.uint32(16)).view(np.float32)
    ).astype(np.float64)
    number = ~np.isnan(result)
    assert np.array_equal(np.isnan(back), ~number)
    finite = number & np.isfinite(result) & np.isfinite(back)
    assert (abs(back[finite]) <= abs(result[finite])).all()
    assert finite.sum() > 30_000


@pytest.mark.parametrize(
    "own",
    [mufu.unit(), mufu.Unit(keeps_subnormals=True), mufu.Unit(rounded=True)],
    ids=["as it is", "subnormals", "rounded"],
)
def test_powers_of_two_of_many(own: mufu.Unit) -> None:
    stream = np.random.default_rng(5)
    near = np.arange(-(1 << 16), 1 << 16) / 2**23
    numbers = np.concatenate([stream.uniform(-130, 130, 300_000), near, near + 1, near - 126, np.arange(-600, 600) / 4])
    codes = np.concatenate([
        numbers.astype(np.float32).view(np.uint32), stream.integers(0, 1 << 32, 300_000, np.uint32),
        np.array([0, 1, 0x7F800000, 0x7F800001, 0x7FFFFFFF, 0xC2FC0001, 0x42FFFFFF], np.uint32), np.array([0, 1, 0x7F800000, 0x7FC00000], np.uint32) | 0x80000000,
    ])  # fmt: skip
    assert len(codes) > mufu.MANY
    few = [own.ex2(piece) for piece in np.array_split(codes, 1 + len(codes) // (mufu.MANY // 2))]
    assert np.array_equal(own.ex2(codes), np.concatenate(few)) and len(np.unique(codes)) > 500_000
    assert np.array_equal(own.ex2(codes.reshape(1, -1)), own.ex2(codes)[None])


def test_high_words_follow_the_same_tables() -> None:
    """rcp and rsqrt of f64: the first twenty bits of the result are near the true ones."""
    x = np.linspace(1.0, 1e6, 10_001)
    words = (x.view(np.uint64) >> np.uint64(32)).astype(np.uint32)
    exact = (words.astype(np.uint64) << np.uint64(32)).view(np.float64)
    for function, true in (("rcp", 1 / exact), ("rsqrt", 1 / np.sqrt(exact))):
        found = (mufu.unit().high_word(function, words).astype(np.uint64) << np.uint64(32)).view(np.float64)
        assert float((abs(found - true) / true).max()) < 2.0**-19


def test_an_instruction_is_made_without_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    """The frozen generators hold no table of the model: inputs are made without one."""
    monkeypatch.setattr(mufu, "tables", lambda: pytest.fail("the tables were read"))
    made = mufu.Unit()
    assert made.functions["rcp"].bias == 4046
    with pytest.raises(pytest.fail.Exception, match="the tables were read"):
        made.tables["rcp"]
