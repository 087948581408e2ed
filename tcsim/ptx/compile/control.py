"""How the compiler writes control flow: branches, calls and returns, and what ends threads."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from tcsim.core.errors import listing, nearest, shortened
from tcsim.ptx.compile.emit import Emitter
from tcsim.ptx.text.syntax import Group, Immediate, Instruction, Operand, Register, Sink, Symbol, Variable

Lines = list[str]
PROVIDED: Mapping[str, tuple[tuple[int, ...], int]] = MappingProxyType({
    "vprintf": ((8, 8), 4), "malloc": ((8,), 8), "free": ((8,), 0), "__assertfail": ((8, 8, 4, 8, 8), 0),
})  # fmt: skip
"""Functions of the driver, by name: the bytes of their arguments, and those of their results."""
_WORDS = {1: "b8", 2: "b16", 4: "b32", 8: "b64"}


def _branch(compiler: Emitter, item: Instruction, guard: str, index: int) -> Lines:
    if len(item.operands) != 1 or not isinstance(item.operands[0], Symbol):
        raise compiler.error("a branch goes to a label")
    where = compiler.block_of[_label(compiler, item.operands[0].name)]
    return [f"return B.branch(w, {guard}, {where}, {compiler.after(index + 1)})"] if guard else [f"return {where}"]


def _label(compiler: Emitter, name: str) -> int:
    found = compiler.function.labels.get(name)
    if found is None:
        close = listing(nearest(name, compiler.function.labels)) or "the function has none"
        raise compiler.error(f"no label {shortened(name)}; nearest: {close}")
    return found


def _indexed(compiler: Emitter, item: Instruction, guard: str, index: int) -> Lines:
    choice, table = (*item.operands, None, None)[:2]
    targets = compiler.function.targets.get(table.name) if isinstance(table, Symbol) else None
    if targets is None or not isinstance(choice, (Register, Immediate)):
        raise compiler.error("brx.idx takes a register and a list of branch targets")
    places = tuple(compiler.block_of[_label(compiler, name)] for name in targets)
    value = compiler.value(choice, "u32")
    return [
        f"return B.indexed(w, {guard or 'True'}, {value}, {compiler.constant(places)}, {compiler.after(index + 1)})"
    ]


def _leave(compiler: Emitter, item: Instruction, guard: str, index: int) -> Lines:
    """ret: of an entry it ends the thread, as exit does."""
    where = -1 if compiler.function.entry else compiler.block_of[len(compiler.function.body)]
    return [f"return B.branch(w, {guard}, {where}, {compiler.after(index + 1)})"] if guard else [f"return {where}"]


def _exit(compiler: Emitter, item: Instruction, guard: str, index: int) -> Lines:
    return [f"return B.branch(w, {guard}, -1, {compiler.after(index + 1)})"] if guard else ["return -1"]


def _trap(compiler: Emitter, item: Instruction, guard: str, index: int) -> Lines:
    return [f"return B.trap({index}, w, {guard or 'True'}, {compiler.after(index + 1)})"]


# --- calls


def _parts(item: Instruction) -> tuple[tuple[Operand, ...], Operand | None, tuple[Operand, ...], Operand | None]:
    """Results, function, arguments, and the prototype or list of targets of a call through a register."""
    operands = list(item.operands)
    results = operands.pop(0).items if operands and isinstance(operands[0], Group) else ()  # type: ignore[union-attr]
    function = operands.pop(0) if operands else None
    arguments = operands.pop(0).items if operands and isinstance(operands[0], Group) else ()  # type: ignore[union-attr]
    return results, function, arguments, operands[0] if operands else None


def returns_values(item: Instruction) -> bool:
    """Whether a call takes results."""
    return any(not isinstance(own, Sink) for own in _parts(item)[0])


Signature = tuple[tuple[Variable, ...], tuple[Variable, ...]]


def _signature(compiler: Emitter, function: Operand | None, prototype: Operand | None) -> tuple[str, Signature]:
    """The function that a call names, or "", and its results and parameters."""
    module, own = compiler.context.module, compiler.function
    if isinstance(function, Symbol):
        name = module.aliases.get(function.name, function.name)
        found = module.functions.get(name)
        if found is None or found.entry:
            raise compiler.error(
                f"no function {shortened(function.name)}; nearest: {listing(nearest(function.name, module.functions))}"
            )
        if not found.defined and name not in PROVIDED:
            raise compiler.error(
                f"{shortened(name)} is declared and not defined; of the driver's functions there are {listing(PROVIDED)}"
            )
        return name, (found.returns, found.params)
    if not isinstance(function, Register) or not isinstance(prototype, Symbol):
        raise compiler.error("a call names a function, or a register and a prototype")
    if prototype.name in own.prototypes:
        return "", own.prototypes[prototype.name]
    named = own.targets.get(prototype.name, ())
    first = module.functions.get(module.aliases.get(named[0], named[0])) if named else None
    if first is None:
        raise compiler.error(f"no prototype {shortened(prototype.name)}")
    return "", (first.returns, first.params)


def _places(variables: tuple[Variable, ...], start: int) -> list[int]:
    """Where arguments or results lie in local memory."""
    places, at = [], start
    for own in variables:
        at = -(-at // own.align) * own.align
        places.append(at)
        at += own.size
    return places


def room(variables: tuple[Variable, ...]) -> int:
    """The bytes that arguments or results need."""
    return _places(variables, 0)[-1] + variables[-1].size if variables else 0


def _everywhere(compiler: Emitter, place: int) -> str:
    return f"m_all({compiler.constant(np.uint64(place))})"


def _variable(compiler: Emitter, name: str) -> str:
    """The source of the address of a parameter in local memory."""
    place = compiler.constant(np.uint64(compiler.local[name]))
    return f"({compiler.base}+{place})" if compiler.framed else f"m_all({place})"


def _word(compiler: Emitter, variable: Variable) -> str:
    if variable.type == "pred" or variable.size not in _WORDS:
        raise compiler.error(f"{variable.size} bytes do not pass through a register here")
    return _WORDS[variable.size]


def _call(compiler: Emitter, item: Instruction, guard: str, index: int) -> Lines:
    results, function, arguments, prototype = _parts(item)
    name, (returned, params) = _signature(compiler, function, prototype)
    if (len(arguments), len(results)) != (len(params), len(returned)):
        raise compiler.error(
            f"{len(results)} results and {len(arguments)} arguments; valid: {len(returned)} results and {len(params)} arguments"
        )
    lines: Lines = [f"w_ = w; w = T.narrow(w, {guard})"] if guard else []
    places = _places(params, compiler.context.arguments)
    for operand, formal, place in zip(arguments, params, places, strict=True):
        to = _everywhere(compiler, place)
        if isinstance(operand, Symbol) and operand.name in compiler.local:
            _same_size(compiler, operand.name, formal)
            lines.append(f"mem.copy_local({to}, {_variable(compiler, operand.name)}, {formal.size}, w)")
        else:
            lines.append(
                f"mem.store('local', {to}, {compiler.value(operand, _word(compiler, formal))}, {formal.size}, w)"
            )
    after = compiler.after(index + 1)
    where = compiler.sites.get(index, after)
    if name in compiler.context.enters:
        action = f"calls.call(w, {compiler.context.enters[name]}, {where})"
    elif name:
        action = _native(compiler, name, (returned, params), places, where)
    else:
        assert isinstance(function, Register)
        action = f"calls.call_through(w, {compiler.register(function)}, {where})"
    return [*lines, f"return B.parted(w_, w, {after}, lambda w: {action})" if guard else f"return {action}"]


def _same_size(compiler: Emitter, name: str, formal: Variable) -> None:
    own = compiler.function.variables.get(name)
    size = (
        own.size if own is not None else next((p.size for p in compiler.function.params if p.name == name), formal.size)
    )
    if size != formal.size:
        raise compiler.error(f"{shortened(name)} has {size} bytes; valid: {formal.size}")


def _native(compiler: Emitter, name: str, signature: Signature, places: list[int], where: int) -> str:
    returned, params = signature
    sizes, result = PROVIDED[name]
    declared = tuple(own.size for own in params), sum(own.size for own in returned)
    if declared != (sizes, result):
        raise compiler.error(
            f"{name} is declared with {declared[0]} bytes of arguments and {declared[1]} of results; valid: {sizes} and {result}"
        )
    return f"calls.native(w, {compiler.constant(name)}, {compiler.constant(tuple(places))}, {compiler.context.results}, {where})"


def site(compiler: Emitter, item: Instruction, index: int) -> Lines:
    """Where a call comes back to: its results are taken."""
    results, function, _, prototype = _parts(item)
    _, (returned, _) = _signature(compiler, function, prototype)
    lines: Lines = []
    for operand, formal, place in zip(results, returned, _places(returned, compiler.context.results), strict=True):
        found = _everywhere(compiler, place)
        if isinstance(operand, Symbol) and operand.name in compiler.local:
            _same_size(compiler, operand.name, formal)
            lines.append(f"mem.copy_local({_variable(compiler, operand.name)}, {found}, {formal.size}, w)")
        elif isinstance(operand, Register):
            word = _word(compiler, formal)
            lines.append(compiler.put(operand, f"mem.load('local', {found}, {formal.size}, w)", word))
        elif not isinstance(operand, Sink):
            raise compiler.error("a result is a register or a parameter variable")
    return [*lines, f"return {compiler.after(index + 1)}"]


def _frame(compiler: Emitter) -> str:
    number = compiler.context.enters[compiler.function.name]
    own = (*compiler.numbers.values(), int(compiler.base[1:]))
    return f"{number}, {compiler.constant(own)}, {compiler.base}"


def begin(compiler: Emitter) -> Lines:
    """Where a function is entered: its frame, and its parameters."""
    lines: Lines = [f"stack.enter(w, {_frame(compiler)}, {compiler.frame_bytes})"] if compiler.framed else []
    params = compiler.function.params
    for own, place in zip(params, _places(params, compiler.context.arguments), strict=True):
        found = _everywhere(compiler, place)
        if own.space == "reg":
            word = _word(compiler, own)
            lines.append(compiler.put(Register(own.name), f"mem.load('local', {found}, {own.size}, w)", word))
        else:
            lines.append(f"mem.copy_local({_variable(compiler, own.name)}, {found}, {own.size}, w)")
    return [*lines, f"return {compiler.block_of[0]}"]


def end_of(compiler: Emitter) -> Lines:
    """Where a body ends: an entry's threads end too; a function hands over its results and returns."""
    if compiler.function.entry:
        return ["return -1"]
    lines: Lines = []
    returned = compiler.function.returns
    for own, place in zip(returned, _places(returned, compiler.context.results), strict=True):
        to = _everywhere(compiler, place)
        if own.space == "reg":
            lines.append(f"mem.store('local', {to}, {compiler.register(Register(own.name))}, {own.size}, w)")
        else:
            lines.append(f"mem.copy_local({to}, {_variable(compiler, own.name)}, {own.size}, w)")
    lines += [f"stack.leave(w, {_frame(compiler)})"] if compiler.framed else []
    return [*lines, "return calls.ret(w)"]


