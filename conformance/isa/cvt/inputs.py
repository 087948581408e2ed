"""Named classes of operand values for conversions.

Inputs are a pure function of (mnemonic, class, seed, count), and any number of samples may be asked for: every class
walks through its values in an order whose every prefix is a fair sample.
"""

from __future__ import annotations

from functools import cache
from math import gcd
from typing import Any

import numpy as np
import numpy.typing as npt

from conformance.stimuli.stream import Stream
from tcsim.isa.cvt.registers import Packed, registers_of
from tcsim.isa.cvt.rows import CvtRow
from tcsim.isa.cvt.semantics import Convert
from tcsim.numbers.conversion import Codes
from tcsim.numbers.formats import Format

Inputs = dict[str, npt.NDArray[Any]]

EDGES = 8_192
UNIFORM = 4_096
_OFFSETS = (0, 1, -1, 2, -2)  # units in the last place of the source, around each boundary


def classes(instruction: Convert) -> list[str]:
    """The names of the classes that apply.

    exhaustive: every code of a source of at most 16 bits; of two packed ones, every code in both halves. bytes: the
    same through an 8-bit register. edges: numbers at and around every value and every midpoint of the target, after a
    list of NaN, infinities, zeros and subnormals. uniform: random bits. scales: scale factors from least to largest,
    and numbers that they bring into the target's range. carry: random bits of rbits that just do, or just do not,
    carry out of the discarded bits.
    """
    row = instruction.row
    if row.registers["a"].format.bits <= 16:
        names = ["exhaustive", "bytes"][: len(row.forms)]
    else:
        names = ["edges", "uniform"]
    return names + ["scales"] * ("scale" in row.registers) + ["carry"] * bool(row.random)


def samples(instruction: Convert, name: str) -> int:
    """How many samples a class has by default."""
    if name == "exhaustive":
        return 1 << min(16, 8 * instruction.registers["a"].dtype.itemsize)
    return {"bytes": 256, "edges": EDGES}.get(name, UNIFORM)


def inputs(instruction: Convert, name: str, seed: int, samples: int) -> Inputs:
    """One array per operand, of the unsigned type of its register, with `samples` elements."""
    row = instruction.row
    stream = Stream(instruction.mnemonic, name, seed)
    registers = registers_of(row.forms[name == "bytes"])
    given: Inputs = {}
    if "rbits" in registers:
        given["rbits"] = stream.words((samples,)).astype(np.uint32)
    if "scale" in registers:
        given["scale"] = _scales(registers["scale"], stream, samples, anywhere=name == "scales")
    for place, source in enumerate(row.sources):
        register = registers[source]
        if name in ("exhaustive", "bytes"):
            given[source] = _every_code(register, samples)
        elif name == "edges":
            given[source] = _edges(instruction, register, stream, samples, place, given)
        elif name == "uniform":
            given[source] = _uniform(instruction, register, stream, samples)
        elif name == "scales":
            given[source] = _in_reach(instruction, register, stream, samples, given)
        else:
            given[source] = _carry(row, given["rbits"], stream, samples, place)
    if "c" in registers:
        given["c"] = stream.words((samples,)).astype(np.uint32)
    return {name: given[name] for name in registers if name != "d"}


def _every_code(register: Packed, count: int) -> Codes:
    """All codes in order, again and again; of two 16-bit elements, the upper one in the opposite order."""
    index = np.arange(count, dtype=np.uint64)
    if register.dtype.itemsize == 4:
        low = index & np.uint64(0xFFFF)
        index = ((low ^ np.uint64(0xFFFF)) << np.uint64(16)) | low
    codes = index.astype(register.dtype)
    return codes & register.dtype.type(~register.padding & ((1 << (8 * register.dtype.itemsize)) - 1))


def _scales(register: Packed, stream: Stream, count: int, anywhere: bool) -> Codes:
    """Scale factors: near 1 mostly, anywhere sometimes, NaN at times; or near both ends and anywhere."""
    shape = (register.elements, count)
    factors = stream.below(256, shape)
    ends = np.where(stream.chance(1, 2, shape), stream.below(12, shape), 255 - stream.below(12, shape))
    near = ends if anywhere else stream.between(107, 147, shape)
    factors = np.where(stream.chance(3, 4, shape), near, factors)
    factors = np.where(stream.chance(1, 32, shape), 255, factors)
    return register.pack(factors.astype(np.uint8))


def _powers(instruction: Convert, given: Inputs, place: int) -> npt.NDArray[np.int64]:
    """The exponent of the scale factor of one source (or of one field of a packed source)."""
    factors = instruction.registers["scale"].unpack(given["scale"]).astype(np.int64)
    exponents: npt.NDArray[np.int64] = factors[place if len(factors) > 1 else 0] - 127
    return exponents


