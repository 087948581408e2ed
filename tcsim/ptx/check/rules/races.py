"""Races in global memory among all blocks of a launch: who accessed each word last, and what clusters release to each other.

Kept where a launch asks for it (`Kernel.launch(races=True)`). Within a cluster its vector clocks say what is ordered. Between
clusters a release of .gpu or .sys scope (st.release, atom, or a relaxed one behind a fence) gets a number, and the flag that it writes keeps the
number of the last one. Who acquires from that flag knows all releases up to there. The number is a clock of the cluster more, so that it goes
through barriers as the others do. What writes a flag also comes before what follows a strong read of the value that it left, released or not.
Releases are counted in the order in which they ran, so an access may pass as ordered by somebody else's release that came before; what is
reported is never ordered. Source: PTX ISA, Memory Consistency Model.

A bulk store is done once its thread has waited for its group: a fence between the proxies is implicit in its completion (Async Proxy). What
ordinary instructions wrote is read by a bulk copy of another cluster behind a fence.proxy.async, wherever on the path of releases and acquires
from the one to the other. The model has no rule of its own for that fence, and does not say in which block it has to be.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from tcsim.model.effects import Order
from tcsim.model.statement import Instruction
from tcsim.ptx.check.clocks import GLOBALLY, ORDERED
from tcsim.ptx.check.flags import order_of, scope_of
from tcsim.ptx.check.operations import Operation
from tcsim.ptx.check.order import FENCES
from tcsim.ptx.check.places import by_segment, contested
from tcsim.ptx.check.rules.unused import Unused, is_needed
from tcsim.ptx.check.state import State, Touch
from tcsim.ptx.machine.arrays import LANES, Array
from tcsim.ptx.machine.block import Block
from tcsim.ptx.machine.faults import Stop
from tcsim.ptx.machine.memory import Segment

WEAK, BLOCK, CLUSTER, FAR = range(4)
"""How far an access is strong: not at all, for its block, for its cluster, for the GPU."""
_REACH = {"cta": BLOCK, "cluster": CLUSTER}
_KINDS = (ORDERED, GLOBALLY)
"""Kinds of order that releases publish."""


@dataclass(frozen=True)
class Event:
    """What a warp did with some words: an instruction between two releases."""

    by: Party
    warp: int
    when: int  # the warp's clock
    item: Instruction | None
    reach: int
    block: tuple[int, ...]
    store: Operation | None = None  # a bulk store, which is done later


@dataclass
class Accesses:
    """Of each word of a segment the events, by number; 0: none."""

    written: Array
    written_before: Array  # by another warp than the last, or weak, where the last is strong
    read: Array
    read_before: Array  # the same


class Flag(NamedTuple):
    """What was released to an address: the last release there, whose that is, and the last that is another cluster's."""

    last: int = 0
    by: int = -1
    others: int = 0

    def told(self, reader: int) -> int:
        """What a cluster learns there: its own releases tell it nothing."""
        return self.others if reader == self.by else self.last

    def behind(self, release: int, by: int, known: int) -> Flag:
        """The same with one more release; known: what its cluster knew of others."""
        if by == self.by or release < self.last:
            return self._replace(
                last=max(self.last, release) if by == self.by else self.last,
                others=max(self.others, known if by == self.by else release),
            )
        return Flag(release, by, max(self.last, known))


_NONE = Flag()


