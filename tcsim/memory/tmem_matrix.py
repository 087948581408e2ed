"""One matrix in Tensor Memory as a CuTe layout, both ways: from an element to its place and back."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from tcsim.core.display import Shown
from tcsim.core.errors import OperandError
from tcsim.core.evidence import Evidence
from tcsim.core.versions import PTX_MANUAL
from tcsim.layouts.layout import Layout

LANES = 128
WORD_BITS = 32
LANE = 1 << 16
"""What one lane adds to a TMEM address: bits 31:16 are the lane, 15:0 the column."""

MANUAL = Evidence("literature", "PTX ISA, sections of tcgen05.mma, read as CUTLASS's traits of sm_100 do")
DRAWN = Evidence("literature", "PTX ISA, figures only, as public programs restate them")
LOOKUP = Evidence(
    "inferred",
    f"{PTX_MANUAL}, Decompression of B, with the layout that Triton's test on sm_107 and a public simulator use alike",
)

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Runs:
    """Cells of Tensor Memory: of each run the first cell, and how many columns all of them have."""

    cta: Ints  # (runs,)
    lane: Ints
    column: Ints
    columns: int


@dataclass(frozen=True)
class TmemLayout(Shown):
    """A matrix in the TMEM of one CTA or of a pair.

    `place` maps (row of the CTA, column, copy), the first fastest, to a TMEM address counted in elements, as CuTe does: a lane
    is 65536 * slots, a column `slots`, and what remains is the slot in the 32-bit word, slot 0 in its low bits.

    >>> from tcsim.memory.tmem_layout import accumulator_layout
    >>> d = accumulator_layout(64, 32)
    >>> print(d)
    ((16,4),32,1):((65536,2097152),1,0)
    >>> d.where(17, 5)  # CTA, lane, column, slot
    (0, 33, 5, 0)
    >>> d(33, 5)
    (17, 5)
    """

    name: str  # of the PTX ISA's data path layout, or what the matrix is
    rows: int  # of the matrix, both CTAs together
    columns: int
    element_bits: int  # bits that an element takes in a word
    place: Layout
    copies: int = 1  # places that hold each element, in one CTA
    ctas: int = 1
    every_cta: bool = False  # each CTA holds all rows, not its share
    first: int = 0  # of the columns of `place`, the one that is the matrix's column 0
    run: int = 0  # rows that follow one another in `place`, which may have more; 0: all rows of a CTA
    lane_bases: tuple[int, ...] = (0,)  # lanes that the matrix's address may have
    evidence: Evidence = field(default=MANUAL, compare=False)

    def __str__(self) -> str:
        return str(self.place)

    @property
    def slots(self) -> int:
        """Elements in one 32-bit word."""
        return WORD_BITS // self.element_bits

    @property
    def rows_of_cta(self) -> int:
        """Rows that one CTA holds."""
        return self.rows if self.every_cta else self.rows // self.ctas

    @cached_property
    def width(self) -> int:
        """TMEM columns from the first to the last that the matrix touches."""
        return int(self.cells[2].max()) + 1

    def where(self, row: Any, column: Any, copy: Any = 0, cta: Any = 0) -> tuple[Any, Any, Any, Any]:
        """(CTA, lane, TMEM column, slot) of an element, counted from the matrix's address; ints or arrays.

        `cta` matters where each CTA holds all rows. Raises OperandError for an element, copy or CTA that does not exist.
        """
        scalar = all(np.ndim(x) == 0 for x in (row, column, copy, cta))
        row, column, copy, cta = (np.asarray(x, np.int64) for x in (row, column, copy, cta))
        for what, given, limit in (
            ("row", row, self.rows), ("column", column, self.columns), ("copy", copy, self.copies), ("CTA", cta, self.ctas)
        ):  # fmt: skip
            _within(what, given, limit)
        if self.every_cta:
            inner = row
        else:
            cta, inner = np.divmod(row, self.rows_of_cta)
        at = self.place(self._coordinate(inner, column, copy))
        found = np.broadcast_arrays(cta, at // (LANE * self.slots), at // self.slots % LANE, at % self.slots)
        return tuple(int(x) for x in found) if scalar else tuple(found)  # type: ignore[return-value]

    def _coordinate(self, row: Ints, column: Ints, copy: Ints) -> Ints:
        """The linear coordinate of `place`, whose rows may be padded and whose columns may begin before the matrix's."""
        rows, columns = (Layout(shape, shape).size for shape in self.place.shape[:2])  # type: ignore[index]
        run = self.run or self.rows_of_cta
        row = row % run + row // run * (rows // -(-self.rows_of_cta // run))
        return row + rows * (column + self.first + columns * copy)

    def __call__(self, lane: Any, tmem_column: Any, slot: Any = 0, cta: Any = 0) -> tuple[Any, Any]:
        """(row, column) of the element at a place, counted from the matrix's address; ints or arrays.

        Raises OperandError for a place that does not exist or holds no element of the matrix.
        """
        scalar = all(np.ndim(x) == 0 for x in (lane, tmem_column, slot, cta))
        places = [np.asarray(x, np.int64) for x in (cta, lane, tmem_column, slot)]
        for what, given, limit in zip(
            ("CTA", "lane", "TMEM column", "slot"), places, (self.ctas, LANES, self.width, self.slots), strict=True
        ):
            _within(what, given, limit)
        element = self.holds[tuple(np.broadcast_arrays(*places))]
        if (element < 0).any():
            first = np.argwhere(np.atleast_1d(element) < 0)[0]
            at = [int(np.atleast_1d(x)[tuple(first)]) for x in np.broadcast_arrays(*places)]
            raise OperandError(
                f"{self.name}: CTA {at[0]}, lane {at[1]}, column {at[2]}, slot {at[3]} holds no element of the matrix"
            )
        row, column = np.divmod(element, self.columns)
        return (int(row), int(column)) if scalar else (row, column)

    @cached_property
    def cells(self) -> tuple[Ints, Ints, Ints, Ints]:
        """(CTA, lane, TMEM column, slot), each (CTAs that repeat, copies, rows, columns), of every element."""
        repeats = self.ctas if self.every_cta else 1
        shape = (repeats, self.copies, self.rows, self.columns)
        cta, copy, row, column = np.indices(shape)
        found: tuple[Ints, Ints, Ints, Ints] = self.where(row, column, copy, cta)
        return found

    @cached_property
    def runs(self) -> tuple[Runs, ...]:
        """The cells that the matrix touches, those of neighbouring columns together, one `Runs` for each length."""
        touched = np.zeros((self.ctas, LANES, self.width + 1), np.int8)
        touched[self.cells[:3]] = 1
        edges = np.diff(touched, axis=-1, prepend=0)
        starts, ends = np.argwhere(edges == 1), np.argwhere(edges == -1)
        lengths = ends[:, 2] - starts[:, 2]
        alike = {int(length): starts[lengths == length].T for length in np.unique(lengths)}
        return tuple(Runs(cta, lane, column, length) for length, (cta, lane, column) in alike.items())

    @cached_property
    def word(self) -> Ints:
        """Of each element, as in `cells`, which word of all runs, one after the other, holds it."""
        place = np.zeros((self.ctas, LANES, self.width), np.int64)
        first = 0
        for run in self.runs:
            columns = run.column[:, None] + np.arange(run.columns)
            place[run.cta[:, None], run.lane[:, None], columns] = first + np.arange(columns.size).reshape(columns.shape)
            first += columns.size
        return place[self.cells[:3]]

    @cached_property
    def element(self) -> Ints:
        """Of each word of all runs, which element it holds, in the order of `cells`; of one element a word."""
        return np.argsort(self.word, axis=None)

    @cached_property
    def in_order(self) -> bool:
        """Whether the words of all runs hold the elements in their order."""
        return np.array_equal(self.word.reshape(-1), np.arange(self.word.size))

    @cached_property
    def holds(self) -> Ints:
        """row * columns + column of the element at (CTA, lane, TMEM column, slot); -1 where there is none."""
        table = np.full((self.ctas, LANES, self.width, self.slots), -1, np.int64)
        table[self.cells] = np.arange(self.rows * self.columns).reshape(self.rows, self.columns)
        return table


def _within(what: str, given: Ints, limit: int) -> None:
    if ((given < 0) | (given >= limit)).any():
        raise OperandError(f"{what} {given.tolist()} does not exist: valid are 0 to {limit - 1}")
