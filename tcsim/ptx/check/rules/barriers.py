"""Barriers of a block and of the cluster: what arrivals publish, and who arrives how."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import product

import numpy as np

from tcsim.ptx.check.clocks import EXECUTED, ORDERED
from tcsim.ptx.check.state import State
from tcsim.ptx.compile.ordinary import row_of
from tcsim.ptx.machine.arrays import LANES, Array
from tcsim.ptx.machine.block import Block
from tcsim.ptx.machine.faults import Stop

_NAMED = "cta"


@dataclass(eq=False)
class Named:
    """A named barrier of a block."""

    last: Array  # of each thread: phases that were over when it arrived last; -1: it has not
    lines: Array  # the instruction at which each thread has arrived in the phase under way, if it is .aligned
    met: Array  # of each warp: phases that were over when it last went on from one
    met_clock: Array  # and its clock then
    ended: int = 0  # phases that are over
    arrived: dict[int, int] = field(default_factory=dict)  # of each warp that arrived in the phase before, its clock
    # Of the phase under way:
    arriving: dict[int, int] = field(default_factory=dict)
    wanted: int | None = None  # threads that it is for
    count: int = 0  # and that have arrived
    published: Array | None = None

    @classmethod
    def of(cls, threads: int) -> Named:
        """That of a block."""
        met = np.zeros((2, threads // LANES), np.int64)
        return cls(np.full(threads, -1), np.zeros(threads, np.int64), *met)

    def close(self, warps: Array, now: Array) -> None:
        """The phase under way is over for some warps, by their clocks."""
        self.ended += 1
        self.arrived, self.arriving = self.arriving, {}
        self.wanted, self.count, self.published = None, 0, None
        self.lines[:] = 0
        self.met[warps], self.met_clock[warps] = self.ended, now


class Barriers:
    """The barriers of a cluster's blocks in use, and the cluster's own."""

    def __init__(self, state: State) -> None:
        self.state = state
        self._named: dict[tuple[int, int], Named] = {}  # by rank and number
        # By phase of the cluster's, and the rank of the block that learns it; -1: all.
        self._published: dict[tuple[int, int], Array] = {}
        self._before: dict[int, int] = {}  # by rank: activity up to the last barrier of the whole block
        self._useful: set[int] = set()  # instructions that were such a barrier and ordered something
        self._idle: dict[int, tuple[Block, int]] = {}  # those that did not: where first, how often
        self._over: dict[int, tuple[int, Array]] = {}  # by warp that has ended: cluster phases it was in, what it knew

    def arrived(self, block: Block, scope: str, number: int, mask: Array) -> None:
        """Threads arrive: they publish what was before."""
        state = self.state
        some = state.some(block, np.nonzero(mask)[0])
        row = row_of(block.here.opcode) if block.here is not None else None
        relaxed = getattr(row, "sem", "") == "relaxed"
        own, phase = self._named.get((block.rank, number)), block.cluster.phase
        if scope == _NAMED:
            if own is None:
                own = self._named[block.rank, number] = Named.of(block.threads.count)
            self._counted(own, block, number, mask, bool(getattr(row, "aligned", True)))
            self._follows(own, block, number, mask, some)
        elif relaxed:
            state.relaxed.update(dict.fromkeys(some.tolist(), "CLUSTER_BARRIER_RELAXED"))
        if not relaxed:
            state.lanes.publishing(*state.bits(block, mask))
        found = state.clocks.published(some, relaxed)
        if scope == _NAMED and own is not None:
            own.published = found if own.published is None else np.maximum(own.published, found)
        else:
            far = state.flags.beyond(found, some) if relaxed else found
            for whose, what in ((block.rank, found), (-1, far)) if relaxed else ((-1, far),):
                self._published[phase, whose] = np.maximum(self._published.get((phase, whose), what), what)

    def _counted(self, own: Named, block: Block, number: int, mask: Array, aligned: bool) -> None:
        state, thread = self.state, int(np.argmax(mask))
        line, wanted = state.number(block.here), int(block.barriers.counts[number][0])
        own.wanted = wanted if own.wanted is None else own.wanted
        own.count += int(np.count_nonzero(mask))
        said = f"{state.opcode(line)} is for {wanted} threads, and"
        if own.wanted != wanted:
            others = f"{said} others have arrived at barrier {number} for {own.wanted}"
            state.report("BARRIER_COUNT", block, others, line, 0, thread)
        elif 0 < wanted < own.count:
            many = f"{said} {own.count} have arrived at barrier {number} in one phase"
            state.report("BARRIER_COUNT", block, many, line, 0, thread)
        own.lines[mask] = line if aligned else 0

    def _follows(self, own: Named, block: Block, number: int, mask: Array, some: Array) -> None:
        """Whoever arrives has to know that the phase before is over: else the arrival can count for that."""
        state = self.state
        warps = some - block.rank * state.per_block
        twice = mask & (own.last == own.ended)
        known = own.met[warps] == own.ended
        if not known.all():
            known |= [self._knows(block, own, warp) for warp in some.tolist()]
        if not known.all() or twice.any():
            thread = int(np.argmax(twice)) if twice.any() else int(warps[~known][0]) * LANES
            line = state.number(block.here)
            said = f"{state.opcode(line)} arrives at barrier {number} in warp {thread // LANES}, and nothing orders that after the end of the phase before: it can count for that"
            state.report("BARRIER_PHASE_ALIAS", block, said, line, 0, thread, barrier=number)
        own.last[mask] = own.ended
        own.arriving.update(zip(some.tolist(), state.clocks.now[some].tolist(), strict=True))

    def _knows(self, block: Block, own: Named, warp: int) -> bool:
        """Whether a warp comes after one that has gone on from the phase before, or after all arrivals in it."""
        known = self.state.clocks.known[warp, EXECUTED, 1:-1]
        first = block.rank * self.state.per_block
        met = own.met_clock <= known[first : first + len(own.met)]
        if (met & (own.met == own.ended)).any():
            return True
        return all(known[who] >= when for who, when in own.arrived.items())

    def passed(self, block: Block, scope: str, number: int, mask: Array) -> None:
        """Threads that waited go on: they know what the others published."""
        state = self.state
        some = state.some(block, np.nonzero(mask)[0])
        if scope == _NAMED:
            own = self._named[block.rank, number]
            if own.published is not None and len(some):
                state.lanes.learning(*state.bits(block, mask), own.published)
                state.clocks.acquire(some, own.published)
            if not own.wanted:  # it is for all threads that have not ended
                over = (known for warp, (_, known) in self._over.items() if warp // state.per_block == block.rank)
                self._released_by(over, some)
            self._together(block, number, mask, own.lines)
            own.close(some - block.rank * state.per_block, state.clocks.now[some])
            return
        now = block.cluster.phase
        for key in product((now - 1, now - 2), (-1, block.rank)):
            if key in self._published:
                state.lanes.learning(*state.bits(block, mask), self._published[key])
                state.clocks.acquire(some, self._published[key])
            self._published.pop((now - 3, key[1]), None)
        self._released_by((known for phases, known in self._over.values() if phases < block.cluster.phase), some)

    def exited(self, block: Block, mask: Array) -> None:
        """Threads end: barriers wait for their warp no more, once all have."""
        state = self.state
        left = (block.threads.alive & ~mask).reshape(-1, LANES).any(1)
        for warp in np.flatnonzero(mask.reshape(-1, LANES).any(1) & ~left).tolist():
            own = block.rank * state.per_block + warp
            self._over[own] = int(block.barriers.cluster_phase[warp * LANES]), state.clocks.known[own, ORDERED].copy()

    def _released_by(self, over: Iterable[Array], some: Array) -> None:
        """Warps go on at a barrier that did not wait for some that have ended; over: what these knew."""
        for own in over:
            self.state.released[some] = np.maximum(self.state.released[some], own)

    def _together(self, block: Block, number: int, mask: Array, lines: Array) -> None:
        """All threads of a warp have to arrive at one instruction, if it is .aligned, those of a block at one that is for all of it."""
        each = lines.reshape(-1, LANES)
        first = np.where(each > 0, each, np.iinfo(np.int64).max).min(1)
        last = each.max(1)
        apart = (last > first) & (last > 0)
        if apart.any():
            warp = int(np.argmax(apart))
            lines_of = first[warp], last[warp]
            self._apart(block, "BARRIER_WARP_DIVERGENCE", f"threads of warp {warp}", number, *lines_of, warp * LANES)
        elif number in block.barriers.counts and not block.barriers.counts[number][0] and first.min() < last.max():
            warp = int(np.argmax(last))
            self._apart(block, "BARRIER_ROLE_DIVERGENCE", "warps", number, first.min(), last.max(), warp * LANES)
        if not (block.threads.alive & ~mask).any():
            self._of_all(block, set(np.unique(lines[mask]).tolist()) - {0})

    def _of_all(self, block: Block, lines: set[int]) -> None:
        """A barrier that all threads of a block have waited at: whether there was anything to order."""
        rank, now = block.rank, self.state.activity[block.rank]
        before, self._before[rank] = self._before.get(rank, 0), now
        if now != before:
            self._useful |= lines
            return
        for line in lines:
            first, count = self._idle.get(line, (block, 0))
            self._idle[line] = first, count + 1

    def ended(self, stop: Stop | None) -> None:
        """The cluster has ended: which barriers never ordered anything."""
        state = self.state
        for line, (block, count) in self._idle.items() if stop is None else ():
            if line not in self._useful:
                why = "no thread has touched memory, waited or fenced since the barrier before"
                said = f"{state.opcode(line)}, executed {count} times by a block: {why}"
                state.report("BARRIER_ORDERS_NOTHING", block, said, line, 0, None)

    def _apart(self, block: Block, rule: str, who: str, number: int, first: int, last: int, thread: int) -> None:
        state, (line, other) = self.state, (int(first), int(last))
        said = f"{who} arrive at barrier {number} at {state.opcode(line)} and at {state.opcode(other)}"
        state.report(rule, block, said, line, other, thread, barrier=number)
