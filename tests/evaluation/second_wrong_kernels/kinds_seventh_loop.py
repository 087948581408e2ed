"""The seventh set: copies, stages and the loop over K."""

from __future__ import annotations

import numpy as np

from tests.evaluation.second_wrong_kernels import kinds_sixth as s
from tests.evaluation.second_wrong_kernels import words as w
from tests.evaluation.second_wrong_kernels.kinds_seventh import AGAIN, ELSEWHERE, HOLE, A, Seventh
from tests.evaluation.second_wrong_kernels.problem import Array, Wish


class CoordinatesExchanged(Seventh):
    """The two coordinates of the tensor map's box are exchanged for {operand}: a tile begins at its K offset along the rows, and at its row along K."""

    plain = True
    wish = Wish(blocks=(2, 2))
    needs = ("{pattern}", r"coordinate|transpos|swap|exchang|interchang|crossed|" + s.MOVED)
    half = (ELSEWHERE,)

    def setup(self) -> None:
        self.operands("a", "b", "ab")

    def tile_a(self, y: int, x: int, tile: int | None) -> Array:
        if tile is None or "a" not in self.hit:
            return super().tile_a(y, x, tile)
        rows, k = tile * self.t.bk + np.arange(self.t.bm), y * self.t.bm + np.arange(self.t.bk)
        return self.global_a(rows[:, None], k[None])

    def tile_b(self, y: int, x: int, tile: int | None) -> Array:
        if tile is None or "b" not in self.hit:
            return super().tile_b(y, x, tile)
        columns, k = tile * self.t.bk + np.arange(self.t.bn), x * self.t.bn + np.arange(self.t.bk)
        return self.global_b(k[:, None], columns[None])


class EndOfKClamped(Seventh):
    """Behind the end of K the last element is read again, in both operands: indices are clamped, not masked."""

    plain = True
    wish = Wish(ragged="k")
    needs = (r"\bk\b", w.LAST, r"clamp|" + AGAIN)
    half = (w.LAST,)

    def k_loaded(self, operand: str, tile: int, width: int) -> Array:
        return np.minimum(super().k_loaded(operand, tile, width), self.p.k - 1)


class EndOfKWraps(Seventh):
    """Behind the end of K both operands begin again at k 0: indices are taken modulo K."""

    plain = True
    wish = Wish(ragged="k")
    needs = (
        r"\bk\b",
        w.LAST + "|beyond|behind|past",
        r"wrap|modulo|around|begins? again|starts? again|first|k 0-\d+|" + w.TWICE,
    )
    half = (r"\bk\b",)

    def k_loaded(self, operand: str, tile: int, width: int) -> Array:
        return super().k_loaded(operand, tile, width) % self.p.k


class EndOfKUnmasked(Seventh):
    """The loads of both operands are not masked behind the end of K: they go on into the next row."""

    plain = True
    wish = Wish(ragged="k", majors="kk")
    needs = (
        r"\bk\b",
        r"mask|next row|following row|next (?:column|line)|beyond|behind|past|guard|bounds?\b|overrun|runs? (?:on|over|into)|rounded up",
    )
    half = (w.LAST,)

    def inside_a(self, rows: Array, k: Array) -> Array:
        return (rows < self.p.m) & (k >= 0)

    def inside_b(self, k: Array, columns: Array) -> Array:
        return (columns < self.p.n) & (k >= 0)


class AdvanceTwiceTooFar(Seventh):
    """K step s of each tile of {operand} is step 2 s, around its end: the descriptor advances by twice the bytes."""

    plain = True
    styles = ("wgmma", "tcgen05")
    needs = ("{pattern}", r"\bk\b|step|descriptor", s.STEP + "|" + AGAIN + "|" + s.MOVED)
    half = (r"\bk\b|step|descriptor",)

    def setup(self) -> None:
        self.operands("a", "b")

    def seen(self, tile: Array) -> Array:
        return self.in_steps(tile, 2 * self.steps() % len(self.steps()))


class StepsBackwards(Seventh):
    """The K steps of each tile of {operand} are taken in reverse order, those of the other in ascending order."""

    plain = True
    needs = (r"{pattern}|operand", r"\bk\b|step", s.MOVED + "|revers|backward|descend")
    half = (r"\bk\b|step",)

    def setup(self) -> None:
        self.operands("a", "b")

    def seen(self, tile: Array) -> Array:
        return self.in_steps(tile, self.steps()[::-1])


