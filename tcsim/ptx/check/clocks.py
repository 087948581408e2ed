"""Which events come before which: vector clocks of the warps of a cluster.

A warp's own clock counts what it publishes. `known[warp, kind, 1 + other]` is the latest event of another warp that comes before what
the warp does now. Lanes of one warp count as one: what a lane learns or publishes, all do. What only some of them know is told apart by
`tcsim.ptx.check.lanes`.
"""

from __future__ import annotations

import numpy as np

from tcsim.ptx.machine.arrays import Array

KINDS = 6
ORDERED, PROXIED, INITIALISED, EXECUTED, HANDED, GLOBALLY = range(KINDS)
"""Kinds of order: of memory, by causality; also through a fence between the generic and the async proxy, for shared memory; of the
initialisation of mbarriers; of execution alone, which a relaxed arrival gives too; of that, behind a tcgen05.fence::before_thread_sync; through a
fence between proxies for global memory."""
RELAXED = [EXECUTED, HANDED]
"""Those that relaxed accesses, arrivals and waits give too."""
_OWN = (ORDERED, INITIALISED, EXECUTED)
NEVER = int(np.iinfo(np.int32).max)


class Clocks:
    """The clocks of some warps, by number in the cluster.

    Column 0 is for words that nobody wrote: known from the beginning. The last column is for operations, which no clock knows.

    >>> clocks = Clocks(2)
    >>> clocks.acquire(np.array([1]), clocks.published(np.array([0])))
    >>> clocks.known[1, ORDERED, 1:3].tolist(), clocks.now.tolist()
    ([1, 1], [2, 1])
    """

    def __init__(self, warps: int) -> None:
        every = np.arange(warps)
        self.warps = warps
        self.now = np.ones(warps, np.int32)
        self.known = np.zeros((warps, KINDS, warps + 2), np.int32)
        self.known[..., 0], self.known[..., -1] = NEVER, -1
        places = np.arange(self.known.size).reshape(self.known.shape)
        self._own = np.stack([places[every, kind, 1 + every] for kind in _OWN], axis=1)
        """Of each warp the places in `known`, flat, of what it knows of itself."""
        self._flat = self.known.reshape(-1)
        self._flat[self._own] = 1
        self.fenced = np.zeros_like(self.known)  # what a relaxed arrival publishes: what was known at the last fence
        self.heard = np.zeros_like(self.known)  # what relaxed waits have heard, for the next fence to acquire
        self.tensor = np.zeros_like(self.known)  # what was known at the last tcgen05.fence::after_thread_sync

    def tick(self, warps: Array) -> None:
        """What comes next is not part of what was published."""
        if len(warps) == 1:  # most often, and in a quarter of the time
            warp = int(warps[0])
            self.now[warp] += 1
            self._flat[self._own[warp]] = self.now[warp]
            return
        now = self.now[warps] + 1
        self.now[warps] = now
        self._flat[self._own[warps]] = now[:, None]

    def ordered(self, warps: Array, columns: Array) -> Array:
        """Up to when warps know memory to be ordered of others, by their columns: elementwise."""
        found: Array = self._flat.take((warps * KINDS + ORDERED) * (self.warps + 2) + columns)
        return found

    def published(self, warps: Array, relaxed: bool = False) -> Array:
        """What somebody who acquires from these warps learns."""
        what = self.fenced if relaxed else self.known
        found: Array = what[warps].max(0) if len(warps) > 1 else what[warps[0]].copy()
        if relaxed:
            found[RELAXED] = self.known[warps].max(0)[RELAXED]
        self.tick(warps)
        return found

    def acquire(self, warps: Array, what: Array, relaxed: bool = False) -> None:
        """Learn what was published; of a relaxed wait at the next fence."""
        to = self.heard if relaxed else self.known
        to[warps] = np.maximum(to[warps], what)
        if relaxed:
            at = warps[:, None], RELAXED
            self.known[at] = np.maximum(self.known[at], what[RELAXED])

    def fence(self, warps: Array) -> None:
        """A fence of memory: later relaxed arrivals publish what is known here, earlier relaxed waits are acquired."""
        self.known[warps] = np.maximum(self.known[warps], self.heard[warps])
        self.fenced[warps] = self.known[warps]
        self.tick(warps)

    def fence_proxies(self, warps: Array, kind: int = PROXIED) -> None:
        """A fence between the generic and the async proxy."""
        self.known[warps, kind] = np.maximum(self.known[warps, kind], self.known[warps, ORDERED])
        self.known[warps, kind, -1] = -1
        self.tick(warps)

    def fence_tensor(self, warps: Array, before: bool) -> None:
        """tcgen05.fence: what is known before it is handed on by what orders threads afterwards, or taken from what did."""
        if before:
            self.known[warps, HANDED] = np.maximum(self.known[warps, HANDED], self.known[warps, EXECUTED])
            self.tick(warps)
        else:
            self.tensor[warps] = self.known[warps]

    def fence_initialisation(self, warps: Array) -> None:
        """fence.mbarrier_init: later relaxed arrivals publish which mbarriers are known to be initialised."""
        self.fenced[warps, INITIALISED] = self.known[warps, INITIALISED]
        self.tick(warps)
