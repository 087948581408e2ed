"""Outputs that are a function of the right ones, or of what another mistake gives: an activation, a clamp, a cast that wraps, factors and numbers of lines.

Each function is tried on the right outputs, on the product before C is added, on the slices of split-K, and on what every rule of one operand and every miscount of
K gives. What a function leaves open - the bounds of a clamp, a slope, a factor - is read off the outputs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from tcsim.core.samples import repeatable, some_of
from tcsim.diagnosis.candidate import Candidate, of_operand
from tcsim.diagnosis.enough import follows
from tcsim.diagnosis.hypothesis import Hypothesis
from tcsim.diagnosis.maps import STEPS
from tcsim.diagnosis.named_functions import ACTIVATIONS, Function, Named, casts, solved_functions, wrapped
from tcsim.diagnosis.problem import Codes, Problem
from tcsim.diagnosis.reals import Ints, Mask, Numbers, Reals, lines_of
from tcsim.diagnosis.solve import Solver
from tcsim.numbers.codec import decode, encode

EXACT, NEAR = 1e-5, 2e-3  # relative: how far a function may be off, and one that is computed by an approximation
_TELLS = 0.1  # of a usual output: how far rounding may take what a function makes of one
_SHARE = 0.9  # of the outputs that a function must change, in the place where it is applied


@dataclass(frozen=True, eq=False)
class Beneath(Hypothesis):
    """What an epilogue makes of what a candidate gives."""

    item: Candidate  # with C if that goes through the epilogue as well
    outside: bool  # C is added behind it

    @property
    def own(self) -> Candidate:
        """The candidate, which leaves no C out that is added behind."""
        return replace(self.item, beta=1.0) if self.outside else self.item

    def _with_c(self, values: Numbers, reals: Reals, matrix: int) -> Numbers:
        return values + reals.c[matrix] if self.outside else values


@dataclass(frozen=True, eq=False)
class Applied(Beneath):
    """A function of the outputs, or of the product before C is added."""

    named: Named
    relative: float  # how far it may be off; 0 of integers

    @property
    def rank(self) -> int:
        """Smaller is simpler."""
        return self.own.rank + self.named.rank + self.outside

    def names(self) -> list[tuple[str, str, str]]:
        """(mistake, detail, advice)."""
        detail = self.named.said + (", before c is added" if self.outside else "")
        loose = " (an approximation of it)" if self.relative == NEAR else ""
        return [*self.own.names(), (self.named.mistake, detail + loose, self.named.advice)]

    def values(self, reals: Reals, matrix: int) -> Numbers:
        """What it predicts of a matrix, (M, N), up to rounding."""
        with np.errstate(all="ignore"):
            return self._with_c(self.named.run(self.item.values(reals, matrix)), reals, matrix)

    def near(self, reals: Reals, matrix: int) -> Mask:
        """Which outputs of a matrix it gives, up to rounding and what a function of hardware is off."""
        rest = reals.c[matrix] if self.outside else 0.0
        return gives(reals, matrix, self.named.run, self.item.values(reals, matrix), rest, self.relative)

    def codes(self, problem: Problem) -> Codes | None:
        """What it predicts of every right output, if that is every bit of them; of others it is not known."""
        if self.own != Candidate():
            return None
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


def gives(reals: Reals, matrix: int, run: Function, x: Numbers, rest: Numbers | float, relative: float) -> Mask:
    """Which outputs a function gives. relative: how far it may be off; 0 of integers."""
    seen, reach = reals.observed[matrix], reals.reach[matrix]
    with np.errstate(all="ignore"):
        value = run(x)
        moved = np.maximum(np.abs(run(x + reach) - value), np.abs(run(x - reach) - value)) if relative else reach
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
                *(casts() if whole else ACTIVATIONS),
                *solved_functions(x, seen, own, reals.finite[matrix], whole),
            ):
                changes = _changes(named.run, x, reals.reach[matrix], own)
                if changes and gives(reals, matrix, named.run, x, rest, relative)[own].all():
                    values = named.run(x)
                    if not whole and not follows(values[own], seen[own]):
                        continue
                    off = float(np.abs(values - seen)[own].max())
                    item = Candidate(beta=0.0) if before_c else Candidate()
                    fits.append((round(off, 9), len(fits), Applied(item, before_c, named, relative)))
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


_SIDE = 14  # rows and columns that are tried
_BATCH = 64  # rules at a time
_FITS = 12  # hypotheses that are tried on all outputs
_LEAST = 24  # rows and columns that a problem must have
_ALIKE = 1e-4  # relative: numbers that are one number
_LIKE = 0.3  # the least correlation of what a function takes with what it gives
_TRIED_SHARE = 0.97  # of the outputs tried


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
    for items, products in _products_of(Solver(problem, reals), rows, columns):
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


def _products_of(solver: Solver, rows: Ints, columns: Ints) -> Iterator[tuple[list[Candidate], Numbers]]:
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
    yield from (int(one) for one in np.flatnonzero(telling & (fits.mean(axis=(1, 2)) > _TRIED_SHARE)))


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
        short = 1.0 if abs(one - 1) <= _ALIKE else float(f"{one:.4g}")
        slope = np.full_like(slope, short if abs(one - short) <= _ALIKE * abs(short) else one)
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
        for number in likely[_gone_through(named.run, base[likely], wanted, reach, whole)].tolist():
            exact = _gone_through(named.run, base[number : number + 1], wanted, reach, whole, EXACT)
            yield number, named, 0.0 if whole else EXACT if exact else NEAR
    for number in (int(one) for one in np.argsort(-alike)[:3]):
        if alike[number] > 0.5:
            for named in solved_functions(base[number][None], wanted, all_, all_, whole):
                if _gone_through(named.run, base[number][None], wanted, reach, whole):
                    yield number, named, 0.0 if whole else EXACT


def _gone_through(
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
    good = (fits.mean(axis=(1, 2)) > _TRIED_SHARE) & (changed.mean(axis=(1, 2)) > 0.02)
    return [int(one) for one in np.flatnonzero(good)]
