"""The twelfth set: mistakes of sparse and block-scaled operands and of their formats."""

from __future__ import annotations

from tests.evaluation.second_wrong_kernels.kinds_eleventh import META
from tests.evaluation.second_wrong_kernels.kinds_ninth import SCALES, either, everything
from tests.evaluation.second_wrong_kernels.kinds_twelfth import (
    AGAIN,
    EXCHANGED,
    LACK,
    MOVED,
    SAME,
    TAIL,
    Twelfth,
    both_ways,
    lines,
)
from tests.evaluation.second_wrong_kernels.problem import Array, Wish
from tests.evaluation.second_wrong_kernels.words import KTILE, A, B, value


class ScalesOfTheFirstTileForAll(Twelfth):
    """The scale factors are not advanced along K: those of the first K tile, k 0-{end}, are used for every one."""

    source = "mlc-ai/TIRx-kernels#5"
    only = "scaled"
    needs = (
        SCALES,
        r"\bfirst\b|k 0\b|(?:tile|slice) 0|not (?:advanced|moved)|never (?:advance|move)|no advance|every (?:k )?tile",
        either(SAME, MOVED, AGAIN, r"advance"),
    )

    def setup(self) -> None:
        self.facts = {"end": self.t.bk - 1}

    def extras(self, y: int, x: int, tile: int) -> dict[str, Array]:
        return super().extras(y, x, 0)


class ScaleOfBForTwoGroups(Twelfth):
    """A scale factor of B is taken for {wide} elements of K and not for {block}: every second one is the one before."""

    source = "vllm-project/vllm-xpu-kernels#553"
    only = "scaled"
    needs = (
        everything(SCALES, either(B, r"scale_b|\bsfb\b")),
        either(
            value("wide"), r"pairs?\b|every (?:second|other)|\bodd|\beven|twice|two (?:groups|blocks)|// ?2|2 ?\(?j"
        ),
        either(SAME, MOVED, AGAIN, r"group|block|wide|span|cover|elements"),
    )

    def setup(self) -> None:
        self.facts = {"block": self.arithmetic.block, "wide": 2 * self.arithmetic.block}

    def scales_b(self, blocks: Array, columns: Array) -> Array:
        return super().scales_b(blocks // 2 * 2, columns)


class FractionOfScalesDropped(Twelfth):
    """The scale factors lose their mantissa: each is rounded down to a power of two."""

    source = "sgl-project/sglang#39193"
    only = "e2m1"
    needs = (
        SCALES,
        r"mantissa|fraction|powers? of (?:two|2)|1\.25|1\.5\b|exponents?|e8m0|rounded down|truncat|& ?0xf8|low(?:er|est)? (?:3|three) bits",
    )

    def scales_a(self, rows: Array, blocks: Array) -> Array:
        return super().scales_a(rows, blocks) & 0xF8

    def scales_b(self, blocks: Array, columns: Array) -> Array:
        return super().scales_b(blocks, columns) & 0xF8


class NibblesOfACrossed(Twelfth):
    """The two e2m1 of every byte of A are unpacked in the wrong order: k 2 j and 2 j + 1 are exchanged in A."""

    source = "sgl-project/sglang#23625"
    only = "e2m1"
    needs = (
        either(A, B),
        r"nibble|pairs?\b|\beven|\bodd|\b2 ?j|low|high|adjacent|\^ ?1|0, 1|1, 0|neighbou?r|byte",
        either(EXCHANGED, both_ways("0", "1"), r"wrong order|1, 0"),
    )

    def fragments_a(self, tile: Array) -> Array:
        return tile.reshape(len(tile), -1, 2)[..., ::-1].reshape(tile.shape)


class MetadataEightRowsOff(Twelfth):
    """The metadata of rows r and r + 8 of every 16 are exchanged."""

    source = "NVIDIA/cutlass#225"
    only = "sparse"
    needs = (
        META,
        r"\b8\b|8-15|eight|halves|interleav|reorder",
        either(EXCHANGED, MOVED, r"(?:of|from) row|not reordered|interleav"),
    )

    def positions(self, rows: Array, k: Array) -> Array:
        return super().positions(rows ^ 8, k)


class SparseStepsRoundedDown(Twelfth):
    """K is divided by the {step} of a sparse instruction and rounded down: k {from}-{to} is not added."""

    source = "tile-ai/tilelang#2605"
    only = "sparse"
    wish = Wish(ragged="k")
    needs = (lines(KTILE, TAIL), LACK)

    def setup(self) -> None:
        self.facts = {"from": self.p.k // self.arithmetic.k * self.arithmetic.k, "to": self.p.k - 1}

    def inside_a(self, rows: Array, k: Array) -> Array:
        return super().inside_a(rows, k) & (k * self.thin < self.p.k // self.arithmetic.k * self.arithmetic.k)
