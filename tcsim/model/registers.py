"""Instructions that only touch registers: what they compute is all that they do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tcsim.model.effects import Array, Effects, Outcome, View
from tcsim.model.form import Form
from tcsim.model.instruction import Instruction


@dataclass(frozen=True, eq=False, repr=False)
class RegisterInstruction(Instruction):
    """An instruction whose effects are the registers that `compute` gives."""

    batched = True
    heard = False
    in_place = False  # whether `compute` takes registers where they lie (`tcsim.engines.contract.Registers`), and with them where its d goes

    def compute(self, form: Form, operands: Mapping[str, Array]) -> dict[str, Array]:
        """The registers that are written, by operand, from those that are read; leading dimensions are a batch.

        What `in_place` allows is in the operands too, with its name.
        """
        raise NotImplementedError

    def effects(self, form: Form, operands: Mapping[str, Array], view: View) -> Effects:
        """Registers alone: the view is not asked."""
        return Effects(Outcome(self.compute(form, operands)))
