"""Everything the registry says of one instruction on one arch, as data: what `tcsim show` shows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from tcsim import catalog
from tcsim.inspection.formulas import formulas_of
from tcsim.inspection.listing import formats_of, target_text
from tcsim.inspection.step_text import steps_text
from tcsim.layouts.layout import FragmentLayout
from tcsim.model.instruction import Instruction
from tcsim.model.operand import Fragment


@dataclass(frozen=True)
class OperandDescription:
    """One fragment: who holds what."""

    name: str
    format: str
    rows: int
    columns: int
    matrices: int
    copies: int
    lanes: int
    registers: int  # of one lane, in 32-bit words
    ptx_registers: int
    register_type: str
    layout: str  # CuTe
    index: str  # what the layout's result means: "m + 16*k"
    formulas: tuple[str, ...]


@dataclass(frozen=True)
class Description:
    """What `describe` answers."""

    mnemonic: str
    arch: str
    family: str
    shape: tuple[int, int, int]  # M and N are 0 where the instruction descriptor says them
    types: dict[str, str]
    targets: tuple[str, ...]  # that accept the spelling, on every arch
    targets_here: tuple[str, ...]  # of this arch
    ptx_version: str
    documented: bool
    constraints: tuple[str, ...]
    execution: tuple[str, ...]
    operands: tuple[OperandDescription, ...]
    registers: dict[str, str]  # operands of instructions without fragments: name -> what the register holds
    lowering_kind: str
    machine_code: dict[str, int]
    note: str
    steps: tuple[str, ...]
    evidence_level: str
    evidence_source: str
    ptx: str | None

    def as_dict(self) -> dict[str, Any]:
        """The keys of JSON."""
        return {**asdict(self), "operands": [asdict(operand) for operand in self.operands]}


def describe(instruction: Instruction) -> Description:
    """Collect what is known of an instruction.

    >>> mma = tcsim.instruction("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", arch="sm_90")
    >>> describe(mma).steps
    ('d = dot-add of k 0-15 and c (F = 25, floor -133) to f32 RZ',)
    """
    row, lowering = instruction.row, instruction.lowering
    needs = f"{target_text(row.targets)}; PTX ISA {row.ptx_version} or later"
    unlisted = [] if row.documented else ["not in the PTX manual's grammar, but ptxas assembles it"]
    return Description(
        row.mnemonic,
        instruction.arch.name,
        row.family,
        row.shape,
        formats_of(row),
        row.targets,
        instruction.targets,
        row.ptx_version,
        row.documented,
        (needs, *unlisted, *instruction.rules),
        _execution(instruction),
        tuple(_operand(operand) for operand in instruction.operands.values()),
        _plain_registers(instruction),
        lowering.kind,
        dict(lowering.opcodes),
        lowering.note,
        steps_text(lowering.steps, catalog.family(row.family).without_steps),
        instruction.evidence.level,
        instruction.evidence.source,
        row.forms[0].statement(row.mnemonic),
    )


def _operand(operand: Fragment) -> OperandDescription:
    layout = operand.layout
    return OperandDescription(
        operand.name, operand.format.name, layout.rows, layout.columns, layout.matrices, layout.copies, operand.lanes,
        operand.registers, operand.count, operand.type, str(layout), _index(operand.name, layout),
        tuple(map(str, formulas_of(operand).values())),
    )  # fmt: skip


def _index(name: str, layout: FragmentLayout) -> str:
    second = {"a": "k", "b": "k"}.get(name, "n")
    first, extent = ("n", layout.columns) if layout.column_fastest else ("m", layout.rows)
    own = {"a": "M x K", "b": "N x K"}.get(name, "M x N")
    return f"{first} + {extent}*{second} ({own} in CuTe's order)"


def _plain_registers(instruction: Instruction) -> dict[str, str]:
    registers = getattr(instruction, "registers", None)
    if not isinstance(registers, Mapping):  # where there are fragments it is a method
        return {}
    return {
        name: f"{register.type}, {register.elements} x {register.format.name}"
        + (f", {register.field_bits} bits apart" if register.elements > 1 else "")
        for name, register in registers.items()
    }


_WHO = {32: "one warp: its 32 lanes together", 128: "one warpgroup: four warps, 128 lanes together"}


def _execution(instruction: Instruction) -> tuple[str, ...]:
    if instruction.executed_by:
        return instruction.executed_by
    lines = [_WHO.get(n, f"{n} lanes together") for n in sorted({o.lanes for o in instruction.operands.values()})]
    if not lines and "aligned" not in instruction.mnemonic.split("."):
        lines.append("every thread by itself")
    aligned = "aligned" in instruction.mnemonic.split(".")
    if not lines:
        lines.append(_WHO[32] if aligned else "one thread executes it")
    if aligned:
        lines.append(".aligned: all of them execute the same instruction")
    return tuple(lines)
