"""Floating-point instructions of PTX: f32, f64, f16, bf16 and their packed pairs.

Sources: PTX ISA 9.4, sections Floating Point Instructions, Half Precision Floating Point Instructions, Mixed Precision Floating
Point Instructions. Special functions are in `tcsim.isa.scalar.special`.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tcsim.arithmetic import floating
from tcsim.isa.scalar.table import Array, Compute, Scalar, pairs, spellings
from tcsim.numbers.rounding import Rounding

ROUNDINGS: dict[str, Rounding] = {"": "rne", "rn": "rne", "rz": "rz", "rm": "rm", "rp": "rp"}
_HALVES = ("f16", "bf16")
_RELU_NAN = {"f16": 0x7FFF, "bf16": 0x7FFF}


def _element(type: str) -> str:
    return type.removesuffix("x2")


def _each(type: str, function: Compute) -> Compute:
    """The function, done on each half of a packed type."""
    if not type.endswith("x2"):
        return function
    return pairs(function, np.dtype(np.uint32 if type == "f32x2" else np.uint16))


def _relu(codes: Array) -> Array:
    """Negative numbers as +0; NaN stays."""
    negative = (codes >> codes.dtype.type(8 * codes.dtype.itemsize - 1)) != 0
    nan = codes & codes.dtype.type(0x7FFF) == 0x7FFF
    return np.where(negative & ~nan, codes.dtype.type(0), codes)


def _finish(type: str, saturate: bool, relu: bool) -> Compute:
    if saturate:
        return lambda codes: floating.saturated(codes, type)
    return _relu if relu else lambda codes: codes


def _subtract(a: Array, b: Array, type: str, rounding: Rounding, ftz: bool) -> Array:
    """a - b; a NaN is not negated."""
    other = floating.negated(b)
    if type == "f64":
        other = np.where(floating.is_nan(b, type), b, other)
    return floating.add(a, other, type, rounding, ftz)


def _sums() -> Iterator[Scalar]:
    operations = {"add": floating.add, "sub": _subtract, "mul": floating.multiply}
    for stem, operation in operations.items():
        for name, (rounding, ftz, sat, type) in spellings(
            stem, ("", "rn", "rz", "rm", "rp"), ("", "ftz"), ("", "sat"), ("f32", "f64", "f32x2")
        ):
            if type == "f64" and (ftz or sat) or type == "f32x2" and sat:
                continue
            element = _element(type)

            def compute(a: Array, b: Array, op=operation, t=element, r=ROUNDINGS[rounding], z=bool(ftz), s=bool(sat)) -> Array:  # type: ignore[no-untyped-def]
                found: Array = op(a, b, t, r, z)
                return floating.saturated(found, t) if s else found

            yield Scalar(name, (type,), (type,) * 2, _each(type, compute), contracts=not rounding and type != "f32x2")
        for name, (rounding, ftz, sat, type) in spellings(
            stem, ("", "rn"), ("", "ftz"), ("", "sat"), ("f16", "f16x2", "bf16", "bf16x2")
        ):
            element = _element(type)
            if element == "bf16" and (ftz or sat):
                continue

            def half(a: Array, b: Array, op=operation, t=element, z=bool(ftz), s=bool(sat)) -> Array:  # type: ignore[no-untyped-def]
                if z:
                    a, b = _flush_half(a), _flush_half(b)
                found: Array = op(a, b, t, "rne", z)
                found = _flush_half(found) if z else found
                return floating.saturated(found, t) if s else found

            yield Scalar(name, (type,), (type,) * 2, _each(type, half), contracts=not rounding)


def _flush_half(codes: Array) -> Array:
    """f16 codes with subnormal numbers as zeros of their sign."""
    return np.where(codes & 0x7C00 == 0, codes & np.uint16(0x8000), codes)


def _fused() -> Iterator[Scalar]:
    for stem in ("fma", "mad"):
        for name, (rounding, ftz, sat, type) in spellings(
            stem, ("rn", "rz", "rm", "rp"), ("", "ftz"), ("", "sat"), ("f32", "f64", "f32x2")
        ):
            if type == "f64" and (ftz or sat) or type == "f32x2" and (sat or stem == "mad"):
                continue
            element = _element(type)

            def compute(a: Array, b: Array, c: Array, t=element, r=ROUNDINGS[rounding], z=bool(ftz), s=bool(sat)) -> Array:  # type: ignore[no-untyped-def]
                found = floating.fma(a, b, c, t, r, z)
                return floating.saturated(found, t) if s else found

            yield Scalar(name, (type,), (type,) * 3, _each(type, compute))
    for name, (_, ftz, finish, type) in spellings(
        "fma", ("rn",), ("", "ftz"), ("", "sat", "relu"), ("f16", "f16x2", "bf16", "bf16x2")
    ):
        element = _element(type)
        if element == "bf16" and (ftz or finish == "sat"):
            continue

        def half(a: Array, b: Array, c: Array, t=element, z=bool(ftz), end=_finish(element, finish == "sat", finish == "relu")) -> Array:  # type: ignore[no-untyped-def]
            if z:
                a, b, c = _flush_half(a), _flush_half(b), _flush_half(c)
            found = floating.fma(a, b, c, t, "rne", z)
            return np.asarray(end(_flush_half(found) if z else found))

        yield Scalar(name, (type,), (type,) * 3, _each(type, half))
    for type in _HALVES:  # mixed precision, sm_100
        for rounding in ("rn", "rz", "rm", "rp"):

            def mixed(a: Array, b: Array, c: Array, t=type, r=ROUNDINGS[rounding]) -> Array:  # type: ignore[no-untyped-def]
                return floating.fma(widened(a, t), widened(b, t), c, "f32", r)

            yield Scalar(f"fma.{rounding}.f32.{type}", ("f32",), (type, type, "f32"), mixed)


def widened(codes: Array, type: str) -> Array:
    """f16 or bf16 codes as f32 codes; NaN becomes what the conversion makes of it."""
    if type == "bf16":
        return codes.astype(np.uint32) << np.uint32(16)
    with np.errstate(invalid="ignore"):
        return codes.view(np.float16).astype(np.float32).view(np.uint32)


def _quotients() -> Iterator[Scalar]:
    for stem in ("div", "rcp", "sqrt"):
        for name, (rounding, ftz, type) in spellings(stem, ("rn", "rz", "rm", "rp"), ("", "ftz"), ("f32", "f64")):
            if type == "f64" and (ftz or rounding != "rn"):
                continue
            one = np.uint32(0x3F800000) if type == "f32" else np.uint64(0x3FF0000000000000)

            def divide(a: Array, b: Array, t=type, r=ROUNDINGS[rounding], z=bool(ftz)) -> Array:  # type: ignore[no-untyped-def]
                return floating.divide(np.asarray(a), np.asarray(b), t, r, z)

            def invert(a: Array, t=type, r=ROUNDINGS[rounding], z=bool(ftz), n=one) -> Array:  # type: ignore[no-untyped-def]
                return floating.divide(np.full(np.shape(a), n), a, t, r, z)

            def root(a: Array, t=type, r=ROUNDINGS[rounding], z=bool(ftz)) -> Array:  # type: ignore[no-untyped-def]
                return floating.root(a, t, r, z)

            if stem == "div":
                yield Scalar(name, (type,), (type,) * 2, divide)
            else:
                yield Scalar(name, (type,), (type,), invert if stem == "rcp" else root)


def _magnitudes() -> Iterator[Scalar]:
    for type in ("f32", "f64", "f16", "bf16", "f16x2", "bf16x2"):
        element = _element(type)
        sign_bit = {"f32": np.uint32(1 << 31), "f64": np.uint64(1 << 63)}.get(element, np.uint16(1 << 15))
        for name, (ftz, _) in spellings("abs", ("", "ftz"), (type,)):
            if ftz and type not in ("f32", "f16", "f16x2"):
                continue

            def absolute(a: Array, s=sign_bit, z=bool(ftz), t=element) -> Array:  # type: ignore[no-untyped-def]
                return _kept_nan(a, _flushed(a, t, z) & ~s, t)

            yield Scalar(name, (type,), (type,), _each(type, absolute))
        for name, (ftz, _) in spellings("neg", ("", "ftz"), (type,)):
            if ftz and type not in ("f32", "f16", "f16x2"):
                continue

            def negate(a: Array, s=sign_bit, z=bool(ftz), t=element) -> Array:  # type: ignore[no-untyped-def]
                return _kept_nan(a, _flushed(a, t, z) ^ s, t)

            yield Scalar(name, (type,), (type,), _each(type, negate))
    for type, sign in (("f32", np.uint32(1 << 31)), ("f64", np.uint64(1 << 63))):
        yield Scalar(f"copysign.{type}", (type,), (type,) * 2, lambda a, b, s=sign: a & s | b & ~s)


def _kept_nan(a: Array, found: Array, type: str) -> Array:
    """The result, but of a NaN the canonical one; of f64 the NaN itself, made quiet."""
    wrong = floating.is_nan(a, type)
    if not np.any(wrong):
        return found
    instead = a | np.uint64(1 << 51) if type == "f64" else a.dtype.type(0x7FFFFFFF if type == "f32" else 0x7FFF)
    return np.where(wrong, instead, found)


def _flushed(codes: Array, type: str, ftz: bool) -> Array:
    if not ftz:
        return codes
    return floating.flush(codes) if type == "f32" else _flush_half(codes)


def _extremes() -> Iterator[Scalar]:
    for stem, largest in (("min", False), ("max", True)):
        for name, (ftz, nan, xor, type) in spellings(
            stem, ("", "ftz"), ("", "NaN"), ("", "xorsign.abs"), ("f32", "f64", "f16", "f16x2", "bf16", "bf16x2")
        ):
            element = _element(type)
            if type == "f64" and (ftz or nan or xor) or element == "bf16" and ftz:
                continue

            def compute(a: Array, b: Array, t=element, large=largest, n=bool(nan), z=bool(ftz), x=bool(xor)) -> Array:  # type: ignore[no-untyped-def]
                a, b = np.broadcast_arrays(a, b)
                if z and t != "f32":
                    a, b = _flush_half(a), _flush_half(b)
                if not x:
                    return floating.extreme(a, b, t, large, n, z and t == "f32")
                top = a.dtype.type(1 << (8 * a.dtype.itemsize - 1))
                found = floating.extreme(a & ~top, b & ~top, t, large, n, z and t == "f32")
                return np.where(floating.is_nan(found, t), found, found | (a ^ b) & top)

            yield Scalar(name, (type,), (type,) * 2, _each(type, compute))
        for name, (ftz, nan, _) in spellings(stem, ("", "ftz"), ("", "NaN"), ("f32",)):

            def three(a: Array, b: Array, c: Array, large=largest, n=bool(nan), z=bool(ftz)) -> Array:  # type: ignore[no-untyped-def]
                first = floating.extreme(*np.broadcast_arrays(a, b), "f32", large, n, z)
                return floating.extreme(*np.broadcast_arrays(first, c), "f32", large, n, z)

            yield Scalar(name + "/3", ("f32",), ("f32",) * 3, three)


_COMPARISONS = {
    "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal,
}  # fmt: skip


def as_float(codes: Array, type: str) -> Array:
    """The numbers that codes stand for, exactly."""
    if type == "f64":
        return codes.view(np.float64)
    wide = codes if type == "f32" else widened(codes, type)
    return wide.view(np.float32)


def comparisons() -> Iterator[tuple[str, str, Compute]]:
    """(comparison, type, function of two codes) of floating-point numbers; those ending in u hold for NaN too."""
    for type in ("f32", "f64", "f16", "bf16"):
        for name, way in _COMPARISONS.items():
            for unordered in (False, True):

                def compute(a: Array, b: Array, w=way, t=type, u=unordered, different=name == "ne") -> Array:  # type: ignore[no-untyped-def]
                    with np.errstate(invalid="ignore"):
                        found = w(as_float(a, t), as_float(b, t))
                    nan = floating.is_nan(a, t) | floating.is_nan(b, t)
                    if u:
                        return found | nan
                    return found & ~nan if different else found

                yield name + "u" * unordered, type, compute
        yield "num", type, lambda a, b, t=type: ~(floating.is_nan(a, t) | floating.is_nan(b, t))
        yield "nan", type, lambda a, b, t=type: floating.is_nan(a, t) | floating.is_nan(b, t)


def table() -> Iterator[Scalar]:
    """Every spelling."""
    for part in (_sums, _fused, _quotients, _magnitudes, _extremes):
        yield from part()
