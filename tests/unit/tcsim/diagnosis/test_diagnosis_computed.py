"""What the diagnosis computes of a rule: outputs, in the order and type of the kernel."""

from __future__ import annotations

import math
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import tcsim
from tcsim.diagnosis import functions, misread, other_c, reals, recoded
from tcsim.diagnosis.least_squares import whole_weights
from tcsim.diagnosis.named_functions import _erf, casts, solved_functions
from tcsim.diagnosis.reals import reals_of
from tcsim.numbers.formats import FORMATS
from tests.support.diagnosis_parts import numbers, problem

# --- what is computed


def test_the_error_function() -> None:
    x = np.linspace(-4, 4, 81)
    assert np.abs(_erf(x) - [math.erf(own) for own in x]).max() < 2e-7


def test_bits_that_a_narrower_format_keeps() -> None:
    """One more than its fraction has."""
    said = {own.said for own in casts() if own.mistake == "result passed through a narrower format"}
    assert said == {
        f"{name}: {FORMATS[name].fraction_bits + 1} bits are kept of each sum" for name in ("f32", "f16", "bf16")
    }


def test_a_leaky_relu_leaves_what_is_positive() -> None:
    x = np.linspace(-4, 4, 81)
    seen = np.where(x < 0, 0.125 * x, x)
    every = np.ones(len(x), bool)
    (found,) = (own for own in solved_functions(x, seen, every, every, False) if "leaky" in own.said)
    assert np.allclose(found.run(x), seen, rtol=1e-4) and found.run(np.array([0.5])).tolist() == [0.5]


def test_weights_are_refused_that_do_not_give_the_sums() -> None:
    """A whole weight may come out a little off: the sums may not."""
    terms = np.random.default_rng(0).standard_normal((64, 4))
    wanted, reach = terms @ np.array([1.0, 0.0, 2.0, 1.0]), np.full(64, 1e-3)
    found = whole_weights(terms, wanted, reach)
    assert found is not None and found.tolist() == [1, 0, 2, 1]
    assert whole_weights(terms, wanted + 0.008, reach) is None


def test_the_reach_of_rounding_is_bounded() -> None:
    """By a part of a usual output, however large the terms are."""
    own = problem(k=64)
    assert (numbers(own).reach <= reals._KNOWN * numbers(own).usual).all()
    huge = replace(own, c=np.full_like(own.c, 0x5F000000))
    found = reals_of(huge, own.outputs)
    assert (found.reach <= reals._KNOWN * found.usual).all()


@pytest.mark.parametrize(
    ("format", "codes", "found"),
    [("f16", [0xBC00, 0x3C00], [0x3C00, 0x3C00]), ("s8", [0xFF, 0x01], [0x7F, 0x01]), ("tf32", [0xBF80_0000], [0x3F80_0000]),
     ("e4m3", [0x81], [0x01]), ("ue8m0", [0x81], None), ("u8", [0x81], None), ("b1", [0xFF], None)],
)  # fmt: skip
def test_codes_without_their_sign(format: str, codes: list[int], found: list[int] | None) -> None:
    """The highest bit of formats that have one."""
    own = recoded._unsigned(np.array(codes, FORMATS[format].dtype), FORMATS[format], 1)
    assert (None if own is None else own.tolist()) == found


def test_a_group_with_one_nonzero_that_is_kept_twice() -> None:
    """Only beside a zero, and only where a sparse operand keeps two of a group."""
    codes = np.array([[0x0000, 0x3C00, 0x4000, 0x0000, 0x4200, 0x4400]], np.uint16)  # f16: 0, 1 | 2, 0 | 3, 4
    first, second = (recoded._twice(place, codes, FORMATS["f16"], 2) for place in (0, 1))
    assert first is not None and first.tolist() == [[0x3C00, 0x3C00, 0x4000, 0x0000, 0x4200, 0x4400]]
    assert second is not None and second.tolist() == [[0x0000, 0x3C00, 0x4000, 0x4000, 0x4200, 0x4400]]
    assert recoded._twice(0, codes, FORMATS["f16"], 1) is None


