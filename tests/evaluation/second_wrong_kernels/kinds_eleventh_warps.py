"""The eleventh set: mistakes of warps, fragments and Tensor Memory."""

from __future__ import annotations

import numpy as np

from tests.evaluation.second_wrong_kernels.kinds_eleventh import HALVES, MOVED, Eleventh, near, place
from tests.evaluation.second_wrong_kernels.kinds_ninth import UNWRITTEN, either
from tests.evaluation.second_wrong_kernels.problem import Array, Wish
from tests.evaluation.second_wrong_kernels.words import COLUMNS, KTILE, ROWS, SAME, SWAPPED, A, B, D

NEXT = r"ahead|next|overwritten|too early|too soon|following|refilled|one (?:k )?(?:tile|step)"


class ColumnsThatNoWarpHas(Eleventh):
    """The columns of a tile are divided among warps without rounding up: columns {first}-{end} of every tile are computed by none and never written."""

    source = "tile-ai/tilelang#2537"
    needs = (place("first", "end", COLUMNS, r"\blast (?:8|eight)\b|\b8 columns"), UNWRITTEN)

    def setup(self) -> None:
        self.facts = {"first": self.t.bn - 8, "end": self.t.bn - 1}

    def inside_d(self, rows: Array, columns: Array) -> Array:
        return super().inside_d(rows, columns) & (columns % self.t.bn < self.t.bn - 8)


class TmemColumnNotAdvanced(Eleventh):
    """The column of Tensor Memory is not advanced between two loads: columns 32-63 of every block are columns 0-31 again."""

    source = "textbook"
    styles = ("tcgen05",)
    needs = (
        either(r"32-63|(?<!\d)0-31\b", near(r"\bcolumns?\b", r"\b32\b|half|halves")),
        either(SAME, r"are columns|\bholds?\b"),
    )

    def fragments_d(self, block: Array) -> Array:
        return np.concatenate([block[:, :32]] * (block.shape[1] // 32), 1)


class AccumulatorKeptFromTheBlockBefore(Eleventh):
    """The accumulators are cleared at the start of a worker and not of a block: block n has the sum of block n - {workers} in it."""

    source = "textbook"
    styles = ("wgmma", "tcgen05")
    wish = Wish(blocks=(2, 2), c=False)
    needs = (
        r"block|\bcta|worker|wave|rows \d+-\d+|columns \d+-\d+|output tile",
        either(
            r"not (?:been )?(?:cleared|zeroed|reset|initiali[sz]ed)|never (?:cleared|zeroed|reset)|cleared at|carried|left ?over|on top",
            r"(?:plus|adds?|added|and the sum) .{0,40}(?:block|rows \d|columns \d)|has .* in it|accumulates? (?:on|over|from|across)",
        ),
    )

    def accumulators(self, y: int, x: int, part: int) -> Array:
        before = self.number(y, x) - self.workers
        return super().accumulators(y, x, part) if before < 0 else self.mainloop(*self.block(before), part)


class FragmentsOfBInterleaved(Eleventh):
    """The two warps along N take every other 8 columns of B, and store their results as 8 columns after another: the columns of every block are in another order."""

    source = "textbook"
    styles = ("mma",)
    plain = True
    wish = Wish(warps=(1, 2))
    needs = (
        either(B, COLUMNS),
        either(MOVED, SWAPPED, r"order|interleav|every other"),
        r"interleav|every other|\bwarp|\bn8\b|blocks? of 8\b|\b8 columns|8-15.{0,40}16-23|16-23.{0,40}8-15",
    )

    def fragments_b(self, tile: Array) -> Array:
        rows, depth = tile.shape
        return tile.reshape(rows // 16, 2, 8, depth).swapaxes(0, 1).reshape(tile.shape)


class PairsStoredFourApart(Eleventh):
    """A thread stores the two accumulators of a row 4 columns apart and not beside each other: the columns of every 8 are in another order."""

    source = "textbook"
    styles = ("mma", "wgmma")
    needs = (
        either(COLUMNS, D),
        either(MOVED, SWAPPED, r"order|apart|interleav"),
        r"pairs?\b|columns? 1\b|adjacent|beside|apart|\bc1\b|within .{0,20}\b8\b|every 8\b|0, ?2, ?4|fragment",
    )

    def fragments_d(self, block: Array) -> Array:
        rows, columns = block.shape
        return block.reshape(rows, columns // 8, 4, 2).swapaxes(2, 3).reshape(block.shape)


class BRegistersOfTheFirstTileTwice(Eleventh):
    """ldmatrix.x4 brings B for two instructions, and the second takes the registers of the first: columns 8-15 of every 16 are columns 0-7."""

    source = "textbook"
    styles = ("mma",)
    plain = True
    needs = (
        either(B, COLUMNS),
        either(SAME, r"are columns"),
        r"\b8-15\b|(?<!\d)0-7\b|every 16|every other|blocks? of 8\b|\b8 columns|ldmatrix|\bn8\b",
    )

    def fragments_b(self, tile: Array) -> Array:
        rows, depth = tile.shape
        pairs = tile.reshape(rows // 16, 2, 8, depth)
        return pairs[:, [0, 0]].reshape(tile.shape)


class SecondGroupReadsTheNextA(Eleventh):
    """Nothing keeps the second group of warps and the copies apart: for rows {half}-{last} of a block, A is the next K tile's already."""

    source = "tile-ai/tilelang#2613"
    styles = ("wgmma",)
    plain = True
    needs = (place("half", "last", ROWS, HALVES), either(NEXT, r"(?:is|are) k\b"), either(A, KTILE))

    def setup(self) -> None:
        self.facts = {"half": self.t.bm // 2}

    def tile_a(self, y: int, x: int, tile: int | None) -> Array:
        own = super().tile_a(y, x, tile)
        if tile is None or tile + 1 == self.k_tiles() or self.t.bm < 128:
            return own
        ahead = super().tile_a(y, x, tile + 1)
        return np.concatenate([own[: self.t.bm // 2], ahead[self.t.bm // 2 :]])
