"""What lanes of a warp tell each other, and where they wait for each other."""

from __future__ import annotations

from typing import Any

import numpy as np

from tcsim.core.arguments import spread
from tcsim.isa.ordinary.warp import partners
from tcsim.ptx.machine.arrays import LANES, Array, Mask
from tcsim.ptx.machine.events import Events
from tcsim.ptx.machine.fibers import Fibers, Moves, Wait
from tcsim.ptx.machine.inexact import Inexact
from tcsim.ptx.machine.threads import Threads
from tcsim.ptx.text.syntax import Instruction


class Warps:
    """The warps of a block."""

    def __init__(self, block: object, threads: Threads, fibers: Fibers, inexact: Inexact, events: Events) -> None:
        self.block, self.threads, self.fibers, self.inexact, self.events = block, threads, fibers, inexact, events
        self.alone = np.uint32(1) << (threads.numbers % LANES).astype(np.uint32)  # of each thread its lane, as a bit

    # --- exchanges

    def _warped(self, values: Any, dtype: Any = np.uint32) -> Array:
        """One value for each thread as (warps, 32)."""
        full = spread(np.asarray(values, dtype), (self.threads.count,))
        return full.reshape(-1, LANES)

    def shuffle(self, mode: str, a: Array, b: Array, c: Array, w: Mask) -> tuple[Array, Array]:
        """The register of another lane, and whether that lane is in range; of a lane that does not execute 0 (measured on an H200)."""
        found = self.exchange(mode, a, b, c, w)
        for hear in self.events.shuffled:
            hear(self.block, self.sources(mode, b, c, w))
        return found

    def exchange(self, mode: str, a: Array, b: Array, c: Array, w: Mask) -> tuple[Array, Array]:
        """What a shuffle gives, for those who tell of it themselves."""
        self._exchanged(w)
        return self._taken(mode, a, b, c, w)

    def sources(self, mode: str, b: Array, c: Array, w: Mask) -> Array:
        """Of each thread the one that a shuffle takes its value from; 0 where that does not execute."""
        return self._taken(mode, self.threads.numbers, b, c, w)[0]

    def _taken(self, mode: str, a: Array, b: Array, c: Array, w: Mask) -> tuple[Array, Array]:
        source, inside = self._partners(mode, b, c)
        value = np.where(self._warped(self.threads.mask(w), bool), self._warped(a), np.uint32(0))
        return np.take_along_axis(value, source, axis=1).reshape(-1), inside.reshape(-1)

    def _exchanged(self, w: Mask) -> None:
        for hear in self.events.exchanged:
            hear(self.block, self.threads.mask(w))

    def partners(self, mode: str, b: Array, c: Array) -> Array:
        """Of each thread the one whose register a shuffle gives it."""
        source, _ = self._partners(mode, b, c)
        return (source + LANES * np.arange(len(source))[:, None]).reshape(-1)

    def _partners(self, mode: str, b: Array, c: Array) -> tuple[Array, Array]:
        """The lanes (warps, 32) that a shuffle names, the own one where that is out of range; and whether it is in range."""
        delta, control = self._warped(b).astype(np.int64), self._warped(c).astype(np.int64)
        return partners(mode, np.arange(LANES), delta, control)

    def ballot(self, flags: Array) -> Array:
        """Of each thread the lanes of its warp for which something holds, as bits."""
        bits = self._warped(flags, bool).astype(np.uint64) << np.arange(LANES, dtype=np.uint64)
        return np.repeat(bits.sum(1).astype(np.uint32), LANES)

    def vote(self, mode: str, predicate: Array, mask: Any, w: Mask) -> Array:
        """all, any, uni, or the ballot, of the lanes that each lane's member mask names; without a mask of those that execute."""
        now = self.threads.mask(w)
        self._exchanged(now)
        yes, everyone = self.ballot(now & predicate), self.ballot(now)
        if mask is not None:
            yes, everyone = yes & mask, everyone & mask
        if mode == "ballot":
            return yes
        found = {"any": yes != 0, "all": yes == everyone, "uni": (yes == 0) | (yes == everyone)}
        return found[mode]

    def match(self, mode: str, a: Array, mask: Array, w: Mask) -> tuple[Array, Array]:
        """The members with the same value as each, or all of them if all values are equal."""
        self._exchanged(w)
        now = self._warped(self.threads.mask(w), bool)
        value, members = self._warped(a, np.uint64), self._warped(mask)
        same = (value[:, :, None] == value[:, None, :]) & now[:, None, :]
        bits = (same.astype(np.uint64) << np.arange(LANES, dtype=np.uint64)).sum(2).astype(np.uint32) & members
        if mode == "any":
            return bits.reshape(-1), np.ones(self.threads.count, bool)
        everyone = self._warped(self.ballot(self.threads.mask(w))) & members
        equal = bits == everyone
        return np.where(equal, everyone, 0).astype(np.uint32).reshape(-1), equal.reshape(-1)

    # --- meetings

    def active(self, w: Mask, here: int) -> Array:
        """activemask: the lanes of each warp that execute. Which of those that live come together is the machine's own.

        here: the basic block. Lanes that exited before it never come.
        """
        found, exited = self.ballot(self.threads.mask(w)), (self.threads.exited >= 0) & (self.threads.exited < here)
        apart = found != self.ballot(self.threads.exist & ~exited)
        if apart.any():
            self.inexact.note("activemask.b32", self.threads.mask(w) & apart)
        return found

    def missing(self, members: Array, w: Mask, here: int) -> Moves | None:
        """None if all members that live are there for every lane that executes; else who goes on and who waits."""
        mask = self.threads.mask(w)
        now = self.ballot(mask)
        live = self.ballot(self.threads.alive)
        asked = self.threads.each(np.asarray(members, np.uint32))
        self._members(asked, mask)
        asked = asked & live
        complete = (asked & ~now) == 0
        rest = mask & ~complete
        if not rest.any():
            return None
        moves: list[tuple[Array, Any]] = [(rest, Wait("lanes", here, count=LANES))]
        go = (
            mask & complete
        )  # behind the rest, which lanes that wait there join: else they join these, and the rest waits in turn
        return [*moves, (go, here)] if go.any() else moves

    def _members(self, asked: Array, mask: Array) -> None:
        """Tell of lanes that are not in their member masks."""
        outside = mask & (asked & self.alone == 0) if self.events.outside else mask
        for hear in self.events.outside if outside.any() else ():
            hear(self.block, outside)

    def sync(self, members: Array, w: Mask, after: int, item: Instruction) -> Any:
        """bar.warp.sync: wait until all members have executed one with the same mask, here or elsewhere."""
        mask = self.threads.mask(w)
        asked = self.threads.each(np.asarray(members, np.uint32))
        self._members(asked, mask)
        if not (asked & self.ballot(self.threads.alive) & ~self._alike(asked, mask))[mask].any():
            for hear in self.events.met:
                hear(self.block, mask, asked)
            return after
        return [(mask.copy(), Wait("warp", after, members=asked.copy(), item=item))]

    def meet(self) -> bool:
        """Let those go on that have met at bar.warp.sync; whether any did."""
        waiting = self.fibers.waiting_for("warp")
        if not waiting:
            return False
        present, wanted = np.zeros(self.threads.count, bool), np.zeros(self.threads.count, np.uint32)
        for fiber in waiting:
            assert fiber.waits is not None and fiber.waits.members is not None
            present |= fiber.mask
            wanted[fiber.mask] = fiber.waits.members[fiber.mask]
        here, live = self._alike(wanted, present), self.ballot(self.threads.alive)
        met = np.zeros(self.threads.count, bool)
        for fiber in waiting:
            complete = fiber.mask & ((wanted & live & ~here) == 0)
            if fiber.waits is None or not complete.any():
                continue
            met |= complete
            rest = fiber.mask & ~complete
            self.fibers.waiting.remove(fiber)
            if rest.any():
                self.fibers.put(rest, fiber.waits, fiber.turns)
            self.fibers.add(complete, fiber.block, self.fibers.most(complete, fiber.turns, self.fibers.floor))
        for hear in self.events.met if met.any() else ():
            hear(self.block, met, np.where(met, wanted, 0))
        return bool(met.any())

    def _alike(self, members: Array, mask: Array) -> Array:
        """Of each thread of a mask, the lanes of its warp that are in it and name the same members."""
        found = np.zeros(self.threads.count, np.uint32)
        for value in np.unique(members[mask]):
            own = mask & (members == value)
            found[own] = self.ballot(own)[own]
        return found