def test_elements_of_one_word() -> None:
    """A negative one borrows from the next of its word, whose borrow goes on; bits of earlier bytes stay."""
    codes = np.array([[0xFF, 0x00, 0x05, 0x80, 0x01, 0xFE, 0x01, 0xFF]], np.uint8)
    found = recoded._borrowed(codes, FORMATS["s8"], 1)
    assert found is not None and found.tolist() == [[0xFF, 0xFF, 0x04, 0x80, 0x01, 0xFE, 0x00, 0xFF]]
    assert recoded._borrowed(codes, FORMATS["u8"], 1) is None
    nibbles = np.array([[1, 2, 4, 0, 0, 1, 8, 0]], np.uint8)
    two, four = (recoded._ored(many, nibbles, FORMATS["e2m1"], 1) for many in (2, 4))
    assert two is not None and two.tolist() == [[1, 2, 5, 2, 0, 1, 8, 1]]
    assert four is not None and four.tolist() == [[1, 2, 5, 2, 5, 3, 13, 3]]
    assert recoded._ored(2, codes, FORMATS["s8"], 1) is None


@pytest.mark.parametrize("name", ["a", "b"])
def test_elements_are_taken_along_k(name: str) -> None:
    """Of B as well, whose codes lie with K first."""
    random = np.random.default_rng(8)
    given = {x: random.integers(-9, 9, shape) for x, shape in (("a", (32, 64)), ("b", (64, 24)))}
    lines = given[name] if name == "a" else given[name].T
    words = (lines.reshape(len(lines), -1, 4) << 8 * np.arange(4)).sum(axis=2)
    read = (words[..., None] >> 8 * np.arange(4) & 0xFF).astype(np.uint8).view(np.int8).reshape(lines.shape)
    wrong = {**given, name: read if name == "a" else read.T}
    observed = (wrong["a"].astype(np.int32) @ wrong["b"].astype(np.int32)).astype(np.int32)
    codes = {x: values.astype(np.int8) for x, values in given.items()}
    found = tcsim.diagnose("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32", arch="sm_80", **codes, observed=observed)
    assert (found.verdict, found.mistake) == ("explained", f"{name}: a borrow from the next element"), str(found)


def test_functions_of_slices_of_k() -> None:
    """C is in the first slice, or outside of all."""
    a, b, c = np.array([[[1.0, -2.0]]]), np.array([[[3.0, 1.0]]]), np.array([[[0.5]]])
    own: Any = SimpleNamespace(a=a, b=b, c=c)
    relu: Any = SimpleNamespace(run=lambda x: np.maximum(x, 0))
    halves = np.array([0, 1])
    assert functions.OfSlices(relu, halves, True).values(own, 0).tolist() == [[3.5]]
    assert functions.OfSlices(relu, halves[::-1], True).values(own, 0).tolist() == [[3.0]]
    assert functions.OfSlices(relu, halves, False).values(own, 0).tolist() == [[3.5]]
    assert functions.OfSlices(relu, halves[::-1], False).values(own, 0).tolist() == [[3.5]]


@pytest.mark.parametrize("inside", [False, True])
def test_functions_of_slices_are_found(inside: bool) -> None:
    """A ReLU of each half of K, and C beside the sums or in the first."""
    own = problem(m=32, n=32, k=64, c=True)
    bare = numbers(own)
    halves = [bare.a[0][:, part] @ bare.b[0][:, part].T for part in (slice(0, 32), slice(32, 64))]
    c = bare.c[0]
    seen = np.maximum(halves[0] + c * inside, 0) + np.maximum(halves[1], 0) + c * (not inside)
    own = replace(own, observed=tcsim.encode(seen, "f32")[None])
    found = [
        item
        for item in functions.in_slices(own, numbers(own), np.ones((1, 32, 32), bool))
        if item.named.mistake == "ReLU applied"
    ]
    assert any(item.inside is inside and item.of_k.tolist() == [0] * 32 + [1] * 32 for item in found)


