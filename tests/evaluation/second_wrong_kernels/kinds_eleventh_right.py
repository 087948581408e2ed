"""The eleventh set: right kernels, with another order of sums or another epilogue. Their names begin with Valid."""

from __future__ import annotations

import numpy as np

from tests.evaluation.second_wrong_kernels.kinds_eleventh import Valid
from tests.evaluation.second_wrong_kernels.problem import Array, Wish


class ValidColumnsMovedBack(Valid):
    """Right: the last block of columns is moved back to end at N, where it is loaded and where it is stored."""

    source = "AMD-AGI/Primus-Turbo#508"
    wish = Wish(blocks=(1, 2), ragged="n")

    def columns_of_b(self, y: int, x: int) -> Array:
        return min(x * self.t.bn, self.p.n - self.t.bn) + np.arange(self.t.bn)

    def columns_of_d(self, y: int, x: int) -> Array:
        return self.columns_of_b(y, x)


class ValidStaggeredK(Valid):
    """Right: every block starts at another K tile and goes around."""

    wish = Wish(tiles=3, blocks=(1, 2))

    def mainloop(self, y: int, x: int, part: int) -> Array:
        self.turn = self.number(y, x)
        return super().mainloop(y, x, part)

    def slice_of(self, part: int) -> list[int]:
        tiles = super().slice_of(part)
        turn = self.turn % len(tiles)
        return tiles[turn:] + tiles[:turn]


class ValidTreeOfSlices(Valid):
    """Right: the four slices are added two and two."""

    wish = Wish(split=(4,), tiles=4)

    def slice_of(self, part: int) -> list[int]:
        tiles = self.k_tiles()
        return list(range(part * tiles // 4, (part + 1) * tiles // 4))

    def combine(self, partials: list[Array], y: int, x: int) -> Array:
        one, two, three, four = map(self.values, partials)
        return self.epilogue((one + two) + (three + four), self.rows_of_d(y, x)[:, None], self.columns_of_d(y, x)[None])


class ValidAtomicsOntoC(Valid):
    """Right: the output begins as C, and the slices are added to it, the last first."""

    wish = Wish(split=(2, 3), tiles=3, c=True)

    def setup(self) -> None:
        self.c_late = True

    def combine(self, partials: list[Array], y: int, x: int) -> Array:
        c = self.read_c(self.rows_of_d(y, x)[:, None], self.columns_of_d(y, x)[None])
        return super().combine([c, *partials[::-1]], y, x)


class ValidReversedChunks(Valid):
    """Right: the chunks of a K tile are multiplied in reverse, in A and in B."""

    plain = True

    def fragments_a(self, tile: Array) -> Array:
        return tile.reshape(len(tile), -1, self.chunk)[:, ::-1].reshape(tile.shape)

    def fragments_b(self, tile: Array) -> Array:
        return self.fragments_a(tile)


class ValidHalvesOfEveryTile(Valid):
    """Right: one group of warps multiplies the first half of every K tile, another the second, and their sums are added."""

    plain = True
    floats = True
    wish = Wish(split=(2,), tiles=2)

    def mainloop(self, y: int, x: int, part: int) -> Array:
        out, half = self.accumulators(y, x, part), self.t.bk // 2
        own = slice(part * half, (part + 1) * half)
        for tile in range(self.k_tiles()):
            out = self.multiply(self.tile_a(y, x, tile)[:, own], self.tile_b(y, x, tile)[own], out, {})
        return out


class ValidPromotedEveryTwoTiles(Valid):
    """Right: fresh accumulators every two K tiles are added to a total in f32."""

    floats = True
    wish = Wish(tiles=4, c=False)

    def mainloop(self, y: int, x: int, part: int) -> Array:
        total = np.zeros((self.t.bm, self.t.bn), np.float32)
        for first in range(0, self.k_tiles(), 2):
            out = self.accumulators(y, x, part)
            for tile in range(first, min(first + 2, self.k_tiles())):
                out = self.multiply(self.tile_a(y, x, tile), self.tile_b(y, x, tile), out, self.extras(y, x, tile))
            total = total + self.values(out)
        return total.view(np.uint32)


class ValidHalvesWithALateC(Valid):
    """Right: C is added to the finished sum in f32, and the result is rounded to f16."""

    floats = True
    wish = Wish(c=True)

    def setup(self) -> None:
        self.c_late = True
        self.output = "f16"

    def epilogue(self, total: Array, rows: Array, columns: Array) -> Array:
        return total + self.values(self.read_c(rows, columns))
