"""What a testbench is: the input classes of a family, its inputs, the model's answer, the comparison, its mutants."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from conformance.comparison import Array as Array
from conformance.comparison import Comparison, Expected, Place, compare_bytes, compare_moved

Inputs = dict[str, Array]


@dataclass(frozen=True)
class Mutant:
    """The right model with one mistake, which the recorded cases must contradict."""

    name: str
    mistake: str  # what it gets wrong, in words
    applies: Callable[[Any], bool]  # to which instructions it could show at all
    run: Callable[[Any, Inputs], Array]
    needs: Callable[[Any], Sequence[str]] = lambda instruction: ()
    """The input classes that can show it: it is asked of a recording that holds one of them; of any, if none is named."""


class Testbench:
    """A family under test. Inputs are arrays whose first axis is the sample: a thread, a warp, a block or a cluster."""

    mutants: tuple[Mutant, ...] = ()
    names: tuple[str, ...] = ()
    """The input classes, where every instruction has the same."""
    count: int = 0
    """Samples of a case, where every case has the same number."""
    bytewise: bool = False
    """Whether the bytes of a result are compared and counted, not its 32-bit words."""

    no_machine: str = ""
    """Why no machine that we have can run the family, or nothing."""

    def __init__(self, mutants: tuple[Mutant, ...] = ()) -> None:
        if mutants:
            self.mutants = mutants

    def classes(self, instruction: Any) -> list[str]:
        """The names of the input classes that apply, in the order they run: letters only."""
        return list(self.names)

    def alike(self, row: Any) -> object:
        """Equal for rows of which a replay without a recording assembles one for all."""
        return row.mnemonic

    def unrecorded(self, instruction: Any) -> list[str]:
        """More classes, which the committed recordings do not hold yet: they run live, and count for nothing in replay."""
        return []

    def level_2(self, instruction: Any) -> list[str]:
        """The classes of `--level 2`: all pairs of corner values, thousands of results a case."""
        return []

    def every_class(self, instruction: Any) -> list[str]:
        """The input classes of a live run."""
        return self.classes(instruction) + self.unrecorded(instruction)

    def samples(self, instruction: Any, name: str) -> int:
        """How many samples a case has by default."""
        return self.count

    def inputs(self, instruction: Any, name: str, seed: int, samples: int) -> Inputs:
        """The inputs of a case: a pure function of its arguments."""
        raise ValueError(f"{instruction!r} has no input class {name!r}")

    def model(self, instruction: Any, inputs: Inputs) -> Array:
        """What the model answers: (samples, ...), as the probe's output."""
        return instruction.execute(**inputs)

    def compare(self, instruction: Any, inputs: Inputs, hardware: Array, model: Array) -> Comparison:
        """Compare bit for bit.

        Raises ValueError if the shapes differ.
        """
        moved = compare_bytes if self.bytewise else compare_moved
        return moved(instruction, hardware, model, lambda place: self.explain(instruction, inputs, place))

    def explain(self, instruction: Any, inputs: Inputs, place: Place) -> Expected:
        """Of a word, or byte, of the result: where it is, what should have come there, how the model came to it."""
        raise NotImplementedError

    def kept(self, instruction: Any, name: str) -> int | None:
        """How many samples of a case a recording keeps, with a digest of all; None: it keeps all."""
        return None

    def outputs(self, instruction: Any, samples: int) -> int:
        """How many results that many samples have, of what is recorded as a digest."""
        raise NotImplementedError
