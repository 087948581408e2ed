"""Comparing two answers to the same question, and counting what was compared."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from tests.oracles.disagreements import DISAGREEMENTS

SHOWN = 8  # disagreements quoted in a failure

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Answers:
    """The answers of another project and of tcsim to the same questions."""

    project: str
    subject: str  # what was asked: "e4m3 rz", "sm_90 MMA m16n8k16.f32.f16.f16.f32 wide"
    inputs: dict[str, Array]  # for whoever has to say which element differs and why
    theirs: Array
    ours: Array
    against: str = "tcsim"  # whose answers `ours` are


@dataclass
class Tally:
    """What was compared with one project."""

    compared: int = 0
    equal: int = 0
    known: Counter[str] = field(default_factory=Counter)  # disagreement -> how many outputs


TALLIES: dict[tuple[str, str], Tally] = {}
"""By (project, against)."""


def same(theirs: Array, ours: Array) -> npt.NDArray[np.bool_]:
    """Where codes or values are equal; values by their bits, but one NaN is as good as another."""
    if theirs.dtype.kind != "f":
        return np.asarray(theirs == ours)
    bits = theirs.view(f"u{theirs.itemsize}") == ours.view(f"u{ours.itemsize}")
    return np.asarray(bits | (np.isnan(theirs) & np.isnan(ours)))


def compare(answers: Answers, show: Callable[[tuple[int, ...]], str] | None = None) -> int:
    """Count equal answers; fail unless the table of disagreements has every other one. Returns how many were compared.

    `show` says what the inputs of an output are; without it every input has the shape of the outputs.
    """
    theirs, ours = np.asarray(answers.theirs), np.asarray(answers.ours)
    assert theirs.shape == ours.shape, answers.subject
    assert theirs.dtype == ours.dtype, answers.subject
    assert theirs.size > 0, answers.subject
    tally = TALLIES.setdefault((answers.project, answers.against), Tally())
    equal = same(theirs, ours)
    tally.compared += theirs.size
    tally.equal += int(equal.sum())
    left = ~equal
    for item in DISAGREEMENTS:
        if item.project == answers.project and item.about(answers.subject) and left.any():
            explained = left & item.covers(answers)
            tally.known[item.name] += int(explained.sum())
            left &= ~explained
    if left.any():
        lines = []
        for place in np.argwhere(left)[:SHOWN]:
            at = tuple(int(i) for i in place)
            what = show(at) if show else ", ".join(f"{name} {array[at]}" for name, array in answers.inputs.items())
            lines.append(f"  {at}: {what}: {answers.project} {text(theirs[at])}, {answers.against} {text(ours[at])}")
        raise AssertionError(
            f"{answers.project} and {answers.against} disagree on {int(left.sum())} of {theirs.size} outputs of "
            f"{answers.subject}, and the table of disagreements does not have them:\n" + "\n".join(lines)
        )
    return int(theirs.size)


def text(x: Any) -> str:
    """A code in hexadecimal, a value as it is."""
    return f"{int(x):#x}" if x.dtype.kind in "iu" else repr(x)
