"""The header multiply.cuh of each GEMM kernel: its tensor-core instruction as a C++ function, written from the registry's row."""

from __future__ import annotations

from tcsim.instruction import Instruction
from tcsim.warpgroup_multiply import WarpgroupFacts

_C_TYPES = {
    ".f32": ("float", "f"),
    ".b32": ("int", "r"),
    ".s32": ("int", "r"),
}  # of an accumulator register: C++, constraint


def wgmma_function(instruction: Instruction, a_mn_major: bool = False, b_mn_major: bool = False) -> str:
    """`wgmma(d, a, b, scale_d)` for both operands in shared memory.

    Raises ValueError for a row that is no dense wgmma, or for an MN-major operand of a format that has none.

    >>> "m64n16k16" in wgmma_function(tcsim.instruction("wgmma.mma_async.sync.aligned.m64n16k16.f32.f16.f16", arch="sm_90"))
    True
    """
    row = instruction.row
    facts = row.facts
    if not isinstance(facts, WarpgroupFacts):
        raise ValueError(f"{row.mnemonic} is no wgmma; valid: wgmma.mma_async")
    if (a_mn_major or b_mn_major) and not facts.majors:
        raise ValueError(f"{row.mnemonic} takes K-major operands only; MN-major: f16 and bf16")
    count = row.operands["d"].registers
    kind, constraint = _C_TYPES[row.operands["d"].register_type]
    registers = ", ".join(f"%{index}" for index in range(count))
    immediates = (", 1, 1" if facts.signs else "") + (f", {int(a_mn_major)}, {int(b_mn_major)}" if facts.majors else "")
    outputs = ", ".join(f'"+{constraint}"(d[{index}])' for index in range(count))
    return f"""#pragma once
using accumulator_t = {kind};
__device__ __forceinline__ void wgmma({kind} (&d)[{count}], u64 a, u64 b, bool scale_d) {{
    asm volatile(
        "{{\\n.reg .pred p;\\nsetp.ne.u32 p, %{count + 2}, 0;\\n"
        "{row.mnemonic} "
        "{{{registers}}}, "
        "%{count}, %{count + 1}, p{immediates};\\n}}"
        : {outputs}
        : "l"(a), "l"(b), "r"(static_cast<u32>(scale_d)));
}}
"""


def multiply_header(instruction: Instruction, a_mn_major: bool = False, b_mn_major: bool = False) -> str:
    """The header of a kernel's instruction, whichever it is.

    Raises ValueError for a family without one.
    """
    family = instruction.row.family
    if family not in _WRITERS:
        raise ValueError(
            f"{instruction.row.mnemonic}: no kernel multiplies with it; valid families: {', '.join(_WRITERS)}"
        )
    return _WRITERS[family](instruction, a_mn_major, b_mn_major)


_WRITERS = {"wgmma": wgmma_function}
