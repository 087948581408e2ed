"""A slow model of Tensor Memory and the instructions on it: dictionaries, loops and Python numbers, from the manual's words.

Cells are `{(cta, lane, column): word}`; a cell that is not there was never written. Sources: PTX ISA, sections Tensor Memory
Allocation and Management Instructions, Data Movement Shape (figures), Tensor Memory and Register Load/Store Instructions,
Tensor Memory Data Movement Instructions, spcompress, spdecompress.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from fractions import Fraction

Cells = dict[tuple[int, int, int], int]


def cell_of(shape: str, count: int, packed: bool, lane: int, register: int, half: int) -> tuple[int, int, int]:
    """(access, row, column) of one element: which of two accesses, and where in it, from its address on.

    `half` is 0 or 1: of a register with two packed elements, the lower or the upper.
    """
    if shape == "32x32b":
        access, row, word = 0, lane, register
    elif shape == "16x32bx2":
        access, row, word = lane // 16, lane % 16, register
    elif shape == "16x64b":
        access, row, word = 0, lane // 4 + (8 if lane % 2 else 0), 2 * register + lane % 4 // 2
    elif shape == "16x128b":
        access, row, word = 0, lane // 4 + (8 if register % 2 else 0), register // 2 * 4 + lane % 4
    elif shape == "16x256b":
        part = register % 4
        access, row, word = 0, lane // 4 + (8 if part >= 2 else 0), register // 4 * 8 + lane % 4 * 2 + part % 2
    else:
        raise ValueError(shape)
    return access, row, word * 2 + half if packed else word


def registers_of(shape: str, count: int) -> int:
    """Table 59."""
    return count * {"16x128b": 2, "16x256b": 4}.get(shape, 1)


def load(cells: Cells, shape: str, count: int, packed: bool, addresses: Sequence[int], cta: int = 0) -> list[list[int]]:
    """tcgen05.ld: the registers of 32 lanes."""
    out = []
    for lane in range(32):
        words = []
        for register in range(registers_of(shape, count)):
            parts = []
            for half in range(2 if packed else 1):
                access, row, column = cell_of(shape, count, packed, lane, register, half)
                address = addresses[access]
                parts.append(cells[cta, address // 65536 + row, address % 65536 + column])
            words.append(parts[0] if not packed else parts[0] % 65536 + parts[1] % 65536 * 65536)
        out.append(words)
    return out


def store(
    cells: Cells, shape: str, count: int, packed: bool, addresses: Sequence[int], registers: Sequence[Sequence[int]],
    cta: int = 0,
) -> Cells:  # fmt: skip
    """tcgen05.st: the cells after it; an unpacked element fills its cell with zeros above."""
    after = dict(cells)
    for lane in range(32):
        for register in range(registers_of(shape, count)):
            word = int(registers[lane][register])
            for half in range(2 if packed else 1):
                access, row, column = cell_of(shape, count, packed, lane, register, half)
                address = addresses[access]
                value = word if not packed else word // 65536 if half else word % 65536
                after[cta, address // 65536 + row, address % 65536 + column] = value
    return after


def number(word: int) -> float:
    """The f32 of a word."""
    value: float = struct.unpack("<f", struct.pack("<I", word))[0]
    return value


def reduce(words: Sequence[int], operation: str, kind: str, absolute: bool, nan: bool) -> int:
    """`.red` of the words of one lane."""
    if kind != "f32":
        signed = [word - (1 << 32) if kind == "s32" and word >= 1 << 31 else word for word in words]
        return (min(signed) if operation == "min" else max(signed)) % (1 << 32)
    if absolute:
        words = [word % (1 << 31) for word in words]
    numbers = [word for word in words if not math.isnan(number(word))]
    if not numbers or (nan and len(numbers) < len(words)):
        return 0x7FFFFFFF

    def key(word: int) -> tuple[float, int]:
        return number(word), 0 if word >> 31 else 1  # -0 before +0

    return (min if operation == "min" else max)(numbers, key=key)


def element_value(code: int, kind: str) -> Fraction | float:
    """The number of a code; NaN and infinity as floats, -0 as the float -0.0."""
    if kind == "u8":
        return Fraction(code)
    if kind == "s8":
        return Fraction(code - 256 if code >= 128 else code)
    sizes = {
        "f32": (8, 23),
        "f16": (5, 10),
        "bf16": (8, 7),
        "e5m2": (5, 2),
        "e4m3": (4, 3),
        "e3m2": (3, 2),
        "e2m3": (2, 3),
    }
    exponent_bits, fraction_bits = sizes[kind]
    sign = -1 if code >> (exponent_bits + fraction_bits) else 1
    exponent, fraction = code >> fraction_bits & ((1 << exponent_bits) - 1), code & ((1 << fraction_bits) - 1)
    if kind in ("f32", "f16", "bf16", "e5m2") and exponent == (1 << exponent_bits) - 1:
        return math.nan if fraction else sign * math.inf
    if kind == "e4m3" and (exponent, fraction) == (15, 7):
        return math.nan
    bias = (1 << (exponent_bits - 1)) - 1
    scale = Fraction(2) ** (max(exponent, 1) - bias - fraction_bits)
    value = sign * scale * (fraction + ((1 << fraction_bits) if exponent else 0))
    return -0.0 if value == 0 and sign < 0 else value


def kept_of_four(codes: Sequence[int], kind: str, operation: str) -> list[int]:
    """The indices of the two elements that stay, NaNs first, then by value; of equal ones the first."""

    def key(index: int) -> tuple[int, Fraction | float, int]:
        value = element_value(codes[index], kind)
        if isinstance(value, float) and math.isnan(value):
            return 0, 0, 0
        if operation.endswith("ABS"):
            value = abs(value)
        zero = 0 if isinstance(value, float) and value == 0 and math.copysign(1, value) < 0 else 1
        if operation.startswith("MAX"):
            return 1, -value, -zero
        return 1, value, zero

    return sorted(sorted(range(4), key=key)[:2])


def compress(
    words: Sequence[int], bits: int, index_bits: int, kind: str, operation: str
) -> tuple[list[int], list[int]]:
    """spcompress of one thread: metadata and compressed registers."""
    stream = sum(word << 32 * i for i, word in enumerate(words))
    codes = [stream >> bits * i & ((1 << bits) - 1) for i in range(len(words) * 32 // bits)]
    metadata = data = place = 0
    for group in range(0, len(codes), 4):
        for index in kept_of_four(codes[group : group + 4], kind, operation):
            metadata |= index << index_bits * place
            data |= codes[group + index] << bits * place
            place += 1
    return _words(metadata, -(-place * index_bits // 32)), _words(data, place * bits // 32)


def decompress(
    mdata: Sequence[int], cdata: Sequence[int], bits: int, index_bits: int, source: int, target: int, count: int
) -> list[int]:
    """spdecompress of one thread, as the manual's loop has it."""
    metadata, kept = (sum(word << 32 * i for i, word in enumerate(words)) for words in (mdata, cdata))
    dense = [0] * (target * count)
    for n in range(count):
        for s in range(source):
            place = n * source + s
            dense[n * target + (metadata >> index_bits * place & ((1 << index_bits) - 1))] = kept >> bits * place & (
                (1 << bits) - 1
            )
    return _words(sum(code << bits * i for i, code in enumerate(dense)), -(-len(dense) * bits // 32))


def _words(number: int, count: int) -> list[int]:
    return [number >> 32 * i & 0xFFFFFFFF for i in range(count)]


# --- tcgen05.cp and tcgen05.shift


def source_byte(descriptor: int, row: int, byte: int) -> int:
    """The shared address of one byte of a K-major tile, of a tcgen05 descriptor without swizzle or with 16-byte atoms."""
    start, leading, stride = ((descriptor >> low & 0x3FFF) * 16 for low in (0, 16, 32))
    mode = descriptor >> 61
    if mode == 0:
        return start + row % 8 * 16 + row // 8 * stride + byte // 16 * leading + byte % 16
    span = {2: 128, 4: 64, 6: 32}[mode]
    address = start + row % 8 * span + row // 8 * stride + byte
    mask = span // 16 - 1  # address bits 4.. are exchanged with bits 7..
    return address ^ (address >> 7 & mask) << 4


def expanded(chunk: Sequence[int], source: str) -> list[int]:
    """16 bytes of shared memory as the 16 bytes that arrive."""
    if source == "b8":
        return list(chunk)
    bits = 6 if source == "b6x16_p32" else 4
    stream = sum(int(byte) << 8 * i for i, byte in enumerate(chunk))
    codes = [stream >> bits * i & ((1 << bits) - 1) for i in range(16)]
    return codes if bits == 6 else [code * 4 for code in codes]


def destinations(shape: str, row: int) -> list[int]:
    """The lanes that a row of the source goes to."""
    warps = {
        "128x256b": lambda: [row],
        "128x128b": lambda: [row],
        "4x256b": lambda: [32 * row],
        "32x128b.warpx4": lambda: [row + 32 * warp for warp in range(4)],
        "64x128b.warpx2::02_13": lambda: [row % 32 + 32 * warp for warp in ((0, 2) if row < 32 else (1, 3))],
        "64x128b.warpx2::01_23": lambda: [row % 32 + 32 * warp for warp in ((0, 1) if row < 32 else (2, 3))],
    }
    return warps[shape]()


def copy(cells: Cells, shape: str, source: str, address: int, smem: Sequence[Sequence[int]], descriptor: int) -> Cells:
    """tcgen05.cp: the cells after it; `smem` has the bytes of each CTA that copies."""
    after = dict(cells)
    rows, size = int(shape.split("x")[0]), int(shape.split("x")[1].split("b")[0]) // 8
    for cta, memory in enumerate(smem):
        for row in range(rows):
            for chunk in range(0, size, 16):
                arriving = expanded([memory[source_byte(descriptor, row, chunk + i)] for i in range(16)], source)
                for lane in destinations(shape, row):
                    for word in range(4):
                        value = sum(int(arriving[4 * word + i]) << 8 * i for i in range(4))
                        after[cta, address // 65536 + lane, address % 65536 + chunk // 4 + word] = value
    return after


def shift(cells: Cells, address: int, ctas: int) -> Cells:
    """tcgen05.shift: each of 31 rows of 8 columns takes what the next one had."""
    after = dict(cells)
    for cta in range(ctas):
        for row in range(31):
            for column in range(8):
                lane, place = address // 65536 + row, address % 65536 + column
                after[cta, lane, place] = cells[cta, lane + 1, place]
    return after


# --- allocation


class Allocator:
    """Who owns which columns of one CTA: the lowest free run that begins at a multiple of its own length."""

    def __init__(self) -> None:
        self.taken: set[int] = set()
        self.live: dict[int, int] = {}

    def alloc(self, columns: int) -> int:
        """The first column; LookupError if the instruction would wait for ever."""
        for start in range(0, 512, columns):
            if start + columns <= 512 and not self.taken & set(range(start, start + columns)):
                self.taken |= set(range(start, start + columns))
                self.live[start] = columns
                return start
        raise LookupError(columns)

    def dealloc(self, start: int) -> None:
        """Give one back."""
        self.taken -= set(range(start, start + self.live.pop(start)))
