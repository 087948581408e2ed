"""Of every word of a memory: who wrote it last, and when each warp, and each warp's asynchronous work, last read it.

A writer is a code: 0 for nobody, 1 + warp, or 1 + warps + number of an asynchronous operation. A word is as wide as the narrowest
access to shared memory in the program, so that neighbours are not mistaken for each other.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tcsim.ptx.shadow.clocks import NEVER, ORDERED, PROXIED, Clocks
from tcsim.ptx.shadow.operations import READ, WRITTEN, Operation, Operations
from tcsim.ptx.threads import Array

EMPTY: Array = np.zeros(0, np.int64)


@dataclass(frozen=True)
class Conflict:
    """Earlier accesses that nothing orders with one now: places in the list of words, and what was there."""

    kind: str  # "written", "read", "landed" (by an operation), "fetched" (by an operation), "unfenced": written, and not fenced
    places: Array  # in the words of the access now
    earlier: Array  # numbers of instructions, or of operations
    warps: Array  # the warp of the earlier access; of operations 0


class Words:
    """The words of one memory."""

    def __init__(self, size: int, unit: int, clocks: Clocks, operations: Operations, proxies: bool = True) -> None:
        count = -(-size // unit)
        self.unit, self.count, self.clocks, self.operations = unit, count, clocks, operations
        self.proxies = (
            proxies  # whether ordinary instructions reach the memory too, through another proxy than operations
        )
        self.who = np.zeros(count, np.int32)
        self.when = np.zeros(count, np.int32)
        self.what = np.zeros(count, np.int32)  # the instruction
        self.read = np.zeros((count, clocks.warps), np.int32)  # when
        self.reader = np.zeros((count, clocks.warps), np.int32)  # the instruction
        self.was_read = False  # by any warp
        self.fetched: dict[int, Array] = {}  # by warp: 1 + number of the last of its operations that read the word

    def words(self, addresses: Array, size: int, mask: Array | None = None) -> tuple[Array, Array]:
        """The words of accesses, each word of one access once; and to which access each belongs."""
        each = max(1, -(-size // self.unit))
        first = addresses // self.unit
        if each == 1:
            return first, np.arange(len(first))
        found = first[:, None] + np.arange(each)
        owner = np.broadcast_to(np.arange(len(first))[:, None], found.shape)
        if mask is not None:
            whole = np.pad(mask, ((0, 0), (0, each * self.unit - size))).reshape(len(first), each, self.unit).any(2)
            return found[whole], owner[whole]
        return found.reshape(-1), owner.reshape(-1)

    # --- ordinary accesses of warps, elementwise

    def conflicts(self, at: Array, warps: Array, writes: bool) -> list[Conflict]:
        """What is not ordered before accesses of some warps, through the generic proxy."""
        found = []
        clocks, who = self.clocks, self.who[at]
        if who.any():
            bad = clocks.known[warps, ORDERED, np.minimum(who, clocks.warps + 1)] < self.when[at]
            if bad.any():
                found += self._unordered(at, who, np.nonzero(bad)[0], warps)
        if not writes:
            return found
        found += self._reads(at, clocks.known[warps, ORDERED, 1:-1] if self.was_read else EMPTY)
        for fetched in self.fetched.values():
            last = fetched[at]
            if last.any():
                places = np.nonzero(last)[0]
                numbers = last[places] - 1
                missing = ~self.operations.after(numbers, warps[places], READ)
                if missing.any():
                    nobody = np.zeros(int(missing.sum()), np.int64)
                    found.append(Conflict("fetched", places[missing], numbers[missing], nobody))
        return found

    def _unordered(self, at: Array, who: Array, places: Array, warps: Array) -> list[Conflict]:
        codes = who[places]
        ordinary = codes <= self.clocks.warps
        found = []
        if ordinary.any():
            own = places[ordinary]
            found.append(Conflict("written", own, self.what[at[own]], codes[ordinary] - 1))
        if not ordinary.all():
            own, numbers = places[~ordinary], codes[~ordinary] - self.clocks.warps - 1
            missing = ~self.operations.after(numbers, warps[own], WRITTEN)
            if missing.any():
                found.append(Conflict("landed", own[missing], numbers[missing], np.zeros(int(missing.sum()), np.int64)))
        return found

    def note_read(self, at: Array, warps: Array, line: int) -> None:
        """Warps read words."""
        self.was_read = True
        self.read[at, warps] = self.clocks.now[warps]
        self.reader[at, warps] = line

    def note_write(self, at: Array, warps: Array, line: int) -> None:
        """Warps write words."""
        self.who[at] = warps + 1
        self.when[at] = self.clocks.now[warps]
        self.what[at] = line

    # --- asynchronous operations

    def conflicts_of(self, at: Array, by: Operation, writes: bool) -> list[Conflict]:
        """What is not ordered before what an operation reads, or writes."""
        found = []
        clocks = self.clocks
        known = clocks.known[by.warps].max(0)
        who = self.who[at]
        if _same(who) and who[0] > clocks.warps:  # all of it is what one operation writes
            numbers = who[:1] - clocks.warps - 1
            found += self._pending("landed", EMPTY, numbers, by, WRITTEN)
        elif who.any():
            column = np.minimum(who, clocks.warps + 1)
            when = self.when[at]
            bad = known[ORDERED, column] < when
            if bad.any():
                found += self._unordered_of(at, who, np.nonzero(bad)[0], by)
            if by.proxy == "async" and not writes:
                unfenced = (known[PROXIED, column] < when) & ~bad
                if unfenced.any():
                    own = np.nonzero(unfenced)[0]
                    found.append(Conflict("unfenced", own, self.what[at[own]], who[own] - 1))
        if not writes:
            return found
        found += self._reads(at, known[ORDERED, 1:-1])
        for fetched in self.fetched.values():
            last = fetched[at]
            if _same(last):
                found += self._pending("fetched", EMPTY, last[:1] - 1, by, READ) if last[0] else []
            elif last.any():
                places = np.nonzero(last)[0]
                found += self._pending("fetched", places, last[places] - 1, by, READ)
        return found

    def _reads(self, at: Array, known: Array) -> list[Conflict]:
        """Reads that are later than what is known of the readers."""
        if not self.was_read:
            return []
        late = self.read[at] > known
        if not late.any():
            return []
        places, reader = np.nonzero(late)
        return [Conflict("read", places, self.reader[at[places], reader], reader)]

    def _unordered_of(self, at: Array, who: Array, places: Array, by: Operation) -> list[Conflict]:
        codes = who[places]
        ordinary = codes <= self.clocks.warps
        found = []
        if ordinary.any():
            own = places[ordinary]
            found.append(Conflict("written", own, self.what[at[own]], codes[ordinary] - 1))
        if not ordinary.all():
            found += self._pending("landed", places[~ordinary], codes[~ordinary] - self.clocks.warps - 1, by, WRITTEN)
        return found

    def _pending(self, kind: str, places: Array, numbers: Array, by: Operation, part: int) -> list[Conflict]:
        """Operations that are not known to be done, or not behind a fence; places EMPTY: all words."""
        found = []
        for number in numbers[:1].tolist() if _same(numbers) else np.unique(numbers).tolist():
            other = self.operations.all[number]
            if other is by or _in_turn(other, by):
                continue
            own = places[numbers == number] if len(places) else np.zeros(1, np.int64)
            name = ""
            if not any(
                self.operations.after(np.array([number]), by.warps[i : i + 1], part)[0] for i in range(len(by.warps))
            ):
                name = kind
            elif self.proxies and part == WRITTEN and other.proxy == "generic" != by.proxy:
                name = (
                    "" if any(self.operations.after_fence(number, warp) for warp in by.warps) else "unfenced operation"
                )
            if name:
                found.append(Conflict(name, own, np.full(len(own), number), np.zeros(len(own), np.int64)))
        return found

    def note_fetch(self, at: Array, by: Operation) -> None:
        """An operation reads words, at some time until it is known to have."""
        warp = int(by.warps[0])
        if warp not in self.fetched:
            self.fetched[warp] = np.zeros(self.count, np.int32)
        self.fetched[warp][at] = by.number + 1

    def note_landing(self, at: Array, by: Operation) -> None:
        """An operation writes words, at some time until it is known to have."""
        self.who[at] = self.clocks.warps + 1 + by.number
        self.when[at] = NEVER
        self.what[at] = by.line


def _in_turn(earlier: Operation, later: Operation) -> bool:
    """Whether the tensor core executes two operations of one thread in the order of issue."""
    return earlier.kind == later.kind == "tcgen05" and np.array_equal(earlier.warps, later.warps)


def _same(values: Array) -> bool:
    """Whether all are equal."""
    return bool((values == values[0]).all())
