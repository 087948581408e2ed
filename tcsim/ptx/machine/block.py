"""A block of threads in lockstep, parted where threads diverge or wait, joined where they meet again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from tcsim.ptx.compile.compiled import COLLECTIVE, Compiled
from tcsim.ptx.machine.arrays import Array, Mask
from tcsim.ptx.machine.faults import EXCEPTIONS, Stop, stop_for
from tcsim.ptx.machine.fibers import EXIT, Fiber, Fibers, Wait
from tcsim.ptx.machine.meeting import Meeting
from tcsim.ptx.machine.memory import Memory, Segment
from tcsim.ptx.machine.observer import Observer
from tcsim.ptx.machine.pending import Queue
from tcsim.ptx.machine.register_file import RegisterFile
from tcsim.ptx.machine.view import ClusterView

__all__ = ["EXIT", "Block", "Fiber", "Wait"]


class Owner(ClusterView, Protocol):
    """The cluster that a block is made for."""

    queue: Queue
    observer: Observer | None


class Block(Meeting):
    """A block of threads (a CTA): its registers, shared and local memory, and fibers."""

    cluster: Owner

    def __init__(
        self, program: Compiled, memory: Memory, params: Segment, grid: Sequence[int], block: Sequence[int],
        index: tuple[int, int, int], dynamic_smem: int, cluster: Sequence[int], rank: int, owner: Owner,
    ) -> None:  # fmt: skip
        super().__init__(grid, block, index, cluster, rank, program.shared_bytes + dynamic_smem, dynamic_smem)
        self.program, self.memory, self.params = program, memory, params
        self.cluster, self.queue, self.arch = owner, owner.queue, owner.arch
        self.file = RegisterFile((_container(type, own) for type, own, _ in program.registers), self.threads)
        self.registers = self.file.arrays
        self.shared = Segment(0, np.zeros(self.shared_bytes, np.uint8))
        self.local_bytes = program.local_bytes
        self.local_stride = -(-max(program.local_bytes, 1) // 16) * 16
        self.local = Segment(0, np.zeros(self.local_stride * self.threads, np.uint8)) if program.local_bytes else None
        self.blocks: Sequence[Block] = owner.blocks
        self.alive = self.numbers < self.launched
        self.fibers = Fibers(self.alive.copy(), program.entry)

    # --- control

    def branch(self, w: Mask, p: Array, target: int, after: int) -> Any:
        """Go to a block where the predicate holds, else on."""
        taken = p if w is True else w & p
        if not taken.any():
            return after
        rest = ~p if w is True else w & ~p
        if not rest.any():
            return target
        return [(taken.copy(), target), (rest, after)]

    def guarded(self, w: Mask, p: Array, after: int, action: Callable[[Mask], Any]) -> Any:
        """Do something that may wait with the threads whose predicate holds; the others go on."""
        mask = self._array(w)
        go, rest = mask & p, mask & ~p
        moves: list[tuple[Array, Any]] = [(rest, after)] if rest.any() else []
        if go.any():
            found = action(True if go.all() else go)
            moves += found if isinstance(found, list) else [(go, found)]
        return moves

    def trap(self, index: int, w: Mask, p: Any, after: int) -> Any:
        """End the launch if a thread gets here."""
        mask = self._array(w) & p
        if mask.any():
            raise Stop("TRAP", "a thread executed trap", int(np.argmax(mask)))
        return after

    # --- running

    def step(self) -> None:
        """Run one basic block of the threads that are furthest behind."""
        fiber = self.fibers.choose(self.cluster.fair, self.queue.random)
        mask, turns = fiber.mask, fiber.turns
        lanes = self.program.gathers[fiber.block]
        if lanes:
            if lanes == COLLECTIVE:
                self.fibers.put(mask, Wait("collective", fiber.block), turns)
                return
            complete = self._whole(mask, lanes)
            if not complete.all():
                rest = mask & ~complete
                if rest.any():
                    self.fibers.put(rest, Wait("lanes", fiber.block, count=lanes), turns)
                    mask = mask & complete
                    if not mask.any():
                        return
        self.count += self.program.size_of(fiber.block)
        found = self.execute(fiber.block, self, mask)
        if type(found) is int:
            if found == EXIT:
                self._exit(mask, fiber.block)
            else:
                self.fibers.add(mask, found, turns + self.sleeps)
        else:
            for own, where in found:
                if isinstance(where, Wait):
                    self.fibers.put(own, where, turns)
                elif where == EXIT:
                    self._exit(own, fiber.block)
                else:
                    self.fibers.add(own, where, turns + self.sleeps)
            self.settle()
        self.sleeps = 0

    def execute(self, block: int, machine: Any, mask: Array) -> Any:
        """Run a basic block's source; an exception ends the launch."""
        try:
            return self.program.blocks[block](machine, self.registers, True if mask.all() else mask)
        except Stop as stop:
            self.cluster.running = self
            raise stop from None
        except EXCEPTIONS as error:
            self.cluster.running = self
            raise stop_for(error).with_traceback(error.__traceback__) from error

    def _whole(self, mask: Array, lanes: int) -> Array:
        """The threads of a mask whose warps, or warpgroups, are complete: all their threads that live are in it."""
        missing = self.alive & ~mask
        units = -(-self.threads // lanes)
        if lanes * units == self.threads:
            lacking = missing.reshape(units, lanes).any(1)
        else:
            lacking = np.pad(missing, (0, lanes * units - self.threads)).reshape(units, lanes).any(1)
        found: Array = ~np.repeat(lacking, lanes)[: self.threads]
        return found

    def turned(self) -> None:
        """A loop that may wait turns once more."""
        self.cluster.turns += 1

    def _exit(self, mask: Array, block: int) -> None:
        """Threads end: those that waited for their lanes look again."""
        if self.observer is not None:
            self.observer.exited(self, mask)
        self.alive &= ~mask
        self.exited[mask] = block
        self.changed = True
        for fiber in [own for own in self.fibers.waiting if own.waits and own.waits.kind in ("lanes", "warp")]:
            self.fibers.wake(fiber)
        self.settle()
        self.cluster.settle()

    @property
    def done(self) -> bool:
        """Whether all threads have exited."""
        return not self.fibers


def _container(type: str, container: np.dtype[Any]) -> np.dtype[Any]:
    return container if type != "b128" else np.dtype((np.void, 16))
