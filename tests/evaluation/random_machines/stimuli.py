"""Inputs that make machines differ: sparse products, cancellation, addends near the products, extremes, specials."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from .formats import FORMATS, Array
from .machine import Signature


class Inputs(NamedTuple):
    """Arguments of `Machine.dot`."""

    a: Array
    b: Array
    c: Array
    scale_a: Array | None = None
    scale_b: Array | None = None


def inputs(signature: Signature, count: int, seed: int = 0) -> Inputs:
    """A batch in which every kind has an equal share, in turn."""
    rng = np.random.default_rng((seed, count))
    a, b = (_codes(rng, name, (count, signature.k)) for name in (signature.a, signature.b))
    c = _codes(rng, signature.c, (count,))
    for index, kind in enumerate(_KINDS):
        rows = slice(index, None, len(_KINDS))
        if len(c[rows]):
            a[rows], b[rows], c[rows] = kind(rng, signature, a[rows], b[rows], c[rows])
    if signature.scale is None:
        return Inputs(a, b, c)
    name, width = signature.scale
    shape = (count, signature.k // width)
    scales = rng.integers(0, 256, (2, *shape)).astype(np.uint8)
    one = 127 if name == "ue8m0" else 0x38
    near = rng.integers(one - 12, one + 13, (2, *shape)).astype(np.uint8)
    scales = np.where(rng.random((1, count, 1)) < 0.8, near, scales)
    return Inputs(a, b, c, scales[0], scales[1])


def _codes(rng: np.random.Generator, name: str, shape: tuple[int, ...], specials: float = 0) -> Array:
    """Random finite codes; a share may be anything."""
    form = FORMATS[name]
    codes = rng.integers(0, 1 << form.bits, shape)
    if form.specials != "none":
        top = ((1 << form.exponent_bits) - 1) << form.fraction_bits
        finite = rng.random(shape) >= specials
        codes = np.where(finite & (codes & top == top), codes ^ (1 << form.fraction_bits), codes)
    return (codes << form.unused).astype(form.container)


def _close(rng: np.random.Generator, name: str, shape: tuple[int, ...], spread: int, center: Array | int = 0) -> Array:
    """Normal numbers with exponents near a centre, half of them with one or two bits set; within the format."""
    form = FORMATS[name]
    exponent = np.clip(center + rng.integers(-spread, spread + 1, shape), form.lowest - 1, form.highest)
    fraction = rng.integers(0, 1 << form.fraction_bits, shape)
    one = 1 << rng.integers(0, form.fraction_bits, shape)
    fraction = np.choose(rng.integers(0, 4, shape), [fraction, np.zeros_like(fraction), one, fraction])
    if form.specials == "nan":
        fraction = np.where(exponent == form.highest, 0, fraction)
    code = (exponent + form.bias << form.fraction_bits) | fraction | (rng.integers(0, 2, shape) << (form.bits - 1))
    return (code << form.unused).astype(form.container)


def _few(rng: np.random.Generator, a: Array, most: int) -> Array:
    """Which products stay: at most so many of each row, of either half alike."""
    order = rng.random(a.shape).argsort(axis=1)
    return order < rng.integers(0, most + 1, (len(a), 1))


def _zeros(rng: np.random.Generator, name: str, a: Array) -> Array:
    """Zeros of either sign."""
    form = FORMATS[name]
    return (rng.integers(0, 2, a.shape) << (form.bits - 1 + form.unused)).astype(a.dtype)


Kind = Callable[[np.random.Generator, Signature, Array, Array, Array], tuple[Array, Array, Array]]


def _uniform(rng: np.random.Generator, s: Signature, a: Array, b: Array, c: Array) -> tuple[Array, Array, Array]:
    return a, b, c


def _near(rng: np.random.Generator, s: Signature, a: Array, b: Array, c: Array) -> tuple[Array, Array, Array]:
    a, b = _close(rng, s.a, a.shape, 3), _close(rng, s.b, b.shape, 3)
    return a, b, _close(rng, s.c, c.shape, 30)


def _sparse(rng: np.random.Generator, s: Signature, a: Array, b: Array, c: Array) -> tuple[Array, Array, Array]:
    a = np.where(_few(rng, a, 3), a, _zeros(rng, s.a, a))
    c = np.where(rng.random(len(c)) < 0.5, c, _zeros(rng, s.c, c))
    return a, b, c


def _sparse_near(rng: np.random.Generator, s: Signature, a: Array, b: Array, c: Array) -> tuple[Array, Array, Array]:
    spread = int(rng.integers(1, 16))
    a, b, c = (
        _close(rng, s.a, a.shape, spread),
        _close(rng, s.b, b.shape, spread),
        _close(rng, s.c, c.shape, 2 * spread),
    )
    return _sparse(rng, s, a, b, c)


def _cancelling(rng: np.random.Generator, s: Signature, a: Array, b: Array, c: Array) -> tuple[Array, Array, Array]:
    """Two products cancel; up to two more remain, and c in half of the rows."""
    large = rng.random((len(a), 1)) < 0.5
    a = np.where(large, a, _close(rng, s.a, a.shape, 6))
    b = np.where(large, b, _close(rng, s.b, b.shape, 6))
    order = rng.random(a.shape).argsort(axis=1)
    row = np.arange(len(a))
    first, second = order[:, 0], order[:, 1]
    rest = np.zeros(a.shape, bool)
    np.put_along_axis(rest, order[:, : 2 + int(rng.integers(0, min(3, s.k - 1)))], True, axis=1)
    a = np.where(rest, a, _zeros(rng, s.a, a))
    form = FORMATS[s.a]
    a[row, second] = a[row, first] ^ a.dtype.type(1 << (form.bits - 1 + form.unused))
    b[row, second] = b[row, first]
    near = _close(rng, s.c, c.shape, 40)
    c = np.choose(rng.integers(0, 4, len(c)), [_zeros(rng, s.c, c), near, c, _zeros(rng, s.c, c)])
    return a, b, c.astype(FORMATS[s.c].container)


def _small(rng: np.random.Generator, s: Signature, a: Array, b: Array, c: Array) -> tuple[Array, Array, Array]:
    """Results near the smallest of the result's format: subnormals, underflow, the floor."""
    target = FORMATS[s.d].lowest - int(rng.integers(-2, FORMATS[s.d].fraction_bits + 8))
    x = rng.integers(FORMATS[s.a].lowest - 1, FORMATS[s.a].highest + 1, a.shape)
    a = _close(rng, s.a, a.shape, 0, x)
    b = _close(rng, s.b, b.shape, 4, target - x)
    a, b, _ = _sparse(rng, s, a, b, c)
    low = _close(rng, s.c, c.shape, 20, FORMATS[s.c].lowest)
    tiny = rng.integers(1, 1 << FORMATS[s.c].fraction_bits, len(c)) | (
        rng.integers(0, 2, len(c)) << (FORMATS[s.c].bits - 1)
    )
    return a, b, np.choose(rng.integers(0, 3, len(c)), [low, tiny, _zeros(rng, s.c, c)]).astype(FORMATS[s.c].container)


