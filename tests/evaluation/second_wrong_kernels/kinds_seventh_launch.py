"""The seventh set: groups and gathers, tile schedulers, clusters, split-K and stream-K."""

from __future__ import annotations

import numpy as np

from tests.evaluation.second_wrong_kernels import kinds_sixth as s
from tests.evaluation.second_wrong_kernels import words as w
from tests.evaluation.second_wrong_kernels.kinds_seventh import AGAIN, ELSEWHERE, HOLE, A, Seventh
from tests.evaluation.second_wrong_kernels.problem import Array, Wish

_DOUBLED = r"doubl(?:ed|e the)|(?:factor|times|alpha|scale[sd]?|multiplied).{0,15}(?<![\d.])2(?!\.?[1-9]|\d)|2(?:\.0)? (?:x|times|\*)"


class GroupStartsRoundedUp(Seventh):
    """From row {start} on, the rows of A are read {by} rows further on: the groups are packed, and their starts were rounded up."""

    wish = Wish(blocks=(2, 1))
    needs = (A, w.ROWS, ELSEWHERE, r"{by.pattern}|\d+-\d+\D+\d+-\d+|{start}")
    half = (w.ROWS,)

    def setup(self) -> None:
        self.choose("by", 4, 8, 12)
        self.facts["start"] = 8 * int(self.random.integers(1, self.p.m // 8))

    def rows_of_a(self, y: int, x: int) -> Array:
        rows = super().rows_of_a(y, x)
        return np.where(rows >= self.facts["start"], rows + self.facts["by"], rows)


class IdOfTheFirstLane(Seventh):
    """Each {group} rows of A are the first of them again: the gathered row's number is that of the first lane."""

    needs = (A, w.ROWS, AGAIN, r"{group.pattern}|first of")
    half = (w.ROWS,)

    def setup(self) -> None:
        self.choose("group", 4, 8)

    def rows_of_a(self, y: int, x: int) -> Array:
        return super().rows_of_a(y, x) // self.facts["group"] * self.facts["group"]


class RowOfTheToken(Seventh):
    """Row r of A is read from row r // {top}: A was gathered already, and the number is divided by the experts of a token once more."""

    needs = (A, w.ROWS, r"//|/ ?\d|divid|stretch|{top.pattern}")
    half = (w.ROWS,)

    def setup(self) -> None:
        self.choose("top", 2, 4)

    def rows_of_a(self, y: int, x: int) -> Array:
        return super().rows_of_a(y, x) // self.facts["top"]


class StoredInSortedOrder(Seventh):
    """The rows of D are permuted: they are stored where they were sorted to, not where their tokens are."""

    needs = (w.ROWS, s.MOVED + "|scatter")
    half = (w.ROWS,)

    def setup(self) -> None:
        self.order = self.random.permutation(self.p.m)

    def address_of_d(self, rows: Array, columns: Array) -> Array:
        inside = rows < self.p.m
        return super().address_of_d(np.where(inside, self.order[np.where(inside, rows, 0)], rows), columns)


class PartialOfTheNextTile(Seventh):
    """The last slice's partial sum of each tile is taken from the next tile's place in the workspace."""

    wish = Wish(blocks=(2, 2), tiles=4, split=(2, 3), whole="mn")
    needs = (s.SLICE, s.TILE + r"|\brows?\b|columns?", ELSEWHERE + "|next|other|neighbour")
    half = (s.SLICE,)

    def combine(self, partials: list[Array], y: int, x: int) -> Array:
        part = len(partials) - 1
        return super().combine([*partials[:-1], self.mainloop(*self.neighbour(y, x, 1), part)], y, x)


class WorkspaceNotCleared(Seventh):
    """All is doubled: the sums of an earlier launch are still in the workspace."""

    wish = Wish(c=False, tiles=4, split=(2, 3))
    needs = (_DOUBLED + r"|all .*(?:twice|doubled)|twice (?:the|as large)",)
    half = ("factor|scal|alpha",)

    def epilogue(self, total: Array, rows: Array, columns: Array) -> Array:
        return total + total


class TileCountRoundedDown(Seventh):
    """The ragged last tiles along {axis} are never computed: the scheduler divides without rounding up."""

    wish = Wish(blocks=(2, 2), ragged="mn")
    needs = ("{pattern}", HOLE, w.LAST + r"|\d+-\d+")
    half = (HOLE,)

    def setup(self) -> None:
        self.down = self.axis()

    def grid(self) -> tuple[int, int]:
        whole = list(super().grid())
        whole[self.down] -= 1
        return whole[0], whole[1]


class SumsOfTheWorkersLastTile(Seventh):
    """A persistent block does not clear its accumulators: to a tile's product that of the tile {workers} earlier in the launch is added."""

    wish = Wish(blocks=(2, 2), c=False)
    needs = (
        s.TILE,
        r"clear|added|adds?\b|plus|\bsums? of|accumulat|\+|zeroed|initiali",
        r"earlier|previous|before|other|clear|left|persist|launch",
    )
    half = (s.TILE,)

    def setup(self) -> None:
        self.choose("workers", 2, 3)
        self.left: dict[int, Array] = {}

    def accumulators(self, y: int, x: int, part: int) -> Array:
        earlier = self.left.get(self.number(y, x) - int(self.facts["workers"]))
        return super().accumulators(y, x, part) if earlier is None else earlier

    def mainloop(self, y: int, x: int, part: int) -> Array:
        self.left[self.number(y, x)] = super().mainloop(y, x, part)
        return self.left[self.number(y, x)]


class TilesCountedAlongTheOtherAxis(Seventh):
    """A tile's number is divided by the number of tiles along M, not along N: blocks of the output are never written."""

    wish = Wish(blocks=(1, 2))
    needs = (s.TILE, HOLE)
    half = (HOLE,)

    def blocks(self) -> list[tuple[int, int]]:
        along_m, along_n = self.grid()
        return [divmod(number, along_m) for number in range(along_m * along_n)]


class LastGroupOfTheRaster(Seventh):
    """Blocks are left out: tiles go in groups of {group} block rows, and the last group, which has fewer, is numbered like the others."""

    wish = Wish(blocks=(2, 2))
    needs = (s.TILE, HOLE)
    half = (HOLE,)

    def setup(self) -> None:
        self.choose("group", 2, 3, 4)

    def blocks(self) -> list[tuple[int, int]]:
        (along_m, along_n), group = self.grid(), int(self.facts["group"])
        numbers = [divmod(number, group * along_n) for number in range(along_m * along_n)]
        return [(first * group + rest % group, rest // group) for first, rest in numbers]


class SliceStartsOneTileEarly(Seventh):
    """Slices of K overlap: all but the first start one K tile early, which is summed twice."""

    wish = Wish(tiles=4, split=(2, 3))
    needs = (s.SLICE + r"|\bk\b", w.TWICE)
    half = (s.SLICE,)

    def slice_of(self, part: int) -> list[int]:
        own = self.tiles_of(part)
        return [own[0] - 1, *own] if part and own else own


class RestOfTheTilesInNoSlice(Seventh):
    """The last K tiles are left out: each slice has the whole number of K tiles below its share."""

    wish = Wish(tiles=3, split=(2, 3))
    needs = (r"\bk\b", w.LAST, s.LEFT_OUT)
    half = (s.LEFT_OUT,)

    def slice_of(self, part: int) -> list[int]:
        each = self.k_tiles() // self.t.split
        return list(range(part * each, (part + 1) * each))


class SlicesOverwriteEachOther(Seventh):
    """Only the last slice of K remains: each slice stores its sums instead of adding them."""

    wish = Wish(tiles=4, split=(2, 3))
    needs = (s.SLICE + r"|\bk\b", s.ALONE)
    half = (s.SLICE,)

    def combine(self, partials: list[Array], y: int, x: int) -> Array:
        return super().combine(partials[-1:], y, x)


class TileByTwoWorkers(Seventh):
    """One block of the output is doubled: two workers take the tile, and both add."""

    wish = Wish(blocks=(2, 2), c=False)
    needs = (s.TILE, _DOUBLED + "|doubled|added twice")
    half = (s.TILE,)

    def setup(self) -> None:
        self.twice = int(self.random.integers(np.prod(self.grid())))

    def combine(self, partials: list[Array], y: int, x: int) -> Array:
        total = super().combine(partials, y, x)
        return total + total if self.number(y, x) == self.twice else total


class FixUpNotWaitedFor(Seventh):
    """In every other block the first slice of K is missing: the partial sums had not come when they were added up."""

    wish = Wish(blocks=(2, 2), tiles=4, split=(2,), c=False)
    needs = (s.TILE + r"|\brows?\b|columns?", s.SLICE + r"|\bk\b", s.LEFT_OUT + "|only")
    half = (s.LEFT_OUT,)

    def combine(self, partials: list[Array], y: int, x: int) -> Array:
        return super().combine(partials[self.number(y, x) % 2 :], y, x)


class TilesTwiceAsFarApart(Seventh):
    """Block i of {operand} is loaded from 2 i tiles on: the tile's offset in bytes is added to a pointer to elements."""

    wish = Wish(blocks=(2, 2))
    needs = ("{pattern}", s.TILE + r"|\brows?\b|columns?", r"twice|double|\b2\b|\bzero|stride|\d+-\d+\D+\d+-\d+")
    half = (s.TILE,)

    def setup(self) -> None:
        self.operands("a", "b", "ab")

    def rows_loaded(self, operand: str, block: int, size: int) -> Array:
        return super().rows_loaded(operand, block * (2 if operand in self.hit else 1), size)


class BothLoadTheSameHalf(Seventh):
    """The second half of each tile of {operand} is the first half again: in a cluster both blocks multicast the same half."""

    wish = Wish(c=False)
    needs = (r"{pattern}|\boutput|\bd\b", r"half|halves|\d+-\d+", AGAIN)
    half = ("half|halves|" + w.ROWS + "|" + w.COLUMNS,)

    def setup(self) -> None:
        self.operands("a", "b")

    def rows_loaded(self, operand: str, block: int, size: int) -> Array:
        rows = super().rows_loaded(operand, block, size)
        return np.tile(rows[: size // 2], 2) if operand in self.hit else rows


class TilesOfTwoConsumersExchanged(Seventh):
    """Tiles 2 i and 2 i + 1 of the launch are stored in each other's places: the two consumers of a ping-pong kernel are out of order."""

    wish = Wish(blocks=(2, 2), whole="mn")
    needs = (s.TILE + r"|\brows?\b|columns?", s.MOVED)
    half = (s.TILE,)

    def store(self, memory: Array, y: int, x: int, block: Array) -> None:
        order, other = self.blocks(), self.number(y, x) ^ 1
        super().store(memory, *(order[other] if other < len(order) else (y, x)), block)


class RowsOfTheLeader(Seventh):
    """The second block of each pair along M multiplies the rows of A of the first: its rank in the cluster is not used."""

    wish = Wish(blocks=(2, 1))
    needs = (A, s.TILE + r"|\brows?\b", AGAIN)
    half = (w.ROWS,)

    def rows_of_a(self, y: int, x: int) -> Array:
        return super().rows_of_a(y // 2 * 2, x)


class ColumnsInterleaved(Seventh):
    """Column 2 j + i of the product is made of column i N/2 + j of B: its halves (gate and up) are interleaved."""

    wish = Wish(blocks=(1, 2))
    needs = (w.COLUMNS, s.MOVED + "|interleav|even|odd|half|halves|alternat|stride")
    half = (w.COLUMNS,)

    def columns_of_b(self, y: int, x: int) -> Array:
        columns, n = super().columns_of_b(y, x), self.p.n
        return np.where(columns < n, columns % 2 * (n // 2) + columns // 2, columns)
