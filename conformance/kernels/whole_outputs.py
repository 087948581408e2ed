"""The verdict on a whole output of a kernel, such as a GEMM's: live, run twice and compared with the prediction; replayed, block by block."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from conformance.stimuli import frozen
from conformance.stimuli.classes import digest as digest_of
from conformance.suite import rerun as again
from conformance.suite import whole_recordings
from conformance.suite.cases import Outcome, Suite
from conformance.suite.whole_recordings import Part, WholeOutput
from hwkernels.device.nvrtc import compiler_for
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
    inputs: Callable[[], dict[str, Array]] | None = None  # by name, for their digest; None: nothing is recorded
    part: Callable[[Part], Array] | None = None  # codes of a block


def judge(trial: Trial, suite: Suite) -> Outcome:
    """The verdict. Without a GPU, from what was recorded; UNTESTED if nothing was."""
    settings = suite.settings
    if suite.hardware is None:
        return _replay(trial, suite)
    where = suite.hardware.text
    rerun = _rerun(trial, suite)
    try:
        first, second = suite.hardware.run_whole(trial.call(REPEAT))
    except Hang as error:
        return Outcome("HANG", how=where, text=f"{error}\n{rerun}")
    except ContextLost as error:
        return Outcome("CONTEXT_LOST", how=where, text=f"{error}\n{rerun}")
    except (ExecutorError, AssembleError, ToolchainError) as error:
        return Outcome("FAIL", how=where, text=f"{trial.id}: {error}\n{rerun}")
    if settings.record and trial.part is not None and np.array_equal(_codes(first), _codes(second)):
        _record(trial, suite, _codes(first))
        recorded = whole_recordings.read(trial.id, settings.arch, settings.seed, settings.root)
        if recorded is not None:  # compared as a replay does: all blocks would take the CPU longer than the GPU
            return _compare(trial, suite, recorded, "PASS", where, _codes(first))
    want = trial.predicted()
    first, second = (np.ascontiguousarray(item).view(want.dtype) for item in (first, second))
    if not np.array_equal(first, second):
        changed = int((first != second).sum())
        return Outcome("UNSTABLE", how=where, text=f"two runs of {trial.id} differ in {changed} outputs\n{rerun}")
    if np.array_equal(first, want):
        return Outcome("PASS", want.size, 0, where)
    return _mismatches(trial, want, first, np.argwhere(first != want), want.size, where, rerun)


def _mismatches(
    trial: Trial, want: Array, got: Array, wrong: Array, size: int, where: str, rerun: str, origin: tuple[int, ...] = ()
) -> Outcome:
    width = 2 + 2 * want.dtype.itemsize
    lines = [f"{trial.id}: {len(wrong)} of {size} outputs differ"]
    offset = np.array(origin or (0,) * want.ndim)
    for index in map(tuple, wrong[:SHOWN].tolist()):
        found, right = (f"{int(codes[index]):#0{width}x}" for codes in (got, want))
        place = tuple((offset + index).tolist())
        lines.append(f"MISMATCH {trial.place(place)}: hardware {found} model {right}")
    if summary := trial.summary(wrong + offset):
        lines.append(summary)
    return Outcome("FAIL", size, len(wrong), where, "\n".join([*lines, rerun]))


def _rerun(trial: Trial, suite: Suite) -> str:
    settings = suite.settings
    seed = ("--seed", str(settings.seed)) if settings.seed else ()
    return f"rerun: {again.command(f'{trial.test}[{trial.id}]', '--arch', settings.arch, f'--{settings.mode}', *seed)}"


def _codes(item: Array) -> Array:
    """The bits of an output, as unsigned integers."""
    array = np.ascontiguousarray(item)
    return array.view(f"uint{8 * array.dtype.itemsize}")


def _record(trial: Trial, suite: Suite, output: Array) -> None:
    if trial.inputs is None or suite.hardware is None:
        raise RuntimeError(f"{trial.id} cannot be recorded")
    settings, info = suite.settings, suite.hardware.info
    about = {
        "inputs_sha256": digest_of(trial.inputs()),
        "gpu": info.name,
        "driver": info.driver_version,
        "compiler": _compiler(settings.arch),
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
    }
    suite.written.append(whole_recordings.write(trial.id, settings.arch, settings.seed, output, about, settings.root))


def _compiler(arch: str) -> str:
    try:
        return str(compiler_for(arch))
    except ToolchainError:
        return "cubins from elsewhere"


def _replay(trial: Trial, suite: Suite) -> Outcome:
    settings = suite.settings
    if trial.inputs is None:
        return Outcome("UNTESTED", how=f"{trial.what} needs a GPU: nothing is recorded")
    recorded = whole_recordings.read(trial.id, settings.arch, settings.seed, settings.root)
    if recorded is None:
        return Outcome("UNTESTED", how=f"{trial.what}: not recorded yet with seed {settings.seed}")
    if digest_of(trial.inputs()) != recorded.inputs_sha256:
        text = f"the inputs of {trial.id} are no longer those that it was recorded with; record it again with --record"
        return Outcome("FAIL", how=recorded.how, text=text)
    return _compare(trial, suite, recorded, "REPLAYED", f"recorded on {recorded.how}")


def _compare(
    trial: Trial, suite: Suite, recorded: WholeOutput, agreed: Any, how: str, output: Array | None = None
) -> Outcome:
    """Some blocks, by their digests; the codes that are known show what differs in a block that disagrees."""
    if trial.part is None:
        raise RuntimeError(f"{trial.id} has no parts")
    settings, total = suite.settings, 0
    parts = whole_recordings.blocks(recorded.shape)
    for number in whole_recordings.chosen(recorded.shape, settings.blocks, trial.id, settings.seed):
        want = _codes(trial.part(parts[number]))
        total += want.size
        if want.dtype.name == recorded.dtype and whole_recordings.digest(want) == int(recorded.digests[number]):
            continue
        known = whole_recordings.kept_part(recorded.shape) if output is None else parts[number]
        got = recorded.codes if output is None else output[known]
        origin = tuple(axis.start for axis in known)
        if number == len(parts) - 1 or output is not None:
            first = tuple(axis.start for axis in parts[number])
            inside = tuple(
                slice(axis.start - start, axis.stop - start) for axis, start in zip(known, first, strict=True)
            )
            model = want[inside]
            if model.dtype == got.dtype and (wrong := np.argwhere(model != got)).size:
                return _mismatches(trial, model, got, wrong, total, how, _rerun(trial, suite), origin)
        text = (
            f"{trial.id}: MISMATCH in block {number} of {len(parts)}, {parts[number]}: its digest differs from the model's; "
            f"no code of it that was kept does: run it on a GPU to see where"
        )
        return Outcome("FAIL", total, 1, how, f"{text}\n{_rerun(trial, suite)}")
    return Outcome(agreed, total, 0, how)


def frozen_inputs(kind: str, arch: str, id: str, seed: int, otherwise: Callable[[], Any]) -> Any:
    """From the frozen generators; `otherwise` makes those of a case that is not frozen yet."""
    try:
        return frozen.generators().ask(kind, arch, id, seed)
    except frozen.UnknownCase:
        return otherwise()


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
