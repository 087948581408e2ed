"""Two mistakes at once: another line, another k or a miscounted K, beneath what an epilogue does to all outputs.

For every rule of one operand and every miscount of K the products of a few rows and columns are formed. Along each column, and along each row, the observed ones must
be these times a factor plus a number; or a function of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from tcsim.core.samples import repeatable
from tcsim.diagnosis.candidate import Candidate, of_operand
from tcsim.diagnosis.functions import (
    ACTIVATIONS,
    EXACT,
    NEAR,
    Applied,
    Beneath,
    Function,
    Named,
    casts,
    solved_functions,
)
from tcsim.diagnosis.problem import Problem
from tcsim.diagnosis.reals import Ints, Mask, Numbers, Reals
from tcsim.diagnosis.solve import Solver

_SIDE = 14  # rows and columns that are tried
_BATCH = 64  # rules at a time
_FITS = 12  # hypotheses that are tried on all outputs
_LEAST = 24  # rows and columns that a problem must have
_ALIKE = 1e-4  # relative: numbers that are one number
_LIKE = 0.3  # the least correlation of what a function takes with what it gives
_SHARE = 0.97  # of the outputs tried


@dataclass(frozen=True, eq=False)
class Affine(Beneath):
    """A candidate's products times a factor of each line, plus a number of each line."""

    axis: int  # along which the numbers are the same: 0, one for each column; 1, one for each row
    slope: Numbers
    offset: Numbers

    @property
    def rank(self) -> int:
        """Smaller is simpler."""
        return self.item.rank + len(self.epilogue())

    def epilogue(self) -> list[tuple[str, str, str]]:
        """(mistake, detail, advice) of the numbers."""
        line, lines, other = ("column", "columns", "rows") if self.axis == 0 else ("row", "rows", "columns")
        found = []
        slope, offset = self.slope, self.offset
        if np.ptp(slope) > 0:
            said = f"factors from {slope.min():.4g} to {slope.max():.4g}"
            found.append((f"{lines} scaled", said, f"the epilogue multiplies each of the {lines} by a number"))
        elif slope.flat[0] != 1.0:
            what = "the product" if self.outside else "all of it"
            found.append(("result scaled", f"{what} times {slope.flat[0]:.6g}", "look at alpha in the epilogue"))
        if np.ptp(offset) > 0:
            said = f"one number for each {line}, from {offset.min():.4g} to {offset.max():.4g}"
            found.append(("bias added", said, f"the epilogue adds a vector along the {other}"))
        elif offset.flat[0] != 0.0:
            found.append(("bias added", f"{offset.flat[0]:.4g} to every output", "the epilogue adds a constant"))
        return found

    def names(self) -> list[tuple[str, str, str]]:
        """(mistake, detail, advice)."""
        return [*self.own.names(), *self.epilogue()]

    def values(self, reals: Reals, matrix: int) -> Numbers:
        """What it predicts of a matrix, (M, N), up to rounding."""
        return self._with_c(self.slope * self.item.values(reals, matrix) + self.offset, reals, matrix)

    def near(self, reals: Reals, matrix: int) -> Mask:
        """Which outputs of a matrix it gives, up to rounding: that of larger factors reaches further."""
        reach = reals.stretched(self.slope, matrix, times=2)
        found: Mask = np.abs(self.values(reals, matrix) - reals.observed[matrix]) <= reach
        return found & reals.finite[matrix]


def beneath(problem: Problem, reals: Reals, wrong: Mask) -> Iterator[Beneath]:
    """Those that give every output of the first matrix, the simplest first."""
    size = problem.sizes
    if reals.floor or min(size) < _LEAST or wrong.mean() < 0.5 or not reals.finite[:, : size[0], : size[1]].all():
        return
    random = repeatable()
    rows, columns = (np.sort(random.permutation(extent)[:_SIDE]) for extent in size)
    place = np.ix_(rows[:1] * 0, rows, columns)
    seen, c, reach = reals.observed[place], reals.c[place], reals.reach[place]
    found: list[Beneath] = []
    for items, products in _products(Solver(problem, reals), rows, columns):
        for base, outside, beta in _bases(products, c):
            wanted = seen - c if outside else seen
            for axis in (0, 1):
                for number in _affine(base, wanted, partial(reals.stretched, place=place, times=2), axis):
                    one = _fitted(replace(items[number], beta=beta), outside, axis, reals)
                    found += [one] if one is not None else []
            for number, named, relative in _of_functions(problem, base, wanted, reach):
                found.append(Applied(replace(items[number], beta=beta), outside, named, relative))
        if len(found) >= _FITS:
            break
    yield from sorted(found, key=lambda one: one.rank)[:_FITS]


def _products(solver: Solver, rows: Ints, columns: Ints) -> Iterator[tuple[list[Candidate], Numbers]]:
    """Candidates, and their products (candidates, rows, columns)."""
    reals = solver.reals
    a, b = reals.a[0, rows], reals.b[0, columns]
    for name, lines, other in (("a", rows, b), ("b", columns, a)):
        rules = [rule for rule in solver.rules[name] if not rule.crosses and not rule.recode]
        places = np.stack([lines * 0, lines, lines], axis=1)
        for first in range(0, len(rules), _BATCH):
            some = rules[first : first + _BATCH]
            products = solver.read(name, places, some) @ other.T
            items = [of_operand(name, rule) for rule in some]
            yield items, products if name == "a" else products.swapaxes(1, 2)
    for first in range(0, len(solver.counts), _BATCH):
        some_counts = solver.counts[first : first + _BATCH]
        yield [Candidate(count=one) for one in some_counts], np.stack([(a * one.weights) @ b.T for one in some_counts])


