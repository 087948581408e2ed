"""The sixth set: pointers, leading dimensions, the loop over K and its stages."""

from __future__ import annotations

import dataclasses

import numpy as np

from tests.evaluation.second_wrong_kernels import words as w
from tests.evaluation.second_wrong_kernels.kinds_sixth import AHEAD, FIXED, LEFT_OUT, STALE, STEP, Sixth
from tests.evaluation.second_wrong_kernels.problem import Array, Wish

# The same sums: K tiles that both operands read in place of others are counted twice, and the others are missing.
SHIFTED = (w.KTILE, LEFT_OUT + "|" + w.TWICE, r"k \d+-\d+|tile|stage")


def lines(offset: int, *pitches: int) -> tuple[str, ...]:
    """What equals a pointer that is off by whole lines of a matrix, if it is."""
    whole = len(pitches) == 1 and offset % pitches[0] == 0
    return ("{pattern}", w.OFFSET, rf"\b{offset // pitches[0]}\b") if whole else ()


class TileOfKLeftOut(Sixth):
    """The loop leaves out the {which} K tile."""

    wish = Wish(tiles=3, whole="k")
    needs = (w.KTILE, LEFT_OUT + "|starts late", "{where}")
    half = (w.KTILE, LEFT_OUT)

    def setup(self) -> None:
        first = bool(self.random.integers(2))
        self.kept, last = slice(1, None) if first else slice(0, -1), (self.k_tiles() - 1) * self.t.bk
        self.facts |= {
            "which": "first" if first else "last",
            "where": rf"\bk 0-{self.t.bk - 1}\b|first" if first else rf"\bk {last}-|last|tail|end of k",
        }

    def slice_of(self, part: int) -> list[int]:
        return super().slice_of(part)[self.kept]


