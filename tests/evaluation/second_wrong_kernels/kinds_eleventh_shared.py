"""The eleventh set: mistakes of shared memory: pitch, swizzle, ldmatrix, TMA boxes, descriptors."""

from __future__ import annotations

import numpy as np

from tests.evaluation.second_wrong_kernels.kinds_eleventh import MOVED, Eleventh, near, place
from tests.evaluation.second_wrong_kernels.kinds_ninth import LACK, UNWRITTEN, either, everything, span
from tests.evaluation.second_wrong_kernels.problem import Array, Wish
from tests.evaluation.second_wrong_kernels.words import (
    COLUMNS,
    OFFSET,
    PITCH,
    QUARTER,
    ROWS,
    SWAPPED,
    SWIZZLE,
    TRANSPOSED,
    ZERO,
    A,
    B,
    value,
)

CHUNKS = r"\bxor|chunk|16[- ]byte|16 bytes|\b8 elements|pieces"


class LastRowsOfTheATileNotLoaded(Eleventh):
    """A's tile is copied in whole rounds of all threads, and what remains, rows {first}-{last} of every tile, is never copied."""

    source = "ROCm/FlyDSL#1007"
    needs = (place("first", "last", ROWS, r"\blast (?:8|eight)\b|\b8 rows"), either(UNWRITTEN, LACK))

    def setup(self) -> None:
        self.facts = {"first": self.t.bm - 8}

    def fragments_a(self, tile: Array) -> Array:
        loaded = tile.copy()
        loaded[-8:] = 0
        return loaded


class BWrittenWithPaddingReadWithout(Eleventh):
    """B's tile is written to shared memory with a pitch of {padded} and read with one of {bk}."""

    source = "textbook"
    styles = ("mma",)
    needs = (B, either(PITCH, r"padding|padded|shared memory"), either(value("padded"), value("bk"), r"padding|padded"))

    def setup(self) -> None:
        self.facts = {"padded": self.t.bk + self.chunk}

    def place_written(self, operand: str, row: Array, k: Array, pitch: int) -> Array:
        return row * (pitch + self.chunk * (operand == "b")) + k


class PitchOfBIsTheDepthOfTheTile(Eleventh):
    """B's tile lies in shared memory with N contiguous, {bn} a row, and is read with a pitch of {bk}, its depth along K."""

    source = "textbook"
    styles = ("mma",)
    wish = Wish(majors="km")
    needs = (B, either(PITCH, r"shared memory"), either(value("bk"), value("bn")))

    def place_written(self, operand: str, row: Array, k: Array, pitch: int) -> Array:
        return k * self.t.bn + row if operand == "b" else row * pitch + k

    def place_read(self, operand: str, row: Array, k: Array, pitch: int) -> Array:
        return k * self.t.bk + row if operand == "b" else row * pitch + k


class BoxesWithoutSwizzle(Eleventh):
    """The tensor maps of A and B have no swizzle, and the descriptors have one of 128 bytes."""

    source = "KnowingNothing/MatmulTutorial#14"
    styles = ("wgmma", "tcgen05")
    plain = True
    wish = Wish(span=128)
    needs = (either(everything(A, B), r"\bboth\b|operands"), either(SWIZZLE, CHUNKS))

    def place_read(self, operand: str, row: Array, k: Array, pitch: int) -> Array:
        return self.swizzled(row, k, pitch, 3)


class XorOfTwoBitsOnly(Eleventh):
    """A's chunks of 16 bytes are written at their number XOR the row modulo 4, and read at their number XOR the row modulo 8: in rows 4-7 of every 8, the halves of a K tile are exchanged."""

    source = "textbook"
    styles = ("mma", "wgmma")
    plain = True
    wish = Wish(span=128)
    needs = (
        either(A, ROWS),
        either(SWIZZLE, r"\bxor|64[- ]byte|64 bytes", everything(r"4-7|every 8", MOVED)),
        r"\b64\b|4-7|modulo 4|half|halves|\bbits?\b|some rows",
    )

    def place_written(self, operand: str, row: Array, k: Array, pitch: int) -> Array:
        return self.swizzled(row, k, pitch, 2 if operand == "a" else 3)

    def place_read(self, operand: str, row: Array, k: Array, pitch: int) -> Array:
        return self.swizzled(row, k, pitch, 3)


