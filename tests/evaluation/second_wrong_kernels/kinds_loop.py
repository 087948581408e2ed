"""Mistakes of the loop along K, of stages and of split-K."""

from __future__ import annotations

import numpy as np

from tests.evaluation.second_wrong_kernels import words as w
from tests.evaluation.second_wrong_kernels.kernel import Kernel
from tests.evaluation.second_wrong_kernels.problem import Array, Wish

# Along K.


class FirstTileSkipped(Kernel):
    """The loop over K begins with the second tile."""

    wish = Wish(tiles=2)
    needs = (w.KTILE, w.MISSING, w.FIRST)
    half = (w.KTILE,)

    def slice_of(self, part: int) -> list[int]:
        return super().slice_of(part)[1:]


class LastTileSkipped(Kernel):
    """The loop over K ends one tile early."""

    wish = Wish(tiles=3)
    needs = (w.KTILE, w.MISSING, w.LAST)
    half = (w.KTILE,)

    def slice_of(self, part: int) -> list[int]:
        return super().slice_of(part)[:-1]


class TailIgnored(Kernel):
    """K / BK is rounded down: what is left of K is not multiplied."""

    wish = Wish(tiles=3, ragged="k")
    needs = (w.KTILE, w.MISSING, w.LAST)
    half = (w.KTILE,)

    def k_tiles(self) -> int:
        return self.p.k // self.t.bk


class TailNotMasked(Kernel):
    """The loads of the last K tile are not masked: they go on in the next row of A and the next column of B."""

    wish = Wish(tiles=2, ragged="k", majors="kk")
    plain = True
    needs = (w.KTILE, r"mask|next row|beyond|past|behind|over-?read|wrap|out of bounds|tail|ragged|guard")
    half = (w.KTILE,)

    def inside_a(self, rows: Array, k: Array) -> Array:
        return rows < self.p.m

    def inside_b(self, k: Array, columns: Array) -> Array:
        return columns < self.p.n


class LastTileTwice(Kernel):
    """The loop runs once too often, and the index is clamped: the last K tile is added twice."""

    wish = Wish(tiles=2, whole="k")
    needs = (w.KTILE, w.TWICE, w.LAST)
    half = (w.KTILE,)

    def slice_of(self, part: int) -> list[int]:
        tiles = super().slice_of(part)
        return [*tiles, tiles[-1]]


class ClearedInTheLoop(Kernel):
    """The accumulators are cleared in every K tile (scale-d or enable-input-d is 0): only the last tile is left."""

    wish = Wish(tiles=3, c=False)
    needs = (
        w.KTILE,
        r"only|clear|reset|restart|zeroed|not accumulat|overwrit|scale.?d|fresh|last",
        r"last|accumul|k \d+-\d+|scale.?d",
    )
    half = (w.KTILE + "|accumul",)

    def step(self, y: int, x: int, i: int, a: Array, b: Array, out: Array, extras: dict[str, Array]) -> Array:
        return self.multiply(a, b, np.zeros_like(out), extras)


class NotClearedBetweenTiles(Kernel):
    """A persistent block does not clear its accumulators before its next output tile."""

    wish = Wish(blocks=(1, 2), c=False)
    needs = (r"accumul|added|sum|plus|on top|previous|not cleared|persistent", r"block|tile|previous|columns|rows")
    half = (r"accumul|added|sum|plus",)

    def setup(self) -> None:
        self.left: dict[int, Array] = {}

    def accumulators(self, y: int, x: int, part: int) -> Array:
        return self.left.get(y, super().accumulators(y, x, part))

    def mainloop(self, y: int, x: int, part: int) -> Array:
        self.left[y] = super().mainloop(y, x, part)
        return self.left[y]


class AdvanceOfATwice(Kernel):
    """A's pointer is advanced by 2 BK in each iteration."""

    wish = Wish(tiles=3)
    plain = True
    needs = (w.A, w.KTILE, r"advance|step|stride|twice|double|2 x|skips|instead of|taken from|k \d+")
    half = (w.A,)

    def k_of_a(self, tile: int) -> Array:
        return 2 * tile * self.bk_a + np.arange(self.bk_a)


class BNotAdvanced(Kernel):
    """B's pointer stays where it is: every iteration multiplies the first K tile of B."""

    wish = Wish(tiles=2)
    needs = (w.B, w.KTILE, w.SAME)
    half = (w.B,)

    def k_of_b(self, tile: int) -> Array:
        return np.arange(self.t.bk)


