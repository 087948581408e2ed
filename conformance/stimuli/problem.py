"""What an input class needs to know of a multiplication to fill its operands."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy.typing as npt

from tcsim.arithmetic.dot import Datapath
from tcsim.arithmetic.steps import DotAdd
from tcsim.isa.mma.multiply import MatrixMultiply
from tcsim.numbers.formats import Format

Codes = npt.NDArray[Any]
Matrices = dict[str, Codes]


@dataclass(frozen=True)
class Problem:
    """What a class needs to know of an instruction to fill its operands."""

    instruction: MatrixMultiply
    count: int  # matrix products

    @property
    def shape(self) -> tuple[int, int, int]:
        """M, N, K."""
        return self.instruction.shape

    def format(self, name: str) -> Format:
        """The format of an operand."""
        return self.instruction.operands[name].format

    def dimensions(self, name: str) -> tuple[int, int, int]:
        """(count, rows, columns) of an operand."""
        return (self.count, *self.instruction.operands[name].shape)

    @cached_property
    def unit(self) -> Datapath | None:
        """The first dot-add unit of the lowering, if it has one."""
        return next((s.unit for s in self.instruction.lowering.steps if isinstance(s, DotAdd)), None)


def each_operand(problem: Problem, make: Callable[[str, Format, tuple[int, ...]], Codes]) -> Matrices:
    """The codes of a, b and c, each made from its name, format and dimensions."""
    return {name: make(name, problem.format(name), problem.dimensions(name)) for name in "abc"}
