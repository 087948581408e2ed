"""What accesses that release have told those that acquire, in one cluster: their block, and the cluster where their scope goes beyond the block.

A release and an acquire synchronise if the scope of each has the thread of the other (PTX ISA, Memory Consistency Model, Morally strong operations).
Which flag was written and read does not matter: whoever acquires knows all releases so far. What an access orders, and for whom, is said by the words of its
opcode.
"""

from __future__ import annotations

from functools import cache

import numpy as np

from tcsim.model.operand import Scope
from tcsim.ptx.check.clocks import RELAXED, Clocks
from tcsim.ptx.machine.arrays import Array


class Flags:
    """Those of the blocks of a cluster.

    >>> clocks = Clocks(2)
    >>> flags = Flags(clocks, 2)
    >>> writer, reader = np.array([0]), np.array([1])
    >>> flags.release(0, writer, "st.release.cta.global.u32", True)
    >>> flags.acquire(1, reader, "ld.acquire.gpu.global.u32", True)
    >>> flags.release(0, writer, "st.release.cluster.global.u32", True)
    >>> before = int(clocks.known[1, 0, 1])
    >>> flags.acquire(1, reader, "ld.acquire.cluster.global.u32", True)
    >>> before, int(clocks.known[1, 0, 1])
    (0, 2)
    """

    def __init__(self, clocks: Clocks, blocks: int) -> None:
        self.clocks, self.several = clocks, blocks > 1
        self.block = [np.zeros_like(clocks.known[0]) for _ in range(blocks)]
        self.cluster = np.zeros_like(clocks.known[0])
        if self.several:  # by warp, as Clocks has them for the block
            self.heard, self.fenced = np.zeros_like(clocks.known), np.zeros_like(clocks.known)

    def told(self, rank: int, opcode: str) -> Array:
        """What an access of a block can acquire."""
        near = self.block[rank]
        return np.maximum(near, self.cluster) if self._beyond(scope_of(opcode)) else near

    def acquire(self, rank: int, warps: Array, opcode: str, now: bool) -> None:
        """Read flags; now: an acquire itself, and not for a fence to come."""
        what = self.told(rank, opcode)
        if not now and self._beyond(scope_of(opcode)):
            self.heard[warps] = np.maximum(self.heard[warps], what)
            near = self.block[rank].copy()
            near[RELAXED] = what[RELAXED]
            what = near
        self.clocks.acquire(warps, what, not now)

    def release(self, rank: int, warps: Array, opcode: str, now: bool) -> None:
        """Write flags; now: a release itself, and not by a fence before."""
        if self._beyond(scope_of(opcode)):
            what = (self.clocks.known if now else self.fenced)[warps].max(0)
            what[RELAXED] = self.clocks.known[warps].max(0)[RELAXED]
            self.cluster = np.maximum(self.cluster, what)
        self.block[rank] = np.maximum(self.block[rank], self.clocks.published(warps, not now))

    def fence(self, warps: Array, scope: str) -> None:
        """A fence, before the clocks count it."""
        if self._beyond(scope):
            self.clocks.heard[warps] = np.maximum(self.clocks.heard[warps], self.heard[warps])
            self.fenced[warps] = np.maximum(self.clocks.known[warps], self.clocks.heard[warps])

    def _beyond(self, scope: str) -> bool:
        return self.several and scope != "cta"


_STRONG = frozenset(("volatile", "relaxed", "acquire", "release", "acq_rel", "mmio"))
_SCOPES: tuple[Scope, ...] = "cta", "cluster", "gpu", "sys"


@cache
def order_of(opcode: str) -> tuple[bool, bool, bool, bool]:
    """Of an ordinary access: whether it is not weak, whether it can be part of an acquire, whether it acquires itself, and whether it releases.

    A reduction gives no value, so that nothing is acquired with it (PTX ISA, Memory Consistency Model, special cases).
    """
    stem, *words = opcode.split(".")
    strong = stem in ("atom", "red") or not _STRONG.isdisjoint(words)
    both = "acq_rel" in words
    return strong, stem != "red", both or "acquire" in words, both or "release" in words


@cache
def scope_of(opcode: str) -> Scope:
    """The scope of a strong access, or of a membar: the whole GPU if it names none (PTX ISA, Scope, atom, membar).

    >>> scope_of("ld.acquire.cta.shared::cta.u32"), scope_of("atom.shared::cta.add.u32")
    ('cta', 'gpu')
    """
    return next((own for own in _SCOPES if own in opcode.split(".")), "gpu")
