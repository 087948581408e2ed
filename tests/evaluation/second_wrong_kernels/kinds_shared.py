"""Mistakes in shared memory, of descriptors, ldmatrix and TMA boxes."""

from __future__ import annotations

import numpy as np

from tests.evaluation.second_wrong_kernels import words as w
from tests.evaluation.second_wrong_kernels.kernel import Kernel
from tests.evaluation.second_wrong_kernels.problem import Array, Wish


def swizzled(kernel: Kernel, element: Array, span: int, base: int = 0) -> Array:
    """Element addresses under the swizzle of 32, 64 or 128 bytes; base: where the tile lies, in bytes."""
    address = element * kernel.bits // 8 + base
    return ((address ^ ((address >> 3) & (span - 16))) - base) * 8 // kernel.bits


# Shared memory.


class PadOfARead(Kernel):
    """A's rows in shared memory are written with a padding of 16 bytes and read without."""

    needs = (w.A, w.PITCH + "|pad")
    half = (w.A,)

    def place_written(self, operand: str, row: Array, k: Array, pitch: int) -> Array:
        return row * (pitch + self.chunk * (operand == "a")) + k


class PadOfBWritten(Kernel):
    """B's rows in shared memory are written without a padding and read with one of 16 bytes."""

    needs = (w.B, w.PITCH + "|pad")
    half = (w.B,)

    def place_read(self, operand: str, row: Array, k: Array, pitch: int) -> Array:
        return row * (pitch + self.chunk * (operand == "b")) + k


class PadOfBoth(Kernel):
    """One constant says the pitch of both tiles in shared memory: the reads of A and B lack the padding."""

    needs = (w.A, w.B, w.PITCH + "|pad")
    half = (w.PITCH + "|pad",)

    def place_written(self, operand: str, row: Array, k: Array, pitch: int) -> Array:
        return row * (pitch + self.chunk) + k


class SwizzleWritten(Kernel):
    """A is copied with a swizzle and read without."""

    wish = Wish(span=128)
    needs = (w.A, w.SWIZZLE)
    half = (w.A,)

    def place_written(self, operand: str, row: Array, k: Array, pitch: int) -> Array:
        element = row * pitch + k
        return swizzled(self, element, 128) if operand == "a" else element


class SwizzleRead(Kernel):
    """B is copied without a swizzle and read with one."""

    wish = Wish(span=64)
    needs = (w.B, w.SWIZZLE)
    half = (w.B,)

    def place_read(self, operand: str, row: Array, k: Array, pitch: int) -> Array:
        element = row * pitch + k
        return swizzled(self, element, 64) if operand == "b" else element


class SwizzleWrittenOfBoth(Kernel):
    """The tensor maps of both operands have the 128-byte swizzle, the descriptors say none."""

    wish = Wish(span=128)
    needs = (w.A, w.B, w.SWIZZLE)
    half = (w.SWIZZLE,)

    def place_written(self, operand: str, row: Array, k: Array, pitch: int) -> Array:
        return swizzled(self, row * pitch + k, 128)


class SwizzleModes(Kernel):
    """A is copied with the 128-byte swizzle and read with the 64-byte one."""

    wish = Wish(span=128)
    needs = (w.A, w.SWIZZLE, "128|64")
    half = (w.A,)

    def place_written(self, operand: str, row: Array, k: Array, pitch: int) -> Array:
        element = row * pitch + k
        return swizzled(self, element, 128) if operand == "a" else element

    def place_read(self, operand: str, row: Array, k: Array, pitch: int) -> Array:
        element = row * pitch + k
        return swizzled(self, element, 64) if operand == "a" else element


class SwizzlePhase(Kernel):
    """B's tile does not begin at a multiple of 1024 bytes: TMA swizzles by the address, the kernel by the row."""

    wish = Wish(span=128)
    needs = (w.B, w.SWIZZLE, w.PHASE)
    half = (w.B,)

    def setup(self) -> None:
        self.base = int(self.random.choice([128, 256, 512]))

    def place_written(self, operand: str, row: Array, k: Array, pitch: int) -> Array:
        return swizzled(self, row * pitch + k, 128, self.base if operand == "b" else 0)

    def place_read(self, operand: str, row: Array, k: Array, pitch: int) -> Array:
        return swizzled(self, row * pitch + k, 128)

    def through_shared(self, operand: str, tile: Array) -> Array:
        rows, pitch = tile.shape
        row, k = np.arange(rows)[:, None], np.arange(pitch)[None]
        shared = np.zeros(2 * rows * pitch + 4096, tile.dtype)
        slack = 2048  # the XOR may step back behind the tile's begin
        shared[self.place_written(operand, row, k, pitch) + slack] = tile
        return shared[self.place_read(operand, row, k, pitch) + slack]


