"""Other matrices of the batch in the place of an operand's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tcsim

MMA = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
BATCH, M, N, K = 3, 24, 20, 32


def operands() -> dict[str, np.ndarray]:
    """A, B and C of every matrix."""
    random = np.random.default_rng(51)
    given = {
        name: random.standard_normal(shape).astype(np.float16)
        for name, shape in (("a", (BATCH, M, K)), ("b", (BATCH, K, N)))
    }
    return given | {"c": random.standard_normal((BATCH, M, N)).astype(np.float32)}


def computed(given: dict[str, np.ndarray]) -> np.ndarray:
    """Each product with its C."""
    found = [tcsim.gemm(*(given[name][t] for name in "abc"), instruction=MMA) for t in range(BATCH)]
    return np.stack(found).view(np.float32)


def said(**changed: Any) -> str:
    """What is said of a kernel that read operands changed like that."""
    given = operands()
    observed = computed(given | {name: change(given[name]) for name, change in changed.items()})
    found = tcsim.diagnose(MMA, **given, observed=observed)
    assert (found.verdict, found.explanations[0].bits) == ("explained", True), str(found)
    return str(found.explanations[0])


@pytest.mark.parametrize("name", ["a", "b", "c"])
def test_the_batch_index_is_ignored(name: str) -> None:
    """Every matrix reads the first, or the next one."""
    assert f"{name}: batch index ignored" in said(**{name: lambda x: x[[0, 0, 0]]})
    assert f"{name}: another matrix of the batch (matrix 1 for 0, matrix 2 for 1" in said(
        **{name: lambda x: x[[1, 2, 0]]}
    )


def test_both_operands() -> None:
    """With a helper that they share; C is right."""
    text = said(a=lambda x: x[[0, 0, 0]], b=lambda x: x[[0, 0, 0]])
    assert "a: batch index ignored" in text and "b: batch index ignored" in text and "c:" not in text
