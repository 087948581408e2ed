"""A wrong line, a wrong k or a miscounted K is found beneath an epilogue that the model does not have."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tcsim

MMA = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
RANDOM = np.random.default_rng(41)
BIAS = RANDOM.standard_normal(48).astype(np.float32)
FACTORS = RANDOM.uniform(0.5, 2, (32, 1)).astype(np.float32)


def gemm(a: np.ndarray, b: np.ndarray, c: np.ndarray | None = None) -> np.ndarray:
    """In f32."""
    return tcsim.gemm(a, b, c, instruction=MMA).view(np.float32)


@pytest.mark.parametrize(
    ("names", "epilogue"),
    [
        ("bias added", lambda x: x + BIAS),
        ("rows scaled", lambda x: x * FACTORS),
        ("result scaled + bias added", lambda x: x * np.float32(0.3) + BIAS),
        ("activation applied", lambda x: (x / (1 + np.exp(-x))).astype(np.float32)),
        ("result clamped", lambda x: np.clip(x, -4, 4)),
    ],
)
@pytest.mark.parametrize("mistake", ["a: rows of another block", "K block missing"])
def test_two_mistakes(mistake: str, names: str, epilogue: Any) -> None:
    """Blocks of rows are exchanged, or the end of K is missing, and then the epilogue."""
    random = np.random.default_rng(42)
    a, b = (random.standard_normal(shape).astype(np.float16) for shape in ((32, 48), (48, 48)))
    wrong = gemm(a[np.arange(32) ^ 16], b) if mistake.startswith("a:") else gemm(a[:, :32], b[:32])
    found = tcsim.diagnose(MMA, a=a, b=b, observed=epilogue(wrong))
    said = str(found.explanations[0]) if found.explanations else str(found)
    assert found.verdict == "explained" and all(name in said for name in (mistake, *names.split(" + "))), said


def test_a_factor_and_a_bias_alone() -> None:
    """Nothing is wrong beneath: nothing is named."""
    random = np.random.default_rng(43)
    a, b = (random.standard_normal(shape).astype(np.float16) for shape in ((32, 48), (48, 48)))
    found = tcsim.diagnose(MMA, a=a, b=b, observed=gemm(a, b) * np.float32(0.3) + BIAS)
    assert (found.verdict, found.mistake) == ("explained", "result scaled + bias added")
