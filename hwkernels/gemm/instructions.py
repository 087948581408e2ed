"""The header multiply.cuh of each GEMM kernel: its tensor-core instruction as a C++ function, written from the registry's row."""

from __future__ import annotations

from tcsim.isa.wgmma.multiply import WarpgroupFacts
from tcsim.model.instruction import Instruction

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
    kind, constraint = _C_TYPES[row.operands["d"].type]
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


def mma_function(instruction: Instruction, a_mn_major: bool = False, b_mn_major: bool = False) -> str:
    """`mma(d, a, b)`, d += a b, of a warp. An instruction of 8 rows and 2 registers of d is used twice, for 16 rows.

    Majors do not show in fragments.

    >>> "m16n8k8" in mma_function(tcsim.instruction("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32", arch="sm_75"))
    True
    """
    row = instruction.row
    d, a, b = (row.operands[name].count for name in "dab")
    kind, constraint = _C_TYPES[row.operands["d"].type]
    times = 2 if (row.shape[0], d) == (8, 2) else 1
    total = d + a + b
    slots = [
        ", ".join(f"%{index}" for index in range(first, end)) for first, end in ((0, d), (d, d + a), (d + a, total))
    ]
    vectors = ", ".join(f"{{{registers}}}" for registers in (*slots, slots[0]))
    lines = []
    for part in range(times):
        outputs = ", ".join(f'"+{constraint}"(d[{part * d + index}])' for index in range(d))
        inputs = [f'"r"(a[{part * a + index}])' for index in range(a)] + [f'"r"(b[{index}])' for index in range(b)]
        lines.append(f'    asm volatile("{row.mnemonic} {vectors};" : {outputs} : {", ".join(inputs)});')
    body = "\n".join(lines)
    return f"""#pragma once
using accumulator_t = {kind};
__device__ __forceinline__ void mma({kind} (&d)[{times * d}], const u32* a, const u32* b) {{
{body}
}}
"""


def wmma_functions(instruction: Instruction, a_mn_major: bool = False, b_mn_major: bool = False) -> str:
    """`load_a`, `load_b` (generic addresses), `load_a_shared`, `load_b_shared`, `mma`, `store_d_shared` of one wmma shape.

    Strides count elements. The layouts of A and B are those of the mnemonic.

    >>> name = "wmma.mma.sync.aligned.row.col.m16n16k16.f32.f32"
    >>> "wmma.load.b.sync.aligned.col.m16n16k16.shared.f16" in wmma_functions(tcsim.instruction(name, arch="sm_70"))
    True
    """
    row = instruction.row
    d, a, b = (row.operands[name].count for name in "dab")
    kind, constraint = _C_TYPES[row.operands["d"].type]
    shape = "m{}n{}k{}".format(*row.shape)
    layouts = {"a": "col" if a_mn_major else "row", "b": "row" if b_mn_major else "col"}
    text = f"#pragma once\nusing accumulator_t = {kind};\nconstexpr u32 FRAGMENT = {a};\n"
    for name, count in (("a", a), ("b", b)):
        registers = ", ".join(f"%{index}" for index in range(count))
        outputs = ", ".join(f'"=r"(to[{index}])' for index in range(count))
        format_ = row.operands[name].format.name
        for suffix, space, pointer, letter in (("", "", "const u16*", "l"), ("_shared", ".shared", "u32", "r")):
            text += f"""__device__ __forceinline__ void load_{name}{suffix}(u32 (&to)[{count}], {pointer} from, u32 stride) {{
    asm volatile("wmma.load.{name}.sync.aligned.{layouts[name]}.{shape}{space}.{format_} {{{registers}}}, [%{count}], %{count + 1};"
                 : {outputs} : "{letter}"(from), "r"(stride) : "memory");
}}
"""
    registers = ", ".join(f"%{index}" for index in range(d))
    slots = [", ".join(f"%{index}" for index in range(first, first + n)) for first, n in ((d, a), (d + a, b))]
    outputs = ", ".join(f'"+{constraint}"(d[{index}])' for index in range(d))
    inputs = ", ".join([f'"r"(a[{index}])' for index in range(a)] + [f'"r"(b[{index}])' for index in range(b)])
    stored = ", ".join(f'"{constraint}"(d[{index}])' for index in range(d))
    values = ", ".join(f"%{index + 1}" for index in range(d))
    return (
        text
        + f"""__device__ __forceinline__ void mma({kind} (&d)[{d}], const u32 (&a)[{a}], const u32 (&b)[{b}]) {{
    asm volatile("{row.mnemonic} {{{registers}}}, {{{slots[0]}}}, {{{slots[1]}}}, {{{registers}}};" : {outputs} : {inputs});
}}
__device__ __forceinline__ void store_d_shared(u32 to, const {kind} (&d)[{d}], u32 stride) {{
    asm volatile("wmma.store.d.sync.aligned.row.{shape}.shared.{row.operands["d"].format.name} [%0], {{{values}}}, %{d + 1};"
                 :: "r"(to), {stored}, "r"(stride) : "memory");
}}
"""
    )


