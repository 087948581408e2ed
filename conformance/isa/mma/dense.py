"""Exercise of dense matrix multiplies on registers."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from conformance.comparison.multiply import compare
from conformance.isa.mma.mutants import WRONG_MODELS
from conformance.slice import Array, Comparison, Inputs, WrongModel
from conformance.stimuli import classes as input_classes
from tcsim.isa.mma.multiply import MatrixMultiply


class DenseMultiply:
    """mma.sync: registers of a, b and c in, registers of d out."""

    wrong_models: tuple[WrongModel, ...] = WRONG_MODELS

    def classes(self, instruction: MatrixMultiply) -> list[str]:
        """By the kind of the multiplicands' format."""
        return [item.name for item in input_classes.classes_for(instruction)]

    def samples(self, instruction: MatrixMultiply, name: str) -> int:
        """Enough for 2,048 results, or for every k to be hot once."""
        return input_classes.default_samples(instruction, input_classes.CLASSES[name])

    def inputs(self, instruction: MatrixMultiply, name: str, seed: int, samples: int) -> Inputs:
        """Registers (samples, lanes, registers) of a, b and c."""
        return dict(input_classes.registers(instruction, input_classes.CLASSES[name], seed, samples))

    def model(self, instruction: MatrixMultiply, inputs: Inputs) -> npt.NDArray[np.uint32]:
        """Registers of d."""
        return instruction.execute(**inputs)

    def compare(self, instruction: MatrixMultiply, inputs: Inputs, hardware: Array, model: Array) -> Comparison:
        """Element by element of D."""
        return compare(instruction, inputs, hardware, model)


DENSE = DenseMultiply()

EXERCISES = {"mma.sync": DENSE}
