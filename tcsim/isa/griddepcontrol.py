"""griddepcontrol: what its two spellings order between a grid and its dependents, in words.

Sources: PTX ISA, section griddepcontrol; ptxas 13.5.37 (targets, version, SASS). Nothing here changes a state that is modelled.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tcsim.arithmetic.steps import Lowering
from tcsim.core.targets import Arch, since
from tcsim.isa.fence import OrderInstruction, OrderRow, manual
from tcsim.model.effects import Array, BarrierOp, Effects, View
from tcsim.model.family import Family
from tcsim.model.form import Form


@dataclass(frozen=True, eq=False, repr=False)
class DependentLaunch(OrderInstruction):
    """griddepcontrol.launch_dependents and griddepcontrol.wait."""

    def effects(self, form: Form, operands: Mapping[str, Array], view: View) -> Effects:
        """An arrival for the grids that depend on this one, or a wait for those that it depends on."""
        return Effects(barriers=(BarrierOp("grid", "wait" if self.row.operation == "wait" else "arrive"),))


NAME = "griddepcontrol"

_FORM = Form((), since("sm_90"), "7.8", together="thread")
_ORDERS = {
    "launch_dependents": "nothing by itself: dependent grids may start once every block has executed it or ended; a release fence "
    "before it synchronises with their start",
    "wait": "all memory accesses of the grids that this one depends on, which have ended, before later accesses",
}
_OPCODES = {"launch_dependents": "PREEXIT", "wait": "ACQBULK"}


def rows() -> tuple[OrderRow, ...]:
    """Both."""
    return tuple(
        OrderRow(f"{NAME}.{word}", NAME, arithmetic=word, operation=word, forms=(_FORM,), orders=orders)
        for word, orders in _ORDERS.items()
    )


def lowering(row: OrderRow, arch: Arch) -> Lowering:
    """One machine instruction."""
    return Lowering("native", (), ((_OPCODES[row.operation], 1),))


FAMILY = Family(NAME, rows, lowering, manual(NAME), DependentLaunch)
