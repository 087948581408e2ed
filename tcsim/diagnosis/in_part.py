"""What is wrong in a part of K alone, as with one slice of split-K or one stage: the rest of K is taken off the outputs, and what is left is solved for by itself.

The part is read off the outputs. Of a part that is right the partial products stand in them once; of one that lies elsewhere they do not, or not in full.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from tcsim.core.samples import repeatable, some_of
from tcsim.diagnosis.addresses import addresses
from tcsim.diagnosis.candidate import Candidate
from tcsim.diagnosis.hypothesis import Hypothesis
from tcsim.diagnosis.least_squares import in_parts
from tcsim.diagnosis.maps import SAME, Rule, Where
from tcsim.diagnosis.moved import Moved, line_maps, moved
from tcsim.diagnosis.problem import Problem
from tcsim.diagnosis.reals import Ints, Mask, Numbers, Reals
from tcsim.diagnosis.solve import Scored, Solver
from tcsim.diagnosis.where import ranges

_UNITS = 32  # of K, at most
_SAMPLES = 8192  # outputs that the part is read off
_SURE = 0.06  # the standard error of a weight
_RIGHT = 0.25  # how far from 1 the weight of what is right may come out
PART = "look at the partial sums of this part of K: the workspace that a slice of split-K writes and reads, its pitch and its offsets; or at a stage that differs from the others"


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
        own = replace(self.item, alone=False).names()
        return [_said(mistake, detail, advice, self.of_k) for mistake, detail, advice in own]

    def values(self, reals: Reals, matrix: int) -> Numbers:
        """What it predicts of a matrix, (M, N), up to rounding: nothing is added where no partial sums are stored."""
        part = part_of(reals, self.of_k)
        row, column, inside = self.item.source((part.c.shape[1], part.c.shape[2]))
        found: Numbers = part.c[matrix] + np.where(inside, part.product[matrix][row, column], 0.0)
        return found


def in_part(problem: Problem, reals: Reals, open_: Mask) -> Iterator[Hypothesis]:
    """Rules of lines, or of stores, that hold for one part of K."""
    of_k = _part(problem, reals, open_)
    if of_k is None:
        return
    part = part_of(reals, of_k)
    for one, _ in moved(problem, part, open_) if not reals.floor else ():
        if one.alone:
            yield InPart(one, of_k)
    of_a, of_b = (
        own + other for own, other in zip(line_maps(part, open_), addresses(problem, part, open_), strict=True)
    )
    for found in Solver(problem, part, (of_a, of_b)).best(open_, repeatable()):
        item = _only(found, of_k)
        if item is not None:
            yield item


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
    t, i, j = some_of(places, _SAMPLES).T
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


def _only(found: Scored, of_k: Mask) -> Candidate | None:
    """A rule of A, of B or of both where it holds; None for what is more than that."""
    item = found.item
    if not isinstance(item, Candidate) or replace(item, a=SAME, b=SAME) != Candidate():
        return None
    return Candidate(_rule(item.a, of_k), _rule(item.b, of_k))


def _rule(rule: Rule, of_k: Mask) -> Rule:
    if rule is SAME:
        return rule
    mistake, detail, advice = _said(rule.mistake, rule.detail, rule.advice, of_k)
    where = partial(_where, rule.where, of_k)
    return replace(
        rule, mistake=mistake, detail=detail, advice=advice, where=where, rank=rule.rank + 1, lines_only=False
    )


def _said(mistake: str, detail: str, advice: str, of_k: Mask) -> tuple[str, str, str]:
    where = f"in K {ranges(np.flatnonzero(of_k))} alone"
    return f"{mistake} in a part of K", f"{detail}; {where}" if detail else where, f"{advice}; {PART}"


def _where(where: Where, of_k: Mask, r: Ints, k: Ints, o: Ints) -> tuple[Ints, Ints]:
    """As a rule reads the part, and nothing of it from outside."""
    there = of_k[np.minimum(k, len(of_k) - 1)]
    row, at = where(r, k, o)
    at = np.where((at >= 0) & (at < len(of_k)) & of_k[np.clip(at, 0, len(of_k) - 1)], at, -1)
    return np.where(there, row, r), np.where(there, at, k)
