"""Whether it may matter to the check where in shared memory the data of a cluster lead its accesses: in a histogram, a hash table, a sort.

Where loads, stores and atomics go in shared memory does not matter to the check as long as none of them can be in conflict: between two barriers
of all threads no word is written by one thread and touched by another one, or it is only touched by atomics, and nothing is read that
nobody has written. What is ordered in any other way than by barriers of all threads is in doubt, and so is a program that has work in flight.
"""

from __future__ import annotations

import numpy as np

from tcsim.model.effects import Effects, GroupOp, Outcome, Resource
from tcsim.ptx.check.strength import scope_of
from tcsim.ptx.compile.families import Bound
from tcsim.ptx.compile.ordinary import row_of
from tcsim.ptx.machine.arrays import Array
from tcsim.ptx.machine.batch import Batch
from tcsim.ptx.machine.block import Block
from tcsim.ptx.machine.flights import Flight
from tcsim.ptx.machine.memory import Segment
from tcsim.ptx.machine.observer import Observer

_BITS = 15
_SEVERAL = (1 << _BITS) - 1
"""A stamp says when a word was touched last, in barriers, and above 0 in its lowest bits by which thread: by this one, by several."""
_LATEST = (1 << 31 - _BITS) - 2


class Doubtful(Exception):
    """Where a cluster accesses shared memory may matter to the check. Never raised to the caller."""


class _Words:
    """Of each word of the shared memories of one rank when, and by whom, it was written, read and changed by atomics; and whether ever."""

    def __init__(self, blocks: int, each: int) -> None:
        self.each = each  # words of a block
        self.wrote, self.read, self.added = (np.zeros(blocks * each, np.int32) for _ in range(3))
        self.made = np.zeros(blocks * each, bool)


class Intervals(Observer):
    """Raises Doubtful where it might matter to which places in shared memory ordinary accesses of a batch go."""

    def __init__(self, cluster: Batch) -> None:
        blocks, count = cluster.blocks, len(cluster.phase)
        self._strides = [own.spaces.shared_stride for own in blocks]
        self._ranks = {id(own.spaces.shared): own.rank for own in blocks}
        self._width = blocks[0].threads.width
        self._unit, self._one = blocks[0].program.narrowest, len(blocks) == 1
        self._words = [_Words(count, -(-own.threads.shared_bytes // self._unit)) for own in blocks]
        self._there = [own.threads.alive.copy() for own in blocks]
        # Of each thread, by rank: the barriers it has passed, and whether it has arrived at one and not passed it.
        self._time = [np.zeros(own.threads.count, np.int32) for own in blocks]
        self._left = [np.zeros(own.threads.count, bool) for own in blocks]
        self._ending = np.zeros(count, bool)  # clusters of which threads have ended
        self._far = np.full(count, -1, np.int32)  # when memory of another block was touched last

    def accessed(
        self, block: Block, kind: str, segment: Segment | None, offsets: Array, size: int, threads: Array, written: Array | None = None
    ) -> None:  # fmt: skip
        """Loads, stores and atomics of shared memory."""
        rank = -1 if segment is None else self._ranks.get(id(segment), -1)
        if rank < 0 or not len(threads):
            return
        width, time = self._width, self._time[block.rank][threads]
        of, own = np.divmod(threads, width)
        bad = self._left[block.rank][threads] | (time >= _LATEST)
        if rank != block.rank:
            bad |= (time == 0) | self._ending[of]
            np.maximum.at(self._far, of, time)
            if kind == "atomic" and block.here is not None and scope_of(block.here.opcode) == "cta":
                kind = "write"
        local = offsets.astype(np.int64) - of * self._strides[rank]
        bad |= self._conflicts(self._words[rank], kind, local, of, size, time, block.rank * width + own)
        _doubt(bad.any())

    def _conflicts(
        self, words: _Words, kind: str, local: Array, of: Array, size: int, time: Array, who: Array
    ) -> Array:
        """Which accesses might be in conflict with others since the last barrier; they are noted."""
        pieces = np.arange(max(1, -(-size // self._unit)))
        at = ((of * words.each + local // self._unit)[:, None] + pieces).reshape(-1)
        time = np.repeat(time, len(pieces))
        mine = time << _BITS | np.repeat(who + 1, len(pieces)).astype(np.int32)
        several = time << _BITS | _SEVERAL

        def others(stamps: Array) -> Array:
            held = stamps[at]
            return np.asarray((held >> _BITS == time) & (held != mine) & (held & _SEVERAL > 0))

        def note(stamps: Array) -> None:
            stamps[at] = np.where(others(stamps), several, mine)
            again = others(stamps)  # several threads at once
            stamps[at[again]] = several[again]

        bad = others(words.wrote)
        if kind == "write":
            bad |= others(words.read) | others(words.added)
            words.wrote[at] = mine
            bad |= words.wrote[at] != mine
            words.made[at] = True
        elif kind == "read":
            bad |= others(words.added) | ~words.made[at]
            note(words.read)
        else:
            bad |= others(words.read) | ~words.made[at]
            note(words.added)
        return np.asarray(bad.reshape(-1, len(pieces)).any(1))

    # --- barriers of all threads

    def arrived(self, block: Block, scope: str, number: int, mask: Array) -> None:
        """At the barrier of the cluster a thread may do something before it waits."""
        if scope == "cluster":
            self._left[block.rank][mask] = True
            row = row_of(block.here.opcode) if block.here is not None else None
            if getattr(row, "sem", "") == "relaxed":
                raise Doubtful

    def passed(self, block: Block, scope: str, number: int, mask: Array) -> None:
        """What comes now is ordered behind all that was, if all threads were there."""
        if scope == "cluster":
            self._left[block.rank][mask] = False
            _doubt((self._ending & block.threads.blocks_in(mask)).any())
            self._time[block.rank][mask] += 1
        elif self._one:
            missing = block.threads.blocks_in(self._there[0] & ~mask)
            self._time[0][mask & block.threads.per_thread(~missing)] += 1

    def exited(self, block: Block, mask: Array) -> None:
        """No other block may reach this one any more."""
        self._ending |= block.threads.blocks_in(mask)
        _doubt((mask & (self._time[block.rank] <= block.threads.per_thread(self._far))).any())

    # --- what is ordered otherwise

    def performed(self, block: Block, bound: Bound, effects: Effects, threads: Array, mask: Array) -> None:
        """An instruction that accesses more than global memory."""
        now = effects.now
        accesses = [*effects.reads, *(own.at for own in now.writes), *now.undefined, *(own.at for own in effects.seen)]
        _doubt(now.signals or any(own.space != "global" for own in accesses))

    def issued(self, flight: Flight) -> None:
        """Work begins."""
        raise Doubtful

    def grouped(self, block: Block, group: GroupOp, threads: Array) -> None:
        """A commit, or a wait."""
        raise Doubtful

    def granted(self, block: Block, resource: Resource, outcome: Outcome | None, threads: Array) -> None:
        """Something is taken, or given back."""
        raise Doubtful


def _doubt(any: object) -> None:
    if any:
        raise Doubtful
