"""The dot-add as compiled loops (numba): products of a row with W columns, or of a fragment in W instances, are summed side by side.

What is computed is what `tcsim.arithmetic.dot` says; operands come decoded (`tcsim.engines.decoding`), in the order of the steps. Finite
terms are cut and summed in int32 if their formats and exponents are narrow (float32 operands), else in float64. Infinities and NaN are left to a second
pass over rows and columns that have some: the plain sum of their products is the answer wherever it is not finite.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba.core import types
from numba.extending import overload

from tcsim.engines.loops import loop
from tcsim.engines.program import ADD, DOT, FROM_C, FROM_ZERO, WIDEN
from tcsim.engines.vectors import bits32, bits64, f32_of, f64_of, right, widest

W = 128
"""Columns of a block: its operands stay in the L1 cache."""
F = 128
"""Fragments of a block."""
ROWS = 32
"""Rows of A that a block meets while its operands are there."""
NONE = np.int16(-8000)
"""The exponent of a zero; the sum of two such, and of one and any other, is below every floor."""
REACH = np.int16(50)
"""float32 has the products of elements whose exponents are at most this far from 0, and what these are multiplied by to be cut."""
OPTIONS: dict[str, Any] = {"nogil": True, "error_model": "numpy", "cache": True}
UNCOUNTED: dict[str, Any] = OPTIONS | {"_nrt": False}
"""Of functions that allocate nothing: without counts of references, which take longer than a step's loops."""
_WITHIN = {"_nrt": False, "error_model": "numpy"}


@loop(**OPTIONS)
def _power(exponent: Any) -> Any:
    """2.0**exponent, of normal numbers."""
    return f64_of((np.int64(exponent) + 1023) << 52)


