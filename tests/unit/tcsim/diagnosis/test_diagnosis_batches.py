"""Matrices of another place of the batch, strides of the batch, and heads and tokens that are exchanged."""

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
    assert f"{name}: another matrix of the batch (the next one" in said(**{name: lambda x: x[[1, 2, 0]]})


def test_both_operands() -> None:
    """With a helper that they share; C is right."""
    text = said(a=lambda x: x[[0, 0, 0]], b=lambda x: x[[0, 0, 0]])
    assert "a: batch index ignored" in text and "b: batch index ignored" in text and "c:" not in text


def test_heads_and_tokens() -> None:
    """The memory of [heads][tokens] is read as [tokens][heads]."""
    text = said(a=lambda x: x.reshape(M, BATCH, K).swapaxes(0, 1))
    assert "a: axes of the batch exchanged (memory of [batch][rows][K] is taken for [rows][batch][K]" in text
    text = said(b=lambda x: x.reshape(K, BATCH, N).swapaxes(0, 1))
    assert "b: axes of the batch exchanged (memory of [batch][K][columns] is taken for [K][batch][columns]" in text


def test_a_stride_of_the_batch() -> None:
    """Half of what it should be."""
    text = said(a=lambda x: np.stack([x.reshape(-1, K)[t * M // 2 :][:M] for t in range(BATCH)]))
    assert f"a: batch stride wrong ({M * K // 2} elements from matrix to matrix instead of {M * K})" in text


def test_results_stored_with_their_axes_exchanged() -> None:
    """[tokens][heads] instead of [heads][tokens]."""
    given = operands()
    observed = np.ascontiguousarray(computed(given).swapaxes(0, 1)).reshape(BATCH, M, N)
    found = tcsim.diagnose(MMA, **given, observed=observed)
    assert found.verdict == "explained" and "d: axes of the batch exchanged" in str(found), str(found)
