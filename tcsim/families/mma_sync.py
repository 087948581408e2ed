"""Dense mma.sync: the rows the assembler accepts, and what each computes on each arch.

Sources: PTX ISA, section Multiply-and-Accumulate Instruction mma (grammar, shapes, types); ptxas 12.9 and 13.5 (which
targets accept which spelling, and the SASS they emit); docs/numerics.md (arithmetic constants and their evidence).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product
from types import MappingProxyType
from typing import Literal

from tcsim.dot import Datapath
from tcsim.evidence import Evidence
from tcsim.families import mma_fragments as fragments
from tcsim.formats import FORMATS
from tcsim.multiply import MatrixMultiply
from tcsim.registry import Family, Operand, Row
from tcsim.rounding import Rounding
from tcsim.steps import (
    Arithmetic,
    BitDot,
    DotAdd,
    IntegerAdd,
    IntegerDot,
    Lowering,
    Step,
    Widen,
)
from tcsim.targets import Arch, since, suffixed_since

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


_FP8 = ("e4m3", "e5m2")
_F8F6F4 = ("e4m3", "e5m2", "e3m2", "e2m3", "e2m1")
_F64_ROUNDINGS = (("rounding", ".rn"), ("rounding", ".rz"), ("rounding", ".rm"), ("rounding", ".rp"))
_SATURATE = (("", ""), ("saturate", ".satfinite"))
_FOUR_LAYOUTS = ("row.row", "row.col", "col.row", "col.col")
_F64 = (("f64",) * 4,)


def _pairs(d: str, kinds: tuple[str, ...]) -> tuple[tuple[str, str, str, str], ...]:
    return tuple((d, a, b, d) for a, b in product(kinds, repeat=2))


def _new_pairs(d: str) -> tuple[tuple[str, str, str, str], ...]:
    return tuple(t for t in _pairs(d, _F8F6F4) if not (t[1] in _FP8 and t[2] in _FP8))


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
    _Group((8, 8, 16), _pairs("s32", ("s8", "u8")), since("sm_75"), "6.5", "int8", modifiers=_SATURATE),
    _Group((8, 8, 32), _pairs("s32", ("s4", "u4")), since("sm_75"), "6.5", "int4", modifiers=_SATURATE),
    _Group((8, 8, 128), _pairs("s32", ("b1",)), since("sm_75"), "7.0", "b1", modifiers=(("bits", ".xor.popc"),)),
    _Group((8, 8, 128), _pairs("s32", ("b1",)), since("sm_80"), "7.1", "b1", modifiers=(("bits", ".and.popc"),)),
    _Group((16, 8, 4), _pairs("f32", ("tf32",)), since("sm_80"), "7.0", "tf32"),
    _Group((16, 8, 4), _F64, since("sm_90"), "7.8", "f64"),
    _Group((16, 8, 4), _F64, since("sm_90"), "7.8", "f64", modifiers=_F64_ROUNDINGS, documented=False),
    _Group((16, 8, 8), _pairs("f16", ("f16",)) + _pairs("f32", ("f16",)), since("sm_75"), "6.5", "half"),
    _Group((16, 8, 8), _pairs("f32", ("bf16",)), since("sm_80"), "7.0", "half"),
    _Group((16, 8, 8), _pairs("f32", ("tf32",)), since("sm_80"), "7.0", "tf32"),
    _Group((16, 8, 8), _F64, since("sm_90"), "7.8", "f64"),
    _Group((16, 8, 8), _F64, since("sm_90"), "7.8", "f64", modifiers=_F64_ROUNDINGS, documented=False),
    _Group((16, 8, 16), _pairs("f16", ("f16",)) + _pairs("f32", ("f16",)) + _pairs("f32", ("bf16",)), since("sm_80"),
           "7.0", "half"),
    _Group((16, 8, 16), _pairs("f16", _FP8) + _pairs("f32", _FP8), since("sm_89"), "8.7", "fp8"),
    _Group((16, 8, 16), _F64, since("sm_90"), "7.8", "f64"),
    _Group((16, 8, 16), _F64, since("sm_90"), "7.8", "f64", modifiers=_F64_ROUNDINGS, documented=False),
    _Group((16, 8, 16), _pairs("s32", ("s8", "u8")), since("sm_80"), "7.0", "int8", modifiers=_SATURATE),
    _Group((16, 8, 32), _pairs("f16", _FP8), since("sm_89"), "8.7", "fp8"),
    _Group((16, 8, 32), _pairs("f32", _FP8), since("sm_89"), "8.4", "fp8"),
    _Group((16, 8, 32), _pairs("s32", ("s8", "u8")), since("sm_80"), "7.0", "int8", modifiers=_SATURATE),
    _Group((16, 8, 32), _pairs("s32", ("s4", "u4")), since("sm_80"), "7.0", "int4", modifiers=_SATURATE),
    _Group((16, 8, 64), _pairs("s32", ("s4", "u4")), since("sm_80"), "7.0", "int4", modifiers=_SATURATE),
    _Group((16, 8, 128), _pairs("s32", ("b1",)), since("sm_80"), "7.0", "b1", modifiers=(("bits", ".xor.popc"),)),
    _Group((16, 8, 128), _pairs("s32", ("b1",)), since("sm_80"), "7.1", "b1", modifiers=(("bits", ".and.popc"),)),
    _Group((16, 8, 256), _pairs("s32", ("b1",)), since("sm_80"), "7.0", "b1", modifiers=(("bits", ".xor.popc"),)),
    _Group((16, 8, 256), _pairs("s32", ("b1",)), since("sm_80"), "7.1", "b1", modifiers=(("bits", ".and.popc"),)),
    _Group((16, 8, 16), _pairs("f16", _FP8) + _pairs("f32", _FP8), suffixed_since("sm_100"), "8.7", "fp8",
           kind=".kind::f8f6f4", documented=False),
    _Group((16, 8, 32), _pairs("f16", _FP8), suffixed_since("sm_100"), "8.7", "fp8", kind=".kind::f8f6f4"),
    _Group((16, 8, 32), _pairs("f32", _FP8), suffixed_since("sm_100"), "8.6", "fp8", kind=".kind::f8f6f4"),
    _Group((16, 8, 32), _new_pairs("f16") + _new_pairs("f32"), suffixed_since("sm_120"), "8.7", "f6f4",
           kind=".kind::f8f6f4"),
)  # fmt: skip

# how PTX declares the registers of an operand
_REGISTER_TYPES = {"f32": ".f32", "s32": ".s32", "f64": ".f64"}


def _element_bits(format: str) -> int:
    """Bits that one element takes in a multiplicand register: fp6 and fp4 take a byte in this family."""
    bits = FORMATS[format].bits
    return FORMATS[format].container_bits if FORMATS[format].kind == "float" else bits


def _operands(group: _Group, types: tuple[str, str, str, str], layouts: str) -> MappingProxyType[str, Operand]:
    m, n, k = group.shape
    d, a, b, c = types
    if group.arithmetic == "quad_pair":
        row_a, row_b = (word == "row" for word in layouts.split("."))
        tables = {
            "d": fragments.quad_pair_accumulator(FORMATS[d].bits),
            "a": fragments.quad_pair_a(row_a),
            "b": fragments.quad_pair_b(row_b),
            "c": fragments.quad_pair_accumulator(FORMATS[c].bits),
        }
    else:
        tables = {
            "d": fragments.accumulator(m, n, FORMATS[d].bits),
            "a": fragments.operand_a(m, k, _element_bits(a)),
            "b": fragments.operand_b(n, k, _element_bits(b)),
            "c": fragments.accumulator(m, n, FORMATS[c].bits),
        }
    return MappingProxyType(
        {
            name: Operand(name, FORMATS[format], tables[name], _REGISTER_TYPES.get(format, ".b32"))
            for name, format in zip("dabc", types, strict=True)
        }
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


@dataclass(frozen=True)
class Unit:
    """The dot-add unit that an arch's mma.sync uses for a class of inputs (docs/numerics.md, section 2)."""

    archs: tuple[str, ...]
    arithmetics: tuple[str, ...]  # rows' `arithmetic`
    length: int | None  # L: products in one step; None: all of K
    fraction_bits: int  # F
    floor_f32: int  # floor of the largest exponent, f32 result
    floor_f16: int  # the same, f16 result
    f32_output: Literal["f32", "e8m13"] = "f32"  # what an f32 result really keeps


