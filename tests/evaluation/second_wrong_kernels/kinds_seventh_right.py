"""The seventh set's kernels without a mistake: other orders, other splits, other epilogues."""

from __future__ import annotations

import numpy as np

import tcsim
from tests.evaluation.second_wrong_kernels.kinds_seventh import RightSeventh
from tests.evaluation.second_wrong_kernels.problem import Array, Wish


class RightBlocksColumnByColumn(RightSeventh):
    """Blocks go down the columns of the output, in groups of two."""

    wish = Wish(blocks=(2, 2))

    def blocks(self) -> list[tuple[int, int]]:
        return sorted(super().blocks(), key=lambda block: (block[0] // 2, block[1], block[0]))


class RightRowsModuloM(RightSeventh):
    """Loads take rows modulo M and columns modulo N; stores are masked."""

    wish = Wish(ragged="mn")

    def rows_of_a(self, y: int, x: int) -> Array:
        return super().rows_of_a(y, x) % self.p.m

    def columns_of_b(self, y: int, x: int) -> Array:
        return super().columns_of_b(y, x) % self.p.n


class RightStreamK(RightSeventh):
    """Each block's sum is cut at a place of its own along K, and the later part comes first."""

    wish = Wish(blocks=(2, 2), tiles=4, split=(2,), c=False)
    cut = 1

    def mainloop(self, y: int, x: int, part: int) -> Array:
        self.cut = 1 + (2 * y + x) % (self.k_tiles() - 1)
        return super().mainloop(y, x, part)

    def slice_of(self, part: int) -> list[int]:
        return list(range(self.k_tiles()))[self.cut :] if part == 0 else list(range(self.cut))


class RightTreeOfSlices(RightSeventh):
    """Four slices of K, added in pairs."""

    wish = Wish(tiles=4, split=(4,))

    def combine(self, partials: list[Array], y: int, x: int) -> Array:
        p = [self.values(partial) for partial in partials]
        rows, columns = self.rows_of_d(y, x)[:, None], self.columns_of_d(y, x)[None]
        return self.epilogue((p[0] + p[1]) + (p[2] + p[3]), rows, columns)


class RightEvenTilesFirst(RightSeventh):
    """The even K tiles are multiplied first, then the odd ones."""

    wish = Wish(tiles=4)

    def slice_of(self, part: int) -> list[int]:
        tiles = self.tiles_of(part)
        return tiles[::2] + tiles[1::2]


class RightStepsBackwards(RightSeventh):
    """The K steps of a tile are taken in reverse order, of both operands."""

    plain = True

    def setup(self) -> None:
        self.hit = "ab"

    def seen(self, tile: Array) -> Array:
        return self.in_steps(tile, self.steps()[::-1])


class RightFoursAlongK(RightSeventh):
    """Of each four elements along K the middle two change places, in both operands."""

    plain = True

    def setup(self) -> None:
        self.hit = "ab"

    def seen(self, tile: Array) -> Array:
        return tile.reshape(len(tile), -1, 4)[..., [0, 2, 1, 3]].reshape(tile.shape)


class RightPromotedEveryTwoTiles(RightSeventh):
    """After every second K tile the accumulator is added to a total in f32 and cleared."""

    floats = True
    wish = Wish(tiles=4, c=False)

    def mainloop(self, y: int, x: int, part: int) -> Array:
        self.total = np.zeros((self.t.bm, self.t.bn), np.float32)
        out = super().mainloop(y, x, part)
        return (self.total + self.values(out)).astype(np.float32).view(np.uint32)

    def step(self, y: int, x: int, i: int, a: Array, b: Array, out: Array, extras: dict[str, Array]) -> Array:
        out = super().step(y, x, i, a, b, out, extras)
        if i % 2:
            self.total, out = self.total + self.values(out), np.zeros_like(out)
        return out


class RightSummedInDoubles(RightSeventh):
    """The products of the K tiles are added in f64 and rounded once."""

    floats = True
    wish = Wish(tiles=3, c=False)

    def mainloop(self, y: int, x: int, part: int) -> Array:
        self.total = np.zeros((self.t.bm, self.t.bn))
        super().mainloop(y, x, part)
        return self.total.astype(np.float32).view(np.uint32)

    def step(self, y: int, x: int, i: int, a: Array, b: Array, out: Array, extras: dict[str, Array]) -> Array:
        self.total = self.total + self.values(self.multiply(a, b, np.zeros_like(out), extras))
        return out


class RightCAfterTheSlices(RightSeventh):
    """C is added when the slices of K have been added up."""

    wish = Wish(tiles=4, split=(2, 3), c=True)

    def setup(self) -> None:
        self.c_late = True

    def epilogue(self, total: Array, rows: Array, columns: Array) -> Array:
        return total + self.values(self.read_c(rows, columns))


class RightTileOfZeros(RightSeventh):
    """The loop goes on for one K tile behind the end, of zeros in both operands."""

    plain = True

    def slice_of(self, part: int) -> list[int]:
        return [*self.tiles_of(part), self.k_tiles()]


class RightOperandsExchanged(RightSeventh):
    """The transposed output is computed from the transposed operands, B first, as for a thin M."""

    plain = True
    only = "same types"
    styles = ("mma",)

    def multiply(self, a: Array, b: Array, c: Array, extras: dict[str, Array]) -> Array:
        return np.ascontiguousarray(self.gemm(b.T, a.T, c.T).T)


class RightSparseInSlices(RightSeventh):
    """2:4 sparse A, in two slices of K, the later one first."""

    only = "sparse"
    wish = Wish(tiles=4, split=(2,), c=False)

    def combine(self, partials: list[Array], y: int, x: int) -> Array:
        return super().combine(partials[::-1], y, x)


class RightScalesOnTheSums(RightSeventh):
    """Each block of K is multiplied in f32, and its sum by the scale factors of A and B."""

    only = "scaled"
    wish = Wish(tiles=3, c=False)

    def mainloop(self, y: int, x: int, part: int) -> Array:
        tiles = [(self.tile_a(y, x, i), self.tile_b(y, x, i), self.extras(y, x, i)) for i in self.slice_of(part)]
        total = np.zeros((self.t.bm, self.t.bn), np.float32)
        for a, b, extras in tiles:
            wide_a, wide_b = (tcsim.decode(x, self.arithmetic.a).astype(np.float32) for x in (a, b))
            scales = [
                tcsim.decode(extras[name], self.arithmetic.scale).astype(np.float32) for name in ("scale_a", "scale_b")
            ]
            for block in range(scales[0].shape[1]):
                at = slice(block * self.arithmetic.block, (block + 1) * self.arithmetic.block)
                total += (wide_a[:, at] @ wide_b[at]) * (scales[0][:, block, None] * scales[1][None, block])
        return total.view(np.uint32)
