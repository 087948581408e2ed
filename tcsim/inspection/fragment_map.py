"""Whole tables of a fragment: what every register of every lane holds, or who holds every element."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from tcsim.inspection.places import Place, all_places
from tcsim.inspection.report import Report, Table
from tcsim.inspection.svg import Cell, grid
from tcsim.model.instruction import Instruction
from tcsim.model.operand import Fragment

By = Literal["lane", "element"]
CSV_HEAD = ("operand", "matrix", "row", "column", "lane", "register", "slot", "high_bit", "low_bit")


@dataclass(frozen=True)
class FragmentMap:
    """Every place of one operand of an instruction."""

    instruction: Instruction
    operand: Fragment
    places: tuple[Place, ...]  # lane after lane, register after register, slot after slot

    def as_dict(self) -> dict[str, Any]:
        """The keys of JSON."""
        layout = self.operand.layout
        return {
            "mnemonic": self.instruction.mnemonic, "arch": self.instruction.arch.name, "operand": self.operand.name,
            "format": self.operand.format.name, "rows": layout.rows, "columns": layout.columns,
            "matrices": layout.matrices, "copies": layout.copies, "lanes": layout.lanes,
            "ptx_registers": self.operand.count, "layout": str(layout),
            "places": [place.as_dict() for place in self.places],
        }  # fmt: skip

    def registers(self) -> Iterator[tuple[int, int, tuple[Place, ...]]]:
        """(lane, register, its elements from the lowest bits up)."""
        each = len(self.places) // (self.operand.lanes * self.operand.count)
        for start in range(0, len(self.places), each):
            own = self.places[start : start + each]
            yield own[0].lane, own[0].register, own

    def holders(self) -> dict[tuple[int, int, int], Place]:
        """The first place of every (matrix, row, column)."""
        found: dict[tuple[int, int, int], Place] = {}
        for place in self.places:
            found.setdefault((place.matrix, place.row, place.column), place)
        return found


def map_of(instruction: Instruction, operand: Fragment) -> FragmentMap:
    """The map of one operand.

    >>> mma = tcsim.instruction("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", arch="sm_90")
    >>> next(map_of(mma, mma.operands["a"]).registers())[2][1].name
    'a0[31:16]'
    """
    return FragmentMap(instruction, operand, all_places(operand))


def elements_text(places: Sequence[Place], matrices: int) -> str:
    """The elements of a register in few characters: "0,2-3" is row 0, columns 2 and 3; "1:0,2" is of matrix 1."""
    parts, start = [], 0
    while start < len(places):
        stop = start + 1
        first = places[start]
        while stop < len(places) and _follows(places[stop - 1], places[stop], first):
            stop += 1
        last = places[stop - 1]
        rows = f"{first.row}" if first.row == last.row else f"{first.row}-{last.row}"
        columns = f"{first.column}" if first.column == last.column else f"{first.column}-{last.column}"
        parts.append((f"{first.matrix}:" if matrices > 1 else "") + f"{rows},{columns}")
        start = stop
    return " ".join(parts)


def _follows(before: Place, after: Place, first: Place) -> bool:
    if before.matrix != after.matrix:
        return False
    along_row = after.row == first.row and after.column == before.column + 1
    along_column = after.column == first.column and after.row == before.row + 1
    return along_row or along_column


def _title(found: FragmentMap) -> str:
    operand = found.operand
    size = f"{operand.shape[0]} x {operand.shape[1]} {operand.format.name}"
    return f"{found.instruction.mnemonic} on {found.instruction.arch.name}: operand {operand.name}, {size}"


def tables(found: FragmentMap, by: By = "lane") -> Report:
    """The map as tables: a line for each lane, or for each row of the matrix."""
    layout, name = found.operand.layout, found.operand.name
    if by == "lane":
        registers = found.operand.count
        rows: dict[int, list[str]] = {lane: [] for lane in range(layout.lanes)}
        for lane, _, own in found.registers():
            rows[lane].append(elements_text(own, layout.matrices))
        head = ("lane", *(f"{name}{i}" for i in range(registers)))
        prefix = "matrix:" if layout.matrices > 1 else ""
        note = f"{prefix}row,column of each register's elements, lowest bits first"
        cells = tuple((str(lane), *own) for lane, own in rows.items())
        return Report(_title(found), (Table(head, cells, note, grid=True),))
    holders, parts = found.holders(), []
    slots = layout.slots > 1 and layout.element_bits < 64
    note = f"lane:register{'.slot' if slots else ''} of each element" + (
        " (its first copy)" if layout.copies > 1 else ""
    )
    for matrix in range(layout.matrices):
        cells = tuple(
            (str(row), *(_holder(holders[matrix, row, column], slots) for column in range(layout.columns)))
            for row in range(layout.rows)
        )
        title = f"{note}; matrix {matrix}" if layout.matrices > 1 else note
        parts.append(Table(("row", *map(str, range(layout.columns))), cells, title, grid=True))
    return Report(_title(found), tuple(parts))


def _holder(place: Place, slots: bool) -> str:
    return f"{place.lane}:{place.register}" + (f".{place.slot}" if slots else "")


def as_csv(found: FragmentMap, by: By = "lane") -> str:
    """A line for each place, in the order of lanes or of elements; columns are `CSV_HEAD`."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(CSV_HEAD)
    places = found.places
    if by == "element":
        places = tuple(sorted(places, key=lambda p: (p.matrix, p.row, p.column, p.lane, p.register, p.slot)))
    for p in places:
        writer.writerow((p.operand, p.matrix, p.row, p.column, p.lane, p.register, p.slot, p.high, p.low))
    return out.getvalue()


def as_svg(found: FragmentMap, by: By = "lane") -> str:
    """A picture: elements labelled with lane and register, or registers labelled with their elements; a colour a lane."""
    layout = found.operand.layout
    if by == "lane":
        cells = [
            Cell(lane, register, elements_text(own, layout.matrices), lane) for lane, register, own in found.registers()
        ]
        heads = tuple(f"{found.operand.name}{i}" for i in range(found.operand.count))
        return grid(_title(found), cells, tuple(f"lane {lane}" for lane in range(layout.lanes)), heads)
    slots = layout.slots > 1 and layout.element_bits < 64
    cells = [
        Cell(matrix * layout.rows + row, column, _holder(place, slots), place.lane)
        for (matrix, row, column), place in found.holders().items()
    ]
    heads = tuple(map(str, range(layout.columns)))
    labels = tuple(
        f"{matrix}: {row}" if layout.matrices > 1 else str(row)
        for matrix in range(layout.matrices)
        for row in range(layout.rows)
    )
    return grid(_title(found), cells, labels, heads)
