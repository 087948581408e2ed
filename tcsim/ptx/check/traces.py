"""Which clusters of a batch do the same: what the check says of one of them it says of all.

The check judges by what it hears (`tcsim.ptx.machine.events`), and by nothing else. So two clusters of which it would hear the same need not both be
watched. Of what is heard everything counts but what data are, and where in a segment of global memory a cluster begins: the check compares
addresses there with each other, never with a number. It is kept as one number of 64 bits for each cluster, made with random weights, so that no
kernel can be written whose clusters are mistaken for each other.
"""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np

from tcsim.memory.windows import SHARED_WINDOW
from tcsim.model.effects import Access, Effects, GroupOp, Outcome, Pending, Resource, Signal
from tcsim.ptx.check.rules.global_memory import reaches_global
from tcsim.ptx.check.strength import order_of
from tcsim.ptx.compile.families import Bound
from tcsim.ptx.machine.arrays import LANES, Array
from tcsim.ptx.machine.batch import Batch
from tcsim.ptx.machine.block import Block
from tcsim.ptx.machine.faults import Apart
from tcsim.ptx.machine.flights import Flight, Tracker
from tcsim.ptx.machine.memory import Segment
from tcsim.ptx.machine.observer import Observer

_RANDOM = np.random.default_rng()
_EVERY = (1 << 64) - 1
_ODD = tuple(np.uint64(int(own) | 1) for own in _RANDOM.integers(0, 1 << 63, 3, np.uint64))
_NOTHING = np.uint64(0)
_NOWHERE = np.iinfo(np.int64).min


class _Weights:
    """Random odd numbers, as many as are needed."""

    def __init__(self) -> None:
        self._all = _RANDOM.integers(0, 1 << 63, 1024, np.uint64) << np.uint64(1) | np.uint64(1)

    def first(self, count: int) -> Array:
        """The first of them."""
        while count > len(self._all):
            more = _RANDOM.integers(0, 1 << 63, len(self._all), np.uint64) << np.uint64(1) | np.uint64(1)
            self._all = np.concatenate([self._all, more])
        return self._all[:count]


_WEIGHTS = _Weights()


def _mixed(values: Array) -> Array:
    """64 bits each, so that every bit depends on every bit."""
    found = values.astype(np.uint64)
    found = (found ^ found >> np.uint64(33)) * _ODD[0]
    return np.asarray((found ^ found >> np.uint64(29)) * _ODD[1])


def _code(*words: Any) -> np.uint64:
    """Words as one number; the same only in one process."""
    return np.uint64(hash(words) & _EVERY)


