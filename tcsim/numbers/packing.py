"""Codes in and out of 32-bit registers.

An element sits in a field of its register: as wide as its code for 4, 8, 16, 32 and 64 bits and for b1; fp6 and fp4
operands of f8f6f4 instructions sit in a byte, fp6 in its bits 5:0 and fp4 in its bits 5:2 (PTX ISA, section Packing of
sub-byte data for mma; for tcgen05 the same). Registers are little-endian: slot 0 is the lowest bits.

The padding of such a byte is zero in what `pack` makes. What mma.sync makes of other padding: `field_format`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tcsim.numbers.formats import FORMATS, Format


def field_shift(format: Format, element_bits: int) -> int:
    """How far above the bottom of its field a code sits: 2 for fp4 in a byte, else 0."""
    return 2 if format.bits == 4 and element_bits == 8 else 0


def field_format(format: Format, element_bits: int) -> Format:
    """The format of all bits of a field that mma.sync multiplies: of fp4 in a byte, e2m3 of its six low bits.

    The two agree where the padding is zero. Source: nine results of an RTX PRO 6000 with random padding (docs/sparsity.md).

    >>> field_format(FORMATS["e2m1"], 8).name, field_format(FORMATS["e2m1"], 4).name, field_format(FORMATS["e3m2"], 8).name
    ('e2m3', 'e2m1', 'e3m2')
    """
    return FORMATS["e2m3"] if format.name == "e2m1" and element_bits == 8 else format


def unpack(registers: npt.NDArray[np.uint32], format: Format, element_bits: int) -> npt.NDArray[Any]:
    """Registers (..., n) to codes (..., n * 32 / element_bits) in slot order; padding bits are dropped.

    >>> unpack(np.array([0x3C004000], np.uint32), FORMATS["f16"], 16)
    array([16384, 15360], dtype=uint16)
    """
    registers = np.ascontiguousarray(registers, "<u4")
    shape = (*registers.shape[:-1], registers.shape[-1] * 32 // element_bits)
    if element_bits == 1:
        return np.unpackbits(registers.view(np.uint8), axis=-1, bitorder="little").reshape(shape)
    if element_bits == 4:
        octets = registers.view(np.uint8)
        codes = np.empty((*octets.shape, 2), np.uint8)
        np.bitwise_and(octets, 15, out=codes[..., 0])
        np.right_shift(octets, 4, out=codes[..., 1])
        return codes.reshape(shape)
    codes = registers.view(f"<u{element_bits // 8}")
    if format.bits < 8:  # fp6 or fp4 in a byte
        return (codes >> field_shift(format, element_bits)) & np.uint8(format.code_mask)
    return codes


def pack(codes: npt.NDArray[Any], format: Format, element_bits: int) -> npt.NDArray[np.uint32]:
    """Codes (..., n) to registers (..., n * element_bits / 32); padding bits are zero.

    >>> hex(pack(np.array([0xF, 1], np.uint8).repeat(2), FORMATS["e2m1"], 8)[0])
    '0x4043c3c'
    """
    shape = (*codes.shape[:-1], codes.shape[-1] * element_bits // 32)
    if element_bits == 1:
        return np.packbits(codes.astype(np.uint8), axis=-1, bitorder="little").view("<u4").reshape(shape)
    if element_bits == 4:
        pairs = codes.astype(np.uint8).reshape(*shape[:-1], codes.shape[-1] // 2, 2)
        octets = pairs[..., 0] | (pairs[..., 1] << np.uint8(4))
        return np.ascontiguousarray(octets).view("<u4").reshape(shape)
    fields = codes.astype(f"<u{element_bits // 8}") << codes.dtype.type(field_shift(format, element_bits))
    return np.ascontiguousarray(fields).view("<u4").reshape(shape)


def unpacked_fields(octets: npt.NDArray[np.uint8], bits: int) -> npt.NDArray[np.uint8]:
    """The fields of up to 8 bits (..., 8 n / bits) that follow one another in bytes (..., n), low bits first.

    >>> unpacked_fields(np.uint8([0b10_001_000, 0, 0]), 3).tolist()
    [0, 1, 2, 0, 0, 0, 0, 0]
    """
    if bits == 4:
        return np.stack([octets & np.uint8(15), octets >> np.uint8(4)], axis=-1).reshape(*octets.shape[:-1], -1)
    split = np.unpackbits(octets, axis=-1, bitorder="little").reshape(*octets.shape[:-1], -1, bits)
    return np.asarray(np.packbits(split, axis=-1, bitorder="little")[..., 0], np.uint8)
