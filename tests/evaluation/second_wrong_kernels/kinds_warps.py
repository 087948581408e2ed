"""Mistakes of warps, warpgroups and Tensor Memory."""

from __future__ import annotations

import numpy as np

import tcsim
from tests.evaluation.second_wrong_kernels import words as w
from tests.evaluation.second_wrong_kernels.kernel import Kernel
from tests.evaluation.second_wrong_kernels.problem import Array, Wish

# Warps.


class WarpOrder(Kernel):
    """Loads take the warp's place along M for the one along N; the store does not."""

    wish = Wish(warps=(2, 2))
    styles = ("mma",)
    plain = True
    needs = (w.WARP, w.SWAPPED)
    half = (w.WARP,)

    def warp_of_a(self, i: Array, j: Array) -> Array:
        return j

    def warp_of_b(self, i: Array, j: Array) -> Array:
        return i


class WarpOfAIgnored(Kernel):
    """All warps read the first warp's rows of A."""

    wish = Wish(warps=(2, 1))
    styles = ("mma",)
    plain = True
    needs = (w.A, w.WARP, w.SAME)
    half = (w.A,)

    def warp_of_a(self, i: Array, j: Array) -> Array:
        return i * 0


class WarpOfBIgnored(Kernel):
    """All warps read the first warp's columns of B."""

    wish = Wish(warps=(1, 2))
    styles = ("mma",)
    plain = True
    needs = (w.B, w.WARP, w.SAME)
    half = (w.B,)

    def warp_of_b(self, i: Array, j: Array) -> Array:
        return j * 0


class WarpgroupOfAIgnored(Kernel):
    """The second half of the warps (the second consumer warpgroup) multiplies the rows of the first."""

    styles = ("wgmma", "tcgen05")
    plain = True
    needs = (w.A, w.ROWS + "|warp", w.SAME)
    half = (w.A,)

    def warp_of_a(self, i: Array, j: Array) -> Array:
        return i % (self.t.warps[0] // 2)


class WarpsStoreToOnePlace(Kernel):
    """The warp's row is left out of the store: all warps write the first one's place."""

    wish = Wish(warps=(2, 1))
    styles = ("mma",)
    needs = (w.D, w.WARP, w.SAME + "|" + w.ZERO + "|overwr")
    half = (w.D,)

    def place_of_warps(self, i: Array, j: Array) -> tuple[Array, Array]:
        return i * 0, j


class WarpsExchanged(Kernel):
    """Two warps of a warpgroup store each other's rows."""

    styles = ("wgmma",)
    needs = (w.ROWS + "|warp", w.SWAPPED)
    half = (w.ROWS + "|warp",)

    def place_of_warps(self, i: Array, j: Array) -> tuple[Array, Array]:
        return np.where(i % 4 == 1, i + 1, np.where(i % 4 == 2, i - 1, i)), j


class OneWarpIdle(Kernel):
    """One warp leaves before the store."""

    wish = Wish(warps=(2, 1))
    needs = (w.ZERO, r"\d", w.ROWS + "|warp")
    half = (w.D,)

    def inside_d(self, rows: Array, columns: Array) -> Array:
        inside = super().inside_d(rows, columns).copy()
        inside[1, 0] = False
        return inside


# Tensor Memory.


class LaneQuarters(Kernel):
    """Epilogue warps 2 to 5 read the lanes 32 (warp % 4) and store to the rows 32 (warp - 2)."""

    styles = ("tcgen05",)
    needs = (w.ROWS + "|lane", w.SWAPPED + "|rotat|" + w.OFFSET + "|quarter")
    half = (w.ROWS + "|lane",)

    def fragments_d(self, block: Array) -> Array:
        return np.roll(block, len(block) // 2, axis=0)


class ColumnsOfTheFirstChunk(Kernel):
    """The epilogue reads the first 16 columns of Tensor Memory for each 16 columns of the tile."""

    styles = ("tcgen05",)
    needs = (w.COLUMNS, w.SAME)
    half = (w.COLUMNS,)

    def fragments_d(self, block: Array) -> Array:
        return np.tile(block[:, :16], (1, block.shape[1] // 16))


class HalfOfBOfThePair(Kernel):
    """The CTAs of a pair load the same half of B: the right half of the tile is the left."""

    styles = ("tcgen05", "wgmma")
    plain = True
    needs = (w.B + "|columns", w.SAME, w.COLUMNS + "|half")
    half = (w.COLUMNS + "|half",)

    def fragments_b(self, tile: Array) -> Array:
        half = len(tile) // 2
        return np.concatenate([tile[:half], tile[:half]])


class InputNegated(Kernel):
    """The descriptor, or wgmma's scale-a, negates A."""

    styles = ("tcgen05", "wgmma")
    plain = True
    floats = True
    needs = (r"negat|minus|\bsigns?\b|-1\b",)
    half = (w.A,)

    def fragments_a(self, tile: Array) -> Array:
        sign = 1 << (tcsim.format(self.arithmetic.a).bits - 1)
        return tile ^ tile.dtype.type(sign)
