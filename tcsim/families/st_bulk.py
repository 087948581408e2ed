"""st.bulk: the rows the assembler accepts.

Sources: PTX ISA 9.4, section st.bulk; ptxas 13.5.37 (targets, versions, SASS).
"""

from __future__ import annotations

from itertools import product

from tcsim.evidence import Evidence
from tcsim.families.plain_rows import plain_row
from tcsim.operand_form import OperandForm
from tcsim.registry import Family, Row
from tcsim.steps import Lowering
from tcsim.targets import Arch, since
from tcsim.zero_fill import FillFacts, bind

NAME = "st.bulk"

_TARGETS = since("sm_100")


def rows() -> tuple[Row, ...]:
    """With and without .weak, which is the default, and a state space."""
    forms = tuple(OperandForm(name, (), (size, "zero"), _TARGETS, first) for name, size, first in (
        ("", "size", "8.6"), ("size32", "size", "9.0"),
    ))  # fmt: skip
    return tuple(
        plain_row(NAME, f"st.bulk{order}{space}", _TARGETS, "8.6", "fill", FillFacts(space, forms), {"space": space})
        for order, space in product((".weak", ""), (".shared::cta", ""))
    )


def lowering(row: Row, arch: Arch) -> Lowering:
    """One machine instruction, which is given the size divided by 8."""
    return Lowering("native", (), (("UMEMSETS.64", 1),))


_MANUAL = Evidence("literature", "PTX ISA 9.4, section st.bulk")


def evidence(row: Row, arch: Arch) -> Evidence:
    """The manual's word."""
    return _MANUAL


FAMILY = Family(NAME, rows, lowering, evidence, bind)
