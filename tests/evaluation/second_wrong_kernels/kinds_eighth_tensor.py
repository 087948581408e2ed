"""The eighth set: mistakes in shared memory, in copies by TMA, and in the fragments and warps that read it."""

from __future__ import annotations

import numpy as np

from tests.evaluation.second_wrong_kernels.kinds_eighth import EXCHANGED, FROM, Eighth, either, everything
from tests.evaluation.second_wrong_kernels.problem import Array, Wish
from tests.evaluation.second_wrong_kernels.words import (
    COLUMNS,
    KTILE,
    OFFSET,
    PHASE,
    PITCH,
    ROWS,
    SWIZZLE,
    TRANSPOSED,
    ZERO,
    A,
    B,
    value,
)

PLACED = r"shared|smem|tile|box|stage|pitch|layout"
TWOFOLD = r"repeat|again|duplicat|same|cop(?:y|ies)|look like|reuse|instead|\bfrom\b|\bread|taken|equal|made of|are (?:those|the)"


class PadWrittenNotRead(Eighth):
    """Rows of A are written to shared memory {written} elements apart and read {pitch} apart."""

    plain = True
    needs = (A, either(PITCH, "apart|padd"), either(value("written"), value("pitch"), value("pad")))
    half = (A, either(PITCH, OFFSET, PLACED))

    def setup(self) -> None:
        pad = self.chunk * int(self.random.choice([1, 2]))
        self.facts = {"pitch": self.bk_a, "written": self.bk_a + pad, "pad": pad}

    def place_written(self, operand: str, row: Array, k: Array, pitch: int) -> Array:
        return row * (pitch + self.facts["pad"] if operand == "a" else pitch) + k


class PitchOfBTwiceTooLarge(Eighth):
    """The pitch of B in shared memory is counted in bytes: columns are read {read} elements apart, not {pitch}."""

    only = "16 bits"
    plain = True
    needs = (
        B,
        either(
            everything(either(PITCH, "apart"), either(value("read"), value("pitch"), "byte|twice|double")),
            everything(COLUMNS, r"twice|double|every (?:other|second)|2 ?\*|even"),
        ),
    )
    half = (B, either(PITCH, COLUMNS))

    def setup(self) -> None:
        self.facts = {"pitch": self.t.bk, "read": 2 * self.t.bk}

    def place_read(self, operand: str, row: Array, k: Array, pitch: int) -> Array:
        return row * (2 * pitch if operand == "b" else pitch) + k


