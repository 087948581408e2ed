"""A register field or a byte of memory that a move left wrong, and what to print of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from conformance.slice import Array

LIMIT = 5
"""Mismatches that are explained."""


@dataclass(frozen=True)
class MoveMismatch:
    """One field of a register, or one byte of memory, on which hardware and model disagree."""

    where: str  # sample, and lane, register, slot (and matrix, row, column), or address
    source: str  # what should have come there
    hardware: str
    model: str
    steps: tuple[str, ...]  # how the model came to its bits

    def line(self, instruction: Any) -> str:
        """Everything about it in one line."""
        return f"MISMATCH {self.where}: {self.source}, hardware {self.hardware} model {self.model}"

    def trace(self, instruction: Any) -> list[str]:
        """How the model came to its bits."""
        return [f"{instruction.mnemonic} on {instruction.arch.name}", *self.steps]


def require_same_shape(hardware: Array, model: Array) -> None:
    """Raises ValueError if the results cannot be compared."""
    if hardware.shape != model.shape:
        raise ValueError(f"the hardware's result has shape {hardware.shape}, the model's {model.shape}")
