"""The exercise of fences and groups: none, since they change nothing that could be compared."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from conformance.slice import Array, Comparison, Inputs, WrongModel
from tcsim.isa.fence import OrderInstruction


class OrderExercise:
    """No cases: a live run leaves these instructions out, a replay assembles them."""

    wrong_models: tuple[WrongModel, ...] = ()

    def classes(self, instruction: OrderInstruction) -> list[str]:
        """None."""
        return []

    def samples(self, instruction: OrderInstruction, name: str) -> int:
        """None."""
        return 0

    def inputs(self, instruction: OrderInstruction, name: str, seed: int, samples: int) -> Inputs:
        """Raises ValueError: there is no input class."""
        raise ValueError(f"{instruction!r} has no input class {name!r}")

    def model(self, instruction: OrderInstruction, inputs: Inputs) -> npt.NDArray[np.uint32]:
        """No results."""
        return np.zeros((0,), np.uint32)

    def compare(self, instruction: OrderInstruction, inputs: Inputs, hardware: Array, model: Array) -> Comparison:
        """Nothing."""
        return Comparison(0, 0, ())


ORDER = OrderExercise()

EXERCISES = {"fence": ORDER, "wgmma.sync": ORDER, "griddepcontrol": ORDER}
