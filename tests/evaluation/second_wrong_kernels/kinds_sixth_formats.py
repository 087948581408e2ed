"""The sixth set: formats, rounding, scale factors and metadata."""

from __future__ import annotations

import ml_dtypes
import numpy as np

import tcsim
from tests.evaluation.second_wrong_kernels import words as w
from tests.evaluation.second_wrong_kernels.kinds_sixth import (
    FIXED,
    FORMAT,
    LEFT_OUT,
    METADATA,
    ROUNDED,
    SCALE,
    TILE,
    Sixth,
)
from tests.evaluation.second_wrong_kernels.problem import Array, Wish

HALF = r"(?<!b)f16|\bhalf\b|fp16|float16"


class CodesOfTheOtherHalf(Sixth):
    """D is written as {written} and read as {read}."""

    floats = True
    narrow = False
    needs = (w.D, "bf16|bfloat16", HALF, FORMAT)
    half = (FORMAT, "bf16|f16")

    def setup(self) -> None:
        order = ["f16", "bf16"][:: int(self.random.choice([1, -1]))]
        self.facts |= {"written": order[0], "read": order[1]}

    def convert(self, out: Array) -> Array:
        types = {"f16": np.float16, "bf16": ml_dtypes.bfloat16}
        with np.errstate(over="ignore"):
            return out.astype(types[self.facts["written"]]).view(types[self.facts["read"]])


class OperandsOfTheOtherHalf(Sixth):
    """The instruction takes both operands' {written} for {read}."""

    styles = ("mma", "wgmma")
    only = "16 bits"
    needs = ("bf16|bfloat16", HALF, FORMAT)
    half = ("bf16|f16", FORMAT)

    def setup(self) -> None:
        is_half = self.arithmetic.a == "f16"
        self.facts |= {"written": "f16" if is_half else "bf16", "read": "bf16" if is_half else "f16"}

    def instruction(self) -> str:
        old, new = self.facts["written"], self.facts["read"]
        return super().instruction().replace(f".{old}.{old}", f".{new}.{new}")


class E4m3ReadAsE5m2(Sixth):
    """The instruction takes {operand}'s e4m3 for e5m2."""

    styles = ("mma", "wgmma")
    only = "e4m3"
    needs = ("{pattern}", "e5m2", FORMAT)
    half = ("e5m2|e4m3",)

    def setup(self) -> None:
        self.operands(*("a", "b", "ab") if self.arithmetic.b == "e4m3" else ("a",))

    def instruction(self) -> str:
        types = (self.arithmetic.a, self.arithmetic.b)
        read = ["e5m2" if operand in self.hit else own for operand, own in zip("ab", types, strict=True)]
        return super().instruction().replace(".".join(types), ".".join(read))


class SignLost(Sixth):
    """The instruction takes {operand}'s signed bytes for unsigned ones."""

    only = "s8"
    needs = ("{pattern}", r"unsigned|u8|uint8|sign")
    half = (r"unsigned|u8|uint8|sign",)

    def setup(self) -> None:
        self.operands()

    def instruction(self) -> str:
        a, b = ("u8" if operand in self.hit else "s8" for operand in "ab")
        return super().instruction().replace(".s8.s8.", f".{a}.{b}.")


class NibblesCrossed(Sixth):
    """The two elements of each byte of {operand} are packed in the other order."""

    only = "e2m1"
    needs = (
        "{pattern}",
        w.SWAPPED + "|pack",
        r"nibble|pair|neighbou?r|adjacent|\b2\b|two|even|odd|\^ ?1|xor 1|byte|\bk\b",
    )
    half = ("{pattern}", w.SWAPPED)

    def setup(self) -> None:
        self.operands("a", "b")

    def seen(self, tile: Array) -> Array:
        return tile[:, np.arange(tile.shape[1]) ^ 1]


class SumsRoundedInEveryTile(Sixth):
    """Accumulators pass through {format} after every K tile."""

    floats = True
    wish = Wish(tiles=3)
    needs = (
        "{words}",
        "round|precision|truncat|narrow|convert|through",
        r"accumul|\beach\b|every|partial|k tile|intermediate|\bsums?\b",
    )
    half = (ROUNDED,)

    def setup(self) -> None:
        is_half = bool(self.random.integers(2))
        self.facts |= {"format": "f16" if is_half else "bf16", "words": HALF if is_half else "bf16|bfloat16"}
        self.output = "f32"

    def step(self, y: int, x: int, i: int, a: Array, b: Array, out: Array, extras: dict[str, Array]) -> Array:
        sums = super().step(y, x, i, a, b, out, extras).view(np.float32)
        return (
            sums.astype(np.float16 if self.facts["format"] == "f16" else ml_dtypes.bfloat16)
            .astype(np.float32)
            .view(np.uint32)
        )


class HalfTowardZero(Sixth):
    """D is converted to f16 by cutting bits off, not to the nearest."""

    floats = True
    needs = (
        r"trunc|toward.?s? zero|cut off|\brz\b|chopp|round(?:ed|s|ing)? down|not (?:to )?(?:the )?nearest",
        HALF + "|output",
    )
    half = (ROUNDED,)

    def setup(self) -> None:
        self.output = "f16"

    def convert(self, out: Array) -> Array:
        with np.errstate(over="ignore"):
            half = out.astype(np.float16)
        larger = np.abs(half.astype(np.float32)) > np.abs(out)
        return np.where(larger, np.nextafter(half, np.float16(0)), half).astype(np.float16)


