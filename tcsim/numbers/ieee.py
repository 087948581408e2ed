"""Correctly rounded IEEE 754 fused multiply-add, addition, multiplication, division and square root on codes, in integers.

This is what the ordinary (CUDA core) FFMA, FADD, HADD2 and the f64 tensor core compute. No host floating point is used.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tcsim.numbers.formats import INFINITY, NAN, ZERO, Fields, Format
from tcsim.numbers.rounding import U64, Rounding, bit_length_128, round_to_code, shift_left_128, shift_right_sticky_128

_LOW32 = np.uint64(0xFFFFFFFF)
_32 = np.uint64(32)
_TOP = 125  # position of the leading bit after alignment: two bits of headroom for the sum
_FAR = -100_000  # exponent of a zero: below every other


def _multiply_64(x: U64, y: U64) -> tuple[U64, U64]:
    """The 128-bit product of two uint64."""
    x0, x1, y0, y1 = x & _LOW32, x >> _32, y & _LOW32, y >> _32
    low = x0 * y0
    middle = x1 * y0 + (low >> _32)
    middle2 = x0 * y1 + (middle & _LOW32)
    return x1 * y1 + (middle >> _32) + (middle2 >> _32), (middle2 << _32) | (low & _LOW32)


def _normalise(high: U64, low: U64, exponent: npt.NDArray[np.int64]) -> tuple[U64, U64, npt.NDArray[np.int64]]:
    """Shift the leading bit to `_TOP`; zeros get the exponent `_FAR`."""
    length = bit_length_128(high, low)
    shift = np.where(length == 0, 0, _TOP + 1 - length)
    new_high, new_low = shift_left_128(high, low, shift)
    return new_high, new_low, np.where(length == 0, _FAR, exponent - shift)


def fma(
    a: npt.NDArray[np.unsignedinteger],
    b: npt.NDArray[np.unsignedinteger],
    c: npt.NDArray[np.unsignedinteger],
    formats: tuple[Format, Format, Format],
    out: Format,
    rounding: Rounding = "rne",
    nan_order: str = "",
) -> npt.NDArray[np.unsignedinteger]:
    """a * b + c with one rounding, codes in and codes of `out` out; the arrays broadcast.

    Formats of up to 53 significand bits. An exact zero result has the sign IEEE 754 gives it (minus only if both terms
    are negative, or under "rm" for a cancellation). NaN results are `out.canonical_nan`, unless `nan_order` names
    operands, such as "bca": then the first of them that is NaN passes through, made quiet (all formats must be `out`).
    """
    pa, pb, pc = (f.fields(x) for f, x in zip(formats, (a, b, c), strict=True))
    fraction_bits = [f.fraction_bits for f in formats]
    product_high, product_low = _multiply_64(*np.broadcast_arrays(_finite(pa), _finite(pb)))
    product_exponent = pa.exponent.astype(np.int64) + pb.exponent - fraction_bits[0] - fraction_bits[1]
    product_sign = pa.sign ^ pb.sign
    c_low = _finite(pc)
    arrays = np.broadcast_arrays(
        product_high, product_low, product_exponent, product_sign,
        np.zeros_like(c_low), c_low, pc.exponent.astype(np.int64) - fraction_bits[2], pc.sign,
    )  # fmt: skip
    ph, pl, pe = _normalise(arrays[0], arrays[1], arrays[2])
    ch, cl, ce = _normalise(arrays[4], arrays[5], arrays[6])
    ps, cs = arrays[3], arrays[7]
    exponent = np.maximum(pe, ce)
    ph, pl = shift_right_sticky_128(ph, pl, np.minimum(exponent - pe, 200))
    ch, cl = shift_right_sticky_128(ch, cl, np.minimum(exponent - ce, 200))
    subtract = ps != cs
    c_larger = (ch > ph) | ((ch == ph) & (cl > pl))
    xh, xl = np.where(c_larger, ch, ph), np.where(c_larger, cl, pl)
    yh, yl = np.where(c_larger, ph, ch), np.where(c_larger, pl, cl)
    sum_low = xl + yl
    sum_high = xh + yh + (sum_low < xl)
    difference_low = xl - yl
    difference_high = xh - yh - (xl < yl)
    high = np.where(subtract, difference_high, sum_high)
    low = np.where(subtract, difference_low, sum_low)
    sign = np.where(c_larger, cs, ps)
    cancelled = subtract & ((high | low) == 0)
    sign = np.where(cancelled, np.uint8(rounding == "rm"), sign)
    codes = round_to_code(sign, high, low, exponent, out, rounding)
    codes = _specials(codes, pa, pb, pc, out)
    quiet = np.uint64(1 << (out.fraction_bits - 1))
    for name in reversed(nan_order):
        given, parts = {"a": (a, pa), "b": (b, pb), "c": (c, pc)}[name]
        codes = np.where(parts.kind == NAN, given.astype(np.uint64) | quiet, codes)
    return codes.astype(out.dtype)


def add(
    a: npt.NDArray[np.unsignedinteger],
    c: npt.NDArray[np.unsignedinteger],
    formats: tuple[Format, Format],
    out: Format,
    rounding: Rounding = "rne",
) -> npt.NDArray[np.unsignedinteger]:
    """a + c with one rounding: `fma` with b = 1."""
    return fma(a, _one(formats[0]), c, (formats[0], formats[0], formats[1]), out, rounding)


def multiply(
    a: npt.NDArray[np.unsignedinteger],
    b: npt.NDArray[np.unsignedinteger],
    formats: tuple[Format, Format],
    out: Format,
    rounding: Rounding = "rne",
) -> npt.NDArray[np.unsignedinteger]:
    """a * b with one rounding: `fma` with c = a zero of the product's sign."""
    sign = formats[0].fields(a).sign ^ formats[1].fields(b).sign
    zero = sign.astype(out.dtype) << out.dtype.type(out.sign_shift)
    return fma(a, b, zero, (formats[0], formats[1], out), out, rounding)


