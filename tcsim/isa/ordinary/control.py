"""Where threads go: bra, brx, ret, exit, trap, brkpt, and call, which the linker writes."""

from __future__ import annotations

from tcsim.isa.ordinary.table import effect, grammar
from tcsim.model.emit import Emitter, Line, Lines, machine
from tcsim.model.grammar import one, since, some
from tcsim.model.statement import Immediate, Instruction, Register, Symbol


def _go(emitter: Emitter, where: int) -> Lines:
    """To a block; the threads that a predicate leaves out go on."""
    if emitter.guard:
        return [machine(f"B.branch(w, {emitter.guard}, {where}, {emitter.following})", ends=True)]
    return [Line(str(where), ends=True)]


def _branch(emitter: Emitter, item: Instruction) -> Lines:
    if len(item.operands) != 1 or not isinstance(item.operands[0], Symbol):
        raise emitter.error("a branch goes to a label")
    return _go(emitter, emitter.label(item.operands[0].name))


def _indexed(emitter: Emitter, item: Instruction) -> Lines:
    """A branch to one of a list."""
    choice, table = (*item.operands, None, None)[:2]
    places = emitter.targets(table)
    if places is None or not isinstance(choice, (Register, Immediate)):
        raise emitter.error("brx.idx takes a register and a list of branch targets")
    asked = f"{emitter.guard or 'True'}, {emitter.value(choice, 'u32')}, {emitter.constant(places)}"
    return [machine(f"B.indexed(w, {asked}, {emitter.following})", ends=True)]


def _return(emitter: Emitter, item: Instruction) -> Lines:
    """Of an entry it ends the thread, as exit does."""
    return _go(emitter, emitter.home)


def _exit(emitter: Emitter, item: Instruction) -> Lines:
    return _go(emitter, -1)


def _trap(emitter: Emitter, item: Instruction) -> Lines:
    return [machine(f"B.trap({emitter.index}, w, {emitter.guard or 'True'}, {emitter.following})", ends=True)]


_UNIFORM = some("uni")
ROWS = (
    effect(stem="bra", grammar=grammar(_UNIFORM, operands=(1,)), emit=_branch, control="branch"),
    effect(
        stem="brx",
        grammar=grammar(one("idx"), _UNIFORM, operands=(2,), since=(since("5.1", 0, "idx"),), named="idx"),
        emit=_indexed,
        control="branch",
    ),
    effect(stem="call", grammar=grammar(_UNIFORM), control="call", polls=True, path="call", cuts=True),
    effect(stem="ret", grammar=grammar(_UNIFORM, operands=(0,)), emit=_return, control="leave", path="call"),
    effect(stem="exit", grammar=grammar(operands=(0,)), emit=_exit, control="leave"),
    effect(stem="trap", grammar=grammar(operands=(0,)), emit=_trap, control="trap"),
    effect(stem="brkpt", grammar=grammar(operands=(0,)), emit=_trap, control="break"),
)
