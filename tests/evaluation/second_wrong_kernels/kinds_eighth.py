"""The eighth set: mistakes thought up from how kernels are written, and from threads in public trackers (`source`).

kinds_eighth_launch.py has those of the launch and of pointers, _loop of the K loop, stages and split-K, _tensor of shared memory,
copies and fragments, _quantized of scale factors, metadata and types, _output of the epilogue; _right has the right kernels. The set
was written without reading the diagnosis, and committed before it was run.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from tests.evaluation.second_wrong_kernels.kernel import Kernel
from tests.evaluation.second_wrong_kernels.problem import Array, Wish


class Eighth(Kernel):
    """A kind of this set, and where it was met."""

    source: ClassVar[str] = "textbook"


class Fine(Eighth):
    """A right kernel, and two lines that main loops of another order need."""

    correct = True
    wish = Wish(tiles=3)

    def fresh(self, y: int, x: int) -> Array:
        """Accumulators of zero."""
        return np.zeros((self.t.bm, self.t.bn), np.uint32)

    def product(self, y: int, x: int, tile: int, out: Array) -> Array:
        """A K tile added to accumulators."""
        return self.multiply(self.tile_a(y, x, tile), self.tile_b(y, x, tile), out, self.extras(y, x, tile))


def everything(*patterns: str) -> str:
    """A pattern that matches a text which has all of these."""
    return r"\A" + "".join(rf"(?=[\s\S]*?(?:{pattern}))" for pattern in patterns)


def either(*patterns: str) -> str:
    """A pattern that matches a text which has one of these."""
    return "|".join(f"(?:{pattern})" for pattern in patterns)


def span(first: str, last: str) -> str:
    """A range of indices from one fact to another, both counted."""
    return r"(?<![\d.]){" + first + r"}\s*(?:-|to|\.\.\.?|\u2013|:|through|and)\s*{" + last + r"}(?!\d)"


UNWRITTEN = (
    r"never (?:\w+ )?(?:written|stored|computed|launched|reached)|not (?:\w+ )?(?:written|stored|computed|launched|covered|reached)|"
    r"unwritten|missing|skipp|left (?:out|blank|as)|no block|grid (?:is )?too small|too few blocks|untouched|uninitiali[sz]ed"
)
FROM = r"\bfrom\b|instead of|taken|\bcomes?\b|copies of|copy of|repeat|duplicat|equal to|the same as|look like|made of|is those|are those|\bhold|products? of|multipl"
EXCHANGED = r"swap|exchang|interchang|permut|reorder|crossed|transpos|in each other|revers|other order|order of the|wrong order|in the order|out of order"
AGAIN = r"twice|double|again|two times|2 times|2 ?x\b|x ?2\b|repeat|duplicat|counted|overlap|added more than once"
WITHOUT = r"without|missing|skipp|omit|dropped|left out|lost|not added|not summed|not multipl|never|leaves? out|ignored|lack|only"
UNMASKED = r"mask|predicat|guard|bound|beyond|past the end|out of range|out of bounds|outside|behind the end|clip|clamp"
FACTOR = r"factor|times|scaled?|multipl|alpha|x\b|\*"
