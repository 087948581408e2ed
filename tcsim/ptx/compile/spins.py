"""Loops that wait for other threads, and answers of barriers: whether how long they took can be seen.

A loop waits if its branch back depends on what one place in memory, or a barrier, tells. How often it turns is the machine's own: of no
matter, unless a register that counts the turns is needed behind the loop, or memory is changed in each.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator

from tcsim.isa.barrier_cta import BarrierRow
from tcsim.isa.ordinary.table import space_in
from tcsim.model.statement import registers_in
from tcsim.ptx.compile.flow import BEFORE, Flow, parts, read, written
from tcsim.ptx.compile.known import moves
from tcsim.ptx.compile.ordinary import computes, ordinary, row_of
from tcsim.ptx.text.syntax import Address, Function, Instruction, Symbol


def asks(item: Instruction) -> bool:
    """Whether an instruction tells whether a phase of a barrier is complete."""
    row = row_of(item.opcode)
    return row is not None and row.family == "mbarrier" and "_wait" in item.opcode


def _turns(item: Instruction) -> bool:
    """Whether an instruction takes a register only to say where threads go on, or whether they do."""
    return ordinary(item.opcode).control in ("branch", "trap")


class Spins:
    """The loops of a function that wait."""

    def __init__(self, function: Function) -> None:
        self.flow = Flow(function)
        self.body, self.labels = function.body, function.labels
        tells = [index for index, item in enumerate(self.body) if asks(item) or ordinary(item.opcode).polls]
        loops = [loop for loop in self._loops() if bisect_left(tells, loop[0]) < bisect_right(tells, loop[1])]
        self.waiting = frozenset(end for start, end in loops if self._waits(start, end))
        """Branches back of loops that may wait, for what loads, calls and barriers tell."""
        self.polling = frozenset(end for start, end in loops if self._polling(start, end))
        """Branches back of loops that ask one place each time."""
        self.visible = frozenset(end for start, end in loops if end in self.polling and self._seen(start, end))
        """Branches back of loops that wait of which it can be seen how often they turned."""
        self.told = frozenset(
            index
            for index, item in enumerate(self.body)
            if asks(item) and self._behind(index, 0, len(self.body), set())
        )
        """Questions to barriers whose answers go further than to a branch."""

    def _loops(self) -> Iterator[tuple[int, int]]:
        """Where loops begin, and where their branches back are."""
        for index, item in enumerate(self.body):
            first = item.operands[0] if item.operands else None
            if ordinary(item.opcode).control == "branch" and isinstance(first, Symbol):
                start = self.labels.get(first.name, index + 1)
                if start <= index:
                    yield start, index

    def _controls(self, start: int, end: int) -> set[int]:
        """The branches that decide whether a loop goes on."""
        found = set()
        for index in range(start, end + 1):
            item = self.body[index]
            if item.predicate is None or not parts(item):
                continue
            targets = [self.labels.get(own.name, 0) for own in item.operands if isinstance(own, Symbol)]
            if (
                index == end
                or ordinary(item.opcode).control == "leave"
                or any(not start <= at <= end for at in targets)
            ):
                found.add(index)
        return found

    def _sources(self, places: set[int], start: int, end: int) -> set[int]:
        """Instructions of a loop, and those of it that they are computed from."""
        found, pending = set(places), list(places)
        while pending:
            index = pending.pop()
            for name in read(self.body[index]):
                for at in self.flow.reaching(name, index):
                    if at != BEFORE and start <= at <= end and at not in found:
                        found.add(at)
                        pending.append(at)
        return found

    def _asked(self, start: int, end: int) -> set[int]:
        """What decides whether a loop goes on, and what that is computed from in the loop."""
        return self._sources(self._controls(start, end), start, end)

    def _waits(self, start: int, end: int) -> bool:
        return any(
            asks(self.body[index]) or ordinary(self.body[index].opcode).polls for index in self._asked(start, end)
        )

    def _polling(self, start: int, end: int) -> bool:
        return any(self._polls(index, start, end) for index in self._asked(start, end))

    def _polls(self, index: int, start: int, end: int) -> bool:
        """Whether an instruction of a loop asks the same place each time, where other threads may write.

        A block that meets at a barrier in each turn asks shared memory for what it has agreed on: that is not a wait.
        """
        item = self.body[index]
        row, space = ordinary(item.opcode), space_in(item.opcode).partition("::")[0]
        if not asks(item) and not (row.polls and not row.control and space not in ("param", "local", "const")):
            return False
        if row.path == "load" and space == "shared" and self._meets(start, end):
            return False
        bases = [name for operand in item.operands if isinstance(operand, Address) for name in registers_in(operand)]
        return not any(start <= at <= end for name in bases for at in self.flow.writes.get(name, ()))

    def _meets(self, start: int, end: int) -> bool:
        """Whether a loop has a barrier of the block at which threads wait."""
        rows = (row_of(item.opcode) for item in self.body[start : end + 1])
        return any(isinstance(row, BarrierRow) and row.operation != "arrive" for row in rows)

    def _seen(self, start: int, end: int) -> bool:
        """Whether something that changes with each turn is needed behind a loop, or changes memory."""
        inside = range(start, end + 1)
        asked = self._asked(start, end)
        for index in inside:
            item = self.body[index]
            path = ordinary(item.opcode).path
            if path == "atomic" and index not in asked:
                return True
            if path == "store" and self._adds(index, start, end):
                return True
            if self._counts(index) and self._behind(index, start, end, set()):
                return True
        return False

    def _adds(self, index: int, start: int, end: int) -> bool:
        """Whether a store changes what a load of the same turn found there."""
        where = self.body[index].operands[0]
        sources = self._sources({index}, start, end) - {index}
        items = [self.body[own] for own in sources]
        loads = [own for own in items if ordinary(own.opcode).path == "load" and own.operands[-1] == where]
        return bool(loads) and any(map(computes, items))

    def _counts(self, index: int) -> bool:
        """Whether an instruction computes a register from what it had the turn before."""
        item = self.body[index]
        names = set(written(item))
        return computes(item) and any(
            index in self.flow.reaching(name, index) for name in names.intersection(read(item))
        )

    def _behind(self, index: int, start: int, end: int, seen: set[int]) -> bool:
        """Whether what an instruction computes is needed outside of a loop, or stored in it."""
        for name in written(self.body[index]):
            for place in self.flow.uses(index, name):
                if place in seen or place not in self.flow.live:
                    continue
                seen.add(place)
                item = self.body[place]
                passes = computes(item) or moves(item)
                if not start <= place <= end or not (passes or _turns(item)):
                    return True
                if passes and self._behind(place, start, end, seen):
                    return True
        return False
