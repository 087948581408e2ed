"""The twelfth set of kernels: what its kinds share. Mistakes and right kernels are in kinds_twelfth_*.py.

It was written without reading the diagnosis or the kinds of other sets; where a mistake was met is its `source`.
"""

from __future__ import annotations

from tests.evaluation.second_wrong_kernels import kinds_eleventh as eleventh
from tests.evaluation.second_wrong_kernels import kinds_ninth as ninth
from tests.evaluation.second_wrong_kernels import words
from tests.evaluation.second_wrong_kernels.kinds_eleventh import Eleventh
from tests.evaluation.second_wrong_kernels.kinds_ninth import either, everything, span
from tests.evaluation.second_wrong_kernels.problem import Array
from tests.evaluation.second_wrong_kernels.words import value

MOVED = (
    eleventh.MOVED
    + r"|stands? (?:in )?for|starts? at|begins? at|(?:take|use|read|load|get|multipl|hold|see|ha)(?:s|y|ies|ve)? (?:the |[abcd]'s )?(?:rows?|columns?|k|those|what)\b"
    + r"|'s (?:rows?|columns?|k) \d|->|\u2192"
)
UNWRITTEN = (
    ninth.UNWRITTEN
    + r"|empty|not there|was allocated|nothing is stored|keeps? what|holds? what|left alone|no (?:thread|warp|worker|one)"
)
LACK = ninth.LACK + r"|\bzeros?\b|nothing|absent|not there|not read|unread|drops?\b|skips?\b"
AGAIN = ninth.AGAIN + r"|thrice|counts? 2|\b2x\b|x ?2\b"
SAME = (
    words.SAME
    + r"|for (?:all|every)\b|all (?:of them )?(?:are|take|use|hold|read|get)|once more|over and over|every .{0,30}(?:is|are|takes?|holds?|reads?) "
)
EXCHANGED = (
    r"swap|exchang|interchang|crossed|permut|reorder|revers|change(?:d)? places|trade|vice versa|each other|other way round|\^|xor|flipped|"
    r"wrong order|instead of one another"
)
ONLY = r"\bonly\b|alone|\bjust\b|nothing but|all but"
SWIZZLED = r"swizzl|\bxor|\^"
STEPS = words.KTILE + r"|iterations?\b"
TAIL = r", nothing\W*(?:\n|\Z)|\btail|remainder|residue|left ?over|\brest\b|ragged|partial|rounded down|floor|last (?:\d+ )?(?:k )?(?:tiles?|steps?|elements?|of k)"


def both_ways(one: str, other: str) -> str:
    """Each of two ranges is the other one."""
    there, back = rf"{one}\b.{{0,40}}{other}\b", rf"{other}\b.{{0,40}}{one}\b"
    return either(f"{there}.{{0,80}}{back}", f"{back}.{{0,80}}{there}")


def lines(axis: str, *others: str) -> str:
    """An axis, and the facts `from` and `to` or other words for the range."""
    return everything(axis, either(span("from", "to"), value("from"), *others))


class Twelfth(Eleventh):
    """A kernel whose blocks have a number, as in the ninth set: the first pattern of `needs` is the place."""

    def in_lines(self, row: Array, k: Array, pitch: int, bits: int) -> Array:
        """An address whose 16-byte chunk is XORed with the low bits of the number of its 128 bytes, as TMA does."""
        address = row * pitch + k
        chunk = address // self.chunk
        return (chunk ^ (chunk >> 3) % (1 << bits)) * self.chunk + address % self.chunk


class Well(Twelfth):
    """A right kernel."""

    correct = True
