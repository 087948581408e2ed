"""A campaign's device without a GPU: NumPy's engine in the place of the instruction, and the engine that is asked for beside it.

It answers what a GPU answers. So a ledger is checked with it, and a campaign's own machinery is tested.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from conformance.campaign.stimulus import digest
from conformance.campaign.subject import SHOWN, Subject
from conformance.campaign.tasks import WORDS, Question, Task
from tcsim.engines.choice import multiply
from tcsim.engines.contract import Matrices
from tcsim.engines.reference import ENGINE as NUMPY

Codes = npt.NDArray[Any]
CPU = "model on a CPU"
"""In the place of a GPU's name."""
_ROUND = 1 << 17  # outputs at a time


def answer_of(subject: Subject, matrices: Matrices) -> Codes:
    """What stands for the hardware: D (samples, M, N) by NumPy."""
    return NUMPY.multiply(subject.work, matrices, (0,))


def compared(task: Task, hardware: Callable[[Subject, Matrices], Codes] = answer_of) -> list[npt.NDArray[np.uint64]]:
    """What a comparison leaves of the whole task and of its part, as on a GPU."""
    subject, most = task.subject, max(1, _ROUND // task.subject.outputs)
    outputs = mismatches = whole = part = 0
    places: list[int] = []
    for first in range(task.first, task.first + task.samples, most):
        samples = min(most, task.first + task.samples - first)
        given = subject.matrices(task.seed, first, samples)
        got, want = hardware(subject, given), multiply(subject.work, given)
        whole = (whole + digest(first * subject.outputs, got)) % 2**64
        if first == task.first:
            count = min(samples, task.part)
            part = digest(first * subject.outputs, got[:count])
        differ = np.flatnonzero(got.reshape(-1) != want.reshape(-1))
        places += [first * subject.outputs + int(place) for place in differ[:SHOWN]]
        outputs, mismatches = outputs + got.size, mismatches + len(differ)
    found = [np.zeros(WORDS, np.uint64) for _ in range(2)]
    found[0][:4] = outputs, mismatches, whole, mismatches
    shown = places[:SHOWN]
    found[0][4 : 4 + len(shown)] = shown
    found[1][2] = part
    return found


def open_executor(ordinal: int) -> Callable[[Task | Question], list[Codes]]:
    """The executor of a `GpuWorker` that needs no GPU."""
    return execute


def execute(task: Task | Question) -> list[Codes]:
    """Do a task, or answer a question."""
    if isinstance(task, Question):
        return [answer_of(task.subject, task.subject.matrices_of(task.arrays))]
    return list(compared(task))