_HOPPER_LIKE = ("sm_90", "sm_100", "sm_103", "sm_107", "sm_110", "sm_120", "sm_121")
_AMPERE_LIKE = ("sm_80", "sm_86", "sm_87", "sm_88", "sm_89")

UNITS = (
    # Volta's unit; with an f32 result no product of f16 can reach its floor, so -131 is the rule's value, unobservable
    Unit(("sm_70", "sm_72", "sm_75"), ("quad_pair",), 4, 23, -131, -19),
    Unit(("sm_75", *_AMPERE_LIKE), ("half",), 8, 24, -132, -20),
    Unit(_AMPERE_LIKE, ("tf32",), 4, 24, -132, -19),
    # 16 products, the sum cut to 14 significant bits; the smallest fp8 product lies above the floor: unobservable
    Unit(("sm_89",), ("fp8",), 16, 13, -133, -21, "e8m13"),
    Unit(_HOPPER_LIKE, ("half", "tf32"), None, 25, -133, -21),
    Unit(("sm_120", "sm_121"), ("fp8", "f6f4"), None, 25, -133, -21),
)


def unit_for(arithmetic: str, arch: Arch) -> Unit:
    """The row of `UNITS` for a class of inputs on an arch."""
    return next(unit for unit in UNITS if arch.name in unit.archs and arithmetic in unit.arithmetics)


