"""Where an element of a fragment lies, as an assembler writes it, and what a register holds.

A *place* is some bits of a PTX register of one lane. A PTX register is a 32-bit register of the API, or two of them
where an element has 64 bits.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from tcsim.core.errors import OperandError, listing
from tcsim.model.instruction import Instruction
from tcsim.model.operand import Fragment
from tcsim.numbers.packing import field_shift


@dataclass(frozen=True)
class Place:
    """One element of an operand and the bits of a register that hold it."""

    operand: str  # "a"
    matrix: int  # which of several independent matrices; 0 if there is one
    row: int
    column: int
    lane: int
    register: int  # number of the PTX register
    slot: int  # place inside the register, from the lowest bits
    high: int  # highest bit
    low: int  # lowest bit
    words: tuple[int, ...]  # registers of the API that the PTX register is

    @property
    def name(self) -> str:
        """The bits as an assembler writes them: "a1[15:0]"."""
        return f"{self.operand}{self.register}[{self.high}:{self.low}]"

    def __str__(self) -> str:
        return f"{self.name} of lane {self.lane}"

    def as_dict(self) -> dict[str, Any]:
        """The keys of JSON."""
        return {**asdict(self), "words": list(self.words), "name": self.name}


def no_fragments(instruction: Instruction) -> str:
    """Why an instruction has no fragments in registers."""
    from tcsim.isa.cvt.semantics import Convert  # an error alone needs these families: a look-up imports its own
    from tcsim.isa.special.semantics import SpecialFunction
    from tcsim.isa.tcgen05.multiply import TensorMemoryMultiply

    if isinstance(instruction, TensorMemoryMultiply):
        return "its matrices lie in Tensor Memory and shared memory; `tcsim show` has the layouts of D"
    if isinstance(instruction, (Convert, SpecialFunction)):
        return "every lane works on registers of its own"
    return "it takes no matrix in registers"


def operand_of(instruction: Instruction, name: str | None) -> Fragment:
    """A register operand by name, in any case; None means the only one.

    Raises OperandError if there is no such operand, or several and no name.

    >>> mma = tcsim.instruction("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", arch="sm_90")
    >>> operand_of(mma, "A").registers
    4
    """
    known = instruction.operands
    if name is None and len(known) == 1:
        return next(iter(known.values()))
    found = known.get(str(name).lower()) or known.get(str(name))
    if found is not None:
        return found
    if not known:
        raise OperandError(f"{instruction!r} has no fragments: {no_fragments(instruction)}")
    asked = "which operand?" if name is None else f"no operand {name!r} in registers;"
    raise OperandError(f"{instruction!r}: {asked} valid: {listing(known)}")


def _place(operand: Fragment, where: tuple[int, int, int], lane: int, value: int) -> Place:
    layout, bits = operand.layout, operand.layout.element_bits
    matrix, row, column = where
    if bits == 64:
        return Place(operand.name, matrix, row, column, lane, value, 0, 63, 0, (2 * value, 2 * value + 1))
    register, slot = divmod(value, layout.slots)
    low = slot * bits + field_shift(operand.format, bits)
    width = min(bits, operand.format.bits + operand.format.ignored_low_bits)
    return Place(operand.name, matrix, row, column, lane, register, slot, low + width - 1, low, (register,))


def places_of(operand: Fragment, row: int, column: int, matrix: int = 0) -> tuple[Place, ...]:
    """Every place that holds an element: one, or each copy, the one that `layout.where` names first.

    Raises OperandError for an element that does not exist.

    >>> mma = tcsim.instruction("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", arch="sm_90")
    >>> print(*places_of(mma.operands["a"], 8, 6))
    a1[15:0] of lane 3
    """
    layout = operand.layout
    layout.where(row, column, matrix)  # raises for one that does not exist
    flat = (matrix * layout.rows + row) * layout.columns + column
    found = np.flatnonzero(layout.flat_element == flat)
    return tuple(_place(operand, (matrix, row, column), *divmod(int(i), layout.value.size)) for i in found)


def contents_of(operand: Fragment, lane: int, register: int) -> tuple[Place, ...]:
    """The elements in a PTX register of a lane, from the lowest bits up.

    Raises OperandError for a lane or register that does not exist.

    >>> mma = tcsim.instruction("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", arch="sm_90")
    >>> [(place.row, place.column) for place in contents_of(mma.operands["a"], 5, 2)]
    [(1, 10), (1, 11)]
    """
    layout = operand.layout
    for name, given, limit in (("lane", lane, layout.lanes), ("register", register, operand.count)):
        if not 0 <= given < limit:
            raise OperandError(f"operand {operand.name}: {name} {given} does not exist; valid: 0 to {limit - 1}")
    each = 1 if layout.element_bits == 64 else layout.slots
    values = [register * each + slot for slot in range(each)]
    return tuple(_place(operand, _where(operand, lane, value), lane, value) for value in values)


def _where(operand: Fragment, lane: int, value: int) -> tuple[int, int, int]:
    layout = operand.layout
    flat = int(layout.flat_element[lane * layout.value.size + value])
    rest, column = divmod(flat, layout.columns)
    matrix, row = divmod(rest, layout.rows)
    return matrix, row, column


def all_places(operand: Fragment) -> tuple[Place, ...]:
    """Every place of an operand: lane after lane, register after register, slot after slot.

    >>> mma = tcsim.instruction("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", arch="sm_90")
    >>> len(all_places(mma.operands["a"]))
    256
    """
    size = operand.layout.value.size
    return tuple(
        _place(operand, _where(operand, lane, value), lane, value)
        for lane in range(operand.lanes)
        for value in range(size)
    )
