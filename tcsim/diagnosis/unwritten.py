"""Outputs that hold one code where the model has others: they were never written."""

from __future__ import annotations

import numpy as np

from tcsim.diagnosis.problem import Codes, Problem
from tcsim.diagnosis.reals import Mask, Reals
from tcsim.diagnosis.solve import clean


def unwritten_of(problem: Problem, reals: Reals, wrong: Mask, model: Codes) -> Mask:
    """Wrong outputs that all hold one code, where there are many of it: zeros or what filled the memory before."""
    codes = problem.observed[wrong]
    values, counts = np.unique(codes, return_counts=True)
    most = int(counts.argmax())
    unwritten: Mask = (model != problem.observed) & (problem.observed == values[most])
    held = (problem.observed == values[most]) | ~problem.inside()
    for axis in (1, 2):  # whole lines of it: others hold the same code by chance
        lines = unwritten & held.all(axis=axis, keepdims=True)
        if counts[most] >= 8 and lines.sum() > 0.9 * unwritten.sum() and not (reals.floor and values[most] == 0):
            return lines
    runs = 1 + int((np.diff(np.flatnonzero(unwritten)) > 1).sum())
    unwritten &= _beside(unwritten) if _beside(unwritten).sum() > 0.9 * unwritten.sum() else True
    many = counts[most] >= 0.01 * codes.size and unwritten.sum() >= 4 * runs
    if counts[most] < 8 or (reals.floor and values[most] == 0) or not (many or clean(unwritten, unwritten)):
        return np.zeros_like(wrong)  # scattered: clamped rather than never written
    return unwritten


def _beside(mask: Mask) -> Mask:
    """Which outputs of a mask have a neighbour in it: others hold the same code by chance."""
    padded = np.pad(mask, ((0, 0), (1, 1), (1, 1)))
    middle = slice(1, -1)
    found: Mask = padded[:, :-2, middle] | padded[:, 2:, middle] | padded[:, middle, :-2] | padded[:, middle, 2:]
    return found & mask
