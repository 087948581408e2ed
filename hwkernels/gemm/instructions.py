"""The header multiply.cuh of each GEMM kernel: its tensor-core instruction as a C++ function, written from the registry's row."""

from __future__ import annotations

from tcsim import catalog
from tcsim.isa.wgmma.multiply import WarpgroupRow
from tcsim.model.instruction import Instruction
from tcsim.model.row import Row

_C_TYPES = {
    ".f32": ("float", "f"),
    ".b32": ("int", "r"),
    ".s32": ("int", "r"),
}  # of an accumulator register: C++, constraint

Names = dict[str, str | tuple[str, ...]]


def _numbered(**counts: int) -> Names:
    """The registers %0, %1, ... of an asm statement, given to operands in the order of its constraints."""
    names: Names = {}
    first = 0
    for name, count in counts.items():
        names[name] = tuple(f"%{index}" for index in range(first, first + count))
        first += count
    return names


def _constraints(letter: str, array: str, count: int, first: int = 0) -> str:
    """Constraints of some elements of an array.

    >>> _constraints("+f", "d", 2, first=4)
    '"+f"(d[4]), "+f"(d[5])'
    """
    return ", ".join(f'"{letter}"({array}[{index}])' for index in range(first, first + count))


def _warpgroup_row(row: Row, sparse: bool) -> WarpgroupRow:
    if not isinstance(row, WarpgroupRow) or bool(row.sparsity) != sparse:
        kind = "a sparse wgmma" if sparse else "a dense wgmma"
        raise ValueError(f"{row.mnemonic} is not {kind}; valid: wgmma.mma_async{'.sp' if sparse else ''}")
    return row


def _wgmma_asm(row: WarpgroupRow, names: Names, a_mn_major: bool, b_mn_major: bool) -> str:
    """The asm string, both operands in shared memory: the predicate comes from the register after the named ones."""
    names = names | {"scale_d": "p", "trans_a": str(int(a_mn_major)), "trans_b": str(int(b_mn_major))}
    flag = sum(len(registers) for registers in names.values() if isinstance(registers, tuple))
    statement = row.forms[0].statement(row.mnemonic, names)
    return f'"{{\\n.reg .pred p;\\nsetp.ne.u32 p, %{flag}, 0;\\n"\n        "{statement}\\n}}"'


def wgmma_function(instruction: Instruction, a_mn_major: bool = False, b_mn_major: bool = False) -> str:
    """`wgmma(d, a, b, scale_d)` for both operands in shared memory.

    Raises ValueError for a row that is not a dense wgmma, or for an MN-major operand of a format that has none.

    >>> "m64n16k16" in wgmma_function(tcsim.instruction("wgmma.mma_async.sync.aligned.m64n16k16.f32.f16.f16", arch="sm_90"))
    True
    """
    row = _warpgroup_row(instruction.row, sparse=False)
    if (a_mn_major or b_mn_major) and not row.majors:
        raise ValueError(f"{row.mnemonic} takes K-major operands only; MN-major: f16 and bf16")
    count = row.operands["d"].count
    kind, constraint = _C_TYPES[row.operands["d"].type]
    return f"""#pragma once
using accumulator_t = {kind};
__device__ __forceinline__ void wgmma({kind} (&d)[{count}], u64 a, u64 b, bool scale_d) {{
    asm volatile(
        {_wgmma_asm(row, _numbered(d=count, a=1, b=1), a_mn_major, b_mn_major)}
        : {_constraints("+" + constraint, "d", count)}
        : "l"(a), "l"(b), "r"(static_cast<u32>(scale_d)));
}}
"""


