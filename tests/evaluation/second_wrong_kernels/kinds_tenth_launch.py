"""The tenth set: mistakes of blocks, clusters, split-K and stream-K; and right kernels, whose names begin with Proper."""

from __future__ import annotations

import numpy as np

from tests.evaluation.second_wrong_kernels.kinds_ninth import AGAIN, LACK, MOVED, UNWRITTEN, either, everything, span
from tests.evaluation.second_wrong_kernels.kinds_tenth import HALF, ONLY, Tenth
from tests.evaluation.second_wrong_kernels.problem import Array, Wish
from tests.evaluation.second_wrong_kernels.words import (
    BLOCK,
    COLUMNS,
    FIRST,
    KTILE,
    LAST,
    OFFSET,
    ROWS,
    SPLIT,
    ZERO,
    A,
    B,
    C,
    D,
    value,
)

OTHER = r"\bother|wrong|\bnext\b|neighbou?r|another|different (?:block|tile)"


class StoredOneWaveAhead(Tenth):
    """The number of the tile is moved on before the store: block n is stored where block n + {workers} belongs, and the first {workers} blocks are never written."""

    source = "sgl-project/sglang#11368"
    wish = Wish(blocks=(2, 2))
    needs = (BLOCK, MOVED)

    def store(self, memory: Array, y: int, x: int, block: Array) -> None:
        at = self.number(y, x) + self.workers
        if at < self.blocks_in_all():
            super().store(memory, *self.block(at), block)


