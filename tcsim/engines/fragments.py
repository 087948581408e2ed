"""A batch of small products as compiled loops (numba): what the kernels of `tcsim.engines.kernels` do with columns is done with fragments."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

from tcsim.engines.kernels import NONE, OPTIONS, F, bits32, f32_of, run_steps, widest

SIGN = np.int32(-(1 << 31))


@numba.njit(**OPTIONS)
def _transposed(codes: Any, start: Any, count: Any, raw: Any) -> None:
    """Codes of some fragments (T, elements) as raw (elements * F,), fragments innermost; zeros where there are fewer."""
    size = codes.shape[1]
    if count < F:
        raw[: size * F] = 0
    for part in range(0, size, 16):  # what is written stays in the L1 cache
        for t in range(count):
            for j in range(part, min(part + 16, size)):
                raw[j * F + t] = codes[start + t, j]


@numba.njit(**OPTIONS)
def _values(raw: Any, format: Any, v: Any, e: Any) -> Any:
    """Decode F codes as `tcsim.engines.decoding.decoded` does, in 32 bits; how many are infinities and NaN."""
    widest()
    mask, up, down = np.int32(format[0]), np.int32(format[1]), np.int32(format[2])
    bias, to_sign = np.int32(format[3]), np.int32(31 - format[4])
    first, infinity = np.int32(min(format[5], np.int64(0x7FFFFFFF))), np.int32(format[6])
    unit = f32_of(np.int32((254 - format[3]) << 23))
    odd = 0
    for n in range(F):
        code = np.int32(raw[n])
        magnitude = np.int32(code & mask)
        v[n] = f32_of(bits32(f32_of(np.int32(magnitude << up)) * unit) | np.int32((code << to_sign) & SIGN))
        own = np.int32(max(np.int32(magnitude >> down), np.int32(1)) - bias)
        e[n] = np.int16(np.int32(NONE) if magnitude == np.int32(0) else own)
    for n in range(F):
        odd += int(np.int32(raw[n] & mask) >= first)
    if odd:
        for n in range(F):
            magnitude = np.int32(np.int32(raw[n]) & mask)
            if magnitude >= first:
                size = np.float32(np.inf) if magnitude == infinity else np.float32(np.nan)
                v[n], e[n] = np.copysign(size, v[n]), NONE
    return odd


@numba.njit(**OPTIONS)
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


@numba.njit(**OPTIONS)
def fragments(
    a: Any, b: Any, c: Any, of_a: Any, of_b: Any, of_c: Any, order: Any, shape: Any, program: Any, separate: Any, most: Any,
    partial: Any, like: Any, half: Any, out: Any, first: Any, last: Any,
) -> None:  # fmt: skip
    """Blocks `first` to `last` of F fragments: codes a (T, M * K), b (T, K * N), c and out (T, M * N); shape: M, N, K."""
    m, n, k = shape
    raw = np.empty(max(m * k, n * k, m * n) * F, np.uint32)
    av, ae = np.empty((m * k, F), like.dtype), np.empty((m * k, F), np.int16)
    bv, be = np.empty(n * k * F, like.dtype), np.empty(n * k * F, np.int16)
    cv, ignored = np.empty(m * n * F, np.float32), np.empty(F, np.int16)
    e, scale, part = np.empty(F, np.int16), np.empty(F, like.dtype), np.empty(F, partial.dtype)
    total, plain = np.empty(F), np.empty(F)
    other, fresh = np.empty(F, np.float32), np.empty(F, np.float32)
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
                    own[:] = acc
        for j in range(m * n):
            _codes(cv[j * F : (j + 1) * F], half, raw[j * F : (j + 1) * F])
        for piece in range(0, m * n, 16):
            for t in range(count):
                for j in range(piece, min(piece + 16, m * n)):
                    out[start + t, j] = raw[j * F + t]
