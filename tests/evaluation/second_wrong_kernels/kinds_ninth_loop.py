"""The ninth set: mistakes of the loop over K and of stages; and right kernels, whose names begin with Sound."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tests.evaluation.second_wrong_kernels.kinds_ninth import AGAIN, LACK, MOVED, Ninth, Sound, either, everything, span
from tests.evaluation.second_wrong_kernels.problem import Array, Wish
from tests.evaluation.second_wrong_kernels.words import FIRST, KTILE, LAST, ROWS, SAME, STAGE, STALE, A, B, value

AHEAD = r"ahead|next|overwritten|too early|too soon|later|\bone (?:k )?(?:tile|step)|off by one|shift"
STEP = r"step|instruction|atom|mma|half"


class TailLostWithAFullRing(Ninth):
    """The tail of K is guarded by a counter that prefetches inflate: where the whole tiles fill the {stages} stages, k {from}-{to} is dropped."""

    source = "NVIDIA/cutlass#3536"
    wish = Wish(ragged="k")
    needs = (KTILE, LACK, either(span("from", "to"), everything(KTILE, r"\blast\b|tail|\bend\b|remainder")))

    def setup(self) -> None:
        self.facts = self.k_range(self.k_tiles() - 1, self.k_tiles() - 1)

    def slice_of(self, part: int) -> list[int]:
        whole = self.p.k // self.t.bk
        return list(range(whole)) if whole % self.t.stages == 0 else super().slice_of(part)


class LoopRoundedUpToStages(Ninth):
    """The loop always does a multiple of {stages} K tiles: its last iterations find old tiles in their stages, and k {from}-{to} counts again."""

    source = "NVIDIA/cutlass#3568"
    wish = Wish(tiles=3)
    needs = (KTILE, AGAIN, either(span("from", "to"), everything(KTILE, either(STAGE, LAST))))

    def setup(self) -> None:
        self.extra = [
            i - self.t.stages for i in range(self.k_tiles(), -(-self.k_tiles() // self.t.stages) * self.t.stages)
        ]
        self.extra = [tile for tile in self.extra if tile >= 0]
        self.facts = self.k_range(self.extra[0], self.extra[-1]) if self.extra else {}

    def slice_of(self, part: int) -> list[int]:
        return super().slice_of(part) + self.extra

    def tile_in_stage(self, operand: str, i: int, count: int) -> int | None:
        return i


class LastRowsOneTileBehind(Ninth):
    """One barrier is too early for the last warp: rows {from}-{to} of A's tiles are those of the K tile before, from the second one on."""

    source = "triton-lang/triton#11696"
    plain = True
    wish = Wish(tiles=3, whole="m")
    needs = (A, either(STALE, AHEAD, r"K tile"), either(span("from", "to"), everything(r"last|quarter|warp", ROWS)))

    def setup(self) -> None:
        self.facts = self.rows(0, 3 * self.t.bm // 4)

    def tile_a(self, y: int, x: int, tile: int | None) -> Array:
        now = super().tile_a(y, x, tile)
        before = super().tile_a(y, x, tile - 1) if tile else now
        return np.concatenate([now[: 3 * self.t.bm // 4], before[3 * self.t.bm // 4 :]])


class BuffersOfNegativeIndex(Ninth):
    """The index of the buffer is negative at first: two iterations read in front of the ring, where nothing was written, and k {from}-{to} is missing."""

    source = "facebookexperimental/triton#2816"
    wish = Wish(tiles=3)
    needs = (KTILE, either(LACK, r"zero"), either(span("from", "to"), everything(KTILE, FIRST)))

    def setup(self) -> None:
        self.facts = self.k_range(0, 1)

    def tile_in_stage(self, operand: str, i: int, count: int) -> int | None:
        return None if i < 2 else i


class OnlyTheLastStep(Ninth):
    """The accumulators are cleared in the loop over the steps: only the last {step} of K, k {from}-{to}, is in the result."""

    source = "tile-ai/tilelang#2627"
    plain = True
    styles = ("mma",)
    wish = Wish(whole="k")
    needs = (
        KTILE,
        either(LACK, r"only|alone|just"),
        either(span("from", "to"), span("zero", "before"), everything(r"last", STEP)),
    )

    def setup(self) -> None:
        step = self.arithmetic.k
        self.facts = {"from": self.p.k - step, "to": self.p.k - 1, "zero": 0, "before": self.p.k - step - 1}

    def step(self, y: int, x: int, i: int, a: Array, b: Array, out: Array, extras: dict[str, Array]) -> Array:
        last = self.arithmetic.k
        return self.multiply(a[:, -last:], b[-last:], np.zeros_like(out), extras)


class LateStepsSeeTheNextRound(Ninth):
    """The wait has the parity of the ring: a stage is refilled under the running MMA, whose second half sees k {more}-{end} where k {from}-{to} was, and so on."""

    source = "tile-ai/tilelang#3087"
    plain = True
    wish = Wish(tiles=4, stages=(2, 3), whole="k")
    needs = (
        KTILE,
        either(STALE, AHEAD, everything(LACK, AGAIN), everything(MOVED, KTILE)),
        either(span("from", "to"), span("more", "end"), r"half of (?:every|each|a|the) (?:k )?tile|second half", STAGE),
    )

    def setup(self) -> None:
        half, ring = self.t.bk // 2, self.t.stages * self.t.bk
        self.facts = {"from": half, "to": 2 * half - 1, "more": ring + half, "end": ring + 2 * half - 1}

    def later(self, tile: int) -> int:
        """The tile that comes to the same stage next."""
        return tile + self.t.stages if tile + self.t.stages < self.k_tiles() else tile

    def tile_a(self, y: int, x: int, tile: int | None) -> Array:
        half, now = self.t.bk // 2, tile or 0
        return np.concatenate(
            [super().tile_a(y, x, now)[:, :half], super().tile_a(y, x, self.later(now))[:, half:]], axis=1
        )

    def tile_b(self, y: int, x: int, tile: int | None) -> Array:
        half, now = self.t.bk // 2, tile or 0
        return np.concatenate([super().tile_b(y, x, now)[:half], super().tile_b(y, x, self.later(now))[half:]])


class BReadBeforeItsBarrier(Ninth):
    """B is copied by threads and read before their barrier: its stage still holds what came {stages} K tiles earlier, at first nothing."""

    source = "tile-ai/tilelang#2166"
    wish = Wish(tiles=4, stages=(2, 3))
    needs = (
        B,
        either(STALE, value("stages") + r" (?:k )?tiles?", everything(KTILE, r"shift|lag|offset")),
        either(STAGE, KTILE),
    )

    def copies_landed(self, operand: str, i: int) -> int:
        return i if operand == "b" else i + 1


class LastCopiesNotWaitedFor(Ninth):
    """No groups are committed at the end, so wait_group waits for too little: the last {late} iterations find the K tiles of {stages} before; k {from}-{to} is missing."""

    source = "efeslab/Atom#20"
    wish = Wish(tiles=4, stages=(2, 3))
    needs = (
        either(KTILE, STAGE),
        either(STALE, everything(LACK, AGAIN), LACK),
        either(span("from", "to"), everything(KTILE, r"\blast\b|tail|\bend\b")),
    )

    def setup(self) -> None:
        self.late = self.t.stages - 1
        self.facts = {**self.k_range(self.k_tiles() - self.late, self.k_tiles() - 1), "late": self.late}

    def copies_landed(self, operand: str, i: int) -> int:
        return i if i >= self.k_tiles() - self.late else i + 1


class ResidueFirstInA(Ninth):
    """A's iterator takes the residue of K, {residue} elements, as its first tile, B's as its last: from then on A's k meets B's k + {gap}."""

    source = "NVIDIA/cutlass#569"
    plain = True
    wish = Wish(ragged="k", tiles=3)
    needs = (
        either(A, B),
        either(MOVED, r"residue|remainder|ahead|behind|meets|against|paired|with k|earlier|later|before|starts"),
        either(r"\bk\b", r"residue"),
    )

    def setup(self) -> None:
        self.residue = self.p.k - (self.k_tiles() - 1) * self.t.bk
        self.facts = {"residue": self.residue, "gap": self.t.bk - self.residue}

    def k_of_a(self, tile: int) -> Array:
        within = np.arange(self.t.bk)
        return (
            self.residue + (tile - 1) * self.t.bk + within
            if tile
            else np.where(within < self.residue, within, self.p.k)
        )


class KOfBMaskedByN(Ninth):
    """B's loads are masked by k < N = {from}: k {from}-{to} is missing."""

    source = "leimao/CUTLASS-Examples#42"
    wish = Wish(tiles=4)
    needs = (KTILE, LACK, either(span("from", "to"), everything(KTILE, r"k (?:>=|from|beyond|past|up to|<) ?{from}")))

    def setup(self) -> None:
        self.facts = {"from": self.p.n, "to": self.p.k - 1}

    def inside_b(self, k: Array, columns: Array) -> Array:
        return super().inside_b(k, columns) & (k < self.p.n)


class TileNotAMultipleOfTheStep(Ninth):
    """K tiles are {bk} deep, the steps {step}, and the loop does {bk} // {step} of them: the last {rest} of every tile, k {from}-{to} first, are dropped."""

    source = "tile-ai/tilelang#2381"
    plain = True
    styles = ("mma",)
    needs = (
        KTILE,
        LACK,
        either(
            span("from", "to"),
            value("rest") + r" (?:elements )?(?:of|in|from) (?:every|each)",
            everything(value("bk"), "every|each"),
        ),
    )

    def setup(self) -> None:
        step = self.arithmetic.k
        self.t = replace(self.t, bk=3 * step // 2)
        self.bk_a = self.t.bk
        self.facts = {"rest": step // 2, "from": step, "to": min(self.t.bk, self.p.k) - 1}

    def step(self, y: int, x: int, i: int, a: Array, b: Array, out: Array, extras: dict[str, Array]) -> Array:
        return super().step(y, x, i, a[:, : self.arithmetic.k], b[: self.arithmetic.k], out, extras)


class BOfTheStepBefore(Ninth):
    """Registers are double-buffered and B's index is the wrong one: within every K tile, each step of {step} but the first takes B of the step before."""

    source = "xlite-dev/LeetCUDA#521"
    plain = True
    styles = ("mma",)
    needs = (B, either(STALE, SAME, MOVED), either(KTILE, STEP))

    def fragments_b(self, tile: Array) -> Array:
        step = self.arithmetic.k
        return np.concatenate([tile[:, :step], tile[:, :-step]], axis=1)


class WarpsAlongKNotReduced(Ninth):
    """The tiled MMA has two warps along K and nobody adds their sums: every second step of {step} is missing, k {from}-{to} first."""

    source = "NVIDIA/cutlass#1577"
    plain = True
    styles = ("mma",)
    needs = (
        KTILE,
        LACK,
        either(
            span("from", "to"),
            r"every (?:second|other)|half|odd|alternat",
            value("step") + r" (?:of|in) (?:every|each)",
        ),
    )

    def setup(self) -> None:
        self.facts = {"from": self.arithmetic.k, "to": min(2 * self.arithmetic.k, self.p.k) - 1}

    def step(self, y: int, x: int, i: int, a: Array, b: Array, out: Array, extras: dict[str, Array]) -> Array:
        step = self.arithmetic.k
        kept = (np.arange(self.t.bk) // step % 2 == 0) | (self.t.bk % (2 * step) > 0)
        return super().step(y, x, i, a[:, kept], b[kept], out, extras)


class SingleBufferedB(Ninth):
    """A has a ring of stages, B one buffer, which the next copy overwrites under the running wgmma: A's K tiles meet B's next ones."""

    source = "triton-lang/triton#3106"
    styles = ("wgmma", "tcgen05")
    wish = Wish(tiles=3)
    needs = (either(A, B), either(AHEAD, STALE, MOVED), either(KTILE, STAGE))

    def tile_in_stage(self, operand: str, i: int, count: int) -> int | None:
        return min(i + 1, count - 1) if operand == "b" else i


class SoundSlicesFromTheEnd(Sound):
    """Right: split-K, the slices added from the last to the first."""

    wish = Wish(split=(3, 4), tiles=4)

    def combine(self, partials: list[Array], y: int, x: int) -> Array:
        return super().combine(partials[::-1], y, x)


class SoundTreeOfSlices(Sound):
    """Right: split-K of 4, added in pairs."""

    wish = Wish(split=(4,), tiles=4)

    def combine(self, partials: list[Array], y: int, x: int) -> Array:
        one, two, three, four = (self.values(partial) for partial in partials)
        return (one + two) + (three + four)


class SoundSlicesInDouble(Sound):
    """Right: the slices are added in f64 and rounded once."""

    floats = True
    wish = Wish(split=(2, 3), tiles=3)

    def combine(self, partials: list[Array], y: int, x: int) -> Array:
        return sum(self.values(partial).astype(np.float64) for partial in partials).astype(np.float32)  # type: ignore[union-attr]


class SoundEvenAndOddTiles(Sound):
    """Right: even and odd K tiles have accumulators of their own, added at the end."""

    wish = Wish(tiles=4)

    def mainloop(self, y: int, x: int, part: int) -> Array:
        sums = [self.accumulators(y, x, 0), self.accumulators(y, x, 1)]
        for i, tile in enumerate(self.slice_of(0)):
            sums[i % 2] = self.step(
                y, x, i, self.tile_a(y, x, tile), self.tile_b(y, x, tile), sums[i % 2], self.extras(y, x, tile)
            )
        return (self.values(sums[0]) + self.values(sums[1])).view(np.uint32)


class SoundResidueFirst(Sound):
    """Right: the residue of K is the first tile of both operands, as in CUTLASS 2."""

    plain = True
    source = "NVIDIA/cutlass#569"
    wish = Wish(ragged="k", tiles=3)

    def shifted(self, tile: int) -> Array:
        within, residue = np.arange(self.t.bk), self.p.k - (self.k_tiles() - 1) * self.t.bk
        return residue + (tile - 1) * self.t.bk + within if tile else np.where(within < residue, within, self.p.k)

    def k_of_a(self, tile: int) -> Array:
        return self.shifted(tile)

    def k_of_b(self, tile: int) -> Array:
        return self.shifted(tile)


class SoundPromotedEveryTile(Sound):
    """Right: fp8 with fresh accumulators for every K tile, which are added in f32 as DeepGEMM does."""

    only = "8 bits"
    floats = True
    plain = True
    wish = Wish(tiles=3)

    def step(self, y: int, x: int, i: int, a: Array, b: Array, out: Array, extras: dict[str, Array]) -> Array:
        fresh = self.multiply(a, b, np.zeros_like(out), extras)
        return (self.values(out) + self.values(fresh)).view(np.uint32)


class SoundSlicedK(Sound):
    """Right: two groups of warps share every K tile, and their sums are added through shared memory."""

    plain = True
    source = "NVIDIA/cutlass#1577"

    def mainloop(self, y: int, x: int, part: int) -> Array:
        half = self.t.bk // 2
        sums = [self.accumulators(y, x, 0), self.accumulators(y, x, 1)]
        for tile in self.slice_of(0):
            a, b = self.tile_a(y, x, tile), self.tile_b(y, x, tile)
            sums = [
                self.multiply(a[:, at : at + half], b[at : at + half], own, {})
                for at, own in zip((0, half), sums, strict=True)
            ]
        return (self.values(sums[0]) + self.values(sums[1])).view(np.uint32)


class SoundKInterleaved(Sound):
    """Right: even k first, then odd k, in every K tile of both operands."""

    plain = True

    def fragments_a(self, tile: Array) -> Array:
        return np.concatenate([tile[:, ::2], tile[:, 1::2]], axis=1)

    def fragments_b(self, tile: Array) -> Array:
        return self.fragments_a(tile)


class SoundScaledInSlices(Sound):
    """Right: block-scaled, split-K of uneven slices."""

    only = "scaled"
    wish = Wish(split=(2, 3), tiles=5)


class SoundSparseFromTheEnd(Sound):
    """Right: sparse, the K tiles from the last to the first."""

    only = "sparse"
    wish = Wish(tiles=3)

    def slice_of(self, part: int) -> list[int]:
        return super().slice_of(part)[::-1]


class SoundRaggedEverywhere(Sound):
    """Right: M, N and K end within a tile, C is added in the epilogue."""

    wish = Wish(ragged="mnk", c=True)

    def setup(self) -> None:
        self.c_late = True

    def epilogue(self, total: Array, rows: Array, columns: Array) -> Array:
        return total + self.values(self.read_c(rows, columns))
