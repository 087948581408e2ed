"""The three sets of reported kernels: their kinds are wrong, right or noise as they say. `python -m tests.evaluation.reported_kernels` asks all."""

from __future__ import annotations

from collections import Counter

import ml_dtypes
import numpy as np
import pytest

from tests.evaluation.reported_kernels import again_sources, third_sources
from tests.evaluation.reported_kernels.__main__ import KINDS, judged
from tests.evaluation.reported_kernels.case import draw
from tests.evaluation.reported_kernels.kinds import SETS, again_memory, case, kinds_memory
from tests.evaluation.reported_kernels.sources import SOURCES
from tests.evaluation.second_wrong_kernels.cases import EVERY
from tests.evaluation.second_wrong_kernels.judge import HALF, RIGHT, UNEXPLAINED, WRONG

SOURCES_OF = {"reported": SOURCES, "reported again": again_sources.SOURCES, "reported third": third_sources.SOURCES}


@pytest.mark.parametrize("name", SETS)
def test_more_than_half_of_the_mistakes_were_reported_and_no_earlier_set_has_the_report(name: str) -> None:
    kinds = SETS[name].values()
    wrong = [kind for kind in kinds if kind.what == "wrong"]
    used = Counter(kind.source for kind in wrong if kind.source != "textbook")
    assert len(wrong) >= 64
    assert len(used) >= 32
    assert 2 * len(used) >= len(wrong)
    assert set(used) == set(SOURCES_OF[name])
    assert not any(SOURCES_OF[name].keys() & SOURCES_OF[other].keys() for other in SETS if other != name)
    assert max(used.values()) == 1
    earlier = [getattr(kind, name, "") for kind in EVERY.values() for name in ("source", "thread")]
    assert not used.keys() & {source for source in earlier if isinstance(source, str)}
    assert Counter(kind.what for kind in kinds)["right"] >= 6
    assert Counter(kind.what for kind in kinds)["noise"] >= 6


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
    step = 0.0 if run.observed.dtype.kind == "i" else float(ml_dtypes.finfo(run.observed.dtype).eps)
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


@pytest.mark.parametrize("forms", ["wgmma", "wgmma bf16", "tcgen05", "tcgen05 bf16"])
@pytest.mark.parametrize("swizzle", ["64B", "128B"])
def test_unchanged_descriptors_give_the_product(forms: str, swizzle: str) -> None:
    p = draw(np.random.default_rng(5), forms, 64, 64, 64)
    for major in ("K", "MN"):
        assert np.array_equal(again_memory.with_b(p, major, swizzle, lambda own, _: own), p.product())
    assert np.array_equal(again_memory.with_a(p, swizzle, lambda own, _: own), p.product())
