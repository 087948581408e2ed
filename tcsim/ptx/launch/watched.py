"""Global memory that keeps account of which of its bytes are read and written: what a process of a launch has touched."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from mmap import mmap
from typing import Any

import numpy as np

from tcsim.ptx.machine.memory import SLACK, Addresses, Bytes, Memory, Segment, views_of

_ONES = {
    size: np.frombuffer(b"\1" * size, np.dtype((np.void, 16)) if size == 16 else f"u{size}")[0]
    for size in (1, 2, 4, 8, 16)
}
"""A marked byte in each byte, by size."""


class GiveUp(Exception):
    """The clusters of a process depend on what others do: the grid has to run in order. Never raised to the caller."""


class Marks(Segment):
    """A byte for each byte of a segment: whether it was touched. It lies in memory that is given."""

    def __init__(self, segment: Segment, store: Bytes) -> None:
        before = segment.address - segment.start
        self.address, self.size, self.start, self.store = segment.address, segment.size, segment.start, store
        self.data = store[before : before + segment.size]
        self.views = views_of(store)


def shared_marks(segments: list[Segment]) -> dict[int, Marks]:
    """Marks of segments, by their addresses, which processes that are forked later share. Raises OSError."""
    sizes = [-(-len(own.store) // SLACK) * SLACK for own in segments]
    store = np.frombuffer(mmap(-1, sum(sizes) or 1), np.uint8)
    found, at = {}, 0
    for own, size in zip(segments, sizes, strict=True):
        found[own.address] = Marks(own, store[at : at + len(own.store)])
        at += size
    return found


@dataclass(frozen=True)
class Written:
    """Bytes of one segment, from the first that was written to the last."""

    segment: int  # its address
    first: int  # offset in it
    size: int
    bits: Bytes  # one for each byte, packed
    data: Bytes  # what they are now, one for each byte whose bit is set

    @property
    def extent(self) -> slice:
        """The bytes in the segment."""
        return slice(self.first, self.first + self.size)

    @property
    def mask(self) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """Which of these bytes were written."""
        return np.unpackbits(self.bits, count=self.size).view(bool)


class Watched(Memory):
    """The segments of a memory, with marks of what kernels read and write there, byte by byte.

    Allocating and releasing memory raise GiveUp: addresses would depend on what other processes do.

    >>> memory = Memory()
    >>> at = np.uint64(memory.allocate(64))
    >>> reads = shared_marks(memory.segments)
    >>> watched = Watched(memory, reads)
    >>> watched.scatter(at + np.array([8, 16], np.uint64), np.array([1, 2], np.uint32), 4)
    >>> [(own.first, own.mask.nonzero()[0].tolist(), own.data.tolist()) for own in watched.written()]
    [(8, [0, 1, 2, 3, 8, 9, 10, 11], [1, 0, 0, 0, 2, 0, 0, 0])]
    >>> watched.gather(at + np.array([4], np.uint64), 2).tolist(), reads[int(at)].data.nonzero()[0].tolist()
    ([0], [4, 5])
    """

    def __init__(self, memory: Memory, reads: Mapping[int, Marks]) -> None:
        vars(self).update(vars(memory))
        self.reads = reads
        self._writes: dict[int, Marks] = {}
        self.writes_later = False  # while a batch runs: what it has written is known from `wrote`, when it has ended

    def gather(self, addresses: Addresses, size: int) -> np.ndarray[Any, Any]:
        """As of any memory; what is read is marked."""
        found = super().gather(addresses, size)
        for segment, places in self._touched(addresses, size):
            self.reads[segment.address].views[size][places] = _ONES[size]
        return found

    def scatter(self, addresses: Addresses, values: np.ndarray[Any, Any], size: int) -> None:
        """As of any memory; what is written is marked."""
        super().scatter(addresses, values, size)
        if self.writes_later:
            return
        for segment, places in self._touched(addresses, size):
            self._mark(segment, places, size)

    def change(self, addresses: Addresses, size: int) -> None:
        """As of any memory; it is marked as read and as written."""
        for segment, places in self._touched(addresses, size):
            self.reads[segment.address].views[size][places] = _ONES[size]
            if not self.writes_later:
                self._mark(segment, places, size)

    def wrote(self, segment: Segment, place: slice, which: np.ndarray[Any, np.dtype[np.bool_]]) -> None:
        """Some bytes of a place in a segment's store were written."""
        if segment.address not in self._writes:
            self._writes[segment.address] = Marks(segment, np.zeros_like(segment.store))
        self._writes[segment.address].store[place] |= which

    def _mark(self, segment: Segment, places: Any, size: int) -> None:
        """Values are written."""
        if segment.address not in self._writes:
            self._writes[segment.address] = Marks(segment, np.zeros_like(segment.store))
        self._writes[segment.address].views[size][places] = _ONES[size]

    def allocate(self, size_or_data: Any, alignment: int = 0) -> int:
        """Raises GiveUp."""
        raise GiveUp

    def release(self, address: int) -> None:
        """Raises GiveUp."""
        raise GiveUp

    def _touched(self, addresses: Addresses, size: int) -> list[tuple[Segment, Any]]:
        """The segments of accesses, with indices in their views."""
        segment = self.covering(addresses, size)
        if segment is not None:
            return [(segment, (addresses - np.uint64(segment.start)).astype(np.int64) // size)]
        return [self._one(int(address), size) for address in addresses]

    def written(self) -> list[Written]:
        """The bytes that were written, with what they are now."""
        found = []
        for address, marks in self._writes.items():
            segment = self.segment(address)
            assert segment is not None
            first, behind = int(marks.data.argmax()), marks.size - int(marks.data[::-1].argmax())
            own = marks.data[first:behind]
            data = segment.data[first:behind][own.view(bool)]
            found.append(Written(address, first, behind - first, np.packbits(own), data))
        return found
