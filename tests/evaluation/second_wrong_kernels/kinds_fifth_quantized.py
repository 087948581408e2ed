"""The fifth set: number formats, quantised weights, scale factors, sparsity."""

from __future__ import annotations

import numpy as np

import tcsim
from tests.evaluation.second_wrong_kernels import words as w
from tests.evaluation.second_wrong_kernels.kinds_fifth import MOVED, SCALE, Fifth
from tests.evaluation.second_wrong_kernels.problem import Array, Wish

# Codes and weights.


class NibblesSwapped(Fifth):
    """B's bytes hold the element of even k in their high half, and the kernel reads it in the low half."""

    source = "amd/Quark#30"
    only = "e2m1"
    needs = (w.SWAPPED + "|nibble|order", r"nibble|pair|neighbou?r|adjacent|odd|even|byte|(?:2|two) elements|\bk\b")
    half = (w.SWAPPED,)

    def fragments_b(self, tile: Array) -> Array:
        return tile[:, np.arange(tile.shape[1]) ^ 1]


class PackingOrderKept(Fifth):
    """Weights of eight columns are unpacked in the order in which a word holds them (0, 2, 4, 6, 1, 3, 5, 7)."""

    source = "pie-project/pie#491"
    plain = True
    wish = Wish(whole="n")
    needs = (w.COLUMNS + "|" + w.B, MOVED + "|awq|nibble|pack")
    half = (w.COLUMNS,)

    def columns_of_b(self, y: int, x: int) -> Array:
        columns = super().columns_of_b(y, x)
        return columns // 8 * 8 + np.array([0, 2, 4, 6, 1, 3, 5, 7])[columns % 8]


class ZeroPointKept(Fifth):
    """The weights' zero point is not subtracted: every element of B is too large by {zero}."""

    source = "iree-org/iree#24583"
    plain = True
    only = "16 bits"
    needs = (
        r"zero.?point|constant|row sums?|sums? of .{0,20}rows?|rank.?(?:1|one)|(?:added|adds?|adding|plus|too large) .{0,30}\b(?:to|b|by)\b",
        w.B + "|" + w.ROWS,
    )
    half = (r"constant|row sums?|sums? of",)

    def setup(self) -> None:
        self.zero = self.facts["zero"] = float(self.random.choice([0.5, 1.0, 8.0]))

    def fragments_b(self, tile: Array) -> Array:
        shifted = tcsim.decode(tile, self.arithmetic.b) + self.zero
        return np.asarray(tcsim.encode(shifted, self.arithmetic.b)).astype(tile.dtype)


class ReadAsUnsigned(Fifth):
    """The instruction takes {operand} as u8; the data are s8."""

    source = "ROCm/hip-ep#178"
    only = "s8"
    needs = ("{pattern}", r"\bu8\b|sign|\b256\b|zero.exten")
    half = (r"\bu8\b|sign",)

    def setup(self) -> None:
        self.unsigned = self.one_operand()

    def instruction(self) -> str:
        return super().instruction().replace(".s8.s8", ".u8.s8" if self.unsigned == "a" else ".s8.u8")


class Bfloat16ReadAsHalf(Fifth):
    """The instruction is the one for f16; the data are bf16."""

    styles = ("mma", "wgmma")
    plain = True
    only = "bf16"
    needs = (r"\bf16|half|float16", r"format|type|interpret|read as|taken as|instead of|decoded|bf16|bfloat")
    half = (r"format|type",)

    def instruction(self) -> str:
        return super().instruction().replace("bf16", "f16")


# Scale factors.


class ScalesOfTheFirstSlice(Fifth):
    """Every slice of split-K counts scale factors from the first: the second slice takes those of the first."""

    source = "NVIDIA/cutlass#3537"
    rare = True
    only = "scaled"
    wish = Wish(split=(2,), tiles=2)
    needs = (SCALE, w.SAME + "|" + w.SPLIT + "|shift|offset|index")
    half = (SCALE,)

    def mainloop(self, y: int, x: int, part: int) -> Array:
        self.skipped = self.slice_of(part)[0]
        return super().mainloop(y, x, part)

    def extras(self, y: int, x: int, tile: int) -> dict[str, Array]:
        return super().extras(y, x, tile - self.skipped)


class FirstScaleOfFour(Fifth):
    """Four scale factors of {operand} lie in a word, and its first is taken for all four blocks of K."""

    source = "mlc-ai/TIRx-kernels#5"
    rare = True
    only = "scaled"
    wish = Wish(tiles=3)
    needs = (SCALE, w.SAME + r"|first|fourth|\b4\b|four|index")
    half = (SCALE,)

    def setup(self) -> None:
        self.wrong = self.one_operand()

    def scales_a(self, rows: Array, blocks: Array) -> Array:
        return super().scales_a(rows, blocks // 4 * 4 if self.wrong == "a" else blocks)

    def scales_b(self, blocks: Array, columns: Array) -> Array:
        return super().scales_b(blocks // 4 * 4 if self.wrong == "b" else blocks, columns)


class TakenFromAnotherPlace(Fifth):
    """Scale factors of one operand are read at another place of their table in memory, rows of M or N with K's blocks in them."""

    only = "scaled"

    def setup(self) -> None:
        self.wrong = self.one_operand()
        self.count = -(-self.p.k // self.arithmetic.block)

    def flat(self, row: Array, block: Array, rows: int) -> Array:
        """Where the kernel looks."""
        return row * self.count + block

    def scales_a(self, rows: Array, blocks: Array) -> Array:
        if self.wrong == "a":
            rows, blocks = np.divmod(self.flat(rows, blocks, self.p.m), self.count)
        return super().scales_a(rows, blocks)

    def scales_b(self, blocks: Array, columns: Array) -> Array:
        if self.wrong == "b":
            columns, blocks = np.divmod(self.flat(columns, blocks, self.p.n), self.count)
        return super().scales_b(blocks, columns)


class ScalesNotInTiles(TakenFromAnotherPlace):
    """Scale factors of {operand} are left row by row; the kernel expects tiles of 128 rows and 4 blocks."""

    source = "NVIDIA/Fuser#4801"
    needs = (SCALE, MOVED + r"|swizzl|layout|tiles?|linear|\b128\b")
    half = (SCALE,)

    def flat(self, row: Array, block: Array, rows: int) -> Array:
        tile = row // 128 * -(-self.count // 4) + block // 4
        return tile * 512 + row % 32 * 16 + row % 128 // 32 * 4 + block % 4


class ScalesColumnMajor(TakenFromAnotherPlace):
    """Scale factors of {operand} are row-major, and the kernel reads them as column-major."""

    source = "flashinfer-ai/flashinfer#2147"
    needs = (SCALE, w.TRANSPOSED + "|" + w.PITCH + "|layout|order")
    half = (SCALE,)

    def flat(self, row: Array, block: Array, rows: int) -> Array:
        return block * rows + row


# Sparsity.


class MetadataPointerFixed(Fifth):
    """The metadata pointer does not advance: every K tile uses the first one's."""

    source = "ROCm/rocm-libraries#11764"
    rare = True
    only = "sparse"
    needs = (r"metadata|positions|indices|selector", w.SAME + "|first|K tile")
    half = (r"metadata|positions|selector",)

    def positions(self, rows: Array, k: Array) -> Array:
        return super().positions(rows, k % self.bk_a)
