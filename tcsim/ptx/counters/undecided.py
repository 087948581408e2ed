"""Lines of the PTX that are executed as often as the order of threads decides: how often on a GPU is not known.

A loop is such a line's if its end depends on what a load that may wait (volatile, relaxed, acquire), or an atomic, tells in it: a lock, a flag, a swap
that is tried again. In any loop, what stands behind a branch on such an answer is, too. An atomic that only counts on is a ticket: that each gets one decides nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cached_property

from tcsim.isa.ordinary.table import space_in
from tcsim.model.statement import Immediate, Symbol
from tcsim.ptx.compile.flow import Flow, parts, written
from tcsim.ptx.compile.ordinary import ordinary
from tcsim.ptx.text.syntax import Function, Instruction

_WAITS = frozenset(("volatile", "relaxed", "acquire", "mmio", "cv"))
"""Words of a load that sees what other threads write."""
_OWN = frozenset(("local", "param", "const"))
"""State spaces that no other thread writes."""


def undecided(functions: Iterable[Function]) -> dict[int, Instruction]:
    """The lines of some functions, with their instructions.

    >>> from tcsim.ptx import parse
    >>> text = ".version 8.0\\n.target sm_90\\n.address_size 64\\n.visible .entry k(.param .u64 lock) { .reg .pred %p; .reg .b32 %r; .reg .b64 %d;"
    >>> text += "\\nld.param.u64 %d, [lock];\\nAGAIN:\\natom.cas.b32 %r, [%d], 0, 1;\\nsetp.ne.u32 %p, %r, 0;\\n@%p bra AGAIN;\\nret; }"
    >>> sorted(undecided(parse(text).syntax.functions.values()))
    [7, 8, 9]
    """
    found = (own.body[index] for own in functions for index in _Loops(own).undecided())
    return {item.line: item for item in found}


def tells(item: Instruction) -> bool:
    """Whether an instruction tells what another thread did."""
    path, words = ordinary(item.opcode).path, item.opcode.split(".")
    if space_in(item.opcode).partition("::")[0] in _OWN:
        return False
    if path != "atomic":
        return path == "load" and not _WAITS.isdisjoint(words)
    last = item.operands[-1]
    counts = "add" in words and not (isinstance(last, Immediate) and not last.value)
    return words[0] == "atom" and not counts and "inc" not in words and "dec" not in words


class _Loops:
    """The loops of a function, and what decides how often they turn."""

    def __init__(self, function: Function) -> None:
        self.function, self.body = function, function.body
        self.jumps = [
            (index, function.labels[first.name])
            for index, item in enumerate(self.body)
            if ordinary(item.opcode).control == "branch"
            and isinstance(first := item.operands[0], Symbol)
            and first.name in function.labels
        ]

    @cached_property
    def flow(self) -> Flow:
        """Where registers come from."""
        return Flow(self.function)

    def undecided(self) -> Iterator[int]:
        """Instructions that are executed as often as the order of threads decides."""
        if not any(map(tells, self.body)):
            return
        for end, start in self.jumps:
            told = self._told(start, end) if start <= end else None
            if not told:
                continue
            if not told.isdisjoint(self._leaving(start, end)):
                yield from range(start, end + 1)
            for at, to in self.jumps:
                if at < to <= end and at in told:
                    yield from range(at + 1, to)

    def _leaving(self, start: int, end: int) -> set[int]:
        """The branches that decide whether a loop goes on."""
        leaves = {index for index in range(start, end + 1) if ordinary(self.body[index].opcode).control == "leave"}
        leaves |= {at for at, to in self.jumps if start <= at <= end and not start <= to <= end} | {end}
        return {index for index in leaves if self.body[index].predicate is not None and parts(self.body[index])}

    def _told(self, start: int, end: int) -> set[int]:
        """Instructions of a loop that take what one of it tells: through registers or shared memory, or behind a branch that does."""
        inside = range(start, end + 1)
        pending = [index for index in inside if tells(self.body[index])]
        found, loads = set(pending), [index for index in inside if self._shared(index, "load")]
        behind = {at: range(at + 1, min(to, end + 1)) for at, to in self.jumps if self.body[at].predicate is not None}
        while pending:
            index = pending.pop()
            reached = [place for name in written(self.body[index]) for place in self.flow.uses(index, name)]
            reached += [*behind.get(index, ()), *(loads if self._shared(index, "store") else ())]
            new = {place for place in reached if start <= place <= end} - found
            found |= new
            pending += new
        return found

    def _shared(self, index: int, path: str) -> bool:
        """Whether an instruction loads from or stores to shared memory."""
        opcode = self.body[index].opcode
        return ordinary(opcode).path == path and space_in(opcode).partition("::")[0] == "shared"