def wgmma_sparse_function(instruction: Instruction, a_mn_major: bool = False, b_mn_major: bool = False) -> str:
    """`wgmma_sparse<SELECTOR>(d, a, b, metadata, scale_d)` for kept elements, K-major, and B in shared memory.

    Raises ValueError for a row that is not a sparse wgmma, an MN-major A, or an MN-major B of a format that has none.

    >>> name = "wgmma.mma_async.sp.sync.aligned.m64n16k32.f32.f16.f16"
    >>> "m64n16k32" in wgmma_sparse_function(tcsim.instruction(name, arch="sm_90"))
    True
    """
    row = _warpgroup_row(instruction.row, sparse=True)
    if a_mn_major or (b_mn_major and not row.majors):
        raise ValueError(f"{row.mnemonic}: A is compressed along K, and B is K-major; MN-major: B of f16 and bf16")
    count = row.operands["d"].count
    kind, constraint = _C_TYPES[row.operands["d"].type]
    return f"""#pragma once
using accumulator_t = {kind};
template <u32 SELECTOR>
__device__ __forceinline__ void wgmma_sparse({kind} (&d)[{count}], u64 a, u64 b, u32 metadata, bool scale_d) {{
    asm volatile(
        {_wgmma_asm(row, _numbered(d=count, a=1, b=1, metadata=1, selector=1), False, b_mn_major)}
        : {_constraints("+" + constraint, "d", count)}
        : "l"(a), "l"(b), "r"(metadata), "n"(SELECTOR), "r"(static_cast<u32>(scale_d)));
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
    names = _numbered(d=d, a=a, b=b)
    statement = row.forms[0].statement(row.mnemonic, names | {"c": names["d"]})
    body = "\n".join(
        f'    asm volatile("{statement}" : {_constraints("+" + constraint, "d", d, part * d)} : '
        f"{_constraints('r', 'a', a, part * a)}, {_constraints('r', 'b', b)});"
        for part in range(times)
    )
    return f"""#pragma once
using accumulator_t = {kind};
__device__ __forceinline__ void mma({kind} (&d)[{times * d}], const u32* a, const u32* b) {{
{body}
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
    names = _numbered(d=d, a=a, b=b, metadata=1, selector=1)
    return f"""#pragma once
using accumulator_t = {kind};
template <u32 SELECTOR>
__device__ __forceinline__ void mma_sparse({kind} (&d)[{d}], const u32 (&a)[{a}], const u32 (&b)[{b}], u32 metadata) {{
    asm volatile("{row.forms[0].statement(row.mnemonic, names | {"c": names["d"]})}"
                 : {_constraints("+" + constraint, "d", d)}
                 : {_constraints("r", "a", a)}, {_constraints("r", "b", b)}, "r"(metadata), "n"(SELECTOR));
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
        names = _numbered(**{name: count, "address": 1, "stride": 1})
        format_ = row.operands[name].format.name
        for suffix, space, pointer, letter in (("", "", "const u16*", "l"), ("_shared", ".shared", "u32", "r")):
            load = _move(f"wmma.load.{name}.sync.aligned.{layouts[name]}.{shape}{space}.{format_}", names)
            text += f"""__device__ __forceinline__ void load_{name}{suffix}(u32 (&to)[{count}], {pointer} from, u32 stride) {{
    asm volatile("{load}"
                 : {_constraints("=r", "to", count)} : "{letter}"(from), "r"(stride) : "memory");
}}
"""
    names = _numbered(d=d, a=a, b=b)
    multiply = row.forms[0].statement(row.mnemonic, names | {"c": names["d"]})
    format_d = row.operands["d"].format.name
    store = _move(f"wmma.store.d.sync.aligned.row.{shape}.shared.{format_d}", _numbered(address=1, d=d, stride=1))
    return (
        text
        + f"""__device__ __forceinline__ void mma({kind} (&d)[{d}], const u32 (&a)[{a}], const u32 (&b)[{b}]) {{
    asm volatile("{multiply}" : {_constraints("+" + constraint, "d", d)} : {_constraints("r", "a", a)}, {_constraints("r", "b", b)});
}}
__device__ __forceinline__ void store_d_shared(u32 to, const {kind} (&d)[{d}], u32 stride) {{
    asm volatile("{store}"
                 :: "r"(to), {_constraints(constraint, "d", d)}, "r"(stride) : "memory");
}}
"""
    )


def _move(mnemonic: str, names: Names) -> str:
    """A wmma.load or wmma.store with a stride."""
    return catalog.rows()[mnemonic].forms[0].statement(mnemonic, names)


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
