"""The ninth set: mistakes of the grid, of persistent loops, clusters and batches, of the epilogue, of C, and of the stores."""

from __future__ import annotations

import ml_dtypes
import numpy as np

from tests.evaluation.second_wrong_kernels.kinds_ninth import LACK, MOVED, UNWRITTEN, Ninth, either, everything, span
from tests.evaluation.second_wrong_kernels.problem import Array, Wish
from tests.evaluation.second_wrong_kernels.words import (
    BLOCK,
    COLUMNS,
    KTILE,
    PITCH,
    ROWS,
    SAME,
    STALE,
    ZERO,
    A,
    B,
    C,
    D,
    value,
)


class StoresToTheTileTakenNext(Ninth):
    """Persistent: the tile number of the epilogue runs ahead, and every block is stored at the place of the block {workers} numbers later."""

    source = "sgl-project/sglang#11368"
    wish = Wish(blocks=(2, 2))
    needs = (BLOCK, MOVED)

    def rows_of_d(self, y: int, x: int) -> Array:
        return super().rows_of_d(self.block(self.number(y, x) + self.workers)[0], x)

    def columns_of_d(self, y: int, x: int) -> Array:
        return super().columns_of_d(y, self.block(self.number(y, x) + self.workers)[1])


class TrailingGroupNotCut(Ninth):
    """The raster groups 2 block rows; the last group has one only and is not cut to it: rows {from}-{to} are not written in the last columns, {left}-{right}."""

    source = "ROCm/FlyDSL#979"
    wish = Wish(blocks=(3, 2))
    needs = (
        BLOCK,
        UNWRITTEN,
        either(span("from", "to"), span("left", "right"), everything(r"last|trailing|group|raster", BLOCK)),
    )

    def setup(self) -> None:
        along_m, along_n = self.grid()
        self.facts = {**self.rows(along_m - 1), "left": -(-along_n // 2) * self.t.bn, "right": self.p.n - 1}

    def blocks(self) -> list[tuple[int, int]]:
        along_m, along_n = self.grid()
        found = []
        for number in range(along_m * along_n):
            group, within = divmod(number, 2 * along_n)
            found.append((2 * group + within % 2, within // 2))
        return found


class HostCountsWithoutPadding(Ninth):
    """The host counts the blocks, the device pads every row of blocks to a multiple of 2: the last blocks, rows {from}-{to}, are never scheduled."""

    source = "NVIDIA/cutlass#3497"
    wish = Wish(blocks=(2, 3))
    needs = (BLOCK, UNWRITTEN, either(span("from", "to"), everything(r"last|tail|end", BLOCK)))

    def setup(self) -> None:
        self.facts = self.rows(self.grid()[0] - 1)

    def blocks(self) -> list[tuple[int, int]]:
        along_m, along_n = self.grid()
        padded = -(-along_n // 2) * 2
        found = [divmod(number, padded) for number in range(along_m * along_n)]
        return [(y, x) for y, x in found if x < along_n]


class RowsAfterTheLastOffset(Ninth):
    """Grouped: the offsets end at row {from}, and what lies behind, rows {from}-{to}, is returned as it was allocated."""

    source = "pytorch/pytorch#154557"
    needs = (
        ROWS,
        UNWRITTEN,
        either(span("from", "to"), r"last {count} rows|from row {from}|row {from} on|rows? >= ?{from}"),
    )

    def setup(self) -> None:
        last = 4 * int(self.random.integers(1, max(2, min(self.t.bm, self.p.m) // 4)))
        self.facts = {"from": self.p.m - last, "to": self.p.m - 1, "count": last}

    def inside_d(self, rows: Array, columns: Array) -> Array:
        return super().inside_d(rows, columns) & (rows < self.facts["from"])


class PairOfCtasAlongN(Ninth):
    """CTA pairs of one MMA lie along N: both take the left half of B's tile from the even block and the right half from the odd one, so that columns {from}-{to} hold those of the next block."""

    source = "facebookexperimental/triton#1071"
    wish = Wish(blocks=(1, 2), whole="n")
    styles = ("tcgen05", "wgmma")
    needs = (
        either(COLUMNS, B),
        either(MOVED, SAME),
        either(
            span("from", "to"), span("odd", "end"), everything(r"half|pair|cluster|cta|alternat|every other", BLOCK)
        ),
    )

    def setup(self) -> None:
        self.facts = {**self.columns(0, self.t.bn // 2), "odd": self.t.bn, "end": self.t.bn + self.t.bn // 2 - 1}

    def columns_of_b(self, y: int, x: int) -> Array:
        even, half = x // 2 * 2, np.arange(self.t.bn // 2)
        if even + 1 >= self.grid()[1]:
            return super().columns_of_b(y, x)
        return np.concatenate([even * self.t.bn + half, (even + 1) * self.t.bn + self.t.bn // 2 + half])


class PeerNeverGetsB(Ninth):
    """B is multicast with a mask of one CTA of the two: the odd blocks along M, rows {from}-{to} first, multiply empty shared memory."""

    source = "NVIDIA/cutlass#3658"
    styles = ("wgmma", "tcgen05")
    wish = Wish(blocks=(2, 1))
    needs = (
        ROWS,
        either(ZERO, LACK),
        either(span("from", "to"), everything(r"odd|every (?:second|other)|peer", BLOCK)),
    )

    def setup(self) -> None:
        self.facts = self.rows(1)

    def tile_b(self, y: int, x: int, tile: int | None) -> Array:
        return super().tile_b(y, x, None if y % 2 else tile)


class BatchOfAStuckAtFirst(Ninth):
    """The batch stride of A is 0: batches are {bm} rows, and all of them are made of rows 0-{last} of A."""

    source = "huggingface/candle#3960"
    wish = Wish(blocks=(2, 1), whole="m")
    needs = (A, either(SAME, MOVED), either(r"0-{last}(?!\d)", r"first|batch|stride (?:is )?0|block"))

    def rows_of_a(self, y: int, x: int) -> Array:
        return super().rows_of_a(0, x)


class PhaseRestartsWithEveryTile(Ninth):
    """Persistent: the barrier's phase starts anew with every block, so that from block {workers} on the first wait passes at once and k 0-{to} is what the block before left in stage 0."""

    source = "tile-ai/tilelang#2674"
    plain = True
    wish = Wish(blocks=(2, 2), c=False)
    needs = (
        either(KTILE, BLOCK),
        either(STALE, r"left|stage|phase|other|another|wrong|not waited"),
        either(r"\bk\b.*0-{to}(?!\d)", r"first (?:k )?(?:tile|iteration|step)|(?:k )?tile 0|iteration 0"),
    )

    def setup(self) -> None:
        self.facts = {"to": min(self.t.bk, self.p.k) - 1}

    def step(self, y: int, x: int, i: int, a: Array, b: Array, out: Array, extras: dict[str, Array]) -> Array:
        number = self.number(y, x)
        if i == 0 and number >= self.workers:
            left = (self.k_tiles() - 1) // self.t.stages * self.t.stages
            before = self.block(number - self.workers)
            a, b = self.tile_a(*before, left), self.tile_b(*before, left)
        return super().step(y, x, i, a, b, out, extras)


class Staged(Ninth):
    """An epilogue through one buffer in shared memory, which the block after next fills too early."""

    def overwritten(self, own: Array, following: Array) -> Array:
        """What the store of a block finds."""
        return own

    def launch(self) -> Array:
        memory = np.full(self.p.m * self.p.n, self.blank, np.int32 if self.arithmetic.d == "s32" else np.float32)
        sums = [self.sums(y, x) for y, x in self.blocks()]
        for number, (y, x) in enumerate(self.blocks()):
            later = number + self.workers
            self.store(memory, y, x, self.overwritten(sums[number], sums[later]) if later < len(sums) else sums[number])
        return self.convert(memory.reshape(self.p.m, self.p.n))


class EpilogueBufferRefilled(Staged):
    """The epilogue's buffer is refilled while its store still reads: rows {from}-{to} of the first block, the lower half, hold those of the block {workers} numbers later, and so on."""

    source = "tile-ai/TileOPs#1550"
    wish = Wish(blocks=(2, 2), whole="m")
    needs = (
        either(ROWS, BLOCK),
        either(MOVED, SAME, STALE),
        either(span("from", "to"), r"lower|second half|half of", BLOCK),
        ROWS,
    )

    def setup(self) -> None:
        self.facts = self.rows(0, self.t.bm // 2)

    def overwritten(self, own: Array, following: Array) -> Array:
        return np.concatenate([own[: self.t.bm // 2], following[self.t.bm // 2 :]])


class LastSubtileOverwritten(Staged):
    """The epilogue's ring starts anew with every block: the last quarter, columns {from}-{to}, is overwritten by the first quarter of the block {workers} numbers later."""

    source = "NVIDIA/cutlass#3636"
    wish = Wish(blocks=(2, 2), whole="n")
    needs = (
        COLUMNS,
        either(MOVED, SAME, STALE),
        either(span("from", "to"), r"quarter|last {width} columns|blocks? of {width}"),
    )

    def setup(self) -> None:
        self.facts = {**self.columns(0, 3 * self.t.bn // 4), "width": self.t.bn // 4}

    def overwritten(self, own: Array, following: Array) -> Array:
        quarter = self.t.bn // 4
        return np.concatenate([own[:, :-quarter], following[:, :quarter]], axis=1)


class CAtColumnsOfTheOtherIndex(Ninth):
    """The pointer to C is advanced by the block's row number where its column number belongs: block (y, x) adds the columns of C from y * {bn}."""

    source = "NVIDIA/cutlass#3540"
    wish = Wish(blocks=(2, 2), c=True)
    needs = (C, either(MOVED, SAME), either(COLUMNS, BLOCK))

    def accumulators(self, y: int, x: int, part: int) -> Array:
        return self.read_c(self.rows_of_d(y, x)[:, None], self.columns_of_d(y, y)[None])


class BetaLeftOver(Ninth):
    """beta is {beta}, left over from another call, where 1 is meant."""

    source = "ARM-software/ComputeLibrary#1024"
    floats = True
    wish = Wish(c=True)
    needs = (C, either(value("beta"), r"half|double|twice|minus|negat|subtract|sign"))

    def setup(self) -> None:
        self.facts = {"beta": float(self.random.choice([0.5, 2.0, -1.0, 0.25]))}
        self.c_late = True

    def epilogue(self, total: Array, rows: Array, columns: Array) -> Array:
        return total + np.float32(self.facts["beta"]) * self.values(self.read_c(rows, columns))


class PitchOfCTakenFromB(Ninth):
    """C is read with B's leading dimension, {ldb}, instead of its own, {n}."""

    source = "dftbplus/scalapackfx#52"
    wish = Wish(majors="kk", c=True)
    needs = (C, either(PITCH, r"row pitch|flat"))

    def setup(self) -> None:
        self.facts = {"ldb": self.ldb}

    def read_c(self, rows: Array, columns: Array) -> Array:
        flat = np.zeros(0, np.uint32) if self.p.c is None else self.p.c.ravel()
        at = rows * self.ldb + columns
        inside = (at < len(flat)) & (columns < self.p.n) & (rows < self.p.m)
        return np.where(inside, flat[np.where(inside, at, 0)], 0).astype(np.uint32)


class PairsTakeTheFirstOfC(Ninth):
    """A thread holds two neighbouring columns and loads C for the first: odd columns add the C of the column before."""

    source = "microsoft/BitBLAS#271"
    wish = Wish(c=True)
    needs = (C, either(COLUMNS, r"pair|odd|even|neighbou?r"), either(SAME, MOVED))

    def read_c(self, rows: Array, columns: Array) -> Array:
        return super().read_c(rows, columns // 2 * 2)


class CReadInTheOutputType(Ninth):
    """C is stored in f32 and read through a pointer to bf16: element i is half of the word i // 2."""

    source = "trymirai/uzu#481"
    floats = True
    wish = Wish(c=True, integers=False)
    needs = (
        C,
        r"bf16|bfloat|f16|half(?:s| of| word)|16.bit|type|format|bytes|element size|pitch|reinterpret|garbage|wide",
    )

    def read_c(self, rows: Array, columns: Array) -> Array:
        if self.p.c is None:
            return super().read_c(rows, columns)
        halves = self.p.c.ravel().view(np.uint16)
        inside = (rows < self.p.m) & (columns < self.p.n)
        return np.where(inside, halves[np.where(inside, rows * self.p.n + columns, 0)], 0).astype(np.uint32) << 16


class CAddedBehindTheRelu(Ninth):
    """C is added behind the ReLU: d = max(a b, 0) + c."""

    source = "flashinfer-ai/flashinfer#2809"
    floats = True
    wish = Wish(c=True)
    needs = (
        either(r"relu|max\(|negative|clamp|activation", C),
        r"relu|max\(|negative|clamp|activation",
        either(C, r"before|after|behind|product|a ?[@*]? ?b"),
    )

    def setup(self) -> None:
        self.c_late = True

    def epilogue(self, total: Array, rows: Array, columns: Array) -> Array:
        return np.maximum(total, 0) + self.values(self.read_c(rows, columns))


class PitchOfDIsM(Ninth):
    """D is stored with a leading dimension of M = {m}, that of a column-major D, instead of N = {n}."""

    source = "pranjalssh/fast.cu#14"
    needs = (D, PITCH)

    def setup(self) -> None:
        self.ldd = self.p.m


class PaddedDWrittenWithoutPadding(Ninth):
    """The caller's D has rows of {pitch} elements, {pad} of them padding; the kernel takes it as contiguous and stores rows of {n}."""

    source = "ROCm/aiter#5385"
    needs = (D, either(D, r"pitch"), either(PITCH, r"padd|contiguous|rows of"))

    def setup(self) -> None:
        self.pad = int(self.random.choice([4, 8, 16]))
        self.facts = {"pitch": self.p.n + self.pad, "pad": self.pad}

    def convert(self, out: Array) -> Array:
        padded = np.full(self.p.m * (self.p.n + self.pad), self.blank, out.dtype)
        padded[: out.size] = out.ravel()
        return super().convert(np.ascontiguousarray(padded.reshape(self.p.m, -1)[:, : self.p.n]))


class LastColumnsHaveNoWarp(Ninth):
    """The warps along N are given {bn} // warps columns, rounded down to 8: the last 8 columns of every block, {from}-{to} first, have no warp and are not written."""

    source = "tile-ai/tilelang#2537"
    needs = (
        COLUMNS,
        UNWRITTEN,
        either(
            span("from", "to"),
            r"last 8|8 columns|8 of (?:every|each)|columns? \d+ ?(?:mod|%)",
            everything(r"every|each", value("bn")),
        ),
    )

    def setup(self) -> None:
        self.facts = self.columns(0, self.t.bn - 8)

    def inside_d(self, rows: Array, columns: Array) -> Array:
        return super().inside_d(rows, columns) & (columns % self.t.bn < self.t.bn - 8)


class Bf16ReturnedAsF16(Ninth):
    """The kernel stores bf16, the caller's tensor is f16: the bits of bf16 are read as f16."""

    source = "sgl-project/sglang#15845"
    floats = True
    wish = Wish(integers=False)
    needs = (
        r"bf16|bfloat|format|type",
        r"bf16|bfloat",
        r"(?<!b)f16|half|(?<!b)float16",
        r"bits|read as|written as|reinterpret|type|codes|punned|viewed|stored as|taken (?:as|for)",
    )

    def convert(self, out: Array) -> Array:
        return np.ascontiguousarray(out).astype(ml_dtypes.bfloat16).view(np.float16)
