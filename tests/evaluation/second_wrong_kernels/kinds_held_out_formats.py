"""Held-out mistakes from issue trackers, of what a number is made of: fragments, packing, formats, metadata, scale factors, the epilogue.

As of `kinds_held_out`, which has those of places and loops.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from tests.evaluation.second_wrong_kernels import words as w
from tests.evaluation.second_wrong_kernels.kinds_formats import METADATA, SCALE
from tests.evaluation.second_wrong_kernels.kinds_held_out import OTHER, HeldOut
from tests.evaluation.second_wrong_kernels.problem import Array, Wish

# Fragments, packing, formats.


class AtomsOfEightColumns(HeldOut):
    """B's groups of 8 columns lie one after another and are read with the step of 16: every other group is left out, the last half is zero."""

    thread = "tile-ai/tilelang#2593"
    styles = ("wgmma", "mma")
    plain = True
    needs = (
        w.B,
        r"\b8\b|\b16\b|stride|step|sbo|lbo|" + w.PITCH,
        w.OFFSET + "|" + w.SAME + "|" + w.ZERO + "|stride|step|sbo|" + OTHER,
    )
    half = (w.B + "|" + w.COLUMNS,)

    def fragments_b(self, tile: Array) -> Array:
        row = np.arange(len(tile))
        source = row // 8 * 16 + row % 8
        return np.where((source < len(tile))[:, None], tile[source % len(tile)], 0).astype(tile.dtype)


class ChainedLayoutOf8Bits(HeldOut):
    """A comes from the accumulators of a product before it, in their order: a lane has k 2t, 2t + 1, 2t + 8, 2t + 9, not 4t to 4t + 3."""

    thread = "triton-lang/triton#3580"
    only = "8 bits"
    plain = True
    needs = (w.A, w.KTILE + "|lane|register|byte|word", w.SWAPPED + "|order|layout|interleav")
    half = (w.A,)

    def fragments_a(self, tile: Array) -> Array:
        return tile.reshape(len(tile), -1, 2, 4, 2).swapaxes(2, 3).reshape(tile.shape)


class SplitNibblesInterleaved(HeldOut):
    """A byte holds elements i and i + 16 of a block of 32, and is unpacked as 2i and 2i + 1."""

    thread = "kekzl/imp#722"
    only = "e2m1"
    needs = (w.A, w.SWAPPED + "|interleav|order", r"nibble|interleav|\bk\b|pack|half|halves|pair")
    half = (w.A,)

    def fragments_a(self, tile: Array) -> Array:
        return tile.reshape(len(tile), -1, 2, 16).swapaxes(2, 3).reshape(tile.shape)


class ColumnsInterleavedByEight(HeldOut):
    """B's columns are stored in the order 0, 2, 4, 6, 1, 3, 5, 7 of each eight, and are read as if they were not."""

    thread = "pie-project/pie#491"
    needs = (w.B + "|" + w.COLUMNS, w.SWAPPED + "|interleav|order", w.COLUMNS + r"|\b8\b|eight")
    half = (w.COLUMNS + "|" + w.B,)

    def fragments_b(self, tile: Array) -> Array:
        return tile.reshape(-1, 4, 2, tile.shape[1]).swapaxes(1, 2).reshape(tile.shape)


class ZeroPointOffByOne(HeldOut):
    """The zero point of B is stored as it is and read as one less: 1 is subtracted from every element of B."""

    thread = "vllm-project/vllm#38966"
    only = "s8"
    needs = (
        w.B + "|zero.?point|sums? of (?:the )?rows?",
        r"zero.?point|off by|minus|- ?1\b|\b1\b|constant|subtract|row sum|sums? of",
    )
    half = (w.B,)

    def fragments_b(self, tile: Array) -> Array:
        return (tile.view(np.int8) - np.int8(1)).view(tile.dtype)


# Sparse metadata and scale factors.


