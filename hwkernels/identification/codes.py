"""Codes of numbers given by exponent and significand."""

from __future__ import annotations

import math

import numpy as np

from hwkernels.identification.machine import Array
from tcsim.numbers.formats import Format


def code(format_: Format, exponent: Array, significand: Array, sign: Array) -> Array:
    """Codes of (-1)**sign * significand * 2**exponent, cut to the format; significands in [1, 2).

    >>> from tcsim.numbers.formats import FORMATS
    >>> code(FORMATS["f16"], np.array([0, -15]), np.array([1.5, 1.0]), np.array([0, 1])).tolist()
    [15872, 33280]
    """
    bits, least = format_.fraction_bits, format_.minimum_exponent
    field = np.maximum(exponent, least) + format_.bias if format_.zero else exponent + format_.bias
    fraction = np.floor(np.ldexp(significand, bits - np.maximum(least - exponent, 0)).clip(0, 2.0 ** (bits + 1)))
    magnitude = (np.maximum(field, 1) - 1 if format_.zero else field - 1).astype(np.int64) * 2**bits
    magnitude = np.clip(magnitude + fraction.astype(np.int64), 0, format_.largest_code)
    if format_.signed:
        magnitude |= sign.astype(np.int64) << format_.sign_shift
    codes: Array = (magnitude << format_.ignored_low_bits).astype(format_.dtype)
    return codes


def most(format_: Format) -> int:
    """The exponent of the largest number of a format."""
    return math.frexp(format_.largest)[1] - 1
