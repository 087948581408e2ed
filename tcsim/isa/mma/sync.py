"""Dense mma.sync: the rows the assembler accepts, and what each computes on each arch.

Sources: PTX ISA, section Multiply-and-Accumulate Instruction mma (grammar, shapes, types); ptxas 12.9 and 13.5 (which
targets accept which spelling, and the SASS they emit); docs/numerics.md (arithmetic constants and their evidence).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import product
from types import MappingProxyType

from tcsim.arithmetic.steps import Lowering
from tcsim.core.evidence import RECORDED, RTX_PRO_6000, Evidence
from tcsim.core.targets import Arch, since, suffixed_since
from tcsim.isa.mma import fragments
from tcsim.isa.mma.lowering import (
    Rule,
    as_relative,
    bits,
    bits_by_and,
    bits_by_int8,
    cuda_cores,
    fma_chain,
    integer,
    lower,
    native,
    native_quad_pair,
    split_f64,
    widened_to_f16,
    widened_to_int8,
)
from tcsim.isa.mma.multiply import MatrixMultiply
from tcsim.isa.mma.operands import F8F6F4, FP8, declared, new_pairs, pairs, warp_operands
from tcsim.model.family import Family
from tcsim.model.operand import Fragment
from tcsim.model.row import Row
from tcsim.numbers.formats import FORMATS

NAME = "mma.sync"


# --- rows -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Group:
    """Rows that differ only in the listed choices."""

    shape: tuple[int, int, int]
    types: tuple[tuple[str, str, str, str], ...]  # d, a, b, c
    targets: tuple[str, ...]
    ptx_version: str
    arithmetic: str  # key of _LOWERINGS
    modifiers: tuple[tuple[str, str], ...] = (("", ""),)  # (key, value): one row each
    layouts: tuple[str, ...] = ("row.col",)
    kind: str = ""  # ".kind::..." of newer spellings
    documented: bool = True
    dropped: str = ""


_F64_ROUNDINGS = (("rounding", ".rn"), ("rounding", ".rz"), ("rounding", ".rm"), ("rounding", ".rp"))
_SATURATE = (("", ""), ("saturate", ".satfinite"))
_FOUR_LAYOUTS = ("row.row", "row.col", "col.row", "col.col")
_F64 = (("f64",) * 4,)


_EMPTY_BF16 = (
    "ptxas accepts this spelling and emits no instruction for it, so there is nothing to model; "
    "bf16 has m16n8k8 and m16n8k16"
)

_GROUPS = (
    _Group((8, 8, 4), (("f16",) * 4, ("f32", "f16", "f16", "f16"), ("f32", "f16", "f16", "f32")), since("sm_70"), "6.4",
           "quad_pair", layouts=_FOUR_LAYOUTS),
    _Group((8, 8, 4), (("f32", "bf16", "bf16", "f32"),), since("sm_80"), "7.0", "quad_pair", layouts=_FOUR_LAYOUTS,
           documented=False, dropped=_EMPTY_BF16),
    _Group((8, 8, 4), _F64, since("sm_80"), "7.0", "f64"),
    _Group((8, 8, 4), _F64, since("sm_80"), "7.0", "f64", modifiers=_F64_ROUNDINGS, documented=False),
    _Group((8, 8, 16), pairs("s32", ("s8", "u8")), since("sm_75"), "6.5", "int8", modifiers=_SATURATE),
    _Group((8, 8, 32), pairs("s32", ("s4", "u4")), since("sm_75"), "6.5", "int4", modifiers=_SATURATE),
    _Group((8, 8, 128), pairs("s32", ("b1",)), since("sm_75"), "7.0", "b1", modifiers=(("bits", ".xor.popc"),)),
    _Group((8, 8, 128), pairs("s32", ("b1",)), since("sm_80"), "7.1", "b1", modifiers=(("bits", ".and.popc"),)),
    _Group((16, 8, 4), pairs("f32", ("tf32",)), since("sm_80"), "7.0", "tf32"),
    _Group((16, 8, 4), _F64, since("sm_90"), "7.8", "f64"),
    _Group((16, 8, 4), _F64, since("sm_90"), "7.8", "f64", modifiers=_F64_ROUNDINGS, documented=False),
    _Group((16, 8, 8), pairs("f16", ("f16",)) + pairs("f32", ("f16",)), since("sm_75"), "6.5", "half"),
    _Group((16, 8, 8), pairs("f32", ("bf16",)), since("sm_80"), "7.0", "half"),
    _Group((16, 8, 8), pairs("f32", ("tf32",)), since("sm_80"), "7.0", "tf32"),
    _Group((16, 8, 8), _F64, since("sm_90"), "7.8", "f64"),
    _Group((16, 8, 8), _F64, since("sm_90"), "7.8", "f64", modifiers=_F64_ROUNDINGS, documented=False),
    _Group((16, 8, 16), pairs("f16", ("f16",)) + pairs("f32", ("f16",)) + pairs("f32", ("bf16",)), since("sm_80"),
           "7.0", "half"),
    _Group((16, 8, 16), pairs("f16", FP8) + pairs("f32", FP8), since("sm_89"), "8.7", "fp8"),
    _Group((16, 8, 16), _F64, since("sm_90"), "7.8", "f64"),
    _Group((16, 8, 16), _F64, since("sm_90"), "7.8", "f64", modifiers=_F64_ROUNDINGS, documented=False),
    _Group((16, 8, 16), pairs("s32", ("s8", "u8")), since("sm_80"), "7.0", "int8", modifiers=_SATURATE),
    _Group((16, 8, 32), pairs("f16", FP8), since("sm_89"), "8.7", "fp8"),
    _Group((16, 8, 32), pairs("f32", FP8), since("sm_89"), "8.4", "fp8"),
    _Group((16, 8, 32), pairs("s32", ("s8", "u8")), since("sm_80"), "7.0", "int8", modifiers=_SATURATE),
    _Group((16, 8, 32), pairs("s32", ("s4", "u4")), since("sm_80"), "7.0", "int4", modifiers=_SATURATE),
    _Group((16, 8, 64), pairs("s32", ("s4", "u4")), since("sm_80"), "7.0", "int4", modifiers=_SATURATE),
    _Group((16, 8, 128), pairs("s32", ("b1",)), since("sm_80"), "7.0", "b1", modifiers=(("bits", ".xor.popc"),)),
    _Group((16, 8, 128), pairs("s32", ("b1",)), since("sm_80"), "7.1", "b1", modifiers=(("bits", ".and.popc"),)),
    _Group((16, 8, 256), pairs("s32", ("b1",)), since("sm_80"), "7.0", "b1", modifiers=(("bits", ".xor.popc"),)),
    _Group((16, 8, 256), pairs("s32", ("b1",)), since("sm_80"), "7.1", "b1", modifiers=(("bits", ".and.popc"),)),
    _Group((16, 8, 16), pairs("f16", FP8) + pairs("f32", FP8), suffixed_since("sm_100"), "8.7", "fp8",
           kind=".kind::f8f6f4", documented=False),
    _Group((16, 8, 32), pairs("f16", FP8), suffixed_since("sm_100"), "8.7", "fp8", kind=".kind::f8f6f4"),
    _Group((16, 8, 32), pairs("f32", FP8), suffixed_since("sm_100"), "8.6", "fp8", kind=".kind::f8f6f4"),
    _Group((16, 8, 32), new_pairs("f16") + new_pairs("f32"), suffixed_since("sm_120"), "8.7", "f6f4",
           kind=".kind::f8f6f4"),
)  # fmt: skip


def _operands(group: _Group, types: tuple[str, str, str, str], layouts: str) -> MappingProxyType[str, Fragment]:
    if group.arithmetic != "quad_pair":
        return warp_operands(group.shape, types)
    d, a, b, c = types
    row_a, row_b = (word == "row" for word in layouts.split("."))
    return declared(
        types,
        {
            "d": fragments.quad_pair_accumulator(FORMATS[d].bits),
            "a": fragments.quad_pair_a(row_a),
            "b": fragments.quad_pair_b(row_b),
            "c": fragments.quad_pair_accumulator(FORMATS[c].bits),
        },
    )


def rows() -> tuple[Row, ...]:
    """Every dense mma.sync spelling that is not block-scaled."""
    return tuple(_rows())


def _rows() -> Iterator[Row]:
    for group in _GROUPS:
        for types, (key, value), layouts in product(group.types, group.modifiers, group.layouts):
            prefix, suffix = (value, "") if key != "bits" else ("", value)
            shape = "m{}n{}k{}".format(*group.shape)
            mnemonic = f"mma.sync.aligned{group.kind}.{shape}.{layouts}{prefix}.{'.'.join(types)}{suffix}"
            yield Row(
                mnemonic, NAME, group.shape, _operands(group, types, layouts), group.targets, group.ptx_version,
                group.arithmetic, group.documented, MappingProxyType({key: value} if key else {}), group.dropped,
            )  # fmt: skip


# --- arithmetic -----------------------------------------------------------------------------------------------------

_LOWERINGS = (
    Rule("quad_pair", 70, native_quad_pair, "HMMA.884.{D}.{C}"),
    Rule("quad_pair", 80, cuda_cores, ""),
    Rule("half", 75, native, "HMMA.{mnk}.{D}{bf16}"),
    Rule("tf32", 80, native, "HMMA.{mnk}.F32.TF32"),
    Rule("fp8", 89, native, "QMMA.{mnk}.{D}.{A}.{B}"),
    Rule("fp8", 90, widened_to_f16, "HMMA.{half_mnk}.{D}"),
    Rule("fp8", 120, native, "QMMA.{mnk}.{D}.{A}.{B}"),
    Rule("f6f4", 120, native, "QMMA.{mnk}.{D}.{A}.{B}"),
    Rule("f64", 80, fma_chain, "DMMA.884{RN}"),
    Rule("f64", 90, fma_chain, "DMMA.{mxnxk}{RN}"),
    Rule("f64", 100, split_f64, "DMMA.8x8x4{RN}"),
    Rule("int8", 75, integer, "IMMA.{mnk}.{A}.{B}{SAT}"),
    Rule("int8", 100, integer, "IMMA.16816.{A}.{B}{SAT}", ((8, 8, 16),)),
    Rule("int4", 75, integer, "IMMA.{mnk}.{A}.{B}{SAT}"),
    Rule("int4", 90, widened_to_int8, "IMMA.{half_mnk}.{A8}.{B8}"),
    Rule("int4", 100, widened_to_int8, "IMMA.16816.{A8}.{B8}", ((8, 8, 32),)),
    Rule("b1", 75, bits, "BMMA.{mnk}{OP}"),
    Rule("b1", 90, bits_by_and, "BMMA.{mnk}.AND.POPC"),
    Rule("b1", 100, bits_by_int8, "IMMA.16832.U8.U8"),
)


def lowering(row: Row, arch: Arch) -> Lowering:
    """What the assembler makes of a row on an arch, and what that computes."""
    return lower(_LOWERINGS, row, arch)


# --- evidence -------------------------------------------------------------------------------------------------------

_MEASURED = RECORDED  # by arch, for all its rows
_TACO = "{}, Khattak and Mikaitis, ACM TACO, doi 10.1145/3830409{}"
_MMA_SIM = "MMA-Sim, arXiv 2511.10909: a bit-accurate model its authors checked on about 10**6 random cases"
_SASS = "the machine code that ptxas emits (nvdisasm)"


@dataclass(frozen=True)
class _Published:
    """Rows whose results on one arch others published; conformance/recordings/published holds them."""

    arch: str
    gpu: str  # which, as the authors name it; several are joined by "and"
    rows: tuple[str, ...]  # mnemonics without "mma.sync.aligned."
    how: str = ""  # what to know of how they ran


_VOLTA_ROWS = ("m8n8k4.row.col.f16.f16.f16.f16", "m8n8k4.row.col.f32.f16.f16.f32")
_HALF_ROWS = tuple(f"m16n8k16.row.col.{types}" for types in ("f16.f16.f16.f16", "f32.f16.f16.f32", "f32.bf16.bf16.f32"))
_TF32_ROWS = ("m16n8k4.row.col.f32.tf32.tf32.f32",)
_FP8_ROWS = {d: tuple(f"m16n8k32.row.col.{d}.{kind}.{kind}.{d}" for kind in FP8) for d in ("f16", "f32")}
# wmma m16n16k16 runs as HMMA.884 or HMMA.16816, and m16n16k8 as HMMA.1684: the machine code of these rows
_AS_WMMA = "; run as wmma, which is the same HMMA"
_FIRST_HALF = f"{_AS_WMMA}, with zeros at k 8-15"

_PUBLISHED = (
    _Published("sm_70", "V100", _VOLTA_ROWS, _AS_WMMA),
    _Published("sm_80", "A100", _HALF_ROWS, _FIRST_HALF),
    _Published("sm_80", "A100", _TF32_ROWS, _AS_WMMA),
    _Published("sm_86", "A2", _HALF_ROWS, _FIRST_HALF),
    _Published("sm_86", "A2", _TF32_ROWS, _AS_WMMA),
    _Published("sm_89", "Ada", _HALF_ROWS, _FIRST_HALF),
    _Published("sm_89", "Ada", _TF32_ROWS, _AS_WMMA),
    _Published("sm_89", "Ada", _FP8_ROWS["f16"]),
    _Published("sm_89", "Ada and L40S", _FP8_ROWS["f32"]),
    _Published("sm_100", "B200", _HALF_ROWS + _TF32_ROWS, _AS_WMMA),
    _Published("sm_100", "B200", _FP8_ROWS["f16"] + _FP8_ROWS["f32"]),
)

# kind::f8f6f4 ran; with fp8 alone the kind may be left out: the same QMMA
_ON_RTX_PRO_6000 = (
    *(f"kind::f8f6f4.m16n8k32.row.col.f32.{a}.{b}.f32" for a, b in product(F8F6F4, ("e4m3", "e2m1"))),
    *(f"m16n8k32.row.col.f32.{a}.e4m3.f32" for a in FP8),
)


@dataclass(frozen=True)
class _Known:
    """Evidence for the other rows of some arithmetic classes on some archs; the first match counts."""

    archs: tuple[str, ...]
    arithmetics: tuple[str, ...]
    evidence: Evidence
    shapes: tuple[tuple[int, int, int], ...] = ()  # empty: all
    formats: tuple[str, ...] = ()  # of both A and B; empty: all
    plain: bool = False  # only rows without modifiers


_AS_A100 = "as sm_80: of sm_86 itself m16n8k16 with f16 and bf16, and m16n8k4 with tf32, were compared"
_AS_E2M1 = "as e2m1: MMA-Sim has no e3m2 and no e2m3"

_KNOWN = (
    _Known(("sm_70", "sm_75"), ("quad_pair",), Evidence("literature", _MMA_SIM)),
    _Known(("sm_75", "sm_80", "sm_89", "sm_100", "sm_120"), ("half", "tf32"), Evidence("literature", _MMA_SIM)),
    _Known(("sm_86",), ("half", "tf32"), Evidence("inferred", _AS_A100)),
    _Known(("sm_89", "sm_120"), ("fp8",), Evidence("literature", _MMA_SIM)),
    _Known(("sm_100",), ("fp8",), Evidence("literature", f"{_SASS}: f16 steps and additions, as in the published rows")),
    _Known(("sm_120",), ("f6f4",), Evidence("literature", _MMA_SIM), formats=("e4m3", "e5m2", "e2m1")),
    _Known(("sm_120",), ("f6f4",), Evidence("inferred", _AS_E2M1)),
    _Known(("sm_80", "sm_89", "sm_100", "sm_120"), ("f64",), Evidence("literature", _MMA_SIM), ((8, 8, 4),), plain=True),
    _Known(("sm_75", "sm_80", "sm_86", "sm_89", "sm_100", "sm_120"), ("f64", "int8", "int4", "b1", "quad_pair"),
           Evidence("literature", _SASS)),
)  # fmt: skip


@cache
def _published() -> dict[tuple[str, str], Evidence]:
    """Evidence by arch and mnemonic."""
    found = {
        (item.arch, f"mma.sync.aligned.{name}"): Evidence("published", _TACO.format(item.gpu, item.how))
        for item in _PUBLISHED
        for name in item.rows
    }
    return found | {("sm_120", f"mma.sync.aligned.{name}"): RTX_PRO_6000 for name in _ON_RTX_PRO_6000}


def evidence(row: Row, arch: Arch) -> Evidence:
    """How what `lowering` says is known."""
    if found := _MEASURED.get(arch.name) or _published().get((arch.name, row.mnemonic)):
        return found
    formats = {row.operands[name].format.name for name in "ab"}
    for known in _KNOWN:
        fits = arch.name in known.archs and row.arithmetic in known.arithmetics
        fits = fits and (not known.shapes or row.shape in known.shapes)
        fits = fits and (not known.formats or formats <= set(known.formats))
        if fits and not (known.plain and row.modifiers):
            return known.evidence
    return as_relative(arch)


FAMILY = Family(NAME, rows, lowering, evidence, MatrixMultiply)
