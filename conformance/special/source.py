"""The C++ of the campaign: tables and constants of the model, its datapath, and for each spelling its steps beside the instruction.

The same text is compiled by NVRTC for a GPU and by a C++ compiler for tests. What a kernel counts: inputs, those whose results differ,
a sum over all of the hardware's answers, and the first few that differ.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

import numpy as np

from tcsim.arithmetic import mufu
from tcsim.isa.special.rows import FUNCTIONS, SpecialRow, rows
from tcsim.isa.special.steps import (
    LARGE,
    LOW,
    SUBNORMAL,
    Choose,
    CorrectlyRounded,
    Mufu,
    Ordinary,
    RefineRoot,
    Step,
    When,
    code_of,
)

DATAPATH = Path(__file__).parent / "datapath.cuh"
SHOWN = 8
"""Inputs that differ of which a kernel keeps operands and both results."""
WORDS = 3 + 4 * SHOWN
"""64-bit words that a kernel writes: inputs, mismatches, the sum, then (a, b, hardware, model) of each that is kept."""

HEAD = """\
typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long i64;
#ifdef __CUDACC__
#define FN static __device__ __forceinline__
#define TABLE static __device__ const int
FN double as_double(u64 a) { return __longlong_as_double((i64)a); }
FN u64 as_bits(double x) { return (u64)__double_as_longlong(x); }
FN double fused(double a, double b, double c) { return __fma_rn(a, b, c); }
FN int length_of(u64 a) { return 64 - __clzll((i64)a); }
#else
#include <cmath>
#include <cstring>
#define FN static inline
#define TABLE static const int
FN double as_double(u64 a) { double x; std::memcpy(&x, &a, 8); return x; }
FN u64 as_bits(double x) { u64 a; std::memcpy(&a, &x, 8); return a; }
FN double fused(double a, double b, double c) { return std::fma(a, b, c); }
FN int length_of(u64 a) { return a ? 64 - __builtin_clzll(a) : 0; }
#endif
"""
"""How each text begins: types, and what a GPU and a C++ compiler call differently."""
INPUTS = """\
// Inputs: of the number i and a seed, random bits; three of four are brought to where results are not trivial.
FN u64 mixed(u64 x) {
    x += 0x9E3779B97F4A7C15ull;
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9ull;
    x = (x ^ x >> 27) * 0x94D049BB133111EBull;
    return x ^ x >> 31;
}
FN void pair_f32(u64 i, u64 seed, u64 *a, u64 *b) {
    const u64 word = mixed(i ^ seed << 40), kind = i & 3;
    u32 x = (u32)word, y = (u32)(word >> 32);
    if (kind == 1) y = (y & 0x807FFFFFu) | (x & 0x7F800000u);
    if (kind == 2) y &= 0x80FFFFFFu;
    if (kind == 3) x = (x & 0x80FFFFFFu) | 0x3F000000u, y = (y & 0x80FFFFFFu) | 0x3F000000u;
    *a = x, *b = y;
}
FN void pair_f64(u64 i, u64 seed, u64 *a, u64 *b) {
    u64 x = mixed(i ^ seed << 40), y = mixed(~(i ^ seed << 40));
    const u64 kind = i & 3, exponent = 0x7FFull << 52;
    if (kind == 1) y = (y & ~exponent) | (x & exponent), x &= i & 4 ? ~0ull : ~0xFFFFFFFFull;
    if (kind == 2) y &= ~(0x7FEull << 52), x = i & 4 ? x : (x & ~(0x7FEull << 52));
    if (kind == 3) x = (x & ~exponent) | 0x3FFull << 52, y = (y & ~exponent) | 0x3FFull << 52;
    *a = x, *b = y;
}
FN void every_f32(u64 i, u64 seed, u64 *a, u64 *b) { *a = (u32)i, *b = 0; }
FN void every_f16(u64 i, u64 seed, u64 *a, u64 *b) { *a = i & 0xFFFF, *b = 0; }
FN void every_high(u64 i, u64 seed, u64 *a, u64 *b) { *a = i << 32 | (mixed(i ^ seed << 40) & 0xFFFFFFFFull), *b = 0; }
FN u64 summand(u64 i, u64 result) { return mixed(i * 0x2545F4914F6CDD1Dull + result); }
"""
"""The inputs of number i, and what a result adds to the sum."""
KERNEL = """
FN u64 model_{name}(u64 a_, u64 b_) {{
    {type} a = ({type})a_, b = ({type})b_, d = 0, x = a, y = b, k = 0;
    (void)b, (void)x, (void)y, (void)k;
{steps}
    return d;
}}
#ifdef __CUDACC__
FN u64 hardware_{name}(u64 a, u64 b) {{
{asm}
}}
extern "C" __global__ void compare_{name}(u64 *out, u64 first, u64 count, u64 seed) {{
    u64 wrong = 0, sum = 0, done = 0;
    const u64 step = (u64)gridDim.x * blockDim.x;
    for (u64 n = (u64)blockIdx.x * blockDim.x + threadIdx.x; n < count; n += step, done++) {{
        u64 a, b;
        {domain}(first + n, seed, &a, &b);
        const u64 got = hardware_{name}(a, b), want = model_{name}(a, b);
        sum += summand(first + n, got);
        if (got != want) {{
            wrong++;
            const u64 place = atomicAdd(out + 1, 1ull);
            if (place < {shown}) {{
                out[3 + 4 * place] = a, out[4 + 4 * place] = b, out[5 + 4 * place] = got, out[6 + 4 * place] = want;
            }}
        }}
    }}
    atomicAdd(out, done);
    atomicAdd(out + 2, sum);
}}
#else
extern "C" void model_of_{name}(u64 *a, u64 *b, u64 *d, u64 first, u64 count, u64 seed, int given) {{
    for (u64 n = 0; n < count; n++) {{
        if (!given) {domain}(first + n, seed, a + n, b + n);
        d[n] = model_{name}(a[n], b[n]);
    }}
}}
#endif
"""
"""The kernel that compares, of a spelling whose model is some lines and whose instruction some lines of inline assembly."""
_CONDITIONS = {
    SUBNORMAL.text: "magnitude({0}) < 0x00800000u",
    LARGE.text: "(magnitude({0}) > 0x7E800000u && !is_nan({0}))",
    LOW.text: "({0} > 0xC2FC0000u && !is_nan({0}))",
}
_MODES = {"rne": "RNE", "rz": "RZ", "rm": "RM", "rp": "RP"}


def _constants(bias: int) -> Iterator[str]:
    for name, own in mufu.FUNCTIONS.items():
        more = bias if name == "rcp" else 0
        fields = {
            "A0": own.shifts[0],
            "A1": own.shifts[1],
            "A2": own.shifts[2],
            "BIAS": own.bias + more,
            "CUT": own.cut,
        }
        yield from (f"#define {name.upper()}_{key} {value}" for key, value in fields.items())
    for name, table in mufu.tables().items():
        body = ", ".join(f"{{{', '.join(map(str, row))}}}" for row in table.tolist())
        yield f"TABLE {name.upper()}_TABLE[{len(table)}][3] = {{{body}}};"


def name_of(row: SpecialRow) -> str:
    """The mnemonic as a C identifier."""
    return row.mnemonic.replace(".", "_")


def domain_of(row: SpecialRow) -> str:
    """Which inputs a spelling gets: all of one f32 or one 16-bit number, all high words of the unit's f64, random pairs and f64."""
    if row.registers["a"].elements == 2 or (row.type == "f32" and row.family != "div"):
        return "every_f32"
    if row.type == "f32":
        return "pair_f32"
    if row.type == "f64":
        return "every_high" if row.unit is not None and len(row.steps) == 1 else "pair_f64"
    return "every_f16"