class LastGroupNotShortened(Tenth):
    """Blocks are walked in groups of 2 rows of blocks, and the last group, of one, is not made shorter: rows {from}-{to}, columns {left}-{right} are never written."""

    source = "textbook"
    wish = Wish(blocks=(3, 2))
    needs = (either(span("from", "to"), span("left", "right"), BLOCK), UNWRITTEN)

    def setup(self) -> None:
        left = -(-self.grid()[1] // 2) * self.t.bn
        self.facts = {**self.rows(2), "left": left, "right": self.p.n - 1}

    def blocks(self) -> list[tuple[int, int]]:
        along_m, along_n = self.grid()
        walk = [divmod(number, 2 * along_n) for number in range(along_m * along_n)]
        return [(2 * group + at % 2, at // 2) for group, at in walk if 2 * group + at % 2 < along_m]


class PairSharesHalvesOfB(Tenth):
    """The two blocks of a pair lie beside each other, not above: each brings half of its own tile of B, so one half of the columns of either is multiplied with the B of another block."""

    source = "facebookexperimental/triton#1071"
    plain = True
    styles = ("wgmma", "tcgen05")
    wish = Wish(blocks=(1, 2), whole="n")
    needs = (either(B, COLUMNS), MOVED, either(HALF, BLOCK, r"pair|cluster|peer"))

    def columns_of_b(self, y: int, x: int) -> Array:
        own, pair = np.arange(self.t.bn), x // 2 * 2
        whose = np.where(own < self.t.bn // 2, pair, pair + 1) if pair + 1 < self.grid()[1] else x
        return own + whose * self.t.bn


class HalvesOfAMulticastCrossed(Tenth):
    """Each block of a cluster brings half of A's rows to both, and puts it where the other half belongs: the upper and lower halves of the rows of A's tiles are exchanged."""

    source = "deepseek-ai/DeepGEMM#415"
    plain = True
    styles = ("wgmma", "tcgen05")
    wish = Wish(whole="m")
    needs = (either(A, ROWS), MOVED, either(HALF, r"rows \d+-\d+", value("half")))

    def setup(self) -> None:
        self.facts = {"half": self.t.bm // 2}

    def rows_of_a(self, y: int, x: int) -> Array:
        return y * self.t.bm + (np.arange(self.t.bm) + self.t.bm // 2) % self.t.bm


class BatchOfAStartsLate(Tenth):
    """The batch stride of A counts the padded rows: A starts {pad} rows late, so row i is that of i + {pad}."""

    source = "textbook"
    plain = True
    wish = Wish(ragged="m", majors="kk")
    needs = (either(A, ROWS, D), either(OFFSET, MOVED), either(ROWS, value("pad")))

    def setup(self) -> None:
        self.facts = {"pad": self.padding()}
        self.pointer["a"] = self.padding() * self.lda


class LastBlockWrapsAround(Tenth):
    """The store takes its rows modulo M and has no mask: the last block's {count} rows past the end, whose products are zero, overwrite rows {from}-{to}."""

    source = "textbook"
    wish = Wish(ragged="m")
    needs = (
        either(span("from", "to"), everything(ROWS, FIRST), r"rows? 0\b"),
        either(ZERO, r"overwrit|wrap|clobber|mask|predicate|only c\b|modulo"),
    )

    def setup(self) -> None:
        self.facts = {"from": 0, "to": self.padding() - 1, "count": self.padding()}

    def rows_of_d(self, y: int, x: int) -> Array:
        return super().rows_of_d(y, x) % self.p.m


class OneFixupOnly(Tenth):
    """A tile that three workers share takes the partial sums of one other worker only: the third slice, k {from}-{to}, is missing."""

    source = "ROCm/rocm-libraries#2337"
    wish = Wish(split=(3,), tiles=3)
    needs = (
        either(KTILE, SPLIT),
        LACK,
        either(span("from", "to"), everything(SPLIT, r"last|third|rest|slice 2"), LAST),
    )

    def setup(self) -> None:
        self.facts = self.k_range(2 * -(-self.k_tiles() // 3), self.k_tiles() - 1)

    def combine(self, partials: list[Array], y: int, x: int) -> Array:
        return super().combine(partials[:2], y, x)


class SlicesStepByOne(Tenth):
    """Slice s begins at K tile s and should step by {split} tiles; it steps by one: some K tiles are counted more than once, and k {from}-{to} is missing."""

    source = "linkedin/Liger-Kernel#185"
    wish = Wish(split=(2, 3), tiles=4)
    needs = (either(KTILE, SPLIT), either(LACK, AGAIN), either(span("from", "to"), everything(KTILE, LAST), SPLIT))

    def setup(self) -> None:
        seen = max(tile for part in range(self.t.split) for tile in self.slice_of(part))
        self.facts = {"split": self.t.split, **self.k_range(seen + 1, self.k_tiles() - 1)}

    def slice_of(self, part: int) -> list[int]:
        return list(range(part, part + len(range(part, self.k_tiles(), self.t.split))))


class SliceLostWithoutSemaphore(Tenth):
    """Nothing waits for the slice before: in every second block the last slice overwrites the first, and k {from}-{to} is missing there."""

    source = "NVIDIA/cutlass#1296"
    wish = Wish(split=(2,), tiles=2, blocks=(1, 2))
    needs = (either(span("from", "to"), SPLIT), either(LACK, ONLY, r"overwrit"), BLOCK)

    def setup(self) -> None:
        self.facts = self.k_range(0, self.slice_of(0)[-1])

    def combine(self, partials: list[Array], y: int, x: int) -> Array:
        return super().combine(partials[-1:] if self.number(y, x) % 2 else partials, y, x)


class WorkspaceWithoutPadding(Tenth):
    """The partial sums lie in the workspace with M padded to whole blocks, and the reduction steps from slice to slice by M rows: the second slice, k {from}-{to}, is added with an offset of {pad} rows."""

    source = "textbook"
    wish = Wish(split=(2,), tiles=2, ragged="m")
    needs = (either(SPLIT, KTILE), either(OFFSET, MOVED, r"too (?:low|high)"), either(ROWS, value("pad")))

    def setup(self) -> None:
        self.facts = {"pad": self.padding(), **self.k_range(self.slice_of(1)[0], self.k_tiles() - 1)}

    def launch(self) -> Array:
        rows, columns = (tiles * tile for tiles, tile in zip(self.grid(), (self.t.bm, self.t.bn), strict=True))
        sums = np.zeros((2, rows, columns), np.int32 if self.arithmetic.d == "s32" else np.float32)
        for y, x in self.blocks():
            for part in range(2):
                at = np.ix_(self.rows_of_d(y, x), self.columns_of_d(y, x))
                sums[part][at] = self.values(self.mainloop(y, x, part))
        flat = sums.reshape(2 * rows, columns)[:, : self.p.n]
        return self.convert(flat[: self.p.m] + flat[self.p.m : 2 * self.p.m])


class FixupOfTheNextBlock(Tenth):
    """The flag and the workspace are indexed by the worker, one too high: a block adds to its first slice the second slice, k {from}-{to}, of the next block."""

    source = "ROCm/rocm-libraries#2470"
    wish = Wish(split=(2,), tiles=2, blocks=(1, 2))
    needs = (either(SPLIT, KTILE), either(MOVED, OTHER), BLOCK)

    def setup(self) -> None:
        self.facts = self.k_range(self.slice_of(1)[0], self.k_tiles() - 1)

    def combine(self, partials: list[Array], y: int, x: int) -> Array:
        after = self.block((self.number(y, x) + 1) % self.blocks_in_all())
        return super().combine([partials[0], self.mainloop(*after, 1)], y, x)


class PingPongTakesTheOthersC(Tenth):
    """Two groups of warps work in turns, and each takes the C that was loaded for the other: the C of blocks 2n and 2n + 1 is exchanged."""

    source = "textbook"
    wish = Wish(blocks=(1, 2), c=True, whole="mn")
    needs = (C, either(MOVED, OTHER), BLOCK)

    def accumulators(self, y: int, x: int, part: int) -> Array:
        other = self.number(y, x) ^ 1
        return super().accumulators(*(self.block(other) if other < self.blocks_in_all() else (y, x)), part)


class ProperStreamK(Tenth):
    """Right: the K tiles are cut unevenly, and the slices are added from the last to the first."""

    correct = True
    wish = Wish(split=(2, 3), tiles=4)

    def slice_of(self, part: int) -> list[int]:
        cuts = [0, 1, 3, self.k_tiles()] if self.t.split == 3 else [0, 1, self.k_tiles()]
        return list(range(cuts[part], cuts[part + 1]))

    def combine(self, partials: list[Array], y: int, x: int) -> Array:
        return super().combine(partials[::-1], y, x)


class ProperAtomics(Tenth):
    """Right: the slices of odd blocks arrive in another order than those of even blocks."""

    correct = True
    wish = Wish(split=(3, 4), tiles=4, blocks=(1, 2))

    def combine(self, partials: list[Array], y: int, x: int) -> Array:
        turn = self.number(y, x) % len(partials)
        return super().combine(partials[turn:] + partials[:turn], y, x)