def _datapath(unit: Unit, output: str) -> Datapath:
    if output == "f16":
        return Datapath(unit.fraction_bits, unit.floor_f16, "f16", "rne")
    return Datapath(unit.fraction_bits, unit.floor_f32, unit.f32_output, "rz")


def _chain(unit: Unit, k: tuple[int, ...], output: str) -> tuple[Step, ...]:
    """Dot-adds over ascending k: each step's rounded result is the next one's addend."""
    length = unit.length or len(k)
    blocks = [k[start : start + length] for start in range(0, len(k), length)]
    last = len(blocks) - 1
    return tuple(
        DotAdd(block, "acc" if index else "c", _datapath(unit, output), "d" if index == last else "acc")
        for index, block in enumerate(blocks)
    )


def _native(row: Row, arch: Arch, opcode: str) -> Lowering:
    """The arch's own dot-add unit, over ascending k."""
    steps = _chain(unit_for(row.arithmetic, arch), tuple(range(row.shape[2])), row.operands["d"].format.name)
    return Lowering("native", steps, ((opcode, 1),))


def _native_quad_pair(row: Row, arch: Arch, opcode: str) -> Lowering:
    steps = _native(row, arch, opcode).steps
    parts = 2 if row.operands["d"].format.name == "f16" else 4
    return Lowering("native", steps, tuple((f"{opcode}.STEP{part}", 1) for part in range(parts)))


def _widened_to_f16(row: Row, arch: Arch, opcode: str) -> Lowering:
    """fp8 as two f16 dot-adds over interleaved halves of k from a zero accumulator, then an ordinary add of c."""
    unit, output, k = unit_for("half", arch), row.operands["d"].format.name, range(row.shape[2])
    first, second = (tuple(i for i in k if i % 4 in half) for half in ((0, 1), (2, 3)))
    steps = (
        Widen("f16"),
        DotAdd(first, "+0", _datapath(unit, output), "acc"),
        DotAdd(second, "acc", _datapath(unit, output), "acc"),
        Arithmetic("add", "d", ("acc", "c"), output),
    )
    adds = (("HADD2", 2),) if output == "f16" else (("FADD", 4),)
    return Lowering("emulated", steps, ((opcode, 2), *adds), "no fp8 mma.sync in this generation's tensor core")


def _cuda_cores(row: Row, arch: Arch, opcode: str) -> Lowering:
    """m8n8k4 f16 after Turing: shuffles and ordinary arithmetic; no tensor core runs."""
    if row.operands["d"].format.name == "f16":
        steps: tuple[Step, ...] = (
            Arithmetic("mul", "p0", ("a[0]", "b[0]"), "f32"),
            Arithmetic("fma", "p01", ("a[1]", "b[1]", "p0"), "f32"),
            Arithmetic("mul", "p2", ("a[2]", "b[2]"), "f32"),
            Arithmetic("fma", "p23", ("a[3]", "b[3]", "p2"), "f32"),
            Arithmetic("add", "sum", ("c", "p01"), "f32"),
            Arithmetic("add", "sum", ("sum", "p23"), "f32"),
            Arithmetic("convert", "d", ("sum",), "f16"),
        )
        return Lowering("cuda cores", steps, (("FFMA", 16), ("FMUL", 16), ("FADD", 16)))
    chain = [Arithmetic("fma", "t", (f"a[{k}]", f"b[{k}]", "t" if k else "+0"), "f32") for k in range(4)]
    return Lowering("cuda cores", (*chain, Arithmetic("add", "d", ("c", "t"), "f32")), (("FFMA", 32), ("FADD", 8)))


