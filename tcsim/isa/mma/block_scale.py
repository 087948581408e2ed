"""Block-scaled mma.sync and mma.sp: the rows the assembler accepts, and what each computes on each arch.

Sources: PTX ISA, sections Multiply-and-Accumulate Instruction mma, mma.sp and Block Scaling for mma.sync; ptxas 13.5 (which
targets accept which spelling, and the SASS they emit); docs/block-scaling.md (arithmetic and its evidence).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from types import MappingProxyType

from tcsim.arithmetic.dot import Datapath
from tcsim.arithmetic.steps import Lowering, ScaledDotAdd
from tcsim.core.evidence import Evidence
from tcsim.core.targets import Arch, suffixed_since
from tcsim.isa.mma.operands import F8F6F4, pairs, warp_operands
from tcsim.isa.mma.scaled_multiply import ScaledMatrixMultiply
from tcsim.isa.mma.scaled_sparse_multiply import ScaledSparseMatrixMultiply
from tcsim.layouts.block_scales import BlockScaling, ScaleLayout, ScaleOperand
from tcsim.layouts.sparsity import Sparsity
from tcsim.model.family import Family
from tcsim.model.row import Row
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


def _rows(family: str) -> Iterator[Row]:
    sparse = family == SPARSE
    head = "mma.sp::ordered_metadata.sync.aligned" if sparse else "mma.sync.aligned"
    m, n = 16, 8
    for kind in _KINDS:
        k = 2 * kind.k if sparse else kind.k
        scale_a = ScaleOperand("scale_a", FORMATS[kind.scale], ScaleLayout("a", m, kind.blocks))
        scale_b = ScaleOperand("scale_b", FORMATS[kind.scale], ScaleLayout("b", n, kind.blocks))
        sparsity = Sparsity(m, k, kind.element_bits, (0,), ordered=True) if sparse else None
        for vector in ("", f".scale_vec::{kind.blocks}X") if kind.optional else (f".scale_vec::{kind.blocks}X",):
            for types in kind.types:
                spelled = f"{head}.kind::{kind.kind}.block_scale{vector}.m{m}n{n}k{k}.row.col.{'.'.join(types)}"
                yield Row(
                    f"{spelled}.{kind.scale}",
                    family,
                    (m, n, k),
                    warp_operands((m, n, k), types, k // 2 if sparse else None, kind.element_bits),
                    _SPARSE_TARGETS[kind.kind] if sparse else _ON_120,
                    kind.ptx_version,
                    kind.kind,
                    modifiers=MappingProxyType({"scale_vec": vector} if vector else {}),
                    facts=BlockScaling(kind.kind, scale_a, scale_b, sparsity),
                )


def dense_rows() -> tuple[Row, ...]:
    """Every block-scaled mma.sync spelling."""
    return tuple(_rows(DENSE))


def sparse_rows() -> tuple[Row, ...]:
    """Every block-scaled mma.sp spelling."""
    return tuple(_rows(SPARSE))


# --- arithmetic -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Unit:
    """The scaled dot-add unit of a kind (docs/block-scaling.md): all kept products in one step."""

    unit: Datapath
    group: int  # products summed before they are scaled; 0: none
    opcode: str  # of the machine code


_BY_PRODUCT = Datapath(25, -133, "f32", "rz")
_BY_GROUP = Datapath(35, -139, "f32", "rz")
_UNITS = {
    "mxf8f6f4": _Unit(_BY_PRODUCT, 0, "QMMA"),
    "mxf4": _Unit(_BY_GROUP, 16, "OMMA"),
    "mxf4nvf4": _Unit(_BY_GROUP, 16, "OMMA"),
}
_SCALES_IN_OPCODES = {"ue8m0": "E8", "ue4m3": "UE4M3"}
_FOUR_IN_OPCODES = {1: "", 2: "", 4: ".4X"}


def lowering(row: Row, arch: Arch) -> Lowering:
    """One scaled dot-add over all products, of a sparse A over all kept ones."""
    scaling, unit = row.facts, _UNITS[row.arithmetic]
    if not isinstance(scaling, BlockScaling):
        raise TypeError(f"{row.mnemonic} has no block scaling")
    d, a, b = (row.operands[name].format.name.upper() for name in "dab")
    sparse = ".SP" if scaling.sparsity else ""
    scale = _SCALES_IN_OPCODES[scaling.a.format.name] + _FOUR_IN_OPCODES[scaling.blocks]
    m, n, k = row.shape
    step = ScaledDotAdd(tuple(range(row.operands["a"].shape[1])), "c", unit.unit, "d", unit.group)
    return Lowering("native", (step,), ((f"{unit.opcode}.SF{sparse}.{m}{n}{k}.{d}.{a}.{b}.{scale}", 1),))


# --- evidence -------------------------------------------------------------------------------------------------------

_MMA_SIM = Evidence(
    "literature", "MMA-Sim, arXiv 2511.10909: a bit-accurate model its authors checked on about 10**6 random cases"
)
_SPARSE = Evidence("inferred", "the dense unit of sm_120 over the kept products: no model and no result of it is known")
_RELATIVE = Evidence("inferred", "as sm_120: nothing of sm_121 itself was measured")
_NO_FP6 = Evidence("inferred", "as e2m1: of e3m2 and e2m3 MMA-Sim's paper says nothing, though its code takes them")
_FP6 = {"e3m2", "e2m3"}


def evidence(row: Row, arch: Arch) -> Evidence:
    """How what `lowering` says of a dense row is known."""
    if arch.name != "sm_120":
        return _RELATIVE
    return _NO_FP6 if _FP6 & {row.operands[name].format.name for name in "ab"} else _MMA_SIM


def sparse_evidence(row: Row, arch: Arch) -> Evidence:
    """Of a sparse row, nothing but its dense relatives."""
    return _SPARSE


DENSE_FAMILY = Family(DENSE, dense_rows, lowering, evidence, ScaledMatrixMultiply)
SPARSE_FAMILY = Family(SPARSE, sparse_rows, lowering, sparse_evidence, ScaledSparseMatrixMultiply)
