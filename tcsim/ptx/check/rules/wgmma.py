"""Registers that wgmma has in flight: who touches them before a wait, and whether a wgmma.fence follows the last touch."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from tcsim.model.effects import Order
from tcsim.ptx.check.operations import WRITTEN, Operation
from tcsim.ptx.check.state import Issue, State
from tcsim.ptx.machine.arrays import LANES, Array, distinct
from tcsim.ptx.machine.block import Block

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
