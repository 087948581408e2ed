"""The eleventh set: mistakes of the loop over K, its stages, split-K and stream-K."""

from __future__ import annotations

import numpy as np

from tests.evaluation.second_wrong_kernels.kinds_eleventh import LATE, SOME, Eleventh, Persistent, place
from tests.evaluation.second_wrong_kernels.kinds_ninth import AGAIN, LACK, either, everything
from tests.evaluation.second_wrong_kernels.problem import Array, Wish
from tests.evaluation.second_wrong_kernels.words import KTILE, STAGE, ZERO, B, D, value


class LastStepOfEveryTileDropped(Eleventh):
    """The steps in a K tile are counted one too few: the last {step} of every {bk} along K are not multiplied."""

    source = "tile-ai/tilelang#2381"
    needs = (
        KTILE,
        either(LACK, ZERO),
        either(value("step"), r"last (?:step|instruction)|every (?:k )?tile|every \d+|\d-\d+,.*\d-\d+"),
    )

    def fragments_a(self, tile: Array) -> Array:
        dropped = tile.copy()
        dropped[:, -self.arithmetic.k // self.thin :] = 0
        return dropped


class StaleBehindTheEndOfK(Eleventh):
    """Copies past the end of K are skipped and not filled with zeros, so the stage keeps what it held {stages} K tiles ago: k {from}-{to} is added twice."""

    source = "NVIDIA/cutlass#831"
    plain = True
    wish = Wish(tiles=4, stages=(2,), ragged="k")
    needs = (
        place(
            "from",
            "to",
            KTILE,
            r"(?:past|beyond|behind|after) (?:the end|k\b)|not (?:filled|zeroed|cleared)|\btail|ragged|partial|remainder",
        ),
        either(AGAIN, LATE),
    )

    def setup(self) -> None:
        last = self.k_tiles() - 1
        old = last - self.t.stages
        self.facts = {"from": old * self.t.bk + self.p.k - last * self.t.bk, "to": (old + 1) * self.t.bk - 1}

    def tile_a(self, y: int, x: int, tile: int | None) -> Array:
        loaded = super().tile_a(y, x, tile)
        if tile != self.k_tiles() - 1:
            return loaded
        return np.where(self.k_of_a(tile) < self.p.k, loaded, super().tile_a(y, x, tile - self.t.stages))

    def tile_b(self, y: int, x: int, tile: int | None) -> Array:
        loaded = super().tile_b(y, x, tile)
        if tile != self.k_tiles() - 1:
            return loaded
        return np.where(self.k_of_b(tile)[:, None] < self.p.k, loaded, super().tile_b(y, x, tile - self.t.stages))


class BStillOnItsWay(Eleventh):
    """A and B are committed as groups of their own, and the wait counts K tiles: B is not waited for, and is found as its stage was {stages} K tiles before."""

    source = "facebookexperimental/triton#2058"
    plain = True
    wish = Wish(tiles=4, stages=(2, 3))
    needs = (B, either(LATE, r"\bwait|\blags?\b|stage|k \d+-\d+.{0,40}k \d"), either(KTILE, STAGE))

    def copies_landed(self, operand: str, i: int) -> int:
        return i if operand == "b" else i + 1


class TailNotDrained(Eleventh):
    """When no more copies are issued the wait still leaves {less} under way: the last K tiles, k {from}-{to}, are read as their stages were before."""

    source = "facebookexperimental/triton#169"
    plain = True
    wish = Wish(tiles=4, stages=(2, 3))
    needs = (
        place("from", "to", KTILE, r"last (?:k )?(?:tile|step)|last \d (?:k )?tiles"),
        either(LATE, AGAIN, r"stage|(?:is|are) k\b"),
    )

    def setup(self) -> None:
        less = self.t.stages - 1
        self.facts = {"less": less, **self.k_range(self.k_tiles() - less, self.k_tiles() - 1)}

    def copies_landed(self, operand: str, i: int) -> int:
        return min(i + 1, self.k_tiles() - self.t.stages + 1)


class ReadStageRestartsInEveryBlock(Persistent):
    """The stage that is read is counted from 0 in every block, the one that is written goes on: in a worker's second block, the K tile before is read in the place of each."""

    source = "tile-ai/tilelang#2785"
    wish = Wish(blocks=(2, 2), tiles=3, stages=(2,))
    needs = (SOME, r"stage|slot|buffer|pipeline|k tile|k \d+-\d+", either(LATE, AGAIN, r"(?:is|are) k\b|\blags?\b"))

    def count_read(self, now: int, i: int) -> int:
        return now - (now - i) % self.t.stages


class PhaseNotCarriedToTheNextBlock(Persistent):
    """The parity of the barriers starts anew in a worker's second block, and no wait waits: each stage is read as it was {stages} K tiles before."""

    source = "tile-ai/tilelang#2674"
    wish = Wish(blocks=(2, 2), tiles=3, stages=(2, 3))
    needs = (SOME, r"stage|slot|buffer|pipeline|k tile|k \d+-\d+", either(LATE, AGAIN, r"(?:is|are) k\b|\blags?\b"))

    def count_read(self, now: int, i: int) -> int:
        return now if now == i else now - self.t.stages


class SliceStartRoundedDown(Eleventh):
    """The start of a slice is rounded down to an even K tile and the end of the slice before is not: k {from}-{to} is added twice."""

    source = "ggml-org/llama.cpp#8311"
    wish = Wish(split=(2,), tiles=5)
    needs = (place("from", "to", KTILE, everything(r"k tile|overlap|boundar", r"slices?\b|split\b|overlap")), AGAIN)

    def setup(self) -> None:
        start = super().slice_of(1)[0]
        self.facts = self.k_range(start // 2 * 2, start - 1)

    def slice_of(self, part: int) -> list[int]:
        tiles = super().slice_of(part)
        return list(range(tiles[0] // 2 * 2, tiles[-1] + 1))


class KRunsIntoTheNextRow(Eleventh):
    """The last K tile is taken for a whole one: {pad} elements past K are read from the next row of A and the next column of B, and added."""

    source = "ROCm/rocm-libraries#7584"
    plain = True
    wish = Wish(ragged="k", majors="kk")
    needs = (
        KTILE,
        either(
            value("whole"),
            r"(?:next|following) (?:row|column)|row below|runs? (?:on|over|into)|(?:reads?|loads?|loaded|runs?) .{0,15}(?:past|beyond|behind)",
            r"mask|bound|out of range|wrap|predicate",
        ),
    )

    def setup(self) -> None:
        whole = self.k_tiles() * self.t.bk
        self.facts = {"whole": whole, "pad": whole - self.p.k}

    def inside_a(self, rows: Array, k: Array) -> Array:
        return (rows < self.p.m) & (k >= 0)

    def inside_b(self, k: Array, columns: Array) -> Array:
        return (columns < self.p.n) & (k >= 0)


class OutputNotClearedBeforeAtomics(Eleventh):
    """The slices are added to an output that still holds the result of the run before: every output is twice the product."""

    source = "ROCm/aiter#4023"
    wish = Wish(split=(2, 3), tiles=3, c=False)
    needs = (
        either(D, r"product|every|\ball\b|\bsum|whole|alpha|\ba b\b"),
        r"twice(?! as many)|doubled?\b|\b(?:2|two) times|times (?:2|two)\b|factor (?:of )?(?:2|two)\b|[x\xd7*] ?2\b|\b2(?:\.0)? ?[x\xd7*]|alpha\W+(?:is |of )?2\b|added again|\b2 \(?a b",
    )

    def combine(self, partials: list[Array], y: int, x: int) -> Array:
        return super().combine(partials + partials, y, x)


class PrologueNotAdvanced(Eleventh):
    """The copies before the loop all take the first K tile: k {from}-{to} is missing, and the first K tile is there again in its place."""

    source = "textbook"
    plain = True
    wish = Wish(tiles=4, stages=(3, 4))
    needs = (
        place("from", "to", KTILE, r"first (?:k )?tile|tile 0\b|\bk 0-\d+"),
        either(AGAIN, LACK, r"not advanced|the same|copies of|copy of|(?:is|are) k\b"),
    )

    def setup(self) -> None:
        self.facts = self.k_range(1, self.t.stages - 2)

    def tile_in_stage(self, operand: str, i: int, count: int) -> int | None:
        return i if i > self.t.stages - 2 else 0
