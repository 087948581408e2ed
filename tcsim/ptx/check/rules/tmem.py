"""Tensor Memory: columns are taken before they are used, given back by whom they belong to, and none is left taken."""

from __future__ import annotations

import numpy as np

from tcsim.model.effects import Access, Effects, Outcome, Resource
from tcsim.ptx.check.clocks import EXECUTED
from tcsim.ptx.check.lanes import EACH
from tcsim.ptx.check.rules.conflicts import Conflicts, Use
from tcsim.ptx.check.state import State
from tcsim.ptx.check.words import Lack, Prior
from tcsim.ptx.compile.families import Bound
from tcsim.ptx.machine.arrays import Array
from tcsim.ptx.machine.block import Block
from tcsim.ptx.machine.tensor_memory import COLUMNS

_LANES = 128
_IN_FLIGHT = ((Prior.LANDED, Lack.ORDER), (Prior.FETCHED, Lack.ORDER))
"""What may not be pending where columns are given back."""


class TensorMemory:
    """The Tensor Memory of the blocks of a cluster."""

    def __init__(self, state: State, conflicts: Conflicts) -> None:
        self.state, self.conflicts = state, conflicts
        self._relinquished: dict[int, int] = {}  # by rank: the instruction
        self._paired: dict[int, tuple[int, int, int]] = {}  # by rank: warp, time and instruction of its alloc of a pair
        self._group = (0, 0)  # .cta_group of the first tcgen05 instruction, and that instruction

    def performing(self, block: Block, bound: Bound, effects: Effects, threads: Array, mask: Array) -> None:
        """An instruction with .cta_group: all of a kernel have to have the same. The right to take columns is given up."""
        state, group = self.state, getattr(bound.model.row, "cta_group", None)
        permit = any(resource.kind == "tmem.permit" for resource in effects.resources)
        if not group and not permit:
            return
        line = state.number(block.here)
        if group and not self._group[0]:
            self._group = group, line
        elif group and self._group[0] != group:
            said = f"{state.opcode(line)} in a kernel with {state.opcode(self._group[1])}"
            state.report("CTA_GROUP_MISMATCH", block, said, line, self._group[1], int(threads[0]))
        if permit:
            self._relinquished[block.rank] = line

    def granted(self, block: Block, resource: Resource, outcome: Outcome | None, threads: Array) -> None:
        """Columns are taken or given back."""
        if resource.kind == "tmem" and resource.delta > 0:
            self._taken(block, resource, outcome, threads, self.state.number(block.here))
        elif resource.kind == "tmem":
            self._given_back(block, resource, threads, self.state.number(block.here))

    def _taken(self, block: Block, resource: Resource, outcome: Outcome | None, threads: Array, line: int) -> None:
        state, rank, warp = self.state, block.rank, int(self.state.some(block, threads)[0])
        state.allocations.add(line)
        if resource.pair:
            self._paired[rank] = warp, int(state.clocks.now[warp]), line
        if rank in self._relinquished:
            before = self._relinquished[rank]
            said = f"{state.opcode(line)} comes after {state.opcode(before)}"
            state.report("TMEM_AFTER_RELINQUISH", block, said, line, before, int(threads[0]))
        for write in outcome.writes if outcome is not None else ():
            first = int(np.ascontiguousarray(write.data).view("<u4").flat[0]) & 0xFFFF
            self._columns(rank)[first : first + resource.delta] = line
            if ("tmem", rank) in state.memories:  # nobody has touched them
                state.words("tmem", rank).forget(_words(first, resource.delta))
            self._told(block, write.at, warp, int(threads[0]), line)

    def _columns(self, rank: int) -> Array:
        return self.state.columns.setdefault(rank, np.zeros(COLUMNS, np.int64))

    def _told(self, block: Block, at: Access, warp: int, thread: int, line: int) -> None:
        """tcgen05.alloc writes where its columns are."""
        words = self.state.words("shared", block.rank)
        places, _ = words.words(block.octets.places(at)[0] & 0xFFFFFF, at.size)
        self.conflicts.touch(Use.of_one(block, words, places, warp, thread, line, block.rank, EACH))

    def _given_back(self, block: Block, resource: Resource, threads: Array, line: int) -> None:
        state, rank, thread = self.state, block.rank, int(threads[0])
        if resource.pair:
            self._peer(block, threads, line)
        first, count, taken = resource.address & 0xFFFF, -resource.delta, self._columns(rank)
        self._cleared(block, first, count, threads, line)
        if not taken[first : first + count].all():
            said = f"{state.opcode(line)} gives columns back from {first} on that no tcgen05.alloc has taken"
            state.report("TMEM_UNALLOCATED", block, said, line, 0, thread, column=first)
        taken[first : first + count] = 0

    def _peer(self, block: Block, threads: Array, line: int) -> None:
        """A pair's columns are given back: the peer's alloc has to come before."""
        state, peer = self.state, block.rank ^ 1
        if peer not in self._paired:
            return
        warp, when, theirs = self._paired[peer]
        if (state.clocks.known[state.some(block, threads), EXECUTED, 1 + warp] < when).any():
            said = f"nothing orders {state.opcode(theirs)} of block {peer} of the cluster before {state.opcode(line)}"
            state.report("TMEM_PEER_ORDER", block, said, line, theirs, int(threads[0]))

    def _cleared(self, block: Block, first: int, count: int, threads: Array, line: int) -> None:
        """Giving columns back is like writing them: nothing may be in flight there."""
        words, warp = self.state.words("tmem", block.rank), self.state.some(block, threads)[0]
        use = Use.of_one(block, words, _words(first, count), warp, int(threads[0]), line, block.rank)
        self.conflicts.judge(use, _IN_FLIGHT)

    def used(self, block: Block, rank: int, offsets: Array, size: int, line: int) -> None:
        """Work touches columns, which have to be taken."""
        taken, first = self.state.columns.get(rank), offsets // 4 % COLUMNS
        inside = np.zeros(COLUMNS + 1, np.int64)
        if taken is not None:
            np.cumsum(taken != 0, out=inside[1:])
        count = -(-size // 4)
        missing = inside[np.minimum(first + count, COLUMNS)] - inside[first] < count
        if missing.any():
            column = int(first[int(np.argmax(missing))])
            said = f"{self.state.opcode(line)} uses columns of Tensor Memory from {column} on that no tcgen05.alloc has taken"
            self.state.report("TMEM_UNALLOCATED", block, said, line, column=column)

    def exited(self, block: Block, mask: Array) -> None:
        """A block has ended: what it took is given back."""
        taken = self.state.columns.get(block.rank)
        if taken is None or not taken.any() or not mask.any() or (block.threads.alive & ~mask).any():
            return
        line, count = int(taken[taken != 0][0]), int((taken != 0).sum())
        missing = f"no tcgen05.dealloc follows {self.state.opcode(line)}"
        said = f"{count} columns of Tensor Memory are not given back: {missing}"
        self.state.report("TMEM_LEAK", block, said, line, columns=count)


def _words(first: int, count: int) -> Array:
    """The words of some columns."""
    found: Array = (np.arange(_LANES)[:, None] * COLUMNS + first + np.arange(count)).reshape(-1)
    return found
