"""The twelfth set: mistakes of warps, fragments and Tensor Memory."""

from __future__ import annotations

import numpy as np

from tests.evaluation.second_wrong_kernels.kinds_ninth import either, everything
from tests.evaluation.second_wrong_kernels.kinds_twelfth import (
    AGAIN,
    EXCHANGED,
    MOVED,
    SAME,
    UNWRITTEN,
    Twelfth,
    both_ways,
    lines,
)
from tests.evaluation.second_wrong_kernels.problem import Array, Wish
from tests.evaluation.second_wrong_kernels.words import COLUMNS, ROWS, A, D, value


class ColumnOfTheWarpForItsRow(Twelfth):
    """A warp takes its rows of A by its number along N: the upper right quarter of a block has A's rows {from}-{to} and the lower left rows 0-{upper}."""

    styles = ("mma",)
    plain = True
    wish = Wish(warps=(2, 2))
    needs = (
        either(A, ROWS),
        either(r"warp|quadrant|quarter", everything(ROWS, COLUMNS)),
        either(MOVED, SAME, EXCHANGED, r"index|number|\bid\b|wrong|where|instead|should"),
    )

    def setup(self) -> None:
        half = self.t.bm // 2
        self.facts = {"from": half, "to": self.t.bm - 1, "upper": half - 1}

    def warp_of_a(self, i: Array, j: Array) -> Array:
        return j


class WarpGroupsStoreCrossed(Twelfth):
    """The two halves of 64 rows of a block of 128 are stored in each other's place: rows 0-63 and 64-127 are exchanged."""

    source = "tile-ai/tilelang#2522"
    styles = ("wgmma", "tcgen05")
    wish = Wish(blocks=(1, 1))
    needs = (
        either(D, A, ROWS),
        r"\b64\b|half|halves|warp ?group",
        either(EXCHANGED, both_ways("0-63", "64-127")),
    )

    def fragments_d(self, block: Array) -> Array:
        rows = np.arange(len(block))
        return block[rows ^ 64] if len(block) == 128 else block


class LastColumnsWithoutAWarp(Twelfth):
    """The columns of a block are shared out rounded down: the last 8 columns of every block, {from}-{to} of {bn}, are never written."""

    source = "tile-ai/tilelang#2537"
    wish = Wish(whole="n")
    needs = (lines(COLUMNS, r"last (?:8|eight)"), UNWRITTEN)

    def setup(self) -> None:
        self.facts = {"from": self.t.bn - 8, "to": self.t.bn - 1}

    def inside_d(self, rows: Array, columns: Array) -> Array:
        return super().inside_d(rows, columns) & (columns % self.t.bn < self.t.bn - 8)


class LanesOfTheFirstWarp(Twelfth):
    """Every warp reads lanes 0-31 of Tensor Memory: every 32 rows of a block are rows 0-31 of it."""

    styles = ("tcgen05",)
    needs = (
        either(ROWS, r"lane"),
        r"\b32\b|\blanes?\b|0-31",
        either(SAME, MOVED, AGAIN, r"lanes? 0"),
    )

    def fragments_d(self, block: Array) -> Array:
        return block[np.arange(len(block)) % 32]


class TmemColumnsHalfTheStep(Twelfth):
    """The loads of 16 columns from Tensor Memory go on by 8: columns {second} of a block hold columns 8-23, and so on."""

    source = "triton-lang/triton#9018"
    styles = ("tcgen05",)
    needs = (
        either(COLUMNS, r"tensor memory|tmem"),
        either(value("eight"), r"\bhalf\b|8-23|c ?// ?2|c ?/ ?2"),
        either(MOVED, SAME, AGAIN, r"\bstep|advance|stride|go(?:es)? on|offset|overlap"),
    )

    def setup(self) -> None:
        self.facts = {"second": "16-31", "eight": 8}

    def fragments_d(self, block: Array) -> Array:
        columns = np.arange(block.shape[1])
        return block[:, columns // 16 * 8 + columns % 16]


class UpperAndLowerRegistersCrossed(Twelfth):
    """The registers c0, c1 and c2, c3 are stored in each other's place: rows r and r + 8 of every 16 are exchanged."""

    styles = ("mma",)
    needs = (
        either(D, A, ROWS),
        everything(either(ROWS, r"c2|c0"), r"\b8\b|8-15|eight|c2"),
        either(EXCHANGED, both_ways("0-7", "8-15")),
    )

    def fragments_d(self, block: Array) -> Array:
        return block[np.arange(len(block)) ^ 8]


class SecondMTileIsTheFirst(Twelfth):
    """A warp's second fragment of A is the first again: rows 16-31 of every 32 are rows 0-15."""

    styles = ("mma",)
    plain = True
    needs = (
        either(A, ROWS, r"\ba fragment"),
        r"16-31|\b16\b|m ?tile|m16|fragment|registers?|second",
        either(SAME, MOVED, AGAIN),
        r"16|fragment|m ?tile|registers?",
    )

    def fragments_a(self, tile: Array) -> Array:
        rows = np.arange(len(tile))
        return tile if len(tile) // self.t.warps[0] < 32 else tile[rows // 32 * 32 + rows % 16]


class EveryThreadFourColumnsApart(Twelfth):
    """A thread's two values go to columns q and q + 4 of every 8, not to 2 q and 2 q + 1: columns 0, 4, 1, 5, 2, 6, 3, 7 are the right ones in that order."""

    needs = (
        either(D, COLUMNS, r"\bb\b"),
        r"2 ?\*? ?q|q \+ 4|4 apart|four apart|0, 4, 1|0, 2, 4|0 4 1|0 2 4|every (?:8|eight)|even|pairs?|stride (?:of )?4|lane",
        either(EXCHANGED, MOVED, r"order|apart|shuffle|instead|not (?:to )?(?:2|next|neighbou?r)"),
    )

    def fragments_d(self, block: Array) -> Array:
        place = np.arange(block.shape[1])
        return block[:, place // 8 * 8 + place % 4 * 2 + place % 8 // 4]
