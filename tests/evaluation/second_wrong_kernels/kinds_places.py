"""Mistakes of addresses in global memory and of the grid."""

from __future__ import annotations

import numpy as np

from tests.evaluation.second_wrong_kernels import words as w
from tests.evaluation.second_wrong_kernels.kernel import Kernel
from tests.evaluation.second_wrong_kernels.problem import Array, Wish

# Global memory.


class PitchOfA(Kernel):
    """The kernel is given a leading dimension of A that is {by} more than the matrix has."""

    wish = Wish(majors="kk")
    needs = (w.A, w.PITCH)
    half = (w.A,)

    def setup(self) -> None:
        self.facts["by"] = int(self.random.choice([4, 8, 16])) * 2 // self.thin
        self.lda += self.facts["by"]


class PitchOfB(Kernel):
    """The kernel is given a leading dimension of B that is {by} more than the matrix has."""

    needs = (w.B, w.PITCH)
    half = (w.B,)

    def setup(self) -> None:
        self.facts["by"] = int(self.random.choice([-8, 8, 16]))
        self.ldb += self.facts["by"]


class PitchOfD(Kernel):
    """D is stored with a leading dimension that is {by} more than the matrix has."""

    wish = Wish(c=False)
    needs = (w.D, w.PITCH)
    half = (w.D,)

    def setup(self) -> None:
        self.facts["by"] = int(self.random.choice([-4, 4, 8, 16]))
        self.ldd += self.facts["by"]


class OrderOfA(Kernel):
    """A is row-major and is read as column-major."""

    wish = Wish(majors="kk")
    plain = True
    needs = (w.A, w.TRANSPOSED)
    half = (w.A,)

    def global_a(self, rows: Array, k: Array) -> Array:
        return self.read("a", k * self.p.m + rows, self.inside_a(rows, k))


class OrderOfB(Kernel):
    """B is read in the other order in memory (the flags N and T of a BLAS call confused)."""

    needs = (w.B, w.TRANSPOSED)
    half = (w.B,)

    def global_b(self, k: Array, columns: Array) -> Array:
        address = k * self.p.n + columns if self.t.b_major == "k" else columns * self.p.k + k
        return self.read("b", address, self.inside_b(k, columns))


class OrderOfBoth(Kernel):
    """One flag says how both operands lie in memory, and it is wrong."""

    wish = Wish(majors="kk")
    plain = True
    needs = (w.A, w.B, w.TRANSPOSED)
    half = (w.TRANSPOSED,)

    def global_a(self, rows: Array, k: Array) -> Array:
        return self.read("a", k * self.p.m + rows, self.inside_a(rows, k))

    def global_b(self, k: Array, columns: Array) -> Array:
        return self.read("b", k * self.p.n + columns, self.inside_b(k, columns))


class OrderOfD(Kernel):
    """D is stored column-major and read back as row-major."""

    needs = (w.D, w.TRANSPOSED)
    half = (w.D,)

    def address_of_d(self, rows: Array, columns: Array) -> Array:
        return columns * self.p.m + rows


class PointerOfA(Kernel):
    """A's pointer is {by} elements too far."""

    plain = True
    needs = (w.A, w.OFFSET)
    half = (w.A,)

    def setup(self) -> None:
        self.facts["by"] = self.pointer["a"] = int(self.random.choice([1, 2, 8, 16, self.lda]))


class PointerOfB(Kernel):
    """B's pointer is {by} elements too far."""

    needs = (w.B, w.OFFSET)
    half = (w.B,)

    def setup(self) -> None:
        self.facts["by"] = self.pointer["b"] = int(self.random.choice([1, 2, 8, 16, self.ldb]))


class PointerOfD(Kernel):
    """D's pointer is {by} elements too far."""

    wish = Wish(c=False)
    needs = (w.D, w.OFFSET)
    half = (w.D,)

    def setup(self) -> None:
        self.facts["by"] = self.pointer["d"] = int(self.random.choice([1, 4, 8, self.ldd]))


