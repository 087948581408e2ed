"""Probes of the special functions: one element a thread, as conversions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hwkernels.probes.cvt import ElementwiseBody
from tcsim.isa.special.rows import FUNCTIONS

UNIT = "MUFU."


class SpecialBody(ElementwiseBody):
    """d = f(a), or a / b; of one instruction the operation of the unit and all ordinary f32 arithmetic around it is claimed."""

    watched = (UNIT, "FMUL", "FADD", "FFMA")

    def complaint(self, instruction: Any, variant: str, target: str, counts: Mapping[str, int]) -> str:
        """Of a subroutine, whose code changes with the assembler, only that it asks the unit."""
        if instruction.lowering.opcodes:
            return super().complaint(instruction, variant, target, counts)
        return "" if any(opcode.startswith(UNIT) for opcode in counts) else "it does not ask the special function unit"


BODIES = dict.fromkeys(FUNCTIONS, SpecialBody())
