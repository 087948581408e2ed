"""Rows of ldmatrix, stmatrix and movmatrix: every spelling that the assembler accepts, and what each becomes.

Sources: PTX ISA 6.5 to 9.2, sections ldmatrix, stmatrix and movmatrix (grammar, which lanes' addresses count, fragments);
ptxas 13.5.37 (targets, versions, SASS). The manual's table of address lanes is for 8 x 8 matrices and was never extended to
16 x 16: that lanes 0-15 give the first matrix and lanes 16-31 the second is CUTLASS's SM100_U8x8_LDSM_T and SM100_U8x16_LDSM_T.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product
from types import MappingProxyType

from tcsim.arithmetic.steps import Lowering
from tcsim.core.evidence import RECORDED, RTX_PRO_6000, Evidence
from tcsim.core.targets import Arch, since, suffixed_since
from tcsim.core.versions import PTX_MANUAL
from tcsim.isa.matrix import fragments
from tcsim.isa.matrix.fragments import StackedLayout
from tcsim.memory.shared import ROW_FORMATS, RowFormat
from tcsim.model.form import Form
from tcsim.model.operand import Fragment, Operand, Role, Space, fragment
from tcsim.model.row import Row
from tcsim.numbers.formats import Format

SPACES: dict[str, Space] = {"": "generic", ".shared": "shared", ".shared::cta": "shared::cta"}
"""The state spaces of the address as a mnemonic ends in them; without one it is a generic address."""

_REGISTERS = {"ldmatrix": "d", "stmatrix": "registers"}  # what `execute` calls them


@dataclass(frozen=True, kw_only=True)
class MatrixRow(Row):
    """A row of ldmatrix, stmatrix or movmatrix."""

    stored: RowFormat  # how a row of the matrix holds its elements in memory
    transposed: bool  # .trans: a row in memory is a column of the matrix
    opcode: str  # SASS; empty: nvdisasm prints no name for it
    known: Evidence  # where there is no recording
    note: str = ""  # of the lowering


@dataclass(frozen=True)
class _Group:
    """Spellings that differ only in how many matrices they move, in `.trans` and in the state space."""

    family: str
    shape: tuple[int, int]  # rows and columns of one matrix
    layout: Callable[[int], StackedLayout]  # by the number of matrices
    type: str  # the end of the mnemonic
    stored: str  # the name of the rows' format in memory
    element: Format  # of the registers
    counts: tuple[int, ...]  # numbers of matrices
    transposed: tuple[bool, ...]  # without and with `.trans`
    targets: tuple[str, ...]
    ptx_versions: tuple[str, str, str]  # lowest `.version`, by SPACES
    opcode: str  # SASS of one matrix, {T} where `.trans` shows
    known: Evidence
    note: str = ""

    def rows(self) -> Iterator[MatrixRow]:
        """Every spelling."""
        shape = "m{}n{}".format(*self.shape)
        for (space, version), count, transposed in product(
            zip(SPACES, self.ptx_versions, strict=True), self.counts, self.transposed
        ):
            trans, number = ".trans" if transposed else "", f".{count}" if count > 1 else ""
            operands = self._operands(count, SPACES[space])
            yield MatrixRow(
                f"{self.family}.sync.aligned.{shape}.x{count}{trans}{space}.{self.type}",
                self.family,
                (*self.shape, 0),  # nothing is multiplied: no K
                {operand.name: operand for operand in operands if isinstance(operand, Fragment)},
                arithmetic=self.stored,
                modifiers=MappingProxyType({"count": f".x{count}", "trans": trans, "space": space}),
                forms=(Form(operands, self.targets, version),),
                stored=ROW_FORMATS[self.stored],
                transposed=transposed,
                opcode=self.opcode and self.opcode.format(T="T" if transposed else "") + number,
                known=self.known,
                note=self.note,
            )

    def _operands(self, count: int, space: Space) -> tuple[Operand, ...]:
        registers = fragment(_REGISTERS[self.family], self.element, self.layout(count))
        type = ".b64" if space == "generic" else ".b32"
        if registers.role == "destination":
            return registers, Operand("address", "source", "address", type=type, space=space)
        return Operand("address", "destination", "address", type=type, space=space), registers


_MANUAL = {name: Evidence("literature", f"PTX ISA, section {name}") for name in ("ldmatrix", "stmatrix", "movmatrix")}
_CUTLASS = Evidence("literature", "PTX ISA, section ldmatrix; CUTLASS, copy_traits_sm100 and copy_sm100")
_STORED = Evidence("literature", "PTX ISA, section stmatrix; CUTLASS, copy_traits_sm100: SM100_U8x4_STSM_T")
_S4 = Evidence(
    "literature",
    f"vLLM issue 49529 ({PTX_MANUAL}, and one LDSM on every target) and pull request 50096 (a probe of every element)",
)
_NAMELESS = "one LDSM, 0x783b with 0x9000 (x1), 0x9100 (x2) or 0x9200 (x4): nvdisasm 13.5 leaves it out of its listing"

_BLACKWELL = suffixed_since("sm_100")
_7_8, _8_6, _9_4 = (("7.8",) * 3, ("8.6",) * 3, ("9.4",) * 3)
_NO, _BOTH, _ALWAYS = (False,), (False, True), (True,)

_LOADS = (
    _Group("ldmatrix", (8, 8), fragments.m8n8, "b16", "b16", fragments.B16, (1, 2, 4), _BOTH, since("sm_75"),
           ("6.5", "6.5", "7.8"), "LDSM.16.M{T}88", _MANUAL["ldmatrix"]),
    _Group("ldmatrix", (16, 16), fragments.m16n16, "b8", "b8", fragments.B8, (1, 2), _ALWAYS, _BLACKWELL, _8_6,
           "LDSM.8.M{T}1616", _CUTLASS),
    _Group("ldmatrix", (16, 16), fragments.m16n16, "b8x16.b6x16_p32", "b6x16_p32", fragments.B8, (1, 2), _ALWAYS,
           _BLACKWELL, _8_6, "LDSM.U6x16P32TO8.M{T}1616", _CUTLASS),
    _Group("ldmatrix", (16, 16), fragments.m16n16, "b8x16.b4x16_p64", "b4x16_p64", fragments.B8, (1, 2), _ALWAYS,
           _BLACKWELL, _8_6, "LDSM.U4x16P64TO8.M{T}1616", _CUTLASS),
    _Group("ldmatrix", (8, 16), fragments.m8n16, "b8x16.b6x16_p32", "b6x16_p32", fragments.B8, (1, 2, 4), _NO,
           _BLACKWELL, _8_6, "LDSM.U6x16P32TO8.M{T}816", _CUTLASS),
    _Group("ldmatrix", (8, 16), fragments.m8n16, "b8x16.b4x16_p64", "b4x16_p64", fragments.B8, (1, 2, 4), _NO,
           _BLACKWELL, _8_6, "LDSM.U4x16P64TO8.M{T}816", _CUTLASS),
    _Group("ldmatrix", (8, 16), fragments.m8n16, "s8.s4", "s4", fragments.S8, (1, 2, 4), _NO, ("sm_90a", *_BLACKWELL),
           _9_4, "", _S4, _NAMELESS),
)  # fmt: skip

_STORES = (
    _Group("stmatrix", (8, 8), fragments.m8n8, "b16", "b16", fragments.B16, (1, 2, 4), _BOTH, since("sm_90"), _7_8,
           "STSM.16.M{T}88", _MANUAL["stmatrix"]),
    _Group("stmatrix", (16, 8), fragments.m16n8, "b8", "b8", fragments.B8, (1, 2, 4), _ALWAYS, _BLACKWELL, _8_6,
           "STSM.8.M{T}168", _STORED),
)  # fmt: skip


def loads() -> tuple[MatrixRow, ...]:
    """Every ldmatrix."""
    return tuple(row for group in _LOADS for row in group.rows())


def stores() -> tuple[MatrixRow, ...]:
    """Every stmatrix."""
    return tuple(row for group in _STORES for row in group.rows())


def moves() -> tuple[MatrixRow, ...]:
    """The one movmatrix; its registers are written without braces."""
    roles: dict[str, Role] = {"d": "destination", "a": "source"}
    layout = fragments.m8n8(1)
    return (
        MatrixRow(
            "movmatrix.sync.aligned.m8n8.trans.b16",
            "movmatrix",
            (8, 8, 0),
            {
                name: Fragment(name, role, "register", format=fragments.B16, layout=layout)
                for name, role in roles.items()
            },
            since("sm_75"),
            "7.8",
            "b16",
            modifiers=MappingProxyType({"trans": ".trans"}),
            stored=ROW_FORMATS["b16"],
            transposed=True,
            opcode="MOVM.16.MT88",
            known=_MANUAL["movmatrix"],
        ),
    )


def lowering(row: MatrixRow, arch: Arch) -> Lowering:
    """One machine instruction on every arch; no arithmetic."""
    return Lowering("native", (), ((row.opcode, 1),) if row.opcode else (), row.note)


_ON_RTX_PRO_6000 = {
    f"ldmatrix.sync.aligned.{name}"
    for name in (
        "m8n8.x4.shared.b16", "m8n8.x4.trans.shared.b16",
        "m8n16.x4.shared.b8x16.b4x16_p64", "m8n16.x2.shared.b8x16.b4x16_p64",
        "m8n16.x4.shared.b8x16.b6x16_p32", "m8n16.x1.shared.b8x16.b6x16_p32",
        "m16n16.x1.trans.shared.b8", "m16n16.x2.trans.shared.b8",
        "m16n16.x2.trans.shared.b8x16.b4x16_p64", "m16n16.x1.trans.shared.b8x16.b6x16_p32",
    )
}  # fmt: skip


def evidence(row: MatrixRow, arch: Arch) -> Evidence:
    """A recording, results of others, or what the manual and the libraries built on it say."""
    if arch.name == "sm_120" and row.mnemonic in _ON_RTX_PRO_6000:
        return RTX_PRO_6000
    return RECORDED.get(arch.name, row.known)
