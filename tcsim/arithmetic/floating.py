"""The ordinary floating-point instructions (FADD, FMUL, FFMA, HFMA2, DFMA and relatives) on whole arrays, with the GPU's bits.

Faster than `tcsim.numbers.ieee`, which computes the same in integers and checks this. Operands are codes: uint16 of f16 and
bf16, uint32 of f32, uint64 of f64. Results that are NaN are the canonical NaN of the GPU (f64: what the host makes, made quiet).
Host arithmetic is IEEE 754 with subnormals and rounding to nearest even, which NumPy never changes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tcsim.lowering.traced import Traced, asarray, fused
from tcsim.numbers import ieee
from tcsim.numbers.formats import FORMATS
from tcsim.numbers.rounding import Rounding

Codes = npt.NDArray[Any]
Doubles = npt.NDArray[np.float64]

_SIGN32, _EXPONENT32 = np.uint32(0x80000000), np.uint32(0x7F800000)
_NAN32 = np.uint32(0x7FFFFFFF)
_NAN16 = np.uint16(0x7FFF)


def flush(codes: Codes) -> Codes:
    """f32 codes with subnormal numbers as zeros of their sign (.ftz).

    >>> [hex(code) for code in flush(np.array([0x80000001, 0x00800000], np.uint32))]
    ['0x80000000', '0x800000']
    """
    small = codes & _EXPONENT32 == 0
    return np.where(small, codes & _SIGN32, codes) if small.any() else codes


def _canonical(result: npt.NDArray[np.float32]) -> Codes:
    """The codes of f32 results, NaN canonical."""
    bits = result.view(np.uint32)
    wrong = np.isnan(result)
    return np.where(wrong, _NAN32, bits) if wrong.any() else bits


def _wide(codes: Codes, format: str) -> Doubles:
    """Codes of at most 32 bits as f64, exactly."""
    with np.errstate(invalid="ignore"):
        if format == "f16":
            return codes.view(np.float16).astype(np.float64)
        if format == "bf16":
            return (codes.astype(np.uint32) << np.uint32(16)).view(np.float32).astype(np.float64)
        return codes.view(np.float32).astype(np.float64)


def _two_sum(a: Doubles, b: Doubles) -> tuple[Doubles, Doubles]:
    """The rounded sum and its error, exactly."""
    total = a + b
    part = total - a
    return total, (a - (total - part)) + (b - part)


def _to_odd(high: Doubles, low: Doubles) -> Doubles:
    """high + low rounded to odd: a further rounding to fewer bits is then correct."""
    inexact = low != 0
    if not inexact.any():
        return high
    bits = high.view(np.int64)
    even = inexact & (bits & 1 == 0) & np.isfinite(high)
    away = (low > 0) == (high > 0)
    return np.where(even, bits + np.where(away, 1, -1), bits).view(np.float64)


def rounded(high: Doubles, low: Doubles, format: str, rounding: Rounding) -> Codes:
    """The codes of high + low, |low| at most half a unit of high, in a format of at most 32 bits."""
    with np.errstate(all="ignore"):
        odd = _to_odd(high, low)
        near = _nearest(odd, format)
        if rounding == "rne":
            return near
        error = odd - _wide(near, format)
        return _directed(near, error, format, rounding)


def _nearest(odd: Doubles, format: str) -> Codes:
    """The nearest code of values that were rounded to odd."""
    if format == "f16":
        return _nan16(odd.astype(np.float16).view(np.uint16), odd)
    if format == "f32":
        return _canonical(odd.astype(np.float32))
    wide = odd.astype(np.float32)
    error = odd - wide.astype(np.float64)
    bits = wide.view(np.int32)
    inexact = (error != 0) & (bits & 1 == 0) & np.isfinite(wide)
    bits = np.where(inexact, bits + np.where((error > 0) == (wide > 0), 1, -1), bits).astype(np.int64) & 0xFFFFFFFF
    return _nan16((bits + 0x7FFF + (bits >> 16 & 1) >> 16).astype(np.uint16), odd)


def _directed(near: Codes, error: Doubles, format: str, rounding: Rounding) -> Codes:
    """The code below, above or towards zero of near + error, `near` being the nearest."""
    kind = near.dtype.type
    top = kind(1 << (8 * near.dtype.itemsize - 1))
    size = near & ~top
    negative = near & top != 0
    overflow = (size == kind(_INFINITE[format])) & np.isinf(error)  # a finite value that is too large
    smaller = np.where(
        overflow, True, np.where(negative, error > 0, error < 0)
    )  # the value is nearer to zero than `near`
    larger = ~overflow & np.where(negative, error < 0, error > 0) & (error != 0)
    away = {"rz": np.zeros(near.shape, bool), "rm": negative, "rp": ~negative}[rounding]
    zero = size == 0  # a tiny value on either side of zero
    beyond = {"rz": np.zeros(near.shape, bool), "rm": error < 0, "rp": error > 0}[rounding]
    found = np.where(smaller & ~away & ~zero, near - kind(1), np.where(larger & away & ~zero, near + kind(1), near))
    if rounding == "rm":
        found = np.where(zero & beyond, top | kind(1), found)
    elif rounding == "rp":
        found = np.where(zero & beyond, kind(1), found)
    found = np.where(zero & ~beyond & (error < 0), top, found)
    return np.where(is_nan(near, format), near, found)


def _nan16(codes: Codes, value: Doubles) -> Codes:
    return np.where(np.isnan(value), _NAN16, codes)


def add(a: Codes, b: Codes, format: str, rounding: Rounding = "rne", ftz: bool = False) -> Codes:
    """a + b.

    >>> hex(add(np.array([0x3F800000], np.uint32), np.array([0x33800000], np.uint32), "f32", "rp")[0])
    '0x3f800001'
    """
    with np.errstate(all="ignore"):
        if format == "f64":
            found = a.view(np.float64) + b.view(np.float64)
            if rounding != "rne":
                found = _slow(ieee.add, (a, b), "f64", rounding).view(np.float64)
            return _double(_invalid64(found), b, a)
        if format == "f32":
            if ftz:
                a, b = flush(a), flush(b)
            if rounding == "rne":
                found = _canonical(a.view(np.float32) + b.view(np.float32))
            else:
                found = _zero_sum(
                    rounded(*_two_sum(_wide(a, format), _wide(b, format)), format, rounding), rounding, a, b
                )
            return flush(found) if ftz else found
        return rounded(*_two_sum(_wide(a, format), _wide(b, format)), format, "rne")


def _zero_sum(found: Codes, rounding: Rounding, a: Codes, b: Codes) -> Codes:
    """Of a sum that cancels exactly: -0 where it is rounded down."""
    if rounding != "rm":
        return found
    cancelled = (found & ~_SIGN32 == 0) & (a ^ b == _SIGN32)
    return np.where(cancelled, _SIGN32, found)


_QUIET64 = np.uint64(1 << 51)


def _double(value: Doubles, *operands: Codes) -> Codes:
    """The codes of f64 results; of NaN operands the first of those listed passes through, made quiet."""
    found = value.view(np.uint64)
    for operand in reversed(operands):
        wrong = is_nan(operand, "f64")
        if wrong.any():
            found = np.where(wrong, operand | _QUIET64, found)
    return found


def _slow(operation: Any, operands: tuple[Codes, ...], format: str, rounding: Rounding) -> Codes:
    own = FORMATS[format]
    found: Codes = operation(*operands, (own,) * len(operands), own, rounding)
    return found


def _invalid64(value: Doubles) -> Doubles:
    """NaN as the GPU makes it of an invalid operation."""
    wrong = np.isnan(value)
    if not wrong.any():
        return value
    return np.where(wrong, np.uint64(0xFFF8000000000000), value.view(np.uint64)).view(np.float64)


_TINY = {"f32": 2.0**-126, "f16": 2.0**-14, "bf16": 2.0**-126}
_SCALE = {"f32": 2.0**40, "f16": 2.0**12, "bf16": 2.0**40}  # brings tiny values among the normal ones


def _flush_tiny(found: Codes, exact: Doubles, format: str, rounding: Rounding) -> Codes:
    """Tiny results as zeros of their sign: those that are below the smallest normal number when rounded with any exponent."""
    near = np.abs(exact) <= _TINY[format]
    if not near.any():
        return found
    scaled = _wide(rounded(exact * _SCALE[format], np.zeros_like(exact), format, rounding), format)
    tiny = near & (np.abs(scaled) < _TINY[format] * _SCALE[format])
    sign = found.dtype.type(1 << (8 * found.dtype.itemsize - 1))
    return np.where(tiny, found & sign, found)


def negated(codes: Codes) -> Codes:
    """The codes with their signs changed."""
    return codes ^ codes.dtype.type(1 << (8 * codes.dtype.itemsize - 1))


def multiply(a: Codes, b: Codes, format: str, rounding: Rounding = "rne", ftz: bool = False) -> Codes:
    """a * b.

    >>> hex(multiply(np.array([0x3F800001], np.uint32), np.array([0x3F800001], np.uint32), "f32", "rz")[0])
    '0x3f800002'
    """
    with np.errstate(all="ignore"):
        if format == "f64":
            found = a.view(np.float64) * b.view(np.float64)
            if rounding != "rne":
                found = _slow(ieee.multiply, (a, b), "f64", rounding).view(np.float64)
            return _double(_invalid64(found), b, a)
        if format == "f32":
            if ftz:
                a, b = flush(a), flush(b)
            if rounding == "rne" and not ftz:
                return _canonical(a.view(np.float32) * b.view(np.float32))
        product = _wide(a, format) * _wide(b, format)
        found = rounded(product, np.zeros_like(product), format, rounding)
        return _flush_tiny(found, product, format, rounding) if ftz else found


def fma(a: Codes, b: Codes, c: Codes, format: str, rounding: Rounding = "rne", ftz: bool = False) -> Codes:
    """a * b + c with one rounding. Products of 32-bit formats are exact in f64; the sum is rounded to odd, then to the format.

    >>> one, small = np.array([0x3F800001], np.uint32), np.array([0xBF800002], np.uint32)
    >>> hex(fma(one, one, small, "f32")[0])
    '0x28800000'
    """
    if rounding == "rne" and not ftz and format in ("f32", "f64") and any(isinstance(own, Traced) for own in (a, b, c)):
        host = fused(*(code.view(np.float32 if format == "f32" else np.float64) for code in (a, b, c)))
        return _canonical(host) if format == "f32" else _double(_invalid64(host), b, c, a)
    if format == "f64":
        return _double(_slow(ieee.fma, (a, b, c), "f64", rounding).view(np.float64), b, c, a)
    if ftz and format == "f32":
        a, b, c = flush(a), flush(b), flush(c)
    with np.errstate(all="ignore"):
        product, addend = _wide(a, format) * _wide(b, format), _wide(c, format)
        total, error = _two_sum(product, addend)
        error = np.where(np.isfinite(error), error, 0.0)
        found = rounded(total, error, format, rounding)
        if rounding == "rm":
            cancelled = (total == 0) & (np.signbit(product) != np.signbit(addend)) & (product == -addend)
            found = np.where(cancelled, _SIGN32, found).astype(found.dtype)
        return _flush_tiny(found, _to_odd(total, error), format, rounding) if ftz else found


def divide(a: Codes, b: Codes, format: str, rounding: Rounding = "rne", ftz: bool = False) -> Codes:
    """a / b, correctly rounded (div.rn and relatives).

    >>> hex(divide(np.array([0x3F800000], np.uint32), np.array([0x40400000], np.uint32), "f32")[0])
    '0x3eaaaaab'
    """
    with np.errstate(all="ignore"):
        if format == "f64":
            found64 = a.view(np.float64) / b.view(np.float64)
            if rounding != "rne":
                found64 = _slow(ieee.divide, (a, b), "f64", rounding).view(np.float64)
            return _double(_invalid64(found64), a, b)
        if ftz:
            a, b = flush(a), flush(b)
        near = a.view(np.float32) / b.view(np.float32)
        if rounding == "rne":
            found = _canonical(asarray(near, np.float32))
        else:
            wide = _wide(b, "f32")
            rest = _wide(a, "f32") - near.astype(np.float64) * wide  # exact
            error = np.where(np.isfinite(near) & np.isfinite(wide) & (wide != 0), np.sign(rest) * np.sign(wide), 0.0)
            error = np.where(
                np.isinf(near) & np.isfinite(_wide(a, "f32")) & (wide != 0), -np.inf * np.sign(near), error
            )
            found = _directed(_canonical(asarray(near, np.float32)), error, "f32", rounding)
        if ftz:
            small = np.abs(near) <= np.float32(2.0**-126)
            if small.any():
                scaled = _wide(divide(multiply(a, np.full_like(a, _CODE_2_40), "f32"), b, "f32", rounding), "f32")
                found = np.where(small & (np.abs(scaled) < 2.0**-86), found & _SIGN32, found)
        return flush(found) if ftz else found


def root(a: Codes, format: str, rounding: Rounding = "rne", ftz: bool = False) -> Codes:
    """The square root, correctly rounded (sqrt.rn and relatives)."""
    with np.errstate(all="ignore"):
        if format == "f64":
            found64 = np.sqrt(a.view(np.float64))
            if rounding != "rne":
                found64 = _slow(ieee.root, (a,), "f64", rounding).view(np.float64)
            return _double(_invalid64(found64), a)
        if ftz:
            a = flush(a)
        near = np.sqrt(a.view(np.float32))
        if rounding == "rne":
            found = _canonical(asarray(near, np.float32))
        else:
            rest = _wide(a, "f32") - near.astype(np.float64) ** 2
            found = _directed(
                _canonical(asarray(near, np.float32)), np.where(np.isfinite(near), rest, 0.0), "f32", rounding
            )
        return flush(found) if ftz else found


_CODE_2_40 = np.uint32(127 + 40 << 23)
_MAGNITUDE = {"f16": 0x7FFF, "bf16": 0x7FFF, "f32": 0x7FFFFFFF, "f64": 0x7FFFFFFFFFFFFFFF}
_INFINITE = {"f16": 0x7C00, "bf16": 0x7F80, "f32": 0x7F800000, "f64": 0x7FF0000000000000}
_CANONICAL = {"f16": 0x7FFF, "bf16": 0x7FFF, "f32": 0x7FFFFFFF, "f64": 0x7FFFFFFFFFFFFFFF}


def is_nan(codes: Codes, format: str) -> npt.NDArray[np.bool_]:
    """Which codes are NaN."""
    kind = codes.dtype.type
    return codes & kind(_MAGNITUDE[format]) > kind(_INFINITE[format])


def _ordered(codes: Codes) -> Codes:
    """Signed integers that compare as the numbers do, -0 below +0."""
    bits = 8 * codes.dtype.itemsize
    signed = codes.view(f"i{bits // 8}")
    return signed ^ (signed >> (bits - 1) & signed.dtype.type((1 << (bits - 1)) - 1))


def extreme(a: Codes, b: Codes, format: str, largest: bool, nan: bool = False, ftz: bool = False) -> Codes:
    """The smaller or larger of two; of a number and a NaN the number, with `nan` the canonical NaN. -0 is below +0.

    >>> hex(extreme(np.array([0x80000000], np.uint32), np.array([0], np.uint32), "f32", largest=True)[0])
    '0x0'
    """
    if ftz:
        a, b = flush(a), flush(b)
    first = _ordered(a) >= _ordered(b)
    found = np.where(first if largest else ~first, a, b)
    a_nan, b_nan = is_nan(a, format), is_nan(b, format)
    if not (a_nan | b_nan).any():
        return found
    canonical = (
        b | _QUIET64 if format == "f64" else a.dtype.type(_CANONICAL[format])
    )  # of two NaN of f64 the second stays
    found = np.where(a_nan, b, np.where(b_nan, a, found))
    wrong = (a_nan | b_nan) if nan else (a_nan & b_nan)
    return np.where(wrong, canonical, found)


def saturated(codes: Codes, format: str) -> Codes:
    """Clamped to 0.0 and 1.0; NaN becomes +0 (.sat).

    >>> hex(saturated(np.array([0x40000000], np.uint32), "f32")[0])
    '0x3f800000'
    """
    kind = codes.dtype.type
    one = kind({"f16": 0x3C00, "bf16": 0x3F80, "f32": 0x3F800000, "f64": 0x3FF0000000000000}[format])
    negative = codes >> kind(8 * codes.dtype.itemsize - 1) != 0
    return np.where(negative | is_nan(codes, format), kind(0), np.minimum(codes, one))
