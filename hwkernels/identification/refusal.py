"""That no hypothesis fits is said with the smallest question that the nearest one answers wrongly."""

from __future__ import annotations

import numpy as np

from hwkernels.identification.answers import answer
from hwkernels.identification.machine import Array, Batch, Machine
from hwkernels.identification.result import Identified, Mismatch
from hwkernels.identification.search import Search


def size(batch: Batch) -> Array:
    """Terms of each question that are not 0."""
    found: Array = ((batch.a != 0) & (batch.b != 0)).sum(axis=1) + (batch.c != 0)
    return found


def refusal(search: Search, machine: Machine) -> Identified:
    """Outside the hypotheses: the smallest question that the nearest hypothesis answers wrongly."""
    bad = np.flatnonzero(search.refuted(machine))
    bad = bad[np.argsort(size(search.pool[bad]), kind="stable")][:1]
    case = search.pool[bad]
    told = search.answers[bad]
    for _ in range(4):
        smaller, changed = case, False
        for column in range(search.questions.signature.k):
            if not (smaller.a[0, column] or smaller.b[0, column]):
                continue
            trial = smaller[[0]]
            trial.a[0, column] = trial.b[0, column] = 0
            smaller, told, changed = _kept(search, machine, smaller, told, trial, changed)
        trial = smaller[[0]]
        trial.c[:] = 0
        if smaller.c[0]:
            smaller, told, changed = _kept(search, machine, smaller, told, trial, changed)
        case = smaller
        if not changed:
            break
    mismatch = Mismatch.of(case, int(told[0]), int(answer(machine, case)[0]))
    return Identified(search.questions.signature, {}, machine, (), search.unknown.asked, mismatch)


def _kept(
    search: Search, machine: Machine, case: Batch, told: Array, trial: Batch, changed: bool
) -> tuple[Batch, Array, bool]:
    answers = search.ask(trial)
    if (answers != answer(machine, trial)).any():
        return trial, answers, True
    return case, told, changed