class StepsWithinTheTileNotAdvanced(Kernel):
    """The k steps inside a tile all use A's first step: the descriptor or the ldmatrix address is not advanced."""

    plain = True
    needs = (w.A, w.KTILE + "|step|advance", w.SAME)
    half = (w.A,)

    def fragments_a(self, tile: Array) -> Array:
        return np.tile(tile[:, : self.arithmetic.k], (1, tile.shape[1] // self.arithmetic.k))


class FirstStepOnly(Kernel):
    """The loop over k steps inside a tile is missing: one instruction for each K tile."""

    plain = True
    needs = (w.KTILE, w.MISSING + "|only|first")
    half = (w.KTILE,)

    def fragments_a(self, tile: Array) -> Array:
        out = tile.copy()
        out[:, self.arithmetic.k :] = 0
        return out


# Stages.


class StageIgnored(Kernel):
    """Every iteration reads stage 0."""

    wish = Wish(tiles=4, stages=(2, 3))
    needs = (w.STAGE, w.SAME + "|" + w.STALE, w.KTILE)
    half = (w.KTILE,)

    def slot_read(self, operand: str, i: int) -> int:
        return 0


class CopyNotAwaited(Kernel):
    """The wait for the copy lets one more be pending: an iteration may read what the stage held before."""

    wish = Wish(tiles=4, stages=(2, 3))
    needs = (w.STALE, w.STAGE)
    half = (w.KTILE,)

    def copies_landed(self, operand: str, i: int) -> int:
        return i


class StageOverwritten(Kernel):
    """A copy is issued into the stage that is still read: the tile of {stages} iterations later is multiplied."""

    wish = Wish(tiles=4, stages=(2,))
    needs = (w.STALE + "|overwr", w.STAGE)
    half = (w.KTILE,)

    def setup(self) -> None:
        self.facts["stages"] = self.t.stages

    def copies_landed(self, operand: str, i: int) -> int:
        return i + 1 + self.t.stages


class StageOfBOff(Kernel):
    """B is read one stage ahead of A."""

    wish = Wish(tiles=4, stages=(3, 4))
    needs = (w.B, w.STAGE, w.STALE + "|off by|shift|next|stage")
    half = (w.B,)

    def copies_landed(self, operand: str, i: int) -> int:
        return i + 2

    def slot_read(self, operand: str, i: int) -> int:
        return (i + (operand == "b")) % self.t.stages


class AOneTileLate(Kernel):
    """A's copy has its own barrier, and the consumer does not wait for it."""

    wish = Wish(tiles=4, stages=(2, 3))
    needs = (w.A, w.STALE, w.STAGE)
    half = (w.A,)

    def copies_landed(self, operand: str, i: int) -> int:
        return i if operand == "a" else i + 1


class RingsOfDifferentLength(Kernel):
    """The producer goes round {stages} stages, the consumer one more."""

    wish = Wish(tiles=5, stages=(2, 3))
    needs = (w.STAGE, r"stage|ring|slot|buffer|stale", w.KTILE)
    half = (w.KTILE,)

    def setup(self) -> None:
        self.facts["stages"] = self.t.stages

    def slot_read(self, operand: str, i: int) -> int:
        return i % (self.t.stages + 1)


class BarrierForHalfTheWarps(Kernel):
    """The lower half of the block's rows is computed by warps that do not wait: they read the K tile before."""

    wish = Wish(tiles=3)
    plain = True
    needs = (w.STALE + "|" + w.STAGE, w.ROWS, r"\d")
    half = (w.ROWS + "|" + w.KTILE,)

    def tile_a(self, y: int, x: int, tile: int | None) -> Array:
        own = super().tile_a(y, x, tile)
        late = super().tile_a(y, x, None if not tile else tile - 1)
        half = self.t.bm // 2
        return np.concatenate([own[:half], late[half:]])


# Split-K.


class PartialMissing(Kernel):
    """One slice of split-K is not added."""

    wish = Wish(tiles=4, split=(2, 3, 4))
    needs = (w.KTILE + "|" + w.SPLIT, w.MISSING)
    half = (w.KTILE,)

    def setup(self) -> None:
        self.missing = int(self.random.integers(0, self.t.split))

    def combine(self, partials: list[Array], y: int, x: int) -> Array:
        return super().combine([p for i, p in enumerate(partials) if i != self.missing], y, x)


class LastPartialWins(Kernel):
    """The slices of split-K overwrite each other: no reduction."""

    wish = Wish(tiles=4, split=(2, 3), c=False)
    needs = (w.KTILE + "|" + w.SPLIT, r"only|overwrit|last|not added|missing|without")
    half = (w.KTILE,)

    def combine(self, partials: list[Array], y: int, x: int) -> Array:
        return super().combine(partials[-1:], y, x)


class SlicesOverlap(Kernel):
    """Each slice of split-K takes one K tile too many: it is counted twice."""

    wish = Wish(tiles=4, split=(2,))
    needs = (w.KTILE + "|" + w.SPLIT, w.TWICE)
    half = (w.KTILE,)

    def slice_of(self, part: int) -> list[int]:
        own = super().slice_of(part)
        return [*own, own[-1] + 1] if own[-1] + 1 < self.k_tiles() else own


class RestOfSplitDropped(Kernel):
    """K / slices is rounded down: the last K tiles belong to nobody."""

    wish = Wish(tiles=5, split=(2, 3))
    needs = (w.KTILE, w.MISSING, w.LAST)
    half = (w.KTILE,)

    def slice_of(self, part: int) -> list[int]:
        each = max(1, (self.k_tiles() - 1) // self.t.split)
        return list(range(part * each, (part + 1) * each))


class EverySliceAddsC(Kernel):
    """Every slice of split-K starts from C: it is added {split} times."""

    wish = Wish(tiles=4, split=(2, 3), c=True)
    needs = (w.C, w.TWICE + r"|times|factor|beta")
    half = (w.C,)

    def setup(self) -> None:
        self.facts["split"] = self.t.split

    def accumulators(self, y: int, x: int, part: int) -> Array:
        return super().accumulators(y, x, 0)
