"""What the fourth set adds to a kernel: where the mistake was met.

The fourth set was written by someone who had read nothing of the diagnosis, of its pages, nor of the other kinds, and committed before any
report was seen. Its kinds are what users of CUTLASS, Triton, tilelang, DeepGEMM, llama.cpp and of plain CUDA get wrong, the common ones first.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from tests.evaluation.second_wrong_kernels import words as w
from tests.evaluation.second_wrong_kernels.kernel import Kernel


class Fourth(Kernel):
    """A kernel of the fourth set."""

    source: ClassVar[str] = "textbook"  # the thread that reports it: repository#number, or a forum
    rare: ClassVar[bool] = False  # whether few people make it

    def one_operand(self) -> str:
        """Draw which operand the mistake hits; {operand} and {pattern} stand for it in what the kind says and needs."""
        operand = str(self.random.choice(["a", "b"]))
        self.facts |= {"operand": operand.upper(), "pattern": {"a": w.A, "b": w.B}[operand]}
        return operand

    def number(self, y: int, x: int) -> int:
        """Where a block stands in the order of the launch."""
        return self.blocks().index((y, x))


class Right(Fourth):
    """A kernel without a mistake."""

    correct = True


def halves(width: int, step: int) -> np.ndarray:
    """Which element of K an instruction finds at each place if its operand moves on by half of `step` instead of `step`."""
    k = np.arange(width)
    return k // step * (step // 2) + k % step