TERMINATORS: dict[str, Callable[[Any, Instruction, str, int], Lines]] = {
    "bra": _branch, "brx": _indexed, "ret": _leave, "exit": _exit, "trap": _trap, "brkpt": _trap, "call": _call,
}  # fmt: skip
"""By stem: the statements of an instruction that ends its basic block."""


# --- the stack


def _alloca(compiler: Emitter, item: Instruction) -> Lines:
    """Memory on the stack, as an address of local memory."""
    if len(item.operands) not in (2, 3):
        raise compiler.error("alloca takes a register, a size, and an alignment or none")
    align = item.operands[2] if len(item.operands) == 3 else Immediate(8)
    if not isinstance(align, Immediate) or align.value not in _ALIGNMENTS:
        raise compiler.error(f"an alignment; valid: {listing(_ALIGNMENTS)}")
    type = item.opcode.rpartition(".")[2]
    return [
        compiler.put(
            item.operands[0], f"stack.alloca({compiler.value(item.operands[1], type)}, {align.value}, w)", type
        )
    ]


def _stack_save(compiler: Emitter, item: Instruction) -> Lines:
    """The top of the stack."""
    if len(item.operands) != 1:
        raise compiler.error("stacksave takes a register")
    return [compiler.put(item.operands[0], "stack.top()", item.opcode.rpartition(".")[2])]


def _stack_restore(compiler: Emitter, item: Instruction) -> Lines:
    """The top of the stack as it was."""
    if len(item.operands) != 1:
        raise compiler.error("stackrestore takes a register")
    return [f"stack.restored({compiler.value(item.operands[0], item.opcode.rpartition('.')[2])}, w)"]


_ALIGNMENTS = (1, 2, 4, 8, 16, 32, 64, 128)
STACK: dict[str, Callable[[Any, Instruction], Lines]] = {
    "alloca": _alloca,
    "stacksave": _stack_save,
    "stackrestore": _stack_restore,
}
"""Instructions of the stack, by stem."""
