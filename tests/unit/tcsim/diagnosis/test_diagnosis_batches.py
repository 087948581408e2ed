"""Matrices of another place of the batch, of all of K or of a part; strides and axes of the batch; no batch of any family is too much."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tcsim
from tests.evaluation.reported_kernels.case import FORMS, draw

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


@pytest.mark.parametrize("names", ["a", "b", "ab"])
def test_another_matrix_in_a_part_of_k(names: str) -> None:
    """The last 16 of K are the next matrix's."""
    given = operands()
    next_ = [1, 2, 0]
    changed = {
        "a": lambda x: np.concatenate([x[:, :, :16], x[next_, :, 16:]], axis=2),
        "b": lambda x: np.concatenate([x[:, :16], x[next_, 16:]], axis=1),
    }
    observed = computed(given | {name: changed[name](given[name]) for name in names})
    found = str(tcsim.diagnose(MMA, **given, observed=observed).explanations[0])
    for name in "ab":
        assert (f"{name}: another matrix of the batch in a part of K" in found) == (name in names), found
    assert "in K 16-31 matrix 1 for 0, matrix 2 for 1, matrix 0 for 2" in found


def test_heads_and_tokens() -> None:
    """The memory of [heads][tokens] is read as [tokens][heads]."""
    text = said(a=lambda x: x.reshape(M, BATCH, K).swapaxes(0, 1))
    assert "a: axes of the batch exchanged (memory of [batch][rows][K] is taken for [rows][batch][K]" in text
    text = said(b=lambda x: np.ascontiguousarray(x.transpose(1, 2, 0)).reshape(x.shape))
    assert "b: axes of the batch exchanged (memory of [K][columns][batch] is taken for [batch][K][columns]" in text


@pytest.mark.parametrize(("rows", "words"), [(M // 2, ", 12 rows for 24"), (1, ", the stride of its rows")])
def test_a_stride_of_the_batch(rows: int, words: str) -> None:
    """Half of what it should be, or that of a row."""
    text = said(a=lambda x: np.stack([x.reshape(-1, K)[t * rows :][:M] for t in range(BATCH)]))
    assert f"a: batch stride wrong ({rows * K} elements from matrix to matrix instead of {M * K}{words})" in text


def test_what_one_part_of_the_lines_takes_from_other_matrices() -> None:
    """A tile at the edge of a group, sums that are not cleared, strides of any size, also of what is stored."""
    given, next_ = operands() | {"c": np.zeros((BATCH, M, N), np.float32)}, [1, 2, 0]
    right, other = computed(given), computed(given | {"b": given["b"][next_]})
    stored, apart = np.zeros_like(right), np.zeros((BATCH + 1) * M * N, np.float32)
    stored[1:, :8], stored[:, 8:] = right[:-1, :8], right[:, 8:]
    for t in range(BATCH):
        apart[t * (M * N - 36) :][: M * N] = right[t].reshape(-1)
    memory = given["b"].reshape(-1)
    early = np.stack([memory[t * (K * N - 8) :][: K * N].reshape(K, N) for t in range(BATCH)])
    for observed, text in (
        (np.where(np.arange(M)[:, None] < 8, other, right), "b: another matrix of the batch in a part of the rows (in rows 0-7 matrix 1 for 0"),
        (stored, "in a part of the rows (in rows 0-7 nothing for 0, matrix 0 for 1"),
        (np.cumsum(right, axis=0), "matrix 1 holds also the sum of 0; matrix 2 holds also the sum of 0-1"),
        (computed(given | {"b": early}), f"b: batch stride wrong ({K * N - 8} elements from matrix to matrix instead of {K * N})"),
        (np.concatenate([right.sum(axis=0, keepdims=True), 0 * right[1:]]), "matrix 0 holds the sum of 0-2; matrix 1 holds the sum of none"),
        (np.concatenate([right.reshape(-1)[60:], np.zeros(60, np.float32)]).reshape(right.shape), "d: pointer off (by -60 elements, 3 rows, across"),
        (apart[: right.size].reshape(right.shape), f"d: batch stride wrong ({M * N - 36} elements"),
    ):  # fmt: skip
        found = tcsim.diagnose(MMA, **given, observed=observed)
        assert found.verdict == "explained" and len(found.explanations) == 1 and text in str(found), found


def test_results_stored_with_their_axes_exchanged() -> None:
    """[tokens][heads] instead of [heads][tokens]."""
    given = operands()
    observed = np.ascontiguousarray(computed(given).swapaxes(0, 1)).reshape(BATCH, M, N)
    found = tcsim.diagnose(MMA, **given, observed=observed)
    assert found.verdict == "explained" and "d: axes of the batch exchanged" in str(found), str(found)


@pytest.mark.parametrize("form", [form for form, how in FORMS.items() if not how.sparse])
def test_the_batch_index_of_b_is_ignored_in_every_family(form: str) -> None:
    """Of block-scaled operands the factors' index alone, which leaves the elements right."""
    how, random = FORMS[form], np.random.default_rng(7)
    single = [draw(random, form, 32, 16, 64) for _ in range(3)]
    given = {name: np.stack([getattr(each, name) for each in single]) for name in "ab"}
    given |= {name: np.stack([each.extras[name] for each in single]) for name in single[0].extras}
    name = "scale_b" if how.scale else "b"
    observed = how(**given | {name: given[name][[0, 0, 0]]})
    found = tcsim.diagnose(how.mnemonic, arch=how.arch, observed=observed, **given, **how.extras)
    assert (found.verdict, found.mistake) == ("explained", f"{name}: batch index ignored"), str(found)
