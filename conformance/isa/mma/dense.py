"""mma.sync under test: registers of a, b and c in, registers of d out."""

from __future__ import annotations

from typing import Any

from conformance.comparison import Array, Codes, Comparison, compare_matrices
from conformance.isa.mma.mutants import MUTANTS
from conformance.stimuli import classes as input_classes
from conformance.testbench import Inputs, Testbench


class DenseTestbench(Testbench):
    """Dense matrix multiplies on registers."""

    mutants = MUTANTS

    def classes(self, instruction: Any) -> list[str]:
        """By the kind of the multiplicands' format."""
        return [item.name for item in input_classes.classes_for(instruction)]

    def level_2(self, instruction: Any) -> list[str]:
        """All pairs of corner values of floats."""
        return input_classes.level_2_for(instruction)

    def samples(self, instruction: Any, name: str) -> int:
        """Enough for 2,048 results, or for every k to be hot once."""
        return input_classes.default_samples(instruction, input_classes.EVERY[name])

    def inputs(self, instruction: Any, name: str, seed: int, samples: int) -> Inputs:
        """Registers (samples, lanes, registers) of a, b and c."""
        return dict(input_classes.registers(instruction, input_classes.EVERY[name], seed, samples))

    def compare(self, instruction: Any, inputs: Inputs, hardware: Array, model: Array) -> Comparison:
        """Element by element of D."""
        codes = {
            name: instruction.matrix(name, inputs[name]).reshape(
                -1, instruction.matrices, *instruction.operands[name].shape
            )
            for name in "abc"
        }

        def terms(warp: int, matrix: int, row: int, column: int) -> Codes:
            a, b, c = (codes[name][warp, matrix] for name in "abc")
            return {"a": a[row], "b": b[:, column], "c": c[row, column]}

        return compare_matrices(instruction, terms, instruction.formats, hardware, model)
