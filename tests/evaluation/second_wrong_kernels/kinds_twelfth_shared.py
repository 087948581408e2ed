"""The twelfth set: mistakes of shared memory, its pitch and swizzle, ldmatrix, TMA and descriptors."""

from __future__ import annotations

import numpy as np

from tests.evaluation.second_wrong_kernels.kinds_ninth import either, everything
from tests.evaluation.second_wrong_kernels.kinds_twelfth import (
    AGAIN,
    EXCHANGED,
    MOVED,
    SAME,
    SWIZZLED,
    Twelfth,
    both_ways,
)
from tests.evaluation.second_wrong_kernels.problem import Array, Wish
from tests.evaluation.second_wrong_kernels.words import COLUMNS, KTILE, PITCH, QUARTER, TRANSPOSED, A, B, value

FOUR = r"% ?4\b|mod(?:ulo)? 4|& ?0?x?3\b|\b(?:2|two) bits|\b64[ -]?b"
EIGHT = r"% ?8\b|mod(?:ulo)? 8|& ?0?x?7\b|\b(?:3|three) bits|\b128[ -]?b"


class PaddedRowsReadAsPacked(Twelfth):
    """A is written to shared memory with rows of {padded} elements and read with rows of {pitch}."""

    needs = (
        A,
        either(PITCH, r"\bpad|packed", everything(r"rows?\b", either(MOVED, r"drift|slip|later|earlier|further"))),
        either(value("padded"), value("chunk"), r"\bpad(?:ded|ding|s)?\b"),
    )

    def setup(self) -> None:
        self.facts = {"pitch": self.bk_a, "padded": self.bk_a + self.chunk, "chunk": self.chunk}

    def place_written(self, operand: str, row: Array, k: Array, pitch: int) -> Array:
        return super().place_written(operand, row, k, pitch + self.chunk if operand == "a" else pitch)


class BSwizzledByTheCopyAlone(Twelfth):
    """TMA writes B with the 128-byte swizzle and the descriptor has none: chunk c of row r is found at c ^ (r % 8)."""

    source = "KnowingNothing/MatmulTutorial#14"
    wish = Wish(span=128)
    needs = (
        B,
        SWIZZLED,
        r"\bonly\b|\bnot\b|without|\bno swizzle|\bnone\b|one side(?!.{0,60}(?:on|at) the other)|alone|linear|plain|un-?swizzled|undone|\bchunk(?: c)?(?:[,.;)]|\s*\Z| (?:on|at|in|when|as) )|\bmissing|"
        r"(?:is|are|holds?|found|for) .{0,20}\^ ?\(?(?:the )?(?:r|n|rows?|columns?|lines?|number)\b|xored (?:by|with)",
    )

    def place_written(self, operand: str, row: Array, k: Array, pitch: int) -> Array:
        if operand == "a":
            return super().place_written(operand, row, k, pitch)
        return self.in_lines(row, k, pitch, 3)


class SwizzleOf64ReadAs32(Twelfth):
    """A is written with the 64-byte swizzle and read with the 32-byte one: in rows 4-7 of every 8 the chunks c and c ^ 2 are exchanged."""

    source = "NVIDIA/Fuser#4918"
    wish = Wish(span=64)
    needs = (
        A,
        either(SWIZZLED, r"chunk|\bk\b"),
        either(
            everything(r"(?<!\d)64(?!\d)", r"(?<!\d)32(?!\d)"),
            everything(either(FOUR, r"& ?0?x?6"), r"% ?2\b|mod(?:ulo)? 2|& ?0?x?1\b|\b(?:1|one) bit"),
            everything(r"rows? 4-7|4 of every 8|row ?(?://|>>) ?[24]|second four|bit 2", EXCHANGED),
        ),
    )

    def place_written(self, operand: str, row: Array, k: Array, pitch: int) -> Array:
        return self.in_lines(row, k, pitch, 2)

    def place_read(self, operand: str, row: Array, k: Array, pitch: int) -> Array:
        return self.in_lines(row, k, pitch, 1 if operand == "a" else 2)