def _in_reach(instruction: Convert, register: Packed, stream: Stream, count: int, given: Inputs) -> Codes:
    """Random codes; of floats that are divided by a scale factor, with exponents around the factor's."""
    source, conversion = register.format, instruction.lowering.conversion
    shape = (register.elements, count)
    codes = stream.words(shape) & np.uint64(source.code_mask)
    if conversion.scale == "divide":
        place = "ab".index(register.name)
        powers = np.stack([_powers(instruction, given, place + field) for field in range(register.elements)])
        fields = np.clip(powers + source.bias + stream.between(-12, 12, shape), 0, (1 << source.exponent_bits) - 1)
        mask = ((1 << source.exponent_bits) - 1) << source.fraction_bits
        codes = (codes & np.uint64(~mask & source.code_mask)) | (
            fields.astype(np.uint64) << np.uint64(source.fraction_bits)
        )
    return register.pack(codes.astype(source.dtype))


# --- edges ----------------------------------------------------------------------------------------------------------


def _boundaries(target: Format) -> npt.NDArray[np.float64]:
    """Magnitudes at which some rounding to the target changes its answer: every number, and every midpoint."""
    if target.kind == "integer":
        unit = 1 << target.fraction_bits
        top = np.arange(0, (1 << min(target.bits, 9)) + 4) * 0.5
        powers = np.ldexp(1.0, np.arange(2, target.bits + 1))
        near = (powers[:, None] + np.array([-1.0, -0.5, 0.0, 0.5, 1.0])).reshape(-1)
        return np.concatenate([top, near[near > 0]]) / unit
    codes = np.arange(target.largest_code + 1, dtype=np.uint64)
    numbers = target.values((codes << np.uint64(target.ignored_low_bits)).astype(target.dtype))
    beyond = 2 * numbers[-1] - numbers[-2]
    following = np.append(numbers[1:], beyond)
    return np.stack([numbers, (numbers + following) / 2], 1).reshape(-1)


@cache
def _float_boundaries(target: Format, source: Format) -> npt.NDArray[np.int64]:
    """The boundaries as bit patterns of the source, f32 or f64, signs left out."""
    values = np.append(_boundaries(target), np.inf)
    kind, bits = (np.float32, np.uint32) if source.bits == 32 else (np.float64, np.uint64)
    with np.errstate(over="ignore"):
        return values.astype(kind).view(bits).astype(np.int64)


@cache
def _integer_boundaries(target: Format) -> npt.NDArray[np.int64]:
    """The integers on either side of every boundary of a float target, and around the ends of an integer one."""
    if target.kind == "integer":
        low = (1 << (target.bits - 1)) if target.signed else 0
        high = (1 << (target.bits - int(target.signed))) - 1
        near = np.arange(-4, 5)
        return np.abs(np.concatenate([low + near, high + near, near, (1 << np.arange(0, 31))[:, None].reshape(-1)]))
    if target.bits > 16:  # f32: halves and wholes of the last place, for every number of bits cut off
        cut = np.arange(1, 9)[:, None]
        head = (1 << 23) + np.arange(0, 1 << 23, 4_099)[None, :]
        return np.concatenate([(head << cut).reshape(-1), ((head << cut) + (1 << (cut - 1))).reshape(-1)])
    values = _boundaries(target)
    values = values[values < 2.0**31]
    return np.unique(np.concatenate([np.floor(values), np.ceil(values)])).astype(np.int64)


_F32_SPECIALS = (
    0, 1, 2, 0x3FFFFF, 0x400000, 0x400001, 0x7FFFFF, 0x800000, 0x800001, 0x3F800000, 0x7F7FFFFF, 0x7F7FE000, 0x7F800000,
    0x7F800001, 0x7F801FFF, 0x7F802000, 0x7FBFFFFF, 0x7FC00000, 0x7FC01234, 0x7FFFDFFF, 0x7FFFE000, 0x7FFFFFFF,
)  # fmt: skip
_F64_SPECIALS = (
    0, 1, 0xFFFFFFFFFFFFF, 1 << 52, 0x3FF << 52, 0x7FEFFFFFFFFFFFFF, 0x7FF << 52, (0x7FF << 52) + 1, (0x7FF << 52) + (1 << 42),
    (0x7FF << 52) + (1 << 45), (0x7FF << 52) + (1 << 50), 0x7FF8 << 48, 0x7FFC << 48, 0x7FFAAAAAAAAAAAAA, 0x7FF5555555555555,
    (1 << 63) - 1,
)  # fmt: skip
_S32_SPECIALS = (0, 1, 0x7FFFFFFF, 0x7FFFFFFE, 0x80000000, 0x80000001, 0xFFFFFFFF, 0xFFFFFFFE)


