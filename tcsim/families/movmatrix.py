"""movmatrix: the one row the assembler accepts.

Sources: PTX ISA 7.8 to 9.2, section movmatrix; ptxas 13.5.37 (targets, versions, SASS).
"""

from __future__ import annotations

from types import MappingProxyType

from tcsim.evidence import Evidence
from tcsim.families import matrix_fragments as fragments
from tcsim.families.matrix_groups import MEASURED
from tcsim.matrix_move import TransposeMatrix
from tcsim.registry import Family, Operand, Row
from tcsim.steps import Lowering
from tcsim.targets import Arch, since

NAME = "movmatrix"


def rows() -> tuple[Row, ...]:
    """The one spelling."""
    operands = {name: Operand(name, fragments.B16, fragments.m8n8(1), ".b32") for name in "da"}
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
