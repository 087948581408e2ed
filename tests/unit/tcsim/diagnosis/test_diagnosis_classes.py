"""Explanations of equal bits are one class, what gives every bit comes first, and right kernels are called right."""

from __future__ import annotations

import re

import numpy as np
import pytest

import tcsim

MMA = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
FP8 = "mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32"
SINGLE = np.float32


def operands(m: int, n: int, k: int, format: str = "f16") -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A, B and C at random."""
    random = np.random.default_rng(m + n + k)
    a, b = (tcsim.encode(random.standard_normal(shape), format) for shape in ((m, k), (k, n)))
    return a, b, random.standard_normal((m, n)).astype(SINGLE)


def test_what_no_data_can_tell_apart_is_one_class() -> None:
    """Rows of A exchanged, or the outputs stored so: with a C of zero all its names are given, with another one only those that fit."""
    a, b, c = operands(32, 16, 32)
    rows = np.arange(32) ^ 8
    found = tcsim.diagnose(MMA, a=a, b=b, observed=tcsim.gemm(a[rows], b, instruction=MMA))
    assert (found.verdict, found.explanations[0].bits) == ("explained", True)
    names = {found.mistake, *(name.partition(" (")[0] for name in found.explanations[0].also)}
    assert {"a: rows of another block", "d: stored at another place"} <= names
    assert "C is zero here" in found.note and all(name in str(found) for name in names if name)
    right = tcsim.gemm(a, b, c, instruction=MMA)
    stored = tcsim.diagnose(MMA, a=a, b=b, c=c, observed=right[rows])
    assert stored.mistake == "d: stored at another place" and not stored.note


def test_combinations_are_counted_beside_one_mistake() -> None:
    """Twice the rest of K, halved, is K that ends early: the report says the one thing, and how many others there are."""
    a, b, _ = operands(16, 16, 128)
    found = tcsim.diagnose(MMA, a=a, b=b, observed=tcsim.gemm(a[:, :48], b[:48], instruction=MMA))
    (one,) = found.explanations
    assert one.mistake == "K block missing" and one.combined > 0
    assert not any(" + " in line for line in found.lines())
    assert any(re.search(rf"also {one.combined} combinations? of two or more", line) for line in found.lines())


TAILS = {
    "the next row's first": lambda lines, k: np.hstack([lines, np.vstack([lines[1:], 0 * lines[:1]])])[:, k],
    "those 32 before": lambda lines, k: lines[:, k - 32 * (k >= 56)],
    "the last one again": lambda lines, k: lines[:, np.minimum(k, 55)],
    "the first ones again": lambda lines, k: lines[:, k % 56],
}


@pytest.mark.parametrize("said", TAILS)
def test_a_tail_of_k_that_was_not_cleared(said: str) -> None:
    """K = 56 in tiles of 32: what follows is the next row, the tile before, or the row's own ends."""
    a, b, c = operands(24, 16, 56)
    wide = [TAILS[said](lines, np.arange(64)) for lines in (a, b.T)]
    observed = tcsim.gemm(wide[0], wide[1].T, c, instruction=MMA)
    found = tcsim.diagnose(MMA, a=a, b=b, c=c, observed=observed)
    assert (found.verdict, found.mistake, found.explanations[0].bits) == ("explained", "K tail not cleared", True)
    assert said in found.explanations[0].detail


def test_an_epilogue_is_known_to_the_bit() -> None:
    """A bias, clamped at zero and rounded to bf16."""
    a, b, c = operands(32, 32, 32)
    bias = np.random.default_rng(1).standard_normal(32).astype(SINGLE)
    right = tcsim.gemm(a, b, c, instruction=MMA).view(SINGLE)
    observed = tcsim.encode(np.maximum(right + bias, 0), "bf16")
    found = tcsim.diagnose(MMA, a=a, b=b, c=c, observed=tcsim.encode(tcsim.decode(observed, "bf16"), "f32"))
    assert (found.verdict, found.explanations[0].bits) == ("explained", True)
    assert set(str(found.mistake).split(" + ")) == {
        "bias added",
        "ReLU applied",
        "result passed through a narrower format",
    }


def test_a_reference_is_not_another_arch() -> None:
    """Products of e4m3 whose sum is exact in f32: sm_90 and others give the same bits, and so does a plain reference."""
    a, b, _ = operands(32, 32, 64, "e4m3")
    exact = tcsim.decode(a, "e4m3").astype(np.float64) @ tcsim.decode(b, "e4m3")
    found = tcsim.diagnose(FP8, arch="sm_89", a=a, b=b, observed=tcsim.encode(exact, "f32"))
    assert found.verdict == "correct" and "the exact sum" in found.explanations[0].detail


def test_a_wrong_kernel_of_another_order_is_known_to_the_bit() -> None:
    """Rows exchanged in a kernel that splits K: the order is found beneath the mistake."""
    a, b, c = operands(32, 16, 64)
    rows = np.arange(32) ^ 16
    parts = [tcsim.gemm(a[rows, k : k + 32], b[k : k + 32], None, instruction=MMA).view(SINGLE) for k in (0, 32)]
    found = tcsim.diagnose(MMA, a=a, b=b, c=c, observed=(parts[0] + parts[1] + c).view(np.uint32))
    assert (found.verdict, found.mistake, found.explanations[0].bits) == ("explained", "a: rows of another block", True)
