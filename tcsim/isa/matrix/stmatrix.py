"""stmatrix: the rows the assembler accepts, and where each puts its matrices.

Sources: PTX ISA 7.8 to 9.2, section stmatrix; ptxas 13.5.37 (targets, versions, SASS); CUTLASS (the 8-bit shape).
"""

from __future__ import annotations

from tcsim.core.evidence import Evidence
from tcsim.core.targets import since, suffixed_since
from tcsim.isa.matrix import fragments
from tcsim.isa.matrix.groups import Group, MatrixTable
from tcsim.isa.matrix.semantics import StoreMatrix
from tcsim.model.family import Family

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
