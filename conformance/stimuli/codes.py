"""Codes made from parts, with integer arithmetic only: what the input classes are put together from."""

from __future__ import annotations

from typing import Any

import numpy as np

from conformance.stimuli.problem import Codes
from conformance.stimuli.stream import Stream
from tcsim.numbers.codec import encode
from tcsim.numbers.formats import Format


def build(format: Format, sign: Codes, exponent: Codes, fraction: Codes) -> Codes:
    """Float codes from parts: a normal number, or zero below the format's range of exponents; no overflow allowed."""
    word = format.dtype.type
    field = np.clip(exponent + (int(format.zero) - format.minimum_exponent), 0, (1 << format.exponent_bits) - 1)
    code = field.astype(word) << word(format.fraction_bits)
    code = code | fraction.astype(word) & word((1 << format.fraction_bits) - 1)
    code = np.minimum(code, word(format.largest_code))
    code |= sign.astype(word) << word(format.sign_shift)
    return code << word(format.ignored_low_bits)


def random_bits(format: Format, stream: Stream, shape: tuple[int, ...]) -> Codes:
    """Codes whose every bit is random."""
    return (stream.words(shape) & np.uint64(format.code_mask)).astype(format.dtype)


def integers(value: Codes, format: Format) -> Codes:
    """Codes of integers, of those beyond the format's range their low bits."""
    if format.sign_magnitude:
        return encode(value, format)
    return (value & format.code_mask).astype(format.dtype)


def finite_bits(format: Format, stream: Stream, shape: tuple[int, ...]) -> Codes:
    """Random codes; a NaN or an infinity gets a lower exponent."""
    codes = random_bits(format, stream, shape)
    if format.kind != "float":
        return codes
    magnitude = (codes.astype(np.uint64) >> np.uint64(format.ignored_low_bits)) & np.uint64(
        (1 << format.sign_shift) - 1
    )
    lower = codes ^ format.dtype.type(1 << (format.fraction_bits + format.ignored_low_bits + format.exponent_bits - 1))
    return np.where(magnitude > np.uint64(format.largest_code), lower, codes)


def window(format: Format, stream: Stream, shape: tuple[int, ...], low: int, high: int) -> Codes:
    """Random signs and fractions, exponents uniform in a window clipped to the format's normal numbers."""
    top = (format.largest_code >> format.fraction_bits) + format.minimum_exponent - int(format.zero)
    low, high = max(low, format.minimum_exponent), min(high, top)
    words = stream.words(shape)
    return build(format, words.view(np.int64) < 0, stream.between(low, high, shape), words)


def bell(stream: Stream, shape: tuple[int, ...]) -> Codes:
    """Numbers near a normal distribution of variance 1, exact in float64: sums of twelve uniform 16-bit numbers."""
    parts = stream.words((*shape, 3))
    total = np.zeros(shape, np.int64)
    for shift in range(0, 64, 16):
        total += (parts >> np.uint64(shift) & np.uint64(0xFFFF)).sum(-1).astype(np.int64)
    return (total - 6 * 0xFFFF) / 65536.0


def landmarks(format: Format, specials: bool) -> Codes:
    """Codes at the edges of a float format, both signs."""
    one = format.bias << format.fraction_bits
    least_normal = int(format.zero) << format.fraction_bits
    codes = [0, 1, 2, least_normal - 1, least_normal, least_normal + 1, one - 1, one, one + 1, format.largest_code - 1]
    codes += [format.largest_code, format.largest_code - (1 << format.fraction_bits)]
    if specials:
        top = (1 << format.sign_shift) - 1
        codes = [format.largest_code + 1, format.largest_code + 1, top, top - (1 << (format.fraction_bits - 1))]
        codes += [(format.infinity_code or top) + 1] if format.nan == "ieee" else []
    signed = [code | sign << format.sign_shift for code in codes if code >= 0 for sign in (0, 1)]
    return (np.array(signed, np.uint64) << np.uint64(format.ignored_low_bits)).astype(format.dtype)


def lowest_exponent(format: Format) -> int:
    """The exponent of a format's least subnormal."""
    return format.minimum_exponent - format.fraction_bits


def ones(bits: int, format: Format) -> tuple[int, int]:
    """Factors of 2**bits - 1 that fit the significand of a format."""
    limit = 1 << (format.fraction_bits + 1)
    number = (1 << bits) - 1
    return next((number // f, f) for f in range(1, limit) if number % f == 0 and number // f < limit)


def sign_bit(format: Format) -> Any:
    """The code with the sign bit alone."""
    return format.dtype.type(1 << (format.sign_shift + format.ignored_low_bits))


def power(format: Format, exponent: Codes, factor: int = 1) -> Codes:
    """Codes of factor * 2**exponent, subnormals included; zero where it is too small to exist.

    Exponents too large are lowered to the largest power of two.
    """
    length = factor.bit_length() - 1
    exponent = np.minimum(
        exponent, (format.largest_code >> format.fraction_bits) + format.minimum_exponent - 1 - length
    )
    field = (np.maximum(exponent + length - format.minimum_exponent + 1, 0)).astype(np.uint64)
    fraction = (factor << (format.fraction_bits - length)) & ((1 << format.fraction_bits) - 1)
    normal = (field << np.uint64(format.fraction_bits)) | np.uint64(fraction)
    place = exponent - lowest_exponent(format)
    tiny = np.where(place >= 0, np.uint64(factor) << np.clip(place, 0, 63).astype(np.uint64), np.uint64(0))
    code = np.where(exponent + length >= format.minimum_exponent, normal, tiny)
    return (code << np.uint64(format.ignored_low_bits)).astype(format.dtype)


def one_code(format: Format) -> Any:
    """The code of one."""
    return format.dtype.type(
        (format.bias << format.fraction_bits << format.ignored_low_bits) if format.kind == "float" else 1
    )


def small_values(format: Format) -> Codes:
    """Codes of small numbers: of a float of either sign, of an integer up to 255."""
    if format.kind == "float":
        return encode(np.array([1, 1.5, 2, 3, 4, 6, -1, -1.5, -2, -3, -4, -6]), format)
    top = min(1 << format.bits, 256)
    return np.arange(top).astype(format.dtype)