# Scale factors and metadata.


class ScalesOfBlockZero(Sixth):
    """All blocks take the scale factors of {operand}'s first block."""

    wish = Wish(blocks=(2, 2))
    only = "scaled"
    needs = (SCALE, "{pattern}", FIXED, TILE)
    half = (SCALE,)

    def setup(self) -> None:
        self.operands("a", "b")

    def scales_a(self, rows: Array, blocks: Array) -> Array:
        return super().scales_a(rows % self.t.bm if "a" in self.hit else rows, blocks)

    def scales_b(self, blocks: Array, columns: Array) -> Array:
        return super().scales_b(blocks, columns % self.t.bn if "b" in self.hit else columns)


class ScalesNotAdvanced(Sixth):
    """Every K tile takes the scale factors of {operand}'s first."""

    wish = Wish(tiles=2)
    only = "scaled"
    needs = (SCALE, "{pattern}", FIXED, w.KTILE + "|block 0|first")
    half = (SCALE,)

    def setup(self) -> None:
        self.operands()

    def scales_a(self, rows: Array, blocks: Array) -> Array:
        return super().scales_a(rows, blocks % (self.t.bk // self.arithmetic.block) if "a" in self.hit else blocks)

    def scales_b(self, blocks: Array, columns: Array) -> Array:
        return super().scales_b(blocks % (self.t.bk // self.arithmetic.block) if "b" in self.hit else blocks, columns)


class ScalesForTwiceTheBlock(Sixth):
    """{operand}'s scale factors are taken as if one belonged to {wide} elements of K, not to {block}."""

    wish = Wish(tiles=2)
    only = "scaled"
    needs = (SCALE, "{pattern}", "{wide.pattern}|twice|double|half|granular|group|block size|\\b2\\b|two")
    half = (SCALE,)

    def setup(self) -> None:
        self.operands()
        self.facts["block"] = self.arithmetic.block
        self.choose("wide", 2 * self.arithmetic.block)

    def scales_a(self, rows: Array, blocks: Array) -> Array:
        return super().scales_a(rows, blocks // 2 if "a" in self.hit else blocks)

    def scales_b(self, blocks: Array, columns: Array) -> Array:
        return super().scales_b(blocks // 2 if "b" in self.hit else blocks, columns)


class ScaleMantissaLost(Sixth):
    """{operand}'s scale factors lose their mantissa."""

    source = "sgl-project/sglang#39193"
    only = "e2m1"
    needs = (SCALE, "{pattern}", r"power|exponent|mantissa|trunc|round|ue8m0|fraction")
    half = (SCALE,)

    def setup(self) -> None:
        self.operands()

    def scales_a(self, rows: Array, blocks: Array) -> Array:
        codes = super().scales_a(rows, blocks)
        return codes & 0x78 if "a" in self.hit else codes

    def scales_b(self, blocks: Array, columns: Array) -> Array:
        codes = super().scales_b(blocks, columns)
        return codes & 0x78 if "b" in self.hit else codes


class ScaleForgotten(Sixth):
    """The scale factors of {operand} are not applied in the {which} K tile: they are 1."""

    wish = Wish(tiles=2)
    only = "scaled"
    needs = (SCALE, "{pattern}", LEFT_OUT + r"|ignor|\b1\b|unit|not applied", "{where}")
    half = (SCALE,)

    def setup(self) -> None:
        self.operands("a", "b")
        last = bool(self.random.integers(2))
        self.tile = self.k_tiles() - 1 if last else 0
        self.facts |= {"which": "last" if last else "first", "where": w.LAST if last else w.FIRST}

    def one_in(self, codes: Array, blocks: Array) -> Array:
        """The codes, with 1 in the K tile."""
        one = tcsim.encode(1.0, self.arithmetic.scale)
        return np.where(blocks * self.arithmetic.block // self.t.bk == self.tile, one, codes).astype(codes.dtype)

    def scales_a(self, rows: Array, blocks: Array) -> Array:
        codes = super().scales_a(rows, blocks)
        return self.one_in(codes, blocks) if "a" in self.hit else codes

    def scales_b(self, blocks: Array, columns: Array) -> Array:
        codes = super().scales_b(blocks, columns)
        return self.one_in(codes, blocks) if "b" in self.hit else codes


class PositionsOfTheFirstTile(Sixth):
    """Every K tile takes the first one's metadata."""

    wish = Wish(tiles=2)
    only = "sparse"
    needs = (METADATA, FIXED)
    half = (METADATA,)

    def positions(self, rows: Array, k: Array) -> Array:
        return super().positions(rows, k % self.bk_a)


class MetadataRowsCrossed(Sixth):
    """Rows r and r + 8 of each 16 take each other's metadata."""

    only = "sparse"
    needs = (METADATA, w.SWAPPED + "|other|wrong row", w.ROWS)
    half = (METADATA,)

    def positions(self, rows: Array, k: Array) -> Array:
        return super().positions(rows ^ 8, k)


class MetadataOfTheFirstBlock(Sixth):
    """All blocks along M take the first one's metadata."""

    wish = Wish(blocks=(2, 1))
    only = "sparse"
    needs = (METADATA, FIXED, TILE)
    half = (METADATA,)

    def positions(self, rows: Array, k: Array) -> Array:
        return super().positions(rows % self.t.bm, k)
