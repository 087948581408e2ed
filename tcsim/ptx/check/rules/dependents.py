"""Dependent launches: what a grid touches in global memory that lets others start early, and who of these does not wait for it."""

from __future__ import annotations

import numpy as np

from tcsim.model.effects import Effects
from tcsim.ptx.check.clocks import ORDERED
from tcsim.ptx.check.places import by_segment
from tcsim.ptx.check.state import State, Touch
from tcsim.ptx.compile.compiled import Compiled
from tcsim.ptx.compile.families import Bound
from tcsim.ptx.compile.ordinary import row_of
from tcsim.ptx.machine.arrays import LANES, Array
from tcsim.ptx.machine.block import Block
from tcsim.ptx.machine.memory import Memory

_WORD = 4
_ROW = 64  # words that are noted at once, at the most
_FAMILY, _EARLY = "griddepcontrol", "launch_dependents"


def starts_others(program: Compiled) -> bool:
    """Whether a program lets dependent grids start before it ends."""
    opcodes = {item.opcode for lines in program.lines for item in lines if item is not None}
    rows = (row_of(opcode) for opcode in opcodes)
    return any(row is not None and row.family == _FAMILY and row.arithmetic == _EARLY for row in rows)


class Ledger:
    """The words of global memory that a launch has read and written.

    >>> memory, ledger = Memory(), Ledger()
    >>> at = np.array([memory.allocate(64)], np.uint64)
    >>> ledger.note(memory, at + np.uint64(8), 4, True)
    >>> ledger.meets(at + np.uint64(8), False), ledger.meets(at, False)
    (True, False)
    """

    def __init__(self) -> None:
        # By segment: its end, and of each word what was done: read 1, written 2.
        self.touched: dict[int, tuple[int, Array]] = {}

    def note(self, memory: Memory, addresses: Array, size: int, writes: bool) -> None:
        """Bytes are read or written."""
        what, each = np.uint8(2 if writes else 1), size // _WORD
        for own, segment in by_segment(memory, addresses):
            start = segment.address
            nothing = np.zeros((segment.size // _WORD // _ROW + 1) * _ROW, np.uint8)
            _, words = self.touched.setdefault(start, (start + segment.size, nothing))
            offsets = addresses[own].astype(np.int64) - start
            if each > 1 and size == each * _WORD and not len(words) % each and not (offsets % size).any():
                words.reshape(-1, each)[offsets // size] |= what  # whole rows of words
            else:
                words[self._places(offsets, size)] |= what

    @staticmethod
    def _places(offsets: Array, size: int) -> Array:
        found: Array = (offsets[:, None] + np.arange(0, max(size, 1), _WORD)) // _WORD
        return found.reshape(-1)

    def meets(self, addresses: Array, writes: bool, size: int = _WORD) -> bool:
        """Whether bytes were written before; of a write, also whether they were read."""
        asked = 3 if writes else 2
        for start, (end, words) in self.touched.items():
            own = addresses.astype(np.int64)
            own = own[(own >= start) & (own < end)] - start
            places = np.minimum(self._places(own, size), len(words) - 1)
            if len(own) and (words[places] & asked).any():
                return True
        return False


class Dependents:
    """What one cluster does as a grid that others depend on, and as one that depends on another."""

    def __init__(self, state: State, ledger: Ledger | None, before: Ledger | None) -> None:
        """ledger: kept of global memory, for launches after this one; before: of the one before."""
        self.state, self.ledger, self.before = state, ledger, before
        self._waited = np.zeros(state.clocks.warps, np.int32)  # of each warp: its clock when it had waited

    def performing(self, block: Block, bound: Bound, effects: Effects, threads: Array, mask: Array) -> None:
        """Warps have waited for the grids that this one depends on."""
        if any(barrier.scope == "grid" and barrier.op == "wait" for barrier in effects.barriers):
            some = self.state.some(block, threads)
            self._waited[some] = self.state.clocks.now[some]

    def accessed(self, touch: Touch) -> None:
        """Loads, stores and atomics."""
        if touch.rank < 0:
            self.used(touch)

    def used(self, touch: Touch) -> None:
        """Warps, or work that they issue, access global memory, elementwise."""
        if self.ledger is None and self.before is None:
            return
        state, line, addresses, writes = self.state, touch.line, touch.offsets, touch.kind != "read"
        if self.ledger is not None:
            self.ledger.note(state.memory, addresses, touch.size, writes)
        if self.before is None:
            return
        some, place = np.unique(touch.warps, return_inverse=True)
        known = state.clocks.known[some, ORDERED, 1:-1]
        late: Array = np.asarray(~((self._waited > 0) & (known >= self._waited)).any(1))
        if not late.any() or not self.before.meets(addresses[late[place]], writes, touch.size):
            return
        rule, does = ("PDL_WRITE_BEFORE_WAIT", "writes") if writes else ("PDL_WAIT_MISSING", "reads")
        said = f"{state.opcode(line)} {does} global memory that the grid before uses, and no griddepcontrol.wait comes before"
        state.report(rule, touch.block, said, line, 0, int(some[late][0] % state.per_block) * LANES)
