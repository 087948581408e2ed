"""The set of reported kernels: its kinds are wrong, right or noise as they say. `python -m tests.evaluation.reported_kernels` asks all."""

from __future__ import annotations

from collections import Counter

import ml_dtypes
import numpy as np
import pytest

from tests.evaluation.reported_kernels.__main__ import judged
from tests.evaluation.reported_kernels.kinds import KINDS, case, kinds_memory
from tests.evaluation.reported_kernels.sources import SOURCES
from tests.evaluation.second_wrong_kernels.cases import EVERY
from tests.evaluation.second_wrong_kernels.judge import HALF, RIGHT, UNEXPLAINED, WRONG


def test_more_than_half_of_the_mistakes_were_reported_and_no_earlier_set_has_the_report() -> None:
    wrong = [kind for kind in KINDS.values() if kind.what == "wrong"]
    used = Counter(kind.source for kind in wrong if kind.source != "textbook")
    assert len(wrong) >= 64
    assert len(used) >= 32
    assert set(used) == set(SOURCES)
    assert max(used.values()) == 1
    earlier = [getattr(kind, name, "") for kind in EVERY.values() for name in ("source", "thread")]
    assert not used.keys() & {source for source in earlier if isinstance(source, str)}
    assert Counter(kind.what for kind in KINDS.values())["right"] >= 6
    assert Counter(kind.what for kind in KINDS.values())["noise"] >= 6


@pytest.mark.parametrize("name", [name for name, kind in KINDS.items() if kind.what == "wrong"])
def test_a_mistake_shows_and_its_sentence_alone_is_a_right_report(name: str) -> None:
    asked = case(KINDS[name], 5)
    assert "{" not in asked.says
    report = {"verdict": "explained", "explanations": [{"text": asked.says}]}
    assert judged(asked, report) == RIGHT, (asked.says, asked.needs)
    assert judged(asked, {**report, "explanations": [{"text": "it differs"}]}) == WRONG
    assert judged(asked, {"verdict": "correct"}) == WRONG
    assert judged(asked, {"verdict": "not explained"}) == UNEXPLAINED


@pytest.mark.parametrize("name", [name for name, kind in KINDS.items() if kind.what == "right"])
def test_a_right_kernel_differs_by_rounding_alone(name: str) -> None:
    kind = KINDS[name]
    run = kind.make(np.random.default_rng(5))
    assert run.right is not None
    step = float(ml_dtypes.finfo(run.observed.dtype).eps)
    near = 2e-3 if run.how.a == "e4m3" else 1e-4  # sums of 8-bit products have fewer bits before sm_100
    x, y = run.observed.astype(float), run.right.astype(float)
    assert (np.abs(x - y) <= step * np.abs(y) + near * np.abs(y).max()).all()


@pytest.mark.parametrize("name", [name for name, kind in KINDS.items() if kind.what == "noise"])
def test_noise_must_not_be_explained(name: str) -> None:
    asked = case(KINDS[name], 5)
    verdicts = ("not explained", "partly explained", "explained", "ambiguous", "correct")
    assert [judged(asked, {"verdict": each}) for each in verdicts] == [RIGHT, HALF, WRONG, WRONG, WRONG]


@pytest.mark.parametrize("forms", ["wgmma", "wgmma bf16", "wgmma e4m3"])
def test_right_descriptors_give_the_product(forms: str) -> None:
    p = kinds_memory.pair(np.random.default_rng(5), forms)
    assert np.array_equal(kinds_memory.multiplied(p, {}, {}), p.product())
