"""Mistakes of the epilogue: places of accumulators, C, factors, functions, types of the output."""

from __future__ import annotations

import ml_dtypes
import numpy as np

from tests.evaluation.second_wrong_kernels import words as w
from tests.evaluation.second_wrong_kernels.kernel import Kernel
from tests.evaluation.second_wrong_kernels.problem import Array, Wish

# Where an accumulator goes.


class LowerRowsForgotten(Kernel):
    """c2 and c3 are stored to row g, not g + 8."""

    needs = (w.ROWS, r"\b8\b|8-15|\+ ?8", w.SAME + "|" + w.ZERO + "|" + w.OFFSET)
    half = (w.ROWS,)

    def address_of_d(self, rows: Array, columns: Array) -> Array:
        return super().address_of_d(rows - (rows & 8), columns)


class PairsSwapped(Kernel):
    """c0 and c1 (two columns) are stored in each other's place."""

    wish = Wish(whole="n")
    needs = (w.COLUMNS, w.SWAPPED)
    half = (w.COLUMNS,)

    def address_of_d(self, rows: Array, columns: Array) -> Array:
        return super().address_of_d(rows, columns ^ 1)


class ColumnOfTheLane(Kernel):
    """The column is lane % 4, not 2 (lane % 4): pairs overlap."""

    needs = (w.COLUMNS, "lane|overlap|overwr|" + w.SAME + "|" + w.ZERO)
    half = (w.COLUMNS,)

    def address_of_d(self, rows: Array, columns: Array) -> Array:
        return super().address_of_d(rows, columns - columns % 8 + columns % 8 // 2 + columns % 2)


class C1AndC2(Kernel):
    """The registers c1 and c2 are stored in each other's place."""

    wish = Wish(whole="mn")
    needs = (r"register|c1|c2|8 ?x|accumulator|fragment|lane|rows", w.SWAPPED)
    half = (w.D,)

    def fragments_d(self, block: Array) -> Array:
        out = block.reshape(len(block) // 16, 2, 8, block.shape[1] // 2, 2).copy()
        out[:, 0, :, :, 1], out[:, 1, :, :, 0] = out[:, 1, :, :, 0].copy(), out[:, 0, :, :, 1].copy()
        return out.reshape(block.shape)


class TilesOfDTransposed(Kernel):
    """The epilogue takes lane / 4 for the column: each 8 x 8 of the output is transposed."""

    wish = Wish(whole="mn")
    needs = ("transpos", r"8 ?x ?8|8x|of 8|each|block|tile")
    half = (w.D,)

    def fragments_d(self, block: Array) -> Array:
        rows, columns = block.shape
        return block.reshape(rows // 8, 8, columns // 8, 8).swapaxes(1, 3).reshape(block.shape)


class HalfOfTheColumnsStored(Kernel):
    """The epilogue's loop covers half of the tile's columns."""

    needs = (w.COLUMNS, w.ZERO)
    half = (w.COLUMNS + "|" + w.D,)

    def inside_d(self, rows: Array, columns: Array) -> Array:
        return super().inside_d(rows, columns) & (columns % self.t.bn < self.t.bn // 2)


class RightHalfFromTheLeft(Kernel):
    """The index of the accumulators is taken modulo half: the right half of each tile repeats the left."""

    needs = (w.COLUMNS + "|half", w.SAME)
    half = (w.COLUMNS,)

    def fragments_d(self, block: Array) -> Array:
        half = block.shape[1] // 2
        return np.concatenate([block[:, :half], block[:, :half]], axis=1)


class StoredOneRowLow(Kernel):
    """Rows of the output are stored one too far down (the epilogue's row begins at 1)."""

    needs = (w.ROWS, w.OFFSET + r"|one row|by 1|\b1\b")
    half = (w.ROWS,)

    def address_of_d(self, rows: Array, columns: Array) -> Array:
        return super().address_of_d(rows + 1, columns)


# C.


class CForgotten(Kernel):
    """beta is 0: C is not added."""

    wish = Wish(c=True)
    needs = (w.C, w.MISSING + "|zero|beta")
    half = (w.C,)

    def read_c(self, rows: Array, columns: Array) -> Array:
        return super().read_c(rows, columns) * np.uint32(0)


class CTwice(Kernel):
    """The accumulators start from C, and the epilogue adds it again."""

    wish = Wish(c=True)
    needs = (w.C, w.TWICE + r"|\b2\b")
    half = (w.C,)

    def epilogue(self, total: Array, rows: Array, columns: Array) -> Array:
        return total + self.values(self.read_c(rows, columns))


class CSubtracted(Kernel):
    """C is subtracted."""

    wish = Wish(c=True)
    needs = (w.C, r"subtract|negat|minus|-1|sign")
    half = (w.C,)

    def read_c(self, rows: Array, columns: Array) -> Array:
        own = self.values(super().read_c(rows, columns))
        return (-own).view(np.uint32)


class CTransposed(Kernel):
    """C is read column-major."""

    wish = Wish(c=True, square=True)
    needs = (w.C, w.TRANSPOSED)
    half = (w.C,)

    def read_c(self, rows: Array, columns: Array) -> Array:
        return super().read_c(columns, rows)


class PitchOfC(Kernel):
    """C is read with a leading dimension that is {by} more than the matrix has."""

    wish = Wish(c=True, blocks=(1, 2))
    needs = (w.C, w.PITCH)
    half = (w.C,)

    def setup(self) -> None:
        self.facts["by"] = int(self.random.choice([-8, 4, 8, 16]))

    def read_c(self, rows: Array, columns: Array) -> Array:
        if self.p.c is None:
            return super().read_c(rows, columns)
        address = rows * (self.p.n + self.facts["by"]) + columns
        inside = (rows < self.p.m) & (columns < self.p.n) & (address < self.p.c.size)
        return np.where(inside, self.p.c.ravel()[np.where(inside, address, 0)], 0).astype(np.uint32)


class COfTheFirstBlock(Kernel):
    """Every block reads the C of the first block."""

    wish = Wish(c=True, blocks=(2, 2), whole="mn")
    needs = (w.C, w.BLOCK, w.SAME)
    half = (w.C,)

    def read_c(self, rows: Array, columns: Array) -> Array:
        return super().read_c(rows % self.t.bm, columns % self.t.bn)


class CAsOneRow(Kernel):
    """C is read with leading dimension 0, as if it were a bias: row 0 for all rows."""

    wish = Wish(c=True)
    needs = (w.C, w.ROWS, w.SAME + r"|\b0\b|bias")
    half = (w.C,)

    def read_c(self, rows: Array, columns: Array) -> Array:
        return super().read_c(rows * 0, columns)


# Factors and functions.


class AlphaOnAll(Kernel):
    """The whole sum, C included, is multiplied by alpha = {alpha}."""

    floats = True
    needs = (r"alpha|scale|factor|times|multipl|ratio", w.value("alpha"))
    half = (r"alpha|scale|factor|times|ratio",)

    def setup(self) -> None:
        self.facts["alpha"] = float(self.random.choice([0.5, 2.0, 1.5, 0.125, 3.0]))

    def epilogue(self, total: Array, rows: Array, columns: Array) -> Array:
        return total * np.float32(self.facts["alpha"])


class AlphaOnTheProduct(Kernel):
    """alpha = {alpha} multiplies the product only: alpha a b + c."""

    wish = Wish(c=True)
    floats = True
    needs = (r"alpha|scale|factor|times|multipl", w.value("alpha"))
    half = (r"alpha|scale|factor|times|ratio",)

    def setup(self) -> None:
        self.c_late = True
        self.facts["alpha"] = float(self.random.choice([0.5, 2.0, 1.5, 0.25]))

    def epilogue(self, total: Array, rows: Array, columns: Array) -> Array:
        return total * np.float32(self.facts["alpha"]) + self.values(self.read_c(rows, columns))


class BetaOnC(Kernel):
    """C is multiplied by beta = {beta}."""

    wish = Wish(c=True)
    floats = True
    needs = (w.C, w.value("beta"))
    half = (w.C,)

    def setup(self) -> None:
        self.c_late = True
        self.facts["beta"] = float(self.random.choice([0.5, 3.0, 0.25, 1.5]))

    def epilogue(self, total: Array, rows: Array, columns: Array) -> Array:
        return total + np.float32(self.facts["beta"]) * self.values(self.read_c(rows, columns))


class ReluApplied(Kernel):
    """The epilogue has a ReLU that nobody asked for."""

    needs = (r"relu|max\(|negative .*zero|clamp",)
    half = (r"zero|negative",)

    def epilogue(self, total: Array, rows: Array, columns: Array) -> Array:
        return np.maximum(total, 0)


class ReluBeforeC(Kernel):
    """ReLU is applied to the product, and C is added after it."""

    wish = Wish(c=True)
    needs = (r"relu|max\(", w.C + "|before")
    half = (r"relu|max\(|" + w.C,)

    def setup(self) -> None:
        self.c_late = True

    def epilogue(self, total: Array, rows: Array, columns: Array) -> Array:
        return np.maximum(total, 0) + self.values(self.read_c(rows, columns))


class ScaledByRow(Kernel):
    """Each row is multiplied by a factor of its own (a dequantisation by rows)."""

    wish = Wish(c=False)
    floats = True
    needs = (w.ROWS, r"scal|factor|ratio|multipl")
    half = (r"scal|factor|ratio",)

    def setup(self) -> None:
        self.factors = self.random.uniform(0.25, 4, (self.p.m + 256, 1)).astype(np.float32)

    def epilogue(self, total: Array, rows: Array, columns: Array) -> Array:
        return total * self.factors[rows[:, 0]]


class ScaledByColumn(Kernel):
    """Each column is multiplied by a factor of its own."""

    wish = Wish(c=False)
    floats = True
    needs = (w.COLUMNS, r"scal|factor|ratio|multipl")
    half = (r"scal|factor|ratio",)

    def setup(self) -> None:
        self.factors = self.random.uniform(0.25, 4, (1, self.p.n + 256)).astype(np.float32)

    def epilogue(self, total: Array, rows: Array, columns: Array) -> Array:
        return total * self.factors[:, columns[0]]


class BiasByColumn(Kernel):
    """A bias that is not among the operands is added to each column."""

    wish = Wish(c=False)
    floats = True
    needs = (w.COLUMNS, r"bias|constant|added|addend|plus|offset")
    half = (r"bias|constant|added|addend|plus|offset",)

    def setup(self) -> None:
        self.bias = (self.random.standard_normal((1, self.p.n + 256)) * 4).astype(np.float32)

    def epilogue(self, total: Array, rows: Array, columns: Array) -> Array:
        return total + self.bias[:, columns[0]]


# Types of the output.


class ThroughHalf(Kernel):
    """The result passes a 16-bit type on its way to f32 (a staging buffer of the wrong type): {type}."""

    floats = True
    narrow = False
    needs = (r"round|precision|convert|passed|{type}", "{type}")
    half = (r"round|precision|convert",)

    def setup(self) -> None:
        self.facts["type"] = str(self.random.choice(["f16", "bf16"]))

    def epilogue(self, total: Array, rows: Array, columns: Array) -> Array:
        with np.errstate(over="ignore"):
            return total.astype(np.float16 if self.facts["type"] == "f16" else ml_dtypes.bfloat16).astype(np.float32)


class TruncatedToBf16(Kernel):
    """bf16 outputs are made by cutting off the low half of f32."""

    floats = True
    wish = Wish(integers=False)
    needs = (r"truncat|toward zero|rz\b|cut",)
    half = (r"round|bf16",)

    def setup(self) -> None:
        self.output = "bf16"

    def epilogue(self, total: Array, rows: Array, columns: Array) -> Array:
        return (total.astype(np.float32).view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32)


class StagedOutputOneRowBehind(Kernel):
    """The staging buffer of the epilogue is stored before all warps have written it: the last rows of a tile are the tile before's."""

    wish = Wish(blocks=(2, 1), whole="m")
    needs = (w.ROWS + "|" + w.BLOCK, w.SAME + "|" + w.STALE + "|" + w.ZERO)
    half = (w.ROWS + "|" + w.BLOCK,)

    def setup(self) -> None:
        self.before: Array | None = None

    def fragments_d(self, block: Array) -> Array:
        out = block.copy()
        out[-len(out) // 4 :] = 0 if self.before is None else self.before[-len(out) // 4 :]
        self.before = block
        return out
