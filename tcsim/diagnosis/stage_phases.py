"""Swizzles whose phase differs from tile to tile of K: stages that do not begin at multiples of the swizzle's period.

The sum of each tile of K is that of one of the phases, so that weights of 0 and 1, one for each tile and phase, solve for all of them together.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np

from tcsim.diagnosis.candidate import Candidate
from tcsim.diagnosis.least_squares import in_parts, samples, solved_at, sources
from tcsim.diagnosis.maps import SAME, START, Ints, Rule
from tcsim.diagnosis.problem import Problem
from tcsim.diagnosis.reals import Mask, Reals
from tcsim.diagnosis.rules import stored_bits
from tcsim.diagnosis.shared_maps import MODES, xored
from tcsim.diagnosis.solve import Solver
from tcsim.diagnosis.where import ranges

_MOST = 24  # tiles of K
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
                unit = span * chunk[names[0]]
                phases = _solved(solver, open_, names, unit, span, low, mask) if unit < depth <= _MOST * unit else None
                if phases is not None:
                    rule = _rule(phases, chunk[names[0]], span, low, mask, depth)
                    yield Candidate(rule if "a" in names else SAME, rule if "b" in names else SAME)
                    return


def _solved(solver: Solver, open_: Mask, names: str, unit: int, span: int, low: int, mask: int) -> Ints | None:
    """(tiles,): the phase of each tile of `unit` along K; None if there are none, or all are the same."""
    reals = solver.reals
    tiles = -(-reals.a.shape[2] // unit)
    chosen = samples(reals, open_, tiles * (mask + 1))
    if chosen is None:
        return None
    rules = [
        Rule("", "", "", partial(_phased, unit // span, span, low, mask, np.array([phase])), 0)
        for phase in range(mask + 1)
    ]
    read = [solver.read(name, chosen, rules if name in names else (SAME,)) for name in "ab"]
    terms = in_parts(read[0] * read[1], unit).sum(axis=3).transpose(1, 2, 0)
    phases = sources(solved_at(reals, chosen, terms, tiles, tiles))
    return None if phases is None or (phases < 0).any() or (phases == phases[0]).all() else phases


def _rule(phases: Ints, chunk: int, span: int, low: int, mask: int, depth: int) -> Rule:
    """The rule of these phases."""
    row = (16 * span) << low  # bytes by which a phase is one further
    texts = []
    for phase in dict.fromkeys(int(phase) for phase in phases if phase):
        tiles = np.flatnonzero(phases == phase)
        k = (tiles[:, None] * span * chunk + np.arange(span * chunk)).reshape(-1)
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
