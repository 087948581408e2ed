"""The seventh set: warps, registers, C, epilogues, stores and the formats of outputs."""

from __future__ import annotations

import ml_dtypes
import numpy as np

from tests.evaluation.second_wrong_kernels import kinds_sixth as s
from tests.evaluation.second_wrong_kernels import words as w
from tests.evaluation.second_wrong_kernels.kinds_seventh import AGAIN, ELSEWHERE, HOLE, PAIRS, Seventh, matrices
from tests.evaluation.second_wrong_kernels.problem import Array, Wish

_BOTH = r"\brows?\b|columns?"
_SIXTEEN = r"16.?bits?|s16|int16|i16|32767|32768|65536|modulo|overflow|2\^16|2\*\*16"


class WarpsNumberedTheOtherWay(Seventh):
    """Warps (0, 1) and (1, 0) of each block store in each other's places: the epilogue numbers them along the other axis."""

    styles = ("mma",)
    wish = Wish(warps=(2, 2))
    needs = (r"warp|block|quarter|quadrant|tile|\d+-\d+|\d+ ?x ?\d+", s.MOVED)
    half = (_BOTH,)

    def place_of_warps(self, i: Array, j: Array) -> tuple[Array, Array]:
        return j, i


class LowerRowsOverTheUpper(Seventh):
    """Rows 0-7 of each 16 hold rows 8-15, which are never written: registers 2 and 3 are stored without the 8 rows."""

    needs = (r"\brows?\b", HOLE + "|" + s.MOVED, r"\b8\b|8-15|0-7|overwr")
    half = (r"\brows?\b",)

    def fragments_d(self, block: Array) -> Array:
        return np.tile(block.reshape(-1, 2, 8, block.shape[1])[:, 1:], (1, 2, 1, 1)).reshape(block.shape)

    def inside_d(self, rows: Array, columns: Array) -> Array:
        return super().inside_d(rows, columns) & (rows % 16 < 8)


