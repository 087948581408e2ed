"""What the lanes of a warp do together: shfl, vote, match; which of them there are: activemask."""

from __future__ import annotations

from typing import Any

import numpy as np

from tcsim.isa.ordinary.table import Ordinary, grammar
from tcsim.model.emit import Emitter, Lines, machine
from tcsim.model.grammar import need, one, since
from tcsim.model.statement import Instruction, Operand, Pair, Sink


def partners(mode: str, lane: Any, b: Any, c: Any) -> tuple[Any, Any]:
    """The lane that a shuffle names for each lane, the own one where that is out of range; and whether it is in range.

    lane, b, c: int64, elementwise. Source: PTX ISA, shfl.sync, pseudocode.

    >>> lane = np.arange(4)
    >>> [own.tolist() for own in partners("down", lane, np.full(4, 2), np.full(4, 3))]
    [[2, 3, 2, 3], [True, True, False, False]]
    """
    clamp, segment, b5 = c & 31, c >> 8 & 31, b & 31
    most, least = (lane & segment) | (clamp & ~segment), lane & segment
    if mode == "up":
        source = lane - b5
        inside = source >= most
    else:
        source = {"down": lane + b5, "bfly": lane ^ b5, "idx": least | (b5 & ~segment)}[mode]
        inside = source <= most
    return np.where(inside, source, lane), inside


def _shuffle(emitter: Emitter, item: Instruction) -> Lines:
    """A register of another lane."""
    to, *sources = item.operands
    values = ", ".join(emitter.value(own, "u32") for own in sources[:3])
    return [
        machine(f"x_, y_ = warp.shuffle({emitter.constant(item.opcode.split('.')[2])}, {values}, w)"),
        *_put(emitter, to),
    ]


def _put(emitter: Emitter, to: Operand) -> Lines:
    """A word and, where it is asked for, a predicate."""
    if not isinstance(to, Pair):
        return [emitter.put(to, "x_", "u32")]
    second = [] if isinstance(to.second, Sink) else [emitter.put(to.second, "y_", "pred")]
    return [emitter.put(to.first, "x_", "u32"), *second]


def _vote(emitter: Emitter, item: Instruction) -> Lines:
    """All, any, uni or the ballot of a predicate."""
    mode = item.opcode.split(".")[2]
    to, what, members = item.operands
    mask = emitter.value(members, "u32")
    call = f"warp.vote({emitter.constant(mode)}, {emitter.value(what, 'pred')}, {mask}, w)"
    return [emitter.put(to, call, "u32" if mode == "ballot" else "pred", calls_machine=True)]


def _active(emitter: Emitter, item: Instruction) -> Lines:
    """The lanes of the warp that execute together."""
    return [emitter.put(item.operands[0], f"warp.active(w, {emitter.block})", "u32", calls_machine=True)]


def _match(emitter: Emitter, item: Instruction) -> Lines:
    """Lanes with equal values."""
    _, mode, *_, type = item.opcode.split(".")
    to, what, members = item.operands
    if mode == "any" and isinstance(to, Pair):
        raise emitter.error("match.any has no predicate; valid: one destination")
    mask = emitter.value(members, "u32")
    call = f"x_, y_ = warp.match({emitter.constant(mode)}, {emitter.value(what, type)}, {mask}, w)"
    return [machine(call), *_put(emitter, to)]


_SYNC = (since("5.1", 0, "sync"),)
ROWS = (
    Ordinary(
        stem="shfl",
        grammar=grammar(one("sync"), one("up down bfly idx"), one("b32"), operands=(5,), since=_SYNC),
        emit=_shuffle,
        members=True,
        path="shuffle",
        carries="lanes",
    ),
    Ordinary(
        stem="vote",
        grammar=grammar(
            one("sync"),
            one("all any uni ballot"),
            one("pred b32"),
            operands=(3,),
            rules=(need("b32", "ballot"), need("ballot", "b32")),
            since=_SYNC,
        ),
        emit=_vote,
        members=True,
        path="warp",
    ),
    Ordinary(
        stem="match",
        grammar=grammar(one("any all"), one("sync"), one("b32 b64"), operands=(3,), since=(since("6.0", 70, "sync"),)),
        emit=_match,
        members=True,
        path="warp",
    ),
    Ordinary(
        stem="activemask", grammar=grammar(one("b32"), operands=(1,), since=(since("6.2", 0, "b32"),)), emit=_active
    ),
)
