"""One rounding of an exact 128-bit value to a format: the only place where tcsim rounds an IEEE result.

A value is (-1)**sign * (high * 2**64 + low) * 2**exponent with uint64 limbs. Everything is array in, array out.
"""

from __future__ import annotations

from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

from tcsim.core.arguments import is_name
from tcsim.core.errors import FormatError, listing
from tcsim.lowering.traced import asarray
from tcsim.numbers.formats import Format

Rounding = Literal["rne", "rz", "rm", "rp", "rna"]
"""Nearest even, toward zero, toward minus infinity, toward plus infinity, nearest with ties away from zero."""

RoundingName = Rounding | Literal["rn"]
"""Those names, and PTX's name of rne."""

U64 = npt.NDArray[np.uint64]
Mask = npt.NDArray[np.bool_]
_ONE = np.uint64(1)
_ZERO = np.uint64(0)


def find_rounding(name: str) -> Rounding:
    """A rounding by its name here or in PTX, where to nearest even is `rn`.

    Raises FormatError for another name.
    """
    found: Rounding
    for found in get_args(Rounding):
        if is_name(name, (found, "rn") if found == "rne" else (found,)):
            return found
    raise FormatError(f"no rounding {name!r}; valid: {listing(get_args(Rounding))}, and rn for rne")


def bit_length(x: U64) -> npt.NDArray[np.int64]:
    """The number of bits of each uint64; 0 for 0.

    >>> [int(n) for n in bit_length(np.array([0, 1, 255, 2**64 - 1], np.uint64))]
    [0, 1, 8, 64]
    """
    high = (x >> np.uint64(32)).astype(np.float64)
    low = (x & np.uint64(0xFFFFFFFF)).astype(np.float64)
    return np.where(high > 0, np.frexp(high)[1] + 32, np.frexp(low)[1]).astype(np.int64)


def bit_length_128(high: U64, low: U64) -> npt.NDArray[np.int64]:
    """The number of bits of each 128-bit value."""
    return np.where(high > 0, bit_length(high) + 64, bit_length(low))


def _places(n: npt.NDArray[np.int64]) -> U64:
    """Places by which 64 bits can be shifted: n, or 0 below and 63 above. `np.clip` takes several times as long."""
    return np.minimum(np.maximum(n, 0), 63).astype(np.uint64)


def _shift_left(x: U64, n: npt.NDArray[np.int64]) -> U64:
    """x << n with n in any range: 0 where n >= 64, x where n <= 0."""
    return np.where(n > 63, _ZERO, x << _places(n))


def _shift_right(x: U64, n: npt.NDArray[np.int64]) -> U64:
    """x >> n with n in any range: 0 where n >= 64, x where n <= 0."""
    return np.where(n > 63, _ZERO, x >> _places(n))


def shift_left_128(high: U64, low: U64, n: npt.NDArray[np.int64]) -> tuple[U64, U64]:
    """(high, low) << n for 0 <= n < 128; bits above 127 are lost."""
    carried = np.where(n > 63, _shift_left(low, n - 64), np.where(n > 0, _shift_right(low, 64 - n), _ZERO))
    return np.where(n > 63, carried, _shift_left(high, n) | carried), _shift_left(low, n)


def shift_right_128(high: U64, low: U64, n: npt.NDArray[np.int64]) -> tuple[U64, U64]:
    """(high, low) >> n for n >= 0."""
    carried = np.where(n > 63, _shift_right(high, n - 64), np.where(n > 0, _shift_left(high, 64 - n), _ZERO))
    return _shift_right(high, n), np.where(n > 63, carried, _shift_right(low, n) | carried)


def shift_right_sticky_128(high: U64, low: U64, n: npt.NDArray[np.int64]) -> tuple[U64, U64]:
    """(high, low) >> n for n >= 0, with the lowest bit set if any bit was lost."""
    new_high, new_low = shift_right_128(high, low, n)
    back_high, back_low = shift_left_128(new_high, new_low, np.minimum(n, 127))
    lost = (back_high != high) | (back_low != low)
    return new_high, new_low | lost.astype(np.uint64)