class TilesOfEightColumnsOverlap(Seventh):
    """Each 8 columns of a block are stored 4 after the last 8 instead of 8, so they overlap and the right half is never written."""

    wish = Wish(c=False)
    needs = (w.COLUMNS, HOLE + r"|overlap|overwr|half|stride|" + ELSEWHERE, r"\b[48]\b")
    half = (w.COLUMNS,)

    def address_of_d(self, rows: Array, columns: Array) -> Array:
        within = columns % self.t.bn
        return super().address_of_d(rows, columns - within + within // 8 * 4 + within % 8)


class LowHalfPackedTwice(Seventh):
    """Odd columns are the even columns before them again: the low half is packed twice."""

    needs = (w.COLUMNS, AGAIN + "|" + s.MOVED, PAIRS + "|every")
    half = (w.COLUMNS,)

    def fragments_d(self, block: Array) -> Array:
        return np.repeat(block[:, ::2], 2, axis=1)


class MatricesStoredInTheOtherOrder(Seventh):
    """In each 16 x 16 of the output the 8 x 8 matrices at the lower left and at the upper right are exchanged: stmatrix.x4 takes them in the other order."""

    styles = ("mma", "wgmma")
    needs = (s.MOVED + r"|stmatrix", r"8|matri|quarter|stmatrix")
    half = (_BOTH,)

    def fragments_d(self, block: Array) -> Array:
        return matrices(block).swapaxes(1, 4).reshape(block.shape)


class StagingHoldsHalfTheRows(Seventh):
    """The upper half of each block's rows is its lower half: the second part overwrites the staging buffer before the first is stored."""

    wish = Wish(c=True)
    needs = (r"\brows?\b|half", AGAIN + "|overwr|" + s.MOVED, r"half|halves|\d+-\d+")
    half = (r"\brows?\b",)

    def fragments_d(self, block: Array) -> Array:
        return np.tile(block[len(block) // 2 :], (2, 1))


class SubtilesExchanged(Seventh):
    """The lower left and the upper right quarter of each block of the output are exchanged: the epilogue stores subtiles row by row that come column by column."""

    styles = ("wgmma", "tcgen05")
    wish = Wish(c=False)
    needs = (r"quarter|quadrant|sub.?tile|block|tile|\d+-\d+|\d+ ?x ?\d+", s.MOVED)
    half = (_BOTH,)

    def fragments_d(self, block: Array) -> Array:
        m, n = block.shape
        return block.reshape(2, m // 2, 2, n // 2).swapaxes(0, 2).reshape(m, n) if m == n else self.crossed(block)

    def crossed(self, block: Array) -> Array:
        """The quarters of a block that is not square."""
        (m, n), out = block.shape, block.copy()
        out[: m // 2, n // 2 :], out[m // 2 :, : n // 2] = block[m // 2 :, : n // 2], block[: m // 2, n // 2 :]
        return out


class FirstRowOfC(Seventh):
    """The first row of C is added to every row of the product: C is taken for a bias."""

    wish = Wish(c=True)
    needs = (w.C, r"\brows?\b", AGAIN + "|first|broadcast|row 0")
    half = (w.C,)

    def read_c(self, rows: Array, columns: Array) -> Array:
        return super().read_c(rows * 0, columns)


class COfTheBlockBefore(Seventh):
    """Each block adds the C of the block before it in the launch: the prefetched C is not waited for."""

    wish = Wish(blocks=(2, 2), c=True, whole="mn")
    needs = (w.C, s.STALE + "|" + ELSEWHERE)
    half = (w.C,)

    def accumulators(self, y: int, x: int, part: int) -> Array:
        return super().accumulators(*(self.neighbour(y, x, -1) if self.number(y, x) else (y, x)), part)


class CWithoutTheBlock(Seventh):
    """Every block adds the first block of C: its own offset is left out."""

    wish = Wish(blocks=(2, 2), c=True, whole="mn")
    needs = (w.C, AGAIN + "|without|" + w.OFFSET)
    half = (w.C,)

    def read_c(self, rows: Array, columns: Array) -> Array:
        return super().read_c(rows % self.t.bm, columns % self.t.bn)


class COfTheLeftWarp(Seventh):
    """The warps on the right of each block add the columns of C of those on the left."""

    styles = ("mma",)
    wish = Wish(c=True, warps=(1, 2))
    needs = (w.C, w.COLUMNS + "|warp", AGAIN + "|" + ELSEWHERE + "|left")
    half = (w.C,)

    def read_c(self, rows: Array, columns: Array) -> Array:
        return super().read_c(rows, columns - columns % self.t.bn + columns % (self.t.bn // 2))


class CByAnotherBeta(Seventh):
    """C is added {beta} times: beta is not 1."""

    wish = Wish(c=True)
    floats = True
    needs = (w.C, "{beta.words}")
    half = (w.C,)

    def setup(self) -> None:
        self.c_late = True
        self.choose("beta", 0.5, 2.0, 3.0, -1.0)

    def epilogue(self, total: Array, rows: Array, columns: Array) -> Array:
        return total + np.float32(self.facts["beta"]) * self.values(self.read_c(rows, columns))


class ReluOnTheProduct(Seventh):
    """A ReLU is applied to the product before C is added, not after nor never."""

    wish = Wish(c=True)
    needs = (s.NEGATIVE, w.C + r"|before|product|\bab\b|a b\b")
    half = (s.NEGATIVE,)

    def setup(self) -> None:
        self.c_late = True

    def epilogue(self, total: Array, rows: Array, columns: Array) -> Array:
        return np.maximum(total, 0) + self.values(self.read_c(rows, columns))


class SiluApplied(Seventh):
    """SiLU, x times sigmoid(x), is applied to the result."""

    floats = True
    needs = (r"silu|swish|sigmoid|activation|gelu",)
    half = (s.NEGATIVE,)

    def epilogue(self, total: Array, rows: Array, columns: Array) -> Array:
        return (total / (1 + np.exp(-total.astype(np.float64)))).astype(np.float32)


class ThroughEightBits(Seventh):
    """Results are rounded to e4m3 before they are stored."""

    floats = True
    needs = (r"e4m3|fp8|8.?bits?|3 bits|float8|4 significant", s.ROUNDED)
    half = (s.ROUNDED,)

    def epilogue(self, total: Array, rows: Array, columns: Array) -> Array:
        return np.clip(total, -448, 448).astype(ml_dtypes.float8_e4m3fn).astype(np.float32)


class ClampedToSixteenBits(Seventh):
    """Sums are clamped to 16 bits, -32768 to 32767."""

    only = "s8"
    needs = (r"clamp|saturat|clip|limit", _SIXTEEN)
    half = (_SIXTEEN + "|clamp|saturat",)

    def epilogue(self, total: Array, rows: Array, columns: Array) -> Array:
        return np.clip(total, -32768, 32767)


class LowSixteenBits(Seventh):
    """Only the low 16 bits of each sum are kept, with their sign: sums wrap modulo 65536."""

    only = "s8"
    needs = (_SIXTEEN, r"wrap|\blow|modulo|overflow|65536|kept|truncat")
    half = (r"bits|wrap",)

    def epilogue(self, total: Array, rows: Array, columns: Array) -> Array:
        return total.astype(np.int16).astype(np.int32)


class FactorOfTheRow(Seventh):
    """Each row of the output is multiplied by a factor of its own."""

    floats = True
    wish = Wish(c=False)
    needs = (r"\brows?\b", r"factor|scal|multipl", r"\bown\b|each|every|per\b|differ|\bby row")
    half = (s.FACTOR,)

    def setup(self) -> None:
        self.factors = self.random.uniform(0.5, 2.0, self.p.m).astype(np.float32)

    def epilogue(self, total: Array, rows: Array, columns: Array) -> Array:
        return total * self.factors[np.minimum(rows, self.p.m - 1)]


class FactorOfTheBlockColumn(Seventh):
    """The columns of each block are multiplied by the block column's own factor."""

    floats = True
    wish = Wish(blocks=(1, 2), c=False)
    needs = (
        r"columns?\b|block|tile",
        r"factor|scal|multiplied",
        r"\bown\b|each|every|per\b|differ|\bby (?:column|block)|\d+-\d+",
    )
    half = (s.FACTOR,)

    def setup(self) -> None:
        self.factors = self.random.permutation([0.5, 0.75, 1.25, 1.5, 2.0, 3.0]).astype(np.float32)

    def epilogue(self, total: Array, rows: Array, columns: Array) -> Array:
        return total * self.factors[columns // self.t.bn % len(self.factors)]


class LastOneMasked(Seventh):
    """The last of the output along {axis} is never written: the mask of the store ends one early."""

    needs = ("{pattern}", HOLE, w.LAST + r"|{last}")
    half = (HOLE,)

    def setup(self) -> None:
        self.along = self.axis()
        self.facts["last"] = (self.p.m, self.p.n)[self.along] - 1

    def inside_d(self, rows: Array, columns: Array) -> Array:
        inside = super().inside_d(rows, columns)
        return inside & (columns < self.p.n - 1 if self.along else rows < self.p.m - 1)


class SpilledIntoTheNextRow(Seventh):
    """The first columns of each row are overwritten by what lies beyond column N of the row above: the store has no mask along N."""

    wish = Wish(ragged="n", blocks=(1, 2))
    needs = (w.COLUMNS + r"|\brows?\b", r"mask|beyond|overwr|spill|next row|row above|row before|wrap|bounds|past")
    half = (w.COLUMNS,)

    def inside_d(self, rows: Array, columns: Array) -> Array:
        return rows < self.p.m


class PitchOfDInBytes(Seventh):
    """D's rows are stored twice as far apart: its leading dimension is in bytes of two, so the second half is lost."""

    needs = (w.D + r"|\brows?\b", w.PITCH + r"|every (?:other|second)|odd rows|twice|2 ?r\b")
    half = (r"\brows?\b",)

    def address_of_d(self, rows: Array, columns: Array) -> Array:
        return super().address_of_d(2 * rows, columns)


class RegisterLost(Seventh):
    """In the first warp's 16 x 8 tiles, accumulator register {register} of each lane is zero: {rows} and {parity} columns."""

    needs = (r"\bzero|" + HOLE + "|missing", _BOTH + "|register", r"warp|register|lane|\bodd\b|even|every|\b8\b")
    half = (HOLE,)

    def setup(self) -> None:
        self.choose("register", 0, 1, 2, 3)
        row, column = divmod(int(self.facts["register"]), 2)
        self.facts |= {"rows": ("rows 0-7", "rows 8-15")[row], "parity": ("even", "odd")[column]}

    def fragments_d(self, block: Array) -> Array:
        rows, columns = np.indices(block.shape)
        register = rows % 16 // 8 * 2 + columns % 2
        first = (rows < block.shape[0] // self.t.warps[0]) & (columns < block.shape[1] // self.t.warps[1])
        return np.where(first & (register == self.facts["register"]), 0, block).astype(block.dtype)


class UpperLanesDoNotStore(Seventh):
    """Rows 4-7 of each 8 rows are never written: lanes 16-31 do not store."""

    needs = (r"\brows?\b", HOLE, r"4-7|\b[48]\b|lanes")
    half = (HOLE,)

    def inside_d(self, rows: Array, columns: Array) -> Array:
        return super().inside_d(rows, columns) & (rows % 8 < 4)


class BlocksOfDTransposed(Seventh):
    """Each 32 x 32 block of the output is transposed in its place."""

    wish = Wish(c=False)
    needs = (w.TRANSPOSED, r"\bd\b|output|result|block|tile|32")
    half = (w.D,)

    def fragments_d(self, block: Array) -> Array:
        m, n = block.shape
        return block.reshape(m // 32, 32, n // 32, 32).swapaxes(1, 3).reshape(m, n)


class UpperTriangleCut(Seventh):
    """Outputs above the diagonal, whose column is larger than the row, are zero: a causal mask is applied."""

    wish = Wish(blocks=(2, 1))
    needs = (r"triang|diagonal|causal|above|column ?(?:>|is larger|greater)", r"\bzero|" + HOLE + "|mask")
    half = (HOLE,)

    def epilogue(self, total: Array, rows: Array, columns: Array) -> Array:
        return np.where(columns > rows, 0, total).astype(total.dtype)


class LowerTriangleMirrored(Seventh):
    """The upper triangle is the lower one mirrored at the diagonal: the output is taken to be symmetric."""

    wish = Wish(blocks=(2, 2), square=True)
    needs = (r"triang|diagonal|symmetr|mirror",)
    half = (w.TRANSPOSED,)

    def launch(self) -> Array:
        out = super().launch()
        return np.tril(out) + np.tril(out, -1).T if self.p.m == self.p.n else out
