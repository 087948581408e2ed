"""The sixth set: the epilogue, C and the store."""

from __future__ import annotations

import numpy as np

from tests.evaluation.second_wrong_kernels import words as w
from tests.evaluation.second_wrong_kernels.kinds_sixth import (
    FACTOR,
    FIXED,
    LEFT_OUT,
    MOVED,
    NEGATIVE,
    TILE,
    UNWRITTEN,
    Sixth,
)
from tests.evaluation.second_wrong_kernels.problem import Array, Wish


class AlphaLeftIn(Sixth):
    """D is multiplied by {alpha}, the factor of another launch."""

    wish = Wish(c=False)
    floats = True
    needs = (FACTOR, "{alpha.words}|1 ?/ ?{inverse.pattern}")
    half = (FACTOR,)

    def setup(self) -> None:
        alpha = self.choose("alpha", 0.0625, 0.125, 0.25, 0.5, 2.0, 3.0, 4.0)
        self.choose("inverse", 1 / alpha)

    def epilogue(self, total: Array, rows: Array, columns: Array) -> Array:
        return total * np.float32(self.facts["alpha"])


class BetaLeftOut(Sixth):
    """The epilogue scales by alpha only: C is not added."""

    source = "NVIDIA/cutlass#461"
    wish = Wish(c=True)
    needs = (w.C, LEFT_OUT + "|ignor|beta (?:is )?0|zero")
    half = (w.C,)

    def accumulators(self, y: int, x: int, part: int) -> Array:
        return np.zeros((self.t.bm, self.t.bn), np.uint32)


class BetaWrong(Sixth):
    """C is added {beta} times."""

    wish = Wish(c=True)
    floats = True
    needs = (w.C, "{beta.words}")
    half = (w.C,)

    def setup(self) -> None:
        self.choose("beta", -1.0, 0.5, 2.0)

    def read_c(self, rows: Array, columns: Array) -> Array:
        return (super().read_c(rows, columns).view(np.float32) * np.float32(self.facts["beta"])).view(np.uint32)


class BiasOfOneLine(Sixth):
    """C is taken for a bias: the first {line} of C is added to all."""

    source = "NVIDIA/cutlass#945"
    wish = Wish(c=True)
    needs = (w.C, "{lines}", FIXED + "|broadcast|stride 0|bias|pitch 0")
    half = (w.C,)

    def setup(self) -> None:
        self.line = int(self.random.integers(2))
        self.facts |= {
            "line": ("row", "column")[self.line],
            "lines": (w.ROWS + "|pitch|stride|leading", w.COLUMNS)[self.line],
        }

    def read_c(self, rows: Array, columns: Array) -> Array:
        return super().read_c(rows if self.line else 0 * rows, 0 * columns if self.line else columns)


class BiasColumnMajor(Sixth):
    """C is read column-major."""

    source = "intel/sycl-tla#656"
    wish = Wish(c=True)
    needs = (w.C, w.TRANSPOSED)
    half = (w.C,)

    def read_c(self, rows: Array, columns: Array) -> Array:
        inside = (rows < self.p.m) & (columns < self.p.n)
        at = np.where(inside, columns * self.p.m + rows, 0)
        return np.where(inside, np.asarray(self.p.c).ravel()[at], 0).astype(np.uint32)


