"""griddepcontrol: the two spellings, and what each orders between a grid and its dependents.

Sources: PTX ISA 9.4, section griddepcontrol; ptxas 13.5.37 (targets, version, SASS). Nothing here changes a state that is modelled.
"""

from __future__ import annotations

from tcsim.arithmetic.steps import Lowering
from tcsim.core.evidence import Evidence
from tcsim.core.targets import Arch, since
from tcsim.isa.fence import OrderFacts, bind
from tcsim.isa.plain_rows import plain_row
from tcsim.model.family import Family
from tcsim.model.operand_form import OperandForm
from tcsim.model.row import Row

NAME = "griddepcontrol"

_TARGETS = since("sm_90")
_ORDERS = {
    "launch_dependents": "nothing by itself: dependent grids may start once every block has executed it or ended; a release fence "
    "before it synchronises with their start",
    "wait": "all memory accesses of the grids that this one depends on, which have ended, before later accesses",
}
_OPCODES = {"launch_dependents": "PREEXIT", "wait": "ACQBULK"}


def rows() -> tuple[Row, ...]:
    """Both."""
    form = OperandForm("", (), (), _TARGETS, "7.8")
    return tuple(
        plain_row(NAME, f"{NAME}.{name}", _TARGETS, "7.8", name, OrderFacts(text, (form,)))
        for name, text in _ORDERS.items()
    )


def lowering(row: Row, arch: Arch) -> Lowering:
    """One machine instruction."""
    return Lowering("native", (), ((_OPCODES[row.arithmetic], 1),))


_MANUAL = Evidence("literature", "PTX ISA 9.4, section griddepcontrol")


def evidence(row: Row, arch: Arch) -> Evidence:
    """The manual's word."""
    return _MANUAL


FAMILY = Family(NAME, rows, lowering, evidence, bind)
