"""The twelfth set: mistakes of the launch, of tile order and of ragged edges."""

from __future__ import annotations

from tests.evaluation.second_wrong_kernels.kinds_ninth import either, everything, span
from tests.evaluation.second_wrong_kernels.kinds_twelfth import EXCHANGED, MOVED, SAME, TAIL, UNWRITTEN, Twelfth, lines
from tests.evaluation.second_wrong_kernels.problem import Array, Wish
from tests.evaluation.second_wrong_kernels.words import COLUMNS, ROWS, A, value

EDGE = r"last (?:\d+ )?(?:columns|rows)|last (?:block|tile)|edge|boundary|past the last whole|" + TAIL


class TilesAlongNRoundedDown(Twelfth):
    """The number of blocks along N is rounded down: columns {from}-{to} are never written."""

    source = "ROCm/iris#21"
    wish = Wish(blocks=(1, 2), ragged="n")
    needs = (lines(COLUMNS, EDGE), UNWRITTEN)

    def setup(self) -> None:
        self.facts = {"from": self.p.n // self.t.bn * self.t.bn, "to": self.p.n - 1}

    def grid(self) -> tuple[int, int]:
        return super().grid()[0], self.p.n // self.t.bn


class GridLaunchedCrossed(Twelfth):
    """The grid is launched with its x and y exchanged: {lines} {from}-{to} have no block and are never written."""

    wish = Wish(blocks=(1, 2), uneven=True)
    needs = (
        either(lines(r"\b{lines}?\b|\b{axis}\b"), r"\bgrid|blockidx|launch|gridDim"),
        either(
            everything(lines(r"\b{lines}?\b|\b{axis}\b"), UNWRITTEN),
            everything(r"\bgrid|blockidx|launch|gridDim", EXCHANGED),
        ),
    )

    def setup(self) -> None:
        along_m, along_n = self.grid()
        self.facts = (
            {"lines": "columns", "axis": "n", "from": along_m * self.t.bn, "to": self.p.n - 1}
            if along_n > along_m
            else {"lines": "rows", "axis": "m", "from": along_n * self.t.bm, "to": self.p.m - 1}
        )

    def blocks(self) -> list[tuple[int, int]]:
        along_m, along_n = self.grid()
        return [(y, x) for y in range(along_n) for x in range(along_m)]


class LastGroupOfTilesNotClipped(Twelfth):
    """Tiles are taken in groups of 2 along M and the last group is not clipped: rows {from}-{to} of columns {left}-{right} are never written."""

    source = "ROCm/FlyDSL#979"
    wish = Wish(blocks=(3, 2))
    needs = (
        either(
            everything(ROWS, COLUMNS, either(value("from"), r"last (?:rows|block|tile)"), value("left")),
            r"group|rasteri[sz]|tile order|swizzle.{0,30}(?:tile|block|grid)|supertile",
        ),
        either(UNWRITTEN, r"clip|clamp|past the (?:end|grid)|outside|beyond|not divi"),
    )

    def setup(self) -> None:
        columns = self.columns(-(-self.grid()[1] // 2))
        self.facts = {**self.rows(2), "left": columns["from"], "right": self.p.n - 1}

    def blocks(self) -> list[tuple[int, int]]:
        along_m, along_n = self.grid()
        places = [divmod(number, 2 * along_n) for number in range(along_m * along_n)]
        return [(2 * group + local % 2, local // 2) for group, local in places]


class LastWaveOfWorkersMissing(Twelfth):
    """A worker takes as many blocks as tiles / workers, rounded down: the last block, rows {from}-{to} of columns {left}-{right}, is never written."""

    source = "tile-ai/tilelang#2433"
    wish = Wish(blocks=(1, 3))
    needs = (
        either(
            everything(either(ROWS, COLUMNS), either(span("from", "to"), span("left", "right"), value("left"))),
            r"last (?:block|tile|wave)|remainder|left ?over|lower right|bottom right",
        ),
        UNWRITTEN,
    )

    def setup(self) -> None:
        along_m, along_n = self.grid()
        columns = self.columns(along_n - 1)
        self.facts = {**self.rows(along_m - 1), "left": columns["from"], "right": columns["to"]}

    def blocks(self) -> list[tuple[int, int]]:
        every = super().blocks()
        return every[: len(every) // self.workers * self.workers]


class EightColumnsOrNone(Twelfth):
    """A store is of 8 columns and happens only where all of them are inside: columns {from}-{to} are never written."""

    source = "NVIDIA/cutlass#2937"
    wish = Wish(blocks=(1, 2), ragged="n")
    needs = (lines(COLUMNS, r"last (?:4|four)|last columns|edge|" + TAIL), UNWRITTEN)

    def setup(self) -> None:
        self.facts = {"from": self.p.n // 8 * 8, "to": self.p.n - 1}

    def inside_d(self, rows: Array, columns: Array) -> Array:
        return super().inside_d(rows, columns) & (columns // 8 * 8 + 8 <= self.p.n)


class MaskOfTheStoreTurned(Twelfth):
    """The mask of the store compares rows with N and columns with M: {lines} {from}-{to} are never written."""

    wish = Wish(blocks=(1, 2), whole="mn", uneven=True)
    needs = (
        either(lines(r"\b{lines}?\b|\b{axis}\b"), r"mask|bound|guard|predicate|compare|check"),
        either(
            everything(lines(r"\b{lines}?\b|\b{axis}\b"), UNWRITTEN),
            everything(
                r"mask|bound|guard|predicate|compare|check",
                either(EXCHANGED, r"rows? .{0,15}\bn\b", r"columns? .{0,15}\bm\b"),
            ),
        ),
    )

    def setup(self) -> None:
        self.facts = (
            {"lines": "columns", "axis": "n", "from": self.p.m, "to": self.p.n - 1}
            if self.p.n > self.p.m
            else {"lines": "rows", "axis": "m", "from": self.p.n, "to": self.p.m - 1}
        )

    def inside_d(self, rows: Array, columns: Array) -> Array:
        return super().inside_d(rows, columns) & (rows < self.p.n) & (columns < self.p.m)


class RowsOfABegunWithBn(Twelfth):
    """A block's rows of A begin at {bn} times its number, not {bm} times: rows from {bm} on are those {shift} away."""

    wish = Wish(blocks=(2, 1), uneven=True)
    needs = (
        either(A, ROWS),
        either(value("bn"), value("shift")),
        either(MOVED, r"starts?\b|begins?|begun|offset|\bstep|advance|stride|away|apart"),
    )

    def setup(self) -> None:
        self.facts = {"shift": abs(self.t.bm - self.t.bn)}

    def rows_of_a(self, y: int, x: int) -> Array:
        return super().rows_of_a(y, x) - y * (self.t.bm - self.t.bn)


class AOfTheFirstOfAPair(Twelfth):
    """A's tile is multicast to both blocks of a pair along M: rows {from}-{to} of A are rows 0-{last}."""

    styles = ("wgmma", "tcgen05")
    wish = Wish(blocks=(2, 1))
    needs = (
        everything(
            either(A, ROWS),
            either(
                span("from", "to"),
                value("from"),
                r"pair|cluster|multicast|every (?:two|2)\b|(?:every other|odd|second) (?:row of )?(?:block|tile)|block 1\b",
            ),
        ),
        either(MOVED, SAME, r"multicast|both (?:blocks|ctas)"),
    )

    def setup(self) -> None:
        self.facts = self.rows(1)

    def rows_of_a(self, y: int, x: int) -> Array:
        return super().rows_of_a(y // 2 * 2, x)
