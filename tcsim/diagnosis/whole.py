"""Hypotheses of every output at once, which are no rules of one operand: they predict numbers and codes by themselves."""

from __future__ import annotations

from abc import ABC, abstractmethod

from tcsim.diagnosis.problem import Codes, Problem
from tcsim.diagnosis.reals import Mask, Numbers, Reals


class Whole(ABC):
    """One hypothesis; a subclass says what it predicts."""

    rank = 3  # smaller is simpler

    @abstractmethod
    def names(self) -> list[tuple[str, str, str]]:
        """(mistake, detail, advice)."""

    @abstractmethod
    def values(self, reals: Reals, matrix: int) -> Numbers:
        """What it predicts of a matrix, (M, N), up to rounding."""

    def near(self, reals: Reals, matrix: int) -> Mask:
        """Which outputs of a matrix it gives, up to rounding."""
        return reals.near(self.values(reals, matrix), matrix)

    @abstractmethod
    def codes(self, problem: Problem) -> Codes | None:
        """What it predicts of every output, bit for bit; None if that is not known."""