class DescriptorAdvancesHalfAStep(Eleventh):
    """A's descriptor is moved by {half} elements of K for every instruction and not by {step}: step n of a K tile begins where step n / 2 should."""

    source = "deepseek-ai/FlashMLA#67"
    styles = ("wgmma", "tcgen05")
    plain = True
    needs = (
        A,
        either(
            r"descriptor|advanc|half as far|half a step|half the",
            r"k \d+-\d+.{0,40}k \d",
            near(r"\bk\b|\bsteps?\b", OFFSET),
        ),
        either(value("half"), value("step")),
    )

    def setup(self) -> None:
        self.facts = {"half": self.arithmetic.k // 2}

    def fragments_a(self, tile: Array) -> Array:
        k = np.arange(tile.shape[1])
        return tile[:, k - k // self.arithmetic.k * (self.arithmetic.k // 2)]


class StrideOfGroupsDoubled(Eleventh):
    """The stride in B's descriptor is that of an element twice as wide: group n of 8 columns is read where group 2n lies."""

    source = "tile-ai/tilelang#2161"
    styles = ("wgmma", "tcgen05")
    plain = True
    needs = (
        either(B, COLUMNS),
        either(
            r"stride|sbo|descriptor", r"columns? \d+(?:-\d+)?.{0,40}columns? \d", everything(r"group|core matri", MOVED)
        ),
        r"16-23|group|core|stride|doubled|twice",
    )

    def place_read(self, operand: str, row: Array, k: Array, pitch: int) -> Array:
        return (row + row // 8 * 8 * (operand == "b")) * pitch + k


class SecondBoxOverTheFirst(Eleventh):
    """A's K tile is copied in two boxes, and both go to the place of the first: k {half}-{end} of the tile lie where k 0-{before} should, and the rest is never written."""

    source = "textbook"
    styles = ("wgmma", "tcgen05")
    plain = True
    needs = (
        A,
        either(r"half|halves|\bbox", span("half", "end"), value("half"), r"(?<!\d)0\s*-\s*{before}(?!\d)"),
        either(ZERO, r"overwrit|over the first|same place|\blost\b|on top"),
    )

    def setup(self) -> None:
        half = self.t.bk // 2
        self.facts = {"half": half, "end": self.t.bk - 1, "before": half - 1}

    def fragments_a(self, tile: Array) -> Array:
        half = tile.shape[1] // 2
        return np.concatenate([tile[:, half:], np.zeros_like(tile[:, half:])], 1)


class MatricesOneAndTwoCrossed(Eleventh):
    """The second and third matrix of ldmatrix.x4 are exchanged in A: rows 8-15 of the first half of a step along K, and rows 0-7 of the second half."""

    source = "textbook"
    styles = ("mma",)
    plain = True
    needs = (
        A,
        either(SWAPPED, MOVED),
        either(QUARTER, everything(r"8-15|\+ ?8\b", r"0-7|half|\bk\b"), r"order of .*registers"),
    )

    def fragments_a(self, tile: Array) -> Array:
        rows, depth = tile.shape
        parts = tile.reshape(rows // 16, 2, 8, depth // (2 * self.chunk), 2, self.chunk)
        return parts.swapaxes(1, 4).reshape(tile.shape)


class TransForgottenInLdmatrix(Eleventh):
    """B lies with N contiguous and ldmatrix is used without .trans: every 8 x 8 of B is transposed."""

    source = "textbook"
    styles = ("mma",)
    plain = True
    only = "16 bits"
    wish = Wish(majors="km")
    needs = (B, either(TRANSPOSED, r"\.trans\b"), either(QUARTER, r"\b8\b"))

    def fragments_b(self, tile: Array) -> Array:
        rows, depth = tile.shape
        return tile.reshape(rows // 8, 8, depth // 8, 8).swapaxes(1, 3).reshape(tile.shape)
