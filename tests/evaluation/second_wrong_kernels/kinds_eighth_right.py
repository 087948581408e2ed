"""The eighth set: right kernels. Their outputs are the model's, or differ from it by rounding alone."""

from __future__ import annotations

import numpy as np

from tests.evaluation.second_wrong_kernels.kinds_eighth import Fine
from tests.evaluation.second_wrong_kernels.kinds_eighth_tensor import swizzled
from tests.evaluation.second_wrong_kernels.problem import Array, Wish


class FineStreamK(Fine):
    """Stream-K: where K is cut differs from block to block, and partial sums are added as they come."""

    source = "kekzl/imp#1841"
    wish = Wish(tiles=4, blocks=(2, 2))

    def mainloop(self, y: int, x: int, part: int) -> Array:
        cut = (y * 3 + x) % self.k_tiles()
        first, second = self.fresh(y, x), self.accumulators(y, x, part)
        for tile in range(self.k_tiles()):
            if tile < cut:
                first = self.product(y, x, tile, first)
            else:
                second = self.product(y, x, tile, second)
        sums = self.values(second) + self.values(first)
        return np.ascontiguousarray(sums).view(np.uint32)


class FineSplitBackwards(Fine):
    """Split-K whose partial sums are added from the last to the first."""

    wish = Wish(tiles=4, split=(2, 3, 4))

    def combine(self, partials: list[Array], y: int, x: int) -> Array:
        return super().combine(partials[::-1], y, x)


class FineSplitOfAtomics(Fine):
    """Split-K by atomic additions: every block adds its partial sums in an order of its own."""

    source = "iree-org/wave#913"
    wish = Wish(tiles=4, split=(3, 4))

    def combine(self, partials: list[Array], y: int, x: int) -> Array:
        order = np.random.default_rng([y, x, self.p.k]).permutation(len(partials))
        return super().combine([partials[i] for i in order], y, x)


class FineTilesBackwards(Fine):
    """K tiles are taken from the last to the first, in both operands."""

    def slice_of(self, part: int) -> list[int]:
        return super().slice_of(part)[::-1]


class FineEvenAndOdd(Fine):
    """Even and odd K tiles have accumulators of their own, added at the end."""

    def mainloop(self, y: int, x: int, part: int) -> Array:
        sums = [self.accumulators(y, x, part), self.fresh(y, x)]
        for tile in range(self.k_tiles()):
            sums[tile % 2] = self.product(y, x, tile, sums[tile % 2])
        return np.ascontiguousarray(self.values(sums[0]) + self.values(sums[1])).view(np.uint32)


class FineWarpsAlongK(Fine):
    """Sliced-K: two groups of warps multiply the halves of each K tile, and their sums are added in shared memory."""

    plain = True

    def mainloop(self, y: int, x: int, part: int) -> Array:
        half = self.t.bk // 2
        sums = [self.accumulators(y, x, part), self.fresh(y, x)]
        for tile in range(self.k_tiles()):
            a, b = self.tile_a(y, x, tile), self.tile_b(y, x, tile)
            for i in range(2):
                at = slice(i * half, (i + 1) * half)
                sums[i] = self.multiply(np.ascontiguousarray(a[:, at]), np.ascontiguousarray(b[at]), sums[i], {})
        return np.ascontiguousarray(self.values(sums[0]) + self.values(sums[1])).view(np.uint32)


class FinePromotedEachTile(Fine):
    """Every K tile has fresh accumulators, and their sums are added outside of the tensor cores."""

    only = "e4m3"
    plain = True

    def mainloop(self, y: int, x: int, part: int) -> Array:
        total = self.values(self.accumulators(y, x, part)).copy()
        for tile in range(self.k_tiles()):
            total += self.values(self.product(y, x, tile, self.fresh(y, x)))
        return np.ascontiguousarray(total).view(np.uint32)


class FineSourceInTheEpilogue(Fine):
    """C is added in the epilogue, in f32."""

    wish = Wish(tiles=3, c=True)

    def setup(self) -> None:
        self.c_late = True

    def epilogue(self, total: Array, rows: Array, columns: Array) -> Array:
        return total + self.values(self.read_c(rows, columns))


