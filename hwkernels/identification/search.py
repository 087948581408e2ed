"""The search for a hypothesis that explains a pool of answers: the best change of one key, or of two, until none is wrong."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import permutations, product
from typing import Any

import numpy as np

from hwkernels.identification.answers import answer, predicted
from hwkernels.identification.codes import most
from hwkernels.identification.machine import Array, Batch, Counted, Machine
from hwkernels.identification.order import Order, joined
from hwkernels.identification.questions import Questions
from tcsim.numbers.formats import FORMATS

_LIKELIEST = 8  # structures whose other keys are searched
_FEW = 120  # of those answered wrongly and of the others, to choose what is asked all
_FRACTION = (*range(8, 41), None)
CHOICES: dict[str, tuple[Any, ...]] = {
    "addend": ("first", "last"),
    "fraction_bits": _FRACTION,
    "truncation": ("zero", "down"),
    "products": ("raw", "normalised"),
    "rounding": ("rz", "rne"),
    "overflow": ("infinity", "largest"),
    "subnormal_in": ("kept", "zero"),
    "subnormal_c": ("kept", "zero"),
    "subnormal_out": ("kept", "zero"),
    "zero": ("+0", "ieee"),
}
"""The values of each key that do not depend on the signature."""


@dataclass(eq=False)
class Search:
    """What has been asked, and what each key may be."""

    unknown: Counted
    questions: Questions
    pool: Batch
    answers: Array
    choices: dict[str, tuple[Any, ...]] = field(default_factory=dict)
    _refuted: tuple[Machine, Array] | None = None  # of the last hypothesis

    def refuted(self, machine: Machine) -> Array:
        """Which answers of the pool a hypothesis does not give."""
        if self._refuted is None or self._refuted[0] != machine or len(self._refuted[1]) != len(self.pool):
            self._refuted = machine, answer(machine, self.pool) != self.answers
        return self._refuted[1]

    def wrong(self, machine: Machine) -> int:
        """How many they are."""
        return int(self.refuted(machine).sum())

    def counts(self, machines: Sequence[Machine]) -> Array:
        """The same of several."""
        return _counts(machines, self.pool, self.answers)

    def part(self, machine: Machine, count: int) -> Search:
        """The same with a share of the pool: what a hypothesis answers wrongly, and as many others."""
        wrong = np.flatnonzero(self.refuted(machine))[: count // 2]
        rest = np.random.default_rng(len(self.pool)).permutation(len(self.pool))[: count - len(wrong)]
        rows = np.union1d(wrong, rest)
        return replace(self, pool=self.pool.part(rows), answers=self.answers[rows], _refuted=None)

    def add(self, batch: Batch, answers: Array) -> None:
        """Remember questions with their answers."""
        self.pool = joined([self.pool, batch])
        self.answers = np.concatenate([self.answers, answers])

    def ask(self, batch: Batch) -> Array:
        """Answers."""
        return batch.ask(self.unknown)


def _counts(machines: Sequence[Machine], batch: Batch, told: Array) -> Array:
    found: Array = (predicted(machines, batch) != told).sum(axis=1)
    return found


def choices(unknown: Counted) -> dict[str, tuple[Any, ...]]:
    """The values that each key may have for a signature."""
    sig = unknown.signature
    formats = FORMATS[sig.a], FORMATS[sig.b]
    found = dict(CHOICES)
    if sig.c == "f32" and sig.d == "f16":
        found["addend"] = ("first",)
    low = sum(f.minimum_exponent - f.fraction_bits for f in formats)
    high = sum(most(f) for f in formats) + 2
    least = FORMATS[sig.d].minimum_exponent
    low = min(low, FORMATS[sig.c].minimum_exponent - FORMATS[sig.c].fraction_bits)
    if sig.scale is not None:
        reach = 40 if sig.scale[0] == "ue8m0" else 18
        low, high = low - reach, high + reach
        low = min(low, least - 20)
    found["floor"] = (None, *range(max(low, least - 60) - 1, min(high, most(FORMATS[sig.d])) + 1))
    found["significand"] = tuple(range(2, FORMATS[sig.d].fraction_bits + 2))
    narrow = all(f.container_bits == 8 for f in formats)
    found["widened"] = (None, "f16") if narrow else (None,)
    found["scaled"] = (None,)
    if sig.scale is not None:
        runs = [g for g in (2, 4, 8, 16, 32, 64) if g <= sig.k and (g <= sig.scale[1])]
        alone = (
            () if FORMATS[sig.scale[0]].fraction_bits else ("product",)
        )  # a significand multiplies sums, not products
        found["scaled"] = (None, *alone, *(("group", g) for g in runs))
    return found


KEYS = (
    "scaled", "addend", "fraction_bits", "significand", "rounding", "products", "widened", "truncation",
    "floor", "subnormal_in", "subnormal_c", "subnormal_out", "overflow", "zero",
)  # fmt: skip
_ALIGNMENT = ("truncation", "products", "floor")
"""Keys that mean nothing where nothing is lost before the rounding."""


def descended(search: Search, machine: Machine, again: bool = False) -> Machine:
    """The hypothesis that the answers leave: one key after the other, two at a time near it; `again`: then from the start by the best change first."""
    start, wrong = machine, search.wrong(machine)
    machine, wrong = _settled(search, machine, wrong)
    if wrong:
        machine, wrong = _restarted(search, start, machine, wrong)
    if not (wrong and again):
        return machine
    share = search.part(machine, 800)
    other, count = start, share.wrong(start)
    for _ in range(len(KEYS)):
        before = count
        other, count = best_of(share, other, count, KEYS)
        if count in (0, before):
            break
    other, count = _settled(search, other, search.wrong(other))
    return machine if wrong <= count else other


def _restarted(search: Search, start: Machine, machine: Machine, wrong: int) -> tuple[Machine, int]:
    """The same from each kind of scaling and place of c, which decide what the other keys look like: first on a share of the pool."""
    share = search.part(start, 600)
    found = []
    for place, values in enumerate(product(search.choices["scaled"], search.choices["addend"])):
        other = changed(start, dict(zip(("scaled", "addend"), values, strict=True)))
        count = share.wrong(other)
        for key in [key for key in KEYS if key not in ("scaled", "addend")]:
            other, count = best_of(share, other, count, [key])
        found.append((count, place, other))
    _, _, other = min(found)
    other, count = _settled(search, other, search.wrong(other))
    return (other, count) if count < wrong else (machine, wrong)


def _settled(search: Search, machine: Machine, wrong: int) -> tuple[Machine, int]:
    for _ in range(6):
        for _ in range(6):
            before = wrong
            for key in KEYS:
                machine, wrong = best_of(search, machine, wrong, [key])
            machine, wrong = _chosen(search, machine, wrong, windows(search, machine))
            machine, wrong = _ordered(search, machine, wrong)
            if wrong in (0, before):
                break
        if not wrong:
            break
        other, count = _paired(search, machine, wrong)
        if count == wrong:
            break
        machine, wrong = other, count
    return machine, wrong


def moves_near(search: Search, machine: Machine) -> list[tuple[str, Any]]:
    """Values of the keys near a hypothesis: every other one of a key of few values, the next ones of a number."""
    found: list[tuple[str, Any]] = []
    for key in KEYS:
        own, valid = getattr(machine, key), search.choices[key]
        if key in ("fraction_bits", "significand", "floor"):
            steps = (1, 2, 4, 8) if key == "floor" else (1, 2)
            near = [None, *(own + sign * step for step in steps for sign in (1, -1) if own is not None)]
            if own is None:
                near = [valid[-1], valid[-2]] if key == "fraction_bits" else list(valid[1::8])
        else:
            near = list(valid)
        found += [(key, value) for value in near if value != own and value in valid]
    return found


def other_steps(machine: Machine, k: int) -> list[tuple[tuple[int, ...], ...]]:
    """Other orders: all in one step, halves, and the found steps backwards, each divided, two by two, or with a product in another one."""
    steps = machine.step
    rivals: list[tuple[tuple[int, ...], ...]] = [
        (tuple(range(k)),),
        (tuple(range(k // 2)), tuple(range(k // 2, k))),
        tuple(reversed(steps)),
    ]
    if max(map(len, steps)) > 1:
        parts = [part for step in steps for part in (step[: len(step) // 2], step[len(step) // 2 :])]
        rivals.append(tuple(part for part in parts if part))
    if len(steps) > 1:
        rivals.append(tuple(tuple(sum(steps[place : place + 2], ())) for place in range(0, len(steps), 2)))
        whole = [list(step) for step in steps]
        if len(whole[-1]) > 1:
            whole[0].append(whole[-1].pop())
            rivals.append(tuple(map(tuple, whole)))
    return [rival for rival in dict.fromkeys(rivals) if rival != steps]


def windows(search: Search, machine: Machine) -> list[Machine]:
    """Machines with other fraction bits and a floor as far from them: small sums lose the same bits, so neither changes alone."""
    if machine.fraction_bits is None or machine.floor is None:
        return []
    away = machine.floor - machine.fraction_bits
    return [
        replace(machine, fraction_bits=bits, floor=bits + away)
        for bits in search.choices["fraction_bits"]
        if bits not in (None, machine.fraction_bits) and bits + away in search.choices["floor"]
    ]


def cut_anywhere(search: Search, machine: Machine) -> list[Machine]:
    """Machines with every other number of fraction bits: where no bit was seen to be lost, the right one may be far away."""
    return [
        replace(machine, fraction_bits=bits)
        for bits in search.choices["fraction_bits"]
        if bits not in (None, machine.fraction_bits)
    ]


def floored_anywhere(search: Search, machine: Machine) -> list[Machine]:
    """Machines with every other floor: those that lie together may not be told apart, and the right one be at their end."""
    if machine.fraction_bits is None:
        return []
    return [replace(machine, floor=floor) for floor in search.choices["floor"] if floor != machine.floor]


def aligned(search: Search, machine: Machine) -> Machine:
    """The best of a machine and those with any other alignment: fraction bits, floor, truncation and kind of exponent, which a few answers decide together."""
    few = search.part(machine, 160)
    bad = np.flatnonzero(few.refuted(machine))[:24]
    failing, told = few.pool.part(bad), few.answers[bad]
    keys = ("fraction_bits", *_ALIGNMENT)
    others = [changed(machine, dict(zip(keys, x, strict=True))) for x in product(*(search.choices[y] for y in keys))]
    others = [others[place] for place in np.flatnonzero(_counts(others, failing, told) == 0)]
    others = [others[place] for place in np.flatnonzero(few.counts(others) == 0)] if others else []
    best, wrong = machine, search.wrong(machine)
    for other in others:
        if (count := search.wrong(other)) < wrong:
            best, wrong = other, count
            if not wrong:
                break
    return best


def pairs_of(moves: list[tuple[str, Any]]) -> Iterator[dict[str, Any]]:
    """Changes of two keys at once."""
    for place, (one, x) in enumerate(moves):
        for other, y in moves[:place]:
            if one != other:
                yield {one: x, other: y}


def _paired(search: Search, machine: Machine, wrong: int) -> tuple[Machine, int]:
    """The best change of two keys at once; of three or four where two leave it as it is."""
    share = search.part(machine, 600)
    beam, count = [machine], share.wrong(machine)
    for _ in range(2):
        found: list[tuple[int, int, Machine]] = []
        for base in beam:
            bad = np.flatnonzero(share.refuted(base))
            if not len(bad):
                continue
            few = bad[:: max(1, len(bad) // 60)]
            others = [changed(base, values) for values in pairs_of(moves_near(search, base))]
            counts = _counts(others, share.pool.part(few), share.answers[few])
            others = [others[place] for place in np.flatnonzero(counts < 0.9 * len(few))]
            found += [
                (int(x), len(found) + i, other)
                for i, (x, other) in enumerate(zip(share.counts(others), others, strict=True))
            ]
        found.sort()
        if found and found[0][0] < count:
            total = search.wrong(found[0][2])
            if total < wrong:
                return found[0][2], total
        beam = [other for _, _, other in found[:4]]
    return machine, wrong


def changed(machine: Machine, values: dict[str, Any]) -> Machine:
    """A machine with other values of some keys."""
    return replace(machine, **values)


def plain(machine: Machine) -> Machine:
    """The same machine: where nothing is lost, without a floor, which would hide from its neighbours that lose something."""
    if machine.fraction_bits is not None:
        return machine
    return replace(machine, floor=None, truncation="zero", products="raw")


def best_of(search: Search, machine: Machine, wrong: int, keys: Sequence[str]) -> tuple[Machine, int]:
    """The machine with the one change, of all values of some keys, that leaves fewest wrong answers."""
    others = [
        changed(machine, {key: value})
        for key in keys
        if machine.fraction_bits is not None or key not in _ALIGNMENT
        for value in search.choices[key]
        if value != getattr(machine, key)
    ]
    return _chosen(search, machine, wrong, others)


def _chosen(search: Search, machine: Machine, wrong: int, others: Sequence[Machine]) -> tuple[Machine, int]:
    """The best of some machines, if it is better than one: few questions choose those that are asked all."""
    if not wrong or not others:
        return machine, wrong
    bad, rng = search.refuted(machine), np.random.default_rng(wrong)
    some = [rng.permutation(np.flatnonzero(rows))[:_FEW] for rows in (bad, ~bad)]
    rows = np.concatenate(some)
    weight = np.repeat([bad.sum() / max(1, len(some[0])), (~bad).sum() / max(1, len(some[1]))], [len(x) for x in some])
    failing, few = search.pool.part(some[0]), search.pool.part(rows)
    explains = np.flatnonzero(_counts(others, failing, search.answers[some[0]]) < len(failing)).tolist()  # some of them
    differ = predicted([others[place] for place in explains], few) != search.answers[rows]
    estimates = [(x, place) for x, place in zip((differ @ weight).tolist(), explains, strict=True) if x < wrong]
    likeliest = [others[place] for _, place in sorted(estimates)[:6]]
    for other, count in zip(likeliest, search.counts(likeliest).tolist(), strict=True):
        if count < wrong:
            machine, wrong = other, count
    return machine, wrong


def _ordered(search: Search, machine: Machine, wrong: int) -> tuple[Machine, int]:
    """Steps in the order that fits best."""
    steps = machine.step
    if not wrong or len(steps) == 1:
        return machine, wrong
    if len(steps) <= 4:
        orders = list(permutations(steps))
    else:
        orders = [tuple(reversed(steps))]
        for i in range(len(steps)):
            for j in range(max(0, i - 4), i):
                swapped = list(steps)
                swapped[i], swapped[j] = swapped[j], swapped[i]
                orders.append(tuple(swapped))
    return _chosen(search, machine, wrong, [replace(machine, step=order) for order in orders])


def regular(search: Search, order: Order, first: Machine, machine: Machine) -> Machine:
    """The best of a hypothesis and those of regular steps and groups, as long as no two products that are known to be apart meet.

    What lies apart was seen in part only, if scales hide the sums that would show the rest.
    """
    share, likeliest = search.part(machine, 600), list[Machine]()
    structures = list(_structures(search, order))
    if not structures:
        return machine
    for base in (machine, first):  # with the constants that were found, and as if nothing had been
        others = [changed(base, values) for values in structures]
        likeliest += [others[place] for place in np.argsort(share.counts(others), kind="stable")[:_LIKELIEST]]
    found = list[tuple[int, int, Machine]]()
    for other in dict.fromkeys(likeliest):
        count = share.wrong(other)
        for key in [key for key in KEYS if key not in ("scaled", "addend")]:
            other, count = best_of(share, other, count, [key])
        found.append((count, len(found), other))
    as_many = [own for own in found if len(own[2].step) == len(first.step)]  # as were seen to lie apart
    for _, _, other in [*sorted(as_many)[:1], *sorted(found)[:2]]:
        if not search.wrong(machine):
            break
        machine = min(machine, descended(search, other), key=search.wrong)
    return machine


def _structures(search: Search, order: Order) -> Iterator[dict[str, Any]]:
    """Regular steps, or as the order was seen; with every kind of scaling and place of c."""
    sig = search.questions.signature
    seen = np.array([number for i in range(sig.k) for number, part in enumerate(order.chain) if i in part])
    for scaled in search.choices["scaled"]:
        group = scaled[1] if isinstance(scaled, tuple) else 1
        for turn in np.unique([*_turns(sig.k), seen], axis=0):
            meet = np.arange(sig.k) // group if group > 1 else turn
            if (
                (scaled is None) != (sig.scale is None)
                or (np.ptp(turn.reshape(-1, group), axis=1) > 0).any()
                or any(meet[i] == meet[j] for i, j in order.known)
            ):
                continue
            for addend in search.choices["addend"]:
                yield {"step": _steps(turn), "scaled": scaled, "addend": addend}


def _turns(k: int) -> list[Array]:
    """The number of the step of each product: steps that are runs of one length, or in which runs take turns."""
    lengths = [k >> shift for shift in range(k.bit_length()) if k % (1 << shift) == 0]
    return [np.arange(k) // run % number for run, number in product(lengths, lengths) if run * number <= k]


def _steps(turn: Array) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(np.flatnonzero(turn == step).tolist()) for step in range(turn.max() + 1))


def regular_steps(machine: Machine, k: int) -> list[Machine]:
    """A machine with steps of one length, that keep its groups of products together."""
    group = machine.scaled[1] if isinstance(machine.scaled, tuple) else 1
    whole = [turn for turn in _turns(k) if not np.ptp(turn.reshape(-1, group), axis=1).any()]
    steps = dict.fromkeys(map(_steps, whole))
    return [changed(machine, {"step": own}) for own in steps if own != machine.step]