class HalfOfTheRowsCopied(Kernel):
    """The block has too few threads for one pass over A's tile and no loop: the lower half is not copied."""

    plain = True
    needs = (w.A, w.ZERO + "|half", w.ROWS + "|half")
    half = (w.A,)

    def global_a(self, rows: Array, k: Array) -> Array:
        out = super().global_a(rows, k)
        out[len(out) // 2 :] = 0
        return out


class EightBytesCopied(Kernel):
    """cp.async copies 8 of the 16 bytes that each thread is to bring of B."""

    needs = (w.B, w.ZERO + "|half|8 bytes|bytes", w.KTILE + "|bytes|vector|half")
    half = (w.B,)

    def place_written(self, operand: str, row: Array, k: Array, pitch: int) -> Array:
        behind = 3 * self.t.bn * pitch + row * 0
        return np.where((k % self.chunk >= self.chunk // 2) & (operand == "b"), behind, row * pitch + k)


class BoxTooNarrow(Kernel):
    """The box of A's tensor map is half as wide as the tile: the second half of each K tile is not filled."""

    plain = True
    needs = (w.A, w.ZERO + "|half|box", w.KTILE + "|half|box")
    half = (w.A,)

    def global_a(self, rows: Array, k: Array) -> Array:
        out = super().global_a(rows, k)
        out[:, out.shape[1] // 2 :] = 0
        return out


class CoordinatesOfTmaSwapped(Kernel):
    """The two coordinates of A's box are given in the wrong order."""

    wish = Wish(blocks=(2, 1), tiles=3)
    plain = True
    needs = (w.A, w.SWAPPED + "|coordinate")
    half = (w.A,)

    def tile_a(self, y: int, x: int, tile: int | None) -> Array:
        if tile is None:
            return super().tile_a(y, x, tile)
        return self.global_a(
            (tile * self.t.bk + np.arange(self.t.bm))[:, None], (y * self.t.bm + np.arange(self.bk_a))[None]
        )


class CoordinateInBytes(Kernel):
    """The coordinate along K of B's box counts bytes, not elements."""

    wish = Wish(tiles=4)
    styles = ("wgmma", "tcgen05")
    only = "16 bits"
    needs = (w.B, w.KTILE, r"coordinate|bytes|advance|twice|double|step|stride|instead of|k \d+")
    half = (w.B,)

    def k_of_b(self, tile: int) -> Array:
        return 2 * tile * self.t.bk + np.arange(self.t.bk)


class FillOfNaN(Kernel):
    """The tensor map fills what is out of bounds with NaN, and K is ragged."""

    wish = Wish(ragged="k")
    plain = True
    floats = True
    only = "16 bits"
    needs = ("nan", r"fill|out of bounds|out-of-bounds|beyond|tail|ragged|past|k \d+")
    half = ("nan",)

    def global_a(self, rows: Array, k: Array) -> Array:
        return np.where(k < self.p.k, super().global_a(rows, k), self.p.a.dtype.type(0x7FFF))

    def global_b(self, k: Array, columns: Array) -> Array:
        return np.where(k < self.p.k, super().global_b(k, columns), self.p.b.dtype.type(0x7FFF))


class BuffersOverlap(Kernel):
    """B's buffer begins in the last quarter of A's (a size in elements where bytes were meant)."""

    plain = True
    only = "same types"
    needs = (w.A, w.ROWS, r"overlap|overwr|of b|from b|corrupt|last|rows \d+-\d+")
    half = (w.A,)

    def step(self, y: int, x: int, i: int, a: Array, b: Array, out: Array, extras: dict[str, Array]) -> Array:
        flat, other = a.ravel().copy(), b.T.ravel()
        size = min(len(flat) // 4, len(other))
        flat[-len(flat) // 4 :][:size] = other[:size]
        return self.multiply(flat.reshape(a.shape), b, out, extras)


class MajorOfB(Kernel):
    """B's tile lies along N in shared memory, and the descriptor says K-major."""

    only = "16 bits"
    styles = ("wgmma", "tcgen05")
    needs = (w.B, w.TRANSPOSED)
    half = (w.B,)

    def place_written(self, operand: str, row: Array, k: Array, pitch: int) -> Array:
        return k * self.t.bn + row if operand == "b" else row * pitch + k


class LboAndSbo(Kernel):
    """The descriptor of A (no swizzle) has LBO and SBO in each other's place."""

    wish = Wish(span=64)
    plain = True
    styles = ("wgmma", "tcgen05")
    needs = (w.A, "lbo", "sbo")
    half = (w.A,)

    def core(self, row: Array, k: Array, leading: int, stride: int) -> Array:
        """K-major without a swizzle: core matrices of 8 rows and 16 bytes."""
        return row % 8 * self.chunk + row // 8 * stride + k // self.chunk * leading + k % self.chunk

    def place_written(self, operand: str, row: Array, k: Array, pitch: int) -> Array:
        return self.core(row, k, 8 * self.chunk, 8 * pitch)

    def place_read(self, operand: str, row: Array, k: Array, pitch: int) -> Array:
        own = (8 * self.chunk, 8 * pitch)
        return self.core(row, k, *(own[::-1] if operand == "a" else own))


class SboOfB(Kernel):
    """SBO of B's descriptor (128-byte swizzle) is 512 bytes, not 1024."""

    wish = Wish(span=128)
    plain = True
    styles = ("wgmma", "tcgen05")
    needs = (w.B, "sbo|stride")
    half = (w.B,)

    def place_read(self, operand: str, row: Array, k: Array, pitch: int) -> Array:
        return row % 8 * pitch + row // 8 * pitch * (4 if operand == "b" else 8) + k


class AdvanceInElements(Kernel):
    """A's descriptor is advanced by half of a step: elements where bytes were meant."""

    plain = True
    only = "16 bits"
    styles = ("wgmma", "tcgen05")
    needs = (
        w.A,
        w.KTILE + "|advance|step|start address",
        r"advance|half|step|instead of|offset|start address|bytes|taken from",
    )
    half = (w.A,)

    def fragments_a(self, tile: Array) -> Array:
        step = self.arithmetic.k
        return tile[:, [s * step // 2 + i for s in range(tile.shape[1] // step) for i in range(step)]]


# ldmatrix.


def _quarters(kernel: Kernel, tile: Array) -> Array:
    """(16-row groups, upper or lower 8, row, pairs of 16 bytes, which, element)."""
    rows, k = tile.shape
    return tile.reshape(rows // 16, 2, 8, k // (2 * kernel.chunk), 2, kernel.chunk)


class LdmatrixOrderOfA(Kernel):
    """ldmatrix.x4 of A: the addresses of lanes 8-15 and 16-23 are in each other's place (a1 and a2 swapped)."""

    styles = ("mma",)
    plain = True
    needs = (w.A, w.SWAPPED, w.QUARTER + "|" + w.ROWS)
    half = (w.A,)

    def fragments_a(self, tile: Array) -> Array:
        return _quarters(self, tile).swapaxes(1, 4).reshape(tile.shape)


class LdmatrixOrderOfB(Kernel):
    """ldmatrix.x4 of B: the second and the third matrix are in each other's place."""

    styles = ("mma",)
    needs = (w.B, w.SWAPPED, w.QUARTER + "|" + w.COLUMNS)
    half = (w.B,)

    def fragments_b(self, tile: Array) -> Array:
        return _quarters(self, tile).swapaxes(1, 4).reshape(tile.shape)


class LdmatrixRow(Kernel):
    """ldmatrix of A takes its row from lane % 8: rows 8-15 of each 16 are rows 0-7."""

    styles = ("mma",)
    plain = True
    needs = (w.A, w.ROWS, w.SAME + "|ldmatrix")
    half = (w.A,)

    def fragments_a(self, tile: Array) -> Array:
        out = _quarters(self, tile).copy()
        out[:, 1] = out[:, 0]
        return out.reshape(tile.shape)


class LdmatrixColumn(Kernel):
    """ldmatrix of A leaves out lane / 16: the second 16 bytes of each pair are the first."""

    styles = ("mma",)
    plain = True
    needs = (w.A, w.KTILE, w.SAME + "|ldmatrix")
    half = (w.A,)

    def fragments_a(self, tile: Array) -> Array:
        out = _quarters(self, tile).copy()
        out[..., 1, :] = out[..., 0, :]
        return out.reshape(tile.shape)


class TransMissing(Kernel):
    """ldmatrix of B lacks .trans: each 8 x 8 matrix comes transposed."""

    styles = ("mma",)
    only = "16 bits"
    plain = True
    needs = (w.B, "trans", r"8 ?x ?8|8x|matri|ldmatrix|\.trans|blocks? of 8|each 8")
    half = (w.B,)

    def fragments_b(self, tile: Array) -> Array:
        rows, k = tile.shape
        return tile.reshape(rows // 8, 8, k // 8, 8).swapaxes(1, 3).reshape(tile.shape)
