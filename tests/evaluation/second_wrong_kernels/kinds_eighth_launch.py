"""The eighth set: mistakes of the launch, of tile schedulers, batches and pointers."""

from __future__ import annotations

import numpy as np

from tests.evaluation.second_wrong_kernels.kinds_eighth import (
    EXCHANGED,
    FROM,
    UNWRITTEN,
    Eighth,
    either,
    everything,
    span,
)
from tests.evaluation.second_wrong_kernels.problem import Array, Wish
from tests.evaluation.second_wrong_kernels.words import BLOCK, COLUMNS, OFFSET, PITCH, ROWS, TRANSPOSED, A, B, D, value

EMPTY = either(UNWRITTEN, r"\bzeros?\b|\bnan\b|empty|blank")


class BlocksAlongMRoundedDown(Eighth):
    """The grid has M // {bm} blocks along M, not as many rounded up: rows {first}-{last} are never computed."""

    wish = Wish(blocks=(2, 1), ragged="m")
    needs = (EMPTY, either(everything(ROWS, value("first")), r"rounded down|ragged|last (?:block|tile|rows)|m // "))
    half = (EMPTY, "rows")

    def setup(self) -> None:
        self.facts = {"bm": self.t.bm, "first": self.p.m // self.t.bm * self.t.bm, "last": self.p.m - 1}

    def grid(self) -> tuple[int, int]:
        return self.p.m // self.t.bm, super().grid()[1]


class GroupWidthNotClamped(Eighth):
    """In the last group of block rows the width of the grouped order is not cut: blocks of rows {first}-{last} are never computed."""

    source = "ROCm/FlyDSL#979"
    wish = Wish(blocks=(3, 2))
    needs = (EMPTY, either(value("first"), span("first", "last"), r"last (?:block )?rows?|last group|bottom"))
    half = (EMPTY, "block|tile|rows|columns")

    def setup(self) -> None:
        self.facts = {"first": self.grid()[0] // 2 * 2 * self.t.bm, "last": self.p.m - 1}

    def blocks(self) -> list[tuple[int, int]]:
        along_m, along_n = self.grid()
        each = 2 * along_n
        found = [(i // each * 2 + i % each % 2, i % each // 2) for i in range(along_m * along_n)]
        return [(y, x) for y, x in found if y < along_m]


class DividedByTheWrongExtent(Eighth):
    """The number of a block is divided by the {m} blocks along M instead of the {n} along N: some blocks are computed twice, some are never computed."""

    wish = Wish(blocks=(2, 2))
    needs = (EMPTY, either(BLOCK, COLUMNS, ROWS))
    half = (EMPTY,)

    def setup(self) -> None:
        self.facts = dict(zip("mn", self.grid(), strict=True))

    def blocks(self) -> list[tuple[int, int]]:
        along_m, along_n = self.grid()
        found = [divmod(i, along_m) for i in range(along_m * along_n)]
        return [(y, x) for y, x in found if y < along_m and x < along_n]


class TailWaveDropped(Eighth):
    """A persistent kernel of {ctas} blocks rounds its number of waves down: the last {lost} of {tiles} tiles are never computed."""

    source = "NVIDIA/cutlass#3497"
    wish = Wish(blocks=(2, 2))
    needs = (EMPTY, either(BLOCK, r"last|wave|tail|persistent"))
    half = (EMPTY,)

    def setup(self) -> None:
        tiles = self.grid()[0] * self.grid()[1]
        ctas = int(self.random.choice([n for n in range(2, tiles) if tiles % n] or [tiles]))
        self.facts = {"ctas": ctas, "tiles": tiles, "lost": tiles % ctas}

    def blocks(self) -> list[tuple[int, int]]:
        blocks = super().blocks()
        return blocks[: len(blocks) - len(blocks) % self.facts["ctas"]]


class HostTileTwiceAsTall(Eighth):
    """The host launches for tiles of {host} rows, the kernel has {bm}: rows {first}-{last}, the lower half of the blocks, are missing."""

    wish = Wish(blocks=(4, 1))
    needs = (EMPTY, either(everything(ROWS, value("first")), r"half (?:of )?(?:the )?(?:grid|blocks|rows)|grid"))
    half = (EMPTY, "rows")

    def setup(self) -> None:
        self.facts = {"host": 2 * self.t.bm, "bm": self.t.bm, "first": self.grid()[0] * self.t.bm, "last": self.p.m - 1}

    def grid(self) -> tuple[int, int]:
        along_m, along_n = super().grid()
        return -(-along_m // 2), along_n


class HostTileSidesExchanged(Eighth):
    """The host takes {bn} for the tile's rows and {bm} for its columns: blocks are never computed along one side."""

    wish = Wish(blocks=(2, 2), uneven=True)
    needs = (EMPTY, either(ROWS, COLUMNS, "grid"))
    half = (EMPTY,)

    def setup(self) -> None:
        self.facts = {"bm": self.t.bm, "bn": self.t.bn}

    def grid(self) -> tuple[int, int]:
        along_m, along_n = super().grid()
        return min(-(-self.p.m // self.t.bn), along_m), min(-(-self.p.n // self.t.bm), along_n)


class BlocksStoredAcross(Eighth):
    """The store takes blockIdx.x for the row of blocks and blockIdx.y for the column: output blocks are exchanged across the diagonal."""

    wish = Wish(blocks=(2, 2), whole="mn")
    needs = (
        BLOCK,
        either(
            EXCHANGED,
            r"block(?:idx)?\.?[xy] .*block(?:idx)?\.?[xy]|transpos",
            everything(FROM, span("row", "row end"), span("column", "column end")),
            r"place of|written where",
        ),
    )
    half = (BLOCK, FROM)

    def setup(self) -> None:
        self.facts = {"row": self.t.bm, "row end": 2 * self.t.bm - 1}
        self.facts |= {"column": self.t.bn, "column end": 2 * self.t.bn - 1}

    def rows_of_d(self, y: int, x: int) -> Array:
        return super().rows_of_d(x, y)

    def columns_of_d(self, y: int, x: int) -> Array:
        return super().columns_of_d(x, y)


class RowOffsetInBytes(Eighth):
    """A block's first row of A is counted in bytes of {size}: block 1 multiplies the rows of block {size}; those behind M are zero."""

    only = "16 bits"
    wish = Wish(blocks=(3, 1), whole="m")
    needs = (
        either(A, ROWS),
        either(
            rf"byte|sizeof|{value('size')} times|times {value('size')}|twice|doubled?|stride|step",
            everything(either(r"\bfrom\b|\bof\b|instead|\bare\b|multipl", FROM), value("from"), value("to")),
        ),
    )
    half = ("rows|block",)

    def setup(self) -> None:
        size = self.bits // 8
        self.facts = {"size": size, "from": size * self.t.bm, "to": self.t.bm}

    def rows_of_a(self, y: int, x: int) -> Array:
        return y * self.facts["size"] * self.t.bm + np.arange(self.t.bm)


class HalfAStepAlongN(Eighth):
    """Blocks along N load columns of B {step} apart instead of {bn}, so that their tiles of B overlap by half."""

    wish = Wish(blocks=(1, 3), whole="n")
    needs = (
        either(B, COLUMNS),
        either(
            everything(either("step|apart|stride|advance|offset|overlap|start", FROM), value("step")),
            r"overlap|half (?:a|the|of) (?:step|tile|block)|halved",
        ),
    )
    half = (either(B, "columns"), BLOCK)

    def setup(self) -> None:
        self.facts = {"step": self.t.bn // 2, "bn": self.t.bn}

    def columns_of_b(self, y: int, x: int) -> Array:
        return x * (self.t.bn // 2) + np.arange(self.t.bn)


class WrapByTheOtherExtent(Eighth):
    """Columns of B are wrapped modulo M = {m} instead of N: from column {m} on, B's columns repeat from column 0."""

    source = "triton-lang/triton#9870"
    styles = ("mma",)
    wish = Wish(blocks=(1, 4))
    needs = (
        either(B, COLUMNS),
        value("m"),
        either(
            r"wrap|modulo|\bmod\b|%",
            everything(
                either(r"repeat|again|duplicat|\bsame\b|copies|look like|columns? 0", r"\bfrom\b|instead|\bare\b")
            ),
        ),
    )
    half = ("columns",)

    def setup(self) -> None:
        self.facts = {"m": self.p.m}

    def columns_of_b(self, y: int, x: int) -> Array:
        return super().columns_of_b(y, x) % self.p.m


class _Batches(Eighth):
    """Rows are a batch of two products with the same B."""

    wish = Wish(blocks=(2, 1), whole="m")

    def setup(self) -> None:
        self.second = -(-self.grid()[0] // 2)
        self.at = self.second * self.t.bm
        self.facts = {"at": self.at, "end": self.p.m - 1, "before": self.p.m - 1 - self.at, "lda": self.lda}


class BatchStrideTooLarge(_Batches):
    """The batch stride of A is {by} elements too large: in rows {at}-{end} A is read {by} elements further on."""

    needs = (
        either(A, ROWS),
        either(
            everything(either(OFFSET, "stride|further|later|ahead|too large|batch"), value("by")),
            everything(FROM, value("at"), value("moved")),
            everything("batch", "stride"),
        ),
    )
    half = (either(A, ROWS), either(OFFSET, "stride", value("at")))

    def setup(self) -> None:
        super().setup()
        by = int(self.random.choice([4, 8, 16]))
        self.facts |= {"by": by, "moved": self.at + by}

    def global_a(self, rows: Array, k: Array) -> Array:
        address = rows * self.lda + k if self.t.a_major == "k" else k * self.lda + rows
        return self.read("a", address + np.where(rows >= self.at, self.facts["by"], 0), self.inside_a(rows, k))


class BatchIndexIgnoredForA(_Batches):
    """The batch index is not added to A's pointer: rows {at}-{end} are made of rows 0-{before} of A again."""

    source = "microsoft/dion#102"
    needs = (
        either(A, ROWS),
        value("at"),
        either(
            r"ignor|again|repeat|duplicat|same|copies|copy|look like|rows? 0\b|always|batch", everything(FROM, r"\b0\b")
        ),
    )
    half = ("rows", value("at"))

    def rows_of_a(self, y: int, x: int) -> Array:
        return super().rows_of_a(y % self.second, x)


class BatchesStoredOverTheFirst(_Batches):
    """The batch stride of D is zero: rows 0-{before} hold the result of rows {at}-{end}, which are themselves never written."""

    source = "pytorch/pytorch#196431"
    needs = (
        ROWS,
        value("at"),
        either(
            everything(UNWRITTEN, either(r"overwritten|overwrite", FROM)),
            r"over(?:written|write)|stored (?:at|to|in|over)|written (?:at|to|over)|batch",
            everything(r"zeros?\b|nan|empty|blank", FROM),
        ),
    )
    half = ("rows", EMPTY)

    def rows_of_d(self, y: int, x: int) -> Array:
        return super().rows_of_d(y % self.second, x)


class ClusterRankIgnored(Eighth):
    """Both blocks of a cluster multicast the first half of their tile of A: the lower {half} rows of each {bm} are its upper ones."""

    source = "NVIDIA/cutlass#2750"
    styles = ("tcgen05",)
    wish = Wish(whole="m")
    needs = (
        either(A, ROWS),
        value("half"),
        either(r"half|halves|repeat|again|duplicat|same|cop(?:y|ies)|look like|rank|multicast|upper|first", FROM),
    )
    half = ("rows",)

    def setup(self) -> None:
        self.facts = {"half": self.t.bm // 2, "bm": self.t.bm}

    def rows_of_a(self, y: int, x: int) -> Array:
        return y * self.t.bm + np.arange(self.t.bm) % (self.t.bm // 2)


class MulticastToTheFirstAlone(Eighth):
    """The multicast mask of B names the first block of each pair alone: odd blocks along M multiply zeros, rows {at}-{end} first."""

    styles = ("wgmma", "tcgen05")
    wish = Wish(blocks=(2, 1), whole="m", c=False)
    needs = (
        either(ROWS, BLOCK),
        either(r"zeros?\b|nothing|empty|no product|missing|never|mask|multicast"),
        either(value("at"), "odd|second|every other"),
    )
    half = ("rows|block", "zero|missing")

    def setup(self) -> None:
        self.facts = {"at": self.t.bm, "end": 2 * self.t.bm - 1}

    def tile_b(self, y: int, x: int, tile: int | None) -> Array:
        return super().tile_b(y, x, None if y % 2 else tile)


class OffsetsInSixteenBits(Eighth):
    """Offsets of elements of A are computed in 16 bits: behind element 65536 A is read from its start again."""

    source = "ml-explore/mlx#3609"
    wish = Wish(blocks=(3, 1), tiles=5)
    needs = (
        either(A, ROWS),
        either(r"65536|65535|16 bits|16-bit|overflow|wrap|modulo", everything(value("row"), either(FROM, OFFSET))),
    )
    half = (either(A, "rows"),)

    def setup(self) -> None:
        self.facts = {"row": 65536 // self.lda}

    def read(self, operand: str, address: Array, mask: Array) -> Array:
        return super().read(operand, address % 65536 if operand == "a" else address, mask)


class PointerOfBNotAligned(Eighth):
    """B's pointer is rounded down to 16 bytes: all of B is read {by} elements too early."""

    wish = Wish(majors="km")
    needs = (
        B,
        either(
            everything(either(OFFSET, r"early|earlier|before|too (?:small|low)|columns?"), value("by")),
            r"-{by}\b|rounded down",
        ),
    )
    half = (B, either(OFFSET, "columns"))

    def setup(self) -> None:
        self.facts = {"by": int(self.random.integers(1, max(2, self.chunk // 2 + 1)))}
        self.pointer["b"] = -self.facts["by"]


class LeadingDimensionOfBIsM(Eighth):
    """B's leading dimension is given as M = {m}, not N = {n}."""

    wish = Wish(majors="km")
    needs = (B, either(PITCH, r"\bm\b|row length"), value("m"))
    half = (B, either(PITCH, OFFSET))

    def setup(self) -> None:
        self.facts = {"m": self.p.m, "n": self.p.n}
        self.ldb = self.p.m


class StrideOfAInTheMapRoundedUp(Eighth):
    """The tensor map's row stride of A is rounded up to {lda} elements; rows are {k} long."""

    wish = Wish(majors="km", ragged="k")
    needs = (A, PITCH, value("lda"))
    half = (A, either(PITCH, OFFSET))

    def setup(self) -> None:
        by = 16 * int(self.random.choice([1, 2, 4]))
        self.facts = {"k": self.lda, "lda": self.lda + by - self.lda % by}
        self.lda = self.facts["lda"]


class LddRoundedUp(Eighth):
    """D is stored with a leading dimension of {ldd}, which is N = {n} rounded up."""

    wish = Wish(ragged="n")
    needs = (D, PITCH, value("ldd"))
    half = (D, either(PITCH, OFFSET))

    def setup(self) -> None:
        by = int(self.random.choice([8, 16, 32]))
        self.ldd = self.p.n + by - self.p.n % by
        self.facts = {"n": self.p.n, "ldd": self.ldd}


class BothOperandsInTheOtherOrder(Eighth):
    """One helper computes the addresses of both operands for the other order in memory: A and B are read transposed from global memory."""

    plain = True
    needs = (A, B, TRANSPOSED)
    half = (TRANSPOSED,)

    def setup(self) -> None:
        self.lda = self.p.m if self.t.a_major == "k" else self.k_a
        self.ldb = self.p.n if self.t.b_major == "k" else self.p.k

    def global_a(self, rows: Array, k: Array) -> Array:
        address = k * self.lda + rows if self.t.a_major == "k" else rows * self.lda + k
        return self.read("a", address, self.inside_a(rows, k))

    def global_b(self, k: Array, columns: Array) -> Array:
        address = k * self.ldb + columns if self.t.b_major == "k" else columns * self.ldb + k
        return self.read("b", address, self.inside_b(k, columns))
