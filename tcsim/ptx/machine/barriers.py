"""How the threads of a block wait for each other: named barriers, and the barrier of the cluster."""

from __future__ import annotations

from typing import Any

import numpy as np

from tcsim.ptx.machine.arrays import LANES, Array, Mask
from tcsim.ptx.machine.events import Events
from tcsim.ptx.machine.faults import Stop
from tcsim.ptx.machine.fibers import Fiber, Fibers, Moves, Wait
from tcsim.ptx.machine.threads import Threads
from tcsim.ptx.machine.view import ClusterView
from tcsim.ptx.machine.warps import Warps
from tcsim.ptx.text.syntax import Instruction

BARRIERS = 16
"""Named barriers of a block."""


class Barriers:
    """The barriers of a block: its named ones, and that of the cluster."""

    def __init__(
        self, block: object, threads: Threads, warps: Warps, fibers: Fibers, cluster: ClusterView, events: Events
    ) -> None:
        self.block, self.threads, self.warps, self.fibers = block, threads, warps, fibers
        self.cluster, self.events = cluster, events
        self.arrived: dict[int, Array] = {}  # of each named barrier: who arrived without waiting, how often
        self.counts: dict[
            int, Array
        ] = {}  # of each in use, by block of the batch: threads that it is for; -1: it is not in use there
        self._unused = np.full(threads.batch, -1)
        # Phases of the cluster's barrier that threads arrived in.
        self.cluster_phase = np.zeros(threads.count, np.int64)

    # --- named barriers

    def _named(self, number: Any, count: Any, mask: Array) -> list[tuple[Array, int, int]]:
        """(threads, barrier, count) of an instruction: almost always one."""
        numbers, counts = self.threads.each(number), self.threads.each(0 if count is None else count)
        found, left, one = [], mask, np.ndarray not in (type(number), type(count))
        while left.any():
            first = int(left.argmax())
            own = left if one else left & (numbers == numbers[first]) & (counts == counts[first])
            which, wanted = int(numbers[first]), int(counts[first])
            if which >= BARRIERS:
                raise Stop("INVALID_OPERAND", f"barrier {which}; valid: 0 to {BARRIERS - 1}", first)
            if wanted % LANES:
                raise Stop("BARRIER_COUNT", f"a barrier for {wanted} threads; valid: multiples of {LANES}", first)
            found.append((own, which, wanted))
            left = left & ~own
        return found

    def _use(self, number: Any, count: Any, w: Mask) -> list[tuple[Array, int, int]]:
        """As of `_named`, which is told."""
        found = self._named(number, count, self.threads.mask(w))
        for own, which, wanted in found:
            if which not in self.counts:
                self.counts[which] = self._unused.copy()
            self.counts[which][self.threads.blocks_in(own)] = wanted
            for hear in self.events.arrived:
                hear(self.block, "cta", which, own)
        return found

    def barrier(
        self, number: Any, count: Any, w: Mask, after: int, kind: str, predicate: Any, into: Any, item: Instruction
    ) -> Moves:
        """Wait until the threads that the barrier is for have arrived."""
        given = None if predicate is None else self.threads.each(predicate).copy()
        return [
            (own.copy(), Wait("bar", after, which, wanted, kind, given, into, item=item))
            for own, which, wanted in self._use(number, count, w)
        ]

    def arrive(self, number: Any, count: Any, w: Mask) -> None:
        """Arrive without waiting."""
        for own, which, _ in self._use(number, count, w):
            self.arrived[which] = self.arrived.get(which, np.zeros(self.threads.count, np.int64)) + own
        self.settle()

    def _by_block(self, values: Array) -> Array:
        """Values of threads as (blocks, threads)."""
        return values.reshape(self.threads.batch, -1)

    def _warps_of(self, counts: Array) -> Array:
        """Warps of each block that have arrived, each as often as all its threads that live have; one that has ended, as often as it had."""
        never, shape = np.iinfo(np.int64).max, (self.threads.batch, -1, LANES)
        per = np.where(self.threads.alive, counts, never).reshape(shape).min(2)
        return np.where(per < never, per, counts.reshape(shape).max(2)).sum(1)

    def _reduce(self, waiting: list[tuple[Fiber, Wait]], present: Array, released: Array) -> None:
        """Tell threads that are released what their block's predicates come to, if those that came first ask for it."""
        flags, told, seen = np.zeros(self.threads.count, bool), *np.zeros((2, self.threads.batch), bool)
        for fiber, waits in waiting:
            there = self.threads.blocks_in(fiber.mask)
            told, seen = told | (there & ~seen & (waits.reduce != "sync")), seen | there
            if waits.predicate is not None:
                flags |= fiber.mask & waits.predicate
        one, every = self._by_block(flags), self._by_block(flags | ~present)
        each = {"popc": one.sum(1), "and": every.all(1), "or": one.any(1)}
        for fiber, waits in waiting:
            if waits.into is not None:
                result, to = self.threads.per_thread(each[waits.reduce]), released & self.threads.per_thread(told)
                np.copyto(waits.into, result, where=fiber.mask & to, casting="unsafe")

    def _complete(self, which: int) -> None:
        """Release a barrier's threads where all have arrived."""
        waiting = [
            (own, own.waits) for own in self.fibers.waiting_for("bar") if own.waits and own.waits.number == which
        ]
        present = np.zeros(self.threads.count, bool)
        for fiber, _ in waiting:
            present |= fiber.mask
        used = self.counts[which]
        if which not in self.arrived and not used.any():  # for all threads, and all of them wait
            done = ~self.threads.blocks_in(self.threads.alive & ~present)
        else:
            counts = present + self.arrived.get(which, 0)
            wanted = used // LANES if used.all() else np.where(used, used // LANES, self._warps_of(self.threads.alive))
            done = (used >= 0) & (self._warps_of(counts) >= wanted)
        if not done.any():
            return
        every = bool(done.all())
        released = self.threads.mask(True) if every else self.threads.per_thread(done)
        if any(waits.reduce != "sync" for _, waits in waiting):
            self._reduce(waiting, present, released)
        for hear in self.events.passed:
            hear(self.block, "cta", which, present & released)
        for fiber, _ in waiting:
            self.fibers.wake(fiber, done)
        used[done] = -1
        if every or used.max() < 0:
            self.arrived.pop(which, None)
            del self.counts[which]
        elif which in self.arrived:
            self.arrived[which][released] = 0
        self.threads.change(released)

    def settle(self) -> None:
        """Let threads go on that have met."""
        for which in list(self.counts):
            self._complete(which)
        if self.fibers.waiting:
            self.warps.meet()

    # --- the barrier of the cluster

    def cluster_arrive(self, w: Mask) -> None:
        """barrier.cluster.arrive: once a phase for every thread."""
        mask, phase = self.threads.mask(w), self.threads.per_thread(self.cluster.phase)
        twice = mask & (self.cluster_phase > phase)
        if twice.any():
            raise Stop("CLUSTER_BARRIER_TWICE", "barrier.cluster.arrive twice in one phase", int(np.argmax(twice)))
        np.copyto(self.cluster_phase, phase + 1, where=mask)
        for hear in self.events.arrived if mask.any() else ():
            hear(self.block, "cluster", 0, mask)
        self.cluster.settle()

    def cluster_wait(self, w: Mask, after: int, item: Instruction) -> Any:
        """barrier.cluster.wait: until every thread of the cluster has arrived."""
        mask = self.threads.mask(w)
        self.cluster.settle()
        rest = mask & (self.cluster_phase > self.threads.per_thread(self.cluster.phase))
        go = mask & ~rest
        for hear in self.events.passed if go.any() else ():
            hear(self.block, "cluster", 0, go)
        if not rest.any():
            return after
        waits: Moves = [(rest, Wait("cluster", after, item=item))]
        return [(go, after), *waits] if go.any() else waits