def _specials(source: Format) -> npt.NDArray[np.uint64]:
    """Codes of the source that every prefix begins with, both signs of the float ones."""
    if source.kind == "integer":
        return np.array(_S32_SPECIALS, np.uint64)
    codes = np.array(_F32_SPECIALS if source.bits == 32 else _F64_SPECIALS, np.uint64)
    return np.concatenate([codes, codes | np.uint64(1 << (source.bits - 1))])


def _walk(index: npt.NDArray[np.int64], total: int, phase: int) -> npt.NDArray[np.int64]:
    """A permutation of range(total), again and again, in steps of the golden section: every stretch of it is even."""
    stride = max(1, int(total * 0.6180339887498949))
    while gcd(stride, total) != 1:
        stride += 1
    return (index % total * stride + phase) % total


def _edges(instruction: Convert, register: Packed, stream: Stream, count: int, place: int, given: Inputs) -> Codes:
    """Specials, then boundaries and their neighbours. The operands of one sample have unrelated values."""
    conversion, source = instruction.lowering.conversion, register.format
    specials = _specials(source)
    integer = source.kind == "integer"
    patterns = _integer_boundaries(conversion.target) if integer else _float_boundaries(conversion.target, source)
    total = len(patterns) * len(_OFFSETS) * 2
    index = np.arange(count, dtype=np.int64)
    extra = index - EDGES  # the first values of the walk, whose place the specials take, follow after the default ones
    index = np.where(extra < 0, index, np.where(extra < len(specials), extra, index - len(specials)))
    chosen = _walk(index, total, phase=total * place // 4)
    negative, rest = chosen & 1, chosen >> 1
    code = patterns[rest // len(_OFFSETS)] + np.array(_OFFSETS)[rest % len(_OFFSETS)]
    later = stream.between(-4096, 4096, (count,))  # when the list is exhausted, further from the boundaries too
    code = np.clip(np.where(index // total > 0, code + later, code), 0, None)
    if integer:
        codes = np.where(negative == 1, -code, code).astype(np.uint64) & np.uint64(0xFFFFFFFF)
    else:
        codes = code.astype(np.uint64) | (negative.astype(np.uint64) << np.uint64(source.bits - 1))
        if "scale" in given:  # what is divided by the factor lies at the boundary
            codes = _scaled(codes.astype(source.dtype), _powers(instruction, given, place)).astype(np.uint64)
    head = min(count, len(specials))
    codes[:head] = specials[_walk(index[:head], len(specials), phase=5 * place)]
    return codes.astype(register.dtype)


def _scaled(codes: Codes, power: npt.NDArray[np.int64]) -> Codes:
    """f32 codes times powers of two."""
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        return np.ldexp(codes.view(np.float32), power.astype(np.int32)).view(np.uint32)


# --- random bits ----------------------------------------------------------------------------------------------------


def _uniform(instruction: Convert, register: Packed, stream: Stream, count: int) -> Codes:
    """Every bit random; of every second float the exponent within the target's range."""
    source, target = register.format, instruction.lowering.conversion.target
    words = stream.words((count,)) & np.uint64(source.code_mask)
    if source.kind == "integer":
        return (words >> stream.below(source.bits, (count,)).astype(np.uint64)).astype(register.dtype)
    reach = target.bits if target.kind == "integer" else 1 << max(target.exponent_bits - 1, 1)
    fields = source.bias + stream.between(-reach - 6, reach + 2, (count,))
    fields = np.clip(fields, 0, (1 << source.exponent_bits) - 2).astype(np.uint64)
    fraction = words & np.uint64(~(((1 << source.exponent_bits) - 1) << source.fraction_bits) & source.code_mask)
    within = fraction | (fields << np.uint64(source.fraction_bits))
    return np.where(np.arange(count) % 2 == 1, within, words).astype(register.dtype)


def _carry(row: CvtRow, rbits: Codes, stream: Stream, count: int, place: int) -> Codes:
    """Numbers whose discarded bits and the random bits of this source add up to a carry, or to one less."""
    target, bits = row.conversion.target, row.conversion.random_bits
    random = np.zeros(count, np.uint64)
    for bit in row.random[place]:
        random = (random << np.uint64(1)) | ((rbits.astype(np.uint64) >> np.uint64(bit)) & np.uint64(1))
    least, most = 1 << target.fraction_bits, target.largest_code
    kept = target.values((least + stream.below(most - least, (count,))).astype(target.dtype)).astype(np.float32)
    discarded = 23 - target.fraction_bits
    wanted = (np.uint64(1 << bits) - random - stream.below(2, (count,)).astype(np.uint64)) & np.uint64((1 << bits) - 1)
    codes = kept.view(np.uint32).astype(np.uint64) + (wanted << np.uint64(discarded - bits))
    return (codes | (stream.below(2, (count,)).astype(np.uint64) << np.uint64(31))).astype(np.uint32)
