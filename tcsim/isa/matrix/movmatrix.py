"""movmatrix: the one row the assembler accepts.

Sources: PTX ISA 7.8 to 9.2, section movmatrix; ptxas 13.5.37 (targets, versions, SASS).
"""

from __future__ import annotations

from types import MappingProxyType

from tcsim.arithmetic.steps import Lowering
from tcsim.core.evidence import Evidence
from tcsim.core.targets import Arch, since
from tcsim.isa.matrix import fragments
from tcsim.isa.matrix.groups import MEASURED
from tcsim.isa.matrix.semantics import TransposeMatrix
from tcsim.model.family import Family
from tcsim.model.operand import fragment
from tcsim.model.row import Row

NAME = "movmatrix"


def rows() -> tuple[Row, ...]:
    """The one spelling."""
    operands = {name: fragment(name, fragments.B16, fragments.m8n8(1), ".b32") for name in "da"}
    return (
        Row(
            "movmatrix.sync.aligned.m8n8.trans.b16",
            NAME,
            (8, 8, 0),  # nothing is multiplied: no K
            MappingProxyType(operands),
            since("sm_75"),
            "7.8",
            "b16",
            modifiers=MappingProxyType({"trans": ".trans"}),
        ),
    )


def lowering(row: Row, arch: Arch) -> Lowering:
    """One machine instruction on every arch; no arithmetic."""
    return Lowering("native", (), (("MOVM.16.MT88", 1),))


def evidence(row: Row, arch: Arch) -> Evidence:
    """A recording, or the manual."""
    return MEASURED if arch.name == "sm_90" else Evidence("literature", "PTX ISA, section movmatrix")


FAMILY = Family(NAME, rows, lowering, evidence, TransposeMatrix)
