"""What orders memory: fences, accesses that release and acquire, waits for groups, and lanes that meet. Nothing is judged here."""

from __future__ import annotations

from collections.abc import Collection, Iterator

import numpy as np

from tcsim.model.effects import Effects, GroupOp, Order
from tcsim.ptx.check.clocks import GLOBALLY, ORDERED
from tcsim.ptx.check.flags import Flag, order_of, scope_of
from tcsim.ptx.check.state import State, Touch
from tcsim.ptx.compile.families import Bound
from tcsim.ptx.machine.arrays import LANES, Array
from tcsim.ptx.machine.block import Block

FENCES = ("fence", "fence.sc")
_WORD = 4
TENSOR_FENCES = ("tcgen05.fence::before_thread_sync", "tcgen05.fence::after_thread_sync")


class Ordering:
    """What a cluster executes that orders memory."""

    def __init__(self, state: State) -> None:
        self.state = state

    # --- ordinary accesses

    def accessing(self, touch: Touch) -> None:
        """An access that is not weak acquires before it."""
        state, block = self.state, touch.block
        state.activity[block.rank] += 1
        strong, reads, acquires, _ = order_of(touch.opcode)
        if not strong:
            return
        state.strong[touch.line] = scope_of(touch.opcode) != "cta"
        if touch.kind == "write":
            return
        for threads, some, flags in self._by_flags(touch):
            told = state.flags.told(block.rank, touch.opcode, flags)
            if reads:
                if acquires:
                    state.lanes.learning(*state.lanes_of(block, threads), told)
                state.flags.acquire(block.rank, some, touch.opcode, told, flags, acquires)
            else:
                state.reduced[some] = np.maximum(state.reduced[some], told[ORDERED])

    def releasing(self, touch: Touch) -> None:
        """And releases behind it."""
        strong, _, _, releases = order_of(touch.opcode)
        if strong and touch.kind != "read":
            if releases:
                self.state.lanes.publishing(*self.state.lanes_of(touch.block, touch.threads))
                self.state.flags.orders = True
            for _, some, flags in self._by_flags(touch):
                self.state.flags.release(touch.block.rank, some, touch.opcode, releases, flags, touch.kind == "atomic")

    def _by_flags(self, touch: Touch) -> Iterator[tuple[Array, Array, Collection[Flag]]]:
        """The threads of an access by warps, each with its flags; together while no flag orders anything."""
        if not self.state.flags.orders:
            yield touch.threads, touch.some, ()
            return
        first, warps = touch.offsets.astype(np.int64) // _WORD, touch.warps
        for warp in touch.some:
            own = warps == warp
            words = np.unique(first[own]).tolist()
            flags = [(touch.rank, word + more) for word in words for more in range(max(1, touch.size // _WORD))]
            yield touch.threads[own], np.array([warp]), flags

    # --- instructions of the catalog

    def performing(self, block: Block, bound: Bound, effects: Effects, threads: Array, mask: Array) -> None:
        """Lanes execute an instruction together."""
        state = self.state
        state.activity[block.rank] += 1
        if bound.lanes >= LANES and state.lanes.is_apart():
            state.lanes.join(*state.bits(block, mask))

    def ordered(self, block: Block, order: Order, threads: Array) -> None:
        """Fences."""
        state, some = self.state, self.state.some(block, threads)
        state.activity[block.rank] += 1
        if order.kind == "fence.proxy" and "async" in order.proxies:
            if not order.spaces or "shared" in order.spaces:
                self._initialised(some)
                state.clocks.fence_proxies(some)
            if not order.spaces or "global" in order.spaces:
                state.clocks.fence_proxies(some, GLOBALLY)
        elif order.kind in TENSOR_FENCES:
            state.clocks.fence_tensor(some, order.kind == TENSOR_FENCES[0])
        elif order.kind == "fence.mbarrier_init":
            self._initialised(some)
            state.clocks.fence_initialisation(some)
        elif order.kind in FENCES:
            warps, now, alive = state.lanes_of(block, threads)
            state.flags.fence(warps, order.scope)
            state.lanes.learning(warps, now, alive, state.clocks.heard[warps].max(0))
            state.clocks.fence(warps)

    def _initialised(self, warps: Array) -> None:
        """Warps fence the mbarriers that they have made."""
        some = warps.tolist()
        for own in self.state.mbarriers.values():
            own.fenced |= own.warp in some

    # --- lanes, groups

    def exchanged(self, block: Block, mask: Array) -> None:
        """Lanes wait for each other, and no memory is ordered."""
        self.state.lanes.join(*self.state.bits(block, mask))

    def met(self, block: Block, mask: Array, members: Array) -> None:
        """bar.warp.sync orders what its lanes did."""
        state = self.state
        state.activity[block.rank] += 1
        for each in np.unique(members[mask]).tolist():
            warps, now, alive = state.bits(block, mask & (members == each))
            state.lanes.together(warps, now & np.uint32(each), alive)

    def grouped(self, block: Block, group: GroupOp, threads: Array) -> None:
        """Waits for groups: those who wait know that their work is done."""
        if group.op != "wait":
            return
        state, counts = self.state, block.performer.committed(group.kind)
        pending = None if group.kind in ("tcgen05.ld", "tcgen05.st") else group.pending
        some = state.some(block, threads)
        state.operations.waited(group.kind, block.rank, some, threads, counts, pending, group.reads_only)

    def needed(self, block: Block, numbers: frozenset[int], mask: Array) -> None:
        """A register that tcgen05.ld writes is read: the load is over for that thread."""
        self.state.operations.needed("tcgen05.ld", block.rank, numbers, mask)
