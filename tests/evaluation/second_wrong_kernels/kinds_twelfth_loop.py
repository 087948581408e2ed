"""The twelfth set: mistakes of the loop over K, its stages, split-K and stream-K."""

from __future__ import annotations

import numpy as np

from tests.evaluation.second_wrong_kernels.kinds_eleventh import HALVES, SOME
from tests.evaluation.second_wrong_kernels.kinds_ninth import either, everything, span
from tests.evaluation.second_wrong_kernels.kinds_twelfth import (
    AGAIN,
    LACK,
    MOVED,
    ONLY,
    SAME,
    STEPS,
    TAIL,
    Twelfth,
    lines,
)
from tests.evaluation.second_wrong_kernels.problem import Array, Wish
from tests.evaluation.second_wrong_kernels.words import COLUMNS, KTILE, ROWS, STAGE, A, B, D, value


class TailLostWhenStagesDivide(Twelfth):
    """The tail of K is skipped as the number of whole K tiles is a multiple of the {stages} stages: k {from}-{to} is not added."""

    source = "NVIDIA/cutlass#3536"
    wish = Wish(tiles=3, stages=(2, 3), ragged="k")
    needs = (lines(STEPS, TAIL), LACK)

    def setup(self) -> None:
        self.facts = {"from": self.p.k // self.t.bk * self.t.bk, "to": self.p.k - 1}

    def k_tiles(self) -> int:
        whole = self.p.k // self.t.bk
        return whole if whole % self.t.stages == 0 else whole + 1


class BReadFromTheNextStage(Twelfth):
    """B is read from the stage after the right one: the iterations take B's K tiles {order}."""

    source = "facebookexperimental/triton#2816"
    plain = True
    wish = Wish(tiles=4, stages=(3, 4))
    needs = (
        either(B, everything(A, r"behind|previous|before|\blags?|earlier")),
        either(STEPS, STAGE),
        either(
            "{order}",
            r"\bnext|ahead|later|one (?:k )?(?:tile|stage|too)|too far|\+ ?1\b|off by one|stage after|behind|previous|\blags?|earlier",
            r"k 0-\d+.{0,40}k {bk}-|k {bk}-\d+.{0,40}k 0-",
        ),
    )

    def setup(self) -> None:
        tiles = self.k_tiles()
        self.facts = {"order": ", ".join(map(str, [*range(1, tiles), tiles - self.t.stages]))}

    def slot_read(self, operand: str, i: int) -> int:
        return (i + (operand == "b")) % self.t.stages

    def copies_landed(self, operand: str, i: int) -> int:
        return i + self.t.stages - 1


class BothHalvesOfTheBodyTheSame(Twelfth):
    """The loop is unrolled by two and both halves of its body take the same K tile: the iterations add K tiles {order}."""

    wish = Wish(tiles=4)
    needs = (
        everything(
            STEPS, either(span("from", "to"), "{order}", r"\bodd|\beven|every (?:other|second)|both halves|pairs?")
        ),
        either(AGAIN, SAME, "{order}", MOVED, LACK),
    )

    def setup(self) -> None:
        self.facts = {"order": ", ".join(str(i // 2 * 2) for i in range(self.k_tiles())), **self.k_range(1, 1)}

    def slice_of(self, part: int) -> list[int]:
        return [tile // 2 * 2 for tile in super().slice_of(part)]


class EveryIterationBeginsAtZero(Twelfth):
    """The accumulators are cleared in every iteration: only the last K tile, k {from}-{to}, is in the output."""

    source = "tile-ai/tilelang#2627"
    wish = Wish(tiles=3, c=False)
    needs = (
        everything(
            either(STEPS, r"accumulat"),
            either(span("from", "to"), span("zero", "before"), r"last (?:k )?(?:tile|step|iteration)|nothing, nothing|(?:in )?every (?:k )?(?:tile|iteration)|the loop"),
        ),
        either(LACK, ONLY, r"clear|zeroed|reset|overwrit|starts anew|fresh"),
    )  # fmt: skip

    def setup(self) -> None:
        last = self.k_range(self.k_tiles() - 1, self.k_tiles() - 1)
        self.facts = {**last, "zero": 0, "before": last["from"] - 1}

    def step(self, y: int, x: int, i: int, a: Array, b: Array, out: Array, extras: dict[str, Array]) -> Array:
        return super().step(y, x, i, a, b, np.zeros_like(out), extras)


class SumOfTheBlockBeforeKept(Twelfth):
    """The accumulators are not cleared between the blocks of a worker: from block {workers} on, the sum of the block {workers} before is in each."""

    source = "tile-ai/tilelang#2617"
    wish = Wish(blocks=(2, 2), c=False)
    needs = (
        either(SOME, r"accumulator"),
        r"not (?:cleared|zeroed|reset|initiali)|never (?:cleared|zeroed|reset)|keeps?|kept|carr(?:y|ied)|plus|\+|on top|added|adds?\b|starts? (?:from|with)|sum of",
        r"block|tile|rows|columns",
    )

    def accumulators(self, y: int, x: int, part: int) -> Array:
        number = self.number(y, x)
        if number < self.workers:
            return super().accumulators(y, x, part)
        return self.mainloop(*self.block(number - self.workers), part)


class ShareOfASliceRoundedDown(Twelfth):
    """Each slice has K tiles / slices, rounded down: k {from}-{to} is in none."""

    source = "NVIDIA/TensorRT-LLM#13833"
    wish = Wish(tiles=4, split=(2, 3))
    needs = (lines(STEPS, TAIL), either(LACK, r"in none|in no slice"))

    def setup(self) -> None:
        self.facts = {"from": self.k_tiles() // self.t.split * self.t.split * self.t.bk, "to": self.p.k - 1}

    def slice_of(self, part: int) -> list[int]:
        each = self.k_tiles() // self.t.split
        return list(range(part * each, (part + 1) * each))


class AllOfKInEverySlice(Twelfth):
    """Every slice sums all of K, and the slices are added: the product is there {split} times."""

    source = "ROCm/rocm-libraries#10146"
    wish = Wish(tiles=3, split=(2, 3), c=False)
    needs = (
        either(D, r"product|slice|split|\bk\b|alpha|\ba b\b|sums?\b"),
        r"\b(?:{split}|{word})(?:\.0)?[ -]?(?:times|fold|x\b)|times (?:{split}|{word})\b|factor (?:of )?(?:{split}|{word})\b|[x\xd7*] ?{split}\b|"
        r"alpha\W+(?:is |of )?{split}\b|\b{split}(?:\.0)? ?[x\xd7*]|\b{split} \(?a b|{adverb}|(?:multiplied|scaled) by {split}\b|"
        r"(?:every|each) slice .{0,30}(?:all of k|whole|full|every k)",
    )

    def setup(self) -> None:
        word, adverb = {2: ("two", r"twice|doubled?\b"), 3: ("three", r"thrice|tripled?\b")}[self.t.split]
        self.facts = {"split": self.t.split, "word": word, "adverb": adverb}

    def slice_of(self, part: int) -> list[int]:
        return list(range(self.k_tiles()))


class SliceOfBBeginsAtZero(Twelfth):
    """The offset of the slice is given to A alone: k {from}-{to} of A meets B from k 0 on."""

    plain = True
    wish = Wish(tiles=3, split=(2,))
    needs = (
        B,
        either(everything(KTILE, value("from")), r"slice|split|{order}"),
        either("{order}", MOVED, SAME, r"starts?\b|begins?|from (?:k )?0|offset|k 0\b"),
    )

    def setup(self) -> None:
        self.first = 0
        tiles = self.slice_of(1)
        order = ", ".join(str(i % tiles[0]) for i in range(self.k_tiles()))
        self.facts = {"order": order, **self.k_range(tiles[0], tiles[-1])}

    def mainloop(self, y: int, x: int, part: int) -> Array:
        self.first = self.slice_of(part)[0]
        return super().mainloop(y, x, part)

    def k_of_b(self, tile: int) -> Array:
        return super().k_of_b(tile - self.first)


class OwnPartialTwice(Twelfth):
    """The block that finishes a tile adds its own partial sum and not its peer's: k {from}-{to} is missing, k {again}-{end} is added twice."""

    source = "tile-ai/tilelang#2902"
    wish = Wish(tiles=3, split=(2,), c=False)
    needs = (
        everything(
            either(STEPS, r"partial|slice"),
            either("{order}", span("from", "to"), span("again", "end"), r"partial|slices?\b|peer"),
        ),
        either("{order}", AGAIN, r"\bown\b"),
    )

    def setup(self) -> None:
        again = self.k_range(self.slice_of(1)[0], self.k_tiles() - 1)
        order = ", ".join(str(tile) for tile in self.slice_of(1) * 2)
        self.facts = {"order": order, "from": 0, "to": again["from"] - 1, "again": again["from"], "end": again["to"]}

    def combine(self, partials: list[Array], y: int, x: int) -> Array:
        return super().combine([partials[1], partials[1]], y, x)


class WorkspaceSharedByARow(Twelfth):
    """The workspace of partial sums has a place for a row of blocks, not for each: for k {from}-{to} all blocks have the columns {left}-{right} of the last one."""

    source = "ROCm/rocm-libraries#9415"
    wish = Wish(blocks=(1, 2), tiles=3, split=(2,))
    needs = (
        everything(either(KTILE, r"partial|slice|workspace"), either(span("from", "to"), value("from"), r"partial|slices?\b|workspace")),
        everything(
            either(COLUMNS, r"block|tile"),
            either(MOVED, SAME, r"shar|overwrit|last (?:block|tile)|one (?:place|slot)"),
        ),
    )  # fmt: skip

    def setup(self) -> None:
        columns = self.columns(self.grid()[1] - 1)
        tiles = self.slice_of(1)
        self.facts = {**self.k_range(tiles[0], tiles[-1]), "left": columns["from"], "right": columns["to"]}

    def combine(self, partials: list[Array], y: int, x: int) -> Array:
        last = self.mainloop(y, self.grid()[1] - 1, 1)
        return super().combine([partials[0], last], y, x)


class SlowWarpsSeeTheNextTile(Twelfth):
    """No barrier before the stage is filled again: the warps of rows {from}-{to} read every K tile too late, when the next one is there, so k 0-{first} is missing and the last K tile is twice."""

    source = "csarofeen/pytorch#380"
    plain = True
    wish = Wish(tiles=3)
    needs = (
        either(lines(ROWS), HALVES, r"lower rows"),
        everything(
            either(STEPS, r"tile|stage|shared memory"),
            either("{order}", LACK, AGAIN, r"\bnext\b|ahead|overwritten|barrier|sync|\brace|refill|filled again|one (?:k )?(?:tile )?later|too (?:late|soon|early)"),
        ),
    )  # fmt: skip

    def setup(self) -> None:
        tiles = self.k_tiles()
        order = ", ".join(map(str, [*range(1, tiles), tiles - 1]))
        self.facts = {"from": self.t.bm // 2, "to": self.t.bm - 1, "first": self.t.bk - 1, "order": order}

    def mainloop(self, y: int, x: int, part: int) -> Array:
        tiles = self.slice_of(part)
        right = late = self.accumulators(y, x, part)
        for i, tile in enumerate(tiles):
            after = tiles[min(i + 1, len(tiles) - 1)]
            right = self.step(y, x, i, self.tile_a(y, x, tile), self.tile_b(y, x, tile), right, {})
            late = self.step(y, x, i, self.tile_a(y, x, after), self.tile_b(y, x, after), late, {})
        half = self.t.bm // 2
        return np.concatenate([right[:half], late[half:]])
