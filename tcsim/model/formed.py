"""Instructions whose rows still list their operands as names, in `facts.forms`. Goes with the last of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tcsim.model.instruction import Instruction
from tcsim.model.operand_form import forms_for


@dataclass(frozen=True, eq=False, repr=False)
class FormedInstruction(Instruction):
    """An instruction whose row's facts hold `forms`."""

    @property
    def forms(self) -> tuple[Any, ...]:
        """The lists of operands that the spelling takes on this arch."""
        facts: Any = self.row.facts
        return forms_for(facts.forms, self.targets)