def _fma_chain(row: Row, arch: Arch, opcode: str) -> Lowering:
    """f64: a chain of fused multiply-adds over ascending k, starting from c."""
    rounding: Rounding = _F64_MODES[row.modifiers.get("rounding", ".rn")]
    last = row.shape[2] - 1
    steps = tuple(
        Arithmetic(
            "fma",
            "d" if k == last else "acc",
            (f"a[{k}]", f"b[{k}]", "acc" if k else "c"),
            "f64",
            rounding,
            _F64_NAN_ORDER,
        )
        for k in range(row.shape[2])
    )
    return Lowering("native", steps, ((opcode, 1),))


_F64_NAN_ORDER = "bca"
"""DMMA passes a NaN of b on, else of c, else of a, quietened: 4,358 NaN results on an H200, no other order fits."""

_F64_MODES: dict[str, Rounding] = {".rn": "rne", ".rz": "rz", ".rm": "rm", ".rp": "rp"}


def _split_f64(row: Row, arch: Arch, opcode: str) -> Lowering:
    """m16 f64 shapes where the tensor core has 8x8x4 only."""
    parts = row.shape[0] // 8 * (row.shape[2] // 4)
    return Lowering("split", _fma_chain(row, arch, opcode).steps, ((opcode, parts),))


def _integer(row: Row, arch: Arch, opcode: str) -> Lowering:
    """Integer dot products: exact, then wrapped or clamped once."""
    return Lowering("native", (IntegerDot("c", "saturate" in row.modifiers, "d"),), ((opcode, 1),))


def _widened_to_int8(row: Row, arch: Arch, opcode: str) -> Lowering:
    """int4 as two int8 dot products from a zero accumulator, then one add of c (clamping if asked)."""
    steps = (IntegerDot("+0", False, "acc"), IntegerAdd("saturate" in row.modifiers, "d"))
    return Lowering("emulated", steps, ((opcode, 2),), "no int4 in this generation's tensor core")


def _bits(row: Row, arch: Arch, opcode: str) -> Lowering:
    op: Literal["xor", "and"] = "xor" if "xor" in row.modifiers["bits"] else "and"
    return Lowering("native", (BitDot(op),), ((opcode, 1),))


def _bits_by_and(row: Row, arch: Arch, opcode: str) -> Lowering:
    """b1 on Hopper: XOR as two ANDs with complements; the same value."""
    native = _bits(row, arch, opcode)
    return Lowering("emulated", native.steps, ((opcode, 2),)) if "xor" in row.modifiers["bits"] else native


