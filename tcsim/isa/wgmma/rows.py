"""wgmma.mma_async, dense and sparse: the rows the assembler accepts, and what each computes.

Sources: PTX ISA, sections Asynchronous Multiply-and-Accumulate Instruction wgmma.mma_async, wgmma.mma_async.sp and Sparse
matrix storage (K twice the dense one, selectors, who holds the metadata); ptxas 13.5, which refuses other selectors; CUTLASS
3.x, whose metadata layouts of 64 x 16, 32 and 64 say the same as the manual's figures; arithmetic and descriptor addresses
measured on an NVIDIA H200 (docs/numerics.md).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from itertools import product
from types import MappingProxyType

from tcsim.arithmetic.steps import Lowering
from tcsim.core.evidence import RECORDED, Evidence
from tcsim.core.targets import Arch
from tcsim.core.versions import latest
from tcsim.isa.mma.fragments import compact
from tcsim.isa.mma.lowering import Rule, as_relative, bits, integer, lower, native
from tcsim.isa.mma.operands import FP8, METADATA, REGISTER_TYPES, element_bits, selector
from tcsim.isa.wgmma.multiply import WarpgroupMultiply, WarpgroupRow
from tcsim.isa.wgmma.sparse_multiply import SparseWarpgroupMultiply
from tcsim.layouts.layout import FragmentLayout, Layout
from tcsim.layouts.sparsity import Sparsity
from tcsim.model.family import Family
from tcsim.model.form import Form
from tcsim.model.operand import Fragment, Operand, fragment
from tcsim.numbers.formats import FORMATS

DENSE, SPARSE = "wgmma", "wgmma.sp"
_EVERY_N = tuple(range(8, 257, 8))
_INTEGER_N = (8, 16, 24, 32, 48, 64, 80, 96, 112, 128, 144, 160, 176, 192, 208, 224, 240, 256)


# --- rows -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Group:
    """Rows that differ only in N and the listed choices."""

    k: int
    types: tuple[tuple[str, str, str], ...]  # d, a, b
    n: tuple[int, ...]
    ptx_version: str
    arithmetic: str  # key of _LOWERINGS
    saturate: tuple[str, ...] = ("",)
    suffix: str = ""
    signs: bool = True  # takes imm-scale-a and imm-scale-b
    majors: bool = False  # takes imm-trans-a and imm-trans-b


_DENSE = (
    _Group(16, (("f16", "f16", "f16"), ("f32", "f16", "f16"), ("f32", "bf16", "bf16")), _EVERY_N, "8.0", "half", majors=True),
    _Group(8, (("f32", "tf32", "tf32"),), _EVERY_N, "8.0", "tf32"),
    _Group(32, tuple((d, a, b) for a, b, d in product(FP8, FP8, ("f16", "f32"))), _EVERY_N, "8.0", "fp8_wgmma"),
    _Group(32, (("s32", "s8", "s8"), ("s32", "u8", "u8")), _INTEGER_N, "8.0", "int8", ("", ".satfinite"), signs=False),
    _Group(32, (("s32", "s8", "u8"), ("s32", "u8", "s8")), _INTEGER_N, "8.4", "int8", ("", ".satfinite"), signs=False),
    _Group(256, (("s32", "b1", "b1"),), _INTEGER_N, "8.0", "b1", suffix=".and.popc", signs=False),
)  # fmt: skip

_FIRST_SPARSE = "8.2"  # version of PTX; s8 x u8 and u8 x s8 came when the dense ones did
# Of 16- and 32-bit elements two of four lanes hold the metadata of a quad's rows; of 8-bit elements all four do.
_SELECTORS = {"half": (0, 1), "tf32": (0, 1), "fp8_wgmma": (0,), "int8": (0,)}  # b1 has no sparse form

_SPARSE = tuple(
    replace(group, k=2 * group.k, ptx_version=latest(group.ptx_version, _FIRST_SPARSE))
    for group in _DENSE
    if group.arithmetic in _SELECTORS
)

_SCALE_D = Operand("scale_d", kind="predicate", per="warpgroup")
_SIGN_A, _SIGN_B = (Operand(f"scale_{x}", kind="immediate", values=(1, -1), per="warpgroup") for x in "ab")
_TRANS_A, _TRANS_B = (Operand(f"trans_{x}", kind="immediate", values=(0, 1), per="warpgroup") for x in "ab")


@cache
def _descriptor(name: str, format: str) -> Operand:
    """A matrix in shared memory, behind a descriptor in a register."""
    return Operand(name, type=".b64", format=FORMATS[format], space="shared", proxy="async", per="warpgroup")


def _forms(group: _Group, d: Fragment, a: Fragment, b: str, selectors: tuple[int, ...]) -> tuple[Form, ...]:
    """A in shared memory ("ss"), or in registers ("rs")."""
    metadata = (METADATA, selector(selectors)) if selectors else ()
    signs = (_SIGN_A, _SIGN_B) if group.signs else ()
    found = []
    for name, left, majors in (("ss", _descriptor("a", a.format.name), (_TRANS_A, _TRANS_B)), ("rs", a, (_TRANS_B,))):
        operands = (d, left, _descriptor("b", b), *metadata, _SCALE_D, *signs, *(majors if group.majors else ()))
        found.append(Form(operands, ("sm_90a",), group.ptx_version, "warpgroup", "warpgroup", name))
    return tuple(found)


@cache
def _accumulator(n: int, bits: int) -> FragmentLayout:
    """C and D, 64 x N: each warp holds 16 rows as in mma.sync, N / 8 times. Index m + 64 n."""
    shape, stride = ((2, 2), (64, 8)) if n == 8 else ((2, 2, n // 8), (64, 8, 512))
    return FragmentLayout(Layout((4, 8, 4), (128, 1, 16)), Layout(shape, stride), 64, n, bits)


@cache
def _operand_a(k: int, bits: int) -> FragmentLayout:
    """A in registers, 64 x K: each warp holds 16 rows as in mma.sync. Index m + 64 k."""
    packed = 32 // bits
    value = compact([(packed, 64), (2, 8), (k // (4 * packed), 4 * packed * 64)])
    return FragmentLayout(Layout((4, 8, 4), (packed * 64, 1, 16)), value, 64, k, bits)


def _rows(family: str, spelling: str, groups: tuple[_Group, ...]) -> Iterator[WarpgroupRow]:
    """The rows of a family; of a sparse one, K / 2 elements of each row of A are kept."""
    for group in groups:
        selectors = _SELECTORS[group.arithmetic] if family == SPARSE else ()
        for (d, a, b), saturate, n in product(group.types, group.saturate, group.n):
            out, bits = _accumulator(n, FORMATS[d].bits), element_bits(a)
            kind = REGISTER_TYPES.get(d, ".b32")
            operands = {
                "d": fragment("d", FORMATS[d], out, kind, "both"),
                "a": fragment("a", FORMATS[a], _operand_a(group.k // 2 if selectors else group.k, bits)),
                "c": fragment("c", FORMATS[d], out, kind),  # what d holds before
            }
            modifiers = ({"saturate": saturate} if saturate else {}) | ({"bits": group.suffix} if group.suffix else {})
            yield WarpgroupRow(
                f"{spelling}.sync.aligned.m64n{n}k{group.k}{saturate}.{d}.{a}.{b}{group.suffix}",
                family,
                (64, n, group.k),
                MappingProxyType(operands),
                arithmetic=group.arithmetic,
                modifiers=MappingProxyType(modifiers),
                forms=_forms(group, operands["d"], operands["a"], b, selectors),
                sparsity=Sparsity(64, group.k, bits, selectors) if selectors else None,
                lands_later=True,
            )


def dense_rows() -> tuple[WarpgroupRow, ...]:
    """Every dense wgmma spelling."""
    return tuple(_rows(DENSE, "wgmma.mma_async", _DENSE))


def sparse_rows() -> tuple[WarpgroupRow, ...]:
    """Every sparse wgmma spelling."""
    return tuple(_rows(SPARSE, "wgmma.mma_async.sp", _SPARSE))


# --- arithmetic and evidence ----------------------------------------------------------------------------------------

_LOWERINGS = (
    Rule("half", 90, native, "HGMMA.{SP}{mxnxk}.{D}{bf16}"),
    Rule("tf32", 90, native, "HGMMA.{SP}{mxnxk}.F32.TF32"),
    Rule("fp8_wgmma", 90, native, "QGMMA.{SP}{mxnxk}.{D}.{A}.{B}"),
    Rule("int8", 90, integer, "IGMMA.{SP}{mxnxk}.{A}.{B}{SAT}"),
    Rule("b1", 90, bits, "BGMMA.{mxnxk}.AND.POPC"),
)


def lowering(row: WarpgroupRow, arch: Arch) -> Lowering:
    """One instruction, one step: of a sparse A, over the kept products."""
    return lower(_LOWERINGS, row, arch, SP="SP." if row.sparsity else "")


def evidence(row: WarpgroupRow, arch: Arch) -> Evidence:
    """How what `lowering` says is known."""
    return RECORDED.get(arch.name) or as_relative(arch)


DENSE_FAMILY = Family(DENSE, dense_rows, lowering, evidence, WarpgroupMultiply)
SPARSE_FAMILY = Family(SPARSE, sparse_rows, lowering, evidence, SparseWarpgroupMultiply)
