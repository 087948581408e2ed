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

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from tcsim.model.statement import Instruction
from tcsim.ptx.check.clocks import ORDERED, Clocks
from tcsim.ptx.check.flags import Flags
from tcsim.ptx.check.lanes import Lanes, lanes_in, shares_in, warps_in
from tcsim.ptx.check.operations import Object, Operation, Operations, Work
from tcsim.ptx.check.words import Words
from tcsim.ptx.hazards.hazard import Hazard
from tcsim.ptx.machine.arrays import LANES, Array
from tcsim.ptx.machine.block import Block
from tcsim.ptx.machine.cluster import Cluster
from tcsim.ptx.machine.flights import Flight
from tcsim.ptx.text.syntax import line_in_words

Key = tuple[str, int, int]
"""Of a finding: its name, and the numbers of the two instructions."""
FIRST = "K_ADVANCE"
"""What comes before everything else: an operand that has left its tile reads what is not there yet, or in no order."""


class Findings:
    """The hazards of a cluster, and the instructions that they are about."""

    def __init__(self) -> None:
        self.instructions: list[Instruction] = []
        self._numbers: dict[int, int] = {}
        self._found: dict[Key, Hazard] = {}

    def number(self, item: Instruction | None) -> int:
        """The number of an instruction, from 1; 0 for none."""
        if item is None:
            return 0
        found = self._numbers.get(id(item))
        if found is None:
            self.instructions.append(item)
            found = self._numbers[id(item)] = len(self.instructions)
        return found

    def instruction(self, number: int) -> Instruction | None:
        """An instruction by its number."""
        return self.instructions[number - 1] if number else None

    def opcode(self, number: int) -> str:
        """What an instruction is called, and where it stands: "st.shared.u32 (line 12)", with .loc "st.shared.u32 (line 12, k.cu:3)"."""
        item = self.instruction(number)
        return f"{item.opcode} ({line_in_words(item)})" if item is not None else "an instruction"

    def report(
        self, name: str, message: str, line: int, other: int = 0, block: Sequence[int] | None = None, thread: int | None = None, **detail: Any
    ) -> Key:  # fmt: skip
        """A hazard at one instruction, in conflict with another, by their numbers."""
        key = name, line, other
        before = self._found.get(key)
        if before is not None:
            self._found[key] = replace(before, count=before.count + 1)
            return key
        at, conflict = self.instruction(line), self.instruction(other)
        here, there = (own.source.places if own and own.source else () for own in (at, conflict))
        self._found[key] = Hazard(
            name, message, at.line if at else None, conflict.line if conflict else None,
            here[0] if here else None, there[0] if there else None,
            (block[0], block[1], block[2]) if block is not None else None, thread, detail, inlined=here[1:], other_inlined=there[1:],
        )  # fmt: skip
        return key

    def mended(self, key: Key, said: str, mend: str, change: Mapping[str, Any]) -> None:
        """What mends a finding is known; the message without it stays in the detail (`tcsim.ptx.hazards.hazard.without_mend`)."""
        own = self._found[key]
        detail = {**own.detail, "mend": mend, "found": own.detail.get("found", own.message)}
        self._found[key] = replace(own, message=said, detail=detail | ({"change": dict(change)} if change else {}))

    def rename(self, key: Key, name: str, missing: str) -> None:
        """Another rule is what is broken; missing: what its message ends with."""
        own = self._found.pop(key)
        message = f"{own.message.rpartition(': ')[0]}: {missing}"
        self._found[name, key[1], key[2]] = replace(own, name=name, message=message)

    def hazards(self) -> list[Hazard]:
        """All, in the order in which they were found; what the others may follow from first."""
        return sorted(self._found.values(), key=lambda own: own.name != FIRST)


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
            own.reduces = getattr(bound.model.row, "reduction", None) is not None
            if own.unit == "tcgen05.mma":
                own.accumulator = tuple(
                    (access.address.size, int(access.address.flat[0]), access.size) for access in pending.writes
                )
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
    written: Array | None = None  # what is stored

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
