"""What an mma.sp instruction computes on an arch, on Python integers: metadata, kept elements, steps; see docs/sparsity.md."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from .machine import Datapath, datapath
from .mnemonics import FP6_FP4, FP8, GENERATION, INT4, INT8
from .steps import convert, dot_add, ieee_add, integer_add, integer_dot

Codes = Sequence[int]

MNEMONIC = re.compile(
    r"mma\.sp(?:::ordered_metadata)?\.sync\.aligned(?:\.kind::f8f6f4)?\.m16n8k(?P<k>\d+)\.row\.col(?P<saturate>\.satfinite)?"
    r"\.(?P<d>\w+)\.(?P<a>\w+)\.(?P<b>\w+)\.(?P<c>\w+)"
)
STORED_BITS = {"tf32": 32, "f16": 16, "bf16": 16} | dict.fromkeys(FP8 + FP6_FP4 + INT8, 8) | dict.fromkeys(INT4, 4)
TF32_ELEMENT = {0b0100: 0, 0b1110: 1}  # both 16-bit halves of the first, or of the second, of two elements


@dataclass(frozen=True)
class Sparse:
    """One mma.sp instruction: D = A * B + C, A of 16 x K with half of each row kept, B of K x 8."""

    k: int
    d: str  # the four formats
    a: str
    b: str
    c: str
    saturate: bool  # .satfinite

    @property
    def unit_bits(self) -> int:
        """Width of what one 2-bit index selects."""
        return 16 if STORED_BITS[self.a] >= 16 else 8

    @property
    def group_columns(self) -> int:
        """Dense columns that one 4-bit group speaks of: four units."""
        return 4 * self.unit_bits // STORED_BITS[self.a]

    @property
    def groups(self) -> int:
        """4-bit groups of a row."""
        return self.k // self.group_columns

    @property
    def kept_of_group(self) -> int:
        """Kept elements of a group: half of its columns."""
        return self.group_columns // 2


@cache
def parse(mnemonic: str) -> Sparse:
    """The instruction that `mnemonic` names; ValueError if it is not spelled like one."""
    match = MNEMONIC.fullmatch(mnemonic)
    if match is None or match["a"] not in STORED_BITS:
        raise ValueError(f"{mnemonic!r} is not spelled like an mma.sp instruction")
    return Sparse(int(match["k"]), match["d"], match["a"], match["b"], match["c"], match["saturate"] is not None)


# ---- metadata


def place(instruction: Sparse, row: int, group: int, selector: int) -> tuple[int, int]:
    """The lane whose metadata word holds a 4-bit group of a row of A, and the lowest of the group's bits in it."""
    first_of_quad, lower_half = 4 * (row % 8), row // 8
    match instruction.unit_bits, instruction.groups:
        case 16, 4:
            return first_of_quad + selector, 16 * lower_half + 4 * group
        case 16, 8:
            return first_of_quad + 2 * selector + group // 4, 16 * lower_half + 4 * (group % 4)
        case 8, 8:
            return first_of_quad + 2 * selector + lower_half, 4 * group
        case 8, 16:
            return first_of_quad + lower_half + 2 * (group // 8), 4 * (group % 8)
    raise ValueError(f"{instruction.groups} groups of {instruction.unit_bits}-bit units have no known place")


def group_of_word(mnemonic: str, words: Codes, row: int, group: int, selector: int) -> int:
    """The 4 bits of a group of a row, from the metadata words of the 32 lanes."""
    lane, bit = place(parse(mnemonic), row, group, selector)
    return words[lane] >> bit & 0b1111


def kept_in_group(instruction: Sparse, bits: int) -> list[int]:
    """Which columns of its group a 4-bit group keeps, in the order of A's elements; each index by itself.

    Indices may be in any order or equal. ValueError for a tf32 group that names halves of different elements.
    """
    if instruction.a == "tf32":
        if bits not in TF32_ELEMENT:
            raise ValueError(f"0b{bits:04b} mixes the halves of two tf32 elements")
        return [TF32_ELEMENT[bits]]
    kept = []
    for index in (bits & 0b11, bits >> 2):
        if instruction.a in INT4:  # a unit is a pair
            kept += [2 * index, 2 * index + 1]
        else:
            kept.append(index)
    return kept


def columns_of_words(mnemonic: str, words: Codes, selector: int) -> list[list[int]]:
    """The dense column of every kept element of each row of A, from the metadata words of the 32 lanes."""
    instruction = parse(mnemonic)
    rows = []
    for row in range(16):
        columns = []
        for group in range(instruction.groups):
            bits = group_of_word(mnemonic, words, row, group, selector)
            columns += [instruction.group_columns * group + column for column in kept_in_group(instruction, bits)]
        rows.append(columns)
    return rows


def columns_of_positions(mnemonic: str, positions: Sequence[Codes]) -> list[list[int]]:
    """The dense column of every kept element of each row of A, from the positions of the elements in their groups."""
    instruction = parse(mnemonic)
    return [
        [
            instruction.group_columns * (number // instruction.kept_of_group) + position
            for number, position in enumerate(row)
        ]
        for row in positions
    ]


# ---- arithmetic


def mma(
    mnemonic: str, arch: str, a: Sequence[Codes], columns: Sequence[Codes], b: Sequence[Codes], c: Sequence[Codes]
) -> list[list[int]]:
    """D in codes: `a` 16 rows of K / 2 kept codes, `columns` the dense column of each, `b` K rows of 8, `c` 16 rows of 8."""
    return [
        [element(mnemonic, arch, kept, own, [row[n] for row in b], addend) for n, addend in enumerate(addends)]
        for kept, own, addends in zip(a, columns, c, strict=True)
    ]


def element(mnemonic: str, arch: str, kept: Codes, columns: Codes, b_column: Codes, c: int) -> int:
    """One element of D: the kept codes of a row of A, the dense column of each, a column of B, an element of C."""
    instruction, chip = parse(mnemonic), GENERATION[int(arch.removeprefix("sm_"))]
    if not len(kept) == len(columns) == instruction.k // 2 or len(b_column) != instruction.k:
        raise ValueError(f"{mnemonic} keeps {instruction.k // 2} of {instruction.k} elements")
    met = [b_column[column] for column in columns]  # each kept element meets the row of B that its index names

    if instruction.a in INT8 + INT4:
        a_format, b_format, saturate = instruction.a, instruction.b, instruction.saturate
        if a_format in INT4 and chip >= 90:  # int8 from accumulator 0, which cannot overflow, then one addition
            return integer_add(integer_dot(kept, met, 0, a_format=a_format, b_format=b_format), c, saturate=saturate)
        return integer_dot(kept, met, c, a_format=a_format, b_format=b_format, saturate=saturate)

    if instruction.a in FP8 and chip in (90, 100):
        return _fp8_on_f16(instruction, chip, kept, met, c)

    # The dense unit of the kept elements, in order: on sm_90 and later all of them in one step.
    path = datapath(chip, f"m16n8k{instruction.k // 2}", instruction.a)
    length = len(kept) if path.products is None else path.products
    result, result_format = c, instruction.c
    for start in range(0, len(kept), length):
        formats = (instruction.a, instruction.b, result_format, instruction.d)
        result = _step(path, kept[start : start + length], met[start : start + length], result, formats)
        result_format = instruction.d
    return result


def _fp8_on_f16(instruction: Sparse, chip: int, kept: Codes, met: Codes, c: int) -> int:
    """fp8 where no tensor core knows it: two f16 steps, of the even and of the odd groups, then an ordinary addition."""
    path = datapath(chip, "m16n8k16", "f16")
    result = 0
    for parity in (0, 1):
        own = [j for j in range(len(kept)) if j // instruction.kept_of_group % 2 == parity]
        a = [convert(kept[j], instruction.a, "f16") for j in own]
        b = [convert(met[j], instruction.b, "f16") for j in own]
        result = _step(path, a, b, result, ("f16", "f16", instruction.d, instruction.d))
    return ieee_add(result, c, instruction.d)


def _step(path: Datapath, a: Codes, b: Codes, c: int, formats: tuple[str, str, str, str]) -> int:
    """One fused step; `formats` are those of a, b, c and d."""
    a_format, b_format, c_format, d_format = formats
    floor = path.f16_floor if d_format == "f16" else path.f32_floor
    if floor is None:
        raise ValueError(f"this datapath has no {d_format} result")
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
