"""The end of K inside a tile, where a kernel multiplies what it did not clear: the next row in memory, an earlier tile, or elements of the row again."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt

from tcsim.core.samples import some_of
from tcsim.diagnosis.predicted import after_clamp
from tcsim.diagnosis.problem import Codes, Problem
from tcsim.diagnosis.reals import Ints, Mask, Numbers, Reals
from tcsim.diagnosis.sizes import STEPS
from tcsim.diagnosis.whole import Whole

_STAGES = (1, 2, 3, 4, 5, 6)
_SAMPLES = 48  # outputs that every tail is tried on first
NEXT, LAST, FIRST = 0, -1, -2
_AGAIN = {
    NEXT: "the next {line}'s first",
    LAST: "the last one again (the index is clamped)",
    FIRST: "the first ones again (the index is taken modulo K)",
}
"""What follows the last k where it is not an earlier tile."""


@dataclass(frozen=True)
class Tail(Whole):
    """What follows the last k of A and of B in a tile. `a`, `b`: how much earlier it was fetched, or one of `_AGAIN`."""

    depth: int  # K
    length: int  # of what follows
    a: int
    b: int

    def names(self) -> list[tuple[str, str, str]]:
        """(mistake, detail, advice)."""
        said = [
            f"of {x} the {self.length} after K = {self.depth} are "
            + (f"those {back} before" if back > 0 else _AGAIN[back].format(line=line))
            for x, line, back in (("a", "row", self.a), ("b", "column", self.b))
        ]
        advice = "zero what lies behind K in a tile, of one operand at least: predicate the loads (a clamped or wrapped index is not enough), or let TMA fill with zeros"
        return [("K tail not cleared", "; ".join(said), advice)]

    def values(self, reals: Reals, matrix: int) -> Numbers:
        """What it predicts of a matrix, (M, N), up to rounding."""
        a, b = (self.read(x[matrix], back) for x, back in ((reals.a, self.a), (reals.b, self.b)))
        found: Numbers = reals.right[matrix] + a @ b.T
        return found

    def read(self, lines: npt.NDArray[Any], back: int) -> npt.NDArray[Any]:
        """What follows each of the lines (lines, K): (lines, length)."""
        row, k = self.place(np.arange(len(lines))[:, None], back)
        inside = row < len(lines)
        return np.where(inside, lines[np.where(inside, row, 0), k], lines.dtype.type(0))

    def place(self, row: Ints, back: int) -> tuple[Ints, Ints]:
        """The line and the k of what follows some lines (n, 1)."""
        k = self.depth + np.arange(self.length)[None]
        if back == NEXT:
            return row + k // self.depth, k % self.depth
        return row + 0 * k, 0 * k + self.depth - 1 if back == LAST else k % self.depth if back == FIRST else k - back

    @property
    def same(self) -> bool:
        """Whether products of the sum are added once more."""
        return self.a == self.b != NEXT

    def codes(self, problem: Problem) -> Codes:
        """What it predicts of every output, bit for bit."""
        a, b = problem.a, problem.b.swapaxes(1, 2)
        a, b = (
            np.concatenate([x[:, :, : self.depth], np.stack([self.read(one, back) for one in x])], axis=2)
            for x, back in ((a, self.a), (b, self.b))
        )
        order = tuple(range(a.shape[2] // problem.step))
        longer = replace(problem, a=a, b=b.swapaxes(1, 2), order=order, finish=None)
        return np.stack([after_clamp(problem, part, longer.predict(part)) for part in longer.parts()])


def tails(problem: Problem, reals: Reals, wrong: Mask) -> Iterator[Tail]:
    """Those that give some wrong outputs, the shortest first."""
    if problem.positions is not None or problem.scales is not None or not (wrong & reals.finite).any():
        return
    depth = problem.depth or problem.a.shape[2]
    places = np.argwhere(wrong & reals.finite)
    t, i, j = some_of(places, _SAMPLES).T
    wanted, reach = (reals.observed - reals.right)[t, i, j], reals.reach[t, i, j]
    for tile in (size * problem.step for size in STEPS):
        length = -depth % tile
        backs = [*_AGAIN, *(tile * stages for stages in _STAGES if tile * stages <= depth)]
        for a, b in product(backs, repeat=2) if length else ():
            tail = Tail(depth, length, a, b)
            more = (_first(tail, reals.a, t, i, a) * _first(tail, reals.b, t, j, b)).sum(axis=1)
            if (np.abs(more - wanted) <= reach).mean() > 0.9:
                yield tail


def _first(tail: Tail, lines: Numbers, t: Ints, line: Ints, back: int) -> Numbers:
    row, k = tail.place(line[:, None], back)
    inside = row < lines.shape[1]
    found: Numbers = np.where(inside, lines[t[:, None], np.where(inside, row, 0), k], 0.0)
    return found
