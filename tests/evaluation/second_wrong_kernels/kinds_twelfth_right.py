"""The twelfth set: right kernels, with another order of summation or another way through memory."""

from __future__ import annotations

from tests.evaluation.second_wrong_kernels.kinds_twelfth import Well
from tests.evaluation.second_wrong_kernels.problem import Array, Wish


class WellResidueFirst(Well):
    """The short K tile comes first, and the whole ones after it."""

    wish = Wish(tiles=3, ragged="k")

    def slice_of(self, part: int) -> list[int]:
        tiles = super().slice_of(part)
        return [tiles[-1], *tiles[:-1]]


class WellSlicesInterleaved(Well):
    """Slice s of split-K has K tiles s, s + slices, s + 2 slices and so on."""

    wish = Wish(tiles=4, split=(2, 3))

    def slice_of(self, part: int) -> list[int]:
        return list(range(part, self.k_tiles(), self.t.split))


class WellPartialsInATree(Well):
    """The partial sums of four slices are added in pairs."""

    wish = Wish(tiles=4, split=(4,), c=False)

    def slice_of(self, part: int) -> list[int]:
        return list(range(part, self.k_tiles(), 4))

    def combine(self, partials: list[Array], y: int, x: int) -> Array:
        first, second, third, fourth = (self.values(partial) for partial in partials)
        total = (first + second) + (third + fourth)
        return self.epilogue(total, self.rows_of_d(y, x)[:, None], self.columns_of_d(y, x)[None])


class WellCFirstThenTheLastSlice(Well):
    """The output is C at first, and the slices are added to it from the last to the first."""

    wish = Wish(tiles=3, split=(2, 3), c=True)

    def setup(self) -> None:
        self.c_late = True

    def combine(self, partials: list[Array], y: int, x: int) -> Array:
        total = self.values(self.read_c(self.rows_of_d(y, x)[:, None], self.columns_of_d(y, x)[None]))
        for partial in reversed(partials):
            total = total + self.values(partial)
        return total


class WellSwizzledIn64Bytes(Well):
    """Shared memory has the 64-byte swizzle on both sides."""

    wish = Wish(span=64)

    def place_written(self, operand: str, row: Array, k: Array, pitch: int) -> Array:
        return self.in_lines(row, k, pitch, 2)

    def place_read(self, operand: str, row: Array, k: Array, pitch: int) -> Array:
        return self.in_lines(row, k, pitch, 2)


class WellCInABf16Epilogue(Well):
    """C is added to the sum in f32, and the output is rounded to bf16."""

    floats = True
    wish = Wish(c=True)

    def setup(self) -> None:
        self.c_late, self.output = True, "bf16"

    def epilogue(self, total: Array, rows: Array, columns: Array) -> Array:
        return total + self.values(self.read_c(rows, columns))


class WellScaledFromTheBack(Well):
    """Block scales, and the K tiles are taken from the last to the first."""

    only = "scaled"
    wish = Wish(tiles=3)

    def slice_of(self, part: int) -> list[int]:
        return super().slice_of(part)[::-1]


class WellSparseInTwoSlices(Well):
    """2:4 sparse A, in two slices of K that are added."""

    only = "sparse"
    wish = Wish(tiles=3, split=(2,))
