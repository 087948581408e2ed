"""stmatrix: the rows the assembler accepts, and where each puts its matrices.

Sources: PTX ISA 7.8 to 9.2, section stmatrix; ptxas 13.5.37 (targets, versions, SASS); CUTLASS (the 8-bit shape).
"""

from __future__ import annotations

from tcsim.evidence import Evidence
from tcsim.families import matrix_fragments as fragments
from tcsim.families.matrix_groups import Group, MatrixTable
from tcsim.matrix_move import StoreMatrix
from tcsim.registry import Family
from tcsim.targets import since, suffixed_since

NAME = "stmatrix"

_MANUAL = Evidence("literature", "PTX ISA, section stmatrix")
_CUTLASS = Evidence("literature", "PTX ISA, section stmatrix; CUTLASS, copy_traits_sm100: SM100_U8x4_STSM_T")

TABLE = MatrixTable(
    NAME,
    "registers",
    (
        Group((8, 8), fragments.m8n8, "b16", "b16", fragments.B16, (1, 2, 4), (False, True), since("sm_90"),
              ("7.8",) * 3, "STSM.16.M{T}88", _MANUAL),
        Group((16, 8), fragments.m16n8, "b8", "b8", fragments.B8, (1, 2, 4), (True,), suffixed_since("sm_100"),
              ("8.6",) * 3, "STSM.8.M{T}168", _CUTLASS),
    ),
    measured=("b16",),
)  # fmt: skip

FAMILY = Family(NAME, TABLE.rows, TABLE.lowering, TABLE.evidence, StoreMatrix)
