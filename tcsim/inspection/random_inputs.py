"""Random problems for the command line: codes of one dot product each, spread so that generations can differ."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tcsim.inspection.products import Products, formats_of
from tcsim.numbers.codec import encode
from tcsim.numbers.formats import Format

SPREAD = 14
"""Exponents of random floats lie this close to 0, where the format has them."""


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
        c[::4] = _cancelling(formats["a"].values(a) @ formats["b"].values(b), formats["c"])
    return a, b, c


def _cancelling(sums: npt.NDArray[Any], format: Format) -> npt.NDArray[Any]:
    """The addends that all but cancel every fourth sum."""
    return encode(np.clip(-sums[::4], -format.largest, format.largest), format)


def random_products(instruction: Any, count: int, seed: int) -> Products:
    """So many dot products of an instruction, of tcgen05.mma one with its descriptor; scales within 16 codes of 1.

    >>> mma = tcsim.instruction("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32", arch="sm_90")
    >>> random_products(mma, 3, seed=1).a.shape
    (3, 1, 8)
    """
    formats = formats_of(instruction)
    a, b, c = random_problems(formats, instruction.operands["a"].shape[1], count, seed)
    stream = np.random.default_rng(seed)
    scales: dict[str, npt.NDArray[Any]] = {}
    for name in ("scale_a", "scale_b"):
        if name in formats:
            one = int(encode(1.0, formats[name]))
            shape = (count, 1, instruction.blocks) if name == "scale_a" else (count, instruction.blocks, 1)
            scales[name] = stream.integers(one - 16, one + 17, shape).astype(formats[name].dtype)
    if scales and count:
        factors = formats["scale_a"].values(scales["scale_a"]) * formats["scale_b"].values(scales["scale_b"]).swapaxes(
            1, 2
        )
        weights = np.repeat(factors, a.shape[2] // instruction.blocks, axis=2)
        c[::4] = _cancelling((formats["a"].values(a) * weights) @ formats["b"].values(b), formats["c"])
    return Products(a, b, c, scales)
