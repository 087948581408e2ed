"""The tenth set: mistakes of the loop over K, of stages, shared memory and fragments; and right kernels."""

from __future__ import annotations

import numpy as np

from tests.evaluation.second_wrong_kernels.kinds_ninth import AGAIN, LACK, MOVED, either, everything, span
from tests.evaluation.second_wrong_kernels.kinds_tenth import AHEAD, HALF, Tenth
from tests.evaluation.second_wrong_kernels.problem import Array, Wish
from tests.evaluation.second_wrong_kernels.words import (
    COLUMNS,
    FIRST,
    KTILE,
    LAST,
    PITCH,
    ROWS,
    STAGE,
    STALE,
    SWIZZLE,
    TRANSPOSED,
    WARP,
    ZERO,
    A,
    B,
    D,
    value,
)

UNCLEARED = r"not (?:cleared|reset|zeroed)|never (?:cleared|reset|zeroed)|without clear"


class PartOfAStepAtTheEnd(Tenth):
    """The last K tile does its whole steps of {step} and no more: k {from}-{to} is missing."""

    source = "tile-ai/tilelang#2381"
    plain = True
    wish = Wish(ragged="k")
    needs = (KTILE, LACK, either(span("from", "to"), everything(KTILE, LAST)))

    def setup(self) -> None:
        self.end = self.p.k // self.arithmetic.k * self.arithmetic.k
        self.facts = {"from": self.end, "to": self.p.k - 1}

    def inside_a(self, rows: Array, k: Array) -> Array:
        return super().inside_a(rows, k) & (k < self.end)


class PrefetchSkipsATile(Tenth):
    """The prologue fills {stages} - 1 stages and the loop goes on one tile too far: K tile {tile}, k {from}-{to}, is never loaded."""

    source = "textbook"
    wish = Wish(tiles=4, stages=(2, 3))
    needs = (KTILE, LACK, either(span("from", "to"), everything(r"tile", value("tile"))))

    def setup(self) -> None:
        tile = self.t.stages - 1
        self.facts = {"tile": tile, **self.k_range(tile, tile)}

    def slice_of(self, part: int) -> list[int]:
        return [tile for tile in super().slice_of(part) if tile != self.t.stages - 1]


class OddRoundsStale(Tenth):
    """The parity of the barrier is not flipped when the ring of {stages} stages wraps: the second round sees the tiles of the first, and k {from}-{to} is never used."""

    source = "deepseek-ai/DeepGEMM#415"
    plain = True
    wish = Wish(tiles=5, stages=(2, 3))
    needs = (KTILE, either(STALE, AGAIN, LACK), either(span("from", "to"), STAGE))

    def setup(self) -> None:
        self.facts = self.k_range(self.t.stages, min(2 * self.t.stages, self.k_tiles()) - 1)

    def tile_in_stage(self, operand: str, i: int, count: int) -> int | None:
        return i - self.t.stages if i // self.t.stages % 2 else i


class SecondWarpgroupClearsLate(Tenth):
    """The second warpgroup tells its second wgmma to clear the accumulators, not its first: rows {from}-{to} of the block lack k {zero}-{end}."""

    source = "tile-ai/tilelang#2627"
    styles = ("wgmma",)
    wish = Wish(whole="m")
    needs = (
        either(span("from", "to"), everything(ROWS, HALF)),
        either(LACK, r"clear|scale_d"),
        either(span("zero", "end"), everything(KTILE, FIRST)),
    )

    def setup(self) -> None:
        self.facts = {**self.rows(0, 64), "zero": 0, "end": self.t.bk - 1}

    def step(self, y: int, x: int, i: int, a: Array, b: Array, out: Array, extras: dict[str, Array]) -> Array:
        late = (np.arange(len(out)) >= 64) & (i == 1)
        return super().step(y, x, i, a, b, np.where(late[:, None], 0, out).astype(out.dtype), extras)


