"""Fibers: threads of a block that execute together, and what they wait for when they do not."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Any

import numpy as np

from tcsim.ptx.machine.arrays import Array
from tcsim.ptx.machine.threads import Threads
from tcsim.ptx.text.syntax import Instruction

Moves = list[tuple[Array, Any]]
"""Threads that part: of each mask the basic block where they go on, or what they wait for."""
EXIT = -1
PATIENCE, LONG_PATIENCE = 8, 16
"""Of two fibers, the one that is further behind in the program runs; after 2**PATIENCE turns more than the other it has to wait, where a loop may
wait for others; elsewhere after 2**LONG_PATIENCE."""


@dataclass(eq=False)
class Wait:
    """What threads wait for, and the basic block where they go on."""

    kind: str  # "lanes", "collective", "warp", "bar", "cluster", "mbarrier", "resource"
    at: int
    number: int = 0  # of a named barrier
    count: int = 0  # threads that it is for; 0: all of the block
    reduce: str = ""
    predicate: Array | None = None
    into: Array | None = None
    members: Array | None = None  # of bar.warp.sync: the threads that have to meet
    address: int = 0  # of an mbarrier, with the rank of its block
    text: str = ""  # what is waited for, in words
    resource: str = ""  # the kind of a Resource that is not free
    item: Instruction | None = None  # the instruction that waits; None for the one at `at`


@dataclass(eq=False)
class Fiber:
    """Threads that execute together."""

    mask: Array
    block: int
    waits: Wait | None = None
    turns: Any = 0  # basic blocks executed; in a batch of each of its blocks, 0 where it has no threads
    counted: Array | None = None  # the mask of which `blocks` are
    blocks: Any = None


class Fibers:
    """The fibers of a block, or of a batch: those that can run, by where they are, and those that wait.

    The blocks of a batch that are at the same place go on together; each does what it would do alone, in the same order.
    """

    def __init__(self, threads: Threads, entry: int, waits: bool = True) -> None:
        """waits: whether a loop of the program may wait for other threads."""
        self.threads, self.patience = threads, PATIENCE if waits else LONG_PATIENCE
        none: Any = 0 if threads.batch == 1 else np.zeros(threads.batch, np.int64)
        self.ready: dict[int, Fiber] = {entry: Fiber(threads.alive.copy(), entry, None, none)}
        self.waiting: list[Fiber] = []
        self.floor = none  # turns that a fiber has at least when it can run again

    def __bool__(self) -> bool:
        return bool(self.ready or self.waiting)

    def waiting_for(self, *kinds: str) -> list[Fiber]:
        """Those that wait for something of some kinds."""
        return [own for own in self.waiting if own.waits is not None and own.waits.kind in kinds]

    def blocks_of(self, fiber: Fiber) -> Array:
        """Which blocks of a batch a fiber has threads of."""
        if fiber.counted is not fiber.mask:
            fiber.counted, fiber.blocks = fiber.mask, self.threads.blocks_in(fiber.mask)
        found: Array = fiber.blocks
        return found

    def most(self, mask: Array, turns: Any, least: Any) -> Any:
        """Turns, or more if these are; in a batch of the blocks that a mask has threads of."""
        if self.threads.batch == 1:
            return max(turns, least)
        return np.where(self.threads.blocks_in(mask), np.maximum(turns, least), 0)

    def add(self, mask: Array, block: int, turns: Any) -> None:
        """Threads at the same place execute together."""
        other = self.ready.get(block)
        fiber = Fiber(mask, block, None, turns)
        if self.threads.batch > 1:
            fiber.turns = turns = np.where(self.blocks_of(fiber), turns, 0)
        lanes = [own for own in self.waiting_for("lanes") if own.block == block] if self.waiting else []
        first = (
            self._apart(mask, other.mask) if lanes and other is not None else mask
        )  # those of blocks that have no others there
        for own in lanes:
            if first is not None and (found := self._common(own.mask, first)) is not None:
                self._leave(own, found)
                mask = mask | (own.mask if found is True else found)
        if other is None:
            fiber.mask = mask
            self.ready[block] = fiber
        elif self.threads.batch == 1:
            other.mask, other.turns = other.mask | mask, max(other.turns, turns)
        else:
            blocks = self.blocks_of(other) | (fiber.blocks if mask is fiber.mask else self.threads.blocks_in(mask))
            other.mask = other.counted = other.mask | mask
            other.blocks, other.turns = blocks, np.where(blocks, np.maximum(other.turns, turns), 0)

    def put(self, mask: Array, wait: Wait, turns: Any) -> None:
        """Threads that wait."""
        for other in self.waiting_for("lanes") if wait.kind == "lanes" else ():
            if other.block != wait.at or (found := self._common(other.mask, mask)) is None:
                continue
            theirs = other.mask if found is True else found
            self._leave(other, found)
            joined = self._common(mask, theirs)
            own = mask if joined is True else joined
            self.add(own | theirs, wait.at, turns)
            if joined is True:
                return
            mask = mask & ~own
        self.waiting.append(Fiber(mask, wait.at, wait, self.most(mask, turns, 0)))

    def wake(self, fiber: Fiber, which: Array | None = None) -> None:
        """Let threads go on, or those of some blocks of the batch."""
        mask, turns = fiber.mask, fiber.turns
        if which is not None and self.threads.batch > 1:
            found = self._common(mask, self.threads.per_thread(which))
            if found is None:
                return
            mask = mask if found is True else found
            self._leave(fiber, found)
        else:
            self.waiting.remove(fiber)
        self.add(mask, fiber.block, self.most(mask, turns, self.floor))

    def _common(self, mask: Array, other: Any) -> Any:
        """The threads of a mask whose blocks another mask has threads of: True if it is all of them, None if there are none."""
        if self.threads.batch == 1:
            return True
        blocks, others = self.threads.blocks_in(mask), self.threads.blocks_in(other)
        both = blocks & others
        if not np.count_nonzero(both):
            return None
        return True if np.count_nonzero(both) == np.count_nonzero(blocks) else mask & self.threads.per_thread(both)

    def _apart(self, mask: Array, other: Array) -> Array | None:
        """The threads of a mask whose blocks another mask has no threads of; None if there are none."""
        blocks = (
            self.threads.blocks_in(mask) & ~self.threads.blocks_in(other)
            if self.threads.batch > 1
            else np.zeros(1, bool)
        )
        return mask & self.threads.per_thread(blocks) if np.count_nonzero(blocks) else None

    def _leave(self, fiber: Fiber, which: Any) -> None:
        """Threads wait no more, all of a fiber (True) or those of a mask."""
        if which is True:
            self.waiting.remove(fiber)
        else:
            fiber.mask = fiber.mask & ~which
            fiber.turns = self.most(fiber.mask, fiber.turns, 0)

    def choose(self, fair: Any, random: Random | None, among: Array | None = None) -> Fiber | None:
        """Take the next fiber: the one furthest behind, so that threads meet again; each gets its turn.

        among: the blocks of a batch that have a turn; None: all. None if none of them can run.
        """
        if self.threads.batch > 1:
            fiber = self._of_batch(fair, among)
        elif len(self.ready) == 1:
            _, fiber = self.ready.popitem()
        else:
            if random is not None and not random.randrange(4):
                block = random.choice(list(self.ready))
            else:
                shift = 0 if fair else self.patience
                _, block = min([(own.turns >> shift, place) for place, own in self.ready.items()])
            fiber = self.ready.pop(block)
        if fiber is None:
            return None
        if self.threads.batch == 1:
            self.floor = fiber.turns
            fiber.turns += 1
        else:
            here = self.blocks_of(fiber)
            self.floor = np.where(here, fiber.turns, self.floor)
            fiber.turns = fiber.turns + here
        return fiber

    def _of_batch(self, fair: Array, among: Array | None) -> Fiber | None:
        """Of each block its next fiber as if it were alone; of these the one furthest behind, for all blocks whose next it is."""
        if len(self.ready) == 1 and among is None:
            return self.ready.popitem()[1]
        places = sorted(self.ready)
        there = np.array([self.blocks_of(self.ready[place]) for place in places])
        if among is not None:
            there = there & among
        turns = np.array([self.ready[place].turns for place in places])
        late = np.where(there, np.where(fair, turns, turns >> self.patience), _NEVER)
        first = late.argmin(0)  # of equals the one that is further behind in the program
        able = there.any(0)
        if not able.any():
            return None
        number = int(first[able].min())
        fiber, own = self.ready[places[number]], able & (first == number)
        left = self.blocks_of(fiber) & ~own
        if not np.count_nonzero(left):
            return self.ready.pop(places[number])
        taken = fiber.mask & self.threads.per_thread(own)
        fiber.mask = fiber.counted = fiber.mask & ~taken
        fiber.blocks = left
        rest, fiber.turns = fiber.turns, np.where(own, 0, fiber.turns)
        return Fiber(taken, fiber.block, None, np.where(own, rest, 0), taken, own)

    def places(self) -> tuple[Any, ...]:
        """Where everything is, for `are_at`."""
        ready = {block: fiber.mask.tobytes() for block, fiber in self.ready.items()}
        return ready, tuple((fiber.block, fiber.mask.tobytes()) for fiber in self.waiting)

    def are_at(self, places: tuple[Any, ...]) -> bool:
        """Whether everything is where it was."""
        ready, waiting = places
        if len(waiting) != len(self.waiting) or self.ready.keys() != ready.keys():
            return False
        for block, mask in ready.items():
            if self.ready[block].mask.tobytes() != mask:
                return False
        return all(
            own.block == block and own.mask.tobytes() == mask
            for own, (block, mask) in zip(self.waiting, waiting, strict=True)
        )

    def state(self) -> tuple[Array, Array]:
        """The same of each thread of a batch, as numbers: above 0 where it can run, with the turns of its fiber; below where it waits."""
        where, turns = np.zeros((2, self.threads.count), np.int64)
        for block, fiber in self.ready.items():
            np.copyto(where, block + 1, where=fiber.mask)
            np.copyto(turns, self.threads.per_thread(fiber.turns), where=fiber.mask)
        before = np.zeros(self.threads.batch, np.int64)  # fibers of each block that have waited for longer
        for fiber in self.waiting:
            np.copyto(where, -1 - fiber.block - self.threads.per_thread(before << 32), where=fiber.mask)
            before += self.threads.blocks_in(fiber.mask)
        return where, turns


_NEVER = np.iinfo(np.int64).max
