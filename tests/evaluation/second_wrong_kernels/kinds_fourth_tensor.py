"""The fourth set: fragments, warps, descriptors, swizzles, Tensor Memory, scale factors, metadata and clusters."""

from __future__ import annotations

import numpy as np

import tcsim
from tests.evaluation.second_wrong_kernels import words as w
from tests.evaluation.second_wrong_kernels.kinds_fourth import Fourth, halves
from tests.evaluation.second_wrong_kernels.kinds_shared import swizzled
from tests.evaluation.second_wrong_kernels.problem import Array, Wish

SCALE = r"\bscales?\b|scale factor|scale_[ab]|\bsf[ab]?\b"
METADATA = r"metadata|positions?|sparsity|selector"

# mma.sync: ldmatrix, fragments, warps.


class RowsOfLdmatrixPinned(Fourth):
    """The lanes' row addresses for ldmatrix lack the + 8: rows 8-15 of every fragment of A are rows 0-7 again."""

    source = "tracel-ai/cubek#599"
    styles = ("mma",)
    only = "16 bits"
    plain = True
    needs = (w.ROWS, w.SAME, w.A)
    half = (w.ROWS,)

    def fragments_a(self, tile: Array) -> Array:
        row = np.arange(len(tile))
        return tile[row - row % 16 // 8 * 8]


class LdmatrixWithoutTrans(Fourth):
    """B lies row by row in shared memory and is loaded without .trans: its 8 x 8 matrices are transposed."""

    styles = ("mma",)
    only = "16 bits"
    plain = True
    needs = (w.B, w.TRANSPOSED + r"|\.trans")
    half = (w.B,)

    def fragments_b(self, tile: Array) -> Array:
        n, k = tile.shape
        return tile.reshape(n // 8, 8, k // 8, 8).swapaxes(1, 3).reshape(n, k)


class SecondPairInTheSameRow(Fourth):
    """The epilogue stores c2 and c3 in the row of c0 and c1: rows 8-15 of every 16 are never written."""

    styles = ("mma",)
    needs = (w.ROWS, w.ZERO)
    half = (w.ROWS,)

    def address_of_d(self, rows: Array, columns: Array) -> Array:
        return super().address_of_d(rows - rows % 16 // 8 * 8, columns)


class ColumnOfALane(Fourth):
    """The epilogue takes lane % 4 for a lane's column instead of twice that: columns overlap, and some are never written."""

    source = "forums.developer.nvidia.com/t/174303"
    styles = ("mma",)
    needs = (w.COLUMNS, w.ZERO + "|" + w.SWAPPED + "|place|moved|written")
    half = (w.COLUMNS,)

    def fragments_d(self, block: Array) -> Array:
        out = np.full_like(block, self.blank if block.dtype.kind == "f" else 0)
        for to, column in enumerate((0, 1, 3, 5, 7)):
            out[:, to::8] = block[:, column::8]
        return out


class WarpsOfTheEpilogueTransposed(Fourth):
    """The main loop takes warp / 2 for the row of warps and the epilogue warp % 2: two warps' outputs are exchanged."""

    styles = ("mma",)
    wish = Wish(warps=(2, 2), whole="mn")  # corrected: beyond the edge there is nothing to exchange
    needs = (w.WARP, w.SWAPPED)
    half = (w.WARP,)

    def place_of_warps(self, i: Array, j: Array) -> tuple[Array, Array]:
        return j, i


# wgmma and tcgen05: descriptors and swizzles.


class FirstWarpgroupTwice(Fourth):
    """The second warpgroup's descriptor of A is the first one's: rows 64-127 of a tile are computed from rows 0-63."""

    styles = ("wgmma",)
    needs = (w.ROWS, w.SAME + r"|rows 0-63|\b64\b")
    half = (w.ROWS,)

    def warp_of_a(self, i: Array, j: Array) -> Array:
        return i % 4


class AdvanceOfHalfAStep(Fourth):
    """Both descriptors move on by half of an instruction's K (elements taken for bytes)."""

    source = "deepseek-ai/FlashMLA#67"
    styles = ("wgmma", "tcgen05")
    needs = (w.KTILE, r"advance|descriptor|step|overlap|half|" + w.TWICE + "|" + w.SAME)
    half = (w.KTILE,)

    def fragments_a(self, tile: Array) -> Array:
        return tile[:, halves(tile.shape[1], self.arithmetic.k)]

    def fragments_b(self, tile: Array) -> Array:
        return self.fragments_a(tile)


class DescriptorNotAdvanced(Fourth):
    """{operand}'s descriptor is not moved on within a K tile: every instruction reads the tile's first step."""

    source = "NVIDIA/cutlass#2468"
    styles = ("wgmma", "tcgen05")
    needs = ("{pattern}", w.SAME + "|advance|first")
    half = ("{pattern}",)

    def setup(self) -> None:
        self.hit = self.one_operand()

    def first_step(self, tile: Array, operand: str) -> Array:
        return tile[:, np.arange(tile.shape[1]) % self.arithmetic.k] if operand == self.hit else tile

    def fragments_a(self, tile: Array) -> Array:
        return self.first_step(tile, "a")

    def fragments_b(self, tile: Array) -> Array:
        return self.first_step(tile, "b")


class SwizzleOfTheTensorMap(Fourth):
    """The tensor maps write with a swizzle of 64 bytes, the descriptors say 128 bytes."""

    source = "KnowingNothing/MatmulTutorial#14"
    styles = ("wgmma", "tcgen05")
    wish = Wish(span=128)
    needs = (w.SWIZZLE, r"\b64(?:B| ?-?bytes)|on one side")  # corrected: two swizzles, not one's phase
    half = (w.SWIZZLE,)

    def place_written(self, operand: str, row: Array, k: Array, pitch: int) -> Array:
        return swizzled(self, row * pitch + k, 64)

    def place_read(self, operand: str, row: Array, k: Array, pitch: int) -> Array:
        return swizzled(self, row * pitch + k, 128)


class TileNotAlignedTo1024(Fourth):
    """B's tile lies {base} bytes behind a multiple of 1024: TMA swizzles by the address, the reader by the tile."""

    source = "tile-ai/tilelang#2379"
    styles = ("wgmma", "tcgen05")
    wish = Wish(span=128)
    needs = (w.B, w.SWIZZLE + "|" + w.PHASE)
    half = (w.B,)

    def setup(self) -> None:
        self.facts["base"] = 128 * int(self.random.integers(1, 8))

    def place_written(self, operand: str, row: Array, k: Array, pitch: int) -> Array:
        return swizzled(self, row * pitch + k, 128, self.facts["base"] if operand == "b" else 0)

    def place_read(self, operand: str, row: Array, k: Array, pitch: int) -> Array:
        return swizzled(self, row * pitch + k, 128)


class LboForSbo(Fourth):
    """Tiles lie without a swizzle, core matrix by core matrix, and both descriptors have LBO and SBO exchanged."""

    rare = True
    source = "KnowingNothing/MatmulTutorial#10"
    styles = ("wgmma", "tcgen05")
    wish = Wish(span=128)
    needs = (r"LBO|SBO|leading|stride|core matri",)
    half = (w.KTILE,)

    def core_matrices(self, row: Array, k: Array, by_row: int, by_chunk: int) -> Array:
        return (row // 8 * by_row + k // self.chunk * by_chunk + row % 8) * self.chunk + k % self.chunk

    def place_written(self, operand: str, row: Array, k: Array, pitch: int) -> Array:
        return self.core_matrices(row, k, 8, len(row))

    def place_read(self, operand: str, row: Array, k: Array, pitch: int) -> Array:
        return self.core_matrices(row, k, len(row), 8)


# tcgen05: Tensor Memory.


class QuarterOfAnotherWarp(Fourth):
    """The epilogue's first warp is warp {first} of its CTA, and the rows are counted from it: lanes and rows are {first} quarters apart."""

    source = "deepseek-ai/DeepGEMM#341"
    styles = ("tcgen05",)
    wish = Wish(whole="m")
    needs = (w.ROWS + "|lanes?", w.SWAPPED + r"|rotat|shift|roll|moved|quarter|warps?\b|rows \d+-\d+")
    half = (w.ROWS,)

    def setup(self) -> None:
        self.facts["first"] = int(self.random.choice([1, 2, 3]))

    def fragments_d(self, block: Array) -> Array:
        return np.roll(block, -len(block) // 4 * self.facts["first"], axis=0)


class ColumnsOfTmemAgain(Fourth):
    """The epilogue works in halves, and its tcgen05.ld reads the first half's columns of Tensor Memory for both."""

    styles = ("tcgen05",)
    needs = (w.COLUMNS, w.SAME + "|like|equal")
    half = (w.COLUMNS,)

    def fragments_d(self, block: Array) -> Array:
        return np.tile(block[:, : self.t.bn // 2], 2)


# Scale factors.


class ScalesOfTheFirstBlock(Fourth):
    """The slice of scale factors does not move on with the K tile: the first tile's scales are used for all."""

    source = "mlc-ai/TIRx-kernels#5"
    only = "scaled"
    needs = (SCALE, w.SAME + "|first|advance|tile|k 0")
    half = (SCALE,)

    def scales_a(self, rows: Array, blocks: Array) -> Array:
        return super().scales_a(rows, blocks % (self.t.bk // self.arithmetic.block))

    def scales_b(self, blocks: Array, columns: Array) -> Array:
        return super().scales_b(blocks % (self.t.bk // self.arithmetic.block), columns)


class ScalesOfTheOtherOperand(Fourth):
    """The scale factors of A and B are exchanged."""

    source = "NVIDIA/CUDALibrarySamples#248"
    only = "scaled"
    needs = (SCALE, w.SWAPPED)
    half = (SCALE,)

    def scales_a(self, rows: Array, blocks: Array) -> Array:
        return self._scales("scale_b", blocks, rows)

    def scales_b(self, blocks: Array, columns: Array) -> Array:
        return self._scales("scale_a", columns, blocks)


class ScalesLeftAtOne(Fourth):
    """{operand}'s scale factors stay at their default of 1."""

    source = "ROCm/FlyDSL#744"
    only = "scaled"
    needs = (SCALE, "{pattern}|scale_{operand}", w.MISSING + r"|not applied|\b1\b|\bone\b|identity")
    half = (SCALE,)

    def setup(self) -> None:
        self.hit = self.one_operand()

    def _scales(self, name: str, row: Array, column: Array) -> Array:
        table = super()._scales(name, row, column)
        return np.full_like(table, tcsim.encode(1.0, self.arithmetic.scale)) if name[-1] == self.hit else table


class ScalesNotInterleaved(Fourth):
    """Scale factors lie row by row, and are read as the interleaved blocks of 128 x 4 that the instruction expects."""

    rare = True
    source = "NVIDIA/Fuser#4801"
    only = "scaled"
    needs = (SCALE, r"layout|swizzl|order|permut|interleav|place|rows?\b|128|transpos")
    half = (SCALE,)

    def interleaved(self, table: Array, row: Array, block: Array) -> Array:
        """table: (rows, blocks of K)."""
        count = table.shape[1]
        at = row // 128 * 128 * -(-count // 4) * 4 + block // 4 * 512 + row % 32 * 16 + row % 128 // 32 * 4 + block % 4
        one = tcsim.encode(1.0, self.arithmetic.scale)
        return np.where(at < table.size, table.ravel()[np.minimum(at, table.size - 1)], one).astype(table.dtype)

    def scales_a(self, rows: Array, blocks: Array) -> Array:
        return self.interleaved(self.p.extras["scale_a"], rows, blocks)

    def scales_b(self, blocks: Array, columns: Array) -> Array:
        return self.interleaved(self.p.extras["scale_b"].T, columns, blocks)


class ScalesCutToPowersOfTwo(Fourth):
    """Scale factors lose their significand: only their power of two is used."""

    rare = True
    source = "sgl-project/sglang#39193"
    only = "e2m1"
    needs = (SCALE, r"power|truncat|mantissa|significand|round|exponent|ue8m0")
    half = (SCALE,)

    def _scales(self, name: str, row: Array, column: Array) -> Array:
        return super()._scales(name, row, column) & 0xF8


# Sparsity.


class MetadataInRowOrder(Fourth):
    """The metadata's rows are not brought into the order that the kernel loads them in."""

    rare = True
    source = "pytorch/pytorch#103830"
    only = "sparse"
    needs = (METADATA, r"rows?\b|order|permut|another|place")
    half = (METADATA,)

    def positions(self, rows: Array, k: Array) -> Array:
        return super().positions(rows // 32 * 32 + rows % 8 * 4 + rows % 32 // 8, k)


class MetadataNotAdvanced(Fourth):
    """The pointer to the metadata does not move on with the K tile: the first tile's metadata are used for all."""

    rare = True
    only = "sparse"
    needs = (METADATA, w.SAME + "|first|advance|tile|k 0")
    half = (METADATA,)

    def positions(self, rows: Array, k: Array) -> Array:
        return super().positions(rows, k % self.bk_a)


# Clusters.


class MulticastAcrossTheBoundary(Fourth):
    """A pair of blocks shares a multicast tile of B although their columns differ: every second one gets its neighbour's."""

    rare = True
    source = "deepseek-ai/DeepGEMM#415"
    styles = ("wgmma", "tcgen05")
    wish = Wish(blocks=(1, 2))
    needs = (w.COLUMNS + "|" + w.BLOCK, w.SAME + "|like|equal|neighbou?r")
    half = (w.COLUMNS,)

    def columns_of_b(self, y: int, x: int) -> Array:
        return super().columns_of_b(y, x - x % 2)
