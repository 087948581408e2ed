"""ldmatrix: the rows the assembler accepts, and how each finds and unpacks its matrices.

Sources: PTX ISA 6.5 to 9.2, section ldmatrix (grammar, which lanes' addresses count, fragments); ptxas 13.5.37 (targets,
versions, SASS). The manual's table of address lanes is for 8 x 8 matrices and was never extended to 16 x 16: that lanes
0-15 give the first matrix and lanes 16-31 the second is CUTLASS's SM100_U8x8_LDSM_T and SM100_U8x16_LDSM_T.
"""

from __future__ import annotations

from tcsim.core.evidence import Evidence
from tcsim.core.targets import since, suffixed_since
from tcsim.isa.matrix import fragments
from tcsim.isa.matrix.groups import Group, MatrixTable
from tcsim.isa.matrix.semantics import LoadMatrix
from tcsim.model.family import Family

NAME = "ldmatrix"

_MANUAL = Evidence("literature", "PTX ISA, section ldmatrix")
_CUTLASS = Evidence("literature", "PTX ISA, section ldmatrix; CUTLASS, copy_traits_sm100 and copy_sm100")
_S4 = Evidence(
    "literature",
    "vLLM issue 49529 (PTX ISA 9.4, and one LDSM on every target) and pull request 50096 (a probe of every element)",
)
_NAMELESS = "one LDSM, 0x783b with 0x9000 (x1), 0x9100 (x2) or 0x9200 (x4): nvdisasm 13.5 leaves it out of its listing"

_BLACKWELL = suffixed_since("sm_100")
_8_6 = ("8.6",) * 3
_9_4 = ("9.4",) * 3
_NO, _BOTH, _ALWAYS = (False,), (False, True), (True,)

TABLE = MatrixTable(
    NAME,
    "d",
    (
        Group((8, 8), fragments.m8n8, "b16", "b16", fragments.B16, (1, 2, 4), _BOTH, since("sm_75"),
              ("6.5", "6.5", "7.8"), "LDSM.16.M{T}88", _MANUAL),
        Group((16, 16), fragments.m16n16, "b8", "b8", fragments.B8, (1, 2), _ALWAYS, _BLACKWELL, _8_6,
              "LDSM.8.M{T}1616", _CUTLASS),
        Group((16, 16), fragments.m16n16, "b8x16.b6x16_p32", "b6x16_p32", fragments.B8, (1, 2), _ALWAYS, _BLACKWELL,
              _8_6, "LDSM.U6x16P32TO8.M{T}1616", _CUTLASS),
        Group((16, 16), fragments.m16n16, "b8x16.b4x16_p64", "b4x16_p64", fragments.B8, (1, 2), _ALWAYS, _BLACKWELL,
              _8_6, "LDSM.U4x16P64TO8.M{T}1616", _CUTLASS),
        Group((8, 16), fragments.m8n16, "b8x16.b6x16_p32", "b6x16_p32", fragments.B8, (1, 2, 4), _NO, _BLACKWELL, _8_6,
              "LDSM.U6x16P32TO8.M{T}816", _CUTLASS),
        Group((8, 16), fragments.m8n16, "b8x16.b4x16_p64", "b4x16_p64", fragments.B8, (1, 2, 4), _NO, _BLACKWELL, _8_6,
              "LDSM.U4x16P64TO8.M{T}816", _CUTLASS),
        Group((8, 16), fragments.m8n16, "s8.s4", "s4", fragments.S8, (1, 2, 4), _NO, ("sm_90a", *_BLACKWELL), _9_4,
              "", _S4, _NAMELESS),
    ),
    measured=("b16", "s4"),
)  # fmt: skip

FAMILY = Family(NAME, TABLE.rows, TABLE.lowering, TABLE.evidence, LoadMatrix)
