"""Mistakes that users of CUTLASS, Triton, DeepGEMM, tilelang, llama.cpp and vLLM reported, held out from every other set of kernels.

`thread` says where; the texts and kernels are our own, and a mistake is cut down to what it does to one product. The patterns were committed
before any report was seen, as were those of the other kinds; docs/diagnosis-held-out.md has what came of it.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from tests.second_wrong_kernels import words as w
from tests.second_wrong_kernels.kernel import Kernel
from tests.second_wrong_kernels.kinds_formats import METADATA, SCALE
from tests.second_wrong_kernels.problem import Array, Wish

OTHER = r"instead of|taken from|wrong|another|other|neighbou?r|next|previous"


class HeldOut(Kernel):
    """A mistake from an issue tracker."""

    thread: ClassVar[str] = ""  # owner/repository#number


# The grid and the store.


class ColumnsBeyondTheWarps(HeldOut):
    """A tile's columns are shared out among 3 warps and rounded down to 8: the last columns of each tile are never written."""

    thread = "tile-ai/tilelang#2537"
    needs = (w.COLUMNS, w.ZERO)
    half = (w.COLUMNS + "|" + w.D,)

    def inside_d(self, rows: Array, columns: Array) -> Array:
        return super().inside_d(rows, columns) & (columns % self.t.bn < 3 * (self.t.bn // 3 // 8 * 8))


class BandOfTilesDropped(HeldOut):
    """A persistent kernel divides the number of tiles along N by its group of 2 and drops the remainder: a band of tiles is never computed."""

    thread = "tile-ai/tilelang#2433"
    wish = Wish(blocks=(2, 3))
    needs = (w.ZERO, w.COLUMNS + "|" + w.BLOCK)
    half = (w.D,)

    def blocks(self) -> list[tuple[int, int]]:
        return [(y, x) for y, x in super().blocks() if x < self.grid()[1] // 2 * 2]


class OrderOfTheBlog(HeldOut):
    """Blocks are renumbered as (y / 2, 2 x + y % 2) with the grid of the plain order: tiles of the lower rows are computed by nobody."""

    thread = "triton-lang/triton#3245"
    wish = Wish(blocks=(2, 2))
    needs = (w.ZERO, w.BLOCK + "|" + w.ROWS)
    half = (w.D + "|" + w.ROWS,)

    def blocks(self) -> list[tuple[int, int]]:
        return [(y // 2, 2 * x + y % 2) for y, x in super().blocks()]


class ColumnsSpillIntoTheNextRow(HeldOut):
    """The mask of the store forgets the columns: those of the last tile beyond N go into the beginning of the next row."""

    thread = "ggml-org/llama.cpp#8100"
    wish = Wish(blocks=(1, 2), ragged="n", c=False)
    needs = (w.COLUMNS, w.ZERO + r"|overwr|spill|wrap|mask|next row", w.FIRST + r"|columns \d+-\d+|\d|next row")
    half = (w.COLUMNS + "|" + w.D,)

    def inside_d(self, rows: Array, columns: Array) -> Array:
        return rows < self.p.m


class UpperTriangleMasked(HeldOut):
    """The epilogue has the causal mask of attention, with its diagonal in the wrong corner: what is right of it is {fill}."""

    thread = "flashinfer-ai/flashinfer#348"
    floats = True
    wish = Wish(blocks=(1, 2))
    needs = (r"triang|diagonal|causal|mask|upper|above",)
    half = (w.ZERO + r"|inf",)

    def setup(self) -> None:
        self.facts["fill"] = float(self.random.choice([0.0, -np.inf]))

    def epilogue(self, total: Array, rows: Array, columns: Array) -> Array:
        return np.where(columns > rows, np.float32(self.facts["fill"]), total)


# Operands in global memory.


class BFromTheBufferOfA(HeldOut):
    """B's pointers are made from A's base (`b_ptrs = a_ptr + ...`)."""

    thread = "triton-lang/triton#1647"
    plain = True
    only = "same types"
    needs = (w.A, w.B, w.SAME + r"|buffer|memory|pointer|" + OTHER)
    half = (w.B,)

    def read(self, operand: str, address: Array, mask: Array) -> Array:
        return super().read("a", address, mask)


class OffsetIn16Bits(HeldOut):
    """The byte offset of an element of A is kept in 16 bits: beyond 65536 bytes it begins again at the front."""

    thread = "ml-explore/mlx#3609"
    wish = Wish(blocks=(2, 1), tiles=5)
    plain = True
    needs = (
        w.A,
        r"wrap|overflow|65536|32768|16384|2\*\*|2\^|modulo|bits? of the (?:address|offset)|" + w.OFFSET + "|" + w.SAME,
    )
    half = (w.A,)

    def read(self, operand: str, address: Array, mask: Array) -> Array:
        return super().read(operand, address % (65536 * 8 // self.bits) if operand == "a" else address, mask)


class RowsNotDividedByTopK(HeldOut):
    """A's row is the row divided by top_k = 2, as in a gather of tokens where there is none: each row of A serves two rows of the output."""

    thread = "MetaX-MACA/vLLM-metax#208"
    plain = True
    needs = (w.A, w.ROWS, w.SAME + r"|twice|half|divid|/ ?2|" + OTHER)
    half = (w.A,)

    def rows_of_a(self, y: int, x: int) -> Array:
        return super().rows_of_a(y, x) // 2


class HalvesOfDifferentTiles(HeldOut):
    """The two CTAs of a pair have different tiles along N: the right half of each tile of B is that of the neighbouring tile."""

    thread = "facebookexperimental/triton#1071"
    wish = Wish(blocks=(1, 2), whole="n")
    styles = ("tcgen05", "wgmma")
    plain = True
    needs = (w.B + "|" + w.COLUMNS, r"half|halves|" + w.COLUMNS, w.SWAPPED + "|" + w.SAME + "|" + OTHER)
    half = (w.B + "|" + w.COLUMNS,)

    def columns_of_b(self, y: int, x: int) -> Array:
        inner = np.arange(self.t.bn)
        peer = x ^ 1 if x ^ 1 < self.grid()[1] else x
        return np.where(inner < self.t.bn // 2, x, peer) * self.t.bn + inner


class MulticastAcrossTheEdge(HeldOut):
    """Clusters are pairs of consecutive blocks, and a row of tiles is odd: half of the blocks receive the leader's tile of B, not their own."""

    thread = "deepseek-ai/DeepGEMM#415"
    wish = Wish(blocks=(2, 2))
    styles = ("wgmma", "tcgen05")
    plain = True
    needs = (w.B, w.BLOCK, w.SAME + "|" + OTHER)
    half = (w.B,)

    def columns_of_b(self, y: int, x: int) -> Array:
        along_n = self.grid()[1]
        leader = (y * along_n + x) // 2 * 2 % along_n
        return leader * self.t.bn + np.arange(self.t.bn)


# The loop along K, stages, split-K and stream-K.


class TailOfTheTileDropped(HeldOut):
    """BK / K of the instruction is rounded down: the last k step of every tile is not multiplied."""

    thread = "tile-ai/tilelang#2324"
    plain = True
    needs = (w.KTILE, w.MISSING, r"each|every|tile|step|k \d+-\d+|last|of \d+")
    half = (w.KTILE,)

    def fragments_a(self, tile: Array) -> Array:
        out = tile.copy()
        out[:, -self.arithmetic.k :] = 0
        return out


class LastStepNotAwaited(HeldOut):
    """The accumulators are read before the last wgmma has ended: the last k step of the product is missing."""

    thread = "triton-lang/triton#8964"
    styles = ("wgmma", "tcgen05")
    plain = True
    wish = Wish(whole="k")
    needs = (w.KTILE, w.MISSING, w.LAST)
    half = (w.KTILE,)

    def step(self, y: int, x: int, i: int, a: Array, b: Array, out: Array, extras: dict[str, Array]) -> Array:
        if i == self.k_tiles() - 1:
            a = a.copy()
            a[:, -self.arithmetic.k :] = 0
        return self.multiply(a, b, out, extras)


class HalfOfTheCopyLanded(HeldOut):
    """The wait stands before the commit: the second half of each tile of B along K is still what the stage held before."""

    thread = "facebookexperimental/triton#2058"
    wish = Wish(tiles=4, stages=(2,))
    plain = True
    needs = (w.B, w.STALE, w.STAGE + "|" + w.KTILE)
    half = (w.KTILE + "|" + w.B,)

    def tile_b(self, y: int, x: int, tile: int | None) -> Array:
        own = super().tile_b(y, x, tile)
        before = super().tile_b(y, x, None if tile is None or tile < self.t.stages else tile - self.t.stages)
        middle = self.t.bk // 2
        return np.concatenate([own[:middle], before[middle:]])


class ZeroedTooLate(HeldOut):
    """The first slice of split-K clears the output inside the kernel: in some tiles it comes after the others' sums, and these are lost."""

    thread = "vllm-project/vllm#30719"
    wish = Wish(blocks=(2, 2), tiles=4, split=(2, 3))
    needs = (w.KTILE + "|" + w.SPLIT, w.MISSING, w.BLOCK)
    half = (w.KTILE,)

    def combine(self, partials: list[Array], y: int, x: int) -> Array:
        return super().combine(partials[:1] if (y + x) % 2 else partials, y, x)


class FixupMissing(HeldOut):
    """Stream-K: one output tile is shared by two blocks, and the first one's part of K is overwritten, not added."""

    thread = "ggml-org/llama.cpp#13299"
    wish = Wish(blocks=(2, 2), tiles=3)
    needs = (w.KTILE, w.MISSING + "|" + w.FIRST, w.BLOCK)
    half = (w.KTILE,)

    def setup(self) -> None:
        self.shared = int(self.random.integers(self.grid()[0])), int(self.random.integers(self.grid()[1]))

    def mainloop(self, y: int, x: int, part: int) -> Array:
        self.here = y, x
        return super().mainloop(y, x, part)

    def slice_of(self, part: int) -> list[int]:
        tiles = super().slice_of(part)
        return tiles[len(tiles) // 2 :] if self.here == self.shared else tiles


class BoundaryTwice(HeldOut):
    """Stream-K: where two blocks share an output tile, the K tile at the boundary is rounded into both: it counts twice there."""

    thread = "ggml-org/llama.cpp#8311"
    wish = Wish(blocks=(2, 2), tiles=3)
    needs = (w.KTILE, w.TWICE, w.BLOCK)
    half = (w.KTILE,)

    def setup(self) -> None:
        self.shared = int(self.random.integers(self.grid()[0])), int(self.random.integers(self.grid()[1]))

    def mainloop(self, y: int, x: int, part: int) -> Array:
        self.here = y, x
        return super().mainloop(y, x, part)

    def slice_of(self, part: int) -> list[int]:
        tiles = super().slice_of(part)
        middle = len(tiles) // 2
        return [*tiles[: middle + 1], *tiles[middle:]] if self.here == self.shared else tiles


class FixupIntoTheNeighbour(HeldOut):
    """Stream-K: the second part of K is added to the columns of another tile: each tile has its own first part and its neighbour's second."""

    thread = "ggml-org/llama.cpp#17089"
    wish = Wish(blocks=(1, 2), tiles=4, split=(2,), whole="n")
    plain = True
    needs = (w.KTILE + "|" + w.SPLIT, w.BLOCK, w.SWAPPED + "|" + w.SAME + "|" + w.OFFSET + "|" + OTHER)
    half = (w.KTILE + "|" + w.BLOCK,)

    def combine(self, partials: list[Array], y: int, x: int) -> Array:
        return super().combine([partials[0], self.mainloop(y, (x + 1) % self.grid()[1], 1)], y, x)


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
