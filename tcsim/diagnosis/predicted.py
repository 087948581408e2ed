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
from tcsim.diagnosis.problem import Codes, Part, Problem
from tcsim.diagnosis.reals import Ints
from tcsim.diagnosis.recoded import recoded
from tcsim.numbers.codec import decode, encode

End = Callable[[Codes], Codes]  # what the epilogue makes of the codes of d
_SIDE = 8  # rows and columns of the outputs that every way is tried on first
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
    problem = replace(problem, c=np.stack([item.c_of(c) for c in problem.c]))
    changed = replace(problem, order=way.blocks, finish=None)
    if way.zero:
        changed = replace(changed, c=np.zeros_like(problem.c))
    out = np.empty((len(part.rows), len(part.columns)), problem.machine.formats["d"].dtype)
    height, width = problem.observed.shape[1:]
    for rows in _alike(part.rows, item.b, width):
        for columns in _alike(part.columns, item.a, height):
            one = _reread(changed, "a", item.a, int(part.columns[columns[0]]))
            one = None if one is None else _reread(one, "b", item.b, int(part.rows[rows[0]]))
            if one is None:
                return None
            where = Part(part.matrix, part.rows[rows], part.columns[columns])
            out[np.ix_(rows, columns)] = way.order.run(one, where)
    return _ended(problem, way, part, out)


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


def after_clamp(problem: Problem, part: Part, codes: Codes) -> Codes:
    """Codes of a part clamped at zero, and then the C that is added after it; the codes, if there is none."""
    if problem.after is None:
        return codes
    formats = problem.machine.formats
    c = problem.after[part.matrix][np.ix_(part.rows, part.columns)]
    total = decode(_clamped(codes), formats["d"]).astype(np.float64) + decode(c, formats["c"]).astype(np.float64)
    return encode(total, formats["d"])


def _ended(problem: Problem, way: Way, part: Part, codes: Codes) -> Codes:
    return after_clamp(problem, part, _scaled(problem, way, part, codes))


def _scaled(problem: Problem, way: Way, part: Part, codes: Codes) -> Codes:
    if way.alpha == 1.0 and way.beta == 0.0:
        return codes
    formats = problem.machine.formats
    c = decode(problem.c[part.matrix][np.ix_(part.rows, part.columns)], formats["c"]).astype(np.float64)
    with np.errstate(all="ignore"):
        scaled, more = way.alpha * decode(codes, formats["d"]).astype(np.float64), way.beta * c
        if way.apart:
            scaled, more = (decode(encode(x, formats["d"]), formats["d"]).astype(np.float64) for x in (scaled, more))
        return encode(scaled + more, formats["d"])


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
    """The codes of all outputs, (batch, M, N)."""
    found = [codes_of(problem, item, way, part) for part in problem.parts()]
    return None if any(codes is None for codes in found) else np.stack([codes for codes in found if codes is not None])


def _reread(problem: Problem, name: str, rule: Rule, other: int) -> Problem | None:
    """The problem with an operand as a rule reads it, for one line of the other operand; None if its parts do not go along."""
    if rule is SAME:
        return problem
    if rule.recode:
        return recoded(problem, name, rule.recode)
    if rule.part:
        return _other_part(problem, name, rule, other)
    codes = problem.a if name == "a" else problem.b.swapaxes(1, 2)
    share = problem.step // problem.kept if name == "a" else 1
    unit = problem.machine.sparsity.group // share if problem.machine.sparsity is not None and name == "a" else 1
    place = _in_units(rule, codes.shape[1], codes.shape[2] // unit, unit * share, other)
    if place is None:
        return None
    read = np.stack([_units(x, place, unit) for x in codes])
    changed = replace(problem, a=read) if name == "a" else replace(problem, b=read.swapaxes(1, 2))
    if name == "a" and problem.positions is not None:
        changed = replace(changed, positions=np.stack([_units(x, place, unit) for x in problem.positions]))
    if problem.scales is None:
        return changed
    own = problem.scales["ab".index(name)]
    own = own if name == "a" else own.swapaxes(1, 2)
    place = _in_units(rule, own.shape[1], own.shape[2], codes.shape[2] * share // own.shape[2], other)
    if place is None:
        return None
    factors = np.stack([_units(x, place, 1) for x in own])
    mine, others = problem.scales
    return replace(changed, scales=(factors, others) if name == "a" else (mine, factors.swapaxes(1, 2)))


def _in_units(rule: Rule, lines: int, units: int, size: int, other: int) -> tuple[Ints, Ints] | None:
    """(line, unit) that stand in for each, where a rule moves whole units of K; None if it does not."""
    row, k = np.arange(lines)[:, None], np.arange(units * size)[None]
    row, k = np.broadcast_arrays(*rule.where(row, k, np.full((1, 1), other)))
    row, k = (np.broadcast_to(x, (lines, units * size)).reshape(lines, units, size) for x in (row, k))
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


def _other_part(problem: Problem, name: str, rule: Rule, other: int) -> Problem:
    """The problem with other metadata, other factors or other elements of an operand."""

    def read(lines: npt.NDArray[Any], outside: Any = 0) -> npt.NDArray[Any]:
        row, k = (np.arange(size) for size in lines.shape[1:])
        place = np.broadcast_arrays(*rule.where(row[:, None], k[None], np.full((1, 1), other)))
        return np.stack([taken(codes, place[0], place[1], outside) for codes in lines])

    if rule.part == "data":
        codes = read(problem.a) if name == "a" else read(problem.b.swapaxes(1, 2)).swapaxes(1, 2)
        return replace(problem, a=codes) if name == "a" else replace(problem, b=codes)
    sparsity = problem.machine.sparsity
    if rule.part == "metadata" and problem.positions is not None and sparsity is not None:
        first = np.arange(problem.positions.shape[2]) % (sparsity.kept // sparsity.groups)
        return replace(problem, positions=read(problem.positions, first))
    if problem.scales is None:
        return problem
    own, others = problem.scales
    one = encode(1.0, problem.machine.formats["scale"])
    if name == "a":
        return replace(problem, scales=(read(own, one), others))
    return replace(problem, scales=(own, read(others.swapaxes(1, 2), one).swapaxes(1, 2)))


def _clamped(codes: Codes) -> Codes:
    """Negative codes as zeros."""
    return np.where(codes >> (codes.dtype.itemsize * 8 - 1) == 1, codes.dtype.type(0), codes)


def ends_of(clamped: bool, formats: tuple[End, ...]) -> tuple[End, ...]:
    """What an epilogue may do at the end: a clamp at zero, then one of some roundings."""
    first: tuple[End, ...] = (_clamped,) if clamped else ()
    return tuple(partial(_through, (*first, last)) for last in formats) or (partial(_through, first),)


def _through(steps: tuple[End, ...], codes: Codes) -> Codes:
    for step in steps:
        codes = step(codes)
    return codes
