"""Where an sm_90 matrix descriptor reads each element: one element at a time, from the statement in docs/descriptors.md."""

from __future__ import annotations

XOR_BITS = {0: 0, 1: 3, 2: 2, 3: 1}  # swizzle mode -> address bits that are exchanged
SPAN = {0: 16, 1: 128, 2: 64, 3: 32}  # swizzle mode -> bytes of one row of the pattern


def element_address(descriptor: int, row: int, k: int, element_bits: int, mn_major: bool) -> int:
    """The byte that holds element (row, k) of the tile; `row` runs along M or N."""
    start = (descriptor & 0x3FFF) * 16
    leading = (descriptor >> 16 & 0x3FFF) * 16
    stride = (descriptor >> 32 & 0x3FFF) * 16
    base_offset = descriptor >> 49 & 7
    mode = descriptor >> 62
    if mn_major:
        in_chunk, chunk = row % 8 * 2, row // 8
        if mode == 0:
            offset = in_chunk + chunk * stride + k % 8 * 16 + k // 8 * leading
        else:
            chunks = SPAN[mode] // 16
            offset = in_chunk + chunk % chunks * 16 + chunk // chunks * leading + k % 8 * SPAN[mode] + k // 8 * stride
    else:
        byte = k * element_bits // 8
        offset = row % 8 * SPAN[mode] + row // 8 * stride
        offset += byte // SPAN[mode] * leading + byte % SPAN[mode]
    address = start + offset
    row_of_pattern = address // 128 - base_offset
    for bit in range(XOR_BITS[mode]):
        address ^= (row_of_pattern >> bit & 1) << (4 + bit)
    return address
