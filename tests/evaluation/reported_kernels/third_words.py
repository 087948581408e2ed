"""Patterns that the kinds of the third set share, those of the second set among them."""

from __future__ import annotations

from tests.evaluation.reported_kernels import again_words
from tests.evaluation.reported_kernels.again_words import (
    BATCH,
    COLUMN,
    FIRST,
    MIXED,
    ROW,
    SCALE,
    SWAPPED,
    TWICE,
    A,
    B,
    C,
    D,
    K,
)

__all__ = [
    "BATCH",
    "CLIPPED",
    "COLUMN",
    "FACTOR",
    "FIRST",
    "LOST",
    "METADATA",
    "MIXED",
    "OTHER",
    "PITCH",
    "ROW",
    "SCALE",
    "SWAPPED",
    "TILE",
    "TWICE",
    "ZERO",
    "A",
    "B",
    "C",
    "D",
    "K",
]

CLIPPED = r"clip|clamp|satur|\bcap|limit|largest|maximum|overflow|beyond|exceed"
FACTOR = r"factor|multipl|times|scal|weight|constant|ratio|\bx ?\d|\d ?x\b"
LOST = again_words.LOST + r"|\bnot (computed|present|there)|unwritten|absent|discard"
METADATA = r"metadata|position|ind(ex|ices)|selector|kept|sparse|2:4"
OTHER = (
    r"instead|other|wrong|another|computed from|those of|come from|neighbo|next|previous|shift|moved|taken from|reads?\b|holds?\b|of (row|column|tile|block|matri|batch|group)"
    r"|again|same|repeat|\+ ?\d|- ?\d|/ ?\d|\bmod\b|off by"
)
PITCH = r"pitch|strid|leading dimension|\bld[abcd]?\b|apart|row length|row step|spacing|padd|offset|width"
TILE = r"tile|block|\b(8|16|32|64) ?(x|by) ?\d|quadrant|sub-?matri"
ZERO = r"zero.?points?|constant|added|subtract|bias|offset|\b[ab] ?[+-] ?\d"
