"""Stores that are not masked at N: what a tile holds past the last column lands in the first columns of the next row."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from tcsim.diagnosis.equivalence import right_of
from tcsim.diagnosis.problem import Codes, Problem
from tcsim.diagnosis.reals import Ints, Mask, Numbers, Reals
from tcsim.diagnosis.sizes import PARTS, TILES
from tcsim.diagnosis.whole import Whole

PAST_END = "d: stored past the end of a row"
_LOADS = {
    "are those of the first columns again": "modulo N",
    "are the last column's": "clamped",
    "are the next elements in memory": "memory",
}
"""What lies in B past its last column, and a short name for it."""


@dataclass(frozen=True, eq=False)
class PastEnd(Whole):
    """In the first `width` columns, every row that is not right holds what lies past N in the row before."""

    width: int
    size: tuple[int, int]  # M and N
    loads: str
    with_c: bool  # what lies past N has C's next elements in memory added
    over: Mask  # (batch, M, N): the outputs that were stored over

    def names(self) -> list[tuple[str, str, str]]:
        """(mistake, detail, advice)."""
        m, n = self.size
        said = (
            f"what a tile holds past N = {n} is stored over the first {self.width} columns of the next row: "
            f"the columns of b that were loaded there {self.loads}"
        )
        return [(PAST_END, said, f"mask the store at N (column < {n}), as the loads must be")]

    def _sources(self, problem_b: Numbers) -> Numbers:
        """B's columns past N, of B (K, N): (K, width)."""
        _, n = self.size
        at: Ints = np.arange(n, n + self.width)
        if _LOADS[self.loads] == "modulo N":
            return problem_b[:, at % n]
        if _LOADS[self.loads] == "clamped":
            return problem_b[:, at * 0 + n - 1]
        memory = np.concatenate([problem_b[:, :n].reshape(-1), np.zeros(self.width, problem_b.dtype)])
        found: Numbers = memory[np.arange(len(problem_b))[:, None] * n + at]
        return found

    def values(self, reals: Reals, matrix: int) -> Numbers:
        """What it predicts of a matrix, (M, N), up to rounding."""
        found: Numbers = reals.right[matrix].copy()
        m, _ = self.size
        past = reals.a[matrix, : m - 1] @ self._sources(reals.b[matrix].T)
        past = past + (reals.c[matrix, 1:m, : self.width] if self.with_c else 0.0)
        found[1:m, : self.width] = np.where(self.over[matrix, 1:m, : self.width], past, found[1:m, : self.width])
        return found

    def near(self, reals: Reals, matrix: int) -> Mask:
        """Which outputs of a matrix it gives, up to rounding; sums of another row are of its size."""
        reach = np.maximum(reals.reach[matrix], float(np.median(reals.reach)))
        found: Mask = np.abs(self.values(reals, matrix) - reals.observed[matrix]) <= reach
        return found & reals.finite[matrix]

    def codes(self, problem: Problem) -> Codes | None:
        """What it predicts of every output, bit for bit."""
        m, n = self.size
        if problem.b.shape[2] < self.width:
            return None
        bare = replace(problem, finish=None)
        b, c = problem.b.copy(), np.zeros_like(problem.c)
        for matrix in range(len(b)):
            b[matrix, :, : self.width] = self._sources(problem.b[matrix])
        if self.with_c:
            c[:, : m - 1, : self.width] = problem.c[:, 1:m, : self.width]
        past = right_of(replace(bare, b=b, c=c))
        found = right_of(bare)
        over = self.over[:, 1:m, : self.width]
        found[:, 1:m, : self.width] = np.where(over, past[:, : m - 1, : self.width], found[:, 1:m, : self.width])
        return found


def over_next_row(empty: Mask, size: tuple[int, int] | None) -> tuple[str, bool]:
    """What is to be said of outputs of one code that may come of a store past N, empty if they cannot; whether nothing else is as likely.

    It is not where they are all rows but the first of each tile: what comes from the tile above is overwritten by the tile's own outputs.
    """
    columns, (m, n) = np.flatnonzero(empty.any(axis=(0, 1))), size or empty.shape[1:]
    width = int(columns[-1]) + 1 if len(columns) else 0
    if empty[:, 0].any() or not width or len(columns) < width or not any((n + width) % tile == 0 for tile in PARTS):
        return "", False
    kept = np.flatnonzero(~empty[:, :m, :width].all(axis=(0, 2)))
    tiled = m > 2 and any(np.array_equal(kept, np.arange(0, m, tile)) for tile in (*TILES, m))
    said = f"what a tile holds past N = {n} was stored over them, from the row before"
    return said if tiled or size else "", tiled


def past_end(problem: Problem, reals: Reals, wrong: Mask) -> Iterator[PastEnd]:
    """Those that give every wrong output: all are in the first columns of rows after the first."""
    rows, columns = problem.size or (wrong.shape[1], wrong.shape[2])
    dense = problem.positions is None and problem.scales is None
    reach = np.flatnonzero(wrong.any(axis=(0, 1)))
    if not dense or not len(reach) or wrong[:, 0].any() or (wrong & ~reals.finite).any() or reals.floor:
        return
    widths = {-columns % tile for tile in PARTS} - {0}
    for width in sorted(width for width in widths if reach[-1] < width <= columns):
        for loads in _LOADS:
            for with_c in (False, True) if problem.c.any() else (False,):
                item = PastEnd(width, (rows, columns), loads, with_c, wrong)
                near = np.stack([item.near(reals, t) for t in range(len(wrong))])
                if near[wrong].all():
                    yield item
                    return
