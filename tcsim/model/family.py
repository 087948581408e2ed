"""What a family of instructions contributes to the catalog."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from tcsim.arithmetic.steps import Lowering
from tcsim.core.evidence import Evidence
from tcsim.core.targets import Arch
from tcsim.model.instruction import Instruction
from tcsim.model.row import Row

R = TypeVar("R", bound=Row)


@dataclass(frozen=True)
class Family(Generic[R]):
    """The rows of a family, what each computes on an arch, how that is known, and the class that executes it."""

    name: str
    rows: Callable[[], tuple[R, ...]]
    lowering: Callable[[R, Arch], Lowering]
    evidence: Callable[[R, Arch], Evidence]
    semantics: (
        type[Instruction] | Mapping[str, type[Instruction]] | Callable[..., Any]
    )  # one class, or by `row.operation`
    without_steps: str = "none: it moves data"  # what a row does whose lowering has no arithmetic steps

    def instruction(self, row: R, arch: Arch, targets: tuple[str, ...]) -> Instruction:
        """A row on an arch, as the object that executes it; `targets` are those of the arch that accept it."""
        make = self.semantics[row.operation] if isinstance(self.semantics, Mapping) else self.semantics
        made: Instruction = make(row, arch, targets, self.lowering(row, arch), self.evidence(row, arch))
        return made
