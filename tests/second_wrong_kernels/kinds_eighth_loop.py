"""The eighth set: mistakes of the loop over K, of stages, and of split-K and stream-K."""

from __future__ import annotations

import numpy as np

from tests.second_wrong_kernels.kinds_eighth import AGAIN, FROM, UNMASKED, WITHOUT, Eighth, either, everything, span
from tests.second_wrong_kernels.problem import Array, Wish
from tests.second_wrong_kernels.words import BLOCK, COLUMNS, KTILE, SAME, SPLIT, STAGE, STALE, TRANSPOSED, ZERO, A, B, C, value

LACK = either(WITHOUT, ZERO)
SHIFTED = r"shift|offset|ahead|behind|one (?:k )?tile|next|previous|earlier|later|before|late|early|lag|moved|starts|paired|against|meets|with k"


def parts_of_k(kernel: Eighth, tiles: list[int]) -> dict[str, int]:
    """The range of K of some K tiles that follow each other, as facts."""
    return {"from": tiles[0] * kernel.t.bk, "to": min((tiles[-1] + 1) * kernel.t.bk, kernel.p.k) - 1} if tiles else {"from": -1, "to": -1}


class MiddlePartialsLost(Eighth):
    """The last block of a stream-K tile waits for the first one alone: of {parts} partial sums those between, k {from}-{to}, are missing."""

    source = "NVIDIA/cutlass#2027"
    wish = Wish(tiles=4, split=(3, 4))
    needs = (LACK, either(span("from", "to"), everything(SPLIT, "middle|between|inner")))
    half = (either(SPLIT, KTILE),)

    def setup(self) -> None:
        middle = [tile for part in range(1, self.t.split - 1) for tile in self.slice_of(part)]
        self.facts = {"parts": self.t.split, **parts_of_k(self, middle)}

    def combine(self, partials: list[Array], y: int, x: int) -> Array:
        return super().combine([partials[0], partials[-1]], y, x)


