"""A batch: several clusters of a grid that run as one, each exactly as it would alone.

Each block of the batch goes its own way from basic block to basic block; those that are at the same place are executed together. Whatever
would end a cluster otherwise than by its last thread, or let it wait for others of the grid, raises `Unbatchable`: then nothing of the batch counts,
and its clusters run one after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tcsim.ptx.machine.arrays import LANES, Array, distinct
from tcsim.ptx.machine.block import Block
from tcsim.ptx.machine.cluster import IDLE, LONG_IDLE, MANY_TURNS, TURN, TURNS
from tcsim.ptx.machine.events import Events
from tcsim.ptx.machine.faults import Stuck, Unbatchable
from tcsim.ptx.machine.independence import Independence
from tcsim.ptx.machine.pending import Queue
from tcsim.ptx.machine.setup import Setup

# An estimate of time, in microseconds, as measured on 2 CPU cores; it decides only when a batch is given up.
_ALONE = 10  # to execute a basic block in a block that runs alone, its instructions apart
_TOGETHER = 25  # the same in a batch
_PARTED = 50  # more in a batch whose blocks are at different places
_EACH = 10  # for an instruction
_MASKED = 4096  # threads of a batch for which an instruction takes as long again
_MOST_LOST, _PART_LOST = 1000, 10
"""A batch is given up once it has taken longer than its blocks would have taken alone, by this time and by one part in ten of theirs."""


class Batch:
    """Clusters of a grid, each with as many blocks: of each rank the blocks of all of them are one wide `Block`."""

    fair: Array  # of each cluster: whether every fiber gets a turn
    joins = False  # whether those who hear of it know work of several of its blocks as one

    def __init__(
        self, setup: Setup, clusters: Sequence[Sequence[tuple[int, int, int]]], independence: Independence, worth: float = 1
    ) -> None:  # fmt: skip
        """clusters: of each the blocks in the grid, by rank. worth: how many times longer these would take alone than if nobody observed them."""
        self.worth = worth
        count = len(clusters)
        self.cancel: Callable[[], tuple[int, int, int] | None] = lambda: None
        self.others, self.events, self.arch = True, Events(), setup.arch
        self.queue = Queue(setup.schedule, self.events)
        self.observers: list[Any] = []
        self.running: Block | None = None
        self.asking: set[tuple[int, int]] = set()
        self.granted: dict[tuple[int, int], int] = {}
        # Of each cluster: the phase of its barrier, turns of loops that may wait, basic blocks since anything changed.
        self.phase, self.turns, self._idle = (np.zeros(count, np.int64) for _ in range(3))
        self.fair, self._kept = np.zeros((2, count), bool)
        # Of each rank a state of the clusters of which one is kept: where threads are, turns, registers.
        self._seen: list[tuple[Array, Array, list[Array]]] = []
        self._differed = 0  # a register that was not as it was before
        self._won = self._alone = 0.0  # time that the batch has saved, and that its blocks would have taken alone
        self.blocks: list[Block] = []
        for rank, indices in enumerate(zip(*clusters, strict=True)):
            self.blocks.append(Block(setup, indices, rank, self))
            self.blocks[-1].spaces.independence = independence

    # --- as the blocks see it

    def settle(self) -> None:
        """End the phase of the barrier of each cluster of which every thread that lives has arrived."""
        waits, arrived = np.zeros((2, len(self.phase)), bool)
        for block in self.blocks:
            threads, now = block.threads, block.barriers.cluster_phase > block.threads.per_thread(self.phase)
            waits |= threads.blocks_in(threads.alive & ~now)
            arrived |= threads.blocks_in(now)
        ended = arrived & ~waits
        if not ended.any():
            return
        self.phase = self.phase + ended
        for block in self.blocks:
            block.threads.changed |= ended
            for fiber in block.fibers.waiting_for("cluster"):
                for hear in self.events.passed:
                    hear(block, "cluster", 0, fiber.mask & block.threads.per_thread(ended))
                block.fibers.wake(fiber, ended)

    def wake(self, kind: str, address: int | None = None, block: int | list[int] = 0) -> None:
        """Let threads of some clusters ask again that wait for a resource, or for an mbarrier."""
        which = np.zeros(len(self.phase), bool)
        which[block] = True
        for own in self.blocks:
            for fiber in own.fibers.waiting_for(kind):
                if address is None or (fiber.waits is not None and fiber.waits.address == address):
                    own.fibers.wake(fiber, which)

    # --- running

    def run(self, spend: Callable[[int], None]) -> None:
        """Run until all threads have exited. `spend` is called with the number of instructions executed. Raises Unbatchable, and Stop."""
        while True:
            busy = False
            for block in self.blocks:
                left = np.full(len(self.phase), TURN) if len(self.blocks) > 1 else None
                while block.fibers.ready:
                    before = block.threads.executed
                    if not block.step(None if left is None else left > 0):
                        break
                    busy = True
                    spend(block.threads.executed - before)
                    if left is not None:
                        left -= block.turning
                    self._stepped(block)
            if busy:
                continue
            self._meet(np.ones(len(self.phase), bool))
            if not self._go_on():
                return

    def _stepped(self, block: Block) -> None:
        """Some blocks have executed a basic block."""
        now, changed = block.turning, block.threads.changed
        size = _EACH * block.program.size_of(block.place)
        alone = int(np.count_nonzero(now)) * (_ALONE + size) * self.worth
        self._won += alone - _TOGETHER - _PARTED * bool(block.fibers.ready) - size * (1 + block.threads.count / _MASKED)
        self._alone += alone
        if self._won < -_MOST_LOST - self._alone / _PART_LOST:
            raise Unbatchable("its blocks go different ways")
        changed = changed & now
        self._idle += now
        if changed.any():
            block.threads.changed = block.threads.changed & ~changed
            self._calm(changed)
        self.fair = self._idle >= (IDLE if block.program.waits else LONG_IDLE)
        if np.count_nonzero(idle := now & self.fair):
            self._spin(idle)
        if self.turns.max() >= TURNS:
            due = self.turns >= TURNS
            if (due & ~self._working()).any() and self.turns.max() >= MANY_TURNS:
                raise Unbatchable("a block waits for others of the grid")
            due &= self._working()
            if due.any():
                self._force(due)
                self.turns[due] = 0

    def _spin(self, idle: Array) -> None:
        """In some clusters nothing has changed for long: those that spin until work in flight is done get some of it done."""
        working = self._working() & (self._idle >= LONG_IDLE)
        spins = idle & (working | self._again(idle & ~working))
        if not spins.any():
            return
        self._meet(spins)
        if (spins & ~self._working()).any():
            raise Stuck("a block spins")
        self._force(spins)
        self._calm(spins)

    def _again(self, which: Array) -> Array:
        """Which clusters of some are in a state that was there before; of the others one is kept now and then."""
        same = which & self._kept
        for block, (*_, registers) in zip(self.blocks, self._seen, strict=False):
            self._compare(same, block.registers, registers)
        keep = which & (~self._kept | (self._idle & (self._idle - 1) == 0))
        if not (same | keep).any():
            return same
        states = [block.fibers.state() for block in self.blocks]
        for block, (where, turns), (former, least, _) in zip(self.blocks, states, self._seen, strict=False):
            same &= ~block.threads.blocks_in((where != former) | ((where > 0) & (turns <= least)))
        keep &= ~same
        if not self._seen:
            self._seen = [
                (np.zeros_like(where), np.zeros_like(turns), [np.zeros_like(own) for own in block.registers])
                for block, (where, turns) in zip(self.blocks, states, strict=True)
            ]
        for block, state, (where, turns, registers) in zip(self.blocks, states, self._seen, strict=True):
            for now, then in zip((*state, *block.registers), (where, turns, *registers), strict=True):
                self._rows(then)[keep] = self._rows(now)[keep]
        self._kept = self._kept | keep
        return same

    def _compare(self, same: Array, registers: list[Array], kept: list[Array]) -> None:
        """Leave those clusters of some in which all registers are as they were: first the one that differed the last time."""
        rows = np.flatnonzero(same)
        for number in (min(self._differed, len(registers) - 1), *range(len(registers))) if registers else ():
            if not len(rows):
                return
            self._differed = number
            rows = rows[(self._rows(registers[number])[rows] == self._rows(kept[number])[rows]).all(1)]
            same[:] = False
            same[rows] = True

    def _rows(self, values: Array) -> Array:
        """The bits of values of threads, by cluster."""
        return values.view(np.uint64).reshape(len(self.phase), -1)

    def _calm(self, which: Array) -> None:
        """Something changes in some clusters: spinning is not looked for."""
        self._idle[which] = 0
        self._kept = self._kept & ~which

    def _meet(self, which: Array) -> None:
        """Nothing else can go on in some clusters. Lanes that could meet at different instructions do so in a block that is alone."""
        for block in self.blocks:
            there = block.threads.per_thread(which)
            if any((own.mask & there).any() for own in block.fibers.waiting_for("collective")):
                raise Unbatchable("lanes meet at different instructions")
            warps = [(own.mask & there).reshape(-1, LANES).any(1) for own in block.fibers.waiting_for("lanes")]
            if len(warps) > 1 and (np.sum(warps, axis=0) > 1).any():
                raise Unbatchable("lanes meet at different instructions")

    def _live(self) -> Array:
        """Which clusters have threads left."""
        live = np.zeros(len(self.phase), bool)
        for block in self.blocks:
            for fiber in (*block.fibers.waiting, *block.fibers.ready.values()):
                live |= block.threads.blocks_in(fiber.mask)
        return live

    def _go_on(self) -> bool:
        """Complete a piece of work of each cluster that is stuck, and all that is left of one that has ended; whether any is stuck."""
        live = self._live()
        for flight in list(self.queue.flights):
            ended = flight.blocks[~live[flight.blocks]]
            if len(ended) and flight in self.queue.flights:
                self.queue.finish(self.queue.part(flight, ended * flight.block.threads.width))
        if live.any():
            self._force(live)
        return bool(live.any())

    def _working(self) -> Array:
        """Which clusters have work in flight."""
        found = np.zeros(len(self.phase), bool)
        for flight in self.queue.flights:
            found[flight.blocks] = True
        return found

    def _force(self, which: Array) -> None:
        """Complete one piece of work of each of some clusters: first what no thread can wait for but at an mbarrier. Raises Unbatchable where one has none."""
        flights = list(self.queue.flights)
        first, signalling = np.full((2, len(self.phase)), -1)
        for number, flight in enumerate(flights):
            blocks = flight.blocks
            first[blocks[first[blocks] < 0]] = number
            if flight.kind not in ("", "tcgen05"):
                followed = [int(own.block.threads.block_of(own.threads)) for own in flight.followers]
                blocks = blocks[np.isin(blocks, followed)] if followed else blocks[:0]
            signalling[blocks[signalling[blocks] < 0]] = number
        due = np.where(signalling < 0, first, signalling)
        if (due[which] < 0).any():
            raise Stuck("a deadlock")
        for number in distinct(due[which]).tolist():
            flight = flights[number]
            numbers = np.flatnonzero(which & (due == number))
            self.queue.finish_chain(self.queue.part(flight, numbers * flight.block.threads.width))
