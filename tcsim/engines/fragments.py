"""A batch of small products as compiled loops (numba): what the kernels of `tcsim.engines.kernels` do with columns is done with fragments."""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic
from numba.np.arrayobj import make_array

from tcsim.engines.kernels import NONE, OPTIONS, REACH, UNCOUNTED, F, any_far, clear, copy, run_steps
from tcsim.engines.loops import loop
from tcsim.engines.vectors import bits32, f32_of, left, right, widest

SIGN = np.int32(-(1 << 31))
SIZE = np.int32(0x7FFFFFFF)
INFINITE = np.int32(0x7F800000)


@intrinsic
def _exchange(context: Any, source: Any, at: Any, step: Any, target: Any, to: Any, pitch: Any) -> Any:
    """Transpose 16 x 16 words in registers: rows `step` apart from source[at], to rows `pitch` apart from target[to]."""

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        vector = ir.VectorType(ir.IntType(32), 16)

        def pointers(array: Any, kind: Any, first: Any, apart: Any) -> list[Any]:
            data = make_array(kind)(context, builder, array).data
            places = [builder.add(first, builder.mul(apart, ir.Constant(apart.type, j))) for j in range(16)]
            return [builder.bitcast(builder.gep(data, [place]), vector.as_pointer()) for place in places]

        rows = [builder.load(one, align=4) for one in pointers(arguments[0], signature.args[0], *arguments[1:3])]
        for size in (1, 2, 4, 8):  # exchange the off-diagonal squares of this size
            lanes = range(16)
            upper = [j + 16 - size if j & size else j for j in lanes]
            lower = [j + 16 if j & size else j + size for j in lanes]
            masks = [ir.Constant(ir.VectorType(ir.IntType(32), 16), lane) for lane in (upper, lower)]
            for j in lanes:
                if not j & size:
                    pair = rows[j], rows[j + size]
                    rows[j], rows[j + size] = (builder.shuffle_vector(*pair, mask) for mask in masks)
        for row, one in zip(rows, pointers(arguments[3], signature.args[3], *arguments[4:]), strict=True):
            builder.store(row, one, align=4)
        return context.get_dummy_value()

    return types.void(source, types.intp, types.intp, target, types.intp, types.intp), build


@loop(**UNCOUNTED)
def _transposed(words: Any, step: Any, start: Any, count: Any, raw: Any) -> None:
    """Words of some fragments, `step` from one to the next, as raw (size * F,), fragments innermost; what is beyond `count` is not changed."""
    widest()
    size = len(raw) // F
    whole, even = count // 16 * 16, size // 16 * 16
    for t in range(0, whole, 16):
        for part in range(0, even, 16):
            _exchange(words, (start + t) * step + part, step, raw, part * F + t, F)
    for t in range(count):
        for j in range(even if t < whole else 0, size):
            raw[j * F + t] = words[(start + t) * step + j]


@loop(**UNCOUNTED)
def _put(raw: Any, start: Any, count: Any, words: Any) -> None:
    """The inverse of `_transposed`."""
    widest()
    size = len(raw) // F
    whole, even = count // 16 * 16, size // 16 * 16
    for t in range(0, whole, 16):
        for part in range(0, even, 16):
            _exchange(raw, part * F + t, F, words, (start + t) * size + part, size)
    for t in range(count):
        for j in range(even if t < whole else 0, size):
            words[(start + t) * size + j] = raw[j * F + t]


