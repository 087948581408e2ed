"""A tcgen05.mma with its instruction descriptor: shape, formats and steps as attributes, as other instructions have them.

Traces, the command line and the conformance suite know instructions by these names.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy.typing as npt

from tcsim.arithmetic.steps import Lowering
from tcsim.core.evidence import Evidence
from tcsim.core.targets import Arch
from tcsim.descriptors.instruction import InstructionDescriptor
from tcsim.isa.tcgen05.multiply import TensorMemoryMultiply
from tcsim.layouts.sparsity import Sparsity
from tcsim.numbers.codec import negated
from tcsim.numbers.formats import Format


@dataclass(frozen=True)
class Matrix:
    """One matrix of codes."""

    format: Format
    shape: tuple[int, int]


@dataclass(frozen=True)
class DescribedMultiply:
    """An instruction with one descriptor; a sparse A counts with its kept half.

    >>> mma = tcsim.instruction("tcgen05.mma.cta_group::1.kind::f16", arch="sm_100a")
    >>> bound = DescribedMultiply(mma, tcsim.InstructionDescriptor(kind="f16", a_format="bf16", m=64, n=8))
    >>> bound.shape, bound.formats["a"].name
    ((64, 8, 16), 'bf16')
    """

    instruction: TensorMemoryMultiply
    desc: InstructionDescriptor
    scale_input_d: int = 0

    def __repr__(self) -> str:
        return repr(self.instruction)

    @property
    def mnemonic(self) -> str:
        """The full PTX spelling."""
        return self.instruction.mnemonic

    @property
    def arch(self) -> Arch:
        """The chip generation."""
        return self.instruction.arch

    @property
    def evidence(self) -> Evidence:
        """How the model is known."""
        return self.instruction.evidence

    @property
    def shape(self) -> tuple[int, int, int]:
        """M, N and the products of one output."""
        return self.desc.m, self.desc.n, self.operands["a"].shape[1]

    @property
    def matrices(self) -> int:
        """One matrix product."""
        return 1

    @cached_property
    def formats(self) -> dict[str, Format]:
        """The number formats of a, b, c, d, and of the scales."""
        return self.instruction.formats(self.desc)

    @cached_property
    def operands(self) -> dict[str, Matrix]:
        """The matrices; b has the rows that the kept elements of one row of A meet."""
        shapes = self.instruction.shapes(self.desc)
        m, kept = shapes["a"]
        whole = {"a": (m, kept), "b": (kept, self.desc.n), "c": shapes["c"], "d": shapes["c"]}
        return {name: Matrix(self.formats[name], shape) for name, shape in whole.items()}

    @cached_property
    def lowering(self) -> Lowering:
        """What runs for the descriptor."""
        return self.instruction.lowering_for(self.desc, self.scale_input_d)

    @property
    def scale_formats(self) -> dict[str, Format]:
        """The number formats of scale_a and scale_b; none without block scaling."""
        return dict.fromkeys(("scale_a", "scale_b"), self.formats["scale"]) if self.blocks else {}

    @property
    def blocks(self) -> int:
        """Scale factors of one row of A; 0 without block scaling."""
        return self.desc.scale_vectors(block) if (block := self.instruction.row.block) else 0

    @property
    def sparsity(self) -> Sparsity | None:
        """How A is sparse, if it is."""
        return self.instruction.sparsity(self.desc) if self.desc.sparse else None

    def negated(self, name: str, codes: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Codes of a or b negated, if the descriptor says so."""
        return negated(codes, self.formats[name]) if getattr(self.desc, f"negate_{name}") else codes
