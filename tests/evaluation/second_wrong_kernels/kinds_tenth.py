"""The tenth set of kernels: what its kinds share. Mistakes and right kernels are in kinds_tenth_*.py.

It was written without reading the diagnosis or the kinds of other sets; where a mistake was met is its `source`.
"""

from __future__ import annotations

import numpy as np

from tests.evaluation.second_wrong_kernels.kinds_ninth import Ninth
from tests.evaluation.second_wrong_kernels.problem import Array

AHEAD = r"ahead|next|overwritten|too early|too soon|later|one (?:k )?(?:tile|step)|off by one|shift"
ONLY = r"\bonly\b|alone|\bjust\b|nothing but"
HALF = r"half|halves|warp ?group|\bwarps?\b"
META = r"metadata|selector|positions?|ind(?:ex|ices)|sparsity"


class Tenth(Ninth):
    """A kernel whose blocks have a number, as in the ninth set: the first pattern of `needs` is the place."""

    def blocks_in_all(self) -> int:
        """How many blocks there are."""
        return self.grid()[0] * self.grid()[1]

    def padding(self) -> int:
        """Rows of the last block that lie past M."""
        return self.grid()[0] * self.t.bm - self.p.m

    def joined(self, upper: Array, lower: Array, axis: int) -> Array:
        """The first half of one block of values and the second half of another, along an axis."""
        half = upper.shape[axis] // 2
        parts = np.split(upper, [half], axis)[0], np.split(lower, [half], axis)[1]
        return np.concatenate(parts, axis)
