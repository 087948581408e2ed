"""Whether nothing can be wrong with the clusters of a batch: then none of them has to be watched.

Where loads, stores, atomics and cp.async go in shared memory does not matter as long as none of them can be in conflict: between two barriers
of all threads no word is written by one thread and touched by another one (but for one instruction with which threads write the same to it),
or it is only touched by atomics, nothing is read that nobody has written, and what cp.async copies is not touched before a wait of its warp and a barrier. What is ordered in any other way is in doubt, and so is a
program that has other work in flight. Apart from that barriers and instructions of warps have to be executed by all their threads at one place.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from tcsim.model.effects import Access, Effects, GroupOp, Outcome, Resource
from tcsim.ptx.check.flags import scope_of
from tcsim.ptx.check.places import contested
from tcsim.ptx.check.rules.cluster import is_near
from tcsim.ptx.compile.families import Bound
from tcsim.ptx.compile.ordinary import row_of
from tcsim.ptx.machine.arrays import LANES, Array
from tcsim.ptx.machine.batch import Batch
from tcsim.ptx.machine.block import Block
from tcsim.ptx.machine.flights import Flight
from tcsim.ptx.machine.memory import Segment
from tcsim.ptx.machine.observer import Observer
from tcsim.ptx.machine.threads import RANK_SHIFT

_BITS = 15
_SEVERAL = np.int32((1 << _BITS) - 1)
"""A stamp says when a word was touched last, in barriers, and above 0 in its lowest bits by which thread: by this one, by several."""
_LANDED = np.int32(_SEVERAL - 1)
"""In place of a thread: cp.async, for which its warp has waited."""
_FLYING = np.int32(np.iinfo(np.int32).max)
"""The stamp of a word that cp.async is writing."""
_ONE = np.int32(1 << _BITS)
_LATEST = np.int32(int(_FLYING) - 2 * int(_ONE))
_MOST_READS = 64
"""Reads that are kept to be noted later: most are never asked for."""


class Doubtful(Exception):
    """Where a cluster accesses shared memory may matter to the check. Never raised to the caller."""


class Unproven(Exception):
    """It does not, and something else may be wrong. Never raised to the caller."""


def _others(held: Array, mine: Array) -> Array:
    """Where a stamp is of the same time, and of another thread."""
    return np.asarray(((held ^ mine) - np.int32(1)).view(np.uint32) < np.uint32(_SEVERAL))


class _Words:
    """Of each word of the shared memories of one rank when, and by whom, it was written, read and changed by atomics."""

    def __init__(self, count: int) -> None:
        self.wrote, self.read, self.added = np.zeros((3, count), np.int32)
        self.atomics = self.flying = False  # whether there have ever been any
        self.reads: list[tuple[Array, Array]] = []  # not noted yet

    def touch(self, kind: str, at: Array, mine: Array, reads: bool, alike: bool = False) -> bool:
        """Whether accesses might be in conflict with others since the last barrier, or read what nobody has written; they are noted.

        alike: threads that write to one word now write the same.
        """
        wrote = self.wrote[at]
        bad = _others(wrote, mine).any() or (reads and not wrote.all()) or (self.flying and (wrote == _FLYING).any())
        if kind != "atomic" and self.atomics:
            bad = bad or _others(self.added[at], mine).any()
        if kind == "read":
            self.reads.append((at, mine))
            if len(self.reads) > _MOST_READS:
                self._note_reads()
            return bool(bad)
        self._note_reads()
        bad = bad or _others(self.read[at], mine).any()
        if kind == "write":
            self.wrote[at] = mine
            again = self.wrote[at] != mine
            if np.count_nonzero(again):
                self.wrote[at[again]] = mine[again] | _SEVERAL
                bad = bad or not alike
            return bool(bad)
        self.atomics = True
        _note(self.added, at, mine)
        return bool(bad)

    def _note_reads(self) -> None:
        for at, mine in self.reads:
            _note(self.read, at, mine)
        self.reads.clear()


def _note(stamps: Array, at: Array, mine: Array) -> None:
    stamps[at] = np.where(_others(stamps[at], mine), mine | _SEVERAL, mine)
    again = _others(stamps[at], mine)  # several threads at once
    if again.any():
        stamps[at[again]] = mine[again] | _SEVERAL


class _Copy(NamedTuple):
    """cp.async in flight: of each thread that issued it the group, and the words that it writes (threads, words)."""

    threads: Array
    groups: Array
    at: Array


class _Rank:
    """The blocks of one rank."""

    def __init__(self, block: Block, several: bool) -> None:
        threads, unit = block.threads, block.program.narrowest
        count = block.spaces.shared_stride * threads.batch // unit
        self.unit, self.stride = unit, block.spaces.shared_stride
        self.near = _Words(count)  # accesses of the block's own threads, between any barriers of all of them
        self.far = _Words(count if several else 0)  # all accesses, between barriers of the cluster
        self.there = threads.alive.copy()  # threads without which a barrier orders nothing
        self.time = np.full(threads.batch, _ONE)  # of each block, as a stamp of nobody
        self.who = (threads.numbers % threads.width + 1).astype(np.int32)
        self.stamps = self.who | _ONE
        self.last = np.zeros(threads.count, np.int32)  # of each thread: its stamp when it last touched shared memory
        # The barriers of the cluster that it has passed, as a stamp of nobody.
        self.passed = np.full(threads.count, _ONE)
        self.left = np.zeros(threads.count, bool)  # it has arrived at one and not passed it
        self.at = np.zeros(threads.count, np.int64)  # the instruction with which it waits for others of the block
        # Of each block whether there was anything to order since its last barrier.
        self.active = np.zeros(threads.batch, bool)
        self.copies: list[_Copy] = []

    def words(self, offsets: Array, size: int) -> Array:
        """The words of accesses: (accesses, words)."""
        first = offsets.astype(np.int64, copy=False)[:, None] >> self.unit.bit_length() - 1
        return first + np.arange(size // self.unit) if size > self.unit else first


class Intervals(Observer):
    """Raises Doubtful where it might matter to which places in shared memory ordinary accesses of a batch go; `prove` says whether anything else might be wrong."""

    def __init__(self, cluster: Batch) -> None:
        blocks, count = cluster.blocks, len(cluster.phase)
        self._several, self._width = len(blocks) > 1, blocks[0].threads.width
        self._by_rank = [_Rank(own, self._several) for own in blocks]
        self._ranks = {id(own.spaces.shared): own.rank for own in blocks}
        self._ending = np.zeros(count, bool)  # clusters of which threads have ended
        self._far = np.full(count, -1, np.int32)  # when memory of another block was touched last
        self._clean = True
        # By instruction in which clusters it was a barrier that ordered something, and in which one that did not.
        self._useful: dict[int, Array] = {}
        self._idle: dict[int, Array] = {}

    def prove(self) -> None:
        """The batch has ended. Raises Unproven."""
        idle = any((own & ~self._useful.get(here, np.False_)).any() for here, own in self._idle.items())
        if idle or not self._clean:
            raise Unproven

    # --- accesses

    def accessed(
        self, block: Block, kind: str, segment: Segment | None, offsets: Array, size: int, threads: Array, written: Array | None = None
    ) -> None:  # fmt: skip
        """Loads, stores and atomics: of shared memory, of global memory only that there was one."""
        rank = -1 if segment is None else self._ranks.get(id(segment), -1)
        if not len(threads) or (rank < 0 and segment is not None):
            return
        if rank >= 0:
            alike = written is not None and not len(contested(offsets, threads, written))
            self._touch(block, kind, rank, self._by_rank[rank].words(offsets, size), threads, alike)
        elif len(threads) == block.threads.count:
            self._by_rank[block.rank].active[:] = True
        else:
            self._by_rank[block.rank].active[threads // self._width] = True

    def _touch(self, block: Block, kind: str, rank: int, at: Array, threads: Array, alike: bool = False) -> None:
        """Threads access words: (threads, words). alike: those that store to the same words store the same."""
        mine, theirs, every = self._by_rank[block.rank], self._by_rank[rank], len(threads) == block.threads.count
        which: Any = slice(None) if every else threads
        stamps, words, each = mine.stamps[which], at.reshape(-1), at.shape[1]
        mine.last[which] = stamps
        mine.active[which if every else threads // self._width] = True
        _doubt(mine.left[which].any())
        if rank == block.rank:
            _doubt(theirs.near.touch(kind, words, _each(stamps, each), kind != "write" and not self._several, alike))
        if not self._several:
            return
        of, time, who, reads = threads // self._width, mine.passed[which], np.int32(1), kind != "write"
        if rank != block.rank:
            _doubt((time == _ONE).any() or (block.here is not None and is_near(block.here.opcode)))
            np.maximum.at(self._far, of, time)
            who = mine.who[which] + np.int32(block.rank * self._width + 1)
        if kind == "atomic" and block.here is not None and scope_of(block.here.opcode) == "cta":
            kind = "write"
        _doubt(theirs.far.touch(kind, words, _each(time | who, each), reads, alike))

    def _places(self, block: Block, at: Access, threads: Array) -> tuple[Array, Any]:
        """The words of an access of effects to the shared memory of its own block, and of which block of the batch each is."""
        mine, address, of = self._by_rank[block.rank], block.octets.places(at)[0], block.octets.block_of(at, threads)
        _doubt(at.space != "shared" or at.mask is not None or self._several)
        _doubt((address >> RANK_SHIFT != block.rank).any())
        return mine.words((address & (1 << RANK_SHIFT) - 1) + of * mine.stride, at.size), of

    def performed(self, block: Block, bound: Bound, effects: Effects, threads: Array, mask: Array) -> None:
        """What lanes read or write together, as ldmatrix and stmatrix do; whatever else an instruction does to more than global memory is in doubt."""
        now, mine = effects.now, self._by_rank[block.rank]
        _doubt(now.signals or now.undefined or effects.seen or any(own.combine is not None for own in now.writes))
        mine.active[threads // self._width] = True
        reads, writes = [(own, None) for own in effects.reads], [(own.at, own.data) for own in now.writes]
        for kind, accesses in (("read", reads), ("write", writes)):
            for access, data in accesses:
                if access.space != "global":
                    at, of = self._places(block, access, threads)
                    _doubt(data is not None and not _agree(at[:, 0], data.reshape(len(at), -1)))
                    stamps = np.broadcast_to(mine.time[of] | _SEVERAL, len(at))
                    mine.last[threads] = mine.stamps[threads]
                    _doubt(mine.near.touch(kind, at.reshape(-1), _each(stamps, at.shape[1]), kind == "read"))

    # --- cp.async

    def issued(self, flight: Flight) -> None:
        """Copies begin."""
        pending, block, threads = flight.pending, flight.block, flight.threads
        _doubt(flight.kind != "cp.async" or pending.tells or any(own.space != "global" for own in pending.reads))
        mine = self._by_rank[block.rank]
        for access in pending.writes:
            at, _ = self._places(block, access, flight.asked)
            _doubt(len(at) != len(threads))
            self._touch(block, "write", block.rank, at, threads)
            mine.near.wrote[at], mine.near.flying = _FLYING, True
            mine.copies.append(_Copy(threads, flight.groups, at))

    def grouped(self, block: Block, group: GroupOp, threads: Array) -> None:
        """A wait: what all threads of a warp have waited for is there behind the next barrier."""
        _doubt(group.kind != "cp.async" or group.op not in ("commit", "wait"))
        if group.op == "commit":
            return
        mine, kept = self._by_rank[block.rank], list[_Copy]()
        done = np.full(block.threads.count, -1)
        done[threads] = block.performer.committed(group.kind)[threads] - group.pending
        for own in mine.copies:
            left, warps = own.groups >= done[own.threads], own.threads // LANES
            left = np.isin(warps, warps[left])
            mine.near.wrote[own.at[~left]] = (mine.time[own.threads[~left] // self._width] | _LANDED)[:, None]
            if left.any():
                kept.append(_Copy(own.threads[left], own.groups[left], own.at[left]))
        mine.copies = kept

    # --- barriers of all threads

    def arrived(self, block: Block, scope: str, number: int, mask: Array) -> None:
        """At the barrier of the cluster a thread may do something before it waits."""
        mine, row = self._by_rank[block.rank], row_of(block.here.opcode) if block.here is not None else None
        self._whole(block, mask)
        if scope == "cluster":
            mine.left[mask] = True
            _doubt(getattr(row, "sem", "") == "relaxed")
            return
        count = block.barriers.counts[number]
        self._clean &= not (mine.at[mask].any() or ((count > 0) & (count != self._width)).any())
        mine.at[mask] = id(block.here) * (1 if getattr(row, "aligned", True) else -1)

    def passed(self, block: Block, scope: str, number: int, mask: Array) -> None:
        """What comes now is ordered behind all that was, if all threads were there."""
        mine, threads = self._by_rank[block.rank], block.threads
        self._whole(block, mask)
        here = threads.blocks_in(mask)
        ended = here & ~threads.blocks_in(mine.there & ~mask)
        if ended.any():
            mine.time = mine.time + _ONE * ended
            mine.stamps = threads.per_thread(mine.time) | mine.who
        if ended.all():
            mine.near.reads.clear()
        _doubt(mine.time.max() >= _LATEST)
        if scope == "cluster":
            mine.left[mask] = False
            _doubt((self._ending & here).any())
            mine.passed[mask] += _ONE
            return
        self._clean &= not (threads.alive & ~mask & threads.per_thread(here)).any()
        for line in np.unique(mine.at[mask]).tolist():
            blocks = threads.blocks_in(mask & (mine.at == line))
            self._clean &= not (mask & (mine.at != line) & threads.per_thread(blocks)).any()
            for kept, own in ((self._useful, mine.active), (self._idle, ~mine.active)) if line > 0 else ():
                kept[line] = kept.get(line, np.False_) | (blocks & own)
        mine.at[mask] = 0
        mine.active &= ~here

    def exited(self, block: Block, mask: Array) -> None:
        """No other block may reach this one any more. Barriers order what is left without threads that have touched nothing since the one before."""
        mine = self._by_rank[block.rank]
        self._ending |= block.threads.blocks_in(mask)
        if self._several:
            _doubt((mask & (mine.passed <= block.threads.per_thread(self._far))).any())
        mine.there &= ~mask | (mine.last == mine.stamps)

    def _whole(self, block: Block, mask: Array) -> None:
        """All lanes of a warp that live are at a barrier, or none."""
        rest = block.threads.alive & ~mask
        if rest.any():
            self._clean &= not (rest.reshape(-1, LANES).any(1) & mask.reshape(-1, LANES).any(1)).any()

    # --- what is ordered otherwise, or wrong

    def incomplete(self, block: Block, bound: Bound, missing: Array) -> None:
        """Some lanes do not take part."""
        self._clean = False

    def outside(self, block: Block, mask: Array) -> None:
        """Lanes are not in their member mask."""
        self._clean = False

    def granted(self, block: Block, resource: Resource, outcome: Outcome | None, threads: Array) -> None:
        """Something is taken, or given back."""
        raise Doubtful


def _agree(places: Array, values: Array) -> bool:
    """Whether the same is written wherever several of some values (values, bytes) go to one place."""
    order = np.argsort(places, kind="stable")
    same = np.diff(places[order]) == 0
    return bool((values[order][1:][same] == values[order][:-1][same]).all())


def _each(stamps: Array, count: int) -> Array:
    return np.repeat(stamps, count) if count > 1 else stamps


def _doubt(any: object) -> None:
    if any:
        raise Doubtful
