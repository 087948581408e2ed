"""Special functions under test: operands by name in, the result register of every sample, a thread, out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from conformance.isa.cvt.testbench import ElementwiseTestbench
from conformance.isa.special import inputs as special_inputs
from conformance.isa.special.mutants import MUTANTS
from tcsim.isa.special.trace import trace_special

KEPT = 64
"""Results that a recording keeps of a class with many; all of them are in its digest."""


class SpecialTestbench(ElementwiseTestbench):
    """Their classes and inputs are those of conformance/isa/special/inputs.py."""

    mutants = MUTANTS
    classes = staticmethod(special_inputs.classes)
    samples = staticmethod(special_inputs.samples)
    inputs = staticmethod(special_inputs.inputs)

    def trace(self, instruction: Any, operands: Mapping[str, int]) -> list[str]:
        """The datapath of one result."""
        return trace_special(instruction, operands)

    def kept(self, instruction: Any, name: str) -> int | None:
        """All corners; of the rest the first, and a digest."""
        return None if name in ("corners", "close") else KEPT

    def outputs(self, instruction: Any, samples: int) -> int:
        """A packed pair is two."""
        return samples * int(instruction.registers["d"].elements)
