"""Shared memory of other blocks of the cluster, and work in flight when threads end: whether they are there."""

from __future__ import annotations

from functools import cache

import numpy as np

from tcsim.isa.ordinary.table import space_in
from tcsim.ptx.check.clocks import EXECUTED, KINDS
from tcsim.ptx.check.operations import READ, Operation
from tcsim.ptx.check.state import State, Touch
from tcsim.ptx.machine.arrays import Array, distinct
from tcsim.ptx.machine.block import Block


@cache
def is_near(opcode: str) -> bool:
    """Whether an instruction is for shared memory of its own block: .shared alone is .shared::cta (PTX ISA, Shared State Space).

    >>> [is_near(own) for own in ("ld.shared.u32", "ld.shared::cluster.u32", "ld.u32")]
    [True, False, False]
    """
    return space_in(opcode) in ("shared", "shared::cta")


class Reaches:
    """Who touches the shared memory of which block, by its rank."""

    def __init__(self, state: State) -> None:
        self.state = state
        warps, count = state.clocks.warps, len(state.blocks)
        self._last = np.zeros((count, warps), np.int32)  # when each warp of another block last touched it
        self._lines = np.zeros((count, warps), np.int64)
        self._work: dict[tuple[int, int, int], Operation] = {}  # by rank, warp and instruction: its last operation
        # By rank: the block's copies into or from its own memory whose end an mbarrier reports.
        self._copies: dict[int, list[tuple[int, Operation]]] = {}
        self._gone: set[int] = set()  # blocks that have ended
        self._leaving = np.zeros((count, KINDS, warps + 2), np.int32)  # what its threads knew that have ended

    def accessed(self, touch: Touch) -> None:
        """Loads, stores and atomics."""
        if touch.rank not in (-1, touch.block.rank):
            self.reached(touch.block, touch.rank, touch.warps, touch.line)

    def misses(self, block: Block, rank: int, line: int, thread: int) -> None:
        """An instruction for shared memory of its own block touches that of another one."""
        said = f"{self.state.opcode(line)} accesses shared memory of block {rank} of the cluster: valid is .shared::cluster"
        self.state.report("SMEM_REMOTE_FORM", block, said, line, 0, thread, rank=rank)

    def reached(self, block: Block, rank: int, warps: Array, line: int, by: Operation | None = None) -> None:
        """Warps of a block, or an operation, touch the shared memory of another one, which has to have started, and not to have ended."""
        state, clocks = self.state, self.state.clocks
        some = distinct(warps)
        if rank in self._gone:
            self._early(block, rank, line)
            return
        theirs = slice(1 + rank * state.per_block, 1 + (rank + 1) * state.per_block)
        if not (clocks.known[some, EXECUTED, theirs] > 0).any(1).all():
            said = f"{state.opcode(line)} touches shared memory of block {rank} of the cluster, and nothing says that it has started"
            state.report("CLUSTER_LATE_START", block, said, line, rank=rank)
        if by is not None:
            self._work[rank, int(some[0]), line] = by
            return
        self._last[rank, some], self._lines[rank, some] = clocks.now[some], line

    def copies(self, rank: int, part: int, by: Operation) -> None:
        """A copy of a block reads or writes the block's own memory."""
        if not by.kind:
            self._copies.setdefault(rank, []).append((part, by))

    def _early(self, block: Block, rank: int, line: int) -> None:
        said = f"{self.state.opcode(line)} touches shared memory of block {rank} of the cluster, which may have ended"
        self.state.report("CLUSTER_EARLY_EXIT", block, said, line, rank=rank)

    def exited(self, block: Block, mask: Array) -> None:
        """Threads end."""
        state, rank = self.state, block.rank
        some = state.some(block, np.nonzero(mask)[0])
        if not len(some):
            return
        self._leaving[rank] = np.maximum(self._leaving[rank], state.clocks.known[some].max(0))
        for own in state.operations.flying.get(("bulk", rank), []):
            if (own.left[READ] & mask[own.threads]).any():
                reads = f"{state.opcode(own.line)} may still read shared memory"
                said = f"threads end while {reads}: no wait_group covers it"
                state.report("ASYNC_AT_EXIT", block, said, own.line, 0, int(own.threads[0]))
        if (block.threads.alive & ~mask).any():
            return
        self._gone.add(rank)
        knows = self._leaving[rank, EXECUTED, 1:-1]
        for warp in np.nonzero(self._last[rank] > knows)[0].tolist():
            self._early(block, rank, int(self._lines[rank, warp]))
        for part, by in self._copies.pop(rank, ()):
            if not state.operations.seen_by(by, knows, part):
                does = "read" if part == READ else "write"
                said = f"the block ends while {state.opcode(by.line)} may still {does} its shared memory: its mbarrier was not waited for"
                state.report("ASYNC_AT_EXIT", block, said, by.line, 0, int(by.threads[0]))
        for (reached, _, line), by in self._work.items():
            if reached == rank and not state.operations.seen_by(by, knows):
                self._early(block, rank, line)
