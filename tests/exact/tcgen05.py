"""Descriptors of tcgen05 and places in Tensor Memory: one element at a time, from the PTX ISA's tables and CUTLASS's layouts."""

from __future__ import annotations

D_TYPES = {"f16": 0, "f32": 1, "s32": 2}
AB_TYPES = {
    "f16": {"f16": 0, "bf16": 1},
    "tf32": {"tf32": 2},
    "f8f6f4": {"e4m3": 0, "e5m2": 1, "e2m3": 3, "e3m2": 4, "e2m1": 5},
    "i8": {"u8": 0, "s8": 1},
    "ti16": {"s1z4m11": 3},
    "mxf4": {"e2m1": 1},
}
AB_TYPES["mxf8f6f4"], AB_TYPES["mxf4nvf4"] = AB_TYPES["f8f6f4"], AB_TYPES["mxf4"]
SCALE_TYPES = {"ue4m3": 0, "ue8m0": 1, "ue5m3": 2}


def instruction_bits(kind: str, fields: dict, rubin: bool = False) -> int:
    """The 32 bits of a descriptor; `fields` has the names of tcsim.InstructionDescriptor, all of them."""
    f, value = fields, 0
    value |= f["sparse"] << 2
    value |= AB_TYPES[kind][f["a_format"]] << 7
    value |= AB_TYPES[kind][f["b_format"]] << 10
    value |= f["negate_a"] << 13 | f["negate_b"] << 14 | f["transpose_a"] << 15 | f["transpose_b"] << 16
    value |= f["n"] // 8 << 17
    value |= f["m"] // 16 << 24  # M >> 7 at bit 27 is the same for 128 and 256
    if kind in ("f16", "tf32", "f8f6f4", "i8", "ti16"):
        value |= f["sparsity_selector"] | f["saturate"] << 3 | D_TYPES[f["d_format"]] << 4
        value |= {0: 0, 8: 1, 16: 2, 32: 3}[f["max_shift"]] << 30
        if kind == "f8f6f4" and not f["sparse"] and f["k"] == 64:
            value |= 1 << 29
        return value
    value |= f["scale_b_id"] << 4 | f["scale_a_id"] << 29 | SCALE_TYPES[f["scale_format"]] << 23
    value |= (f["scale_a_lanes"] == 128) << 26
    if kind == "mxf8f6f4":
        return value | (f["k"] == (128 if f["sparse"] else 64)) << 31
    code = {(64, 0): 0, (96, 0): 1, (128, 0): 2, (128, 1): 0, (192, 1): 1}[f["k"], f["sparse"]]
    return value | (code & 1) << 31 | (code >> 1) << 3 | rubin << 12


SPANS = {0: 16, 1: 128, 2: 128, 4: 64, 6: 32}  # swizzle mode of sm_100 -> bytes of a row of the pattern


def shared_bit(descriptor: int, row: int, k: int, element_bits: int, mn_major: bool, padded: bool) -> int:
    """The first bit of element (row, k) of a tile that a descriptor of sm_100 or sm_107 reads; `row` runs along M or N."""
    start = (descriptor & 0x7FFF) * 16  # the 15th bit is sm_107's, and 0 elsewhere
    leading = (descriptor >> 16 & 0x7FFF) * 16
    stride = (descriptor >> 32 & 0x3FFF) * 16
    mode, far = descriptor >> 61, descriptor >> 52 & 1
    span = SPANS[mode]
    if mn_major:
        size, in_unit = element_bits // 8, 16 * 8 // element_bits
        unit, inside = row // in_unit, row % in_unit * size
        depth = 4 if mode == 1 else 8
        if mode == 0:
            byte = inside + unit * stride + k % 8 * 16 + k // 8 * leading
        else:
            units = span // 16
            byte = inside + unit % units * 16 + unit // units * leading + k % depth * span + k // depth * stride
        bit = 0
        address = start + byte
    else:
        position = k // 16 * 128 + k % 16 * element_bits if padded else k * element_bits
        byte, bit = position // 8, position % 8
        address = start + row % 8 * span + row // 8 * stride
        if mode == 0:
            address += byte // 16 * leading + byte % 16
        elif far and start % span + byte >= span:  # the rest of the row lies in the tile that LBO names
            address = leading + row % 8 * span + row // 8 * stride + start % span + byte - span
        else:
            address += byte
    if mode == 1:  # pieces of 32 bytes
        address ^= (address >> 7 & 3) << 5
    else:
        for one in range({0: 0, 2: 3, 4: 2, 6: 1}[mode]):
            address ^= (address >> (7 + one) & 1) << (4 + one)
    return address * 8 + bit


