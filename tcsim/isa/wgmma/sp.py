"""Sparse wgmma.mma_async.sp: the rows the assembler accepts, and what each computes, from the tables of the dense family.

Sources: PTX ISA, sections Asynchronous Multiply-and-Accumulate Instruction wgmma.mma_async.sp and Sparse matrix storage
(K twice the dense one, selectors, who holds the metadata); ptxas 13.5, which refuses other selectors; CUTLASS 3.x, whose
metadata layouts of 64 x 16, 32 and 64 say the same as the manual's figures. Nothing of it was measured.
"""

from __future__ import annotations

from dataclasses import replace

from tcsim.arithmetic.steps import Lowering
from tcsim.core.evidence import RECORDED, Evidence
from tcsim.core.targets import Arch
from tcsim.isa.mma.lowering import lower
from tcsim.isa.wgmma import dense as wgmma
from tcsim.isa.wgmma.multiply import WarpgroupFacts
from tcsim.isa.wgmma.sparse_multiply import SparseWarpgroupMultiply
from tcsim.model.family import Family
from tcsim.model.row import Row

NAME = "wgmma.sp"

_FIRST_VERSION = "8.2"  # of PTX; s8 x u8 and u8 x s8 are as young as the dense ones
# Of 16- and 32-bit elements two of four lanes hold the metadata of a quad's rows; of 8-bit elements all four do.
_SELECTORS = {"half": (0, 1), "tf32": (0, 1), "fp8_wgmma": (0,), "int8": (0,)}

_GROUPS = tuple(
    replace(
        group,
        k=2 * group.k,
        ptx_version=max(group.ptx_version, _FIRST_VERSION),
        selectors=_SELECTORS[group.arithmetic],
    )
    for group in wgmma.GROUPS
    if group.arithmetic in _SELECTORS  # b1 has no sparse form
)
_LOWERINGS = tuple(
    replace(rule, opcode=rule.opcode.replace("GMMA.", "GMMA.SP."))
    for rule in wgmma.LOWERINGS
    if rule.arithmetic in _SELECTORS
)


def rows() -> tuple[Row, ...]:
    """Every sparse wgmma spelling."""
    return tuple(wgmma.build_rows(NAME, "wgmma.mma_async.sp", _GROUPS, sparse=True))


def lowering(row: Row, arch: Arch) -> Lowering:
    """One instruction, one step over the kept products."""
    return lower(_LOWERINGS, row, arch, row.facts.format_b if isinstance(row.facts, WarpgroupFacts) else None)


def evidence(row: Row, arch: Arch) -> Evidence:
    """How what `lowering` says is known."""
    return RECORDED["sm_90"]


FAMILY = Family(NAME, rows, lowering, evidence, SparseWarpgroupMultiply)
