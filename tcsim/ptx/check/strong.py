"""Accesses to the words of one memory that are not weak: of every warp its last write there, and what it has seen of those of others."""

from __future__ import annotations

import numpy as np

from tcsim.ptx.check.clocks import NEVER, Clocks
from tcsim.ptx.machine.arrays import Array


class Strong:
    """Those of one memory. They do not race with each other, and each may race with a weak access that comes later.

    What comes after a read that is not weak comes after the writes that it has seen, through atomics too (PTX ISA, Observation Order, Causality Order).
    """

    def __init__(self, clocks: Clocks, count: int) -> None:
        self.clocks, self.count = clocks, count
        self.writes: set[int] = set()  # instructions
        self._accesses = 0
        self._written = np.zeros(count, bool)

    def have(self, at: Array) -> bool:
        """Whether any of some words was ever written so."""
        return bool(self.writes) and bool(self._written[at].any())

    def note(self, at: Array, warps: Array, line: int, kind: str, sees: bool) -> None:
        """Warps access words, elementwise; sees: something depends on the value that was there."""
        if not self.writes:
            if kind == "read":
                return
            # By warp: when, the instruction and its number among all accesses; when it saw what was there, and the number of the last such write.
            self.wrote, self.seen = (np.zeros((own, self.clocks.warps, self.count), np.int32) for own in (3, 2))
        number = self._accesses + 1 + np.arange(len(at), dtype=np.int32)
        self._accesses += len(at)
        if sees:
            new = (self.wrote[2][:, at].max(0) > self.seen[1, warps, at]) | (kind != "read")
            self.seen[:, warps[new], at[new]] = self.clocks.now[warps[new]], number[new]
        if kind == "read":
            return
        self.writes.add(line)
        self._written[at] = True
        if kind == "write":  # nobody sees any more what it replaces
            before = self.wrote[2][:, at]
            self.wrote[2][:, at] = np.where(before > self.seen[1][:, at].max(0), NEVER, before)
        self.wrote[:, warps, at] = self.clocks.now[warps], np.full(len(at), line), number

    def before(self, at: Array, known: Array, sees: bool) -> tuple[Array, Array, Array]:
        """Writes that nothing orders before weak accesses: places in their list, instructions and warps.

        known: up to when each access knows the other warps; sees: what it knows to have been seen is in order.
        """
        when, what, number = self.wrote[:, :, at]
        late = when > known.T
        if sees and np.count_nonzero(late):
            last, seen = self.seen[:, :, at]
            late &= number > np.where(last <= known.T, seen, 0).max(0)
        places, who = np.nonzero(late.T)
        return places, what[who, places], who
