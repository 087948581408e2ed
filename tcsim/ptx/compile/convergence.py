"""Where threads have to meet before they go on: instructions of a warp, of a warpgroup, of the lanes in a member mask.

A basic block is executed by threads together, so it is enough that they meet where it starts. A block is cut before an instruction
that needs them if something that other threads could wait for comes before it in the block.
"""

from __future__ import annotations

from functools import cache

from tcsim.model.row import Row
from tcsim.ptx.compile.ordinary import ordinary, row_of
from tcsim.ptx.text.syntax import Function, Immediate, Instruction, Operand, Register

MEMBERS = "members"
LANES_OF = {"warp": 32, "warpgroup": 128, "member_mask": 32}
"""Lanes that execute an instruction together."""

_ALL = 0xFFFF_FFFF


def lanes_of(row: Row) -> int:
    """The lanes that execute an instruction together: 1, 32 or 128.

    >>> [lanes_of(row_of(own)) for own in ("setmaxnreg.inc.sync.aligned.u32", "wgmma.fence.sync.aligned", "fence.acq_rel.gpu")]
    [32, 128, 1]
    """
    return 32 if row.warps_apart else LANES_OF.get(row.forms[0].together, 1)


def waits(item: Instruction) -> bool:
    """Whether an instruction of the catalog may have to wait."""
    row = row_of(item.opcode)
    return row is not None and row.may_wait


def set_once(function: Function) -> dict[str, int]:
    """Registers that hold one number wherever they are read: written once, by a mov of a number."""
    written: dict[str, int] = {}
    numbers: dict[str, int] = {}
    for item in function.body:
        first = item.operands[0] if item.operands else None
        if not isinstance(first, Register):
            continue
        written[first.name] = written.get(first.name, 0) + 1
        if ordinary(item.opcode).path == "move" and len(item.operands) == 2 and item.predicate is None:
            source = item.operands[1]
            if isinstance(source, Immediate) and source.kind == "int":
                numbers[first.name] = source.value
    return {name: value for name, value in numbers.items() if written[name] == 1}


def _number(operand: Operand, numbers: dict[str, int]) -> int | None:
    if isinstance(operand, Immediate):
        return operand.value & _ALL
    if isinstance(operand, Register) and operand.name in numbers:
        return numbers[operand.name] & _ALL
    return None


def collective(item: Instruction) -> bool:
    """Whether the lanes of a member mask execute it as one, be it at different places: shfl, vote, match, redux, elect."""
    return ordinary(item.opcode).members and bool(item.operands)


def meeting(item: Instruction, numbers: dict[str, int]) -> int | str:
    """The lanes that have to be there: 32 or 128, MEMBERS where a register says which, or 0."""
    if collective(item):
        return 32 if _number(item.operands[-1], numbers) == _ALL else MEMBERS
    return together(item.opcode)


@cache
def together(opcode: str) -> int:
    """The lanes of a warp or warpgroup that execute an instruction of the catalog as one, or 0."""
    row = row_of(opcode)
    lanes = lanes_of(row) if row is not None and row.meets else 1
    return lanes if lanes > 1 else 0


def meetings(function: Function, starts: set[int], numbers: dict[str, int]) -> tuple[set[int], dict[int, int]]:
    """The starts of basic blocks, with those that meetings add, and the lanes that some of them need."""
    found = set(starts)
    gathers: dict[int, int] = {}
    start, heard = 0, False
    for index, item in enumerate(function.body):
        if index in found:
            start, heard = index, False
        lanes = meeting(item, numbers)
        if lanes == MEMBERS:
            found.add(index)
            start, heard = index, False
        elif isinstance(lanes, int) and lanes > gathers.get(start, 0):
            if heard:
                found.add(index)
                start, heard = index, False
            gathers[start] = lanes
        heard = heard or ordinary(item.opcode).heard
    return found, gathers