def accumulator_place(m: int, n: int, cta_group: int, ws: bool, sparse: bool, row: int, column: int) -> tuple:
    """(CTA, lane, column) of D's element, from the figures of layouts A to G."""
    if m == 256:  # A
        return row // 128, row % 128, column
    if m == 128 and cta_group == 2 and not sparse:  # B: the upper columns in lanes 64 to 127
        return row // 64, row % 64 + (64 if column >= n // 2 else 0), column % (n // 2)
    if m == 128 and cta_group == 2:  # C: 16 of each warp's 32 lanes
        return row // 64, row % 64 // 16 * 32 + row % 16, column
    if m == 128:  # D
        return 0, row, column
    if m == 64 and ws:  # E
        return 0, row + (64 if column >= n // 2 else 0), column % (n // 2)
    if m == 64:  # F
        return 0, row // 16 * 32 + row % 16, column
    return 0, row + 32 * (column // (n // 4)), column % (n // 4)  # G


def a_places(m: int, cta_group: int, ws: bool, sparse: bool, bits: int, row: int, k: int) -> set:
    """All (CTA, lane, column, slot) of a stored element of A."""
    per_word = 32 // bits
    rest = k // per_word, k % per_word
    if cta_group == 2 and m == 128 and not sparse:
        return {(row // 64, row % 64 + 64 * bank, *rest) for bank in range(2)}
    if ws and m < 128:
        return {(0, row + m * bank, *rest) for bank in range(128 // m)}
    cta, lane, _ = accumulator_place(m, 8, cta_group, ws, sparse, row, 0)
    return {(cta, lane, *rest)}


def scale_places(
    side: str, rows: int, m: int, cta_group: int, scale_id: int, row: int, vector: int, lanes: int = 32
) -> set:
    """All (CTA, lane, column, byte) of a scale factor of row `row` (of A) or column `row` (of B).

    `lanes` is 128 for those of A that lie in a lane each.
    """
    word, byte = divmod(scale_id + vector, 4)
    if side == "a" and lanes == 128:
        return {(row // (rows // cta_group), row % (rows // cta_group), word, byte)}
    if side == "a":
        cta, row = divmod(row, rows // cta_group)
        columns = 4 * -(-(rows // cta_group) // 128)
        return {(cta, 32 * warp + row % 32, row // 32 + word * columns, byte) for warp in range(4)}
    if cta_group == 2 and m == 128:
        half, row = divmod(row, rows // 2)
        columns = 4 * -(-(rows // 2) // 128)
        return {
            (cta, 64 * half + 32 * warp + row % 32, row // 32 + word * columns, byte)
            for warp in range(2)
            for cta in range(2)
        }
    columns = 4 * -(-rows // 128)
    return {
        (cta, 32 * warp + row % 32, row // 32 + word * columns, byte) for warp in range(4) for cta in range(cta_group)
    }


def metadata_places(kind: str, m: int, cta_group: int, ws: bool, selector: int, row: int, code: int) -> set:
    """All (CTA, lane, column, nibble) of a 4-bit code of a sparse A's metadata."""
    cta, row = divmod(row, m // cta_group)
    rows = m // cta_group
    half = rows == 64 and not ws
    lane = row // 16 * 32 + row % 16 if half else row
    found = set()
    for bank in range(128 // rows if ws else 1):
        if kind in ("f16", "tf32", "ti16"):
            group = lane // 16 * 16  # 16 lanes hold 16 rows
            at = (group + row % 8 + (8 if code >= 4 else 0), selector, (4 if row % 16 >= 8 else 0) + code % 4)
        else:
            at = (lane, code // 8, code % 8)
        found.add((cta, at[0] + rows * bank, at[1], at[2]))
    return found
