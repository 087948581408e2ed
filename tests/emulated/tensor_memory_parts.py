"""What the emulation of tcgen05 is told of a build: formats, the shape of the instruction, which scale factors each K step reads."""

from __future__ import annotations

from typing import Any

from hwkernels.gemm.tensor_memory_constants import TensorMemoryConstants
from tcsim.descriptors.instruction import InstructionDescriptor
from tcsim.numbers.formats import FORMATS
from tests.emulated.emulation import HERE, constants


def tensor_memory_parts(
    made: TensorMemoryConstants, formats: tuple[str, str], scale: str = "", block: int = 0
) -> tuple[dict[str, Any], str]:
    """Macros, and the text of multiply.cuh. The descriptors are decoded from their 32 bits."""
    kind = made.instruction.row.kind.name
    steps = [InstructionDescriptor.decode(one.encode(), kind, made.instruction.arch.name) for one in made.descriptors]
    macros: dict[str, Any] = {
        "USES_TENSOR_MEMORY": 1,
        "FORMAT_A": formats[0].upper(),
        "FORMAT_B": formats[1].upper(),
        "ELEMENT_BITS": 32 if formats[0] == "tf32" else FORMATS[formats[0]].bits,
        "MMA_M": steps[0].m,
        "MMA_N": steps[0].n,
    }
    text = constants(made.header())
    if scale:
        macros |= {"SCALE_FORMAT": scale.upper(), "SCALE_RUN": block}
        for side in "ab":
            ids = ", ".join(str(getattr(one, f"scale_{side}_id")) for one in steps)
            text += f"\nconstexpr u32 SCALE_ID_{side.upper()}[] = {{{ids}}};"
    return macros, f'#include "{HERE}/gpu.h"\n{text}\n#include "{HERE}/tcgen05_multiply.h"\n'
