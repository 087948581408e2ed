"""Where the values of a function's registers come from and go to: definitions that reach an instruction, and what is live."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from functools import cache, cached_property

from tcsim.model.statement import registers_in
from tcsim.ptx.compile.ordinary import computes, ordinary, row_of
from tcsim.ptx.text.syntax import Function, Group, Instruction, Pair, Register, Sink, Symbol, Vector

BEFORE = -1
"""In place of the index of an instruction: what a register has where the function begins."""


def parts(item: Instruction) -> bool:
    """Whether another instruction than the next may follow, calls apart."""
    return ordinary(item.opcode).control not in ("", "call")


def written(item: Instruction) -> list[str]:
    """The registers that an instruction writes: those of its first operand, if that is a result."""
    first = item.operands[0] if item.operands else Sink()
    if isinstance(first, Group):
        return registers_in(first) if len(item.operands) > 1 else []
    writes = isinstance(first, (Register, Vector, Pair)) and ordinary(item.opcode).writes
    return registers_in(first) if writes else []


def read(item: Instruction) -> list[str]:
    """The registers that an instruction reads, its predicate included."""
    only_writes = bool(written(item)) and not _accumulates(item)
    guard = [] if item.predicate is None else [item.predicate.name]
    return guard + registers_in(item.operands[1:] if only_writes else item.operands)


def _accumulates(item: Instruction) -> bool:
    row = row_of(item.opcode)
    return row is not None and row.forms[0].operands[0].role == "both"


class Flow:
    """The instructions of a function as a graph."""

    def __init__(self, function: Function) -> None:
        self.body = function.body
        self.labels, self.targets = function.labels, function.targets
        starts = {0, *(at for item in self.body if parts(item) for at in self._goals(item))}
        starts |= {index + 1 for index, item in enumerate(self.body) if parts(item)}
        self.starts = sorted(start for start in starts if start < len(self.body))
        self.returns = [own.name for own in function.returns]
        self.before: list[list[int]] = [[] for _ in self.starts]  # of each block: those that it may follow
        self.after = list(self._followers())  # of each block: those that may follow it
        for block, after in enumerate(self.after):
            for own in after:
                self.before[own].append(block)
        self.writes: dict[str, list[int]] = {}
        self.reads: dict[str, list[int]] = {}
        for index, item in enumerate(self.body):
            for name in written(item):
                self.writes.setdefault(name, []).append(index)
            for name in read(item):
                self.reads.setdefault(name, []).append(index)
        self.reaching = cache(self._reaching)

    def block(self, index: int) -> int:
        """The number of an instruction's basic block."""
        return bisect_right(self.starts, index) - 1

    def end(self, block: int) -> int:
        """The instruction behind a basic block."""
        return self.starts[block + 1] if block + 1 < len(self.starts) else len(self.body)

    def _goals(self, item: Instruction) -> list[int]:
        """The instructions at the labels that a branch names, itself or in a list."""
        tables = (own.name for own in item.operands if isinstance(own, Symbol))
        names = (name for table in tables for name in self.targets.get(table, (table,)))
        return [self.labels[name] for name in names if name in self.labels]

    def _followers(self) -> Iterator[list[int]]:
        for end in (*self.starts[1:], len(self.body)):
            item = self.body[end - 1]
            control = ordinary(item.opcode).control
            goals = self._goals(item) if control == "branch" else []
            found = [self.block(at) for at in goals if at < len(self.body)]
            falls = control not in ("branch", "leave") or item.predicate is not None
            if falls and end < len(self.body):
                found.append(self.block(end))
            yield found

    def _reaching(self, name: str, index: int) -> frozenset[int]:
        """The instructions whose value a register may have before an instruction, and BEFORE."""
        places, found = self.writes.get(name, []), set[int]()
        block = self.block(index)
        pending, seen = [(block, index)], set[int]()
        while pending:
            block, end = pending.pop()
            start, killed = self.starts[block], False
            at = bisect_right(places, end - 1) - 1
            while at >= 0 and places[at] >= start and not killed:
                found.add(places[at])
                killed = self.body[places[at]].predicate is None
                at -= 1
            if killed:
                continue
            if block == 0:
                found.add(BEFORE)
            for own in self.before[block]:
                if own not in seen:
                    seen.add(own)
                    pending.append((own, self.end(own)))
        return frozenset(found)

    def surely(self, index: int, place: int) -> bool:
        """Whether some thread may come from an instruction to another one, as far as an assembler can know.

        It comes there on every way to the function's end, or through branches on floating-point comparisons, none of which it assumes decided.
        """
        first, last = self.block(index), self.block(place)
        if first == last and index < place:
            return True
        return self._met(first, last) or self._open(first, last)

    def _met(self, first: int, last: int) -> bool:
        pending, seen = [first], {first, last}
        while pending:
            after = self.after[pending.pop()]
            if not after:
                return False
            pending += [own for own in after if own not in seen]
            seen.update(after)
        return True

    def _open(self, first: int, last: int) -> bool:
        pending, seen = [first], {first}
        while pending:
            block = pending.pop()
            if len(self.after[block]) > 1 and not self._undecided(self.end(block) - 1):
                continue
            if last in self.after[block]:
                return True
            pending += [own for own in self.after[block] if own not in seen]
            seen.update(self.after[block])
        return False

    def _undecided(self, index: int) -> bool:
        """Whether a branch depends on floating-point numbers."""
        predicate = self.body[index].predicate
        places = self.reaching(predicate.name, index) if predicate is not None else ()
        return bool(places) and all(
            at != BEFORE and self.body[at].opcode.startswith("setp.") and self.body[at].opcode.endswith((".f32", ".f64", ".f16", ".bf16"))
            for at in places
        )  # fmt: skip

    def uses(self, index: int, name: str) -> Iterator[int]:
        """The instructions that may read what one writes to a register."""
        for place in self.reads.get(name, ()):
            if index in self.reaching(name, place):
                yield place

    @cached_property
    def live(self) -> frozenset[int]:
        """The instructions that something depends on: those that do more than arithmetic, what they are computed from, branches around them."""
        branches = {index for index, item in enumerate(self.body) if ordinary(item.opcode).control == "branch"}
        pending = [
            index
            for index, item in enumerate(self.body)
            if index not in branches and not computes(item) and ordinary(item.opcode).path not in ("move", "load")
        ]
        pending += [at for own in self.returns for at in self.writes.get(own, ())]
        found = set(pending)
        while pending:
            index = pending.pop()
            for name in read(self.body[index]):
                places = self.writes.get(name, ())
                for own in places if len(places) == 1 else self.reaching(name, index):
                    if own not in found and own != BEFORE:
                        found.add(own)
                        pending.append(own)
            if not pending:
                pending = [own for own in branches - found if self._around(own, found)]
                found.update(pending)
        return frozenset(found)

    def _around(self, index: int, live: set[int]) -> bool:
        """Whether something that matters lies between a branch and where it goes."""
        return any(
            own in live for at in self._goals(self.body[index]) for own in range(min(index + 1, at), max(index, at))
        )
