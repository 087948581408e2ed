"""The seventh set: shared memory, ldmatrix, descriptors, Tensor Memory, metadata, scale factors, formats of operands."""

from __future__ import annotations

import numpy as np

import tcsim
from tests.evaluation.second_wrong_kernels import kinds_sixth as s
from tests.evaluation.second_wrong_kernels import words as w
from tests.evaluation.second_wrong_kernels.kinds_seventh import AGAIN, ELSEWHERE, HOLE, PAIRS, A, Seventh, matrices
from tests.evaluation.second_wrong_kernels.problem import Array, Wish

_BOTH = r"\brows?\b|columns?"
_CORE = r"\bsbo\b|\blbo\b|stride (?:byte )?offset|leading (?:byte )?(?:dimension )?offset|core matri|descriptor"
_ORDER = "(?:swap|exchang|permut|moved|order|hold)"
_CHUNK = rf"swizzl|chunk|16 bytes|\bk\b[^\n]*{_ORDER}|{_ORDER}[^\n]*\bk\b"


class MatricesTransposed(Seventh):
    """Each 8 x 8 matrix of {operand} is transposed: ldmatrix has .trans where it should not, or lacks it."""

    plain = True
    only = "16 bits"
    styles = ("mma",)
    needs = ("{pattern}", w.TRANSPOSED + r"|\.trans")
    half = (r"8 ?x ?8|matrix|matrices",)

    def setup(self) -> None:
        self.operands("a", "b", "ab")

    def seen(self, tile: Array) -> Array:
        return matrices(tile).swapaxes(2, 5).reshape(tile.shape)


class SecondMatricesAreTheFirst(Seventh):
    """Elements 8-15 of each 16 along K of {operand} are elements 0-7 again: an ldmatrix.x2 where an .x4 is needed."""

    plain = True
    only = "16 bits"
    styles = ("mma",)
    needs = ("{pattern}", r"\bk\b", AGAIN)
    half = (r"\bk\b",)

    def setup(self) -> None:
        self.operands("a", "b")

    def seen(self, tile: Array) -> Array:
        return np.repeat(matrices(tile)[..., :1, :], 2, axis=4).reshape(tile.shape)


class RowsOfLanesModuloEight(Seventh):
    """Rows 8-15 of each 16 rows of {operand} are rows 0-7 again: the lanes' addresses for ldmatrix go modulo 8."""

    plain = True
    styles = ("mma",)
    wish = Wish(c=False)
    needs = (r"{pattern}|output|\bd\b", _BOTH, AGAIN)
    half = (_BOTH,)

    def setup(self) -> None:
        self.operands("a", "b")

    def seen(self, tile: Array) -> Array:
        return np.tile(tile.reshape(-1, 2, 8, tile.shape[1])[:, :1], (1, 2, 1, 1)).reshape(tile.shape)


class MiddleMatricesExchanged(Seventh):
    """In each 16 x 16 of {operand} the 8 x 8 matrices of rows 8-15 at k 0-7 and of rows 0-7 at k 8-15 are exchanged: ldmatrix.x4 gives them in the other order."""

    plain = True
    only = "16 bits"
    styles = ("mma",)
    needs = ("{pattern}", s.MOVED + r"|matri|a1|a2", r"\b8\b|8x8|8-15|matri|quarter|a1|a2")
    half = (_BOTH + r"|\bk\b",)

    def setup(self) -> None:
        self.operands("a", "b", "ab")

    def seen(self, tile: Array) -> Array:
        return matrices(tile).swapaxes(1, 4).reshape(tile.shape)


