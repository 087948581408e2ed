"""Comparisons and selections of PTX: setp, set, selp, slct, testp."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import numpy as np

from tcsim.isa.scalar import floating, integer
from tcsim.isa.scalar.table import CONTAINERS, SINCE, Array, Compute, Scalar
from tcsim.lowering.traced import asarray

_COMBINED: dict[str, Compute | None] = {"": None, "and": np.logical_and, "or": np.logical_or, "xor": np.logical_xor}
_SELECTED = ("b16", "b32", "b64", "u16", "u32", "u64", "s16", "s32", "s64", "f32", "f64")


def _comparisons() -> Iterator[Scalar]:
    for name, type, holds in (*integer.comparisons(), *floating.comparisons()):
        own = SINCE[90 if type == "bf16" else 70]
        for ftz in ("", "ftz") if type in ("f32", "f16") else ("",):
            compare = _flushing(holds, type) if ftz else holds
            for word, combine in _COMBINED.items():
                stem, third = (f"{name}.{word}", ("pred",)) if word else (name, ())
                holding = _combining(compare, combine) if combine else compare
                end = ".".join(part for part in (ftz, type) if part)
                both = _with_opposite(compare, combine)
                yield Scalar(f"setp.{stem}.{end}", ("pred",), (type, type, *third), holding, targets=own)
                if type not in ("f16", "bf16"):
                    yield Scalar(f"setp.{stem}.{end}|", ("pred", "pred"), (type, type, *third), both, targets=own)
                else:
                    yield from _packed(stem, ftz, f"{type}x2", third, holding, own)
                for out in _results(type):
                    since = SINCE[90] if out == "bf16" else own
                    if ftz and out == "bf16":
                        continue
                    mnemonic = ".".join(part for part in ("set", stem, ftz, out, type) if part)
                    number = _as_number(holding, out)
                    guarded = _converting(number, out, type)
                    ignores = _CONVERTS if guarded else ""
                    yield Scalar(
                        mnemonic, (out,), (type, type, *third), number, targets=since, guarded=guarded, ignores=ignores
                    )


def _results(type: str) -> tuple[str, ...]:
    """What `set` makes of a comparison."""
    if type in ("f16", "bf16"):
        return ("u16", "s16", "u32", "s32", *(("f16", "bf16") if type == "f16" else ("bf16",)))
    return ("u32", "s32", "f32", "f16", "bf16")


def _packed(
    stem: str, ftz: str, type: str, third: tuple[str, ...], holding: Compute, own: frozenset[str]
) -> Iterator[Scalar]:
    """The comparison of each half: two predicates, or a mask or a number in each half."""
    end = ".".join(part for part in (ftz, type) if part)
    halves = _halves(holding)
    yield Scalar(f"setp.{stem}.{end}|", ("pred", "pred"), (type, type, *third), halves, targets=own)
    for out in ("u32", "s32", type):
        mnemonic = ".".join(part for part in ("set", stem, ftz, out, type) if part)
        compute = _joined(halves, _TRUE.get(out.removesuffix("x2"), 0xFFFF))
        yield Scalar(mnemonic, (out,), (type, type, *third), compute, targets=own)


def _halves(holding: Compute) -> Compute:
    """A comparison of 16-bit codes for the low and for the high half of 32."""

    def both(a: Array, b: Array, *p: Array) -> tuple[Array, Array]:
        low, shift = np.uint32(0xFFFF), np.uint32(16)
        return tuple(
            holding(*(asarray(part).astype(np.uint16) for part in parts), *p)
            for parts in ((a & low, b & low), (a >> shift, b >> shift))
        )

    return both


def _joined(halves: Compute, true: int) -> Compute:
    def compute(*codes: Array) -> Array:
        low, high = halves(*codes)
        return np.where(low, np.uint32(true), np.uint32(0)) | np.where(high, np.uint32(true << 16), np.uint32(0))

    return compute


def _flushing(holds: Compute, type: str) -> Compute:
    def compare(a: Array, b: Array) -> Array:
        return asarray(holds(*(floating.flushed(code, type) for code in (a, b))))

    return compare


def _combining(compare: Compute, combine: Compute) -> Compute:
    return lambda a, b, p: combine(compare(a, b), p)


def _with_opposite(compare: Compute, combine: Compute | None) -> Compute:
    """The comparison and its opposite, each combined with a predicate if there is one."""

    def both(a: Array, b: Array, *p: Array) -> tuple[Array, Array]:
        found = compare(a, b)
        return (combine(found, *p), combine(~found, *p)) if combine else (found, ~found)

    return both


_TRUE = {"f32": 0x3F800000, "f16": 0x3C00, "bf16": 0x3F80}
"""1.0, which `set` gives where it gives a number; an integer gets ones in all its bits."""


def _as_number(compare: Compute, out: str) -> Compute:
    container = CONTAINERS[out]
    true = container.type(_TRUE.get(out, (1 << 8 * container.itemsize) - 1))
    return lambda *codes: np.where(compare(*codes), true, container.type(0))


_CONVERTS = "what the register holds is converted where the guard is false"


def _converting(compute: Compute, out: str, type: str) -> Compute | None:
    """What ptxas 12.8 to 13.5 makes of a guarded `set`; None where it keeps to the guard.

    The guard is that of the comparison, which makes a mask of 16 bits of types of 16 bits and of 32 of others; in any case what the
    register then holds becomes a number: 32 bits with its sign, or its magnitude as a float. An H200 gave it for all 1,800 spellings.
    """
    bits = 16 if CONTAINERS[type].itemsize == 2 else 32
    if out[0] in "us" and (out[1:] == "16" or bits == 32):
        return None

    def kept(old: Array) -> Array:
        mask = old.astype(f"u{bits // 8}").view(f"i{bits // 8}")
        if out[0] in "us":
            return mask.astype(np.int32).view(np.uint32)
        if out == "f16":
            return np.abs(mask).astype(np.float16).view(np.uint16)
        codes = np.abs(mask.astype(np.int32)).astype(np.float32).view(np.uint32)
        return codes if out == "f32" else ((codes + 0x7FFF + (codes >> 16 & 1)) >> 16).astype(np.uint16)

    return lambda guard, old, *codes: np.where(guard, compute(*codes), kept(old))


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
        for ftz in ("", "ftz."):
            yield Scalar(f"slct.{ftz}{type}.f32", (type,), (type, type, "f32"), _by_sign(bool(ftz)))
    for type, word in product(("f32", "f64"), _TESTS):
        compute = _tested(word, type)
        yield Scalar(
            f"testp.{word}.{type}",
            ("pred",),
            (type,),
            compute,
            guarded=_whatever(compute),
            ignores="all threads execute it",
        )


def _by_sign(ftz: bool) -> Compute:
    """The first of two where a number is at least 0, else the second; of a NaN the second."""

    def compute(a: Array, b: Array, c: Array) -> Array:
        with np.errstate(invalid="ignore"):
            return np.where((floating.flushed(c, "f32") if ftz else c).view(np.float32) >= 0, a, b)

    return compute


def _whatever(compute: Compute) -> Compute:
    """What ptxas 12.8 to 13.5 makes of a guarded testp: it is executed whatever the guard says (an H200: all 12 spellings)."""
    return lambda guard, old, *codes: compute(*codes)


def _tested(word: str, type: str) -> Compute:
    exponent, fraction = {"f32": (0x7F800000, 0x7FFFFF), "f64": (0x7FF << 52, (1 << 52) - 1)}[type]

    def compute(a: Array) -> Array:
        kind = a.dtype.type
        return asarray(_TESTS[word](a & kind(exponent), a & kind(fraction), kind(exponent)))

    return compute


def table() -> Iterator[Scalar]:
    """Every spelling; one that ends in | has two results."""
    yield from _comparisons()
    yield from _selections()
