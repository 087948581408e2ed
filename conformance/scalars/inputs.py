"""Inputs of scalar instructions: corner values in all combinations, and random ones of several kinds.

Frozen: they follow from the types, the seed and the table below alone; no constant of the model is in them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from conformance.stimuli.stream import Stream

Codes = npt.NDArray[Any]

COUNT = 1 << 20
"""Inputs of each spelling."""
SHORT = 1 << 12
"""The first of them, which a replay without a GPU uses."""
_SPREAD = 0x9E375  # odd: neighbours of the list come to lie far apart

_FORMATS = {"f16": (16, 10), "bf16": (16, 7), "f32": (32, 23), "f64": (64, 52)}  # bits, bits of the fraction
_PARTS = {"f16x2": "f16", "bf16x2": "bf16", "f32x2": "f32", "u16x2": "u16", "s16x2": "s16", "u8x4": "u8", "s8x4": "s8"}


def width(type: str) -> int:
    """Bits of a type.

    >>> width("bf16x2"), width("s64"), width("pred")
    (32, 64, 1)
    """
    if type == "pred":
        return 1
    if type in _PARTS:
        return 32 if type != "f32x2" else 64
    return _FORMATS[type][0] if type in _FORMATS else int(type[1:])


def container(bits: int) -> np.dtype[Any]:
    """The array type of codes."""
    return np.dtype(f"u{max(bits, 8) // 8}")


def _float_corners(bits: int, fraction: int) -> Iterable[int]:
    ones, exponents = (1 << fraction) - 1, (1 << (bits - 1 - fraction)) - 1
    bias = exponents >> 1
    yield from (0, 1, 2, ones >> 1, ones, exponents << fraction, exponents << fraction | 1)
    yield from (
        exponents << fraction | ones,
        exponents << fraction | ones >> 1,
        exponents << fraction | (ones + 1) >> 1,
    )
    yield from ((exponents - 1) << fraction | ones, (exponents - 1) << fraction)
    powers = {
        -bias + 1,
        -bias + 2,
        -bias + 1 + fraction,
        -fraction - 1,
        -fraction,
        -2,
        -1,
        0,
        1,
        2,
        3,
        fraction,
        fraction + 1,
        fraction + 2,
    }
    powers |= {6, 7, 8, 14, 15, 16, 30, 31, 32, 62, 63, 64}
    for power in sorted(powers):
        if 0 < power + bias < exponents:
            one = power + bias << fraction
            yield from (one, one + 1, one - 1, one | 1 << fraction - 1)
    yield from (1 << fraction - 1, bias << fraction | ones // 3)


def _integer_corners(bits: int) -> Iterable[int]:
    yield from (
        0,
        1,
        2,
        3,
        5,
        7,
        8,
        15,
        31,
        33,
        63,
        65,
        100,
        127,
        128,
        129,
        255,
        0x5555555555555555,
        0x0123456789ABCDEF,
        0x80808080_80808080,
    )
    for power in (4, 5, 6, 7, 8, 12, 15, 16, 24, 31, 32, 33, 48, 62, 63):
        yield from ((1 << power), (1 << power) - 1)
    for place in (bits - 1, bits - 2):
        yield from ((1 << place), (1 << place) - 1, (1 << place) + 1)
    yield (1 << bits) - 2


@cache
def corners(type: str) -> Codes:
    """Codes of a type that instructions treat in a way of their own, each with its sign changed too."""
    bits = width(type)
    if type == "pred":
        return np.array([0, 1], np.uint8)
    if type in _PARTS:
        part = corners(_PARTS[type])
        own = width(_PARTS[type])
        found = np.zeros(len(part), container(bits))
        for place in range(bits // own):
            rolled = np.roll(part, 7 * place).astype(found.dtype)
            found |= rolled << found.dtype.type(own * place)
        return found
    if type in _FORMATS:
        values = [size ^ sign for size in _float_corners(*_FORMATS[type]) for sign in (0, 1 << bits - 1)]
    else:
        top = (1 << bits) - 1
        values = [item & top for size in _integer_corners(bits) for item in (size, -size)]
    return np.array(sorted(set(values)), container(bits))


def _related(stream: Stream, first: Codes, type: str) -> Codes:
    """Codes near those of the first source: the same, its neighbours, its negative, the same size with other bits."""
    bits = width(type)
    kind = container(bits).type
    other = stream.words(first.shape).astype(container(bits))
    choice = stream.below(6, first.shape)
    fraction = _FORMATS.get(_PARTS.get(type, type), (0, 3))[1]
    low = kind((1 << min(fraction, bits - 1)) - 1)
    step = (choice == 1).astype(container(bits))
    near = (first & ~low) | (other & low)
    found = np.where(choice <= 1, first + step, near)
    return np.where((choice == 2) | (choice == 4), found ^ kind(1 << bits - 1), found).astype(container(bits))


def _random(stream: Stream, type: str, count: int) -> Codes:
    """Uniform codes, codes with few bits set, small numbers, and corners."""
    bits = width(type)
    kind = container(bits)
    words = stream.words((count,)).astype(kind)
    if type == "pred":
        return words & kind.type(1)
    sparse = words & stream.words((count,)).astype(kind) & stream.words((count,)).astype(kind)
    small = stream.below(80, (count,)).astype(kind)
    small = np.where(stream.chance(1, 4, (count,)), kind.type(0) - small, small)
    picked = stream.choice(corners(type), (count,))
    choice = stream.below(8, (count,))
    return np.select([choice < 4, choice == 4, choice == 5], [words, sparse, small], picked)


def inputs(types: Sequence[str], seed: int = 0) -> list[Codes]:
    """COUNT codes for each of some types: the same for the same types and seed."""
    stream = Stream("scalars", *types, seed)
    half = COUNT // 2
    found: list[Codes] = []
    for place, type in enumerate(types):
        own = corners(type)
        if place == 0:
            grid = own[np.arange(half) % len(own)]
        elif place == 1:
            grid = own[np.arange(half) // len(corners(types[0])) % len(own)]
        else:
            grid = stream.choice(own, (half,))
        other = _random(stream, type, COUNT - half)
        if place and width(type) == width(types[0]) and type != "pred":
            other = np.where(stream.chance(1, 2, other.shape), _related(stream, found[0][half:], type), other)
        if len(types) == 1 and width(type) <= 16:
            other = np.arange(COUNT - half).astype(own.dtype) & own.dtype.type((1 << width(type)) - 1)
        found.append(np.concatenate([grid, other]).astype(own.dtype))
    order = np.arange(COUNT, dtype=np.int64) * _SPREAD % COUNT
    return [np.ascontiguousarray(codes[order]) for codes in found]
