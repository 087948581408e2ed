"""The fifth set: shared memory, ldmatrix, descriptors, accumulators, warps and Tensor Memory."""

from __future__ import annotations

import numpy as np

from tests.evaluation.second_wrong_kernels import words as w
from tests.evaluation.second_wrong_kernels.kinds_fifth import MOVED, Fifth
from tests.evaluation.second_wrong_kernels.problem import Array, Wish

# Shared memory.


class PadOnOneSide(Fifth):
    """Rows of {operand} in shared memory are padded by 16 bytes for the {side} alone."""

    source = "deepspeedai/DeepSpeed#8055"
    needs = ("{pattern}", w.PITCH + "|padd")
    half = (w.PITCH + "|padd",)

    def setup(self) -> None:
        self.padded = self.one_operand()
        self.side = self.facts["side"] = str(self.random.choice(["writer", "reader"]))

    def place_written(self, operand: str, row: Array, k: Array, pitch: int) -> Array:
        wider = operand == self.padded and self.side == "writer"
        return super().place_written(operand, row, k, pitch + self.chunk * wider)

    def place_read(self, operand: str, row: Array, k: Array, pitch: int) -> Array:
        wider = operand == self.padded and self.side == "reader"
        return super().place_read(operand, row, k, pitch + self.chunk * wider)


