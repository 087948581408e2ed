"""Which forms of an instruction of the catalog operands fit, and whether a named variable lies in the state space of an access."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from tcsim.isa.ordinary.catalog import of_stem
from tcsim.isa.ordinary.table import space_in
from tcsim.isa.scalar.table import CONTAINERS
from tcsim.model.form import Form
from tcsim.model.operand import Operand as Slot
from tcsim.model.statement import Address, Immediate, Negated, Operand, Pair, Register, Sink, Symbol, Tensor, Vector
from tcsim.ptx.text.syntax import Function, Instruction, Module

Registers = Mapping[str, tuple[str, int]]
"""The registers of a function by name: their type, and the length of a vector."""


def fitting(forms: Iterable[Form], operands: Sequence[Operand], registers: Registers) -> list[Form]:
    """The forms that operands fit, the plainest first; of several those whose registers are as wide as they say."""
    flat = apart(operands)
    found = [form for form in forms if _fits(form, flat, registers)]
    if len(found) < 2:
        return found
    unlike = [_unlike(form, flat, registers) for form in found]
    return [form for form, own in zip(found, unlike, strict=True) if own == min(unlike)]


def apart(operands: Iterable[Operand]) -> list[tuple[Operand, bool]]:
    """Operands one by one, and whether each stands behind a "|"."""
    flat: list[tuple[Operand, bool]] = []
    for operand in operands:
        flat += [(operand.first, False), (operand.second, True)] if isinstance(operand, Pair) else [(operand, False)]
    return flat


def _fits(form: Form, operands: Sequence[tuple[Operand, bool]], registers: Registers) -> bool:
    slots = form.operands
    if len(operands) > len(slots) or any(not slot.optional for slot in slots[len(operands) :]):
        return False
    pairs = zip(slots, operands, strict=False)
    return all(_suits(slot, own, registers) and slot.joined == joined for slot, (own, joined) in pairs)


def _suits(slot: Slot, operand: Operand, registers: Registers) -> bool:
    if isinstance(operand, Register) and slot.kind in ("register", "predicate"):
        return (registers.get(operand.name, ("",))[0] == "pred") == (slot.kind == "predicate")
    return (slot.kind, type(operand)) in _SUITS and _SUITS[slot.kind, type(operand)](slot, operand)


_SUITS: dict[tuple[str, type], Callable[[Slot, Any], bool]] = {
    ("vector", Vector): lambda slot, own: len(own.items) == slot.count,
    ("vector", Register): lambda slot, own: slot.count == 1,
    ("register", Vector): lambda slot, own: len(own.items) == 1,
    ("register", Immediate): lambda slot, own: True,
    ("register", Symbol): lambda slot, own: True,
    ("register", Sink): lambda slot, own: slot.role != "source",
    ("address", Address): lambda slot, own: True,
    ("tensor", Tensor): lambda slot, own: len(own.coordinates) == slot.count,
    ("immediate", Immediate): lambda slot, own: (
        not slot.values or own.value in slot.values or (slot.name == "groups" and len(slot.values) == 1)
    ),
    ("predicate", Negated): lambda slot, own: True,
    ("predicate", Immediate): lambda slot, own: True,
    ("sink", Sink): lambda slot, own: True,
}
"""Which operands suit a slot, by the slot's kind and what the operand is; whether a register is a predicate is asked before."""


def _unlike(form: Form, operands: Sequence[tuple[Operand, bool]], registers: Registers) -> int:
    """How many registers are of another width than a form's operands."""
    pairs = [(slot, own) for slot, (own, _) in zip(form.operands, operands, strict=False) if slot.kind == "register"]
    types = [(slot.type.removeprefix("."), registers[own.name][0]) for slot, own in pairs if isinstance(own, Register)]
    return sum(CONTAINERS[one].itemsize != CONTAINERS[other].itemsize for one, other in types)


def misplaced(item: Instruction, function: Function, module: Module) -> str:
    """What is wrong with the state space of an access and the variable that it names; "" if nothing is."""
    address, row = next((own for own in item.operands if isinstance(own, Address)), None), of_stem(item.opcode)
    if address is None or row is None or not row.declared:
        return ""
    space = space_in(item.opcode)
    passed = function.variables.get(address.base.name) if isinstance(address.base, Symbol) else None
    if space == "param::func" and function.entry and (passed is None or passed.space != "param"):
        return ".param::func in an entry; valid: a parameter of a call, by its name"
    if not isinstance(address.base, Symbol):
        return ""
    name = address.base.name
    inputs, results = ({own.name for own in group} for group in (function.params, function.returns))
    variable = passed or module.variables.get(name)
    if passed is None and name in inputs | results:
        declared = "param"
        if row.path == "store" and name in inputs:
            return f"{name} is a parameter, which is read"
        if row.path == "load" and name in results:
            return f"{name} is a result, which is written"
    elif variable is None:
        return ""
    else:
        declared = variable.space
    if space == "param::entry" and passed is not None:
        return f"{name} is not a parameter of a kernel"
    if space.partition("::")[0] != declared and (space or declared == "param"):
        return f"{name} lies in .{declared}" + (f", not in .{space}" if space else f"; valid: {row.stem}.{declared}")
    return ""
