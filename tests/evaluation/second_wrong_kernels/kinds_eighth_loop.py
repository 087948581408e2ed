"""The eighth set: mistakes of the loop over K, and of stages."""

from __future__ import annotations

import numpy as np

from tests.evaluation.second_wrong_kernels.kinds_eighth import AGAIN, FROM, UNMASKED, Eighth, either, everything, span
from tests.evaluation.second_wrong_kernels.kinds_eighth_split import LACK, parts_of_k
from tests.evaluation.second_wrong_kernels.problem import Array, Wish
from tests.evaluation.second_wrong_kernels.words import (
    BLOCK,
    COLUMNS,
    KTILE,
    SAME,
    STAGE,
    STALE,
    A,
    B,
    value,
)

SHIFTED = r"shift|offset|ahead|behind|one (?:k )?tile|next|previous|earlier|later|before|late|early|lag|moved|starts|paired|against|meets|with k"


class TailReadOnIntoTheNextRow(Eighth):
    """The end of K has no mask: beyond K = {k} both operands are read on into the next row of A and the next column of B."""

    source = "triton-lang/triton#630"
    plain = True
    wish = Wish(majors="kk", ragged="k")
    needs = (
        KTILE,
        either(
            UNMASKED,
            r"next (?:row|column)|reads? on|padding|not cleared|not zero|more than k|too (?:long|far)|extra k|further",
            everything(value("k"), value("longer")),
        ),
    )
    half = (r"\bk\b",)

    def setup(self) -> None:
        self.facts = {"k": self.p.k, "longer": self.k_tiles() * self.t.bk}

    def inside_a(self, rows: Array, k: Array) -> Array:
        return (rows < self.p.m) & (k >= 0)

    def inside_b(self, k: Array, columns: Array) -> Array:
        return (columns < self.p.n) & (k >= 0)


class RemainderOfZero(Eighth):
    """The last K tile is cut to K % {bk}, which is 0 here: k {from}-{to} is masked off and missing."""

    wish = Wish(whole="k")
    needs = (LACK, either(span("from", "to"), everything(KTILE, r"\blast\b|\btail\b|\bend")))
    half = (KTILE,)

    def setup(self) -> None:
        self.facts = {"bk": self.t.bk, **parts_of_k(self, [self.k_tiles() - 1])}

    def inside_b(self, k: Array, columns: Array) -> Array:
        return super().inside_b(k, columns) & (
            k < self.p.k - self.p.k % self.t.bk - (0 if self.p.k % self.t.bk else self.t.bk)
        )


class ResidueFirstThenWholeTiles(Eighth):
    """The first K tile is cut to the residue of {rest}, then the pointers advance by a whole tile: k {rest}-{to} is missing."""

    wish = Wish(ragged="k", tiles=2)
    plain = True
    needs = (LACK, either(span("rest", "to"), everything(KTILE, r"\bfirst (?:k )?tile", value("rest"))))
    half = (KTILE,)

    def setup(self) -> None:
        self.facts = {"rest": self.p.k % self.t.bk, "to": self.t.bk - 1}

    def inside_b(self, k: Array, columns: Array) -> Array:
        return super().inside_b(k, columns) & ((k < self.p.k % self.t.bk) | (k >= self.t.bk))


class AdvancedBeforeTheFirstLoad(Eighth):
    """A's pointer is advanced before the first load: A is one K tile, {bk}, ahead of B, and the last tile of B meets zeros."""

    plain = True
    wish = Wish(tiles=3)
    needs = (A, SHIFTED, either(value("bk"), "one (?:k )?tile|a tile|next"))
    half = (either(A, KTILE),)

    def setup(self) -> None:
        self.facts = {"bk": self.t.bk}

    def k_of_a(self, tile: int) -> Array:
        return super().k_of_a(tile + 1)


class UnrolledByTwoTooFar(Eighth):
    """The loop is unrolled by two and there are {tiles} K tiles: the last one, k {from}-{to}, is multiplied twice."""

    wish = Wish(tiles=3)
    needs = (AGAIN, either(span("from", "to"), everything(KTILE, r"\blast\b")))
    half = (KTILE,)

    def setup(self) -> None:
        self.facts = {"tiles": self.k_tiles(), **parts_of_k(self, [self.k_tiles() - 1])}

    def slice_of(self, part: int) -> list[int]:
        tiles = super().slice_of(part)
        return tiles + tiles[-1:] if len(tiles) % 2 else tiles


