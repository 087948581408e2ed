"""Find the machine behind an unknown instruction by asking it: adaptive questions, hypotheses that the answers refute, a final check."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np

from hwkernels.identification.answers import answer, predicted
from hwkernels.identification.codes import code, most
from hwkernels.identification.machine import NOT_OBSERVABLE, OPEN, Array, Batch, Counted, Machine, Spent, Unknown
from hwkernels.identification.order import Order, joined
from hwkernels.identification.proof import alike
from hwkernels.identification.questions import KINDS, Questions
from hwkernels.identification.refusal import refusal, size
from hwkernels.identification.result import Evidence, Identified, Mismatch
from hwkernels.identification.search import (
    KEYS,
    Search,
    aligned,
    changed,
    choices,
    cut_anywhere,
    descended,
    floored_anywhere,
    moves_near,
    other_steps,
    pairs_of,
    plain,
    regular,
    regular_steps,
    windows,
)
from tcsim.core.samples import repeatable
from tcsim.numbers.formats import FORMATS

LIMIT = 100_000
"""Dot products that one instruction may be asked."""
_FOR_ORDER, _FOR_SEARCH = 0.7, 0.9  # shares of the limit after which the order, and the search, must be done
_ROUNDS = 10
_PER_KIND = 160
_CHECKED = 400  # of each kind, in a check of all kinds
_AIMED = 5  # times that more questions are made for keys that show nothing
_FAR = 0.08  # of the answers wrong: no better order of the steps will explain them
_DWELT = 4  # times that questions like those answered wrongly are asked
_LIKE = 400  # of them
_LATEST = 200  # questions, which were asked to tell hypotheses apart
_FREE = 6  # changes that fit alone, if there are fewer, are tried two at a time


def identify(unknown: Unknown, seed: int = 0, limit: int = LIMIT) -> Identified:
    """Ask an unknown machine until one hypothesis is left, and check it on questions of all kinds.

    `unknown` has a `signature` and a `dot` (`hwkernels.identification.machine.Unknown`); nothing else of it is used. About 2 * 10**4 dot products
    are asked, and never more than `limit`. The result says for each key what was found, and by which question; that no hypothesis fits, with the
    smallest question that shows it; or, at the limit, what is left open.
    """
    counted = Counted(unknown, limit)
    best: tuple[Search, Machine] | None = None
    try:
        refused = _first_look(counted, seed)
        if refused is not None:
            return refused
        for effort in (1, 2):
            search, machine = _attempt(counted, seed + effort, effort, limit)
            if best is None or search.wrong(machine) < best[0].wrong(best[1]):
                best = search, machine
            if not search.wrong(machine) or search.wrong(machine) > _FAR * len(search.pool):
                break
    except Spent:
        pass
    counted.allowed = limit
    if best is None:
        nearest = Machine((tuple(range(unknown.signature.k)),))
        return Identified(unknown.signature, {}, nearest, (), counted.asked, None, spent=True)
    search, machine = best
    found = refusal(search, machine) if search.wrong(machine) else _concluded(search, _uniform(search, machine))
    return replace(found, spent=counted.spent)


def _first_look(unknown: Counted, seed: int) -> Identified | None:
    """A refusal of what no hypothesis does: another answer to the same question, or a wrong one to a lone power of two.

    The power is so large that no floor hides it, and each step's result has two bits or more: so it stays as it is.
    """
    sig, questions = unknown.signature, Questions(unknown.signature, seed)
    nearest = Machine((tuple(range(sig.k)),))
    batch = joined([questions.ask(kind, 40, range(sig.k)) for kind in KINDS])
    order = questions.rng.permutation(len(batch))
    first = batch.ask(unknown)
    again = np.empty_like(first)
    again[order] = batch[order].ask(unknown)
    for row in np.flatnonzero(first != again)[:1]:
        told = Mismatch.of(batch[row : row + 1], int(first[row]), int(again[row]))
        reason = "the same question got two answers"
        return Identified(sig, {}, nearest, (), unknown.asked, told, reason=reason)
    rows = np.arange(2 * sig.k)
    alone, sign = questions.empty(len(rows) + 2), np.arange(len(rows) + 2) % 2
    exponent = np.full(len(alone), most(questions.d))
    exponent[:-2] = np.minimum(exponent[:-2], questions.highest)
    of_a = np.minimum(exponent - questions.formats[1].minimum_exponent, most(questions.formats[0]))
    one = np.ones(len(alone))
    alone.a[rows, rows // 2] = code(questions.formats[0], of_a, one, sign)[:-2]
    alone.b[rows, rows // 2] = code(questions.formats[1], exponent - of_a, one, 0 * sign)[:-2]
    alone.c[-2:] = code(questions.c, exponent, one, sign)[-2:]
    kept = np.full(len(alone), sig.scale is None)  # with scales of 1, a floor may hide products
    kept[-2:] = most(questions.c) >= most(questions.d)
    alone, sign, exponent = alone[kept], sign[kept], exponent[kept]
    expected = code(questions.d, exponent, np.ones(len(alone)), sign)
    answers = alone.ask(unknown)
    for row in np.flatnonzero(answers != expected)[:1]:
        told = Mismatch.of(alone[row : row + 1], int(answers[row]), int(expected[row]))
        reason = "a lone power of two does not stay as it is"
        return Identified(sig, {}, nearest, (), unknown.asked, told, reason=reason)
    return None


def _attempt(unknown: Counted, seed: int, effort: int, limit: int) -> tuple[Search, Machine]:
    unknown.allowed = int(_FOR_ORDER * limit)
    questions = Questions(unknown.signature, seed)
    order = Order(unknown, questions, effort)
    sig, guessed = unknown.signature, False
    try:
        classes = order.classes()
        steps, group = order.merged(classes)
    except Spent:  # many steps: they may still be of one length
        guessed, group = True, 0
        classes = order.chain if len(order.chain) > 1 else [(place,) for place in range(sig.k)]
        steps = classes
    unknown.allowed = int(_FOR_SEARCH * limit)
    batches = [questions.ask(kind, _PER_KIND, within) for kind in KINDS for within in _places(steps, sig.k)]
    search = Search(unknown, questions, joined(batches), np.zeros(0))
    search.answers = search.ask(search.pool)
    search.choices = choices(unknown)
    nan = _nan(search)
    first = Machine(
        tuple(steps),
        significand=FORMATS[sig.d].fraction_bits + 1,
        rounding="rne" if sig.d == "f16" else "rz",
        nan=nan,
        scaled=None if sig.scale is None else ("group", group) if group else search.choices["scaled"][1],
    )
    machine = descended(search, first, again=True)
    if steps != classes and search.wrong(machine):  # what looked like groups of one step may be steps
        other = descended(search, replace(first, step=tuple(classes), scaled=search.choices["scaled"][1]), again=True)
        machine = min(machine, other, key=search.wrong)
    halved = _halved(first)
    if halved is not None and search.wrong(machine):
        machine = min(machine, descended(search, halved), key=search.wrong)
    hidden = guessed or sig.scale is not None or len(set(map(len, steps))) > 1
    try:
        for turn in (0, 1):
            if hidden and search.wrong(machine):
                machine = regular(search, order, first, machine)
            if guessed and not turn and search.wrong(machine):
                raise Spent
            machine = _checked(search, machine)
            if not (hidden and search.wrong(machine)):
                break
    except Spent:
        if guessed and search.wrong(machine):
            raise
        machine = descended(search, machine)
    return search, machine


def _checked(search: Search, machine: Machine) -> Machine:
    """A hypothesis asked new questions of all kinds, and mended, until it answers all of them."""
    questions = search.questions
    for _ in range(_ROUNDS):
        machine = _dwelt(search, machine)
        if search.wrong(machine):
            break
        fresh = joined([questions.ask(kind, _CHECKED, range(questions.signature.k), machine) for kind in KINDS])
        answers = search.ask(fresh)
        bad = np.flatnonzero(answer(machine, fresh) != answers)
        if not len(bad):
            return _separated(search, _uniform(search, machine))
        some = np.unique(np.concatenate([bad[:300], np.arange(0, len(fresh), 20)]))
        search.add(fresh[some], answers[some])
        machine = descended(search, machine)
    return machine


def _dwelt(search: Search, machine: Machine) -> Machine:
    """A hypothesis that answers few questions wrongly, mended: where no change of one or two keys explains those, questions like them are asked too."""
    for number in range(_DWELT):
        bad = np.flatnonzero(search.refuted(machine))
        if not 0 < len(bad) < _FAR * len(search.pool):
            break
        like = search.questions.like(search.pool[bad], _LIKE)
        search.add(like, search.ask(like))
        machine = descended(search, machine, again=number > 1)
        if number == 1 and 0 < search.wrong(machine) < _FAR * len(search.pool):
            machine = aligned(search, machine)
    return machine


def _separated(search: Search, machine: Machine) -> Machine:
    """The values of a key that fit equally well so far, told apart by questions that they answer differently."""
    sig, quiet = search.questions.signature, 0
    while quiet < 3:
        quiet += 1
        machine = plain(machine)
        others = _fitting(search, machine)
        every = max(1, len(others) // 8)
        some = others[search.questions.rng.integers(every) :: every]
        kinds = (*KINDS, "edge", "floor", "floor", "cut", "cut", *["aimed"] * 4)
        hints = [(kind, 400, machine) for kind in kinds] + [("aimed", 300, other) for other in some]
        batches = [search.questions.ask(kind, count, range(sig.k), hint) for kind, count, hint in hints]
        if len(machine.step) > 1:  # all of it beside c
            first = [hint for hint in hints if hint[0] in ("cut", "tie", "aimed")]
            batches += [search.questions.ask(kind, 200, machine.step[0], hint) for kind, _, hint in first]
        batch = joined(batches)
        mine, chosen = answer(machine, batch), []
        for row in predicted(others, batch) != mine:
            chosen.extend(np.flatnonzero(row)[:6].tolist())
        if chosen:
            asked = batch[np.unique(chosen)]
            search.add(asked, search.ask(asked))
            quiet = 0
            if search.wrong(machine):
                machine = _dwelt(search, descended(search, machine))
                if search.wrong(machine):
                    return machine
    return machine


def _fitting(search: Search, machine: Machine, more: Sequence[Machine] = ()) -> list[Machine]:
    """Hypotheses near one that answers the whole pool, in one key or two, that answer all of it too and are not proven alike."""
    rows = np.random.default_rng(len(search.pool)).permutation(len(search.pool))[:150]
    rows = np.union1d(rows, np.arange(len(search.pool))[-_LATEST:])
    few, told = search.pool.part(rows), search.answers[rows]

    def fitting(others: list[Machine]) -> list[int]:
        some = np.flatnonzero((predicted(others, few) == told).all(axis=1)).tolist()
        counts = search.counts([others[place] for place in some])
        return [place for place, count in zip(some, counts, strict=True) if not count]

    moves = moves_near(search, machine)
    alone = [changed(machine, dict([move])) for move in moves]
    free = fitting(alone)
    hidden = {moves[place] for place in free}
    most_free = 2 if len(hidden) < _FREE else 1  # a change that fits alone may still make another one fit
    pairs = [values for values in pairs_of(moves) if len(hidden & set(values.items())) <= most_free]
    both = [changed(machine, values) for values in pairs]
    k = search.questions.signature.k
    steps = [changed(machine, {"step": step}) for step in other_steps(machine, k)] + regular_steps(machine, k)
    along = [*windows(search, machine), *cut_anywhere(search, machine), *steps, *more]
    found = [(along, fitting(along)), (alone, free), (both, fitting(both)[:60])]
    every = dict.fromkeys(others[place] for others, places in found for place in places)
    return [other for other in every if not alike(search.questions.signature, machine, other)]


def _places(steps: list[tuple[int, ...]], k: int) -> Iterator[tuple[int, ...]]:
    yield tuple(range(k))
    if len(steps) > 1:
        yield max(steps, key=len)
        if len(steps[0]) == 1:
            yield steps[0] + steps[-1]


def _nan(search: Search) -> int:
    """The code of a NaN result: what a NaN addend gives."""
    batch = search.questions.empty(4)
    format_ = FORMATS[batch.signature.c]
    batch.c[:] = ((1 << format_.exponent_bits) - 1 << format_.fraction_bits) | 1
    answers = search.ask(batch)
    search.add(batch, answers)
    return int(answers[0])


_TIED = ("products", "widened", "truncation", "subnormal_in", "subnormal_c", "subnormal_out", "overflow", "zero")
"""Keys of few values, of which one may decide whether another shows: nothing is subnormal in inputs that are widened."""


def _halved(machine: Machine) -> Machine | None:
    """Steps of one length, if the first is two of them: of two steps that start from zero the first may be exact."""
    lengths = {len(step) for step in machine.step[1:]}
    if len(lengths) != 1 or len(machine.step[0]) != 2 * min(lengths):
        return None
    first, length = machine.step[0], min(lengths)
    return replace(machine, step=(first[:length], first[length:], *machine.step[1:]))


def _uniform(search: Search, machine: Machine) -> Machine:
    """Steps of one length where they answer the same."""
    if len(set(map(len, machine.step))) == 1 or search.wrong(machine):
        return machine
    halved = _halved(machine)
    others = [machine, *([halved] if halved else []), *regular_steps(machine, search.questions.signature.k)]
    counts = search.counts(others).tolist()
    return others[counts.index(0, 1)] if 0 in counts[1:] else machine


def _rivals(search: Search, machine: Machine, key: str) -> list[Any]:
    """The values that have to be told from the found one."""
    own, valid = getattr(machine, key), search.choices[key]
    if key in ("fraction_bits", "significand"):
        near = [valid[0], *((own - 1, own + 1, None) if own is not None else (valid[-2],))]
        return [value for value in near if value in valid and value != own]
    if key == "floor":
        return [_lowest_seen(search, machine)] if own is None else [x for x in (None, own - 1, own + 1) if x in valid]
    return [value for value in valid if value != own]


def _lowest_seen(search: Search, machine: Machine) -> int:
    """The lowest floor of which no proof says that it is as good as none; if there is none, any."""
    sig, floors = search.questions.signature, search.choices["floor"][1:]
    seen = (floor for floor in floors if not alike(sig, machine, changed(machine, {"floor": floor})))
    return int(next(seen, -133))


def _concluded(search: Search, machine: Machine, left: int = 4) -> Identified:
    """Each key with the question that tells it from its rivals, or not observable where there is none."""
    sig = search.questions.signature
    machine = plain(machine)
    if alike(sig, machine, changed(machine, {"floor": None})):
        machine = changed(machine, {"floor": None})
    places = [(1500, tuple(range(sig.k)))]
    if len(machine.step) > 1:
        places.append((400, machine.step[0]))  # all of it beside c
    batches = [search.questions.ask(kind, count, where, machine) for kind in KINDS for count, where in places]
    more = joined([*batches, search.questions.ask("aimed", 6000, range(sig.k), machine)])
    more = joined([more, *_aimed_at_hidden(search, machine, more)])
    mine = answer(machine, more)
    parts = _parts(more)
    found: dict[str, Any] = {}
    left_open: list[str] = []
    evidence: list[Evidence] = []
    asked: list[int] = []
    notes: list[tuple[str, Any, int]] = []
    for key in ("step", *KEYS):
        found[key] = getattr(machine, key)
        if key == "step":
            rivals = other_steps(machine, sig.k)
        else:
            rivals = _rivals(search, machine, key)
        told, untold = 0, []
        for rival in rivals:
            other = changed(machine, {key: rival})
            differ = _differing(other, parts, mine)
            told += bool(len(differ))
            if not len(differ) and not alike(sig, machine, other):
                untold.append(rival)
            if len(differ):
                shortest = differ[np.argmin(size(more[differ]))]
                asked.append(int(shortest))
                notes.append((key, rival, int(answer(other, more[shortest : shortest + 1])[0])))
        if untold:
            left_open.append(key)
        if rivals and not told and key != "step":
            found[key] = OPEN if untold else NOT_OBSERVABLE
    remaining = _remaining(search, machine, parts, mine, asked)
    for key in dict.fromkeys(key for values in remaining for key in values if key not in left_open):
        left_open.append(key)
        found[key] = getattr(machine, key)
    hidden = [key for key in _TIED if found[key] in (NOT_OBSERVABLE, OPEN)]
    together = _together(search, machine, hidden, parts, mine)
    tied = tuple(key for key in hidden if key in together or _depends(search, machine, key, notes, parts, mine))
    found |= {key: getattr(machine, key) for key in tied}
    if asked:
        batch = more[np.array(asked)]
        answers = search.ask(batch)
        for index, (key, rival, rival_answer) in enumerate(notes):
            evidence.append(
                Evidence.of(key, getattr(machine, key), rival, batch, index, int(answers[index]), rival_answer)
            )
        if (answers != mine[asked]).any():
            search.add(batch, answers)
            machine = _dwelt(search, descended(search, machine))
            if left and not search.wrong(machine):
                return _concluded(search, machine, left - 1)
            return refusal(search, machine)
    found["nan"] = machine.nan
    return Identified(
        sig,
        found,
        machine,
        tuple(evidence),
        search.unknown.asked,
        None,
        tied,
        open=tuple(left_open),
        remaining=tuple(remaining),
    )


def _remaining(
    search: Search, machine: Machine, parts: list[tuple[Array, Batch]], mine: Array, asked: list[int]
) -> list[dict[str, Any]]:
    """What other hypotheses change that answer all questions so far and are not proven alike; a question that refutes one is noted in `asked`."""
    found: list[dict[str, Any]] = []
    for other in _fitting(search, machine, floored_anywhere(search, machine)):
        differ = _differing(other, parts, mine)
        if len(differ):
            asked.append(int(differ[0]))
        else:
            found.append(
                {key: getattr(other, key) for key in vars(other) if getattr(other, key) != getattr(machine, key)}
            )
    return [x for x in found if not any(y.items() < x.items() for y in found)]


def _aimed_at_hidden(search: Search, machine: Machine, batch: Batch) -> list[Batch]:
    """Questions that tell a key from its rivals, where those of a batch tell it from none."""
    hidden = {key: [changed(machine, {key: rival}) for rival in _rivals(search, machine, key)] for key in KEYS}
    found = []
    for number in range(_AIMED):
        parts, mine = _parts(batch), answer(machine, batch)
        told = {key: [_differing(x, parts, mine)[:4] for x in rivals] for key, rivals in hidden.items()}
        if number:
            found += [batch[rows] for of_key in told.values() for rows in of_key if len(rows)]
        hidden = {key: rivals for key, rivals in hidden.items() if not any(map(len, told[key]))}
        if not any(hidden.values()) or number == _AIMED - 1:
            break
        hints = [machine, *(rivals[0] for rivals in hidden.values() if rivals)]
        columns = range(search.questions.signature.k)
        batch = joined([search.questions.ask("aimed", 6000 // len(hints), columns, hint) for hint in hints])
    return found


def _parts(batch: Batch) -> list[tuple[Array, Batch]]:
    """Random questions of a batch: a few, then more, then the rest."""
    rows = repeatable().permutation(len(batch))
    return [(part, batch[part]) for part in np.split(rows, [1000, 4000])]


def _differing(machine: Machine, parts: list[tuple[Array, Batch]], answers: Array) -> Array:
    """Rows of the first part of some questions in which a machine answers any otherwise."""
    for rows, batch in parts:
        differ = rows[answer(machine, batch) != answers[rows]]
        if len(differ):
            return differ
    return np.zeros(0, np.int64)


def _together(
    search: Search, machine: Machine, keys: Sequence[str], parts: list[tuple[Array, Batch]], mine: Array
) -> set[str]:
    """Keys that show nothing alone, but with the rival of another one that shows nothing alone either."""
    found: set[str] = set()
    for place, one in enumerate(keys):
        for other in keys[:place]:
            for x, y in product(_rivals(search, machine, one), _rivals(search, machine, other)):
                if len(_differing(changed(machine, {one: x, other: y}), parts, mine)):
                    found |= {one, other}
    return found


def _depends(
    search: Search,
    machine: Machine,
    key: str,
    notes: list[tuple[str, Any, int]],
    parts: list[tuple[Array, Batch]],
    mine: Array,
) -> bool:
    """Whether a key that shows nothing alone decides whether another one shows.

    With a rival of the key, the value of another key may no longer be told from one that the answers refute now. Then two
    machines that answer alike differ in both keys, and in the second one the first key can be observed.
    """
    for rival in _rivals(search, machine, key):
        for other, value, _ in notes:
            if other in _TIED and not len(_differing(changed(machine, {key: rival, other: value}), parts, mine)):
                return True
    return False
