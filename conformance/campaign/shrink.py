"""The smallest case of a mismatch: operands of one output set to zero, one after the other, as long as hardware and model differ."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from conformance.campaign.on_cpu import answer_of
from conformance.campaign.subject import Subject

Codes = npt.NDArray[Any]
Ask = Callable[[dict[str, Codes]], Codes]
"""Operands (samples, elements) to the hardware's D (samples, M, N)."""


@dataclass(frozen=True)
class Smallest:
    """One output whose hardware and model codes differ, and the few operands that it needs."""

    subject: Subject
    operands: dict[str, Codes]  # (1, elements)
    row: int
    column: int
    hardware: int
    model: int

    def lines(self) -> list[str]:
        """For readers."""
        n, kept = self.subject.shape[1], self.subject.work.kept
        a, b = self.operands["a"].reshape(-1, kept)[self.row], self.operands["b"].reshape(-1, n)[:, self.column]
        terms = [f"k = {k}: a {int(code):#x}" for k, code in enumerate(a) if code]
        terms += [f"k = {k}: b {int(code):#x}" for k, code in enumerate(b) if code]
        c = int(self.operands["c"].reshape(-1, n)[self.row, self.column])
        return [
            f"{self.subject.mnemonic}, output ({self.row}, {self.column}): hardware {self.hardware:#x}, model {self.model:#x}",
            f"c {c:#x}; {'; '.join(terms)}; all other operands are 0",
        ]


def smallest(subject: Subject, seed: int, place: int, ask: Ask) -> Smallest | None:
    """The smallest case of a mismatch that a campaign noted; None if it does not happen again."""
    sample, output = divmod(place, subject.outputs)
    row, column = divmod(output, subject.shape[1])
    operands = subject.operands(seed, sample, 1)
    if not _differs(subject, operands, row, column, ask):
        return None
    needed = _of_output(subject, row, column)
    start = {
        name: array if name == "groups" else np.where(needed[name], array, 0).astype(array.dtype)
        for name, array in operands.items()
    }
    if _differs(subject, start, row, column, ask):
        operands = start
    changed = True
    while changed:
        changed = False
        for name in ("c", "a", "b"):
            for element in np.flatnonzero(needed[name] & (operands[name][0] != 0)):
                trial = {**operands, name: operands[name].copy()}
                trial[name][0, element] = 0
                if _differs(subject, trial, row, column, ask):
                    operands, changed = trial, True
    hardware, model = (
        int(found[0, row, column]) for found in (ask(operands), answer_of(subject, subject.matrices_of(operands)))
    )
    return Smallest(subject, operands, row, column, hardware, model)


def _of_output(subject: Subject, row: int, column: int) -> dict[str, npt.NDArray[np.bool_]]:
    """Which elements of a, b and c an output is made of."""
    (m, n, k), kept = subject.shape, subject.work.kept
    found = {"a": np.zeros((m, kept), bool), "b": np.zeros((k, n), bool), "c": np.zeros((m, n), bool)}
    found["a"][row], found["b"][:, column], found["c"][row, column] = True, True, True
    return {name: mask.reshape(-1) for name, mask in found.items()}


def _differs(subject: Subject, operands: dict[str, Codes], row: int, column: int, ask: Ask) -> bool:
    got, want = ask(operands), answer_of(subject, subject.matrices_of(operands))
    return bool(got[0, row, column] != want[0, row, column])
