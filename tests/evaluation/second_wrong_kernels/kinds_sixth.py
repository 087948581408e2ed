"""What the sixth set adds to a kernel: one hook for both operands, and the words that its kinds share.

The sixth set was written, as the first was, from a sentence ("tile sizes, stages, warps, pitches, both operands, regions, epilogues, output
formats; mma.sync, wgmma, tcgen05, sparse, scaled") and from what users meet, by someone who had read neither the diagnosis nor its pages, nor
the kinds of the other sets but one. It was committed before any report was seen. Its kinds are ordinary: many were written before by somebody
else, in other words.
"""

from __future__ import annotations

import re

import numpy as np

from tests.evaluation.second_wrong_kernels import words as w
from tests.evaluation.second_wrong_kernels.kinds_fourth import Fourth
from tests.evaluation.second_wrong_kernels.problem import Array

# In the midst of a sentence a capital A is the operand, too.
_A = w.A + r"|(?-i:(?<=[a-z,] )A\b)"
OPERANDS = {"a": _A, "b": w.B, "ab": rf"(?:{_A})[\s\S]*(?:{w.B})|(?:{w.B})[\s\S]*(?:{_A})|both operands|a and b"}

# What the patterns have in common. A report may say it in any of these ways.
UNWRITTEN = r"never (?:written|stored|computed)|not (?:written|stored|computed)|unwritten|untouched|left (?:out|empty|blank)|missing|no (?:block|program)|nobody|skipp"
_INSTEAD = r"instead of (?:rows?|columns?|k\b|tiles?|blocks?|warps?|chunks?|quarters?|lanes?|stages?|its|their|those)"
MOVED = (
    r"swap|exchang|interchang|permut|crossed|each other|reorder|other order|wrong order|rearrang|shuffl|rotat|cycl|moved|taken from|change places|(?:read|hold|store)s? .* of (?:warp|quarter|column|row|lane)|"
    r"comes? from|holds?\b|" + _INSTEAD
)
FIXED = (
    r"always|ignor|the same|every .* the first|first .* for (?:all|every|each)|repeat|again|stuck|stays|never (?:moves|advance)|"
    r"not (?:moved|advanced|used)|block 0\b|tile 0\b|copies of|duplicat|(?:all|every|each) .*(?:\bfirst\b|\bk 0\b|\b0-\d|\(0, 0\))|without (?:block|warp|tile|its|advanc|the)|"
    + _INSTEAD
)
LEFT_OUT = (
    r"missing|skipp|omit|dropp|left out|leaves out|\blacks?\b|not (?:yet )?come|before .* has come|does not add|adds \d of|\blost\b|not (?:added|summed|computed|multiplied|counted|included|accumulated)|"
    r"never (?:added|summed|read|multiplied|counted)|without|ends early|stops"
)
ALONE = LEFT_OUT + r"|\bonly\b|\balone\b|remains|overwr|replac"
STALE = (
    r"stale|previous|earlier|\bold(?:er)?\b|behind|\blags?\b|\blate\b|not (?:yet )?(?:landed|arrived|waited)|too (?:early|soon)|"
    r"(?:tile|iteration|round|stage|copy) before|before (?:it|they|the cop)|\bwait|\brace\b|\bstages?\b|buffer|\bslot"
)
AHEAD = r"\bnext\b|ahead|later|newer|overwrit|too (?:early|soon)|reused|\brace\b|\bstages?\b|\bslot|buffer|following"
STEP = r"advanc|step|moves? (?:on )?by|increment|stride|pointer|k offset|starts? at|k tiles? (?:begin|start)|per (?:k )?tile|descriptor"
TILE = r"block|tile|grid|cta|rows \d+-\d+|columns \d+-\d+"
SLICE = r"split|slice|partial|work ?space|k \d+-\d+|k range|half of k|part of k"
FACTOR = r"factor|scal|times|multipl|alpha|twice|double|triple|hal(?:f|ved)|\bx\b"
FORMAT = r"format|type|decoded|interpret|read as|tak(?:en|es|ing) .*(?:as|for)\b|bits|instead of"
ROUNDED = r"round|precision|truncat|narrow|convert|accumulat|partial|toward|cut"
SCALE = r"scale|scaling|\bsf[ab]?\b"
METADATA = r"metadata|selector|positions|sparsity|indices"
NEGATIVE = r"relu|negatives?\b.{0,40}(?:zero|\b0\b|lost|cut|clamp|replac)|max\(|below (?:zero|0)|clamp.{0,20}\b0\b|at least (?:zero|0)"
WORDS = {-1.0: "negat|subtract|minus|sign", 0.5: "half|halved", 2.0: "twice|double", 3.0: "triple|three times"}


class Sixth(Fourth):
    """A kernel of the sixth set. `hit` names the operands that the mistake is in; the methods below see to A and B alike."""

    hit = ""

    def operands(self, *choices: str) -> None:
        """Draw which operands the mistake hits; {operand} and {pattern} stand for them. Only a mistake in both has equals."""
        self.hit = str(self.random.choice(choices or ("a", "b", "ab")))
        self.facts |= {"operand": " and ".join(self.hit.upper()), "pattern": OPERANDS[self.hit]}
        self.equal = self.equal if self.hit == "ab" else ()

    def axis(self) -> int:
        """Draw rows or columns of the output: 0 or 1; {axis} and {pattern} stand for it."""
        axis = int(self.random.integers(2))
        self.facts |= {"axis": "MN"[axis], "pattern": (w.ROWS, w.COLUMNS)[axis]}
        return axis

    def choose(self, name: str, *choices: float) -> float:
        """Draw a number; {name} stands for it, {name.pattern} for the number, not a part of another, {name.words} for either or its name."""
        number = choices[int(self.random.integers(len(choices)))]
        words = rf"(?<![\d.]){re.escape(f'{number:g}')}(?!\.?\d)"
        self.facts |= {name: number, f"{name}.pattern": words, f"{name}.words": f"{words}|{WORDS.get(number, words)}"}
        return number

    # What both operands share: a row of A, or a column of B, is a row of an operand.

    def k_of_a(self, tile: int) -> Array:
        return self.k_loaded("a", tile, self.bk_a)

    def k_of_b(self, tile: int) -> Array:
        return self.k_loaded("b", tile, self.t.bk)

    def k_loaded(self, operand: str, tile: int, width: int) -> Array:
        """The places along K that the copy of a K tile of `width` loads."""
        return tile * width + np.arange(width)

    def rows_of_a(self, y: int, x: int) -> Array:
        return self.rows_loaded("a", y, self.t.bm)

    def columns_of_b(self, y: int, x: int) -> Array:
        return self.rows_loaded("b", x, self.t.bn)

    def rows_loaded(self, operand: str, block: int, size: int) -> Array:
        """The rows of an operand that a block loads."""
        return block * size + np.arange(size)

    def fragments_a(self, tile: Array) -> Array:
        return self.seen(tile) if "a" in self.hit else tile

    def fragments_b(self, tile: Array) -> Array:
        return self.seen(tile) if "b" in self.hit else tile

    def seen(self, tile: Array) -> Array:
        """What the multiply sees of a tile (rows, k) of an operand that the mistake hits."""
        return tile

    def tiles_of(self, part: int) -> list[int]:
        """The K tiles of a slice, if the kernel were right."""
        return super().slice_of(part)


class RightSixth(Sixth):
    """A kernel of the sixth set without a mistake."""

    correct = True
