"""The verdict on a whole output of a kernel, such as a GEMM's: run twice, the runs compared, then the first with the prediction."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from conformance.suite import rerun as again
from conformance.suite.cases import Outcome, Suite
from hwkernels.device.plan import WholeCall
from hwkernels.device.toolchain import AssembleError, ToolchainError
from hwkernels.device.worker import ContextLost, ExecutorError, Hang

Array = npt.NDArray[Any]
SHOWN = 5  # mismatches
REPEAT = 2


@dataclass(frozen=True)
class Trial:
    """One case: what runs, and what should come of it."""

    id: str
    test: str  # its place in the suite: file and function
    what: str  # "a whole GEMM"
    call: Callable[[int], WholeCall]  # how often it is repeated
    predicted: Callable[[], Array]  # codes
    place: Callable[[tuple[int, ...]], str]  # of an index: what a mismatch is called, and what went in
    summary: Callable[[Array], str] = lambda wrong: ""  # of the indices of all mismatches


def judge(trial: Trial, suite: Suite) -> Outcome:
    """The verdict. Nothing of these outputs is recorded: without a GPU it is UNTESTED."""
    settings = suite.settings
    if suite.hardware is None:
        return Outcome("UNTESTED", how=f"{trial.what} needs a GPU: nothing is recorded")
    where = suite.hardware.text
    seed = ("--seed", str(settings.seed)) if settings.seed else ()
    rerun = f"rerun: {again.command(f'{trial.test}[{trial.id}]', '--arch', settings.arch, '--live', *seed)}"
    try:
        first, second = suite.hardware.run_whole(trial.call(REPEAT))
    except Hang as error:
        return Outcome("HANG", how=where, text=f"{error}\n{rerun}")
    except ContextLost as error:
        return Outcome("CONTEXT_LOST", how=where, text=f"{error}\n{rerun}")
    except (ExecutorError, AssembleError, ToolchainError) as error:
        return Outcome("FAIL", how=where, text=f"{trial.id}: {error}\n{rerun}")
    want = trial.predicted()
    first, second = (np.ascontiguousarray(item).view(want.dtype) for item in (first, second))
    if not np.array_equal(first, second):
        changed = int((first != second).sum())
        return Outcome("UNSTABLE", how=where, text=f"two runs of {trial.id} differ in {changed} outputs\n{rerun}")
    if np.array_equal(first, want):
        return Outcome("PASS", want.size, 0, where)
    wrong = np.argwhere(first != want)
    width = 2 + 2 * want.dtype.itemsize
    lines = [f"{trial.id}: {len(wrong)} of {want.size} outputs differ"]
    for index in map(tuple, wrong[:SHOWN].tolist()):
        got, right = (f"{int(codes[index]):#0{width}x}" for codes in (first, want))
        lines.append(f"MISMATCH {trial.place(index)}: hardware {got} model {right}")
    if summary := trial.summary(wrong):
        lines.append(summary)
    return Outcome("FAIL", want.size, len(wrong), where, "\n".join([*lines, rerun]))


def matrix_place(index: tuple[int, ...]) -> str:
    """Of a matrix.

    >>> matrix_place((7, 39))
    'row 7, column 39'
    """
    return f"row {index[0]}, column {index[1]}"


def blocks_of_64(wrong: Array) -> str:
    """In which blocks of a matrix mismatches lie."""
    rows, columns = (sorted(set((wrong[:, axis] // 64).tolist())) for axis in (0, 1))
    return f"in blocks of 64: rows {rows[:20]}, columns {columns[:20]}"
