"""Mistakes of number formats, packing, sparse metadata and scale factors."""

from __future__ import annotations

import numpy as np

import tcsim
from tests.evaluation.second_wrong_kernels import words as w
from tests.evaluation.second_wrong_kernels.kernel import Kernel
from tests.evaluation.second_wrong_kernels.problem import Array, Wish

METADATA = r"metadata|position|selector|2:4"
SCALE = r"scale"


class HalvesTakenForBf16(Kernel):
    """The operands are f16 and the instruction is bf16's."""

    wish = Wish(c=False)
    only = "f16"
    styles = ("mma", "wgmma")
    plain = True
    needs = ("bf16",)
    half = (w.A + "|" + w.B,)

    def instruction(self) -> str:
        return self.arithmetic.mnemonic.replace("f16.f16", "bf16.bf16")


class Bf16TakenForHalves(Kernel):
    """The operands are bf16 and the instruction is f16's."""

    wish = Wish(c=False)
    only = "bf16"
    styles = ("mma",)
    plain = True
    needs = (r"(?<!b)f16|fp16|half",)
    half = (w.A + "|" + w.B,)

    def instruction(self) -> str:
        return self.arithmetic.mnemonic.replace("bf16.bf16", "f16.f16")


class E4m3TakenForE5m2(Kernel):
    """A is e4m3 and the instruction says e5m2."""

    wish = Wish(c=False)
    only = "e4m3"
    styles = ("mma", "wgmma")
    plain = True
    needs = (r"e5m2\.e|\ba\b.*e5m2",)
    half = (w.A,)

    def instruction(self) -> str:
        return self.arithmetic.mnemonic.replace("e4m3", "e5m2", 1)


class SignedTakenForUnsigned(Kernel):
    """A is s8 and the instruction says u8."""

    only = "s8"
    needs = (r"u8\.s8|\ba\b.*(?:u8|unsigned)",)
    half = (w.A,)

    def instruction(self) -> str:
        return self.arithmetic.mnemonic.replace("s8.s8", "u8.s8")


class SignedTakenForUnsignedInB(Kernel):
    """B is s8 and the instruction says u8."""

    only = "s8"
    needs = (r"s8\.u8|\bb\b.*(?:u8|unsigned)",)
    half = (w.B,)

    def instruction(self) -> str:
        return self.arithmetic.mnemonic.replace("s8.s8", "s8.u8")


class AccumulatedInHalves(Kernel):
    """The accumulators are f16 (the other instruction), and the result is widened."""

    wish = Wish(c=False, integers=False)
    only = "f16"
    styles = ("mma",)
    plain = True
    narrow = False
    needs = (r"f16|half", r"accumul|\bd\b|output|result|round")
    half = (r"round|precision",)

    def gemm(self, a: Array, b: Array, c: Array, **extras: Array) -> Array:
        name = self.arithmetic.mnemonic.replace("f32.f16.f16.f32", "f16.f16.f16.f16")
        own = np.asarray(
            tcsim.gemm(a, b, tcsim.encode(self.values(c), "f16"), instruction=name, arch=self.arithmetic.arch)
        )
        return own.view(np.float16).astype(np.float32).view(np.uint32)


class PairsOfAPackedBackwards(Kernel):
    """cvt.rn.f16x2 puts its first operand into the upper half: the elements of each pair of A are swapped along K."""

    only = "16 bits"
    plain = True
    needs = (w.A, w.SWAPPED + "|reverse|order", r"pair|half|halves|\bk\b|two|pack|k \^|word")
    half = (w.A,)

    def fragments_a(self, tile: Array) -> Array:
        return tile.reshape(len(tile), -1, 2)[..., ::-1].reshape(tile.shape)


class BytesOfBSwapped(Kernel):
    """B's 16-bit codes have their bytes in the other order."""

    only = "16 bits"
    floats = True
    plain = True
    wish = Wish(c=False)
    needs = (w.B, r"byte|endian")
    half = (w.B,)

    def fragments_b(self, tile: Array) -> Array:
        return tile.byteswap()


class NibblesOfA(Kernel):
    """The two fp4 codes of each byte of A are swapped."""

    only = "e2m1"
    needs = (w.A, w.SWAPPED + "|reverse|order", r"nibble|pair|half|halves|\bk\b|two|pack")
    half = (w.A,)

    def fragments_a(self, tile: Array) -> Array:
        return tile.reshape(len(tile), -1, 2)[..., ::-1].reshape(tile.shape)


class BytesOfWordsReversed(Kernel):
    """Four 8-bit elements of A are packed into a word from the top."""

    only = "8 bits"
    plain = True
    needs = (w.A, w.SWAPPED + "|reverse|order|endian", r"byte|word|\bk\b|four|pack")
    half = (w.A,)

    def fragments_a(self, tile: Array) -> Array:
        return tile.reshape(len(tile), -1, 4)[..., ::-1].reshape(tile.shape)