@loop(**UNCOUNTED)
def _values(raw: Any, places: Any, format: Any, v: Any, most: Any) -> Any:
    """Decode F codes at each of some places as `tcsim.engines.decoding.decoded` does; whether there is an infinity or NaN, or might be (f32).

    most: F integers, there to be written to.
    """
    widest()
    if format[0] == 0x7FFFFFFF and format[2] == 23:  # f32
        for j in range(len(places)):
            words, values = raw[places[j, 0] * F : (places[j, 0] + 1) * F], v[j * F : (j + 1) * F]
            for n in range(F):
                values[n] = f32_of(np.int32(words[n]))
        return True
    mask, up, to_sign = np.int32(format[0]), np.int32(format[1]), np.int32(31 - format[4])
    hidden, more = np.int32(1 << format[2]), np.int32((127 - format[3]) << 23)
    next_up = np.int32((128 - format[3]) << 23)
    first, infinity = np.int32(min(format[5], np.int64(0x7FFFFFFF))), np.int32(format[6])
    clear(most)
    for j in range(len(places)):
        words, by, values = raw[places[j, 0] * F : (places[j, 0] + 1) * F], places[j, 1], v[j * F : (j + 1) * F]
        for n in range(F):
            code = right(np.int32(words[n]), by)
            magnitude = np.int32(code & mask)
            most[n] = max(most[n], magnitude)
            bits = left(magnitude, up)
            small = bits32(f32_of(np.int32(bits + next_up)) - f32_of(next_up))  # multiplying subnormals takes long
            bits = small if magnitude < hidden else np.int32(bits + more)
            values[n] = f32_of(bits | (left(code, to_sign) & SIGN))
    highest = np.int32(0)
    for n in range(F):
        highest = max(highest, most[n])
    if highest < first:
        return False
    for j in range(len(places)):
        words, by, values = raw[places[j, 0] * F : (places[j, 0] + 1) * F], places[j, 1], v[j * F : (j + 1) * F]
        for n in range(F):
            magnitude = np.int32(right(np.int32(words[n]), by) & mask)
            if magnitude >= first:
                values[n] = np.copysign(np.float32(np.inf) if magnitude == infinity else np.float32(np.nan), values[n])
    return True


@loop(**UNCOUNTED)
def _exponents(v: Any, lowest: Any, e: Any) -> Any:
    """The exponents of values: none of zeros, infinities and NaN, and no lower one than that of subnormals. Whether one is out of reach."""
    widest()
    least = np.int32(lowest)
    for n in range(len(v)):
        magnitude = bits32(np.float32(v[n])) & SIZE
        own = max(np.int32((magnitude >> np.int32(23)) - np.int32(127)), least)
        own = np.int32(NONE) if magnitude == np.int32(0) else own
        e[n] = np.int16(np.int32(NONE) if magnitude >= INFINITE else own)
    return least < -REACH and any_far(e)


@loop(**UNCOUNTED)
def _codes(v: Any, half: Any, places: Any, raw: Any) -> None:
    """Encode F values for each of some places as `tcsim.engines.decoding.encoded` does, in words that hold zeros."""
    widest()
    unit = f32_of(np.int32(15 << 23))
    for j in range(len(places)):
        words, by, values = raw[places[j, 0] * F : (places[j, 0] + 1) * F], places[j, 1], v[j * F : (j + 1) * F]
        if half:
            for n in range(F):
                bits = bits32(values[n])
                magnitude = np.int32(bits & SIZE)
                small = np.int32(bits32(f32_of(magnitude) * unit) >> np.int32(13))
                small = np.int32(0x7C00) if magnitude >= INFINITE else small
                found = np.int32(small | (right(bits, np.int32(16)) & np.int32(0x8000)))
                found = np.int32(0x7FFF) if magnitude > INFINITE else found
                words[n] = np.uint32(words[n] | np.uint32(left(found, by)))
        else:
            for n in range(F):
                bits = bits32(values[n])
                words[n] = np.uint32(SIZE if np.int32(bits & SIZE) > INFINITE else bits)


