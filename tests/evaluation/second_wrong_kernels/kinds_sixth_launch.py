"""The sixth set: grids, blocks, persistent kernels and split-K."""

from __future__ import annotations

import numpy as np

from tests.evaluation.second_wrong_kernels import words as w
from tests.evaluation.second_wrong_kernels.kinds_sixth import (
    ALONE,
    FACTOR,
    FIXED,
    LEFT_OUT,
    MOVED,
    SLICE,
    TILE,
    UNWRITTEN,
    Sixth,
)
from tests.evaluation.second_wrong_kernels.problem import Array, Wish

GRID = Wish(blocks=(2, 2))


class FloorOfTheGrid(Sixth):
    """The grid has {axis} // tile blocks along {axis}, so nobody computes the ragged end."""

    wish = Wish(blocks=(2, 2), ragged="mn")
    needs = ("{pattern}", UNWRITTEN)
    half = ("{pattern}|zero|last",)

    def setup(self) -> None:
        self.floored = self.axis()

    def grid(self) -> tuple[int, int]:
        along = list(super().grid())
        along[self.floored] -= 1
        return along[0], along[1]


class GridAxesCrossed(Sixth):
    """blockIdx.x counts the blocks along M and the grid was launched with x along N: some are not computed."""

    wish = GRID
    needs = (TILE, UNWRITTEN + "|crossed|other way|" + w.SWAPPED)
    half = (TILE,)

    def blocks(self) -> list[tuple[int, int]]:
        return [(x, y) for y, x in super().blocks()]


class BlockIdxLeftOut(Sixth):
    """Every block loads the rows of {operand} of block 0: blockIdx is not in the pointer."""

    wish = GRID
    plain = True
    needs = ("{pattern}", TILE, FIXED)
    half = ("{pattern}", TILE)

    def setup(self) -> None:
        self.operands("a", "b")

    def rows_loaded(self, operand: str, block: int, size: int) -> Array:
        return super().rows_loaded(operand, 0 if operand in self.hit else block, size)


class BlockStepOfTheOtherTile(Sixth):
    """Blocks step through {operand} by {step}, the other side's tile."""

    wish = Wish(blocks=(2, 2), uneven=True)
    plain = True
    needs = ("{pattern}", TILE + "|step|stride|offset|starts", "{step.pattern}|" + w.OFFSET)
    half = ("{pattern}",)

    def setup(self) -> None:
        self.operands("a", "b")
        self.step_of = int(self.choose("step", self.t.bn if self.hit == "a" else self.t.bm))

    def rows_loaded(self, operand: str, block: int, size: int) -> Array:
        return block * (self.step_of if operand in self.hit else size) + np.arange(size)


class StoreStepOfTheOtherTile(Sixth):
    """Blocks step through D's {axis} by {step}, the other side's tile."""

    wish = Wish(blocks=(2, 2), uneven=True, c=False)
    needs = ("{pattern}", w.D, TILE, UNWRITTEN + "|step|stride|offset|starts|" + MOVED)
    half = ("{pattern}", UNWRITTEN)

    def setup(self) -> None:
        self.along = self.axis()
        self.step_of = int(self.choose("step", self.t.bm if self.along else self.t.bn))

    def rows_of_d(self, y: int, x: int) -> Array:
        return y * (self.t.bm if self.along else self.step_of) + np.arange(self.t.bm)

    def columns_of_d(self, y: int, x: int) -> Array:
        return x * (self.step_of if self.along else self.t.bn) + np.arange(self.t.bn)