def swizzled(row: Array, k: Array, pitch: int, chunk: int, mask: Array) -> Array:
    """Where element k of a row is when its chunks of 16 bytes are exchanged by XOR with the mask."""
    return row * pitch + ((k // chunk) ^ mask) * chunk + k % chunk


class SwizzleOfHalfTheSpan(Eighth):
    """A is written with the 128-byte swizzle and read with the 64-byte one."""

    source = "KnowingNothing/MatmulTutorial#14"
    wish = Wish(span=128)
    styles = ("wgmma", "tcgen05")
    plain = True
    needs = (A, SWIZZLE)
    half = (either(SWIZZLE, A),)

    def place_written(self, operand: str, row: Array, k: Array, pitch: int) -> Array:
        return (
            swizzled(row, k, pitch, self.chunk, row % 8)
            if operand == "a"
            else super().place_written(operand, row, k, pitch)
        )

    def place_read(self, operand: str, row: Array, k: Array, pitch: int) -> Array:
        return (
            swizzled(row, k, pitch, self.chunk, row // 2 % 4)
            if operand == "a"
            else super().place_read(operand, row, k, pitch)
        )


class SwizzleNotUndoneForB(Eighth):
    """TMA writes B with the {span}-byte swizzle; the descriptor says that there is none, and B is read without."""

    source = "triton-lang/triton#8378"
    plain = True
    wish = Wish(span=64)
    needs = (B, either(SWIZZLE, r"\bxor"))
    half = (either(SWIZZLE, B),)

    def setup(self) -> None:
        self.facts = {"span": 64}

    def place_written(self, operand: str, row: Array, k: Array, pitch: int) -> Array:
        return (
            swizzled(row, k, pitch, self.chunk, row // 2 % 4)
            if operand == "b"
            else super().place_written(operand, row, k, pitch)
        )


class PhaseOfOddStages(Eighth):
    """Stages of A lie {bytes} bytes more than a multiple of 1024 apart, so that the swizzle's phase is wrong in all stages but the first."""

    plain = True
    wish = Wish(span=128, tiles=3)
    styles = ("wgmma", "tcgen05")
    needs = (A, either(SWIZZLE, r"\bxor|chunks?"), either(PHASE, "stage", KTILE))
    half = (either(SWIZZLE, A),)

    def setup(self) -> None:
        self.facts = {"bytes": 128 * int(self.random.integers(1, 8))}
        self.stage = 0

    def tile_a(self, y: int, x: int, tile: int | None) -> Array:
        self.stage = (tile or 0) % self.t.stages
        return super().tile_a(y, x, tile)

    def place_written(self, operand: str, row: Array, k: Array, pitch: int) -> Array:
        phase = self.stage * self.facts["bytes"] // 128 if operand == "a" else 0
        return swizzled(row, k, pitch, self.chunk, (row + phase) % 8)

    def place_read(self, operand: str, row: Array, k: Array, pitch: int) -> Array:
        return swizzled(row, k, pitch, self.chunk, row % 8)


class BoxOfHalfTheColumns(Eighth):
    """The box of B has {half} of the tile's {bn} columns: the others stay zero in shared memory."""

    wish = Wish(c=False)
    needs = (either(COLUMNS, B), either(ZERO, "box"), either(value("half"), "half|box"))
    half = ("columns", ZERO)

    def setup(self) -> None:
        self.facts = {"half": self.t.bn // 2, "bn": self.t.bn}

    def fragments_b(self, tile: Array) -> Array:
        return np.where(np.arange(self.t.bn)[:, None] < self.t.bn // 2, tile, 0).astype(tile.dtype)


class BoxesOneAfterTheOther(Eighth):
    """A's K tile comes in two boxes of {half} elements, one behind the other in shared memory; it is read as rows of {bk}."""

    plain = True
    needs = (
        A,
        either(
            everything(either(PITCH, "apart"), value("half")),
            r"\bbox|two halves|\blbo\b|leading byte|\batom|permut|interleav|side by side",
            everything(ROWS, KTILE, "half|halves"),
        ),
    )
    half = (A, PLACED)

    def setup(self) -> None:
        self.facts = {"half": self.t.bk // 2, "bk": self.t.bk}

    def place_written(self, operand: str, row: Array, k: Array, pitch: int) -> Array:
        half = pitch // 2
        return (
            k // half * (self.t.bm * half) + row * half + k % half
            if operand == "a"
            else super().place_written(operand, row, k, pitch)
        )


class BoxCoordinatesCrossed(Eighth):
    """The two coordinates of the copy of A are exchanged: a tile starts at the row of its K tile, and at the k of its block of rows."""

    plain = True
    wish = Wish(blocks=(2, 1), tiles=3)
    needs = (
        A,
        either(
            r"coordinate",
            TRANSPOSED,
            everything(EXCHANGED, ROWS, KTILE),
            everything(r"starts?|origin|offset", ROWS, KTILE),
            everything(r"rows \d+-\d+", r"k \d+-\d+", FROM),
        ),
    )
    half = (A,)

    def tile_a(self, y: int, x: int, tile: int | None) -> Array:
        if tile is None:
            return super().tile_a(y, x, tile)
        rows = tile * self.t.bk + np.arange(self.t.bm)
        k = y * self.t.bm + np.arange(self.t.bk)
        return self.fragments_a(self.through_shared("a", self.global_a(rows[:, None], k[None])))


class CoordinateOfKInBytes(Eighth):
    """The k coordinate of the copy of A is in bytes: K tile i of B meets K tile 2 i of A, and zeros behind the end."""

    only = "16 bits"
    plain = True
    wish = Wish(tiles=4)
    needs = (
        A,
        either(
            everything(
                KTILE,
                r"byte|twice|double|every (?:other|second)|2 ?\*|\b2 i\b|stride|step|advance",
            ),
            everything("coordinate", "byte"),
            everything(FROM, r"k {two}\b", r"k {one}\b"),
        ),
    )
    half = (either(A, KTILE),)

    def setup(self) -> None:
        self.facts = {"one": self.t.bk, "two": 2 * self.t.bk}

    def k_of_a(self, tile: int) -> Array:
        return 2 * tile * self.t.bk + np.arange(self.t.bk)


class TileOfAReadInTheOtherOrder(Eighth):
    """A's tile lies in shared memory with M contiguous and the descriptor says K-major: it is read with the other order of elements."""

    plain = True
    needs = (A, either(TRANSPOSED, r"contiguous|other order|\bmajor"))
    half = (either(A, TRANSPOSED),)

    def place_written(self, operand: str, row: Array, k: Array, pitch: int) -> Array:
        return k * self.t.bm + row if operand == "a" else super().place_written(operand, row, k, pitch)


def eights(tile: Array) -> Array:
    """A tile as matrices of 8 by 8: (rows / 8, 8, columns / 8, 8)."""
    return tile.reshape(len(tile) // 8, 8, -1, 8)


class TransOfLdmatrixForgotten(Eighth):
    """ldmatrix of B lacks .trans: each of its 8x8 matrices is read transposed."""

    styles = ("mma",)
    only = "16 bits"
    plain = True
    needs = (B, TRANSPOSED, either(r"8 ?(?:x|by|\u00d7) ?8|ldmatrix|\.trans\b|matrices|blocks? of 8|core matri"))
    half = (B, TRANSPOSED)

    def fragments_b(self, tile: Array) -> Array:
        return eights(tile).transpose(0, 3, 2, 1).reshape(tile.shape)


class MiddleMatricesOfBExchanged(Eighth):
    """The addresses of matrices 1 and 2 of ldmatrix.x4 of B are exchanged: columns 8-15, k 0-7 of each 16x16 and columns 0-7, k 8-15."""

    styles = ("mma",)
    only = "16 bits"
    plain = True
    needs = (
        B,
        either(EXCHANGED, FROM),
        either(
            r"ldmatrix|matri|8 ?(?:x|by|\u00d7) ?8|quarter|register", everything(COLUMNS, KTILE, r"8-15|blocks? of 8")
        ),
    )
    half = (B,)

    def fragments_b(self, tile: Array) -> Array:
        return tile.reshape(len(tile) // 16, 2, 8, -1, 2, 8).transpose(0, 4, 2, 3, 1, 5).reshape(tile.shape)


class LowerRowsPinned(Eighth):
    """The row offset of ldmatrix of A is always 0: rows 8-15 of each 16 are rows 0-7 of A again."""

    source = "tracel-ai/cubek#599"
    styles = ("mma",)
    plain = True
    needs = (either(A, ROWS), r"8-15|\b8\b|\b16\b|lower half", either(TWOFOLD, "offset|pinned|always"))
    half = ("rows",)

    def fragments_a(self, tile: Array) -> Array:
        return tile.reshape(-1, 2, 8, tile.shape[1])[:, [0, 0]].reshape(tile.shape)


class TwoMatricesInsteadOfFour(Eighth):
    """ldmatrix.x2 in place of x4: a2 and a3 of A stay zero, so k {half}-{last} of every {step} is missing."""

    styles = ("mma",)
    plain = True
    needs = (
        either(A, KTILE),
        either(ZERO, "without|lost"),
        either(
            everything(
                r"{half}-{last}|{half} (?:to|and)|of (?:every|each)|upper half|second half",
                either(value("step"), value("half")),
            ),
            r"\ba2\b|\ba3\b|\.?x2\b",
        ),
    )
    half = (either(A, KTILE),)

    def setup(self) -> None:
        self.facts = {"half": self.arithmetic.k // 2, "last": self.arithmetic.k - 1, "step": self.arithmetic.k}

    def fragments_a(self, tile: Array) -> Array:
        lower = np.arange(tile.shape[1]) % self.arithmetic.k < self.arithmetic.k // 2
        return np.where(lower, tile, 0).astype(tile.dtype)


class BytesOfAReversed(Eighth):
    """The four bytes of each register of A are in reverse order: k 0, 1, 2, 3 of every four are 3, 2, 1, 0."""

    only = "8 bits"
    plain = True
    styles = ("mma",)
    needs = (
        A,
        either(
            everything("byte|register|word", "revers|order|swap|endian|permut"),
            everything(KTILE, "revers|backward|permut|order|swap|exchang", r"\bfours?\b|\b4\b|3, 2, 1, 0|\[3, 2"),
        ),
    )
    half = (either(A, KTILE),)

    def fragments_a(self, tile: Array) -> Array:
        return tile.reshape(len(tile), -1, 4)[..., ::-1].reshape(tile.shape)


class NibblesOfBExchanged(Eighth):
    """The two e2m1 values in each byte of B are exchanged: pairs along K are swapped."""

    only = "e2m1"
    needs = (
        B,
        either(
            everything(r"nibble|byte|pack|pair", "swap|exchang|revers|order|permut|high|low"),
            everything(KTILE, "swap|exchang|revers|order|permut", r"pair|neighbo|\bodd|\b2\b|even"),
        ),
    )
    half = (either(B, KTILE),)

    def fragments_b(self, tile: Array) -> Array:
        return tile.reshape(len(tile), -1, 2)[..., ::-1].reshape(tile.shape)


class KOrderOfTf32(Eighth):
    """A thread's two tf32 of A are loaded next to each other in k, as 2q and 2q+1, where the instruction has q and q+4."""

    only = "tf32"
    plain = True
    needs = (
        A,
        either(KTILE, "fragment|thread|lane|register"),
        either(EXCHANGED, r"q ?\+ ?4|2q|next to each other|adjacent|neighbo|interleav"),
    )
    half = (either(A, KTILE),)

    def fragments_a(self, tile: Array) -> Array:
        return tile.reshape(len(tile), -1, 4, 2).swapaxes(-1, -2).reshape(tile.shape)


class WarpRowFromTheColumn(Eighth):
    """The warp's row in the block is taken from its column for the loads of A: warps above the diagonal multiply other rows of A."""

    styles = ("mma",)
    wish = Wish(warps=(2, 2), whole="m")
    plain = True
    needs = (either(A, ROWS), either("warp", value("half")), either(FROM, EXCHANGED, "other rows"))
    half = (either(A, "rows", "warp"),)

    def setup(self) -> None:
        self.facts = {"half": self.t.bm // 2}

    def warp_of_a(self, i: Array, j: Array) -> Array:
        return j


class SnakeOfWarps(Eighth):
    """Warps in the lower half of a block take their columns of B from right to left: there the two halves of {bn} are exchanged."""

    styles = ("mma",)
    wish = Wish(warps=(2, 2), whole="mn")
    plain = True
    needs = (
        either(COLUMNS, B),
        either(EXCHANGED, "right to left|mirror|snake", FROM),
        either("warp", value("half"), "half|halves"),
    )
    half = (either("columns", "warp"),)

    def setup(self) -> None:
        self.facts = {"bn": self.t.bn, "half": self.t.bn // 2}

    def warp_of_b(self, i: Array, j: Array) -> Array:
        return np.where(i % 2, self.t.warps[1] - 1 - j, j)


class ConsumersAtTheSameRows(Eighth):
    """Both consumer warpgroups read A at the start of the stage: rows 64-127 of each 128 are made of A's rows 0-63."""

    source = "tile-ai/tilelang#2613"
    styles = ("wgmma",)
    plain = True
    wish = Wish(whole="m")
    needs = (either(A, ROWS), r"64-127|\b64\b|warpgroup", either(TWOFOLD, "warpgroup|offset|start"))
    half = ("rows",)

    def warp_of_a(self, i: Array, j: Array) -> Array:
        return i % 4


class WarpgroupsStoredCrosswise(Eighth):
    """The two warpgroups store each other's rows: rows 0-63 and 64-127 of each 128 of D are exchanged."""

    source = "tile-ai/tilelang#2522"
    styles = ("wgmma",)
    wish = Wish(whole="m")
    needs = (either(ROWS, "warpgroup"), r"\b64\b|64-127|warpgroups", EXCHANGED)
    half = ("rows",)

    def place_of_warps(self, i: Array, j: Array) -> tuple[Array, Array]:
        return i ^ 4 if self.t.warps[0] == 8 else i, j


class LaneQuartersExchanged(Eighth):
    """Warps 0 and 1 load each other's quarter of the lanes of Tensor Memory: rows 0-31 and 32-63 of each tile of D are exchanged."""

    styles = ("tcgen05",)
    wish = Wish(whole="m")
    needs = (either(ROWS, "lane|warp"), r"\b32\b|32-63|quarter|lanes", EXCHANGED)
    half = (either("rows", "lane"),)

    def place_of_warps(self, i: Array, j: Array) -> tuple[Array, Array]:
        return np.where(i < 4, i ^ 2, i), j


class ColumnOfTensorMemoryStays(Eighth):
    """The epilogue loads the first {half} columns of the accumulator twice: the right half of each {bn} columns of D repeats the left."""

    source = "NVIDIA/cutlass#3090"
    styles = ("tcgen05",)
    wish = Wish(whole="n", c=False)
    needs = (COLUMNS, either(TWOFOLD, "twice"), either(value("half"), "half|halves"))
    half = ("columns",)

    def setup(self) -> None:
        self.facts = {"half": self.t.bn // 2, "bn": self.t.bn}

    def fragments_d(self, block: Array) -> Array:
        return block[:, np.arange(self.t.bn) % (self.t.bn // 2)]


class SecondTileOfAReused(Eighth):
    """The fragment of A is loaded once for two instructions along M: rows 16-31 of every 32 are made of A's rows 0-15."""

    styles = ("mma",)
    plain = True
    wish = Wish(whole="m")
    needs = (either(A, ROWS), r"16-31|\b16\b|\b32\b", TWOFOLD)
    half = ("rows",)

    def fragments_a(self, tile: Array) -> Array:
        return tile.reshape(-1, 2, 16, tile.shape[1])[:, [0, 0]].reshape(tile.shape)


class NeighbouringFragmentsOfB(Eighth):
    """Fragments of B are stored in the wrong register: instructions along N use each other's, and columns 0-7 and 8-15 of each 16 are exchanged."""

    styles = ("mma",)
    plain = True
    wish = Wish(whole="n", c=True)
    needs = (either(B, COLUMNS), EXCHANGED, r"\b8\b|8-15|\b16\b|fragment")
    half = ("columns",)

    def fragments_b(self, tile: Array) -> Array:
        return tile.reshape(-1, 2, 8, tile.shape[1])[:, ::-1].reshape(tile.shape)
