"""The machine: a block of threads in lockstep, parted where they diverge or wait, joined where they meet again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tcsim.ptx.memory import Memory, Segment
from tcsim.ptx.performer import Performer
from tcsim.ptx.program import Compiled
from tcsim.ptx.threads import LANES, Array, Mask, Stop

EXIT = -1


@dataclass(eq=False)
class Wait:
    """What threads wait for, and where they go on."""

    kind: str  # "bar", "cluster"
    number: int
    after: int
    count: int = 0  # threads of a barrier
    reduce: str = "sync"
    predicate: Array | None = None
    into: Array | None = None


@dataclass(eq=False)
class Fiber:
    """Threads that execute together."""

    mask: Array
    block: int
    waits: Wait | None = None
    turns: int = 0  # blocks executed since others had a turn


@dataclass(eq=False)
class Barrier:
    """A barrier of a block: who arrived."""

    waiting: list[Fiber] = field(default_factory=list)
    arrived: int = 0  # threads that do not wait
    count: int = 0


class Block(Performer):
    """A block of threads (a CTA): its registers, shared and local memory, and fibers."""

    def __init__(
        self, program: Compiled, memory: Memory, params: Segment, grid: tuple[int, int, int], block: tuple[int, int, int],
        index: tuple[int, int, int], dynamic_smem: int, cluster: tuple[int, int, int] = (1, 1, 1), rank: int = 0,
    ) -> None:  # fmt: skip
        super().__init__(grid, block, index, cluster, rank, program.shared_bytes + dynamic_smem, dynamic_smem)
        self.program, self.memory, self.params = program, memory, params
        self.registers = [
            np.zeros(self.threads, container) if type != "b128" else np.zeros(self.threads, np.dtype((np.void, 16)))
            for type, container, _ in program.registers
        ]
        self.shared = Segment(0, np.zeros(self.shared_bytes, np.uint8))
        self.local_bytes = program.local_bytes
        self.local_stride = -(-max(program.local_bytes, 1) // 16) * 16
        self.local = Segment(0, np.zeros(self.local_stride * self.threads, np.uint8)) if program.local_bytes else None
        self.blocks: Sequence[Block] = (self,)
        self.fibers = [Fiber(np.ones(self.threads, bool), 0)]
        self.barriers: dict[int, Barrier] = {}
        self.slept = False
        self.queue = []
        self.groups = {}
        self.early = False

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

    def switch(self, w: Mask, p: Any, choice: Array, places: tuple[int, ...], after: int) -> Any:
        """Go to one of several blocks, which a register picks."""
        mask = self._array(w)
        go = mask & p
        moves = [(go & (choice == place), block) for place, block in enumerate(places)]
        moves.append((mask & ~go, after))
        return [(own, block) for own, block in moves if own.any()]

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

    # --- barriers

    def barrier(self, number: Any, count: Any, w: Mask, after: int, kind: str, predicate: Any, into: Any) -> Any:
        """Wait until as many threads have arrived."""
        mask = self._array(w)
        first = int(np.argmax(mask))
        which = int(np.broadcast_to(number, (self.threads,))[first])
        wanted = 0 if count is None else int(np.broadcast_to(count, (self.threads,))[first])
        own = None if predicate is None else np.broadcast_to(predicate, (self.threads,)).copy()
        return [(mask.copy(), Wait("bar", which, after, wanted, kind, own, into))]

    def arrive(self, number: Any, count: Any, w: Mask) -> None:
        """Arrive without waiting."""
        mask = self._array(w)
        first = int(np.argmax(mask))
        which = int(np.broadcast_to(number, (self.threads,))[first])
        barrier = self.barriers.setdefault(which, Barrier())
        barrier.arrived += int(self._in_warps(mask))
        barrier.count = int(np.broadcast_to(count, (self.threads,))[first])
        self._complete(which)

    def _in_warps(self, mask: Array) -> int:
        """Threads that arrive: a barrier counts whole warps."""
        return int(self._warped(mask, bool).any(1).sum()) * LANES

    def _alive(self) -> int:
        alive = np.zeros(self.threads, bool)
        for fiber in self.fibers:
            alive |= fiber.mask
        for barrier in self.barriers.values():
            for fiber in barrier.waiting:
                alive |= fiber.mask
        return self._in_warps(alive)

    def _complete(self, which: int) -> bool:
        """Release a barrier's threads if all have arrived."""
        barrier = self.barriers[which]
        wanted = barrier.count or self._alive()
        waiting = np.zeros(self.threads, bool)
        for fiber in barrier.waiting:
            waiting |= fiber.mask
        if self._in_warps(waiting) + barrier.arrived < wanted or not barrier.waiting:
            return False
        waits = [fiber.waits for fiber in barrier.waiting if fiber.waits is not None]
        if waits and waits[0].reduce != "sync":
            flags = np.zeros(self.threads, bool)
            for fiber in barrier.waiting:
                if fiber.waits is not None and fiber.waits.predicate is not None:
                    flags |= fiber.mask & fiber.waits.predicate
            found: Any = {"popc": int(flags.sum()), "and": bool(flags[waiting].all()), "or": bool(flags.any())}[
                waits[0].reduce
            ]
            for fiber in barrier.waiting:
                if fiber.waits is not None and fiber.waits.into is not None:
                    np.copyto(fiber.waits.into, found, where=fiber.mask, casting="unsafe")
        for fiber in barrier.waiting:
            fiber.block = fiber.waits.after if fiber.waits is not None else EXIT
            fiber.waits = None
            self.fibers.append(fiber)
        del self.barriers[which]
        return True

    # --- running

    def step(self) -> bool:
        """Run one basic block of the threads that are furthest behind; False where nothing can run."""
        self._join()
        ready = [fiber for fiber in self.fibers if fiber.waits is None]
        if not ready:
            return False
        fiber = min(ready, key=lambda own: (own.turns >> 6, own.block))
        self.fibers.remove(fiber)
        fiber.turns += 1
        full = fiber.mask.all()
        found = self.program.blocks[fiber.block](self, self.registers, True if full else fiber.mask)
        self.count += self.program.size_of(fiber.block)
        moves = found if isinstance(found, list) else [(fiber.mask, found)]
        exited = False
        for mask, where in moves:
            if isinstance(where, Wait):
                own = Fiber(mask, EXIT, where)
                barrier = self.barriers.setdefault(where.number, Barrier())
                barrier.waiting.append(own)
                barrier.count = where.count or barrier.count
            elif where == EXIT:
                exited = True
            else:
                self.fibers.append(Fiber(mask, where, None, fiber.turns))
        for which in list(self.barriers):
            if exited or any(isinstance(where, Wait) for _, where in moves):
                self._complete(which)
        return True

    def _join(self) -> None:
        """Threads at the same place execute together again."""
        if len(self.fibers) < 2:
            return
        places: dict[int, Fiber] = {}
        joined: list[Fiber] = []
        for fiber in self.fibers:
            other = places.get(fiber.block) if fiber.waits is None else None
            if other is not None:
                other.mask = other.mask | fiber.mask
                other.turns = max(other.turns, fiber.turns)
                continue
            if fiber.waits is None:
                places[fiber.block] = fiber
            joined.append(fiber)
        self.fibers = joined

    @property
    def done(self) -> bool:
        """Whether all threads have exited."""
        return not self.fibers and not self.barriers
