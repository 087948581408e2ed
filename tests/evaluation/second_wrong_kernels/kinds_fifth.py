"""What the fifth set adds to a kernel: words that several of its kinds need.

The fifth set was written from issue trackers by someone who had read neither the diagnosis nor its pages or tests, and of the other sets
the first few kinds of the fourth alone, as a sample. It was committed before any report was seen. Every kind names the thread that reports it,
or says that it is in every textbook.
"""

from __future__ import annotations

from tests.evaluation.second_wrong_kernels import words as w
from tests.evaluation.second_wrong_kernels.kinds_fourth import Fourth
from tests.evaluation.second_wrong_kernels.problem import Array

# One of these says that elements are all there, in other places.
MOVED = r"swap|exchang|interchang|permut|crossed|each other|interleav|order|rearrang|shuffl|scatter|rotat|cycl|revers"
UNWRITTEN = w.ZERO + "|not computed|never computed|never stored|no block"
SCALE = r"scale|scaling|\bsf[ab]?\b"


class Fifth(Fourth):
    """A kernel of the fifth set. Like the fourth, it says where its mistake was met and whether few people make it."""

    def chunks(self, k: Array, width: int) -> tuple[Array, Array, int]:
        """The 16-byte chunk of each k, the place in it, and the number of chunks in a row of a tile."""
        return k // self.chunk, k % self.chunk, max(width // self.chunk, 1)


class Right(Fifth):
    """A kernel without a mistake."""

    correct = True
