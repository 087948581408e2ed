"""Which lines of A and B, which k and which C made each output: candidates tried on a few outputs in float64, then on all."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from tcsim.diagnosis.counts import Count, counts
from tcsim.diagnosis.maps import SAME, Rule, depth_rules, line_rules, memory_rules, part_rules, shared_rules
from tcsim.diagnosis.problem import Part, Problem
from tcsim.diagnosis.reals import Ints, Mask, Numbers, Reals

_SAMPLES = 48  # outputs that every candidate is tried on
_PAIRED = 16  # outputs that pairs of rules are tried on first
_WIDE = 8  # lines of the other operand that share a crossing rule's answer
_VERIFIED = 10  # candidates that are reckoned out in full


@dataclass(frozen=True)
class Candidate:
    """Rules for both operands, how often each k is taken, and the factors of the product and of C."""

    a: Rule = SAME
    b: Rule = SAME
    count: Count | None = None
    alpha: float = 1.0
    beta: float = 1.0

    @property
    def rank(self) -> int:
        """Smaller is simpler."""
        plain = (self.alpha != 1.0) + (self.beta != 1.0)
        return self.a.rank + self.b.rank + (self.count.rank if self.count else 0) + plain

    def names(self) -> list[tuple[str, str, str]]:
        """(mistake, detail, advice) of each part."""
        found = [
            (rule.named(x), rule.detail, rule.advice.format(x=x))
            for x, rule in (("a", self.a), ("b", self.b))
            if rule is not SAME
        ]
        if self.count is not None:
            found.append((self.count.mistake, self.count.detail, self.count.advice))
        together = self.alpha == self.beta  # the whole result, c with it
        if self.alpha != 1.0:
            what = "all of it" if together else "the product"
            found.append(("result scaled", f"{what} times {self.alpha:.6g}", "look at alpha in the epilogue"))
        if self.beta == 0.0:
            found.append(("accumulator ignored", "c is taken for zero", "scale_d is 0, or c is not loaded"))
        elif self.beta == 2.0 and not together:
            found.append(("accumulator added twice", "", "c goes in as accumulator and again at the end"))
        elif self.beta != 1.0 and not together:
            found.append(("c scaled", f"c times {self.beta:.6g}", "look at beta in the epilogue"))
        return found

    def values(self, reals: Reals, matrix: int) -> Numbers:
        """What it predicts of a matrix, (M, N), up to rounding."""
        weights = 1.0 if self.count is None else self.count.weights
        if not self.a.crosses and not self.b.crosses:
            product = (_read(reals, "a", matrix, self.a) * weights) @ _read(reals, "b", matrix, self.b).T
        elif not self.b.crosses:
            right = _read(reals, "b", matrix, self.b).T
            product = _crossed(reals, "a", matrix, self.a, right, weights)
        elif not self.a.crosses:
            right = _read(reals, "a", matrix, self.a).T
            product = _crossed(reals, "b", matrix, self.b, right, weights).T
        else:
            product = np.empty((reals.c.shape[1], reals.c.shape[2]))
            for top in range(0, len(product), _WIDE):
                for left in range(0, product.shape[1], _WIDE):
                    rows = np.arange(top, min(top + _WIDE, product.shape[0]))
                    columns = np.arange(left, min(left + _WIDE, product.shape[1]))
                    a = _read(reals, "a", matrix, self.a, rows, left)
                    b = _read(reals, "b", matrix, self.b, columns, top)
                    product[top : top + _WIDE, left : left + _WIDE] = (a * weights) @ b.T
        found: Numbers = self.alpha * product + self.beta * reals.c[matrix]
        return found


def _crossed(reals: Reals, name: str, matrix: int, rule: Rule, right: Numbers, weights: Any) -> Numbers:
    """The product where each column reads lines of its own."""
    out = np.empty((reals.lines(name).shape[1], right.shape[1]))
    for left in range(0, right.shape[1], _WIDE):
        lines = _read(reals, name, matrix, rule, None, left)
        out[:, left : left + _WIDE] = (lines * weights) @ right[:, left : left + _WIDE]
    return out


def _read(reals: Reals, name: str, matrix: int, rule: Rule, which: Ints | None = None, other: int = 0) -> Numbers:
    """Lines (lines, K) as a rule reads them, for one line of the other operand."""
    lines = reals.lines(name)[matrix]
    if rule is SAME and which is None:
        return lines
    own = np.arange(len(lines)) if which is None else which
    if rule.part:
        return reals.other_part(
            name, rule.part, np.full(len(own), matrix), own, *_asked(reals, name, rule, own, np.full(len(own), other))
        )
    return _taken(lines, *rule.where(own[:, None], np.arange(lines.shape[1])[None], np.full((1, 1), other)))


def _asked(reals: Reals, name: str, rule: Rule, own: Ints, other: Ints) -> tuple[Ints, Ints]:
    """Whose metadata or factors a rule reads for some lines."""
    if rule.part == "metadata":
        width = 0 if reals.kept is None else reals.kept.shape[2]
    else:
        width = 0 if reals.factors is None else reals.factors["ab".index(name)].shape[2]
    return rule.where(own[:, None], np.arange(width)[None], other[:, None])


def _taken(lines: npt.NDArray[Any], row: Ints, k: Ints) -> npt.NDArray[Any]:
    """Elements at (row, k); zeros outside."""
    inside = (row >= 0) & (row < lines.shape[0]) & (k >= 0) & (k < lines.shape[1])
    return np.where(inside, lines[np.where(inside, row, 0), np.where(inside, k, 0)], lines.dtype.type(0))


@dataclass(frozen=True)
class Solver:
    """The candidates of a problem, and the search among them."""

    problem: Problem
    reals: Reals
    more: tuple[tuple[Rule, ...], tuple[Rule, ...]] = ((), ())  # rules read off the data, of a and of b

    @cached_property
    def rules(self) -> dict[str, tuple[Rule, ...]]:
        """Of each operand, the identity first."""
        machine, reals = self.problem.machine, self.reals
        found = {}
        step = machine.shape[2]
        for name, own in zip("ab", self.more, strict=True):
            lines, others = reals.lines(name), reals.lines("b" if name == "a" else "a")
            _, count, depth = lines.shape
            others_count = others.shape[1]
            more: list[Rule] = []
            if reals.factors is not None:
                along = reals.factors["ab".index(name)].shape[2]
                more += part_rules("scale", count, others_count, along, machine.blocks)
            if reals.positions is not None and name == "a":
                more += part_rules("metadata", count, others_count, reals.positions.shape[2], machine.kept)
            chunk = 128 // machine.formats[name].container_bits * (step // machine.kept if name == "a" else 1)
            found[name] = (
                SAME,
                *own,
                *line_rules(count, others_count),
                *depth_rules(depth, step),
                *memory_rules(count, depth, others_count, chunk, step),
                *shared_rules(count, depth, chunk, step),
                *more,
            )
        return found

    @cached_property
    def counts(self) -> tuple[Count, ...]:
        """How K may be miscounted."""
        return tuple(counts(self.reals.a.shape[2], self.problem.machine.shape[2]))

    def best(self, open_: Mask, random: np.random.Generator, pairs: bool = True) -> list[tuple[Candidate, Mask]]:
        """The candidates that give most of the open outputs, simplest first, and those that each gives; none if too few."""
        places = np.argwhere(open_)
        chosen = places[random.permutation(len(places))[:_SAMPLES]]
        best: list[tuple[bool, int, int, Candidate, Mask]] = []
        for source in (self._singles, self._pairs)[: 1 + pairs]:
            best += self._verified(list(source(chosen)), open_)
            best.sort(key=lambda one: one[:3], reverse=True)
            if best and best[0][0] and best[0][1] == len(places):
                break
        return [(item, gives) for tidy, count, _, item, gives in best if (tidy, count) == best[0][:2]]

    def gives(self, item: Candidate) -> Mask:
        """Which outputs a candidate gives, (batch, M, N)."""
        return np.stack([self.reals.near(item.values(self.reals, t), t) for t in range(len(self.reals.a))])

    def _verified(
        self, found: list[tuple[int, int, Candidate]], open_: Mask
    ) -> list[tuple[bool, int, int, Candidate, Mask]]:
        """(clean, outputs given, minus the rank, candidate, what it gives) of the most promising."""
        total = min(_SAMPLES, int(open_.sum()))
        least = max(1, min(total, 4 if self.reals.coarse == 0 else total // 4))
        good = sorted((item for item in found if item[0] >= least), key=lambda item: (-item[0], item[1]))
        scored = []
        for count, rank, item in good[:_VERIFIED]:
            if count < 0.7 * good[0][0]:
                break
            gives = self.gives(item)
            given = int((gives & open_).sum())
            if given >= min(8, int(open_.sum())):
                scored.append((clean(gives, open_), given, -rank, item, gives))
        return scored

    def _gathered(self, name: str, chosen: Ints, rules: Sequence[Rule]) -> Numbers:
        """(rules, samples, K): what each rule reads for each sample."""
        lines = self.reals.lines(name)
        t, i, j = chosen.T
        own, other = (i, j) if name == "a" else (j, i)
        out = np.empty((len(rules), len(chosen), lines.shape[2]))
        k = np.arange(lines.shape[2])[None]
        for number, rule in enumerate(rules):
            if rule.part:
                out[number] = self.reals.other_part(
                    name, rule.part, t, own, *_asked(self.reals, name, rule, own, other)
                )
                continue
            row, at = np.broadcast_arrays(*rule.where(own[:, None], k, other[:, None]))
            inside = (row >= 0) & (row < lines.shape[1]) & (at >= 0) & (at < lines.shape[2])
            out[number] = np.where(inside, lines[t[:, None], np.where(inside, row, 0), np.where(inside, at, 0)], 0.0)
        return out

    def _seen(self, chosen: Ints) -> tuple[Numbers, Numbers, Numbers]:
        """Observed, C and reach at the samples."""
        place = tuple(chosen.T)
        return self.reals.observed[place], self.reals.c[place], self.reals.reach[place]

    def _scored(self, chosen: Ints, products: Numbers, made: Any) -> Iterator[tuple[int, int, Candidate]]:
        """(matches, rank, candidate) of products (n, samples) that match often enough; `made` gives the candidate of a row."""
        seen, c, reach = self._seen(chosen)
        least = 4 if self.reals.coarse == 0 else len(seen) // 4
        options = (1.0, 0.0, 2.0) if c.any() else (1.0,)
        for beta in options:
            matches = (np.abs(products + beta * c - seen) <= reach).sum(axis=1)
            for row in np.flatnonzero(matches >= max(1, min(least, len(seen)))):
                item = replace(made(row), beta=beta)
                yield int(matches[row]), item.rank, item
        if len(seen) >= 8:
            yield from self._fitted(products, seen, c, reach, made)

    def _fitted(
        self, products: Numbers, seen: Numbers, c: Numbers, reach: Numbers, made: Any
    ) -> Iterator[tuple[int, int, Candidate]]:
        """Products that fit with factors alpha and beta that least squares give."""
        pp, pc, pd = (products**2).sum(1), products @ c, products @ seen
        cc, cd = float(c @ c), float(c @ seen)
        with np.errstate(all="ignore"):
            if cc > 0:
                below = pp * cc - pc**2
                alpha, beta = (pd * cc - cd * pc) / below, (cd * pp - pd * pc) / below
            else:
                alpha, beta = pd / pp, np.ones(len(pp))
            fit = alpha[:, None] * products + beta[:, None] * c
            fits = np.abs(fit - seen) <= np.maximum(1.0, np.abs(alpha))[:, None] * reach
            good = fits.mean(axis=1) > 0.95
        for row in np.flatnonzero(good & np.isfinite(alpha) & (np.abs(alpha) > 1e-6)):
            one = _round(float(alpha[row]), self.reals.coarse), _round(float(beta[row]), self.reals.coarse)
            item = replace(made(row), alpha=one[0], beta=one[1])
            if one != (1.0, 1.0) and one != (1.0, 0.0):
                yield int(fits[row].sum()), item.rank, item

    def _singles(self, chosen: Ints) -> Iterator[tuple[int, int, Candidate]]:
        plain = {name: self._gathered(name, chosen, (SAME,))[0] for name in "ab"}
        yield from self._counted(chosen, Candidate(), plain["a"] * plain["b"])
        likely: list[tuple[float, Candidate, Numbers]] = []
        seen, c, _ = self._seen(chosen)
        for name, other in (("a", "b"), ("b", "a")):
            rules = self.rules[name]
            read = self._gathered(name, chosen, rules)
            products = np.einsum("nsk,sk->ns", read, plain[other])
            yield from self._scored(
                chosen, products, lambda row, name=name, rules=rules: Candidate(**{name: rules[row]})
            )
            size = np.linalg.norm(products, axis=1) * np.linalg.norm(seen - c) + 1e-300
            alike = products @ (seen - c) / size
            for row in np.argsort(-alike)[:4]:
                likely.append((float(alike[row]), Candidate(**{name: rules[row]}), read[row] * plain[other]))
        for alike, item, terms in sorted(likely, key=lambda one: -one[0])[:6]:
            if alike > 0.3 and (item.a is not SAME or item.b is not SAME):
                yield from self._counted(chosen, item, terms)

    def _counted(self, chosen: Ints, item: Candidate, terms: Numbers) -> Iterator[tuple[int, int, Candidate]]:
        """The same with K miscounted; terms: the products of each sample, (samples, K)."""
        yield from self._scored(chosen, terms.sum(axis=1)[None], lambda row: item)
        if self.counts:
            weights = np.stack([one.weights for one in self.counts])
            yield from self._scored(chosen, weights @ terms.T, lambda row: replace(item, count=self.counts[row]))

    def _pairs(self, chosen: Ints) -> Iterator[tuple[int, int, Candidate]]:
        """A rule for each operand."""
        few = chosen[:_PAIRED]
        rules_a, rules_b = self.rules["a"], self.rules["b"]
        a, b = self._gathered("a", few, rules_a), self._gathered("b", few, rules_b)
        seen, c, reach = self._seen(few)
        options = (1.0, 0.0) if c.any() else (1.0,)
        matches = np.zeros((len(options), len(rules_a), len(rules_b)), np.int16)
        for sample in range(len(few)):
            products = a[:, sample] @ b[:, sample].T
            for place, beta in enumerate(options):
                matches[place] += np.abs(products + (beta * c[sample] - seen[sample])) <= reach[sample]
        least = max(1, min(len(few), 3 if self.reals.coarse == 0 else 2 * len(few) // 3))
        hits = np.argwhere(matches >= least)
        if not len(hits):
            return
        plain = [np.array([np.array_equal(one, read[0]) for one in read]) for read in (a, b)]  # changes nothing here
        hits = hits[~plain[0][hits[:, 1]] & ~plain[1][hits[:, 2]]]
        ranks = np.array([rules_a[one].rank + rules_b[two].rank for _, one, two in hits])
        hits = hits[np.lexsort((ranks, -matches[tuple(hits.T)]))][:200]
        for _, one, two in hits:
            made = Candidate(rules_a[one], rules_b[two])
            terms = self._gathered("a", chosen, (made.a,))[0] * self._gathered("b", chosen, (made.b,))[0]
            yield from self._scored(chosen, terms.sum(axis=1)[None], lambda row, made=made: made)


def clean(gives: Mask, open_: Mask) -> bool:
    """Whether a candidate gives whole rows and columns, or whole blocks of 8 x 8, of all in which it gives an open output.

    What a mistake explains has such a shape: it is a tile's, a warp's or a register's. Scattered outputs are explained by chance.
    """
    own = gives & open_
    for matrix, given in zip(own, gives, strict=True):
        if not matrix.any():
            continue
        rows, columns = matrix.any(axis=1), matrix.any(axis=0)
        if given[np.ix_(rows, columns)].all():
            continue
        height, width = (-(-size // 8) * 8 for size in matrix.shape)
        ends = ((0, height - matrix.shape[0]), (0, width - matrix.shape[1]))
        blocks = np.pad(matrix, ends).reshape(height // 8, 8, width // 8, 8).any(axis=(1, 3))
        whole = np.pad(given, ends, constant_values=True).reshape(height // 8, 8, width // 8, 8).all(axis=(1, 3))
        if (blocks & ~whole).any():
            return False
    return True


def _round(value: float, coarse: float) -> float:
    """A factor as somebody would have written it, if it is one within rounding."""
    for number in (0.0, 1.0, 2.0, -1.0, 0.5, 0.25, 0.125, 3.0, 4.0):
        if abs(value - number) <= max(1e-4, 2 * coarse):
            return number
    short = float(f"{value:.4g}")
    return short if abs(value - short) <= 2e-6 * max(1.0, abs(value)) else value


def codes_of(problem: Problem, item: Candidate) -> npt.NDArray[Any] | None:
    """The codes that a candidate predicts, (batch, M, N), bit for bit; None if its order of summation is not known."""
    if item.alpha != 1.0 or item.beta not in (0.0, 1.0):
        return None
    parts = {item.a.part, item.b.part} - {""}
    lines_only = item.a.lines_only and item.b.lines_only
    if not lines_only and not parts and (problem.positions is not None or problem.scales is not None):
        return None
    order: tuple[int, ...] | None = problem.order
    if item.count is not None:
        order = _steps(item.count.weights, problem.step)
    if order is None:
        return None
    changed = replace(problem, order=order)
    if item.beta == 0.0:
        changed = replace(changed, c=np.zeros_like(problem.c))
    out = np.empty(problem.observed.shape, problem.machine.formats["d"].dtype)
    height, width = out.shape[1:]
    tall = _WIDE if item.b.crosses else height
    wide = _WIDE if item.a.crosses else width
    for top in range(0, height, tall):
        for left in range(0, width, wide):
            rows, columns = np.arange(height)[top : top + tall], np.arange(width)[left : left + wide]
            one = _reread(_reread(changed, "a", item.a, left), "b", item.b, top)
            for matrix in range(len(out)):
                out[matrix, top : top + tall, left : left + wide] = one.predict(Part(matrix, rows, columns))
    return out


def _steps(weights: Numbers, step: int) -> tuple[int, ...] | None:
    """The instructions in order, if each has one weight."""
    padded = np.pad(weights, (0, -len(weights) % step), mode="edge").reshape(-1, step)
    if (padded != padded[:, :1]).any():
        return None
    return tuple(int(block) for block in np.repeat(np.arange(len(padded)), padded[:, 0].astype(int)))


def _reread(problem: Problem, name: str, rule: Rule, other: int) -> Problem:
    """The problem with an operand as a rule reads it, for one line of the other operand."""
    if rule is SAME:
        return problem
    if rule.part:
        return _other_part(problem, name, rule, other)
    lines = problem.a if name == "a" else problem.b.swapaxes(1, 2)
    row, k = (np.arange(size) for size in lines.shape[1:])
    row, k = np.broadcast_arrays(*rule.where(row[:, None], k[None], np.full((1, 1), other)))
    read = np.stack([_taken(codes, row, k) for codes in lines])
    line = np.clip(row[:, 0], 0, lines.shape[1] - 1)
    if name == "b":
        changed = replace(problem, b=read.swapaxes(1, 2))
        if problem.scales is not None:
            changed = replace(changed, scales=(problem.scales[0], problem.scales[1][:, :, line]))
        return changed
    changed = replace(problem, a=read)
    if problem.positions is not None:
        changed = replace(changed, positions=problem.positions[:, line])
    if problem.scales is not None:
        changed = replace(changed, scales=(problem.scales[0][:, line], problem.scales[1]))
    return changed


def _other_part(problem: Problem, name: str, rule: Rule, other: int) -> Problem:
    """The problem with other metadata, or other factors of an operand."""

    def read(lines: npt.NDArray[Any]) -> npt.NDArray[Any]:
        row, k = (np.arange(size) for size in lines.shape[1:])
        place = np.broadcast_arrays(*rule.where(row[:, None], k[None], np.full((1, 1), other)))
        return np.stack([_taken(codes, *place) for codes in lines])

    if rule.part == "metadata" and problem.positions is not None:
        return replace(problem, positions=read(problem.positions))
    if problem.scales is None:
        return problem
    own, others = problem.scales
    if name == "a":
        return replace(problem, scales=(read(own), others))
    return replace(problem, scales=(own, read(others.swapaxes(1, 2)).swapaxes(1, 2)))
