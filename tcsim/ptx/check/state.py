"""What is known of a cluster while it runs. No rule is here: `tcsim.ptx.check.rules` judges by it.

| what | by what | who changes it |
| --- | --- | --- |
| `clocks` | warp, kind of order | whatever orders: `order`, `rules.barriers`, `rules.signals` |
| `lanes` | warp, lane | the same, and every access |
| `flags` | block | accesses that release or acquire (`order`) |
| `operations` | number | who issues work, and who waits for it |
| `histories` | kind and warp | `rules.signals`: work that a signal can follow |
| `following` | - | `rules.signals`: the work whose signals are given now |
| `memories` | space and rank: words | every access, by `rules.conflicts` and `rules.shared` |
| `mbarriers` | shared address, with the rank above | `rules.mbarriers` |
| `strong` | instruction: whether for more than its block | `order` |
| `reduced` | warp: what its reductions would have told it | `order` |
| `relaxed` | warp: the rule of its last relaxed arrival or wait | `rules.barriers`, `rules.signals` |
| `released` | warp: what those knew whose end let it go on | `rules.barriers` |
| `columns` | rank: of each column of Tensor Memory the instruction that took it | `rules.tmem` |
| `allocations` | instructions that take columns | `rules.tmem` |
| `activity` | rank: accesses, waits and fences so far | `order` |
| `findings` | name and pair of lines | every rule |
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from tcsim.model.statement import Instruction
from tcsim.ptx.check.clocks import ORDERED, Clocks
from tcsim.ptx.check.findings import Findings, Key
from tcsim.ptx.check.flags import Flags
from tcsim.ptx.check.lanes import Lanes, lanes_in, shares_in, warps_in
from tcsim.ptx.check.objects import Object, Work
from tcsim.ptx.check.operations import Operation, Operations
from tcsim.ptx.check.words import Words
from tcsim.ptx.machine.arrays import LANES, Array
from tcsim.ptx.machine.block import Block
from tcsim.ptx.machine.cluster import Cluster
from tcsim.ptx.machine.flights import Flight


class State:
    """One cluster."""

    def __init__(self, cluster: Cluster, outside: bool = False) -> None:
        """outside: whether what other clusters release is counted too, as by one warp more."""
        blocks = cluster.blocks
        self.cluster, self.blocks, self.per_block = cluster, blocks, blocks[0].threads.warps
        self.memory, self.unit = blocks[0].spaces.memory, blocks[0].program.narrowest
        self.ranks = {id(block.spaces.shared): rank for rank, block in enumerate(blocks)}
        self.clocks = Clocks(self.per_block * len(blocks) + outside)
        self.lanes = Lanes(self.clocks)
        self.flags = Flags(self.clocks, len(blocks))
        self.operations = Operations(self.clocks, self.lanes)
        self.histories: dict[tuple[str, int], list[Operation]] = {}
        self.following: list[Work] | None = None
        self.memories: dict[tuple[str, int], Words] = {}
        self.mbarriers: dict[int, Object] = {}
        self.strong: dict[int, bool] = {}
        self.reduced = np.zeros_like(self.clocks.known[:, ORDERED])
        self.relaxed: dict[int, str] = {}
        self.released = np.zeros_like(self.clocks.known[:, ORDERED])
        self.columns: dict[int, Array] = {}
        self.allocations: set[int] = set()
        self.activity = [0] * len(blocks)
        self.findings = Findings()
        self.number, self.opcode = self.findings.number, self.findings.opcode

    # --- who

    def warps(self, block: Block, threads: Array) -> Array:
        """The warps of threads, in the cluster, one for each thread."""
        found: Array = threads // LANES + block.rank * self.per_block
        return found

    def some(self, block: Block, threads: Array) -> Array:
        """The warps of threads, each once."""
        return warps_in(threads.tobytes(), threads.dtype.str, block.rank * self.per_block)

    def bits(self, block: Block, mask: Array) -> tuple[Array, Array, Array]:
        """Of threads the warps, and of each the lanes and those that have not ended, as bits."""
        alive = self.blocks[block.rank].threads.alive
        return lanes_in(mask.tobytes(), alive.tobytes(), block.rank * self.per_block)

    def lanes_of(self, block: Block, threads: Array) -> tuple[Array, Array, Array]:
        """As `bits`."""
        mask = np.zeros(block.threads.count, bool)
        mask[threads] = True
        return self.bits(block, mask)

    # --- what

    def words(self, space: str, rank: int) -> Words:
        """The shadow of a memory."""
        found = self.memories.get((space, rank))
        if found is None:
            block = self.blocks[rank]
            size, unit = (block.spaces.columns.bytes, 4) if space == "tmem" else (block.threads.shared_bytes, self.unit)
            found = self.memories[space, rank] = Words(size, unit, self.clocks, self.operations, space)
        return found

    def issue(self, flight: Flight, line: int, together: int) -> dict[int, Operation]:
        """The operations that work in flight is, by the first warp of each: one for so many warps as execute it together."""
        block, bound, pending = flight.block, flight.bound, flight.pending
        threads, made = flight.threads, dict[int, Operation]()
        proxy = "async" if any(own.proxy == "async" for own in (*pending.reads, *pending.writes)) else "generic"
        base = block.rank * self.per_block
        for first, warps, begin, end in shares_in(threads.tobytes(), threads.dtype.str, base, together):
            own = made[first] = self.operations.issue(
                flight.kind, line, block.rank, warps, threads[begin:end], flight.groups[begin:end], proxy
            )
            own.registers, own.sources = bound.written, bound.held
            own.unit, own.each = bound.model.row.family, bound.lanes == 1
        return made

    def committed(self, operation: Operation) -> bool:
        """Whether an operation is in a group that was committed."""
        counts = self.blocks[operation.rank].performer.groups.get(operation.kind)
        return counts is not None and bool((counts[operation.threads] > operation.groups).all())

    def ended_before(self, operation: Operation, part: int, warps: Array) -> bool:
        """Whether warps go on behind an operation only because others have ended that knew of it."""
        return any(self.operations.seen_by(operation, own, part) for own in self.released[warps, 1:-1])

    # --- what is wrong

    def report(
        self, rule: str, block: Block, message: str, line: int, other: int = 0, thread: int | None = None, **detail: Any
    ) -> Key:  # fmt: skip
        """A hazard in a block, at one instruction, in conflict with another, by their numbers."""
        return self.findings.report(rule, message, line, other, block.index, thread, **detail)


class Site(NamedTuple):
    """Where something is executed."""

    block: Block
    thread: int | None = None


@dataclass(eq=False, slots=True)
class Touch:
    """An ordinary access to shared memory, or to global memory."""

    state: State
    block: Block
    kind: str  # "read", "write" or "atomic"
    rank: int  # of the block whose memory it is; -1: global memory
    offsets: Array  # addresses in global memory
    size: int
    threads: Array
    line: int
    item: Instruction | None  # that it is of

    @property
    def opcode(self) -> str:
        """Of the instruction; empty for none."""
        return self.item.opcode if self.item is not None else ""

    def is_by(self, block: Block) -> bool:
        """Whether it is of the instruction that a block executes now."""
        return self.block is block and self.item is block.here

    @property
    def warps(self) -> Array:
        """Of each thread its warp."""
        return self.state.warps(self.block, self.threads)

    @property
    def some(self) -> Array:
        """Each of them once."""
        return self.state.some(self.block, self.threads)


@dataclass(eq=False)
class Issue:
    """Work in flight, with its operations."""

    flight: Flight
    line: int
    together: int  # warps that issue one
    made: dict[int, Operation]  # by its first warp
