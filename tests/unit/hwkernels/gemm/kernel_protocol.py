"""The barriers of the tcgen05 kernels as a game: threads, TMA and the tensor pipe take turns at random, on tcsim's mbarriers.

What each thread waits for and signals is written again here, from the kernels' text. Moves that a GPU could make in any
order are made in any order, by threads of any speed; a slot or an accumulator that is used too early, a deadlock, and a signal under way when the
blocks exit are errors.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np

import tcsim

Thread = Iterator[Callable[[], bool]]
WARPS = 4  # that store
BYTES = 100  # of an operand of a block in a slot


class ProtocolError(AssertionError):
    """Something that must not happen."""


@dataclass(frozen=True)
class Protocol:
    """One kernel's barriers, or with a mistake in them."""

    blocks: int  # 2: a pair
    stages: int
    tiles: int
    steps: int
    buffers: int = 1
    producer_parity: int = 1  # of its first wait
    announced: int = 0  # blocks whose bytes the leader announces; 0: all
    freed_count: int = 0  # arrivals at freed; 0: those of all warps
    commit_to: int = 0  # blocks that a commit arrives at; 0: all
    waits_for_empty: bool = True
    waits_for_freed: bool = True
    arrives_before_reading: bool = False
    skips_commits: int = 0  # slots before the end of which no commit is made; 0: STAGES


