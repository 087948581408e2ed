"""Mistakes in a part of K alone: rules of how a tile is read, partial sums that are transposed, and whatever is wrong in one slice.

What such a mistake changes in an output is a sum over K, so that the tiles of K in which it holds are a solution of linear equations: weights of 0 and 1.
Of a slice that lies elsewhere the partial products do not stand in the outputs once: the rest of K is taken off, and what is left is solved for by itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from typing import Any

import numpy as np

from tcsim.core.samples import some_of
from tcsim.diagnosis.candidate import Candidate
from tcsim.diagnosis.hypothesis import Hypothesis
from tcsim.diagnosis.least_squares import in_parts, samples
from tcsim.diagnosis.maps import LATE, SAME, Rule, Where
from tcsim.diagnosis.moved import Moved, moved
from tcsim.diagnosis.problem import Codes, Problem
from tcsim.diagnosis.reals import Ints, Mask, Numbers, Reals
from tcsim.diagnosis.solve import Solver
from tcsim.diagnosis.where import ranges
from tcsim.numbers.codec import decode, encode

TIMES = (16, 8, 4, 2, 1)  # instructions in a tile's K
_MOST = 24  # tiles
_LINES = (0, 1, 2, 3, 4, 5, 6, 7, 9, 15, 17, 31, 33, 63)  # by which it is seen whether a rule stays inside a tile
_SAMPLES = 12  # outputs beyond one for each tile
_AT_ONCE = 64  # rules
_OFF = 0.1  # how far from 0 or 1 a weight may come out
_STAGES = (2, 3, 4, 5, 6)
_STAGE = "the other K tiles are right: look at what differs from stage to stage, as the address at which each begins"


def in_some_tiles(problem: Problem, reals: Reals, open_: Mask) -> Iterator[Candidate]:
    """Rules of one operand, or of both alike, in the tiles of K in which they hold, of the largest tile that gives any."""
    units = [size for size in (times * problem.step for times in TIMES) if size < reals.a.shape[2] <= _MOST * size]
    chosen = samples(reals, open_, -(-reals.a.shape[2] // units[-1])) if units else None
    if chosen is None:
        return
    solver = Solver(problem, reals)
    chosen = chosen[: -(-reals.a.shape[2] // units[-1]) + _SAMPLES]
    found: dict[int, list[Candidate]] = {unit: [] for unit in units}
    for unit, item in _found(solver, chosen, units):
        found[unit].append(item)
    yield from sorted(next(filter(None, found.values()), []), key=lambda item: item.rank)


def _found(solver: Solver, chosen: Ints, units: list[int]) -> Iterator[tuple[int, Candidate]]:
    """What fits the chosen outputs, with the size of the tiles. units: sizes, the largest first."""
    reals, place = solver.reals, tuple(chosen.T)
    plain = [solver.reals.read(name, chosen, (SAME,)) for name in "ab"]
    terms = plain[0] * plain[1]
    wanted = (reals.observed - reals.c)[place] - terms[0].sum(axis=1)
    pairs = _pairs(solver, units)
    for some in (pairs[start : start + _AT_ONCE] for start in range(0, len(pairs), _AT_ONCE)):
        read = [solver.reals.read(name, chosen, [pair[side] for pair in some]) for side, name in enumerate("ab")]
        for of_a, of_b in ((True, False), (False, True), (True, True)):
            changes = (read[0] if of_a else plain[0]) * (read[1] if of_b else plain[1]) - terms
            for unit in units:
                for number, holds in holding(in_parts(changes, unit).sum(axis=3), wanted, reals.reach[place]):
                    own = some[number][0] if of_a else SAME, some[number][1] if of_b else SAME
                    if all(_stays(rule, solver, name, unit) for rule, name in zip(own, "ab", strict=True)):
                        a, b = (_only(rule, solver, name, holds, unit) for rule, name in zip(own, "ab", strict=True))
                        yield unit, Candidate(a, b)


def _pairs(solver: Solver, units: list[int]) -> list[tuple[Rule, Rule]]:
    """Rules of A and of B that stay inside the largest tiles of K, those that are alike together."""
    kept = [
        {
            (rule.mistake, rule.detail, rule.part): rule
            for rule in solver.rules[name]
            if _stays(rule, solver, name, units[0])
        }
        for name in "ab"
    ]
    return [(kept[0].get(key, SAME), kept[1].get(key, SAME)) for key in kept[0] | kept[1]]


def _width(rule: Rule, solver: Solver, name: str) -> int:
    """The extent along K of what a rule counts: elements, those kept of a sparse A, or scale factors."""
    reals = solver.reals
    if reals.kept is not None and rule.part in ("metadata", "data"):
        return reals.kept.shape[2]
    return reals.factors["ab".index(name)].shape[2] if rule.part == "scale" and reals.factors else reals.a.shape[2]


def _stays(rule: Rule, solver: Solver, name: str, unit: int) -> bool:
    """Whether every k comes from its own tile."""
    if rule is SAME:
        return True
    if rule.crosses or rule.recode or (rule.mistake == LATE and rule.rank > 2):  # of one block alone
        return False
    width = _width(rule, solver, name)
    part, k = max(1, unit * width // solver.reals.a.shape[2]), np.arange(width)[None]
    for lines in (_LINES[-1:], _LINES):  # the last one shows most
        own = np.array(lines)[:, None]
        row, at = np.broadcast_arrays(*rule.where(own, k, 0 * own[:1]))
        if not ((at // part == k // part) | (row < 0) | (at < 0)).all():
            return False
    return True


def holding(changes: Numbers, wanted: Numbers, reach: Numbers) -> Iterator[tuple[int, Mask]]:
    """The rules of (rules, samples, tiles) whose changes in some of the tiles, not in all that they change, are the wanted ones."""
    changes = np.where(
        np.isfinite(changes).all(axis=(1, 2), keepdims=True), changes, 0.0
    )  # what overflows holds nowhere
    size = np.linalg.norm(changes, axis=1)
    moves = size > 1e-9 * size.max(axis=1, keepdims=True, initial=1e-300)
    scaled = changes / np.where(moves, size, np.inf)[:, None]
    products = scaled.swapaxes(1, 2) @ scaled + 1e-9 * np.eye(scaled.shape[2])
    found = np.linalg.solve(products, (wanted @ scaled)[:, :, None])[:, :, 0] / np.where(moves, size, 1.0)
    holds = moves & (found > 0.5)
    near = (np.abs(found - holds) <= _OFF) | ~moves
    fits = np.abs(np.einsum("nst,nt->ns", changes, holds.astype(np.float64)) - wanted) <= reach
    some = holds.any(axis=1) & (holds != moves).any(axis=1)
    for number in np.flatnonzero(near.all(axis=1) & fits.all(axis=1) & some):
        yield int(number), holds[number]


def _only(rule: Rule, solver: Solver, name: str, holds: Mask, unit: int) -> Rule:
    """The rule where it holds."""
    if rule is SAME:
        return SAME
    depth = solver.problem.length
    k = np.flatnonzero(np.repeat(holds, unit)[:depth])
    said = f"{rule.detail}; in K {ranges(k)} alone"
    for stages in _STAGES:
        turn = np.arange(len(holds)) % stages
        if stages < len(holds) and np.array_equal(holds, turn == turn[holds.argmax()]):
            said += f", which is stage {turn[holds.argmax()]} of {stages} if tiles are {unit} long"
            break
    part = max(1, unit * _width(rule, solver, name) // solver.reals.a.shape[2])
    where = partial(_where, rule.where, holds, part)
    return replace(rule, detail=said, advice=f"{rule.advice}; {_STAGE}", where=where, rank=rule.rank + 1)


def _where(where: Where, holds: Mask, part: int, r: Ints, k: Ints, o: Ints) -> tuple[Ints, Ints]:
    there = holds[np.minimum(k // part, len(holds) - 1)]
    row, at = where(r, k, o)
    return np.where(there, row, r), np.where(there, at, k)


@dataclass(frozen=True, eq=False)
class InPart(Hypothesis):
    """Outputs whose products of a part of K lie at another place; the rest of K and C are right."""

    item: Moved
    of_k: Mask

    @property
    def rank(self) -> int:
        """Smaller is simpler."""
        return self.item.rank + 1

    def names(self) -> list[tuple[str, str, str]]:
        """(mistake, detail, advice)."""
        where = f"in K {ranges(np.flatnonzero(self.of_k))} alone"
        return [
            (f"{mistake} in a part of K", f"{detail}; {where}" if detail else where, f"{advice}; {PART}")
            for mistake, detail, advice in replace(self.item, alone=False).names()
        ]

    def _moved(self, sums: Numbers) -> Numbers:
        """Sums (M, N) where they are added: nothing where none are stored."""
        row, column, inside = self.item.source((sums.shape[0], sums.shape[1]))
        found: Numbers = np.where(inside, sums[row, column], sums.dtype.type(0))
        return found

    def values(self, reals: Reals, matrix: int) -> Numbers:
        """What it predicts of a matrix, (M, N), up to rounding."""
        part = (reals.a[matrix] * self.of_k) @ reals.b[matrix].T
        return reals.right[matrix] - part + self._moved(part)

    def near(self, reals: Reals, matrix: int) -> Mask:
        """Which outputs of a matrix it gives, up to rounding: that of the place where a sum was made."""
        part = np.abs(reals.a[matrix] * self.of_k) @ np.abs(reals.b[matrix]).T
        size = reals.reach[matrix] / reals.unit + self._moved(part) if reals.unit else 0.0
        return reals.near(self.values(reals, matrix), matrix, size)

    def codes(self, problem: Problem) -> Codes:
        """What it predicts of every output, bit for bit: the slices' sums, each from zero, added up, with C first or last."""
        format = problem.machine.formats["d"]
        kind = np.float64 if format.kind != "float" else np.float16 if format.name == "f16" else np.float32
        c = decode(problem.c, problem.machine.formats["c"]).astype(kind)
        bare = problem.bare
        found: list[Codes] = []
        for cut, late in product(self._cuts(problem), (False, True)[: 1 + bool(c.any())]):
            total: Any = c * 0
            for number, (steps, turned) in enumerate(cut):
                first = bare if number == 0 and not late and not turned else replace(bare, c=np.zeros_like(bare.c))
                sums = decode(replace(first, order=steps).outputs, format).astype(kind)
                sums = np.stack([self._moved(x) for x in sums]) if turned else sums
                total = total + sums + (c if number == 0 and not late and turned else 0)
            found.append(problem.after_clamp(encode(total + c if late else total, format)))
        return max(found, key=lambda codes: int((codes == problem.observed).sum()))

    def _cuts(self, problem: Problem) -> Iterator[list[tuple[tuple[int, ...], bool]]]:
        """The slices of K, with whether each is moved: as long as the moved one, and as long as can be."""
        steps, held = np.arange(problem.blocks), self.of_k[:: problem.step]
        runs = np.split(steps, np.flatnonzero(np.diff(held.astype(int))) + 1)
        longest = max(len(run) for run in runs if held[run[0]])
        for size in (longest, len(steps)):
            cut = [run[at : at + size] for run in runs for at in range(0, len(run), size)]
            yield [(tuple(int(step) for step in run), bool(held[run[0]])) for run in cut]


