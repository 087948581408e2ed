"""One hypothesis about a kernel: where it reads A and B, how often it takes each k, and the factors of the product and of C."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from tcsim.diagnosis.hypothesis import Hypothesis
from tcsim.diagnosis.maps import ADVANCE, SAME, Rule
from tcsim.diagnosis.pipelines import Count
from tcsim.diagnosis.reals import Ints, Mask, Numbers, Reals

STORED = "d: stored at another place"
STORED_ADVICE = "look at the addresses that the epilogue stores to, and at the block and warp indices in them"
RESTARTED = "accumulator restarted"
_RESTART = "zero the accumulator once, before the loop over K (wgmma, tcgen05: scale_d 0 in the first instruction alone); look for a slice of split-K that is stored where it should be added"
_TWICE = "c goes in as accumulator and again at the end, or each of two slices of split-K adds it"
_FEWER = "; or both are right, and the K loop takes too few or too many steps of each tile"
CROSSED = " (the indices along M and N are exchanged)"
WIDE = 8  # lines of the other operand that share a crossing rule's answer


@dataclass(frozen=True)
class Candidate(Hypothesis):
    """Rules for both operands, how often each k is taken, and the factors of the product and of C."""

    a: Rule = SAME
    b: Rule = SAME
    count: Count | None = None
    alpha: float = 1.0
    beta: float = 1.0
    c: Rule = SAME  # which (row, column) of C is added
    stored: bool = False  # whole lines in the place of others are outputs stored elsewhere, with their C
    apart: bool = False  # say "K block missing, accumulator ignored" where "accumulator restarted" is the same

    @property
    def rank(self) -> int:
        """Smaller is simpler."""
        plain = (self.alpha != 1.0) + (self.beta != 1.0)
        return self.a.rank + self.b.rank + self.c.rank + (self.count.rank if self.count else 0) + plain

    @property
    def restarted(self) -> bool:
        """Whether only the end of K is left, and no C."""
        return self.count is not None and self.count.restarted and self.beta == 0.0 and not self.apart

    def names(self) -> list[tuple[str, str, str]]:
        """(mistake, detail, advice) of each part."""
        found = [
            (STORED, f"{what}: {rule.detail}", STORED_ADVICE)
            if self.stored and rule.lines_only
            else (rule.named(x), rule.detail, rule.advice.format(x=x))
            for x, rule, what in (("a", self.a, "rows"), ("b", self.b, "columns"), ("c", self.c, ""))
            if rule is not SAME
        ]
        alike = (self.a.mistake, self.a.detail) == (self.b.mistake, self.b.detail)
        if self.a is not SAME and alike and not self.stored:
            advice = self.a.advice.format(x="both operands") + (_FEWER if self.a.mistake == ADVANCE else "")
            found[:2] = [(found[0][0], found[0][1], advice), (found[1][0], "the same", "")]
        if self.a.crosses and self.b.crosses:
            found = [(mistake, detail + CROSSED, advice) for mistake, detail, advice in found]
        if self.restarted:
            first = int(np.flatnonzero(self.count.weights)[0]) if self.count else 0
            lost = f"K 0-{first - 1} and c are lost: the sums begin anew at K {first}" if first else "c is lost"
            found.append((RESTARTED, lost, _RESTART))
        elif self.count is not None:
            found.append((self.count.mistake, self.count.detail, self.count.advice))
        together = self.alpha == self.beta  # the whole result, c with it
        many = ", as if {0:g} had added it", ", and at whether several blocks, slices or runs add to the same output"
        if self.alpha != 1.0:
            said, more = (x.format(self.alpha) * (self.alpha in range(2, 65)) for x in many)
            what = "all of it" if together else "the product"
            found.append(
                ("result scaled", f"{what} times {self.alpha:.6g}{said}", f"look at alpha in the epilogue{more}")
            )
        if self.beta == 0.0 and not self.restarted:
            found.append(("accumulator ignored", "c is taken for zero", "scale_d is 0, or c is not loaded"))
        elif self.beta == 2.0 and not together:
            found.append(("accumulator added twice", "2 times c", _TWICE))
        elif self.beta not in (0.0, 1.0) and not together:
            more = f", and whether each of {self.beta:g} slices of split-K adds c" * (self.beta in range(3, 65))
            found.append(("c scaled", f"c times {self.beta:.6g}", f"look at beta in the epilogue{more}"))
        return found

    def values(self, reals: Reals, matrix: int) -> Numbers:
        """What it predicts of a matrix, (M, N), up to rounding."""
        (m, n), weights = reals.c.shape[1:], 1.0 if self.count is None else self.count.weights
        product = np.empty((m, n))
        high, wide = WIDE if self.b.crosses else m, WIDE if self.a.crosses else n
        for top, left in np.ndindex(-(-m // high), -(-n // wide)):
            rows = np.arange(top * high, min((top + 1) * high, m))
            columns = np.arange(left * wide, min((left + 1) * wide, n))
            a = _read(reals, "a", matrix, self.a, rows, columns[0])
            b = _read(reals, "b", matrix, self.b, columns, rows[0])
            product[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1] = (a * weights) @ b.T
        c = self.c_of(reals.c[matrix])
        found: Numbers = self.alpha * product + self.beta * c
        return found

    def c_of(self, c: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """The C (M, N) that is added to each output, of numbers or codes."""
        if self.c is SAME and not self.stored:
            return c
        i, j = (np.arange(size) for size in c.shape)
        i, j = i[:, None], j[None]
        row, column = self.c.where(i, j, np.zeros((1, 1), np.int64))
        if self.stored and self.a.lines_only:
            row = self.a.where(i, j * 0, j)[0]
        if self.stored and self.b.lines_only:
            column = self.b.where(j, i * 0, i)[0]
        return taken(c, *np.broadcast_arrays(row, column))

    def near(self, reals: Reals, matrix: int) -> Mask:
        """Which outputs of a matrix it gives, up to rounding: that of larger terms reaches further."""
        size: Any = 0.0
        other = (self.a, self.b) != (SAME, SAME)
        if other and (not (self.a.crosses or self.b.crosses) or "scale" in (self.a.part, self.b.part)):
            size = replace(self, alpha=abs(self.alpha), beta=abs(self.beta)).values(reals.absolute(), matrix)
        return reals.near(self.values(reals, matrix), matrix, size)


def of_operand(name: str, rule: Rule) -> Candidate:
    """A rule of operand a or b alone."""
    return Candidate(rule) if name == "a" else Candidate(b=rule)


def _read(reals: Reals, name: str, matrix: int, rule: Rule, own: Ints, other: int) -> Numbers:
    """Lines (own, K) as a rule reads them, for one line of the other operand."""
    lines = reals.lines(name)[matrix]
    if rule is SAME or rule.recode:
        changed = reals.recoded(name, rule.recode) if rule.recode and reals.recoded else None
        lines = lines if changed is None else changed[matrix]
        return lines if len(own) == len(lines) else lines[own]
    if not rule.part:
        return taken(lines, *rule.where(own[:, None], np.arange(lines.shape[1])[None], np.full((1, 1), other)))
    t, at = np.full(len(own), matrix), np.full(len(own), other)
    return reals.read(name, np.stack([t, own, at] if name == "a" else [t, at, own], axis=1), (rule,))[0]


def taken(lines: npt.NDArray[Any], row: Ints, k: Ints, outside: Any = 0) -> npt.NDArray[Any]:
    """Elements at (row, k); zeros, or what is given, outside."""
    inside = (row >= 0) & (row < lines.shape[0]) & (k >= 0) & (k < lines.shape[1])
    found = lines.reshape(-1).take(np.where(inside, row * lines.shape[1] + k, 0))
    return np.where(inside, found, np.asarray(outside, lines.dtype))
