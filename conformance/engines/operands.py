"""Operands of a work, of several classes, made from a seed with NumPy: what makes engines differ."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tcsim.engines.contract import Matrices, Work
from tcsim.numbers.formats import Format

Codes = npt.NDArray[Any]
SPREADS = {"near": 3, "middle": 14, "wide": 1 << 11, "low": 2, "cancelling": 1}
"""How many exponents beside one another a class has; of `low`, the lowest there are."""
CLASSES = ("bits", *SPREADS)


def matrices(
    work: Work, shape: tuple[int, int, int], instructions: int, name: str, seed: int, rows_of_c: int = 0
) -> Matrices:
    """Operands of a batch of products (T, M, N) of some instructions along K, of one class. C repeats after rows_of_c, if not 0."""
    stream = np.random.default_rng((seed, *name.encode()))
    batch, m, n = shape
    a = _codes(stream, work.formats[0], (batch, m, instructions * work.kept), name, 2)
    b = _codes(stream, work.formats[1], (batch, instructions * work.k, n), name, 1)
    c = _codes(stream, work.formats[2], (batch, rows_of_c or m, n), name)
    if name == "cancelling" and stream.random() < 0.5:
        c[...] = 0
    c = c[:, np.arange(m) % rows_of_c] if rows_of_c else c
    factors: list[Codes | None] = [None, None]
    if work.scale is not None:
        per = instructions * work.blocks
        factors = [_codes(stream, work.scale, shape, name) for shape in ((batch, m, per), (batch, per, n))]
    columns = None
    if work.sparse:
        pairs = np.argsort(stream.random((batch, m, instructions, work.kept // 2, 4)), axis=-1)[..., :2]
        columns = (np.sort(pairs, axis=-1) + 4 * np.arange(work.kept // 2)[:, None]).reshape(a.shape)
    return Matrices(a, b, c, factors[0], factors[1], columns)


def _codes(
    stream: np.random.Generator, format: Format, shape: tuple[int, ...], name: str, k: int | None = None
) -> Codes:
    """Codes of a class; `cancelling`: along the axis k, neighbours are opposite in a and equal in b."""
    word = np.uint64
    bits = stream.integers(0, 1 << 64, shape, word)
    if name == "bits":
        return (bits & word(format.code_mask)).astype(format.dtype)
    top = (1 << format.exponent_bits) - 1
    spread = min(SPREADS[name], top)
    base = 0 if name == "low" else int(stream.integers(0, max(1, top - spread)))
    field = np.minimum(base + stream.integers(0, spread + 1, shape), max(0, top - 1)).astype(word)
    fraction = np.where(stream.random(shape) < 0.3, word(0), bits & word((1 << format.fraction_bits) - 1))
    sign = bits >> word(40) & word(format.signed)
    codes = fraction | field << word(format.fraction_bits) | sign << word(format.sign_shift)
    codes = np.where(stream.random(shape) < 0.1, word(0), codes)
    if name == "cancelling" and k is not None:
        along = np.moveaxis(codes, k, -1)
        pairs = along.shape[-1] // 2 * 2
        along[..., 1:pairs:2] = along[..., 0:pairs:2] ^ word((k == 2 and format.signed) << format.sign_shift)
    return (codes << word(format.ignored_low_bits) & word(format.code_mask)).astype(format.dtype)