# The grid.


class GridSwapped(Kernel):
    """Loads take blockIdx.x for rows and blockIdx.y for columns, the store takes them the right way round."""

    wish = Wish(blocks=(2, 2))
    plain = True
    needs = (w.BLOCK, w.SWAPPED + "|blockIdx")
    half = (w.BLOCK,)

    def rows_of_a(self, y: int, x: int) -> Array:
        return x * self.t.bm + np.arange(self.t.bm)

    def columns_of_b(self, y: int, x: int) -> Array:
        return y * self.t.bn + np.arange(self.t.bn)


class BlockOfAIgnored(Kernel):
    """The block's index along M is left out of A's address: every block multiplies the first rows."""

    wish = Wish(blocks=(2, 1))
    plain = True
    needs = (w.A, w.BLOCK, w.SAME)
    half = (w.A,)

    def rows_of_a(self, y: int, x: int) -> Array:
        return np.arange(self.t.bm)


class BlockOfBIgnored(Kernel):
    """The block's index along N is left out of B's address: every block multiplies the first columns."""

    wish = Wish(blocks=(1, 2))
    plain = True
    needs = (w.B, w.BLOCK, w.SAME)
    half = (w.B,)

    def columns_of_b(self, y: int, x: int) -> Array:
        return np.arange(self.t.bn)


class TileOfTheOtherSide(Kernel):
    """B's block starts at blockIdx.x * BM, not BN."""

    wish = Wish(blocks=(1, 2), uneven=True)
    plain = True
    needs = (w.B, r"column|block|tile|\bBM\b", w.OFFSET + "|" + w.SAME + "|size|BM|instead")
    half = (w.B,)

    def columns_of_b(self, y: int, x: int) -> Array:
        return x * self.t.bm + np.arange(self.t.bn)


class RowsByTheOtherTile(Kernel):
    """A's block starts at blockIdx.y * BN, not BM."""

    wish = Wish(blocks=(2, 1), uneven=True)
    plain = True
    needs = (w.A, r"row|block|tile|\bBN\b", w.OFFSET + "|" + w.SAME + "|size|BN|instead")
    half = (w.A,)

    def rows_of_a(self, y: int, x: int) -> Array:
        return y * self.t.bn + np.arange(self.t.bm)


class GridTooSmall(Kernel):
    """The grid is M / BM by N / BN, rounded down: the last rows or columns of a ragged product are never written."""

    wish = Wish(blocks=(2, 2), ragged="mn")
    needs = (w.ZERO, w.ROWS + "|" + w.COLUMNS + "|" + w.BLOCK)
    half = (w.D,)

    def grid(self) -> tuple[int, int]:
        return self.p.m // self.t.bm, self.p.n // self.t.bn


class BlockNeverRun(Kernel):
    """One block returns early (an early exit with the wrong bound)."""

    wish = Wish(blocks=(2, 2))
    needs = (w.ZERO, w.BLOCK)
    half = (w.D,)

    def blocks(self) -> list[tuple[int, int]]:
        return super().blocks()[:-1]


class GroupedOrderWrong(Kernel):
    """Blocks are renumbered for L2 in groups, with the group's size in place of its rest: some tiles are computed for others."""

    wish = Wish(blocks=(2, 2), whole="mn")
    plain = True
    needs = (w.BLOCK, w.SAME + "|" + w.SWAPPED)
    half = (w.BLOCK,)

    def rows_of_a(self, y: int, x: int) -> Array:
        return ((y + x) % self.grid()[0]) * self.t.bm + np.arange(self.t.bm)


class NextBlockOfB(Kernel):
    """B's block index is one too large (a counter increased before use); the last block reads zeros."""

    wish = Wish(blocks=(1, 2), whole="n")
    plain = True
    needs = (w.B, w.BLOCK, w.OFFSET + "|next|instead|taken from|one block")
    half = (w.B,)

    def columns_of_b(self, y: int, x: int) -> Array:
        return (x + 1) * self.t.bn + np.arange(self.t.bn)
