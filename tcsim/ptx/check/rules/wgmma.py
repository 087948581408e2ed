"""Registers that wgmma has in flight: who touches them before a wait, and whether a wgmma.fence follows the last touch."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from tcsim.ptx.check.operations import WRITTEN, Operation
from tcsim.ptx.machine.arrays import LANES, Array, distinct

if TYPE_CHECKING:
    from tcsim.ptx.check.checker import Checker
    from tcsim.ptx.machine.view import ThreadsView

_WARPGROUP = 4 * LANES


@lru_cache(256)
def _warpgroups(threads: bytes, kind: str) -> list[int]:
    """The warpgroups of threads of a block, each once; threads: an array's bytes, of a dtype."""
    found: list[int] = distinct(np.frombuffer(threads, kind) // _WARPGROUP).tolist()
    return found


class Registers:
    """The registers of the warpgroups of a cluster, by rank of the block and number of the warpgroup."""

    def __init__(self, checker: Checker) -> None:
        self.checker = checker
        self.touched_by: dict[
            tuple[int, int], dict[int, int]
        ] = {}  # since the last wgmma.fence: registers, the instruction of each
        self.fenced: set[tuple[int, int]] = set()

    def _groups(self, block: ThreadsView, threads: Array) -> list[tuple[int, int]]:
        return [(block.rank, own) for own in _warpgroups(threads.tobytes(), threads.dtype.str)]

    def fence(self, block: ThreadsView, threads: Array) -> None:
        """wgmma.fence."""
        for key in self._groups(block, threads):
            self.touched_by.pop(key, None)
            self.fenced.add(key)

    def touched(self, block: ThreadsView, reads: frozenset[int], writes: frozenset[int], mask: Array) -> None:
        """An ordinary instruction reads and writes registers that some wgmma uses too."""
        checker = self.checker
        line = checker.findings.number(block.here)
        for own in checker.operations.flying.get(("wgmma", block.rank), ()):
            if not (own.left[WRITTEN] & mask[own.threads]).any():
                continue
            if not own.registers.isdisjoint(reads):
                self._report("WGMMA_ACC_READ_IN_FLIGHT", block, own, line, "reads an accumulator")
            elif not own.registers.isdisjoint(writes):
                self._report("WGMMA_ACC_WRITE_IN_FLIGHT", block, own, line, "writes an accumulator")
            elif not own.sources.isdisjoint(writes):
                self._report("WGMMA_A_REG_HAZARD", block, own, line, "writes a register of A")
        for key in self._groups(block, np.nonzero(mask)[0]):
            self.touched_by.setdefault(key, {}).update(dict.fromkeys(reads | writes, line))

    def _report(self, rule: str, block: ThreadsView, own: Operation, line: int, does: str) -> None:
        findings = self.checker.findings
        said = f"{findings.opcode(line)} {does} of {findings.opcode(own.line)}, for whose group no wgmma.wait_group has waited"
        findings.report(rule, said, line, own.line, self.checker.index(block), int(own.threads[0]))

    def issued(self, block: ThreadsView, own: Operation) -> None:
        """A wgmma takes its registers: accumulators may be those of earlier ones, A may not."""
        findings = self.checker.findings
        taken = own.sources - own.registers
        for earlier in self.checker.operations.flying.get(("wgmma", block.rank), ()) if taken else ():
            mine = np.isin(earlier.threads, own.threads)
            if not earlier.registers.isdisjoint(taken) and earlier.left[WRITTEN][mine].any():
                self._report("WGMMA_ACC_READ_IN_FLIGHT", block, earlier, own.line, "takes as A an accumulator")
        for key in self._groups(block, own.threads):
            touched = self.touched_by.get(key, {})
            if key in self.fenced and not touched:
                continue
            found = [touched.pop(number, 0) for number in sorted(own.registers | own.sources)]
            other = max(found, default=0)
            if key in self.fenced and not other:
                continue
            after = f"{findings.opcode(other)} touched its registers" if other else "the warpgroup began"
            said = f"no wgmma.fence is between {findings.opcode(own.line)} and when {after}"
            findings.report(
                "WGMMA_MISSING_FENCE", said, own.line, other, self.checker.index(block), int(own.threads[0])
            )
