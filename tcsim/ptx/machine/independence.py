"""Whether the blocks of a batch stay apart in global memory: if so, it does not matter that they run at the same time.

They do if no block reads or writes what another one of the batch writes, reductions alone excepted whose order cannot be seen. A batch in
which that does not hold is undone, and its blocks run one after the other.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from tcsim.ptx.machine.arrays import TYPED, Array, distinct
from tcsim.ptx.machine.faults import Unbatchable
from tcsim.ptx.machine.limits import MOST_BATCHED
from tcsim.ptx.machine.memory import Memory, Segment, views_of

Access = tuple[Array, int, Any]
"""Addresses of values, their bytes, and of which block they are: one for all or one for each."""
_SEVERAL = 255  # the mark of what several blocks have read
_REDUCTIONS = range(
    MOST_BATCHED + 1, _SEVERAL
)  # those of what reductions have changed, one for each operation and type
_PAGE = 12  # bits of an offset that are kept together
_KEPT = 32
"""Reads of a segment that is not followed that are remembered: a small batch that writes what it read need not begin again."""
_MARKS: dict[int, Array] = {
    size: np.array([int.from_bytes(bytes([mark]) * size, "little") for mark in range(256)], type)
    for size, type in TYPED.items()
}
"""A mark in each byte of a value, by the bytes of the value."""


class ReadBefore(Unbatchable):
    """A segment is written that was read without being followed: it is from now on, and the batch begins again."""


class _Marks:
    """Of each byte of a segment: which block wrote it, and which read it."""

    def __init__(self, segment: Segment) -> None:
        self.segment = segment
        self.written, self.read = np.zeros_like(segment.store), np.zeros_like(segment.store)
        self.writers, self.readers = views_of(self.written), views_of(self.read)
        self.pages = np.zeros((len(segment.store) >> _PAGE) + 1, bool)  # with marks
        self.before: dict[int, Array] = {}  # what pages were

    def keep(self, index: Array, size: int) -> None:
        """Keep what is now on the pages of some values."""
        pages = index >> (_PAGE - size.bit_length() + 1)
        known = self.pages[pages]
        if known.all():
            return
        for page in distinct(pages[~known]).tolist():
            self.pages[page] = True
            self.before[page] = self.segment.store[page << _PAGE : page + 1 << _PAGE].copy()

    def reads(self, addresses: Array, size: int, block: Any) -> None:
        """Values are read. Raises Unbatchable."""
        for index, unit in _units(self.segment.index(addresses, size), size):
            mine = _MARKS[unit][block + 1]
            if _others(self.writers[unit][index], mine):
                raise Unbatchable("a block reads what another one writes")
            self.keep(index, unit)
            seen = self.readers[unit][index]
            several = (seen != 0) & (seen != mine)
            if several.any():
                mine = _bytewise(seen, mine)
            self.readers[unit][index] = mine

    @property
    def places(self) -> list[slice]:
        """Of the pages with marks."""
        return [slice(page << _PAGE, page + 1 << _PAGE) for page in self.before]

    def restore(self) -> None:
        """Put back what was there before."""
        for place, data in zip(self.places, self.before.values(), strict=True):
            self.segment.store[place] = data

    def end(self, undo: bool) -> None:
        """Forget all marks; undo: put back what was there before."""
        for place in self.places:
            self.written[place] = self.read[place] = 0
        if undo:
            self.restore()
        self.pages[list(self.before)] = False
        self.before.clear()


class Independence:
    """What the blocks of each batch of a launch read and write in global memory. Of segments that are only read nothing is kept.

    most: bytes of segments that may be followed.
    """

    def __init__(self, memory: Memory, most: int) -> None:
        self.memory, self.most = memory, most
        self._marks: dict[int, _Marks] = {}  # by address, of segments that are written
        self._kinds: dict[str, int] = {}  # of reductions
        # By address, of segments that the batch has read and that are not followed: the first reads, or that there were more.
        self._read: dict[int, list[Access] | None] = {}

    def read(self, addresses: Array, size: int, block: Any) -> None:
        """Values of some bytes are read. block: of the batch, one for all or one for each. Raises Unbatchable."""
        for segment, own, of in self._parts(addresses, size, block):
            marks = self._marks.get(segment.address)
            if marks is not None:
                marks.reads(own, size, of)
            elif (kept := self._read.setdefault(segment.address, [])) is not None:
                kept.append((own.copy(), size, of))
                if len(kept) > _KEPT:
                    self._read[segment.address] = None

    def write(self, addresses: Array, size: int, block: Any) -> None:
        """Values of some bytes are about to be written. Raises Unbatchable."""
        for segment, own, of in self._parts(addresses, size, block):
            marks = self._marks.get(segment.address) or self._follow(segment)
            for index, unit in _units(segment.index(own, size), size):
                mine = _MARKS[unit][of + 1]
                if _others(marks.writers[unit][index], mine) or _others(marks.readers[unit][index], mine):
                    raise Unbatchable("a block writes what another one reads or writes")
                marks.keep(index, unit)
                marks.writers[unit][index] = mine
                if np.ndim(mine) and (marks.writers[unit][index] != mine).any():
                    raise Unbatchable("two blocks write the same")

    def reduce(self, addresses: Array, size: int, kind: str) -> None:
        """The same of reductions of one operation and type, whose order is not seen: all blocks may do them."""
        number = self._kinds.setdefault(kind, len(self._kinds))
        if number >= len(_REDUCTIONS):
            raise Unbatchable("there are too many kinds of reductions")
        for segment, own, _ in self._parts(addresses, size, 0):
            marks = self._marks.get(segment.address) or self._follow(segment)
            for index, unit in _units(segment.index(own, size), size):
                mine = _MARKS[unit][_REDUCTIONS[number]]
                if _others(marks.writers[unit][index], mine) or marks.readers[unit][index].any():
                    raise Unbatchable("a block reduces what another one reads or writes")
                marks.keep(index, unit)
                marks.writers[unit][index] = mine

    @property
    def followed(self) -> int:
        """How many segments are followed."""
        return len(self._marks)

    def follows(self, segment: Segment) -> bool:
        """Whether what is read there has to be told."""
        return segment.address in self._marks

    def has_read(self, address: int) -> None:
        """The batch has read a segment that is not followed."""
        self._read[address] = None

    @contextmanager
    def before(self) -> Iterator[None]:
        """For a while memory is as it was before the batch, and what is done then is undone."""
        after = [
            (own.segment, [(place, own.segment.store[place].copy()) for place in own.places])
            for own in self._marks.values()
        ]
        for own in self._marks.values():
            own.restore()
        try:
            yield
        finally:
            for segment, pages in after:
                for place, data in pages:
                    segment.store[place] = data

    def begin(self) -> None:
        """A batch begins."""
        self.memory.writes_later = True

    def end(self, undo: bool) -> None:
        """A batch has ended; undo: memory is as it was before."""
        for own in self._marks.values():
            for place in own.places if not undo else ():
                self.memory.wrote(own.segment, place, own.written[place] != 0)
            own.end(undo)
        self._read.clear()
        self.memory.writes_later = False

    def _follow(self, segment: Segment) -> _Marks:
        if 3 * (segment.size + sum(own.segment.size for own in self._marks.values())) > self.most:
            raise Unbatchable("there is no memory for the marks of what is written")
        found = self._marks[segment.address] = _Marks(segment)
        kept = self._read.get(segment.address, [])
        if kept is None:
            raise ReadBefore("what was read is written")
        for own, size, of in kept:
            found.reads(own, size, of)
        return found

    def _parts(self, addresses: Array, size: int, block: Any) -> Iterator[tuple[Segment, Array, Any]]:
        """(segment, addresses, block) of accesses that are inside segments; of others nothing."""
        left = addresses
        while len(left):
            segment = self.memory.segment(int(left[0]))
            if segment is None:
                return
            inside = (left >= np.uint64(segment.address)) & (left <= np.uint64(segment.end - size))
            if inside.all():
                yield segment, left, block
                return
            if not inside[0]:
                return
            many = bool(np.ndim(block))
            yield segment, left[inside], block[inside] if many else block
            left, block = left[~inside], block[~inside] if many else block


def _units(index: Array, size: int) -> Iterator[tuple[Array, int]]:
    """Values as those that are marked together: of 16 bytes two of 8."""
    if size == 16:
        yield 2 * index, 8
        yield 2 * index + 1, 8
    else:
        yield index, size


def _others(found: Array, mine: Any) -> bool:
    """Whether marks are of others."""
    other = (found != 0) & (found != mine)
    if not other.any():
        return False
    own = mine[other] if np.ndim(mine) else np.broadcast_to(mine, (int(other.sum()),))
    there, those = (np.ascontiguousarray(one).view(np.uint8) for one in (found[other], own))
    return bool(((there != 0) & (there != those)).any())


def _bytewise(seen: Array, mine: Any) -> Array:
    """Marks of readers, byte by byte: of one block, or of several."""
    own = np.ascontiguousarray(np.broadcast_to(mine, seen.shape)).view(np.uint8)
    there = np.ascontiguousarray(seen).view(np.uint8)
    return np.asarray(np.where((there == 0) | (there == own), own, np.uint8(_SEVERAL)).view(seen.dtype))
