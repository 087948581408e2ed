"""A batch of small products as compiled loops (numba): what the kernels of `tcsim.engines.kernels` do with columns is done with fragments."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

from tcsim.engines.kernels import NONE, OPTIONS, UNCOUNTED, F, bits32, copy, f32_of, run_steps, widest

SIGN = np.int32(-(1 << 31))


@numba.njit(**UNCOUNTED)
def _transposed(codes: Any, start: Any, count: Any, raw: Any) -> None:
    """Codes of some fragments (T, elements) as raw (elements * F,), fragments innermost; zeros where there are fewer."""
    size = codes.shape[1]
    if count < F:
        raw[: size * F] = 0
    for part in range(0, size // 16 * 16, 16):  # what is written stays in the L1 cache
        tile = raw[part * F : (part + 16) * F]
        for t in range(count):
            row = codes[start + t, part : part + 16]
            for j in range(16):
                tile[j * F + t] = row[j]
    for t in range(count):
        for j in range(size // 16 * 16, size):
            raw[j * F + t] = codes[start + t, j]


@numba.njit(**UNCOUNTED)
def _put(raw: Any, start: Any, count: Any, codes: Any) -> None:
    """The inverse of `_transposed`."""
    size = codes.shape[1]
    for part in range(0, size // 16 * 16, 16):
        tile = raw[part * F : (part + 16) * F]
        for t in range(count):
            row = codes[start + t, part : part + 16]
            for j in range(16):
                row[j] = tile[j * F + t]
    for t in range(count):
        for j in range(size // 16 * 16, size):
            codes[start + t, j] = raw[j * F + t]


@numba.njit(**UNCOUNTED)
def _values(raw: Any, format: Any, v: Any, e: Any) -> Any:
    """Decode F codes as `tcsim.engines.decoding.decoded` does, in 32 bits; whether there is an infinity or NaN, 1 or 0."""
    widest()
    mask, up, down = np.int32(format[0]), np.int32(format[1]), np.int32(format[2])
    bias, to_sign = np.int32(format[3]), np.int32(31 - format[4])
    first, infinity = np.int32(min(format[5], np.int64(0x7FFFFFFF))), np.int32(format[6])
    unit = f32_of(np.int32((254 - format[3]) << 23))
    most = np.int32(0)
    for n in range(F):  # loops apart are vectorised
        code = np.int32(raw[n])
        magnitude = np.int32(code & mask)
        v[n] = f32_of(bits32(f32_of(np.int32(magnitude << up)) * unit) | np.int32((code << to_sign) & SIGN))
    for n in range(F):
        magnitude = np.int32(np.int32(raw[n]) & mask)
        own = np.int32(max(np.int32(magnitude >> down), np.int32(1)) - bias)
        e[n] = np.int16(np.int32(NONE) if magnitude == np.int32(0) else own)
    for n in range(F):
        most = max(most, np.int32(np.int32(raw[n]) & mask))
    odd = int(most >= first)
    if odd:
        for n in range(F):
            magnitude = np.int32(np.int32(raw[n]) & mask)
            if magnitude >= first:
                size = np.float32(np.inf) if magnitude == infinity else np.float32(np.nan)
                v[n], e[n] = np.copysign(size, v[n]), NONE
    return odd


@numba.njit(**UNCOUNTED)
def _codes(v: Any, half: Any, raw: Any) -> None:
    """Encode F values as `tcsim.engines.decoding.encoded` does."""
    widest()
    if half:
        shift = f32_of(np.int32(15 << 23))
        for n in range(F):
            bits = bits32(v[n])
            magnitude = np.int32(bits & np.int32(0x7FFFFFFF))
            small = np.int32(bits32(f32_of(magnitude) * shift) >> np.int32(13))
            small = np.int32(0x7C00) if magnitude >= np.int32(0x7F800000) else small
            found = np.int32(small | ((bits >> np.int32(16)) & np.int32(0x8000)))
            raw[n] = np.uint32(np.int32(0x7FFF) if magnitude > np.int32(0x7F800000) else found)
        return
    for n in range(F):
        bits = bits32(v[n])
        magnitude = np.int32(bits & np.int32(0x7FFFFFFF))
        raw[n] = np.uint32(np.int32(0x7FFFFFFF) if magnitude > np.int32(0x7F800000) else bits)


@numba.njit(**UNCOUNTED)
def _blocks(
    a: Any, b: Any, c: Any, of_a: Any, of_b: Any, of_c: Any, order: Any, shape: Any, program: Any, separate: Any, most: Any,
    half: Any, out: Any, first: Any, last: Any,
    raw: Any, av: Any, ae: Any, bv: Any, be: Any, cv: Any, exponents: Any, scale: Any, part: Any, wide: Any, single: Any,
) -> None:  # fmt: skip
    """What `fragments` does, with arrays that are there to be written to."""
    m, n, k = shape
    e, ignored, total, plain, other, fresh = exponents[0], exponents[1], wide[0], wide[1], single[0], single[1]
    for block in range(first, last):
        start = block * F
        count = min(F, len(a) - start)
        odd = 0
        _transposed(a, start, count, raw)
        for row in range(m):
            for j in range(k):
                at = (row * k + order[j]) * F
                odd += _values(raw[at : at + F], of_a, av[row * k + j], ae[row * k + j])
        _transposed(b, start, count, raw)
        for column in range(n):
            for j in range(k):
                at, to = (order[j] * n + column) * F, (column * k + j) * F
                odd += _values(raw[at : at + F], of_b, bv[to : to + F], be[to : to + F])
        _transposed(c, start, count, raw)
        for j in range(m * n):
            _values(raw[j * F : (j + 1) * F], of_c, cv[j * F : (j + 1) * F], ignored)
        for row in range(m):
            values, exponents = av[row * k : (row + 1) * k], ae[row * k : (row + 1) * k]
            for column in range(n):
                place = row * n + column
                own = cv[place * F : (place + 1) * F]
                acc = other if separate else own
                run_steps(
                    values, exponents, bv[column * k * F : (column + 1) * k * F], be[column * k * F : (column + 1) * k * F], F,
                    own, acc, odd > 0, program, most, e, scale, part, total, plain, fresh,
                )  # fmt: skip
                if separate:
                    copy(acc, own)
        for j in range(m * n):
            _codes(cv[j * F : (j + 1) * F], half, raw[j * F : (j + 1) * F])
        _put(raw, start, count, out)


@numba.njit(**OPTIONS)
def fragments(
    a: Any, b: Any, c: Any, of_a: Any, of_b: Any, of_c: Any, order: Any, shape: Any, program: Any, separate: Any, most: Any,
    partial: Any, like: Any, half: Any, out: Any, first: Any, last: Any,
) -> None:  # fmt: skip
    """Blocks `first` to `last` of F fragments: codes a (T, M * K), b (T, K * N), c and out (T, M * N); shape: M, N, K."""
    m, n, k = shape
    raw = np.empty(max(m * k, n * k, m * n) * F, np.uint32)
    av, ae = np.empty((m * k, F), like.dtype), np.empty((m * k, F), np.int16)
    bv, be, cv = np.empty(n * k * F, like.dtype), np.empty(n * k * F, np.int16), np.empty(m * n * F, np.float32)
    exponents, scale, part = np.empty((2, F), np.int16), np.empty(F, like.dtype), np.empty(F, partial.dtype)
    _blocks(
        a, b, c, of_a, of_b, of_c, order, shape, program, separate, most, half, out, first, last,
        raw, av, ae, bv, be, cv, exponents, scale, part, np.empty((2, F)), np.empty((2, F), np.float32),
    )  # fmt: skip
