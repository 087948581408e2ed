"""Scale factors in Tensor Memory: whether tcgen05.mma reads those of one operand, from the columns where they were put."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tcsim.model.effects import Access
from tcsim.ptx.check.layout.cells import Cells
from tcsim.ptx.check.layout.origins import Origins
from tcsim.ptx.check.layout.tiles import FILL, View
from tcsim.ptx.check.layout.trials import Trial, Trials
from tcsim.ptx.machine.arrays import Array
from tcsim.ptx.machine.flights import Flight
from tcsim.ptx.machine.tensor_memory import COLUMNS

NAMES = ("scale_a", "scale_b")
_COLUMN = 4
_LANES = 32
_GROUPS = 4
"""Groups of 32 rows that lie side by side in a copy of 16 bytes a lane; further ones come from another copy."""
_STEPS = tuple(sign * step for step in range(1, 65) for sign in (-1, 1))
"""Columns by which other places are tried."""


@dataclass(frozen=True)
class Factors:
    """The scale factors of one operand."""

    name: str
    place: Array  # bytes of Tensor Memory (rows, blocks of k)
    found: Array  # their origins; FILL of what was computed
    column: int  # the first

    def at(self, cells: Cells, rank: int, step: int) -> Array:
        """The origins some columns further on."""
        return cells.lookup(rank, self.place + _COLUMN * step)


class Scales:
    """The scale factors of the products of one cluster."""

    def __init__(self, origins: Origins, cells: Cells, trials: Trials) -> None:
        self.origins, self.cells, self.trials, self.state = origins, cells, trials, origins.state

    def factors(self, name: str, accesses: Sequence[Access], rank: int) -> Factors | None:
        """Those that a product reads; None if nothing is known of them, as of what threads computed."""
        layout: Any = accesses[0].cells
        if rank not in self.cells.at or layout.element_bits != 8:
            return None
        place = self.cells.places(accesses)
        found = self.cells.lookup(rank, place)
        written = self.state.words("tmem", rank).who[place // _COLUMN] != 0
        if written.any() and not (found > 0).any():
            return None
        found = np.where((found == 0) & written, FILL, found)
        return Factors(name, place, found, int(place.flat[0]) // _COLUMN % COLUMNS)

    def judge(
        self, flight: Flight, cells: Mapping[str, Sequence[Access]], views: Mapping[str, View], line: int
    ) -> None:
        """Look at the factors of one product, whose operands in shared memory are `views`."""
        a, b = views.get("A"), views.get("B")
        apart = a is not None and b is not None and not self._one_array(a.found, b.found)
        found = {name: self.factors(name, cells[name], flight.block.rank) for name in NAMES if name in cells}
        for name, other in (NAMES, NAMES[::-1]):
            own = found.get(name)
            said = None if own is None else self._wrong(own, found.get(other), apart, flight.block.rank)
            if said is None:
                continue
            reads, mend = said
            plain = f"{self.state.opcode(line)} reads {name} {reads}"
            thread = int(flight.threads[0])
            finding = self.state.report("SCALE_COLUMN", flight.block, plain, line, 0, thread, operand=name)
            message = f"{plain}: with {mend} all would be factors of one operand"
            self.trials.add(Trial(finding, "SCALE_COLUMN", mend, mend, message))
            return

    def _one_array(self, found: Array, other: Array) -> bool:
        """Whether two operands begin in one array in global memory."""
        return self.origins.in_one_array(np.stack([found.flat[:1], other.flat[:1]]))

    def _wrong(self, own: Factors, other: Factors | None, apart: bool, rank: int) -> tuple[str, str] | None:
        """What is wrong with scale factors, and the column from which they would be right, in words; None if nothing is known to be.

        apart: A and B are of different arrays, so that no factor belongs to both.
        """
        both = apart and other is not None and _shared(own, other)
        if both:
            said = "from the columns of the other operand's"
        elif not (own.found != 0).all():
            said = "from where no factors were put, or not all"
        elif not self.origins.in_one_array(own.found):
            said = "from two arrays"
        elif not _even(own.found):
            said = "from two copies, of which each has other blocks of k"
        else:
            return None
        columns = []
        for step in _STEPS:
            if not 0 <= own.column + step < COLUMNS:
                continue
            found = own.at(self.cells, rank, step)
            right = (found > 0).all() and self.origins.in_one_array(found) and _even(found)
            taken = other is not None and bool(np.isin(own.place + _COLUMN * step, other.place).any())
            same = other is not None and apart and self._one_array(found, other.found)
            if right and not taken and not same:
                before = own.at(self.cells, rank, step - 1)
                begins = not before.flat[0] or not self._one_array(found, before)
                columns.append((not begins, abs(step), own.column + step))
        if not columns:
            return None
        return said, f"column {min(columns)[2]} instead of {own.column}" + " for one of them" * both


def _shared(own: Factors, other: Factors) -> bool:
    """Whether one byte is a factor of both."""
    return bool(np.isin(own.place[own.found > 0], other.place).any())


def _even(found: Array) -> bool:
    """Whether the way from 32 rows to the next 32 is always the same, where one copy has them all."""
    groups = len(found) // _LANES
    if groups < 3 or groups > _GROUPS or not (found > 0).all():
        return True
    steps = np.diff(found[: groups * _LANES].reshape(groups, -1), axis=0)
    return bool((steps == steps[0]).all())
