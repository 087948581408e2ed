"""Named classes of operand values for the special functions.

Inputs are a pure function of (mnemonic, class, seed, count). No constant of the model is used: where segments begin is written
here as it was found, and the inputs of `close` are a list.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from conformance.isa.special.close import CLOSE
from conformance.stimuli.stream import Stream
from tcsim.isa.special.semantics import SpecialFunction

Inputs = dict[str, npt.NDArray[Any]]
Words = npt.NDArray[np.uint32]

SAMPLES = {"exponents": 2048, "edges": 4096, "bits": 2048, "domain": 4096, "subnormals": 512, "exhaustive": 1 << 16}

_SIGN = 0x80000000
_MAGNITUDES = (
    0, 1, 2, 0x007FFFFF, 0x00800000, 0x00800001, 0x00FFFFFF, 0x01000000,  # zero, subnormal numbers, 2**-126 and 2**-125
    0x33800000, 0x33FFFFFF, 0x34000000, 0x34000001,  # 2**-24, 2**-23
    0x3A800000, 0x3B7FFFFF, 0x3B800000, 0x3B800001,  # 2**-8
    0x3E800000, 0x3F000000, 0x3F7FFFFF, 0x3F800000, 0x3F800001, 0x3F800002, 0x3FC00000, 0x3FC90FDB,  # 1/4, 1/2, 1, 3/2, pi/2
    0x40000000, 0x40400000, 0x40490FDB, 0x40800000, 0x40C90FDB, 0x40FFFFFF, 0x41000000, 0x41000001,  # 2, 3, pi, 4, 2 pi, 8
    0x42FBFFFF, 0x42FC0000, 0x42FC0001, 0x42FE0000, 0x42FFFFFF, 0x43000000, 0x43000001, 0x43140000, 0x43150000,  # 126 to 149
    0x43160000, 0x43160001, 0x4A800000, 0x4AFFFFFF, 0x4B000000, 0x4B800000, 0x4C000000,  # 150, 2**22, 2**23
    0x7E7FFFFF, 0x7E800000, 0x7E800001, 0x7EFFFFFF, 0x7F000000, 0x7F000001, 0x7F7FFFFF,  # 2**126, 2**127, the largest
    0x7F800000, 0x7F800001, 0x7FA00000, 0x7FC00000, 0x7FC12345, 0x7FFFFFFF,  # infinity, NaNs
)  # fmt: skip
CORNERS = np.array([magnitude | sign for magnitude in _MAGNITUDES for sign in (0, _SIGN)], np.uint32)
"""Ends of ranges, neighbours of powers of two, thresholds of the functions, and of the sequences around the unit."""
PAIRED = np.array([
    0, 1, 0x007FFFFF, 0x00800000, 0x00800001, 0x01000000, 0x33800000, 0x3F800000, 0x3F800001, 0x3FFFFFFF, 0x40400000, 0x7E7FFFFF,
    0x7E800000, 0x7E800001, 0x7F000000, 0x7F7FFFFF, 0x7F800000, 0x7F800001, 0x7FC00000,
    *(_SIGN | code for code in (0, 1, 0x00800001, 0x3F800000, 0x7E800001, 0x7F7FFFFF, 0x7F800000, 0x7FC12345)),
], np.uint32)  # fmt: skip
"""Of div, each with each."""
_WIDE_CORNERS = np.array(
    [top << 48 | rest for top in (0, 1, 0xF, 0x10, 0x11, 0x360, 0x3FE, 0x3FF, 0x400, 0x408, 0x7FC, 0x7FD, 0x7FE, 0x7FF, 0x3FF0,
                                   0x3FF8, 0x4000, 0x4008, 0x4010, 0x7FD0, 0x7FDF, 0x7FE0, 0x7FEF, 0x7FF0, 0x7FF4, 0x7FF8)
     for rest in (0, 1, 0xFFFFFFFF, 0x800000000000, 0xFFFFFFFFFFFF)], np.uint64,
)  # fmt: skip
WIDE_CORNERS = np.concatenate([_WIDE_CORNERS, _WIDE_CORNERS | np.uint64(1 << 63)])

_DOMAINS = {
    "ex2": (-150.0, 132.0), "sin": (-40.0, 40.0), "cos": (-40.0, 40.0), "sin.2pi": (-6.5, 6.5), "cos.2pi": (-6.5, 6.5),
    "tanh": (-9.0, 9.0),
}  # fmt: skip
_REVOLUTIONS = {"sin": 6.283185307179586, "cos": 6.283185307179586, "sin.2pi": 1.0, "cos.2pi": 1.0}


def classes(instruction: SpecialFunction) -> list[str]:
    """The names of the classes that apply.

    exhaustive: every code of 16 bits; of two packed ones, every code in both halves. corners: ends of ranges and thresholds, of
    two operands each with each. exponents: every exponent and sign. edges: both ends of every segment. bits: random bits.
    domain: where the function has its range. subnormals: the smallest numbers. close: inputs of which one unit of the sum
    before it is cut decides the last bit.
    """
    row = instruction.row
    if instruction.registers["a"].format.bits == 16:
        return ["exhaustive"]
    names = ["corners", "exponents", "edges", "bits", "domain", "subnormals"]
    return names + ["close"] * (row.type == "f32" and row.unit is not None)


def samples(instruction: SpecialFunction, name: str) -> int:
    """How many samples a class has by default."""
    if name == "corners":
        if "b" in instruction.registers:
            return int(len(_paired(instruction)) ** 2)
        return len(WIDE_CORNERS if instruction.row.type == "f64" else CORNERS)
    if name == "close":
        return len(_close(_function(instruction)))
    return SAMPLES[name]


def _function(instruction: SpecialFunction) -> str:
    """The family; of sin and cos whose operand is in revolutions, with .2pi."""
    return instruction.row.family + instruction.row.modifiers.get("period", "")


def _close(family: str) -> tuple[int, ...]:
    return CLOSE["rcp" if family == "div" else family]


def _paired(instruction: SpecialFunction) -> npt.NDArray[Any]:
    return WIDE_CORNERS[::7] if instruction.row.type == "f64" else PAIRED


def inputs(instruction: SpecialFunction, name: str, seed: int, samples: int) -> Inputs:
    """One array per operand, of the unsigned type of its register, with `samples` elements."""
    stream = Stream(instruction.mnemonic, name, seed)
    index = np.arange(samples)
    names = [own for own in instruction.registers if own != "d"]
    if name == "corners" and len(names) == 2:
        table = _paired(instruction)
        return {"a": table[index // len(table) % len(table)], "b": table[index % len(table)]}
    if name == "exhaustive":
        return {"a": _every_half(instruction.registers["a"].elements, samples)}
    wide = instruction.row.type == "f64"
    make = _wide if wide else _single
    return {own: make(_function(instruction), name, stream, index, place) for place, own in enumerate(names)}


def _every_half(elements: int, samples: int) -> npt.NDArray[Any]:
    low = np.arange(samples, dtype=np.uint32) & np.uint32(0xFFFF)
    return low.astype(np.uint16) if elements == 1 else low | (low ^ np.uint32(0xFFFF)) << np.uint32(16)


def _words(stream: Stream, count: int) -> Words:
    return (stream.words((count,)) >> np.uint64(32)).astype(np.uint32)


def _single(family: str, name: str, stream: Stream, index: npt.NDArray[np.int64], place: int) -> Words:
    """Codes of f32."""
    count, words = len(index), _words(stream, len(index))
    if name == "corners":
        return CORNERS[index % len(CORNERS)]
    if name == "close":
        table = np.array(_close(family), np.uint32)
        return (
            table[index % len(table)]
            if place or family != "div"
            else words & np.uint32(0xFFFFFF) | np.uint32(0x3F000000)
        )
    if name == "exponents":  # of two operands the second's change slowly
        step = index if not place else index * 37 + index // 512
        return (step % 512 << 23).astype(np.uint32) | words & np.uint32(0x7FFFFF)
    if name == "subnormals":
        few = words >> (stream.below(24, (count,)) + 8).astype(np.uint32) & np.uint32(0x00FFFFFF)
        common = stream.chance(1, 2, (count,)) if place else np.ones(count, bool)
        return np.where(common, few, words) & np.uint32(0x7FFFFFFF) | words & np.uint32(_SIGN)
    if name == "edges":
        return _edges(family, index, words)
    if name == "domain" and family in _DOMAINS:
        low, high = _DOMAINS[family]
        value = low + (high - low) * (words.astype(np.float64) / 2**32)
        fine = stream.between(0, 10, (count,))
        value = np.where(stream.chance(1, 2, (count,)), np.ldexp(value, -fine), value)
        return value.astype(np.float32).view(np.uint32)
    if name == "domain":  # near 1: four binades, some much nearer
        near = (stream.between(125, 128, (count,)) << 23).astype(np.uint32) | words & np.uint32(0x7FFFFF)
        nearer = np.uint32(0x3F800000) + (words >> np.uint32(14)) - np.uint32(1 << 17)
        return np.where(stream.chance(3, 4, (count,)), near, nearer).astype(np.uint32)
    return words


def _edges(family: str, index: npt.NDArray[np.int64], words: Words) -> Words:
    """The last and the first two inputs of every segment, and one within: 128 to a binade, in sixteen binades."""
    segment, place, binade = index >> 1 & 127, index & 1, index >> 8 & 15
    if family in _REVOLUTIONS:  # 64 to a quarter; a multiplication before the unit moves them a little
        turns = (binade - 8) / 4 + segment / 512 + place / 2**14
        return (turns * _REVOLUTIONS[family]).astype(np.float32).view(np.uint32) + (words & np.uint32(3))
    if family == "ex2":  # 64 to a whole number, negative ones too
        value = (binade - 8) * 3 + segment / 64
        return (
            value.astype(np.float32).view(np.uint32) + (words & np.uint32(3)) - np.uint32(1) * place.astype(np.uint32)
        )
    first = 119 if family == "tanh" else 120
    start = (first + binade << 23) + (segment << 16)
    offset = np.where(place == 0, (words & 3).astype(np.int64) - 1, (words & 0xFFFF).astype(np.int64))
    sign = np.where((family in ("tanh", "rcp", "div")) & (words >> np.uint32(31) != 0), _SIGN, 0)
    return (start + offset | sign).astype(np.uint32)


def _wide(family: str, name: str, stream: Stream, index: npt.NDArray[np.int64], place: int) -> npt.NDArray[Any]:
    """Codes of f64."""
    count, words = len(index), stream.words((len(index),))
    fraction = words & np.uint64((1 << 52) - 1)
    few = stream.chance(1, 2, (count,))
    short = np.where(few, fraction & np.uint64(0xFFFFF << 32), fraction)
    sign = words >> np.uint64(63) << np.uint64(63)
    if name == "corners":
        return WIDE_CORNERS[index % len(WIDE_CORNERS)]
    if name == "exponents":
        step = index if not place else index * 37 + index // 2048
        return (step % 2048).astype(np.uint64) << np.uint64(52) | short | sign
    if name == "edges":
        segment = (index & 127).astype(np.uint64) << np.uint64(45)
        inside = np.where(few, np.uint64(0), fraction >> np.uint64(7))
        exponent = (1015 + (index >> 7 & 15)).astype(np.uint64) << np.uint64(52)
        return exponent | segment | inside
    if name == "subnormals":
        tiny = (words & np.uint64((1 << 54) - 1)) >> stream.below(53, (count,)).astype(np.uint64)
        return tiny | sign
    if name == "domain":
        return stream.between(1019, 1027, (count,)).astype(np.uint64) << np.uint64(52) | short
    return words
