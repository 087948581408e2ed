"""Which registers may hold elements of a matrix on their way from memory to a product, and how ordinary instructions hand them on.

Where origins are followed (`Kernel.launch(origins=True)`) the compiler gives each half of 16 bits of such a register a row of its
own (`tcsim.ptx.check.layout.tags`), and writes behind each instruction that changes one what becomes of the rows. Registers that reach no
store to shared memory and no operand of a product have none, so that address arithmetic costs nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tcsim.isa.ordinary.table import Carries
from tcsim.isa.scalar.table import Array
from tcsim.model.emit import Lines, machine
from tcsim.model.statement import registers_in
from tcsim.ptx.compile.ordinary import moves, ordinary, row_of
from tcsim.ptx.compile.writer import Writer
from tcsim.ptx.text.syntax import TYPE_BYTES, Address, Function, Immediate, Instruction, Operand, Pair, Register, Vector

HALF = 2
"""Bytes that have a row."""
UNKNOWN, CONSTANT = 0, 1
"""Rows that belong to no register: of what was computed, and of numbers in the program."""
_FIRST = 2
_BYTES = 4  # of a register that prmt and shifts take


@dataclass(frozen=True, eq=False)
class Move:
    """Rows that take over what others have."""

    to: Array
    source: Array
    plus: Array  # added to each origin: the second element of a byte pair


@dataclass(frozen=True, eq=False)
class Transfer:
    """A load or a store: the rows of each half, and the bytes of the access that they are."""

    stores: bool
    rows: Array
    offset: Array
    size: int  # bytes of a piece: 2, or 1 where single bytes are moved
    constant: Array  # rows above what a load brings: zeros or the sign


Rows = dict[int, tuple[int, int]]
"""By register: its first row, and how many it has."""


def halves(type: str) -> int:
    """The rows of a register of a type; none of a predicate."""
    return 0 if type == "pred" else max(1, TYPE_BYTES[type] // HALF)


class Carriers:
    """The registers of one function that are followed."""

    def __init__(self, function: Function, numbers: dict[str, int], rows: Rows) -> None:
        self.function, self.numbers, self.rows = function, numbers, rows
        self.names = _followed(function)
        following = _FIRST + sum(count for _, count in rows.values())
        for name in sorted(self.names, key=lambda own: numbers[own]):
            count = halves(function.registers[name][0])
            if count:
                rows[numbers[name]] = following, count
                following += count

    def lines(self, writer: Writer, item: Instruction, lines: Lines) -> Lines:
        """The source of an instruction with what it does to the rows."""
        row = ordinary(item.opcode)
        if not item.operands or (not row.carries and row_of(item.opcode) is not None):
            return lines
        stores = row.path == "store"
        if not stores and (isinstance(item.operands[0], Address) or not self._any(item.operands[0])):
            return lines
        if stores or row.path == "load":
            found = self._transfer(item, item.operands[1 if stores else 0], stores)
            if found is None:
                return lines
            return [*lines, machine(f"tell.moved({writer.constant(found)}, w)")]
        if row.carries == "lanes":
            mode, (_, value, *named) = item.opcode.split(".")[2], item.operands
            asked = ", ".join(writer.value(own, "u32") for own in named[:2])
            moved = machine(f"tell.moved({writer.constant(self._move(item, value))}, w, z_)")
            return [machine(f"z_ = warp.partners({writer.constant(mode)}, {asked})"), *lines, moved]
        if row.carries == "either":
            one, other, which = item.operands[1:4]
            chosen = writer.value(which, "pred")
            return [
                *lines,
                machine(f"tell.moved({writer.constant(self._move(item, one))}, T.narrow(w, {chosen}))"),
                machine(f"tell.moved({writer.constant(self._move(item, other))}, T.narrow(w, ~{chosen}))"),
            ]
        return [*lines, machine(f"tell.moved({writer.constant(self._moved(item, row.carries))}, w)")]

    def _any(self, operand: Operand) -> bool:
        return any(name in self.names for name in registers_in(operand))

    def _rows(self, operand: Operand) -> list[int]:
        """The rows of an operand's halves, the lowest first; of a number enough for any register; of a pair with a predicate those of the register."""
        if isinstance(operand, Pair):
            return self._rows(operand.first)
        if isinstance(operand, Vector):
            return [row for own in operand.items for row in self._rows(own)]
        if isinstance(operand, Register):
            first, count = self.rows.get(self.numbers[operand.name], (UNKNOWN, 0))
            if count:
                return list(range(first, first + count))
            return [UNKNOWN] * halves(self.function.registers[operand.name][0])
        return [CONSTANT if isinstance(operand, Immediate) else UNKNOWN] * 8

    def _transfer(self, item: Instruction, what: Operand, stores: bool) -> Transfer | None:
        """A load or a store of one register or a vector."""
        type = item.opcode.rpartition(".")[2]
        size = TYPE_BYTES.get(type, 0)
        parts: Sequence[Operand] = what.items if isinstance(what, Vector) else (what,)
        if not size or (stores and _elsewhere(item)):
            return None
        rows, offset, constant = list[int](), list[int](), list[int]()
        for place, own in enumerate(parts):
            found = self._rows(own)
            count = max(1, size // HALF)
            rows += found[:count]
            offset += [place * size + HALF * half for half in range(len(found[:count]))]
            constant += [] if stores or not isinstance(own, Register) else [row for row in found[count:] if row]
        return Transfer(stores, np.array(rows), np.array(offset), min(size, HALF), np.array(constant, np.int64))

    def _move(self, item: Instruction, what: Operand) -> Move:
        return self._made(self._rows(item.operands[0]), self._rows(what))

    @staticmethod
    def _made(to: list[int], source: list[int], plus: Sequence[int] = ()) -> Move:
        source = (source + [CONSTANT] * len(to))[: len(to)]
        kept = [place for place, row in enumerate(to) if row]
        more = (*plus, *[0] * len(to))
        return Move(*(np.array([own[place] for place in kept], np.int64) for own in (to, source, more)))

    def _moved(self, item: Instruction, carries: Carries) -> Move:
        to, given = self._rows(item.operands[0]), item.operands[1:]
        if carries == "whole":
            return self._made(to, self._rows(given[0]))
        if carries == "elements":
            return self._converted(item, to)
        if carries == "bytes" and isinstance(given[2], Immediate):
            return self._made(to, self._permuted(given[0], given[1], given[2].value))
        if carries in ("up", "down") and isinstance(given[1], Immediate) and given[1].value == 8 * HALF:
            source = self._rows(given[0])
            return self._made(to, [CONSTANT, *source] if carries == "up" else [*source[1:], CONSTANT])
        return self._made(to, [UNKNOWN] * len(to))

    def _permuted(self, one: Operand, other: Operand, selector: int) -> list[int]:
        """prmt: a half whose two bytes are a half of a source has its origin."""
        source = [*self._rows(one)[: _BYTES // HALF], *self._rows(other)[: _BYTES // HALF]]
        bytes = [selector >> 4 * place & 15 for place in range(_BYTES)]
        pairs = [(bytes[place], bytes[place + 1]) for place in range(0, _BYTES, HALF)]
        return [source[low // HALF] if low % HALF == 0 and high == low + 1 else UNKNOWN for low, high in pairs]

    def _converted(self, item: Instruction, to: list[int]) -> Move:
        """cvt: each element is one of a source, in another format."""
        *_, into, of = item.opcode.split(".")
        sources = [self._rows(own) for own in item.operands[1:]]
        if len(sources) == 2:  # the first source goes into the upper half
            pair = [sources[1][0], sources[0][0]]
            return self._made(to, pair if into.endswith("x2") and TYPE_BYTES.get(into, HALF) > HALF else pair[:1])
        if into.endswith("x2") and of.endswith("x2"):
            return self._made(to, [sources[0][0]] * 2, (0, 1))
        if into.endswith("x2") or of.endswith("x2"):
            return self._made(to, [UNKNOWN] * len(to))
        widened = TYPE_BYTES.get(into, 0) > TYPE_BYTES.get(of, 0) and into[0] in "us" and of[0] in "us"
        return self._made(to, sources[0][:1] + ([CONSTANT] * len(to) if widened else sources[0][:1] * (len(to) - 1)))


def _elsewhere(item: Instruction) -> bool:
    """Whether a store says that it does not write shared memory."""
    return any(word in ("global", "local", "param", "const") for word in item.opcode.split("."))


def _followed(function: Function) -> frozenset[str]:
    """The registers from which elements may come to a store or a product."""
    found: set[str] = set()
    sources: dict[str, set[str]] = {}
    for item in function.body:
        row = ordinary(item.opcode)
        if row.carries and item.operands:
            for name in registers_in(item.operands[0]):
                sources.setdefault(name, set()).update(registers_in(item.operands[1:]))
        elif row_of(item.opcode) is not None:
            kinds = (Vector, Register) if moves(item.opcode) else Vector
            found |= {name for own in item.operands if isinstance(own, kinds) for name in registers_in(own)}
        elif row.path == "store" and len(item.operands) > 1 and not _elsewhere(item):
            found |= set(registers_in(item.operands[1]))
    left = list(found)
    while left:
        new = sources.get(left.pop(), set()) - found
        found |= new
        left += new
    return frozenset(name for name in found if halves(function.registers[name][0]))