@dataclass
class Races:
    """The global memory of one launch, for all its clusters. unit: bytes of a word, those of the narrowest access."""

    unit: int
    parties: list[Party] = field(default_factory=list)
    releases: int = 0
    bridged: list[int] = field(default_factory=lambda: [0])
    """Of each release the last one that somebody knew behind a fence between proxies, and published so, here or before."""
    flags: dict[int, Flag] = field(default_factory=dict)  # by address
    events: list[Event | None] = field(default_factory=lambda: [None])
    owners: Array = field(default_factory=lambda: np.full(1024, -1))  # of each event the warp, counted through the grid
    segments: dict[int, Accesses] = field(default_factory=dict)
    observed: dict[int, dict[int, Event]] = field(default_factory=dict)
    """Of an event that wrote flags, by warp, counted through the grid: its first strong read of one of them (Causality Order, 2)."""
    _numbers: dict[tuple[int, int, int, int, int, int], int] = field(default_factory=dict)

    def number(self, event: Event) -> int:
        """The number of an event."""
        store = -1 if event.store is None else event.store.number
        key = event.by.number, event.warp, event.when, id(event.item), event.reach, store
        found = self._numbers.get(key)
        if found is None:
            found = self._numbers[key] = len(self.events)
            self.events.append(event)
            if found >= len(self.owners):
                self.owners = np.concatenate((self.owners, np.full(len(self.owners), -1)))
            self.owners[found] = event.by.first + event.warp
        return found

    def hides(self, before: Array, warps: Array, reach: int) -> Array:
        """Of events that accesses now hide, which are another warp's, or weak where these are not: others may conflict with those. warps: counted through the grid."""
        found: Array = self.owners[before] != warps
        events = {number: self.events[number] for number in np.unique(before).tolist()} if reach else {}
        weak = [number for number, event in events.items() if event is not None and event.reach == WEAK]
        return found | np.isin(before, weak) if weak else found

    def accesses(self, segment: Segment) -> Accesses:
        """What was done in a segment."""
        if segment.address not in self.segments:
            self.segments[segment.address] = Accesses(*np.zeros((4, -(-segment.size // self.unit)), np.int32))
        return self.segments[segment.address]


class Party:
    """One cluster of such a launch."""

    def __init__(self, races: Races, state: State) -> None:
        self.races, self.state, self.clocks = races, state, state.clocks
        self.number, self.warps = len(races.parties), state.clocks.warps - 1
        self.first = self.number * self.warps
        self.outside = 1 + self.warps  # the column of the clocks that counts releases
        self.released: list[tuple[int, Array]] = []  # each release: its number, and what it publishes, of _KINDS
        # By address: its last release there, which its later strong writes there hand on.
        self._left: dict[int, int] = {}
        # By warp when it has fenced for the GPU; of each release up to which of these fences of each warp the one that wrote the flag knew.
        self._fences: dict[int, list[int]] = {}
        self._behind: list[Array] = []
        self._hearing: dict[int, list[tuple[int, int]]] = {}  # by warp: when it read flags, and about which releases
        # By warp: releases about which others of the block had read when it fenced.
        self._near = np.zeros(self.clocks.warps, np.int32)
        # By warp: what it knew at its last fence for the GPU.
        self._at_fence = np.zeros_like(self.clocks.known[:, _KINDS])
        # By warp: releases that it has read about, for its next fence.
        self.heard = np.zeros(self.clocks.warps, np.int32)
        self.told = self.acquires = False  # whether anything here reads flags for the GPU, and acquires by that
        self.releasing: set[int] = set()  # warps that release to other clusters
        self.near: dict[int, tuple[int, Instruction]] = {}
        """By warp: its clock at its last fence, release or acquire for the block or cluster alone."""
        self.unused = Unused(state)
        races.parties.append(self)

    # --- what orders

    def acquire(self, warps: Array, addresses: Array, now: bool) -> None:
        """Read flags for the GPU; now: it acquires itself, and is not for a fence to come."""
        self.told = True
        self.acquires |= now
        flags = self.races.flags
        at = (flags[address] for address in np.unique(addresses).tolist() if address in flags)
        last = max((own.told(self.number) for own in at), default=0)
        told = self.clocks.known[:, ORDERED, self.outside] if now else self.heard
        told[warps] = np.maximum(told[warps], last)
        for warp in warps.tolist() if last else ():
            heard = self._hearing.setdefault(warp, [])
            if not heard or heard[-1][1] < last:
                heard.append((int(self.clocks.now[warp]), last))

    def release(self, warps: Array, addresses: Array, now: bool, adds: bool = True) -> None:
        """Write flags for the GPU; now: it releases all that is known, and not only what a fence before it did; adds: what others released there stays."""
        what = (self.clocks.known[:, _KINDS] if now else self._at_fence)[warps].max(0)
        last = self.released[-1][1] if self.released else np.zeros_like(what)
        self.releasing.update(warps.tolist())
        behind, before = self._fenced(warps), self._behind[-1] if self._behind else 0
        if (what > last).any() or (behind > before).any():
            self.races.releases += 1
            self.released.append((self.races.releases, np.maximum(what, last)))
            self._behind.append(np.maximum(behind, before))
            self.races.bridged.append(max(self.races.bridged[-1], int(what[1, self.outside])))
        last, flags = 0, self.races.flags
        if self.released and (what.any() or behind.any()):
            last = self.released[
                bisect_left(range(len(self.released)), True, key=lambda place: self._covers(place, what, behind))
            ][0]
        for address in np.unique(addresses).tolist() if self.released or not adds else ():
            own = self._left[address] = max(last, 0 if now else self._left.get(address, 0))
            there = flags.get(address, _NONE) if adds else _NONE
            flags[address] = there.behind(own, self.number, int(what[0, self.outside])) if own else there

    def _covers(self, place: int, what: Array, behind: Array) -> bool:
        """Whether a release publishes so much."""
        return bool((self.released[place][1] >= what).all() and (self._behind[place] >= behind).all())

    def ordered(self, block: Block, order: Order, threads: Array) -> None:
        """Fences, before the clocks count them."""
        if order.kind not in FENCES:
            return
        warps = self.state.some(block, threads)
        if order.scope not in ("gpu", "sys"):
            self.narrow(warps, block.here)
            return
        known = np.maximum(self.clocks.known[warps], self.clocks.heard[warps])[:, _KINDS]
        self.acquires |= self.told
        known[:, 0, self.outside] = np.maximum(known[:, 0, self.outside], self.heard[warps])
        self.clocks.known[warps, ORDERED, self.outside] = known[:, 0, self.outside]
        self._at_fence[warps] = known
        for warp in warps.tolist():
            self._fences.setdefault(warp, []).append(int(self.clocks.now[warp]))
            for other, heard in self._hearing.items():
                place = bisect_right(heard, int(self.clocks.known[warp, ORDERED, 1 + other]), key=lambda own: own[0])
                self._near[warp] = max(self._near[warp], max((own[1] for own in heard[:place]), default=0))

    def _fenced(self, warps: Array) -> Array:
        """Of each warp when it last fenced for the GPU, as far as some warps know."""
        found = np.zeros(self.warps, np.int64)
        known = self.clocks.known[warps, ORDERED].max(0)
        for warp, fences in self._fences.items():
            place = bisect_right(fences, int(known[1 + warp]))
            found[warp] = fences[place - 1] if place else 0
        return found

    def _nearly(self, event: Event, warp: int) -> bool:
        """Whether all that is missing to an order is that fences and flags are in different threads, with barriers between."""
        behind = event.by._behind
        place = bisect_left(behind, event.when, key=lambda own: int(own[event.warp]))
        strict = event.by.known_from(event)
        loose = event.by.released[place][0] if place < len(behind) else strict
        known = max(int(self.clocks.known[warp, ORDERED, self.outside]), int(self._near[warp]))
        return loose is not None and min(loose, strict or loose) <= known

    def narrow(self, warps: Array, item: Instruction | None) -> None:
        """Something orders memory for the block or the cluster alone."""
        if item is None:
            return
        for warp in warps.tolist():
            self.near.pop(warp, None)
            self.near[warp] = int(self.clocks.now[warp]), item

    # --- accesses

    def accessed(self, touch: Touch) -> None:
        """Loads, stores and atomics, with what they acquire and release."""
        if touch.kind != "read":
            self.unused.stored.update((id(touch.item), warp) for warp in touch.some.tolist())
        if touch.rank >= 0:
            return
        kind, addresses, some = touch.kind, touch.offsets, touch.some
        strong, reads, acquires, releases = order_of(touch.opcode)
        reach = _REACH.get(scope_of(touch.opcode), FAR) if strong else WEAK
        far = reach == FAR
        if far and kind != "write" and reads:
            self.acquire(some, addresses, acquires)
        elif not far and (acquires or releases):
            self.narrow(some, touch.item)
        sees = strong and reads and (touch.item is None or is_needed(touch.block, touch.item))
        self.used(touch, reach, sees)
        if kind == "write" and not strong and touch.written is not None:
            self._at_once(touch, touch.written)
        if far and kind != "read":
            self.release(some, addresses, releases, kind != "write")

    def _at_once(self, touch: Touch, written: Array) -> None:
        """Warps store different values to one place with one instruction."""
        for place in contested(touch.offsets, touch.threads, written).tolist():
            address, thread = int(touch.offsets[place]), int(touch.threads[place])
            said = f"{self.state.opcode(touch.line)} writes global memory at {address:#x}, where other warps store other numbers with the same instruction: nothing orders them"
            self.state.report("GMEM_RACE", touch.block, said, touch.line, touch.line, thread, address=address)

    def used(self, touch: Touch, reach: int, observes: bool = False, work: Operation | None = None) -> None:
        """Warps access global memory, elementwise: what is wrong with that, and that they did.

        observes: they see who wrote it. work: the operation that does it.
        """
        races, copies, kind, warps = self.races, work is not None and work.proxy == "async", touch.kind, touch.warps
        store = work if copies and kind != "read" else None
        for own, segment in by_segment(self.state.memory, touch.offsets):
            accesses, start = races.accesses(segment), segment.address
            first = (touch.offsets[own] - start).astype(np.int64) // races.unit
            each = max(1, touch.size // races.unit)
            at = (first[:, None] + np.arange(each)).reshape(-1)
            at, who = np.minimum(at, len(accesses.written) - 1), np.repeat(warps[own], each)
            self._judge(touch, accesses, at, who, start, reach, copies and kind == "read")
            events = np.zeros(self.warps, np.int32)
            for warp in np.unique(who).tolist():
                when = int(self.clocks.now[warp])
                events[warp] = races.number(Event(self, warp, when, touch.item, reach, touch.block.index, store))
            if observes and kind != "write":
                earlier = np.concatenate((accesses.written[at], accesses.written_before[at]))
                for number, warp in np.unique(np.stack((earlier, np.tile(who, 2))), axis=1).T.tolist():
                    event, own = races.events[number], races.events[events[warp]]
                    if event is not None and own is not None and self._strong(event, warp, reach):
                        races.observed.setdefault(number, {}).setdefault(self.first + warp, own)
            if kind != "write":
                before = accesses.read[at]
                other = races.hides(before, self.first + who, reach)
                accesses.read_before[at[other]] = before[other]
                accesses.read[at] = events[who]
            if kind != "read":
                before = accesses.written[at]
                other = races.hides(before, self.first + who, reach) if reach else np.full(len(at), True)
                accesses.written_before[at[other]] = before[other] if reach else 0
                accesses.written[at] = events[who]

    def _judge(
        self, touch: Touch, accesses: Accesses, at: Array, warps: Array, start: int, reach: int, copied: bool
    ) -> None:
        """copied: read by a bulk copy."""
        written = (accesses.written, accesses.written_before)
        for does, earlier in (
            *(("written", own) for own in written),
            ("read", accesses.read),
            ("read", accesses.read_before),
        ):
            if does == touch.kind == "read":
                return
            numbers = earlier[at]
            places = np.flatnonzero((numbers != 0) & (self.races.owners[numbers] != self.first + warps))
            if not len(places):
                continue
            pairs, firsts = np.unique(np.stack((numbers[places], warps[places])), axis=1, return_index=True)
            for (number, warp), place in zip(pairs.T.tolist(), places[firsts].tolist(), strict=True):
                event = self.races.events[number]
                if event is None or self._strong(event, warp, reach) or self._observed(number, warp):
                    continue
                if self._before(event, warp):
                    named = None if event.by is self else self._unfinished(event, warp, copied)
                elif event.by is not self and self._nearly(event, warp):
                    named = (
                        "GMEM_FENCE_APART",
                        "a fence for the GPU and the flag are in different threads, with a barrier between",
                    )
                else:
                    named = self._name(event, warp, reach, touch.block.index)
                if named is not None:
                    where = start + int(at[place]) * self.races.unit
                    self._report(touch, does, event, warp, where, *named)

    def _observed(self, number: int, warp: int) -> bool:
        """Whether a warp has seen what an event wrote, or comes after one that has."""
        readers = self.races.observed.get(number, {})
        return self.first + warp in readers or any(self._before(own, warp) for own in readers.values())

    def _strong(self, event: Event, warp: int, reach: int) -> bool:
        """Whether an earlier access, and one of a warp now, are strong for each other."""
        if event.by is not self:
            return event.reach == reach == FAR
        return min(event.reach, reach) >= (BLOCK if self._rank(event.warp) == self._rank(warp) else CLUSTER)

    def _before(self, event: Event, warp: int) -> bool:
        """Whether what a warp knows has an earlier access, or where that was issued."""
        known = self.clocks.known[warp, ORDERED]
        if event.by is self:
            return bool(known[1 + event.warp] >= event.when)
        release = event.by.known_from(event)
        return release is not None and bool(release <= known[self.outside])

    def _unfinished(self, event: Event, warp: int, copied: bool) -> tuple[str, str] | None:
        """What is wrong with an access behind one of another cluster that is before it: that is not done, or not for this proxy."""
        known, other = self.clocks.known[warp, :, self.outside], event.by
        if event.store is not None:
            done = other.known_done(event.store)
            if done is None or done > known[ORDERED]:
                missing = f"no cp.async.bulk.wait_group, without .read, is between in block {event.block}"
                return "TMA_STORE_NOT_VISIBLE", missing
            return None
        release, fenced = other.known_from(event), other.known_from(event, GLOBALLY)
        if not copied or release is None or release <= max(known[GLOBALLY], self.races.bridged[known[ORDERED]]):
            return None
        if fenced is not None and fenced <= known[ORDERED]:
            return None
        return "PROXY_FENCE_GLOBAL", "no fence.proxy.async is between, in either block"

    def known_from(self, event: Event, kind: int = ORDERED) -> int | None:
        """The number of the first release that publishes an event of this cluster; GLOBALLY: behind a fence between proxies."""
        row = _KINDS.index(kind)
        return self._first(event.when, lambda what: int(what[row, 1 + event.warp]))

    def known_done(self, store: Operation) -> int | None:
        """The number of the first release that publishes that a bulk store of this cluster is done."""
        return self._first(True, lambda what: self.state.operations.seen_by(store, what[0, 1:-1]))

    def _first(self, least: int, of: Callable[[Array], int]) -> int | None:
        """The number of the first release of which something that grows is so much."""
        place = bisect_left(self.released, least, key=lambda own: of(own[1]))
        return self.released[place][0] if place < len(self.released) else None

    # --- names

    def _report(self, touch: Touch, does: str, event: Event, warp: int, where: int, name: str, missing: str) -> None:
        state, block = self.state, touch.block
        line, other = touch.line, state.number(event.item)
        now = "reads" if touch.kind == "read" else "writes"
        whose = "" if event.block == block.index else f" in block {event.block}"
        before = f"{does} by {state.opcode(other)}{whose}"
        said = f"{state.opcode(line)} {now} global memory at {where:#x}, {before}: {missing}"
        thread = warp % state.per_block * LANES
        key = state.report(name, block, said, line, other, thread, address=where, other_block=list(event.block))
        if name == "GMEM_RACE":
            read = (touch.item, warp) if touch.kind == "read" else (event.item, event.warp) if does == "read" else None
            near = read is not None and event.by is self and event.block == block.index
            self.unused.note(key, *(read if near and read is not None else (None, warp)))

    def ended(self, stop: Stop | None) -> None:
        """The cluster has ended."""
        if stop is None:
            self.unused.tell(self.state.findings)

    def _rank(self, warp: int) -> int:
        """The block of a warp, in the cluster."""
        return warp // self.state.per_block

    def _name(self, event: Event, warp: int, reach: int, index: tuple[int, ...]) -> tuple[str, str]:
        """The rule, and what is missing: the release, the acquire, a barrier of the block before or behind it, the scope, or all of it."""
        own, other = f"block {index}", f"block {event.block}"
        if event.by is self and event.block == index:
            return "GMEM_RACE", "nothing orders them"
        if event.reach and reach:
            return "GMEM_SCOPE", "one of the two is strong for its own block or cluster alone"
        if event.by is self:
            near = self.narrowed(event.when, self._rank(event.warp)) or self.narrowed(0, self._rank(warp))
            if near is None:
                return "GMEM_RACE", "nothing orders them"
            return "GMEM_SCOPE", f"{self._opcode(near)} between is for its own block alone"
        release, near = event.by.known_from(event), event.by.narrowed(event.when)
        if release is None and near is not None:
            return "GMEM_SCOPE", f"{self._opcode(near)} behind it is for its own block or cluster alone"
        near = None if self.told else self.narrowed()
        if near is not None:
            return "GMEM_SCOPE", f"{self._opcode(near)} before this is for its own block or cluster alone"
        known = self.clocks.known[: self.warps, ORDERED, self.outside]
        rule = "GMEM_ACQUIRE_MISSING"
        if release is not None and (known >= release).any():
            return rule, f"another warp of {own} acquires, and no barrier orders this one's access behind that"
        if release is not None and (self.heard >= release).any():
            return rule, f"{own} has no .acquire, and no fence for the GPU, between what {other} tells it and this"
        if release is not None or not self.acquires:
            return "GMEM_RACE", "nothing orders the blocks"
        rule = "GMEM_RELEASE_MISSING"
        if event.by.releasing and event.warp not in event.by.releasing:
            return rule, f"another warp of {other} releases, and no barrier orders this one's access before that"
        return rule, f"{other} has no fence for the GPU, and no .release, between that and what tells {own}"

    def narrowed(self, since: int = 0, rank: int | None = None) -> Instruction | None:
        """The last that orders memory for this cluster alone, of those since a clock; rank: in that block, and for it alone."""
        for warp, (clock, item) in reversed(self.near.items()):
            near = rank is None or (self._rank(warp) == rank and scope_of(item.opcode) == "cta")
            if near and clock >= since:
                return item
        return None

    def _opcode(self, item: Instruction) -> str:
        return self.state.opcode(self.state.number(item))
