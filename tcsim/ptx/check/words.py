"""Of every word of a memory: who wrote it last, and when each warp, and each warp's asynchronous work, last read it.

A writer is a code: 0 for nobody, 1 + warp, or 1 + warps + number of an asynchronous operation. A word is as wide as the narrowest
access to shared memory in the program, so that neighbours are not mistaken for each other. What a warp or its work did stands there with the
lane: `LANE_BITS` of `what` and `reader`, the instruction above them. Conflicts are earlier accesses to the words of one now that nothing orders with it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from functools import lru_cache, partial

import numpy as np

from tcsim.ptx.check.clocks import GLOBALLY, HANDED, NEVER, ORDERED, PROXIED, Clocks
from tcsim.ptx.check.lanes import LEARNS, READS, SEVERAL, WRITES, frozen
from tcsim.ptx.check.operations import READ, WRITTEN, Operation, Operations
from tcsim.ptx.check.strong import Strong
from tcsim.ptx.machine.arrays import Array, each_once

EMPTY: Array = np.zeros(0, np.int64)
LANE_BITS = 6
_LANE = (1 << LANE_BITS) - 1
PIPELINED = frozenset(
    (f"tcgen05.{first}", f"tcgen05.{second}")
    for first, second in (("mma", "mma"), ("cp", "mma"), ("shift", "mma"), ("shift", "cp"), ("mma", "shift"))
)
"""Families of tcgen05 of which the second is executed after the first (PTX ISA, Pipelined tcgen05 Instructions): two mma on one accumulator."""


def _are_weak(what: Array, line: int, strong: Collection[int]) -> Array:
    """Of instructions, with lanes, those that are not among some, nor one."""
    before = what >> LANE_BITS
    return np.zeros(len(what), bool) if (before == line).all() else ~np.isin(before, list(strong))


class Words:
    """The words of one memory."""

    def __init__(self, size: int, unit: int, clocks: Clocks, operations: Operations, space: str = "shared") -> None:
        count = -(-size // unit)
        self.unit, self.count, self.clocks, self.operations, self.space = unit, count, clocks, operations, space
        # Whether ordinary instructions reach it too, through another proxy than operations.
        self.proxies = space == "shared"
        self.fence = GLOBALLY if space == "global" else PROXIED  # the kind of order between proxies
        self.who = np.zeros(count, np.int32)
        self.when = np.zeros(count, np.int32)
        self.what = np.zeros(count, np.int32)  # the instruction, with the lane
        self.hidden = np.zeros(
            (3, 0), np.int32
        )  # the same of the last weak write, where one that is not came behind it
        self.weakly = np.zeros((2, clocks.warps, 0), np.int32)  # by warp: when, and what, for reads
        self.strong = Strong(clocks, count)
        self.lanes = operations.lanes
        self.read = self.reader = np.zeros((clocks.warps, 0), np.int32)
        """By warp, if any has read: when, and the instruction with the lane."""
        self.other = self.otherwise = self.read  # the same of the last read by another lane of the warp than that
        self.was_read = False  # by any warp
        self.readers = np.zeros(clocks.warps, bool)  # warps that have ever read any
        self.fetched: dict[
            int, Array
        ] = {}  # by warp: 1 + number of the last of its operations that read the word, with the lane

    def words(self, addresses: Array, size: int, mask: Array | None = None) -> tuple[Array, Array]:
        """The words of accesses, each word of one access once; and to which access each belongs."""
        each = max(1, -(-size // self.unit))
        first = addresses // self.unit
        if each == 1:
            return first, np.arange(len(first))
        found = (first[:, None] + np.arange(each)).reshape(-1)
        owner = _owners(len(first), each)
        if mask is not None:
            whole = np.pad(mask, ((0, 0), (0, each * self.unit - size))).reshape(-1, self.unit).any(1)
            return found[whole], owner[whole]
        return found, owner

    # --- ordinary accesses of warps, elementwise

    def time(self, at: int, warp: int, prior: Prior) -> int:
        """When a warp wrote a word, or read it."""
        if prior is Prior.WRITTEN and self.strong.writes and self.who[at] != 1 + warp:
            return int(self.strong.wrote[0, warp, at])
        return int(self.when[at] if prior is Prior.WRITTEN else self.read[warp, at])

    def conflicts(
        self, at: Array, by: Array | Operation, writes: bool, reads: bool = False, lanes: Array | None = None
    ) -> list[Conflict]:
        """What is not ordered before accesses of warps, elementwise, through the generic proxy, or of an operation; reads: what nobody wrote counts.

        lanes: which of the warps access; None: what other lanes of the same warp did does not matter.
        """
        clocks, who, known = self.clocks, self.who[at], EMPTY
        least, most, first = int(who.min()), int(who.max()), clocks.warps + 1
        found = _nobody(np.nonzero(who == 0)[0]) if reads and not least else []
        landed = least >= first  # all of it is what operations write, of which no clock knows
        work = by if isinstance(by, Operation) else None
        warps = by.warps[:1] if isinstance(by, Operation) else by
        unfinished = partial(self._work, at, warps, lanes) if work is None else partial(self._pending, at, work, lanes)
        if work is not None and (writes or not landed):
            known = clocks.known[work.warps, : self.fence + 1].max(0) if len(work.warps) > 1 else clocks.known[warps[0]]
        if landed:
            loose = work is not None or (lanes is not None and self.lanes.loose(warps, LEARNS))
            if loose or not self.operations.known_to_all(least - first, most - first, WRITTEN):
                found += unfinished(Prior.LANDED, np.arange(len(at)), who - first, self.what)
        elif most:
            column, when = np.minimum(who, first), self.when[at]
            bad = (clocks.ordered(warps, column) if work is None else known[ORDERED, column]) < when
            if np.count_nonzero(bad):
                found += self._written(Lack.ORDER, at, bad, who)
                places = np.nonzero(bad & (who >= first))[0]
                found += unfinished(Prior.LANDED, places, who[places] - first, self.what)
            if work is not None and len(work.warps) > 1 and not writes:
                apart = clocks.known[work.warps, ORDERED].min(0)[column] < when
                found += self._written(Lack.WARPS, at, apart & ~bad, who)
            if work is not None and work.proxy == "async":
                found += self._written(Lack.FENCE, at, (known[self.fence, column] < when) & ~bad, who)
        if self.hidden.size and work is None:
            column, when, what = self.hidden[:, at]
            late = np.nonzero(clocks.ordered(warps, column) < when)[0]
            if len(late):
                found.append(Conflict(Prior.WRITTEN, Lack.ORDER, late, what[late] >> LANE_BITS, column[late] - 1))
        if lanes is not None:
            found += self._apart(at, EMPTY if landed or not most else who, warps, lanes, writes)
        if not writes:
            return found
        if self.was_read and work is None:
            found += self._reads(at, clocks.known[warps, ORDERED, 1:-1])
        elif self.was_read and work is not None:
            fence = known[self.fence, 1:-1] if work.proxy == "async" else None
            found += self._reads(at, known[ORDERED, 1:-1], fence)
        for fetched in self.fetched.values():
            last = fetched[at]
            places = np.nonzero(last)[0]
            found += unfinished(Prior.FETCHED, places, (last[places] >> LANE_BITS) - 1, fetched)
        return found

    def _work(
        self, at: Array, warps: Array, lanes: Array | None, prior: Prior, places: Array, numbers: Array, owners: Array
    ) -> list[Conflict]:
        """Of operations, elementwise, those that do not come before what a warp does now, or that only other lanes of it know to be done.

        owners: of each word of the memory the lane whose work it is.
        """
        if not len(places):
            return []
        part, knows, none = prior.part, self.lanes, np.zeros_like(numbers)
        after = self.operations.after(numbers, warps[places], part)
        found = [] if after.all() else [Conflict(prior, Lack.ORDER, places[~after], numbers[~after], none[~after])]
        if lanes is None or not knows.loose(warps, LEARNS):
            return found
        own = np.flatnonzero(after)
        places = places[own]
        return found + self._lanes_apart(prior, places, numbers[own], warps[places], lanes[places], owners[at[places]])

    def _apart(self, at: Array, who: Array, warps: Array, lanes: Array, writes: bool) -> list[Conflict]:
        """What other lanes of the same warps did, and what only other lanes were told, or told. One warp and lane may stand for all words.

        who: wrote the words; EMPTY: no warp wrote any.
        """
        knows, found = self.lanes, []
        if len(who) and knows.loose(warps, WRITES):
            found += self._in_warp(Prior.WRITTEN, at, who == warps + 1, self.when[at], self.what[at], warps, lanes)
        if writes and self.was_read and knows.loose(warps, READS):
            for read, what in self._reads_kept():
                found += self._in_warp(Prior.READ, at, True, read[warps, at], what[warps, at], warps, lanes)
        missed = knows.missed(warps, lanes)
        told = () if missed else sorted(knows.windows)  # of all others these lanes know all that is known
        if missed or told:
            every = range(self.clocks.warps) if missed else told
            if len(who) and (missed or any(np.count_nonzero(who == 1 + own) for own in told)):
                found += self._between_lanes(Prior.WRITTEN, who - 1, self.when[at], self.what[at], warps, lanes)
            for reader in every if writes and self.was_read else ():
                if not self.readers[reader] or not np.count_nonzero(self.read[reader].take(at)):
                    continue
                for read, what in self._reads_kept():
                    when, own = read[reader, at], what[reader, at]
                    found += self._between_lanes(Prior.READ, np.where(when > 0, reader, -1), when, own, warps, lanes)
        return found

    def _in_warp(
        self, prior: Prior, at: Array, own: Array | bool, when: Array, what: Array, warps: Array, lanes: Array
    ) -> list[Conflict]:
        """Accesses by the same warps, where these are: what lanes do not know of each other."""
        late = np.nonzero(own & (when > self.lanes.base[warps]))[0]
        if not len(late):
            return []
        warps, lanes = np.broadcast_to(warps, at.shape)[late], np.broadcast_to(lanes, at.shape)[late]
        when, what = when[late], what[late]
        lane = what & _LANE
        bad = self.lanes.unordered(warps, lanes, lane, when)
        joined = (lanes == SEVERAL) | (lane == SEVERAL) | (when <= self.lanes.joined[warps])
        return _by_lanes(prior, Lack.LANES, late, bad, joined, what >> LANE_BITS, warps)

    def _between_lanes(
        self, prior: Prior, who: Array, when: Array, what: Array, warps: Array, lanes: Array
    ) -> list[Conflict]:
        """Accesses by another warp each (-1, or too large a number: none) that are in order for warps, and not for their lanes."""
        others = who != warps
        if not np.count_nonzero(others):
            return []
        warps, lanes = np.broadcast_to(warps, who.shape), np.broadcast_to(lanes, who.shape)
        knows, lane = self.lanes, what & _LANE
        column = np.minimum(np.maximum(who + 1, 0), self.clocks.warps + 1)
        ordered = others & (column > 0) & (self.clocks.ordered(warps, column) >= when)
        places = np.nonzero(ordered)[0]
        if not len(places):
            return []
        given = who, when, what, lane, column, warps, lanes
        who, when, what, lane, column, warps, lanes = (own[places] for own in given)
        untold, before = knows.untold(warps, who, lane, when)
        unheard = knows.unheard(warps, lanes, column, when)
        joined = (lanes == SEVERAL) | (knows.parted[warps] <= knows.joined[warps])
        earlier = what >> LANE_BITS
        found = _by_lanes(prior, Lack.HEARD, places, unheard, joined, earlier, who)
        return found + _by_lanes(prior, Lack.TOLD, places, untold, when <= before, earlier, who)

    def _reads_kept(self) -> list[tuple[Array, Array]]:
        """When reads were, and what they were: the last of each warp, and the last by another lane than that."""
        return [(self.read, self.reader), (self.other, self.otherwise)][: 1 + bool(self.other.size)]

    def _written(self, lack: Lack, at: Array, bad: Array, who: Array) -> list[Conflict]:
        """Of writes, those of ordinary instructions."""
        own = np.nonzero(bad & (who <= self.clocks.warps))[0]
        earlier = self.what[at[own]] >> LANE_BITS
        return [Conflict(Prior.WRITTEN, lack, own, earlier, who[own] - 1)] if len(own) else []

    def note_read(self, at: Array, warps: Array, line: int, lanes: Array | int = SEVERAL) -> None:
        """Lanes of warps read words."""
        if not self.was_read:
            self.was_read = True
            self.read, self.reader = (np.zeros((self.clocks.warps, self.count), np.int32) for _ in range(2))
        self.readers[warps] = True
        flat, read, reader = warps * self.count + at, self.read.reshape(-1), self.reader.reshape(-1)
        now, own = self.clocks.now[warps], line << LANE_BITS | lanes
        if isinstance(own, int) or lanes[0] >= SEVERAL:  # type: ignore[index]
            read[flat], reader[flat] = now, own
            return
        before = reader[flat]
        others = (before ^ own) & _LANE != 0  # another lane read it: what this one does now must not hide that
        if others.any():
            when = read[flat[others]]
            if when.any():
                self._keep(flat[others], when, before[others])
        read[flat], reader[flat] = now, own
        others = reader[flat] != own  # of several lanes that read one word now
        if others.any():
            self._keep(flat[others], now[others], own[others])

    def _keep(self, flat: Array, when: Array, what: Array) -> None:
        """Reads that another lane of the warp now hides; flat: warps times words."""
        if not self.other.size:
            self.other, self.otherwise = np.zeros_like(self.read), np.zeros_like(self.read)
        self.other.reshape(-1)[flat], self.otherwise.reshape(-1)[flat] = when, what

    def note_write(self, at: Array, warps: Array, line: int, lanes: Array | int = SEVERAL) -> None:
        """Lanes of warps write words."""
        self._note(at, warps + 1, self.clocks.now[warps], line, lanes)

    def hide(self, at: Array, warps: Array, line: int, kind: str, strong: Collection[int]) -> None:
        """What is not weak is about to access words: of weak accesses before, which it does not order, each is kept. strong: instructions that are not."""
        if kind != "read":
            own = at[(self.who[at] > 0) & (self.who[at] <= self.clocks.warps)]
            own = own[_are_weak(self.what[own], line, strong)]
            if len(own):
                if not self.hidden.size:
                    self.hidden = np.zeros((3, self.count), np.int32)
                self.hidden[:, own] = self.who[own], self.when[own], self.what[own]
        if kind != "write" and self.was_read:
            flat, read, reader = warps * self.count + at, self.read.reshape(-1), self.reader.reshape(-1)
            flat = flat[read[flat] > 0]
            flat = flat[_are_weak(reader[flat], line, strong)]
            if len(flat):
                if not self.weakly.size:
                    self.weakly = np.zeros((2, *self.read.shape), np.int32)
                self.weakly.reshape(2, -1)[:, flat] = read[flat], reader[flat]

    def _note(self, at: Array, who: Array | int, when: Array | int, line: int, lanes: Array | int) -> None:
        self.who[at], self.when[at], self.what[at] = who, when, line << LANE_BITS | lanes

    def forget(self, at: Array) -> None:
        """Nobody has touched these words."""
        self.who[at] = 0
        if self.hidden.size:
            self.hidden[:, at] = 0
        if self.was_read:
            self.read[:, at] = 0
        if self.weakly.size:
            self.weakly[..., at] = 0
        if self.other.size:
            self.other[:, at] = 0
        if self.strong.writes:
            self.strong.wrote[..., at] = 0
        for fetched in self.fetched.values():
            fetched[at] = 0

    # --- asynchronous operations

    def _reads(self, at: Array, known: Array, fenced: Array | None = None) -> list[Conflict]:
        """Reads that are later than what is known of the readers, or than their last fence between proxies, which is never later."""
        found = self._reads_of(self.read, self.reader, at, known, fenced)
        if self.weakly.size:
            found += self._reads_of(self.weakly[0], self.weakly[1], at, known, fenced)
        return found

    def _reads_of(self, when: Array, readers: Array, at: Array, known: Array, fenced: Array | None) -> list[Conflict]:
        """Of the last read of each warp, or of the last weak one."""
        read = when.take(at, 1)
        each = (known if fenced is None else fenced).T
        late = read > (each[:, None] if each.ndim == 1 else each)
        if not np.count_nonzero(late):
            return []
        found = []
        places, reader = np.nonzero(late.T)
        bad = read[reader, places] > (known[reader] if known.ndim == 1 else known[places, reader])
        for lack, own in ((Lack.ORDER, bad), (Lack.FENCE, ~bad)):
            if own.any():
                what = readers[reader[own], at[places[own]]] >> LANE_BITS
                found.append(Conflict(Prior.READ, lack, places[own], what, reader[own]))
        return found

    def _pending(
        self, at: Array, by: Operation, lanes: Array | None, prior: Prior, places: Array, numbers: Array, owners: Array
    ) -> list[Conflict]:
        """Of operations, elementwise, those that are not known to be done, or not behind a fence, when another one begins."""
        found: list[Conflict] = []
        for number in each_once(numbers):
            other, own = self.operations.all[number], places[numbers == number]
            if other is by or (other.reduces and by.reduces) or self._in_turn(other, by):
                continue
            lack, which = self._lacking(prior, other, by), np.full(len(own), number)
            if lack is not None:
                found.append(Conflict(prior, lack, own, which, np.zeros_like(which)))
            elif lanes is not None and self.lanes.loose(by.warps, LEARNS):
                warps, lane = np.full(len(own), by.warps[0]), np.broadcast_to(lanes, at.shape)[own]
                found += self._lanes_apart(prior, own, which, warps, lane, owners[at[own]])
        return found

    def _lanes_apart(
        self, prior: Prior, places: Array, numbers: Array, warps: Array, lanes: Array, owners: Array
    ) -> list[Conflict]:
        """Of operations that warps know to be done, elementwise, those of which only other lanes than these do."""
        apart, since = self.operations.apart(numbers, warps, lanes, owners & _LANE, prior.part)
        joined = (since <= self.lanes.joined[warps]) | (lanes == SEVERAL)
        return _by_lanes(prior, Lack.LANES, places, apart, joined, numbers, np.zeros_like(numbers))

    def _in_turn(self, earlier: Operation, later: Operation) -> bool:
        """Whether the tensor core executes two operations in the order of issue: pipelined pairs of one thread, or with fences of two."""
        if (earlier.unit, later.unit) not in PIPELINED or (
            earlier.unit == later.unit and earlier.accumulator != later.accumulator
        ):
            return False
        by = int(earlier.warps[0])
        handed = self.clocks.tensor[later.warps, HANDED, 1 + by]
        return by in later.warps or bool((handed >= earlier.since[0]).any())

    def _lacking(self, prior: Prior, other: Operation, by: Operation) -> Lack | None:
        """What the order of two operations lacks."""
        operations, part, tensor = self.operations, prior.part, self.space == "tmem"
        if tensor and any(operations.after_tensor_fence(other, warp) for warp in by.warps.tolist()):
            return Lack.WAIT if other.depended and prior is Prior.FETCHED else None
        one_thread = other.kind == by.kind == "tcgen05" and other.warps[0] in by.warps
        if not operations.is_after(other.number, by.warps, part):
            return Lack.PIPELINE if one_thread else Lack.ORDER
        if tensor:
            return None if one_thread else Lack.FENCE
        if (
            len(by.warps) > 1
            and other.kind != by.kind
            and not all(operations.is_after(other.number, by.warps[[own]], part) for own in range(len(by.warps)))
        ):
            return Lack.WARPS
        fences = self.proxies and part == WRITTEN and other.proxy == "generic" != by.proxy
        fenced = not fences or any(operations.after_fence(other.number, warp) for warp in by.warps)
        return None if fenced else Lack.FENCE

    def note_fetch(self, at: Array, by: Operation, lanes: Array | int = SEVERAL) -> None:
        """An operation reads words, at some time until it is known to have."""
        warp = int(by.warps[0])
        if warp not in self.fetched:
            self.fetched[warp] = np.zeros(self.count, np.int32)
        self.fetched[warp][at] = by.number + 1 << LANE_BITS | lanes

    def note_landing(self, at: Array, by: Operation, lanes: Array | int = SEVERAL) -> None:
        """An operation writes words, at some time until it is known to have."""
        self._note(at, self.clocks.warps + 1 + by.number, NEVER, by.line, lanes)

    def note_all(self, at: Array, made: Mapping[int, Operation], warps: Array, writes: bool, lanes: Array) -> None:
        """Operations of single warps, by warp, read or write words: of each word the warp, and the lane."""
        if not writes:
            for warp, by in made.items():
                self.note_fetch(at[warps == warp], by, lanes[warps == warp])
            return
        numbers = np.zeros(self.clocks.warps, np.int32)
        numbers[list(made)] = [by.number for by in made.values()]
        self._note(at, self.clocks.warps + 1 + numbers.take(warps), NEVER, next(iter(made.values())).line, lanes)


@lru_cache(64)
def _owners(count: int, each: int) -> Array:
    """To which access each word belongs: count accesses, of `each` words each, one after another."""
    return frozen(np.repeat(np.arange(count), each))


def _nobody(places: Array) -> list[Conflict]:
    nothing = np.zeros(len(places), np.int64)
    return [Conflict(Prior.NOBODY, Lack.ORDER, places, nothing, nothing)]


def _by_lanes(
    prior: Prior, lack: Lack, places: Array, bad: Array, joined: Array, earlier: Array, warps: Array
) -> list[Conflict]:
    """Those that are not in order for lanes: these have executed an instruction together since then, or not."""
    found = []
    for together, own in ((False, bad & ~joined), (True, bad & joined)):
        if own.any():
            found.append(Conflict(prior, lack, places[own], earlier[own], warps[own], together))
    return found


class Prior(Enum):
    """What was done before."""

    WRITTEN = "written by an instruction of a warp"
    READ = "read by an instruction of a warp"
    LANDED = "written by an asynchronous operation"
    FETCHED = "read by an asynchronous operation"
    NOBODY = "nothing: it is read, and nobody has written it"

    def __init__(self, _: str) -> None:
        self.work = self.name in ("LANDED", "FETCHED")  # by an operation, not an instruction
        self.did, self.part = ("read", READ) if self.name in ("READ", "FETCHED") else ("written", WRITTEN)


class Lack(Enum):
    """What is missing between the two."""

    ORDER = "anything that orders them"
    WARPS = "what orders it with the other warps of a warpgroup"
    FENCE = "a fence: between proxies, or of tcgen05"
    WAIT = "a wait: it is known to be done because its registers were needed"
    PIPELINE = "a wait: both are tcgen05 of one thread, and no pipelined pair"
    LANES = "what orders lanes of a warp: another one did it, or waited for it"
    HEARD = "what orders lanes: another one waited for what orders it"
    TOLD = "what orders lanes: another one arrived for the one that did it"


LANES = (Lack.LANES, Lack.HEARD, Lack.TOLD)
"""In order as far as whole warps go."""


@dataclass(frozen=True)
class Conflict:
    """Earlier accesses, by the places in the list of words of the access now."""

    prior: Prior
    lack: Lack
    places: Array
    earlier: Array  # numbers of instructions, or of operations
    warps: Array  # the warp of the earlier access; of operations 0
    joined: bool = False  # of lanes: whether they have executed an instruction together since then

    def without(self, instructions: Collection[int]) -> Conflict:
        """But for those with some earlier instructions."""
        kept = ~np.isin(self.earlier, list(instructions))
        return replace(self, places=self.places[kept], earlier=self.earlier[kept], warps=self.warps[kept])
