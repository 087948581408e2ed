"""What the assembler knows of a register: that it holds a number of the program, a parameter of the kernel, or may."""

from __future__ import annotations

from collections.abc import Mapping

from tcsim.isa.scalar.table import Scalar
from tcsim.ptx.compile.flow import BEFORE, Flow
from tcsim.ptx.compile.ordinary import ordinary
from tcsim.ptx.text.syntax import Address, Function, Immediate, Instruction, Operand, Register, Symbol, Vector


def moves(item: Instruction) -> bool:
    """Whether an instruction gives a register what another operand is."""
    vectors = any(isinstance(operand, Vector) for operand in item.operands)
    return ordinary(item.opcode).path == "move" and len(item.operands) == 2 and not vectors


class Known:
    """The constants of a function."""

    def __init__(self, function: Function, rows: Mapping[int, Scalar], flow: Flow) -> None:
        self.function, self.body, self.rows, self.flow = function, function.body, rows, flow

    def constant(self, operand: Operand, index: int, depth: int = 6) -> str:
        """Whether a source of an instruction is a "number" of the program, a "parameter" or constant of the kernel, or neither: ""."""
        if isinstance(operand, Immediate):
            return "number"
        if not isinstance(operand, Register) or not depth:
            return ""
        places = self.flow.reaching(operand.name, index)
        if len(places) != 1 or BEFORE in places:
            return ""
        (at,) = places
        if self.body[at].predicate is not None:
            return ""
        item = self.body[at]
        path = ordinary(item.opcode).path
        if path == "load" and "volatile" not in item.opcode.split(".") and self.fixed(item):
            return "parameter"
        if moves(item) or (at in self.rows and self.rows[at].passes):
            return self.constant(item.operands[1], at, depth - 1)
        if path == "move" and isinstance(item.operands[0], Vector):
            return self.constant(item.operands[1], at, depth - 1)
        if path == "move" and isinstance(item.operands[1], Vector):
            found = {self.constant(own, at, depth - 1) for own in item.operands[1].items}
            return "" if "" in found else "parameter" if "parameter" in found else "number"
        return ""

    def fixed(self, item: Instruction) -> bool:
        """Whether a load is one of a parameter of the kernel, or of a constant, at an address that the assembler knows."""
        address, names = item.operands[-1], [own.name for own in self.function.params]
        if not isinstance(address, Address) or not isinstance(address.base, Symbol):
            return False
        words = item.opcode.split(".")
        return "const" in words or (self.function.entry and address.base.name in names)

    def maybe(self, operand: Operand, index: int, depth: int = 6) -> bool:
        """Whether the assembler may find out that a source is a constant."""
        if not isinstance(operand, Register):
            return True
        places = self.flow.reaching(operand.name, index) - {BEFORE}
        for at in places if depth else ():
            item = self.body[at]
            arithmetic = at in self.rows or ordinary(item.opcode).path in ("move", "address")
            if not arithmetic and not self.fixed(item):
                return False
            if arithmetic and not all(self._parts_known(own, at, depth - 1) for own in item.operands[1:]):
                return False
        return True

    def _parts_known(self, operand: Operand, index: int, depth: int) -> bool:
        parts = operand.items if isinstance(operand, Vector) else (operand,)
        return all(self.maybe(own, index, depth) for own in parts)
