"""tcsim: the executable specification of NVIDIA tensor cores, exact to the bit, from Volta to Blackwell. No GPU is needed.

    instruction(mnemonic, arch=)       one PTX instruction on an arch or target, with
        .execute(...)                  registers or memory in and out, as the hardware holds them
        .matmul(a, b, c)               matrices of codes (bit patterns) in and out
        .operands["a"].layout          which lane and register holds which element, and back (.where)
        .lowering, .evidence           what runs there, and how that is known
    find("ldmatrix x4 trans")          instructions by any name: words, SASS, CuTe atoms, chips
    gemm(a, b, c, instruction=)        a whole GEMM, block after block along K
    conv(x, filters, instruction=)     a convolution as an implicit GEMM
    diagnose(instruction, ...)         from a wrong result to the mistake that explains it
    explain(a, b, observed)            from a library's product to the instruction and the order of summation that give its bits
    plan(op, m=, n=, k=, gpu=)         the order in which a library sums a product on a GPU
    encode, decode, quantize           numbers to codes of a format, and back
    TensorMap, MatrixDescriptor, InstructionDescriptor, Swizzle, Layout, MBarrier, TensorMemory

    >>> mma = tcsim.instruction("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32", arch="sm_90")
    >>> a, b, c = np.full((16, 8), 0.1, np.float16), np.ones((8, 8), np.float16), np.zeros((16, 8), np.float32)
    >>> hex(mma.matmul(a, b, c)[0, 0]), mma.operands["a"].layout.where(8, 6)
    ('0x3f4cc000', (3, 1, 0))

Wrong use raises a TcsimError, a ValueError that says what is valid. The same from a shell: `tcsim --help`, from the extra `cli`.
Pages: docs/README.md. Every instruction: tcsim.catalog.rows().
"""

from importlib import import_module
from importlib.util import find_spec
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from tcsim.core import display
from tcsim.core.errors import FormatError, InstructionError, OperandError, TargetError, TcsimError
from tcsim.core.evidence import Evidence
from tcsim.core.targets import ARCHS, TARGETS

if TYPE_CHECKING:
    from tcsim.catalog import instruction
    from tcsim.convolution import conv
    from tcsim.descriptors.instruction import InstructionDescriptor
    from tcsim.descriptors.matrix import MatrixDescriptor
    from tcsim.diagnosis import Diagnosis, diagnose
    from tcsim.explanation import Explanation, explain
    from tcsim.layouts.banks import BankConflicts, bank_conflicts
    from tcsim.layouts.layout import FragmentLayout, Layout
    from tcsim.layouts.swizzle import Swizzle
    from tcsim.memory.mbarrier import MBarrier
    from tcsim.memory.tensor_memory import TensorMemory
    from tcsim.model.instruction import Instruction
    from tcsim.multiplication import gemm
    from tcsim.numbers.codec import as_codes, decode, encode
    from tcsim.numbers.formats import FORMATS, Format, format
    from tcsim.numbers.quantize import dequantize_mx, dequantize_nvfp4, quantize, quantize_mx, quantize_nvfp4
    from tcsim.plans import Plan, PlanError, plan
    from tcsim.search import find
    from tcsim.tma.map import TensorMap

__version__ = "0.1.0"

__all__ = [
    "ARCHS", "FORMATS", "TARGETS", "BankConflicts", "Diagnosis", "Evidence", "Explanation", "Format", "FormatError",
    "FragmentLayout", "Instruction", "InstructionDescriptor", "InstructionError", "Layout", "MBarrier",
    "MatrixDescriptor", "OperandError", "Plan", "PlanError", "Swizzle", "TargetError", "TcsimError", "TensorMap", "TensorMemory",
    "as_codes", "bank_conflicts", "conv", "decode", "dequantize_mx", "dequantize_nvfp4", "diagnose", "encode", "explain", "find",
    "format", "gemm", "instruction", "plan", "quantize", "quantize_mx", "quantize_nvfp4",
]  # fmt: skip

_WHERE = MappingProxyType(
    {
        name: module
        for module, names in {
            "tcsim.catalog": "instruction",
            "tcsim.convolution": "conv",
            "tcsim.descriptors.instruction": "InstructionDescriptor",
            "tcsim.descriptors.matrix": "MatrixDescriptor",
            "tcsim.diagnosis": "Diagnosis diagnose",
            "tcsim.explanation": "Explanation explain",
            "tcsim.layouts.banks": "BankConflicts bank_conflicts",
            "tcsim.layouts.layout": "FragmentLayout Layout",
            "tcsim.layouts.swizzle": "Swizzle",
            "tcsim.memory.mbarrier": "MBarrier",
            "tcsim.memory.tensor_memory": "TensorMemory",
            "tcsim.model.instruction": "Instruction",
            "tcsim.multiplication": "gemm",
            "tcsim.numbers.codec": "as_codes decode encode",
            "tcsim.numbers.formats": "FORMATS Format format",
            "tcsim.numbers.quantize": "dequantize_mx dequantize_nvfp4 quantize quantize_mx quantize_nvfp4",
            "tcsim.plans": "Plan PlanError plan",
            "tcsim.search": "find",
            "tcsim.tma.map": "TensorMap",
        }.items()
        for name in names.split()
    }
)
"""The modules of what is imported at its first use: a look-up needs few of these, and not even NumPy."""

display.install(lambda: import_module("tcsim.inspection.notebook").RENDERERS)


if not TYPE_CHECKING:  # a type checker knows all names: another one is an error

    def __getattr__(name: str) -> Any:
        """What `_WHERE` lists, and the modules of the package."""
        if name in _WHERE:
            found = globals()[name] = getattr(import_module(_WHERE[name]), name)
            return found
        if name.startswith("_") or find_spec(f"{__name__}.{name}") is None:
            raise AttributeError(f"module 'tcsim' has no attribute {name!r}")
        return import_module(f"{__name__}.{name}")


def __dir__() -> list[str]:
    """The public names, and the modules whose own names are."""
    return sorted([*__all__, "__version__", "catalog", "launchers", "plans", "ptx", "torch"])