_UNITS = 32  # of K, at most
_READ_OFF = 8192  # outputs that the part is read off
_SURE = 0.06  # the standard error of a weight
_RIGHT = 0.25  # how far from 1 the weight of what is right may come out
PART = "look at the partial sums of this part of K: the workspace that a slice of split-K writes and reads, its pitch and its offsets; or at a stage that differs from the others"


def in_part(problem: Problem, reals: Reals, open_: Mask) -> Iterator[InPart]:
    """Rules of stores that hold for one part of K."""
    of_k = _part(problem, reals, open_)
    if of_k is None:
        return
    for one, _ in moved(problem, part_of(reals, of_k), open_, lambda item: InPart(item, of_k).gives(reals)):
        if one.alone and not reals.floor:
            yield InPart(one, of_k)


def part_of(reals: Reals, of_k: Mask) -> Reals:
    """The numbers of a part of K: what the rest of it adds belongs to C."""
    a, b = reals.a * of_k, reals.b * of_k
    product = a @ b.swapaxes(1, 2)
    bare = replace(reals, kept=None, positions=None, factors=None, bare=None, recoded=None)
    return replace(bare, a=a, b=b, c=reals.right - product, product=product)


def _part(problem: Problem, reals: Reals, open_: Mask) -> Mask | None:
    """(K,): which k are not in the open outputs once; None if all are, none is, or it cannot be told."""
    known = open_ & reals.usable
    places = np.argwhere(known)
    depth = reals.a.shape[2]
    if len(reals.a) > 1:
        return None
    t, i, j = some_of(places, _READ_OFF).T
    unit = problem.step
    while -(-depth // unit) > _UNITS:
        unit *= 2
    while unit < depth:
        terms = in_parts(reals.a[t, i] * reals.b[t, j], unit).sum(axis=2)
        wanted = (reals.observed - reals.c)[t, i, j]
        if len(i) > 2 * terms.shape[1] and np.isfinite(terms).all() and np.isfinite(wanted).all():
            weight, *_ = np.linalg.lstsq(terms, wanted, rcond=None)
            off = float(np.sqrt(((terms @ weight - wanted) ** 2).sum() / (len(i) - terms.shape[1])))
            error = off / np.maximum(np.linalg.norm(terms, axis=0), 1e-300)
            if error.max() <= _SURE:
                wrong = np.abs(weight - 1) > _RIGHT
                return np.repeat(wrong, unit)[:depth] if wrong.any() and not wrong.all() else None
        unit *= 2
    return None
