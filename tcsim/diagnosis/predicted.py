"""The codes that a candidate predicts: its operands reread, in the order of summation and with the epilogue that give every bit."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from tcsim.diagnosis.candidate import Candidate, taken
from tcsim.diagnosis.maps import SAME, Rule
from tcsim.diagnosis.orders import ASCENDING, OVERLAPPING, Order, chained, from_c, orders
from tcsim.diagnosis.problem import Codes, Part, Problem, clamped
from tcsim.diagnosis.reals import Ints
from tcsim.diagnosis.recoded import recoded
from tcsim.numbers.codec import decode, encode

End = Callable[[Codes], Codes]  # what the epilogue makes of the codes of d
_SIDE = 8  # rows and columns of the outputs that every way is tried on first
_KEPT = 4  # predictions of all outputs that are kept
_TOLD = 8  # ways that give every bit of some outputs and not of others: then the order is left open


@dataclass(frozen=True)
class Way:
    """One way to compute a candidate: the order of its blocks of K, how they are added, what is done with C."""

    blocks: tuple[int, ...]
    order: Order = ASCENDING
    zero: bool = False  # the accumulator starts from zero, and C is added at the end
    alpha: float = 1.0  # at the end
    beta: float = 0.0  # of C, at the end
    apart: bool = False  # alpha's and beta's products are rounded before they are added

    @property
    def said(self) -> str:
        """The order of summation, if it is not the model's."""
        return "" if self.order is ASCENDING else self.order.said


def codes_of(problem: Problem, item: Candidate, way: Way, part: Part) -> Codes | None:
    """The codes that a candidate predicts of a part, before the epilogue; None if the instruction cannot compute it."""
    out = np.empty((len(part.rows), len(part.columns)), problem.machine.formats["d"].dtype)
    height, width = problem.observed.shape[1:]
    for rows in _alike(part.rows, item.b, width):
        for columns in _alike(part.columns, item.a, height):
            one = read_by(problem, item, way, Part(part.matrix, part.rows[rows], part.columns[columns]))
            if one is None:
                return None
            out[np.ix_(rows, columns)] = way.order.run(one, one.every)
    return _ended(_with_c(problem, item, part), way, out)


def _with_c(problem: Problem, item: Candidate, part: Part) -> Problem:
    """The problem of a part's outputs alone, with the C that a candidate adds to them."""
    return replace(
        problem.of(part), c=item.c_of(problem.c[part.matrix])[np.ix_(part.rows, part.columns)][None], finish=None
    )


def read_by(problem: Problem, item: Candidate, way: Way, part: Part) -> Problem | None:
    """The problem of a part's outputs alone as a candidate reads it, whose rules are the same for all of them; None if the instruction cannot compute it."""
    one: Problem | None = replace(_with_c(problem, item, part), order=way.blocks)
    for name, rule, lines, other in (
        ("a", item.a, part.rows, part.columns[0]),
        ("b", item.b, part.columns, part.rows[0]),
    ):
        one = None if one is None else _reread(problem, one, name, rule, part.matrix, lines, int(other))
    return replace(one, c=np.zeros_like(one.c)) if one is not None and way.zero else one


def _alike(lines: Ints, rule: Rule, count: int) -> Iterator[Ints]:
    """The places of lines of one operand for which a rule of the other, of `count` lines, reads the same."""
    if not rule.crosses:
        yield np.arange(len(lines))
        return
    own = np.arange(count)
    maps: dict[bytes, list[int]] = {}
    for place, line in enumerate(lines):
        row, at = rule.where(own, own * 0, np.full(count, line))
        maps.setdefault(np.stack(np.broadcast_arrays(row, at)).tobytes(), []).append(place)
    yield from (np.array(places) for places in maps.values())


def _ended(problem: Problem, way: Way, codes: Codes) -> Codes:
    """Codes (M, N) with the factors of the epilogue."""
    if way.alpha != 1.0 or way.beta != 0.0:
        formats = problem.machine.formats
        with np.errstate(all="ignore"):
            alpha, beta = np.array([way.alpha, way.beta], np.float64 if formats["d"].bits > 32 else np.float32)
            scaled = np.float64(alpha) * decode(codes, formats["d"]).astype(np.float64)
            more = np.float64(beta) * decode(problem.c[0], formats["c"]).astype(np.float64)
            if way.apart:
                scaled, more = (
                    decode(encode(x, formats["d"]), formats["d"]).astype(np.float64) for x in (scaled, more)
                )
            codes = encode(scaled + more, formats["d"])
    return problem.after_clamp(codes, 0)


