"""The fifth set: grids, schedulers, strides, batches and groups."""

from __future__ import annotations

import numpy as np

from tests.evaluation.second_wrong_kernels import words as w
from tests.evaluation.second_wrong_kernels.kinds_fifth import MOVED, UNWRITTEN, Fifth
from tests.evaluation.second_wrong_kernels.problem import Array, Wish


class GridShortAlongM(Fifth):
    """The grid has M / BM blocks instead of the next whole number: the last rows are never computed."""

    wish = Wish(blocks=(2, 1), ragged="m")
    needs = (w.ROWS, UNWRITTEN)
    half = (w.ROWS,)

    def grid(self) -> tuple[int, int]:
        return self.p.m // self.t.bm, super().grid()[1]


class LastWaveDropped(Fifth):
    """A persistent kernel of {ctas} CTAs makes tiles / {ctas} rounds, rounded down: the last tiles are never computed."""

    source = "tile-ai/tilelang#2433"
    wish = Wish(blocks=(2, 2))
    needs = (w.BLOCK, UNWRITTEN)
    half = (UNWRITTEN,)

    def setup(self) -> None:
        tiles = len(super().blocks())
        uneven = [ctas for ctas in range(2, tiles) if tiles % ctas] or [1]
        self.ctas = self.facts["ctas"] = int(self.random.choice(uneven))

    def blocks(self) -> list[tuple[int, int]]:
        tiles = super().blocks()
        return tiles[: len(tiles) // self.ctas * self.ctas]


class StorePastN(Fifth):
    """Loads take columns modulo N, and the store has no mask for columns: what lies past N lands in the next row's first columns."""

    source = "huggingface/kernels-community#1153"
    wish = Wish(blocks=(1, 2), ragged="n", c=False)
    needs = (
        w.COLUMNS + "|" + w.ROWS,
        r"above|previous|before|next|following|one row|shift|past|overhang|overwr|wrap|mask|beyond|ragged|edge|spill|bound|neighbou?r",
    )
    half = (w.COLUMNS,)

    def columns_of_b(self, y: int, x: int) -> Array:
        return super().columns_of_b(y, x) % self.p.n

    def inside_d(self, rows: Array, columns: Array) -> Array:
        return np.broadcast_to(rows < self.p.m, np.broadcast_shapes(rows.shape, columns.shape))


class LddOfPaddedOutput(Fifth):
    """D is stored with N rounded up to a multiple of 16 as its leading dimension; the tensor is dense."""

    source = "ROCm/aiter#5385"
    wish = Wish(ragged="n", blocks=(2, 1))
    needs = (w.D, w.PITCH)
    half = (w.D,)

    def setup(self) -> None:
        self.ldd = -(-self.p.n // 16) * 16


class BatchStrideOfFewerRows(Fifth):
    """A is a batch of {rows}-row matrices; its batch stride is that of {fewer} rows: later batches start too early in A."""

    source = "uxlfoundation/oneDNN#5556"
    wish = Wish(blocks=(2, 1))
    needs = (w.A, w.ROWS, w.OFFSET + "|stride|pitch|instead of|from rows")
    half = (w.A,)

    def setup(self) -> None:
        self.missing = int(self.random.choice([4, 8]))
        self.facts |= {"rows": self.t.bm, "fewer": self.t.bm - self.missing}

    def rows_of_a(self, y: int, x: int) -> Array:
        return super().rows_of_a(y, x) - y * self.missing


class BatchIndexIgnored(Fifth):
    """The batch stride of {operand} is zero: every batch multiplies the first one's."""

    source = "huggingface/candle#3744"
    wish = Wish(blocks=(2, 2))
    needs = ("{place}", w.SAME)
    half = (w.ROWS + "|" + w.COLUMNS,)

    def setup(self) -> None:
        self.batched = self.one_operand()
        self.facts["place"] = w.A + "|" + w.ROWS if self.batched == "a" else w.B + "|" + w.COLUMNS

    def rows_of_a(self, y: int, x: int) -> Array:
        return super().rows_of_a(0 if self.batched == "a" else y, x)

    def columns_of_b(self, y: int, x: int) -> Array:
        return super().columns_of_b(y, 0 if self.batched == "b" else x)


class HeadsAndTokensInterchanged(Fifth):
    """Rows are {heads} heads of {tokens} tokens, and the output is stored as tokens of heads: row h * {tokens} + t goes to t * {heads} + h."""

    source = "karpathy/llm.c#795"
    needs = (w.ROWS + "|" + w.D, MOVED + "|stride|transpos")
    half = (w.ROWS,)

    def setup(self) -> None:
        self.heads = int(self.random.choice([heads for heads in (2, 4, 8) if self.p.m % heads == 0]))
        self.facts |= {"heads": self.heads, "tokens": self.p.m // self.heads}

    def address_of_d(self, rows: Array, columns: Array) -> Array:
        tokens = self.p.m // self.heads
        return super().address_of_d(rows % tokens * self.heads + rows // tokens, columns)


class SortedTokensNotScattered(Fifth):
    """Rows of A are gathered expert by expert, and the output is left in that order."""

    wish = Wish(c=False)
    needs = (w.ROWS, MOVED + "|gather|sort")
    half = (w.ROWS,)

    def setup(self) -> None:
        experts = self.random.integers(0, 4, self.p.m)
        self.order = np.argsort(experts, kind="stable")

    def rows_of_a(self, y: int, x: int) -> Array:
        rows = super().rows_of_a(y, x)
        return np.where(rows < self.p.m, self.order[np.minimum(rows, self.p.m - 1)], rows)
