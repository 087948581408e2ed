"""Rows of matrices in shared memory: how each format of them holds its elements."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True)
class RowFormat:
    """How one row of a matrix (a column, with `.trans`) lies in memory: elements from the lowest bits up, then padding."""

    name: str  # as PTX spells the source type
    bits: int  # of one element in memory
    elements: int  # in a row
    row_bytes: int  # the row with its padding; also what its address must be a multiple of
    container_bits: int  # of one element in a register
    signed: bool = False  # an element is sign-extended to its container; else its upper bits are zero


ROW_FORMATS: MappingProxyType[str, RowFormat] = MappingProxyType(
    {
        row.name: row
        for row in (
            RowFormat("b16", 16, 8, 16, 16),
            RowFormat("b8", 8, 16, 16, 8),
            RowFormat("b6x16_p32", 6, 16, 16, 8),  # 12 bytes, and 4 of padding
            RowFormat("b4x16_p64", 4, 16, 16, 8),  # 8 bytes, and 8 of padding; bits 3:0 of the byte in the register
            RowFormat("s4", 4, 16, 8, 8, signed=True),  # 8 bytes without padding
        )
    }
)
"""Formats of rows by name. Sources: PTX ISA, sections ldmatrix and Optional Decompression; the comment of fp4_shift_A in
CUTLASS's mma_traits_sm120 (where fp4 lands in the byte); vLLM pull request 50096 (s4: 8-byte rows, run on an H100)."""


def unpack_rows(rows: npt.NDArray[np.uint8], format: RowFormat) -> npt.NDArray[Any]:
    """The elements of rows uint8 (..., row_bytes): (..., elements) in their containers, uint8 or uint16.

    >>> row = np.arange(8, dtype=np.uint8) + 0x80
    >>> unpack_rows(row, ROW_FORMATS["s4"])[:4]
    array([  0, 248,   1, 248], dtype=uint8)
    """
    if format.bits == format.container_bits:
        return np.ascontiguousarray(rows).view(f"<u{format.bits // 8}")
    stored = np.ascontiguousarray(rows[..., : format.bits * format.elements // 8])
    bits = np.unpackbits(stored, axis=-1, bitorder="little").reshape(*rows.shape[:-1], format.elements, format.bits)
    codes: npt.NDArray[np.uint8] = np.packbits(bits, axis=-1, bitorder="little")[..., 0]
    if not format.signed:
        return codes
    sign = np.uint8(1 << (format.bits - 1))
    return (codes ^ sign) - sign
