"""What matrix multiply-accumulate instructions compute on each arch, as steps.

Sources: docs/numerics.md (constants and their evidence); the SASS that ptxas emits (opcodes, emulations).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from tcsim.arithmetic.dot import Datapath
from tcsim.arithmetic.steps import Arithmetic, BitDot, DotAdd, IntegerAdd, IntegerDot, Lowering, Step, Widen
from tcsim.core.targets import Arch
from tcsim.model.row import Row
from tcsim.numbers.formats import Format
from tcsim.numbers.rounding import Rounding


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
    # wgmma's own fp8 unit: all 32 products in one step, the sum cut to 14 significant bits
    Unit(("sm_90",), ("fp8_wgmma",), None, 13, -133, -21, "e8m13"),
    Unit(("sm_120", "sm_121"), ("fp8", "f6f4"), None, 25, -133, -21),
)


def unit_for(arithmetic: str, arch: Arch) -> Unit:
    """The row of `UNITS` for a class of inputs on an arch."""
    return next(unit for unit in UNITS if arch.name in unit.archs and arithmetic in unit.arithmetics)


def datapath(unit: Unit, output: str) -> Datapath:
    """The dot-add unit as it writes an f16 or an f32 result."""
    if output == "f16":
        return Datapath(unit.fraction_bits, unit.floor_f16, "f16", "rne")
    return Datapath(unit.fraction_bits, unit.floor_f32, unit.f32_output, "rz")


def chain(unit: Unit, k: tuple[int, ...], output: str) -> tuple[Step, ...]:
    """Dot-adds over ascending k: each step's rounded result is the next one's addend."""
    length = unit.length or len(k)
    blocks = [k[start : start + length] for start in range(0, len(k), length)]
    last = len(blocks) - 1
    return tuple(
        DotAdd(block, "acc" if index else "c", datapath(unit, output), "d" if index == last else "acc")
        for index, block in enumerate(blocks)
    )


def native(row: Row, arch: Arch, opcode: str) -> Lowering:
    """The arch's own dot-add unit, over ascending k."""
    steps = chain(
        unit_for(row.arithmetic, arch), tuple(range(row.operands["a"].shape[1])), row.operands["d"].format.name
    )
    return Lowering("native", steps, ((opcode, 1),))


def native_quad_pair(row: Row, arch: Arch, opcode: str) -> Lowering:
    """Volta's m8n8k4: one step for each of the four matrices, issued as two or four HMMA."""
    steps = native(row, arch, opcode).steps
    parts = 2 if row.operands["d"].format.name == "f16" else 4
    return Lowering("native", steps, tuple((f"{opcode}.STEP{part}", 1) for part in range(parts)))


def widened_to_f16(row: Row, arch: Arch, opcode: str) -> Lowering:
    """fp8 as two f16 dot-adds over interleaved halves of k from a zero accumulator, then an ordinary add of c."""
    unit, output, k = unit_for("half", arch), row.operands["d"].format.name, range(row.operands["a"].shape[1])
    first, second = (tuple(i for i in k if i % 4 in half) for half in ((0, 1), (2, 3)))
    steps = (
        Widen("f16"),
        DotAdd(first, "+0", datapath(unit, output), "acc"),
        DotAdd(second, "acc", datapath(unit, output), "acc"),
        Arithmetic("add", "d", ("acc", "c"), output),
    )
    adds = (("HADD2", 2),) if output == "f16" else (("FADD", 4),)
    return Lowering("emulated", steps, ((opcode, 2), *adds), "no fp8 mma.sync in this generation's tensor core")


def cuda_cores(row: Row, arch: Arch, opcode: str) -> Lowering:
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


def fma_chain(row: Row, arch: Arch, opcode: str) -> Lowering:
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
            F64_NAN_ORDER,
        )
        for k in range(row.shape[2])
    )
    return Lowering("native", steps, ((opcode, 1),))


F64_NAN_ORDER = "bca"
"""DMMA passes a NaN of b on, else of c, else of a, quietened: 4,358 NaN results on an H200, no other order fits."""

_F64_MODES: dict[str, Rounding] = {".rn": "rne", ".rz": "rz", ".rm": "rm", ".rp": "rp"}


def split_f64(row: Row, arch: Arch, opcode: str) -> Lowering:
    """m16 f64 shapes where the tensor core has 8x8x4 only."""
    parts = row.shape[0] // 8 * (row.shape[2] // 4)
    return Lowering("split", fma_chain(row, arch, opcode).steps, ((opcode, parts),))


def integer(row: Row, arch: Arch, opcode: str) -> Lowering:
    """Integer dot products: exact, then wrapped or clamped once."""
    return Lowering("native", (IntegerDot("c", "saturate" in row.modifiers, "d"),), ((opcode, 1),))


def widened_to_int8(row: Row, arch: Arch, opcode: str) -> Lowering:
    """int4 as two int8 dot products from a zero accumulator, then one add of c (clamping if asked)."""
    steps = (IntegerDot("+0", False, "acc"), IntegerAdd("saturate" in row.modifiers, "d"))
    return Lowering("emulated", steps, ((opcode, 2),), "no int4 in this generation's tensor core")


def bits(row: Row, arch: Arch, opcode: str) -> Lowering:
    """b1 on the tensor core."""
    op: Literal["xor", "and"] = "xor" if "xor" in row.modifiers["bits"] else "and"
    return Lowering("native", (BitDot(op),), ((opcode, 1),))


def bits_by_and(row: Row, arch: Arch, opcode: str) -> Lowering:
    """b1 on Hopper: XOR as two ANDs with complements; the same value."""
    native = bits(row, arch, opcode)
    return Lowering("emulated", native.steps, ((opcode, 2),)) if "xor" in row.modifiers["bits"] else native


def bits_by_int8(row: Row, arch: Arch, opcode: str) -> Lowering:
    """b1 on Blackwell: bits unpacked to bytes; the same value."""
    return Lowering("emulated", bits(row, arch, opcode).steps, ((opcode, row.shape[2] // 32),))


@dataclass(frozen=True)
class Rule:
    """What an arithmetic class becomes on a range of archs."""

    arithmetic: str
    first: int  # arch numbers, inclusive
    last: int
    build: Callable[[Row, Arch, str], Lowering]
    opcode: str  # SASS, with fields {mnk} {d} {a} {b} {A} {B} {sat} {op} {rounding}; measured with nvdisasm
    shapes: tuple[str, ...] = ()  # only these shapes; empty: all


def lower(rules: tuple[Rule, ...], row: Row, arch: Arch, b: Format | None = None) -> Lowering:
    """What the assembler makes of a row on an arch, and what that computes: the first rule that fits.

    `b` is the format of a B that is no register operand.
    """
    shape = "m{}n{}k{}".format(*row.shape)
    rule = next(
        rule
        for rule in rules
        if rule.arithmetic == row.arithmetic
        and rule.first <= arch.number <= rule.last
        and (not rule.shapes or shape in rule.shapes)
    )
    m, n, k = row.shape
    types = {name: operand.format.name.upper() for name, operand in row.operands.items()}
    types.setdefault("b", b.name.upper() if b else "")
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
