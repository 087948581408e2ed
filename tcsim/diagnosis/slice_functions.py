"""A function of the epilogue that every slice of split-K applies to its own sum, before the sums are added."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from tcsim.core.samples import some_of
from tcsim.diagnosis.enough import follows
from tcsim.diagnosis.functions import ACTIVATIONS, Named
from tcsim.diagnosis.hypothesis import Hypothesis
from tcsim.diagnosis.problem import Problem
from tcsim.diagnosis.reals import Ints, Mask, Numbers, Reals
from tcsim.diagnosis.sizes import STEPS

_SLICES = range(2, 9)
_SAMPLES = 64  # outputs that every division of K is tried on
_NEAR = 2e-3  # relative: an approximation of the function


@dataclass(frozen=True, eq=False)
class OfSlices(Hypothesis):
    """The sum of a function of each slice, and C beside them or in the first one."""

    named: Named
    of_k: Ints  # (K,): the slice
    inside: bool  # C is in the first slice

    def names(self) -> list[tuple[str, str, str]]:
        """(mistake, detail, advice)."""
        count, first = int(self.of_k.max()) + 1, int((self.of_k == 0).sum())
        way = f"of {first} of K" if (np.diff(self.of_k) >= 0).all() else "whose tiles take turns"
        said = f"{self.named.said}, in each of {count} slices of split-K ({way}) before they are added"
        return [(self.named.mistake, said, f"{self.named.advice}: it belongs behind the sum of the slices")]

    def values(self, reals: Reals, matrix: int) -> Numbers:
        """What it predicts of a matrix, (M, N), up to rounding."""
        total = np.zeros_like(reals.c[matrix]) if self.inside else reals.c[matrix].copy()
        for number in range(int(self.of_k.max()) + 1):
            own = reals.a[matrix] * (self.of_k == number) @ reals.b[matrix].T
            total += self.named.run(own + reals.c[matrix] * (self.inside and number == 0))
        return total

    def near(self, reals: Reals, matrix: int) -> Mask:
        """Which outputs of a matrix it gives, up to rounding and what a function of hardware is off."""
        values = self.values(reals, matrix)
        far = reals.reach[matrix] + (0.0 if self.named.simple else _NEAR) * np.abs(values)
        found: Mask = np.abs(values - reals.observed[matrix]) <= far
        return found & reals.finite[matrix]


@np.errstate(all="ignore")
def in_slices(problem: Problem, reals: Reals, open_: Mask) -> Iterator[OfSlices]:
    """Those that give some of the outputs; of floating-point sums."""
    places = np.argwhere(open_ & reals.finite)
    if problem.machine.formats["d"].kind != "float" or len(places) < _SAMPLES:
        return
    t, i, j = some_of(places, _SAMPLES).T
    terms, c, seen = reals.a[t, i] * reals.b[t, j], reals.c[t, i, j], reals.observed[t, i, j]
    functions = [named for named in ACTIVATIONS if not named.along]
    for of_k in _divisions(reals.a.shape[2], problem.step):
        sums = np.stack([terms[:, of_k == number].sum(axis=1) for number in range(int(of_k.max()) + 1)])
        for inside in (False, True)[: 1 + bool(c.any())]:
            held = sums + (np.arange(len(sums)) == 0)[:, None] * c * inside
            for named in functions:
                values = named.run(held).sum(axis=0) + c * (not inside)
                far = reals.reach[t, i, j] + (0.0 if named.simple else _NEAR) * np.abs(values)
                if (np.abs(values - seen) <= far).all() and follows(values, seen):
                    yield OfSlices(named, of_k, inside)


def _divisions(depth: int, step: int) -> Iterator[Ints]:
    """The slice of each k: slices of neighbouring tiles, or of tiles that take turns; each division once."""
    seen: set[bytes] = set()
    for size in (step * tiles for tiles in STEPS):
        tile = np.arange(depth) // size
        count = int(tile[-1]) + 1
        for slices in _SLICES:
            if slices <= count:
                for of_k in (tile // -(-count // slices), tile % slices):
                    if of_k.tobytes() not in seen:
                        seen.add(of_k.tobytes())
                        yield of_k
