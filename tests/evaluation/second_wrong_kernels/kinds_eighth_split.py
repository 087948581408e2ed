"""The eighth set: mistakes of split-K and stream-K."""

from __future__ import annotations

import numpy as np

from tests.evaluation.second_wrong_kernels.kinds_eighth import AGAIN, WITHOUT, Eighth, either, everything, span
from tests.evaluation.second_wrong_kernels.problem import Array, Wish
from tests.evaluation.second_wrong_kernels.words import (
    COLUMNS,
    KTILE,
    SAME,
    SPLIT,
    TRANSPOSED,
    ZERO,
    C,
    value,
)

LACK = either(WITHOUT, ZERO)


def parts_of_k(kernel: Eighth, tiles: list[int]) -> dict[str, int]:
    """The range of K of some K tiles that follow each other, as facts."""
    return (
        {"from": tiles[0] * kernel.t.bk, "to": min((tiles[-1] + 1) * kernel.t.bk, kernel.p.k) - 1}
        if tiles
        else {"from": -1, "to": -1}
    )


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
        return super().combine(
            [partials[0], np.ascontiguousarray(partials[1].T).reshape(shape) if shape[0] == shape[1] else partials[1]],
            y,
            x,
        )


class SourceAddedInEverySlice(Eighth):
    """Every one of the {parts} slices of K adds C: D has {parts} times C."""

    source = "NVIDIA/cutlass#3650"
    wish = Wish(split=(2, 3), tiles=3, c=True)
    needs = (
        C,
        either(
            everything(value("parts"), r"times|factor|\bx\b|\*|multipl|added|beta"),
            everything(value("parts"), r"\b{parts} ?c\b"),
            "every slice|each slice",
        ),
    )
    half = (C,)

    def setup(self) -> None:
        self.facts = {"parts": self.t.split}

    def accumulators(self, y: int, x: int, part: int) -> Array:
        return super().accumulators(y, x, 0)


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
    needs = (
        either(span("from", "to"), r"k 0-{before}(?!\d)", everything(SPLIT, "last")),
        either(LACK, "overwrit", r"\bonly\b|alone"),
    )
    half = (either(KTILE, SPLIT),)

    def setup(self) -> None:
        last = parts_of_k(self, self.slice_of(self.t.split - 1))
        self.facts = {"parts": self.t.split, **last, "before": last["from"] - 1}

    def combine(self, partials: list[Array], y: int, x: int) -> Array:
        return super().combine(partials[-1:], y, x)