class SwizzleOfFourRows(Seventh):
    """The chunks of 16 bytes of {operand} are written with a swizzle by row mod 8 and read with one by row mod 4."""

    plain = True
    wish = Wish(span=128)
    needs = ("{pattern}", _CHUNK)
    half = (_CHUNK,)

    def setup(self) -> None:
        self.operands("a", "b")

    def phase(self, row: Array) -> Array:
        return row % 4

    def chunks(self, row: Array, k: Array, pitch: int, phase: Array) -> Array:
        return row * pitch + ((k // self.chunk) ^ phase) * self.chunk + k % self.chunk

    def place_written(self, operand: str, row: Array, k: Array, pitch: int) -> Array:
        return self.chunks(row, k, pitch, row % 8 if operand in self.hit else row * 0)

    def place_read(self, operand: str, row: Array, k: Array, pitch: int) -> Array:
        return self.chunks(row, k, pitch, self.phase(row) if operand in self.hit else row * 0)


class PhaseOfTheTilesFirstRow(SwizzleOfFourRows):
    """{operand} is written with the swizzle of 128 bytes by the row in the tile, and read by the row one further on: the swizzle's phase is off by one row."""

    wish = Wish(span=128)
    needs = ("{pattern}", _CHUNK + "|phase")

    def phase(self, row: Array) -> Array:
        return (row + 1) % 8


class OddStagesMisaligned(Seventh):
    """In odd K tiles the swizzle of {operand} has another phase: every second stage begins at 512 bytes, not at 1024."""

    plain = True
    wish = Wish(span=128)
    needs = ("{pattern}", _CHUNK + "|phase|align|512", r"\bodd\b|every (?:other|second)|stage|k \d+-\d+")
    half = (_CHUNK + r"|\bk\b",)

    def setup(self) -> None:
        self.operands("a", "b")

    def seen(self, tile: Array) -> Array:
        row, k = np.arange(len(tile))[:, None], np.arange(tile.shape[1])[None]
        return tile[row, ((k // self.chunk) ^ 4) * self.chunk + k % self.chunk] if self.tile % 2 else tile

    def tile_a(self, y: int, x: int, tile: int | None) -> Array:
        self.tile = tile or 0
        return super().tile_a(y, x, tile)

    def tile_b(self, y: int, x: int, tile: int | None) -> Array:
        self.tile = tile or 0
        return super().tile_b(y, x, tile)


class OffsetsOfTheDescriptorExchanged(Seventh):
    """The descriptor of {operand} has the leading byte offset (LBO) and the stride byte offset (SBO) of its core matrices exchanged."""

    plain = True
    styles = ("wgmma", "tcgen05")
    needs = ("{pattern}", _CORE)
    half = (r"8|" + s.MOVED,)

    def setup(self) -> None:
        self.operands("a", "b")

    def place(self, row: Array, k: Array, by_rows: int, by_k: int) -> Array:
        return row // 8 * by_rows + k // self.chunk * by_k + row % 8 * self.chunk + k % self.chunk

    def offsets(self, pitch: int) -> tuple[int, int]:
        """Elements from a core matrix to the next along the rows, and along K, as the tile is written."""
        return 8 * pitch, 8 * self.chunk

    def read_offsets(self, pitch: int) -> tuple[int, int]:
        by_rows, by_k = self.offsets(pitch)
        return by_k, by_rows

    def place_written(self, operand: str, row: Array, k: Array, pitch: int) -> Array:
        return self.place(row, k, *self.offsets(pitch))

    def place_read(self, operand: str, row: Array, k: Array, pitch: int) -> Array:
        return self.place(row, k, *(self.read_offsets(pitch) if operand in self.hit else self.offsets(pitch)))


class LeadingOffsetZero(OffsetsOfTheDescriptorExchanged):
    """All chunks of 16 bytes along K of each tile of {operand} are the first: the descriptor's leading byte offset (LBO) is 0."""

    needs = ("{pattern}", r"\bk\b|\blbo\b|leading", AGAIN + r"|\b0\b")

    def read_offsets(self, pitch: int) -> tuple[int, int]:
        return self.offsets(pitch)[0], 0


class StrideOffsetOfTwoGroups(OffsetsOfTheDescriptorExchanged):
    """The stride byte offset (SBO) of {operand} is twice as large: each group of 8 rows is the group at twice its place."""

    needs = ("{pattern}", _CORE + "|" + _BOTH, ELSEWHERE + r"|twice|double|\bsbo\b|stride|2 x|stretch")
    half = (_BOTH + "|" + _CORE,)

    def read_offsets(self, pitch: int) -> tuple[int, int]:
        by_rows, by_k = self.offsets(pitch)
        return 2 * by_rows, by_k


class HalvesOfBExchanged(Seventh):
    """The halves of each tile's columns of B are exchanged: the two blocks of a pair put theirs in each other's half."""

    wish = Wish(c=False)
    needs = (w.COLUMNS + "|" + w.B, s.MOVED, r"half|halves|\d+-\d+")
    half = (w.COLUMNS,)

    def columns_of_b(self, y: int, x: int) -> Array:
        return np.roll(super().columns_of_b(y, x), self.t.bn // 2)


class TensorMemoryStagesOverlap(Seventh):
    """The right half of each block's columns is the left half of the next block: its accumulator begins too early in Tensor Memory."""

    styles = ("tcgen05",)
    wish = Wish(blocks=(2, 2), whole="mn")
    needs = (w.COLUMNS + r"|half|right", r"next|other block|neighbour|overwr|overlap|" + ELSEWHERE)
    half = (w.COLUMNS + "|half",)

    def combine(self, partials: list[Array], y: int, x: int) -> Array:
        own, half = super().combine(partials, y, x), self.t.bn // 2
        if self.number(y, x) == len(self.blocks()) - 1:
            return own
        after = self.neighbour(y, x, 1)
        return np.concatenate([own[:, :half], super().combine([self.mainloop(*after, 0)], *after)[:, :half]], axis=1)


class LanesOfTheFirstWarps(Seventh):
    """The lower half of each block is its upper half again: warps 2 and 3 of the epilogue read the lanes of warps 0 and 1."""

    styles = ("tcgen05",)
    wish = Wish(c=True)
    needs = (r"\brows?\b|half|lane|quarter|warp", AGAIN, r"half|halves|\d+-\d+|lane|quarter")
    half = (r"\brows?\b",)

    def fragments_d(self, block: Array) -> Array:
        return np.tile(block[: len(block) // 2], (2, 1))


class SixteenLanesTwice(Seventh):
    """Rows 16-31 of each 32 rows are rows 0-15 again: a load of 16 lanes is stored for 32."""

    styles = ("tcgen05",)
    needs = (r"\brows?\b|lane", AGAIN + "|" + s.MOVED, r"\b16\b|lanes")
    half = (r"\brows?\b",)

    def fragments_d(self, block: Array) -> Array:
        return np.tile(block.reshape(-1, 2, 16, block.shape[1])[:, :1], (1, 2, 1, 1)).reshape(block.shape)


class ColumnChunksAllTheFirst(Seventh):
    """All {width} columns of each {width} of a block are those of its first {width}: the loop of the epilogue does not move on in Tensor Memory."""

    styles = ("tcgen05",)
    needs = (w.COLUMNS, AGAIN, r"{width.pattern}|first")
    half = (w.COLUMNS,)

    def setup(self) -> None:
        self.choose("width", 8, 16)

    def fragments_d(self, block: Array) -> Array:
        width = int(self.facts["width"])
        return np.tile(block[:, :width], (1, block.shape[1] // width))


class LanesOfSixtyFourRows(Seventh):
    """Of each 64 rows, rows 0-15 and 32-47 hold rows 0-31, the others zeros: 64 rows lie in other lanes of Tensor Memory than the epilogue reads."""

    styles = ("tcgen05",)
    needs = (r"\brows?\b|lane", HOLE + "|" + s.MOVED, r"\b16\b|lanes")
    half = (r"\brows?\b",)

    def fragments_d(self, block: Array) -> Array:
        quarters = block.reshape(-1, 4, 16, block.shape[1])
        nothing = np.zeros_like(quarters[:, 0])
        return np.stack([quarters[:, 0], nothing, quarters[:, 1], nothing], axis=1).reshape(block.shape)


class MetadataEightRowsApart(Seventh):
    """The metadata of rows r and r + 8 are exchanged."""

    only = "sparse"
    needs = (s.METADATA, r"\b8\b|\brows?\b|" + s.MOVED)
    half = (A,)

    def positions(self, rows: Array, k: Array) -> Array:
        return super().positions(rows ^ 8, k)


class MetadataNeverMoves(Seventh):
    """Every K tile has the metadata of the first."""

    only = "sparse"
    wish = Wish(tiles=3)
    needs = (s.METADATA, r"first|\bk\b|" + AGAIN)
    half = (s.METADATA + "|" + A,)

    def positions(self, rows: Array, k: Array) -> Array:
        return super().positions(rows, k % self.bk_a)


class MetadataNibblesExchanged(Seventh):
    """The metadata of neighbouring groups of four along K are exchanged."""

    only = "sparse"
    needs = (s.METADATA, s.MOVED + r"|neighbour|\bk\b|next|nibble")
    half = (s.METADATA + "|" + A,)

    def positions(self, rows: Array, k: Array) -> Array:
        return super().positions(rows, k ^ 2)


class CompressedAdvancesTooFar(Seventh):
    """The compressed A advances by a whole K tile per K tile, not by half of one."""

    only = "sparse"
    needs = (A, r"\bk\b|advanc|compress", s.STEP + "|" + ELSEWHERE + "|twice|half|advance|compress")
    half = (A,)

    def k_loaded(self, operand: str, tile: int, width: int) -> Array:
        return super().k_loaded(operand, tile, width) + (tile * width if operand == "a" else 0)


class ScaleOfTheNextBlock(Seventh):
    """The scale factors of {operand} are those of the next block along K."""

    only = "scaled"
    needs = (s.SCALE, "{pattern}", r"next|late|ahead|one block|" + ELSEWHERE)
    half = (s.SCALE,)

    def setup(self) -> None:
        self.operands("a", "b", "ab")

    def scales_a(self, rows: Array, blocks: Array) -> Array:
        return super().scales_a(rows, blocks + ("a" in self.hit))

    def scales_b(self, blocks: Array, columns: Array) -> Array:
        return super().scales_b(blocks + ("b" in self.hit), columns)


class ScaleAtomIgnored(Seventh):
    """The scale factors of A's rows are permuted in each tile: they are stored row by row, not as the instruction's atom has them."""

    only = "scaled"
    needs = (s.SCALE, s.MOVED + "|layout|atom|interleav", A + r"|\brows?\b")
    half = (s.SCALE,)

    def scales_a(self, rows: Array, blocks: Array) -> Array:
        first, row = rows // self.t.bm * self.t.bm, rows % self.t.bm
        return super().scales_a(first + row % 8 * (self.t.bm // 8) + row // 8, blocks)


class ScalesOfBForA(Seventh):
    """A's row i has the scale factors of B's column i: one pointer is passed for both."""

    only = "scaled"
    needs = (s.SCALE, A, w.B)
    half = (s.SCALE,)

    def scales_a(self, rows: Array, blocks: Array) -> Array:
        return super().scales_b(blocks, rows % self.p.n)


class ScaleOfTwoBlocks(Seventh):
    """Two blocks along K of {operand} share a scale factor, that of the first."""

    only = "scaled"
    needs = (s.SCALE, "{pattern}", AGAIN + "|share|every|two|first|twice")
    half = (s.SCALE,)

    def setup(self) -> None:
        self.operands("a", "b", "ab")

    def scales_a(self, rows: Array, blocks: Array) -> Array:
        return super().scales_a(rows, blocks // 2 * 2 if "a" in self.hit else blocks)

    def scales_b(self, blocks: Array, columns: Array) -> Array:
        return super().scales_b(blocks // 2 * 2 if "b" in self.hit else blocks, columns)


class ScaleOfTheFirstRow(Seventh):
    """All rows of a tile of A have the scale factors of its first row."""

    only = "scaled"
    needs = (s.SCALE, A + r"|\brows?\b", AGAIN)
    half = (s.SCALE,)

    def scales_a(self, rows: Array, blocks: Array) -> Array:
        return super().scales_a(rows // self.t.bm * self.t.bm, blocks)


class ExponentOfTheScaleOff(Seventh):
    """The product is {factor} times too large: the exponents of the scale factors of {operand} are one too large."""

    only = "scaled"
    needs = (r"(?<![\d.]){factor}(?!\.?\d)|exponent", r"factor|scal|alpha|twice|exponent|too large")
    half = (s.FACTOR,)

    def setup(self) -> None:
        self.operands("a", "b", "ab")
        self.facts["factor"] = 2 ** len(self.hit)
        self.one = 1 if self.arithmetic.scale == "ue8m0" else 8

    def scales_a(self, rows: Array, blocks: Array) -> Array:
        return super().scales_a(rows, blocks) + np.uint8(self.one * ("a" in self.hit))

    def scales_b(self, blocks: Array, columns: Array) -> Array:
        return super().scales_b(blocks, columns) + np.uint8(self.one * ("b" in self.hit))


class NibblesOfOneExchanged(Seventh):
    """The two elements of each byte of {operand} are exchanged: the high nibble is taken for the first."""

    only = "e2m1"
    needs = (r"{pattern}|operand", PAIRS, s.MOVED + "|nibble")
    half = (PAIRS,)

    def setup(self) -> None:
        self.operands("a", "b")

    def seen(self, tile: Array) -> Array:
        return tile.reshape(len(tile), -1, 2)[..., ::-1].reshape(tile.shape)


class OtherEightBits(Seventh):
    """{operand} is read as {other} instead of {format}."""

    plain = True
    floats = True
    only = "8 bits"
    styles = ("mma", "wgmma")
    needs = ("{pattern}", "{other}", s.FORMAT)
    half = ("e4m3|e5m2",)

    def setup(self) -> None:
        self.operands("a", "b")
        own = self.arithmetic.a if self.hit == "a" else self.arithmetic.b
        self.facts |= {"format": own, "other": {"e4m3": "e5m2", "e5m2": "e4m3"}[own]}

    def instruction(self) -> str:
        formats = [self.arithmetic.a, self.arithmetic.b]
        right = ".".join(formats)
        formats["ab".index(self.hit)] = self.facts["other"]
        return super().instruction().replace(right, ".".join(formats))


class UnsignedBytes(Seventh):
    """{operand} is read as u8 instead of s8."""

    only = "s8"
    needs = ("{pattern}", r"u8|unsigned|\+ ?256|sign")
    half = (s.FORMAT,)

    def setup(self) -> None:
        self.operands("a", "b", "ab")

    def instruction(self) -> str:
        return super().instruction().replace("s8.s8", ".".join("u8" if x in self.hit else "s8" for x in "ab"))


class ZeroPointForgotten(Seventh):
    """A constant is added to all elements of A: its zero point of {zero} is not subtracted, so each column of D has {zero} times the sum of B's column too much."""

    only = "s8"
    needs = (r"zero.?point|sums? of (?:the )?(?:b\b|columns?)|column sums?|constant|added to (?:each|every|all)",)
    half = (r"column|added",)

    def setup(self) -> None:
        self.choose("zero", 8, 16, 64)

    def epilogue(self, total: Array, rows: Array, columns: Array) -> Array:
        sums = tcsim.decode(self.p.b, "s8").astype(np.int64).sum(axis=0)
        return total + (self.facts["zero"] * sums[np.minimum(columns, self.p.n - 1)]).astype(np.int32)


class BothAsTheOtherHalf(Seventh):
    """Both operands are read as {other} instead of {format}."""

    plain = True
    only = "16 bits"
    styles = ("mma", "wgmma")
    needs = ("{other}", s.FORMAT)
    half = (s.FORMAT,)

    def setup(self) -> None:
        self.facts |= {"format": self.arithmetic.a, "other": {"f16": "bf16", "bf16": "f16"}[self.arithmetic.a]}

    def instruction(self) -> str:
        right, wrong = self.facts["format"], self.facts["other"]
        return super().instruction().replace(f".{right}.{right}", f".{wrong}.{wrong}")