@dataclass
class Game:
    """One run."""

    rules: Protocol
    random: np.random.Generator
    slots: dict[tuple[int, int], list[int | None]] = field(default_factory=dict)  # of (block, slot): A's and B's step
    reading: deque[int] = field(default_factory=deque)  # slots of multiplications under way
    pipe: deque[Callable[[], None]] = field(default_factory=deque)  # in order
    copies: list[Callable[[], None]] = field(default_factory=list)  # in any order
    sums: dict[int, list[int]] = field(default_factory=dict)  # of a buffer: the steps in it
    tiles_stored: int = 0

    def __post_init__(self) -> None:
        one = self.rules
        mbarriers = tcsim.MBarrier
        self.full = [mbarriers(1) for _ in range(one.stages)]
        self.empty = [[mbarriers(1) for _ in range(one.stages)] for _ in range(one.blocks)]
        self.ready = [[mbarriers(1) for _ in range(one.buffers)] for _ in range(one.blocks)]
        count = one.freed_count or WARPS * one.blocks
        self.freed = [mbarriers(count) for _ in range(one.buffers)]
        self.slots = {(b, s): [None, None] for b in range(one.blocks) for s in range(one.stages)}

    # --- threads

    def load(self, block: int) -> Thread:
        """The loading thread of a block."""
        one = self.rules
        slot, parity = 0, one.producer_parity
        for step in range(one.tiles * one.steps):
            if one.waits_for_empty:
                yield lambda s=slot, p=parity: self.empty[block][s].test_wait_parity(p)  # type: ignore[misc]
            if block == 0:
                self.full[slot].arrive_expect_tx(2 * BYTES * (one.announced or one.blocks))
            for operand in (0, 1):
                yield lambda: True
                self._start_copy(block, slot, operand, step)
            slot, parity = (slot + 1, parity) if slot + 1 < one.stages else (0, parity ^ 1)

    def _start_copy(self, block: int, slot: int, operand: int, step: int) -> None:
        if slot in self.reading:
            raise ProtocolError(f"slot {slot} is filled again while it is read")
        self.slots[block, slot][operand] = None

        def arrive() -> None:
            if slot in self.reading:
                raise ProtocolError(f"slot {slot} is filled while it is read")
            self.slots[block, slot][operand] = step
            self.full[slot].complete_tx(BYTES)

        self.copies.append(arrive)

    def multiply(self) -> Thread:
        """The multiplying thread of the leader."""
        one = self.rules
        total = one.tiles * one.steps
        slot, parity, buffer, freed = 0, 0, 0, 1
        for step in range(total):
            if step % one.steps == 0 and one.waits_for_freed:
                yield lambda b=buffer, p=freed: self.freed[b].test_wait_parity(p)  # type: ignore[misc]
            yield lambda s=slot, p=parity: self.full[s].test_wait_parity(p)  # type: ignore[misc]
            self._issue(slot, step, buffer)
            if total - step > (one.skips_commits or one.stages):
                self._commit([self.empty[b][slot] for b in range(one.commit_to or one.blocks)])
            slot, parity = (slot + 1, parity) if slot + 1 < one.stages else (0, parity ^ 1)
            if (step + 1) % one.steps == 0:
                self._commit([self.ready[b][buffer] for b in range(one.commit_to or one.blocks)])
                buffer, freed = (buffer + 1, freed) if buffer + 1 < one.buffers else (0, freed ^ 1)
            yield lambda: True

    def _issue(self, slot: int, step: int, buffer: int) -> None:
        for block in range(self.rules.blocks):
            if self.slots[block, slot] != [step, step]:
                raise ProtocolError(f"step {step} reads {self.slots[block, slot]} in slot {slot} of block {block}")
        self.reading.append(slot)
        first = step % self.rules.steps == 0

        def run() -> None:
            self.reading.popleft()
            self.sums[buffer] = [step] if first else [*self.sums[buffer], step]

        self.pipe.append(run)

    def _commit(self, barriers: list[tcsim.MBarrier]) -> None:
        def arrive() -> None:
            for barrier in barriers:
                barrier.arrive()

        self.pipe.append(arrive)

    def store(self, block: int) -> Thread:
        """A storing warp of a block."""
        one = self.rules
        buffer, parity = 0, 0
        for tile in range(one.tiles):
            yield lambda b=buffer, p=parity: self.ready[block][b].test_wait_parity(p)  # type: ignore[misc]
            want = list(range(tile * one.steps, (tile + 1) * one.steps))
            if one.arrives_before_reading:
                self.freed[buffer].arrive()
            for _ in range(3):  # column after column
                if self.sums[buffer] != want:
                    raise ProtocolError(f"tile {tile} in buffer {buffer} is {self.sums[buffer]}")
                yield lambda: True
            if not one.arrives_before_reading:
                self.freed[buffer].arrive()
            self.tiles_stored += 1
            buffer, parity = (buffer + 1, parity) if buffer + 1 < one.buffers else (0, parity ^ 1)

    # --- the run

    def play(self) -> None:
        """All threads to their ends, then the blocks exit."""
        blocks = range(self.rules.blocks)
        threads = [self.load(b) for b in blocks] + [self.multiply()]
        threads += [self.store(b) for b in blocks for _ in range(WARPS)]
        waiting: dict[int, Callable[[], bool]] = {number: lambda: True for number in range(len(threads))}
        speed = 10 ** self.random.uniform(-2, 0, len(threads) + 2)  # some are slow throughout a game
        while waiting:
            moves: list[tuple[float, Callable[[], object]]] = []
            for number in waiting:
                if waiting[number]():
                    moves.append((speed[number], lambda n=number: self._advance(threads[n], n, waiting)))  # type: ignore[misc]
            if self.copies:
                chosen = int(self.random.integers(len(self.copies)))
                moves.append((speed[-1], lambda n=chosen: self.copies.pop(n)()))  # type: ignore[misc]
            if self.pipe:
                moves.append((speed[-2], lambda: self.pipe.popleft()()))
            if not moves:
                raise ProtocolError(f"deadlock: {len(waiting)} threads wait")
            weights = np.array([weight for weight, _ in moves])
            moves[int(self.random.choice(len(moves), p=weights / weights.sum()))][1]()
        if self.copies or self.pipe:
            raise ProtocolError(
                f"{len(self.copies)} copies and {len(self.pipe)} moves of the pipe are under way at exit"
            )

    def _advance(self, thread: Thread, number: int, waiting: dict[int, Callable[[], bool]]) -> None:
        try:
            waiting[number] = next(thread)
        except StopIteration:
            del waiting[number]
