"""Where the accesses of effects lie: block by block, with the thread of each."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from tcsim.memory.windows import SHARED_WINDOW
from tcsim.model.effects import Access
from tcsim.ptx.check.words import Words
from tcsim.ptx.compile.families import Bound
from tcsim.ptx.machine.arrays import LANES, Array, each_once
from tcsim.ptx.machine.block import Block
from tcsim.ptx.machine.memory import Memory, Segment

_MOST_WORDS = 1 << 20
"""Words of accesses that are remembered, in all."""


def contested(offsets: Array, threads: Array, written: Array, together: int = LANES) -> Array:
    """Of stores of one instruction, by threads that ascend, those to places where several warps (`together` threads) store, and not all of them the same: the last to each.

    >>> contested(np.array([0, 4, 0, 4]), np.array([0, 1, 32, 33]), np.array([7, 1, 7, 2], np.uint32)).tolist()
    [3]
    """
    none = np.empty(0, np.int64)
    if (offsets[1:] > offsets[:-1]).all():
        return none
    order = np.argsort(offsets, kind="stable")
    at, warps = offsets[order], threads[order] // together
    octets = np.ascontiguousarray(written[order]).view(np.uint8).reshape(len(order), -1)
    again = at[1:] == at[:-1]
    differs = again & (octets[1:] != octets[:-1]).any(1)
    if not np.count_nonzero(differs):
        return none
    first = np.flatnonzero(np.append(True, ~again))
    last = np.append(first[1:], len(order)) - 1
    unlike = np.maximum.reduceat(np.append(False, differs), first)
    return np.asarray(order[last[unlike & (warps[first] != warps[last])]])


@dataclass(frozen=True, eq=False)
class Extent:
    """An access to the memory of one block, with its words."""

    rank: int
    offsets: Array
    size: int
    threads: Array  # of each offset
    at: Array  # words, of one access each once
    owner: Array  # of each word, which offset
    who: Array  # of each word, the thread
    units: Array  # and its warp in the block
    lanes: Array
    end: int  # behind the last byte of all
    _shares: dict[tuple[int, int, int], tuple[Array, Array]] = field(default_factory=dict)

    @cached_property
    def meets(self) -> bool:
        """Whether several of its accesses touch one word."""
        return len(np.unique(self.at)) < len(self.at)

    def share(self, base: int, first: int, together: int) -> tuple[Array, Array]:
        """What `together` warps from `first` on access: of each word the access that it belongs to, and the word. base: the block's first warp."""
        found = self._shares.get((base, first, together))
        if found is None:
            own = ((self.threads // LANES + base) // together * together == first)[self.owner]
            found = self._shares[base, first, together] = self.owner[own], self.at[own]
        return found


class Extents:
    """Where accesses lie: loops access the same words again, and every block of a grid does."""

    def __init__(self) -> None:
        self._kept: dict[tuple[Any, ...], list[Extent]] = {}
        self._words = 0

    def of(
        self, block: Block, bound: Bound, access: Access, threads: Array, asked: Array, memory: Callable[[str, int], Words]
    ) -> list[Extent]:  # fmt: skip
        """The extents of an access to shared or Tensor Memory, by block; memory: the shadow of a space of a block (`Checker.words`)."""
        if access.space not in ("shared", "generic", "tmem"):
            return []
        words = memory("tmem" if access.space == "tmem" else "shared", block.rank)
        given = (access.address, access.cta, access.mask, access.thread, threads, None if asked is threads else asked)
        how = bound.lanes, access.space, access.size
        key = (words.unit, block.rank, len(block.cluster.blocks), *how, *map(_content, given))
        found = self._kept.get(key)
        if found is None:
            found = []
            for own in shares(block, access):
                size, who = own.at.size, accessors(own.at, bound, threads, asked, own.total)[own.which]
                at, owner = words.words(own.offsets, size, own.mask)
                each, end = who.take(owner), int(own.offsets.max(initial=-size)) + size
                (units, lanes), offsets = np.divmod(each, LANES), own.offsets
                found.append(Extent(own.rank, offsets, size, who, at, owner, each, units, lanes, end))
            self._words += sum(len(extent.at) for extent in found)
            if self._words > _MOST_WORDS:
                self._kept.clear()
                self._words = sum(len(extent.at) for extent in found)
            self._kept[key] = found
        return found


EXTENTS = Extents()
"""Those of all launches."""


def _content(values: Any) -> tuple[Any, ...] | None:
    """What an array holds, as a key."""
    if values is None:
        return None
    own = np.asarray(values)
    return own.dtype.char, own.shape, own.tobytes()


class Share(NamedTuple):
    """What lies in the memory of one block, of one copy of an access."""

    at: Access  # the copy
    total: int  # its addresses
    rank: int
    which: Any  # of the addresses
    offsets: Array  # of these
    mask: Array | None  # which bytes (addresses, size); None: all


def shares(block: Block, access: Access) -> Iterator[Share]:
    """Where an access to shared or Tensor Memory lies: by copy and block."""
    for at in block.octets.copies(access):
        address, cta = block.octets.places(at)
        mask = at.mask
        if mask is not None:
            mask = np.broadcast_to(mask, (*at.address.shape, at.size)).reshape(-1, at.size)
        ranks, offsets = address >> 24 & 0xFF, address & 0xFFFFFF
        if at.space == "tmem":
            ranks, offsets = np.full(len(address), block.rank) if cta is None else cta, address
        elif at.space == "generic":
            ranks = np.where(address >> 48 == SHARED_WINDOW >> 48, ranks, -1)
        there = each_once(ranks)
        for rank in there:
            which = ranks == rank if len(there) > 1 else slice(None)
            if rank >= 0:
                yield Share(at, len(ranks), rank, which, offsets[which], None if mask is None else mask[which])


def accessors(at: Access, bound: Bound, threads: Array, asked: Array, count: int) -> Array:
    """The thread of each of the `count` accesses of an instruction or of its work; asked: the threads whose entries effects count."""
    if at.thread is not None:
        found = asked[np.broadcast_to(at.thread, at.address.shape).reshape(-1)]
    elif bound.lanes > 1:
        units = threads[:: bound.lanes]
        found = np.repeat(units, max(1, count // len(units)))
    elif count == len(asked):
        found = asked
    else:
        found = np.full(count, threads[0])
    return found


def by_segment(memory: Memory, addresses: Array) -> Iterator[tuple[Array, Segment]]:
    """Which of some addresses lie in which segment of global memory; those in none are left out."""
    left = np.arange(len(addresses))
    while len(left):
        segment = memory.segment(int(addresses[left[0]]))
        if segment is None:
            left = left[1:]
            continue
        own = addresses[left]
        inside = (own >= segment.address) & (own < segment.address + segment.size)
        yield left[inside], segment
        left = left[~inside]
