"""What matrix multiply-accumulate instructions compute on each arch, as steps.

Sources: docs/numerics.md (constants and their evidence); the SASS that ptxas emits (opcodes, emulations).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from tcsim.arithmetic.steps import Arithmetic, BitDot, DotAdd, IntegerAdd, IntegerDot, Lowering, Step, Widen
from tcsim.arithmetic.units import unit_for
from tcsim.core.evidence import Evidence
from tcsim.core.rules import in_force
from tcsim.core.targets import Arch
from tcsim.model.row import Row
from tcsim.numbers.rounding import Rounding


def native(row: Row, arch: Arch, opcode: str) -> Lowering:
    """The arch's own dot-add unit, over ascending k: of a sparse A, over the kept products."""
    a, d = row.operands["a"], row.operands["d"]
    return Lowering("native", unit_for(row.arithmetic, arch).steps(a.shape[1], d.format.name), ((opcode, 1),))


def native_quad_pair(row: Row, arch: Arch, opcode: str) -> Lowering:
    """Volta's m8n8k4: one step for each of the four matrices, issued as two or four HMMA."""
    steps = native(row, arch, opcode).steps
    parts = 2 if row.operands["d"].format.name == "f16" else 4
    return Lowering("native", steps, tuple((f"{opcode}.STEP{part}", 1) for part in range(parts)))


def widened_to_f16(row: Row, arch: Arch, opcode: str) -> Lowering:
    """fp8 as two f16 dot-adds over interleaved halves of k from a zero accumulator, then an ordinary add of c."""
    output, k = row.operands["d"].format.name, range(row.operands["a"].shape[1])
    path = unit_for("half", arch).datapath(output)
    first, second = (tuple(i for i in k if i % 4 in half) for half in ((0, 1), (2, 3)))
    steps = (
        Widen("f16"),
        DotAdd(first, "+0", path, "acc"),
        DotAdd(second, "acc", path, "acc"),
        Arithmetic("add", "d", ("acc", "c"), output),
    )
    adds = (("HADD2", 2),) if output == "f16" else (("FADD", 4),)
    note = "no fp8 mma.sync in this generation's tensor core"
    return Lowering("emulated", steps, ((opcode, 2), *adds), note, "ptxas 12.9 to 13.5")


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
    """f64 shapes where the tensor core has 8x8x4 only."""
    parts = row.shape[0] // 8 * (row.shape[2] // 4)
    return Lowering("split" if parts > 1 else "native", fma_chain(row, arch, opcode).steps, ((opcode, parts),))


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
    """What an arithmetic class becomes from an arch on, until a later rule for the same class."""

    arithmetic: str
    first: int  # number of the earliest arch
    build: Callable[[Row, Arch, str], Lowering]
    opcode: str  # SASS, with the fields that `lower` fills in; measured with nvdisasm
    shapes: tuple[tuple[int, int, int], ...] = ()  # only these shapes; empty: all


def lower(rules: tuple[Rule, ...], row: Row, arch: Arch, **fields: str) -> Lowering:
    """What the assembler makes of a row on an arch, and what that computes. `fields`: of the opcode, beyond those of all rows."""
    rule = in_force(
        (rule for rule in rules if rule.arithmetic == row.arithmetic and row.shape in (rule.shapes or (row.shape,))),
        arch,
    )
    m, n, k = row.shape
    operands = (*row.operands.values(), *row.forms[0].operands)
    types = {operand.name: operand.format.name.upper() for operand in operands if operand.format}
    rounding = row.modifiers.get("rounding", ".rn").upper()
    opcode = rule.opcode.format(
        mnk=f"{m}{n}{k}", half_mnk=f"{m}{n}{k // 2}", mxnxk=f"{m}x{n}x{k}",
        A=types["a"], B=types["b"], C=types["c"], D=types["d"],
        A8=types["a"].replace("4", "8"), B8=types["b"].replace("4", "8"),
        bf16=".BF16" if types["a"] == "BF16" else "",
        RN="" if rounding == ".RN" else rounding,
        SAT=".SAT" if "saturate" in row.modifiers else "",
        OP=row.modifiers.get("bits", "").upper(),
        **fields,
    )  # fmt: skip
    return rule.build(row, arch, opcode)


def as_relative(arch: Arch) -> Evidence:
    """The evidence on an arch of which nothing was measured: it does what its relative does."""
    return Evidence("inferred", f"as {arch.relative}: nothing of {arch.name} itself was measured")
