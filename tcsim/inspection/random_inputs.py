"""Random problems for the command line: codes of one dot product each, spread so that generations can differ."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from tcsim.block_scaling import ScaleOperand
from tcsim.codec import encode
from tcsim.formats import Format

SPREAD = 14
"""Exponents of random floats lie within so many of 0, where the format has them."""


def random_codes(format: Format, shape: tuple[int, ...], stream: np.random.Generator) -> npt.NDArray[Any]:
    """Codes of finite numbers: floats of random sign and significand, exponents evenly spread; any integer or bit.

    >>> random_codes(FORMATS["s4"], (2, 3), np.random.default_rng(1)).shape
    (2, 3)
    """
    if format.kind != "float":
        return stream.integers(0, 1 << format.bits, shape, dtype=np.uint64).astype(format.dtype) & format.code_mask
    top = np.frexp(format.largest)[1] - 2
    low, high = max(-SPREAD, format.minimum_exponent - format.fraction_bits), min(SPREAD, int(top))
    sign = stream.choice([-1.0, 1.0], shape) if format.signed else 1.0
    values = sign * (1 + stream.random(shape)) * np.exp2(stream.integers(low, high + 1, shape))
    return encode(values, format, saturate=True)


def random_problems(
    formats: dict[str, Format], k: int, count: int, seed: int
) -> tuple[npt.NDArray[Any], npt.NDArray[Any], npt.NDArray[Any]]:
    """Codes a (count, 1, k), b (count, k, 1), c (count, 1, 1).

    Of floats, half of the products are zero in a random half of the problems, and every fourth c all but cancels the sum.
    """
    stream = np.random.default_rng(seed)
    a = random_codes(formats["a"], (count, 1, k), stream)
    b = random_codes(formats["b"], (count, k, 1), stream)
    c = random_codes(formats["c"], (count, 1, 1), stream)
    if formats["a"].kind == "float":
        sparse = stream.random((count, 1, 1)) < 0.5
        zero = encode(0.0, formats["a"]) if formats["a"].zero else a.flat[0]
        a = np.where(sparse & (stream.random(a.shape) < 0.5), zero, a).astype(formats["a"].dtype)
    if formats["c"].kind == "float" and count:
        total = -(formats["a"].values(a) @ formats["b"].values(b))[::4]
        limit = formats["c"].largest
        c[::4] = encode(np.clip(total, -limit, limit), formats["c"])
    return a, b, c


def random_scales(scales: Mapping[str, ScaleOperand], seed: int) -> tuple[npt.NDArray[Any], ...]:
    """Scales of one row of A and one column of B, within 16 steps of 1; none for an instruction without."""
    stream = np.random.default_rng(seed)
    found = []
    for operand in scales.values():
        one = operand.format.bias << operand.format.fraction_bits
        codes = stream.integers(one - 16, one + 17, operand.layout.blocks)
        found.append(codes.astype(operand.format.dtype))
    return tuple(found)
