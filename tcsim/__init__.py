"""tcsim: the executable specification of NVIDIA tensor cores, exact to the bit."""

from typing import TYPE_CHECKING, Any

from tcsim.banks import BankConflicts, bank_conflicts
from tcsim.codec import as_codes, decode, encode
from tcsim.errors import (
    FormatError,
    InstructionError,
    OperandError,
    TargetError,
    TcsimError,
)
from tcsim.evidence import Evidence
from tcsim.formats import FORMATS, Format, format
from tcsim.gemm import gemm
from tcsim.instruction import Instruction, instruction
from tcsim.instruction_descriptor import InstructionDescriptor
from tcsim.layout import FragmentLayout, Layout
from tcsim.matrix_descriptor import MatrixDescriptor
from tcsim.mbarrier import MBarrier
from tcsim.quantize import dequantize_mx, dequantize_nvfp4, quantize, quantize_mx, quantize_nvfp4
from tcsim.swizzle import Swizzle
from tcsim.targets import ARCHS, TARGETS
from tcsim.tensor_map import TensorMap
from tcsim.tensor_memory import TensorMemory

if TYPE_CHECKING:
    from tcsim.diagnosis import Diagnosis, diagnose

__version__ = "0.1.0"

__all__ = [
    "ARCHS", "FORMATS", "TARGETS", "BankConflicts", "Diagnosis", "Evidence", "Format", "FormatError",
    "FragmentLayout", "Instruction", "InstructionDescriptor", "InstructionError", "Layout", "MBarrier",
    "MatrixDescriptor", "OperandError", "Swizzle", "TargetError", "TcsimError", "TensorMap", "TensorMemory",
    "as_codes", "bank_conflicts", "decode", "dequantize_mx", "dequantize_nvfp4", "diagnose", "encode", "format",
    "gemm", "instruction", "quantize", "quantize_mx", "quantize_nvfp4",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    """`diagnose` and `Diagnosis` are imported at their first use: most programs need neither."""
    if name not in ("Diagnosis", "diagnose"):
        raise AttributeError(f"module 'tcsim' has no attribute {name!r}")
    from tcsim import diagnosis

    return getattr(diagnosis, name)