class GroupHeightNotClamped(Sixth):
    """The grouped order of the blocks does not clamp the last group to the grid's height: some blocks have no program."""

    wish = Wish(blocks=(3, 2))
    needs = (TILE, UNWRITTEN)
    half = (TILE + "|zero",)

    def blocks(self) -> list[tuple[int, int]]:
        (along_m, along_n), group = self.grid(), 2
        each = group * along_n
        pairs = [(pid // each * group + pid % group, pid % each // group) for pid in range(along_m * along_n)]
        return [(y, x) for y, x in pairs if y < along_m and x < along_n]


class WavesRoundedDown(Sixth):
    """A persistent kernel of {ctas} CTAs takes blocks // CTAs rounds: the last blocks are nobody's."""

    wish = GRID
    needs = (TILE, UNWRITTEN)
    half = (TILE + "|zero",)

    def setup(self) -> None:
        total = len(super().blocks())
        self.ctas = int(self.choose("ctas", *([n for n in range(2, total) if total % n] or [total])))

    def blocks(self) -> list[tuple[int, int]]:
        every = super().blocks()
        return every[: len(every) // self.ctas * self.ctas]


class AccumulatorsKept(Sixth):
    """A persistent kernel of {ctas} CTAs does not clear its accumulators between two blocks."""

    source = "NVIDIA/cutlass#2674"
    wish = Wish(blocks=(2, 2), c=False)
    needs = (
        TILE,
        r"clear|zeroed|reset|initiali|carr(?:y|ied)|left ?over|kept|accumulator|added|plus|also (?:holds|contains)|sum of",
    )
    half = (TILE,)

    def setup(self) -> None:
        self.ctas, self.kept = int(self.choose("ctas", 1, 2, 3)), {}

    def accumulators(self, y: int, x: int, part: int) -> Array:
        return self.kept.get(self.number(y, x) % self.ctas, super().accumulators(y, x, part))

    def mainloop(self, y: int, x: int, part: int) -> Array:
        out = self.kept[self.number(y, x) % self.ctas] = super().mainloop(y, x, part)
        return out


# Split-K.


class SliceNotReduced(Sixth):
    """The reduction adds {added} of the {split} slices of split-K."""

    wish = Wish(split=(2, 3, 4), c=False)
    needs = (SLICE, ALONE, w.KTILE)
    half = (SLICE,)

    def setup(self) -> None:
        self.missed = int(self.random.integers(self.t.split))
        self.facts |= {"split": self.t.split, "added": self.t.split - 1}

    def combine(self, partials: list[Array], y: int, x: int) -> Array:
        return super().combine([p for i, p in enumerate(partials) if i != self.missed], y, x)


class SliceStoredOverSlice(Sixth):
    """Slices of split-K store where they should add: the last one, of {split}, remains."""

    wish = Wish(split=(2, 3, 4), tiles=4, c=False)
    needs = (SLICE, w.KTILE, ALONE + "|stored")
    half = (SLICE,)

    def setup(self) -> None:
        self.facts["split"] = self.t.split

    def combine(self, partials: list[Array], y: int, x: int) -> Array:
        return super().combine(partials[-1:], y, x)


class SliceLengthRoundedDown(Sixth):
    """Each of {split} slices takes tiles // {split} tiles of K: the remainder is lost."""

    wish = Wish(split=(2, 3), tiles=3)
    needs = (w.KTILE, LEFT_OUT, w.LAST)
    half = (w.KTILE, "k \\d+-\\d+|last")

    def setup(self) -> None:
        self.facts["split"] = self.t.split

    def slice_of(self, part: int) -> list[int]:
        each = self.k_tiles() // self.t.split
        return list(range(part * each, (part + 1) * each))


class SlicesOverlapByATile(Sixth):
    """The end of a slice of split-K is inclusive: the next slice's first K tile counts twice."""

    wish = Wish(split=(2, 3), tiles=3)
    needs = (w.KTILE, w.TWICE, "k \\d+-\\d+|tile|slice|split")
    half = (w.KTILE, w.TWICE)

    def slice_of(self, part: int) -> list[int]:
        tiles = super().slice_of(part)
        return [*tiles, *([tiles[-1] + 1] if tiles and tiles[-1] + 1 < self.k_tiles() else [])]


class BiasInEverySlice(Sixth):
    """Each of {split} slices of split-K adds C."""

    wish = Wish(split=(2, 3, 4), tiles=4, c=True)
    needs = (w.C, "{split.pattern}|each slice|every slice|twice|double|more than once|again")
    half = (w.C,)

    def setup(self) -> None:
        self.choose("split", self.t.split)

    def accumulators(self, y: int, x: int, part: int) -> Array:
        return super().accumulators(y, x, 0)


class OutputOfTheLastRunKept(Sixth):
    """Slices are added by atomics to an output that still has the last run's: D is {runs} times the product."""

    source = "triton-lang/triton#2183"
    wish = Wish(split=(2, 3), c=False)
    needs = ("{runs.words}", FACTOR + "|added|again|zeroed|cleared|run")
    half = (FACTOR,)

    def setup(self) -> None:
        self.runs = int(self.choose("runs", 2, 3))

    def epilogue(self, total: Array, rows: Array, columns: Array) -> Array:
        return total * total.dtype.type(self.runs)


class OneBlockLacksASlice(Sixth):
    """Block {block} is stored before slice {slice} of {split} has come: the others are right."""

    wish = Wish(blocks=(2, 2), split=(2, 3), tiles=4, c=False)
    needs = (TILE, SLICE, LEFT_OUT)
    half = (TILE,)

    def setup(self) -> None:
        blocks = self.blocks()
        self.lacking = blocks[int(self.random.integers(len(blocks)))]
        self.missed = int(self.random.integers(self.t.split))
        self.facts |= {"block": self.lacking, "slice": self.missed, "split": self.t.split}

    def combine(self, partials: list[Array], y: int, x: int) -> Array:
        late = (y, x) == self.lacking
        return super().combine([p for i, p in enumerate(partials) if not (late and i == self.missed)], y, x)


class SliceOffsetLeftOut(Sixth):
    """Every slice of split-K, of {split}, reads {operand} from k 0 on."""

    wish = Wish(split=(2, 3), tiles=4, c=False)
    plain = True
    needs = ("{pattern}", SLICE, FIXED + "|" + w.OFFSET)
    half = ("{pattern}", w.KTILE)

    def setup(self) -> None:
        self.operands()
        self.facts["split"] = self.t.split

    def k_loaded(self, operand: str, tile: int, width: int) -> Array:
        first = self.tiles_of(0)
        return super().k_loaded(operand, tile % len(first) if operand in self.hit else tile, width)
