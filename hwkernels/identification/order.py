"""Which products are added in one step: found without knowing anything else of the machine.

One step adds exactly, so its order cannot matter: two products may change places, and the answer stays. Where it changes, they lie in different
steps, or in different groups of one step (scaled sums of groups), which may change places as wholes.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import Any

import numpy as np

from hwkernels.identification.codes import code, most
from hwkernels.identification.machine import Array, Batch, Unknown
from hwkernels.identification.questions import Questions
from tcsim.core.samples import repeatable
from tcsim.numbers.formats import Format

_KINDS = ("dense", "long", "cancel", "addend", "edge", "low", "high", "wide", "heaped")
_LONG = {"dense": 60, "low": 60, "long": 120, "wide": 120, "heaped": 120}
"""Questions whose answers most often depend on the order of all products, and how many of each are asked at once."""
_ROUNDS = 4
_GAPS = (28, 24, 20, 17, 14, 11, 8)
"""Binades between what takes in and what is taken in, tried where formats do not reach further."""


class Order:
    """Asks an unknown machine which of its products may change places."""

    def __init__(self, unknown: Unknown, questions: Questions, effort: int = 1) -> None:
        self.unknown, self.questions, self.effort = unknown, questions, effort
        self.known: set[tuple[int, int]] = set()  # products of which a question showed that they may not change places
        self.chain = [tuple(range(questions.signature.k))]  # what borrows or cancelling powers showed

    def ask(self, batch: Batch) -> Array:
        """Answers."""
        return batch.ask(self.unknown)

    def sensitive(self) -> Batch | None:
        """Questions whose answers depend on the order of the products; None if none was found."""
        questions, k = self.questions, self.questions.signature.k
        found: list[Batch] = []
        for _ in range(3):
            batch = joined([questions.ask(kind, count * self.effort, range(k)) for kind, count in _LONG.items()])
            self._same_scales(batch)
            answers = [self.ask(batch), *(self._shuffled(batch) for _ in range(2))]
            some = np.flatnonzero((np.array(answers) != answers[0]).any(axis=0))
            if len(some):  # those with the most answers are the best
                more = [*(own[some] for own in answers), *(self._shuffled(batch[some]) for _ in range(2))]
                kinds = np.array([len(set(column)) for column in np.array(more).T.tolist()])
                found.append(batch[some[np.argsort(-kinds, kind="stable")[:96]]])
            if sum(map(len, found)) >= 48:
                break
        return joined(found) if found else None

    def _shuffled(self, batch: Batch) -> Array:
        """Answers to the same products in another order."""
        return self.ask(_permuted(batch, self.questions.rng.permutation(self.questions.signature.k)))

    def borrowed(self) -> list[tuple[int, ...]]:
        """Products in the order in which they are added, as a borrow shows it; those of one step, or not told apart, together.

        c is the lowest power of two above which a unit is lost. A product of two units brings the sum below it, where a unit is kept:
        so one that is added afterwards is kept, and one that is added before is lost. In one step both orders do the same.
        """
        questions, k = self.questions, self.questions.signature.k
        bits = np.arange(1, questions.c.fraction_bits + 2)
        alone = questions.empty(len(bits))
        alone.c[:] = code(questions.c, bits - 1, 2 - 2.0 ** (1 - bits), 0 * bits)
        kept = int(np.cumprod(questions.d.values(self.ask(alone)) == 2.0**bits - 1).sum())
        power = alone[:1]
        power.c[:] = code(questions.c, np.array([kept]), np.ones(1), np.zeros(1))
        return self._borrowed(tuple(range(k)), power) if kept > 1 else [tuple(range(k))]

    def _borrowed(self, members: tuple[int, ...], power: Batch) -> list[tuple[int, ...]]:
        """Those before one of some products, those of its step, and those after it."""
        pivot = members[len(members) // 2]
        others = np.array([i for i in members if i != pivot], int)
        batch = power[np.zeros(2 * len(others), int)]
        rows, pivots = np.arange(len(batch)), np.full(len(others), pivot)
        of_a, of_b = self.questions.formats
        one, plus = np.ones(len(rows)), np.zeros(len(rows), int)
        for columns, exponent, sign in (((others, pivots), 1, 1), ((pivots, others), 0, 0)):
            at = rows, np.concatenate(columns)
            batch.a[at], batch.b[at] = code(of_a, plus + exponent, one, plus + sign), code(of_b, plus, one, plus)
        lost = self.questions.c.values(batch.c) - self.questions.d.values(self.ask(batch)) - 1
        if not np.isin(lost, (-1, 0, 1)).all():  # -1: of two in one group, only the sum is cut
            return [members]
        other, own = lost.reshape(2, -1)
        parts = [tuple(others[some].tolist()) for some in (other < own, other > own)]
        step = tuple(sorted({*members} - {*parts[0], *parts[1]}))
        earlier, later = (self._borrowed(part, power) if part else [] for part in parts)
        return [*earlier, step, *later]

    def chained(self) -> list[tuple[int, ...]]:
        """Products in the order in which they are added, as far as cancelling powers show it; those of one step, or not told apart, together.

        A small power is left beside two large ones that cancel if it is added after both of them (as Xie, Gao and Xue reveal orders:
        FPRev, USENIX ATC 2025). Of some products, one that is left beside more others is added later.
        """
        questions, rng, k = self.questions, repeatable(), self.questions.signature.k
        questions.lift = 0
        top = min(questions.highest, most(questions.c), most(questions.d) - 1)
        reach, deepest = (top - max(x, questions.d.minimum_exponent) for x in (questions.lowest, questions.deepest))
        for gap in sorted({deepest, reach, *(gap for gap in _GAPS if gap < reach)}, reverse=True):
            some = np.array([rng.permutation(k + 1)[:3] for _ in range(40 if k > 2 and gap >= _GAPS[-1] else 0)])
            some = some[(some[:, 1:] < k).all(axis=1)] if len(some) else some
            left = self._left(some, top, gap)
            if len(set(left)) == 2 and max(left) == 1 and (found := self._chained(rng, top, gap)):
                return found
        return [tuple(range(k))]

    def _chained(self, rng: np.random.Generator, top: int, gap: int) -> list[tuple[int, ...]]:
        """The same with powers of two whose exponents are `top` and `gap` less; nothing if they do not show it."""
        found, rest = list[tuple[int, ...]](), np.arange(self.questions.signature.k)
        first, tried = len(rest), 1  # c, and after it a product of those that are left
        while len(rest) > 2 and tried <= 4:
            late = self._after(first, rest[rest != first], top, gap)
            if late is None:
                break
            found, rest = late + found, np.setdiff1d(rest, sum(late, ()))
            tried = 1 if late else tried + 1
            first = int(rng.permutation(rest)[0]) if len(rest) else first
        return [tuple(rest.tolist()), *found][not len(rest) :] if found else []

    def _after(self, first: int, others: Array, top: int, gap: int) -> list[tuple[int, ...]] | None:
        """Products that are added after the first one or with it, in their order; None if the answers are no such sums'."""
        table = np.ones((len(others), len(others)))  # the product that cancels the first one, the small one
        apart = ~np.eye(len(others), dtype=bool)
        terms = [(first, j, small) for j in others for small in others if j != small]
        table[apart] = self._left(np.array(terms), top, gap)
        if not np.isfinite(table).all():
            return None
        mates = table.all(axis=1)  # cancel before a bit is lost: in one step that keeps all, or before the rest
        begins = mates.any() and not table[np.ix_(~mates, mates)].any()
        count = (table * apart)[~mates].sum(axis=0) + begins
        late = [tuple(others[(count == own) & ~mates].tolist()) for own in sorted(set(count[~mates])) if own]
        if mates.any():
            with_first = [first] if first < self.questions.signature.k else []
            late.insert(0, tuple(sorted([*others[mates].tolist(), *with_first])))
        return late

    def _left(self, terms: Array, top: int, gap: int) -> Array:
        """Of a large power (k: the addend), its opposite and a small one (n, 3), whether the small one is left: 1 or 0; or infinity, if something else is."""
        questions, k = self.questions, self.questions.signature.k
        batch = questions.empty(2 * len(terms))
        if not len(terms):
            return np.zeros(0)
        rows, (large, other, small) = np.arange(len(batch)), np.tile(terms, (2, 1)).T
        sign, product = np.repeat([0, 1], len(terms)), large < k
        for place, exponent, negative in ((large, top, 0 * sign), (other, top, 1 + 0 * sign), (small, top - gap, sign)):
            at, of_a = (rows[place < k], place[place < k]), np.full((place < k).sum(), exponent)
            one, (of_a, of_b) = np.ones(len(of_a)), _shared(of_a, *questions.formats)
            batch.a[at] = code(questions.formats[0], of_a, one, negative[place < k])
            batch.b[at] = code(questions.formats[1], of_b, one, 0 * of_b)
        batch.c[~product] = code(
            questions.c, np.full((~product).sum(), top), np.ones((~product).sum()), 0 * sign[~product]
        )
        with np.errstate(invalid="ignore"):
            left = questions.d.values(self.ask(batch)) * 2.0 ** (gap - top) * (1 - 2 * sign)
        left[~((left == 0) | (left == 1))] = np.inf
        least: Array = left.reshape(2, -1).min(axis=0)
        return least

    @staticmethod
    def _same_scales(batch: Batch) -> None:
        for scale in (batch.scale_a, batch.scale_b):
            if scale is not None:
                scale[...] = scale[:, :1]

    def classes(self) -> list[tuple[int, ...]]:
        """Products that may change places, and so lie in one step, or in one group of it."""
        self.chain = self.borrowed()
        surely = len(self.chain) > 1
        if not surely:
            self.chain = self.chained()
        apart = ((one, other) for own, later in combinations(self.chain, 2) for one in own for other in later)
        self.known |= {(min(pair), max(pair)) for pair in apart}
        place = {i: rank for rank, members in enumerate(self.chain) for i in members}
        return sorted(self._classes(self.chain, 1 if surely else 2), key=lambda members: (place[members[0]], members))

    def _classes(self, found: list[tuple[int, ...]], enough: int) -> list[tuple[int, ...]]:
        """Classes divided until they were found to be whole so often in a row."""
        contexts = self.sensitive() if len(found) == 1 else None
        if contexts is not None:
            found = self._divided(contexts, found)
        quiet = 0
        early = {members[0] for members in found}
        for others in (1, 3) * _ROUNDS:
            wrong = self._refuted(found, others)
            quiet = 0 if wrong is not None else quiet + 1
            if quiet == enough:
                break
            if wrong is None:
                continue
            contexts = wrong if contexts is None else joined([wrong, contexts])
            found = self._divided(wrong, found)
            found = self._united(contexts[: 96 * self.effort], found, early)
        return found

    def _united(self, contexts: Batch, classes: list[tuple[int, ...]], early: set[int]) -> list[tuple[int, ...]]:
        """Classes that were divided late, with the one that they may change places with: a product may have lain in a wrong class."""
        base, found = self.ask(contexts), [members for members in classes if members[0] in early]
        for members in classes:
            if members[0] in early:
                continue
            free = [place for place, other in enumerate(found) if not self._known(members, other)]
            apart = self._apart(contexts, base, members[0], [found[place][0] for place in free])
            if all(apart):
                found.append(members)
            else:
                place = free[apart.index(False)]
                found[place] = tuple(sorted(found[place] + members))
        return sorted(found)

    def _known(self, members: Sequence[int], others: Sequence[int]) -> bool:
        return any((i, j) in self.known or (j, i) in self.known for i in members for j in others)

    def _divided(self, contexts: Batch, classes: list[tuple[int, ...]]) -> list[tuple[int, ...]]:
        """Classes divided where a swap of two members changes an answer."""
        base, done = self.ask(contexts), []
        parts = [list(members) for members in classes]
        while parts:
            part = parts.pop(0)
            first, others = part[0], part[1:]
            apart = self._apart(contexts, base, first, others)
            done.append((first, *(i for i, far in zip(others, apart, strict=True) if not far)))
            rest = [i for i, far in zip(others, apart, strict=True) if far]
            if rest:
                parts.insert(0, rest)
        return sorted(done)

    def _refuted(self, classes: list[tuple[int, ...]], others: int) -> Batch | None:
        """Questions whose answers change with the order inside one class; None if none was found.

        A sum of few products shows their order best: so they are the class's, beside one or a few others.
        """
        questions, k = self.questions, self.questions.signature.k
        several = [members for members in classes if len(members) > 1]
        count = max(8, min(60, 1500 // (len(_KINDS) * max(1, len(several)))))
        batches, orders = [], []
        for members in several:
            outside = [i for i in range(k) if i not in members]
            within = [*members, *(questions.rng.permutation(outside)[:others] if outside else [])]
            for kind in _KINDS:
                batch = questions.ask(kind, count, within)
                self._same_scales(batch)
                batches.append(batch)
                order = np.tile(np.arange(k), (count, 1))
                order[:, members] = questions.rng.permuted(np.tile(members, (count, 1)), axis=1)
                orders.append(order)
        if not batches:
            return None
        asked, order = joined(batches), np.concatenate(orders)
        rows = np.arange(len(asked))[:, None]
        moved = Batch(
            asked.signature, asked.a[rows, order], asked.b[rows, order], asked.c, asked.scale_a, asked.scale_b
        )
        differ = np.flatnonzero(self.ask(asked) != self.ask(moved))
        return asked[differ[:64]] if len(differ) else None

    def _apart(self, contexts: Batch, base: Array, first: int, others: list[int]) -> list[bool]:
        """Which of some products may not change places with the first one: a few questions, then twice as many."""
        apart = [self._known([first], [other]) for other in others]
        end, size = min(len(contexts), 96 * self.effort), 3
        start = 0
        while start < end and not all(apart):
            left = [i for i, far in enumerate(apart) if not far]
            some = contexts[start : min(start + size, end)]
            swapped = []
            for i in left:
                order = np.arange(self.questions.signature.k)
                order[[first, others[i]]] = others[i], first
                swapped.append(_permuted(some, order))
            answers = self.ask(joined(swapped)).reshape(len(left), len(some))
            for i, row in zip(left, answers, strict=True):
                apart[i] = bool((row != base[start : start + len(some)]).any())
            self.known |= {(first, others[i]) for i in left if apart[i]}
            start, size = start + size, 2 * size
        return apart

    def merged(self, classes: list[tuple[int, ...]]) -> tuple[list[tuple[int, ...]], int]:
        """Steps, and the length of their groups (0: none): whole groups of one step may change places."""
        length = len(classes[0])
        signature = self.questions.signature
        runs = all(c == tuple(range(c[0], c[0] + length)) for c in classes)
        if signature.scale is not None and any(len(c) != length for c in classes) and self.effort == 1:
            return self.chain, 0  # groups of a step, seen in part: the search finds their length
        if signature.scale is not None and len(classes) == 1:
            return self._blocks(signature.scale[1]), 0
        if signature.scale is None or not runs:
            return classes, 0
        place = {i: rank for rank, members in enumerate(self.chain) for i in members}
        contexts = self.sensitive() if len(classes) > len(self.chain) else None
        if contexts is None:
            return classes, 0
        base, steps = self.ask(contexts), [list(classes[0])]
        for other in classes[1:]:
            for step in steps:
                if place[step[0]] != place[other[0]]:
                    continue
                order = np.arange(signature.k)
                order[list(other)], order[step[:length]] = step[:length], other
                if (self.ask(_permuted(contexts, order)) == base).all() and self._alike(order, [*step, *other]):
                    step.extend(other)
                    break
            else:
                steps.append(list(other))
        grouped = any(len(step) > length for step in steps)
        return [tuple(step) for step in steps], length if grouped else 0

    def _blocks(self, width: int) -> list[tuple[int, ...]]:
        """Steps of whole blocks that take their scales with them: sums under one scale may be too short to show a step."""
        questions, k = self.questions, self.questions.signature.k
        steps: list[list[int]] = [[0]]
        if k == width:
            return [tuple(range(k))]
        contexts = joined([questions.ask(kind, 100, range(k)) for kind in (*_KINDS, "long", "long", *["aimed"] * 4)])
        base = self.ask(contexts)
        for block in range(1, k // width):
            for step in steps:
                order = np.arange(k // width)
                order[[step[0], block]] = block, step[0]
                if (self.ask(_permuted(contexts, order, width)) == base).all():
                    step.append(block)
                    break
            else:
                steps.append([block])
        return [tuple(k for block in step for k in range(block * width, (block + 1) * width)) for step in steps]

    def _alike(self, order: Array, within: list[int]) -> bool:
        """Whether sums of few products in some columns stay as they are in another order."""
        asked = joined([self.questions.ask(kind, 30, within) for kind in _KINDS])
        self._same_scales(asked)
        return bool((self.ask(asked) == self.ask(_permuted(asked, order))).all())


def _shared(exponent: Array, a: Format, b: Format) -> tuple[Array, Array]:
    """Exponents of two numbers whose product has an exponent that the formats reach; of normal ones where they reach it."""
    deep = exponent < a.minimum_exponent + b.minimum_exponent
    least_a, least_b = (format_.minimum_exponent - deep * format_.fraction_bits for format_ in (a, b))
    of_a = np.clip(exponent // 2, np.maximum(least_a, exponent - most(b)), np.minimum(most(a), exponent - least_b))
    return of_a, exponent - of_a


def _permuted(batch: Batch, order: Array, width: int = 0) -> Batch:
    """Products in another order; `width`: it is one of blocks of so many, with their scales."""
    scale_a, scale_b = (s if s is None or not width else s[:, order] for s in (batch.scale_a, batch.scale_b))
    if width:
        order = (order[:, None] * width + np.arange(width)).ravel()
    return Batch(batch.signature, batch.a[:, order], batch.b[:, order], batch.c, scale_a, scale_b)


def joined(batches: list[Batch]) -> Batch:
    """One batch of several."""
    first = batches[0]
    names = ("a", "b", "c", *(() if first.scale_a is None else ("scale_a", "scale_b")))
    parts: dict[str, Any] = {name: np.concatenate([getattr(b, name) for b in batches]) for name in names}
    return Batch(first.signature, **parts)
