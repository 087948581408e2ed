"""A batch of whole products as compiled loops (numba): what the kernels of `tcsim.engines.kernels` do, with columns side by side."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from tcsim.engines.kernels import NONE, OPTIONS, ROWS, UNCOUNTED, Line, W, copy, group_values, run_steps
from tcsim.engines.loops import loop
from tcsim.engines.vectors import widest


class Columns(NamedTuple):
    """A batch of products, operands in values and exponents, W columns of B and D side by side."""

    av: Any  # (T, M, I * kept)
    ae: Any
    a_odd: Any  # (T, M, I): whether an instruction meets an infinity or NaN there
    bv: Any  # (T, blocks, I * k * W)
    be: Any
    b_odd: Any  # (T, blocks, I)
    met: Any  # (T, M, I * kept): of a sparse A, the row of B that each element meets in its instruction; else empty
    d: Any  # (T, blocks, M, W): C before and D after


class ColumnSteps(NamedTuple):
    """What one instruction takes and does."""

    operations: Any
    separate: Any  # whether c is used after the first operation
    kept: Any  # elements of a row of A
    k: Any
    n: Any  # of the whole product
    most: Any  # products that are summed in the type of the sums


class Factors(NamedTuple):
    """Scales of groups of products."""

    group: Any  # products that are summed before they are scaled, or 0: then there are no scales
    places: Any  # (I,): the instructions
    sva: Any  # (T, M, scales): the scales of A, and their exponents
    sea: Any
    svb: Any  # (T, scales, N)
    seb: Any


class _Scratch(NamedTuple):
    """What is written to on the way."""

    e: Any
    narrow: Any
    wide: Any
    scale: Any
    part: Any
    term_v: Any
    term_e: Any
    ones: Any
    nothing: Any
    tile_v: Any
    tile_e: Any


@loop(**UNCOUNTED)
def _blocks(columns: Any, steps: Any, factors: Any, first: Any, last: Any, scratch: Any) -> None:
    """What `gemm` does."""
    widest()
    av, ae, a_odd, bv, be, b_odd, met, d = columns
    program, separate, kept, k, n, most = steps
    group, places, sva, sea, svb, seb = factors
    exponents_of, narrow, wide, scales, parts_of, term_v, term_e, ones, nothing, tile_v, tile_e = scratch
    batch, m, width = av.shape
    instructions = width // kept
    blocks = d.shape[1]
    sparse = met.size > 0
    per = 0 if group == 0 else svb.shape[1] // instructions  # scales of a row in one instruction
    parts = (m + ROWS - 1) // ROWS
    for unit in range(first, last):
        t, rest = unit // (blocks * parts), unit % (blocks * parts)
        block, top = rest // parts, rest % parts * ROWS
        w = min(W, n - block * W)
        line = Line(exponents_of[:w], scales[:w], parts_of[:w], wide[0, :w], wide[1, :w], narrow[1, :w])
        other, sums, sizes = narrow[0, :w], narrow[2, :w], narrow[3, :w]
        for i in range(instructions):
            for row in range(top, min(top + ROWS, m)):
                c = d[t, block, row, :w]
                acc = other if separate else c
                values, exponents = av[t, row, i * kept : (i + 1) * kept], ae[t, row, i * kept : (i + 1) * kept]
                if sparse:
                    for j in range(kept):
                        start = (i * k + met[t, row, i * kept + j]) * W
                        copy(bv[t, block, start : start + W], tile_v[j * W : (j + 1) * W])
                        copy(be[t, block, start : start + W], tile_e[j * W : (j + 1) * W])
                    values_b, exponents_b = tile_v, tile_e
                else:
                    values_b = bv[t, block, i * k * W : (i + 1) * k * W]
                    exponents_b = be[t, block, i * k * W : (i + 1) * k * W]
                if group:
                    for g in range(kept // group):
                        place = places[i] * per + g * group * per // kept
                        group_values(
                            values[g * group : (g + 1) * group], values_b[g * group * W : (g + 1) * group * W],
                            sva[t, row, place], sea[t, row, place],
                            svb[t, place, block * W : block * W + w], seb[t, place, block * W : block * W + w],
                            term_v[g * W : g * W + w], term_e[g * W : g * W + w], sums, sizes,
                        )  # fmt: skip
                    values, exponents, values_b, exponents_b = ones, nothing, term_v, term_e
                odd = a_odd[t, row, i] or b_odd[t, block, i]
                run_steps(values, exponents, values_b, exponents_b, W, c, acc, odd, program, most, line)
                if separate:
                    copy(acc, c)


@loop(**OPTIONS)
def gemm(columns: Any, steps: Any, factors: Any, partial: Any, first: Any, last: Any) -> None:
    """Blocks `first` to `last` of a batch of products: Columns, ColumnSteps, Factors, and an array of the type of the sums."""
    program, kept, like = steps.operations, steps.kept, columns.bv
    terms = program[0, 2]  # of a grouped instruction
    scratch = _Scratch(
        np.empty(W, np.int16), np.empty((4, W), np.float32), np.empty((2, W)), np.empty(W, columns.av.dtype), np.empty(W, partial.dtype),
        np.zeros(terms * W, like.dtype), np.full(terms * W, NONE), np.ones(terms, like.dtype), np.zeros(terms, np.int16),
        np.empty(kept * W, like.dtype), np.empty(kept * W, np.int16),
    )  # fmt: skip
    _blocks(columns, steps, factors, first, last, scratch)
