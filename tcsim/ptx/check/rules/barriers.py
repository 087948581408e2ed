"""Barriers of a block and of the cluster: what arrivals publish, and who arrives how."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from tcsim.ptx.check.clocks import EXECUTED, ORDERED
from tcsim.ptx.compile.convergence import row_of
from tcsim.ptx.machine.arrays import LANES, Array

if TYPE_CHECKING:
    from tcsim.ptx.check.checker import Checker
    from tcsim.ptx.check.operations import Operation
    from tcsim.ptx.machine.view import BlockView

_NAMED, _CLUSTER = "cta", "cluster"


@dataclass(eq=False)
class Phases:
    """The phases of a named barrier of a block."""

    ended: int  # phases that are over
    last: Array  # of each thread: phases that were over when it arrived last; -1: it has not
    met: Array  # of each warp: phases that were over when it last went on from one
    met_clock: Array  # and its clock then
    arriving: dict[int, int] = field(
        default_factory=dict
    )  # of each warp that arrives in the phase under way, its clock
    arrived: dict[int, int] = field(default_factory=dict)  # of those of the phase before

    @classmethod
    def of(cls, threads: int) -> Phases:
        """Those of a block."""
        warps = threads // LANES
        return cls(0, np.full(threads, -1), np.zeros(warps, np.int64), np.zeros(warps, np.int64))


class Meetings:
    """The barriers of a cluster's blocks in use, and the cluster's own."""

    def __init__(self, checker: Checker) -> None:
        self.checker = checker
        self.published: dict[tuple[str, int, int], Array] = {}
        self.counts: dict[tuple[int, int], int] = {}  # by rank and number: threads that the phase under way is for
        self.arrivals: dict[tuple[int, int], int] = {}  # and those that have arrived
        self.activity = dict.fromkeys(
            range(len(checker.cluster.blocks)), 0
        )  # by rank: accesses, waits and fences so far
        self._before: dict[int, int] = {}  # by rank: those up to the last barrier of the whole block
        self._useful: set[int] = set()  # instructions that were such a barrier and ordered something
        self._idle: dict[int, tuple[BlockView, int]] = {}  # those that did not: where first, how often
        self._over: dict[int, tuple[int, Array]] = {}  # by warp that has ended: cluster phases it was in, what it knew
        # By warp: what those knew whose end let it go on at a barrier.
        self._released = np.zeros_like(checker.clocks.known[:, ORDERED])
        self.phases: dict[tuple[int, int], Phases] = {}  # by rank and number
        self.lines: dict[tuple[int, int], Array] = {}  # the instruction at which each thread arrived, if it is .aligned

    def arrived(self, block: BlockView, scope: str, number: int, mask: Array) -> None:
        """Threads arrive: they publish what was before."""
        checker = self.checker
        some = checker.some(block, np.nonzero(mask)[0])
        row = row_of(block.here.opcode) if block.here is not None else None
        relaxed = getattr(row, "sem", "") == "relaxed"
        if scope == _NAMED:
            key = scope, block.rank, number
            self._counted(block, number, mask, bool(getattr(row, "aligned", True)))
            self._follows(block, number, mask, some)
        else:
            key = scope, 0, block.cluster.phase
            if relaxed:
                checker.relaxed.update(dict.fromkeys(some.tolist(), "CLUSTER_BARRIER_RELAXED"))
        if not relaxed:
            checker.lanes.publishing(*checker.bits(block, mask))
        found = checker.clocks.published(some, relaxed)
        before = self.published.get(key)
        self.published[key] = found if before is None else np.maximum(before, found)

    def _counted(self, block: BlockView, number: int, mask: Array, aligned: bool) -> None:
        checker, key = self.checker, (block.rank, number)
        line, wanted = checker.findings.number(block.here), block.counts[number]
        before = self.counts.setdefault(key, wanted)
        if before != wanted:
            said = f"{checker.findings.opcode(line)} is for {wanted} threads, and others have arrived at barrier {number} for {before}"
            checker.findings.report("BARRIER_COUNT", said, line, 0, checker.index(block), int(np.argmax(mask)))
        self.arrivals[key] = self.arrivals.get(key, 0) + int(np.count_nonzero(mask))
        if before == wanted < self.arrivals[key] and wanted:
            said = f"{checker.findings.opcode(line)} is for {wanted} threads, and {self.arrivals[key]} have arrived at barrier {number} in one phase"
            checker.findings.report("BARRIER_COUNT", said, line, 0, checker.index(block), int(np.argmax(mask)))
        lines = self.lines.get(key)
        if lines is None:
            lines = self.lines[key] = np.zeros(block.threads, np.int64)
        lines[mask] = line if aligned else 0

    def _follows(self, block: BlockView, number: int, mask: Array, some: Array) -> None:
        """Whoever arrives has to know that the phase before is over: else the arrival can count for that."""
        checker, key = self.checker, (block.rank, number)
        own = self.phases.get(key)
        if own is None:
            own = self.phases[key] = Phases.of(block.threads)
        warps = some - block.rank * checker.per_block
        twice = mask & (own.last == own.ended)
        known = own.met[warps] == own.ended
        if not known.all():
            known |= [self._knows(block, own, warp) for warp in some.tolist()]
        if not known.all() or twice.any():
            thread = int(np.argmax(twice)) if twice.any() else int(warps[~known][0]) * LANES
            line = checker.findings.number(block.here)
            said = f"{checker.findings.opcode(line)} arrives at barrier {number} in warp {thread // LANES}, and nothing orders that after the end of the phase before: it can count for that"
            checker.findings.report("BARRIER_PHASE_ALIAS", said, line, 0, checker.index(block), thread, barrier=number)
        own.last[mask] = own.ended
        own.arriving.update(zip(some.tolist(), checker.clocks.now[some].tolist(), strict=True))

    def _knows(self, block: BlockView, own: Phases, warp: int) -> bool:
        """Whether a warp comes after one that has gone on from the phase before, or after all arrivals in it."""
        known = self.checker.clocks.known[warp, EXECUTED, 1:-1]
        first = block.rank * self.checker.per_block
        met = own.met_clock <= known[first : first + len(own.met)]
        return bool((met & (own.met == own.ended)).any()) or all(
            known[who] >= when for who, when in own.arrived.items()
        )

    def passed(self, block: BlockView, scope: str, number: int, mask: Array) -> None:
        """Threads that waited go on: they know what the others published."""
        checker = self.checker
        some = checker.some(block, np.nonzero(mask)[0])
        if scope == _NAMED:
            found = self.published.pop((scope, block.rank, number), None)
            if found is not None and len(some):
                checker.lanes.learning(*checker.bits(block, mask), found)
                checker.clocks.acquire(some, found)
            if not self.counts.pop((block.rank, number), None):  # it is for all threads that have not ended
                over = (known for warp, (_, known) in self._over.items() if warp // checker.per_block == block.rank)
                self._released_by(over, some)
            self.arrivals.pop((block.rank, number), None)
            self._together(block, number, mask)
            phases = self.phases[block.rank, number]
            phases.ended += 1
            phases.arrived, phases.arriving = phases.arriving, {}
            warps = some - block.rank * checker.per_block
            phases.met[warps], phases.met_clock[warps] = phases.ended, checker.clocks.now[some]
            return
        for phase in (block.cluster.phase - 1, block.cluster.phase - 2):
            found = self.published.get((scope, 0, phase))
            if found is not None:
                checker.lanes.learning(*checker.bits(block, mask), found)
                checker.clocks.acquire(some, found)
        self.published.pop((scope, 0, block.cluster.phase - 3), None)
        self._released_by((known for phases, known in self._over.values() if phases < block.cluster.phase), some)

    def exited(self, block: BlockView, mask: Array) -> None:
        """Threads end: barriers wait for their warp no more, once all have."""
        checker = self.checker
        left = (block.alive & ~mask).reshape(-1, LANES).any(1)
        for warp in np.flatnonzero(mask.reshape(-1, LANES).any(1) & ~left).tolist():
            own = block.rank * checker.per_block + warp
            self._over[own] = int(block.cluster_phase[warp * LANES]), checker.clocks.known[own, ORDERED].copy()

    def _released_by(self, over: Iterable[Array], some: Array) -> None:
        """Warps go on at a barrier that did not wait for some that have ended; over: what these knew."""
        for own in over:
            self._released[some] = np.maximum(self._released[some], own)

    def ended_before(self, operation: Operation, part: int, warps: Array) -> bool:
        """Whether a warp that knew an operation to be done has ended, and that released a barrier for one of these warps."""
        return any(self.checker.operations.seen_by(operation, own, part) for own in self._released[warps, 1:-1])

    def _together(self, block: BlockView, number: int, mask: Array) -> None:
        """All threads of a warp have to arrive at one instruction, if it is .aligned, those of a block at one that is for all of it."""
        lines = self.lines.pop((block.rank, number), None)
        if lines is None:
            return
        each = lines.reshape(-1, LANES)
        first = np.where(each > 0, each, np.iinfo(np.int64).max).min(1)
        last = each.max(1)
        apart = (last > first) & (last > 0)
        if apart.any():
            warp = int(np.argmax(apart))
            self._apart(
                block,
                "BARRIER_WARP_DIVERGENCE",
                f"threads of warp {warp}",
                number,
                first[warp],
                last[warp],
                warp * LANES,
            )
        elif not block.counts.get(number, 1) and first.min() < last.max():
            warp = int(np.argmax(last))
            self._apart(block, "BARRIER_ROLE_DIVERGENCE", "warps", number, first.min(), last.max(), warp * LANES)
        if not (block.alive & ~mask).any():
            self._of_all(block, set(np.unique(lines[mask]).tolist()) - {0})

    def _of_all(self, block: BlockView, lines: set[int]) -> None:
        """A barrier that all threads of a block have waited at: whether there was anything to order."""
        rank, now = block.rank, self.activity[block.rank]
        before, self._before[rank] = self._before.get(rank, 0), now
        if now != before:
            self._useful |= lines
            return
        for line in lines:
            first, count = self._idle.get(line, (block, 0))
            self._idle[line] = first, count + 1

    def ended(self) -> None:
        """The cluster has ended: which barriers never ordered anything."""
        checker = self.checker
        for line, (block, count) in self._idle.items():
            if line not in self._useful:
                said = (
                    f"{checker.findings.opcode(line)}, executed {count} times by a block: no thread has touched memory, waited or fenced "
                    "since the barrier before"
                )
                checker.findings.report("BARRIER_ORDERS_NOTHING", said, line, 0, checker.index(block), None)

    def _apart(self, block: BlockView, rule: str, who: str, number: int, first: int, last: int, thread: int) -> None:
        checker, (line, other) = self.checker, (int(first), int(last))
        said = f"{who} arrive at barrier {number} at {checker.findings.opcode(line)} and at {checker.findings.opcode(other)}"
        checker.findings.report(rule, said, line, other, checker.index(block), thread, barrier=number)