def ways(problem: Problem, item: Candidate) -> Iterator[Way]:
    """In the instruction's own order, the likeliest first."""
    plain = problem.order
    listed = [plain] if item.count is None else list(item.count.orders(problem.step))
    has_c = bool(problem.c.any())
    whole = problem.machine.formats["d"].kind == "float" or float(item.alpha).is_integer()
    for blocks in listed:
        if item.alpha == 1.0 and (item.beta == 1.0 or not has_c):
            yield Way(blocks)
        elif item.alpha == 1.0 and item.beta == 0.0:
            yield Way(blocks, zero=True)
        elif whole and (item.alpha == item.beta or not has_c):
            yield Way(blocks, alpha=item.alpha)
        if has_c and whole and (item.alpha, item.beta) != (1.0, 0.0):
            yield Way(blocks, zero=True, alpha=item.alpha, beta=item.beta)
            yield Way(blocks, zero=True, alpha=item.alpha, beta=item.beta, apart=True)
            if item.alpha == 1.0 and item.beta != 1.0:
                yield Way(blocks, beta=item.beta - 1.0)


def other_ways(problem: Problem, item: Candidate) -> Iterator[Way]:
    """In the other orders of summation of right kernels."""
    own = list(ways(problem, item))
    if item.alpha == 1.0 and item.beta >= 2.0 and item.beta.is_integer():
        for order in from_c(problem, int(item.beta)):
            yield Way(problem.order, order=order)
    if chained(problem) and item.count is not None and (item.count.weights > 1).any():
        yield from (replace(way, order=OVERLAPPING) for way in own)
    for order in orders(problem):
        for way in own:
            if way.blocks == problem.order or order.parts:
                yield replace(way, order=order)


