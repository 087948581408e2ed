"""Memory taken for another's: an operand read from the other's buffer, and outputs that are an operand's bytes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from tcsim.diagnosis.problem import Codes, Problem
from tcsim.diagnosis.reals import Mask, Numbers, Reals
from tcsim.diagnosis.where import where_text
from tcsim.diagnosis.whole import Whole
from tcsim.numbers.codec import decode, encode
from tcsim.numbers.formats import FORMATS, Format

_USUAL = 0.25  # of the right outputs
_DIFFERENT = 16  # codes that are an operand's bytes: fewer may be so by chance
_ORDERS = {True: "lines of K one after another", False: "lines along M or N one after another"}


@dataclass(frozen=True)
class OtherBuffer(Whole):
    """Operand `name` is read from the other's buffer, with its own pitch."""

    name: str
    k_first: bool  # how the operand's addresses go: True if K is contiguous
    other_k_first: bool  # how the other operand lies in memory
    lines: int  # that were given, of this operand and of the other
    others: int
    depth: int

    rank = 2

    def names(self) -> list[tuple[str, str, str]]:
        """(mistake, detail, advice)."""
        theirs = "b" if self.name == "a" else "a"
        said = (
            f"the memory of {theirs} ({_ORDERS[self.other_k_first]}) is read with the addresses of {self.name} ({_ORDERS[self.k_first]}),"
            " and zeros behind its end"
        )
        advice = f"look at the base pointer, the tensor map or the descriptor that {self.name} is read through"
        return [(f"{self.name} read from the buffer of {theirs}", said, advice)]

    def read(self, others: npt.NDArray[Any], shape: tuple[int, ...]) -> npt.NDArray[Any]:
        """The lines (lines, K) that are read in place of the operand's."""
        given = others[: self.others, : self.depth]
        memory = (given if self.other_k_first else given.T).reshape(-1)
        line, k = np.arange(self.lines)[:, None], np.arange(self.depth)[None]
        place = line * self.depth + k if self.k_first else k * self.lines + line
        out = np.zeros(shape, others.dtype)
        inside = place < len(memory)
        out[: self.lines, : self.depth] = np.where(inside, memory[np.where(inside, place, 0)], 0)
        return out

    def values(self, reals: Reals, matrix: int) -> Numbers:
        """What it predicts of a matrix, (M, N), up to rounding."""
        a, b = reals.a[matrix], reals.b[matrix]
        a, b = (self.read(b, a.shape), b) if self.name == "a" else (a, self.read(a, b.shape))
        found: Numbers = a @ b.T + reals.c[matrix]
        return found

    def codes(self, problem: Problem) -> Codes:
        """What it predicts of every output, bit for bit."""
        a, b = problem.a, problem.b.swapaxes(1, 2)
        bare = replace(problem, finish=None)
        if self.name == "a":
            changed = replace(bare, a=np.stack([self.read(x, a.shape[1:]) for x in b]))
        else:
            changed = replace(bare, b=np.stack([self.read(x, b.shape[1:]) for x in a]).swapaxes(1, 2))
        return np.stack([changed.predict(part) for part in changed.parts()])


def other_buffers(problem: Problem, reals: Reals, open_: Mask) -> Iterator[OtherBuffer]:
    """Every order of both operands in memory, where the types are the same."""
    formats = problem.machine.formats
    if problem.positions is not None or problem.scales is not None or formats["a"].name != formats["b"].name:
        return
    size = problem.size or problem.observed.shape[1:]
    depth = problem.depth or reals.a.shape[2]
    for name, lines, others in (("b", size[1], size[0]), ("a", size[0], size[1])):
        for k_first in (True, False):
            for other_k_first in (True, False):
                yield OtherBuffer(name, k_first, other_k_first, lines, others, depth)


@dataclass(frozen=True, eq=False)
class Bytes(Whole):
    """Outputs that hold the bytes of an operand, not sums."""

    name: str
    where: Mask
    observed: Numbers  # (batch, M, N), as numbers and as codes
    words: Codes

    rank = 2

    def names(self) -> list[tuple[str, str, str]]:
        """(mistake, detail, advice)."""
        said = f"{where_text(self.where)} hold raw codes of {self.name}, neighbours in memory read as one number: bits of an operand, no sums"
        advice = f"the copies of {self.name} land in shared memory where the epilogue has staged the output: wait for them, or give it memory of its own"
        return [(f"output overwritten by {self.name} in shared memory", said, advice)]

    def values(self, reals: Reals, matrix: int) -> Numbers:
        """What it predicts of a matrix, (M, N), up to rounding."""
        return np.where(self.where[matrix], self.observed[matrix], reals.right[matrix])

    def near(self, reals: Reals, matrix: int) -> Mask:
        """Which outputs of a matrix it gives: the bytes are as they are."""
        found: Mask = self.where[matrix] | super().near(reals, matrix)
        return found

    def codes(self, problem: Problem) -> Codes:
        """What it predicts of every output, bit for bit."""
        changed = replace(problem, finish=None)
        right = np.stack([changed.predict(part) for part in changed.parts()])
        return np.where(self.where, self.words, right)


def bytes_of_operands(problem: Problem, reals: Reals, open_: Mask) -> Iterator[Bytes]:
    """Wrong outputs that all are an operand's bytes as they lie in memory, where the right ones would not be."""
    formats = problem.machine.formats
    if not open_.any() or formats["d"].kind != "float" or formats["d"].bits != 32:
        return
    seen = problem.observed[open_]
    right = np.stack([problem.predict(part) for part in problem.parts()])
    for name, codes in (("a", problem.a), ("b", problem.b.swapaxes(1, 2))):
        for lines in (codes, codes.swapaxes(1, 2)):
            words = _words(np.ascontiguousarray(lines), formats[name], problem.output, formats["d"])
            if words is None or len(words) > 1 << 20:
                continue
            held = np.isin(seen, words)
            if np.isin(right[open_], words).mean() > _USUAL:
                continue  # the other operand copies this one: its rows or columns are single ones
            if np.isnan(decode(words, formats["d"])).any():
                held |= np.isnan(decode(seen, formats["d"]))  # of any payload
            by_chance = len(words) / 2.0 ** (FORMATS[problem.output].bits if problem.output else 32)
            if len(seen) >= 8 and held.all() and by_chance < 0.2 and len(np.unique(seen)) >= _DIFFERENT:
                lines_wrong = open_.any(axis=2, keepdims=True) & open_.any(axis=1, keepdims=True)
                where = open_ | lines_wrong & np.isin(problem.observed, words) & (problem.observed != right)
                yield Bytes(name, where, reals.observed, problem.observed)
                break


def _words(codes: Codes, format: Format, narrow: str | None, d: Format) -> Codes | None:
    """Neighbouring codes as the numbers that a reader of 32-bit floats would find, as codes of d after a narrower format."""
    if format.bits not in (8, 16, 32) and format.container_bits != 32:
        return None
    flat = codes.reshape(len(codes), -1)
    flat = flat[:, : flat.shape[1] // 4 * 4]
    words = np.unique(np.ascontiguousarray(flat).view(np.uint32).reshape(-1))
    if narrow is None:
        return words
    with np.errstate(all="ignore"):
        return np.unique(encode(decode(encode(decode(words, d), narrow), narrow), d))
