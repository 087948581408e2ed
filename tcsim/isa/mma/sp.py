"""Sparse mma.sp and mma.sp::ordered_metadata: the rows the assembler accepts, and what each computes on each arch.

Sources: PTX ISA, section Multiply-and-Accumulate Instruction mma.sp; ptxas 12.9 and 13.5 (which targets accept which
spelling, and the SASS they emit); selectors and metadata layouts measured on an NVIDIA H200 (docs/sparsity.md).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from types import MappingProxyType

from tcsim.arithmetic.steps import Lowering
from tcsim.core.evidence import RECORDED, Evidence
from tcsim.core.targets import Arch, since, suffixed_since
from tcsim.isa.mma.lowering import Rule, integer, lower, native, widened_to_f16, widened_to_int8
from tcsim.isa.mma.operands import FP8, METADATA, element_bits, new_pairs, pairs, selector, warp_operands
from tcsim.isa.mma.sparse_multiply import SparseMatrixMultiply
from tcsim.isa.mma.sparse_operand import SparseRow
from tcsim.layouts.sparsity import Sparsity
from tcsim.model.family import Family
from tcsim.model.form import Form

NAME = "mma.sp"

_SATURATE = ("", ".satfinite")
_PLAIN, _ORDERED = "", "::ordered_metadata"
_BOTH = (_PLAIN, _ORDERED)


@dataclass(frozen=True)
class _Group:
    """Rows that differ only in the listed choices."""

    shape: tuple[int, int, int]
    types: tuple[tuple[str, str, str, str], ...]  # d, a, b, c
    targets: tuple[str, ...]
    ptx_versions: tuple[str, ...]  # of the spellings: the plain one, ordered_metadata
    arithmetic: str  # key of _LOWERINGS
    selectors: tuple[int, ...]  # that the hardware runs
    refused: tuple[int, ...] = ()  # that the assembler accepts and the hardware stops at
    spellings: tuple[str, ...] = _BOTH
    saturate: tuple[str, ...] = ("",)
    kind: str = ""


_OLD = ("7.1", "8.5")
_INT8, _INT4 = pairs("s32", ("s8", "u8")), pairs("s32", ("s4", "u4"))

_GROUPS = (
    _Group((16, 8, 8), pairs("f32", ("tf32",)), since("sm_80"), _OLD, "tf32", (0, 1, 2, 3)),
    _Group((16, 8, 16), pairs("f16", ("f16",)) + pairs("f32", ("f16",)) + pairs("f32", ("bf16",)), since("sm_80"), _OLD,
           "half", (0, 1, 2, 3)),
    _Group((16, 8, 16), pairs("f32", ("tf32",)), since("sm_80"), _OLD, "tf32", (0, 1)),
    _Group((16, 8, 32), pairs("f16", ("f16",)) + pairs("f32", ("bf16",)), since("sm_80"), _OLD, "half", (0, 1)),
    # ptxas takes selectors 2 and 3 too; an H200 stops at them with an illegal instruction
    _Group((16, 8, 32), pairs("f32", ("f16",)), since("sm_80"), _OLD, "half", (0, 1), refused=(2, 3)),
    _Group((16, 8, 32), _INT8, since("sm_80"), _OLD, "int8", (0, 1), saturate=_SATURATE),
    _Group((16, 8, 64), _INT8, since("sm_80"), _OLD, "int8", (0,), saturate=_SATURATE),
    _Group((16, 8, 64), _INT4, since("sm_80"), _OLD, "int4", (0, 1), saturate=_SATURATE),
    _Group((16, 8, 128), _INT4, since("sm_80"), _OLD, "int4", (0,), saturate=_SATURATE),
    _Group((16, 8, 64), pairs("f32", FP8), since("sm_89"), ("8.4", "8.5"), "fp8", (0,)),
    _Group((16, 8, 64), pairs("f16", FP8), suffixed_since("sm_120"), ("8.7",), "fp8", (0,), spellings=(_ORDERED,)),
    _Group((16, 8, 64), pairs("f32", FP8), suffixed_since("sm_100"), ("8.6",), "fp8", (0,), spellings=(_ORDERED,),
           kind=".kind::f8f6f4"),
    _Group((16, 8, 64), pairs("f16", FP8), suffixed_since("sm_120"), ("8.7",), "fp8", (0,), spellings=(_ORDERED,),
           kind=".kind::f8f6f4"),
    _Group((16, 8, 64), new_pairs("f16") + new_pairs("f32"), suffixed_since("sm_120"), ("8.7",), "f6f4", (0,),
           spellings=(_ORDERED,), kind=".kind::f8f6f4"),
)  # fmt: skip


def rows() -> tuple[SparseRow, ...]:
    """Every sparse mma.sp spelling that is not block-scaled."""
    return tuple(_rows())


def _rows() -> Iterator[SparseRow]:
    for group in _GROUPS:
        m, n, k = group.shape
        for (spelling, version), types, saturate in product(
            zip(group.spellings, group.ptx_versions, strict=True), group.types, group.saturate
        ):
            operands = warp_operands(group.shape, types, k // 2)
            yield SparseRow(
                f"mma.sp{spelling}.sync.aligned{group.kind}.m{m}n{n}k{k}.row.col{saturate}.{'.'.join(types)}",
                NAME,
                group.shape,
                operands,
                group.targets,
                version,
                group.arithmetic,
                modifiers=MappingProxyType({"saturate": saturate} if saturate else {}),
                forms=(Form((*operands.values(), METADATA, selector(group.selectors)), group.targets, version),),
                sparsity=Sparsity(
                    m, k, element_bits(types[1]), group.selectors, group.refused, ordered=spelling == _ORDERED
                ),
            )


_LOWERINGS = (
    Rule("half", 80, native, "HMMA.SP.{mnk}.{D}{bf16}"),
    Rule("tf32", 80, native, "HMMA.SP.{mnk}.F32.TF32"),
    Rule("fp8", 89, native, "QMMA.SP.{mnk}.{D}.{A}.{B}"),
    Rule("fp8", 90, widened_to_f16, "HMMA.SP.{half_mnk}.{D}"),
    Rule("fp8", 120, native, "QMMA.SP.{mnk}.{D}.{A}.{B}"),
    Rule("f6f4", 120, native, "QMMA.SP.{mnk}.{D}.{A}.{B}"),
    Rule("int8", 80, integer, "IMMA.SP.{mnk}.{A}.{B}{SAT}"),
    Rule("int4", 80, integer, "IMMA.SP.{mnk}.{A}.{B}{SAT}"),
    Rule("int4", 90, widened_to_int8, "IMMA.SP.{half_mnk}.{A8}.{B8}"),
)


def lowering(row: SparseRow, arch: Arch) -> Lowering:
    """What the assembler makes of a row on an arch, and what that computes: steps over the kept products."""
    return lower(_LOWERINGS, row, arch)


_INTEGER = ("int8", "int4")


def evidence(row: SparseRow, arch: Arch) -> Evidence:
    """How what `lowering` says is known."""
    if arch.name == "sm_90":
        return RECORDED["sm_90"]
    if row.arithmetic in _INTEGER:
        return Evidence("literature", "exact integers: PTX ISA, and the machine code that ptxas emits (nvdisasm)")
    return Evidence(
        "inferred", f"the dense unit of {arch.name}; which kept products share a step was measured on sm_90 only"
    )


FAMILY = Family(NAME, rows, lowering, evidence, SparseMatrixMultiply)