class Traces(Observer):
    """What the clusters of a batch do."""

    def __init__(self, cluster: Batch) -> None:
        self.blocks, self.count = cluster.blocks, len(cluster.phase)
        self.width = self.blocks[0].threads.width
        self.ranks = {id(block.spaces.shared): block.rank for block in self.blocks}
        self.sums = np.zeros(self.count, np.uint64)  # of each cluster
        self._active = np.zeros(self.count, bool)  # whether each has accessed global memory since anything else
        self._global = reaches_global(self.blocks[0].program)  # whether the check looks at addresses there
        self._first: dict[int, Array] = {}  # by segment: where each cluster has accessed it first

    # --- numbers

    def _note(self, code: np.uint64, which: Any, values: Any = _NOTHING) -> None:
        """Some clusters did something; values: one for each of them."""
        own = self.sums[which] + self._active[which]
        self._active[which] = False
        self.sums[which] = (own ^ own >> np.uint64(31)) * _ODD[2] + (values ^ code) * _ODD[0]

    def _rows(self, code: np.uint64, of: Any, values: Array) -> None:
        """Something with values, each of one cluster, or all of one."""
        if not len(values):
            return
        mixed = _mixed(values)
        if not np.ndim(of):
            self._note(code, of, (mixed * _WEIGHTS.first(len(values))).sum() + np.uint64(len(values)))
            return
        if (of[1:] < of[:-1]).any():
            order = np.argsort(of, kind="stable")
            of, mixed = of[order], mixed[order]
        starts = np.concatenate([[0], np.flatnonzero(of[1:] != of[:-1]) + 1])
        counts = np.diff(np.append(starts, len(of)))
        place = np.arange(len(of)) - np.repeat(starts, counts)
        sums = np.add.reduceat(mixed * _WEIGHTS.first(int(counts.max()))[place], starts)
        self._note(code, of[starts], sums + counts.astype(np.uint64))

    def _mask(self, code: np.uint64, block: Block, mask: Array) -> None:
        """Threads of a mask did something."""
        bits = mask.view(np.uint64).reshape(self.count, -1)
        which = np.flatnonzero(bits.any(1))
        self._note(code, which, (bits[which] * _WEIGHTS.first(bits.shape[1])).sum(1))

    def _here(self, block: Block, *words: Any) -> np.uint64:
        """An event at the instruction that is executed."""
        return _code(block.rank, id(block.here), *words)

    def _of(self, block: Block, threads: Array) -> Any:
        return block.threads.block_of(threads) if len(threads) else 0

    # --- addresses

    def _in_global(self, block: Block, addresses: Array, of: Any) -> Array:
        """Addresses in global memory, from the first that each cluster has accessed in the segment on."""
        found, memory = np.zeros(len(addresses), np.int64), block.spaces.memory
        left, of = np.ones(len(addresses), bool), np.broadcast_to(of, addresses.shape)
        while left.any():
            at = int(np.argmax(left))
            segment = memory.segment(int(addresses[at]))
            if segment is None:
                raise Apart("an access where nothing is mapped")
            inside = left & (addresses >= np.uint64(segment.address)) & (addresses < np.uint64(segment.end))
            if not inside[at]:
                raise Apart("an access where nothing is mapped")
            first = self._first.setdefault(segment.address, np.full(self.count, _NOWHERE))
            own, whose = addresses[inside].astype(np.int64), of[inside]
            new, places = np.unique(whose, return_index=True)
            fresh = first[new] == _NOWHERE
            first[new[fresh]] = own[places[fresh]]
            begin = first[whose]
            # Words of 4 bytes and copies of 16 are told apart by where they begin.
            found[inside] = (own - begin) * 256 + (begin & 15) + _mixed(np.array([segment.address])).astype(np.int64)
            left &= ~inside
        return found

    def _access(self, code: np.uint64, block: Block, at: Access, threads: Array) -> None:
        of = block.octets.block_of(at, threads)
        address, cta = block.octets.places(at)
        values = address.astype(np.int64)
        if at.space in ("global", "generic"):
            outside = np.ones(len(values), bool)
            if at.space == "generic":
                outside = address.astype(np.uint64) < np.uint64(SHARED_WINDOW)
            if outside.any() and self._global:
                own = of[outside] if np.ndim(of) else of
                values[outside] = self._in_global(block, address[outside].astype(np.uint64), own)
            elif outside.any():
                values[outside] = address[outside] & 15
        found = _mixed(values)
        if at.mask is not None:
            mask = np.broadcast_to(at.mask, (*at.address.shape, at.size)).reshape(-1, at.size)
            mask = (
                np.broadcast_to(mask, (len(found), at.size))
                if len(mask) == len(found)
                else np.tile(mask, (len(found) // len(mask), 1))
            )
            found = found + (mask * _WEIGHTS.first(at.size)).sum(1)
        if cta is not None:
            found = found + _mixed(np.broadcast_to(cta, address.shape))
        words = (at.space, at.size, at.proxy, at.sem, at.scope, at.operand, at.thread is None)
        self._rows(code ^ _code(*words), of, found)
        if at.thread is not None and np.ndim(at.thread):
            self._rows(
                code,
                of if np.ndim(of) and len(of) == at.thread.size else self._of(block, threads[:1]),
                at.thread.reshape(-1),
            )
        if at.tile is not None:
            self._plain(code, block, at.tile, threads)
        if at.cells is not None:
            self._plain(code, block, at.cells, threads)

    def _signal(self, code: np.uint64, block: Block, signal: Signal, threads: Array) -> None:
        code = code ^ _code(signal.kind, signal.layout, signal.no_complete, signal.copied)
        for at in block.octets.copies(signal.at):
            self._access(code, block, at, threads)
        self._plain(code, block, np.asarray(signal.count), threads)

    def _plain(self, code: np.uint64, block: Block, value: Any, threads: Array) -> None:
        """A value: numbers, and what is made of them; of several clusters arrays with an entry for each warp, warpgroup or thread."""
        of = self._of(block, threads)
        if isinstance(value, np.ndarray) and value.dtype.kind in "iub":
            code = code ^ _code(value.shape[1:])
            if np.ndim(of) and value.ndim:
                each = len(threads) // len(value) if len(value) else 0
                if each not in (1, LANES, 4 * LANES) or each * len(value) != len(threads):
                    raise Apart("an operand of several blocks that does not say of which each part is")
                rows = _mixed(value.reshape(len(value), -1))
                self._rows(code, of[::each], (rows * _WEIGHTS.first(rows.shape[1])).sum(1))
                return
            self._note(code, np.unique(of), (_mixed(value.reshape(-1)) * _WEIGHTS.first(value.size)).sum())
        elif is_dataclass(value) and not isinstance(value, type):
            for own in fields(value):
                self._plain(code ^ _code(own.name), block, getattr(value, own.name), threads)
        elif isinstance(value, (tuple, list)):
            for place, own in enumerate(value):
                self._plain(code ^ _code(place), block, own, threads)
        elif isinstance(value, (int, str, bool, np.integer, np.bool_, type(None))):
            self._note(code ^ _code(value), np.unique(of))
        elif not callable(value):
            self._note(code ^ _code(type(value).__name__, str(value)), np.unique(of))

    # --- events

    def accessed(
        self, block: Block, kind: str, segment: Segment | None, offsets: Array, size: int, threads: Array, written: Array | None = None
    ) -> None:  # fmt: skip
        """Loads, stores and atomics: those of local memory are nobody else's."""
        of, rank = self._of(block, threads), -1
        own = threads - of * self.width
        if segment is not None:
            rank = self.ranks.get(id(segment), -1)
            if rank < 0:
                return
            values = offsets.astype(np.int64) - of * self.blocks[rank].spaces.shared_stride
        elif self._global or order_of(block.here.opcode if block.here is not None else "")[0]:
            # Which flag it is does not matter to the check (`tcsim.ptx.check.flags`).
            values = self._in_global(block, offsets, of) if self._global else np.zeros(len(own), np.int64)
        else:  # of which the check sees only that there was one since the last barrier
            self._active[of] = True
            return
        self._rows(self._here(block, "accessed", kind, rank, size), of, values + (own << 40))

    def _who(self, code: np.uint64, block: Block, threads: Array, mask: Array | None = None) -> None:
        of = self._of(block, threads)
        values = threads - of * self.width
        self._rows(code, of, values if mask is None else values * 2 + mask[threads])

    def performed(self, block: Block, bound: Bound, effects: Effects, threads: Array, mask: Array) -> None:
        """Reads, writes, signals, phases that were seen."""
        code = self._here(block, "performed", id(bound))
        self._who(code, block, threads, mask)
        for at in effects.reads:
            self._access(code, block, at, threads)
        self._outcome(code, block, effects.now, threads)
        for seen in effects.seen:
            self._access(code, block, seen.at, threads)
            self._plain(code, block, np.asarray(seen.complete), threads)
        for order in effects.orders:
            self._plain(code, block, (order.kind, order.proxies, order.spaces, order.sem, order.scope), threads)
        for resource in effects.resources:
            self._resource(code, block, resource, threads)

    def _outcome(self, code: np.uint64, block: Block, outcome: Outcome, threads: Array) -> None:
        for write in outcome.writes:
            self._access(code ^ _code(write.combine is None), block, write.at, threads)
        for at in outcome.undefined:
            self._access(code, block, at, threads)
        for signal in outcome.signals:
            self._signal(code, block, signal, threads)

    def _resource(self, code: np.uint64, block: Block, own: Resource, threads: Array) -> None:
        self._plain(code, block, (own.kind, own.cta, own.delta, own.address, own.pair, own.exclusive), threads)

    def incomplete(self, block: Block, bound: Bound, missing: Array) -> None:
        """Some lanes do not take part."""
        self._who(self._here(block, "incomplete", id(bound)), block, missing)

    def issued(self, flight: Flight) -> None:
        """Work begins."""
        block, pending, threads = flight.block, flight.pending, flight.asked
        code = self._here(block, "issued", id(flight.bound), flight.kind)
        self._who(code, block, flight.threads)
        self._rows(code, self._of(block, flight.threads), flight.groups)
        self._pending(code, block, pending, threads)

    def _pending(self, code: np.uint64, block: Block, pending: Pending, threads: Array) -> None:
        for kind, all in (("reads", pending.reads), ("writes", pending.writes)):
            for at in all:
                self._access(code ^ _code(kind), block, at, threads)
        for signal in pending.tells:
            self._signal(code, block, signal, threads)
        if pending.adds is not None:
            self._plain(code, block, np.asarray(pending.adds), threads)

    def fetching(self, flight: Flight) -> None:
        """It reads."""
        self._flight("fetching", flight)

    def landing(self, flight: Flight) -> None:
        """It writes."""
        self._flight("landing", flight)

    def landed(self, flight: Flight) -> None:
        """It has written."""
        self._flight("landed", flight)

    def _flight(self, event: str, flight: Flight) -> None:
        self._who(_code(event, id(flight.bound), flight.block.rank), flight.block, flight.threads)

    def grouped(self, block: Block, group: GroupOp, threads: Array) -> None:
        """A commit, or a wait."""
        self._who(self._here(block, "grouped", group.kind, group.op, group.pending, group.reads_only), block, threads)

    def tracking(self, tracker: Tracker, kind: str) -> None:
        """Signals are to follow."""
        code = self._here(tracker.block, "tracking", kind, tracker.left)
        self._who(code, tracker.block, tracker.threads)
        for signal in tracker.signals:
            self._signal(code, tracker.block, signal, tracker.threads)

    def following(self, tracker: Tracker) -> None:
        """They follow."""
        self._who(_code("following", tracker.block.rank), tracker.block, tracker.threads)

    def needed(self, block: Block, numbers: frozenset[int], mask: Array) -> None:
        """Registers in flight are needed."""
        self._mask(self._here(block, "needed", numbers), block, mask)

    def touched(self, block: Block, reads: frozenset[int], writes: frozenset[int], mask: Array) -> None:
        """Registers that may be in flight are touched."""
        self._mask(self._here(block, "touched", reads, writes), block, mask)

    def signalled(
        self, block: Block, signal: Signal, key: int, count: int, before: int, after: int, threads: Array
    ) -> None:
        """An mbarrier changed."""
        code = self._here(block, "signalled", signal.kind, key, count, before, after)
        self._who(code, block, threads)

    def arrived(self, block: Block, scope: str, number: int, mask: Array) -> None:
        """Threads arrive at a barrier."""
        self._mask(self._here(block, "arrived", scope, number), block, mask)
        counts = block.barriers.counts.get(number) if scope == "cta" else None
        if counts is not None:
            which = np.flatnonzero(block.threads.blocks_in(mask))
            self._note(_code("counts"), which, _mixed(counts[which]))

    def passed(self, block: Block, scope: str, number: int, mask: Array) -> None:
        """They go on."""
        self._mask(_code("passed", block.rank, scope, number), block, mask)

    def met(self, block: Block, mask: Array, members: Array) -> None:
        """Lanes have met."""
        threads = np.flatnonzero(mask)
        self._rows(self._here(block, "met"), self._of(block, threads), members[threads])
        self._mask(_code("met"), block, mask)

    def exchanged(self, block: Block, mask: Array) -> None:
        """Lanes exchange registers."""
        self._mask(self._here(block, "exchanged"), block, block.threads.mask(mask))

    def fenced(self, block: Block, mask: Array) -> None:
        """membar."""
        self._mask(self._here(block, "fenced"), block, mask)

    def granted(self, block: Block, resource: Resource, outcome: Outcome | None, threads: Array) -> None:
        """Something is taken, or given back."""
        code = self._here(block, "granted")
        self._resource(code, block, resource, threads)
        self._who(code, block, threads)
        if outcome is not None:
            self._outcome(code, block, outcome, threads)

    def exited(self, block: Block, mask: Array) -> None:
        """Threads end."""
        self._mask(_code("exited", block.rank), block, mask)
