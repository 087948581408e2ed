"""Order and waiting: membar, nanosleep, pmevent; how bar and barrier, which the catalog has, meet."""

from __future__ import annotations

from tcsim.isa.ordinary.table import Ordinary, effect, grammar, nothing
from tcsim.model.emit import Emitter, Line, Lines, machine
from tcsim.model.grammar import need, one, since, some
from tcsim.model.statement import Instruction, Register


def _barrier(emitter: Emitter, item: Instruction) -> Lines:
    """sync, arrive and red of a block; bar.warp.sync needs nothing more than lockstep."""
    words = [word for word in item.opcode.split(".")[1:] if word not in ("cta", "aligned")]
    if words[0] == "warp":
        mask = emitter.value(item.operands[0], "b32")
        return [machine(f"warp.sync({mask}, w, {emitter.following}, {emitter.constant(item)})", ends=True)]
    if words[0] == "cluster":
        if "arrive" in words:
            return [machine("bar.cluster_arrive(w)")]
        return [machine(f"bar.cluster_wait(w, {emitter.following}, {emitter.constant(item)})", ends=True)]
    reduces, operands = words[0] == "red", list(item.operands)
    to = operands.pop(0) if reduces else None
    number = emitter.value(operands.pop(0), "u32")
    predicate = emitter.value(operands.pop(), "pred") if reduces else "None"
    count = emitter.value(operands[0], "u32") if operands else "None"
    if words[0] == "arrive":
        return [machine(f"bar.arrive({number}, {count}, w)")]
    into = emitter.register(to) if isinstance(to, Register) else "None"
    kind = emitter.constant(words[1] if reduces else "sync")
    told = f"{kind}, {predicate}, {into}, {emitter.constant(item)}"
    return [machine(f"bar.barrier({number}, {count}, w, {emitter.following}, {told})", ends=True)]


def _waits(item: Instruction) -> bool:
    """Whether threads may wait: those that only arrive do not."""
    return "arrive" not in item.opcode.split(".")


def _fence(emitter: Emitter, item: Instruction) -> Lines:
    """Accesses happen in order here."""
    return [machine("tell.fenced(w)")] if emitter.watched else [Line("pass")]


def _sleep(emitter: Emitter, item: Instruction) -> Lines:
    """Nothing here takes time."""
    return [machine("B.sleeps = 256")]


ROWS = (
    Ordinary(stem="bar", emit=_barrier, instead=True, catalogued=True, waits=_waits),
    Ordinary(stem="barrier", emit=_barrier, instead=True, catalogued=True, waits=_waits),
    effect(
        stem="membar",
        grammar=grammar(
            one("cta gl sys proxy"),
            some("alias"),
            operands=(0,),
            rules=(need("alias", "proxy"), need("proxy", "alias")),
            since=(since("7.5", 60, "proxy"),),
            named="proxy",
        ),
        emit=_fence,
        cuts=True,
    ),
    effect(
        stem="nanosleep",
        grammar=grammar(one("u32"), operands=(1,), since=(since("6.2", 70, "u32"),)),
        emit=_sleep,
    ),
    effect(stem="pmevent", grammar=grammar(some("mask"), operands=(1,)), emit=nothing, cuts=True),
)
