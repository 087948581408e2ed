"""Atomics on integers: whether what they tell, and what they leave in memory, depends on the order in which threads come.

It does not where one thread alone touches an address, where nobody changes what is there, or where only bits are needed that are the same
in every order: those of grid.sync, which takes the top bit of a word in which blocks count.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tcsim.isa.scalar.atomic import COMMUTING, Atomic
from tcsim.isa.scalar.table import CONTAINERS, Array
from tcsim.memory.windows import SHARED_WINDOW

Thread = tuple[object, int]  # a block's index, and a thread of it


@dataclass
class Place:
    """What threads did to one address. A round ends before a thread comes again."""

    counts: Counter[str] = field(default_factory=Counter)  # atomics whose old values, or what they leave, matter
    threads: set[Thread] = field(default_factory=set)
    round: set[Thread] = field(default_factory=set)
    operations: set[str] = field(default_factory=set)  # of the round
    start: int = 0  # what was there when the round began
    operands: list[Any] = field(default_factory=list)  # of cas both
    needed: int = 0  # bits of old values that somebody depends on
    changes: bool = False
    open: bool = False  # whether a round's result depends on the order

    def end(self, width: int) -> None:
        """Judge a round."""
        if len(self.round) > 1 and self.changes:
            self.open |= bool(self.needed & self._varying(width)) or not self._commutes()
        self.round, self.operations, self.operands, self.needed, self.changes = set(), set(), [], 0, False

    def _commutes(self) -> bool:
        """Whether a round leaves the same in every order: one operation that commutes, or one that is the same for all who come."""
        if len(self.operations) > 1:
            return False
        alike = len(set(self.operands)) == 1
        if self.operations <= {"inc", "dec"}:
            return alike and self.start <= self.operands[0]
        return self.operations <= set(COMMUTING) or alike

    def _counts(self) -> bool:
        """Whether all count up to one bound, and none starts again."""
        return self.operations == {"inc"} and self._commutes() and self.start + len(self.round) <= self.operands[0]

    def _varying(self, width: int) -> int:
        """The bits of what is there between the first and the last of a round that may depend on the order."""
        every = (1 << width) - 1
        if len(self.operations) > 1 or not self.operations <= {"add", "or", "xor", "and", "inc"}:
            return every
        (operation,) = self.operations
        joined = int(np.bitwise_or.reduce(np.array(self.operands, object)))
        if operation == "or":
            return joined & ~self.start
        if operation == "xor":
            return joined
        if operation == "and":
            return self.start & ~int(np.bitwise_and.reduce(np.array(self.operands, object)))
        if operation in ("add", "inc") and (operation == "add" or self._counts()):
            addends = self.operands if operation == "add" else [1] * len(self.operands)
            most = self.start + sum(addends) - min(addends)  # all but the least
            return (1 << (self.start ^ most).bit_length()) - 1 if most <= every else every
        return every


@dataclass
class Turns:
    """Of each address that atomics touch in a launch: who came, and whether the order shows."""

    places: dict[tuple[object, int], Place] = field(default_factory=dict)
    widths: dict[tuple[object, int], int] = field(default_factory=dict)

    def add(
        self, instruction: str, item: Atomic, where: object, addresses: Array, threads: Sequence[Thread], before: Array, after: Array,
        operands: Sequence[Array], needed: int,
    ) -> None:  # fmt: skip
        """Atomics of some threads: what was there, what is there now, the operands, and which bits of the old value matter."""
        values = [own.tolist() for own in operands]
        given = values[0] if len(values) == 1 else list(zip(*values, strict=True))
        for address, thread, changed, first, operand in zip(
            addresses.tolist(), threads, (before != after).tolist(), before.tolist(), given, strict=True
        ):
            key = where if address >= SHARED_WINDOW else "", address
            own = self.places.setdefault(key, Place())
            width = self.widths[key] = 8 * CONTAINERS[item.type].itemsize
            if thread in own.round:
                own.end(width)
            if not own.round:
                own.start = first
            own.threads.add(thread)
            own.round.add(thread)
            own.operations.add(item.operation)
            own.operands.append(operand)
            own.needed |= needed
            own.changes |= changed
            if needed or item.operation not in COMMUTING:
                own.counts[instruction] += 1

    def inexact(self) -> Counter[str]:
        """By instruction, the atomics of addresses where the order shows."""
        found: Counter[str] = Counter()
        for key, own in self.places.items():
            own.end(self.widths[key])
            if own.open and len(own.threads) > 1:
                found.update(own.counts)
        return found

    def update(self, other: Turns) -> None:
        """Take over what another process saw: at other addresses."""
        self.places |= other.places
        self.widths |= other.widths
