"""Fibers: threads of a block that execute together, and what they wait for when they do not."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Any

from tcsim.ptx.machine.arrays import Array
from tcsim.ptx.text.syntax import Instruction

Moves = list[tuple[Array, Any]]
"""Threads that part: of each mask the basic block where they go on, or what they wait for."""
EXIT = -1
PATIENCE = 8
"""Of two fibers, the one that is further behind in the program runs; after 2**PATIENCE turns more than the other it has to wait."""


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
    turns: int = 0  # basic blocks executed


class Fibers:
    """The fibers of a block: those that can run, by where they are, and those that wait."""

    def __init__(self, mask: Array, entry: int) -> None:
        self.ready: dict[int, Fiber] = {entry: Fiber(mask, entry)}
        self.waiting: list[Fiber] = []
        self.floor = 0  # turns that a fiber has at least when it can run again

    def __bool__(self) -> bool:
        return bool(self.ready or self.waiting)

    def waiting_for(self, *kinds: str) -> list[Fiber]:
        """Those that wait for something of some kinds."""
        return [own for own in self.waiting if own.waits is not None and own.waits.kind in kinds]

    def add(self, mask: Array, block: int, turns: int) -> None:
        """Threads at the same place execute together."""
        other = self.ready.get(block)
        if other is not None:
            other.mask = other.mask | mask
            other.turns = max(other.turns, turns)
            return
        fiber = Fiber(mask, block, None, turns)
        if self.waiting:
            for own in [own for own in self.waiting if own.block == block and own.waits and own.waits.kind == "lanes"]:
                self.waiting.remove(own)
                fiber.mask = fiber.mask | own.mask
        self.ready[block] = fiber

    def put(self, mask: Array, wait: Wait, turns: int) -> Fiber:
        """Threads that wait."""
        if wait.kind == "lanes":
            for other in self.waiting:
                if other.waits and other.waits.kind == "lanes" and other.block == wait.at:
                    self.waiting.remove(other)
                    self.add(mask | other.mask, wait.at, turns)
                    return other
        fiber = Fiber(mask, wait.at, wait, turns)
        self.waiting.append(fiber)
        return fiber

    def wake(self, fiber: Fiber) -> None:
        """Let threads go on."""
        self.waiting.remove(fiber)
        self.add(fiber.mask, fiber.block, max(fiber.turns, self.floor))

    def choose(self, fair: bool, random: Random | None) -> Fiber:
        """Take the next fiber: the one furthest behind, so that threads meet again; each gets its turn."""
        if len(self.ready) == 1:
            _, fiber = self.ready.popitem()
        else:
            if random is not None and not random.randrange(4):
                block = random.choice(list(self.ready))
            elif fair:
                block = min(self.ready, key=lambda own: (self.ready[own].turns, own))
            else:
                block = min(self.ready, key=lambda own: (self.ready[own].turns >> PATIENCE, own))
            fiber = self.ready.pop(block)
        self.floor = fiber.turns
        fiber.turns += 1
        return fiber

    def places(self) -> tuple[Any, ...]:
        """Where everything is, as something that can be compared."""
        ready = tuple((block, fiber.mask.tobytes()) for block, fiber in sorted(self.ready.items()))
        return ready, tuple((fiber.block, fiber.mask.tobytes()) for fiber in self.waiting)
