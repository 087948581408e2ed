"""What instructions have in common that take one of several lists of operands, and are no matrix instructions."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from tcsim.model.instruction import Instruction
from tcsim.model.operand_form import OperandForm, forms_for


@dataclass(frozen=True, eq=False, repr=False)
class FormedInstruction(Instruction):
    """An instruction whose row's facts hold `forms`.

    >>> [form.name for form in tcsim.instruction("elect.sync", arch="sm_90").forms]
    ['', 'sink']
    """

    @cached_property
    def forms(self) -> tuple[OperandForm, ...]:  # type: ignore[override]
        """The lists of operands that the spelling takes on this arch."""
        facts: Any = self.row.facts
        return forms_for(facts.forms, self.targets)

    @property
    def _call(self) -> str:
        return f"{self!r}.execute"