def round_to_code(
    sign: npt.NDArray[np.integer],
    high: U64,
    low: U64,
    exponent: npt.NDArray[np.integer],
    target: Format,
    rounding: Rounding = "rne",
    saturate: bool = False,
) -> U64:
    """Round finite values once to codes of `target` (uint64, ignored low bits not yet added).

    Overflow gives what IEEE 754 says for the rounding mode: infinity or the largest finite number. A target without
    infinity gives NaN in infinity's place, and its largest number where it has no NaN either; `saturate` always gives
    the largest finite number. An unsigned target gives NaN for negative values, unless they round to its zero.
    """
    length = bit_length_128(high, low)
    leading = exponent + length - 1  # exponent of the leading bit
    quantum = np.maximum(leading, target.minimum_exponent) - target.fraction_bits
    shift = quantum - exponent  # drop this many bits; negative: the value is exact
    kept = np.where(shift >= 0, shift_right_128(high, low, np.maximum(shift, 0))[1], _ZERO)
    kept = np.where(shift < 0, _shift_left(low, -shift), kept)
    back_high, back_low = shift_left_128(np.zeros_like(kept), kept, np.clip(shift, 0, 127))
    lost = np.where(shift > 0, (back_high != high) | (back_low != low), False)
    lost = np.where(shift > 127, (high | low) != 0, lost)
    half_high, half_low = shift_right_128(high, low, np.maximum(shift - 1, 0))
    half = (shift > 0) & (shift <= 128) & ((half_low & _ONE) == _ONE)
    below_high, below_low = shift_left_128(half_high, half_low, np.clip(shift - 1, 0, 127))
    below = lost & ((below_high != high) | (below_low != low))
    negative = asarray(sign, bool)
    up = _up(rounding, kept, negative, lost, half, below)
    return _code(kept + up.astype(np.uint64), quantum, (high | low) == 0, negative, target, rounding, saturate)


def _up(rounding: Rounding, kept: U64, negative: Mask, lost: Mask, half: Mask, more: Mask) -> Mask:
    """Where a significand is rounded up. lost: something is dropped; half: at least half a unit; more: more than half, where `half` holds."""
    if rounding == "rne":
        return half & (more | ((kept & _ONE) == _ONE))
    if rounding == "rna":
        return half
    if rounding == "rz":
        return np.zeros_like(half)
    return lost & (negative if rounding == "rm" else ~negative)


def round_narrow(
    sign: npt.NDArray[np.integer],
    significand: U64,
    exponent: npt.NDArray[np.integer],
    target: Format,
    rounding: Rounding = "rne",
    saturate: bool = False,
) -> U64:
    """`round_to_code` of significands of at most 53 bits."""
    length = np.frexp(significand.astype(np.float64))[1].astype(np.int64)
    quantum = np.maximum(exponent + length - 1, target.minimum_exponent) - target.fraction_bits
    dropped = _places(quantum - exponent)  # with 63 of them nothing is kept, and less than a half is lost
    unit = _ONE << dropped
    kept, lost = (significand >> dropped) << _places(exponent - quantum), significand & (unit - _ONE)
    negative, twice = asarray(sign, bool), lost << _ONE
    up = _up(rounding, kept, negative, lost != 0, twice >= unit, twice > unit)
    return _code(kept + up.astype(np.uint64), quantum, significand == 0, negative, target, rounding, saturate)


def _code(
    significand: U64, quantum: npt.NDArray[np.int64], nothing: npt.NDArray[np.bool_], negative: npt.NDArray[np.bool_],
    target: Format, rounding: Rounding, saturate: bool,
) -> U64:  # fmt: skip
    """The codes of rounded significands, in units of 2**quantum. nothing: where the value was zero before it was rounded."""
    field = (quantum + target.fraction_bits - target.minimum_exponent).astype(np.uint64)
    if not target.zero:  # no subnormals and no zero: a field of 0 is the smallest normal, hidden bit present
        tiny = significand < (_ONE << np.uint64(target.fraction_bits))
        significand = np.where(tiny, _ONE << np.uint64(target.fraction_bits), significand)
        code = (field << np.uint64(target.fraction_bits)) + significand - (_ONE << np.uint64(target.fraction_bits))
    else:
        code = (field << np.uint64(target.fraction_bits)) + significand
    code = np.where(nothing, _ZERO, code)
    over = code > np.uint64(target.largest_code)
    code = np.where(over, _overflow_code(negative, target, rounding, saturate), code)
    if target.signed:
        return code | (negative.astype(np.uint64) << np.uint64(target.sign_shift))
    not_a_number = target.largest_code + 1
    return np.where(negative & ((code != 0) | (not target.zero)), np.uint64(not_a_number), code)


def _overflow_code(negative: npt.NDArray[np.bool_], target: Format, rounding: Rounding, saturate: bool) -> U64:
    largest = np.full(negative.shape, target.largest_code, np.uint64)
    if saturate or target.nan == "none":
        return largest
    infinite = largest + _ONE  # infinity, or the one NaN of a format without infinity
    if rounding in ("rne", "rna"):
        return infinite
    if rounding == "rz":
        return largest
    return np.where(negative == (rounding == "rm"), infinite, largest)
