"""Find the machine behind an unknown instruction by asking it: adaptive questions, hypotheses that the answers refute, a final check."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import permutations, product
from typing import Any

import numpy as np

from tcsim.identification.machine import NOT_OBSERVABLE, Array, Batch, Machine, Unknown, answer
from tcsim.identification.order import Order, joined
from tcsim.identification.questions import KINDS, Questions, code, most
from tcsim.identification.result import Evidence, Identified, Mismatch
from tcsim.numbers.formats import FORMATS

_ROUNDS = 10
_PER_KIND = 160
_CHECKED = 600  # of each kind, in the final check
_FEW = 120  # of those answered wrongly and of the others, to choose what is asked all
_FAR = 0.08  # of the answers wrong: no better order of the steps will explain them
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
class _Search:
    unknown: Unknown
    questions: Questions
    pool: Batch
    answers: Array
    asked: int = 0
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

    def part(self, machine: Machine, count: int) -> _Search:
        """The same with a share of the pool: what a hypothesis answers wrongly, and as many others."""
        wrong = np.flatnonzero(self.refuted(machine))[: count // 2]
        rest = np.random.default_rng(len(self.pool)).permutation(len(self.pool))[: count - len(wrong)]
        rows = np.union1d(wrong, rest)
        return replace(self, pool=self.pool[rows], answers=self.answers[rows], _refuted=None)

    def add(self, batch: Batch, answers: Array) -> None:
        """Remember questions with their answers."""
        self.pool = joined([self.pool, batch])
        self.answers = np.concatenate([self.answers, answers])

    def ask(self, batch: Batch) -> Array:
        """Answers, counted."""
        self.asked += len(batch)
        return batch.ask(self.unknown)


def choices(unknown: Unknown, groups: tuple[int, ...] = ()) -> dict[str, tuple[Any, ...]]:
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
        found["scaled"] = (None, "product", *(("group", g) for g in groups or runs))
    return found


def identify(unknown: Unknown, seed: int = 0) -> Identified:
    """Ask an unknown machine until one hypothesis is left, and check it on questions of all kinds.

    `unknown` has a `signature` and a `dot` (`tcsim.identification.machine.Unknown`); nothing else of it is used. At most about 10**5 dot products
    are asked. The result says for each key what was found, and by which question; or that no hypothesis fits, with the
    smallest question that shows it.
    """
    refused = _first_look(unknown, seed)
    if refused is not None:
        return refused
    asked, best = 0, None
    for effort in (1, 4):
        search, machine = _attempt(unknown, seed + effort, effort)
        asked += search.asked
        if not search.wrong(machine):
            search.asked = asked
            return _concluded(search, _uniform(search, machine))
        if best is None or search.wrong(machine) < best[0].wrong(best[1]):
            best = search, machine
        if search.wrong(machine) > _FAR * len(search.pool):
            break
    assert best is not None
    best[0].asked = asked
    return _refused(*best)


def _first_look(unknown: Unknown, seed: int) -> Identified | None:
    """What no hypothesis does: another answer to the same question, or a wrong one to a lone power of two.

    The power is so large that no floor hides it, and each step's result has two bits or more: so it stays as it is.
    """
    sig, questions = unknown.signature, Questions(unknown.signature, seed)
    nearest = Machine((tuple(range(sig.k)),))
    batch = joined([questions.ask(kind, 40, range(sig.k)) for kind in KINDS])
    order = questions.rng.permutation(len(batch))
    first, again = batch.ask(unknown), np.zeros(0)
    again = np.empty_like(first)
    again[order] = batch[order].ask(unknown)
    asked = 2 * len(batch)
    for row in np.flatnonzero(first != again)[:1]:
        told = Mismatch.of(batch[row : row + 1], int(first[row]), int(again[row]))
        return Identified(sig, {}, nearest, (), asked, told, reason="the same question got two answers")
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
        return Identified(
            sig, {}, nearest, (), asked + len(alone), told, reason="a lone power of two does not stay as it is"
        )
    return None


def _attempt(unknown: Unknown, seed: int, effort: int) -> tuple[_Search, Machine]:
    questions = Questions(unknown.signature, seed)
    order = Order(unknown, questions, effort)
    steps, group = order.merged(order.classes())
    sig = unknown.signature
    batches = [questions.ask(kind, _PER_KIND, within) for kind in KINDS for within in _places(steps, sig.k)]
    search = _Search(unknown, questions, joined(batches), np.zeros(0), order.asked)
    search.answers = search.ask(search.pool)
    search.choices = choices(unknown)
    nan = _nan(search)
    first = Machine(
        tuple(steps),
        significand=FORMATS[sig.d].fraction_bits + 1,
        rounding="rne" if sig.d == "f16" else "rz",
        nan=nan,
        scaled=None if sig.scale is None else ("group", group) if group else "product",
    )
    machine = _descended(search, first, again=effort > 1)
    for number in range(_ROUNDS):
        if search.wrong(machine):
            break
        fresh = joined(
            [questions.ask(kind, _CHECKED if number else _PER_KIND, range(sig.k), machine) for kind in KINDS]
        )
        answers = search.ask(fresh)
        bad = np.flatnonzero(answer(machine, fresh) != answers)
        if not len(bad) and number:
            machine = _separated(search, machine)
            break
        some = np.unique(np.concatenate([bad[:300], np.arange(0, len(fresh), 20)]))
        search.add(fresh[some], answers[some])
        machine = _descended(search, machine)
    return search, machine


def _separated(search: _Search, machine: Machine) -> Machine:
    """The values of a key that fit equally well so far, told apart by questions that they answer differently."""
    sig, quiet = search.questions.signature, 0
    while quiet < 3:
        quiet += 1
        batch = joined(
            [
                search.questions.ask(kind, 400, range(sig.k), machine)
                for kind in (*KINDS, "edge", "floor", "floor", "cut", "cut")
            ]
        )
        mine, chosen = answer(machine, batch), []
        for other in _fitting(search, machine):
            differ = np.flatnonzero(answer(other, batch) != mine)
            chosen.extend(differ[:6].tolist())
        if chosen:
            some = batch[np.unique(chosen)]
            search.add(some, search.ask(some))
            quiet = 0
            if search.wrong(machine):
                machine = _descended(search, machine)
                if search.wrong(machine):
                    return machine
    return machine


def _fitting(search: _Search, machine: Machine) -> list[Machine]:
    """Hypotheses near one that answers the whole pool, in one key or two, that answer all of it too."""
    rows = np.random.default_rng(len(search.pool)).permutation(len(search.pool))[:150]
    few, answers = search.pool[rows], search.answers[rows]

    def fits(other: Machine) -> bool:
        return bool((answer(other, few) == answers).all()) and not search.wrong(other)

    moves = _moves(search, machine)
    alone = {move: _with(machine, dict([move])) for move in moves}
    hidden = {move for move, other in alone.items() if fits(other)}
    pairs = [_with(machine, values) for values in _pairs(moves) if not hidden & set(values.items()) or len(hidden) < 6]
    return [alone[move] for move in moves if move in hidden] + [other for other in pairs if fits(other)][:60]


def _places(steps: list[tuple[int, ...]], k: int) -> Iterator[tuple[int, ...]]:
    yield tuple(range(k))
    if len(steps) > 1:
        yield max(steps, key=len)
        if len(steps[0]) == 1:
            yield steps[0] + steps[-1]


def _nan(search: _Search) -> int:
    """The code of a NaN result: what a NaN addend gives."""
    batch = search.questions.empty(4)
    format_ = FORMATS[batch.signature.c]
    batch.c[:] = ((1 << format_.exponent_bits) - 1 << format_.fraction_bits) | 1
    answers = search.ask(batch)
    search.add(batch, answers)
    return int(answers[0])


_KEYS = (
    "scaled", "addend", "fraction_bits", "significand", "rounding", "products", "widened", "truncation",
    "floor", "subnormal_in", "subnormal_c", "subnormal_out", "overflow", "zero",
)  # fmt: skip
_TIED = ("products", "widened", "truncation", "subnormal_in", "subnormal_c", "subnormal_out", "overflow", "zero")
"""Keys of few values, of which one may decide whether another shows: nothing is subnormal in inputs that are widened."""
_ALIGNMENT = ("truncation", "products", "floor")
"""Keys that mean nothing where nothing is lost before the rounding."""


def _descended(search: _Search, machine: Machine, again: bool = False) -> Machine:
    """The hypothesis that the answers leave: one key after the other, two at a time near it; `again`: then from the start by the best change first."""
    start, wrong = machine, search.wrong(machine)
    machine, wrong = _settled(search, machine, wrong)
    if not (wrong and again):
        return machine
    share = search.part(machine, 800)
    other, count = start, share.wrong(start)
    for _ in range(len(_KEYS)):
        before = count
        other, count = _best(share, other, count, _KEYS)
        if count in (0, before):
            break
    other, count = _settled(search, other, search.wrong(other))
    return machine if wrong <= count else other


def _settled(search: _Search, machine: Machine, wrong: int) -> tuple[Machine, int]:
    for _ in range(6):
        for _ in range(6):
            before = wrong
            for key in _KEYS:
                machine, wrong = _best(search, machine, wrong, [key])
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


def _moves(search: _Search, machine: Machine) -> list[tuple[str, Any]]:
    """Values of the keys near a hypothesis: every other one of a key of few values, the next ones of a number."""
    found: list[tuple[str, Any]] = []
    for key in _KEYS:
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


def _pairs(moves: list[tuple[str, Any]]) -> Iterator[dict[str, Any]]:
    for place, (one, x) in enumerate(moves):
        for other, y in moves[:place]:
            if one != other:
                yield {one: x, other: y}


def _paired(search: _Search, machine: Machine, wrong: int) -> tuple[Machine, int]:
    """The best change of two keys at once; of three or four where two leave it as it is."""
    share = search.part(machine, 600)
    beam, count = [machine], share.wrong(machine)
    for _ in range(2):
        found: list[tuple[int, int, Machine]] = []
        for base in beam:
            bad = np.flatnonzero(share.refuted(base))
            few = bad[:: max(1, len(bad) // 60)]
            failing, answers = share.pool[few], share.answers[few]
            for values in _pairs(_moves(search, base)):
                other = _with(base, values)
                if (answer(other, failing) != answers).mean() < 0.9:
                    found.append((share.wrong(other), len(found), other))
        found.sort()
        if found and found[0][0] < count:
            total = search.wrong(found[0][2])
            if total < wrong:
                return found[0][2], total
        beam = [other for _, _, other in found[:4]]
    return machine, wrong


def _with(machine: Machine, values: dict[str, Any]) -> Machine:
    return replace(machine, **values)


def _best(search: _Search, machine: Machine, wrong: int, keys: Sequence[str]) -> tuple[Machine, int]:
    """The machine with the one change, of all values of some keys, that leaves fewest wrong answers."""
    others = [
        _with(machine, {key: value})
        for key in keys
        if machine.fraction_bits is not None or key not in _ALIGNMENT
        for value in search.choices[key]
        if value != getattr(machine, key)
    ]
    return _chosen(search, machine, wrong, others)


def _chosen(search: _Search, machine: Machine, wrong: int, others: Sequence[Machine]) -> tuple[Machine, int]:
    """The best of some machines, if it is better than one: few questions choose those that are asked all."""
    if not wrong or not others:
        return machine, wrong
    bad, rng = search.refuted(machine), np.random.default_rng(wrong)
    some = [rng.permutation(np.flatnonzero(rows))[:_FEW] for rows in (bad, ~bad)]
    rows = np.concatenate(some)
    weight = np.repeat([bad.sum() / max(1, len(some[0])), (~bad).sum() / max(1, len(some[1]))], [len(x) for x in some])
    failing, few = search.pool[some[0]], search.pool[rows]
    estimates = []
    for place, other in enumerate(others):
        if (answer(other, failing) != search.answers[some[0]]).all():
            continue  # explains nothing more
        estimate = float((answer(other, few) != search.answers[rows]) @ weight)
        if estimate < wrong:
            estimates.append((estimate, place))
    best = machine
    for _, place in sorted(estimates)[:6]:
        if (count := search.wrong(others[place])) < wrong:
            best, wrong = others[place], count
    return best, wrong


def _ordered(search: _Search, machine: Machine, wrong: int) -> tuple[Machine, int]:
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


def _uniform(search: _Search, machine: Machine) -> Machine:
    """Steps of one length where they answer the same: the first of two steps that start from zero may be exact."""
    lengths = {len(step) for step in machine.step[1:]}
    if len(lengths) != 1 or len(machine.step[0]) != 2 * min(lengths):
        return machine
    first, length = machine.step[0], min(lengths)
    other = replace(machine, step=(first[:length], first[length:], *machine.step[1:]))
    return machine if search.wrong(other) else other


def _rivals(search: _Search, machine: Machine, key: str) -> list[Any]:
    """The values that have to be told from the found one."""
    own, valid = getattr(machine, key), search.choices[key]
    if key in ("fraction_bits", "significand"):
        near = [valid[0], *((own - 1, own + 1, None) if own is not None else (valid[-2],))]
        return [value for value in near if value in valid and value != own]
    if key == "floor":
        return [-133] if own is None else [value for value in (None, own - 1, own + 1) if value in valid]
    return [value for value in valid if value != own]


def _concluded(search: _Search, machine: Machine, left: int = 4) -> Identified:
    """Each key with the question that tells it from its rivals, or not observable where there is none."""
    sig = search.questions.signature
    places = [(1500, tuple(range(sig.k)))]
    if len(machine.step) > 1:
        places.append((400, machine.step[0]))  # all of it beside c
    more = joined([search.questions.ask(kind, count, where, machine) for kind in KINDS for count, where in places])
    mine = answer(machine, more)
    rows = np.random.default_rng(0).permutation(len(more))
    parts = [(part, more[part]) for part in np.split(rows, [1000, 4000])]
    found: dict[str, Any] = {}
    evidence: list[Evidence] = []
    asked: list[int] = []
    notes: list[tuple[str, Any, int]] = []
    for key in ("step", *_KEYS):
        found[key] = getattr(machine, key)
        if key == "step":
            rivals = _other_steps(machine, sig.k)
        else:
            rivals = _rivals(search, machine, key)
        told = 0
        for rival in rivals:
            other = _with(machine, {key: rival})
            differ = _differing(other, parts, mine)
            told += bool(len(differ))
            if len(differ):
                shortest = differ[np.argmin(_size(more[differ]))]
                asked.append(int(shortest))
                notes.append((key, rival, int(answer(other, more[shortest : shortest + 1])[0])))
        if rivals and not told and key != "step":
            found[key] = NOT_OBSERVABLE
    hidden = [key for key in _TIED if found[key] == NOT_OBSERVABLE]
    together = _together(search, machine, hidden, parts, mine)
    tied = tuple(key for key in hidden if key in together or _depends(search, machine, key, notes, more, mine))
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
            machine = _descended(search, machine)
            if left and not search.wrong(machine):
                return _concluded(search, machine, left - 1)
            return _refused(search, machine)
    found["nan"] = machine.nan
    return Identified(sig, found, machine, tuple(evidence), search.asked, None, tied)


def _differing(machine: Machine, parts: list[tuple[Array, Batch]], answers: Array) -> Array:
    """Rows of the first part of some questions in which a machine answers any otherwise."""
    for rows, batch in parts:
        differ = rows[answer(machine, batch) != answers[rows]]
        if len(differ):
            return differ
    return np.zeros(0, np.int64)


def _together(
    search: _Search, machine: Machine, keys: Sequence[str], parts: list[tuple[Array, Batch]], mine: Array
) -> set[str]:
    """Keys that show nothing alone, but with the rival of another one that shows nothing alone either."""
    found: set[str] = set()
    for place, one in enumerate(keys):
        for other in keys[:place]:
            for x, y in product(_rivals(search, machine, one), _rivals(search, machine, other)):
                if len(_differing(_with(machine, {one: x, other: y}), parts, mine)):
                    found |= {one, other}
    return found


def _depends(
    search: _Search, machine: Machine, key: str, notes: list[tuple[str, Any, int]], batch: Batch, mine: Array
) -> bool:
    """Whether a key that shows nothing alone decides whether another one shows.

    With a rival of the key, the value of another key may no longer be told from one that the answers refute now. Then two
    machines that answer alike differ in both keys, and in the second one the first key can be observed.
    """
    for rival in _rivals(search, machine, key):
        for other, value, _ in notes:
            if other in _TIED and (answer(_with(machine, {key: rival, other: value}), batch) == mine).all():
                return True
    return False


def _other_steps(machine: Machine, k: int) -> list[tuple[tuple[int, ...], ...]]:
    """Other orders: all in one step, halves, and the found steps backwards."""
    rivals = [(tuple(range(k)),), (tuple(range(k // 2)), tuple(range(k // 2, k))), tuple(reversed(machine.step))]
    return [rival for rival in rivals if rival != machine.step]


def _size(batch: Batch) -> Array:
    size: Array = ((batch.a != 0) & (batch.b != 0)).sum(axis=1) + (batch.c != 0)
    return size


def _refused(search: _Search, machine: Machine) -> Identified:
    """Outside the hypotheses: the smallest question that the nearest hypothesis answers wrongly."""
    bad = np.flatnonzero(search.refuted(machine))
    bad = bad[np.argsort(_size(search.pool[bad]), kind="stable")][:1]
    case = search.pool[bad]
    told = search.answers[bad]
    for _ in range(4):
        smaller, changed = case, False
        for column in range(search.questions.signature.k):
            if not (smaller.a[0, column] or smaller.b[0, column]):
                continue
            trial = smaller[[0]]
            trial.a[0, column] = trial.b[0, column] = 0
            smaller, told, changed = _kept(search, machine, smaller, told, trial, changed)
        trial = smaller[[0]]
        trial.c[:] = 0
        if smaller.c[0]:
            smaller, told, changed = _kept(search, machine, smaller, told, trial, changed)
        case = smaller
        if not changed:
            break
    mismatch = Mismatch.of(case, int(told[0]), int(answer(machine, case)[0]))
    return Identified(search.questions.signature, {}, machine, (), search.asked, mismatch)


def _kept(
    search: _Search, machine: Machine, case: Batch, told: Array, trial: Batch, changed: bool
) -> tuple[Batch, Array, bool]:
    answers = search.ask(trial)
    if (answers != answer(machine, trial)).any():
        return trial, answers, True
    return case, told, changed
