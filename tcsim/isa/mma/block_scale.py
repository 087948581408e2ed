"""Block-scaled mma.sync and mma.sp: the rows the assembler accepts, and what each computes on each arch.

Sources: PTX ISA, sections Multiply-and-Accumulate Instruction mma, mma.sp and Block Scaling for mma.sync; ptxas 13.5 (which
targets accept which spelling, and the SASS they emit); docs/sparsity.md (arithmetic and its evidence).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType

from tcsim.arithmetic.steps import Lowering
from tcsim.core.evidence import RTX_PRO_6000, Evidence
from tcsim.core.targets import Arch, suffixed_since
from tcsim.isa.mma.lowering import Rule, as_relative, lower, native
from tcsim.isa.mma.operands import F8F6F4, METADATA, pairs, selector, warp_operands
from tcsim.isa.mma.scaled_multiply import ScaledMatrixMultiply, ScaledRow
from tcsim.isa.mma.scaled_sparse_multiply import ScaledSparseMatrixMultiply
from tcsim.layouts.block_scales import ScaleLayout, ScaleOperand
from tcsim.layouts.sparsity import Sparsity
from tcsim.model.family import Family
from tcsim.model.form import Form
from tcsim.model.operand import Operand
from tcsim.numbers.formats import FORMATS

DENSE, SPARSE = "mma.sync.block_scale", "mma.sp.block_scale"


# --- rows -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Kind:
    """Rows that differ only in the types of A and B, and in whether the spelling names the number of blocks."""

    kind: str
    types: tuple[tuple[str, str, str, str], ...]  # d, a, b, c
    element_bits: int  # of A and B in their registers
    k: int  # K of the dense instruction; the sparse one has twice as much
    blocks: int  # the n of .scale_vec::nX
    scale: str  # format of the scales
    ptx_version: str
    optional: bool  # the spelling may leave .scale_vec out


_MX_TYPES, _FP4 = pairs("f32", F8F6F4), pairs("f32", ("e2m1",))

_KINDS = (
    _Kind("mxf8f6f4", _MX_TYPES, 8, 32, 1, "ue8m0", "8.7", True),
    _Kind("mxf4", _FP4, 4, 64, 2, "ue8m0", "8.7", True),
    _Kind("mxf4nvf4", _FP4, 4, 64, 2, "ue8m0", "8.7", False),
    _Kind("mxf4nvf4", _FP4, 4, 64, 4, "ue8m0", "9.1", False),
    _Kind("mxf4nvf4", _FP4, 4, 64, 4, "ue4m3", "8.7", False),
)

_ON_120 = suffixed_since("sm_120")
_A_TARGETS = ("sm_120a", "sm_121a")
_SPARSE_TARGETS = {"mxf8f6f4": _ON_120, "mxf4": _A_TARGETS, "mxf4nvf4": _A_TARGETS}  # sm_120f has no sparse fp4


@cache
def _scale_operands(scale: str) -> tuple[Operand, ...]:
    """The scales of A and of B, one register of each lane, and after each the selectors of its bytes and lanes."""
    found: list[Operand] = []
    for side in "ab":
        ids = (f"byte_id_{side}", f"thread_id_{side}")
        found.append(Operand(f"scale_{side}", format=FORMATS[scale]))
        found.append(Operand(f"ids_{side}", kind="vector", type=".u16", count=2, parts=ids, per="warp"))
    return tuple(found)


def _rows(family: str) -> Iterator[ScaledRow]:
    sparse = family == SPARSE
    head = "mma.sp::ordered_metadata.sync.aligned" if sparse else "mma.sync.aligned"
    m, n = 16, 8
    for kind in _KINDS:
        k = 2 * kind.k if sparse else kind.k
        sparsity = Sparsity(m, k, kind.element_bits, (0,), ordered=True) if sparse else None
        metadata = (METADATA, selector((0,))) if sparse else ()
        targets = _SPARSE_TARGETS[kind.kind] if sparse else _ON_120
        for vector in ("", f".scale_vec::{kind.blocks}X") if kind.optional else (f".scale_vec::{kind.blocks}X",):
            for types in kind.types:
                spelled = f"{head}.kind::{kind.kind}.block_scale{vector}.m{m}n{n}k{k}.row.col.{'.'.join(types)}"
                operands = warp_operands((m, n, k), types, k // 2 if sparse else None, kind.element_bits)
                every = (*operands.values(), *metadata, *_scale_operands(kind.scale))
                yield ScaledRow(
                    f"{spelled}.{kind.scale}",
                    family,
                    (m, n, k),
                    operands,
                    targets,
                    kind.ptx_version,
                    kind.kind,
                    modifiers=MappingProxyType({"scale_vec": vector} if vector else {}),
                    forms=(Form(every, targets, kind.ptx_version),),
                    sparsity=sparsity,
                    scale_a=ScaleOperand("scale_a", FORMATS[kind.scale], ScaleLayout("a", m, kind.blocks)),
                    scale_b=ScaleOperand("scale_b", FORMATS[kind.scale], ScaleLayout("b", n, kind.blocks)),
                )


def dense_rows() -> tuple[ScaledRow, ...]:
    """Every block-scaled mma.sync spelling."""
    return tuple(_rows(DENSE))


def sparse_rows() -> tuple[ScaledRow, ...]:
    """Every block-scaled mma.sp spelling."""
    return tuple(_rows(SPARSE))


# --- arithmetic -----------------------------------------------------------------------------------------------------

_LOWERINGS = (
    Rule("mxf8f6f4", 120, native, "QMMA.SF{SP}.{mnk}.{D}.{A}.{B}.{SCALES}"),
    Rule("mxf4", 120, native, "OMMA.SF{SP}.{mnk}.{D}.{A}.{B}.{SCALES}"),
    Rule("mxf4nvf4", 120, native, "OMMA.SF{SP}.{mnk}.{D}.{A}.{B}.{SCALES}"),
)
_SCALES_IN_OPCODES = {"ue8m0": "E8", "ue4m3": "UE4M3"}
_FOUR_IN_OPCODES = {1: "", 2: "", 4: ".4X"}


def lowering(row: ScaledRow, arch: Arch) -> Lowering:
    """One scaled dot-add over all products, of a sparse A over all kept ones (docs/sparsity.md)."""
    scales = _SCALES_IN_OPCODES[row.scale_a.format.name] + _FOUR_IN_OPCODES[row.scale_a.layout.blocks]
    return lower(_LOWERINGS, row, arch, SP=".SP" if row.sparsity else "", SCALES=scales)


# --- evidence -------------------------------------------------------------------------------------------------------

_MMA_SIM = Evidence(
    "literature", "MMA-Sim, arXiv 2511.10909: a bit-accurate model its authors checked on about 10**6 random cases"
)
_SPARSE = Evidence(
    "inferred", "the dense unit of sm_120 over the kept products: no model of it is known, and results of e4m3 alone"
)
_NO_FP6 = Evidence("inferred", "as e2m1: of e3m2 and e2m3 MMA-Sim's paper says nothing, though its code takes them")
_FP6 = {"e3m2", "e2m3"}
_DENSE_ON_RTX_PRO_6000 = {
    ("mxf8f6f4", "e4m3", "e4m3", "ue8m0", 1),
    ("mxf8f6f4", "e2m1", "e3m2", "ue8m0", 1),
    ("mxf8f6f4", "e5m2", "e2m3", "ue8m0", 1),
    ("mxf4", "e2m1", "e2m1", "ue8m0", 2),
    ("mxf4nvf4", "e2m1", "e2m1", "ue8m0", 2),
    ("mxf4nvf4", "e2m1", "e2m1", "ue4m3", 4),
}
"""Kind, formats of A, B and the scales, scales of a row: with or without .scale_vec it is one machine instruction."""
_SPARSE_ON_RTX_PRO_6000 = {("mxf8f6f4", "e4m3", "e4m3", "ue8m0", 1)}


def _what(row: ScaledRow) -> tuple[str, str, str, str, int]:
    a, b = (row.operands[name].format.name for name in "ab")
    return row.arithmetic, a, b, row.scale_a.format.name, row.scale_a.layout.blocks


def evidence(row: ScaledRow, arch: Arch) -> Evidence:
    """How what `lowering` says of a dense row is known."""
    if arch.name != "sm_120":
        return as_relative(arch)
    if _what(row) in _DENSE_ON_RTX_PRO_6000:
        return RTX_PRO_6000
    return _NO_FP6 if _FP6 & {row.operands[name].format.name for name in "ab"} else _MMA_SIM


def sparse_evidence(row: ScaledRow, arch: Arch) -> Evidence:
    """Of a sparse row its dense relatives, but for one."""
    return RTX_PRO_6000 if arch.name == "sm_120" and _what(row) in _SPARSE_ON_RTX_PRO_6000 else _SPARSE


DENSE_FAMILY = Family(DENSE, dense_rows, lowering, evidence, ScaledMatrixMultiply)
SPARSE_FAMILY = Family(SPARSE, sparse_rows, lowering, sparse_evidence, ScaledSparseMatrixMultiply)
