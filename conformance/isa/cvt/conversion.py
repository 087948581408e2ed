"""Exercise of conversions: registers in, registers out, one thread per sample."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from conformance.isa.cvt import inputs as conversion_inputs
from conformance.isa.cvt.mutants import WRONG_MODELS, words
from conformance.slice import Array, Comparison, Inputs, WrongModel
from tcsim.isa.cvt.semantics import Convert
from tcsim.isa.cvt.trace import trace_conversion


@dataclass(frozen=True)
class Mismatch:
    """One result register on which hardware and model disagree."""

    sample: int
    operands: dict[str, int]  # register by name
    hardware: int
    model: int

    def line(self, instruction: Convert) -> str:
        """Everything about it in one line."""
        given = " ".join(f"{name}={_hex(value, instruction, name)}" for name, value in self.operands.items())
        d = instruction.registers["d"]
        width = np.uint64((1 << d.field_bits) - 1 if d.field_bits < 64 else (1 << 64) - 1)
        wrong = [
            place
            for place in range(d.elements)
            if (self.hardware ^ self.model) >> (d.field_bits * (d.elements - 1 - place)) & int(width)
        ]
        where = f" element {' '.join(map(str, wrong))}" if d.elements > 1 else ""
        return (
            f"MISMATCH sample {self.sample}{where}: {given} hardware {_hex(self.hardware, instruction, 'd')} "
            f"model {_hex(self.model, instruction, 'd')}"
        )

    def trace(self, instruction: Convert) -> list[str]:
        """How the model came to its bits."""
        return trace_conversion(instruction, self.operands)


def _hex(value: int, instruction: Convert, name: str) -> str:
    return f"0x{value:0{2 * instruction.registers[name].dtype.itemsize}x}"


class ConversionExercise:
    """cvt: operands by name in, the result register of every sample out."""

    wrong_models: tuple[WrongModel, ...] = WRONG_MODELS

    def classes(self, instruction: Convert) -> list[str]:
        """Exhaustive where the source has at most 16 bits, edges and random bits elsewhere."""
        return conversion_inputs.classes(instruction)

    def samples(self, instruction: Convert, name: str) -> int:
        """All codes; 8,192 edges; 4,096 random ones."""
        return conversion_inputs.samples(instruction, name)

    def inputs(self, instruction: Convert, name: str, seed: int, samples: int) -> Inputs:
        """Registers (samples,) of every operand."""
        return conversion_inputs.inputs(instruction, name, seed, samples)

    def model(self, instruction: Convert, inputs: Inputs) -> npt.NDArray[Any]:
        """Registers (samples,) of d; of 64 bits two words each, low first, (samples, 2)."""
        return words(instruction.execute(**inputs))

    def compare(self, instruction: Convert, inputs: Inputs, hardware: Array, model: Array) -> Comparison:
        """Element by element of every result register.

        Raises ValueError if the shapes differ.
        """
        if hardware.shape != model.shape:
            raise ValueError(f"hardware results have shape {hardware.shape}, the model's {model.shape}")
        d = instruction.registers["d"]
        got, want = (_joined(array, d.dtype) for array in (hardware, model))
        wrong_elements = int((d.unpack(got) != d.unpack(want)).sum())
        different = np.flatnonzero(got != want)
        first = [
            Mismatch(int(at), {name: int(array[at]) for name, array in inputs.items()}, int(got[at]), int(want[at]))
            for at in different[:5]
        ]
        return Comparison(got.size * d.elements, max(wrong_elements, len(different)), tuple(first))


def _joined(array: Array, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    if dtype.itemsize < 8:
        return array.astype(dtype)
    return np.ascontiguousarray(array, np.uint32).view(np.uint64).reshape(array.shape[:-1])


CONVERSION = ConversionExercise()

EXERCISES = {"cvt": CONVERSION}