class FragmentsOneStepBehind(Seventh):
    """The fragments of {operand} are those of the K step before, in each tile: the double buffer of registers is read before it is loaded."""

    plain = True
    needs = ("{pattern}", r"\bk\b|step", s.STALE + "|" + AGAIN + "|shift")
    half = (r"\bk\b|step",)

    def setup(self) -> None:
        self.operands("a", "b")

    def seen(self, tile: Array) -> Array:
        return self.in_steps(tile, np.maximum(self.steps() - 1, 0))


class PhaseNeverFlips(Seventh):
    """After the first round {operand} is stale: the wait on the full barrier has the old phase, and finds the tile of {stages} before."""

    plain = True
    wish = Wish(tiles=4, stages=(2, 3))
    needs = ("{pattern}", s.STALE)
    half = (r"\bk\b",)

    def setup(self) -> None:
        self.operands("a", "b")
        self.facts["stages"] = self.t.stages

    def copies_landed(self, operand: str, i: int) -> int:
        return i if operand in self.hit and i >= self.t.stages else i + 1


class ConsumerHasOneStageLess(Seventh):
    """The consumer's stages go modulo {count}, the producer's modulo {stages}: earlier K tiles are multiplied again instead of the new ones."""

    plain = True
    wish = Wish(tiles=4, stages=(3, 4))
    needs = (r"\bk\b|stage", r"stage|slot|ring|stale|earlier|previous|twice|again|instead of")
    half = (r"\bk\b|stage",)

    def setup(self) -> None:
        self.facts |= {"stages": self.t.stages, "count": self.t.stages - 1}

    def slot_read(self, operand: str, i: int) -> int:
        return i % (self.t.stages - 1)


class PrologueNotCounted(Seventh):
    """The loop loads {operand} from k 0 again after the {before} tiles of the prologue."""

    plain = True
    wish = Wish(tiles=4)
    needs = ("{pattern}", r"\bk\b", s.STALE + "|" + AGAIN + "|" + ELSEWHERE)
    half = (r"\bk\b",)

    def setup(self) -> None:
        self.operands("a", "b", "ab")
        self.equal = (r"\bk\b", w.TWICE + "|" + s.LEFT_OUT) if self.hit == "ab" else ()
        self.facts["before"] = self.t.stages - 1

    def k_loaded(self, operand: str, tile: int, width: int) -> Array:
        before = self.t.stages - 1
        return super().k_loaded(operand, tile - before if operand in self.hit and tile >= before else tile, width)


class QueueNotDrained(Seventh):
    """The last {left} K tiles, which are loaded when the loop ends, are not multiplied."""

    wish = Wish(tiles=4, stages=(2, 3))
    needs = (r"\bk\b", w.LAST, s.LEFT_OUT + "|only")
    half = (s.LEFT_OUT,)

    def setup(self) -> None:
        self.facts["left"] = self.t.stages - 1

    def slice_of(self, part: int) -> list[int]:
        return self.tiles_of(part)[: 1 - self.t.stages]


class LaterHalfOverwritten(Seventh):
    """The second half of the rows of each stage of A is already that of the tile {stages} later: the producer does not wait until the stage is empty."""

    plain = True
    wish = Wish(tiles=4, stages=(2,))
    needs = (A, s.AHEAD + r"|k \d+-\d+")
    half = (r"\brows?\b",)

    def setup(self) -> None:
        self.facts["stages"] = self.t.stages

    def tile_a(self, y: int, x: int, tile: int | None) -> Array:
        own = super().tile_a(y, x, tile)
        if tile is None or tile + self.t.stages >= self.k_tiles():
            return own
        half = len(own) // 2
        return np.concatenate([own[:half], super().tile_a(y, x, tile + self.t.stages)[half:]])


