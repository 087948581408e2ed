"""Scale factors in Tensor Memory: whether tcgen05.mma reads those of one operand, from the columns where they were put."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tcsim.model.effects import Access
from tcsim.ptx.check.layout.tiles import FILL, View
from tcsim.ptx.check.layout.trials import Trial
from tcsim.ptx.machine.arrays import Array
from tcsim.ptx.machine.tensor_memory import COLUMNS

if TYPE_CHECKING:
    from tcsim.ptx.check.layout.copied import Copied
    from tcsim.ptx.machine.flights import Flight

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

    def at(self, origins: Copied, rank: int, step: int) -> Array:
        """The origins some columns further on."""
        return origins.cells.lookup(rank, self.place + _COLUMN * step)


def factors(origins: Copied, name: str, accesses: Sequence[Access], rank: int) -> Factors | None:
    """Those that a product reads; None if nothing is known of them, as of what threads computed."""
    layout: Any = accesses[0].cells
    if rank not in origins.cells.at or layout.element_bits != 8:
        return None
    place = origins.cells.places(accesses)
    found = origins.cells.lookup(rank, place)
    written = origins.checker.words("tmem", rank).who[place // _COLUMN] != 0
    if written.any() and not (found > 0).any():
        return None
    found = np.where((found == 0) & written, FILL, found)
    return Factors(name, place, found, int(place.flat[0]) // _COLUMN % COLUMNS)


def judge(
    origins: Copied, flight: Flight, cells: Mapping[str, Sequence[Access]], views: Mapping[str, View], line: int
) -> None:
    """Look at the factors of one product, whose operands in shared memory are `views`."""
    rank, findings = flight.block.rank, origins.checker.findings
    a, b = views.get("A"), views.get("B")
    apart = a is not None and b is not None and not _one_array(np.stack([a.found.flat[:1], b.found.flat[:1]]), origins)
    found = {name: factors(origins, name, cells[name], rank) for name in NAMES if name in cells}
    for name, other in (NAMES, NAMES[::-1]):
        own = found.get(name)
        said = None if own is None else wrong(own, found.get(other), apart, origins, rank)
        if said is None:
            continue
        reads, mend = said
        plain = f"{findings.opcode(line)} reads {name} {reads}"
        index, thread = origins.checker.index(flight.block), int(flight.threads[0])
        finding = findings.report("SCALE_COLUMN", plain, line, 0, index, thread, operand=name)
        message = f"{plain}: with {mend} all would be factors of one operand"
        origins.trials.add(Trial(finding, "SCALE_COLUMN", mend, mend, message))
        return


def wrong(own: Factors, other: Factors | None, apart: bool, origins: Copied, rank: int) -> tuple[str, str] | None:
    """What is wrong with scale factors, and the column from which they would be right, in words; None if nothing is known to be.

    apart: A and B are of different arrays, so that no factor belongs to both.
    """
    both = apart and other is not None and _shared(own, other)
    said = "from the columns of the other operand's" if both else ""
    if not said and not (own.found != 0).all():
        said = "from where no factors were put, or not all"
    if not said and not _one_array(own.found, origins):
        said = "from two arrays"
    if not said and not _even(own.found):
        said = "from two copies, of which each has other blocks of k"
    if not said:
        return None
    columns = []
    for step, found in _elsewhere(own, origins, rank):
        right = (found > 0).all() and _one_array(found, origins) and _even(found)
        taken = other is not None and bool(np.isin(own.place + _COLUMN * step, other.place).any())
        same = other is not None and apart and _one_array(np.stack([found.flat[:1], other.found.flat[:1]]), origins)
        if right and not taken and not same:
            before = own.at(origins, rank, step - 1).flat[:1]
            begins = not before[0] or not _one_array(np.stack([found.flat[:1], before]), origins)
            columns.append((not begins, abs(step), own.column + step))
    if not columns:
        return None
    return said, f"column {min(columns)[2]} instead of {own.column}" + " for one of them" * both


def _elsewhere(own: Factors, origins: Copied, rank: int) -> Iterator[tuple[int, Array]]:
    for step in _STEPS:
        if 0 <= own.column + step < COLUMNS:
            yield step, own.at(origins, rank, step)


def _shared(own: Factors, other: Factors) -> bool:
    """Whether one byte is a factor of both."""
    return bool(np.isin(own.place[own.found > 0], other.place).any())


def _one_array(found: Array, origins: Copied) -> bool:
    """Whether all come from one array in global memory."""
    known = found[found > 0]
    segment = origins.checker.cluster.blocks[0].memory.segment
    return not len(known) or segment(int(known.min())) is segment(int(known.max()))


def _even(found: Array) -> bool:
    """Whether the way from 32 rows to the next 32 is always the same, where one copy has them all."""
    groups = len(found) // _LANES
    if groups < 3 or groups > _GROUPS or not (found > 0).all():
        return True
    steps = np.diff(found[: groups * _LANES].reshape(groups, -1), axis=0)
    return bool((steps == steps[0]).all())
