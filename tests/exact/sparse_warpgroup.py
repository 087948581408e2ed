"""What a wgmma.mma_async.sp instruction computes, on Python integers: metadata, kept elements, one step; see docs/sparsity.md.

Who holds which metadata is written forward here, from a thread and a bit to a row and a column, as the figures of the PTX
manual (sections Matrix fragments for sparse wgmma) and CUTLASS's `ELayout_64x16`, `_64x32` and `_64x64` have it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from .descriptors import element_address
from .steps import Output, dot_add, integer_dot

MNEMONIC = re.compile(
    r"wgmma\.mma_async\.sp\.sync\.aligned\.m64n(?P<n>\d+)k(?P<k>\d+)(?P<saturate>\.satfinite)?"
    r"\.(?P<d>\w+)\.(?P<a>\w+)\.(?P<b>\w+)"
)
STORED_BITS = {"tf32": 32, "f16": 16, "bf16": 16, "e4m3": 8, "e5m2": 8, "s8": 8, "u8": 8}
TF32_ELEMENT = {0b0100: 0, 0b1110: 1}  # both 16-bit halves of the first, or of the second, of two elements


@dataclass(frozen=True)
class SparseWarpgroup:
    """One instruction: D = A * B + C, A of 64 x K with half of each row kept, B of K x N."""

    n: int
    k: int
    d: str  # the formats; that of C is D's
    a: str
    b: str
    saturate: bool  # .satfinite

    @property
    def bits(self) -> int:
        """Bits of an element of A in memory; those of B are the same."""
        return STORED_BITS[self.a]

    @property
    def chunk(self) -> int:
        """Neighbouring columns that one 4-bit index pair speaks of."""
        return 2 if self.a == "tf32" else 4


@cache
def parse(mnemonic: str) -> SparseWarpgroup:
    """The instruction that `mnemonic` names; ValueError if it is not spelled like one."""
    match = MNEMONIC.fullmatch(mnemonic)
    if match is None or match["a"] not in STORED_BITS:
        raise ValueError(f"{mnemonic!r} is not spelled like a sparse wgmma instruction")
    named = {name: match[name] for name in "dab"}
    return SparseWarpgroup(int(match["n"]), int(match["k"]), **named, saturate=match["saturate"] is not None)


def columns_of_words(mnemonic: str, words: Sequence[int], selector: int) -> list[list[int]]:
    """The dense column of every kept element of each of the 64 rows of A, from the metadata words of the 128 threads."""
    instruction = parse(mnemonic)
    said: dict[tuple[int, int], int] = {}  # (row, first column of a chunk) -> its 4 bits
    for thread in range(128):
        for nibble in range(8):
            place = chunk_of(instruction, thread, nibble, selector)
            if place is not None:
                said[place] = words[thread] >> 4 * nibble & 0b1111
    if len(said) != 64 * instruction.k // instruction.chunk:
        raise ValueError(f"{mnemonic}: {len(said)} chunks are spoken of")
    return [
        [
            first + kept
            for first in range(0, instruction.k, instruction.chunk)
            for kept in _kept(instruction, said[row, first])
        ]
        for row in range(64)
    ]


def chunk_of(instruction: SparseWarpgroup, thread: int, nibble: int, selector: int) -> tuple[int, int] | None:
    """The (row, first column) that 4 bits of a thread's word speak of, or None if the selector does not name the thread."""
    in_quad, row = thread % 4, 16 * (thread // 32) + thread // 4 % 8
    if instruction.bits == 8:  # one row of 32 columns a thread; threads 0 and 2 of four have row g, 1 and 3 row g + 8
        if selector != 0:
            raise ValueError("all threads contribute: the selector must be 0")
        return row + 8 * (in_quad % 2), 32 * (in_quad // 2) + 4 * nibble
    if in_quad // 2 != selector:  # a pair of threads: T0, T1 or T2, T3
        return None
    # two rows of four chunks a thread, the first thread of the pair the lower half of K
    return row + 8 * (nibble // 4), instruction.k // 2 * (in_quad % 2) + instruction.chunk * (nibble % 4)


def _kept(instruction: SparseWarpgroup, bits: int) -> list[int]:
    """Which columns of its chunk 4 bits keep, in the order of A's elements; each index by itself."""
    if instruction.a == "tf32":
        return [TF32_ELEMENT[bits]]
    return [bits & 0b11, bits >> 2]


def read(instruction: SparseWarpgroup, image: bytes, descriptor: int, row: int, k: int, mn_major: bool) -> int:
    """The code of an element of A or B in shared memory."""
    address = element_address(descriptor, row, k, instruction.bits, mn_major)
    return int.from_bytes(image[address : address + instruction.bits // 8], "little")


def element(mnemonic: str, kept: Sequence[int], met: Sequence[int], c: int) -> int:
    """One element of D: the kept codes of a row of A, those of B that they meet, an element of C: one step for all of them."""
    instruction = parse(mnemonic)
    if not len(kept) == len(met) == instruction.k // 2:
        raise ValueError(f"{mnemonic} keeps {instruction.k // 2} of {instruction.k} elements")
    formats = {"a_format": instruction.a, "b_format": instruction.b}
    if instruction.d == "s32":
        return integer_dot(kept, met, c, **formats, saturate=instruction.saturate)
    fp8 = instruction.bits == 8
    output: Output = "f16" if instruction.d == "f16" else "e8m13" if fp8 else "f32"
    return dot_add(
        kept,
        met,
        c,
        **formats,
        c_format=instruction.d,
        fraction_bits=13 if fp8 else 25,
        floor=-21 if instruction.d == "f16" else -133,
        output=output,
    )


def negated(code: int, name: str) -> int:
    """A code with its sign changed."""
    return code ^ 1 << (STORED_BITS[name] - 1)