class FragmentsOneStepLate(Eighth):
    """The register double buffer of A is read before it is switched: A's fragments lag one k step of {step} behind B's."""

    plain = True
    styles = ("mma",)
    needs = (
        A,
        either(everything(KTILE, SHIFTED), "lag|late|stale|previous|behind"),
        either(value("step"), r"\bstep|one instruction|previous fragment"),
    )
    half = (either(A, KTILE),)

    def setup(self) -> None:
        self.facts = {"step": self.arithmetic.k}
        self.last: Array | None = None

    def step(self, y: int, x: int, i: int, a: Array, b: Array, out: Array, extras: dict[str, Array]) -> Array:
        before = np.zeros_like(a) if i == 0 or self.last is None else self.last
        self.last = a
        late = np.concatenate([before[:, -self.arithmetic.k :], a[:, : -self.arithmetic.k]], axis=1)
        return super().step(y, x, i, np.ascontiguousarray(late), b, out, extras)


class BytesOfAAloneExpected(Eighth):
    """The barrier expects the bytes of A alone: B's stage still holds the tile of {stages} iterations before, and zeros at first."""

    source = "tile-ai/tilelang#2613"
    plain = True
    wish = Wish(tiles=4, stages=(2,))
    needs = (B, either(STALE, SHIFTED, STAGE), either(KTILE, STAGE))
    half = (either(B, STAGE),)

    def setup(self) -> None:
        self.facts = {"stages": self.t.stages}

    def copies_landed(self, operand: str, i: int) -> int:
        return i if operand == "b" else i + 1


class BarrierPhaseStuck(Eighth):
    """The phase of the barriers never flips: from K tile {stages} on, each iteration reads the tiles of {stages} iterations before."""

    plain = True
    wish = Wish(tiles=5, stages=(2, 3))
    needs = (
        either(STALE, "phase|parity", everything(AGAIN, LACK), everything(KTILE, SAME)),
        either("stage|phase|parity|buffer|iteration|pipeline|slot", value("at"), r"k \d+-\d+"),
    )
    half = (either(STAGE, KTILE),)

    def setup(self) -> None:
        self.facts = {"stages": self.t.stages, "at": self.t.stages * self.t.bk}

    def copies_landed(self, operand: str, i: int) -> int:
        return i + 1 if i < self.t.stages else i


class ReadRingShorter(Eighth):
    """B's stage is read modulo {fewer}, written modulo {stages}: iterations meet other K tiles of B than of A."""

    plain = True
    wish = Wish(tiles=4, stages=(3, 4))
    needs = (B, either("stage|slot|ring|buffer|modulo|pipeline", everything(KTILE, either(SHIFTED, FROM))))
    half = (either(B, STAGE),)

    def setup(self) -> None:
        self.facts = {"stages": self.t.stages, "fewer": self.t.stages - 1}

    def slot_read(self, operand: str, i: int) -> int:
        return i % (self.t.stages - 1) if operand == "b" else super().slot_read(operand, i)


class PrologueTileLoadedAgain(Eighth):
    """The loop's first prefetch repeats the last tile of the prologue: k {from}-{to} is multiplied twice, and the last K tile is missing."""

    plain = True
    wish = Wish(tiles=5, stages=(3, 4))
    needs = (
        either(
            span("from", "to"),
            everything(KTILE, r"one (?:k )?tile (?:behind|late|too|before|earlier)|shift|prefetch|prologue"),
        ),
        either(AGAIN, SHIFTED),
    )
    half = (either(KTILE, STAGE),)

    def setup(self) -> None:
        self.facts = parts_of_k(self, [self.t.stages - 2])

    def tile_in_stage(self, operand: str, i: int, count: int) -> int | None:
        return i if i < self.t.stages - 1 else i - 1


