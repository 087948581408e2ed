"""How the compiler writes calls: arguments and results, which pass through two places in local memory, and where functions begin and end."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from tcsim.core.errors import listing, nearest, shortened
from tcsim.model.emit import Line, Lines, machine
from tcsim.model.statement import Group, Instruction, Operand, Register, Sink, Symbol
from tcsim.ptx.compile.compiled import offsets
from tcsim.ptx.compile.writer import Writer
from tcsim.ptx.text.syntax import Variable

PROVIDED: Mapping[str, tuple[tuple[int, ...], int]] = MappingProxyType({
    "vprintf": ((8, 8), 4), "malloc": ((8,), 8), "free": ((8,), 0), "__assertfail": ((8, 8, 4, 8, 8), 0),
})  # fmt: skip
"""Functions of the driver, by name: the bytes of their arguments, and those of their results."""
_WORDS = {1: "b8", 2: "b16", 4: "b32", 8: "b64"}


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


def _signature(writer: Writer, function: Operand | None, prototype: Operand | None) -> tuple[str, Signature]:
    """The function that a call names, or "", and its results and parameters."""
    module, own = writer.context.module, writer.function
    if isinstance(function, Symbol):
        name = module.aliases.get(function.name, function.name)
        found = module.functions.get(name)
        if found is None or found.entry:
            raise writer.error(
                f"no function {shortened(function.name)}; nearest: {listing(nearest(function.name, module.functions))}"
            )
        if not found.defined and name not in PROVIDED:
            raise writer.error(
                f"{shortened(name)} is declared and not defined; of the driver's functions there are {listing(PROVIDED)}"
            )
        return name, (found.returns, found.params)
    if not isinstance(function, Register) or not isinstance(prototype, Symbol):
        raise writer.error("a call names a function, or a register and a prototype")
    if prototype.name in own.prototypes:
        return "", own.prototypes[prototype.name]
    named = own.targets.get(prototype.name, ())
    first = module.functions.get(module.aliases.get(named[0], named[0])) if named else None
    if first is None:
        raise writer.error(f"no prototype {shortened(prototype.name)}")
    return "", (first.returns, first.params)


def _word(writer: Writer, variable: Variable) -> str:
    if variable.type == "pred" or variable.size not in _WORDS:
        raise writer.error(f"{variable.size} bytes do not pass through a register here")
    return _WORDS[variable.size]


def call(writer: Writer, item: Instruction) -> Lines:
    """The arguments, and where threads go."""
    results, function, arguments, prototype = _parts(item)
    name, (returned, params) = _signature(writer, function, prototype)
    if (len(arguments), len(results)) != (len(params), len(returned)):
        raise writer.error(
            f"{len(results)} results and {len(arguments)} arguments; valid: {len(returned)} results and {len(params)} arguments"
        )
    guard, context = writer.guard, writer.context
    lines = [machine(f"w_ = w; w = T.narrow(w, {guard})")] if guard else []
    places, _ = offsets(params, context.arguments)
    lines += [_given(writer, *each) for each in zip(arguments, params, places, strict=True)]
    where = writer.sites.get(writer.index, writer.following)
    if name in context.enters:
        action = f"calls.call(w, {context.enters[name]}, {where})"
    elif name:
        _check_provided(writer, name, (returned, params))
        asked = f"{writer.constant(name)}, {writer.constant(tuple(places))}"
        action = f"calls.native(w, {asked}, {context.results}, {where})"
    else:
        assert isinstance(function, Register)
        action = f"calls.call_through(w, {writer.register(function)}, {where})"
    if guard:
        action = f"B.parted(w_, w, {writer.following}, lambda w: {action})"
    return [*lines, machine(action, ends=True)]


def _given(writer: Writer, operand: Operand, formal: Variable, place: int) -> Line:
    """An operand, or what a variable has, on its way to a place in local memory."""
    to = writer.everywhere(place)
    if isinstance(operand, Symbol) and operand.name in writer.places.local:
        _check_size(writer, operand.name, formal)
        return machine(f"mem.copy_local({to}, {writer.variable(operand.name)}, {formal.size}, w)")
    return machine(f"mem.store('local', {to}, {writer.value(operand, _word(writer, formal))}, {formal.size}, w)")


def _taken(writer: Writer, operand: Operand, formal: Variable, place: int) -> Lines:
    """What lies at a place in local memory, on its way to a register or variable."""
    source = writer.everywhere(place)
    if isinstance(operand, Symbol) and operand.name in writer.places.local:
        _check_size(writer, operand.name, formal)
        return [machine(f"mem.copy_local({writer.variable(operand.name)}, {source}, {formal.size}, w)")]
    if isinstance(operand, Register):
        word = _word(writer, formal)
        return [writer.put(operand, f"mem.load('local', {source}, {formal.size}, w)", word, calls_machine=True)]
    if not isinstance(operand, Sink):
        raise writer.error("a result is a register or a parameter variable")
    return []


def _check_size(writer: Writer, name: str, formal: Variable) -> None:
    """Raise PtxError unless a variable is as large as what it is given for."""
    params = (own for own in writer.function.params if own.name == name)
    own = writer.function.variables.get(name) or next(params, formal)
    if own.size != formal.size:
        raise writer.error(f"{shortened(name)} has {own.size} bytes; valid: {formal.size}")


def _check_provided(writer: Writer, name: str, signature: Signature) -> None:
    """Raise PtxError unless a function of the driver is declared as it is."""
    returned, params = signature
    sizes, result = PROVIDED[name]
    declared = tuple(own.size for own in params), sum(own.size for own in returned)
    if declared != (sizes, result):
        raise writer.error(
            f"{name} is declared with {declared[0]} bytes of arguments and {declared[1]} of results; valid: {sizes} and {result}"
        )


def site(writer: Writer, item: Instruction, index: int) -> Lines:
    """Where a call comes back to: its results are taken."""
    results, function, _, prototype = _parts(item)
    _, (returned, _) = _signature(writer, function, prototype)
    places, _ = offsets(returned, writer.context.results)
    lines = [line for each in zip(results, returned, places, strict=True) for line in _taken(writer, *each)]
    return [*lines, Line(str(writer.after(index + 1)), ends=True)]


def _frame(writer: Writer) -> str:
    """The function, the registers that it saves, and where its frame begins."""
    saved = writer.constant((*writer.numbers.values(), writer.frame))
    return f"{writer.context.enters[writer.function.name]}, {saved}, {writer.array(writer.frame)}"


def begin(writer: Writer) -> Lines:
    """Where a function is entered: its frame, and its parameters."""
    own = writer.places
    lines = [machine(f"stack.enter(w, {_frame(writer)}, {own.frame_bytes})")] if own.framed else []
    params = writer.function.params
    places, _ = offsets(params, writer.context.arguments)
    for formal, place in zip(params, places, strict=True):
        lines += _taken(writer, _named(formal), formal, place)
    return [*lines, Line(str(writer.block_of[0]), ends=True)]


def end_of(writer: Writer) -> Lines:
    """Where a body ends: an entry's threads end too; a function hands over its results and returns."""
    if writer.function.entry:
        return [Line("-1", ends=True)]
    lines: Lines = []
    returned = writer.function.returns
    places, _ = offsets(returned, writer.context.results)
    for formal, place in zip(returned, places, strict=True):
        own = _named(formal)
        if isinstance(own, Register):
            to = writer.everywhere(place)
            lines.append(machine(f"mem.store('local', {to}, {writer.register(own)}, {formal.size}, w)"))
        else:
            lines.append(_given(writer, own, formal, place))
    lines += [machine(f"stack.leave(w, {_frame(writer)})")] if writer.places.framed else []
    return [*lines, machine("calls.ret(w)", ends=True)]


def _named(formal: Variable) -> Register | Symbol:
    """A parameter or result as the function's own instructions name it."""
    return Register(formal.name) if formal.space == "reg" else Symbol(formal.name)
