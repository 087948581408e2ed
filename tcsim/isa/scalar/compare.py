"""Comparisons and selections of PTX: setp, set, selp, slct, testp."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import numpy as np

from tcsim.isa.scalar import floating, integer
from tcsim.isa.scalar.table import Array, Compute, Scalar

_COMBINED: dict[str, Compute] = {"and": np.logical_and, "or": np.logical_or, "xor": np.logical_xor}
_SELECTED = ("b16", "b32", "b64", "u16", "u32", "u64", "s16", "s32", "s64", "f32", "f64")


def _comparisons() -> Iterator[Scalar]:
    for name, type, holds in (*integer.comparisons(), *floating.comparisons()):
        for ftz in ("", "ftz") if type in ("f32", "f16") else ("",):
            compare = _flushing(holds, type) if ftz else holds
            end = ".".join(part for part in (ftz, type) if part)
            yield Scalar(f"setp.{name}.{end}", ("pred",), (type,) * 2, compare)
            yield Scalar(f"setp.{name}.{end}|", ("pred", "pred"), (type,) * 2, _with_opposite(compare))
            for word, combine in _COMBINED.items():
                one, two = _combining(compare, combine)
                yield Scalar(f"setp.{name}.{word}.{end}", ("pred",), (type, type, "pred"), one)
                yield Scalar(f"setp.{name}.{word}.{end}|", ("pred", "pred"), (type, type, "pred"), two)
            for out in ("u32", "s32", "f32"):
                true = np.uint32(0x3F800000 if out == "f32" else 0xFFFFFFFF)
                mnemonic = ".".join(part for part in ("set", name, ftz, out, type) if part)
                yield Scalar(mnemonic, (out,), (type,) * 2, _as_number(compare, true))


def _flushing(holds: Compute, type: str) -> Compute:
    def compare(a: Array, b: Array) -> Array:
        return np.asarray(holds(*(floating.flushed(code, type) for code in (a, b))))

    return compare


def _with_opposite(compare: Compute) -> Compute:
    def both(a: Array, b: Array) -> tuple[Array, Array]:
        found = compare(a, b)
        return found, ~found

    return both


def _combining(compare: Compute, combine: Compute) -> tuple[Compute, Compute]:
    """The comparison combined with a predicate, alone and with its opposite, which is combined likewise."""

    def both(a: Array, b: Array, p: Array) -> tuple[Array, Array]:
        found = compare(a, b)
        return combine(found, p), combine(~found, p)

    return lambda a, b, p: combine(compare(a, b), p), both


def _as_number(compare: Compute, true: np.uint32) -> Compute:
    return lambda a, b: np.where(compare(a, b), true, np.uint32(0))


_TESTS: dict[str, Compute] = {  # of exponent, fraction, and the exponent of infinity
    "finite": lambda e, f, x: e != x,
    "infinite": lambda e, f, x: (e == x) & (f == 0),
    "number": lambda e, f, x: (e != x) | (f == 0),
    "notanumber": lambda e, f, x: (e == x) & (f != 0),
    "normal": lambda e, f, x: (e != x) & ((e != 0) | (f == 0)),  # zero counts as normal (measured on an H200)
    "subnormal": lambda e, f, x: (e == 0) & (f != 0),
}


def _selections() -> Iterator[Scalar]:
    for type in _SELECTED:
        yield Scalar(f"selp.{type}", (type,), (type, type, "pred"), lambda a, b, p: np.where(p, a, b))
        yield Scalar(
            f"slct.{type}.s32", (type,), (type, type, "s32"), lambda a, b, c: np.where(c.view(np.int32) >= 0, a, b)
        )
    for type, word in product(("f32", "f64"), _TESTS):
        yield Scalar(f"testp.{word}.{type}", ("pred",), (type,), _tested(word, type))


def _tested(word: str, type: str) -> Compute:
    exponent, fraction = {"f32": (0x7F800000, 0x7FFFFF), "f64": (0x7FF << 52, (1 << 52) - 1)}[type]

    def compute(a: Array) -> Array:
        kind = a.dtype.type
        return np.asarray(_TESTS[word](a & kind(exponent), a & kind(fraction), kind(exponent)))

    return compute


def table() -> Iterator[Scalar]:
    """Every spelling; one that ends in | has two results."""
    yield from _comparisons()
    yield from _selections()
