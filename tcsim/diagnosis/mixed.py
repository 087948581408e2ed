"""Which k of A met which k of B, whose factors or metadata, in which phase of a swizzle, where no rule says it: read off the outputs as whole weights.

A kernel that takes the right lines and mixes up K computes a P b for some matrix P. P is the same in every period of K (a word, a fragment, a
tile), or moves whole units of it; either way it has few unknowns, and every output is one equation. The same holds of the blocks of scale factors
or metadata that each block of K used, and of the phases of a swizzle.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from tcsim.core.ranges import runs
from tcsim.diagnosis.candidate import Candidate, of_operand
from tcsim.diagnosis.least_squares import in_parts, samples, solved_at, sources
from tcsim.diagnosis.maps import SAME, START, Rule, in_units, k_from, of_blocks
from tcsim.diagnosis.pipelines import Count
from tcsim.diagnosis.problem import Problem
from tcsim.diagnosis.reals import Ints, Mask, Numbers, Reals
from tcsim.diagnosis.rules import stored_bits
from tcsim.diagnosis.shared_maps import MODES, xored
from tcsim.diagnosis.solve import Solver
from tcsim.diagnosis.where import described, listing, ranges

_UNITS = 32  # of a period, at most
_PERIODS = (8, 16, 32, 64, 128)
_TILES, _STEPS = (32, 64, 128, 256), (8, 16, 32)  # of which whole steps may be mixed
_LISTED = 32  # k, or parts, of a period that are written out
_UNIT = 16  # k that are no word and no part of a fragment any more
_TWICE = 1.5  # what is taken, of a right kernel's K: more than that is miscounted in a way that other rules say
_ORDER = "look at the order in which the elements of {x} lie in registers, words and bytes: fragment layout, packing, interleaving"
_STAGE = "the stage was read before the copy landed (zeros, or an earlier tile), or the index along K is another one"


def k_maps(problem: Problem, reals: Reals, open_: Mask) -> Iterator[Candidate]:
    """K of one operand against K of the other."""
    depth = reals.a.shape[2]
    for period, unit in _periods(depth):
        for part in ("",) if reals.factors is None else ("a", "b", ""):
            found = _mixing(reals, open_, period, unit, part)
            if found is None or np.array_equal(found, np.eye(len(found), dtype=np.int64)):
                continue
            yield from _as_rules(problem, found, period, unit, depth, part)


def weights_of_k(problem: Problem, reals: Reals, open_: Mask) -> Iterator[Candidate]:
    """How often each k is taken, where that is not whole steps."""
    depth = problem.length

    def terms(chosen: Ints) -> Numbers:
        t, i, j = chosen.T
        return (reals.a[t, i] * reals.b[t, j])[:, :depth]

    times = solved_at(reals, samples(reals, open_, depth), terms, _TWICE * depth)
    if times is not None and (times != 1).any() and (times >= 0).all():
        taken = np.pad(times, (0, reals.a.shape[2] - depth), mode="edge").astype(np.float64)
        yield Candidate(count=Count(taken, 2, problem.step, depth))


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

    def terms(chosen: Ints) -> Numbers:
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
        return left @ right.swapaxes(1, 2)

    return solved_at(reals, chosen, terms, _TWICE * count)


def _as_rules(problem: Problem, mixing: Ints, period: int, unit: int, depth: int, part: str) -> Iterator[Candidate]:
    """The same as a rule of one operand, or of either."""
    if (mixing == np.diag(np.diag(mixing))).all() and (mixing >= 0).all() and not part:
        times = np.repeat(np.diag(mixing), unit)
        taken = np.tile(times, -(-depth // period))[:depth].astype(np.float64)
        yield Candidate(count=Count(taken, 2, problem.step))
    for name, own in (("a", mixing.T), ("b", mixing)):
        source = sources(own) if part in ("", name) else None
        if source is not None:
            rule = k_rule(_repeated(source, period, unit, depth))
            rule = replace(rule, part="data") if part else rule
            yield of_operand(name, rule)


def _repeated(source: Ints, period: int, unit: int, depth: int) -> Ints:
    """The map of units of one period as a map of all k; -1 for a zero."""
    inner = in_units(source, unit)
    start = np.arange(0, depth, period)[:, None]
    found = np.where(inner < 0, -1, start + inner).reshape(-1)[:depth]
    return np.where(found < depth, found, -1)


def k_rule(source: Ints) -> Rule:
    """A map of k as a rule, the same for every line."""
    depth = len(source)
    where = partial(k_from, source)
    moved = source != np.arange(depth)
    for period in (period for period in _PERIODS if period < depth):
        inner, start = source[:period], np.arange(depth) // period * period
        if not np.array_equal(source, np.where(np.resize(inner, depth) < 0, -1, start + np.resize(inner, depth))):
            continue
        units = (1 << power for power in range(period.bit_length() - 1)) if period > _LISTED else (1,)
        unit = max((unit for unit in units if np.array_equal(in_units(inner[::unit] // unit, unit), inner)), default=1)
        parts = inner[::unit] // unit
        if len(parts) <= _LISTED and parts.max() < len(parts) and (parts >= 0).all():
            permuted = np.array_equal(np.sort(parts), np.arange(len(parts)))
            order = "the order" + f" of the parts of {unit}" * (unit > 1)
            said = f"in each {period} along K {order} is {', '.join(map(str, parts))}"
            mistake = "{x}: K permuted" if permuted else "K blocks of {x} mismatched"
            return Rule(mistake, said, _ORDER if unit < _UNIT else _STAGE, where, 3)
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
    return listing(parts, 6, ", ")


def part_maps(problem: Problem, reals: Reals, open_: Mask) -> Iterator[Candidate]:
    """Factors of A, of B or of both alike; metadata of A."""
    if reals.factors is not None:
        count, own, part, asked = reals.factors[0].shape[2], 1, "scale", ["a", "b", "ab"]
    elif reals.kept is not None:
        own, part, asked = problem.machine.kept, "metadata", ["a"]
        count = reals.kept.shape[2] // own
    else:
        return
    k, depth = np.arange(count * own), reals.a.shape[2]
    at = (np.where(source < count, source * own + k % own, -1) for source in range(count + 1))  # none last
    rules = [Rule("", "", "", partial(k_from, source), 0, part=part) for source in at]
    for names in asked:
        source = _choices(Solver(problem, reals), open_, names, rules, depth // count)
        if source is not None and not np.array_equal(source, np.arange(count)):
            rule = _part_rule(part, np.where(source == count, -1, source), own, depth)
            yield Candidate(rule if "a" in names else SAME, rule if "b" in names else SAME)


def _choices(solver: Solver, open_: Mask, names: str, rules: Sequence[Rule], unit: int) -> Ints | None:
    """(tiles,): the one of some rules by which some operands' tile of `unit` along K was read; None if that is not so of all tiles."""
    reals = solver.reals
    tiles = -(-reals.a.shape[2] // unit)

    def terms(chosen: Ints) -> Numbers:
        found = []
        for rule in rules:
            a, b = (reals.read(name, chosen, (rule if name in names else SAME,))[0] for name in "ab")
            found.append(in_parts(a * b, unit).sum(axis=2))
        return np.stack(found, axis=2)

    found = sources(solved_at(reals, samples(reals, open_, tiles * len(rules)), terms, tiles, tiles))
    return None if found is None or (found < 0).any() else found


def _part_rule(part: str, source: Ints, size: int, depth: int) -> Rule:
    """The map as a rule; size: elements of the part in a block; depth: K."""
    name, block = ("scale_{x}", "block") if part == "scale" else (part, "K block")
    none = "counts as 1" if part == "scale" else "is not read: the first positions of each group"
    advice = f"look at the index along K with which the {'scale factors' if part == 'scale' else part} of {{x}} are read: a tile's, a step's, a slice's"
    missing = (source[source != np.arange(len(source))] < 0).all()
    mistake = f"{name} missing in a part of K" if missing else f"{name} of another {block}"
    said = described(in_units(source, depth // len(source)), "K").replace("are zero", none)
    return Rule(mistake, said, advice, of_blocks(source, size, size * len(source)), 3, part=part)


_MOST = 24  # units of K
_STAGES = (2, 3, 4, 5, 6)


def stage_phases(problem: Problem, reals: Reals, open_: Mask) -> Iterator[Candidate]:
    """Of A, of B, or of both alike; for each of the hardware's swizzles."""
    if reals.positions is not None or reals.factors is not None:
        return
    solver, depth = Solver(problem, reals), problem.length
    chunk = {name: 128 // stored_bits(problem.machine.formats[name], problem.step) for name in "ab"}
    for span, modes in MODES.items():
        for low, mask in modes:
            for names in ("a", "b", "ab") if chunk["a"] == chunk["b"] else ("a", "b"):
                own = chunk[names[0]]
                at = [partial(_phased, own, span, low, mask, np.array([phase])) for phase in range(mask + 1)]
                rules = [Rule("", "", "", where, 0) for where in at]
                fits = span * own < depth <= _MOST * span * own
                phases = _choices(solver, open_, names, rules, span * own) if fits else None
                if phases is not None and (phases != phases[0]).any():
                    rule = _phase_rule(phases, own, span, low, mask, depth)
                    yield Candidate(rule if "a" in names else SAME, rule if "b" in names else SAME)
                    return


def _phase_rule(phases: Ints, chunk: int, span: int, low: int, mask: int, depth: int) -> Rule:
    """The rule of these phases."""
    row = (16 * span) << low  # bytes by which a phase is one further
    texts = []
    for phase in dict.fromkeys(int(phase) for phase in phases if phase):
        tiles = np.flatnonzero(phases == phase)
        k = in_units(tiles, span * chunk)
        texts.append(f"{phase * row} in K {ranges(k[k < depth])}")
    said = f"rows of {16 * span} bytes: swizzle {16 * (mask + 1)}B, counted from addresses that are as many bytes off its period of {(mask + 1) * row}: {', '.join(texts)}"
    own = np.arange(len(phases))
    for stages in (*_STAGES, len(phases)):
        by = int(phases[1] - phases[0]) % (mask + 1)
        if by and np.array_equal(phases, (phases[0] + own % stages * by) % (mask + 1)):
            ring = f"{stages} stages" if stages < len(phases) else "stages"
            said += f"; as of {ring} that lie {by * row} bytes more than a multiple of {(mask + 1) * row} apart"
            break
    where = partial(_phased, chunk, span, low, mask, phases)
    return Rule("{x}: swizzle wrong", said, f"{START}; each stage must", where, 5)


def _phased(chunk: int, span: int, low: int, mask: int, phases: Ints, r: Ints, k: Ints, o: Ints) -> tuple[Ints, Ints]:
    phase = phases[np.minimum(k // (span * chunk), len(phases) - 1)] << low
    return xored(chunk, span, low, mask, low, mask, phase, r, k, o)