class BoundaryTileInBothSlices(Eighth):
    """The ends of a slice of K are rounded outwards to whole tiles: the tile at a boundary, k {from}-{to}, is summed in both slices."""

    source = "ggml-org/llama.cpp#8311"
    wish = Wish(tiles=5, split=(2, 3))
    needs = (either(AGAIN, "both"), either(span("from", "to"), everything(KTILE, "boundar|between slices|both slices")))
    half = (either(SPLIT, KTILE),)

    def setup(self) -> None:
        first = [tile for tile in self.slice_of(0) if tile in self.slice_of(1)]
        self.facts = parts_of_k(self, first)

    def slice_of(self, part: int) -> list[int]:
        tiles, parts = self.k_tiles(), self.t.split
        return list(range(part * tiles // parts, -(-(part + 1) * tiles // parts)))


class BoundaryTileInNoSlice(Eighth):
    """The ends of a slice of K are rounded inwards to whole tiles: the tile at a boundary, k {from}-{to}, is in no slice and missing."""

    source = "NVIDIA/cutlass#2100"
    wish = Wish(tiles=5, split=(2, 3))
    needs = (LACK, either(span("from", "to"), everything(KTILE, "boundar|between slices")))
    half = (either(SPLIT, KTILE),)

    def setup(self) -> None:
        self.facts = parts_of_k(self, range(self.slice_of(0)[-1] + 1, self.slice_of(1)[0]) if self.slice_of(1) else [])  # type: ignore[arg-type]

    def slice_of(self, part: int) -> list[int]:
        tiles, parts = self.k_tiles(), self.t.split
        return list(range(-(-part * tiles // parts), (part + 1) * tiles // parts))


class PartialOfTheNeighbour(Eighth):
    """The workspace is indexed by the wrong tile: a block adds the second partial sum, k {from}-{to}, of the block to its right."""

    wish = Wish(blocks=(1, 2), split=(2,), tiles=3, whole="n")
    needs = (
        either(SPLIT, "workspace"),
        either(
            "neighbou?r|next block|next tile|other (?:block|tile)|another|right of|to (?:the|its) right|wrong (?:block|tile)|different (?:block|tile)",
            everything(COLUMNS, r"columns? \d+-\d+", span("from", "to")),
        ),
    )
    half = (either(SPLIT, "columns"),)

    def setup(self) -> None:
        self.facts = parts_of_k(self, self.slice_of(1))

    def combine(self, partials: list[Array], y: int, x: int) -> Array:
        return super().combine([partials[0], self.mainloop(y, (x + 1) % self.grid()[1], 1)], y, x)


class PartialTransposed(Eighth):
    """A partial sum, that of k {from}-{to}, is written to the workspace by rows and read by columns: transposed in each block."""

    wish = Wish(split=(2,), tiles=3, whole="mn")
    needs = (either(SPLIT, "workspace"), TRANSPOSED)
    half = (either(SPLIT, "transpos|permut"),)

    def setup(self) -> None:
        self.facts = parts_of_k(self, self.slice_of(1))

    def combine(self, partials: list[Array], y: int, x: int) -> Array:
        shape = partials[1].shape
        return super().combine([partials[0], np.ascontiguousarray(partials[1].T).reshape(shape) if shape[0] == shape[1] else partials[1]], y, x)


class SourceAddedInEverySlice(Eighth):
    """Every one of the {parts} slices of K adds C: D has {parts} times C."""

    source = "NVIDIA/cutlass#3650"
    wish = Wish(split=(2, 3), tiles=3, c=True)
    needs = (C, either(everything(value("parts"), r"times|factor|\bx\b|\*|multipl|added|beta"), everything(value("parts"), r"\b{parts} ?c\b"), "every slice|each slice"))
    half = (C,)

    def setup(self) -> None:
        self.facts = {"parts": self.t.split}

    def accumulators(self, y: int, x: int, part: int) -> Array:
        return super().accumulators(y, x, 0)


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
        return super().inside_b(k, columns) & (k < self.p.k - self.p.k % self.t.bk - (0 if self.p.k % self.t.bk else self.t.bk))


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
    needs = (A, either(everything(KTILE, SHIFTED), "lag|late|stale|previous|behind"), either(value("step"), r"\bstep|one instruction|previous fragment"))
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
        either(span("from", "to"), everything(KTILE, r"one (?:k )?tile (?:behind|late|too|before|earlier)|shift|prefetch|prologue")),
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
    needs = (B, either(everything(KTILE, either("half|halves|modulo|wrap", SAME, FROM)), r"\bsteps?\b|advance"), either(value("bk"), value("half"), "half"))
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


class StridedSlicesStartTogether(Eighth):
    """Slices of K take every {parts}-th tile, and all start at tile 0: those tiles are summed {parts} times, the others are missing."""

    wish = Wish(split=(2, 3), tiles=4)
    needs = (either(KTILE, SPLIT), either(everything(LACK, either(AGAIN, r"times")), everything(SAME, SPLIT), "start"))
    half = (either(KTILE, SPLIT),)

    def setup(self) -> None:
        self.facts = {"parts": self.t.split}

    def slice_of(self, part: int) -> list[int]:
        return list(range(0, self.k_tiles(), self.t.split))


class SerialSplitOverwrites(Eighth):
    """Serial split-K stores instead of adding: of {parts} slices only the last, k {from}-{to}, is in D, the others are missing."""

    wish = Wish(split=(2, 3), tiles=3)
    needs = (either(span("from", "to"), r"k 0-{before}(?!\d)", everything(SPLIT, "last")), either(LACK, "overwrit", r"\bonly\b|alone"))
    half = (either(KTILE, SPLIT),)

    def setup(self) -> None:
        last = parts_of_k(self, self.slice_of(self.t.split - 1))
        self.facts = {"parts": self.t.split, **last, "before": last["from"] - 1}

    def combine(self, partials: list[Array], y: int, x: int) -> Array:
        return super().combine(partials[-1:], y, x)


class AccumulatorsKeptForTheNextTile(Eighth):
    """Each of {ctas} persistent blocks keeps its accumulators for its next tile: a block has the sums of the tile {ctas} before it too."""

    wish = Wish(blocks=(2, 2), c=False, whole="mn")
    needs = (
        either(BLOCK, "accumulat"),
        either(r"not (?:cleared|reset|zeroed|initiali)|never (?:cleared|reset|zeroed)|kept|keep|carried|left ?over|accumulat", everything(r"\bplus\b|\badded?\b|\bsum\b|\+|\btoo\b|also", either("before", "previous", "another|other", r"rows \d+-\d+"))),
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
    needs = (either(LACK, "clear|overwrit|reset"), either(r"k 0-{before}(?!\d)", r"(?:from|only|alone)[^.]{0,20} k {from}\b", everything("clear|reset|overwrit", STAGE)))
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
    needs = (either(B, A), KTILE, "revers|backward|descending|from the last|from the end|opposite|mirror|other order|order of the k|permut|exchang|swap")
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
    needs = (either(B, STAGE), either(STALE, SHIFTED, "overwrit|released|too early|too soon"), either(COLUMNS, "half", STAGE))
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