class XorOfOtherRowBits(Fifth):
    """Chunks of {operand} are written at chunk ^ (row / 2) and read at chunk ^ row."""

    source = "NVIDIA/cutlass#1396"
    styles = ("mma",)
    needs = ("{pattern}", w.SWIZZLE + "|xor|chunk|16.bytes?")
    half = (w.SWIZZLE + "|xor|chunk",)

    def setup(self) -> None:
        self.swizzled = self.one_operand()

    def xored(self, operand: str, row: Array, k: Array, pitch: int, bits: Array) -> Array:
        """The place of element k if its chunk is XORed with these bits of the row."""
        chunk, within, count = self.chunks(k, pitch)
        return row * pitch + np.where(operand == self.swizzled, chunk ^ bits % count, chunk) * self.chunk + within

    def place_written(self, operand: str, row: Array, k: Array, pitch: int) -> Array:
        return self.xored(operand, row, k, pitch, row // 2)

    def place_read(self, operand: str, row: Array, k: Array, pitch: int) -> Array:
        return self.xored(operand, row, k, pitch, row)


class SwizzleInTheDescriptorAlone(Fifth):
    """The descriptors say 128-byte swizzle; the tensor maps of A and B say none."""

    source = "flashinfer-ai/flashinfer#975"
    styles = ("wgmma", "tcgen05")
    wish = Wish(span=128, majors="kk")
    needs = (w.A + "|both|operands", w.B + "|both|operands", w.SWIZZLE)
    half = (w.SWIZZLE,)

    def place_read(self, operand: str, row: Array, k: Array, pitch: int) -> Array:
        chunk, within, _ = self.chunks(k, pitch)
        return row * pitch + (chunk ^ row % 8) * self.chunk + within


class ByteOffsetsSwapped(Fifth):
    """The leading and the stride byte offset of {operand}'s descriptor are each in the other's field (no swizzle)."""

    source = "KnowingNothing/MatmulTutorial#10"
    styles = ("wgmma", "tcgen05")
    wish = Wish(majors="kk")
    needs = (
        "{pattern}",
        r"lbo|sbo|leading|stride|byte offset|core matri|8 ?x ?8|8 rows|swap|exchang|interchang|permut",
    )
    half = (r"lbo|sbo|byte offset|core matri",)

    def setup(self) -> None:
        self.wrong = self.one_operand()

    def place(self, row: Array, k: Array, strides: tuple[int, int], step: int) -> Array:
        """Element k of a row. strides: core matrices from 8 rows to the next 8 and from a chunk to the next; step: from an instruction to the next."""
        chunk, within, _ = self.chunks(k, 0)
        core = row // 8 * strides[0] + chunk % 2 * strides[1] + chunk // 2 * step
        return (core * 8 + row % 8) * self.chunk + within

    def place_written(self, operand: str, row: Array, k: Array, pitch: int) -> Array:
        return self.place(row, k, (pitch // self.chunk, 1), 2)

    def place_read(self, operand: str, row: Array, k: Array, pitch: int) -> Array:
        strides = (pitch // self.chunk, 1)
        return self.place(row, k, strides[::-1] if operand == self.wrong else strides, 2)


class StartAddressFixed(Fifth):
    """The start address of {operand}'s descriptor does not move within a tile: every instruction reads its first k."""

    source = "triton-lang/triton#6220"
    styles = ("wgmma", "tcgen05")
    needs = ("{pattern}", w.SAME)
    half = (w.SAME,)

    def setup(self) -> None:
        self.stuck = self.one_operand()

    def first(self, operand: str, tile: Array) -> Array:
        """The k that every instruction reads."""
        return tile[:, np.arange(tile.shape[1]) % self.arithmetic.k] if operand == self.stuck else tile

    def fragments_a(self, tile: Array) -> Array:
        return self.first("a", tile)

    def fragments_b(self, tile: Array) -> Array:
        return self.first("b", tile)


# ldmatrix.


class TransForgotten(Fifth):
    """B lies in shared memory as K x N and is loaded by ldmatrix without .trans: its 8 x 8 matrices are transposed."""

    styles = ("mma",)
    plain = True
    only = "16 bits"
    wish = Wish(majors="km")
    needs = (w.B, w.TRANSPOSED, w.QUARTER)
    half = (w.B,)

    def fragments_b(self, tile: Array) -> Array:
        n, k = tile.shape
        return tile.reshape(n // 8, 8, k // 8, 8).swapaxes(1, 3).reshape(n, k)


class MiddleMatricesSwapped(Fifth):
    """ldmatrix.x4 of {operand} delivers the second and the third 8 x 8 matrix in each other's registers."""

    styles = ("mma",)
    needs = ("{pattern}", w.SWAPPED + "|order", w.QUARTER + r"|\b8\b")
    half = (w.SWAPPED,)

    def setup(self) -> None:
        self.wrong = self.one_operand()

    def swapped(self, operand: str, tile: Array) -> Array:
        """The tile, the middle matrices of each 16 rows by 32 bytes exchanged."""
        rows, k = tile.shape
        if operand != self.wrong or k % (2 * self.chunk):
            return tile
        parts = tile.reshape(rows // 16, 2, 8, k // (2 * self.chunk), 2, self.chunk)
        return parts.swapaxes(1, 4).reshape(rows, k)

    def fragments_a(self, tile: Array) -> Array:
        return self.swapped("a", tile)

    def fragments_b(self, tile: Array) -> Array:
        return self.swapped("b", tile)


# Accumulators, warps and Tensor Memory.


class AccumulatorRowsPaired(Fifth):
    """The epilogue of mma.sync stores c0, c1 in row 2 * (lane / 4) and c2, c3 in the next, not in rows lane / 4 and lane / 4 + 8."""

    styles = ("mma",)
    needs = (w.D + "|" + w.ROWS, MOVED)
    half = (w.ROWS,)

    def fragments_d(self, block: Array) -> Array:
        rows, columns = block.shape
        return block.reshape(rows // 16, 2, 8, columns).swapaxes(1, 2).reshape(rows, columns)


class WarpOrderDiffers(Fifth):
    """The loads number warps row by row, the epilogue column by column."""

    source = "NVIDIA/cutlass#3496"
    styles = ("mma",)
    wish = Wish(warps=(2, 2))
    needs = (w.WARP, w.SWAPPED + "|each other|order")
    half = (w.SWAPPED,)

    def place_of_warps(self, i: Array, j: Array) -> tuple[Array, Array]:
        warp = i * self.t.warps[1] + j
        return warp % self.t.warps[0], warp // self.t.warps[0]


class LaneQuarterOfTheWarp(Fifth):
    """The epilogue's first warp is warp {first} of the block: it and the others read Tensor Memory's lanes of warp % 4, and store to rows from 0."""

    source = "NVIDIA/cudnn-frontend#667"
    styles = ("tcgen05",)
    needs = (w.ROWS + "|lanes?|warps?|quarter", MOVED + r"|roll|shift|offset|instead of|taken from|hold|\+ ?\d")
    half = (w.ROWS,)

    def setup(self) -> None:
        self.first = self.facts["first"] = int(self.random.integers(1, 4))

    def fragments_d(self, block: Array) -> Array:
        rows, columns = block.shape
        return np.roll(block.reshape(rows // 32, 32, columns), -self.first, axis=0).reshape(rows, columns)


class SameHalfOfBInThePair(Fifth):
    """Both CTAs of a pair (cta_group::2) load the first half of B's columns."""

    rare = True
    styles = ("tcgen05",)
    wish = Wish(blocks=(2, 1))
    needs = (w.COLUMNS + "|" + w.B, w.SAME)
    half = (w.COLUMNS,)

    def columns_of_b(self, y: int, x: int) -> Array:
        return x * self.t.bn + np.arange(self.t.bn) % (self.t.bn // 2)
