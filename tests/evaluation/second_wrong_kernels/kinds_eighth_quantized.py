"""The eighth set: mistakes of scale factors, of metadata, and of the types of operands."""

from __future__ import annotations

import numpy as np

import tcsim
from tests.evaluation.second_wrong_kernels.kinds_eighth import EXCHANGED, FACTOR, FROM, Eighth, either, everything
from tests.evaluation.second_wrong_kernels.problem import Array, Wish
from tests.evaluation.second_wrong_kernels.words import FIRST, KTILE, PITCH, ROWS, SAME, TRANSPOSED, A, B, value

SCALE = r"scale|\bsf|factor"
METADATA = r"metadata|position|\bindices|selector|\be\b"
STAYS = either(SAME, FIRST, "advance|stuck|block 0|tile 0")


class _Scaled(Eighth):
    only = "scaled"


class SliceOfScalesNotAdvanced(_Scaled):
    """A's scale factors are those of the first K tile in every K tile: their slice is not advanced."""

    source = "mlc-ai/TIRx-kernels#5"
    wish = Wish(tiles=3)
    needs = (SCALE, r"scale_a|scales? (?:factors? )?(?:of|for) a\b|a'?s? scale|\ba\b", STAYS)
    half = (SCALE,)

    def scales_a(self, rows: Array, blocks: Array) -> Array:
        return super().scales_a(rows, blocks % (self.t.bk // self.arithmetic.block))


class ScalesOfBByColumns(_Scaled):
    """The table of B's scale factors is read in the other order: as if those of a column followed each other."""

    source = "vllm-project/vllm#27127"
    needs = (SCALE, r"scale_b|\bb\b", either(TRANSPOSED, "other order|order|follow each other|stride|pitch|layout"))
    half = (SCALE,)

    def scales_b(self, blocks: Array, columns: Array) -> Array:
        table = self.p.extras["scale_b"]
        at = columns * table.shape[0] + blocks
        inside = (blocks < table.shape[0]) & (columns < table.shape[1])
        one = tcsim.encode(1.0, self.arithmetic.scale)
        return np.where(inside, table.ravel()[np.where(inside, at, 0)], one).astype(table.dtype)


class PitchOfScalesPadded(_Scaled):
    """A's scale factors are read with rows of {padded}, padded to a multiple of 4, where they are stored with rows of {blocks}."""

    source = "ROCm/aiter#2900"
    wish = Wish(tiles=3)
    needs = (SCALE, r"scale_a|\ba\b", either(PITCH, "padd|rows of", value("padded")))
    half = (SCALE,)

    def setup(self) -> None:
        blocks = self.p.extras["scale_a"].shape[1]
        self.facts = {"blocks": blocks, "padded": (blocks + 3) // 4 * 4}

    def scales_a(self, rows: Array, blocks: Array) -> Array:
        table = self.p.extras["scale_a"]
        at = rows * self.facts["padded"] + blocks
        inside = (rows < self.p.m) & (blocks < table.shape[1]) & (at < table.size)
        one = tcsim.encode(1.0, self.arithmetic.scale)
        return np.where(inside, table.ravel()[np.where(inside, at, 0)], one).astype(table.dtype)


class ScalesOfTheOtherEightRows(_Scaled):
    """The two rows of a thread use each other's scale factors of A: those of rows 0-7 and 8-15 of each 16 are exchanged."""

    needs = (SCALE, either(r"scale_a|\ba\b", ROWS), either(EXCHANGED, FROM), r"\b8\b|8-15|0-7|thread")
    half = (SCALE,)

    def scales_a(self, rows: Array, blocks: Array) -> Array:
        return super().scales_a(rows ^ 8, blocks)


class OneScaleForTwoBlocks(_Scaled):
    """Both operands use one scale factor for {twice} elements of K, the first of two: blocks have {block} elements."""

    needs = (
        SCALE,
        either(value("twice"), "every (?:other|second)|two blocks|first of (?:two|each pair)|pair|larger|twice"),
    )
    half = (SCALE,)

    def setup(self) -> None:
        self.facts = {"block": self.arithmetic.block, "twice": 2 * self.arithmetic.block}

    def scales_a(self, rows: Array, blocks: Array) -> Array:
        return super().scales_a(rows, blocks // 2 * 2)

    def scales_b(self, blocks: Array, columns: Array) -> Array:
        return super().scales_b(blocks // 2 * 2, columns)


class ScalesOfBAreThoseOfTheTile(_Scaled):
    """The column of the block is not added for B's scale factors: every block of {bn} columns uses those of the first."""

    wish = Wish(blocks=(1, 2), whole="n")
    needs = (
        SCALE,
        r"scale_b|\bb\b",
        either(r"column|block|tile|along n|\bn\b"),
        either(SAME, "first|not added|offset|columns 0"),
    )
    half = (SCALE,)

    def setup(self) -> None:
        self.facts = {"bn": self.t.bn}

    def scales_b(self, blocks: Array, columns: Array) -> Array:
        return super().scales_b(blocks, columns % self.t.bn)


class BiasOfTheExponentOneTooSmall(_Scaled):
    """The exponents of A's scale factors are made with a bias of 126, not 127: all products are doubled."""

    needs = (either(SCALE, FACTOR, "doubled|twice"), r"doubled|twice|(?<![\d.])2(?:\.0)?\b|\b126\b")
    half = (either(SCALE, FACTOR),)

    def scales_a(self, rows: Array, blocks: Array) -> Array:
        table = super().scales_a(rows, blocks)
        return table + 1 if self.arithmetic.scale == "ue8m0" else table


class ScalesInReverseInAWord(_Scaled):
    """The four bytes of a word of A's scale factors are taken in reverse order: K blocks 0, 1, 2, 3 use the factors of 3, 2, 1, 0."""

    source = "deepseek-ai/DeepGEMM#403"
    wish = Wish(tiles=4)
    needs = (SCALE, r"scale_a|\ba\b", either(EXCHANGED, "byte|reverse|endian"))
    half = (SCALE,)

    def scales_a(self, rows: Array, blocks: Array) -> Array:
        count = self.p.extras["scale_a"].shape[1]
        return super().scales_a(rows, np.where(blocks < count // 4 * 4, blocks ^ 3, blocks))


class ScaleOfANotApplied(_Scaled):
    """Scale factors of A of the second half of K, from block {from}, are those of blank memory: 1."""

    source = "sgl-project/sglang#37759"
    wish = Wish(tiles=4)
    needs = (
        SCALE,
        r"scale_a|\ba\b",
        either(r"\b1(?:\.0)?\b|\bone|not applied|ignor|missing|without|never|blank|not loaded"),
    )
    half = (SCALE,)

    def setup(self) -> None:
        self.facts = {"from": self.p.extras["scale_a"].shape[1] // 2}

    def scales_a(self, rows: Array, blocks: Array) -> Array:
        return super().scales_a(np.where(blocks < self.facts["from"], rows, self.p.m), blocks)


class _Sparse(Eighth):
    only = "sparse"


class MetadataOfTheOtherEightRows(_Sparse):
    """The metadata of rows 0-7 and 8-15 of each 16 are exchanged."""

    source = "NVIDIA/cutlass#1270"
    needs = (METADATA, either(EXCHANGED, FROM), r"rows|\b8\b|8-15")
    half = (METADATA,)

    def positions(self, rows: Array, k: Array) -> Array:
        return super().positions(rows ^ 8, k)


class MetadataOfTheSliceNotFound(_Sparse):
    """The metadata's offset of a slice of K is not divided: from k {from} on it is read behind its end, as positions 0 and 1."""

    source = "NVIDIA/cutlass#3625"
    wish = Wish(split=(2,), tiles=4)
    needs = (
        METADATA,
        either(value("from"), "slice|split|second half"),
        either(
            r"zero|default|offset|behind|beyond|missing|never|not loaded|0 and 1|0, ?1|0x4+|ignored|blank|slice|split"
        ),
    )
    half = (METADATA,)

    def setup(self) -> None:
        self.facts = {"from": self.slice_of(1)[0] * self.t.bk}

    def positions(self, rows: Array, k: Array) -> Array:
        return super().positions(rows, np.where(k < self.facts["from"] // 2, k, self.k_a + k))


class MetadataGroupsExchanged(_Sparse):
    """The two groups of four in each byte of the metadata are exchanged."""

    source = "pytorch/pytorch#116017"
    needs = (
        METADATA,
        either(EXCHANGED, "nibble|half-byte"),
        "group|four|nibble|byte|pair|neighbo|along k|\\b8\\b|\\bk\\b",
    )
    half = (METADATA,)

    def positions(self, rows: Array, k: Array) -> Array:
        return super().positions(rows, k ^ 2)


class MetadataOfTheNextTile(_Sparse):
    """Metadata are prefetched one K tile too early: each tile of A is spread by the metadata of the next."""

    wish = Wish(tiles=3, whole="k")
    needs = (METADATA, either("next|one (?:k )?tile|ahead|shift|offset|too early|later|stage|prefetch|k tile"))
    half = (METADATA,)

    def positions(self, rows: Array, k: Array) -> Array:
        return super().positions(rows, k + self.bk_a)


class DenseAdvancesLikeCompressed(_Sparse):
    """B's pointer along K advances by {half} in each tile, as that of compressed A: tiles of B of {bk} overlap by half."""

    wish = Wish(tiles=3)
    needs = (
        B,
        either(
            everything(KTILE, either(value("half"), r"overlap|half|\bstep|advance|stride")),
            everything("advance|step|stride", value("half")),
        ),
    )
    half = (either(B, KTILE),)

    def setup(self) -> None:
        self.facts = {"half": self.t.bk // 2, "bk": self.t.bk}

    def k_of_b(self, tile: int) -> Array:
        return tile * self.t.bk // 2 + np.arange(self.t.bk)


class CompressedHalvesExchanged(_Sparse):
    """The two halves of A, compressed, are exchanged in each K tile, and their metadata are not."""

    needs = (A, either(EXCHANGED, FROM), either(KTILE, "compress|half|halves|tile"))
    half = (either(A, METADATA),)

    def fragments_a(self, tile: Array) -> Array:
        return np.roll(tile, tile.shape[1] // 2, axis=1)


class E5m2ForE4m3(Eighth):
    """The instruction takes A's e4m3 for e5m2."""

    only = "e4m3"
    plain = True
    narrow = False
    styles = ("mma", "wgmma")
    needs = (either(A, r"\be4m3"), "e5m2")
    half = ("e5m2|type|format",)

    def instruction(self) -> str:
        name = super().instruction()
        return name.replace(".e4m3.", ".e5m2.", 1)


class F16ForBf16(Eighth):
    """Operands are bf16, and the instruction multiplies them as f16."""

    only = "bf16"
    plain = True
    narrow = False
    styles = ("mma", "wgmma")
    needs = (r"(?<!b)(?:f16|fp16|float16|half)", "type|format|as|read|taken|interpret|instruction|mma")
    half = ("type|format|f16",)

    def instruction(self) -> str:
        return super().instruction().replace("bf16", "f16")


class SignOfBytesLost(Eighth):
    """The instruction takes A's s8 for u8: negative elements are 256 too large."""

    only = "s8"
    styles = ("mma",)
    needs = (either(A, r"\bs8\b"), r"\bu8\b|unsigned|uint8|256")
    half = (r"type|format|sign",)

    def instruction(self) -> str:
        return super().instruction().replace(".s8.s8.", ".u8.s8.")


class HighBitsOfTf32Twice(Eighth):
    """Operands of a 3xTF32 product are not split: the big part of A is added a second time in place of the small one, which doubles the product."""

    only = "tf32"
    plain = True
    wish = Wish(c=False)
    needs = (r"doubled?s?\b|twice|again|second time|(?<![\d.])2(?:\.0)?\b", either(FACTOR, "twice|double|again|added"))
    half = (either(FACTOR, "twice|double"),)

    def multiply(self, a: Array, b: Array, c: Array, extras: dict[str, Array]) -> Array:
        return super().multiply(a, b, super().multiply(a, b, c, extras), extras)
