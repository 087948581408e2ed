"""Hardware bits against model bits: where they differ, and what to print of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tcsim.numbers.formats import Format
from tcsim.trace import show_code, trace

Array = npt.NDArray[Any]
Place = tuple[int, ...]
"""The index of one result."""

LIMIT = 5
"""Mismatches of a case that are explained."""


@dataclass(frozen=True)
class Mismatch:
    """One result on which hardware and model disagree."""

    where: Mapping[str, object]  # named coordinates: {"warp": 0, "lane": 3, "register": 1}
    inputs: str  # what went into it
    hardware: str
    model: str
    trace: Callable[[], list[str]]  # how the model came to its bits
    element: str = ""  # what the coordinates hold: "row 3, column 4"

    def line(self) -> str:
        """Everything about it in one line.

        >>> Mismatch({"lane": 3, "register": 1}, "a=[0x1]", "0x2", "0x3", list, "row 0, column 7").line()
        'MISMATCH lane 3 register 1 (row 0, column 7): a=[0x1] hardware 0x2 model 0x3'
        """
        where = place_text(self.where, self.element)
        return f"MISMATCH {where}: {self.inputs} hardware {self.hardware} model {self.model}"


def place_text(where: Mapping[str, object], element: str = "") -> str:
    """Coordinates in words.

    >>> place_text({"lane": 3, "register": 1}, "row 0, column 7")
    'lane 3 register 1 (row 0, column 7)'
    """
    return " ".join(f"{name} {value}" for name, value in where.items()) + (f" ({element})" if element else "")


@dataclass(frozen=True)
class Comparison:
    """The outcome of comparing one case."""

    outputs: int  # results compared
    mismatches: int
    first: tuple[Mismatch, ...]  # the first few


def compare(
    hardware: Array, model: Array, explain: Callable[[Place], Mismatch], counted: Array | None = None
) -> Comparison:
    """Compare two results bit for bit; of `counted`, where given, only what is true.

    Raises ValueError if the shapes differ.
    """
    check_shapes(hardware, model)
    different, outputs = hardware != model, hardware.size
    if counted is not None:
        different, outputs = different & counted, int(counted.sum())
    places = np.argwhere(different)
    return Comparison(outputs, len(places), tuple(explain(tuple(place)) for place in places[:LIMIT].tolist()))


def check_shapes(hardware: Array, model: Array) -> None:
    """Raises ValueError if the shapes of two results differ."""
    if hardware.shape != model.shape:
        raise ValueError(f"the hardware's result has shape {hardware.shape}, the model's {model.shape}")


# --- what is moved


@dataclass(frozen=True)
class Expected:
    """What should be in one place of a result."""

    where: Mapping[str, object]  # as of a mismatch
    source: str  # what comes there, and from where
    steps: tuple[str, ...] = ()  # how the model came to it
    element: str = ""  # as of a mismatch


def compare_moved(
    instruction: Any,
    hardware: Array,
    model: Array,
    explain: Callable[[Place], Expected],
    digits: str = "#010x",
    counted: Array | None = None,
) -> Comparison:
    """Compare words, bytes or fields that were moved, computed on as integers or counted.

    Raises ValueError if the shapes differ.
    """

    def mismatch(place: Place) -> Mismatch:
        expected = explain(place)
        got, want = (format(int(array[place]), digits) for array in (hardware, model))
        steps = [f"{instruction.mnemonic} on {instruction.arch.name}", *expected.steps]
        return Mismatch(expected.where, f"{expected.source},", got, want, lambda: steps, expected.element)

    return compare(hardware, model, mismatch, counted)


def compare_bytes(
    instruction: Any, hardware: Array, model: Array, explain: Callable[[Place], Expected], counted: Array | None = None
) -> Comparison:
    """Compare words (..., n) as bytes (..., 4 * n).

    Raises ValueError if the shapes differ.
    """
    got, want = (np.ascontiguousarray(array, "<u4").view(np.uint8) for array in (hardware, model))
    return compare_moved(instruction, got, want, explain, "#04x", counted)


# --- what is multiplied

Codes = Mapping[str, Array]
"""What went into one result of a product: the codes of a, b, and perhaps of scales, along K, and the addend c."""
Formats = Mapping[str, Format]


def operands_text(codes: Codes, formats: Formats) -> str:
    """The operands of one result: "a=[0x3c00 0x0000] b=[0x3c00 0x4000] c=0x00000000"."""
    return " ".join(f"{name}={_codes_text(np.asarray(own), formats[name])}" for name, own in codes.items())


def _codes_text(codes: Array, format: Format) -> str:
    if codes.ndim == 0:
        return show_code(codes[()], format)
    if format.kind == "bit":  # K bits as one number, bit k at position k
        return hex(int("".join(str(bit) for bit in codes[::-1]), 2))
    return "[" + " ".join(show_code(code, format) for code in codes) + "]"


def trace_of(instruction: Any, codes: Codes, formats: Formats) -> list[str]:
    """How the model came to one result of a product."""
    return trace(instruction, **{**codes, "c": np.asarray(codes["c"], formats["c"].dtype).reshape(1)})


def compare_matrices(
    instruction: Any, terms: Callable[[int, int, int, int], Codes], formats: Formats, hardware: Array, model: Array
) -> Comparison:
    """Compare the result registers of a multiply; `terms` says what went into (warp, matrix, row, column).

    Raises ValueError if the shapes differ.
    """
    check_shapes(hardware, model)
    layout, shape = instruction.operands["d"].layout, (-1, instruction.matrices, *instruction.operands["d"].shape)
    got, want = (instruction.matrix("d", registers).reshape(shape) for registers in (hardware, model))

    def mismatch(place: Place) -> Mismatch:
        warp, matrix, row, column = place
        lane, register, slot = layout.where(row, column, matrix)
        where = {"warp": warp, "lane": lane, "register": register}
        where |= {"slot": slot} if layout.slots > 1 else {}
        where |= {"matrix": matrix} if instruction.matrices > 1 else {}
        codes = terms(warp, matrix, row, column)
        text, element = operands_text(codes, formats), f"row {row}, column {column}"
        bits = [show_code(array[place], formats["d"]) for array in (got, want)]
        return Mismatch(where, text, bits[0], bits[1], lambda: trace_of(instruction, codes, formats), element)

    return compare(got, want, mismatch)
