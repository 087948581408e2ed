"""Outputs that are a function of the right ones: an activation, a clamp, a cast that wraps.

Each function is tried on the right outputs, on the product before C is added, and on the slices of split-K. What a function leaves open - the bounds
of a clamp, a slope, a factor - is read off the outputs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from tcsim.core.samples import some_of
from tcsim.diagnosis.enough import follows
from tcsim.diagnosis.hypothesis import Hypothesis
from tcsim.diagnosis.maps import STEPS
from tcsim.diagnosis.named_functions import ACTIVATIONS, Function, Named, casts, conversions, solved_functions, wrapped
from tcsim.diagnosis.problem import Codes, Problem
from tcsim.diagnosis.reals import Ints, Mask, Numbers, Reals, lines_of
from tcsim.numbers.codec import decode, encode

EXACT, NEAR = 1e-5, 2e-3  # relative: how far a function may be off, and one that is computed by an approximation
_TELLS = 0.1  # of a usual output: how far rounding may take what a function makes of one
_SHARE = 0.9  # of the outputs that a function must change, in the place where it is applied


@dataclass(frozen=True, eq=False)
class Applied(Hypothesis):
    """A function of the right outputs, or of the product before C is added."""

    outside: bool  # C is added behind it
    named: Named
    relative: float  # how far it may be off; 0 of integers

    @property
    def rank(self) -> int:
        """Smaller is simpler."""
        return self.named.rank + self.outside

    def names(self) -> list[tuple[str, str, str]]:
        """(mistake, detail, advice)."""
        detail = self.named.said + (", before c is added" if self.outside else "")
        loose = " (an approximation of it)" if self.relative == NEAR else ""
        return [(self.named.mistake, detail + loose, self.named.advice)]

    def values(self, reals: Reals, matrix: int) -> Numbers:
        """What it predicts of a matrix, (M, N), up to rounding."""
        x, rest = self._taken(reals, matrix)
        with np.errstate(all="ignore"):
            return self.named.run(x) + rest

    def near(self, reals: Reals, matrix: int) -> Mask:
        """Which outputs of a matrix it gives, up to rounding and what a function of hardware is off."""
        return gives(reals, matrix, self.named.run, *self._taken(reals, matrix), self.relative)

    def _taken(self, reals: Reals, matrix: int) -> tuple[Numbers, Numbers]:
        """What the function is applied to, and what is added behind it."""
        x = (reals.product if self.outside else reals.right)[matrix]
        rest = reals.c[matrix] if self.outside else np.zeros_like(x)
        return _given(reals, matrix, x) if self.named.along else x, rest

    def codes(self, problem: Problem) -> Codes | None:
        """What it predicts of every output; None if those are not every bit of what was observed."""
        formats = problem.machine.formats
        c = decode(problem.c, formats["c"]).astype(np.float64)
        rest = c if self.outside else np.zeros_like(c)
        if not self.relative:
            a, b = lines_of(problem)
            values = self.named.run(a @ b.swapaxes(1, 2) + c - rest) + rest
            return encode(wrapped(values, -(1 << 31), 32), formats["d"])
        bare = replace(problem.bare, c=np.zeros_like(problem.c) if self.outside else problem.c)
        with np.errstate(all="ignore"):
            codes = encode(self.named.run(decode(bare.outputs, formats["d"]).astype(np.float64)) + rest, formats["d"])
        return codes if self.named.simple or np.array_equal(codes, problem.observed) else None


def _given(reals: Reals, matrix: int, x: Numbers) -> Numbers:
    """Without what pads rows and columns, NaN there."""
    known = reals.finite[matrix]
    return np.where(known.any(axis=1)[:, None] & known.any(axis=0), x, np.nan)


def gives(reals: Reals, matrix: int, run: Function, x: Numbers, rest: Numbers | float, relative: float) -> Mask:
    """Which outputs a function gives. relative: how far it may be off; 0 of integers."""
    seen, reach = reals.observed[matrix], reals.reach[matrix]
    with np.errstate(all="ignore"):
        value = run(x)
        off = reach * np.where(np.arange(x.shape[1]) % 2, -1, 1)  # a softmax does not see what all are off by
        moved = np.maximum(np.abs(run(x + off) - value), np.abs(run(x - off) - value)) if relative else reach
        moved = np.nan_to_num(moved)
        usual = float(np.sqrt((seen[reals.finite[matrix]] ** 2).mean()))
        tells = moved <= np.maximum(2 * reach, _TELLS * usual)  # steep functions of large results give everything
        near_zero = np.minimum(
            relative * np.abs(x), _TELLS * reals.usual_of(matrix)
        )  # of what a function takes almost to zero
        far = np.maximum(reach, moved) + relative * np.maximum(np.abs(value), near_zero)
        found: Mask = (np.abs(value + rest - seen) <= far + reals.coarse * np.abs(seen)) & tells
    return found & reals.finite[matrix]


def functions(problem: Problem, reals: Reals, wrong: Mask) -> Iterator[Applied]:
    """Those that give every wrong output, and every other one if they are applied everywhere; of integers exactly."""
    open_ = wrong & reals.finite
    if reals.floor or not open_.any() or (wrong & ~reals.finite).any():
        return
    whole = problem.machine.formats["d"].kind != "float"
    matrix = int(open_.sum(axis=(1, 2)).argmax())
    own = open_[matrix]
    for relative in (0.0,) if whole else (EXACT, NEAR):
        fits: list[tuple[float, int, Applied]] = []
        for before_c in (False, True) if problem.c.any() else (False,):
            x = (reals.product if before_c else reals.right)[matrix]
            rest = reals.c[matrix] if before_c else np.zeros_like(x)
            seen = reals.observed[matrix] - rest
            for named in (
                *(casts() if whole else (*ACTIVATIONS, *conversions(reals.coarse))),
                *solved_functions(x, seen, own, reals.finite[matrix], whole),
            ):
                held = _given(reals, matrix, x) if named.along else x
                changes = _changes(named.run, held, reals.reach[matrix], own)
                if changes and gives(reals, matrix, named.run, held, rest, relative)[own].all():
                    values = named.run(held)
                    if not whole and not follows(values[own], seen[own]):
                        continue
                    off = float(np.abs(values - seen)[own].max())
                    fits.append((round(off, 9), len(fits), Applied(before_c, named, relative)))
        if fits:
            yield from (item for _, _, item in sorted(fits, key=lambda one: one[:2]))
            return


def _changes(run: Function, x: Numbers, reach: Numbers, open_: Mask) -> bool:
    """Whether a function makes wrong outputs of right ones in most of those places."""
    with np.errstate(all="ignore"):
        off = np.abs(run(x) - x) > reach
    return bool(off[open_].mean() > _SHARE)


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
