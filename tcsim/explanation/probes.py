"""Operands whose product says in which order it was added: cancelling pairs, and masks that draw the tree of sums."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

from tcsim.numbers.formats import FORMATS

Array = npt.NDArray[Any]
DTYPES: dict[str, Any] = {
    "f16": np.float16, "bf16": ml_dtypes.bfloat16, "f32": np.float32, "f64": np.float64,
    "e4m3": ml_dtypes.float8_e4m3fn, "e5m2": ml_dtypes.float8_e5m2, "s8": np.int8,
}  # fmt: skip
MASKS = {"f16": (2.0**15, 2.0**-12), "e4m3": (2.0**8, 2.0**-6), "e5m2": (2.0**15, 2.0**-12), "s8": (64.0, 1.0)}
"""A mask and the unit beside it, where 2**60 and 1 do not fit."""
MOST = 256
"""Places of K that hold anything in `tree`: bf16 counts so far exactly."""


def cancelling(shape: tuple[int, ...], k: int, formats: tuple[str, str], seed: int) -> tuple[Array, Array]:
    """a (..., M, K) and b (..., K, N) whose exact product is 0: an output is the rounding error of its sum, and nothing else.

    Half of K repeats the other half with the sign of a turned, in random places. Rows of a format with 8 bits of exponent or more
    have magnitudes from 2**-40 to 2**40, so that a format inside with a smaller range shows.

    >>> a, b = cancelling((2, 3), 8, ("f16", "f16"), 0)
    >>> bool((a.astype(np.float64) @ b.astype(np.float64) == 0).all())
    True
    """
    random = np.random.default_rng(seed)
    *batch, m, n = shape
    a = random.standard_normal((*batch, m, k)).astype(DTYPES[formats[0]])
    if FORMATS[formats[0]].exponent_bits >= 8:
        a = (a.astype(np.float64) * 2.0 ** np.linspace(-40, 40, m).round()[:, None]).astype(a.dtype)
    b = random.standard_normal((*batch, k, n)).astype(DTYPES[formats[1]])
    places = random.permutation(k)
    first, second, rest = places[: k // 2], places[k // 2 : k // 2 * 2], places[k // 2 * 2 :]
    a[..., second] = -a[..., first]
    b[..., second, :] = b[..., first, :]
    a[..., rest] = np.zeros((), a.dtype)
    return a, b


def spread(shape: tuple[int, ...], k: int, formats: tuple[str, str], seed: int) -> tuple[Array, Array]:
    """Any finite codes: values of the whole range of a narrow format, of which normal values fill so little that their sums are exact.

    >>> a, b = spread((2, 3), 512, ("e4m3", "e5m2"), 0)
    >>> float(a.astype(np.float64).max()), float(b.astype(np.float64).max())
    (448.0, 57344.0)
    """
    random = np.random.default_rng(seed)
    *batch, m, n = shape
    made = []
    for size, format in (((*batch, m, k), formats[0]), ((*batch, k, n), formats[1])):
        dtype = np.dtype(DTYPES[format])
        codes = random.integers(0, 1 << FORMATS[format].bits, size, dtype=f"u{dtype.itemsize}")
        values = codes.view(dtype)
        made.append(np.where(np.isfinite(values.astype(np.float64)), values, np.zeros((), dtype)))
    return made[0], made[1]


def tree(shape: tuple[int, ...], k: int, formats: tuple[str, str], seed: int) -> tuple[Array, Array]:
    """A large mask in one place of each row of a, a negative one in one place of each column of b, units elsewhere.

    What is added to a mask is lost, so an output counts the units that were added after the two masks had met: the depth at which two
    places of K meet in the tree of sums (FPRev's masks, a pair for each output).
    """
    *batch, m, n = shape
    count = min(k, MOST)
    places = np.arange(count) * k // count
    made = []
    for rows, format, sign, shift in ((m, formats[0], 1.0, 0), (n, formats[1], -1.0, count // (2 * n) + seed)):
        mask, unit = MASKS.get(format, (2.0**60, 1.0))
        values = np.zeros((rows, k))
        values[:, places] = unit
        values[np.arange(rows), places[(np.arange(rows) * count // rows + shift) % count]] = sign * mask
        made.append(np.broadcast_to(values.astype(DTYPES[format]), (*batch, rows, k)))
    return np.ascontiguousarray(made[0]), np.ascontiguousarray(made[1].swapaxes(-1, -2))


PROBES: dict[str, Callable[[tuple[int, ...], int, tuple[str, str], int], tuple[Array, Array]]] = {
    "cancelling": cancelling, "tree": tree,
}  # fmt: skip
