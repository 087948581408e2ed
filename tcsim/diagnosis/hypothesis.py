"""Hypotheses about a wrong kernel: each predicts outputs twice, as numbers up to rounding and as codes bit for bit."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tcsim.diagnosis.problem import Codes, Problem
from tcsim.diagnosis.reals import Mask, Numbers, Reals

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
    """What a kernel multiplies and adds, numbers or codes: lines (batch, lines, K) of A and B, and C (batch, M, N)."""

    a: Array
    b: Array
    c: Array


@dataclass(frozen=True, eq=False)
class WrongKernel(Hypothesis):
    """A kernel that reads other operands, or stores outputs elsewhere: one function of numbers and of codes alike."""

    said: tuple[tuple[str, str, str], ...]  # (mistake, detail, advice)
    read: Callable[[Operands], Operands] = lambda given: given  # what it multiplies and adds
    store: Callable[[Array, Array], Array] = lambda computed, right: (
        computed
    )  # what stands where: (batch, M, N) of both
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
        a, b, c = self.read(Operands(reals.a, reals.b, reals.c))
        return self.store(a @ b.swapaxes(1, 2) + c, reals.right)

    def near(self, reals: Reals, matrix: int) -> Mask:
        """Which outputs of a matrix it gives: rounding takes sums of what is read as far as their size."""
        return self.gives(reals)[matrix]

    def gives(self, reals: Reals) -> Mask:
        """Which outputs it gives, up to rounding: (batch, M, N)."""
        a, b, c = self.read(Operands(*(np.abs(x) for x in (reals.a, reals.b, reals.c))))
        size = self.store(a @ b.swapaxes(1, 2) + c, reals.reach / reals.unit if reals.unit else reals.reach)
        return reals.near(self.all_values(reals), ..., size)

    def codes(self, problem: Problem) -> Codes:
        """What it predicts of every output, bit for bit."""
        a, b, c = self.read(Operands(problem.a, problem.b.swapaxes(1, 2), problem.c))
        order = problem.order if a.shape == problem.a.shape else tuple(range(a.shape[2] // problem.step))
        changed = replace(problem.bare, a=a, b=b.swapaxes(1, 2), c=c, order=order)
        return problem.after_clamp(self.store(changed.outputs, problem.bare.outputs))
