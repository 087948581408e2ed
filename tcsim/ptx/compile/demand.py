"""Which bits of a register matter: to what is stored, to addresses, to other threads, to where threads go."""

from __future__ import annotations

from functools import cached_property

from tcsim.isa.scalar.table import CONTAINERS
from tcsim.ptx.compile.flow import Flow, written
from tcsim.ptx.compile.known import moves
from tcsim.ptx.text.syntax import Function, Immediate, Instruction, Register

_BITWISE = ("xor", "or", "not")
_SIGNS = {("lt", 0), ("ge", 0), ("gt", -1), ("le", -1)}
"""Comparisons of signed integers that ask for the sign alone."""


class Demand:
    """The bits of a function's registers that something depends on."""

    def __init__(self, function: Function) -> None:
        self.function = function
        self.found: dict[tuple[int, str], int] = {}

    @cached_property
    def flow(self) -> Flow:
        """Where values go."""
        return Flow(self.function)

    def bits(self, index: int, name: str) -> int:
        """Those of what an instruction writes to a register; 0 if nothing needs it."""
        key = (index, name)
        if key not in self.found:
            every = (1 << 8 * CONTAINERS[self.function.registers[name][0]].itemsize) - 1
            self.found[key] = every  # of what depends on itself
            found = every if name in self.flow.returns else 0
            for place in self.flow.uses(index, name):
                found |= self._at(place, name, every) if place in self.flow.live else 0
            self.found[key] = found & every
        return self.found[key]

    def _at(self, place: int, name: str, every: int) -> int:
        item = self.flow.body[place]
        stem, *words = item.opcode.split(".")
        number = next(
            (own.value for own in item.operands[1:] if isinstance(own, Immediate) and own.kind == "int"), None
        )
        if stem == "setp" and len(item.operands) == 3 and words[-1][0] == "s" and (words[0], number) in _SIGNS:
            return every ^ every >> 1
        result = next(iter(written(item)), "")
        if not result or not isinstance(item.operands[0], Register) or sum(1 for _ in self._named(item, name)) != 1:
            return every
        if moves(item) or stem in _BITWISE:
            return self.bits(place, result)
        if stem == "and" and number is not None:
            return self.bits(place, result) & number
        if stem in ("shr", "shl") and number is not None and 0 <= number < 64 and item.operands[1] == Register(name):
            return self.bits(place, result) << number if stem == "shr" else self.bits(place, result) >> number
        return every

    @staticmethod
    def _named(item: Instruction, name: str) -> list[Register]:
        return [own for own in item.operands[1:] if isinstance(own, Register) and own.name == name]
