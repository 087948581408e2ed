"""cvt under test: operands by name in, the result register of every sample, a thread, out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from conformance.comparison import Array, Comparison, Mismatch, Place, check_shapes, compare
from conformance.isa.cvt import inputs as conversion_inputs
from conformance.isa.cvt.mutants import MUTANTS, words
from conformance.testbench import Inputs, Testbench
from tcsim.isa.cvt.trace import trace_conversion


class ElementwiseTestbench(Testbench):
    """Instructions in which every thread works on registers of its own: conversions and special functions."""

    def trace(self, instruction: Any, operands: Mapping[str, int]) -> list[str]:
        """How the model came to one result."""
        raise NotImplementedError

    def model(self, instruction: Any, inputs: Inputs) -> npt.NDArray[Any]:
        """Registers (samples,) of d; of 64 bits two words each, low first, (samples, 2)."""
        return words(instruction.execute(**inputs))

    def compare(self, instruction: Any, inputs: Inputs, hardware: Array, model: Array) -> Comparison:
        """Element by element of every result register."""
        check_shapes(hardware, model)
        d = instruction.registers["d"]
        got, want = (_joined(array, d.dtype) for array in (hardware, model))

        def mismatch(place: Place) -> Mismatch:
            operands = {name: int(array[place]) for name, array in inputs.items()}
            given = " ".join(f"{name}={_hex(value, instruction, name)}" for name, value in operands.items())
            wrong = np.flatnonzero(d.unpack(got[place]) != d.unpack(want[place]))
            where = {"sample": place[0]} | ({"element": " ".join(map(str, wrong))} if d.elements > 1 else {})
            ours, theirs = (_hex(int(array[place]), instruction, "d") for array in (want, got))
            return Mismatch(where, given, theirs, ours, lambda: self.trace(instruction, operands))

        found, elements = compare(got, want, mismatch), int((d.unpack(got) != d.unpack(want)).sum())
        return replace(found, outputs=got.size * d.elements, mismatches=max(elements, found.mismatches))


class ConversionTestbench(ElementwiseTestbench):
    """Conversions; their classes and inputs are those of conformance/isa/cvt/inputs.py."""

    mutants = MUTANTS
    classes = staticmethod(conversion_inputs.classes)
    samples = staticmethod(conversion_inputs.samples)
    inputs = staticmethod(conversion_inputs.inputs)

    def trace(self, instruction: Any, operands: Mapping[str, int]) -> list[str]:
        """Each element of one result."""
        return trace_conversion(instruction, operands)


def _hex(value: int, instruction: Any, name: str) -> str:
    return f"0x{value:0{2 * instruction.registers[name].dtype.itemsize}x}"


def _joined(array: Array, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    if dtype.itemsize < 8:
        return array.astype(dtype)
    return np.ascontiguousarray(array, np.uint32).view(np.uint64).reshape(array.shape[:-1])
