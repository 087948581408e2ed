"""The eleventh set of kernels: what its kinds share. Mistakes and right kernels are in kinds_eleventh_*.py.

It was written without reading the diagnosis or the kinds of other sets; where a mistake was met is its `source`.
"""

from __future__ import annotations

from tests.evaluation.second_wrong_kernels import kinds_ninth as ninth
from tests.evaluation.second_wrong_kernels.kinds_ninth import Ninth, either, everything, span
from tests.evaluation.second_wrong_kernels.problem import Array

MOVED = (
    ninth.MOVED + r"|\b(?:is|are) (?:now )?(?:[abcd]'s )?(?:rows?|columns?|k|elements?|tiles?|blocks?|steps?|others?)\b"
)
LATE = r"stale|previous|earlier|\bold(?:er)?\b|behind|\blate\b|before|not (?:yet )?(?:waited|landed|arrived)|without (?:a )?wait|too (?:early|soon)"
SOME = r"worker|\bwaves?\b|persist|(?:second|later|next|some|other|odd) (?:block|tile)|blocks? \d|rows \d+-\d+|columns \d+-\d+"
HALVES = r"half|halves|warp ?group|\bwarps?\b"
RELU = r"relu|negative|max\(|clamp|activation|non-negative|positive part"
META = r"metadata|selector|positions?|ind(?:ex|ices)|sparsity"


def near(one: str, other: str) -> str:
    """Two patterns, in any order, with a few words between them."""
    return f"(?:{one}).{{0,30}}(?:{other})|(?:{other}).{{0,30}}(?:{one})"


def place(first: str, last: str, axis: str, *words: str) -> str:
    """An axis, and a range of the two facts or other words for it."""
    return everything(axis, either(span(first, last), *words))


class Eleventh(Ninth):
    """A kernel whose blocks have a number, as in the ninth set: the first pattern of `needs` is the place."""

    def padded(self) -> tuple[int, int]:
        """M and N, rounded up to whole blocks."""
        along_m, along_n = self.grid()
        return along_m * self.t.bm, along_n * self.t.bn

    def swizzled(self, row: Array, k: Array, pitch: int, bits: int) -> Array:
        """An address whose 16-byte chunk is XORed with the low bits of the row."""
        chunk = (k // self.chunk) ^ (row % (1 << bits))
        return row * pitch + chunk * self.chunk + k % self.chunk


class Persistent(Eleventh):
    """Workers take block after block, and the copies to shared memory are counted on and on."""

    plain = True

    def count_read(self, now: int, i: int) -> int:
        """Which copy is found by iteration i, which waits for copy `now`."""
        return now

    def mainloop(self, y: int, x: int, part: int) -> Array:
        tiles, out = self.k_tiles(), self.accumulators(y, x, part)
        wave, worker = divmod(self.number(y, x), self.workers)
        for i in range(tiles):
            turn, tile = divmod(self.count_read(wave * tiles + i, i), tiles)
            whose = self.block(worker + self.workers * turn)
            out = self.step(y, x, i, self.tile_a(*whose, tile), self.tile_b(*whose, tile), out, {})
        return out


class Valid(Eleventh):
    """A right kernel."""

    correct = True