class RaggedKDropped(Sixth):
    """The loop runs K // {bk} times: the ragged end of K is not multiplied."""

    wish = Wish(tiles=3, ragged="k")
    needs = (w.KTILE, LEFT_OUT, r"\bk {end}-|last|tail|end of k|remainder|ragged")
    half = (w.KTILE, LEFT_OUT)

    def setup(self) -> None:
        self.facts |= {"bk": self.t.bk, "end": self.p.k // self.t.bk * self.t.bk}

    def slice_of(self, part: int) -> list[int]:
        return [tile for tile in super().slice_of(part) if (tile + 1) * self.t.bk <= self.p.k]


class RaggedKNotMasked(Sixth):
    """The last K tile is loaded without a mask: it goes on with the next row of A and the next column of B."""

    source = "triton-lang/triton#630"
    wish = Wish(tiles=2, ragged="k", majors="kk")
    plain = True
    needs = (
        w.KTILE,
        r"mask|past|beyond|behind|outside|out.of.bounds|over the end|next row|next column|runs? (?:over|on)|wrap|exceed|overrun|guard|end of k",
    )
    half = (w.KTILE, w.LAST)

    def inside_a(self, rows: Array, k: Array) -> Array:
        return rows < self.p.m

    def inside_b(self, k: Array, columns: Array) -> Array:
        return columns < self.p.n


class StepOfOneOperand(Sixth):
    """{operand} moves on by {step} along K for every tile, the other operand by {bk}."""

    wish = Wish(tiles=3)
    plain = True
    needs = ("{pattern}", w.KTILE, STEP, "{step.pattern}|half|double|twice")
    half = ("{pattern}", w.KTILE)

    def setup(self) -> None:
        self.operands("a", "b")
        self.draw_step()

    def draw_step(self) -> None:
        self.facts["bk"] = self.t.bk
        steps = {self.t.bk // 2, self.t.bk * 2, 8, 16, 32, 64, 128} - {self.t.bk}
        self.by = int(self.choose("step", *sorted(step for step in steps if step < self.p.k)))

    def k_loaded(self, operand: str, tile: int, width: int) -> Array:
        return tile * (self.by if operand in self.hit else width) + np.arange(width)


class StepOfBothOperands(StepOfOneOperand):
    """Both operands move on by {step} along K for every tile of {bk}."""

    needs = (w.KTILE, STEP, "{step.pattern}|half|double|twice")
    half = (w.KTILE,)
    equal = SHIFTED

    def setup(self) -> None:
        self.operands("ab")
        self.draw_step()


class PointerNeverAdvanced(Sixth):
    """Every iteration loads the first K tile of {operand}."""

    wish = Wish(tiles=2)
    plain = True
    needs = ("{pattern}", FIXED, w.KTILE + "|tile|pointer")
    half = ("{pattern}", w.KTILE)

    def setup(self) -> None:
        self.operands()

    def k_loaded(self, operand: str, tile: int, width: int) -> Array:
        return super().k_loaded(operand, 0 if operand in self.hit else tile, width)


class LeadingDimensionOfAnother(Sixth):
    """{operand}'s leading dimension is {ld}, that of another matrix, and should be {right}."""

    plain = True
    needs = ("{pattern}", w.PITCH, "{ld.pattern}")
    half = ("{pattern}", w.PITCH)

    def setup(self) -> None:
        self.operands("a", "b")
        right = self.facts["right"] = self.lda if self.hit == "a" else self.ldb
        ld = int(self.choose("ld", *({self.p.m, self.p.n, self.p.k} - {right} or {right + 8})))
        self.lda, self.ldb = (ld, self.ldb) if self.hit == "a" else (self.lda, ld)


class LeadingDimensionsCrossed(Sixth):
    """The leading dimensions of A and B, {lda} and {ldb}, are passed in the other order."""

    plain = True
    needs = (rf"(?:{w.A})[\s\S]*(?:{w.B})|both|swap", w.PITCH, "{lda.pattern}|{ldb.pattern}|swap|exchang|interchang")
    half = (w.PITCH,)

    def setup(self) -> None:
        self.choose("lda", self.lda)
        self.choose("ldb", self.ldb)
        self.lda, self.ldb = self.ldb, self.lda


class LeadingDimensionRoundedUp(Sixth):
    """{operand} is read as if its rows were padded to a multiple of {unit}: a leading dimension of {ld}."""

    plain = True
    wish = Wish(tiles=2, ragged="mnk", blocks=(2, 2))
    needs = ("{pattern}", w.PITCH + "|padd", "{ld.pattern}")
    half = ("{pattern}", w.PITCH)

    def setup(self) -> None:
        self.operands("a", "b")
        unit = int(self.choose("unit", 32, 64, 128))
        right = self.lda if self.hit == "a" else self.ldb
        ld = int(self.choose("ld", -(-right // unit) * unit))
        self.lda, self.ldb = (ld, self.ldb) if self.hit == "a" else (self.lda, ld)


class TransposeFlag(Sixth):
    """{operand} is read in the other order, its transpose flag being wrong."""

    plain = True
    needs = ("{pattern}", w.TRANSPOSED)
    half = ("{pattern}",)

    def setup(self) -> None:
        self.operands()
        other = {"k": "mn", "mn": "k"}
        if "a" in self.hit:
            self.t = dataclasses.replace(self.t, a_major=other[self.t.a_major])
            self.lda = self.p.k + self.p.m - self.lda
        if "b" in self.hit:
            self.t = dataclasses.replace(self.t, b_major=other[self.t.b_major])
            self.ldb = self.p.k + self.p.n - self.ldb


class PointerPastTheStart(Sixth):
    """The pointer to {operand} is {offset} elements past its start."""

    plain = True
    needs = ("{pattern}", w.OFFSET, "{offset.pattern}")
    half = ("{pattern}", w.OFFSET)

    def setup(self) -> None:
        self.operands()
        offset = int(self.choose("offset", 1, 4, 8, 16, 32, 64, 100, 128, 256))
        for operand in self.hit:
            self.pointer[operand] = offset
        pitches = {self.lda if operand == "a" else self.ldb for operand in self.hit}
        self.equal = lines(offset, *pitches)


class PointerOfTheOutput(Sixth):
    """The pointer to D is {offset} elements past its start."""

    wish = Wish(c=False)
    needs = (w.D, w.OFFSET, "{offset.pattern}")
    half = (w.D, w.OFFSET)

    def setup(self) -> None:
        offset = self.pointer["d"] = int(self.choose("offset", 1, 2, 4, 8, 16, 32, 64))
        self.facts["pattern"], self.equal = w.D, lines(offset, self.ldd)


# Stages.


class WaitOneGroupTooFew(Sixth):
    """The wait lets the newest copy of {operand} be under way: iteration i finds tile i - {stages}, or nothing, in its stage."""

    source = "csarofeen/pytorch#2457"
    wish = Wish(tiles=4, stages=(2, 3))
    plain = True
    needs = ("{pattern}", STALE)
    half = (STALE,)
    equal = SHIFTED

    def setup(self) -> None:
        self.operands()
        self.facts["stages"] = self.t.stages

    def copies_landed(self, operand: str, i: int) -> int:
        return i + (operand not in self.hit)


class NextStageRead(Sixth):
    """Iteration i reads {operand} in stage (i + 1) % {stages}."""

    wish = Wish(tiles=4, stages=(3, 4))
    plain = True
    needs = ("{pattern}", AHEAD)
    half = ("{pattern}",)

    def setup(self) -> None:
        self.operands("a", "b")
        self.facts["stages"] = self.t.stages

    def copies_landed(self, operand: str, i: int) -> int:
        return i + 2

    def slot_read(self, operand: str, i: int) -> int:
        return (i + (operand in self.hit)) % self.t.stages


class ReaderHasFewerStages(Sixth):
    """{operand} is copied to {stages} stages in turn, and read from {fewer}."""

    source = "tile-ai/tilelang#2785"
    wish = Wish(tiles=4, stages=(2, 3, 4))
    plain = True
    needs = ("{pattern}", STALE)
    half = ("{pattern}",)

    def setup(self) -> None:
        self.operands("a", "b")
        self.facts |= {"stages": self.t.stages, "fewer": self.t.stages - 1}

    def slot_read(self, operand: str, i: int) -> int:
        return i % (self.t.stages - (operand in self.hit))


class ParityNeverFlips(Sixth):
    """The consumer waits for parity 0 always: in every second round of {stages} stages it finds the round before."""

    wish = Wish(tiles=4, stages=(2, 3))
    plain = True
    needs = (STALE + "|parity|phase|round", "k \\d+-\\d+|tile|stage|round")
    half = (w.KTILE,)
    equal = SHIFTED

    def setup(self) -> None:
        self.facts["stages"] = self.t.stages

    def copies_landed(self, operand: str, i: int) -> int:
        return i + 1 - i // self.t.stages % 2


class StageReusedTooEarly(Sixth):
    """The producer does not wait until a stage is free: iteration i finds tile i + {stages} of {operand}."""

    source = "triton-lang/triton#3106"
    wish = Wish(tiles=4, stages=(2, 3))
    plain = True
    needs = ("{pattern}", AHEAD)
    half = (AHEAD,)
    equal = SHIFTED

    def setup(self) -> None:
        self.operands()
        self.facts["stages"] = self.t.stages

    def copies_landed(self, operand: str, i: int) -> int:
        return i + 1 + (self.t.stages if operand in self.hit else 0)


class OneWarpOvertaken(Sixth):
    """A __syncthreads is missing: the last warps along M find the tile of A that comes {stages} iterations later."""

    wish = Wish(tiles=4, stages=(2, 3), warps=(2, 1))
    styles = ("mma",)
    plain = True
    needs = (w.A, w.WARP, AHEAD)
    half = (w.WARP,)

    def setup(self) -> None:
        self.facts["stages"] = self.t.stages

    def tile_a(self, y: int, x: int, tile: int | None) -> Array:
        right, half = super().tile_a(y, x, tile), self.t.bm // 2
        if tile is None or tile + self.t.stages >= self.k_tiles():
            return right
        return np.concatenate([right[:half], super().tile_a(y, x, tile + self.t.stages)[half:]])


class PrologueLoadsOneTile(Sixth):
    """The prologue fills {filled} stages with the first K tile of {operand}: its pointer moves on in the loop alone."""

    wish = Wish(tiles=4, stages=(3, 4))
    plain = True
    needs = ("{pattern}", FIXED + "|prologue", w.KTILE)
    half = ("{pattern}",)
    equal = SHIFTED

    def setup(self) -> None:
        self.operands()
        self.facts["filled"] = self.t.stages - 1

    def k_loaded(self, operand: str, tile: int, width: int) -> Array:
        early = operand in self.hit and tile < self.t.stages - 1
        return super().k_loaded(operand, 0 if early else tile, width)


class LastGroupsNotWaited(Sixth):
    """No empty groups are committed behind the last copy, so the last {late} tiles are read before they have landed."""

    wish = Wish(tiles=5, stages=(3, 4))
    plain = True
    needs = (STALE, w.LAST)
    half = (w.KTILE,)
    equal = SHIFTED

    def setup(self) -> None:
        self.facts["late"] = self.t.stages - 2

    def copies_landed(self, operand: str, i: int) -> int:
        return min(i + self.t.stages - 1, self.k_tiles()) - (self.t.stages - 2)
