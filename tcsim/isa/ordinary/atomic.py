"""Atomics and reductions of registers: atom, red. What they compute: `tcsim.isa.scalar.atomic`."""

from __future__ import annotations

from functools import cache

from tcsim.core.errors import listing, nearest
from tcsim.isa.ordinary.table import (
    HINT,
    SCOPE,
    SCOPES,
    SHARED,
    UNSIGNED,
    VECTOR,
    Ordinary,
    effect,
    grammar,
    put_whole,
    space_in,
    wanted,
    whole,
)
from tcsim.isa.scalar.atomic import COMMUTING, Atomic, atomics
from tcsim.model.emit import Emitter, Lines, machine
from tcsim.model.grammar import Slot, apart, one, since, some, words_of
from tcsim.model.statement import TYPE_BYTES, Instruction, Sink, Vector

_OPERATIONS = one("add min max and or xor exch cas inc dec")
_TYPES = one("b16 b32 b64 b128 u32 u64 s32 s64 f16 f16x2 bf16 bf16x2 f32 f64")
_CHOOSING = _OPERATIONS.words | _TYPES.words | VECTOR.words | {"noftz"}
"""Modifiers that choose the row: not order, scope, state space and cache."""


@cache
def _by_words() -> dict[frozenset[str], Atomic]:
    return {frozenset(item.mnemonic.split(".")): item for item in atomics().values()}


def atomic(opcode: str) -> Atomic | None:
    """The row of an atomic or reduction: order, scope, state space and cache do not choose it."""
    stem, *words = opcode.split(".")
    found = _by_words().get(_CHOOSING & frozenset(words))
    return None if found is None or (found.returns_only and stem == "red") else found


def _refusal(spelling: tuple[str, ...]) -> str:
    """That there is no such operation, and which is nearest."""
    if atomic(".".join(spelling)) is not None:
        return ""
    stem, *words = spelling
    choices = [name for name, own in atomics().items() if stem == "atom" or not own.returns_only]
    asked = ".".join(word for word in words if word in _CHOOSING)
    return f"no operation {asked}; nearest: {listing(nearest(asked, choices))}"


def _emit(emitter: Emitter, item: Instruction) -> Lines:
    """Threads in the order of their numbers."""
    stem = item.opcode.partition(".")[0]
    space, own = space_in(item.opcode), atomic(item.opcode)
    if own is None:
        raise emitter.error("no such operation")
    emitter.narrow(space, TYPE_BYTES[own.type] * own.count)
    operands = list(item.operands)
    to = operands.pop(0) if stem == "atom" else Sink()
    address, space = emitter.place(operands[0], space)
    if space not in own.spaces:
        valid = ", ".join(filter(None, own.spaces))
        raise emitter.error(f"{stem} has no .{own.mnemonic} in this state space; valid: {valid}")
    parts = UNSIGNED[TYPE_BYTES[own.type]]
    given = operands[1 : 1 + own.operands]
    if own.count > 1:
        (vector,) = given
        if not isinstance(vector, Vector) or not isinstance(to, (Vector, Sink)) or len(vector.items) != own.count:
            raise emitter.error(f"a vector of {own.count} registers is given")
        sources = ", ".join(f"({emitter.value(one, parts)},)" for one in vector.items)
    else:
        wide = own.type == "b128"
        codes = (whole(emitter, one, parts) if wide else emitter.value(one, parts) for one in given)
        sources = f"({', '.join(codes)},)"
    needed, told = emitter.needed(to), emitter.is_read(to)
    emitter.tells_order |= not own.rounds and (needed != 0 or own.operation not in COMMUTING)
    ordered = own.rounds or told or own.operation not in COMMUTING
    emitter.competes |= ordered and not space.startswith("shared")
    call = (
        f"mem.atomic({emitter.constant(space)}, {address}, {emitter.constant(own)}, ({sources},), w, {needed}, {told})"
    )
    if isinstance(to, Sink):
        return [machine(call)]
    if own.type == "b128":
        return [machine(f"x_ = {call}"), put_whole(emitter, to, "x_[0]", own.type)]
    targets = to.items if isinstance(to, Vector) else (to,)
    return [machine(f"x_ = {call}"), *(emitter.put(one, f"x_[{place}]", parts) for place, one in wanted(targets))]


_SPACE = some(f"global {SHARED}")
_SINCE = (
    since("5.0", 60, SCOPES), since("5.0", 60, "add", "f64"), since("6.2", 60, "noftz", "f16x2"), since("6.3", 70, "noftz", "f16"),
    since("7.8", 90, "bf16 bf16x2"), since("6.3", 70, "b16"), since("8.3", 90, "b128"), since("8.1", 90, "v2 v4 v8"),
    since("9.4", 90, "noftz", "f32"),
)  # fmt: skip
_OUTSIDE = apart("v2 v4 v8 L2::cache_hint", SHARED)
ROWS = (
    Ordinary(
        stem="atom",
        grammar=grammar(
            some("relaxed acquire release acq_rel"), SCOPE, _SPACE, _OPERATIONS, some("noftz"), HINT, VECTOR, _TYPES,
            operands=(3,), rules=(_OUTSIDE, apart("L2::cache_hint", "cas")), since=_SINCE, vectors=(0, 2),
        ),
        refusal=_refusal,
        emit=_emit,
        heard=True,
        polls=True,
        path="atomic",
        declared=True,
    ),
    effect(
        stem="red",
        grammar=grammar(
            some("relaxed release"), SCOPE, _SPACE, Slot(True, _OPERATIONS.words - words_of("exch cas")), some("noftz"), HINT, VECTOR,
            Slot(True, _TYPES.words - words_of("b16 b128")),
            operands=(2,), rules=(_OUTSIDE,), since=_SINCE, vectors=(1,),
        ),
        refusal=_refusal,
        emit=_emit,
        path="atomic",
        declared=True,
    ),
)  # fmt: skip
