"""How the threads of a block wait for each other: named barriers, bar.warp.sync, lanes of a warp, the barrier of the cluster."""

from __future__ import annotations

from typing import Any

import numpy as np

from tcsim.isa.setmaxnreg import RegisterPool
from tcsim.ptx.compile.compiled import Compiled
from tcsim.ptx.machine.arrays import LANES, Array, Mask
from tcsim.ptx.machine.faults import Stop
from tcsim.ptx.machine.fibers import Fibers, Wait
from tcsim.ptx.machine.performer import Performer
from tcsim.ptx.text.syntax import Instruction

BARRIERS = 16
"""Named barriers of a block."""


class Barriers(Performer):
    """Threads that can wait for each other."""

    program: Compiled
    fibers: Fibers
    alive: Array  # threads that have not exited

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.arrived: dict[int, Array] = {}  # of each named barrier: who arrived without waiting, how often
        self.counts: dict[int, int] = {}  # of each named barrier in use: threads that it is for
        self.cluster_phase = np.zeros(self.threads, np.int64)  # phases of the cluster's barrier that threads arrived in
        self.pool: RegisterPool | None = None
        self.sleeps = 0
        self.exited = np.full(self.threads, -1)  # of each thread that has: the basic block

    # --- lanes of a warp

    def active(self, w: Mask, here: int) -> Array:
        """activemask: the lanes of each warp that execute. Which of those that live come together is the machine's own.

        here: the basic block. Lanes that exited before it never come.
        """
        found, exited = self._ballot(self._array(w)), (self.exited >= 0) & (self.exited < here)
        apart = found != self._ballot((self.numbers < self.launched) & ~exited)
        if apart.any():
            self.note("activemask.b32", self._array(w) & apart)
        return found

    def missing(self, members: Array, w: Mask, here: int) -> Any:
        """None if all members that live are there for every lane that executes; else who goes on and who waits."""
        mask = self._array(w)
        now = self._ballot(mask)
        live = self._ballot(self.alive)
        asked = np.broadcast_to(np.asarray(members, np.uint32), (self.threads,)) & live
        complete = (asked & ~now) == 0
        rest = mask & ~complete
        if not rest.any():
            return None
        moves: list[tuple[Array, Any]] = [(rest, Wait("lanes", here, count=LANES))]
        go = mask & complete
        return [(go, here), *moves] if go.any() else moves

    def warp_sync(self, members: Array, w: Mask, after: int, item: Instruction) -> Any:
        """bar.warp.sync: wait until all members have executed one, here or elsewhere."""
        mask = self._array(w)
        asked = np.broadcast_to(np.asarray(members, np.uint32), (self.threads,))
        if not (asked & self._ballot(self.alive) & ~self._ballot(mask))[mask].any():
            if self.observer is not None:
                self.observer.met(self, mask, asked)
            return after
        return [(mask.copy(), Wait("warp", after, members=asked.copy(), item=item))]

    def _meet_warps(self) -> bool:
        waiting = [own for own in self.fibers.waiting if own.waits and own.waits.kind == "warp"]
        if not waiting:
            return False
        present = np.zeros(self.threads, bool)
        for fiber in waiting:
            present |= fiber.mask
        here, live = self._ballot(present), self._ballot(self.alive)
        met, members = np.zeros(self.threads, bool), np.zeros(self.threads, np.uint32)
        for fiber in waiting:
            assert fiber.waits is not None and fiber.waits.members is not None
            complete = fiber.mask & ((fiber.waits.members & live & ~here) == 0)
            if not complete.any():
                continue
            met |= complete
            members[complete] = fiber.waits.members[complete]
            rest = fiber.mask & ~complete
            self.fibers.waiting.remove(fiber)
            if rest.any():
                self.fibers.put(rest, fiber.waits, fiber.turns)
            self.fibers.add(complete, fiber.block, max(fiber.turns, self.fibers.floor))
        if self.observer is not None and met.any():
            self.observer.met(self, met, members)
        return bool(met.any())

    # --- named barriers

    def _named(self, number: Any, count: Any, mask: Array) -> list[tuple[Array, int, int]]:
        """(threads, barrier, count) of an instruction: almost always one."""
        numbers = np.broadcast_to(number, (self.threads,))
        counts = np.broadcast_to(0 if count is None else count, (self.threads,))
        found, left = [], mask
        while left.any():
            first = int(np.argmax(left))
            own = left & (numbers == numbers[first]) & (counts == counts[first])
            which, wanted = int(numbers[first]), int(counts[first])
            if which >= BARRIERS:
                raise Stop("INVALID_OPERAND", f"barrier {which}; valid: 0 to {BARRIERS - 1}", first)
            if wanted % LANES:
                raise Stop("BARRIER_COUNT", f"a barrier for {wanted} threads; valid: multiples of {LANES}", first)
            found.append((own, which, wanted))
            left = left & ~own
        return found

    def barrier(
        self, number: Any, count: Any, w: Mask, after: int, kind: str, predicate: Any, into: Any, item: Instruction
    ) -> Any:
        """Wait until the threads that the barrier is for have arrived."""
        given = None if predicate is None else np.broadcast_to(predicate, (self.threads,)).copy()
        moves = []
        for own, which, wanted in self._named(number, count, self._array(w)):
            self._use(which, wanted)
            if self.observer is not None:
                self.observer.arrived(self, "cta", which, own)
            moves.append((own.copy(), Wait("bar", after, which, wanted, kind, given, into, item=item)))
        return moves

    def _use(self, which: int, wanted: int) -> None:
        self.counts[which] = wanted

    def arrive(self, number: Any, count: Any, w: Mask) -> None:
        """Arrive without waiting."""
        for own, which, wanted in self._named(number, count, self._array(w)):
            self._use(which, wanted)
            if self.observer is not None:
                self.observer.arrived(self, "cta", which, own)
            self.arrived[which] = self.arrived.get(which, np.zeros(self.threads, np.int64)) + own
        self.settle()

    def _warps_of(self, counts: Array) -> int:
        """Warps that have arrived, each as often as all its threads that live have."""
        per = np.where(self.alive, counts, np.iinfo(np.int64).max).reshape(self.warps, LANES).min(1)
        return int(per[per < np.iinfo(np.int64).max].sum())

    def _complete(self, which: int) -> bool:
        """Release a barrier's threads if all have arrived."""
        counts = self.arrived.get(which, np.zeros(self.threads, np.int64)).copy()
        waiting = [
            own for own in self.fibers.waiting if own.waits and own.waits.kind == "bar" and own.waits.number == which
        ]
        present = np.zeros(self.threads, bool)
        for fiber in waiting:
            present |= fiber.mask
        counts = counts + present
        wanted = self.counts[which] // LANES or int(self.alive.reshape(self.warps, LANES).any(1).sum())
        if self._warps_of(counts) < wanted:
            return False
        if waiting and waiting[0].waits and waiting[0].waits.reduce != "sync":
            flags = np.zeros(self.threads, bool)
            for fiber in waiting:
                if fiber.waits is not None and fiber.waits.predicate is not None:
                    flags |= fiber.mask & fiber.waits.predicate
            results: dict[str, Any] = {
                "popc": int(flags.sum()), "and": bool(flags[present].all()), "or": bool(flags.any()),
            }  # fmt: skip
            for fiber in waiting:
                if fiber.waits is not None and fiber.waits.into is not None:
                    found = results[fiber.waits.reduce]
                    np.copyto(fiber.waits.into, found, where=fiber.mask, casting="unsafe")
        if self.observer is not None:
            self.observer.passed(self, "cta", which, present)
        for fiber in waiting:
            self.fibers.wake(fiber)
        self.arrived.pop(which, None)
        del self.counts[which]
        self.changed = True
        return True

    def settle(self) -> None:
        """Let threads go on that have met."""
        if self.counts:
            for which in list(self.counts):
                self._complete(which)
        if self.fibers.waiting:
            self._meet_warps()

    # --- the barrier of the cluster

    def cluster_arrive(self, w: Mask) -> None:
        """barrier.cluster.arrive: once a phase for every thread."""
        mask = self._array(w)
        twice = mask & (self.cluster_phase > self.cluster.phase)
        if twice.any():
            raise Stop("CLUSTER_BARRIER_TWICE", "barrier.cluster.arrive twice in one phase", int(np.argmax(twice)))
        self.cluster_phase[mask] = self.cluster.phase + 1
        if self.observer is not None:
            self.observer.arrived(self, "cluster", 0, mask)
        self.cluster.settle()

    def cluster_wait(self, w: Mask, after: int, item: Instruction) -> Any:
        """barrier.cluster.wait: until every thread of the cluster has arrived."""
        mask = self._array(w)
        self.cluster.settle()
        rest = mask & (self.cluster_phase > self.cluster.phase)
        go = mask & ~rest
        if self.observer is not None and go.any():
            self.observer.passed(self, "cluster", 0, go)
        if not rest.any():
            return after
        waits: list[tuple[Array, Any]] = [(rest, Wait("cluster", after, item=item))]
        return [(go, after), *waits] if go.any() else waits

    # --- the register pool

    def registers_wanted(self, warps: Array, count: int) -> bool:
        """Whether some warps get the registers that setmaxnreg asks for.

        Each warp of a warpgroup may execute an instruction of its own, so that the pool is kept by warps.
        """
        launched = self.program.registers_at_launch
        if not launched:
            return True  # ptxas leaves the instruction out
        pool = self.pool or RegisterPool.at_launch(self.warps, launched)
        owned = list(pool.owned)
        free = pool.free - sum(count - owned[warp] for warp in warps.tolist())
        if free < 0:
            return False
        for warp in warps.tolist():
            owned[warp] = count
        self.pool = RegisterPool(tuple(owned), free)
        return True
