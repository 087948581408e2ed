"""Dense wgmma.mma_async: the rows the assembler accepts, and what each computes.

Sources: PTX ISA, section Asynchronous Multiply-and-Accumulate Instruction wgmma.mma_async; ptxas 13.5; arithmetic and
descriptor addresses measured on an NVIDIA H200 (docs/numerics.md).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from types import MappingProxyType

from tcsim.evidence import Evidence
from tcsim.families.mma_lowering import Rule, bits, integer, lower, native
from tcsim.families.mma_operands import REGISTER_TYPES, element_bits
from tcsim.formats import FORMATS
from tcsim.layout import FragmentLayout, Layout
from tcsim.registry import Family, Operand, Row
from tcsim.steps import Lowering
from tcsim.targets import Arch
from tcsim.warpgroup_multiply import WarpgroupFacts, WarpgroupMultiply

NAME = "wgmma"
_FP8 = ("e4m3", "e5m2")
_EVERY_N = tuple(range(8, 257, 8))
_INTEGER_N = (8, 16, 24, 32, 48, 64, 80, 96, 112, 128, 144, 160, 176, 192, 208, 224, 240, 256)


@dataclass(frozen=True)
class _Group:
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


_GROUPS = (
    _Group(
        16,
        (("f16", "f16", "f16"), ("f32", "f16", "f16"), ("f32", "bf16", "bf16")),
        _EVERY_N,
        "8.0",
        "half",
        majors=True,
    ),
    _Group(8, (("f32", "tf32", "tf32"),), _EVERY_N, "8.0", "tf32"),
    _Group(32, tuple((d, a, b) for a, b, d in product(_FP8, _FP8, ("f16", "f32"))), _EVERY_N, "8.0", "fp8_wgmma"),
    _Group(32, (("s32", "s8", "s8"), ("s32", "u8", "u8")), _INTEGER_N, "8.0", "int8", ("", ".satfinite"), signs=False),
    _Group(32, (("s32", "s8", "u8"), ("s32", "u8", "s8")), _INTEGER_N, "8.4", "int8", ("", ".satfinite"), signs=False),
    _Group(256, (("s32", "b1", "b1"),), _INTEGER_N, "8.0", "b1", suffix=".and.popc", signs=False),
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


def rows() -> tuple[Row, ...]:
    """Every dense wgmma spelling."""
    return tuple(_rows())


def _rows() -> Iterator[Row]:
    for group in _GROUPS:
        for (d, a, b), saturate, n in product(group.types, group.saturate, group.n):
            mnemonic = f"wgmma.mma_async.sync.aligned.m64n{n}k{group.k}{saturate}.{d}.{a}.{b}{group.suffix}"
            out = accumulator(n, FORMATS[d].bits)
            kind = REGISTER_TYPES.get(d, ".b32")
            operands = {
                "d": Operand("d", FORMATS[d], out, kind),
                "a": Operand("a", FORMATS[a], operand_a(group.k, element_bits(a)), ".b32"),
                "c": Operand("c", FORMATS[d], out, kind),
            }
            modifiers = ({"saturate": saturate} if saturate else {}) | ({"bits": group.suffix} if group.suffix else {})
            yield Row(
                mnemonic,
                NAME,
                (64, n, group.k),
                MappingProxyType(operands),
                ("sm_90a",),
                group.ptx_version,
                group.arithmetic,
                modifiers=MappingProxyType(modifiers),
                facts=WarpgroupFacts(FORMATS[b], group.signs, group.majors),
            )


_LOWERINGS = (
    Rule("half", 90, 90, native, "HGMMA.{mxnxk}.{D}{bf16}"),
    Rule("tf32", 90, 90, native, "HGMMA.{mxnxk}.F32.TF32"),
    Rule("fp8_wgmma", 90, 90, native, "QGMMA.{mxnxk}.{D}.{A}.{B}"),
    Rule("int8", 90, 90, integer, "IGMMA.{mxnxk}.{A}.{B}{SAT}"),
    Rule("b1", 90, 90, bits, "BGMMA.{mxnxk}.AND.POPC"),
)


def lowering(row: Row, arch: Arch) -> Lowering:
    """One instruction, one step."""
    return lower(_LOWERINGS, row, arch, row.facts.format_b if isinstance(row.facts, WarpgroupFacts) else None)


def evidence(row: Row, arch: Arch) -> Evidence:
    """How what `lowering` says is known."""
    return Evidence("measured", "NVIDIA H200, conformance/recordings/sm_90")


FAMILY = Family(NAME, rows, lowering, evidence, WarpgroupMultiply)
