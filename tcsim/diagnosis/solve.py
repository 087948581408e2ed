"""Which lines of A and B, which k and which C made each output: candidates tried on a few outputs in float64, then on all."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import product
from typing import Any

import numpy as np

from tcsim.core.samples import some_of
from tcsim.diagnosis.candidate import Candidate, of_operand
from tcsim.diagnosis.enough import enough, runs
from tcsim.diagnosis.hypothesis import Hypothesis
from tcsim.diagnosis.maps import SAME, Rule, depth_rules
from tcsim.diagnosis.other_c import c_addresses, free_lines, other_c
from tcsim.diagnosis.pipelines import Count
from tcsim.diagnosis.predicted import End, Way, way_of
from tcsim.diagnosis.problem import Problem
from tcsim.diagnosis.reals import Ints, Mask, Numbers, Reals, at_places
from tcsim.diagnosis.recoded import recoding_rules
from tcsim.diagnosis.rules import counts_of, rules_of
from tcsim.diagnosis.where import beyond_diagonal

_SAMPLES = 48  # outputs that every candidate is tried on
_PAIRED = 16  # outputs that pairs of rules are tried on first
_VERIFIED = 24  # candidates that are reckoned out in full
_OF_A_NAME = 4  # of them of one name
_NOTHING = 1e-9  # a factor that is none
_PART = 1e-6  # how near a factor is to a whole part of 1
_REPEATS = 4  # tiles that a place must be given in
WHOLE = 2  # what a candidate explains are whole blocks or lines
_RANKED = 400  # pairs of rules that are tried on more outputs
_BATCH = 64  # rules of A that are paired at once
_FIRST = 60  # candidates that are tried on right outputs too


@dataclass(frozen=True)
class Scored:
    """A candidate and the outputs that it explains."""

    item: Hypothesis
    gives: Mask
    clean: int  # WHOLE: they are whole blocks, or whole rows and columns; 1: the same places of all 16 x 8; 0: neither
    given: int  # of the outputs that are to be explained
    way: Way | None  # in which it gives every bit of a sample of them
    everywhere: bool  # it gives all outputs
    bits: bool = False  # it gives every bit of all outputs

    @property
    def key(self) -> tuple[bool, int, bool, bool, int, int]:
        """The order of all hypotheses, larger first: of whole blocks or lines before scattered ones; those that give more outputs, every bit, all outputs; then the simpler."""
        bits = self.bits or self.way is not None
        return self.clean > 0, self.given, bits, self.everywhere, self.clean, -self.item.rank


def foremost(found: list[Scored]) -> list[Scored]:
    """Those that explain as much as the best, simplest first."""
    found = sorted(found, key=lambda one: one.key, reverse=True)
    return [one for one in found if one.key[:4] == found[0].key[:4]]


@dataclass(frozen=True)
class Solver:
    """The candidates of a problem, and the search among them."""

    problem: Problem
    reals: Reals
    more: tuple[tuple[Rule, ...], tuple[Rule, ...]] = ((), ())  # rules read off the data, of a and of b
    ends: tuple[End, ...] = ()  # what the epilogue may do to the codes
    _few: dict[str, Numbers] = field(default_factory=dict, compare=False)  # what all rules read for the first samples

    @cached_property
    def rules(self) -> dict[str, tuple[Rule, ...]]:
        """Of each operand, the identity first, then those read off the data."""
        parts = self.reals.kept is not None or self.reals.factors is not None
        known = {
            name: [rule for rule in rules if parts or not rule.part] for name, rules in rules_of(self.problem).items()
        }
        return {name: (SAME, *own, *known[name]) for name, own in zip("ab", self.more, strict=True)}

    def _lines(self, side: int) -> int:
        """Rows of A or columns of B that were given."""
        return self.problem.size[side] if self.problem.size is not None else self.reals.c.shape[1 + side]

    @cached_property
    def counts(self) -> tuple[Count, ...]:
        """How K may be miscounted."""
        return counts_of(self.problem)

    def reading(self, count: Count) -> tuple[Rule, Rule] | None:
        """The simplest rule of both operands that takes each k so often; None if there is none."""
        k = np.arange(len(count.weights))
        both = [{rule.detail: rule for rule in depth_rules(len(k), self.problem.machine.shape[2])} for _ in "ab"]
        fits: list[tuple[int, int, str]] = []
        for detail, rule in both[0].items():
            at = rule.where(k * 0, k, k * 0)[1]
            if np.array_equal(np.bincount(at[at >= 0], minlength=len(k)), count.weights):
                fits.append((rule.rank, len(fits), detail))
        return (both[0][min(fits)[2]], both[1][min(fits)[2]]) if fits else None

    def best(self, open_: Mask, random: np.random.Generator, pairs: bool = True) -> list[Scored]:
        """The candidates that give most of the open outputs, simplest first; none if too few."""
        places = np.argwhere(open_)
        places = places[random.permutation(len(places))]
        zero = self.reals.observed[tuple(places.T)] == 0  # one in two, where there are many
        turns = np.where(zero, np.cumsum(zero), np.cumsum(~zero))
        chosen = places[np.argsort(turns, kind="stable")[:_SAMPLES]]
        found: list[Scored] = []
        for source in (self._singles, self._pairs)[: 1 + pairs]:
            found = foremost([*found, *self._verified(list(source(chosen)), open_)])
            if found and found[0].everywhere and found[0].given == len(places) and found[0].way is not None:
                break
        return found

    def of_c(self, open_: Mask) -> list[Scored]:
        """What is done to C alone that gives all outputs, simplest first: left out, added twice, another's."""
        if not self.reals.c.any():
            return []
        chosen = some_of(np.argwhere(open_), _SAMPLES)
        product = (self.reals.read("a", chosen, (SAME,))[0] * self.reals.read("b", chosen, (SAME,))[0]).sum(axis=1)
        listed = [*self._scored(chosen, product[None], lambda row: Candidate()), *self._other_c(chosen, product)]
        return [one for one in foremost(self._verified(listed, open_)) if one.everywhere]

    def reckoned(self, item: Hypothesis, open_: Mask) -> Scored | None:
        """What a hypothesis gives; None if it is next to nothing."""
        gives = item.gives(self.reals)
        own = gives & open_
        if own.sum() < min(8, int(open_.sum())):
            return None
        way = way_of(self.problem, item, own, self.ends) if isinstance(item, Candidate) else None
        everywhere = bool(gives[self.reals.finite].all())
        return Scored(item, gives, WHOLE if everywhere else clean(gives, open_), int(own.sum()), way, everywhere)

    def _verified(self, found: list[tuple[int, int, Candidate]], open_: Mask) -> list[Scored]:
        """The most promising of each name, reckoned out in full."""
        total = min(_SAMPLES, int(open_.sum()))
        least = max(1, min(total, 4 if self.reals.coarse == 0 else total // 4))
        good = sorted((item for item in found if item[0] >= least), key=lambda item: (-item[0], item[1]))
        good = self._by_right_outputs(good)
        called: dict[tuple[str, ...], int] = {}
        scored: list[Scored] = []
        for count, _, item in good:
            if count < 0.7 * good[0][0] or len(scored) == _VERIFIED:
                break
            names = (*(name for name, _, _ in item.names()), item.a.part, item.b.part)
            called[names] = called.get(names, 0) + 1
            one = self.reckoned(item, open_) if called[names] <= _OF_A_NAME else None
            if one is not None:
                scored.append(one)
        return scored

    def _lines_of(self, rules: Sequence[Rule], own: Ints, other: Ints) -> Ints:
        """(rules, samples): the line that a rule of whole lines puts in the place of each; its own for other rules."""
        return np.stack([rule.where(own, own * 0, other)[0] if rule.lines_only else own for rule in rules])

    def _c_at(self, t: Any, row: Ints, column: Ints) -> Numbers:
        """C at every row and every column; zeros outside."""
        c = self.reals.c[t]
        inside = ((row >= 0) & (row < len(c)))[:, None] & ((column >= 0) & (column < c.shape[1]))
        found: Numbers = np.where(inside, c[np.ix_(np.clip(row, 0, len(c) - 1), np.clip(column, 0, c.shape[1] - 1))], 0)
        return found

    @cached_property
    def _right(self) -> Ints:
        """Some outputs that are right, (n, 3)."""
        reals = self.reals
        places = np.argwhere(reals.near(reals.right))
        found: Ints = some_of(places, _PAIRED)
        return found

    def _by_right_outputs(self, good: list[tuple[int, int, Candidate]]) -> list[tuple[int, int, Candidate]]:
        """Of the first that match equally often, those before that also give outputs that are right."""
        chosen = self._right
        if not len(chosen):
            return good
        seen, c, reach = self._seen(chosen)
        first = good[:_FIRST]
        given = []
        read: dict[tuple[str, int], Numbers] = {}
        for _, _, item in first:
            for name, rule in (("a", item.a), ("b", item.b)):
                if (name, id(rule)) not in read:
                    read[name, id(rule)] = self.reals.read(name, chosen, (rule,))[0]
            terms = read["a", id(item.a)] * read["b", id(item.b)]
            product = (terms * (1.0 if item.count is None else item.count.weights)).sum(axis=1)
            t, i, j = chosen.T
            added = c if item.c is SAME else at_places(self.reals.c, t, *item.c.where(i, j, i * 0))
            given.append(int((np.abs(item.alpha * product + item.beta * added - seen) <= reach).sum()))
        order = sorted(range(len(first)), key=lambda one: (-first[one][0], -given[one], first[one][1]))
        return [*(first[one] for one in order), *good[_FIRST:]]

    def _seen(self, chosen: Ints) -> tuple[Numbers, Numbers, Numbers]:
        """Observed, C and reach at the samples."""
        place = tuple(chosen.T)
        return self.reals.observed[place], self.reals.c[place], self.reals.reach[place]

    def _scored(
        self, chosen: Ints, products: Numbers, made: Any, far: Numbers | float = 0.0
    ) -> Iterator[tuple[int, int, Candidate]]:
        """(matches, rank, candidate) of products (n, samples) that match often enough; `made` gives the candidate of a row."""
        seen, c, reach = self._seen(chosen)
        reach = np.maximum(reach, far)
        least = 4 if self.reals.coarse == 0 else len(seen) // 4
        options = (1.0, 0.0, 2.0) if c.any() else (1.0,)
        for beta in options:
            matches = (np.abs(products + beta * c - seen) <= reach).sum(axis=1)
            for row in np.flatnonzero(matches >= max(1, min(least, len(seen)))):
                item = replace(made(row), beta=beta)
                yield int(matches[row]), item.rank, item
        if len(seen) >= 8:
            wide = np.maximum(reach, self.reals.stretched(np.inf, tuple(chosen.T)))
            yield from self._fitted(products, seen, c, reach, wide, made)

    def _fitted(
        self, products: Numbers, seen: Numbers, c: Numbers, reach: Numbers, wide: Numbers, made: Any
    ) -> Iterator[tuple[int, int, Candidate]]:
        """Products that fit with factors alpha and beta that least squares give, outputs that are known better counting more.

        wide: how far rounding takes each output at most, whatever alpha.
        """
        products, seen, c, wide, reach = products / reach, seen / reach, c / reach, wide / reach, np.ones_like(reach)
        with np.errstate(all="ignore"):
            pp, pc, pd = (products**2).sum(1), products @ c, products @ seen
            cc, cd = float(c @ c), float(c @ seen)
            if cc > 0:
                below = pp * cc - pc**2
                alpha, beta = (pd * cc - cd * pc) / below, (cd * pp - pd * pc) / below
            else:
                alpha, beta = pd / pp, np.ones(len(pp))
            fit = alpha[:, None] * products + beta[:, None] * c
            fits = np.abs(fit - seen) <= np.minimum(np.maximum(1.0, np.abs(alpha))[:, None], wide)
            good = fits.mean(axis=1) > 0.95
        for row in np.flatnonzero(good & np.isfinite(alpha) & (np.abs(alpha) > _NOTHING)):
            open_ = 3 * float(np.sqrt(((fit[row] - seen) ** 2).mean()))
            size = pp[row] if cc <= 0 else below[row] / cc, below[row] / pp[row] if cc > 0 else np.inf
            lost = float(np.sqrt((reach**2).sum()))  # by sums that are cut towards zero
            cut = lost / float(np.sqrt(pp[row])), lost / float(np.sqrt(cc)) if cc > 0 else 0.0
            one = (
                round_factor(float(alpha[row]), self.reals.coarse, open_ / float(np.sqrt(size[0])), cut[0]),
                round_factor(float(beta[row]), self.reals.coarse, open_ / float(np.sqrt(size[1])), cut[1]),
            )
            if abs(one[0] - one[1]) < 1e-4 * abs(one[0]):
                one = one[0], one[0]
            item = replace(made(row), alpha=one[0], beta=one[1])
            if one != (1.0, 1.0) and one != (1.0, 0.0):
                yield int(fits[row].sum()), item.rank, item

    def _singles(self, chosen: Ints) -> Iterator[tuple[int, int, Candidate]]:
        plain = {name: self.reals.read(name, chosen, (SAME,))[0] for name in "ab"}
        yield from self._counted(chosen, Candidate(), plain["a"] * plain["b"])
        yield from self._recoded(chosen, plain)
        yield from self._other_c(chosen, (plain["a"] * plain["b"]).sum(axis=1))
        likely: list[tuple[float, Candidate, Numbers]] = []
        seen, c, _ = self._seen(chosen)
        for name, other in (("a", "b"), ("b", "a")):
            rules = self.rules[name]
            read = self.reals.read(name, chosen, rules)
            self._few[name] = read[:, :_PAIRED].copy()
            products = np.einsum("nsk,sk->ns", read, plain[other])
            yield from self._scored(chosen, products, lambda row, name=name, rules=rules: of_operand(name, rules[row]))
            size = np.linalg.norm(products, axis=1) * np.linalg.norm(seen - c) + 1e-300
            alike = products @ (seen - c) / size
            for row in np.argsort(-alike)[:4]:
                likely.append((float(alike[row]), of_operand(name, rules[row]), read[row] * plain[other]))
        for alike, item, terms in sorted(likely, key=lambda one: -one[0])[:6]:
            if alike > 0.3 and (item.a is not SAME or item.b is not SAME):
                yield from self._counted(chosen, item, terms)

    def _recoded(self, chosen: Ints, plain: dict[str, Numbers]) -> Iterator[tuple[int, int, Candidate]]:
        """Codes of an operand, or of both, that are changed on the way."""
        t, (seen, _, reach) = chosen[:, 0], self._seen(chosen)
        if (recoded := self.reals.recoded) is None:
            return
        for rule in recoding_rules():
            found = {name: recoded(name, rule.recode) for name in "ab"}
            read = {name: x[t, chosen[:, 1 + "ab".index(name)]] for name, x in found.items() if x is not None}
            for names in ("a", "b", "ab"):
                if read.keys() >= set(names):
                    a, b = (read[name] if name in names else plain[name] for name in "ab")
                    if (np.abs(a * b).sum(axis=1) > reach).any():  # else: they became next to nothing, as any loss does
                        item = Candidate(rule if "a" in names else SAME, rule if "b" in names else SAME)
                        yield from self._counted(chosen, item, a * b, self.reals.far(np.abs(a * b).sum(axis=1), seen))

    def _other_c(self, chosen: Ints, product: Numbers) -> Iterator[tuple[int, int, Candidate]]:
        """The right product, and C of other places, perhaps times a factor."""
        seen, c, reach = self._seen(chosen)
        if not c.any():
            return
        size = self._lines(0), self._lines(1)
        for rule in c_addresses(self.reals.c, size, chosen, seen - product, reach):
            yield len(chosen), rule.rank, Candidate(c=rule)
        reals, t = self.reals, int(chosen[0, 0])
        for rule in free_lines(reals.c[t], reals.observed[t] - reals.product[t], ~reals.near(reals.right)[t]):
            yield len(chosen), rule.rank, Candidate(c=rule)
        read, rules = other_c(*size).read(self.reals.c, *chosen.T)
        with np.errstate(all="ignore"):
            beta = (read @ (seen - product)) / (read**2).sum(axis=1)
        for factor in (np.ones(len(rules)), beta):
            far = self.reals.stretched(factor[:, None], tuple(chosen.T))
            fits = np.abs(product + factor[:, None] * read - seen) <= far
            matches = fits.sum(axis=1)
            holds = (read != 0).any(axis=1) & np.isfinite(factor)  # C that is zero has a simpler name
            for row in np.flatnonzero(holds & (matches > 0.7 * len(seen)) & (matches > 0)):
                item = Candidate(c=rules[row], beta=round_factor(float(factor[row]), self.reals.coarse))
                if item.beta != 0.0 and rules[row].detail:
                    yield int(matches[row]), item.rank, item

    def _counted(
        self, chosen: Ints, item: Candidate, terms: Numbers, far: Numbers | float = 0.0
    ) -> Iterator[tuple[int, int, Candidate]]:
        """The same with K miscounted; terms: the products of each sample, (samples, K); far: how far rounding takes them."""
        yield from self._scored(chosen, terms.sum(axis=1)[None], lambda row: item, far)
        if self.counts:
            weights = np.stack([one.weights for one in self.counts])
            yield from self._scored(chosen, weights @ terms.T, lambda row: replace(item, count=self.counts[row]), far)

    def _pairs(self, chosen: Ints) -> Iterator[tuple[int, int, Candidate]]:
        """A rule for each operand, after `_singles`."""
        few = chosen[:_PAIRED]
        rules_a, rules_b = self.rules["a"], self.rules["b"]
        a, b = self._few["a"], self._few["b"]
        seen, c, reach = self._seen(few)
        options = (1.0, 0.0, None) if c.any() else (1.0,)  # None: C is stored with the product
        matches = np.zeros((len(options), len(rules_a), len(rules_b)), np.int16)
        along = (self._lines_of(rules_a, few[:, 1], few[:, 2]), self._lines_of(rules_b, few[:, 2], few[:, 1]))
        for start, sample in product(range(0, len(rules_a), _BATCH), range(len(few))):
            rows = slice(start, start + _BATCH)  # of products that stay in a cache
            products = a[rows, sample] @ b[:, sample].T
            for place, beta in enumerate(options):
                lines = along[0][rows, sample], along[1][:, sample]
                own = beta * c[sample] if beta is not None else self._c_at(few[sample, 0], *lines)
                matches[place, rows] += np.abs(products + (own - seen[sample])) <= reach[sample]
        least = max(1, min(len(few), 3 if self.reals.coarse == 0 else 2 * len(few) // 3))
        hits = np.argwhere(matches >= least)
        if not len(hits):
            return
        plain = [np.array([np.array_equal(one, read[0]) for one in read]) for read in (a, b)]  # changes nothing here
        lines = np.array([option is None for option in options])[hits[:, 0]] & ((hits[:, 1] == 0) != (hits[:, 2] == 0))
        hits = hits[lines | (~plain[0][hits[:, 1]] & ~plain[1][hits[:, 2]])]
        ranks = [np.array([rule.rank for rule in rules]) for rules in (rules_a, rules_b)]
        hits = hits[np.lexsort((ranks[0][hits[:, 1]] + ranks[1][hits[:, 2]], -matches[tuple(hits.T)]))][:_RANKED]
        for option, one, two in hits:
            made = Candidate(rules_a[one], rules_b[two], stored=True)
            if options[option] is None and any(rule.lines_only and rule is not SAME for rule in (made.a, made.b)):
                yield int(matches[option, one, two]), made.rank, made
        hits = hits[[options[option] is not None for option in hits[:, 0]]]
        products = np.einsum("nsk,nsk->ns", *self._of_pairs(chosen, hits, rules_a, rules_b))
        yield from self._scored(chosen, products, lambda row: Candidate(rules_a[hits[row, 1]], rules_b[hits[row, 2]]))

    def _of_pairs(
        self, chosen: Ints, pairs: Ints, rules_a: Sequence[Rule], rules_b: Sequence[Rule]
    ) -> tuple[Numbers, Numbers]:
        """What the rules of some pairs (C's factor or none, rule of a, rule of b) read, (pairs, samples, K); each is read once."""
        read = []
        for name, rules, used in (("a", rules_a, pairs[:, 1]), ("b", rules_b, pairs[:, 2])):
            kept, place = np.unique(used, return_inverse=True)
            read.append(self.reals.read(name, chosen, [rules[one] for one in kept])[place])
        return read[0], read[1]


def clean(gives: Mask, open_: Mask) -> int:
    """WHOLE if a candidate gives whole lines, blocks of 8 x 8 or triangles, of all in which it gives an open output; 1 if places of every 16 x 8; else 0.

    What a mistake explains has such a shape: it is a tile's, a warp's or a register's. Scattered outputs are explained by chance.
    """
    own = gives & open_
    found = WHOLE
    for matrix, given in zip(own, gives, strict=True):
        if not matrix.any():
            continue
        rows, columns = matrix.any(axis=1), matrix.any(axis=0)
        held = given.any(axis=1)[:, None] & given.any(axis=0)  # without what pads to the instruction's shape
        tidy = given[np.ix_(rows, columns)].all() or beyond_diagonal(matrix[None], (given | ~held)[None])
        if tidy and enough(int(matrix.sum()), 2 * (runs(rows) + runs(columns) - 2)):
            continue
        whole = []
        for height, across in ((8, (1, 3)), (16, (0, 2))):
            asked, known = (_tiled(x, height, fill) for x, fill in ((matrix, False), (given, True)))
            many = height == 8 or asked.shape[0] * asked.shape[2] >= _REPEATS
            whole.append(many and not (asked.any(axis=across) & ~known.all(axis=across)).any())
        if not any(whole):
            return 0
        found = found if whole[0] else 1
    return found


def _tiled(mask: Mask, height: int, fill: bool) -> Mask:
    """(tiles along M, height, tiles along N, 8), with the ends filled up."""
    ends = ((0, -mask.shape[0] % height), (0, -mask.shape[1] % 8))
    padded = np.pad(mask, ends, constant_values=fill)
    return padded.reshape(padded.shape[0] // height, height, padded.shape[1] // 8, 8)


def round_factor(value: float, coarse: float, unsure: float = 0.0, cut: float = 0.0) -> float:
    """A factor as somebody would have written it, if it is one within rounding.

    unsure: how far the data leave it open; cut: by how much rounding towards zero may make a count of something too small.
    """
    if not -0.5 < value < 1.5 and 0 <= abs(round(value)) - abs(value) <= min(cut, 0.01):
        return float(round(value))
    near = max(1e-4, 2 * coarse)
    for number in (1.0, 2.0, -1.0, 0.5, 0.25, 0.125, 3.0, 4.0):
        if abs(value - number) <= near:
            return number
    if abs(value) <= max(_NOTHING, unsure):
        return 0.0
    part = float(np.rint(1 / value))
    if abs(value) < 1 and abs(value * part - 1) <= _PART:
        return 1 / part
    for digits in range(1, 6):
        short = float(f"{value:.{digits}g}")
        if abs(value - short) <= max(unsure, 2e-6 * abs(value) if digits < 5 else 0.0):
            return short
    return value
