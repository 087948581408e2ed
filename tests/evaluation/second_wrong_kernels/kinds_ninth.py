"""The ninth set of kernels: what its kinds share. Mistakes and right kernels are in kinds_ninth_*.py.

It was written without reading the diagnosis or the other sets. `source` names the thread in which such a mistake was met.
Patterns take any wording that leads to the right line, and no other place.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from tests.evaluation.second_wrong_kernels.kernel import Kernel
from tests.evaluation.second_wrong_kernels.problem import Array, Problem, Tiling

UNWRITTEN = (
    r"(?:never|not) (?:written|stored|computed|launched|scheduled|covered)|unwritten|uninitiali[sz]ed|as it was allocated|untouched|skipp|no block|"
    r"missing|blank|\bzeros?\b|\bnan\b|nothing|lost|dropped"
)
LACK = (
    r"missing|skipp|omit|dropped|left out|lost|not (?:added|summed|multiplied|computed|counted|loaded)|without|ends? (?:early|at)|too short|"
    r"stops|leaves out|only k|cut (?:off|to)|never"
)
MOVED = (
    r"shift|offset|moved|displac|(?:stored|written) (?:at|to|in|over)|\bholds?\b|place of|belongs|lands|other (?:block|tile)|wrong (?:block|tile)|"
    r"another (?:block|tile)|(?:comes?|taken|loaded|read) from|(?:is|are) (?:that|those|the one|the ones) of|instead of|look like|copy of|copies of|"
    r"made of|all (?:of them|blocks|rows) (?:are|use|add|take|hold)|exchang|swap|permut|crossed|interchang|rotat|reorder"
)
AGAIN = r"twice|two times|double|again|repeat|overlap|duplicat|counted .*times|\b[2-9] times|times [2-9]|more than once"
SCALES = r"scale|scaling"


def either(*patterns: str) -> str:
    """One of the patterns."""
    return "|".join(f"(?:{pattern})" for pattern in patterns)


def everything(*patterns: str) -> str:
    """All of them, in any order."""
    return r"\A" + "".join(f"(?=(?s:.*)(?:{pattern}))" for pattern in patterns)


def span(first: str, last: str) -> str:
    """A range of the two facts, as `32-63`."""
    return r"(?<!\d){" + first + r"}\s*(?:-|to|\.\.)\s*{" + last + r"}(?!\d)"


class Ninth(Kernel):
    """A kernel whose blocks are also numbered row by row, as a persistent one takes them: block n, then n + workers."""

    source: ClassVar[str] = "textbook"
    workers: ClassVar[int] = 2

    def __init_subclass__(cls) -> None:
        """The first pattern of `needs` is the place; a report that has this alone is half right."""
        cls.half = cls.needs[:1]

    def __init__(self, problem: Problem, tiling: Tiling, random: np.random.Generator) -> None:
        super().__init__(problem, tiling, random)
        p, t = self.p, self.t
        common = {
            "m": p.m,
            "n": p.n,
            "bm": t.bm,
            "bn": t.bn,
            "bk": t.bk,
            "stages": t.stages,
            "step": p.arithmetic.k,
            "last": t.bm - 1,
        }
        self.facts = {"workers": self.workers, **common, **self.facts}

    def number(self, y: int, x: int) -> int:
        """The number of a block."""
        return y * self.grid()[1] + x

    def block(self, number: int) -> tuple[int, int]:
        """The block of a number, which may lie past the end."""
        y, x = divmod(number, self.grid()[1])
        return y, x

    def rows(self, y: int, start: int = 0, stop: int = 0) -> dict[str, int]:
        """Facts `from` and `to`: rows of the blocks (y, ...), or the part [start, stop) of them."""
        top = y * self.t.bm
        return {"from": top + start, "to": min(top + (stop or self.t.bm), self.p.m) - 1}

    def columns(self, x: int, start: int = 0, stop: int = 0) -> dict[str, int]:
        """Facts `from` and `to`: columns of the blocks (..., x), or a part of them."""
        left = x * self.t.bn
        return {"from": left + start, "to": min(left + (stop or self.t.bn), self.p.n) - 1}

    def k_range(self, first: int, last: int) -> dict[str, int]:
        """Facts `from` and `to`: the elements of K in the tiles first to last."""
        return {"from": first * self.t.bk, "to": min((last + 1) * self.t.bk, self.p.k) - 1}

    def sums(self, y: int, x: int) -> Array:
        """The finished values (bm, bn) of a block."""
        return self.combine([self.mainloop(y, x, part) for part in range(self.t.split)], y, x)


class Scaled(Ninth):
    """A mistake of scale factors."""

    only = "scaled"


class Sound(Ninth):
    """A right kernel."""

    correct = True
    source = "textbook"
