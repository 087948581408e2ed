"""What the lanes of a warp know of each other: since sm_70 each goes its own way until bar.warp.sync, a barrier or an mbarrier orders them.

bar.warp.sync orders memory among the lanes that execute it (PTX ISA, bar.warp.sync). shfl, vote, match, redux, elect and instructions that
are .sync.aligned bring lanes together, and the manual says nothing of memory there: what only they order is told apart ("joined").

Times are the clock of the warp (`tcsim.ptx.check.clocks`). Where lanes cannot be told apart, a lane knows more here than it does: that hides a
mistake, and never invents one.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import pairwise

import numpy as np

from tcsim.ptx.check.clocks import ORDERED, Clocks
from tcsim.ptx.machine.arrays import LANES, Array, distinct

SEVERAL = LANES
"""In place of a lane: several lanes, or a warp as one, whose elements belong to no lane in particular (ldmatrix, wmma.store)."""
EACH = LANES + 1
"""In place of a lane: as if each lane of the warp had done it itself (tcgen05.alloc, which returns to none before its address is written)."""
READS, WRITES, LEARNS = range(3)
"""What a lane does that others of its warp do not know: it reads, it writes, it learns that work is done."""
EVERY = np.uint32(0xFFFF_FFFF)
"""All lanes of a warp, as bits."""


class Lanes:
    """The lanes of the warps of a cluster.

    >>> clocks = Clocks(1)
    >>> lanes, warp, some = Lanes(clocks), np.array([0]), np.array([5])
    >>> lanes.touched(warp, some, WRITES)
    >>> lanes.unordered(warp, np.array([6]), some, clocks.now[warp]).tolist()
    [True]
    >>> lanes.together(warp, np.array([EVERY]), np.array([EVERY]))
    >>> lanes.loose(warp, WRITES), lanes.unordered(warp, np.array([6]), some, np.array([1])).tolist()
    (False, [False])
    """

    def __init__(self, clocks: Clocks) -> None:
        warps = clocks.warps
        self.clocks = clocks
        self.base = np.zeros(warps, np.int32)  # up to when every lane knows what all others did
        self.last = np.zeros((3, warps), np.int32)  # when a lane last did what only it knows, by what it did
        # Up to when a lane knows what another did, if that is later.
        self.pairs = np.zeros((warps, LANES, LANES), np.int32)
        self.alone = np.zeros(warps, np.int32)  # when a lane last did anything, or learnt, by itself
        self.joined = np.zeros(warps, np.int32)  # when all lanes last executed one instruction together
        self.told = np.zeros(warps, np.int32)  # up to when what all lanes did was published
        self.tellers = np.zeros((warps, LANES), bool)  # lanes that have published since then, or met others
        self.doing = np.zeros((warps, LANES), bool)  # lanes that did something since then
        # Lanes that know what their warp does (`Clocks.known`); the others know `before`.
        self.heard = np.ones((warps, LANES), bool)
        self.before = np.zeros((warps, warps + 2), np.int32)
        self.parted = np.zeros(warps, np.int32)  # when lanes last heard what others did not
        self.windows: dict[int, dict[int, tuple[int, Array, int]]] = {}
        """By warp and time of what only some lanes published: `told`, `tellers`, `joined`."""

    # --- what lanes do

    def touched(self, warps: Array, lanes: Array, what: int) -> None:
        """Lanes access memory."""
        now = self.clocks.now[warps]
        self.last[what, warps] = now
        if lanes[0] < LANES:
            self.alone[warps] = now
            self.doing[warps, lanes] = True

    def loose(self, warps: Array, what: int) -> bool:
        """Whether any lane of some warps did what others of its warp do not know."""
        late = self.last[what] > self.base
        return bool(np.count_nonzero(late) and np.count_nonzero(late[warps]))

    # --- what brings lanes together

    def together(self, warps: Array, now: Array, alive: Array) -> None:
        """Lanes of some warps meet and know what the others of them did: of each warp the lanes, and those that have not ended, as bits."""
        whole = (alive & ~now) == 0
        self._whole(warps[whole], self.clocks.now[warps[whole]])
        for warp, bits in zip(warps[~whole].tolist(), now[~whole].tolist(), strict=True):
            own = _lanes(bits)
            known = self.pairs[warp, own].max(0)
            known[own] = self.clocks.now[warp]
            self.pairs[warp, own] = known
            self.tellers[warp] |= own
            if (self.heard[warp] & own).any():
                self.heard[warp] |= own
        self.clocks.tick(warps)

    def is_apart(self) -> bool:
        """Whether any lane did something since all of its warp last executed an instruction together."""
        return bool(np.count_nonzero(self.alone > np.maximum(self.base, self.joined)))

    def join(self, warps: Array, now: Array, alive: Array) -> None:
        """Lanes of some warps execute one instruction together, which orders no memory."""
        some = warps[((alive & ~now) == 0) & (self.alone > np.maximum(self.base, self.joined))[warps]]
        if len(some):
            self.joined[some] = self.clocks.now[some]
            self.clocks.tick(some)

    def _whole(self, warps: Array, when: Array) -> None:
        self.base[warps] = np.maximum(self.base[warps], when)
        self._all_told(warps, when)
        self.heard[warps] = True

    def _all_told(self, warps: Array, when: Array) -> None:
        self.told[warps] = np.maximum(self.told[warps], when)
        self.tellers[warps] = False
        self.doing[warps] = False

    # --- what others learn, and what is learnt from them

    def publishing(self, warps: Array, now: Array, alive: Array) -> None:
        """Lanes of some warps, as bits, are about to publish what is before: `Clocks.published` comes next."""
        whole = (alive & ~now) == 0
        if whole.all():
            self._all_told(warps, self.clocks.now[warps])
            return
        if np.count_nonzero(whole):
            self._all_told(warps[whole], self.clocks.now[warps[whole]])
        some = warps[~whole]
        tellers = self.tellers[some] | lanes_of(now[~whole].tobytes())
        self.tellers[some] = tellers
        untold = np.nonzero((self.doing[some] & ~tellers).any(1))[0]
        own = some[untold]
        columns = (own, self.clocks.now[own], np.maximum(self.told[own], self.base[own]), self.joined[own])
        for place, warp, when, first, joined in zip(untold, *(each.tolist() for each in columns), strict=True):
            self.windows.setdefault(warp, {})[when] = first, tellers[place], joined

    def learning(self, warps: Array, now: Array, alive: Array, what: Array) -> None:
        """Lanes of some warps, as bits, are about to learn what was published: `Clocks.acquire` comes next."""
        known = what[ORDERED, 1 + warps]
        whole = (alive & ~now) == 0
        if whole.all():
            self.base[warps] = np.maximum(self.base[warps], known)
            if not self.heard.all():
                self.before[warps] = np.maximum(self.before[warps], what[ORDERED])
            return
        if np.count_nonzero(whole):
            self.learning(warps[whole], now[whole], alive[whole], what)
        for warp, bits, when in zip(warps[~whole].tolist(), now[~whole].tolist(), known[~whole].tolist(), strict=True):
            own = _lanes(bits)
            self.pairs[warp, own] = np.maximum(self.pairs[warp, own], when)
            if self.heard[warp].all():
                self.before[warp] = self.clocks.known[warp, ORDERED]
                self.heard[warp] = own
            else:
                self.heard[warp] |= own
            self.last[LEARNS, warp] = self.alone[warp] = self.parted[warp] = self.clocks.now[warp]

    # --- what is ordered

    def missed(self, warps: Array, lanes: Array) -> bool:
        """Whether any of these lanes does not know what others of its warp have learnt."""
        if np.count_nonzero(self.heard) == self.heard.size:
            return False
        return not self.heard[warps, np.minimum(lanes, LANES - 1)].all()

    def unordered(self, warps: Array, lanes: Array, others: Array, when: Array) -> Array:
        """Whether nothing orders what other lanes of the same warp did at some time before what lanes do now: bool, elementwise."""
        known = self.pairs[warps, np.minimum(lanes, LANES - 1), np.minimum(others, LANES - 1)]
        apart = ((lanes != others) | (lanes == SEVERAL)) & (lanes != EACH) & (others != EACH)
        found: Array = apart & (when > np.maximum(self.base[warps], known))
        return found

    def unheard(self, warps: Array, lanes: Array, writers: Array, when: Array) -> Array:
        """Whether other lanes of a warp have learnt of an event of another warp, by its column of `Clocks.known`, and these have not."""
        found: Array = ~self.heard[warps, np.minimum(lanes, LANES - 1)] & (self.before[warps, writers] < when)
        return found

    def untold(self, warps: Array, others: Array, lanes: Array, when: Array) -> tuple[Array, Array]:
        """Whether warps know of an event of a lane of another warp only because other lanes of that published something later.

        And until when the lanes of that had executed an instruction together before they did.
        """
        found, joined = np.zeros(len(warps), bool), np.zeros(len(warps), np.int32)
        if not self.windows:
            return found, joined
        asked = (others >= 0) & (others < self.clocks.warps) & (warps != others) & (lanes < LANES)
        known = self.clocks.known[warps, ORDERED, np.where(asked, 1 + others, 0)]
        for warp, windows in self.windows.items():
            mine = asked & (others == warp)
            for last in distinct(known[mine]).tolist() if mine.any() else ():
                if last in windows:
                    first, tellers, before = windows[last]
                    own = mine & (known == last)
                    found[own] = (when[own] > first) & ~tellers[lanes[own]]
                    joined[own] = before
        return found, joined


def frozen(values: Array) -> Array:
    """An array that is kept, and that nobody may change."""
    values.flags.writeable = False
    return values


@lru_cache(256)
def _lanes(bits: int) -> Array:
    """The lanes whose bits are set."""
    return frozen((bits >> np.arange(LANES) & 1).astype(bool))


@lru_cache(256)
def lanes_of(bits: bytes) -> Array:
    """The lanes whose bits are set, of several warps: bool (warps, lanes); bits: the bytes of an array of uint32."""
    return frozen(np.unpackbits(np.frombuffer(bits, np.uint8), bitorder="little").reshape(-1, LANES).astype(bool))


def as_bits(mask: Array) -> Array:
    """Threads as lanes of each warp, in bits.

    >>> as_bits(np.arange(64) % 32 < 2).tolist()
    [3, 3]
    """
    return np.packbits(mask, bitorder="little").view("<u4")


@lru_cache(1024)
def warps_in(threads: bytes, kind: str, first: int) -> Array:
    """The warps of threads of a block, each once; threads: an array's bytes, of a dtype; first: the number of the block's first warp."""
    return frozen(distinct(np.frombuffer(threads, kind) // LANES + first))


@lru_cache(1024)
def shares_in(threads: bytes, kind: str, first: int, together: int) -> list[tuple[int, Array, int, int]]:
    """What each group of warps has of ascending threads: its first warp, its warps among them, where its threads begin, and end.

    threads, kind, first: as of `warps_in`; together: the warps of a group.
    """
    own = np.frombuffer(threads, kind)
    units = (own // LANES + first) // together
    starts = [0, *(np.flatnonzero(units[1:] != units[:-1]) + 1).tolist(), len(own)]
    parts = ((begin, end, warps_in(own[begin:end].tobytes(), kind, first)) for begin, end in pairwise(starts))
    return [(int(units[begin]) * together, warps, begin, end) for begin, end, warps in parts]


@lru_cache(1024)
def lanes_in(mask: bytes, alive: bytes, first: int) -> tuple[Array, Array, Array]:
    """The warps of a block with threads in a mask, and of each the lanes in it and those in another mask, as bits."""
    every, there = (as_bits(np.frombuffer(own, bool)) for own in (mask, alive))
    own = np.nonzero(every)[0]
    return frozen(own + first), frozen(every[own]), frozen(there[own])


@lru_cache(256)
def several(count: int) -> Array:
    """For accesses that the lanes of a warp make together."""
    return frozen(np.full(count, SEVERAL))