def sample(gives: npt.NDArray[np.bool_]) -> tuple[Part, npt.NDArray[np.bool_]]:
    """Some rows and columns that hold many of the outputs of a mask, and which of theirs it holds."""
    matrix = int(gives.sum(axis=(1, 2)).argmax())
    own = gives[matrix]
    columns = own[own.sum(axis=1).argmax()]
    rows = own[:, columns].sum(axis=1)
    rows = rows >= max(1, rows.max() // 2)
    part = Part(matrix, _few(np.flatnonzero(rows)), _few(np.flatnonzero(columns)))
    return part, own[np.ix_(part.rows, part.columns)]


def _few(lines: Ints) -> Ints:
    """Neighbours and distant ones."""
    return lines[np.unique(np.linspace(0, len(lines) - 1, _SIDE).astype(np.int64))]


def way_of(
    problem: Problem,
    item: Candidate,
    gives: npt.NDArray[np.bool_],
    ends: tuple[End, ...],
    others: bool = False,
    every: bool = False,
) -> Way | None:
    """The first way that gives every bit of some of the outputs of a mask, or of all; None if there is none."""
    if not gives.any():
        return None
    asked = [sample(gives)]  # and the outputs that told ways so far from the right one, the last of them first
    for way in (other_ways if others else ways)(problem, item):
        for part, known in asked:
            codes = codes_of(problem, item, way, part)
            if codes is None:
                return None
            if not any((end(codes) == problem.seen(part))[known].all() for end in ends):
                asked.sort(key=lambda one: one[0] is not part)
                break
        else:
            found = whole(problem, item, way) if every else None
            if found is None:
                return way
            apart = min(((end(found) != problem.observed) & gives for end in ends), key=np.sum)
            if not apart.any():
                return way
            asked.insert(0, sample(apart))
            if len(asked) > _TOLD:
                return None
    return None


def whole(problem: Problem, item: Candidate, way: Way) -> Codes | None:
    """The codes of all outputs, (batch, M, N); the last ones are kept with the problem."""
    kept = problem.computed
    if (id(item), way) not in kept:
        found = [codes_of(problem, item, way, part) for part in problem.parts()]
        known = (
            None if any(codes is None for codes in found) else np.stack([codes for codes in found if codes is not None])
        )
        if len(kept) == _KEPT:
            del kept[next(iter(kept))]
        kept[id(item), way] = item, known
    return kept[id(item), way][1]


def _reread(
    problem: Problem, one: Problem, name: str, rule: Rule, matrix: int, lines: Ints, other: int
) -> Problem | None:
    """Some outputs' problem with the lines of an operand as a rule reads them from the whole, for one line of the other operand; None if its parts do not go along."""
    if rule is SAME:
        return one
    if rule.recode:
        return recoded(one, name, rule.recode, always=True)
    codes = problem.a[matrix] if name == "a" else problem.b[matrix].T
    positions = problem.positions if name == "a" else None
    factors = None if problem.scales is None else problem.scales["ab".index(name)][matrix]
    factors = factors if name == "a" or factors is None else factors.T
    if rule.part:
        return _other_part(
            one, name, rule, lines, other, (codes, None if positions is None else positions[matrix], factors)
        )
    share = problem.step // problem.kept if name == "a" else 1
    unit = problem.machine.sparsity.group // share if problem.machine.sparsity is not None and name == "a" else 1
    place = _in_units(rule, lines, codes.shape[1] // unit, unit * share, other)
    if place is None:
        return None
    one = _with_lines(one, name, _units(codes, place, unit))
    if positions is not None:
        one = replace(one, positions=_units(positions[matrix], place, unit)[None])
    if factors is None:
        return one
    place = _in_units(rule, lines, factors.shape[1], codes.shape[1] * share // factors.shape[1], other)
    return None if place is None else _with_factors(one, name, _units(factors, place, 1))


def _with_lines(one: Problem, name: str, lines: Codes) -> Problem:
    return replace(one, a=lines[None]) if name == "a" else replace(one, b=lines.T[None])


def _with_factors(one: Problem, name: str, factors: Codes) -> Problem:
    if one.scales is None:
        raise TypeError("the problem has no scales")
    own, others = one.scales
    return replace(one, scales=(factors[None], others) if name == "a" else (own, factors.T[None]))


def _in_units(rule: Rule, lines: Ints, units: int, size: int, other: int) -> tuple[Ints, Ints] | None:
    """(line, unit) that stand in for each, where a rule moves whole units of K; None if it does not."""
    row, k = lines[:, None], np.arange(units * size)[None]
    row, k = np.broadcast_arrays(*rule.where(row, k, np.full((1, 1), other)))
    row, k = (np.broadcast_to(x, (len(lines), units * size)).reshape(len(lines), units, size) for x in (row, k))
    outside = (row < 0) | (k < 0)
    first = k[:, :, :1]
    same = (row == row[:, :, :1]) & (k == first + np.arange(size)) & (first % size == 0)
    if not (same | outside.all(axis=2, keepdims=True)).all():
        return None
    return np.where(outside[:, :, 0], -1, row[:, :, 0]), first[:, :, 0] // size


def _units(codes: Codes, place: tuple[Ints, Ints], size: int) -> Codes:
    """Whole units of (lines, K) taken from elsewhere; zeros outside."""
    if size == 1:
        return taken(codes, *place)
    units = codes.reshape(codes.shape[0], -1, size)
    return np.stack([taken(units[:, :, i], *place) for i in range(size)], axis=2).reshape(len(place[0]), -1)


def _other_part(
    one: Problem, name: str, rule: Rule, lines: Ints, other: int, held: tuple[Codes, Codes | None, Codes | None]
) -> Problem:
    """Some outputs' problem with other metadata, other factors or other elements of an operand. held: its codes, positions and factors."""

    def read(source: npt.NDArray[Any], outside: Any = 0) -> npt.NDArray[Any]:
        k = np.arange(source.shape[1])[None]
        row, at = np.broadcast_arrays(*rule.where(lines[:, None], k, np.full((1, 1), other)))
        return taken(source, row, at, outside)

    codes, positions, factors = held
    sparsity = one.machine.sparsity
    if rule.part == "data":
        return _with_lines(one, name, read(codes))
    if rule.part == "metadata" and positions is not None and sparsity is not None:
        first = np.arange(positions.shape[1]) % (sparsity.kept // sparsity.groups)
        return replace(one, positions=read(positions, first)[None])
    if factors is None:
        return one
    return _with_factors(one, name, read(factors, encode(1.0, one.machine.formats["scale"])))


def ends_of(with_clamp: bool, formats: tuple[End, ...]) -> tuple[End, ...]:
    """What an epilogue may do at the end: a clamp at zero, then one of some roundings."""
    first: tuple[End, ...] = (clamped,) if with_clamp else ()
    return tuple(partial(_through, (*first, last)) for last in formats) or (partial(_through, first),)


def _through(steps: tuple[End, ...], codes: Codes) -> Codes:
    for step in steps:
        codes = step(codes)
    return codes