class StepsWrapInHalfATile(Eighth):
    """The k step of B's address is taken modulo half of the steps: the upper half of each K tile of {bk} of A meets the lower half of B."""

    plain = True
    needs = (
        B,
        either(everything(KTILE, either("half|halves|modulo|wrap", SAME, FROM)), r"\bsteps?\b|advance"),
        either(value("bk"), value("half"), "half"),
    )
    half = (either(B, KTILE),)

    def setup(self) -> None:
        self.facts = {"bk": self.t.bk, "half": self.t.bk // 2}

    def fragments_b(self, tile: Array) -> Array:
        return np.concatenate([tile[:, : self.t.bk // 2]] * 2, axis=1)


class SlicedKNotReduced(Eighth):
    """Warps share each K tile of {bk}, and their sums are not added: the upper half of each tile, from k {half} on, is missing."""

    needs = (LACK, everything(KTILE, either(r"half|halves|k {half}-\d+", r"of (?:every|each) {bk}", value("half"))))
    half = (KTILE,)

    def setup(self) -> None:
        self.facts = {"bk": self.t.bk, "half": self.t.bk // 2}

    def fragments_b(self, tile: Array) -> Array:
        return np.where(np.arange(self.t.bk) < self.t.bk // 2, tile, 0).astype(tile.dtype)


class AccumulatorsKeptForTheNextTile(Eighth):
    """Each of {ctas} persistent blocks keeps its accumulators for its next tile: a block has the sums of the tile {ctas} before it too."""

    wish = Wish(blocks=(2, 2), c=False, whole="mn")
    needs = (
        either(BLOCK, "accumulat"),
        either(
            r"not (?:cleared|reset|zeroed|initiali)|never (?:cleared|reset|zeroed)|kept|keep|carried|left ?over|accumulators? of",
            everything(
                r"\bplus\b|\badded?\b|\bsum\b|\+|\btoo\b|also",
                either("before", "previous", "another|other", r"rows \d+-\d+"),
            ),
        ),
    )
    half = (BLOCK,)

    def setup(self) -> None:
        along_m, along_n = self.grid()
        self.facts = {"ctas": int(self.random.integers(1, along_m * along_n))}

    def accumulators(self, y: int, x: int, part: int) -> Array:
        before = y * self.grid()[1] + x - self.facts["ctas"]
        if before < 0 or part:
            return super().accumulators(y, x, part)
        return self.mainloop(*divmod(before, self.grid()[1]), 0)


class ClearedWhenTheRingWraps(Eighth):
    """Accumulators are cleared whenever stage 0 is read: k 0-{before} is missing."""

    wish = Wish(tiles=4, stages=(2, 3))
    needs = (
        either(LACK, "clear|overwrit|reset"),
        either(
            r"k 0-{before}(?!\d)",
            r"(?:from|only|alone)[^.]{0,20} k {from}\b",
            everything("clear|reset|overwrit", STAGE),
        ),
    )
    half = (KTILE,)

    def setup(self) -> None:
        at = (self.k_tiles() - 1) // self.t.stages * self.t.stages * self.t.bk
        self.facts = {"before": at - 1, "from": at}

    def step(self, y: int, x: int, i: int, a: Array, b: Array, out: Array, extras: dict[str, Array]) -> Array:
        return super().step(y, x, i, a, b, out if i % self.t.stages else np.zeros_like(out), extras)


class BRunsBackwards(Eighth):
    """K tiles of B are loaded from the last to the first, those of A from the first to the last."""

    plain = True
    wish = Wish(tiles=3, whole="k")
    needs = (
        either(B, A),
        KTILE,
        "revers|backward|descending|from the last|from the end|opposite|mirror|other order|order of the k|permut|exchang|swap",
    )
    half = (either(B, KTILE),)

    def k_of_b(self, tile: int) -> Array:
        return super().k_of_b(self.k_tiles() - 1 - tile)


class TailOfStepsRoundedDown(Eighth):
    """The steps of the last K tile are its length // {step}, rounded down: k {from}-{to} is missing."""

    source = "triton-lang/triton#8899"
    plain = True
    wish = Wish(ragged="k")
    needs = (LACK, either(span("from", "to"), everything(KTILE, r"\blast\b|\btail\b|\bend\b|remainder", value("lost"))))
    half = (KTILE,)

    def setup(self) -> None:
        lost = self.p.k % self.arithmetic.k
        self.facts = {"step": self.arithmetic.k, "from": self.p.k - lost, "to": self.p.k - 1, "lost": lost}

    def inside_b(self, k: Array, columns: Array) -> Array:
        return super().inside_b(k, columns) & (k < self.facts["from"])


class OverwrittenWhileRead(Eighth):
    """The stage of B is released too early: the right half of a tile's columns meets the K tile of {stages} iterations later."""

    source = "uccl-project/mKernel#18"
    plain = True
    wish = Wish(tiles=4, stages=(2,), whole="n")
    needs = (
        either(B, STAGE),
        either(STALE, SHIFTED, "overwrit|released|too early|too soon"),
        either(COLUMNS, "half", STAGE),
    )
    half = (either(B, STAGE),)

    def setup(self) -> None:
        self.facts = {"stages": self.t.stages}

    def tile_b(self, y: int, x: int, tile: int | None) -> Array:
        right = super().tile_b(y, x, tile)
        if tile is None or tile + self.t.stages >= self.k_tiles():
            return right
        later = super().tile_b(y, x, tile + self.t.stages)
        return np.where(np.arange(self.t.bn) < self.t.bn // 2, right, later).astype(right.dtype)


class EmptyGroupsNotCommitted(Eighth):
    """No empty groups are committed at the end: the last K tile, k {from}-{to}, is read before it landed, that of {stages} before instead."""

    plain = True
    wish = Wish(tiles=4, stages=(2, 3))
    needs = (either(span("from", "to"), everything(KTILE, r"\blast\b")), either(STALE, LACK, SAME))
    half = (either(KTILE, STAGE),)

    def setup(self) -> None:
        self.facts = {"stages": self.t.stages, **parts_of_k(self, [self.k_tiles() - 1])}

    def copies_landed(self, operand: str, i: int) -> int:
        return i if i == self.k_tiles() - 1 else i + 1
