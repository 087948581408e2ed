"""Which forms of an instruction of the catalog operands fit, and whether a named variable lies in the state space of an access."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tcsim.model.form import Form
from tcsim.model.operand import Operand as Slot
from tcsim.ptx.grammar import SPACES
from tcsim.ptx.syntax import (
    Address,
    Function,
    Immediate,
    Instruction,
    Module,
    Negated,
    Operand,
    Pair,
    Register,
    Sink,
    Symbol,
    Tensor,
    Vector,
)

ACCESSES = ("ld", "st", "atom", "red")
"""The instructions whose state space must be that of the variable that they name."""


def fitting(forms: Iterable[Form], operands: Sequence[Operand]) -> list[Form]:
    """The forms that operands fit, the plainest first."""
    flat = apart(operands)
    return [form for form in forms if _fits(form, flat)]


def apart(operands: Iterable[Operand]) -> list[tuple[Operand, bool]]:
    """Operands one by one, and whether each stands behind a "|"."""
    flat: list[tuple[Operand, bool]] = []
    for operand in operands:
        flat += [(operand.first, False), (operand.second, True)] if isinstance(operand, Pair) else [(operand, False)]
    return flat


def _fits(form: Form, operands: Sequence[tuple[Operand, bool]]) -> bool:
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


def misplaced(item: Instruction, function: Function, module: Module) -> str:
    """What is wrong with the state space of an access and the variable that it names; "" if nothing is."""
    stem, *words = item.opcode.split(".")
    address = next((own for own in item.operands if isinstance(own, Address)), None)
    if address is None or stem not in ACCESSES:
        return ""
    space = next((word for word in words if word in SPACES), "")
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
        if (stem == "st" and name in inputs) or (stem == "ld" and name in results):
            return f"{name} is {'a parameter, which is read' if stem == 'st' else 'a result, which is written'}"
    elif variable is None:
        return ""
    else:
        declared = variable.space
    if space == "param::entry" and passed is not None:
        return f"{name} is not a parameter of a kernel"
    if space.partition("::")[0] != declared and (space or declared == "param"):
        return (
            f"{name} lies in .{declared}, not in .{space}"
            if space
            else f"{name} lies in .{declared}; valid: {stem}.{declared}"
        )
    return ""
