"""Dense wgmma.mma_async: the rows the assembler accepts, and what each computes; the sparse family derives its own from them.

Sources: PTX ISA, section Asynchronous Multiply-and-Accumulate Instruction wgmma.mma_async; ptxas 13.5; arithmetic and
descriptor addresses measured on an NVIDIA H200 (docs/numerics.md).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from types import MappingProxyType

from tcsim.arithmetic.steps import Lowering
from tcsim.core.evidence import RECORDED, Evidence
from tcsim.core.targets import Arch
from tcsim.isa.mma.lowering import Rule, bits, integer, lower, native
from tcsim.isa.mma.operands import REGISTER_TYPES, element_bits
from tcsim.isa.wgmma.multiply import WarpgroupFacts, WarpgroupMultiply
from tcsim.layouts.layout import FragmentLayout, Layout
from tcsim.layouts.sparsity import Sparsity
from tcsim.model.family import Family
from tcsim.model.operand import fragment
from tcsim.model.row import Row
from tcsim.numbers.formats import FORMATS

NAME = "wgmma"
_FP8 = ("e4m3", "e5m2")
_EVERY_N = tuple(range(8, 257, 8))
_INTEGER_N = (8, 16, 24, 32, 48, 64, 80, 96, 112, 128, 144, 160, 176, 192, 208, 224, 240, 256)


@dataclass(frozen=True)
class Group:
    """Rows that differ only in N and the listed choices."""

    k: int
    types: tuple[tuple[str, str, str], ...]  # d, a, b
    n: tuple[int, ...]
    ptx_version: str
    arithmetic: str
    saturate: tuple[str, ...] = ("",)
    suffix: str = ""
    signs: bool = True
    majors: bool = False
    selectors: tuple[int, ...] = ()  # of the metadata of a sparse A


GROUPS = (
    Group(
        16,
        (("f16", "f16", "f16"), ("f32", "f16", "f16"), ("f32", "bf16", "bf16")),
        _EVERY_N,
        "8.0",
        "half",
        majors=True,
    ),
    Group(8, (("f32", "tf32", "tf32"),), _EVERY_N, "8.0", "tf32"),
    Group(32, tuple((d, a, b) for a, b, d in product(_FP8, _FP8, ("f16", "f32"))), _EVERY_N, "8.0", "fp8_wgmma"),
    Group(32, (("s32", "s8", "s8"), ("s32", "u8", "u8")), _INTEGER_N, "8.0", "int8", ("", ".satfinite"), signs=False),
    Group(32, (("s32", "s8", "u8"), ("s32", "u8", "s8")), _INTEGER_N, "8.4", "int8", ("", ".satfinite"), signs=False),
    Group(256, (("s32", "b1", "b1"),), _INTEGER_N, "8.0", "b1", suffix=".and.popc", signs=False),
)


def accumulator(n: int, bits: int) -> FragmentLayout:
    """C and D, 64 x N: each warp holds 16 rows as in mma.sync, N / 8 times. Index m + 64 n."""
    shape, stride = ((2, 2), (64, 8)) if n == 8 else ((2, 2, n // 8), (64, 8, 512))
    return FragmentLayout(Layout((4, 8, 4), (128, 1, 16)), Layout(shape, stride), 64, n, bits)


def operand_a(k: int, bits: int) -> FragmentLayout:
    """A in registers, 64 x K: each warp holds 16 rows as in mma.sync. Index m + 64 k."""
    packed = 32 // bits
    modes = [(packed, 64), (2, 8), (k // (4 * packed), 4 * packed * 64)]
    kept = [mode for mode in modes if mode[0] > 1]
    value = Layout(tuple(extent for extent, _ in kept), tuple(step for _, step in kept))
    return FragmentLayout(Layout((4, 8, 4), (packed * 64, 1, 16)), value, 64, k, bits)


def build_rows(name: str, spelling: str, groups: tuple[Group, ...], sparse: bool) -> Iterator[Row]:
    """The rows of a family; of a sparse one, K / 2 elements of each row of A are kept."""
    for group in groups:
        for (d, a, b), saturate, n in product(group.types, group.saturate, group.n):
            mnemonic = f"{spelling}.sync.aligned.m64n{n}k{group.k}{saturate}.{d}.{a}.{b}{group.suffix}"
            out = accumulator(n, FORMATS[d].bits)
            kind, bits = REGISTER_TYPES.get(d, ".b32"), element_bits(a)
            operands = {
                "d": fragment("d", FORMATS[d], out, kind, "both"),
                "a": fragment("a", FORMATS[a], operand_a(group.k // 2 if sparse else group.k, bits), ".b32"),
                "c": fragment("c", FORMATS[d], out, kind),
            }
            modifiers = ({"saturate": saturate} if saturate else {}) | ({"bits": group.suffix} if group.suffix else {})
            sparsity = Sparsity(64, group.k, bits, group.selectors) if sparse else None
            yield Row(
                mnemonic,
                name,
                (64, n, group.k),
                MappingProxyType(operands),
                ("sm_90a",),
                group.ptx_version,
                group.arithmetic,
                modifiers=MappingProxyType(modifiers),
                facts=WarpgroupFacts(FORMATS[b], group.signs, group.majors, sparsity),
            )


def rows() -> tuple[Row, ...]:
    """Every dense wgmma spelling."""
    return tuple(build_rows(NAME, "wgmma.mma_async", GROUPS, sparse=False))


LOWERINGS = (
    Rule("half", 90, 90, native, "HGMMA.{mxnxk}.{D}{bf16}"),
    Rule("tf32", 90, 90, native, "HGMMA.{mxnxk}.F32.TF32"),
    Rule("fp8_wgmma", 90, 90, native, "QGMMA.{mxnxk}.{D}.{A}.{B}"),
    Rule("int8", 90, 90, integer, "IGMMA.{mxnxk}.{A}.{B}{SAT}"),
    Rule("b1", 90, 90, bits, "BGMMA.{mxnxk}.AND.POPC"),
)


def lowering(row: Row, arch: Arch) -> Lowering:
    """One instruction, one step."""
    return lower(LOWERINGS, row, arch, row.facts.format_b if isinstance(row.facts, WarpgroupFacts) else None)


def evidence(row: Row, arch: Arch) -> Evidence:
    """How what `lowering` says is known."""
    return RECORDED["sm_90"]


FAMILY = Family(NAME, rows, lowering, evidence, WarpgroupMultiply)