def wgmma_sparse_function(instruction: Instruction, a_mn_major: bool = False, b_mn_major: bool = False) -> str:
    """`wgmma_sparse<SELECTOR>(d, a, b, metadata, scale_d)` for kept elements, K-major, and B in shared memory.

    Raises ValueError for a row that is no sparse wgmma, an MN-major A, or an MN-major B of a format that has none.

    >>> name = "wgmma.mma_async.sp.sync.aligned.m64n16k32.f32.f16.f16"
    >>> "m64n16k32" in wgmma_sparse_function(tcsim.instruction(name, arch="sm_90"))
    True
    """
    row = instruction.row
    facts = row.facts
    if not isinstance(facts, WarpgroupFacts) or facts.sparsity is None:
        raise ValueError(f"{row.mnemonic} is no sparse wgmma; valid: wgmma.mma_async.sp")
    if a_mn_major or (b_mn_major and not facts.majors):
        raise ValueError(f"{row.mnemonic}: A is compressed along K, and B is K-major; MN-major: B of f16 and bf16")
    count = row.operands["d"].registers
    kind, constraint = _C_TYPES[row.operands["d"].type]
    registers = ", ".join(f"%{index}" for index in range(count))
    immediates = (", 1, 1" if facts.signs else "") + (f", 0, {int(b_mn_major)}" if facts.majors else "")
    outputs = ", ".join(f'"+{constraint}"(d[{index}])' for index in range(count))
    return f"""#pragma once
using accumulator_t = {kind};
template <u32 SELECTOR>
__device__ __forceinline__ void wgmma_sparse({kind} (&d)[{count}], u64 a, u64 b, u32 metadata, bool scale_d) {{
    asm volatile(
        "{{\\n.reg .pred p;\\nsetp.ne.u32 p, %{count + 4}, 0;\\n"
        "{row.mnemonic} "
        "{{{registers}}}, "
        "%{count}, %{count + 1}, %{count + 2}, %{count + 3}, p{immediates};\\n}}"
        : {outputs}
        : "l"(a), "l"(b), "r"(metadata), "n"(SELECTOR), "r"(static_cast<u32>(scale_d)));
}}
"""


def mma_sparse_function(instruction: Instruction, a_mn_major: bool = False, b_mn_major: bool = False) -> str:
    """`mma_sparse<SELECTOR>(d, a, b, metadata)`, d += a b, of a warp; A holds kept elements.

    >>> name = "mma.sp::ordered_metadata.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32"
    >>> "m16n8k32" in mma_sparse_function(tcsim.instruction(name, arch="sm_80"))
    True
    """
    row = instruction.row
    d, a, b = (row.operands[name].count for name in "dab")
    kind, constraint = _C_TYPES[row.operands["d"].type]
    total = d + a + b
    slots = [
        ", ".join(f"%{index}" for index in range(first, end)) for first, end in ((0, d), (d, d + a), (d + a, total))
    ]
    vectors = ", ".join(f"{{{registers}}}" for registers in (*slots, slots[0]))
    outputs = ", ".join(f'"+{constraint}"(d[{index}])' for index in range(d))
    inputs = ", ".join([f'"r"(a[{index}])' for index in range(a)] + [f'"r"(b[{index}])' for index in range(b)])
    return f"""#pragma once
using accumulator_t = {kind};
template <u32 SELECTOR>
__device__ __forceinline__ void mma_sparse({kind} (&d)[{d}], const u32 (&a)[{a}], const u32 (&b)[{b}], u32 metadata) {{
    asm volatile("{row.mnemonic} {vectors}, %{total}, %{total + 1};"
                 : {outputs}
                 : {inputs}, "r"(metadata), "n"(SELECTOR));
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


_WRITERS = {
    "wgmma": wgmma_function,
    "wgmma.sp": wgmma_sparse_function,
    "mma.sync": mma_function,
    "mma.sp": mma_sparse_function,
    "wmma.mma": wmma_functions,
}
