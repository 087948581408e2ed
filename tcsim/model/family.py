"""What a family of instructions contributes to the catalog."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, TypeVar

from tcsim.arithmetic.steps import Lowering
from tcsim.core.evidence import Evidence, inferred
from tcsim.core.targets import ARCHS, Arch
from tcsim.model.instruction import Instruction
from tcsim.model.row import Row

R = TypeVar("R", bound=Row)


@dataclass(frozen=True)
class Family(Generic[R]):
    """The rows of a family, what each computes on an arch, how that is known, and the class that executes it.

    On an arch about which nothing is known (`Arch.source` is empty) a row computes what it computes on the nearest relative that
    has it. If none has it, the family's open-ended rules say what it computes. Either way the evidence is inferred.
    """

    name: str
    rows: Callable[[], tuple[R, ...]]
    lowering: Callable[[R, Arch], Lowering]
    evidence: Callable[[R, Arch], Evidence]
    semantics: (
        type[Instruction] | Mapping[str, type[Instruction]] | Callable[..., Any]
    )  # one class, or by `row.operation`
    without_steps: str = "none: it moves data"  # what a row does whose lowering has no arithmetic steps
    also: tuple[str, ...] = ()  # first words of its mnemonics, besides that of its name

    def __post_init__(self) -> None:
        object.__setattr__(self, "lowering", partial(_lowering, self.lowering))
        object.__setattr__(self, "evidence", partial(_evidence, self.evidence))

    @property
    def words(self) -> tuple[str, ...]:
        """The words with which its mnemonics begin."""
        return (self.name.partition(".")[0], *self.also)

    def instruction(self, row: R, arch: Arch, targets: tuple[str, ...]) -> Instruction:
        """A row on an arch, as the object that executes it; `targets` are those of the arch that accept it."""
        make = self.semantics[row.operation] if isinstance(self.semantics, Mapping) else self.semantics
        made: Instruction = make(row, arch, targets, self.lowering(row, arch), self.evidence(row, arch))
        return made


def _lowering(own: Callable[[R, Arch], Lowering], row: R, arch: Arch) -> Lowering:
    known = (ARCHS[name] for name in arch.lineage[1:] if ARCHS[name].source)
    having = (one for one in known if any(target.name in row.targets for target in one.targets))
    return own(row, arch if arch.source else next(having, arch))


def _evidence(own: Callable[[R, Arch], Evidence], row: R, arch: Arch) -> Evidence:
    return own(row, arch) if arch.source else inferred(arch)
