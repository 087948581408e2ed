"""The tenth set: mistakes of descriptors, Tensor Memory, metadata, scale factors, formats and the epilogue; and right kernels."""

from __future__ import annotations

import numpy as np

from tests.evaluation.second_wrong_kernels.kinds_ninth import LACK, MOVED, SCALES, UNWRITTEN, either, everything, span
from tests.evaluation.second_wrong_kernels.kinds_tenth import HALF, META, Tenth
from tests.evaluation.second_wrong_kernels.problem import Array, Wish
from tests.evaluation.second_wrong_kernels.words import (
    BLOCK,
    COLUMNS,
    KTILE,
    LAST,
    OFFSET,
    PITCH,
    ROWS,
    SAME,
    STALE,
    SWAPPED,
    WARP,
    A,
    B,
    C,
    D,
)


class StrideOffsetHalved(Tenth):
    """The descriptor's stride byte offset is half of 8 rows: every 8 columns of B begin 4 columns after the last 8, so column 8g + i is that of 4g + i."""

    source = "thu-ml/SageAttention#178"
    plain = True
    styles = ("wgmma", "tcgen05")
    wish = Wish(majors="kk")
    needs = (
        B,
        either(OFFSET, PITCH, MOVED, SAME),
        r"\b8\b|\b4\b|\bsbo\b|descriptor|core matri|group|half|stride|columns?",
    )

    def fragments_b(self, tile: Array) -> Array:
        n = np.arange(len(tile))
        return tile[n // 8 * 4 + n % 8]


class InstructionOfHalfTheColumns(Tenth):
    """The instruction descriptor says N = {half} where a tile has {bn} columns: columns {from}-{to} of a block are never multiplied."""

    source = "textbook"
    styles = ("tcgen05",)
    wish = Wish(whole="n")
    needs = (either(span("from", "to"), everything(COLUMNS, HALF)), either(UNWRITTEN, LACK))

    def setup(self) -> None:
        self.facts = {"half": self.t.bn // 2, **self.columns(0, self.t.bn // 2)}

    def step(self, y: int, x: int, i: int, a: Array, b: Array, out: Array, extras: dict[str, Array]) -> Array:
        return self.joined(self.multiply(a, b, out, extras), out, 1)


class LanesOfTheWarpNumber(Tenth):
    """The four epilogue warps are 1 to 4, and tcgen05.ld gives a warp the lanes of its number modulo 4: each stores the 32 rows of the next, and the rows of a block are rotated."""

    source = "textbook"
    styles = ("tcgen05",)
    wish = Wish(whole="m")
    needs = (either(D, ROWS, WARP), MOVED, r"\b32\b|\bwarps?\b|lanes?|rows \d+-\d+")

    def fragments_d(self, block: Array) -> Array:
        return np.roll(block, -32, axis=0) if len(block) == 128 else block


class TensorMemoryBuffersOverlap(Tenth):
    """The second accumulator lies {half} columns after the first, which has {bn}: the half of a block that they share holds that of the block its worker does next."""

    source = "textbook"
    styles = ("tcgen05",)
    wish = Wish(blocks=(2, 2), whole="mn")
    needs = (either(BLOCK, COLUMNS), MOVED, either(HALF, r"columns \d+-\d+"))

    def setup(self) -> None:
        self.facts = {"half": self.t.bn // 2}

    def store(self, memory: Array, y: int, x: int, block: Array) -> None:
        after, half = self.number(y, x) + self.workers, self.t.bn // 2
        if after < self.blocks_in_all():
            new = np.roll(self.sums(*self.block(after)), half, axis=1)
            first = self.number(y, x) // self.workers % 2 == 0
            block = self.joined(block, new, 1) if first else self.joined(new, block, 1)
        super().store(memory, y, x, block)


class SelectorOfTheOtherStep(Tenth):
    """The sparsity selector names the other pair of lanes, which hold the metadata of the other step: the steps of {step} in every two have each other's metadata."""

    source = "textbook"
    only = "sparse"
    needs = (
        META,
        either(MOVED, SAME, r"\bother|wrong|\bnext\b|neighbou?r"),
        either(KTILE, r"\bsteps?\b|selector|lanes?"),
    )

    def positions(self, rows: Array, k: Array) -> Array:
        return super().positions(rows, k ^ self.arithmetic.k // 2)


class MetadataHalvesExchanged(Tenth):
    """The two halves of the metadata register are packed the wrong way round: rows g and g + 8 of every 16 have each other's metadata."""

    source = "textbook"
    only = "sparse"
    needs = (
        META,
        either(MOVED, r"\border\b|layout|\bother|wrong|another"),
        either(ROWS, r"\b8\b|\b16\b|reorder|interleav"),
    )

    def positions(self, rows: Array, k: Array) -> Array:
        return super().positions(rows ^ 8, k)


class ScaleRowsOfTheRawBlock(Tenth):
    """Blocks are renumbered down the columns, and the scale factors of A still follow blockIdx: a block has the scale factors of the rows of another."""

    source = "NVIDIA/cutlass#3394"
    only = "scaled"
    wish = Wish(blocks=(2, 2))
    needs = (SCALES, either(MOVED, r"\bother|wrong|another"), either(BLOCK, ROWS))

    def extras(self, y: int, x: int, tile: int) -> dict[str, Array]:
        raw = (x * self.grid()[0] + y) // self.grid()[1]
        return {**super().extras(y, x, tile), "scale_a": super().extras(raw, x, tile)["scale_a"]}


class ByteOfTheScaleWordRestarts(Tenth):
    """Four scale factors share a word, and their index in it begins again with every K tile: every second K tile is scaled with the factors of the tile before."""

    source = "textbook"
    only = "scaled"
    needs = (SCALES, either(MOVED, SAME, STALE), either(KTILE, r"tile|\bevery|\bodd\b|\bword\b|byte"))

    def extras(self, y: int, x: int, tile: int) -> dict[str, Array]:
        per = self.t.bk // self.arithmetic.block
        return super().extras(y, x, tile * per // 4 * 4 // per if per < 4 else tile)


class ScalesReadRowByRow(Tenth):
    """The scale factors of A come in the 128 x 4 layout, padded with zeros, and the kernel reads them row by row."""

    source = "facebookexperimental/triton#917"
    only = "scaled"
    needs = (SCALES, A, either(r"layout|swizzl|\border\b|row by row|128|linear|row-major", MOVED))

    def scales_a(self, rows: Array, blocks: Array) -> Array:
        table = self.p.extras["scale_a"]
        across = -(-table.shape[1] // 4)
        tile, rest = np.divmod(rows * table.shape[1] + blocks, 512)
        row = tile // across * 128 + rest % 16 // 4 * 32 + rest // 16
        column = tile % across * 4 + rest % 4
        inside = (row < table.shape[0]) & (column < table.shape[1])
        return np.where(inside, super().scales_a(row, column), 0).astype(table.dtype)


class ScaleBlockOfThirtyTwo(Tenth):
    """The kernel takes a scale factor for 32 elements of K where there is one for 16: factor i is used for blocks 2i and 2i + 1, in A and B."""

    source = "NVIDIA/cudnn-frontend#237"
    only = "e2m1"
    needs = (SCALES, either(r"\b32\b|\b16\b|block size|granular|\bhalf\b|\btwo\b|\btwice\b|\bpairs?\b", SAME, MOVED))

    def scales_a(self, rows: Array, blocks: Array) -> Array:
        return super().scales_a(rows, blocks // 2)

    def scales_b(self, blocks: Array, columns: Array) -> Array:
        return super().scales_b(blocks // 2, columns)


class NibblesSplitInHalves(Tenth):
    """The low nibbles of 16 bytes of A are taken for elements 0-15 and the high ones for 16-31, where a byte holds two neighbours: K is permuted in A."""

    source = "kekzl/imp#722"
    only = "e2m1"
    needs = (A, either(MOVED, r"nibble|interleav|\border\b|packed|unpack"))

    def fragments_a(self, tile: Array) -> Array:
        return tile.reshape(len(tile), -1, 16, 2).swapaxes(2, 3).reshape(tile.shape)


class FormatsCrossed(Tenth):
    """A is e4m3 and B e5m2, and the instruction has them exchanged: A is read as e5m2, B as e4m3."""

    source = "textbook"
    only = "e4m3"
    styles = ("wgmma",)
    needs = (
        r"e5m2",
        r"e4m3|format",
        either(SWAPPED, r"read as|taken (?:as|for)|interpret|decoded|wrong format|formats? of"),
    )

    def instruction(self) -> str:
        return self.arithmetic.mnemonic.replace("e4m3.e5m2", "e5m2.e4m3")


class PackedPairsExchanged(Tenth):
    """cvt of two floats to a packed pair puts its first operand into the upper half: columns 2j and 2j + 1 of the output are exchanged."""

    source = "textbook"
    floats = True
    needs = (
        either(D, COLUMNS),
        MOVED,
        r"\bpairs?\b|adjacent|neighbou?r|\beven\b|\bodd\b|half2|packed|2j|\bcolumns? (?:0|1)\b|every (?:2|two)",
    )

    def setup(self) -> None:
        self.output = str(self.random.choice(["f16", "bf16"]))

    def fragments_d(self, block: Array) -> Array:
        return block[:, np.arange(block.shape[1]) ^ 1]


class PitchOfCPadded(Tenth):
    """C is read with a pitch of {pitch} elements, N rounded up to whole blocks; it has {n}."""

    source = "textbook"
    wish = Wish(c=True, ragged="n")
    needs = (C, PITCH)

    def setup(self) -> None:
        self.facts = {"pitch": self.grid()[1] * self.t.bn}

    def read_c(self, rows: Array, columns: Array) -> Array:
        row, column = np.divmod(rows * self.grid()[1] * self.t.bn + columns, self.p.n)
        return np.where(columns < self.p.n, super().read_c(row, column), 0).astype(np.uint32)


class COfTheFirstSubtile(Tenth):
    """The epilogue goes through a block in pieces of 32 columns and loads the first piece of C every time: columns {from}-{to} get a copy of the C of the 32 before."""

    source = "textbook"
    wish = Wish(c=True, whole="n")
    needs = (C, either(SAME, MOVED), either(COLUMNS, r"\b32\b"))

    def setup(self) -> None:
        self.facts = self.columns(0, 32)

    def read_c(self, rows: Array, columns: Array) -> Array:
        return super().read_c(rows, columns - columns % self.t.bn // 32 * 32)


class RowsPastTheLastSixteen(Tenth):
    """stmatrix stores whole groups of 16 rows: rows {from}-{to} are never written."""

    source = "NVIDIA/Fuser#3963"
    wish = Wish(ragged="m")
    needs = (either(span("from", "to"), everything(ROWS, LAST)), UNWRITTEN)

    def setup(self) -> None:
        self.facts = {"from": self.p.m // 16 * 16, "to": self.p.m - 1}

    def inside_d(self, rows: Array, columns: Array) -> Array:
        return super().inside_d(rows, columns) & (rows < self.p.m // 16 * 16)


class ProperSmallerSteps(Tenth):
    """Right: every step is m16n8k8 where the other kernel has m16n8k16."""

    correct, plain = True, True
    only = "16 bits"
    styles = ("mma",)

    def instruction(self) -> str:
        return self.arithmetic.mnemonic.replace("m16n8k16", "m16n8k8")


class ProperLateC(Tenth):
    """Right: C is added in the epilogue, and the output is rounded once, to bf16."""

    correct, floats = True, True
    wish = Wish(c=True)

    def setup(self) -> None:
        self.c_late, self.output = True, "bf16"

    def epilogue(self, total: Array, rows: Array, columns: Array) -> Array:
        return total + self.values(self.read_c(rows, columns))