def test_what_follows_the_last_k() -> None:
    """Of one line, too: behind it is nothing. Of several the next one's first."""
    two = np.array([[[1, 2, 3, 4], [5, 6, 7, 8]]])
    lines = np.arange(2)
    assert misread.behind(two[:, :1], lines[:1], lines[:1], 4, 2, misread.NEXT).tolist() == [[0, 0]]
    assert misread.behind(two, lines * 0, lines, 4, 2, misread.NEXT).tolist() == [[5, 6], [0, 0]]
    assert misread.behind(two, lines * 0, lines, 4, 2, misread.LAST).tolist() == [[4, 4], [8, 8]]
    assert misread.behind(two, lines * 0, lines, 4, 2, misread.FIRST).tolist() == [[1, 2], [5, 6]]
    assert misread.behind(two, lines * 0, lines, 4, 2, 3).tolist() == [[2, 3], [6, 7]]


def test_c_from_elsewhere() -> None:
    """Zeros outside, also of a C of one element."""
    zero = np.zeros(2, int)
    found = reals.at_places(np.array([[[5.0]]]), zero, np.array([0, 1]), np.array([0, -1]))
    assert found.tolist() == [5.0, 0.0]


def test_a_pitch_of_c_is_found_from_few_outputs() -> None:
    """As few as the least that tell."""
    c = np.random.default_rng(0).standard_normal((1, 32, 32))
    i, j = np.divmod(np.arange(0, 600, 600 // other_c._LEAST)[: other_c._LEAST], 31)
    wanted = c[0].reshape(-1)[20 * i + j]
    reach = np.full(len(i), 1e-9)
    found = [rule.detail for rule in other_c.c_addresses(c, (32, 32), np.stack([i * 0, i, j], 1), wanted, reach)]
    assert "20 elements for 32 (row by row)" in found
    assert not [*other_c.c_addresses(c, (32, 32), np.stack([i * 0, i, j], 1)[1:], wanted[1:], reach[1:])]


def test_numbers_of_an_epilogue_say_where() -> None:
    """Factors of rows, of matrices or of C alone, and a bias that is not added in some columns."""
    random = np.random.default_rng(8)
    a, b = (random.standard_normal(shape).astype(np.float16) for shape in ((2, 32, 32), (2, 32, 24)))
    c = np.broadcast_to(random.normal(0, 4, 24).astype(np.float32), (2, 32, 24))
    mma = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
    product = tcsim.gemm(a, b, instruction=mma).view(np.float32)
    some, each, inside = np.ones((1, 32, 1)), np.ones((2, 1, 1)), np.arange(24) < 16
    some[:, 8:16], each[1] = 2, 0.5
    for observed, with_c, said in (
        (product * some, None, "rows scaled (factors 2 (twice as large) in rows 8-15)"),
        (product * each, None, "matrices scaled (factors 0.5 in matrices 1)"),
        (
            product + c * some * np.arange(1, 33)[:, None] / 4,
            c * np.arange(1, 33)[:, None] / 4,
            "rows scaled (factors 2 (twice as large) in rows 8-15, of c alone)",
        ),
        (product + c * inside, c, "c is taken for zero; in matrices 0-1, rows 0-31, columns 16-23"),
        (product + c * (1 + np.arange(24)), c, "as if c, a bias itself, came in 1 to 24 times"),
    ):
        given = {} if with_c is None else {"c": with_c.astype(np.float32)}
        found = tcsim.diagnose(mma, a=a, b=b, observed=observed.astype(np.float32), **given)
        assert found.verdict == "explained" and said in str(found), found
