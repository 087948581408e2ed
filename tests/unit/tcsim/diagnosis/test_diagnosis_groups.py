"""Zero points and scales of groups of K: what is added to each element of an operand, or multiplies it, is read off the outputs."""

from __future__ import annotations

import numpy as np
import pytest

import tcsim

MMA = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
INTEGER = "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32"


def integers() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A, B and C."""
    random = np.random.default_rng(31)
    a, b = (random.integers(-128, 128, shape).astype(np.int8) for shape in ((40, 128), (128, 48)))
    return a, b, random.integers(-500, 500, (40, 48)).astype(np.int32)


def asked(za: np.ndarray | int, zb: np.ndarray | int) -> str:
    """What is said of integers to which something was added."""
    a, b, c = integers()
    observed = (a.astype(np.int64) + za) @ (b.astype(np.int64) + zb) + c
    found = tcsim.diagnose(INTEGER, arch="sm_80", a=a, b=b, c=c, observed=observed.astype(np.int32))
    assert (found.verdict, found.explanations[0].bits) == ("explained", True), str(found)
    return str(found.explanations[0])


def test_a_zero_point_of_each_line() -> None:
    """Of each column of B, or of each row of A."""
    random = np.random.default_rng(0)
    assert "constant added to b (one for each column, from -9 to" in asked(0, random.integers(-9, 10, 48))
    assert "constant added to a (one for each row, from -8 to 9" in asked(random.integers(-9, 10, (40, 1)), 0)


@pytest.mark.parametrize("each", ["group", "group and column"])
def test_a_zero_point_of_each_group_of_k(each: str) -> None:
    """The same for all columns, or of each column."""
    z = np.random.default_rng(1).integers(-9, 10, (4, 48 if each == "group and column" else 1)).repeat(32, axis=0)
    said = asked(0, z)
    assert "constant added to b (one for each" in said and "each 32 of K" in said


@pytest.mark.parametrize("name", ["a", "b"])
def test_scales_of_groups_of_k(name: str) -> None:
    """Each 32 of K and each line have their own factor."""
    random = np.random.default_rng(2)
    a, b = (random.standard_normal(shape).astype(np.float16) for shape in ((40, 96), (96, 48)))
    factors = random.uniform(0.5, 2, (3, 40, 1) if name == "a" else (3, 1, 48)).astype(np.float32)
    parts = [tcsim.gemm(a[:, k : k + 32], b[k : k + 32], instruction=MMA).view(np.float32) for k in (0, 32, 64)]
    observed = sum(part * by for part, by in zip(parts, factors, strict=True))
    found = tcsim.diagnose(MMA, a=a, b=b, observed=observed)
    assert (found.verdict, found.mistake) == ("explained", f"scales of {name} wrong")
    line = "row" if name == "a" else "column"
    assert f"the products of each {line} and each 32 of K are multiplied" in str(found)


def test_whose_scales_and_zero_points() -> None:
    """The steps between the values of a group are its scale: which group's, which column's or which row's was used can be said."""
    random = np.random.default_rng(3)
    q, zero = random.integers(0, 16, (128, 32)), random.integers(5, 11, (4, 32)).repeat(32, axis=0)
    scale = (random.integers(4, 8, (4, 32)) / 4 * 2.0 ** random.integers(-5, -1, (4, 32))).repeat(32, axis=0)
    q[::32], q[1::32] = 0, 15
    a, codes = random.standard_normal((48, 128)).astype(np.float16), random.integers(-31, 32, (48, 128))
    rows = random.integers(4, 8, (48, 1)) / 4 * 2.0 ** random.integers(-5, -1, (48, 1))
    b, last = (q - zero) * scale, np.r_[np.arange(32), np.arange(96)]
    for own, weights, said in (
        (a, (q - zero) * scale[last], "the scales: groups 1-3 are groups 0-2"),
        (
            a,
            (q - zero) * np.roll(scale, -1, axis=1),
            "the scales: columns 0-30 are columns 1-31, columns 31 are columns 0",
        ),
        (
            a,
            (q - zero[last]) * scale[last],
            "zero points of b wrong (the products of each column and each 32 of K are multiplied by numbers",
        ),
        (a, (q - 8) * scale, "as if every zero point were 8"),
        (a, (q + zero) * scale, "as if the zero points were added"),
        (a, (q - zero + 1) * scale, "1 steps of the values"),
        (a, np.where(np.arange(32) < 8, (q - zero) * scale[last], b), "group 0 of 4 is right"),
        (codes * rows, None, "the scales: rows 0-46 are rows 1-47, rows 47 are rows 0"),
    ):
        given = {"a": own.astype(np.float16), "b": b.astype(np.float16)}
        used = {"a": codes * np.roll(rows, -1, axis=0), "b": b} if weights is None else {"a": own, "b": weights}
        observed = tcsim.gemm(*(used[name].astype(np.float16) for name in "ab"), instruction=MMA).view(np.float32)
        found = tcsim.diagnose(MMA, **given, observed=observed)
        assert found.verdict == "explained" and said in str(found), found