def _bases(products: Numbers, c: Numbers) -> Iterator[tuple[Numbers, bool, float]]:
    """Products with C inside, or outside, or without; whether it is added outside, and C's factor inside."""
    if not c.any():
        yield products, False, 1.0
        return
    yield products + c, False, 1.0
    yield products, True, 0.0
    yield products, False, 0.0


def _affine(base: Numbers, wanted: Numbers, reach: Callable[[Numbers], Numbers], axis: int) -> Iterator[int]:
    """The products of which every line is the wanted one up to a factor and a number."""
    along = 1 + axis
    middle, aim = base.mean(axis=along, keepdims=True), wanted.mean(axis=along, keepdims=True)
    own, off = base - middle, wanted - aim
    with np.errstate(all="ignore"):
        slope = (own * off).sum(axis=along, keepdims=True) / (own**2).sum(axis=along, keepdims=True)
        fits = np.abs(slope * own - off) <= reach(slope)
    telling = (np.abs(slope) > 1e-6).all(axis=(1, 2))
    yield from (int(one) for one in np.flatnonzero(telling & (fits.mean(axis=(1, 2)) > _SHARE)))


def _fitted(item: Candidate, outside: bool, axis: int, reals: Reals) -> Affine | None:
    """The factors and numbers of all lines, as one number where they are one."""
    finite = reals.finite[0]
    base = item.values(reals, 0)
    wanted = reals.observed[0] - (reals.c[0] if outside else 0.0)
    count = np.maximum(finite.sum(axis=axis, keepdims=True), 1)
    middle, aim = ((x * finite).sum(axis=axis, keepdims=True) / count for x in (base, wanted))
    own, off = (base - middle) * finite, (wanted - aim) * finite
    size = (own**2).sum(axis=axis, keepdims=True)
    slope = np.where(size > 0, (own * off).sum(axis=axis, keepdims=True) / np.maximum(size, 1e-300), 1.0)
    known = size > 0
    if np.ptp(slope[known]) <= _ALIKE * float(np.abs(slope[known]).max()):
        one = float(np.median(slope[known]))
        slope = np.full_like(
            slope,
            1.0
            if abs(one - 1) <= _ALIKE
            else float(f"{one:.4g}")
            if abs(one - float(f"{one:.4g}")) < _ALIKE * abs(one)
            else one,
        )
    offset = np.where(known, aim - slope * middle, 0.0)
    near = float(np.median(reals.stretched(float(np.abs(slope).max()), 0, times=2)))
    if np.ptp(offset) <= near:
        offset = np.full_like(offset, 0.0 if abs(float(offset.mean())) <= near else float(offset.mean()))
    found = Affine(item, outside, axis, slope, offset)
    plain = item.a.rank + item.b.rank + (item.count is not None) == 0
    return None if plain and not found.epilogue() else found


def _of_functions(
    problem: Problem, base: Numbers, wanted: Numbers, reach: Numbers
) -> Iterator[tuple[int, Named, float]]:
    """(number of the products, function, how far it may be off)."""
    whole = problem.machine.formats["d"].kind != "float"
    all_ = np.ones(wanted.shape, bool)
    size = np.sqrt((base**2).sum(axis=(1, 2)) * (wanted**2).sum()) + 1e-300
    alike = (base * wanted).sum(axis=(1, 2)) / size
    likely = np.arange(len(base)) if whole else np.flatnonzero(alike > _LIKE)  # sums that wrap are like nothing
    if not len(likely):
        return
    for named in casts() if whole else ACTIVATIONS:
        if named.along:
            continue
        for number in likely[_through(named.run, base[likely], wanted, reach, whole)].tolist():
            yield (
                number,
                named,
                0.0
                if whole
                else EXACT
                if _through(named.run, base[number : number + 1], wanted, reach, whole, EXACT)
                else NEAR,
            )
    for number in (int(one) for one in np.argsort(-alike)[:3]):
        if alike[number] > 0.5:
            for named in solved_functions(base[number][None], wanted, all_, all_, whole):
                if _through(named.run, base[number][None], wanted, reach, whole):
                    yield number, named, 0.0 if whole else EXACT


def _through(
    run: Function, base: Numbers, wanted: Numbers, reach: Numbers, whole: bool, relative: float = NEAR
) -> list[int]:
    """The products that a function takes to the wanted ones."""
    with np.errstate(all="ignore"):
        value = run(base)
        moved = (
            reach if whole else np.maximum(np.abs(run(base + reach) - value), np.abs(run(base - reach) - value)) + reach
        )
        far = moved if whole else moved + relative * np.abs(value)
        fits = np.abs(value - wanted) <= far
        changed = np.abs(value - base) > reach
    good = (fits.mean(axis=(1, 2)) > _SHARE) & (changed.mean(axis=(1, 2)) > 0.02)
    return [int(one) for one in np.flatnonzero(good)]