def _condition(when: When) -> str:
    return _CONDITIONS[when.text].format(f"({when.operand})")


def _value(operand: str | float) -> str:
    return operand if isinstance(operand, str) else f"{int(code_of(operand)):#010x}u"


def _lines(row: SpecialRow) -> Iterator[str]:
    """The steps; conditions are of the operands as they were given."""
    for step in row.steps:
        yield from _line(step, row)


def _line(step: Step, row: SpecialRow) -> Iterator[str]:
    if isinstance(step, Ordinary):
        other, mode = _value(step.b), _MODES[step.rounding]
        what = (
            f"mul32({step.a}, {other}, {mode}, {int(step.ftz)})"
            if step.operation == "multiply"
            else f"add32({step.a}, {other})"
        )
        yield f"{step.d} = {_condition(step.when)} ? {what} : {step.a};" if step.when else f"{step.d} = {what};"
    elif isinstance(step, Choose):
        text = _value(1.0)
        for when, value in reversed(step.cases):
            text = f"{_condition(when)} ? {_value(value)} : {text}"
        yield f"{step.d} = {text};"
    elif isinstance(step, RefineRoot):
        yield "d = refined(a, y);"
    elif isinstance(step, CorrectlyRounded):
        bits = f"{_MODES[step.rounding]}, {'23, 127' if step.format == 'f32' else '52, 1023'}, {int(step.ftz)}"
        one = f"{int(code_of(1.0)):#x}u" if step.format == "f32" else "0x3FFull << 52"
        call = {"div": f"divided(a, b, {bits})", "rcp": f"divided({one}, a, {bits})", "sqrt": f"rooted(a, {bits})"}
        yield f"d = ({'u32' if step.format == 'f32' else 'u64'}){call[step.operation]};"
    elif isinstance(step, Mufu):
        if step.format in ("f32", "f64"):
            name = f"mufu_{step.function}" if step.format == "f32" else f"{step.function}_f64"
            yield f"{step.d} = {name}({step.a});"
        elif row.registers["a"].elements == 1:
            yield f"d = {step.function}_{step.format}(a);"
        else:
            yield f"d = {step.function}_{step.format}(a & 0xFFFF) | {step.function}_{step.format}(a >> 16) << 16;"


