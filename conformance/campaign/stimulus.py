"""Inputs of a campaign in NumPy: the same codes as conformance/campaign/stimulus.cuh makes on a GPU.

Each code is a function of seed, sample, operand and element. Classes, one a sample: random bits; exponents of the whole range; exponents
close together; one large product and others F - 1 to F + 2 below it; opposite products; products about the floor; the ends of the range,
infinities and NaN; halves of the result's last place with something smaller beside them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tcsim.numbers.formats import Format

Words = npt.NDArray[np.uint64]
CLASSES = ("bits", "wide", "near", "aligned", "cancelling", "floored", "extreme", "tied")
OPERANDS = ("a", "b", "c", "scale_a", "scale_b", "groups", "sample")
_MASK = np.uint64(0xFFFFFFFF)
_32 = np.uint64(32)


def philox(a: Any, b: Any, c: Any, d: Any, seed: int) -> tuple[Words, Words, Words, Words]:
    """Philox4x32-10 of counters, words of 32 bits in uint64. Source: Salmon and others, "Parallel random numbers: as easy as 1, 2, 3".

    >>> [hex(int(word)) for word in philox(0, 0, 0, 0, 0)]
    ['0x6627e8d5', '0xe169c58d', '0xbc57ac4c', '0x9b00dbd8']
    """
    a, b, c, d = np.broadcast_arrays(*(np.asarray(word, np.uint64) for word in (a, b, c, d)))
    keys = [seed & 0xFFFFFFFF, seed >> 32]
    for _ in range(10):
        p, q = np.uint64(0xD2511F53) * a, np.uint64(0xCD9E8D57) * c
        a, c = q >> _32 ^ b ^ np.uint64(keys[0]), p >> _32 ^ d ^ np.uint64(keys[1])
        b, d = q & _MASK, p & _MASK
        keys = [(keys[0] + 0x9E3779B9) & 0xFFFFFFFF, (keys[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return a, b, c, d


@dataclass(frozen=True)
class Recipe:
    """What the classes aim at: the unit's constants."""

    fraction: int  # F
    floor: int
    precision: int  # significant bits of the result


def codes(
    format: Format,
    operand: str,
    recipe: Recipe,
    seed: int,
    samples: Words,
    element: Words,
    pair: Words,
    k: Words,
    depth: int,
) -> npt.NDArray[Any]:
    """Codes (samples, elements). element, pair, k: (elements,), as in stimulus.cuh."""
    sample = samples[:, None]
    low, high = sample & _MASK, sample >> _32
    s = [word.astype(np.int64) for word in philox(0, OPERANDS.index("sample"), low, high, seed)]
    kind = s[0] % len(CLASSES)
    is_c = operand == "c"
    paired = (kind == CLASSES.index("cancelling")) & (not is_c)
    words = philox(np.where(paired, pair, element), OPERANDS.index(operand), low, high, seed)
    r = [word.astype(np.int64) for word in words]
    top = (1 << format.exponent_bits) - 1
    last = top - 1 if format.nan == "ieee" else top
    steps, place = last + 1, k.astype(np.int64)[None, :]
    bits, chosen, small, base = r[0], s[1] % depth, r[1] & 3, s[2] % steps + 0 * r[0]
    sign, fraction = bits >> 31, np.where(r[2] & 0x300, bits, 0)
    near = np.minimum(base + small, last)
    is_a = operand == "a"
    large, below = last - (s[3] & 3), recipe.fraction - 1 + small
    aligned = np.where(place == chosen, large, large - (below // 2 if is_a else (recipe.fraction + 1) // 2))
    if is_c:
        aligned = np.where(r[3] & 1, large - (r[3] >> 8) % (2 * recipe.fraction), 0)
    cancelling = np.where(r[3] & 3, 0, r[1] % steps) if is_c else near
    target = recipe.floor + s[3] % 12 - 4
    floored = r[1] % 6 if is_c else (target - (target & 1)) // 2 + format.bias + small - 1
    extreme = np.select([small == 0, small == 1, small == 2], [0, 1, last], top)
    turn = (place + depth - chosen) % depth
    under = np.where(turn == 0, 0, np.where(turn == 1, recipe.precision, recipe.precision + 1 + (r[3] & 15)))
    tied = large - (under // 2 if is_a else under - under // 2)
    if is_c:
        tied = np.where(r[3] & 3, 0, large - (r[3] >> 8) % 32)
    fields = {"wide": r[1] % steps, "near": near, "aligned": aligned, "cancelling": cancelling, "floored": floored}
    fields |= {"extreme": extreme, "tied": tied}
    names = list(fields)
    field = np.select([kind == CLASSES.index(name) for name in names], [fields[name] for name in names], base)
    odd = paired & ((place & 1) == 1) & is_a
    sign = np.where(odd, sign ^ 1, sign)
    fraction = np.where(odd & ((r[3] & 7) == 0), fraction ^ 1, fraction)
    which = r[1] >> 2 & 3
    ends = np.select([which == 0, which == 1, which == 2], [0, (1 << 32) - 1, 1], bits)
    fraction = np.where(kind == CLASSES.index("extreme"), ends, fraction)
    if not is_c:
        fraction = np.where((kind == CLASSES.index("tied")) & (turn != 0), 0, fraction)
    empty = ((r[2] & 0xF0) == 0) & (kind != CLASSES.index("tied"))
    field, fraction = np.where(empty, 0, np.clip(field, 0, top)), np.where(empty, 0, fraction)
    made = fraction & ((1 << format.fraction_bits) - 1) | field << format.fraction_bits
    if format.signed:
        made |= (sign & 1) << format.sign_shift
    made <<= format.ignored_low_bits
    whole = (1 << 32) - 1 if format.ignored_low_bits else ((2 if format.signed else 1) << format.sign_shift) - 1
    found = np.where(kind == CLASSES.index("bits"), bits & whole, made)
    return found.astype(np.uint32).astype(format.dtype)


def digest(first: int, outputs: npt.NDArray[Any]) -> int:
    """The sum, modulo 2**64, over outputs of consecutive places, as `summand` in stimulus.cuh has it.

    >>> hex(digest(5, np.uint32([7, 8])))
    '0xd3ca9f6ec0a8e1ea'
    """
    flat = outputs.reshape(-1)
    with np.errstate(over="ignore"):
        place = np.arange(flat.size, dtype=np.uint64) + np.uint64(first % 2**64)
        x = place * np.uint64(0x9E3779B97F4A7C15) + flat.astype(np.uint64)
        x = (x ^ x >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ x >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
        return int((x ^ x >> np.uint64(31)).sum(dtype=np.uint64))
