"""The sixth set: shared memory, ldmatrix, descriptors and TMA."""

from __future__ import annotations

import numpy as np

from tests.evaluation.second_wrong_kernels import words as w
from tests.evaluation.second_wrong_kernels.kinds_sixth import FIXED, LEFT_OUT, MOVED, STEP, Sixth
from tests.evaluation.second_wrong_kernels.problem import Array, Wish

DESCRIPTORS = ("wgmma", "tcgen05")
MATRICES = w.QUARTER + r"|\b8\b|16.bytes?|rows? \d+-\d+|k \d+-\d+"

# Shared memory.


class PitchOfAnotherTile(Sixth):
    """Rows of {operand} lie {right} elements apart in shared memory and are read {pitch} apart."""

    needs = ("{pattern}", w.PITCH + "|padd|apart", "{pitch.pattern}|padd|{more.pattern}")
    half = ("{pattern}", w.PITCH + "|padd")

    def setup(self) -> None:
        self.operands()
        more = int(self.choose("more", self.chunk, 2 * self.chunk))
        self.facts["right"] = self.t.bk
        self.more = self.choose("pitch", self.t.bk + more) - self.t.bk

    def place_read(self, operand: str, row: Array, k: Array, pitch: int) -> Array:
        return row * (pitch + (int(self.more) if operand in self.hit else 0)) + k


