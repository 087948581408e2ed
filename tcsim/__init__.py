"""tcsim: the executable specification of NVIDIA tensor cores, exact to the bit."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from tcsim.catalog import instruction
from tcsim.core import display
from tcsim.core.errors import FormatError, InstructionError, OperandError, TargetError, TcsimError
from tcsim.core.evidence import Evidence
from tcsim.core.targets import ARCHS, TARGETS
from tcsim.descriptors.instruction import InstructionDescriptor
from tcsim.descriptors.matrix import MatrixDescriptor
from tcsim.gemm import gemm
from tcsim.layouts.banks import BankConflicts, bank_conflicts
from tcsim.layouts.layout import FragmentLayout, Layout
from tcsim.layouts.swizzle import Swizzle
from tcsim.memory.mbarrier import MBarrier
from tcsim.memory.tensor_memory import TensorMemory
from tcsim.model.instruction import Instruction
from tcsim.numbers.codec import as_codes, decode, encode
from tcsim.numbers.formats import FORMATS, Format, format
from tcsim.numbers.quantize import dequantize_mx, dequantize_nvfp4, quantize, quantize_mx, quantize_nvfp4
from tcsim.tma.map import TensorMap

if TYPE_CHECKING:
    from tcsim.diagnosis import Diagnosis, diagnose

__version__ = "0.1.0"

display.install(lambda: import_module("tcsim.inspection.notebook").RENDERERS)

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
