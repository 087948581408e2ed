"""A swizzle as a grid of 16-byte chunks, and the banks that a column of chunks meets with it and without."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np

from tcsim.core.errors import OperandError, listing, shortened
from tcsim.inspection.report import Facts, Mark, Report, table
from tcsim.layouts.banks import BANKS, WORD_BYTES, bank_conflicts
from tcsim.layouts.swizzle import SWIZZLES, Swizzle

CHUNK = 16
"""Bytes that move together."""
WIDEST = 4096
"""Bytes of a row that are shown at most."""
PHASE_ROWS = 8
"""Rows of 16 bytes that shared memory serves in one pass if no two meet in a bank."""


@dataclass(frozen=True)
class SwizzleView:
    """What `swizzle_view` answers. A row of the grid is `pitch` bytes of logical addresses, a column a chunk of it."""

    name: str
    swizzle: Swizzle
    start: int  # address of the first row
    pitch: int  # bytes from row to row
    lands: tuple[tuple[int, ...], ...]  # (rows, chunks): address of each logical chunk
    banks: tuple[tuple[int, ...], ...]  # (rows, chunks): first bank of each
    degrees: tuple[int, ...]  # of each column of 8 rows: passes to read it
    plain_degrees: tuple[int, ...]  # the same without the swizzle

    def as_dict(self) -> dict[str, Any]:
        """The keys of JSON."""
        own = self.swizzle
        return {
            "name": self.name, "bits": own.bits, "base": own.base, "shift": own.shift, "span": own.span,
            "period": own.period, "start": self.start, "pitch": self.pitch,
            "addresses": [list(row) for row in self.lands], "banks": [list(row) for row in self.banks],
            "conflict_degree": list(self.degrees), "conflict_degree_unswizzled": list(self.plain_degrees),
        }  # fmt: skip


def find_swizzle(text: str) -> tuple[str, Swizzle]:
    """A hardware swizzle by name, or any as "3,4,3" or "Swizzle<3,4,3>".

    Raises OperandError for anything else.

    >>> find_swizzle("128b")[1] == find_swizzle("Swizzle<3,4,3>")[1]
    True
    """
    if text.upper() in SWIZZLES:
        return text.upper(), SWIZZLES[text.upper()]
    numbers = re.fullmatch(r"(?:swizzle<)?([0-9]{1,3}),([0-9]{1,3}),([0-9]{1,3})>?", text.replace(" ", "").lower())
    if numbers is None:
        raise OperandError(
            f"no swizzle {shortened(text)}; valid: {listing(SWIZZLES)}, or bits,base,shift such as 3,4,3"
        )
    found = Swizzle(*map(int, numbers.groups()))
    return next((name for name, own in SWIZZLES.items() if own == found), str(found)), found


def swizzle_view(name: str, start: int = 0, pitch: int | None = None, rows: int = PHASE_ROWS) -> SwizzleView:
    """Where the chunks of `rows` rows land; without a pitch the rows follow one another, a span each.

    Raises OperandError for an unknown swizzle, or a start or pitch that is not a multiple of 16 bytes.

    >>> view = swizzle_view("128B")
    >>> view.lands[1][:3], view.degrees[0], view.plain_degrees[0]
    ((144, 128, 176), 1, 8)
    """
    spelled, swizzle = find_swizzle(name)
    width = max(swizzle.span, CHUNK)
    step = width if pitch is None else pitch
    if swizzle.base != 4:
        raise OperandError(f"{swizzle}: the view shows chunks of {CHUNK} bytes; valid: base 4")
    for what, number, least in (("start", start, 0), ("pitch", step, CHUNK)):
        if number % CHUNK or not least <= number < 1 << 32:
            raise OperandError(
                f"swizzle {name}: {what}={number}; valid: multiples of {CHUNK} from {least} on, below 2**32"
            )
    if not 1 <= rows <= 1024:
        raise OperandError(f"swizzle {name}: rows={rows}; valid: 1 to 1024")
    if width > WIDEST:
        raise OperandError(f"{swizzle}: a row of {width} bytes; the view shows at most {WIDEST}")
    logical = start + np.arange(rows)[:, None] * step + np.arange(width // CHUNK) * CHUNK
    lands = np.asarray(swizzle(logical))
    return SwizzleView(
        spelled,
        swizzle,
        start,
        step,
        tuple(tuple(int(x) for x in row) for row in lands),
        tuple(tuple(int(x) for x in row) for row in lands // WORD_BYTES % BANKS),
        _degrees(lands),
        _degrees(logical),
    )


def _degrees(address: Any) -> tuple[int, ...]:
    """Passes that each column needs for its worst 8 rows."""
    rows = len(address)
    found = []
    for column in np.asarray(address).T:
        groups = [column[at : at + PHASE_ROWS] for at in range(0, rows, PHASE_ROWS)]
        found.append(max(int(bank_conflicts(group, width=CHUNK, access="matrix").degree) for group in groups))
    return tuple(found)


def swizzle_report(view: SwizzleView) -> Report:
    """The view as something to read; on a page a chunk, its banks and the passes of its column are linked."""
    chunks = len(view.lands[0])
    head = ("row", *map(str, range(chunks)))
    address = [(row, *(f"{x:#x}" for x in lands)) for row, lands in enumerate(view.lands)]
    banks = [(row, *(f"{x}-{x + 3}" for x in own)) for row, own in enumerate(view.banks)]
    marks = tuple((Mark(), *(_mark(view, row, chunk) for chunk in range(chunks))) for row in range(len(view.lands)))
    passes = [
        ("swizzled", *map(str, view.degrees)),
        ("plain", *map(str, view.plain_degrees)),
    ]
    columns = (Mark(), *(Mark(f"column{chunk}", f"column {chunk} of chunks", f"in{chunk}") for chunk in range(chunks)))
    facts = (
        ("span", f"{view.swizzle.span} bytes: a row of the pattern"),
        ("period", f"{view.swizzle.period} bytes: where the pattern repeats"),
        ("pitch", f"{view.pitch} bytes from row to row, from {view.start:#x} on"),
    )
    return Report(
        f"{view.name}: {view.swizzle}",
        (
            Facts(facts),
            table(head, address, "Address of each 16-byte chunk", grid=True, marks=marks),
            table(head, banks, "Banks of each chunk", grid=True, marks=marks),
            table(
                ("", *map(str, range(chunks))), passes, "Passes to read 8 rows of a column; 1 is free of conflicts",
                marks=(columns, columns),
            ),
        ),
    )  # fmt: skip


def _mark(view: SwizzleView, row: int, chunk: int) -> Mark:
    """What a page says of a chunk: where it lies, and which rows of its phase meet it in a bank."""
    first = row // PHASE_ROWS * PHASE_ROWS
    others = range(first, min(first + PHASE_ROWS, len(view.banks)))
    met = [other for other in others if other != row and view.banks[other][chunk] == view.banks[row][chunk]]
    bank, logical = view.banks[row][chunk], view.start + row * view.pitch + chunk * CHUNK
    said = f"row {row}, chunk {chunk}: byte {logical:#x} of the tile lies at {view.lands[row][chunk]:#x}, banks {bank}-{bank + 3}"
    beside = (
        f"; rows {', '.join(map(str, met))} of this column lie in the same banks"
        if met
        else "; no other row of this column does"
    )
    links = " ".join((f"column{chunk}", *(f"r{other}c{chunk}" for other in met)))
    return Mark(f"r{row}c{chunk} in{chunk}", said + beside, links)