class StageOffTheSwizzleAtom(Twelfth):
    """A's stage begins 512 bytes off the 1024 of the swizzle's pattern: k 0-{last} and k {half}-{end} of every {span} are exchanged in A."""

    plain = True
    wish = Wish(span=128)
    needs = (
        either(A, B),
        either(
            SWIZZLED, r"1024|align|phase", everything(r"\bk\b|chunk", r"half|halves|\b{half}\b|\^ ?4|0-3\b.{0,20}4-7")
        ),
        either(EXCHANGED, both_ways("0-{last}", "{half}-{end}"), r"512|1024|(?:4|four) rows|phase|align|base offset"),
    )

    def setup(self) -> None:
        self.facts = {"last": self.bk_a // 2 - 1, "half": self.bk_a // 2, "end": self.bk_a - 1, "span": self.bk_a}

    def place_written(self, operand: str, row: Array, k: Array, pitch: int) -> Array:
        chunk = (k // self.chunk) ^ ((row + 4 * (operand == "a")) % 8)
        return row * pitch + chunk * self.chunk + k % self.chunk

    def place_read(self, operand: str, row: Array, k: Array, pitch: int) -> Array:
        return self.swizzled(row, k, pitch, 3)


class BDescriptorStaysInTheTile(Twelfth):
    """The descriptor of B is not advanced within a K tile: every step of {step} multiplies the first {step} of the {bk}."""

    styles = ("wgmma", "tcgen05")
    needs = (
        B,
        either(value("step"), r"\bsteps?\b|instruction|within|inside|(?:in|of) (?:a|every|each) (?:k )?tile|of every {bk}"),
        either(SAME, AGAIN, MOVED, r"first \d+|\bfirst\b"),
    )  # fmt: skip

    def fragments_b(self, tile: Array) -> Array:
        return tile[:, np.arange(tile.shape[1]) % self.arithmetic.k]


class AdvanceOfAHalved(Twelfth):
    """The descriptor of A is advanced by {half} elements a step and not by {step}: step s begins at k {half} s of the tile."""

    styles = ("wgmma", "tcgen05")
    only = "16 bits"
    needs = (
        A,
        either(value("half"), r"\bhalf\b|twice|bytes"),
        r"\bsteps?\b|advance|descriptor|starts?|begins?|overlap|\bk\b|offset|stride",
        either(MOVED, r"advance|starts?|begins?|overlap|descriptor|offset|stride|not 16|for 16|of 16"),
    )

    def setup(self) -> None:
        self.facts = {"half": self.arithmetic.k // 2}

    def fragments_a(self, tile: Array) -> Array:
        step = self.arithmetic.k
        k = np.arange(tile.shape[1])
        return tile[:, k // step * (step // 2) + k % step]


class RowBitsOfTheReadTooFew(Twelfth):
    """B is written with chunk ^ (row % 8) and read with chunk ^ (row % 4): in rows 4-7 of every 8 the chunks c and c ^ 4 are exchanged."""

    source = "NVIDIA/cutlass#3197"
    wish = Wish(span=128)
    needs = (
        B,
        either(SWIZZLED, r"chunk|\bk\b"),
        either(
            everything(FOUR, EIGHT),
            everything(
                r"4-7|4 of (?:every|each) 8|(?:row|column|line|n) ?(?://|>>) ?[24]|second four|upper four|bit 2",
                EXCHANGED,
            ),
        ),
    )

    def place_written(self, operand: str, row: Array, k: Array, pitch: int) -> Array:
        return self.swizzled(row, k, pitch, 3)

    def place_read(self, operand: str, row: Array, k: Array, pitch: int) -> Array:
        return self.swizzled(row, k, pitch, 2 if operand == "b" else 3)


class LdmatrixQuartersCrossed(Twelfth):
    """The addresses for ldmatrix.x4 put the second and third 8 x 8 matrices of A in each other's place: rows 8-15 of k 0-7 and rows 0-7 of k 8-15 of every 16 x 16."""

    styles = ("mma",)
    only = "16 bits"
    plain = True
    needs = (
        either(A, r"a1|a2"),
        either(QUARTER, everything(r"8-15", KTILE), r"16 ?(?:x|by) ?16"),
        either(EXCHANGED, MOVED, r"transpos|column by column|order|0, 2, 1"),
    )

    def fragments_a(self, tile: Array) -> Array:
        rows, k = tile.shape
        return tile.reshape(rows // 16, 2, 8, k // 16, 2, 8).transpose(0, 4, 2, 3, 1, 5).reshape(rows, k)


class LdmatrixOfBWithoutTrans(Twelfth):
    """B is contiguous along N and loaded by ldmatrix without .trans: every 8 x 8 matrix of B is transposed."""

    styles = ("mma",)
    only = "16 bits"
    plain = True
    wish = Wish(majors="km")
    needs = (
        B,
        either(r"8 ?(?:x|\xd7|by) ?8|\.trans|ldmatrix|core matri", everything(r"\b8\b", r"block|matri|square")),
        either(TRANSPOSED, r"\.trans|\bn and k\b|\bk and n\b|\(n, k\)|\(k, n\)|mirror|diagonal"),
    )

    def fragments_b(self, tile: Array) -> Array:
        rows, k = tile.shape
        return tile.reshape(rows // 8, 8, k // 8, 8).transpose(0, 3, 2, 1).reshape(rows, k)


class TmaCoordinatesOfBCrossed(Twelfth):
    """The coordinates of B's TMA copy are exchanged: the tile begins at k {bn} x and column {bk} t of B for block x and K tile t."""

    plain = True
    wish = Wish(blocks=(1, 2))
    needs = (
        B,
        either(
            everything(r"coordinate|origin|offset|ind(?:ex|ices)|place|tile|block", EXCHANGED),
            everything(either(KTILE, r"\brows?\b"), COLUMNS, either(MOVED, r"for k|tile t\b|k tile")),
        ),
    )

    def tile_b(self, y: int, x: int, tile: int | None) -> Array:
        assert tile is not None
        k = x * self.t.bn + np.arange(self.t.bk)
        return self.global_b(k[:, None], (tile * self.t.bk + np.arange(self.t.bn))[None])
