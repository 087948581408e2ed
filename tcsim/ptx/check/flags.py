"""What accesses that release have told those that acquire, in one cluster: their block, and the cluster where their scope goes beyond the block.

A release and an acquire synchronise if the acquire reads what the release wrote, or what atomics have made of it, and the scope of each has the thread
of the other (PTX ISA, Memory Consistency Model, Release and Acquire Patterns, Morally strong operations). What is ordered of execution alone is kept for all
flags together. What an access orders, and for whom, is said by the words of its opcode.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import cache, reduce

import numpy as np

from tcsim.model.operand import Scope
from tcsim.ptx.check.clocks import GLOBALLY, ORDERED, PROXIED, RELAXED, Clocks
from tcsim.ptx.machine.arrays import Array

Flag = tuple[int, int]
"""Four bytes: the rank of the block whose memory they are in, or -1, and their number."""
_MEMORY = [ORDERED, PROXIED, GLOBALLY]
_EVERYONE, _RELAXED = -1, slice(RELAXED[0], RELAXED[-1] + 1)


class Flags:
    """Those of the blocks of a cluster.

    >>> clocks = Clocks(2)
    >>> flags, flag = Flags(clocks, 2), [(-1, 64)]
    >>> writer, reader = np.array([0]), np.array([1])
    >>> flags.release(0, writer, "st.release.cta.global.u32", True, flag)
    >>> acquire = "ld.acquire.gpu.global.u32"
    >>> flags.acquire(1, reader, acquire, flags.told(1, acquire, flag), flag, True)
    >>> flags.release(0, writer, "st.release.cluster.global.u32", True, flag)
    >>> before = int(clocks.known[1, 0, 1])
    >>> other = int(flags.told(1, acquire, [(-1, 65)])[0, 1])
    >>> acquire = "ld.acquire.cluster.global.u32"
    >>> flags.acquire(1, reader, acquire, flags.told(1, acquire, flag), flag, True)
    >>> before, other, int(clocks.known[1, 0, 1])
    (0, 0, 2)
    """

    def __init__(self, clocks: Clocks, blocks: int) -> None:
        self.clocks, self.several = clocks, blocks > 1
        self.orders = False  # whether anything has released or fenced
        self._executed = {own: np.zeros_like(clocks.known[0]) for own in range(_EVERYONE, blocks)}
        # By the rank of a block, or for everyone: what was released there.
        self._left: dict[tuple[int, Flag], Array] = {}
        # The same by the warp that released: its later strong writes there hand that on (PTX ISA, Release and Acquire Patterns, 2).
        self._own: dict[tuple[int, Flag, int], Array] = {}
        if self.several:  # by warp, as Clocks has them for the block
            self.heard, self.fenced = np.zeros_like(clocks.known), np.zeros_like(clocks.known)

    def told(self, rank: int, opcode: str, flags: Collection[Flag]) -> Array:
        """What an access of a block can acquire."""
        return self._told((rank, _EVERYONE) if self._beyond(scope_of(opcode)) else (rank,), flags)

    def _told(self, whose: tuple[int, ...], flags: Collection[Flag]) -> Array:
        what = self._executed[whose[0]].copy()
        for own in whose[1:]:
            np.maximum(what, self._executed[own], out=what)
        for own in whose:
            for flag in flags:
                if (own, flag) in self._left:
                    np.maximum(what, self._left[own, flag], out=what)
        return what

    def acquire(self, rank: int, warps: Array, opcode: str, what: Array, flags: Collection[Flag], now: bool) -> None:
        """Read flags, which have told something; now: an acquire itself, and not for a fence to come."""
        if not now and self._beyond(scope_of(opcode)):
            self.heard[warps] = np.maximum(self.heard[warps], what)
            near = self._told((rank,), flags)
            near[_RELAXED] = what[_RELAXED]
            what = near
        self.clocks.acquire(warps, what, not now)

    def release(
        self, rank: int, warps: Array, opcode: str, now: bool, flags: Collection[Flag], adds: bool = False
    ) -> None:
        """Write flags; now: a release itself, and not by a fence before. adds: as atomics, which hand on what was released before."""
        if self._beyond(scope_of(opcode)):
            what = (self.clocks.known if now else self.fenced)[warps].max(0)
            what[_RELAXED] = self.clocks.known[warps, _RELAXED].max(0)
            self._leave(_EVERYONE, what, flags, adds, int(warps[0]), now)
        self._leave(rank, self.clocks.published(warps, not now), flags, adds, int(warps[0]), now)

    def _leave(self, whose: int, what: Array, flags: Collection[Flag], adds: bool, warp: int, now: bool) -> None:
        executed = self._executed[whose][_RELAXED]
        np.maximum(executed, what[_RELAXED], out=executed)
        for flag in flags:
            if now:
                self._own[whose, flag, warp] = what
            kept = self._own.get((whose, flag, warp)), self._left.get((whose, flag)) if adds else None
            self._left[whose, flag] = reduce(np.maximum, (own for own in kept if own is not None), what)

    def beyond(self, what: Array, warps: Array) -> Array:
        """Of what relaxed arrivals of some warps publish, what other blocks learn: a fence for their own does not count there."""
        far = what.copy() if self.several else what
        if self.several:
            far[_MEMORY] = self.fenced[warps].max(0)[_MEMORY]
        return far

    def fence(self, warps: Array, scope: str) -> None:
        """A fence, before the clocks count it."""
        self.orders = True
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
    stem, *words = opcode.removeprefix("multimem.").split(".")
    strong = stem in ("atom", "red") or not _STRONG.isdisjoint(words)
    both = "acq_rel" in words
    return strong, stem != "red", both or "acquire" in words, both or "release" in words


@cache
def orders(opcode: str) -> bool:
    """Whether an instruction makes flags of what is accessed: it releases or acquires, or is a fence that does.

    >>> [orders(own) for own in ("membar.gl", "fence.gpu", "ld.acquire.gpu.global.u32", "fence.proxy.async", "red.global.add.u32")]
    [True, True, True, False, False]
    """
    stem, *words = opcode.split(".")
    fence = stem in ("membar", "fence") and words[0] not in ("proxy", "mbarrier_init")
    return fence or any(order_of(opcode)[2:])


@cache
def scope_of(opcode: str) -> Scope:
    """The scope of a strong access, or of a membar: the whole GPU if it names none (PTX ISA, Scope, atom, membar).

    >>> scope_of("ld.acquire.cta.shared::cta.u32"), scope_of("atom.shared::cta.add.u32")
    ('cta', 'gpu')
    """
    return next((own for own in _SCOPES if own in opcode.split(".")), "gpu")