class Swizzles(Sixth):
    """A kernel that swizzles 16-byte chunks of the rows of its tiles."""

    def xored(self, row: Array, k: Array, pitch: int, span: int = 0, phase: int = 0) -> Array:
        """The place of an element in rows of `pitch`, with the hardware's swizzle of span / 8 chunks (0: of a whole row)."""
        chunks = pitch // self.chunk
        wide = span // 16 if span else max(1, min(8, chunks))
        line = (row + phase) * chunks // 8  # rows of 128 bytes: the address bits that the swizzle takes
        return row * pitch + ((k // self.chunk) ^ (line % wide)) * self.chunk + k % self.chunk


class SwizzledByOneSide(Swizzles):
    """{operand} is swizzled by the {side} of shared memory alone."""

    needs = ("{pattern}", w.SWIZZLE + "|xor")
    half = (w.SWIZZLE + "|xor|chunk",)

    def setup(self) -> None:
        self.operands()
        self.side = self.facts["side"] = str(self.random.choice(["writer", "reader"]))

    def place_written(self, operand: str, row: Array, k: Array, pitch: int) -> Array:
        here = operand in self.hit and self.side == "writer"
        return self.xored(row, k, pitch) if here else super().place_written(operand, row, k, pitch)

    def place_read(self, operand: str, row: Array, k: Array, pitch: int) -> Array:
        here = operand in self.hit and self.side == "reader"
        return self.xored(row, k, pitch) if here else super().place_read(operand, row, k, pitch)


class SwizzleModesDiffer(Swizzles):
    """The tensor map swizzles {operand} by {written} bytes, the descriptor says {read}."""

    source = "tile-ai/tilelang#224"
    wish = Wish(span=128)
    styles = DESCRIPTORS
    needs = ("{pattern}", w.SWIZZLE, "{written.pattern}|{read.pattern}|mode|differ|other|instead")
    half = (w.SWIZZLE,)

    def setup(self) -> None:
        self.operands()
        written = self.choose("written", 32, 64, 128)
        self.choose("read", *({32, 64, 128} - {written}))

    def place_written(self, operand: str, row: Array, k: Array, pitch: int) -> Array:
        return self.xored(row, k, pitch, int(self.facts["written"] if operand in self.hit else 128))

    def place_read(self, operand: str, row: Array, k: Array, pitch: int) -> Array:
        return self.xored(row, k, pitch, int(self.facts["read"] if operand in self.hit else 128))


class TileNotAligned(Swizzles):
    """{operand}'s tile begins {phase} rows of 128 bytes behind a multiple of 1024 bytes, and the reader's swizzle starts at 0."""

    wish = Wish(span=128)
    needs = ("{pattern}", w.SWIZZLE, w.PHASE)
    half = (w.SWIZZLE,)

    def setup(self) -> None:
        self.operands()
        self.choose("phase", 1, 2, 4, 6, 7)

    def place_written(self, operand: str, row: Array, k: Array, pitch: int) -> Array:
        return self.xored(row, k, pitch, 128, int(self.facts["phase"]) if operand in self.hit else 0)

    def place_read(self, operand: str, row: Array, k: Array, pitch: int) -> Array:
        return self.xored(row, k, pitch, 128)


class Ldmatrix(Sixth):
    """A kernel whose ldmatrix.x4 loads 16 rows of 32 bytes: four matrices of 8 rows of 16 bytes."""

    styles = ("mma",)

    def matrices(self, tile: Array) -> Array:
        """(rows / 16, upper or lower, 8, k / 32 bytes, left or right, 16 bytes)."""
        return tile.reshape(tile.shape[0] // 16, 2, 8, tile.shape[1] // (2 * self.chunk), 2, self.chunk)


class MiddleMatricesCrossed(Ldmatrix):
    """ldmatrix.x4 of {operand} takes its second matrix for its third."""

    needs = ("{pattern}", MATRICES, MOVED + "|second .* third")
    half = ("{pattern}", MATRICES)

    def setup(self) -> None:
        self.operands()

    def seen(self, tile: Array) -> Array:
        return self.matrices(tile).swapaxes(1, 4).reshape(tile.shape)


class LaneModuloEight(Ldmatrix):
    """The row of a lane is lane % 8 where it should be lane % 16: rows 8-15 of {operand} are rows 0-7 again."""

    needs = ("{pattern}", MATRICES, FIXED + "|" + MOVED)
    half = ("{pattern}", MATRICES)

    def setup(self) -> None:
        self.operands("a", "b")

    def seen(self, tile: Array) -> Array:
        return self.matrices(tile)[:, [0, 0]].reshape(tile.shape)


class ChunkOfLaneLeftOut(Ldmatrix):
    """The address of a lane lacks lane / 16 * 16 bytes: the second half of every step along K of {operand} is the first again."""

    needs = ("{pattern}", w.KTILE, FIXED + "|" + MOVED, MATRICES)
    half = ("{pattern}", w.KTILE)

    def setup(self) -> None:
        self.operands("a", "b")

    def seen(self, tile: Array) -> Array:
        return self.matrices(tile)[..., [0, 0], :].reshape(tile.shape)


class MatricesNotTransposed(Ldmatrix):
    """ldmatrix of {operand} lacks .trans, or has one too many: each 8 x 8 matrix is transposed."""

    only = "16 bits"
    needs = ("{pattern}", w.TRANSPOSED, r"8 ?x ?8|8x|matri|ldmatrix|core|trans\b")
    half = ("{pattern}", w.TRANSPOSED)

    def setup(self) -> None:
        self.operands("a", "b")

    def seen(self, tile: Array) -> Array:
        rows, depth = tile.shape
        return tile.reshape(rows // 8, 8, depth // 8, 8).swapaxes(1, 3).reshape(tile.shape)


# Descriptors and TMA.


class DescriptorNotMoved(Sixth):
    """The descriptor of {operand} stays at the first {step} elements of K in every tile."""

    styles = DESCRIPTORS
    needs = ("{pattern}", w.KTILE, FIXED)
    half = ("{pattern}", w.KTILE)

    def setup(self) -> None:
        self.operands()
        self.facts["step"] = self.arithmetic.k

    def seen(self, tile: Array) -> Array:
        return tile[:, np.arange(tile.shape[1]) % self.arithmetic.k]


class DescriptorMovedInOtherUnits(Sixth):
    """The descriptor of {operand} moves on by {bytes} bytes for an instruction's 32."""

    source = "tile-ai/tilelang#2161"
    styles = DESCRIPTORS
    needs = ("{pattern}", STEP + "|" + w.KTILE, r"{bytes.pattern}|{elements.pattern}|half|double|twice")
    half = ("{pattern}", w.KTILE)

    def setup(self) -> None:
        self.operands()
        self.choose("elements", int(self.choose("bytes", 16, 64)) * 8 // self.bits)

    def place_read(self, operand: str, row: Array, k: Array, pitch: int) -> Array:
        k_in, step = self.arithmetic.k, int(self.facts["elements"])
        return row * pitch + (k // k_in * step + k % k_in if operand in self.hit else k)


class LboAndSboCrossed(Sixth):
    """Core matrices of {operand} lie row by row and the descriptor has LBO and SBO in the other order."""

    source = "NVIDIA/Fuser#1501"
    styles = DESCRIPTORS
    needs = (
        "{pattern}",
        r"lbo|sbo|byte offset|leading.*stride|core matri|8 ?x ?8|8 ?x ?16|chunk|16.bytes?",
        w.SWAPPED + "|instead|order|other",
    )
    half = ("{pattern}", r"lbo|sbo|byte offset|core matri|8 ?x ?8")

    def setup(self) -> None:
        self.operands("a", "b")

    def place(self, row: Array, k: Array, down: int, along: int) -> Array:
        """Where an element lies if matrices are `down` apart along the rows and `along` along K."""
        return (row // 8 * down + k // self.chunk * along) * 8 * self.chunk + row % 8 * self.chunk + k % self.chunk

    def place_written(self, operand: str, row: Array, k: Array, pitch: int) -> Array:
        return self.place(row, k, pitch // self.chunk, 1)

    def place_read(self, operand: str, row: Array, k: Array, pitch: int) -> Array:
        strides = (pitch // self.chunk, 1)
        return self.place(row, k, *(strides[::-1] if operand in self.hit else strides))


class MnMajorMovedAlongMn(Sixth):
    """The descriptor of MN-major {operand} moves on by 32 bytes as if it were K-major: along its rows, {rows} for each instruction."""

    source = "tile-ai/tilelang#2593"
    wish = Wish(majors="mm")
    styles = DESCRIPTORS
    needs = (
        "{pattern}",
        r"advanc|moves?\b|step|shift|offset|descriptor",
        r"{rows.pattern}|mn.?major|instruction|k step|descriptor",
    )
    half = ("{pattern}",)

    def setup(self) -> None:
        self.operands("a", "b")
        self.choose("rows", 256 // self.bits)

    def place_written(self, operand: str, row: Array, k: Array, pitch: int) -> Array:
        return k * (self.t.bm if operand == "a" else self.t.bn) + row

    def place_read(self, operand: str, row: Array, k: Array, pitch: int) -> Array:
        step = self.arithmetic.k
        wrong = self.place_written(operand, row + k // step * int(self.facts["rows"]), k % step, pitch)
        return wrong if operand in self.hit else self.place_written(operand, row, k, pitch)


class TmaCoordinatesCrossed(Sixth):
    """The copy of {operand} is given (row, k) for its tensor map's (k, row): beyond the matrix it fills in zeros."""

    wish = Wish(tiles=2, blocks=(1, 1))
    styles = DESCRIPTORS
    needs = (
        "{pattern}",
        r"coordinate|given \(row, k\)|swap|exchang|interchang|crossed|starts? at|origin|tiles?\b.{0,40}(?:from|at) |other (?:tile|block)",
    )
    half = ("{pattern}",)

    def setup(self) -> None:
        self.operands("a", "b")
        self.now, self.block = 0, {"a": 0, "b": 0}

    def tile_a(self, y: int, x: int, tile: int | None) -> Array:
        self.now, self.block["a"] = tile or 0, y * self.t.bm
        return super().tile_a(y, x, tile)

    def tile_b(self, y: int, x: int, tile: int | None) -> Array:
        self.now, self.block["b"] = tile or 0, x * self.t.bn
        return super().tile_b(y, x, tile)

    def rows_loaded(self, operand: str, block: int, size: int) -> Array:
        return np.arange(size) + (self.now * self.t.bk if operand in self.hit else block * size)

    def k_loaded(self, operand: str, tile: int, width: int) -> Array:
        return np.arange(width) + (self.block[operand] if operand in self.hit else tile * width)


class TmaCoordinateInTiles(Sixth):
    """The copy of {operand} is given the number of the K tile where the tensor map counts elements: it moves on by 1."""

    wish = Wish(tiles=3)
    styles = DESCRIPTORS
    needs = (
        "{pattern}",
        w.KTILE,
        STEP + "|" + w.OFFSET + "|coordinate|" + FIXED,
        r"\b1\b|one element|single element|coordinate",
    )
    half = ("{pattern}", w.KTILE)

    def setup(self) -> None:
        self.operands()

    def k_loaded(self, operand: str, tile: int, width: int) -> Array:
        return tile * (1 if operand in self.hit else width) + np.arange(width)


class MapHasTheOtherExtent(Sixth):
    """The tensor map of {operand} has {extent} rows, the other operand's: the copy fills in zeros behind them."""

    wish = Wish(blocks=(2, 2), tiles=2)
    styles = DESCRIPTORS
    needs = (
        "{pattern}|output|product",
        w.ROWS + "|" + w.COLUMNS,
        w.ZERO + "|out.of.bounds|fill",
        "{extent.pattern}|{last.pattern}",
    )
    half = (w.ZERO, w.ROWS + "|" + w.COLUMNS)

    def setup(self) -> None:
        self.operands("a" if self.p.m > self.p.n else "b")
        extent = int(self.choose("extent", min(self.p.m, self.p.n)))
        self.choose("last", extent - 1)

    def inside_a(self, rows: Array, k: Array) -> Array:
        return super().inside_a(rows, k) & (rows < (self.facts["extent"] if "a" in self.hit else self.p.m))

    def inside_b(self, k: Array, columns: Array) -> Array:
        return super().inside_b(k, columns) & (columns < (self.facts["extent"] if "b" in self.hit else self.p.n))


class BoxOfHalfATile(Sixth):
    """The box of {operand}'s tensor map has half the tile's rows: nothing is copied to the rest of every tile, here zeros."""

    needs = ("{pattern}|output|product", w.ROWS + "|" + w.COLUMNS, w.ZERO + "|" + LEFT_OUT)
    half = (w.ZERO,)

    def setup(self) -> None:
        self.operands("a", "b")

    def seen(self, tile: Array) -> Array:
        return np.where(np.arange(len(tile))[:, None] < len(tile) // 2, tile, 0).astype(tile.dtype)
