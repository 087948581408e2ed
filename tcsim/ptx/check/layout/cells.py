"""Origins of what lies in Tensor Memory: A, and scale factors, as tcgen05.st and tcgen05.cp put them there."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from tcsim.model.effects import Access
from tcsim.ptx.check.layout.tiles import Mend, Source, View
from tcsim.ptx.check.state import State
from tcsim.ptx.machine.arrays import Array

_COLUMN = 4
_STEPS = tuple(sign * step for step in (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128) for sign in (-1, 1))
"""Columns by which the address is tried further on."""


class Cells:
    """The origins in the Tensor Memory of the blocks of a cluster, of each two bytes."""

    def __init__(self, state: State) -> None:
        self.state = state
        self.at: dict[int, Array] = {}
        self.by: dict[int, Array] = {}

    def note(self, rank: int, places: Array, origins: Array, line: int) -> None:
        """Pairs of bytes at places have origins."""
        if rank not in self.at:
            count = self.state.blocks[rank].spaces.columns.bytes // 2
            self.at[rank], self.by[rank] = np.zeros(count, np.int64), np.zeros(count, np.int32)
        self.at[rank][places // 2] = origins
        self.by[rank][places // 2] = line

    def lookup(self, rank: int, places: Array) -> Array:
        """The origins of bytes; 0 where there is none, or no such cell."""
        at = self.at[rank]
        inside = (places >= 0) & (places // 2 < len(at))
        found = np.where(inside, at[np.where(inside, places // 2, 0)], 0)
        return np.where(found > 0, found + places % 2, found)

    @staticmethod
    def places(accesses: Sequence[Access]) -> Array:
        """Where the elements (rows, columns) of an operand lie, in bytes; of several copies the first."""
        layout: Any = accesses[0].cells
        words = np.concatenate(
            [(own.address[:, None] + np.arange(0, own.size, _COLUMN)).reshape(-1) for own in accesses]
        )
        found: Array = (words[layout.word] + layout.cells[3] * layout.element_bits // 8)[0, 0]
        return found

    def view(self, name: str, accesses: Sequence[Access], rank: int, line: int) -> View | None:
        """An operand in Tensor Memory; None if nothing is known of it."""
        if rank not in self.at:
            return None
        layout: Any = accesses[0].cells
        if layout.element_bits < 8:
            return None
        place = self.places(accesses)
        found = self.lookup(rank, place)
        if not (found > 0).any():
            return None

        by = int(self.by[rank][int(place.flat[0]) // 2])
        first = int(accesses[0].address.flat[0]) // _COLUMN % (self.state.blocks[rank].spaces.columns.bytes // 512)
        return View(name, found, np.arange(found.shape[1]), 1, "k", 0, line, by, Column(self, rank, place, first))


@dataclass(frozen=True, eq=False)
class Column(Source):
    """Where an operand lies: the bytes of its elements, from a column on."""

    cells: Cells
    rank: int
    place: Array
    first: int

    def mends(self) -> Iterator[Mend]:
        """Other columns."""
        for step in _STEPS:
            if self.first + step >= 0:
                said = f"column {self.first + step} instead of {self.first}"
                make = partial(self.cells.lookup, self.rank, self.place + _COLUMN * step)
                yield Mend("TMEM_COLUMN", said, make, ("column", step))

    def shifts(self, target: Array) -> Iterator[Mend]:
        """As of `mends`."""
        return self.mends()

    def again(self, key: Hashable) -> Mend | None:
        """One of these."""
        return next((own for own in self.mends() if own.key == key), None)
