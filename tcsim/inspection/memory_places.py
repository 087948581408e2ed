"""Where an element of an operand lies that is not in registers: the byte behind a matrix descriptor, the cell of Tensor Memory; and back."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tcsim.core.errors import OperandError, listing
from tcsim.descriptors.forms import Major
from tcsim.descriptors.matrix import MatrixDescriptor
from tcsim.layouts.swizzle import DESCRIPTOR_SWIZZLES
from tcsim.memory.tmem_matrix import LANES, TmemLayout
from tcsim.model.instruction import Instruction
from tcsim.numbers.formats import Format

WARPGROUP = ("wgmma", "wgmma.sp")
"""Families whose A and B lie behind descriptors, on a warpgroup."""
TENSOR_MEMORY = "tcgen05.mma"
"""With what the families begin whose matrices lie in Tensor Memory."""
BANKS, BANK_BYTES, CHUNK = 32, 4, 16


@dataclass(frozen=True)
class SharedPlace:
    """An element in shared memory."""

    operand: str
    row: int
    column: int
    cta: int  # of a pair; 0 of one CTA
    byte: int  # where it begins, with the swizzle
    bit: int  # inside that byte
    bits: int  # of the element
    unswizzled: int  # the byte without the swizzle

    @property
    def bank(self) -> int:
        """The bank of four bytes."""
        return self.byte // BANK_BYTES % BANKS

    def __str__(self) -> str:
        bits = f"[{self.bit + self.bits - 1}:{self.bit}]" if self.bits < 8 else ""
        moved = f", without the swizzle {self.unswizzled:#x}" if self.unswizzled != self.byte else ""
        return f"byte {self.byte:#x}{bits} of shared memory, bank {self.bank}{moved}"

    def as_dict(self) -> dict[str, Any]:
        """The keys of JSON."""
        return {**asdict(self), "bank": self.bank}


@dataclass(frozen=True)
class SharedOperand:
    """A matrix in shared memory as descriptors read it: each CTA's share of its rows."""

    name: str
    rows: int  # of one CTA, along M or N
    k: int
    ctas: int
    format: Format
    descriptor: MatrixDescriptor
    bits: int  # that an element takes
    at: npt.NDArray[np.int64]  # (rows, k): bit addresses
    plain: npt.NDArray[np.int64]  # the same without the swizzle

    def place(self, row: int, column: int) -> SharedPlace:
        """Where an element lies: a(m, k), b(k, n).

        Raises OperandError for one that does not exist.
        """
        along, k = (column, row) if self.name == "b" else (row, column)
        shape = (self.k, self.rows * self.ctas) if self.name == "b" else (self.rows * self.ctas, self.k)
        for what, given, limit in zip(("row", "column"), (row, column), shape, strict=True):
            if not 0 <= given < limit:
                raise OperandError(f"{self.name}: {what} {given} does not exist; valid are 0 to {limit - 1}")
        cta, inner = divmod(along, self.rows)
        bit, plain = int(self.at[inner, k]), int(self.plain[inner, k])
        return SharedPlace(self.name, row, column, cta, bit // 8, bit % 8, self.bits, plain // 8)

    def at_byte(self, byte: int) -> tuple[SharedPlace, ...]:
        """The elements of the first CTA of which a byte holds bits.

        Raises OperandError if there is none.
        """
        found = np.argwhere((self.at // 8 <= byte) & ((self.at + self.bits - 1) // 8 >= byte))
        if not len(found):
            first, last = int(self.at.min()) // 8, int(self.at.max() + self.bits - 1) // 8
            raise OperandError(
                f"{self.name}: byte {byte:#x} holds no element; the matrix lies in {first:#x} to {last:#x}"
            )
        pairs = (map(int, pair) for pair in found)
        return tuple(self.place(k, along) if self.name == "b" else self.place(along, k) for along, k in pairs)


def shared_operand(
    instruction: Instruction,
    name: str,
    descriptor: int | None = None,
    swizzle: str = "128B",
    major: Major | None = None,
    start: int = 0,
    k: int = 0,
    idesc: int | None = None,
) -> SharedOperand:
    """A or B of wgmma or tcgen05.mma in shared memory: behind a descriptor's 64 bits, or as a canonical tile lies.

    `k` is that of the whole tile, several instructions long; 0: of one. tcgen05.mma needs its instruction descriptor, which also
    says the major.

    Raises OperandError for another instruction or operand, and as `MatrixDescriptor.for_tile` does.

    >>> wgmma = tcsim.instruction("wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16", arch="sm_90a")
    >>> print(shared_operand(wgmma, "b", k=64).place(9, 5))
    byte 0x2c2 of shared memory, bank 16, without the swizzle 0x292
    """
    if name not in ("a", "b"):
        raise OperandError(f"{instruction.mnemonic}: {name} is not in shared memory; valid: a, b")
    rows, step, ctas, kind, own = _shared_shape(instruction, name, idesc)
    format, arch = instruction_format(instruction, name, idesc), instruction.arch.name
    lies: Major = major or own
    if descriptor is not None:
        given = MatrixDescriptor.decode(descriptor, arch=arch)
        at = given.bit_addresses(rows, k or step, format, lies, kind)
    else:
        tile = MatrixDescriptor.for_tile(rows, k or step, format, lies, swizzle, start, arch, kind)
        given, at = tile.descriptor, tile.bit_addresses
    pattern = DESCRIPTOR_SWIZZLES[given.swizzle]
    bits = 8 if format.bits == 8 else format.container_bits if format.bits > 8 else format.bits
    plain = pattern(at // 8) * 8 + at % 8  # swizzling twice gives back the address
    return SharedOperand(name, rows, k or step, ctas, format, given, bits, at, plain)


def _shared_shape(instruction: Any, name: str, idesc: int | None) -> tuple[int, int, int, str, Major]:
    """Rows of a CTA, K of one instruction, CTAs, the tcgen05 kind, and the major that the instruction descriptor says."""
    if instruction.row.family in WARPGROUP:
        m, n, k = instruction.shape
        return (n, k, 1, "", "K") if name == "b" else (m, instruction.operands["a"].shape[1], 1, "", "K")
    if instruction.row.family.startswith(TENSOR_MEMORY):
        desc = _described(instruction, idesc).desc
        ctas = instruction.row.cta_group
        stored = desc.k // 2 if desc.sparse and name == "a" else desc.k
        turned = desc.transpose_a if name == "a" else desc.transpose_b
        return (desc.m if name == "a" else desc.n) // ctas, stored, ctas, desc.kind, "MN" if turned else "K"
    raise OperandError(
        f"{instruction.mnemonic} reads no matrix through descriptors; valid: wgmma.mma_async, tcgen05.mma"
    )


def instruction_format(instruction: Instruction, name: str, idesc: int | None) -> Format:
    """The number format of an operand; of tcgen05.mma, the one that the instruction descriptor says."""
    if instruction.row.family.startswith(TENSOR_MEMORY):
        found: Format = _described(instruction, idesc).formats[name]
        return found
    formats: dict[str, Format] = instruction.formats
    return formats[name]


def tensor_memory_operand(instruction: Instruction, name: str, idesc: int | None) -> TmemLayout:
    """D, A, the scale factors or the metadata of tcgen05.mma in Tensor Memory.

    Raises OperandError for another instruction, or without its instruction descriptor.

    >>> mma = tcsim.instruction("tcgen05.mma.cta_group::1.kind::f16", arch="sm_100a")
    >>> tensor_memory_operand(mma, "d", tcsim.InstructionDescriptor("f16", 128, 64, a_format="bf16").encode()).where(33, 5)
    (0, 33, 5, 0)
    """
    if not instruction.row.family.startswith(TENSOR_MEMORY):
        raise OperandError(f"{instruction.mnemonic} has no matrix in Tensor Memory; valid: tcgen05.mma")
    layout: TmemLayout = _described(instruction, idesc).layout("d" if name == "c" else name)
    return layout


def _described(instruction: Any, idesc: int | None) -> Any:
    """tcgen05.mma with its instruction descriptor."""
    from tcsim.isa.tcgen05.multiply_operands import described  # wgmma's operands do without this family

    return described(instruction, _needed(instruction, idesc))


def _needed(instruction: Instruction, idesc: int | None) -> int:
    if idesc is None:
        raise OperandError(
            f"{instruction.mnemonic}: its shape is in the instruction descriptor; valid: --idesc VALUE, from tcsim idesc encode"
        )
    return idesc


def cell_text(layout: TmemLayout, cell: tuple[int, int, int, int], address: int = 0) -> str:
    """A cell of Tensor Memory in words, at the matrix's address.

    >>> from tcsim.memory.tmem_layout import accumulator_layout
    >>> cell_text(accumulator_layout(128, 64), (0, 33, 5, 0), 0x40)
    'lane 33, column 69 of Tensor Memory (address 0x210045)'
    """
    cta, lane, column, slot = cell
    lane, column = (address >> 16) + lane, (address & 0xFFFF) + column
    if lane >= LANES:
        raise OperandError(
            f"address {address:#x}: lane {lane} does not exist; valid lanes: {listing(layout.lane_bases)}"
        )
    low = slot * layout.element_bits
    bits = f"[{low + layout.element_bits - 1}:{low}]" if layout.element_bits < 32 else ""
    pair = f" of CTA {cta}" if layout.ctas > 1 else ""
    return f"lane {lane}, column {column}{bits} of Tensor Memory{pair} (address {lane << 16 | column:#x})"
