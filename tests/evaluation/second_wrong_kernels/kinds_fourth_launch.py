"""The fourth set: grids, strides, edges, K loops, stages and split-K."""

from __future__ import annotations

import numpy as np

from tests.evaluation.second_wrong_kernels import words as w
from tests.evaluation.second_wrong_kernels.kinds_fourth import Fourth
from tests.evaluation.second_wrong_kernels.problem import Array, Wish

# The grid.


class GridRoundedDown(Fourth):
    """The grid has N / BN blocks instead of the next whole number: the last columns are never computed."""

    source = "ml-explore/mlx#4250"
    wish = Wish(blocks=(1, 2), ragged="n")
    needs = (w.COLUMNS, w.ZERO + "|not computed|no block")
    half = (w.COLUMNS,)

    def grid(self) -> tuple[int, int]:
        return super().grid()[0], self.p.n // self.t.bn


class OriginOfHalfATile(Fourth):
    """Blocks start at multiples of BN / 2 while the grid counts tiles of BN: the right part is never written."""

    source = "Avarok-Cybersecurity/atlas#474"
    wish = Wish(blocks=(1, 2))
    needs = (w.COLUMNS, w.ZERO + "|not computed|no block")
    half = (w.COLUMNS,)

    def columns_of_b(self, y: int, x: int) -> Array:
        return super().columns_of_b(y, x) - x * (self.t.bn // 2)

    def columns_of_d(self, y: int, x: int) -> Array:
        return self.columns_of_b(y, x)


class ProgramIdByTheWrongCount(Fourth):
    """pid_m = pid % blocks along N, pid_n = pid // blocks along M: some tiles are never computed."""

    source = "meta-pytorch/applied-ai#25"
    wish = Wish(blocks=(1, 2))
    needs = (w.BLOCK, w.ZERO + "|not computed|no block")
    half = (w.ZERO,)

    def blocks(self) -> list[tuple[int, int]]:
        along_m, along_n = self.grid()
        return [(pid % along_n, pid // along_m) for pid in range(along_m * along_n)]


class LastGroupNotClamped(Fourth):
    """The order in groups of rows (GROUP_SIZE_M) does not clamp the last group: some tiles are never computed."""

    wish = Wish(blocks=(1, 2))
    needs = (w.BLOCK, w.ZERO + "|not computed|no block")
    half = (w.ZERO,)

    def blocks(self) -> list[tuple[int, int]]:
        along_m, along_n = self.grid()
        group = 2 if along_m % 2 else 3
        each = group * along_n
        return [(pid // each * group + pid % group, pid % each // group) for pid in range(along_m * along_n)]


# Strides.


class LdaIsTheOtherExtent(Fourth):
    """A's leading dimension is its other extent."""

    source = "mikkyang/rust-blas#6"
    plain = True
    needs = (w.A, w.PITCH)
    half = (w.A,)

    def setup(self) -> None:
        self.lda = self.p.m + self.k_a - self.lda


class LdbIsTheOtherExtent(Fourth):
    """B's leading dimension is its other extent."""

    source = "pranjalssh/fast.cu#14"
    plain = True
    needs = (w.B, w.PITCH)
    half = (w.B,)

    def setup(self) -> None:
        self.ldb = self.p.n + self.p.k - self.ldb


class WeightsNotTransposed(Fourth):
    """B's memory is read in the other order: a weight (N, K) passed where (K, N) is expected, or the reverse."""

    needs = (w.B, w.TRANSPOSED + "|" + w.PITCH)
    half = (w.B,)

    def global_b(self, k: Array, columns: Array) -> Array:
        address = k * self.p.n + columns if self.t.b_major == "k" else columns * self.p.k + k
        return self.read("b", address, self.inside_b(k, columns))


class StridesOfAViewIgnored(Fourth):
    """A is a transposed view, and the kernel takes its memory for contiguous."""

    source = "ROCm/aiter#5292"
    plain = True
    needs = (w.A, w.TRANSPOSED + "|" + w.PITCH)
    half = (w.A,)

    def global_a(self, rows: Array, k: Array) -> Array:
        address = k * self.p.m + rows if self.t.a_major == "k" else rows * self.k_a + k
        return self.read("a", address, self.inside_a(rows, k))


class OffsetAddedTwice(Fourth):
    """B is a view, and its storage offset is added once more: B starts {lines} lines late."""

    needs = (w.B, w.OFFSET, r"(?s)\A(?!.*\ba: pointer)")  # corrected: A is as it should be
    half = (w.B,)

    def setup(self) -> None:
        self.facts["lines"] = int(self.random.choice([4, 8, 16]))
        self.pointer["b"] = self.facts["lines"] * self.ldb


# Edges.


class TailOfKDropped(Fourth):
    """The loop runs K / BK times: what is left of K is never added."""

    source = "NVIDIA/cutlass#3536"
    wish = Wish(ragged="k")
    needs = (w.KTILE, w.MISSING)
    half = (w.KTILE,)

    def k_tiles(self) -> int:
        return self.p.k // self.t.bk


class TailOfKNotMasked(Fourth):
    """The last K tile is loaded without a mask: behind the end of a row comes the next one, in A and in B."""

    source = "triton-lang/triton#630"
    plain = True
    wish = Wish(ragged="k", majors="kk")
    needs = (w.KTILE, r"mask|beyond|past|bound|next row|next column|tail|ragged|\bend\b|multiple|wrap")
    half = (w.KTILE,)

    def inside_a(self, rows: Array, k: Array) -> Array:
        return (rows < self.p.m) & (k >= 0)

    def inside_b(self, k: Array, columns: Array) -> Array:
        return (columns < self.p.n) & (k >= 0)


class TailOfKKeepsTheOldTile(Fourth):
    """Threads beyond the end of K write nothing: the last tile ends with what the stage held before."""

    source = "modular/modular#5701"
    plain = True
    wish = Wish(ragged="k", tiles=4, stages=(2,))
    needs = (w.KTILE, w.STALE + "|" + w.TWICE)
    half = (w.KTILE,)

    def k_of_a(self, tile: int) -> Array:
        k = super().k_of_a(tile)
        return np.where(k < self.k_a, k, k - self.t.stages * self.bk_a)

    def k_of_b(self, tile: int) -> Array:
        k = super().k_of_b(tile)
        return np.where(k < self.p.k, k, k - self.t.stages * self.t.bk)


class StoreNotMasked(Fourth):
    """The store has no mask along N: the zeros of the last tile land at the start of the next rows."""

    source = "tenstorrent/tt-metal#48923"
    wish = Wish(blocks=(1, 2), ragged="n", c=False)
    needs = (w.ZERO + "|overwritten|overwrites|mask|spill|wrap|beyond|past", w.COLUMNS)
    half = (w.COLUMNS,)

    def inside_d(self, rows: Array, columns: Array) -> Array:
        return (rows < self.p.m) & (columns >= 0)


# The loop over K and its stages.


class LoadedOnce(Fourth):
    """A's tile is loaded before the loop and never again: every iteration multiplies the first one."""

    source = "1bit-MONSTER/1bit-MONSTER#1273"
    plain = True
    needs = (w.A, w.SAME + "|first|" + w.STAGE)
    half = (w.A,)

    def k_of_a(self, tile: int) -> Array:
        return super().k_of_a(0)


class OneCopyTooManyPending(Fourth):
    """cp.async.wait_group lets one copy too many be pending: an iteration sees its stage before the copy."""

    source = "csarofeen/pytorch#2457"
    plain = True
    wish = Wish(tiles=4, stages=(2, 3))
    needs = (w.STAGE + "|" + w.MISSING,)
    half = (w.KTILE,)

    def copies_landed(self, operand: str, i: int) -> int:
        return i


class RingOverfilled(Fourth):
    """The ring of stages is filled one too far: {operand}'s tile is overwritten by a later one before it is read."""

    rare = True
    source = "ROCm/aiter#4537"
    plain = True
    wish = Wish(tiles=4, stages=(2, 3))
    needs = ("{pattern}", w.STAGE)
    half = (w.STAGE,)

    def setup(self) -> None:
        self.hit = self.one_operand()

    def copies_landed(self, operand: str, i: int) -> int:
        return i + 1 + self.t.stages * (operand == self.hit)


class StageOfThisTileOnly(Fourth):
    """A persistent kernel's consumer counts its stages from 0 for every output tile; the producer counts on."""

    rare = True
    source = "tile-ai/tilelang#2785"
    plain = True
    wish = Wish(blocks=(2, 2), tiles=4, stages=(3, 4))
    needs = (w.STAGE + "|" + w.MISSING + "|" + w.TWICE, w.KTILE)
    half = (w.KTILE,)

    def mainloop(self, y: int, x: int, part: int) -> Array:
        self.begun = self.number(y, x) // 2 * self.k_tiles()
        return super().mainloop(y, x, part)

    def slot_written(self, operand: str, i: int) -> int:
        return (self.begun + i) % self.t.stages

    def copies_landed(self, operand: str, i: int) -> int:
        return i + self.t.stages


class AccumulatorsNotCleared(Fourth):
    """A persistent kernel does not clear its accumulators: an output tile has the previous one added."""

    source = "tile-ai/tilelang#2936"
    wish = Wish(blocks=(2, 2), c=False)
    needs = (w.BLOCK, r"clear|previous|added|adds|plus|\+|accumulat|sum of|also|another|other")
    half = (w.BLOCK,)

    def setup(self) -> None:
        self.left: dict[int, Array] = {}

    def accumulators(self, y: int, x: int, part: int) -> Array:
        return self.left.get(self.number(y, x) % 2, super().accumulators(y, x, part))

    def mainloop(self, y: int, x: int, part: int) -> Array:
        out = super().mainloop(y, x, part)
        self.left[self.number(y, x) % 2] = out
        return out


class ClearedInEveryIteration(Fourth):
    """The accumulators are cleared inside the loop: the last K tile remains."""

    source = "tile-ai/tilelang#2627"
    wish = Wish(c=False)
    needs = (w.KTILE, r"\bonly\b|alone|clear|missing|overwrit|reset|zeroed|" + w.MISSING)
    half = (w.KTILE,)

    def step(self, y: int, x: int, i: int, a: Array, b: Array, out: Array, extras: dict[str, Array]) -> Array:
        return self.multiply(a, b, np.zeros_like(out), extras)


class HalfOfTheInnerLoop(Fourth):
    """The loop over a K tile ends at half of it (bytes taken for elements): half of every tile is not multiplied."""

    needs = (w.KTILE, w.MISSING + "|half")
    half = (w.KTILE,)

    def fragments_a(self, tile: Array) -> Array:
        out = tile.copy()
        out[:, tile.shape[1] // 2 :] = 0
        return out


class HalfOfTheTileCopied(Fourth):
    """Too few threads copy B's tile: the second half of its columns is never written to shared memory."""

    wish = Wish(c=False)
    needs = (w.COLUMNS, w.ZERO + "|" + w.MISSING)
    half = (w.COLUMNS,)

    def fragments_b(self, tile: Array) -> Array:
        out = tile.copy()
        out[len(tile) // 2 :] = 0
        return out


# Split-K.


class OutputNotZeroed(Fourth):
    """Split-K adds to an output that still holds the result of an earlier run: it is doubled."""

    source = "triton-lang/triton#2183"
    wish = Wish(split=(2, 3), c=False)
    needs = (w.TWICE + r"|factor (?:of )?2|by 2\b|2 times|alpha|scaled",)
    half = (r"scal|factor",)

    def combine(self, partials: list[Array], y: int, x: int) -> Array:
        once = super().combine(partials, y, x)
        return once + once


class PartialsStored(Fourth):
    """The slices of split-K store instead of adding: the last one remains."""

    source = "microsoft/ark#199"
    wish = Wish(tiles=4, split=(2, 3))
    needs = (w.SPLIT + "|" + w.KTILE, r"\bonly\b|alone|overwrit|last|" + w.MISSING)
    half = (w.KTILE,)

    def combine(self, partials: list[Array], y: int, x: int) -> Array:
        last = max(filter(self.slice_of, range(self.t.split)))  # corrected: an empty slice stores nothing
        return super().combine(partials[last : last + 1], y, x)


class SourceAddedByEverySlice(Fourth):
    """Every slice of split-K adds C: it is added {slices} times."""

    source = "NVIDIA/cutlass#423"
    wish = Wish(tiles=4, split=(2, 3), c=True)
    needs = (w.C, w.TWICE + r"|three|every|each|times|factor|beta|{slices}")
    half = (w.C,)

    def setup(self) -> None:
        self.facts["slices"] = self.t.split

    def accumulators(self, y: int, x: int, part: int) -> Array:
        return super().accumulators(y, x, 0)


class SlicesRoundedDown(Fourth):
    """Every slice of split-K has tiles / slices K tiles: the remainder is never added."""

    source = "ggml-org/llama.cpp#8311"
    wish = Wish(tiles=3, split=(2, 3))
    needs = (w.KTILE, w.MISSING)
    half = (w.KTILE,)

    def slice_of(self, part: int) -> list[int]:
        each = self.k_tiles() // self.t.split
        return list(range(part * each, (part + 1) * each))
