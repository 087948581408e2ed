"""What a TMA copy does, one byte at a time in plain integers, written next to the manuals and the measurements.

Sources: PTX ISA, section Tensors (bounding box, traversal stride, out of boundary access, im2col, im2col::w, gather4,
interleave layout, swizzling tables) and cp.reduce.async.bulk; measured on an H200: row pitch under a swizzle, the swizzle of
the absolute address, the NaN fill, where rows of stores end, sums with NaNs and subnormal numbers. Of NumSim (mlc-ai/TIRx-harness), whose authors ran them on an sm_100: slices as indices of
interleaved layouts, the element stride along N, and where the halos of im2col::w::128 lie. Memory is a list of bytes.
Nothing here is fast.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from fractions import Fraction
from itertools import product

BITS = {
    "UINT8": 8, "UINT16": 16, "UINT32": 32, "INT32": 32, "UINT64": 64, "INT64": 64, "FLOAT16": 16, "FLOAT32": 32,
    "FLOAT64": 64, "BFLOAT16": 16, "FLOAT32_FTZ": 32, "TFLOAT32": 32, "TFLOAT32_FTZ": 32, "16U4_ALIGN8B": 4,
    "16U4_ALIGN16B": 4, "16U6_ALIGN16B": 6,
}  # fmt: skip
SPANS = {"NONE": 0, "32B": 32, "64B": 64}

# The manual's tables for 128 bytes: the 16-byte chunk of the source that each place of a line of 128 bytes holds.
LINES = {
    "NONE": [[0, 1, 2, 3, 4, 5, 6, 7]],
    "32B": [[0, 1, 2, 3, 4, 5, 6, 7], [1, 0, 3, 2, 5, 4, 7, 6]],
    "64B": [
        [0, 1, 2, 3, 4, 5, 6, 7], [1, 0, 3, 2, 5, 4, 7, 6],
        [2, 3, 0, 1, 6, 7, 4, 5], [3, 2, 1, 0, 7, 6, 5, 4],
    ],
    "128B": [
        [0, 1, 2, 3, 4, 5, 6, 7], [1, 0, 3, 2, 5, 4, 7, 6], [2, 3, 0, 1, 6, 7, 4, 5], [3, 2, 1, 0, 7, 6, 5, 4],
        [4, 5, 6, 7, 0, 1, 2, 3], [5, 4, 7, 6, 1, 0, 3, 2], [6, 7, 4, 5, 2, 3, 0, 1], [7, 6, 5, 4, 3, 2, 1, 0],
    ],
    "128B_ATOM_32B": [
        [0, 1, 2, 3, 4, 5, 6, 7], [2, 3, 0, 1, 6, 7, 4, 5], [4, 5, 6, 7, 0, 1, 2, 3], [6, 7, 4, 5, 2, 3, 0, 1],
    ],
    "128B_ATOM_64B": [[0, 1, 2, 3, 4, 5, 6, 7], [4, 5, 6, 7, 0, 1, 2, 3]],
}  # fmt: skip


@dataclass(frozen=True)
class Map:
    """What a test knows of a tensor map."""

    data_type: str
    dims: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...] = ()
    every: tuple[int, ...] = ()
    swizzle: str = "NONE"
    nan: bool = False
    lower: tuple[int, ...] = ()
    upper: tuple[int, ...] = ()
    channels: int = 0
    pixels: int = 0
    offsets: tuple[int, ...] = field(default=())
    slice_bytes: int = 0  # of an interleaved layout: dimensions W[, H[, D]], slices of channels, N
    wide: str = ""  # "w", "w::128"
    halo: int = 0
    shift: int = 0  # wOffset


def swizzled(mode: str, address: int) -> int:
    """Where the byte of an unswizzled shared address lies."""
    flip = mode.endswith("_FLIP_8B")
    lines = LINES[mode.removesuffix("_FLIP_8B")]
    line, byte = divmod(address, 128)
    chunk, rest = divmod(byte, 16)
    place = lines[line % len(lines)].index(chunk)
    if flip and line % 2:
        rest = (rest + 8) % 16
    return line * 128 + place * 16 + rest


def elements(tmap: Map, at: tuple[int, ...]) -> Iterator[tuple[int, int, tuple[int, ...]]]:
    """Every element of a copy: its row, its place in the row, and its index in the tensor, innermost first."""
    if tmap.pixels:
        pixels = wide_pixels(tmap, at) if tmap.wide else column_pixels(tmap, at)
        for row, pixel in enumerate(pixels):
            for place in range(tmap.channels):
                yield row, place, (at[0] + place, *pixel)
        return
    if len(at) == 5 and len(tmap.dims) == 2:  # gather4, scatter4
        for row in range(4):
            for place in range(tmap.box[0]):
                yield row, place, (at[0] + place, at[1 + row])
        return
    counts = [tmap.box[0]] + [(b + e - 1) // e for b, e in zip(tmap.box[1:], tmap.every[1:], strict=True)]
    for row, outer in enumerate(product(*(range(n) for n in reversed(counts[1:])))):
        steps = list(reversed(outer))
        rest = [at[d + 1] + steps[d] * tmap.every[d + 1] for d in range(len(steps))]
        for place in range(counts[0]):
            yield row, place, (at[0] + place, *rest)


def column_pixels(tmap: Map, at: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """The pixels of an im2col load: the index in every dimension but the channels'. `at` starts with the channel."""
    here = list(at[1:])
    spatial = len(here) - 1
    offsets = tmap.offsets or (0,) * spatial
    for _ in range(tmap.pixels):
        yield tuple([here[d] + offsets[d] for d in range(spatial)] + [here[spatial]])
        for d in range(spatial):  # one step on: the first dimension that stays in its range
            here[d] += tmap.every[d + 1]
            if here[d] <= tmap.dims[d + 1] - 1 + tmap.upper[d]:
                break
            here[d] = tmap.lower[d]
        else:
            here[spatial] += tmap.every[-1]


