"""Codes to values and exponents and back, as compiled loops (numba): what the kernels of `tcsim.engines.kernels` are fed with."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tcsim.engines.kernels import NONE, OPTIONS, UNCOUNTED, W, any_far, clear
from tcsim.engines.loops import loop
from tcsim.engines.vectors import bits32, f32_of, left, right
from tcsim.numbers.formats import Format

_NEVER = 1 << 32


def fields(format: Format, target: Format | None = None) -> npt.NDArray[np.int64]:
    """A float format as numbers: what `decoded` and `encoded` need to know of it.

    Mask of the magnitude; left shift to where f32 has it; fraction bits below; bias; place of the sign; the first magnitude that is not finite; that
    of infinity; the lowest exponent, of the target if values are converted to one.
    """
    low = format.ignored_low_bits
    top = (1 << format.sign_shift) - 1
    infinity = format.infinity_code
    first = _NEVER if not format.infinity and format.nan == "none" else format.largest_code + 1
    return np.array(
        [
            top << low, 23 - format.fraction_bits - low, format.fraction_bits + low, format.bias,
            format.sign_shift + low, first << low, -1 if infinity is None else infinity << low, (target or format).minimum_exponent,
        ],
        np.int64,
    )  # fmt: skip


@loop(**UNCOUNTED)
def gathered(words: Any, places: Any, mask: Any, codes: Any) -> None:
    """Codes (T, elements): the bits of `mask` at some places of words (T, words)."""
    kept = np.uint32(mask)
    for t in range(len(codes)):
        own, found = words[t], codes[t]
        for j in range(len(places)):
            found[j] = np.uint32(right(np.int32(own[places[j, 0]]), places[j, 1])) & kept


@loop(**UNCOUNTED)
def scattered(codes: Any, places: Any, words: Any) -> None:
    """The inverse of `gathered`, into words (T, words)."""
    for t in range(len(codes)):
        own, found = codes[t], words[t]
        clear(found)
        for j in range(len(places)):
            found[places[j, 0]] |= np.uint32(left(np.int32(own[j]), places[j, 1]))


@loop(**OPTIONS)
def decoded(code: Any, mask: Any, up: Any, down: Any, bias: Any, sign: Any, first: Any, infinity: Any) -> Any:
    """Value (f32), exponent, and whether it is an infinity or NaN."""
    whole = np.int64(code)
    magnitude = whole & mask
    value = f32_of(np.int32(magnitude << up)) * f32_of(np.int32((254 - bias) << 23))
    exponent = np.int16(max(magnitude >> down, np.int64(1)) - bias)
    odd = magnitude >= first
    if odd:
        value = np.float32(np.inf) if magnitude == infinity else np.float32(np.nan)
    if odd or magnitude == 0:
        exponent = NONE
    return (-value if whole >> sign & 1 else value), exponent, odd


@loop(**OPTIONS)
def pack_a(
    codes: Any, format: Any, order: Any, scale_v: Any, scale_e: Any, length: Any, kept: Any,
    av: Any, ae: Any, odd: Any, far: Any, first: Any, last: Any,
) -> None:  # fmt: skip
    """Rows `first` to `last` of A (T * M, K): values and exponents in the order of the steps, scales (T * M, blocks) folded in.

    length: elements that share a scale; 0: no scales. odd (T * M, instructions): whether there is an infinity or NaN. far (1,): is set if an
    exponent is out of reach.
    """
    mask, up, down, bias, sign, start, infinity, _ = format
    own = np.empty(len(order), codes.dtype)
    for row in range(first, last):
        for j in range(len(order)):
            own[j] = codes[row, order[j]]
        values, exponents = av[row], ae[row]
        for i in range(len(order) // kept):
            count = 0
            for j in range(i * kept, (i + 1) * kept):
                v, e, o = decoded(own[j], mask, up, down, bias, sign, start, infinity)
                values[j], exponents[j] = v, e
                count += o
            odd[row, i] |= count > 0
        if length:
            for j in range(len(order)):
                s = scale_v[row, order[j] // length]
                values[j] *= s
                exponents[j] = max(np.int16(exponents[j] + scale_e[row, order[j] // length]), NONE)
                odd[row, j // kept] |= s != s
        if any_far(exponents):
            far[0] = True


@loop(**OPTIONS)
def pack_b(
    codes: Any, format: Any, order: Any, scale_v: Any, scale_e: Any, length: Any, k: Any,
    bv: Any, be: Any, odd: Any, far: Any, first: Any, last: Any,
) -> None:  # fmt: skip
    """Of B (T, K, N) the blocks of W columns `first` to `last` (counted over T): bv, be (T, blocks, K * W), rows in the steps' order."""
    mask, up, down, bias, sign, start, infinity, _ = format
    blocks, n = bv.shape[1], codes.shape[2]
    for unit in range(first, last):
        t, block = unit // blocks, unit % blocks
        w = min(W, n - block * W)
        for j in range(len(order)):
            row = codes[t, order[j], block * W : block * W + w]
            count = 0
            values, exponents = bv[t, block, j * W : j * W + w], be[t, block, j * W : j * W + w]
            for i in range(w):
                v, e, o = decoded(row[i], mask, up, down, bias, sign, start, infinity)
                values[i], exponents[i] = v, e
                count += o
            if length:
                s = scale_v[t, order[j] // length, block * W : block * W + w]
                f = scale_e[t, order[j] // length, block * W : block * W + w]
                for i in range(w):
                    values[i] *= s[i]
                    exponents[i] = max(np.int16(exponents[i] + f[i]), NONE)
                    count += s[i] != s[i]
            odd[t, block, j // k] |= count > 0
            if any_far(exponents):
                far[0] = True


@loop(**OPTIONS)
def pack_c(codes: Any, format: Any, d: Any, first: Any, last: Any) -> None:
    """Rows `first` to `last` (counted over T) of C (T, M, N) as values d (T, blocks, M, W)."""
    mask, up, down, bias, sign, start, infinity, _ = format
    m, n = codes.shape[1:]
    for unit in range(first, last):
        t, row = unit // m, unit % m
        for block in range(d.shape[1]):
            for i in range(min(W, n - block * W)):
                v, e, o = decoded(codes[t, row, block * W + i], mask, up, down, bias, sign, start, infinity)
                d[t, block, row, i] = v


@loop(**OPTIONS)
def pack_held(matrix: Any, rows: Any, starts: Any, order: Any, format: Any, d: Any, first: Any, last: Any) -> None:
    """Products `first` to `last` of C as values d (T, elements): of registers (rows, threads) those of lanes from `starts` (T,) on, in an order (registers, lanes)."""
    mask, up, down, bias, sign, start, infinity, _ = format
    for t in range(first, last):
        found = d[t]
        for j in range(len(rows)):
            own, there = matrix[rows[j], starts[t] : starts[t] + order.shape[1]], order[j]
            for i in range(len(there)):
                v, e, o = decoded(own[i], mask, up, down, bias, sign, start, infinity)
                found[there[i]] = v


@loop(**OPTIONS)
def encoded(value: Any, half: Any) -> Any:
    """The code of a value that f32 or f16 has; NaN is the canonical one."""
    if value != value:
        return np.int64(0x7FFF) if half else np.int64(0x7FFFFFFF)
    bits = np.int64(bits32(value)) & 0xFFFFFFFF
    if not half:
        return bits
    sign, magnitude = bits >> 16 & 0x8000, f32_of(np.int32(bits & 0x7FFFFFFF))
    if magnitude == np.inf:
        return sign | 0x7C00
    return sign | np.int64(bits32(magnitude * f32_of(np.int32(127 - 112 << 23)))) >> 13


@loop(**OPTIONS)
def unpack_d(d: Any, half: Any, codes: Any, first: Any, last: Any) -> None:
    """Rows `first` to `last` (counted over T) of D (T, M, N), of the values d (T, blocks, M, W)."""
    m, n = codes.shape[1:]
    for unit in range(first, last):
        t, row = unit // m, unit % m
        for block in range(d.shape[1]):
            for i in range(min(W, n - block * W)):
                codes[t, row, block * W + i] = encoded(d[t, block, row, i], half)


@loop(**OPTIONS)
def unpack_held(d: Any, matrix: Any, rows: Any, starts: Any, order: Any, half: Any, first: Any, last: Any) -> None:
    """The inverse of `pack_held`: products `first` to `last` of D into registers."""
    for t in range(first, last):
        found = d[t]
        for j in range(len(rows)):
            own, there = matrix[rows[j], starts[t] : starts[t] + order.shape[1]], order[j]
            for i in range(len(there)):
                own[i] = encoded(found[there[i]], half)