class SignOfBLost(Kernel):
    """B's sign is lost (absolute values: an unpacking that masks one bit too many)."""

    floats = True
    needs = (w.B, r"sign|absolute|abs")
    half = (w.B,)

    def fragments_b(self, tile: Array) -> Array:
        bits = tcsim.format(self.arithmetic.b).bits
        return tile & tile.dtype.type((1 << (bits - 1)) - 1)


# Sparse metadata.


class MetadataIgnored(Kernel):
    """The metadata register is 0x44444444: the first two of each four."""

    only = "sparse"
    needs = (METADATA, r"ignor|constant|0x4|first two|always|not read|default|the same|0, ?1|fixed")
    half = (METADATA,)

    def positions(self, rows: Array, k: Array) -> Array:
        return np.broadcast_to(k % 2, np.broadcast_shapes(rows.shape, k.shape)).astype(self.p.extras["metadata"].dtype)


class MetadataOfTheOtherEight(Kernel):
    """The halves of the metadata words are swapped: rows g and g + 8 have each other's."""

    wish = Wish(whole="m")
    only = "sparse"
    needs = (METADATA, w.SWAPPED, r"row|half|halves|\b8\b")
    half = (METADATA,)

    def positions(self, rows: Array, k: Array) -> Array:
        return super().positions(rows ^ 8, k)


class MetadataOfTheFirstTile(Kernel):
    """The metadata is not advanced along K."""

    wish = Wish(tiles=3)
    only = "sparse"
    needs = (METADATA, w.SAME, w.KTILE + "|tile|block|step")
    half = (METADATA,)

    def positions(self, rows: Array, k: Array) -> Array:
        return super().positions(rows, k % self.bk_a)


class MetadataOfTheFirstRow(Kernel):
    """All rows of 16 use the metadata of the first."""

    only = "sparse"
    needs = (METADATA, w.SAME, w.ROWS + "|lane")
    half = (METADATA,)

    def positions(self, rows: Array, k: Array) -> Array:
        return super().positions(rows - rows % 16, k)


class SelectorOfTheOtherPair(Kernel):
    """Half of the metadata along K come from the other lanes: the two halves of an instruction's K are swapped."""

    only = "sparse"
    needs = (METADATA, w.SWAPPED + "|selector|" + w.OFFSET)
    half = (METADATA,)

    def positions(self, rows: Array, k: Array) -> Array:
        return super().positions(rows, k ^ 8)


# Scale factors.


class ScaleOfAForgotten(Kernel):
    """A's scale factors are all one."""

    only = "scaled"
    needs = (SCALE, w.A + "|scale_a|scale of a", r"ignor|one|missing|not applied|1\.0|without|left out|constant")
    half = (SCALE,)

    def scales_a(self, rows: Array, blocks: Array) -> Array:
        return super().scales_a(rows + 100000, blocks)


class ScaleOfBOfTheFirstColumn(Kernel):
    """All columns use the scale factors of the tile's first."""

    only = "scaled"
    needs = (SCALE, w.B + "|scale_b", w.SAME, w.COLUMNS + "|lane|thread")
    half = (SCALE,)

    def scales_b(self, blocks: Array, columns: Array) -> Array:
        return super().scales_b(blocks, columns - columns % self.t.bn)


class ScaleOfANotAdvanced(Kernel):
    """A's scale factors are those of the first K tile."""

    wish = Wish(tiles=3)
    only = "scaled"
    needs = (SCALE, w.A + "|scale_a", w.SAME, w.KTILE + "|tile|block")
    half = (SCALE,)

    def scales_a(self, rows: Array, blocks: Array) -> Array:
        return super().scales_a(rows, blocks % (self.t.bk // self.arithmetic.block))


class ScaleOfBOneBlockOff(Kernel):
    """B's scale factors are those of the next block of K."""

    wish = Wish(tiles=3)
    only = "scaled"
    needs = (SCALE, w.B + "|scale_b", w.OFFSET + r"|next|one block|off by|\+ ?1|by 1")
    half = (SCALE,)

    def scales_b(self, blocks: Array, columns: Array) -> Array:
        return super().scales_b(blocks + 1, columns)


class ScaleRowsNotInterleaved(Kernel):
    """A's scale factors are read row after row, where they are stored interleaved: rows of a tile have others' factors."""

    wish = Wish(whole="m")
    only = "scaled"
    needs = (SCALE, w.A + "|scale_a", w.SWAPPED + r"|order|interleav|layout|taken from|row \d")
    half = (SCALE,)

    def scales_a(self, rows: Array, blocks: Array) -> Array:
        inner = rows % self.t.bm
        return super().scales_a(rows - inner + inner % 8 * (self.t.bm // 8) + inner // 8, blocks)


class ScalesSwapped(Kernel):
    """A's factors are used for B and B's for A."""

    wish = Wish(square=True)
    only = "scaled"
    needs = (SCALE, w.SWAPPED)
    half = (SCALE,)

    def scales_a(self, rows: Array, blocks: Array) -> Array:
        return super().scales_b(blocks, rows)

    def scales_b(self, blocks: Array, columns: Array) -> Array:
        return super().scales_a(columns, blocks)
