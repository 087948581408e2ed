"""Mistakes that users of CUTLASS, Triton, DeepGEMM, tilelang, llama.cpp and vLLM reported, held out from every other set of kernels.

`thread` says where; the texts and kernels are our own, and a mistake is cut down to what it does to one product. The patterns were committed
before any report was seen, as were those of the other kinds; docs/reference/tables/diagnosis.md has what came of it.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from tests.evaluation.second_wrong_kernels import words as w
from tests.evaluation.second_wrong_kernels.kernel import Kernel
from tests.evaluation.second_wrong_kernels.problem import Array, Wish

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


class SharedTile(HeldOut):
    """Stream-K: two blocks share an output tile."""

    def setup(self) -> None:
        self.shared = int(self.random.integers(self.grid()[0])), int(self.random.integers(self.grid()[1]))

    def mainloop(self, y: int, x: int, part: int) -> Array:
        self.here = y, x
        return super().mainloop(y, x, part)


class FixupMissing(SharedTile):
    """Stream-K: one output tile is shared by two blocks, and the first one's part of K is overwritten, not added."""

    thread = "ggml-org/llama.cpp#13299"
    wish = Wish(blocks=(2, 2), tiles=3)
    needs = (w.KTILE, w.MISSING + "|" + w.FIRST, w.BLOCK)
    half = (w.KTILE,)

    def slice_of(self, part: int) -> list[int]:
        tiles = super().slice_of(part)
        return tiles[len(tiles) // 2 :] if self.here == self.shared else tiles


class BoundaryTwice(SharedTile):
    """Stream-K: where two blocks share an output tile, the K tile at the boundary is rounded into both: it counts twice there."""

    thread = "ggml-org/llama.cpp#8311"
    wish = Wish(blocks=(2, 2), tiles=3)
    needs = (w.KTILE, w.TWICE, w.BLOCK)
    half = (w.KTILE,)

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
