"""Tensor Memory after a tcgen05.mma: the model's, hardware against model, cell by cell, and what to print when they differ."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from conformance.slice import Array, Comparison, Inputs
from tcsim.isa.tcgen05.described import DescribedMultiply
from tcsim.isa.tcgen05.multiply import TensorMemoryMultiply
from tcsim.memory.tensor_memory import TensorMemory
from tcsim.memory.tmem_matrix import TmemLayout
from tcsim.numbers.formats import FORMATS, Format
from tcsim.trace import show_code, trace


@dataclass(frozen=True)
class CellMismatch:
    """One cell of Tensor Memory on which hardware and model disagree."""

    sample: int
    cta: int
    lane: int
    column: int
    row: int  # of D; -1 if the cell is not of D
    place: int  # column of D
    format: Format
    before: int
    hardware: int
    model: int
    descriptor: tuple[str, ...]  # the instruction descriptor, line by line
    steps: tuple[str, ...]  # how the model came to an element of D

    def line(self, instruction: Any) -> str:
        """Everything about it in one line."""
        where = f"sample {self.sample} CTA {self.cta} lane {self.lane} column {self.column}"
        element = f" (row {self.row}, column {self.place} of D)" if self.row >= 0 else " (outside D)"
        before, got, want = (show_code(code, self.format) for code in (self.before, self.hardware, self.model))
        return f"MISMATCH {where}{element}: before {before} hardware {got} model {want}"

    def trace(self, instruction: Any) -> list[str]:
        """The instruction descriptor of the sample, and how the model came to the element."""
        return ["instruction descriptor:", *(f"  {line}" for line in self.descriptor), *self.steps]


def executed(
    instruction: TensorMemoryMultiply,
    inputs: Inputs,
    change: Callable[[dict[str, Any]], dict[str, Any]] = lambda operands: operands,
) -> npt.NDArray[np.uint32]:
    """Tensor Memory after each sample; `change` may alter what `execute` is given."""
    out = np.empty_like(inputs["tmem"])
    for sample in range(len(out)):
        out[sample] = instruction.execute(**change(operands_of(instruction, inputs, sample))).words
    return out


def operands_of(instruction: TensorMemoryMultiply, inputs: Inputs, sample: int) -> dict[str, Any]:
    """The arguments of `execute` for one sample."""
    words = inputs["tmem"][sample]
    tmem = TensorMemory.allocated(ctas=instruction.row.cta_group)
    tmem.owned[:, words.shape[-1] :] = False
    tmem.words, tmem.written = words.copy(), np.ones(words.shape, np.bool_)
    tmem.owned = tmem.owned[:, : words.shape[-1]]
    image = inputs["image"][sample]
    arguments: dict[str, Any] = {"tmem": tmem, "smem": image if instruction.row.cta_group == 2 else image[0]}
    for name in ("d", "idesc", "scale_a", "scale_b", "metadata", "lookup"):
        if name in inputs:
            arguments[name] = int(inputs[name][sample])
    arguments["a"] = inputs["a"][sample] if inputs["a"].dtype == np.uint64 else int(inputs["a"][sample])
    arguments["b"] = inputs["b"][sample]
    arguments["enable_input_d"] = bool(inputs["enable_d"][sample])
    if "lanes" in inputs:
        arguments["disable_output_lane"] = inputs["lanes"][sample]
    if "mask" in inputs:
        arguments["zero_column_mask"] = int(inputs["mask"][sample])
    if "scale_d" in inputs:
        arguments["scale_input_d"] = int(inputs["scale_d"][sample])
    return arguments


def compare_memories(
    instruction: TensorMemoryMultiply, inputs: Inputs, hardware: Array, model: Array, limit: int = 5
) -> Comparison:
    """Compare Tensor Memory (samples, ctas, 128, columns) bit for bit, but for the high half of the words of an f16 D.

    PTX ISA, Packing format for matrix D: a 16-bit element is in the low half of its word; of the high half it says nothing.

    Raises ValueError if the shapes differ.
    """
    if hardware.shape != model.shape:
        raise ValueError(f"hardware memory has shape {hardware.shape}, the model's {model.shape}")
    different = hardware != model
    first: list[CellMismatch] = []
    mismatches = 0
    for sample in range(len(hardware)):
        idesc, address = int(inputs["idesc"][sample]), int(inputs["d"][sample])
        layout, format = instruction.layout("d", idesc), instruction.formats(idesc)["d"]
        own, at = _elements(layout, address, hardware.shape[1:])
        if format.bits == 16:
            different[sample] &= (own < 0) | ((hardware[sample] ^ model[sample]) & 0xFFFF != 0)
        wrong = np.argwhere(different[sample])
        mismatches += len(wrong)
        for cta, lane, column in wrong[: max(0, limit - len(first))]:
            element = int(own[cta, lane, column])
            row, place = divmod(element, layout.columns) if element >= 0 else (-1, -1)
            mask = (1 << format.container_bits) - 1 if element >= 0 else 0xFFFFFFFF
            cell = (sample, cta, lane, column)
            before, got, want = (int(memory[cell]) & mask for memory in (inputs["tmem"], hardware, model))
            shown = format if element >= 0 else FORMATS["f32"]  # with the digits of a word
            lines = tuple(instruction.descriptor(idesc).describe())
            steps = _steps(instruction, row, place, operands_of(instruction, inputs, sample)) if row >= 0 else ()
            found = (int(cta), int(lane), int(column))
            first.append(CellMismatch(sample, *found, row, place, shown, before, got, want, lines, steps))
    return Comparison(different.size, mismatches, tuple(first))


def _steps(instruction: TensorMemoryMultiply, row: int, column: int, operands: dict[str, Any]) -> tuple[str, ...]:
    """The trace of one element of D."""
    codes = instruction.operands_of(row, column, **operands)
    bound = DescribedMultiply(
        instruction, instruction.descriptor(operands["idesc"]), operands.get("scale_input_d") or 0
    )
    return tuple(trace(bound, **codes))


def _elements(
    layout: TmemLayout, address: int, shape: tuple[int, ...]
) -> tuple[npt.NDArray[np.int64], tuple[int, int]]:
    """row * N + column of the element of D that each cell (ctas, 128, columns) holds, or -1; and where D begins."""
    base = address >> 16, address & 0xFFFF
    own = np.full(shape, -1, np.int64)
    cta, lane, column, _ = (x[0, 0] for x in layout.cells)
    own[cta, lane + base[0], column + base[1]] = np.arange(layout.rows * layout.columns).reshape(cta.shape)
    return own, base