class FineTransposedProblem(Fine):
    """D is computed as the transpose of B' A'."""

    source = "NVIDIA/cutlass#3540"
    plain = True
    only = "same types"
    styles = ("mma",)

    def multiply(self, a: Array, b: Array, c: Array, extras: dict[str, Array]) -> Array:
        a, b, c = (np.ascontiguousarray(x.T) for x in (a, b, c))
        return np.ascontiguousarray(self.gemm(b, a, c).T)


class FineOrderWithinATile(Fine):
    """Both operands have the same order of 16-byte chunks along K in each tile."""

    plain = True

    def order(self) -> Array:
        """Chunks of a tile, reordered."""
        chunks = self.t.bk // self.chunk
        at = np.random.default_rng(chunks).permutation(chunks)
        return (at[:, None] * self.chunk + np.arange(self.chunk)).ravel()

    def fragments_a(self, tile: Array) -> Array:
        return np.ascontiguousarray(tile[:, self.order()])

    def fragments_b(self, tile: Array) -> Array:
        return np.ascontiguousarray(tile[:, self.order()])


class FineLastTilesShifted(Fine):
    """Ragged M and N: the last blocks are moved back so that they end with the matrix, and overlap those before."""

    wish = Wish(tiles=3, ragged="mn", blocks=(2, 2))

    def rows_of_a(self, y: int, x: int) -> Array:
        return min(y * self.t.bm, self.p.m - self.t.bm) + np.arange(self.t.bm)

    def columns_of_b(self, y: int, x: int) -> Array:
        return min(x * self.t.bn, self.p.n - self.t.bn) + np.arange(self.t.bn)

    def rows_of_d(self, y: int, x: int) -> Array:
        return self.rows_of_a(y, x)

    def columns_of_d(self, y: int, x: int) -> Array:
        return self.columns_of_b(y, x)


class FineRowsWrapped(Fine):
    """Ragged M and N: rows and columns behind the end are loaded modulo M and N, and the store is masked."""

    source = "triton-lang/triton#9870"
    wish = Wish(tiles=3, ragged="mn", blocks=(2, 2))

    def rows_of_a(self, y: int, x: int) -> Array:
        return super().rows_of_a(y, x) % self.p.m

    def columns_of_b(self, y: int, x: int) -> Array:
        return super().columns_of_b(y, x) % self.p.n


class FineSwizzledAndPadded(Fine):
    """A is padded in shared memory and B is swizzled, on both sides alike."""

    wish = Wish(tiles=3, span=128)
    plain = True

    def place(self, operand: str, row: Array, k: Array, pitch: int) -> Array:
        """Where both sides look."""
        return row * (pitch + self.chunk) + k if operand == "a" else swizzled(row, k, pitch, self.chunk, row % 8)

    place_written = place
    place_read = place


class FineRaggedHalves(Fine):
    """All extents ragged, split-K, and D in f16."""

    floats = True
    wish = Wish(blocks=(2, 2), tiles=3, split=(2,), ragged="mnk")

    def setup(self) -> None:
        self.output = "f16"


class FinePartialsInATree(Fine):
    """Partial sums of four slices are added in pairs, and the output is bf16."""

    floats = True
    wish = Wish(tiles=4, split=(4,))

    def setup(self) -> None:
        self.output = "bf16"

    def combine(self, partials: list[Array], y: int, x: int) -> Array:
        one, two, three, four = (self.values(partial) for partial in partials)
        return self.epilogue((one + two) + (three + four), self.rows_of_d(y, x)[:, None], self.columns_of_d(y, x)[None])


class FineSparseInSlices(Fine):
    """Sparse A, split along K."""

    only = "sparse"
    wish = Wish(tiles=4, split=(2, 3))


class FineScaledInSlices(Fine):
    """Block-scaled operands, split along K, and C added at the end."""

    only = "scaled"
    wish = Wish(tiles=4, split=(2, 3), c=True)

    def setup(self) -> None:
        self.c_late = True

    def epilogue(self, total: Array, rows: Array, columns: Array) -> Array:
        return total + self.values(self.read_c(rows, columns))


class FineOrderOfBlocks(Fine):
    """Blocks are launched in groups of two block rows, each once."""

    wish = Wish(tiles=2, blocks=(3, 2))

    def blocks(self) -> list[tuple[int, int]]:
        return sorted(super().blocks(), key=lambda block: (block[0] // 2, block[1], block[0]))
