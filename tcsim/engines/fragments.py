"""A batch of small products as compiled loops (numba): what the kernels of `tcsim.engines.kernels` do with columns is done with fragments."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic
from numba.np.arrayobj import make_array

from tcsim.engines.kernels import NONE, OPTIONS, REACH, UNCOUNTED, F, Line, any_far, clear, copy, run_steps
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
def _registers(lying: Any, start: Any, count: Any, raw: Any, put: Any) -> None:
    """Registers of some fragments as raw (32 * n * F,), fragments innermost; or put from there."""
    words, _, rows, warps = lying
    registers = rows.shape[1]
    for t in range(0, count, 16):
        instruction, warp = (start + t) // warps, (start + t) % warps
        for n in range(registers):
            for lane in range(0, 32, 16):
                at, to = rows[instruction, n] + warp * 32 + lane, (lane * registers + n) * F + t
                if put:
                    _exchange(raw, to, registers * F, words, at, 32)
                else:
                    _exchange(words, at, 32, raw, to, registers * F)


@loop(**UNCOUNTED)
def _transposed(lying: Any, start: Any, count: Any, raw: Any) -> None:
    """Words of some fragments as raw (size * F,), fragments innermost; what is beyond `count` is not changed."""
    widest()
    words, step, rows, _ = lying
    size, registers = len(raw) // F, rows.shape[1]
    if registers:
        _registers(lying, start, count, raw, False)
        return
    whole, even = count // 16 * 16, size // 16 * 16
    for t in range(0, whole, 16):
        for part in range(0, even, 16):
            _exchange(words, (start + t) * step + part, step, raw, part * F + t, F)
    for t in range(count):
        for j in range(even if t < whole else 0, size):
            raw[j * F + t] = words[(start + t) * step + j]


@loop(**UNCOUNTED)
def _put(raw: Any, start: Any, count: Any, lying: Any) -> None:
    """The inverse of `_transposed`."""
    widest()
    words, _, rows, _ = lying
    size, registers = len(raw) // F, rows.shape[1]
    if registers:
        _registers(lying, start, count, raw, True)
        return
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


class Lying(NamedTuple):
    """The words of an operand: fragment after fragment, or in registers."""

    words: Any
    step: Any  # words from one fragment to the next
    rows: Any  # (instructions, n): where in `words` their registers of all threads begin; empty where there are none
    warps: Any  # of one instruction, 16 or a multiple


class Fragments(NamedTuple):
    """A batch of fragments."""

    a: Lying
    b: Lying
    c: Lying
    out: Lying  # d
    left_out: Any  # blocks that are still to be computed


class Tables(NamedTuple):
    """Where the elements of a fragment are, and what they are."""

    sizes: Any  # how many words of a, b, c and d count
    in_a: Any  # (M * K, 2): the word and the shift of each element, of a row of A in the order of the steps
    in_b: Any  # (N * K, 2), of a column of B
    in_c: Any  # (M * N, 2)
    in_d: Any
    of_a: Any  # `tcsim.engines.decoding.fields`
    of_b: Any
    of_c: Any


class FragmentSteps(NamedTuple):
    """What one instruction does."""

    shape: Any  # fragments, M, N, K
    operations: Any
    separate: Any  # whether c is used after the first operation
    most: Any  # products that are summed in the type of the sums
    half: Any  # whether d is f16


class _Scratch(NamedTuple):
    """What is written to on the way."""

    raw_a: Any
    raw_c: Any
    raw_d: Any
    av: Any
    ae: Any
    rows_av: Any
    rows_ae: Any
    bv: Any
    be: Any
    cv: Any
    seen: Any
    other: Any


@loop(**UNCOUNTED)
def _blocks(stored: Any, tables: Any, steps: Any, first: Any, last: Any, scratch: Any, line: Any) -> None:
    """What `fragments` does."""
    a, b, c, out, left_out = stored
    sizes, in_a, in_b, in_c, in_d, of_a, of_b, of_c = tables
    shape, program, separate, most, half = steps
    raw_a, raw_c, raw_d, av, ae, rows_av, rows_ae, bv, be, cv, seen, other = scratch
    batch, m, n, k = shape
    narrow = line.part.itemsize == 4
    for block in range(first, last):
        if not left_out[block]:
            continue
        start = block * F
        count = min(F, batch - start)
        _transposed(b, start, count, raw_a[: sizes[1] * F])
        odd_b = _values(raw_a, in_b, of_b, bv, seen)
        if _exponents(bv, of_b[7], be) and narrow:
            continue
        far = False
        _transposed(a, start, count, raw_a[: sizes[0] * F])
        _transposed(c, start, count, raw_c[: sizes[2] * F])
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
                run_steps(rows_av, rows_ae, bv[first_b:end_b], be[first_b:end_b], F, own, acc, odd, program, most, line)
                if separate:
                    copy(acc, own)
            _codes(cv, half, in_d[row * n : (row + 1) * n], raw_d)
        if not far:
            _put(raw_d, start, count, out)
            left_out[block] = False


@loop(**OPTIONS)
def fragments(stored: Any, tables: Any, steps: Any, partial: Any, like: Any, first: Any, last: Any) -> None:
    """Of blocks `first` to `last` of F fragments those that were left out; with float32, blocks with exponents out of reach still are.

    partial, like: arrays of the types of sums and of products.
    """
    _, _, n, k = steps.shape
    sizes = tables.sizes
    av, ae = np.zeros(k * F, like.dtype), np.empty(k * F, np.int16)
    wide, single = np.empty((2, F)), np.empty((2, F), np.float32)
    scratch = _Scratch(
        np.zeros(max(sizes[0], sizes[1]) * F, np.uint32), np.zeros(sizes[2] * F, np.uint32), np.empty(sizes[3] * F, np.uint32),
        av, ae, av.reshape(k, F), ae.reshape(k, F), np.empty(n * k * F, like.dtype), np.empty(n * k * F, np.int16), np.empty(n * F, np.float32),
        np.empty(F, np.int32), single[0],
    )  # fmt: skip
    line = Line(np.empty(F, np.int16), np.empty(F, like.dtype), np.empty(F, partial.dtype), wide[0], wide[1], single[1])
    _blocks(stored, tables, steps, first, last, scratch, line)
