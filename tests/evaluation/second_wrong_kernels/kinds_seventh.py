"""What the seventh set shares: hooks and words.

The seventh set was written, as the sixth, from a sentence ("tile sizes, stages, warps, pitches, both operands, regions, epilogues, output formats;
mma.sync, wgmma, tcgen05, sparse, scaled") by someone who had read neither the diagnosis nor its pages, nor the kinds of the other sets, but for
`PadOfARead`, the right kernels, `kinds_two` and some names. It was committed before any report was seen.
"""

from __future__ import annotations

import numpy as np

from tests.evaluation.second_wrong_kernels import kinds_sixth as s
from tests.evaluation.second_wrong_kernels import words as w
from tests.evaluation.second_wrong_kernels.problem import Array

A, B = s.OPERANDS["a"], s.OPERANDS["b"]
HOLE = s.UNWRITTEN + r"|zero|\bnan\b|blank|left as|\blost\b|lacks?\b"
PAIRS = r"pair|two|neighbour|adjacent|even|odd|\b2\b|nibble"
AGAIN = s.FIXED + "|" + w.TWICE
ELSEWHERE = s.MOVED + "|" + w.OFFSET + r"|further|instead of"


class Seventh(s.Sixth):
    """A kernel of the seventh set."""

    def step_of(self, tile: Array) -> int:
        """Stored elements of K that one instruction takes of a tile (rows, k)."""
        return tile.shape[1] * self.arithmetic.k // self.t.bk

    def in_steps(self, tile: Array, order: Array) -> Array:
        """The tile with its K steps in another order."""
        steps = tile.reshape(len(tile), -1, self.step_of(tile))
        return steps[:, order].reshape(tile.shape)

    def steps(self) -> Array:
        """Numbers of the K steps of a tile."""
        return np.arange(self.t.bk // self.arithmetic.k)

    def neighbour(self, y: int, x: int, by: int) -> tuple[int, int]:
        """The block that is `by` further on in the order of the launch, around the end."""
        order = self.blocks()
        return order[(self.number(y, x) + by) % len(order)]


class RightSeventh(Seventh):
    """A kernel of the seventh set without a mistake."""

    correct = True


def matrices(tile: Array) -> Array:
    """A tile as (16 rows, 2, 8, 16 columns, 2, 8): the four 8 x 8 matrices of an ldmatrix.x4 or stmatrix.x4."""
    rows, columns = tile.shape
    return tile.reshape(rows // 16, 2, 8, columns // 16, 2, 8)
