"""What a diagnosis needs of an instruction that multiplies, whatever its family."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tcsim.arithmetic.steps import Lowering
from tcsim.core.errors import InstructionError, OperandError
from tcsim.descriptors.instruction import InstructionDescriptor
from tcsim.isa.mma.multiply import MatrixMultiply
from tcsim.isa.mma.scaled_multiply import ScaledMatrixMultiply
from tcsim.isa.mma.sparse_operand import SparseOperand
from tcsim.isa.tcgen05.multiply import TensorMemoryMultiply
from tcsim.isa.wgmma.multiply import WarpgroupMultiply
from tcsim.layouts.sparsity import Sparsity
from tcsim.model.instruction import Instruction
from tcsim.numbers.formats import Format

FAMILIES = (MatrixMultiply, WarpgroupMultiply, TensorMemoryMultiply)
"""The classes of instructions that multiply matrices."""


@dataclass(frozen=True)
class Machine:
    """One step of a product: the instruction, and of tcgen05.mma the instruction descriptor too."""

    instruction: Instruction
    shape: tuple[int, int, int]  # M, N, K
    kept: int  # elements of A's K that one step takes: half of K if A is sparse
    formats: dict[str, Format]  # of a, b, c, d, and of the scales under "scale" if there are any
    lowering: Lowering
    sparsity: Sparsity | None = None
    blocks: int = 0  # scale factors of a row in one step; 0: no block scaling
    descriptor: InstructionDescriptor | None = None  # tcgen05.mma only

    @property
    def block(self) -> int:
        """Elements of the dense K that share a scale."""
        return self.shape[2] // self.blocks if self.blocks else 0


def machine_of(instruction: Instruction, call: str, idesc: Any = None) -> Machine:
    """The machine behind an instruction.

    Raises InstructionError for an instruction that multiplies nothing, OperandError for an idesc that is missing, too
    many or does not fit.
    """
    if isinstance(instruction, TensorMemoryMultiply):
        if idesc is None:
            raise OperandError(f"{call}: idesc is missing; valid: an InstructionDescriptor, or its 32 bits")
        return _tensor_memory(instruction, instruction.descriptor(idesc))
    if idesc is not None:
        raise OperandError(f"{call}: idesc is for tcgen05.mma; {instruction.mnemonic} has none")
    if not isinstance(instruction, MatrixMultiply | WarpgroupMultiply):
        raise InstructionError(f"{call}: it multiplies no matrices; valid: mma, wmma.mma, wgmma and tcgen05.mma")
    formats = {**instruction.formats, "d": instruction.operands["d"].format}
    sparsity = instruction.sparsity if isinstance(instruction, SparseOperand) else None
    blocks = 0
    if isinstance(instruction, ScaledMatrixMultiply):
        blocks = instruction.blocks
        formats["scale"] = instruction.row.scale_a.format
    kept = instruction.operands["a"].shape[1]
    return Machine(instruction, instruction.shape, kept, formats, instruction.lowering, sparsity, blocks)


def _tensor_memory(instruction: TensorMemoryMultiply, desc: InstructionDescriptor) -> Machine:
    shapes = instruction.shapes(desc)
    sparsity = instruction.sparsity(desc) if "metadata" in shapes else None
    return Machine(
        instruction,
        (desc.m, desc.n, desc.k),
        shapes["a"][1],
        instruction.formats(desc),
        instruction.lowering_for(desc),
        sparsity,
        shapes["scale_a"][1] if "scale_a" in shapes else 0,
        desc,
    )