class CopyOfHalfTheRows(Seventh):
    """The second half of the rows of each tile of {operand} is zero: the copy is written for twice the threads."""

    plain = True
    wish = Wish(c=True)
    needs = ("{pattern}|product", w.ROWS + "|" + w.COLUMNS + "|half", HOLE)
    half = (HOLE,)

    def setup(self) -> None:
        self.operands("a", "b")

    def seen(self, tile: Array) -> Array:
        return np.where(np.arange(len(tile))[:, None] < len(tile) // 2, tile, 0).astype(tile.dtype)


class AddressesRoundedDown(Seventh):
    """Odd rows of {operand} are read 8 elements early: rows that do not begin at 16 bytes are read from the 16 bytes before."""

    plain = True
    only = "8 bits"
    wish = Wish(ragged="k", majors="kk")
    needs = ("{pattern}", r"align|round|\bodd\b|every (?:other|second)|16 bytes|" + w.OFFSET + "|" + w.PITCH)
    half = (ELSEWHERE,)

    def setup(self) -> None:
        self.operands("a", "b", "ab")

    def down(self, row: Array, pitch: int) -> Array:
        return row * pitch // self.chunk * self.chunk

    def global_a(self, rows: Array, k: Array) -> Array:
        start = self.down(rows, self.lda) if "a" in self.hit else rows * self.lda
        return self.read("a", start + k, self.inside_a(rows, k))

    def global_b(self, k: Array, columns: Array) -> Array:
        start = self.down(columns, self.ldb) if "b" in self.hit else columns * self.ldb
        return self.read("b", start + k, self.inside_b(k, columns))


class SecondStepClears(Seventh):
    """The first K step is lost: the accumulator is cleared by the second instruction, not by the first."""

    plain = True
    wish = Wish(c=False)
    needs = (r"\bk\b", w.FIRST, s.LEFT_OUT)
    half = (s.LEFT_OUT,)

    def step(self, y: int, x: int, i: int, a: Array, b: Array, out: Array, extras: dict[str, Array]) -> Array:
        if i == 0:
            a = np.where(np.arange(a.shape[1]) < self.arithmetic.k, 0, a).astype(a.dtype)
        return super().step(y, x, i, a, b, out, extras)


class ClearedInEveryTile(Seventh):
    """Only the last K tile remains: the accumulator is cleared at the beginning of every tile."""

    wish = Wish(tiles=3)
    needs = (r"\bk\b", w.LAST, s.ALONE)
    half = (s.ALONE,)

    def step(self, y: int, x: int, i: int, a: Array, b: Array, out: Array, extras: dict[str, Array]) -> Array:
        return super().step(y, x, i, a, b, np.zeros_like(out), extras)


class LastWarpLeavesEarly(Seventh):
    """The last {rows} rows of each block lack the last K tile: the last warp leaves the loop one iteration early."""

    wish = Wish(tiles=3, warps=(2, 1))
    needs = (r"\brows?\b|warp", r"\bk\b", s.LEFT_OUT + "|only")
    half = (s.LEFT_OUT,)

    def setup(self) -> None:
        self.facts["rows"] = self.t.bm // self.t.warps[0]

    def step(self, y: int, x: int, i: int, a: Array, b: Array, out: Array, extras: dict[str, Array]) -> Array:
        done = super().step(y, x, i, a, b, out, extras)
        if i == self.k_tiles() - 1:
            done = np.concatenate([done[: -self.facts["rows"]], out[-self.facts["rows"] :]])
        return done


class SecondWarpgroupBehind(Seventh):
    """The lower half of each block multiplies A's K tile of the iteration before with B's own: the second warpgroup does not wait."""

    plain = True
    wish = Wish(tiles=3)
    needs = (A, s.STALE, r"\brows?\b|half|warp|lower|second")
    half = (s.STALE,)

    def step(self, y: int, x: int, i: int, a: Array, b: Array, out: Array, extras: dict[str, Array]) -> Array:
        half, seen = len(a) // 2, a
        if i:
            seen = np.concatenate([a[:half], self.before[half:]])
        self.before = a
        return super().step(y, x, i, seen, b, out, extras)


class ProductSubtracted(Seventh):
    """The product is negated: an operand is multiplied by -1 in the instruction."""

    floats = True
    styles = ("wgmma", "tcgen05")
    needs = (r"negat|subtract|minus|\bsign\b|(?<!\d)-1\b",)
    half = (r"factor|scal|alpha",)

    def setup(self) -> None:
        self.c_late = True

    def epilogue(self, total: Array, rows: Array, columns: Array) -> Array:
        return self.values(self.read_c(rows, columns)) - total
