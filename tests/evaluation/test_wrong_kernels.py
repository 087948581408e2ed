"""A share of the kernels with one mistake: named, or not explained, but never given another name. `tox -e diagnosis` asks all."""

from __future__ import annotations

from collections import Counter

import pytest

import tcsim
from tests.evaluation.wrong_kernels.__main__ import KINDS
from tests.evaluation.wrong_kernels.cases import Kind, cases, outcome

SHARE = [kind for kind in KINDS if not kind.correct][::17]
RIGHT = [kind for kind in KINDS if kind.correct][::5]


def outcomes(kinds: list[Kind]) -> tuple[Counter[str], list[str]]:
    """How many of each outcome, and which kinds are not right."""
    found: Counter[str] = Counter()
    others = []
    for number, kind in enumerate(kinds):
        for case in cases((kind,), 1, first=40 + number):
            how = outcome(case, tcsim.diagnose(case.instruction, **case.arguments))
            found[how] += 1
            others += [f"{how}: {kind.name}"] * (how != "right")
    return found, others


def test_mistakes_of_kernels_are_named() -> None:
    """At least four in five of the share, and none is given another name with confidence."""
    found, others = outcomes(SHARE)
    assert found.total() >= 10
    assert not found["wrong"], others
    assert found["right"] >= 0.8 * found.total(), others


def test_right_kernels_are_called_right() -> None:
    """In every order of summation."""
    found, others = outcomes(RIGHT)
    assert found.total() >= 4 and not others


@pytest.mark.parametrize("kind", [KINDS[0]], ids=lambda kind: kind.name)
def test_another_name_is_seen(kind: Kind) -> None:
    """The score of an answer depends on the case: that of one mistake is wrong for another."""
    case = next(cases((kind,), 1))
    found = tcsim.diagnose(case.instruction, **case.arguments)
    assert outcome(case, found) == "right"
    other = next(cases((next(kind for kind in KINDS if kind.name == "ReLU"),), 1))
    assert outcome(other, found) == "wrong"
