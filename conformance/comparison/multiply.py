"""Hardware bits against model bits, and what to print when they differ."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from conformance.slice import Comparison
from tcsim.isa.mma.multiply import MatrixMultiply
from tcsim.isa.wgmma.multiply import WarpgroupMultiply
from tcsim.trace import show_code, trace

Registers = npt.NDArray[np.uint32]
Multiply = MatrixMultiply | WarpgroupMultiply


@dataclass(frozen=True)
class Mismatch:
    """One result element on which hardware and model disagree."""

    warp: int
    matrix: int  # which of a warp's matrices; 0 but for m8n8k4
    lane: int
    register: int
    slot: int
    row: int
    column: int
    a: npt.NDArray[Any]  # the K codes of the row of A
    b: npt.NDArray[Any]  # the K codes of the column of B
    c: int
    hardware: int
    model: int

    def line(self, instruction: Multiply) -> str:
        """Everything about it in one line."""
        formats = instruction.formats
        a, b = (_codes(codes, formats[name]) for name, codes in (("a", self.a), ("b", self.b)))
        where = f"warp {self.warp} lane {self.lane} register {self.register}"
        where += f" slot {self.slot}" if instruction.operands["d"].layout.slots > 1 else ""
        where += f" matrix {self.matrix}" if instruction.matrices > 1 else ""
        return (
            f"MISMATCH {where} (row {self.row}, column {self.column}): a={a} b={b} c={show_code(self.c, formats['c'])} "
            f"hardware {show_code(self.hardware, formats['d'])} model {show_code(self.model, formats['d'])}"
        )

    def trace(self, instruction: Multiply) -> list[str]:
        """How the model came to its bits."""
        c = np.array([self.c], instruction.operands["c"].format.dtype)
        return trace(instruction, self.a, self.b, c)


def _codes(codes: npt.NDArray[Any], format: Any) -> str:
    if format.kind == "bit":  # K bits as one number, bit k at position k
        return hex(int("".join(str(bit) for bit in codes[::-1]), 2))
    return "[" + " ".join(show_code(code, format) for code in codes) + "]"


Terms = Callable[[int, int, int, int], tuple[npt.NDArray[Any], npt.NDArray[Any], Any]]
"""(warp, matrix, row, column) -> the codes of a and b that are multiplied for one result, and its addend."""


def compare(
    instruction: MatrixMultiply, inputs: dict[str, Registers], hardware: Registers, model: Registers, limit: int = 5
) -> Comparison:
    """Compare the result registers of a dense multiply bit for bit.

    Raises ValueError if the shapes differ.
    """
    codes = {
        name: instruction.matrix(name, registers).reshape(-1, instruction.matrices, *instruction.operands[name].shape)
        for name, registers in inputs.items()
    }

    def terms(warp: int, matrix: int, row: int, column: int) -> tuple[npt.NDArray[Any], npt.NDArray[Any], Any]:
        a, b, c = (codes[name][warp, matrix] for name in "abc")
        return a[row], b[:, column], c[row, column]

    return compare_matrices(instruction, terms, hardware, model, limit)


def compare_matrices(
    instruction: Multiply, terms: Terms, hardware: Registers, model: Registers, limit: int = 5
) -> Comparison:
    """Compare result registers bit for bit; `terms` says what went into each element.

    Raises ValueError if the shapes differ.
    """
    if hardware.shape != model.shape:
        raise ValueError(f"hardware registers have shape {hardware.shape}, the model's {model.shape}")
    d = instruction.operands["d"]
    shape = (-1, instruction.matrices, *d.shape)
    got, want = (instruction.matrix("d", registers).reshape(shape) for registers in (hardware, model))
    different = np.argwhere(got != want)
    first = []
    for place in different[:limit]:
        warp, matrix, row, column = (int(index) for index in place)
        lane, register, slot = d.layout.where(row, column, matrix)
        a, b, c = terms(warp, matrix, row, column)
        bits = int(got[warp, matrix, row, column]), int(want[warp, matrix, row, column])
        first.append(Mismatch(warp, matrix, lane, register, slot, row, column, a, b, int(c), *bits))
    return Comparison(got.size, len(different), tuple(first))
