"""A cluster of blocks that run together: whose turn it is, when pending work completes, and what a deadlock is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np

from tcsim.ptx.machine.block import Block
from tcsim.ptx.machine.deadlock import deadlock
from tcsim.ptx.machine.events import Events
from tcsim.ptx.machine.observer import Observer
from tcsim.ptx.machine.pending import Queue
from tcsim.ptx.machine.polling import Polled, Watch
from tcsim.ptx.machine.setup import Setup

TURN = 64
"""Basic blocks that a block of threads executes before another one of its cluster has its turn."""
IDLE = 64
"""Basic blocks without any change of memory or of who waits, after which spinning is looked for where a loop may wait; elsewhere after LONG_IDLE."""
SHIFT = 1 << 22
"""Instructions that a cluster executes before others of the grid have their turn, even if it could go on."""
SHORT_SHIFT = 1 << 12
"""The same where all clusters of a grid run beside each other: in a cooperative launch."""
TURNS = 256
"""Turns of loops that may wait after which pending work goes on, whatever they write."""
MANY_TURNS = 1 << 14
"""Such turns after which, if there is no pending work, other clusters of the grid have their turn."""
LONG_IDLE = 8192
"""Basic blocks without such a change after which pending work goes on in any case."""


class Cluster:
    """The blocks of a cluster, or one block where there are no clusters."""

    def __init__(
        self, setup: Setup, indices: Sequence[tuple[int, int, int]], observe: Sequence[Callable[[Cluster], Observer]] = ()
    ) -> None:  # fmt: skip
        """indices: of its blocks in the grid, by rank. observe: make the observers, when the blocks are there."""
        self.cancel: Callable[[], tuple[int, int, int] | None] = lambda: None  # a cluster that has not started
        self.others = prod(setup.grid) > prod(setup.cluster)  # whether the grid has more clusters
        self.events = Events()
        self.queue, self.arch = Queue(setup.schedule, self.events), setup.arch
        self.blocks: list[Block] = []
        self.phase = 0  # of the cluster's barrier
        self.fair = False  # whether every fiber gets a turn: when spinning is looked for
        for rank, index in enumerate(indices):
            self.blocks.append(Block(setup, [index], rank, self))
        self.running: Block | None = None  # the block that a fault stopped
        self.asking: set[tuple[int, int]] = (
            set()
        )  # block of the batch and rank: those that wait for their pair to take columns of Tensor Memory too
        self.granted: dict[
            tuple[int, int], int
        ] = {}  # by block of the batch and rank: columns that its pair took with it
        self.tired = False  # whether the last run ended because others have their turn
        self.stirred = False  # whether the last run changed anything
        self.turns = 0  # of loops that may wait, since pending work went on
        self.watch: Watch | None = None  # over what it polls, if it only spins
        self._idle, self._long = 0, IDLE if setup.program.waits else LONG_IDLE
        self._seen: Any = None
        self.observers = [make(self) for make in observe]
        for observer in self.observers:
            self.events.subscribe(observer)

    def settle(self) -> None:
        """End the phase of the cluster's barrier if every thread that lives has arrived."""
        for block in self.blocks:
            if (block.threads.alive & (block.barriers.cluster_phase <= self.phase)).any():
                return
        if not any((block.barriers.cluster_phase > self.phase).any() for block in self.blocks):
            return
        self.phase += 1
        for block in self.blocks:
            block.threads.changed = True
            for fiber in block.fibers.waiting_for("cluster"):
                for hear in self.events.passed:
                    hear(block, "cluster", 0, fiber.mask)
                block.fibers.wake(fiber)

    def wake(self, kind: str, address: int | None = None, block: int | list[int] = 0) -> None:
        """Let threads ask again that wait for a resource, or for an mbarrier. block: of a batch."""
        for own in self.blocks:
            for fiber in own.fibers.waiting_for(kind):
                if address is None or (fiber.waits is not None and fiber.waits.address == address):
                    own.fibers.wake(fiber)

    def run(self, spend: Callable[[int], None], shift: int = SHIFT) -> bool:
        """Run until all threads have exited; False if they only spin, and nothing in the cluster can change that, or are tired.

        They are tired after `shift` instructions. `spend` is called with the number of instructions executed, and may raise Stop. Raises Stop for a fault or a deadlock.
        """
        self.stirred = self.tired = False
        self.watch = None
        done = 0
        while True:
            busy = waited = False
            for block in self.blocks:
                before = block.threads.executed
                for _ in range(TURN):
                    if not block.fibers.ready and not block.meeting.meet():
                        break
                    busy = True
                    block.step()
                    self.queue.tick()
                    if block.threads.changed:
                        block.threads.changed = block.threads.timed = False
                        self.stirred = True
                        self._calm()
                    elif self._spins():
                        if not any(own.meeting.meet() for own in self.blocks) and not self.queue.force():
                            spaces = self.blocks[0].spaces
                            self.watch = spaces.memory.watches.over(spaces.polled)
                            self._calm()
                            return False
                        self._calm()
                    if self.turns >= (TURNS if self.queue.flights else MANY_TURNS):
                        self.turns = 0
                        waited = not self.queue.force()
                spend(block.threads.executed - before)
                done += block.threads.executed - before
            if busy:
                if done < shift and not (waited and self.others):
                    continue
                self.stirred, self.tired = False, True
                return False
            if all(block.done for block in self.blocks):
                self.queue.drain()
                return True
            if not self.queue.force():
                raise deadlock(self.blocks)

    def _spins(self) -> bool:
        """Whether the state is one that was there before: then nothing but pending work can ever change it."""
        self._idle += 1
        if self._idle < self._long:
            return False
        if self.queue.flights and (self._idle >= LONG_IDLE or any(own.threads.timed for own in self.blocks)):
            return True  # with the time in a register no state comes again
        self.fair = True
        if self._seen is not None:
            places, registers, least = self._seen
            if (
                all(block.fibers.are_at(own) for block, own in zip(self.blocks, places, strict=True))
                and all(fiber.turns > turns for fiber, turns in zip(self._ready(), least, strict=True))
                and all(
                    np.array_equal(now, then)
                    for block, kept in zip(self.blocks, registers, strict=True)
                    for now, then in zip(block.registers, kept, strict=True)
                )
            ):
                return True
        if self._seen is None or self._idle & (self._idle - 1) == 0:
            copies = [[register.copy() for register in block.registers] for block in self.blocks]
            places = [block.fibers.places() for block in self.blocks]
            self._seen = places, copies, [fiber.turns for fiber in self._ready()]
            self._note(Polled())
        return False

    def _note(self, polled: Polled | None) -> None:
        """Where to note what is read in global memory from now on."""
        for block in self.blocks:
            block.spaces.polled = polled

    def _calm(self) -> None:
        """Something changes: spinning is not looked for."""
        if self._seen is not None:
            self._note(None)
        self._idle, self.fair, self._seen = 0, False, None

    @property
    def parked(self) -> bool:
        """Whether it only spins, and what it polls has not been written since it ran."""
        return self.watch is not None and not self.watch.touched

    def _ready(self) -> list[Any]:
        return [block.fibers.ready[place] for block in self.blocks for place in sorted(block.fibers.ready)]
