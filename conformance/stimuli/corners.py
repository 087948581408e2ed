"""Level 2: corner values of a format, and all pairs of them as factors, as product and addend, and as two terms of a sum.

Of a format of at most 8 bits every code is a corner, so that all of its products are there. Each result has one pair; everything else is zero.
The place along K moves on with every matrix, so that each is used.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from conformance.stimuli.codes import one_code
from conformance.stimuli.problem import Codes, Matrices, Problem
from conformance.stimuli.stream import Stream
from tcsim.numbers.formats import Format

EXHAUSTIVE = 8  # bits of a format whose every code is a corner
_REACH = (1, 2, 3, 7, 8, 11, 12, 13, 14, 22, 23, 24, 25, 26, 27)
"""Distances between exponents: next to each other, at the widths of significands and adders, and next to those."""


def corners(format: Format) -> Codes:
    """The corner values of a float format, each once; of at most `EXHAUSTIVE` bits every code.

    Zeros; the least, second and largest subnormal; the least normal, one and the powers of two from them, each with its neighbours; the
    largest numbers; infinities; quiet and signalling NaN with different payloads. All with both signs.
    """
    if format.bits <= EXHAUSTIVE:
        return np.arange(1 << format.bits).astype(format.dtype)
    step = 1 << format.fraction_bits
    one, top = format.bias * step, (1 << format.sign_shift) - 1
    powers = [step, 2 * step, one, *(one + sign * reach * step for reach in _REACH for sign in (-1, 1))]
    codes = {0, 1, 2, step // 2, step - 1, format.largest_code, format.largest_code - 1, format.largest_code - step}
    codes |= {power + away for power in powers for away in (-1, 0, 1) if 0 < power + away <= format.largest_code}
    codes |= {format.largest_code + 1, format.largest_code + 2, top, top - step // 2}  # infinity and NaN
    both = [code | sign << format.sign_shift for code in sorted(codes) for sign in (0, 1)]
    return (np.array(both, np.uint64) << np.uint64(format.ignored_low_bits)).astype(format.dtype)


def few(format: Format) -> Codes:
    """At most 64 of the corners, spread over them, for sides that meet every corner of another."""
    found = corners(format)
    return found if len(found) <= 64 else found[np.linspace(0, len(found) - 1, 64).round().astype(int)]


@dataclass(frozen=True)
class Grid:
    """All pairs of two lists: corners of A in the rows of a result, another operand's in its columns."""

    kind: Literal["factors", "addend", "terms"]
    columns: Codes
    factor: int = 0  # of B, for an addend: what its corner of A is multiplied by


def grids(problem: Problem) -> list[Grid]:
    """Products; products with one, the largest and the least number next to an addend; sums of two terms."""
    b, c = problem.format("b"), problem.format("c")
    factors = int(one_code(b)), b.largest_code << b.ignored_low_bits, 1 << b.ignored_low_bits
    addends = [Grid("addend", few(c), factor) for factor in factors]
    return [Grid("factors", corners(b)), *addends, Grid("terms", few(b))]


def tiles(problem: Problem) -> list[tuple[Grid, int, int]]:
    """What each matrix product holds: of which grid, from which row and column on."""
    m, n, _ = problem.shape
    rows = range(0, len(corners(problem.format("a"))), m)
    return [(grid, row, column) for grid in grids(problem) for row in rows for column in range(0, len(grid.columns), n)]


def count(problem: Problem) -> int:
    """Matrix products that hold every pair."""
    return len(tiles(problem))


def pairs(problem: Problem, stream: Stream) -> Matrices:
    """All pairs of corner values: as factors, with an addend that changes; as product and addend; as two terms of a sum."""
    m, n, k = problem.shape
    out = {name: np.zeros(problem.dimensions(name), problem.format(name).dtype) for name in "abc"}
    every, values, addends = tiles(problem), corners(problem.format("a")), few(problem.format("c"))
    ones = {name: one_code(problem.format(name)) for name in "ab"}
    start = int(stream.below(k, (1,))[0])
    for matrix in range(problem.count):
        grid, row, column = every[matrix % len(every)]
        at, second = (start + matrix) % k, (start + matrix + 1 + matrix // k % max(1, k - 1)) % k
        columns = np.resize(np.roll(grid.columns, -column), n)
        a, b, c = (out[name][matrix] for name in "abc")
        a[:, at] = np.resize(np.roll(values, -row), m)
        if grid.kind == "factors":
            b[at] = columns
            c[:] = addends[(matrix + np.arange(m)[:, None] * n + np.arange(n)) % len(addends)]
        elif grid.kind == "addend":
            b[at], c[:] = grid.factor, columns
        else:
            b[at], b[second] = ones["b"], columns
            a[:, second] = ones["a"] if second != at else a[:, at]
    return out
