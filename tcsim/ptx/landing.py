"""Registers that an instruction writes after it, where the hardware lets another one of the thread wait for them: tcgen05.ld.

"A true register dependency": a read of the registers needs no tcgen05.wait::ld (PTX ISA 9.4, tcgen05 Memory Consistency Model,
canonical synchronization patterns). That orders nothing but these registers.
"""

from __future__ import annotations

from collections.abc import Iterator

from tcsim.ptx.syntax import Address, Function, Group, Instruction, Negated, Operand, Pair, Register, Tensor, Vector

_LATER = "tcgen05.ld"


def registers_in(operand: Operand) -> Iterator[str]:
    """The names of the registers that an operand mentions."""
    if isinstance(operand, Register):
        yield operand.name
    elif isinstance(operand, Negated):
        yield operand.register.name
    elif isinstance(operand, (Vector, Group)):
        for item in operand.items:
            yield from registers_in(item)
    elif isinstance(operand, Pair):
        yield from registers_in(operand.first)
        yield from registers_in(operand.second)
    elif isinstance(operand, (Address, Tensor)):
        yield from registers_in(operand.base)
        for item in operand.coordinates if isinstance(operand, Tensor) else ():
            yield from registers_in(item)


class Landings:
    """Where a function has to wait for such registers."""

    def __init__(self, function: Function) -> None:
        self.writers: dict[str, set[int]] = {}  # by register: the instructions that write it later
        for index, item in enumerate(function.body):
            if item.opcode.startswith(_LATER) and item.operands:
                for name in registers_in(item.operands[0]):
                    self.writers.setdefault(name, set()).add(index)

    def before(self, index: int, item: Instruction, landed: set[int]) -> set[str]:
        """The registers that have to be there before an instruction; `landed`: the writers that are known to be done in its block."""
        if not self.writers:
            return set()
        mentioned = [name for operand in item.operands for name in registers_in(operand)]
        mentioned += [item.predicate.name] if item.predicate is not None else []
        found = {name for name in mentioned if self.writers.get(name, set()) - landed}
        for name in found:
            landed |= self.writers[name]
        landed.discard(index)
        return found