def wide_pixels(tmap: Map, at: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """The pixels of an im2col::w load, halos included: W and N move, whatever lies between them stays."""
    low = tmap.lower[0] + tmap.shift
    high = tmap.dims[1] - 1 + tmap.upper[0] + tmap.shift
    w, n = at[1] + tmap.shift, at[-1]
    walk = []
    for _ in range((128 if tmap.wide == "w::128" else tmap.pixels) + tmap.halo):
        walk.append((w, *at[2:-1], n))
        w += tmap.every[1]
        if w > high:
            w, n = low, n + tmap.every[-1]
    if tmap.wide == "w":
        yield from walk
        return
    yield from walk[:128]
    for h in range(tmap.halo):  # the first pixel after each 32, then the second, ...
        for group in (32, 64, 96, 128):
            yield walk[group + h]


def slices(tmap: Map, at: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """The slices of a copy of an interleaved layout, in the order in which they lie in shared memory."""
    if tmap.pixels:  # the walk of a column, with the slice of channels where im2col has the channel
        *spatial, chosen, image = at
        columns = Map("UINT8", (1, *tmap.dims[:-2], tmap.dims[-1]), (), every=(1, *tmap.every[:-2], tmap.every[-1]),
                      lower=tmap.lower, upper=tmap.upper, pixels=tmap.pixels, offsets=tmap.offsets)  # fmt: skip
        for *pixel, n in column_pixels(columns, (0, *spatial, image)):
            yield (*pixel, chosen, n)
        return
    walks = []
    for dim, (start, size, every) in enumerate(zip(at, tmap.box, tmap.every, strict=True)):
        walks.append([start] if dim == len(at) - 2 else [start + i for i in range(size) if i % every == 0])
    for index in product(*reversed(walks)):
        yield tuple(reversed(index))


def shared_bits(tmap: Map, address: int, row: int, place: int) -> list[tuple[int, int]]:
    """(byte, bit) in shared memory of each bit of an element, lowest first."""
    bits = BITS[tmap.data_type]
    width = tmap.channels or tmap.box[0]
    if tmap.data_type == "16U4_ALIGN16B":
        inner, first = width // 16 * 16, place // 16 * 128 + place % 16 * 4
    elif tmap.data_type == "16U6_ALIGN16B":
        inner, first = width // 16 * 16, place // 16 * 128 + place % 16 * 6
    else:
        inner, first = width * bits // 8, place * bits
    span = SPANS.get(tmap.swizzle, 128) or inner
    start = address + row * span
    return [(swizzled(tmap.swizzle, start + (first + bit) // 8), (first + bit) % 8) for bit in range(bits)]


def _global_bits(tmap: Map, index: tuple[int, ...]) -> list[tuple[int, int]]:
    bits = BITS[tmap.data_type]
    start = 8 * sum(i * s for i, s in zip(index[1:], tmap.strides, strict=True)) + index[0] * bits
    return [divmod(start + bit, 8) for bit in range(bits)]


Bits = list[tuple[int, int]]


def pieces(tmap: Map, at: tuple[int, ...], address: int) -> Iterator[tuple[bool, Bits, Bits]]:
    """Every element of a copy: whether it is inside the tensor, its bits in global memory, its bits in shared memory."""
    if not tmap.slice_bytes:
        for row, place, index in elements(tmap, at):
            yield _inside(tmap, index), _global_bits(tmap, index), shared_bits(tmap, address, row, place)
        return
    bits = BITS[tmap.data_type]
    for number, index in enumerate(slices(tmap, at)):
        offset = index[0] * tmap.slice_bytes + sum(i * s for i, s in zip(index[1:], tmap.strides, strict=True))
        start = address + number * tmap.slice_bytes
        for first in range(0, 8 * tmap.slice_bytes, bits):
            yield (
                _inside(tmap, index),
                [(offset + bit // 8, bit % 8) for bit in range(first, first + bits)],
                [(swizzled(tmap.swizzle, start + bit // 8), bit % 8) for bit in range(first, first + bits)],
            )


def _inside(tmap: Map, index: tuple[int, ...]) -> bool:
    return all(0 <= i < size for i, size in zip(index, tmap.dims, strict=True))


def _read(memory: list[int], bits: Bits) -> int:
    return sum((memory[byte] >> bit & 1) << n for n, (byte, bit) in enumerate(bits))


def _write(memory: list[int], bits: Bits, value: int) -> None:
    for n, (byte, bit) in enumerate(bits):
        memory[byte] = memory[byte] & ~(1 << bit) | (value >> n & 1) << bit


def load(tmap: Map, memory: list[int], at: tuple[int, ...], smem: list[int], address: int) -> list[int]:
    """The new shared memory."""
    out = list(smem)
    for inside, where, to in pieces(tmap, at, address):
        if inside:
            value = converted(tmap.data_type, _read(memory, where))
        else:
            value = int.from_bytes(b"\xf7\x7f" * 4, "little") if tmap.nan else 0
        _write(out, to, value)
    return out


def payload_bits(tmap: Map, at: tuple[int, ...]) -> int:
    """Bits that a load moves, halos included, padding not: what the mbarrier counts, times 8."""
    return sum(len(where) for _, where, _ in pieces(tmap, at, 0))


def store(tmap: Map, memory: list[int], at: tuple[int, ...], smem: list[int], address: int, op: str = "") -> list[int]:
    """The new global memory."""
    out = list(memory)
    if not tmap.slice_bytes:  # on an H200 rows end at 16 bytes: the elements up to there count as the tensor's
        bits, first = BITS[tmap.data_type], tmap.dims[0]
        while first * bits % 128:
            first += 1
        tmap = replace(tmap, dims=(first, *tmap.dims[1:]))
    if tmap.data_type == "16U6_ALIGN16B":  # 6 bits of each byte of shared memory
        for row, place, index in elements(tmap, at):
            width = SPANS.get(tmap.swizzle, 128) or tmap.box[0]
            byte = swizzled(tmap.swizzle, address + row * width + place)
            if _inside(tmap, index):
                _write(out, _global_bits(tmap, index), smem[byte] & 63)
        return out
    for inside, where, found in pieces(tmap, at, address):
        if inside:
            value = _read(smem, found)
            _write(out, where, reduced(op, tmap.data_type, _read(out, where), value) if op else value)
    return out


def converted(data_type: str, code: int) -> int:
    """What a load makes of an f32 code: rounded to tf32 to nearest even, any NaN to one NaN; no type flushes."""
    if data_type.startswith("TFLOAT32"):
        if code >> 23 & 255 == 255:
            return 0x7FFFE000 if code & 0x7FFFFF else code
        low, kept = code & 0x1FFF, code >> 13
        kept += low > 0x1000 or (low == 0x1000 and kept & 1)
        code = kept << 13
    return code


FLOATS = {
    "FLOAT16": (5, 10), "BFLOAT16": (8, 7), "FLOAT32": (8, 23), "FLOAT32_FTZ": (8, 23), "TFLOAT32": (8, 23),
    "FLOAT64": (11, 52),
}  # fmt: skip


def reduced(op: str, data_type: str, old: int, new: int) -> int:
    """What a reduction leaves in global memory."""
    bits = BITS[data_type]
    if op == "and":
        return old & new
    if op == "or":
        return old | new
    if op == "xor":
        return old ^ new
    if op == "inc":
        return 0 if old >= new else old + 1
    if op == "dec":
        return new if old == 0 or old > new else old - 1
    if data_type in FLOATS:
        return _float_add(data_type, old, new) if op == "add" else _float_pick(op, data_type, old, new)
    if op == "add":
        return (old + new) % (1 << bits)
    low = 1 << (bits - 1) if data_type.startswith("INT") else 0  # signed numbers in order, from 0 on
    pick = min if op == "min" else max
    return pick((old ^ low, new ^ low)) ^ low


def _value(data_type: str, code: int) -> Fraction | str:
    """The number of a code, or "nan", "+inf", "-inf"."""
    ebits, mbits = FLOATS[data_type]
    sign, exponent = code >> (ebits + mbits), code >> mbits & ((1 << ebits) - 1)
    mantissa, bias = code & ((1 << mbits) - 1), (1 << (ebits - 1)) - 1
    if exponent == (1 << ebits) - 1:
        return "nan" if mantissa else ("-inf" if sign else "+inf")
    if exponent == 0:
        number = Fraction(mantissa) * Fraction(2) ** (1 - bias - mbits)
    else:
        number = (Fraction(1) + Fraction(mantissa, 1 << mbits)) * Fraction(2) ** (exponent - bias)
    return -number if sign else number


def _nearest(data_type: str, number: Fraction) -> int:
    """The code nearest to a positive number, ties to the even one: found among all codes by bisection."""
    ebits, mbits = FLOATS[data_type]
    top = ((1 << ebits) - 1) << mbits  # infinity, which stands for the next power of two
    limit = Fraction(2) ** (1 << (ebits - 1))

    def at(code: int) -> Fraction:
        return limit if code == top else _value(data_type, code)

    low, high = 0, top
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if at(middle) <= number else (low, middle)
    below, above = number - at(low), at(high) - number
    if below == above:
        return low if low % 2 == 0 else high
    return low if below < above else high


def _float_add(data_type: str, old: int, new: int) -> int:
    ebits, mbits = FLOATS[data_type]
    sign_bit, nan = 1 << (ebits + mbits), (1 << (ebits + mbits)) - 1
    if data_type == "FLOAT32_FTZ":
        old, new = (code if code >> 23 & 255 else code & sign_bit for code in (old, new))
    a, b = _value(data_type, old), _value(data_type, new)
    if data_type == "FLOAT64":  # a NaN is kept, the one from shared memory before the one in global memory
        if b == "nan":
            return new
        if a == "nan":
            return old
        nan = 0xFFF8000000000000
    if "nan" in (a, b) or {a, b} == {"+inf", "-inf"}:
        return nan
    if isinstance(a, str) or isinstance(b, str):
        return old if isinstance(a, str) else new
    total = a + b
    if total == 0:
        return old & new & sign_bit  # -0 from two -0 only
    code = _nearest(data_type, abs(total)) | (sign_bit if total < 0 else 0)
    if data_type == "FLOAT32_FTZ" and not code >> 23 & 255:
        code &= sign_bit
    return code


def _float_pick(op: str, data_type: str, old: int, new: int) -> int:
    ebits, mbits = FLOATS[data_type]
    a, b = _value(data_type, old), _value(data_type, new)
    if a == b == "nan":
        return (1 << (ebits + mbits)) - 1
    if "nan" in (a, b):
        return new if a == "nan" else old

    def order(code: int) -> int:
        magnitude = code & ((1 << (ebits + mbits)) - 1)
        return -magnitude - 1 if code >> (ebits + mbits) else magnitude

    pick = min if op == "min" else max
    return pick((old, new), key=order)