def convert(
    a: npt.NDArray[np.unsignedinteger], formats: tuple[Format], out: Format, rounding: Rounding = "rne"
) -> npt.NDArray[np.unsignedinteger]:
    """a in another format, with one rounding; a zero keeps its sign, a NaN becomes the canonical one."""
    return multiply(a, _one(formats[0]), (formats[0], formats[0]), out, rounding)


_DIGITS = 55  # of a quotient or a root: those of f64, one to round by, one to spare


def _leading(parts: Fields) -> tuple[U64, npt.NDArray[np.int64]]:
    """Significands of finite numbers with their leading bit at place 52, and how far they were shifted."""
    found = _finite(parts)
    length = bit_length_128(np.zeros_like(found), found)
    shift = np.where(length == 0, 0, 53 - length)
    return found << shift.astype(np.uint64), shift.astype(np.int64)


def divide(
    a: npt.NDArray[np.unsignedinteger],
    b: npt.NDArray[np.unsignedinteger],
    formats: tuple[Format, Format],
    out: Format,
    rounding: Rounding = "rne",
) -> npt.NDArray[np.unsignedinteger]:
    """a / b with one rounding, digit by digit; NaN results are the canonical NaN."""
    a, b = np.broadcast_arrays(a, b)
    pa, pb = formats[0].fields(a), formats[1].fields(b)
    (x, x_shift), (y, y_shift) = _leading(pa), _leading(pb)
    y = np.where(y == 0, np.uint64(1 << 52), y)
    rest, quotient = x, np.zeros_like(x)
    for _ in range(_DIGITS + 1):
        digit = rest >= y
        quotient = quotient << np.uint64(1) | digit
        rest = np.where(digit, rest - y, rest) << np.uint64(1)
    quotient = quotient << np.uint64(1) | (rest != 0)
    fraction = formats[0].fraction_bits - formats[1].fraction_bits
    exponent = pa.exponent.astype(np.int64) - x_shift - pb.exponent + y_shift - fraction - _DIGITS - 1
    sign = pa.sign ^ pb.sign
    codes = round_to_code(sign, np.zeros_like(quotient), quotient, exponent, out, rounding)
    top = sign.astype(np.uint64) << np.uint64(out.sign_shift)
    codes = np.where((pa.kind == INFINITY) | (pb.kind == ZERO), np.uint64(out.largest_code + 1) | top, codes)
    codes = np.where((pb.kind == INFINITY) | ((pa.kind == ZERO) & (pb.kind != ZERO)), top, codes)
    invalid = (pa.kind == pb.kind) & ((pa.kind == ZERO) | (pa.kind == INFINITY))
    invalid = invalid | (pa.kind == NAN) | (pb.kind == NAN)
    return np.where(invalid, np.uint64(out.canonical_nan or 0), codes).astype(out.dtype)