@loop(**UNCOUNTED)
def _blocks(
    a: Any, b: Any, c: Any, steps: Any, sizes: Any, in_a: Any, in_b: Any, in_c: Any, in_d: Any, of_a: Any, of_b: Any, of_c: Any,
    shape: Any, program: Any, separate: Any, most: Any, half: Any, out: Any, left_out: Any, first: Any, last: Any,
    raw_a: Any, raw_c: Any, raw_d: Any, av: Any, ae: Any, rows_av: Any, rows_ae: Any, bv: Any, be: Any, cv: Any, exponents: Any, seen: Any, scale: Any, part: Any, wide: Any, single: Any,
) -> None:  # fmt: skip
    """What `fragments` does, with arrays that are there to be written to."""
    batch, m, n, k = shape
    e, total, plain, other, fresh = exponents, wide[0], wide[1], single[0], single[1]
    narrow = part.itemsize == 4
    for block in range(first, last):
        if not left_out[block]:
            continue
        start = block * F
        count = min(F, batch - start)
        _transposed(b, steps[1], start, count, raw_a[: sizes[1] * F])
        odd_b = _values(raw_a, in_b, of_b, bv, seen)
        if _exponents(bv, of_b[7], be) and narrow:
            continue
        far = False
        _transposed(a, steps[0], start, count, raw_a[: sizes[0] * F])
        _transposed(c, steps[2], start, count, raw_c[: sizes[2] * F])
        clear(raw_d)
        for row in range(m):  # which stays in the L1 cache, and so does a column of B
            odd = odd_b | _values(raw_a, in_a[row * k : (row + 1) * k], of_a, av, seen)
            far = _exponents(av, of_a[7], ae) and narrow
            if far:
                break
            _values(raw_c, in_c[row * n : (row + 1) * n], of_c, cv, seen)
            for column in range(n):
                first_b, end_b = column * k * F, (column + 1) * k * F
                own = cv[column * F : (column + 1) * F]
                acc = other if separate else own
                run_steps(
                    rows_av, rows_ae, bv[first_b:end_b], be[first_b:end_b], F, own, acc, odd, program, most,
                    e, scale, part, total, plain, fresh,
                )  # fmt: skip
                if separate:
                    copy(acc, own)
            _codes(cv, half, in_d[row * n : (row + 1) * n], raw_d)
        if not far:
            _put(raw_d, start, count, out)
            left_out[block] = False


@loop(**OPTIONS)
def fragments(
    a: Any, b: Any, c: Any, steps: Any, sizes: Any, in_a: Any, in_b: Any, in_c: Any, in_d: Any, of_a: Any, of_b: Any, of_c: Any,
    shape: Any, program: Any, separate: Any, most: Any, partial: Any, like: Any, half: Any, out: Any, left_out: Any, first: Any, last: Any,
) -> None:  # fmt: skip
    """Of blocks `first` to `last` of F fragments those that were left out; with float32, blocks with exponents out of reach still are. shape: fragments, M, N, K.

    a, b, c: words, of which each fragment has some, `steps` after those of the one before it; `sizes` of them count, and of d. in_a (M * K, 2),
    in_b (N * K, 2), in_c and in_d (M * N, 2): the word and the shift of each element, of a row of A and of a column of B in the order of the steps. out: words of d.
    """
    batch, m, n, k = shape
    raw_a, raw_c = np.zeros(max(sizes[0], sizes[1]) * F, np.uint32), np.zeros(sizes[2] * F, np.uint32)
    av, ae = np.zeros(k * F, like.dtype), np.empty(k * F, np.int16)
    bv, be, cv = np.empty(n * k * F, like.dtype), np.empty(n * k * F, np.int16), np.empty(n * F, np.float32)
    _blocks(
        a, b, c, steps, sizes, in_a, in_b, in_c, in_d, of_a, of_b, of_c, shape, program, separate, most, half, out, left_out, first, last,
        raw_a, raw_c, np.empty(sizes[3] * F, np.uint32), av, ae, av.reshape(k, F), ae.reshape(k, F), bv, be, cv,
        np.empty(F, np.int16), np.empty(F, np.int32), np.empty(F, like.dtype), np.empty(F, partial.dtype),
        np.empty((2, F)), np.empty((2, F), np.float32),
    )  # fmt: skip
