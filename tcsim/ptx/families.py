"""Instructions of the catalog in a program: bound to the form that their operands fit, and run through their effects."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tcsim import catalog
from tcsim.core.errors import InstructionError
from tcsim.model.form import Form
from tcsim.model.instruction import Instruction as Model
from tcsim.model.operand import Operand as Slot
from tcsim.ptx.convergence import LANES_OF, waits
from tcsim.ptx.program import Compiler
from tcsim.ptx.syntax import (
    Address,
    Immediate,
    Instruction,
    Negated,
    Operand,
    Pair,
    Register,
    Sink,
    Symbol,
    Tensor,
    Vector,
)

WORDS = {".b8": 1, ".b16": 1, ".f16": 1, ".b32": 1, ".f32": 1, ".s32": 1, ".u32": 1, ".b64": 2, ".f64": 2, ".u64": 2}


@dataclass(frozen=True, eq=False)
class Bound:
    """An instruction, the form that it is written in, and where its results go."""

    model: Model
    form: Form
    results: tuple[tuple[str, tuple[int, ...], str], ...]  # (operand, registers, type)
    lanes: int  # that execute together: 32, 128, or each thread by itself
    line: int


def bind(compiler: Compiler, item: Instruction, arch: str) -> list[str]:
    """The source line that runs an instruction of the catalog."""
    try:
        model = catalog.instruction(item.opcode, arch)
    except InstructionError as error:
        raise compiler.error(str(error)) from None
    flat: list[tuple[Operand, bool]] = []
    for operand in item.operands:
        if isinstance(operand, Pair):
            flat += [(operand.first, False), (operand.second, True)]
        else:
            flat.append((operand, False))
    for form in model.row.forms:
        if _fits(form, flat):
            return [_line(compiler, item, model, form, [operand for operand, _ in flat])]
    valid = " or ".join(form.statement(item.opcode) for form in model.row.forms[:3])
    raise compiler.error(f"no form takes these operands; valid: {valid}")


def _fits(form: Form, operands: list[tuple[Operand, bool]]) -> bool:
    slots = form.operands
    if len(operands) > len(slots) or any(not slot.optional for slot in slots[len(operands) :]):
        return False
    return all(
        _suits(slot, operand) and slot.joined == joined
        for slot, (operand, joined) in zip(slots, operands, strict=False)
    )


def _suits(slot: Slot, operand: Operand) -> bool:
    if slot.kind == "vector":
        return (isinstance(operand, Vector) and len(operand.items) == slot.count) or (
            slot.count == 1 and isinstance(operand, Register)
        )
    if slot.kind == "register":
        alone = isinstance(operand, Vector) and len(operand.items) == 1
        return (
            alone
            or isinstance(operand, (Register, Immediate, Symbol))
            or (slot.role != "source" and isinstance(operand, Sink))
        )
    if slot.kind == "address":
        return isinstance(operand, Address)
    if slot.kind == "tensor":
        return isinstance(operand, Tensor) and len(operand.coordinates) == slot.count
    if slot.kind == "immediate":
        return isinstance(operand, Immediate) and (
            not slot.values or operand.value in slot.values or (len(slot.values) == 1 and slot.name == "groups")
        )
    if slot.kind == "predicate":
        return isinstance(operand, (Register, Negated, Immediate))
    return isinstance(operand, Sink)


def _line(compiler: Compiler, item: Instruction, model: Model, form: Form, operands: list[Operand]) -> str:
    given, results = [], []
    for slot, operand in zip(form.operands, operands, strict=False):
        if slot.kind == "sink":
            continue
        type = slot.type.removeprefix(".")
        if slot.role != "source" and slot.kind in ("vector", "register", "predicate"):
            registers = operand.items if isinstance(operand, Vector) else (operand,)
            numbers = tuple(compiler.numbers[own.name] if isinstance(own, Register) else -1 for own in registers)
            results.append((slot.name, numbers, type))
            if slot.role == "destination":
                continue
        given.append(f"{compiler.constant(slot.name)}: {_source(compiler, slot, operand, type)}")
    bound = Bound(model, form, tuple(results), LANES_OF.get(form.together, 1), item.line)
    call = f"{compiler.constant(bound)}, {{{', '.join(given)}}}, w"
    if waits(item):
        here, after = compiler.block_of[compiler.index], compiler._next(compiler.index + 1)
        return f"return M.attempt({call}, {here}, {after})"
    return f"M.perform({call})"


def _source(compiler: Compiler, slot: Slot, operand: Operand, type: str) -> str:
    if isinstance(operand, Vector):
        return "(" + ", ".join(compiler.value(own, type) for own in operand.items) + ",)"
    if slot.kind == "vector":
        return f"({compiler.value(operand, type)},)"
    if slot.kind == "address":
        return compiler.place(
            operand, slot.space.split("::")[0] if slot.space not in ("generic", "shared::cluster") else ""
        )[0]
    if slot.kind == "tensor":
        assert isinstance(operand, Tensor)
        base = compiler.place(Address(operand.base), "")[0]
        return "(" + ", ".join([base, *(compiler.value(own, "b32") for own in operand.coordinates)]) + ",)"
    if slot.kind == "immediate":
        assert isinstance(operand, Immediate)
        return compiler.constant(operand.value)
    if slot.kind == "predicate":
        return compiler.value(operand, "pred")
    return compiler.value(operand, type)


def gathered(bound: Bound, slot: Slot, value: Any, threads: int, taken: Any) -> dict[str, Any]:
    """An operand as effects take it: of warps (warps, 32[, registers]), of threads (threads[, registers]).

    A tensor is its map's address and, by a name of their own, its coordinates.
    """
    lead = (-1, bound.lanes) if bound.lanes > 1 else (-1,)
    if slot.kind == "immediate":
        return {slot.name: np.asarray(value)}
    if slot.kind == "vector":
        return {slot.name: _stacked(value, threads, taken, lead, slot.layout is not None)}
    if slot.kind == "tensor":
        base = np.broadcast_to(value[0], (threads,))[taken].astype(np.int64)
        return {slot.name: base.reshape(lead), "coordinates": _stacked(value[1:], threads, taken, lead, False)}
    full = np.broadcast_to(value, (threads,))[taken]
    if slot.kind == "address":
        full = full.astype(np.int64)
    return {slot.name: full.reshape(lead)}


def _stacked(parts: Any, threads: int, taken: Any, lead: tuple[int, ...], fragment: bool) -> Any:
    stacked = np.stack([np.broadcast_to(part, (threads,))[taken] for part in parts], axis=-1)
    if stacked.dtype == np.uint64 and fragment:
        stacked = stacked.view(np.uint32)  # a 64-bit register is two words
    return stacked.reshape(*lead, stacked.shape[-1])
