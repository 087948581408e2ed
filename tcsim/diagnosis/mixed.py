"""Which k of A met which k of B, where no rule says it: read off the outputs as weights of partial products.

A kernel that takes the right lines and mixes up K computes a P b for some matrix P. P is the same in every period of K (a word, a fragment, a
tile), or moves whole units of it; either way it has few unknowns, and every output is one equation.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from itertools import product

import numpy as np

from tcsim.core.ranges import runs
from tcsim.diagnosis.candidate import Candidate, of_operand
from tcsim.diagnosis.counts import counted
from tcsim.diagnosis.least_squares import in_parts, in_tile, samples, solved_at, sources
from tcsim.diagnosis.line_words import MORE, described
from tcsim.diagnosis.maps import LINES, Ints, Rule
from tcsim.diagnosis.problem import Problem
from tcsim.diagnosis.reals import Mask, Reals
from tcsim.diagnosis.where import ranges

_UNITS = 32  # of a period, at most
_PERIODS = (8, 16, 32, 64, 128)
_TILES, _STEPS = (32, 64, 128, 256), (8, 16, 32)  # of which whole steps may be mixed
_LISTED = 32  # a period that is written out
_LINE_BLOCKS = (128, 64, 32, 16, 8)
_ACROSS = (128, 64, 32)  # lines of the other operand in a tile
_BLOCK_TERMS = 400
_TWICE = 1.5  # what is taken, of a right kernel's K: more than that is miscounted in a way that other rules say
_ORDER = "look at the order in which the elements of {x} lie in registers, words and bytes: fragment layout, packing, interleaving"
_STAGE = "the stage was read before the copy landed (zeros, or an earlier tile), or the index along K is another one"
_PARTIALS = "look at which slices or partial sums of these tiles are added, and at what clears or overwrites them"
_BLOCK = "look at which tile's partial sums, or which tile's copies, the kernel takes for this part of K"


def k_maps(problem: Problem, reals: Reals, open_: Mask) -> Iterator[Candidate]:
    """K of one operand against K of the other."""
    depth = reals.a.shape[2]
    for period, unit in _periods(depth):
        for part in ("",) if reals.factors is None else ("a", "b", ""):
            found = _mixing(reals, open_, period, unit, part)
            if found is None or np.array_equal(found, np.eye(len(found), dtype=np.int64)):
                continue
            yield from _as_rules(problem, found, period, unit, depth, part)


def _periods(depth: int) -> Iterator[tuple[int, int]]:
    """(period, unit), fewest unknowns first."""
    listed = [(period, max(1, period // _UNITS)) for period in _PERIODS if period < depth]
    listed += [(period, unit) for period in _TILES for unit in _STEPS if unit < period < depth]
    unit = 1
    while -(-depth // unit) > _UNITS:
        unit *= 2
    listed += [(-(-depth // size) * size, size) for size in (4 * unit, 2 * unit, unit) if size < depth]
    yield from sorted(set(listed), key=lambda one: (one[0] // one[1], one))


def _mixing(reals: Reals, open_: Mask, period: int, unit: int, part: str) -> Ints | None:
    """How often unit p of A (in each period) meets unit q of B: (units, units)."""
    count = period // unit
    chosen = samples(reals, open_, count * count)
    if chosen is None:
        return None
    t, i, j = chosen.T
    if part and reals.bare is not None and reals.factors is not None:  # factors stay where they are
        width = reals.a.shape[2] // reals.factors[0].shape[2]
        both = np.repeat(reals.factors[0][t, i] * reals.factors[1][t, j], width, axis=1)
        a, b = reals.bare[0][t, i], reals.bare[1][t, j]
        a, b = (a, b * both) if part == "a" else (a * both, b)
    else:
        a, b = reals.a[t, i], reals.b[t, j]
    periods = [in_parts(x, period).reshape(len(x), -1, count, unit) for x in (a, b)]
    left, right = (x.transpose(0, 2, 1, 3).reshape(len(x), count, -1) for x in periods)
    return solved_at(reals, chosen, left @ right.swapaxes(1, 2), _TWICE * count)


def _as_rules(problem: Problem, mixing: Ints, period: int, unit: int, depth: int, part: str) -> Iterator[Candidate]:
    """The same as a rule of one operand, or of either."""
    if (mixing == np.diag(np.diag(mixing))).all() and (mixing >= 0).all() and not part:
        times = np.repeat(np.diag(mixing), unit)
        taken = np.tile(times, -(-depth // period))[:depth].astype(np.float64)
        yield Candidate(count=counted(taken, 2, problem.step))
    for name, own in (("a", mixing.T), ("b", mixing)):
        source = sources(own) if part in ("", name) else None
        if source is not None:
            rule = k_rule(_repeated(source, period, unit, depth))
            rule = replace(rule, part="data") if part else rule
            yield of_operand(name, rule)


def _repeated(source: Ints, period: int, unit: int, depth: int) -> Ints:
    """The map of units of one period as a map of all k; -1 for a zero."""
    inner = np.where(source[:, None] < 0, -1, source[:, None] * unit + np.arange(unit)).reshape(-1)
    start = np.arange(0, depth, period)[:, None]
    found = np.where(inner < 0, -1, start + inner).reshape(-1)[:depth]
    return np.where(found < depth, found, -1)


def k_rule(source: Ints) -> Rule:
    """A map of k as a rule, the same for every line."""
    depth = len(source)
    where = partial(_at, source)
    moved = source != np.arange(depth)
    for period in _PERIODS[: _PERIODS.index(_LISTED) + 1]:
        if period >= depth:
            break
        inner = source[:period]
        start = np.arange(depth) // period * period
        again = np.resize(inner, depth)
        if np.array_equal(np.sort(inner), np.arange(period)) and np.array_equal(source, start + again):
            said = f"in each {period} along K the order is {', '.join(map(str, inner))}"
            return Rule("{x}: K permuted", said, _ORDER, where, 3)
    if (source[moved] < 0).all():
        said = f"K {runs(tuple(np.flatnonzero(moved).tolist()))} is zero"
        return Rule("{x}: K block not loaded", said, "look at which copies are made and awaited", where, 3)
    later = bool((source > np.arange(depth)).any())  # a stage holds earlier tiles, not later ones
    return Rule("K blocks of {x} mismatched", said_of(source), _STAGE, where, 3 + later)


def said_of(source: Ints) -> str:
    """A map of k in words.

    >>> said_of(np.array([0, 1, -1, -1, 0, 1]))
    'K 2-3 is zero, K 4-5 is that of K 0-1, an earlier one'
    """
    parts = []
    start = 0
    for stop in range(1, len(source) + 1):
        if stop < len(source) and source[stop] == (-1 if source[start] < 0 else source[stop - 1] + 1):
            continue
        if source[start] < 0:
            parts.append(f"K {start}-{stop - 1} is zero")
        elif source[start] != start:
            when = "an earlier one" if source[start] < start else "a later one"
            parts.append(f"K {start}-{stop - 1} is that of K {source[start]}-{source[stop - 1]}, {when}")
        start = stop
    return ", ".join(parts[:6]) + (f" and {len(parts) - 6} more" if len(parts) > 6 else "")


def _at(source: Ints, r: Ints, k: Ints, o: Ints) -> tuple[Ints, Ints]:
    return r, np.where(k < len(source), source[np.minimum(k, len(source) - 1)], k)


def line_maps_by_k(problem: Problem, reals: Reals, open_: Mask) -> Iterator[Candidate]:
    """Blocks of lines exchanged, or missing, in a part of K or in some tiles: each tile is a sum over K of products of any block of lines."""
    if len(reals.a) > 1:
        return
    for name, others in (("b", reals.a.shape[1]), ("a", reals.b.shape[1])):
        for across, size in product((others, *(size for size in _ACROSS if size < others)), _LINE_BLOCKS):
            for unit in (4 * problem.step, 2 * problem.step, problem.step):
                source = _blocks(reals, open_[0], name, size, across, unit)
                if source is not None:
                    yield of_operand(name, _block_rule(source, size, across, unit, reals, name))
                    break


def _blocks(reals: Reals, wrong: Mask, name: str, size: int, across: int, unit: int) -> Ints | None:
    """(blocks of the others, blocks of lines, units of K): which block of lines of an operand each takes; -1 for none; None if it is not so."""
    own, other = (reals.a[0], reals.b[0]) if name == "a" else (reals.b[0], reals.a[0])
    lines, others = len(own), len(other)
    blocks, tiles, parts = -(-lines // size), -(-others // across), -(-own.shape[1] // unit)
    if blocks < 2 or blocks * parts > _BLOCK_TERMS:
        return None
    own = np.pad(in_parts(own, unit), ((0, blocks * size - lines), (0, 0), (0, 0))).reshape(blocks, size, parts, unit)
    other = in_parts(other, unit)
    found = np.broadcast_to(np.arange(blocks)[:, None], (tiles, blocks, parts)).copy()
    for tile, block in np.ndindex(tiles, blocks):
        mine, theirs = (
            np.arange(block * size, min(lines, (block + 1) * size)),
            np.arange(tile * across, min(others, (tile + 1) * across)),
        )
        rows, columns = (mine, theirs) if name == "a" else (theirs, mine)
        if not wrong[np.ix_(rows, columns)].any():
            continue
        chosen = in_tile(reals, rows, columns, blocks * parts)
        if chosen is None:
            return None
        line, met = (chosen[:, 1], chosen[:, 2]) if name == "a" else (chosen[:, 2], chosen[:, 1])
        terms = np.einsum("bspu,spu->spb", own[:, line - mine[0]], other[met])
        source = sources(solved_at(reals, chosen, terms, parts))
        if source is None:
            return None
        found[tile, block] = source
    return None if (found == np.arange(blocks)[:, None]).all() else found


def _block_rule(source: Ints, size: int, across: int, unit: int, reals: Reals, name: str) -> Rule:
    what, those = ("rows", "columns") if name == "a" else ("columns", "rows")
    lines, others, depth = *reals.observed.shape[1:][:: 1 if name == "a" else -1], reals.a.shape[2]
    parts = []
    for (tile, block), row in ((number, source[number]) for number in np.ndindex(*source.shape[:2])):
        for other in dict.fromkeys(row[row != block].tolist()):
            at = np.flatnonzero(row == other)
            last = min(lines, (block + 1) * size) - 1
            place = f"{what} {block * size}-{last}"
            if len(source) > 1:
                place += f", {those} {tile * across}-{min(others, (tile + 1) * across) - 1}"
            k = runs(tuple(x for x in (at[:, None] * unit + np.arange(unit)).reshape(-1).tolist() if x < depth))
            k = "all of K" if len(at) == len(row) else f"K {k}"
            whose = f"{k} is that of {what} {other * size}-{other * size + size - 1}, of another block"
            parts.append(f"in {place} {whose if other >= 0 else f'{k} is missing'}")
    said = "; ".join(parts[:4]) + (f"; and {len(parts) - 4} more" if len(parts) > 4 else "")
    said = (_one_map(source[0], size, unit, depth, what) if len(source) == 1 and len(parts) > 2 else "") or said
    where = partial(_block_at, source, size, across, unit)
    if (source[source != np.arange(source.shape[1])[:, None]] < 0).all():
        return Rule("K block missing in some tiles", said, _PARTIALS, where, 4, crosses=len(source) > 1)
    kind = LINES if (source == source[:, :, :1]).all() else f"{LINES} in a part of K"
    return Rule(kind, said, _BLOCK, where, 4, crosses=len(source) > 1)


def _one_map(source: Ints, size: int, unit: int, depth: int, what: str) -> str:
    """In words, if one map, which a rule names, says the wrong blocks (blocks, parts) of every part of K that has any."""
    moved = (source != np.arange(len(source))[:, None]).any(axis=0)
    first = source[:, moved.argmax()]
    if (source[:, moved] != first[:, None]).any() or (first < 0).any():
        return ""
    said = described((first[:, None] * size + np.arange(size)).reshape(-1), what)
    k = (np.flatnonzero(moved)[:, None] * unit + np.arange(unit)).reshape(-1)
    k = k[k < depth]
    return "" if MORE in said else f"in K {ranges(k)}: {said}"


def _block_at(source: Ints, size: int, across: int, unit: int, r: Ints, k: Ints, o: Ints) -> tuple[Ints, Ints]:
    places = (x // each for x, each in zip((o, r, k), (across, size, unit), strict=True))
    block = source[tuple(np.minimum(x, most - 1) for x, most in zip(places, source.shape, strict=True))]
    return np.where(block < 0, -1, block * size + r % size), k
