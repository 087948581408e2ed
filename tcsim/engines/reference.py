"""The NumPy engine: the reference. It runs the steps as they are written (`tcsim.arithmetic.steps`), in chunks that stay in the cache."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tcsim.arithmetic.steps import NO_SCALES, Lowering, Scales
from tcsim.core import chunks
from tcsim.engines.contract import Codes, Engine, Matrices, Work

WIDE = 32
"""Columns from which each product of a batch is computed by itself: NumPy's inner loops run along them, not along the batch."""
_TILE_ROWS = 64  # rows of a chunk


class NumpyEngine(Engine):
    """Every step of every instruction."""

    name = "numpy"
    least = start = 0

    def missing(self) -> str:
        """Nothing."""
        return ""

    def takes(self, work: Work) -> str:
        """Everything."""
        return ""

    def multiply(self, work: Work, matrices: Matrices, order: Sequence[int]) -> Codes:
        """As the contract says."""
        batch, m, n = matrices.c.shape
        out = np.empty(matrices.c.shape, work.result.dtype)
        if not out.size:
            return out
        if n >= WIDE:
            rows, some = min(m, _TILE_ROWS), 1
            columns = chunks.step(rows * work.kept)
        else:
            rows, columns, some = m, n, chunks.step(m * n * work.kept)
        lowering = Lowering("native", work.steps)
        for first in range(0, batch, some):
            for top in range(0, m, max(rows, 1)):
                for left in range(0, n, columns):
                    part = slice(first, first + some), slice(top, top + rows), slice(left, left + columns)
                    out[part] = _chained(work, lowering, _cut(matrices, *part), order)
        return out


def _cut(matrices: Matrices, batch: slice, rows: slice, columns: slice) -> Matrices:
    """The operands of some of the outputs."""
    x = matrices
    return Matrices(
        x.a[batch, rows], x.b[batch, :, columns], x.c[batch, rows, columns],
        None if x.scale_a is None else x.scale_a[batch, rows],
        None if x.scale_b is None else x.scale_b[batch, :, columns],
        None if x.columns is None else x.columns[batch, rows],
    )  # fmt: skip


def _chained(work: Work, lowering: Lowering, given: Matrices, order: Sequence[int]) -> Codes:
    """The instructions one after another."""
    total = given.c
    for place in order:
        kept, k = (slice(place * size, (place + 1) * size) for size in (work.kept, work.k))
        total = _instruction(
            work, lowering, given, total, kept, k, slice(place * work.blocks, (place + 1) * work.blocks)
        )
    return total


def _instruction(
    work: Work, lowering: Lowering, given: Matrices, c: Codes, kept: slice, k: slice, blocks: slice
) -> Codes:
    """One instruction. Each row of a sparse A is a problem of its own, with the rows of B that it meets."""
    a, b, (batch, m, n) = given.a[:, :, kept], given.b[:, k], c.shape
    factors: tuple[Codes, ...] = ()
    if given.scale_a is not None and given.scale_b is not None:
        factors = given.scale_a[:, :, blocks], given.scale_b[:, blocks]
    if given.columns is not None:
        b = b[np.arange(batch)[:, None, None], given.columns[:, :, kept]].reshape(batch * m, work.kept, n)
        a, c = a.reshape(batch * m, 1, work.kept), c.reshape(batch * m, 1, n)
        if factors:
            factors = factors[0].reshape(batch * m, 1, -1), factors[1].repeat(m, axis=0)
    scales: Scales = NO_SCALES
    if work.scale is not None:
        scales = {name: (x, work.scale) for name, x in zip(("scale_a", "scale_b"), factors, strict=True)}
    return lowering.run(a, b, c, work.formats, scales).reshape(batch, m, n)


ENGINE = NumpyEngine()
