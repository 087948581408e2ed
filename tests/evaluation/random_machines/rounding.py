"""Exact sums of arrays, and one rounding of them to a format's code; NumPy integers only."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from .formats import Array, Format, bit_length

_LIMB = 30
_MASK = (1 << _LIMB) - 1


class Sum(NamedTuple):
    """(magnitude + something in (0, 1) if sticky) * 2**unit, negated where `negative`. A sticky magnitude has 31 bits or more."""

    negative: Array
    magnitude: Array  # below 2**61
    unit: Array
    sticky: Array


def exact_sum(terms: Array, units: Array) -> Sum:
    """The sum over the last axis of terms * 2**units (int64, magnitudes below 2**31), enough of it for any rounding."""
    count, width = terms.shape
    if width == 2:
        return _sum_of_two(terms, units)
    used = terms != 0
    base = int(np.where(used, units, np.iinfo(np.int64).max).min(initial=np.iinfo(np.int64).max))
    if not used.any():
        zero = np.zeros(count, np.int64)
        return Sum(zero < 0, zero, zero, zero < 0)
    base -= _LIMB
    position = np.where(used, units - base, 0)
    limbs = int(position.max()) // _LIMB + 3
    index, shift = np.divmod(position, _LIMB)
    value = np.abs(terms) << shift
    row = np.arange(count)[:, None]
    total = np.zeros(limbs * count)
    for part in (0, 1):
        weight = np.sign(terms) * ((value >> (_LIMB * part)) & _MASK)
        total += np.bincount(((index + part) * count + row).ravel(), weight.ravel(), limbs * count)
    number = total.astype(np.int64).reshape(limbs, count)
    negative = _carry(number.copy()) < 0
    number *= np.where(negative, -1, 1)
    _carry(number)
    full = number != 0
    top = np.maximum(limbs - 1 - np.argmax(full[::-1], axis=0), 1)
    column = np.arange(count)
    below = np.arange(limbs)[:, None] < top - 1
    magnitude = (number[top, column] << _LIMB) | number[top - 1, column]
    return Sum(negative, magnitude, base + _LIMB * (top - 1), (full & below).any(axis=0))


def _carry(number: Array) -> Array:
    """Bring limbs (limbs, count) into [0, 2**30), lowest first; what is carried out of the last one."""
    carry = np.zeros(number.shape[1], np.int64)
    for limb in number:
        limb += carry
        carry = limb >> _LIMB
        limb &= _MASK
    return carry


def _sum_of_two(terms: Array, units: Array) -> Sum:
    """The smaller of two terms may fall below the other's 60 bits: then it counts as a sticky bit, rounded down."""
    width = bit_length(np.abs(terms))
    top = np.where(terms != 0, units + width, np.iinfo(np.int32).min)
    swap = (top[:, 1] > top[:, 0])[:, None]
    terms, units, width = (np.where(swap, x[:, ::-1], x) for x in (terms, units, width))
    room = 59 - width[:, 0]
    unit = units[:, 0] - room
    shift = np.where(terms[:, 1] != 0, units[:, 1] - unit, 0)
    down = np.clip(-shift, 0, 62)
    small = np.where(shift >= 0, terms[:, 1] << np.clip(shift, 0, 59), terms[:, 1] >> down)
    sticky = (small << down) != np.where(shift >= 0, small, terms[:, 1])
    total = (terms[:, 0] << room) + small
    negative = total < 0
    return Sum(negative, np.where(negative, -total - sticky, total), unit, sticky)


def to_code(
    total: Sum,
    form: Format,
    bits: int,
    *,
    mode: str,
    overflow: str = "infinity",
    flush: bool = False,
    signed_zero: bool = True,
) -> Array:
    """Codes of sums, rounded to `bits` significant bits ("rz", "rne") in the exponent range of a format.

    `flush`: what is subnormal after rounding becomes zero; `signed_zero`: a negative sum that becomes zero is -0.
    """
    exponent = total.unit + bit_length(total.magnitude) - 1
    quantum = np.maximum(exponent, form.lowest) - (bits - 1)
    drop = np.clip(quantum - total.unit, 0, 62)
    kept = (total.magnitude << np.clip(total.unit - quantum, 0, bits)) >> drop
    if mode == "rne":
        rest = total.magnitude & ((np.int64(1) << drop) - 1)
        half = (np.int64(1) << drop) >> 1
        tie = (rest == half) & (total.sticky | (kept & 1 == 1))
        kept = kept + ((drop > 0) & ((rest > half) | tie))
    carried = kept == 1 << bits
    kept, quantum = np.where(carried, kept >> 1, kept), quantum + carried
    normal = kept >= 1 << (bits - 1)
    fraction = kept << (form.fraction_bits - (bits - 1))
    code = ((quantum + (bits - 1) + form.bias - 1) << form.fraction_bits) + fraction
    code = np.where(normal if flush else kept > 0, code, 0)
    infinity = ((1 << form.exponent_bits) - 1) << form.fraction_bits
    largest = infinity - (1 << (form.fraction_bits - (bits - 1)))
    code = np.where(normal & (code >= infinity), infinity if overflow == "infinity" else largest, code)
    sign = total.negative & (signed_zero | (code != 0))
    return code | (sign.astype(np.int64) << (form.bits - 1))
