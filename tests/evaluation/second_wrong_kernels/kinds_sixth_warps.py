"""The sixth set: warps, accumulators and Tensor Memory."""

from __future__ import annotations

import numpy as np

from tests.evaluation.second_wrong_kernels import words as w
from tests.evaluation.second_wrong_kernels.kinds_sixth import ALONE, FIXED, LEFT_OUT, MOVED, UNWRITTEN, Sixth
from tests.evaluation.second_wrong_kernels.kinds_sixth_tensor import DESCRIPTORS
from tests.evaluation.second_wrong_kernels.problem import Array, Wish


class WarpRowLeftOut(Sixth):
    """All warps load the first warp's part of {operand}."""

    wish = Wish(warps=(2, 2))
    styles = ("mma",)
    needs = ("{pattern}", w.WARP, FIXED)
    half = ("{pattern}", w.WARP)

    def setup(self) -> None:
        self.operands("a", "b")

    def warp_of_a(self, i: Array, j: Array) -> Array:
        return 0 * i if "a" in self.hit else i

    def warp_of_b(self, i: Array, j: Array) -> Array:
        return 0 * j if "b" in self.hit else j


class WarpLeftOutOfTheStore(Sixth):
    """The store's address lacks the warp's index along {axis}: warps overwrite each other, the rest stays unwritten."""

    wish = Wish(warps=(2, 2))
    needs = ("{pattern}", w.WARP, UNWRITTEN + "|overwr|" + FIXED)
    half = (UNWRITTEN + "|zero", w.WARP)

    def setup(self) -> None:
        self.along = self.axis() if self.t.warps[1] > 1 else 0
        self.facts |= {"axis": "MN"[self.along], "pattern": (w.ROWS, w.COLUMNS)[self.along]}

    def place_of_warps(self, i: Array, j: Array) -> tuple[Array, Array]:
        return (i, 0 * j) if self.along else (0 * i, j)


class WarpIndicesCrossed(Sixth):
    """The {where} takes warp / 2 for warp % 2: warps change places."""

    source = "NVIDIA/cutlass#3651"
    wish = Wish(warps=(2, 2))
    styles = ("mma",)
    needs = (w.WARP, MOVED)
    half = (w.WARP,)

    def setup(self) -> None:
        self.loads = bool(self.random.integers(2))
        self.facts["where"] = "load" if self.loads else "store"

    def warp_of_a(self, i: Array, j: Array) -> Array:
        return j if self.loads else i

    def warp_of_b(self, i: Array, j: Array) -> Array:
        return i if self.loads else j

    def place_of_warps(self, i: Array, j: Array) -> tuple[Array, Array]:
        return (i, j) if self.loads else (j, i)


class AccumulatorRowsCrossed(Sixth):
    """Registers d0, d1 and d2, d3 are stored in each other's rows, 8 apart."""

    styles = ("mma", "wgmma")
    needs = (w.ROWS, w.SWAPPED, r"\b8\b|rows? \d+-\d+|8 ?x|register|halves")
    half = (w.ROWS,)

    def fragments_d(self, block: Array) -> Array:
        rows, columns = block.shape
        return block.reshape(rows // 16, 2, 8, columns)[:, ::-1].reshape(block.shape)


class AccumulatorPairsCrossed(Sixth):
    """The two columns of a thread's register pair are stored in the other order."""

    styles = ("mma", "wgmma")
    needs = (w.COLUMNS, MOVED, r"pair|even|odd|neighbou?r|adjacent|\b2\b|two|columns? 0.{1,12}1\b|xor 1|\^ ?1")
    half = (w.COLUMNS,)

    def fragments_d(self, block: Array) -> Array:
        return block[:, np.arange(block.shape[1]) ^ 1]


class PairStepForgotten(Sixth):
    """A thread's two columns are at lane % 4 + (0, 1), not at lane % 4 * 2 + (0, 1): three of eight columns stay unwritten."""

    styles = ("mma", "wgmma")
    needs = (
        w.COLUMNS,
        UNWRITTEN + "|zero|" + MOVED,
        r"\b8\b|\d+ ?mod|every 8|of 8|pair|lane|thread|columns? \d|unwritten",
    )
    half = (w.COLUMNS, UNWRITTEN + "|zero|" + MOVED)

    def fragments_d(self, block: Array) -> Array:
        eights = block.reshape(-1, 8)
        stored = np.full_like(eights, 0 if self.arithmetic.d == "s32" else self.blank)
        stored[:, :5] = eights[:, [0, 2, 4, 6, 7]]
        return stored.reshape(block.shape)


class LaneQuarterOfAnotherWarp(Sixth):
    """Warps of the epilogue read the Tensor Memory lanes of {other}, 32 rows each."""

    styles = ("tcgen05",)
    needs = (r"32|quarter|lane|warp|rows? \d+-\d+", MOVED + "|" + FIXED)
    half = (w.ROWS + "|warp|quarter|lane",)

    def setup(self) -> None:
        quarters = self.t.bm // 32
        shift = int(self.random.integers(1, quarters))
        self.reads = [(q + shift) % quarters for q in range(quarters)] if self.random.random() < 0.6 else [0] * quarters
        self.facts["other"] = f"warps {self.reads}"

    def fragments_d(self, block: Array) -> Array:
        return block.reshape(-1, 32, block.shape[1])[self.reads].reshape(block.shape)


class ColumnsOfTheFirstLoad(Sixth):
    """The column address of tcgen05.ld stays: each {width} columns are the first {width} again."""

    styles = ("tcgen05",)
    needs = (w.COLUMNS, FIXED + "|" + MOVED, "{width.pattern}|columns? 0")
    half = (w.COLUMNS,)

    def setup(self) -> None:
        self.choose("width", 8, 16)

    def fragments_d(self, block: Array) -> Array:
        return block[:, np.arange(block.shape[1]) % int(self.facts["width"])]


class AccumulatorColumnOffset(Sixth):
    """tcgen05.ld begins {offset} columns behind the accumulators' first: the last columns are of another allocation, here zeros."""

    styles = ("tcgen05",)
    needs = (w.COLUMNS, w.OFFSET + "|" + MOVED, "{offset.pattern}")
    half = (w.COLUMNS, w.OFFSET)

    def setup(self) -> None:
        self.choose("offset", 4, 8, 16)

    def fragments_d(self, block: Array) -> Array:
        offset = int(self.facts["offset"])
        return np.concatenate([block[:, offset:], np.zeros_like(block[:, :offset])], axis=1)


class AccumulateOffInEveryTile(Sixth):
    """The first instruction of every K tile has accumulate off (scale-d, enable-input-d): the last K tile alone remains."""

    wish = Wish(tiles=2, c=False)
    styles = DESCRIPTORS
    needs = (
        r"\bk {start}-|\bk 0-{before}\b|accumulate|only the last|last .* (?:only|alone|remains)",
        ALONE + "|accumulate",
    )
    half = (w.KTILE, LEFT_OUT)

    def setup(self) -> None:
        start = (self.k_tiles() - 1) * self.t.bk
        self.facts |= {"start": start, "before": start - 1}

    def step(self, y: int, x: int, i: int, a: Array, b: Array, out: Array, extras: dict[str, Array]) -> Array:
        return super().step(y, x, i, a, b, np.zeros_like(out), extras)