def _bits_by_int8(row: Row, arch: Arch, opcode: str) -> Lowering:
    """b1 on Blackwell: bits unpacked to bytes; the same value."""
    return Lowering("emulated", _bits(row, arch, opcode).steps, ((opcode, row.shape[2] // 32),))


@dataclass(frozen=True)
class _Rule:
    """What an arithmetic class becomes on a range of archs."""

    arithmetic: str
    first: int  # arch numbers, inclusive
    last: int
    build: Callable[[Row, Arch, str], Lowering]
    opcode: str  # SASS, with fields {mnk} {d} {a} {b} {A} {B} {sat} {op} {rounding}; measured with nvdisasm
    shapes: tuple[str, ...] = ()  # only these shapes; empty: all


_LOWERINGS = (
    _Rule("quad_pair", 70, 75, _native_quad_pair, "HMMA.884.{D}.{C}"),
    _Rule("quad_pair", 80, 121, _cuda_cores, ""),
    _Rule("half", 75, 121, _native, "HMMA.{mnk}.{D}{bf16}"),
    _Rule("tf32", 80, 121, _native, "HMMA.{mnk}.F32.TF32"),
    _Rule("fp8", 89, 89, _native, "QMMA.{mnk}.{D}.{A}.{B}"),
    _Rule("fp8", 90, 110, _widened_to_f16, "HMMA.{half_mnk}.{D}"),
    _Rule("fp8", 120, 121, _native, "QMMA.{mnk}.{D}.{A}.{B}"),
    _Rule("f6f4", 120, 121, _native, "QMMA.{mnk}.{D}.{A}.{B}"),
    _Rule("f64", 80, 89, _fma_chain, "DMMA.884{RN}"),
    _Rule("f64", 90, 121, _fma_chain, "DMMA.8x8x4{RN}", ("m8n8k4",)),
    _Rule("f64", 90, 90, _fma_chain, "DMMA.{mxnxk}{RN}"),
    _Rule("f64", 100, 121, _split_f64, "DMMA.8x8x4{RN}"),
    _Rule("int8", 75, 90, _integer, "IMMA.{mnk}.{A}.{B}{SAT}"),
    _Rule("int8", 100, 121, _integer, "IMMA.16816.{A}.{B}{SAT}", ("m8n8k16",)),
    _Rule("int8", 100, 121, _integer, "IMMA.{mnk}.{A}.{B}{SAT}"),
    _Rule("int4", 75, 89, _integer, "IMMA.{mnk}.{A}.{B}{SAT}"),
    _Rule("int4", 90, 90, _widened_to_int8, "IMMA.{half_mnk}.{A8}.{B8}"),
    _Rule("int4", 100, 121, _widened_to_int8, "IMMA.16816.{A8}.{B8}", ("m8n8k32",)),
    _Rule("int4", 100, 121, _widened_to_int8, "IMMA.{half_mnk}.{A8}.{B8}"),
    _Rule("b1", 75, 89, _bits, "BMMA.{mnk}{OP}"),
    _Rule("b1", 90, 90, _bits_by_and, "BMMA.{mnk}.AND.POPC"),
    _Rule("b1", 100, 121, _bits_by_int8, "IMMA.16832.U8.U8"),
)


def lowering(row: Row, arch: Arch) -> Lowering:
    """What the assembler makes of a row on an arch, and what that computes."""
    shape = "m{}n{}k{}".format(*row.shape)
    rule = next(
        rule
        for rule in _LOWERINGS
        if rule.arithmetic == row.arithmetic
        and rule.first <= arch.number <= rule.last
        and (not rule.shapes or shape in rule.shapes)
    )
    m, n, k = row.shape
    types = {name: operand.format.name.upper() for name, operand in row.operands.items()}
    rounding = row.modifiers.get("rounding", ".rn").upper()
    opcode = rule.opcode.format(
        mnk=f"{m}{n}{k}", half_mnk=f"{m}{n}{k // 2}", mxnxk=f"{m}x{n}x{k}",
        A=types["a"], B=types["b"], C=types["c"], D=types["d"],
        A8=types["a"].replace("4", "8"), B8=types["b"].replace("4", "8"),
        bf16=".BF16" if types["a"] == "BF16" else "",
        RN="" if rounding == ".RN" else rounding,
        SAT=".SAT" if "saturate" in row.modifiers else "",
        OP=row.modifiers.get("bits", "").upper(),
    )  # fmt: skip
    return rule.build(row, arch, opcode)


# --- evidence -------------------------------------------------------------------------------------------------------

_OURS = "NVIDIA H200, conformance/recordings/sm_90"
_TACO = "Khattak and Mikaitis, ACM TACO, doi 10.1145/3830409: recorded results of {}"
_MMA_SIM = "MMA-Sim, arXiv 2511.10909: a bit-accurate model its authors checked on about 10**6 random cases"
_SASS = "the machine code that ptxas emits (nvdisasm)"


@dataclass(frozen=True)
class _Known:
    """Evidence for rows of some arithmetic classes on some archs; the first match counts."""

    archs: tuple[str, ...]
    arithmetics: tuple[str, ...]  # empty: all
    evidence: Evidence


_EVIDENCE = (
    _Known(("sm_90",), (), Evidence("measured", _OURS)),
    _Known(("sm_70",), ("quad_pair",), Evidence("published", _TACO.format("V100"))),
    _Known(("sm_80",), ("half", "tf32"), Evidence("published", _TACO.format("A100"))),
    _Known(("sm_86",), ("half", "tf32"), Evidence("published", _TACO.format("A2"))),
    _Known(("sm_89",), ("half", "tf32", "fp8"), Evidence("published", _TACO.format("Ada and L40S"))),
    _Known(("sm_100",), ("half", "tf32", "fp8"), Evidence("published", _TACO.format("B200"))),
    _Known(("sm_75",), ("quad_pair", "half"), Evidence("literature", _MMA_SIM)),
    _Known(("sm_120",), ("half", "tf32", "fp8", "f6f4"), Evidence("literature", _MMA_SIM)),
    _Known(("sm_80", "sm_86", "sm_89", "sm_100", "sm_120"), ("f64",), Evidence("literature", _MMA_SIM)),
    _Known(("sm_75", "sm_80", "sm_86", "sm_89", "sm_100", "sm_120"), ("int8", "int4", "b1", "quad_pair"),
           Evidence("literature", _SASS)),
)  # fmt: skip


def evidence(row: Row, arch: Arch) -> Evidence:
    """How what `lowering` says is known."""
    for known in _EVIDENCE:
        if arch.name in known.archs and (not known.arithmetics or row.arithmetic in known.arithmetics):
            return known.evidence
    return Evidence("inferred", f"as {arch.relative}: nothing of {arch.name} itself was measured")


FAMILY = Family(NAME, rows, lowering, evidence, MatrixMultiply)
