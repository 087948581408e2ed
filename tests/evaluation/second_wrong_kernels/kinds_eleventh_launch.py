"""The eleventh set: mistakes of the grid, the order of blocks, and ragged edges."""

from __future__ import annotations

import numpy as np

from tests.evaluation.second_wrong_kernels.kinds_eleventh import MOVED, Eleventh, near, place
from tests.evaluation.second_wrong_kernels.kinds_ninth import LACK, UNWRITTEN, either, everything, span
from tests.evaluation.second_wrong_kernels.problem import Array, Wish
from tests.evaluation.second_wrong_kernels.words import BLOCK, COLUMNS, KTILE, OFFSET, ROWS, ZERO, A, B, value


class ColumnBandDropped(Eleventh):
    """The columns of blocks are walked in groups of 2, and their number is divided without rounding up: columns {from}-{to} are never written."""

    source = "tile-ai/tilelang#2433"
    wish = Wish(blocks=(1, 3))
    needs = (place("from", "to", COLUMNS, r"last (?:block of )?columns?"), UNWRITTEN)

    def setup(self) -> None:
        self.facts = self.columns(2)

    def blocks(self) -> list[tuple[int, int]]:
        return [(y, x) for y, x in super().blocks() if x < self.grid()[1] // 2 * 2]


class LastWaveNotRun(Eleventh):
    """The host counts fewer tiles than the scheduler walks: the last block, rows {from}-{to} and columns {left}-{right}, is never computed."""

    source = "NVIDIA/cutlass#3497"
    wish = Wish(blocks=(3, 3))
    needs = (
        either(
            everything(r"\brows? " + span("from", "to"), r"\bcolumns? " + span("left", "right")),
            r"last (?:output |thread )?(?:block|tile|cta|wave)\b",
        ),
        UNWRITTEN,
    )

    def setup(self) -> None:
        y, x = super().blocks()[-1]
        across = self.columns(x)
        self.facts = {**self.rows(y), "left": across["from"], "right": across["to"]}

    def blocks(self) -> list[tuple[int, int]]:
        return super().blocks()[:-1]


class GridForATallerTile(Eleventh):
    """The grid is sized for tiles of twice as many rows as the kernel has: rows {from}-{to} are never written."""

    source = "Avarok-Cybersecurity/atlas#474"
    wish = Wish(blocks=(2, 1))
    needs = (place("from", "to", ROWS, r"half|halves|last (?:block of )?rows?"), UNWRITTEN)

    def setup(self) -> None:
        self.facts = {"from": -(-self.grid()[0] // 2) * self.t.bm, "to": self.p.m - 1}

    def blocks(self) -> list[tuple[int, int]]:
        return [(y, x) for y, x in super().blocks() if y < -(-self.grid()[0] // 2)]


class GridAxesExchanged(Eleventh):
    """The grid has its two axes exchanged: there are too few blocks along one, and {axis} {from}-{to} are never written."""

    source = "textbook"
    wish = Wish(blocks=(1, 2))
    needs = (either(place("from", "to", "{axis}"), everything(BLOCK, r"exchang|swap|axes|axis|transpos")), UNWRITTEN)

    def setup(self) -> None:
        along_m, along_n = self.grid()
        if along_n > along_m:
            self.facts = {"axis": "columns", "from": along_m * self.t.bn, "to": self.p.n - 1}
        else:
            self.facts = {"axis": "rows", "from": along_n * self.t.bm, "to": self.p.m - 1}

    def blocks(self) -> list[tuple[int, int]]:
        along_m, along_n = self.grid()
        return [(y, x) for y, x in super().blocks() if y < along_n and x < along_m]


class RaggedColumnsMovedBack(Eleventh):
    """The last tile of B is moved back by {pad} columns so that it ends at N, and the store does not move with it: columns {from}-{to} are those {pad} before."""

    source = "AMD-AGI/Primus-Turbo#508"
    plain = True
    wish = Wish(blocks=(1, 2), ragged="n")
    needs = (
        either(B, COLUMNS),
        either(MOVED, OFFSET, r"clamp|\bback\b"),
        either(span("from", "to"), everything(r"\bcolumns?\b", value("pad")), r"last (?:block of )?columns?"),
    )

    def setup(self) -> None:
        last = self.grid()[1] - 1
        self.facts = {"pad": self.padded()[1] - self.p.n, **self.columns(last)}

    def columns_of_b(self, y: int, x: int) -> Array:
        return min(x * self.t.bn, self.p.n - self.t.bn) + np.arange(self.t.bn)


class ThreadsLeaveBeforeTheLoad(Eleventh):
    """Threads of rows past M leave before the loads, and their share of B is missing: in rows {from}-{to}, only the first {valid} of every {bk} along K are multiplied."""

    source = "paiml/trueno#69"
    plain = True
    wish = Wish(blocks=(2, 1), ragged="m")
    needs = (
        place("from", "to", either(ROWS, BLOCK), r"last (?:row |rows|block)"),
        either(LACK, ZERO),
        either(KTILE, B),
    )

    def setup(self) -> None:
        last = self.grid()[0] - 1
        self.facts = {"valid": self.p.m - last * self.t.bm, **self.rows(last)}

    def tile_b(self, y: int, x: int, tile: int | None) -> Array:
        loaded = super().tile_b(y, x, tile)
        loader = np.arange(self.t.bk) % self.t.bm
        return np.where((y * self.t.bm + loader < self.p.m)[:, None], loaded, 0).astype(loaded.dtype)


class BlockOfAStepsByTheOtherTile(Eleventh):
    """The rows of A of block y start at y times {bn}, the tile's columns, and not at y times {bm}: from the second block on, A's rows are shifted."""

    source = "textbook"
    plain = True
    wish = Wish(blocks=(2, 1), uneven=True)
    needs = (
        either(A, ROWS),
        either(r"rows? \d+(?:-\d+)?.{0,40}rows? \d", near(r"\brows?\b|\bblock", either(OFFSET, r"\bsteps?\b"))),
        either(value("bn"), value("bm"), value("between")),
    )

    def setup(self) -> None:
        self.facts = {"between": abs(self.t.bm - self.t.bn)}

    def rows_of_a(self, y: int, x: int) -> Array:
        return y * self.t.bn + np.arange(self.t.bm)


class MaskOfAComparesWithN(Eleventh):
    """The mask of A compares its rows with N and not with M: rows {n}-{end} of A are loaded as zeros."""

    source = "textbook"
    plain = True
    needs = (either(span("n", "end"), everything(either(A, ROWS), value("n"))), either(ZERO, LACK, r"only c\b|mask"))

    def setup(self) -> None:
        self.facts = {"end": self.p.m - 1}

    def inside_a(self, rows: Array, k: Array) -> Array:
        return super().inside_a(rows, k) & (rows < self.p.n)
