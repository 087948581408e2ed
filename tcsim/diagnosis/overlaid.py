"""Buffers in shared memory that overlap: the end of one operand's tile holds the beginning of the other's."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from tcsim.core.samples import some_of
from tcsim.diagnosis.problem import Codes, Part, Problem
from tcsim.diagnosis.reals import Mask, Numbers, Reals
from tcsim.diagnosis.sizes import TILES
from tcsim.diagnosis.whole import Whole

_SAMPLES = 48  # outputs that every hypothesis is tried on first


@dataclass(frozen=True)
class Overlaid(Whole):
    """In tiles of `tile` lines of operand `name`, those from `start` on are the first ones of the other's tile of `other` lines."""

    name: str  # "a" or "b"
    tile: int
    start: int
    other: int

    def names(self) -> list[tuple[str, str, str]]:
        """(mistake, detail, advice)."""
        theirs, own, lines = ("b", "rows", "columns") if self.name == "a" else ("a", "columns", "rows")
        end = min(self.tile, self.start + self.other)
        said = (
            f"{own} {self.start}-{end - 1} of every tile of {self.tile} hold {lines} 0-{end - self.start - 1}"
            f" of the tile of {self.other} of {theirs}: the buffers overlap"
        )
        advice = f"look at where the tile of {theirs} begins in shared memory, and at sizes in elements where bytes are meant"
        return [(f"{self.name}: overwritten by {theirs} in shared memory", said, advice)]

    def lines(self, own: npt.NDArray[Any], others: npt.NDArray[Any], block: int) -> npt.NDArray[Any]:
        """The lines (lines, K) of the operand where the other's tile is number `block`."""
        line = np.arange(len(own))
        at = line % self.tile - self.start
        source = block * self.other + at
        taken = (at >= 0) & (at < self.other)
        inside = taken & (source < len(others))
        found = np.where(inside[:, None], others[np.where(inside, source, 0)], own)
        return np.where((taken & ~inside)[:, None], own.dtype.type(0), found)

    def values(self, reals: Reals, matrix: int) -> Numbers:
        """What it predicts of a matrix, (M, N), up to rounding."""
        own, others = (reals.a, reals.b) if self.name == "a" else (reals.b, reals.a)
        found = np.empty((own.shape[1], others.shape[1]))
        for block, first in enumerate(range(0, others.shape[1], self.other)):
            lines = self.lines(own[matrix], others[matrix], block)
            found[:, first : first + self.other] = lines @ others[matrix, first : first + self.other].T
        product: Numbers = (found if self.name == "a" else found.T) + reals.c[matrix]
        return product

    def codes(self, problem: Problem) -> Codes:
        """What it predicts of every output, bit for bit."""
        bare = replace(problem, finish=None)
        out = np.zeros(problem.observed.shape, problem.machine.formats["d"].dtype)
        a, b = problem.a, problem.b.swapaxes(1, 2)
        own, others = (a, b) if self.name == "a" else (b, a)
        for matrix in range(len(out)):
            for block, first in enumerate(range(0, others.shape[1], self.other)):
                read = own.copy()
                read[matrix] = self.lines(own[matrix], others[matrix], block)
                where = np.arange(own.shape[1]), np.arange(first, min(first + self.other, others.shape[1]))
                if self.name == "a":
                    part, changed = Part(matrix, *where), replace(bare, a=read)
                else:
                    part, changed = Part(matrix, *where[::-1]), replace(bare, b=read.swapaxes(1, 2))
                out[matrix, part.rows[:, None], part.columns] = changed.predict(part)
        return out


def overlaid(problem: Problem, reals: Reals, wrong: Mask) -> Iterator[Overlaid]:
    """Those that give some wrong outputs."""
    formats = problem.machine.formats
    dense = problem.positions is None and problem.scales is None
    if not dense or formats["a"].name != formats["b"].name or wrong.shape[0] > 1 or not (wrong & reals.finite).any():
        return
    places = np.argwhere((wrong & reals.finite)[0])
    i, j = some_of(places, _SAMPLES).T
    wanted, reach = (reals.observed - reals.c)[0, i, j], reals.reach[0, i, j]
    for name, lines, theirs, mine, others in (("a", i, j, reals.a[0], reals.b[0]), ("b", j, i, reals.b[0], reals.a[0])):
        for tile in TILES:
            start = int((np.flatnonzero(wrong[0].any(axis=1 if name == "a" else 0)) % tile).min())
            if not start or tile >= 2 * len(mine):
                continue
            for other in TILES:
                source = theirs // other * other + lines % tile - start
                inside = (lines % tile >= start) & (source < len(others)) & (lines % tile - start < other)
                product = (others[np.where(inside, source, 0)] * others[theirs]).sum(axis=1)
                if (inside & (np.abs(product - wanted) <= reach)).mean() > 0.9:
                    yield Overlaid(name, tile, start, other)
