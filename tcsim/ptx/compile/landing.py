"""Registers that an instruction writes after it, where another one of the thread waits for them: tcgen05.ld and wgmma.

"A true register dependency": a read of the registers needs no tcgen05.wait::ld (PTX ISA, tcgen05 Memory Consistency Model,
canonical synchronization patterns). An accumulator of wgmma that is touched before a wait is undefined by the manual; ptxas
adds the wait, or runs the wgmma of the function one after the other (its notes C7510 to C7520), and an H200 gives what the
program's order says. Either orders nothing but these registers.
"""

from __future__ import annotations

from tcsim.model.statement import registers_in
from tcsim.ptx.compile.ordinary import row_of
from tcsim.ptx.text.syntax import Function, Instruction, Pair, Register, Vector


class Landings:
    """Where a function has to wait for such registers."""

    def __init__(self, function: Function) -> None:
        self.writers: dict[str, set[int]] = {}  # by register: the instructions that write it later
        for index, item in enumerate(function.body):
            row = row_of(item.opcode)
            if row is not None and row.lands_later:
                for name in registers_in(item.operands[0]):
                    self.writers.setdefault(name, set()).add(index)

    def before(self, index: int, item: Instruction, landed: set[int]) -> set[str]:
        """The registers that have to be there before an instruction; `landed`: the writers that are known to be done in its block."""
        if not self.writers:
            return set()
        names = [*registers_in(item.operands), *([item.predicate.name] if item.predicate is not None else [])]
        if _of_warpgroup(item):  # products add to an accumulator in their order
            names = [*registers_in(item.operands[1:])]
        found = {name for name in names if self.writers.get(name, set()) - landed}
        for name in found if item.predicate is None else ():  # threads that a predicate leaves out have not waited
            landed |= self.writers[name]
        landed.discard(index)
        return found


class Held:
    """The registers that instructions of a warpgroup read and write after they are issued: vectors of wgmma.mma_async."""

    def __init__(self, function: Function) -> None:
        self.names: set[str] = set()
        for item in function.body:
            if _of_warpgroup(item):
                for operand in item.operands:
                    if isinstance(operand, Vector):
                        self.names |= set(registers_in(operand))

    def touched(self, item: Instruction) -> tuple[set[str], set[str]] | None:
        """Those that another instruction reads, and writes; None for none."""
        if not self.names or self.names.isdisjoint(registers_in(item.operands)) or _of_warpgroup(item):
            return None
        first, rest = item.operands[:1], item.operands
        written: set[str] = set()
        if first and isinstance(first[0], (Register, Vector, Pair)):
            written, rest = set(registers_in(first[0])) & self.names, item.operands[1:]
        read = set(registers_in(rest)) & self.names
        return (read, written) if read or written else None


def _of_warpgroup(item: Instruction) -> bool:
    row = row_of(item.opcode)
    return row is not None and row.forms[0].agent == "warpgroup"
