"""What warps do as one, or as parts of a warpgroup: who is missing, how setmaxnreg differs, and who touches registers that wgmma has in flight."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from tcsim.model.effects import Order, Outcome, Resource
from tcsim.ptx.check.clocks import EXECUTED
from tcsim.ptx.check.operations import WRITTEN, Operation
from tcsim.ptx.check.state import Issue, State
from tcsim.ptx.compile.convergence import LANES_OF
from tcsim.ptx.compile.families import Bound
from tcsim.ptx.compile.ordinary import row_of
from tcsim.ptx.machine.arrays import LANES, Array, distinct
from tcsim.ptx.machine.block import Block
from tcsim.ptx.machine.faults import Stop

_GROUP = LANES_OF["warpgroup"] // LANES
_ALIGNED = ("warp", "warpgroup")
"""Who executes an instruction together if it is .sync.aligned; a member mask says itself who comes, and does not count threads that have ended."""


@dataclass(frozen=True)
class Request:
    """A setmaxnreg that a warp has executed."""

    line: int
    word: str  # .inc or .dec
    count: int
    clock: int  # of the warp

    def is_as(self, other: Request) -> bool:
        """Whether another one asks for the same."""
        return (self.word, self.count) == (other.word, other.count)


class Warps:
    """The warps of a cluster as parts of their warpgroups."""

    def __init__(self, state: State) -> None:
        self.state = state
        self._requests: dict[int, list[Request]] = {}  # by warp of the cluster
        self._blocks: dict[int, Block] = {}  # by rank: those with requests

    # --- who is missing

    def incomplete(self, block: Block, bound: Bound, missing: Array) -> None:
        """Threads that do not execute it. Those that a block has never had are missed by fragments of matrices alone: a warp without them is whole."""
        if bound.form.together not in _ALIGNED:
            return
        state, own = self.state, missing[missing < block.threads.launched]
        if not len(own) and all(operand.layout is None for operand in bound.form.operands):
            return
        thread = int(own[0] if len(own) else missing[0])
        if not len(own):
            why = f"the block has {block.threads.launched} threads"
        elif state.blocks[block.rank].threads.alive[thread]:
            why = "its predicate is false"
        else:
            why = "the thread has ended"
        line = state.number(bound.item)
        said = f"{state.opcode(line)} is executed without thread {thread}, and all threads of the {bound.form.together} have to execute it: {why}"
        state.report("WARP_INCOMPLETE", block, said, line, 0, thread)

    def outside(self, block: Block, mask: Array) -> None:
        """Lanes are not in the member mask of what they execute."""
        line, thread = self.state.number(block.here), int(np.argmax(mask))
        said = f"{self.state.opcode(line)} is executed by thread {thread}, which is not in its member mask"
        self.state.report("WARP_SYNC_MASK", block, said, line, 0, thread)

    # --- setmaxnreg

    def granted(self, block: Block, resource: Resource, outcome: Outcome | None, threads: Array) -> None:
        """setmaxnreg: .dec to no more than the warp has, .inc to no less; the same in all warps of a warpgroup, one after the other."""
        line = self.state.number(block.here)
        row = row_of(block.here.opcode) if block.here is not None and resource.kind == "registers" else None
        if row is None:
            return
        self._blocks[block.rank] = block
        for warp in self.state.some(block, threads).tolist():
            made = Request(line, row.arithmetic, resource.delta, int(self.state.clocks.now[warp]))
            before = self._requests.setdefault(warp, [])
            owned = before[-1].count if before else block.program.registers_at_launch
            wrong = made.count > owned if made.word == "dec" else made.count < owned
            if block.program.registers_at_launch and wrong:
                said = f"asks for {made.count} registers, and the warp has {owned}"
                self._report(block, "SETMAXNREG_DIRECTION", said, made, warp)
            self._compared(block, before, made, warp)
            before.append(made)

    def _compared(self, block: Block, before: list[Request], made: Request, warp: int) -> None:
        """What the other warps have executed in its place has to be the same; each before it has to be known to be over, but for one that is the same again."""
        state, place, per = self.state, len(before), self.state.per_block
        for other in self._others(block, warp):
            theirs = self._requests.get(other, [])
            if len(theirs) > place and not theirs[place].is_as(made):
                said = f"asks for {made.count} registers in warp {warp % per}, and {state.opcode(theirs[place].line)} for {theirs[place].count} in warp {other % per} of its warpgroup"
                self._report(block, "SETMAXNREG_DIVERGED", said, made, warp, theirs[place].line)
                return
            if not before or before[-1].is_as(made):
                continue
            first = theirs[place - 1] if len(theirs) >= place else None
            if first is None or first.clock > state.clocks.known[warp, EXECUTED, 1 + other]:
                said = f"is executed after {state.opcode(before[-1].line)}, and nothing orders it after that of warp {other % per} of the warpgroup"
                self._report(block, "SETMAXNREG_UNORDERED", said, made, warp, before[-1].line)
                return

    def _others(self, block: Block, warp: int) -> list[int]:
        """The other warps of a warp's warpgroup, as far as the block has them."""
        base = block.rank * self.state.per_block
        first = base + (warp - base) // _GROUP * _GROUP
        return [own for own in range(first, min(first + _GROUP, base + self.state.per_block)) if own != warp]

    def ended(self, stop: Stop | None) -> None:
        """The cluster has ended: which warps have executed fewer setmaxnreg than another one of their warpgroup."""
        for warp, own in self._requests.items() if stop is None else ():
            block = self._blocks[warp // self.state.per_block]
            for other in self._others(block, warp):
                theirs = len(self._requests.get(other, []))
                if theirs < len(own):
                    said = f"is not executed by warp {other % self.state.per_block} of the warpgroup"
                    self._report(block, "SETMAXNREG_DIVERGED", said, own[theirs], warp)
                    break

    def _report(self, block: Block, rule: str, said: str, made: Request, warp: int, other: int = 0) -> None:
        state, thread = self.state, warp % self.state.per_block * LANES
        state.report(rule, block, f"{state.opcode(made.line)} {said}", made.line, other, thread)


_WARPGROUP = 4 * LANES


@lru_cache(256)
def _warpgroups(threads: bytes, kind: str) -> list[int]:
    """The warpgroups of threads of a block, each once; threads: an array's bytes, of a dtype."""
    found: list[int] = distinct(np.frombuffer(threads, kind) // _WARPGROUP).tolist()
    return found


class Wgmma:
    """The registers of the warpgroups of a cluster, by rank of the block and number of the warpgroup."""

    def __init__(self, state: State) -> None:
        self.state = state
        self._touched: dict[tuple[int, int], dict[int, int]] = {}  # since the last wgmma.fence: the instruction of each
        self._fenced: set[tuple[int, int]] = set()

    def _groups(self, block: Block, threads: Array) -> list[tuple[int, int]]:
        return [(block.rank, own) for own in _warpgroups(threads.tobytes(), threads.dtype.str)]

    def ordered(self, block: Block, order: Order, threads: Array) -> None:
        """wgmma.fence."""
        for key in self._groups(block, threads) if order.kind == "wgmma.fence" else ():
            self._touched.pop(key, None)
            self._fenced.add(key)

    def touched(self, block: Block, reads: frozenset[int], writes: frozenset[int], mask: Array) -> None:
        """An ordinary instruction reads and writes registers that some wgmma uses too."""
        line = self.state.number(block.here)
        for own in self.state.operations.flying.get(("wgmma", block.rank), ()):
            if not (own.left[WRITTEN] & mask[own.threads]).any():
                continue
            if not own.registers.isdisjoint(reads):
                self._report("WGMMA_ACC_READ_IN_FLIGHT", block, own, line, "reads an accumulator")
            elif not own.registers.isdisjoint(writes):
                self._report("WGMMA_ACC_WRITE_IN_FLIGHT", block, own, line, "writes an accumulator")
            elif not own.sources.isdisjoint(writes):
                self._report("WGMMA_A_REG_HAZARD", block, own, line, "writes a register of A")
        for key in self._groups(block, np.nonzero(mask)[0]):
            self._touched.setdefault(key, {}).update(dict.fromkeys(reads | writes, line))

    def _report(self, rule: str, block: Block, own: Operation, line: int, does: str) -> None:
        opcode = self.state.opcode
        said = f"{opcode(line)} {does} of {opcode(own.line)}, for whose group no wgmma.wait_group has waited"
        self.state.report(rule, block, said, line, own.line, int(own.threads[0]))

    def issued(self, issue: Issue) -> None:
        """Products take their registers: accumulators may be those of earlier ones, A may not."""
        for own in issue.made.values() if issue.flight.kind == "wgmma" else ():
            own.published = self.state.clocks.published(own.warps)
            self._taken(issue.flight.block, own)

    def _taken(self, block: Block, own: Operation) -> None:
        state, taken = self.state, own.sources - own.registers
        for earlier in state.operations.flying.get(("wgmma", block.rank), ()) if taken else ():
            mine = np.isin(earlier.threads, own.threads)
            if not earlier.registers.isdisjoint(taken) and earlier.left[WRITTEN][mine].any():
                self._report("WGMMA_ACC_READ_IN_FLIGHT", block, earlier, own.line, "reads as A an accumulator")
        for key in self._groups(block, own.threads):
            touched = self._touched.get(key, {})
            if key in self._fenced and not touched:
                continue
            found = [touched.pop(number, 0) for number in sorted(own.registers | own.sources)]
            other = max(found, default=0)
            if key in self._fenced and not other:
                continue
            after = f"{state.opcode(other)} touched its registers" if other else "the warpgroup began"
            said = f"no wgmma.fence is between {state.opcode(own.line)} and when {after}"
            state.report("WGMMA_MISSING_FENCE", block, said, own.line, other, int(own.threads[0]))
