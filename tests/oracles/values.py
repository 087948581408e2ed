"""Numbers on which roundings differ: the values of a format, the middles between them, and a little beside both."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

import tcsim

Values = npt.NDArray[np.float64]


def codes_of(format: tcsim.Format, seed: int = 0, count: int = 60_000) -> npt.NDArray[Any]:
    """Every code of a format of at most 16 bits; of a wider one a random choice with the ends of every exponent."""
    if format.bits <= 16:
        return np.arange(1 << format.bits, dtype=format.dtype)
    random = np.random.Generator(np.random.PCG64(seed)).integers(0, 1 << format.bits, count, np.uint64)
    exponents = np.arange(1 << format.exponent_bits, dtype=np.uint64) << np.uint64(format.fraction_bits)
    ends = np.concatenate([exponents, exponents + np.uint64(1), exponents - np.uint64(1)])
    signs = np.concatenate([ends, ends ^ np.uint64(1 << format.sign_shift)])
    return np.concatenate([random, signs & np.uint64((1 << format.bits) - 1)]).astype(format.dtype)


def around(format: tcsim.Format, seed: int = 0) -> Values:
    """Values of a format and of 1/4, 1/2, 3/4 ulp more, and their float64 neighbours; overflows, subnormals, zeros, infinities."""
    with np.errstate(invalid="ignore"):  # decoding a signalling NaN of f32 warns
        values = np.unique(np.abs(tcsim.decode(codes_of(format), format)))
    values = values[np.isfinite(values)]
    middles = (values[1:] + values[:-1]) / 2
    quarters = np.concatenate([values[1:] + middles, values[:-1] + middles]) / 2
    beyond = format.largest + (format.largest - values[-2]) * np.array([0.25, 0.5, 0.75, 1, 2])
    random = np.random.Generator(np.random.PCG64(seed))
    scales = np.exp2(random.integers(-330, 330, 4000).astype(np.float64))
    far = np.concatenate([np.array([5e-324, 1e-310, 1e300, np.finfo(np.float64).max]), random.random(4000) * scales])
    points = np.concatenate([values, middles, quarters, beyond])
    with np.errstate(under="ignore"):
        beside = np.concatenate([np.nextafter(points, np.inf), np.nextafter(points[points > 0], 0)])
    every = np.concatenate([points, beside, far, [0.0, np.inf]])
    return np.concatenate([every, -every]) if format.signed else every
