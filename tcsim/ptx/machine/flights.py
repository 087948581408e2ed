"""Work in flight as data: who issued it, in which of their groups, and the signals that follow it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tcsim.model.effects import Pending, Signal
from tcsim.ptx.compile.families import Bound
from tcsim.ptx.machine.arrays import Array, distinct


@dataclass(eq=False)
class Flight:
    """Work that goes on: who issued it, and in which of their groups."""

    pending: Pending
    bound: Bound
    block: Any
    threads: Array
    groups: Array  # of each thread: how many it had committed
    asked: Array  # the threads of the instruction, whose entries effects count
    followers: list[Tracker] = field(default_factory=list)
    fetched: bool = False
    data: Any = None
    only: Array | None = None  # the blocks of a batch whose it is, where the instruction was one of more
    replicated: bool = False  # whether it is asked for once, and done in each block of `asked`
    kind: str = field(init=False)  # of its group
    _blocks: Array | None = None

    def __post_init__(self) -> None:
        self.kind = self.pending.group or ""

    @property
    def blocks(self) -> Array:
        """Whose it is, of the batch."""
        if self._blocks is None:
            block = self.block.threads.block_of(self.threads)
            self._blocks = distinct(block) if np.ndim(block) else np.array([block])
        return self._blocks

    def part(self, blocks: Array) -> Flight:
        """The work of some blocks of the batch, which leaves this one."""
        threads = self.block.threads
        which = blocks[self.threads // threads.width]
        found = Flight(self.pending, self.bound, self.block, self.threads[which], self.groups[which], self.asked)
        found.fetched, found.data, found.replicated = self.fetched, self.data, self.replicated
        mine = self.only if self.only is not None else threads.blocks_in(np.isin(threads.numbers, self.asked))
        found.only, self.only = mine & blocks, mine & ~blocks
        found.followers = [own for own in self.followers if blocks[threads.block_of(own.threads)]]
        self.followers = [own for own in self.followers if own not in found.followers]
        self.threads, self.groups, self._blocks = self.threads[~which], self.groups[~which], None
        return found

    def continues(self, before: Flight) -> bool:
        """Whether this and work just before it can be finished in one go: both add to the same registers."""
        own, other = self.bound, before.bound
        return (
            self.pending.chain is not None
            and before.pending.chain is not None
            and own.model.mnemonic == other.model.mnemonic
            and self.pending.accumulator == before.pending.accumulator
            and self.replicated == before.replicated
            and all(
                np.array_equal(mine, theirs) for (_, mine), (_, theirs) in zip(own.results, other.results, strict=True)
            )
            and np.array_equal(self.threads, before.threads)
            and (self.pending.adds is None or bool(self.pending.adds.all()))
            and not before.followers
        )


@dataclass(eq=False)
class Tracker:
    """Signals that follow when earlier work is complete."""

    signals: tuple[Signal, ...]
    block: Any
    threads: Array
    left: int  # of the work that is waited for