@loop(**UNCOUNTED)
def any_far(e: Any) -> Any:
    """Whether an exponent, other than that of a zero, is out of reach."""
    widest()
    count = np.int16(0)
    for n in range(len(e)):
        own = np.int16(e[n])
        count = np.int16(count | np.int16((own > REACH) | ((own < -REACH) & (own > NONE // 2))))
    return count > 0


# --- one step: sums over a row of A and W columns of B


# a: (L,), to be met by b (L * W,), W columns; or (L, F), to be met by b (L * F,), in each of F fragments


def _largest(a: Any, b: Any, e: Any) -> None:
    """The largest exponent of the products of a and b, and of what is in e."""


@overload(_largest, jit_options=_WITHIN)
def _(a: Any, b: Any, e: Any) -> Any:
    def of_row(a: Any, b: Any, e: Any) -> None:
        widest()
        for k in range(0, len(a), 4):
            a0, a1, a2, a3 = a[k], a[k + 1], a[k + 2], a[k + 3]
            part = b[k * W : (k + 4) * W]
            for n in range(len(e)):
                x = max(np.int16(a0 + part[n]), np.int16(a1 + part[n + W]))
                y = max(np.int16(a2 + part[n + 2 * W]), np.int16(a3 + part[n + 3 * W]))
                e[n] = max(e[n], max(x, y))

    def of_fragments(a: Any, b: Any, e: Any) -> None:
        widest()
        for k in range(0, len(a), 4):
            a0, a1, a2, a3 = a[k], a[k + 1], a[k + 2], a[k + 3]
            part = b[k * F : (k + 4) * F]
            for n in range(F):
                x = max(np.int16(a0[n] + part[n]), np.int16(a1[n] + part[n + F]))
                y = max(np.int16(a2[n] + part[n + 2 * F]), np.int16(a3[n] + part[n + 3 * F]))
                e[n] = max(e[n], max(x, y))

    return of_row if a.ndim == 1 else of_fragments


def _sum(a: Any, b: Any, scale: Any, total: Any) -> None:
    """Add the cut products of a and b to total."""


@overload(_sum, jit_options=_WITHIN)
def _(a: Any, b: Any, scale: Any, total: Any) -> Any:
    def narrow(a: Any, b: Any, scale: Any, total: Any) -> None:
        widest()
        for k in range(0, len(a), 4):
            a0, a1, a2, a3 = a[k], a[k + 1], a[k + 2], a[k + 3]
            part = b[k * W : (k + 4) * W]
            for n in range(len(total)):
                s = scale[n]
                x = np.int32(np.int32(a0 * part[n] * s) + np.int32(a1 * part[n + W] * s))
                y = np.int32(np.int32(a2 * part[n + 2 * W] * s) + np.int32(a3 * part[n + 3 * W] * s))
                total[n] = np.int32(total[n] + np.int32(x + y))

    def wide(a: Any, b: Any, scale: Any, total: Any) -> None:
        widest()
        for k in range(0, len(a), 4):
            a0, a1, a2, a3 = a[k], a[k + 1], a[k + 2], a[k + 3]
            part = b[k * W : (k + 4) * W]
            for n in range(len(total)):
                s = scale[n]
                x = np.trunc(a0 * part[n] * s) + np.trunc(a1 * part[n + W] * s)
                y = np.trunc(a2 * part[n + 2 * W] * s) + np.trunc(a3 * part[n + 3 * W] * s)
                total[n] += x + y

    def narrow_fragments(a: Any, b: Any, scale: Any, total: Any) -> None:
        widest()
        for k in range(0, len(a), 4):
            a0, a1, a2, a3 = a[k], a[k + 1], a[k + 2], a[k + 3]
            part = b[k * F : (k + 4) * F]
            for n in range(F):
                s = scale[n]
                x = np.int32(np.int32(a0[n] * part[n] * s) + np.int32(a1[n] * part[n + F] * s))
                y = np.int32(np.int32(a2[n] * part[n + 2 * F] * s) + np.int32(a3[n] * part[n + 3 * F] * s))
                total[n] = np.int32(total[n] + np.int32(x + y))

    def wide_fragments(a: Any, b: Any, scale: Any, total: Any) -> None:
        widest()
        for k in range(0, len(a), 4):
            a0, a1, a2, a3 = a[k], a[k + 1], a[k + 2], a[k + 3]
            part = b[k * F : (k + 4) * F]
            for n in range(F):
                s = scale[n]
                x = np.trunc(a0[n] * part[n] * s) + np.trunc(a1[n] * part[n + F] * s)
                y = np.trunc(a2[n] * part[n + 2 * F] * s) + np.trunc(a3[n] * part[n + 3 * F] * s)
                total[n] += x + y

    if a.ndim == 1:
        return narrow if a.dtype == types.float32 else wide
    return narrow_fragments if a.dtype == types.float32 else wide_fragments


def _plain(a: Any, b: Any, total: Any) -> None:
    """Add the products themselves: whether a sum is finite, and which NaN or infinity it is if not."""


@overload(_plain, jit_options=_WITHIN)
def _(a: Any, b: Any, total: Any) -> Any:
    def of_row(a: Any, b: Any, total: Any) -> None:
        widest()
        for k in range(len(a)):
            x, part = np.float64(a[k]), b[k * W : (k + 1) * W]
            for n in range(len(total)):
                total[n] += x * np.float64(part[n])

    def of_fragments(a: Any, b: Any, total: Any) -> None:
        widest()
        for k in range(len(a)):
            x, part = a[k], b[k * F : (k + 1) * F]
            for n in range(F):
                total[n] += np.float64(x[n]) * np.float64(part[n])

    return of_row if a.ndim == 1 else of_fragments


@loop(**UNCOUNTED)
def _collect(part: Any, total: Any, more: Any) -> None:
    """A sum of products as float64; `more`: in addition to what is there."""
    widest()
    for n in range(len(total)):
        total[n] = (total[n] if more else 0.0) + np.float64(part[n])


# --- one step: what does not depend on where the products come from


@loop(**UNCOUNTED)
def copy(source: Any, target: Any) -> None:
    """What `target[:] = source` does, which looks for arrays that overlap."""
    widest()
    for n in range(len(target)):
        target[n] = source[n]


@loop(**UNCOUNTED)
def clear(target: Any) -> None:
    """What `target[:] = 0` does."""
    widest()
    for n in range(len(target)):
        target[n] = 0


def _scales(e: Any, c: Any, minimum_exponent: Any, shift: Any, fraction_bits: Any, scale: Any) -> Any:
    """Let the addends' exponents count, then 2**(fraction_bits - e) for products; whether an addend is not finite.

    Where the power is no float32 all products are zeros.
    """


@overload(_scales, jit_options=_WITHIN)
def _(e: Any, c: Any, minimum_exponent: Any, shift: Any, fraction_bits: Any, scale: Any) -> Any:
    def narrow(e: Any, c: Any, minimum_exponent: Any, shift: Any, fraction_bits: Any, scale: Any) -> Any:
        widest()
        lowest, less = np.int32(minimum_exponent), np.int32(shift)
        bits, odd = np.int32(np.int32(fraction_bits) + np.int32(127)), np.int32(0)
        for n in range(len(e)):
            magnitude = bits32(c[n]) & np.int32(0x7FFFFFFF)
            own = np.int32(max(np.int32((magnitude >> np.int32(23)) - np.int32(127)), lowest) - less)
            own = max(np.int32(e[n]), np.int32(NONE) if magnitude == 0 else own)
            odd = max(odd, magnitude)
            e[n] = np.int16(own)
            scale[n] = f32_of(min(np.int32(bits - own), np.int32(254)) << np.int32(23))
        return odd >= np.int32(0x7F800000)

    def wide(e: Any, c: Any, minimum_exponent: Any, shift: Any, fraction_bits: Any, scale: Any) -> Any:
        widest()
        lowest, less = np.int32(minimum_exponent), np.int32(shift)
        odd = np.int32(0)
        for n in range(len(e)):
            magnitude = bits32(c[n]) & np.int32(0x7FFFFFFF)
            own = np.int32(max(np.int32((magnitude >> np.int32(23)) - np.int32(127)), lowest) - less)
            own = max(np.int32(e[n]), np.int32(NONE) if magnitude == 0 else own)
            odd = max(odd, magnitude)
            e[n] = np.int16(own)
            scale[n] = _power(fraction_bits - np.int64(own))
        return odd >= np.int32(0x7F800000)

    return narrow if scale.dtype == types.float32 else wide


@loop(**OPTIONS)
def _to_half(value: Any) -> Any:
    """Round to f16, to nearest even."""
    step = max(((bits64(value) >> 52) & 0x7FF) - 1023, -14) - 10
    near = np.rint(value * _power(-step)) * _power(step)
    return near * np.inf if abs(near) >= 65536.0 else near


@loop(**OPTIONS)
def _signed_half(value: Any) -> Any:
    wide = np.float64(value)
    return np.float32(np.copysign(_to_half(wide), wide))


@loop(**UNCOUNTED)
def _finish(
    total: Any, e: Any, c: Any, d: Any, shift: Any, fraction_bits: Any, mask: Any, half: Any, never_small: Any
) -> None:
    """d: total and the cut addend, rounded. An infinity or NaN among the terms gives whatever it gives.

    never_small: whether float32 has the last place of a sum of products, and the addend is one of its numbers: rounding is cutting.
    """
    widest()
    weight = _power(-shift)
    if never_small and not half and shift == 0:
        low = np.int32(mask)
        for n in range(len(e)):
            place = (np.int64(e[n]) - fraction_bits) << 52
            exact = total[n] + np.trunc(np.float64(c[n]) * f64_of((np.int64(1023) << 52) - place))
            value = f64_of(bits64(exact) & np.int64(-1 << 29)) * f64_of((np.int64(1023) << 52) + place)
            d[n] = f32_of(bits32(np.float32(value)) & low) + np.float32(0.0)
        return
    if half:
        for n in range(len(e)):
            exact = total[n] + np.trunc(np.float64(c[n]) * weight * _power(fraction_bits - np.int64(e[n])))
            d[n] = np.float32(_to_half(exact * _power(np.int64(e[n]) - fraction_bits)) + 0.0)  # no -0
        return
    kept = np.int32(mask)
    for n in range(len(e)):
        exact = total[n] + np.trunc(np.float64(c[n]) * weight * _power(fraction_bits - np.int64(e[n])))
        value = exact * _power(np.int64(e[n]) - fraction_bits)
        near = np.float32(value)
        beyond = np.int32((abs(value) < 2.0**128) & (abs(np.float64(near)) > abs(value)))
        d[n] = f32_of((bits32(near) - beyond) & kept) + np.float32(0.0)


def _finish_in_32_bits(part: Any, scale: Any, c: Any, d: Any, mask: Any) -> Any:
    """`_finish` of sums that float32 has, without doubles; False if one has more than 31 bits: d is wrong then."""


@overload(_finish_in_32_bits, jit_options=_WITHIN)
def _(part: Any, scale: Any, c: Any, d: Any, mask: Any) -> Any:
    def narrow(part: Any, scale: Any, c: Any, d: Any, mask: Any) -> Any:
        widest()
        low, beyond = np.int32(mask), np.int32(0)
        for n in range(len(d)):
            addend = np.int32(c[n] * scale[n])
            sum = np.int32(part[n] + addend)
            sign = np.int32(sum >> np.int32(31))
            size = np.int32(np.int32(sum ^ sign) - sign)
            beyond = np.int32(beyond | size | np.int32(np.int32(part[n] ^ sum) & np.int32(addend ^ sum)))
            cut = np.float32(
                np.int32(size & ~right(size, np.int32(24)))
            )  # without the first bit of those to be dropped: rounds down
            weight = np.int32(np.int32(254 << 23) - bits32(scale[n]))
            bits = np.int32(bits32(cut * f32_of(weight)) | np.int32(sum & np.int32(-(1 << 31))))
            bits = bits if weight > np.int32(0) else bits32(c[n])  # all products are zeros
            d[n] = f32_of(np.int32(bits & low)) + np.float32(0.0)
        return beyond >= 0

    def wide(part: Any, scale: Any, c: Any, d: Any, mask: Any) -> Any:
        return False

    return narrow if part.dtype == types.int32 else wide


@loop(**UNCOUNTED)
def _settle(plain: Any, d: Any) -> None:
    """Where the plain sum is not finite, it is the result."""
    for n in range(len(d)):
        if not abs(plain[n]) < np.inf:
            d[n] = np.float32(plain[n])


@loop(**UNCOUNTED)
def _ordinary(operation: Any, acc: Any, c: Any, half: Any) -> None:
    """The operations that are not dot-adds, on the accumulator."""
    widest()
    for n in range(len(acc)):
        if operation == ADD:
            sum = acc[n] + c[n]  # of two f16 exact
            acc[n] = _signed_half(sum) if half else sum
        elif operation == WIDEN:
            acc[n] = c[n]
        else:
            acc[n] = _signed_half(acc[n])


@loop(**UNCOUNTED)
def group_values(
    a: Any, b: Any, scale_a: Any, exponent_a: Any, scale_b: Any, exponent_b: Any, value: Any, e: Any, total: Any, size: Any
) -> None:  # fmt: skip
    """A term of a group: the exact sum of products of a (G,) and b (G * W,), scaled; its exponent is that of the scales, if one is not zero.

    total, size: there to be written to.
    """
    widest()
    total[:] = np.float32(0.0)
    size[:] = np.float32(0.0)
    for k in range(len(a)):
        x = np.float32(a[k])
        part = b[k * W : (k + 1) * W]
        for n in range(len(total)):
            product = x * np.float32(part[n])
            total[n] += product
            size[n] += abs(product)
    for n in range(len(e)):
        value[n] = np.float64(total[n]) * scale_a * scale_b[n]
        e[n] = max(np.int16(exponent_a + exponent_b[n]), NONE) if size[n] > 0 else NONE


# --- one instruction


class Line(NamedTuple):
    """What an instruction writes to on the way, of W columns or F fragments."""

    e: Any
    scale: Any
    part: Any
    total: Any
    plain: Any
    fresh: Any


@loop(**UNCOUNTED)
def run_steps(
    values: Any, exponents: Any, values_b: Any, exponents_b: Any, stride: Any, c: Any, acc: Any, odd: Any, program: Any, most: Any,
    line: Any,
) -> None:  # fmt: skip
    """The operations of one instruction on c, into acc."""
    widest()
    e, scale, part, total, plain, fresh = line
    for p in range(len(program)):
        operation, start, length, addend, lowest, shift, fraction_bits, floor, mask, half = program[p]
        if operation != DOT:
            _ordinary(operation, acc, c, half)
            continue
        end = start + length
        e[:] = np.int16(floor)
        _largest(exponents[start:end], exponents_b[start * stride : end * stride], e)
        addends = c if addend == FROM_C else acc
        if addend == FROM_ZERO:
            acc[:] = np.float32(0.0)
        strange = _scales(e, addends, lowest, shift, fraction_bits, scale)
        for one in range(start, end, most):
            two = min(one + most, end)
            part[:] = 0
            _sum(values[one:two], values_b[one * stride : two * stride], scale, part)
            if length > most:
                _collect(part, total, one > start)
        if length > most:
            _finish(total, e, addends, fresh, shift, fraction_bits, mask, half, part.itemsize == 4)
        elif half or shift != 0 or not _finish_in_32_bits(part, scale, addends, fresh, mask):
            _finish(part, e, addends, fresh, shift, fraction_bits, mask, half, part.itemsize == 4)
        if odd or strange:
            copy(addends, plain)
            _plain(values[start:end], values_b[start * stride : end * stride], plain)
            _settle(plain, fresh)
        copy(fresh, acc)  # written apart: loops whose arrays overlap are not vectorised
