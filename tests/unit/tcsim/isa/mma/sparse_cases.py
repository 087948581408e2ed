"""Sparse instructions that several test modules use, and matrices and metadata for them."""

from __future__ import annotations

import random
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

import tcsim
from tcsim import catalog
from tcsim.isa.mma.sparse_multiply import SparseMatrixMultiply
from tcsim.isa.mma.sparse_operand import SparseRow
from tcsim.layouts.sparsity import Sparsity

ROWS = {name: row for name, row in catalog.rows().items() if row.family == "mma.sp"}
COMPARED_ARCHS = ("sm_80", "sm_89", "sm_90", "sm_100", "sm_120")  # one of every arithmetic
EQUAL = (0b0000, 0b0101, 0b1010, 0b1111)  # both indices the same

HALF = "mma.sp.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
LONG_HALF = "mma.sp.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32"
ORDERED = "mma.sp::ordered_metadata.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
TF32 = "mma.sp.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32"
LONG_TF32 = "mma.sp.sync.aligned.m16n8k16.row.col.f32.tf32.tf32.f32"
FP8 = "mma.sp.sync.aligned.m16n8k64.row.col.f32.e4m3.e5m2.f32"
INT8 = "mma.sp.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32"
LONG_INT8 = "mma.sp.sync.aligned.m16n8k64.row.col.s32.u8.s8.s32"
INT4 = "mma.sp.sync.aligned.m16n8k64.row.col.s32.s4.s4.s32"
LONG_INT4 = "mma.sp.sync.aligned.m16n8k128.row.col.s32.u4.s4.s32"
LAYOUTS = (HALF, ORDERED, LONG_HALF, TF32, LONG_TF32, FP8, INT8, LONG_INT8, INT4, LONG_INT4)


def instruction(mnemonic: str, arch: str = "sm_90") -> SparseMatrixMultiply:
    """A sparse instruction."""
    found: SparseMatrixMultiply = tcsim.instruction(mnemonic, arch=arch)
    return found


@cache
def on_arch(arch: str) -> frozenset[str]:
    """The sparse mnemonics of an arch."""
    return frozenset(row.mnemonic for row in catalog.on_arch(arch, "mma.sp"))


def facts(mnemonic: str) -> Sparsity:
    """How the metadata of a row is stored."""
    row = ROWS[mnemonic]
    assert isinstance(row, SparseRow) and row.sparsity
    return row.sparsity


def some_words(ins: SparseMatrixMultiply, stream: random.Random) -> npt.NDArray[np.uint32]:
    """32 metadata words that the instruction takes: any bits where it takes any, else nibbles that mean something."""
    if ins.takes_any_group:
        return np.array([stream.getrandbits(32) for _ in range(32)], np.uint32)
    valid = ins.sparsity.valid
    return np.array([sum(stream.choice(valid) << 4 * n for n in range(8)) for _ in range(32)], np.uint32)


def sparse_codes(ins: SparseMatrixMultiply, generator: np.random.Generator, values: tuple[int, int] = (0, 256)) -> Any:
    """A dense A of random codes with at most half of each group nonzero, in units, at random places."""
    own, format = ins.sparsity, ins.operands["a"].format
    unit = max(1, own.unit_bits // own.element_bits)
    units = own.group // unit
    order = np.argsort(generator.random((own.rows, own.groups, units)), axis=-1)
    used = np.repeat((order < units // 2).reshape(own.rows, -1), unit, axis=-1)
    codes = generator.integers(*values, (own.rows, own.k)) % (1 << format.bits)
    return np.where(used, codes << format.ignored_low_bits, 0).astype(format.dtype)
