"""How the tables of ldmatrix, stmatrix and movmatrix become registry rows: what their three family modules share."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from types import MappingProxyType

from tcsim.arithmetic.steps import Lowering
from tcsim.core.evidence import RECORDED, Evidence
from tcsim.core.targets import Arch
from tcsim.isa.matrix.fragments import StackedLayout
from tcsim.isa.matrix.semantics import MatrixRows, matrix_rows
from tcsim.memory.shared import ROW_FORMATS
from tcsim.model.operand import fragment
from tcsim.model.row import Row
from tcsim.numbers.formats import Format

SPACES = ("", ".shared", ".shared::cta")
"""The state spaces of the address; without one it is a generic address."""

MEASURED = RECORDED["sm_90"]


@dataclass(frozen=True)
class Group:
    """Spellings that differ only in how many matrices they move, in `.trans` and in the state space."""

    shape: tuple[int, int]  # rows and columns of one matrix
    layout: Callable[[int], StackedLayout]  # by the number of matrices
    type: str  # the end of the mnemonic
    source: str  # the name of the rows' format in memory
    element: Format  # of the registers
    counts: tuple[int, ...]  # numbers of matrices
    transposed: tuple[bool, ...]  # without and with `.trans`
    targets: tuple[str, ...]
    ptx_versions: tuple[str, str, str]  # lowest `.version`, by SPACES
    opcode: str  # SASS of one matrix, {T} where `.trans` shows; empty: nvdisasm prints no name for it
    evidence: Evidence  # where there is no recording
    note: str = ""  # of the lowering


@dataclass(frozen=True)
class MatrixTable:
    """The rows of one family, and what is known of them."""

    family: str
    operand: str  # the name of the registers
    groups: tuple[Group, ...]
    measured: tuple[str, ...]  # rows' `arithmetic` of which sm_90 has recordings

    def rows(self) -> tuple[Row, ...]:
        """Every spelling."""
        return tuple(self._rows())

    def _rows(self) -> Iterator[Row]:
        for group in self.groups:
            for (space, version), count, transposed in product(
                zip(SPACES, group.ptx_versions, strict=True), group.counts, group.transposed
            ):
                shape = "m{}n{}".format(*group.shape)
                trans = ".trans" if transposed else ""
                operand = fragment(self.operand, group.element, group.layout(count), ".b32")
                yield Row(
                    f"{self.family}.sync.aligned.{shape}.x{count}{trans}{space}.{group.type}",
                    self.family,
                    (*group.shape, 0),  # nothing is multiplied: no K
                    MappingProxyType({self.operand: operand}),
                    group.targets,
                    version,
                    group.source,
                    modifiers=MappingProxyType({"count": f".x{count}", "trans": trans, "space": space}),
                    facts=MatrixRows(ROW_FORMATS[group.source], transposed, space),
                )

    def lowering(self, row: Row, arch: Arch) -> Lowering:
        """One machine instruction on every arch; no arithmetic."""
        group = self._group(row)
        count = next(iter(row.operands.values())).layout.matrices
        opcode = group.opcode.format(T="T" if matrix_rows(row).transposed else "")
        name = opcode + (f".{count}" if count > 1 else "")
        return Lowering("native", (), ((name, 1),) if opcode else (), group.note)

    def evidence(self, row: Row, arch: Arch) -> Evidence:
        """A recording, or what the manual and the libraries built on it say."""
        if arch.name == "sm_90" and row.arithmetic in self.measured:
            return MEASURED
        return self._group(row).evidence

    def _group(self, row: Row) -> Group:
        return group_of(self.groups, row)


def group_of(groups: Sequence[Group], row: Row) -> Group:
    """The group that a row comes from."""
    return next(group for group in groups if (*group.shape, 0) == row.shape and group.source == row.arithmetic)