REGISTERS = {
    "f32": ("float", "f", "__uint_as_float((u32){})", "__float_as_uint({})"),
    "f64": ("double", "d", "as_double({})", "as_bits({})"),
    "b32": ("u32", "r", "(u32){}", "{}"), "b16": ("unsigned short", "h", "(unsigned short){}", "{}"),
}  # fmt: skip
"""By the type of a register: its type and constraint in C++, and how to come from and to its bits."""


def _asm(row: SpecialRow) -> Iterator[str]:
    type, constraint, taken, given = REGISTERS[row.registers["a"].type[1:]]
    sources = [name for name in row.registers if name != "d"]
    numbers = ", ".join(f"%{place}" for place in range(1 + len(sources)))
    arguments = ", ".join(f'"{constraint}"({taken.format(name)})' for name in sources)
    yield f"{type} d;"
    yield f'asm volatile("{row.mnemonic} {numbers};" : "={constraint}"(d) : {arguments});'
    yield f"return (u64){given.format('d')};"


@cache
def chosen() -> dict[str, SpecialRow]:
    """Every spelling."""
    return {row.mnemonic: row for name in FUNCTIONS for row in rows(name)}


def source(mnemonics: Iterable[str], bias: int = 0) -> str:
    """The text for some spellings; `bias` is added to that of rcp: a control that must be found wrong.

    >>> "mul32(a, k, RNE, 0)" in source(["rcp.approx.f32"])
    True
    """
    parts = [HEAD, *(f"{line}\n" for line in _constants(bias)), DATAPATH.read_text(), INPUTS]
    for mnemonic in mnemonics:
        row = chosen()[mnemonic]
        wide = row.type == "f64"
        steps = "\n".join(f"    {line}" for line in _lines(row))
        asm = "\n".join(f"    {line}" for line in _asm(row))
        parts.append(
            KERNEL.format(
                name=name_of(row),
                type="u64" if wide else "u32",
                steps=steps,
                asm=asm,
                domain=domain_of(row),
                shown=SHOWN,
            )
        )
    return "".join(parts)


def mixed(x: np.ndarray[tuple[int], np.dtype[np.uint64]]) -> np.ndarray[tuple[int], np.dtype[np.uint64]]:
    """What `mixed` of the kernels' text gives, in NumPy, which wraps around: inside `np.errstate(over="ignore")`."""
    x = x + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ x >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ x >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
    return x ^ x >> np.uint64(31)


def summed(results: np.ndarray[tuple[int], np.dtype[np.uint64]], first: int = 0) -> int:
    """The sum that a kernel keeps of the results of inputs first, first + 1, ...

    >>> hex(summed(np.array([0, 1], np.uint64)))
    '0x43eea02943c2ff79'
    """
    with np.errstate(over="ignore"):
        places = np.arange(first, first + len(results), dtype=np.uint64) * np.uint64(0x2545F4914F6CDD1D)
        return int(mixed(places + results).sum(dtype=np.uint64))
