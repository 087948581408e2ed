"""The eleventh set: mistakes of scale factors, sparse operands and formats."""

from __future__ import annotations

import numpy as np

from tests.evaluation.second_wrong_kernels.kinds_eleventh import META, MOVED, Eleventh, place
from tests.evaluation.second_wrong_kernels.kinds_ninth import LACK, SCALES, Scaled, either
from tests.evaluation.second_wrong_kernels.problem import Array, Wish
from tests.evaluation.second_wrong_kernels.words import (
    FIRST,
    KTILE,
    ROWS,
    SAME,
    A,
    B,
    value,
)


class ScaleOfTheFirstBlockOfATile(Scaled, Eleventh):
    """The scale factors are not moved on within a K tile: its first is used for all {bk} elements of K, in A and in B."""

    source = "mlc-ai/TIRx-kernels#5"
    needs = (SCALES, either(SAME, MOVED, r"used for all|not moved"), either(KTILE, FIRST, value("bk"), r"\bblocks?\b"))

    def extras(self, y: int, x: int, tile: int) -> dict[str, Array]:
        own = super().extras(y, x, tile)
        a, b = own["scale_a"], own["scale_b"]
        return {"scale_a": np.broadcast_to(a[:, :1], a.shape), "scale_b": np.broadcast_to(b[:1], b.shape)}


class ScalesOfTheBlockBeforeSwizzling(Scaled, Eleventh):
    """Blocks are renumbered in pairs of rows, and the scale factors are found by the number before: most blocks use the factors of other rows and columns."""

    source = "NVIDIA/cutlass#3394"
    wish = Wish(blocks=(2, 2))
    needs = (
        SCALES,
        r"\brows?\b|\bcolumns?\b|blockidx|\bblocks? .{0,30}\bblock|\bcta|grid|swizzl",
        either(MOVED, r"\bother\b|another|wrong|swizzl"),
    )

    def extras(self, y: int, x: int, tile: int) -> dict[str, Array]:
        return super().extras(y // 2, 2 * x + y % 2, tile)


class LastScaleNotApplied(Scaled, Eleventh):
    """The scale factors of the last block of K, {from}-{to}, are not applied, neither A's nor B's."""

    source = "pytorch/FBGEMM#6159"
    needs = (
        SCALES,
        place("from", "to", KTILE, r"\blast\b|\btail\b|\bfinal\b|trailing"),
        either(LACK, r"not applied|unscaled|\b1(?:\.0)?\b|\bone\b|forgot"),
    )

    def setup(self) -> None:
        last = (self.p.k - 1) // self.arithmetic.block
        self.facts = {"from": last * self.arithmetic.block, "to": self.p.k - 1}

    def _scales(self, name: str, row: Array, column: Array) -> Array:
        last = (self.p.k - 1) // self.arithmetic.block
        blocks = column if name == "scale_a" else row
        beyond = np.where(blocks == last, 1 << 20, blocks)
        return super()._scales(name, *((row, beyond) if name == "scale_a" else (beyond, column)))


class ScaleRowsWithAPaddedPitch(Scaled, Eleventh):
    """A's scale factors lie {count} a row, and are read as if a row were padded to {padded}."""

    source = "ROCm/aiter#2900"
    needs = (
        SCALES,
        A,
        r"pitch|leading dimension|stride|padd|offset|shift|(?:per|in a|a|of a) row\b|row length|other rows",
    )

    def setup(self) -> None:
        count = self.p.extras["scale_a"].shape[1]
        self.facts = {"count": count, "padded": -(-count // 4) * 4}

    def scales_a(self, rows: Array, blocks: Array) -> Array:
        address = rows * self.facts["padded"] + blocks
        return super().scales_a(*np.divmod(address, self.facts["count"]))


class MetadataOfTheUpperRows(Eleventh):
    """A word of metadata is for rows g and g + 8 of the fragment, and its lower half is used for both: rows 8-15 of every 16 have the metadata of rows 0-7."""

    only = "sparse"
    needs = (META, either(ROWS, r"8-15|0-7|\+ ?8\b"), either(SAME, MOVED, r"used for both"))

    def positions(self, rows: Array, k: Array) -> Array:
        return super().positions(rows - rows // 8 % 2 * 8, k)


class BTakenForE4m3(Eleventh):
    """The instruction takes B for e4m3, and it is e5m2."""

    source = "textbook"
    styles = ("wgmma",)
    only = "e4m3"
    needs = (B, r"e4m3", r"e5m2|format|type|decod|taken|read as|instead")

    def instruction(self) -> str:
        return super().instruction().replace("e5m2", "e4m3")
