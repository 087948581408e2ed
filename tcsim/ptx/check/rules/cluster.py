"""What blocks own and when they are there: Tensor Memory, work in flight at exit, shared memory of other blocks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tcsim.isa.clusterlaunchcontrol import encode_response
from tcsim.model.effects import Outcome, Resource
from tcsim.ptx.check.clocks import EXECUTED, KINDS
from tcsim.ptx.check.operations import READ, WRITTEN, Operation
from tcsim.ptx.check.rules.mbarriers import Work
from tcsim.ptx.check.rules.naming import CANCEL, Use
from tcsim.ptx.machine.arrays import Array, distinct
from tcsim.ptx.machine.tensor_memory import COLUMNS

if TYPE_CHECKING:
    from tcsim.ptx.check.checker import Checker
    from tcsim.ptx.machine.view import BlockView, EffectsView, ThreadsView

_LANES_OF_TMEM = 128


class Blocks:
    """The blocks of a cluster."""

    def __init__(self, checker: Checker) -> None:
        self.checker = checker
        warps = checker.clocks.warps
        self.reaches: dict[int, Array] = {}  # by rank: when each warp of another block last touched its shared memory
        self.reach_lines: dict[int, Array] = {}
        self.reaching: dict[
            int, dict[tuple[int, int], Operation]
        ] = {}  # by rank: the last operation of a warp and line
        self.gone: dict[int, Array] = {}  # by rank of a block that has ended: what its threads knew
        self.leaving = {rank: np.zeros((KINDS, warps + 2), np.int32) for rank in range(len(checker.cluster.blocks))}
        self.taken: dict[int, Array] = {}  # by rank: columns of Tensor Memory, the instruction that took each
        self.relinquished: dict[int, int] = {}  # by rank: the instruction
        self._refused: list[Operation] = []  # requests for the work of a cluster that were answered with no
        self._allocations: set[int] = set()  # instructions that take Tensor Memory
        self._paired: dict[int, tuple[int, int, int]] = {}  # by rank: warp, time and instruction of its alloc of a pair
        self._group = (0, 0)  # .cta_group of the first tcgen05 instruction, and that instruction

    def is_allocation(self, line: int) -> bool:
        """Whether an instruction is one that takes Tensor Memory."""
        return line in self._allocations

    # --- shared memory of other blocks

    def reached(self, block: ThreadsView, rank: int, warps: Array, line: int, by: Operation | None = None) -> None:
        """Warps of a block, or an operation, touch the shared memory of another one, which has to have started, and not to have ended."""
        checker, clocks = self.checker, self.checker.clocks
        some = distinct(warps)
        if rank in self.gone:
            self._early(block, rank, line)
            return
        theirs = slice(1 + rank * checker.per_block, 1 + (rank + 1) * checker.per_block)
        if not (clocks.known[some, EXECUTED, theirs] > 0).any(1).all():
            said = f"{checker.findings.opcode(line)} touches shared memory of block {rank} of the cluster, and nothing says that it has started"
            checker.findings.report("CLUSTER_LATE_START", said, line, 0, checker.index(block), None, rank=rank)
        if by is not None:
            self.reaching.setdefault(rank, {})[int(some[0]), line] = by
            return
        own = self.reaches.setdefault(rank, np.zeros(clocks.warps, np.int32))
        own[some] = clocks.now[some]
        self.reach_lines.setdefault(rank, np.zeros(clocks.warps, np.int64))[some] = line

    def _early(self, block: ThreadsView, rank: int, line: int) -> None:
        said = f"{self.checker.findings.opcode(line)} touches shared memory of block {rank} of the cluster, which may have ended"
        self.checker.findings.report("CLUSTER_EARLY_EXIT", said, line, 0, self.checker.index(block), None, rank=rank)

    def exited(self, block: BlockView, mask: Array) -> None:
        """Threads end."""
        checker = self.checker
        some = checker.some(block, np.nonzero(mask)[0])
        if not len(some):
            return
        self.leaving[block.rank] = np.maximum(self.leaving[block.rank], checker.clocks.known[some].max(0))
        for own in checker.operations.flying.get(("bulk", block.rank), []):
            if mask[own.threads].any() and (own.left[READ] & mask[own.threads]).any():
                said = f"threads end while {checker.findings.opcode(own.line)} may still read shared memory: no wait_group covers it"
                checker.findings.report("ASYNC_AT_EXIT", said, own.line, 0, checker.index(block), int(own.threads[0]))
        if not (block.alive & ~mask).any():
            self._ended(block)

    def _ended(self, block: BlockView) -> None:
        checker, rank = self.checker, block.rank
        self.gone[rank] = self.leaving[rank]
        reached = self.reaches.get(rank)
        if reached is not None:
            for warp in np.nonzero(reached > self.leaving[rank][EXECUTED, 1:-1])[0].tolist():
                self._early(block, rank, int(self.reach_lines[rank][warp]))
        knows = self.leaving[rank][EXECUTED, 1:-1]
        for (_, line), by in self.reaching.get(rank, {}).items():
            if not checker.operations.seen_by(by, knows):
                self._early(block, rank, line)
        taken = self.taken.get(rank)
        if taken is not None and taken.any():
            line = int(taken[taken != 0][0])
            said = f"{int((taken != 0).sum())} columns of Tensor Memory are not given back: no tcgen05.dealloc follows {checker.findings.opcode(line)}"
            checker.findings.report(
                "TMEM_LEAK", said, line, 0, checker.index(block), None, columns=int((taken != 0).sum())
            )

    # --- Tensor Memory

    def granted(self, block: EffectsView, resource: Resource, outcome: Outcome | None, threads: Array) -> None:
        """Columns are taken or given back, or the right to take them."""
        checker = self.checker
        line = checker.findings.number(block.here)
        if resource.kind == "registers":
            checker.together.registers(block, resource.delta, threads, line)
        if resource.kind == "launch" and outcome is not None:
            self._answered(block, outcome, threads, line)
        if resource.kind != "tmem":
            return
        ranks = [block.rank, block.rank ^ 1] if resource.pair and len(checker.cluster.blocks) > 1 else [block.rank]
        if resource.delta > 0:
            self._taken(block, resource, outcome, threads, line)
            return
        if resource.pair:
            self._peer(block, threads, line)
        first = resource.address & 0xFFFF
        for rank in ranks[:1]:
            taken = self.taken.setdefault(rank, np.zeros(COLUMNS, np.int64))
            self._cleared(block, rank, first, -resource.delta, threads, line)
            if not taken[first : first - resource.delta].all():
                said = f"{checker.findings.opcode(line)} gives columns back from {first} on that no tcgen05.alloc has taken"
                checker.findings.report(
                    "TMEM_UNALLOCATED", said, line, 0, checker.index(block), int(threads[0]), column=first
                )
            taken[first : first - resource.delta] = 0

    def _answered(self, block: EffectsView, outcome: Outcome, threads: Array, line: int) -> None:
        """clusterlaunchcontrol.try_cancel writes its answer, through the async proxy, and tells an mbarrier."""
        checker, operations = self.checker, self.checker.operations
        warps = checker.some(block, threads)[:1]
        by = operations.issue("", line, block.rank, warps, threads[:1], np.zeros(1, np.int64), "async")
        by.unit = CANCEL
        known = [own for own in self._refused if operations.is_after(own.number, warps, WRITTEN)]
        if known:
            said = f"{checker.findings.opcode(line)} asks again, and {checker.findings.opcode(known[0].line)} was told that there is nothing left"
            checker.findings.report("CLC_AFTER_NO", said, line, known[0].line, checker.index(block), int(threads[0]))
        if any(int.from_bytes(write.data.tobytes(), "little") == encode_response(None) for write in outcome.writes):
            self._refused.append(by)
        for signal in outcome.signals:
            checker.objects.told(by, checker.signals.keys(block, signal, threads, warps), checker.index(block))
        for at in (each for write in outcome.writes for each in block.copies(write.at)):
            address = block.places(at)[0]
            for rank in np.unique(address >> 24 & 0xFF).tolist():
                words = checker.words("shared", rank)
                places, _ = words.words(address[address >> 24 & 0xFF == rank] & 0xFFFFFF, at.size)
                found = words.conflicts_of(places, by, True)
                if found:
                    checker.naming.report(Use(block, words, places, by.threads, line, "write", rank, by), found)
                words.note_landing(places, by)
        checker.following_now = [Work([by], 1, checker.clocks.published(warps), frozenset(warps.tolist()))]

    def grouped(self, block: ThreadsView, group: int, thread: int) -> None:
        """An instruction with .cta_group: all of a kernel have to have the same."""
        checker = self.checker
        line = checker.findings.number(block.here)
        if not self._group[0]:
            self._group = group, line
        elif self._group[0] != group:
            said = f"{checker.findings.opcode(line)} in a kernel with {checker.findings.opcode(self._group[1])}"
            checker.findings.report("CTA_GROUP_MISMATCH", said, line, self._group[1], checker.index(block), thread)

    def _peer(self, block: EffectsView, threads: Array, line: int) -> None:
        """A pair's columns are given back: the peer's alloc has to come before."""
        checker, other = self.checker, self._paired.get(block.rank ^ 1)
        if other is None:
            return
        warp, when, theirs = other
        if (checker.clocks.known[checker.some(block, threads), EXECUTED, 1 + warp] < when).any():
            said = f"nothing orders {checker.findings.opcode(theirs)} of block {block.rank ^ 1} of the cluster before {checker.findings.opcode(line)}"
            checker.findings.report("TMEM_PEER_ORDER", said, line, theirs, checker.index(block), int(threads[0]))

    def _taken(
        self, block: EffectsView, resource: Resource, outcome: Outcome | None, threads: Array, line: int
    ) -> None:
        checker, rank = self.checker, block.rank
        self._allocations.add(line)
        if resource.pair:
            warp = int(checker.some(block, threads)[0])
            self._paired[rank] = warp, int(checker.clocks.now[warp]), line
        if rank in self.relinquished:
            said = f"{checker.findings.opcode(line)} comes after {checker.findings.opcode(self.relinquished[rank])}"
            checker.findings.report(
                "TMEM_AFTER_RELINQUISH", said, line, self.relinquished[rank], checker.index(block), int(threads[0])
            )
        for write in outcome.writes if outcome is not None else ():
            first = int(np.ascontiguousarray(write.data).view("<u4").flat[0]) & 0xFFFF
            self.taken.setdefault(rank, np.zeros(COLUMNS, np.int64))[first : first + resource.delta] = line
            checker.forget(rank, first, resource.delta)
            checker.told_address(block, write.at, threads, line)

    def _cleared(self, block: EffectsView, rank: int, first: int, count: int, threads: Array, line: int) -> None:
        """Giving columns back is like writing them: nothing may be in flight there."""
        checker = self.checker
        words = checker.words("tmem", rank)
        at = (np.arange(_LANES_OF_TMEM)[:, None] * COLUMNS + first + np.arange(count)).reshape(-1)
        warps = np.full(len(at), checker.some(block, threads)[0])
        found = [own for own in words.conflicts(at, warps, True) if own.kind in ("landed", "fetched")]
        if found:
            checker.naming.report(Use(block, words, at, np.full(len(at), threads[0]), line, "write", rank), found)

    def used(self, block: EffectsView, rank: int, offsets: Array, size: int, line: int) -> None:
        """Work touches Tensor Memory, which has to be taken."""
        taken = self.taken.get(rank)
        first = offsets // 4 % COLUMNS
        inside = np.zeros(COLUMNS + 1, np.int64)
        if taken is not None:
            np.cumsum(taken != 0, out=inside[1:])
        count = -(-size // 4)
        missing = inside[np.minimum(first + count, COLUMNS)] - inside[first] < count
        if missing.any():
            column = int(first[int(np.argmax(missing))])
            said = f"{self.checker.findings.opcode(line)} uses columns of Tensor Memory from {column} on that no tcgen05.alloc has taken"
            self.checker.findings.report(
                "TMEM_UNALLOCATED", said, line, 0, self.checker.index(block), None, column=column
            )
