"""Comparisons and selections of PTX: setp, set, selp, slct, testp."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tcsim.arithmetic import floating as arithmetic
from tcsim.isa.scalar import floating, integer
from tcsim.isa.scalar.table import Array, Scalar

_COMBINED = {"and": np.logical_and, "or": np.logical_or, "xor": np.logical_xor}
_SELECTED = ("b16", "b32", "b64", "u16", "u32", "u64", "s16", "s32", "s64", "f32", "f64")


def _comparisons() -> Iterator[Scalar]:
    for name, type, holds in (*integer.comparisons(), *floating.comparisons()):
        for ftz in ("", "ftz") if type in ("f32", "f16") else ("",):

            def compare(a: Array, b: Array, h=holds, z=bool(ftz), t=type) -> Array:  # type: ignore[no-untyped-def]
                if z:
                    a, b = (arithmetic.flush(x) if t == "f32" else np.where(x & 0x7C00 == 0, x & np.uint16(0x8000), x) for x in (a, b))
                return np.asarray(h(a, b))

            end = ".".join(part for part in (ftz, type) if part)
            yield Scalar(f"setp.{name}.{end}", ("pred",), (type,) * 2, compare)
            yield Scalar(
                f"setp.{name}.{end}|", ("pred", "pred"), (type,) * 2, lambda a, b, c=compare: ((found := c(a, b)), ~found)
            )
            for word, combine in _COMBINED.items():

                def combined(a: Array, b: Array, p: Array, c=compare, w=combine) -> Array:  # type: ignore[no-untyped-def]
                    return np.asarray(w(c(a, b), p))

                def both(a: Array, b: Array, p: Array, c=compare, w=combine) -> tuple[Array, Array]:  # type: ignore[no-untyped-def]
                    found = c(a, b)
                    return w(found, p), w(~found, p)

                yield Scalar(f"setp.{name}.{word}.{end}", ("pred",), (type, type, "pred"), combined)
                yield Scalar(f"setp.{name}.{word}.{end}|", ("pred", "pred"), (type, type, "pred"), both)
            for out in ("u32", "s32", "f32"):
                true = np.uint32(0x3F800000 if out == "f32" else 0xFFFFFFFF)
                mnemonic = ".".join(part for part in ("set", name, ftz, out, type) if part)
                yield Scalar(mnemonic, (out,), (type,) * 2, lambda a, b, c=compare, t=true: np.where(c(a, b), t, np.uint32(0)))


def _selections() -> Iterator[Scalar]:
    for type in _SELECTED:
        yield Scalar(f"selp.{type}", (type,), (type, type, "pred"), lambda a, b, p: np.where(p, a, b))
        yield Scalar(
            f"slct.{type}.s32", (type,), (type, type, "s32"), lambda a, b, c: np.where(c.view(np.int32) >= 0, a, b)
        )
    for type in ("f32", "f64"):
        exponent, fraction = {"f32": (0x7F800000, 0x7FFFFF), "f64": (0x7FF << 52, (1 << 52) - 1)}[type]
        tests = {
            "finite": lambda e, f, x: e != x, "infinite": lambda e, f, x: (e == x) & (f == 0), "number": lambda e, f, x: (e != x) | (f == 0),
            "notanumber": lambda e, f, x: (e == x) & (f != 0), "normal": lambda e, f, x: (e != x) & ((e != 0) | (f == 0)),  # zero counts as normal (measured on an H200)
            "subnormal": lambda e, f, x: (e == 0) & (f != 0),
        }  # fmt: skip
        for word, test in tests.items():

            def compute(a: Array, t=test, x=exponent, m=fraction) -> Array:  # type: ignore[no-untyped-def]
                kind = a.dtype.type
                return np.asarray(t(a & kind(x), a & kind(m), kind(x)))

            yield Scalar(f"testp.{word}.{type}", ("pred",), (type,), compute)


def table() -> Iterator[Scalar]:
    """Every spelling; one that ends in | has two results."""
    yield from _comparisons()
    yield from _selections()
