"""The columns of a CTA's Tensor Memory: which are taken."""

from __future__ import annotations

from collections.abc import Sequence

COLUMNS, LANES, UNIT = 512, 128, 32
"""Of Tensor Memory: columns, lanes, and the columns that are taken together at least."""


class Columns:
    """The columns of one CTA, in units of 32.

    >>> columns = Columns()
    >>> columns.take(Columns.fitting([columns], 128), 128)
    0
    >>> Columns.fitting([columns], 256), Columns.fitting([columns], 512)
    (256, None)
    """

    def __init__(self, columns: int = COLUMNS) -> None:
        self.columns = columns
        self.taken = [False] * (columns // UNIT)

    @property
    def bytes(self) -> int:
        """Bytes of all lanes."""
        return LANES * 4 * self.columns

    @staticmethod
    def fitting(all: Sequence[Columns], count: int, alone: bool = False) -> int | None:
        """The first of the columns asked for, all free in all of some CTAs; None if there are none."""
        units = max(1, count // UNIT)
        if alone and any(any(own.taken) for own in all):
            return None
        for start in range(0, len(all[0].taken) - units + 1, units):
            if not any(any(own.taken[start : start + units]) for own in all):
                return start * UNIT
        return None

    def take(self, start: int | None, count: int) -> int | None:
        """Take columns that are free, if there are some; where they start."""
        if start is not None:
            for unit in range(start // UNIT, (start + count) // UNIT):
                self.taken[unit] = True
        return start

    def free(self, start: int, count: int) -> None:
        """Give columns back."""
        for unit in range(start // UNIT, min((start + count) // UNIT, len(self.taken))):
            self.taken[unit] = False
