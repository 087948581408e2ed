"""Mistakes of how a tile is read that only some tiles of K have, as those of one stage of the pipeline do.

What a rule changes in an output is a sum over K, so that the tiles of K in which it holds are a solution of linear equations: weights of 0 and 1.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import numpy as np

from tcsim.diagnosis.candidate import Candidate
from tcsim.diagnosis.least_squares import in_parts, samples
from tcsim.diagnosis.maps import LATE, SAME, Ints, Rule, Where
from tcsim.diagnosis.problem import Problem
from tcsim.diagnosis.reals import Mask, Numbers, Reals
from tcsim.diagnosis.solve import Solver
from tcsim.diagnosis.where import ranges

TIMES = (16, 8, 4, 2)  # instructions in a tile's K
_MOST = 24  # tiles
_LINES = (0, 1, 2, 3, 4, 5, 6, 7, 9, 15, 17, 31, 33, 63)  # by which it is seen whether a rule stays inside a tile
_SAMPLES = 12  # outputs beyond one for each tile
_AT_ONCE = 64  # rules
_OFF = 0.1  # how far from 0 or 1 a weight may come out
_STAGES = (2, 3, 4, 5, 6)
_STAGE = "the other K tiles are right: look at what differs from stage to stage, as the address at which each begins"
_Pair = tuple[Rule, Rule]  # of A and of B


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
    plain = solver.read("a", chosen, (SAME,)), solver.read("b", chosen, (SAME,))
    terms = plain[0] * plain[1]
    wanted = (reals.observed - reals.c)[place] - terms[0].sum(axis=1)
    for pairs in _pairs(solver, units):
        read = [
            plain[side] if pairs[0][side] is SAME else solver.read(name, chosen, [pair[side] for pair in pairs])
            for side, name in enumerate("ab")
        ]
        changes = read[0] * read[1] - terms
        for unit in units:
            for number, holds in holding(in_parts(changes, unit).sum(axis=3), wanted, reals.reach[place]):
                if all(_stays(rule, solver, name, unit) for rule, name in zip(pairs[number], "ab", strict=True)):
                    a, b = (
                        _only(rule, solver, name, holds, unit) for rule, name in zip(pairs[number], "ab", strict=True)
                    )
                    yield unit, Candidate(a, b)


def _pairs(solver: Solver, units: list[int]) -> Iterator[list[_Pair]]:
    """Rules that stay inside the largest tiles of K: of A, of B, and of both alike; some at once."""
    own, other = ([rule for rule in solver.rules[name] if _stays(rule, solver, name, units[0])] for name in "ab")
    alike = {(rule.mistake, rule.detail, rule.part): rule for rule in other}
    both = ((rule, alike.get((rule.mistake, rule.detail, rule.part))) for rule in own)
    listed: tuple[list[_Pair], ...] = (
        [(rule, SAME) for rule in own],
        [(SAME, rule) for rule in other],
        [(one, two) for one, two in both if two is not None],
    )
    for pairs in listed:
        for start in range(0, len(pairs), _AT_ONCE):
            yield pairs[start : start + _AT_ONCE]


def _width(rule: Rule, solver: Solver, name: str) -> int:
    """The extent along K of what a rule counts: elements, those kept of a sparse A, or scale factors."""
    reals = solver.reals
    if reals.kept is not None and rule.part in ("metadata", "data"):
        return reals.kept.shape[2]
    return reals.factors["ab".index(name)].shape[2] if rule.part == "scale" and reals.factors else reals.a.shape[2]


def _stays(rule: Rule, solver: Solver, name: str, unit: int) -> bool:
    """Whether every k comes from its own tile, and not the whole line from another."""
    if rule is SAME:
        return True
    if rule.lines_only or rule.crosses or rule.recode or (rule.mistake == LATE and rule.rank > 2):  # of one block alone
        return False
    width = _width(rule, solver, name)
    part, k = max(1, unit * width // solver.reals.a.shape[2]), np.arange(width)[None]
    row, at = np.broadcast_arrays(*rule.where(np.array(_LINES)[:, None], k, np.zeros((1, 1), np.int64)))
    own = np.broadcast_to(np.array(_LINES)[:, None], row.shape)
    if (at == k).all() and (row != own).any(axis=1).all():
        return False  # whole lines of others
    return bool(((at // part == k // part) | (row < 0) | (at < 0)).all())


def holding(changes: Numbers, wanted: Numbers, reach: Numbers) -> Iterator[tuple[int, Mask]]:
    """The rules of (rules, samples, tiles) whose changes in some of the tiles, not in all that they change, are the wanted ones."""
    changes = np.where(
        np.isfinite(changes).all(axis=(1, 2), keepdims=True), changes, 0.0
    )  # what overflows holds nowhere
    size = np.linalg.norm(changes, axis=1)
    moves = size > 1e-9 * float(size.max(initial=1e-300))
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
