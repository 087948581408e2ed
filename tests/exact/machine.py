"""What an mma.sync instruction computes on an arch: its lowering to steps, written next to docs/numerics.md."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .mnemonics import FP6_FP4, FP8, INT4, INT8, Instruction, generation, parse
from .steps import (
    Output,
    bit_dot,
    convert,
    dot_add,
    ieee_add,
    ieee_fma,
    ieee_mul,
    integer_add,
    integer_dot,
)

Codes = Sequence[int]


@dataclass(frozen=True)
class Datapath:
    """One row of the table in section 2: the constants of the fused step of some generations."""

    generations: tuple[int, ...]  # which generations; mnemonics.GENERATION says which archs follow them
    shapes: tuple[str, ...]  # of which instructions
    inputs: tuple[str, ...]  # formats of A and B
    products: int | None  # L, products taken by one step; None: all K of the instruction
    fraction_bits: int  # F, bits kept below 2^e_max when a term is aligned
    f32_output: Output  # how a sum is rounded to an f32: "f32" truncates to 24 significant bits, "e8m13" to 14
    f32_floor: int  # the least e_max when D is f32
    f16_floor: int | None  # the least e_max when D is f16; None: D is never f16


# No input can show the f32 floors of f16 and fp8 inputs, nor the f16 floors of fp8 inputs: such products are too large.
# They follow the rule at the end of section 2 (the least exponent of the output minus the integer bits of the sum).
DATAPATHS: tuple[Datapath, ...] = (
    Datapath((70, 75), ("m8n8k4",), ("f16",), 4, 23, "f32", -131, -19),
    Datapath((75,), ("m16n8k8",), ("f16",), 8, 24, "f32", -132, -20),
    Datapath((80, 89), ("m16n8k8", "m16n8k16"), ("f16", "bf16"), 8, 24, "f32", -132, -20),
    Datapath((80, 89), ("m16n8k4", "m16n8k8"), ("tf32",), 4, 24, "f32", -132, None),
    Datapath((89,), ("m16n8k16", "m16n8k32"), FP8, 16, 13, "e8m13", -133, -21),
    Datapath((90, 100, 120), ("m16n8k8", "m16n8k16"), ("f16", "bf16"), None, 25, "f32", -133, -21),
    Datapath((90, 100, 120), ("m16n8k4", "m16n8k8"), ("tf32",), None, 25, "f32", -133, None),
    Datapath((120,), ("m16n8k16", "m16n8k32"), FP8 + FP6_FP4, None, 25, "f32", -133, -21),
)


def mma(mnemonic: str, arch: str, a: Sequence[Codes], b: Sequence[Codes], c: Sequence[Codes]) -> list[list[int]]:
    """D = A * B + C in codes: `a` M rows of K, `b` K rows of N, `c` and the result M rows of N (sections 1 to 3)."""
    instruction = parse(mnemonic)
    _check_size("A", a, instruction.m, instruction.k)
    _check_size("B", b, instruction.k, instruction.n)
    _check_size("C", c, instruction.m, instruction.n)
    columns = list(zip(*b, strict=True))
    return [
        [element(mnemonic, arch, a_row, b_column, c_code) for b_column, c_code in zip(columns, c_row, strict=True)]
        for a_row, c_row in zip(a, c, strict=True)
    ]


def element(mnemonic: str, arch: str, a_row: Codes, b_col: Codes, c: int) -> int:
    """One element of D from one row of A, one column of B and one element of C (sections 1 to 3)."""
    instruction = parse(mnemonic)
    chip = generation(instruction, arch)
    if not len(a_row) == len(b_col) == instruction.k:
        raise ValueError(f"{mnemonic} takes {instruction.k} elements of A and B, not {len(a_row)} and {len(b_col)}")

    if instruction.a == "b1":
        assert instruction.bit_operation is not None
        return bit_dot(a_row, b_col, c, operation=instruction.bit_operation)
    if instruction.a in INT4 and chip >= 90:
        return _int4_on_int8(instruction, a_row, b_col, c)
    if instruction.a in INT8 + INT4:
        formats = {"a_format": instruction.a, "b_format": instruction.b}
        return integer_dot(a_row, b_col, c, **formats, saturate=instruction.saturate)
    if instruction.a == "f64":
        return _f64_chain(instruction, a_row, b_col, c)
    if instruction.a in FP8 and chip in (90, 100):
        return _fp8_on_f16(instruction, chip, a_row, b_col, c)
    if instruction.shape == "m8n8k4" and chip >= 80:
        return _m8n8k4_on_cuda_cores(instruction, a_row, b_col, c)
    return _fused_steps(instruction, chip, a_row, b_col, c)


def _fused_steps(instruction: Instruction, chip: int, a: Codes, b: Codes, c: int) -> int:
    """Steps over ascending k, each one's rounded result being the next one's c (section 1.9)."""
    path = datapath(chip, instruction.shape, instruction.a)
    products = instruction.k if path.products is None else path.products
    result, result_format = c, instruction.c
    for k in range(0, instruction.k, products):
        a_part, b_part = a[k : k + products], b[k : k + products]
        result = _step(path, a_part, b_part, result, (instruction.a, instruction.b, result_format, instruction.d))
        result_format = instruction.d
    return result


def _fp8_on_f16(instruction: Instruction, chip: int, a: Codes, b: Codes, c: int) -> int:
    """fp8 where no tensor core knows it: two f16 steps from accumulator 0, then an ordinary addition (section 3)."""
    path = datapath(chip, f"m16n8k{instruction.k // 2}", "f16")
    formats = ("f16", "f16", instruction.d, instruction.d)
    accumulator = 0
    for chosen in ((0, 1), (2, 3)):
        a_part = [convert(code, instruction.a, "f16") for k, code in enumerate(a) if k % 4 in chosen]
        b_part = [convert(code, instruction.b, "f16") for k, code in enumerate(b) if k % 4 in chosen]
        accumulator = _step(path, a_part, b_part, accumulator, formats)
    return ieee_add(accumulator, c, instruction.d)


def _m8n8k4_on_cuda_cores(instruction: Instruction, a: Codes, b: Codes, c: int) -> int:
    """The Volta instruction on sm_80 and later: f32 operations to nearest even, no tensor core (section 3)."""
    x = [convert(code, "f16", "f32") for code in a]
    y = [convert(code, "f16", "f32") for code in b]
    wide_c = convert(c, instruction.c, "f32")
    if instruction.d == "f16":
        p01 = ieee_fma(x[1], y[1], ieee_mul(x[0], y[0], "f32"), "f32")
        p23 = ieee_fma(x[3], y[3], ieee_mul(x[2], y[2], "f32"), "f32")
        return convert(ieee_add(ieee_add(wide_c, p01, "f32"), p23, "f32"), "f32", "f16")
    t = 0
    for k in range(4):
        t = ieee_fma(x[k], y[k], t, "f32")
    return ieee_add(wide_c, t, "f32")


def _f64_chain(instruction: Instruction, a: Codes, b: Codes, c: int) -> int:
    """A chain of IEEE fma over ascending k, starting from c (section 3)."""
    for x, y in zip(a, b, strict=True):
        c = ieee_fma(x, y, c, "f64", instruction.rounding)
    return c


def _int4_on_int8(instruction: Instruction, a: Codes, b: Codes, c: int) -> int:
    """int4 where it is gone: an int8 dot from accumulator 0, which cannot overflow, then one addition (section 3)."""
    dot = integer_dot(a, b, 0, a_format=instruction.a, b_format=instruction.b)
    return integer_add(dot, c, saturate=instruction.saturate)


def datapath(chip: int, shape: str, inputs: str) -> Datapath:
    """The row of section 2 for a generation, a shape and the format of A."""
    for row in DATAPATHS:
        if chip in row.generations and shape in row.shapes and inputs in row.inputs:
            return row
    raise ValueError(f"sm_{chip} has no fused step for {shape} with {inputs}")


def _step(path: Datapath, a: Codes, b: Codes, c: int, formats: tuple[str, str, str, str]) -> int:
    """One fused step with the constants of `path`; `formats` are those of a, b, c and d."""
    a_format, b_format, c_format, d_format = formats
    floor = path.f16_floor if d_format == "f16" else path.f32_floor
    assert floor is not None
    return dot_add(
        a,
        b,
        c,
        a_format=a_format,
        b_format=b_format,
        c_format=c_format,
        fraction_bits=path.fraction_bits,
        floor=floor,
        output="f16" if d_format == "f16" else path.f32_output,
    )


def _check_size(name: str, matrix: Sequence[Codes], rows: int, columns: int) -> None:
    """Raise unless `matrix` has the size that the instruction wants."""
    if len(matrix) != rows or any(len(row) != columns for row in matrix):
        sizes = sorted({len(row) for row in matrix})
        raise ValueError(f"{name} must be {rows} rows of {columns} codes, not {len(matrix)} rows of {sizes}")
