"""elect.sync: the row, and how it is known which lane is elected.

Sources: PTX ISA 9.4, section elect.sync; ptxas 13.5.37 (targets, version, SASS: ELECT, which is not given the mask).
"""

from __future__ import annotations

from tcsim.evidence import RECORDED, Evidence
from tcsim.families.plain_rows import plain_row
from tcsim.lane_election import ElectFacts, bind
from tcsim.operand_form import OperandForm
from tcsim.registry import Family, Row
from tcsim.steps import Lowering
from tcsim.targets import Arch, since

NAME = "elect.sync"

_TARGETS = since("sm_90")


def rows() -> tuple[Row, ...]:
    """One spelling, whose lane may go to a sink."""
    forms = tuple(
        OperandForm(name, (lane, "elected"), ("membermask",), _TARGETS, "8.0")
        for name, lane in (("", "lane"), ("sink", "_"))
    )
    return (plain_row(NAME, NAME, _TARGETS, "8.0", "elect", ElectFacts(forms)),)


def lowering(row: Row, arch: Arch) -> Lowering:
    """One machine instruction, which elects among the active lanes."""
    return Lowering("native", (), (("ELECT", 1),))


_LOWEST = Evidence(
    "inferred",
    "CuTe's elect_one_sync, which takes lane 0 where there is no elect.sync: PTX ISA 9.4 promises one member of the mask, always "
    "the same, and does not say which",
)


def evidence(row: Row, arch: Arch) -> Evidence:
    """A recording; elsewhere the manual's word for one lane, and that it is the lowest is inferred."""
    return RECORDED.get(arch.name, _LOWEST)


FAMILY = Family(NAME, rows, lowering, evidence, bind)
