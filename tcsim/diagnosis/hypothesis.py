"""Hypotheses about a wrong kernel: each predicts outputs twice, as numbers up to rounding and as codes bit for bit."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tcsim.diagnosis.problem import Codes, Problem
from tcsim.diagnosis.reals import Mask, Numbers, Reals, scaled
from tcsim.numbers.codec import decode, encode

Array = npt.NDArray[Any]


class Hypothesis(ABC):
    """One hypothesis; a subclass says what it predicts."""

    @property
    def rank(self) -> int:
        """Smaller is simpler."""
        return 3

    @abstractmethod
    def names(self) -> list[tuple[str, str, str]]:
        """(mistake, detail, advice)."""

    @abstractmethod
    def values(self, reals: Reals, matrix: int) -> Numbers:
        """What it predicts of a matrix, (M, N), up to rounding."""

    def near(self, reals: Reals, matrix: int) -> Mask:
        """Which outputs of a matrix it gives, up to rounding."""
        return reals.near(self.values(reals, matrix), matrix)

    def gives(self, reals: Reals) -> Mask:
        """Which outputs it gives, up to rounding: (batch, M, N)."""
        return np.stack([self.near(reals, t) for t in range(len(reals.a))])

    def everywhere(self, reals: Reals) -> bool:
        """Whether it gives all outputs that can be reckoned with."""
        return bool(self.gives(reals)[reals.finite].all())

    def all_values(self, reals: Reals) -> Numbers:
        """What it predicts of all outputs, up to rounding: (batch, M, N)."""
        return np.stack([self.values(reals, t) for t in range(len(reals.a))])

    def codes(self, problem: Problem) -> Codes | None:
        """What it predicts of every output, bit for bit; None if that is not known."""
        return None


class Operands(NamedTuple):
    """The numbers that a kernel multiplies and adds: lines (batch, lines, K) of A and B, and C (batch, M, N)."""

    a: Numbers
    b: Numbers
    c: Numbers
    scales: tuple[Numbers, Numbers] | None = None  # (batch, lines, blocks) of A and of B, which belong to a and b

    def result(self) -> Numbers:
        """a b + c."""
        if self.scales is None or all(np.isfinite(by).all() for by in self.scales):
            a, b = scaled((self.a, self.b), self.scales)
            return a @ b.swapaxes(1, 2) + self.c
        one, other = (x.reshape(*by.shape, -1) for x, by in zip(self[:2], self.scales, strict=True))
        with np.errstate(invalid="ignore"):  # what is infinite is the factor of a block's sum, not of its terms
            sums = np.einsum("tibk,tjbk->tijb", one, other) * self.scales[0][:, :, None] * self.scales[1][:, None]
            found: Numbers = sums.sum(axis=3) + self.c
        return found

    def reading(self, name: str, lines: Numbers) -> Operands:
        """With other lines of A or of B."""
        return self._replace(a=lines) if name == "a" else self._replace(b=lines)

    def size(self) -> Numbers:
        """The sums of absolute products."""
        scales = self.scales and (np.abs(self.scales[0]), np.abs(self.scales[1]))
        return Operands(np.abs(self.a), np.abs(self.b), np.abs(self.c), scales).result()


Read = Callable[[Operands], Operands]


def _as_given(given: Operands) -> Operands:
    return given


def _as_computed(computed: Array, right: Array) -> Array:
    return computed


@dataclass(frozen=True, eq=False)
class WrongKernel(Hypothesis):
    """A kernel that reads other operands, or stores outputs elsewhere."""

    said: tuple[tuple[str, str, str], ...]  # (mistake, detail, advice)
    read: Read = _as_given  # what it multiplies and adds
    store: Callable[[Array, Array], Array] = (
        _as_computed  # numbers or codes of what was computed, and of the right outputs -> what stands where
    )
    rank: int = 3
    again: bool = False  # products of the right sum are added once more: other mistakes do the same

    def names(self) -> list[tuple[str, str, str]]:
        """(mistake, detail, advice)."""
        return [*self.said]

    def values(self, reals: Reals, matrix: int) -> Numbers:
        """What it predicts of a matrix, (M, N), up to rounding."""
        return self.all_values(reals)[matrix]

    def all_values(self, reals: Reals) -> Numbers:
        """What it predicts of all outputs, up to rounding: (batch, M, N)."""
        return self.store(self._read(reals).result(), reals.right)

    def near(self, reals: Reals, matrix: int) -> Mask:
        """Which outputs of a matrix it gives: rounding takes sums of what is read as far as their size."""
        return self.gives(reals)[matrix]

    @np.errstate(over="ignore", invalid="ignore")  # of a hypothesis, not of the operands
    def gives(self, reals: Reals) -> Mask:
        """Which outputs it gives, up to rounding: (batch, M, N)."""
        read = self._read(reals)
        size = self.store(read.size(), reals.reach / reals.unit if reals.unit else reals.reach)
        return reals.near(self.store(read.result(), reals.right), ..., size)

    def _read(self, reals: Reals) -> Operands:
        a, b = reals.bare or (reals.a, reals.b)
        return self.read(Operands(a, b, reals.c, reals.factors))

    def codes(self, problem: Problem) -> Codes | None:
        """What it predicts of every output, bit for bit; None if a format does not have what it reads."""
        bare, formats = problem.bare, problem.machine.formats
        own: list[Codes] = [bare.a, bare.b.swapaxes(1, 2), bare.c]
        own += [] if bare.scales is None else [bare.scales[0], bare.scales[1].swapaxes(1, 2)]
        kinds = [formats[name] for name in ("a", "b", "c", "scale", "scale")[: len(own)]]
        given = [decode(x, format).astype(np.float64) for x, format in zip(own, kinds, strict=True)]
        scaled = (given[3], given[4]) if bare.scales is not None else None
        read = self.read(Operands(given[0], given[1], given[2], scaled))
        numbers = [*read[:3], *(read.scales or ())]
        if read.scales and not formats["scale"].zero:  # then elements are zeros instead
            for place, by in enumerate(read.scales):
                each = np.repeat(by == 0, numbers[place].shape[2] // by.shape[2], axis=2)
                numbers[place] = np.where(each, 0.0, numbers[place]) if each.any() else numbers[place]
                numbers[3 + place] = np.where(by == 0, 1.0, by) if each.any() else by
        codes = []
        for x, before, code, format in zip(numbers, given, own, kinds, strict=True):
            coded = code if x is before else encode(x, format, saturate=format.kind != "float")
            if x is not before and not np.array_equal(decode(coded, format).astype(np.float64), x, equal_nan=True):
                return None
            codes.append(coded)
        a, b, c, *scales = codes
        steps = problem.order if a.shape[2] == problem.a.shape[2] else tuple(range(a.shape[2] // problem.step))
        changed = replace(bare, a=a, b=b.swapaxes(1, 2), c=c, order=steps)
        if scales:
            changed = replace(changed, scales=(scales[0], scales[1].swapaxes(1, 2)))
        if c.shape != problem.c.shape:
            changed = replace(changed, observed=c, size=None, known=None)
        return problem.after_clamp(self.store(changed.outputs, bare.outputs))