class LeadingDimensionOfC(Sixth):
    """The leading dimension of C is {ld}, its rows have {right}."""

    wish = Wish(c=True)
    needs = (w.C, w.PITCH, "{ld.pattern}")
    half = (w.C,)

    def setup(self) -> None:
        n = self.facts["right"] = self.p.n
        self.choose("ld", *({self.p.m, self.p.k, -(-n // 64) * 64} - {n} or {n + 8}))

    def read_c(self, rows: Array, columns: Array) -> Array:
        memory = np.asarray(self.p.c).ravel()
        at = rows * int(self.facts["ld"]) + columns
        inside = (rows < self.p.m) & (columns < self.p.n) & (at < len(memory))
        return np.where(inside, memory[np.where(inside, at, 0)], 0).astype(np.uint32)


class BiasOfTheFirstBlock(Sixth):
    """blockIdx is not in the address of C: all blocks add block (0, 0) of it."""

    wish = Wish(blocks=(2, 2), c=True)
    needs = (w.C, TILE, FIXED)
    half = (w.C,)

    def read_c(self, rows: Array, columns: Array) -> Array:
        return super().read_c(rows % self.t.bm, columns % self.t.bn)


class BiasLeftOutAtTheEdge(Sixth):
    """The predicated path of the epilogue, for blocks that go beyond D, does not add C."""

    wish = Wish(blocks=(2, 2), ragged="mn", c=True)
    needs = (w.C, LEFT_OUT + "|zero|ignor", TILE + "|edge|last|ragged")
    half = (w.C,)

    def read_c(self, rows: Array, columns: Array) -> Array:
        edge = rows.max() >= self.p.m or columns.max() >= self.p.n
        return super().read_c(rows, columns) * np.uint32(not edge)


class ReluLeftOn(Sixth):
    """The epilogue of another layer is left on: ReLU."""

    needs = (NEGATIVE,)
    half = (NEGATIVE + "|zero",)

    def epilogue(self, total: Array, rows: Array, columns: Array) -> Array:
        return np.maximum(total, 0)


class ReluBeforeBias(Sixth):
    """ReLU of the product, and C after it."""

    wish = Wish(c=True)
    floats = True
    needs = (NEGATIVE, w.C + "|before|product")
    half = (NEGATIVE,)

    def setup(self) -> None:
        self.c_late = True

    def epilogue(self, total: Array, rows: Array, columns: Array) -> Array:
        return np.maximum(total, 0) + self.values(self.read_c(rows, columns))


class ClampLeftOn(Sixth):
    """The epilogue clamps D to +-{limit}."""

    floats = True
    wish = Wish(tiles=3)
    needs = (r"clamp|clip|satur|limit|bound|cut off|at most|no larger|between", "{limit.pattern}")
    half = (r"clamp|clip|satur|limit",)

    def setup(self) -> None:
        self.choose("limit", 0.5, 1.0, 2.0, 6.0)

    def epilogue(self, total: Array, rows: Array, columns: Array) -> Array:
        limit = np.float32(self.facts["limit"])
        return np.clip(total, -limit, limit)


# The store.


class HalfOfTheTileStored(Sixth):
    """The epilogue's second half of the columns is stored over the first: its offset is left out."""

    needs = (w.COLUMNS, UNWRITTEN + "|zero|" + MOVED, TILE + "|half|columns? \\d+-\\d+")
    half = (w.COLUMNS,)

    def fragments_d(self, block: Array) -> Array:
        half = block.shape[1] // 2
        rest = np.full_like(block[:, half:], 0 if self.arithmetic.d == "s32" else self.blank)
        return np.concatenate([block[:, half:], rest], axis=1)


class StoredColumnMajor(Sixth):
    """D is stored column-major and read row-major."""

    needs = (w.D, w.TRANSPOSED)
    half = (w.D,)

    def address_of_d(self, rows: Array, columns: Array) -> Array:
        inside = (rows < self.p.m) & (columns < self.p.n)
        return np.where(inside, columns * self.p.m + rows, -1)


class OutputPitchOfTheGrid(Sixth):
    """D's leading dimension is {ld}, that of whole tiles, and should be {right}."""

    wish = Wish(blocks=(1, 2), ragged="n")
    needs = (w.D, w.PITCH + "|padd", "{ld.pattern}")
    half = (w.D, w.PITCH)

    def setup(self) -> None:
        self.facts["right"] = self.p.n
        self.ldd = int(self.choose("ld", -(-self.p.n // self.t.bn) * self.t.bn))


class VectorTailLeftOut(Sixth):
    """Stores of {width} columns at a time leave out those that do not fit: the last columns stay unwritten."""

    wish = Wish(blocks=(1, 2), ragged="n")
    needs = (w.COLUMNS, UNWRITTEN + "|zero", w.LAST + r"|columns? \d+-\d+")
    half = (w.COLUMNS + "|last",)

    def setup(self) -> None:
        self.choose("width", 8, 16)

    def inside_d(self, rows: Array, columns: Array) -> Array:
        width = int(self.facts["width"])
        return super().inside_d(rows, columns) & (columns < self.p.n // width * width)


class StoreMaskCrossed(Sixth):
    """The mask of the store compares rows with N and columns with M."""

    wish = Wish(blocks=(2, 2))
    needs = ("{pattern}", UNWRITTEN + "|zero|mask", "{extent.pattern}|mask")
    half = ("{pattern}",)

    def setup(self) -> None:
        self.facts["pattern"] = w.ROWS if self.p.m > self.p.n else w.COLUMNS
        self.choose("extent", min(self.p.m, self.p.n))

    def inside_d(self, rows: Array, columns: Array) -> Array:
        return (rows < min(self.p.n, self.p.m)) & (columns < min(self.p.m, self.p.n))


class StoreRunsIntoTheNextRow(Sixth):
    """The store has no mask along N: the last block's columns beyond D go to the start of the next rows."""

    wish = Wish(blocks=(1, 2), ragged="n")
    needs = (
        w.COLUMNS + "|" + w.ROWS,
        r"columns? 0-\d+.*zero|zero.*columns? 0-|overwr|next rows?\b|wrap|no mask|not masked|unmasked|past the (?:end|row)|"
        r"beyond (?:n\b|the (?:row|edge|matrix|output|last))|runs? (?:on|over|into)|replac",
    )
    half = (w.COLUMNS, "zero|overwr")

    def inside_d(self, rows: Array, columns: Array) -> Array:
        return rows < self.p.m