class MetadataOfLaterSlices(HeldOut):
    """Split-K: the metadata's offset counts elements, not words: later slices read behind it, and find the first two of each four."""

    thread = "NVIDIA/cutlass#3625"
    wish = Wish(tiles=4, split=(2,))
    only = "sparse"
    needs = (
        METADATA,
        w.SPLIT + "|" + w.LAST + "|" + w.KTILE,
        r"0, ?1|first two|ignor|constant|missing|zero|default|not read|slice|" + w.SAME,
    )
    half = (METADATA,)

    def positions(self, rows: Array, k: Array) -> Array:
        own = super().positions(rows, k)
        later = k >= len(self.slice_of(0)) * self.bk_a
        return np.where(later, k % 2, own).astype(own.dtype)


class MetadataNotReordered(HeldOut):
    """The metadata's rows are not interleaved as the kernel expects them: row r has those of row (r % 8) 4 + r / 8 of each 32."""

    thread = "pytorch/pytorch#103830"
    wish = Wish(whole="m")
    only = "sparse"
    needs = (METADATA, w.SWAPPED + "|order|interleav|" + OTHER, w.ROWS)
    half = (METADATA,)

    def positions(self, rows: Array, k: Array) -> Array:
        inner = rows % 32
        return super().positions(rows - inner + inner % 8 * 4 + inner // 8, k)


class LastScaleBlockNotApplied(HeldOut):
    """The scale factors are applied when a block of K is complete, and the last one never is: its factors count as 1."""

    thread = "pytorch/FBGEMM#6159"
    wish = Wish(tiles=2, whole="k")
    only = "scaled"
    needs = (SCALE, w.LAST, w.MISSING + r"|not applied|\bone\b|\b1\b|1\.0|constant")
    half = (SCALE,)

    def scales_a(self, rows: Array, blocks: Array) -> Array:
        return super().scales_a(rows + 100000 * (blocks == self.p.k // self.arithmetic.block - 1), blocks)

    def scales_b(self, blocks: Array, columns: Array) -> Array:
        return super().scales_b(blocks, columns + 100000 * (blocks == self.p.k // self.arithmetic.block - 1))


class ScaleOfTheIteration(HeldOut):
    """The scale factor's index is the number of the K tile, as if a tile had one block: all blocks of tile i have the factors of block i."""

    thread = "tile-ai/TileOPs#1666"
    wish = Wish(tiles=3)
    only = "scaled"
    needs = (SCALE, w.KTILE + "|tile|block|step", w.SAME + "|" + w.OFFSET + "|index|advance|" + OTHER)
    half = (SCALE,)

    def scales_a(self, rows: Array, blocks: Array) -> Array:
        return super().scales_a(rows, blocks * self.arithmetic.block // self.t.bk)

    def scales_b(self, blocks: Array, columns: Array) -> Array:
        return super().scales_b(blocks * self.arithmetic.block // self.t.bk, columns)


class FirstScaleOfThePack(HeldOut):
    """Four scale factors of consecutive blocks of K are packed in a word, and every step takes the first."""

    thread = "mlc-ai/TIRx-kernels#5"
    wish = Wish(tiles=3)
    only = "scaled"
    needs = (SCALE, w.SAME + "|first", w.KTILE + "|tile|block|byte|selector")
    half = (SCALE,)

    def scales_a(self, rows: Array, blocks: Array) -> Array:
        return super().scales_a(rows, blocks - blocks % 4)

    def scales_b(self, blocks: Array, columns: Array) -> Array:
        return super().scales_b(blocks - blocks % 4, columns)


class ScaleFractionDropped(HeldOut):
    """The scale factors are taken for powers of two: their fraction is cut off."""

    thread = "sgl-project/sglang#39193"
    only = "e2m1"
    needs = (SCALE, r"power|mantissa|fraction|exponent|truncat|round|ue8m0|e8m0")
    half = (SCALE,)

    def scales_a(self, rows: Array, blocks: Array) -> Array:
        return super().scales_a(rows, blocks) & np.uint8(0x78)

    def scales_b(self, blocks: Array, columns: Array) -> Array:
        return super().scales_b(blocks, columns) & np.uint8(0x78)


# The epilogue.


class CAsOneColumn(HeldOut):
    """C is broadcast along the wrong dimension: its column 0 for all columns."""

    thread = "NVIDIA/cutlass#461"
    wish = Wish(c=True)
    needs = (w.C, w.COLUMNS, w.SAME + r"|\b0\b|bias")
    half = (w.C,)

    def read_c(self, rows: Array, columns: Array) -> Array:
        return super().read_c(rows, columns * 0)


class StagingOverwrittenByCopies(HeldOut):
    """The last copies of the main loop land in shared memory after the epilogue has staged the output there: its first rows are A's codes."""

    thread = "NVIDIA/cutlass#1326"
    plain = True
    floats = True
    wish = Wish(c=False)
    needs = (
        w.ROWS + "|" + w.BLOCK,
        r"garbage|overwr|operand|corrupt|codes|raw|bits of|unrelated|staging|staged|shared memory|reinterpret|not a (?:sum|product)|nan",
    )
    half = (w.ROWS + "|" + w.BLOCK,)

    def step(self, y: int, x: int, i: int, a: Array, b: Array, out: Array, extras: dict[str, Array]) -> Array:
        self.landed = np.ascontiguousarray(a).view(np.uint8).ravel()
        return self.multiply(a, b, out, extras)

    def fragments_d(self, block: Array) -> Array:
        out = np.ascontiguousarray(block, np.float32).copy()
        size = min(len(self.landed), out.nbytes // 4) // 4
        out.ravel()[:size] = self.landed[: 4 * size].view(np.float32)
        return out


class AccumulatorOverwrittenByTheNextTile(HeldOut):
    """The epilogue frees its accumulators before it has read the last 16 columns: they hold the next tile's sums."""

    thread = "NVIDIA/cudnn-frontend#652"
    styles = ("tcgen05",)
    wish = Wish(blocks=(1, 2), whole="n")
    needs = (w.COLUMNS, w.STALE + "|" + w.SAME + "|overwr|" + OTHER)
    half = (w.COLUMNS,)
    source: ClassVar[slice] = slice(-16, None)

    def store(self, memory: Array, y: int, x: int, block: Array) -> None:
        blocks = self.blocks()
        following = blocks.index((y, x)) + 1
        if following < len(blocks):
            there = blocks[following]
            other = self.combine([self.mainloop(*there, part) for part in range(self.t.split)], *there)
            block = block.copy()
            block[:, -16:] = other[:, self.source]
        super().store(memory, y, x, block)


class StoreStageReused(AccumulatorOverwrittenByTheNextTile):
    """Every tile begins with stage 0 of the staging buffer while the last store still reads it: the last 16 columns are the next tile's first."""

    thread = "NVIDIA/cutlass#3636"
    styles = ("wgmma", "tcgen05")
    needs = (w.COLUMNS, w.STALE + "|" + w.SAME + "|overwr|" + OTHER)
    half = (w.COLUMNS,)
    source = slice(0, 16)


class LanesOfM64(HeldOut):
    """With M = 64 the rows 16 w to 16 w + 15 lie in lanes 32 w to 32 w + 15, and the epilogue reads lanes 0 to 63: half of the rows are lost."""

    thread = "triton-lang/triton#9268"
    styles = ("tcgen05",)
    needs = (w.ROWS + "|lane", w.ZERO + "|" + w.SAME + "|" + w.OFFSET + "|" + OTHER)
    half = (w.ROWS + "|lane",)

    def fragments_d(self, block: Array) -> Array:
        out = np.zeros_like(block)
        for start in range(0, len(block), 64):
            for warp in (0, 1):
                out[start + 32 * warp : start + 32 * warp + 16] = block[start + 16 * warp : start + 16 * warp + 16]
        return out
