"""The fifth set: bias, scale of attention scores, halves of weights, staging and stores. At the end, right kernels."""

from __future__ import annotations

import numpy as np

from tests.evaluation.second_wrong_kernels import words as w
from tests.evaluation.second_wrong_kernels.kinds_fifth import MOVED, Fifth, Right
from tests.evaluation.second_wrong_kernels.problem import Array, Wish


class GateAndUpSwapped(Fifth):
    """The kernel expects the weights of gate before those of up, and has them the other way: B's halves are exchanged."""

    source = "sgl-project/sglang#32430"
    needs = (w.COLUMNS + "|" + w.B, MOVED + r"|(?:shift|offset|moved)[^\n]{0,20}\b{width}\b")
    half = (w.COLUMNS,)

    def setup(self) -> None:
        self.facts["width"] = self.p.n // 2

    def columns_of_b(self, y: int, x: int) -> Array:
        columns = super().columns_of_b(y, x)
        return np.where(columns < self.p.n, (columns + self.p.n // 2) % self.p.n, columns)


class StoredTransposed(Fifth):
    """Operands are swapped for a small M, and the output is left as D's transpose."""

    source = "sgl-project/sglang#15763"
    needs = (w.D, w.TRANSPOSED)
    half = (w.D,)

    def address_of_d(self, rows: Array, columns: Array) -> Array:
        return columns * self.p.m + rows


class StagingOverwritten(Fifth):
    """The epilogue stages a quarter of the block's columns at a time, and overwrites it before its store has read it."""

    source = "tile-ai/TileOPs#1550"
    rare = True
    needs = (w.COLUMNS, w.SAME + "|next|overwrit|ahead|shift|offset|hold|contain|taken|stored from")
    half = (w.COLUMNS,)

    def fragments_d(self, block: Array) -> Array:
        quarters = block.reshape(block.shape[0], 4, -1)
        return quarters[:, [1, 2, 3, 3]].reshape(block.shape)


class BiasOfOneRow(Fifth):
    """C is read with a row stride of zero: its first row is added to every row."""

    source = "NVIDIA/cutlass#1459"
    wish = Wish(c=True)
    needs = (w.C, w.SAME + r"|first row|row 0|stride (?:of )?(?:0|zero)|one row")
    half = (w.C,)

    def read_c(self, rows: Array, columns: Array) -> Array:
        return super().read_c(rows * 0, columns)


class ScoreScaledOnceMore(Fifth):
    """The scale of attention scores, {factor}, is multiplied in once more."""

    source = "BobMcDear/attorch#14"
    floats = True
    wish = Wish(c=False)
    needs = (r"scal|factor|alpha|times|ratio|\bx\b|\*", "{digits}")
    half = (r"scal|factor|alpha|times|ratio",)

    def setup(self) -> None:
        self.factor, self.facts["digits"] = (
            (0.125, r"0?\.125|1/8"),
            (128**-0.5, r"0?\.088|8\.8\d*e-0?2|1/11\.3"),
            (float(np.log2(np.e)), r"1\.44|log2"),
        )[int(self.random.integers(3))]
        self.facts["factor"] = round(self.factor, 4)

    def epilogue(self, total: Array, rows: Array, columns: Array) -> Array:
        return total * np.float32(self.factor)


# Right kernels.


class RaggedOnAllSides(Right):
    """A plain kernel; M, N and K are not multiples of the tile."""

    wish = Wish(blocks=(2, 2), ragged="mnk")


class SlicesFromTheLast(Right):
    """The slices of split-K are added from the last to the first."""

    wish = Wish(split=(2, 3, 4), tiles=3)

    def combine(self, partials: list[Array], y: int, x: int) -> Array:
        return super().combine(partials[::-1], y, x)


class UnevenSlices(Right):
    """Stream-K: a tile's first K tile is another CTA's, and fixed up in the workspace."""

    wish = Wish(split=(2,), tiles=3)

    def slice_of(self, part: int) -> list[int]:
        return [[0], list(range(1, self.k_tiles()))][part]


class SlicesAsTheyCome(Right):
    """Slices are added atomically, in another order for every tile."""

    wish = Wish(split=(3, 4), tiles=3)

    def combine(self, partials: list[Array], y: int, x: int) -> Array:
        return super().combine([partials[i] for i in self.random.permutation(len(partials))], y, x)


class TilesInGroups(Right):
    """A persistent kernel takes tiles column by column."""

    wish = Wish(blocks=(2, 2))

    def blocks(self) -> list[tuple[int, int]]:
        return sorted(super().blocks(), key=lambda tile: (tile[1], tile[0]))


class SwizzledOnBothSides(Right):
    """Chunks are XORed with the row, when written and when read."""

    def place_written(self, operand: str, row: Array, k: Array, pitch: int) -> Array:
        chunk, within, count = self.chunks(k, pitch)
        return row * pitch + (chunk ^ row % count) * self.chunk + within

    place_read = place_written


class PaddedOnBothSides(Right):
    """Rows in shared memory are padded by 16 bytes, when written and when read."""

    def place_written(self, operand: str, row: Array, k: Array, pitch: int) -> Array:
        return row * (pitch + self.chunk) + k

    place_read = place_written


class SourceAddedLast(Right):
    """C is added in the epilogue."""

    wish = Wish(c=True)

    def setup(self) -> None:
        self.c_late = True

    def epilogue(self, total: Array, rows: Array, columns: Array) -> Array:
        return total + self.values(self.read_c(rows, columns))


class PromotedEveryTile(Right):
    """The sums of fp8 products are added to other registers after every K tile."""

    floats = True
    plain = True
    only = "8 bits"

    def step(self, y: int, x: int, i: int, a: Array, b: Array, out: Array, extras: dict[str, Array]) -> Array:
        fresh = self.values(self.multiply(a, b, np.zeros_like(out), extras))
        return np.asarray(self.values(out) + fresh).view(np.uint32)


class KFromTheEnd(Right):
    """The K loop runs from the last tile to the first."""

    def slice_of(self, part: int) -> list[int]:
        return super().slice_of(part)[::-1]


class OperandsSwapped(Right):
    """D's transpose is computed from B's and A's, and stored as D."""

    plain = True
    only = "same types"

    def multiply(self, a: Array, b: Array, c: Array, extras: dict[str, Array]) -> Array:
        return self.gemm(b.T, a.T, c.T).T


class OutputRoundedOnce(Right):
    """The output is f16, rounded once."""

    floats = True

    def setup(self) -> None:
        self.output = "f16"