def root(
    a: npt.NDArray[np.unsignedinteger], formats: tuple[Format], out: Format, rounding: Rounding = "rne"
) -> npt.NDArray[np.unsignedinteger]:
    """The square root with one rounding, digit by digit; that of -0 is -0, of other negative numbers the canonical NaN."""
    parts = formats[0].fields(a)
    x, shift = _leading(parts)
    exponent = parts.exponent.astype(np.int64) - shift - formats[0].fraction_bits
    odd = exponent & 1
    x, exponent = x << odd.astype(np.uint64), exponent - odd  # 53 or 54 bits at an even exponent
    rest, found = np.zeros_like(x), np.zeros_like(x)
    for place in range(_DIGITS):
        pair = x >> np.uint64(52 - 2 * place) & np.uint64(3) if place <= 26 else np.uint64(0)
        rest = rest << np.uint64(2) | pair
        trial = found << np.uint64(2) | np.uint64(1)
        digit = rest >= trial
        rest = np.where(digit, rest - trial, rest)
        found = found << np.uint64(1) | digit
    found = found << np.uint64(1) | (rest != 0)
    half = exponent // 2 - (_DIGITS - 27) - 1
    codes = round_to_code(parts.sign, np.zeros_like(found), found, half, out, rounding)
    top = parts.sign.astype(np.uint64) << np.uint64(out.sign_shift)
    codes = np.where(parts.kind == INFINITY, np.uint64(out.largest_code + 1), codes)
    codes = np.where(parts.kind == ZERO, top, codes)
    invalid = (parts.kind == NAN) | ((parts.sign != 0) & (parts.kind != ZERO))
    return np.where(invalid, np.uint64(out.canonical_nan or 0), codes).astype(out.dtype)


def _one(format: Format) -> npt.NDArray[np.unsignedinteger]:
    return np.array(format.bias << format.fraction_bits + format.ignored_low_bits, format.dtype)


def _finite(parts: Fields) -> U64:
    return np.where(parts.kind >= INFINITY, np.uint64(0), parts.significand)


def _specials(codes: U64, pa: Fields, pb: Fields, pc: Fields, out: Format) -> U64:
    """Replace results that involve NaN or infinity."""
    product_infinite = (pa.kind == INFINITY) | (pb.kind == INFINITY)
    invalid = product_infinite & ((pa.kind == ZERO) | (pb.kind == ZERO))
    c_infinite = pc.kind == INFINITY
    product_sign = pa.sign ^ pb.sign
    invalid = invalid | (product_infinite & c_infinite & (product_sign != pc.sign))
    not_a_number = invalid | (pa.kind == NAN) | (pb.kind == NAN) | (pc.kind == NAN)
    sign = np.where(product_infinite, product_sign, pc.sign).astype(np.uint64)
    infinite = np.uint64(out.largest_code + 1) | (sign << np.uint64(out.sign_shift))
    codes = np.where(product_infinite | c_infinite, infinite, codes)
    return np.where(not_a_number, np.uint64(out.canonical_nan or 0), codes)