def _borrow(rng: np.random.Generator, s: Signature, a: Array, b: Array, c: Array) -> tuple[Array, Array, Array]:
    """Two powers of two, the second up to 2**45 times smaller; the first in half of the batches near the smallest result."""
    x, y, d = FORMATS[s.a], FORMATS[s.b], FORMATS[s.d]
    top = rng.integers(x.lowest + y.lowest, x.highest + y.highest + 1, (len(a), 1))
    low = d.lowest - rng.integers(-4, d.fraction_bits + 2, (len(a), 1))
    exponent = np.where(rng.random((len(a), 1)) < 0.5, top, low) - np.array([0, 1]) * rng.integers(0, 46, (len(a), 1))
    exponent = np.clip(exponent, x.lowest + y.lowest, x.highest + y.highest)
    first = rng.integers(np.maximum(x.lowest, exponent - y.highest), np.minimum(x.highest, exponent - y.lowest) + 1)
    where = rng.random(a.shape).argsort(axis=1)[:, :2]
    a, b = _zeros(rng, s.a, a), b.copy()
    for codes, form, e in ((a, x, first), (b, y, exponent - first)):
        sign = rng.integers(0, 2, e.shape) << (form.bits - 1)
        code = (((e + form.bias) << form.fraction_bits) | sign) << form.unused
        np.put_along_axis(codes, where, code.astype(codes.dtype), axis=1)
    return a, b, np.where(rng.random(len(c)) < 0.8, _zeros(rng, s.c, c), c)


def _large(rng: np.random.Generator, s: Signature, a: Array, b: Array, c: Array) -> tuple[Array, Array, Array]:
    """Results near the largest."""
    x = rng.integers(FORMATS[s.a].lowest, FORMATS[s.a].highest + 1, a.shape)
    a, b = _close(rng, s.a, a.shape, 0, x), _close(rng, s.b, b.shape, 1, FORMATS[s.d].highest - x - 1)
    c = _close(rng, s.c, c.shape, 1, FORMATS[s.c].highest)
    keep = rng.random((len(a), 1)) < 0.5
    return np.where(keep | _few(rng, a, 3), a, _zeros(rng, s.a, a)), b, c


def _special(rng: np.random.Generator, s: Signature, a: Array, b: Array, c: Array) -> tuple[Array, Array, Array]:
    a, b = _codes(rng, s.a, a.shape, 0.5), _codes(rng, s.b, b.shape, 0.5)
    form = FORMATS[s.c]
    infinity = ((1 << form.exponent_bits) - 1) << form.fraction_bits
    odd = infinity | rng.integers(0, 2, len(c)) * rng.integers(0, 1 << form.fraction_bits, len(c))
    odd |= rng.integers(0, 2, len(c)) << (form.bits - 1)
    c = np.where(rng.random(len(c)) < 0.3, odd, c).astype(form.container)
    few = np.where(_few(rng, a, 2), a, _zeros(rng, s.a, a))
    return np.where(rng.random((len(a), 1)) < 0.7, few, a), b, c


def _zero(rng: np.random.Generator, s: Signature, a: Array, b: Array, c: Array) -> tuple[Array, Array, Array]:
    """Zeros of both signs, in most rows all negative; here and there the smallest subnormal number."""
    top = FORMATS[s.a].bits - 1 + FORMATS[s.a].unused
    sign = (b.astype(np.int64) >> (FORMATS[s.b].bits - 1 + FORMATS[s.b].unused)) & 1
    mixed = rng.random((len(a), 1)) < 0.2
    a = np.where(mixed, _zeros(rng, s.a, a), ((1 - sign) << top).astype(a.dtype))
    tiny = rng.random(a.shape) < 0.1 * (rng.random((len(a), 1)) < 0.3)
    a = np.where(tiny, a | a.dtype.type(1 << FORMATS[s.a].unused), a)
    negative = np.int64(1) << (FORMATS[s.c].bits - 1)
    return a, b, np.choose(rng.integers(0, 4, len(c)), [negative, negative, 0, negative | 1]).astype(c.dtype)


_KINDS: tuple[Kind, ...] = (
    _uniform, _near, _sparse, _sparse_near, _cancelling, _borrow, _small, _large, _special, _zero,
)  # fmt: skip