class RightHalfSeesTheNextA(Tenth):
    """Two groups of warps share A's tile and nothing holds back its refill: the group of columns {from}-{to} multiplies the next K tile of A with this one of B."""

    source = "tile-ai/tilelang#2613"
    plain = True
    wish = Wish(tiles=3, whole="n")
    needs = (A, either(STALE, AHEAD), either(span("from", "to"), everything(COLUMNS, HALF)))

    def setup(self) -> None:
        self.facts = self.columns(0, self.t.bn // 2)

    def step(self, y: int, x: int, i: int, a: Array, b: Array, out: Array, extras: dict[str, Array]) -> Array:
        after = self.tile_a(y, x, min(i + 1, self.k_tiles() - 1))
        return self.joined(self.multiply(a, b, out, extras), self.multiply(after, b, out, extras), 1)


class PromotedWithoutClearing(Tenth):
    """Every second K tile the sums are added to float32 registers and not cleared: what came before is added again, so k 0-{end} counts {times} times."""

    source = "textbook"
    plain, floats = True, True
    only = "8 bits"
    styles = ("mma", "wgmma")
    wish = Wish(tiles=4, c=False)
    needs = (KTILE, either(AGAIN, UNCLEARED), either(span("zero", "end"), everything(FIRST, KTILE)))

    def setup(self) -> None:
        self.facts = {"zero": 0, "end": 2 * self.t.bk - 1, "times": -(-self.k_tiles() // 2)}

    def mainloop(self, y: int, x: int, part: int) -> Array:
        self.total = np.zeros((self.t.bm, self.t.bn), np.float32)
        super().mainloop(y, x, part)
        return self.total.view(np.uint32)

    def step(self, y: int, x: int, i: int, a: Array, b: Array, out: Array, extras: dict[str, Array]) -> Array:
        out = super().step(y, x, i, a, b, out, extras)
        if i % 2 or i == self.k_tiles() - 1:
            self.total = self.total + self.values(out)
        return out


class SlicedKAddedOnTheLeft(Tenth):
    """Two warps share a tile along K, and the buffer of their sum holds half of the columns: in columns {from}-{to} the second half of every K tile is missing."""

    source = "textbook"
    plain = True
    styles = ("mma",)
    wish = Wish(whole="n")
    needs = (
        either(span("from", "to"), everything(COLUMNS, HALF)),
        LACK,
        either(everything(KTILE, r"half|second|every|each|k \d+-\d+"), WARP),
    )

    def setup(self) -> None:
        self.facts = self.columns(0, self.t.bn // 2)

    def step(self, y: int, x: int, i: int, a: Array, b: Array, out: Array, extras: dict[str, Array]) -> Array:
        half = self.t.bk // 2
        return self.joined(self.multiply(a, b, out, extras), self.multiply(a[:, :half], b[:half], out, extras), 1)


class FragmentsOfTheOldStage(Tenth):
    """The fragments of a tile's first step are loaded before the read pointer moves on: they are those of the tile before, so k {zero}-{end} counts twice and k {from}-{to} is missing."""

    source = "textbook"
    plain = True
    styles = ("mma",)
    wish = Wish(tiles=3)
    needs = (
        KTILE,
        either(STALE, AGAIN, LACK, MOVED),
        either(span("from", "to"), span("zero", "end"), everything(FIRST, r"step|fragment|instruction|ldmatrix")),
    )

    def setup(self) -> None:
        step, last = self.arithmetic.k, (self.k_tiles() - 1) * self.t.bk
        self.facts = {"zero": 0, "end": step - 1, "from": last, "to": last + step - 1}

    def tile_a(self, y: int, x: int, tile: int | None) -> Array:
        now, step = super().tile_a(y, x, tile), self.arithmetic.k
        return np.concatenate([super().tile_a(y, x, tile - 1)[:, :step], now[:, step:]], 1) if tile else now

    def tile_b(self, y: int, x: int, tile: int | None) -> Array:
        now, step = super().tile_b(y, x, tile), self.arithmetic.k
        return np.concatenate([super().tile_b(y, x, tile - 1)[:step], now[step:]]) if tile else now


class AllocationWritesIntoA(Tenth):
    """tcgen05.alloc leaves its address, a zero word, at the start of A's first stage: in row 0 of a block k 0-{end} of A is zero."""

    source = "facebookexperimental/triton#1449"
    plain = True
    styles = ("tcgen05",)
    needs = (either(A, KTILE), either(ZERO, LACK, r"overwrit"), r"\brows?\b[^\n]*\b0\b|first row")

    def setup(self) -> None:
        self.facts = {"end": 32 // self.bits - 1}

    def tile_a(self, y: int, x: int, tile: int | None) -> Array:
        found = super().tile_a(y, x, tile).copy()
        if tile == 0:
            found[0, : 32 // self.bits] = 0
        return found


class NarrowSwizzleReadByRow(Tenth):
    """TMA writes the 64-byte swizzle, which changes every second row, and ldmatrix reads 16-byte chunk c of a row at c ^ (row & 3): the swizzles of A and B differ."""

    source = "NVIDIA/cutlass#1707"
    plain = True
    styles = ("mma",)
    wish = Wish(span=64)
    needs = (either(A, B), SWIZZLE)

    def place_written(self, operand: str, row: Array, k: Array, pitch: int) -> Array:
        return row * pitch + (k // self.chunk ^ row // 2 % 4) * self.chunk + k % self.chunk

    def place_read(self, operand: str, row: Array, k: Array, pitch: int) -> Array:
        return row * pitch + (k // self.chunk ^ row % 4) * self.chunk + k % self.chunk


class PadInElements(Tenth):
    """The copy pads B's rows in shared memory by 16 bytes, {wide} elements in all; ldmatrix adds 8 elements, as for halves, and reads with a pitch of {narrow}."""

    source = "textbook"
    plain = True
    only = "8 bits"
    styles = ("mma",)
    needs = (B, either(PITCH, r"\bpad"))

    def setup(self) -> None:
        self.facts = {"wide": self.t.bk + 16, "narrow": self.t.bk + 8}

    def place_written(self, operand: str, row: Array, k: Array, pitch: int) -> Array:
        return row * (pitch + 16 * (operand == "b")) + k

    def place_read(self, operand: str, row: Array, k: Array, pitch: int) -> Array:
        return row * (pitch + 8 * (operand == "b")) + k


class BytesTransposedInPairs(Tenth):
    """ldmatrix.trans moves pairs of bytes: of 8-bit B, two columns lie where two elements of K belong, in every 16 columns by 32 elements of K."""

    source = "NVIDIA/cutlass#1394"
    plain = True
    only = "8 bits"
    styles = ("mma",)
    wish = Wish(majors="km", whole="k")
    needs = (B, either(TRANSPOSED, MOVED, r"16-bit|b16|\bpairs?\b|ldmatrix|bytes|8-bit"))

    def fragments_b(self, tile: Array) -> Array:
        n, k = np.arange(tile.shape[0])[:, None], np.arange(tile.shape[1])[None]
        j, u, e, q, r = n % 8, n // 8 % 2, k % 4, k // 4 % 4, k // 16 % 2
        return tile[n // 16 * 16 + 2 * j + e % 2, k // 32 * 32 + 16 * u + 8 * r + 2 * q + e // 2]


class RowsOfAFragmentSideBySide(Tenth):
    """The epilogue stores c0, c1 of a lane in row 2g and c2, c3 in row 2g + 1, not g and g + 8: the rows of every 16 are permuted."""

    source = "textbook"
    styles = ("mma",)
    needs = (either(D, ROWS), either(MOVED, r"interleav"), r"\b8\b|\b16\b|fragment|register|lane|interleav|\bc[0-3]\b")

    def fragments_d(self, block: Array) -> Array:
        return block.reshape(-1, 2, 8, block.shape[1]).swapaxes(1, 2).reshape(block.shape)


class AtomsInterleavedInTheStore(Tenth):
    """Each warp multiplies {each} rows in a piece, and the store deals blocks of 16 rows to the warps in turn: blocks of 16 rows are permuted."""

    source = "tile-ai/tilelang#2522"
    styles = ("mma",)
    wish = Wish(warps=(2, 1))
    needs = (either(D, ROWS, WARP), MOVED, r"\b16\b|\bwarps?\b|fragment|rows \d+-\d+")

    def setup(self) -> None:
        self.facts = {"each": self.t.bm // self.t.warps[0]}

    def fragments_d(self, block: Array) -> Array:
        return block.reshape(self.t.warps[0], -1, 16, block.shape[1]).swapaxes(0, 1).reshape(block.shape)


class ProperPromotion(Tenth):
    """Right: every second K tile the sums are added to float32 registers, and cleared."""

    correct, plain, floats = True, True, True
    wish = Wish(tiles=4)

    def mainloop(self, y: int, x: int, part: int) -> Array:
        self.total = np.zeros((self.t.bm, self.t.bn), np.float32)
        rest = self.values(super().mainloop(y, x, part))
        return (self.total + rest).view(np.uint32)

    def step(self, y: int, x: int, i: int, a: Array, b: Array, out: Array, extras: dict[str, Array]) -> Array:
        out = super().step(y, x, i, a, b, out, extras)
        if i % 2:
            self.total = self.total + self.values(out)
            return np.zeros_like(out)
        return out


class ProperSlicedK(Tenth):
    """Right: one warp sums the first half of every K tile, another the second, and the epilogue adds both."""

    correct, plain = True, True
    styles = ("mma",)

    def mainloop(self, y: int, x: int, part: int) -> Array:
        self.own = slice(0, self.t.bk // 2)
        first = self.values(super().mainloop(y, x, 0))
        self.own = slice(self.t.bk // 2, None)
        return (first + self.values(super().mainloop(y, x, 1))).view(np.uint32)

    def slice_of(self, part: int) -> list[int]:
        return super().slice_of(0)

    def step(self, y: int, x: int, i: int, a: Array, b: Array, out: Array, extras: dict[str, Array]) -> Array:
        return self.multiply(a[:, self.own], b[self.own], out, extras)
