"""How the instructions of a family are exercised: their input classes, the model's answer, the comparison."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Inputs = dict[str, Array]


class Mismatch(Protocol):
    """One result on which hardware and model disagree."""

    def line(self, instruction: Any) -> str:
        """Everything about it in one line."""
        ...

    def trace(self, instruction: Any) -> list[str]:
        """How the model came to its bits."""
        ...


@dataclass(frozen=True)
class Comparison:
    """The outcome of comparing one case."""

    outputs: int  # results compared
    mismatches: int
    first: Sequence[Mismatch]  # the first few


@dataclass(frozen=True)
class WrongModel:
    """A named mistake: the right model with one thing changed, which the recorded cases must contradict."""

    name: str
    mistake: str  # what it gets wrong, in words
    applies: Callable[[Any], bool]  # to which instructions it could show at all
    run: Callable[[Any, Inputs], Array]


class Exercise(Protocol):
    """A family under test. Inputs are arrays whose first axis is the sample (a warp, or a thread)."""

    wrong_models: tuple[WrongModel, ...]

    def classes(self, instruction: Any) -> list[str]:
        """The names of the input classes that apply, in the order they run: letters only."""
        ...

    def samples(self, instruction: Any, name: str) -> int:
        """How many samples a case has by default."""
        ...

    def inputs(self, instruction: Any, name: str, seed: int, samples: int) -> Inputs:
        """The inputs of a case: a pure function of its arguments."""
        ...

    def model(self, instruction: Any, inputs: Inputs) -> npt.NDArray[np.uint32]:
        """What the model answers: (samples, ...) like the probe's output."""
        ...

    def compare(self, instruction: Any, inputs: Inputs, hardware: Array, model: Array) -> Comparison:
        """Compare bit for bit."""
        ...


@runtime_checkable
class KeepsFew(Protocol):
    """An exercise whose results are too large to record whole: the rest is recorded as a digest."""

    def kept(self, instruction: Any, name: str) -> int:
        """How many samples of a case a recording keeps."""
        ...

    def outputs(self, instruction: Any, samples: int) -> int:
        """How many results a number of samples has."""
        ...


@runtime_checkable
class AsksMore(Protocol):
    """An exercise with input classes that the committed recordings do not hold yet: they run live, and count for nothing in replay."""

    def unrecorded(self, instruction: Any) -> list[str]:
        """Their names."""
        ...


def every_class(exercise: Exercise, instruction: Any) -> list[str]:
    """The input classes of a live run: those of the recordings, then those that are not recorded yet."""
    return exercise.classes(instruction) + (exercise.unrecorded(instruction) if isinstance(exercise, AsksMore) else [])


def result_digest(result: Array) -> str:
    """SHA-256 of a result."""
    array = np.ascontiguousarray(result)
    return hashlib.sha256(array.astype(array.dtype.newbyteorder("<"), copy=False).tobytes()).hexdigest()
