"""Special functions of PTX: what ptxas makes of ex2, lg2, sin, cos, tanh, rcp, rsqrt, sqrt and div around the MUFU.

Sources: `tcsim.arithmetic.mufu` (measured on an H200, all inputs); the SASS that ptxas 13 emits for sm_90a. On other archs the
unit was not measured: results there are inferred.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from tcsim.arithmetic import floating, mufu
from tcsim.isa.scalar.table import SINCE, Array, Scalar, pairs

_MAGNITUDE = np.uint32(0x7FFFFFFF)
_SMALLEST = np.uint32(0x00800000)  # 2**-126
_LARGEST = np.uint32(0x7E800000)  # 2**126


def _code(value: float) -> np.uint32:
    return np.float32(value).view(np.uint32)


def _product(a: Array, b: Array | np.uint32, ftz: bool = False) -> Array:
    x, y = np.broadcast_arrays(a, b)
    return floating.multiply(x, y, "f32", "rne", ftz)


def _is_subnormal(codes: Array) -> Array:
    return codes & _MAGNITUDE < _SMALLEST


def _scaled(unit: Callable[[Array], Array], before: float, after: float) -> Callable[[Array], Array]:
    """The function of a small x from the function of a larger one."""

    def compute(a: Array) -> Array:
        small = _is_subnormal(a)
        found = unit(np.where(small, _product(a, _code(before)), a))
        return np.where(small, _product(found, _code(after)), found)

    return compute


def _ex2(a: Array) -> Array:
    with np.errstate(invalid="ignore"):
        low = ~(a.view(np.float32) >= np.float32(-126))
    found = mufu.ex2(np.where(low, _product(a, _code(0.5)), a))
    return np.where(low, _product(found, found), found)


def _lg2(a: Array) -> Array:
    small = _is_subnormal(a)
    found = mufu.lg2(np.where(small, _product(a, _code(2.0**24)), a))
    return np.where(small, floating.add(found, np.full_like(found, _code(-24.0)), "f32"), found)


def _rcp(a: Array) -> Array:
    size = a & _MAGNITUDE
    factor = np.where(size < _SMALLEST, _code(2.0**24), np.where(size > _LARGEST, _code(0.25), _code(1.0)))
    return _product(factor, mufu.rcp(_product(factor, a)))


def _revolutions(unit: Callable[[Array], Array], ftz: bool) -> Callable[[Array], Array]:
    scale = np.uint32(0x3E22F983)  # 1 / (2 pi)
    return lambda a: unit(floating.multiply(a, np.full_like(a, scale), "f32", "rz", ftz))


def _divide(full: bool, ftz: bool) -> Callable[[Array, Array], Array]:
    def compute(a: Array, b: Array) -> Array:
        a, b = np.broadcast_arrays(a, b)
        size = b & _MAGNITUDE
        factor = np.full(a.shape, _code(1.0))
        if not ftz:
            factor = np.where(size < _SMALLEST, _code(2.0**24), factor)
        if full:
            factor = np.where(size > _LARGEST, _code(0.25), factor)
        other = factor != _code(1.0)
        top = np.where(other, _product(a, factor, ftz), a)
        bottom = np.where(other, _product(b, factor, ftz), b)
        return _product(top, mufu.rcp(bottom), ftz)

    return compute


def _narrow(function: str, format: str, ftz: bool) -> Callable[[Array], Array]:
    return lambda a: mufu.narrow(function, np.ascontiguousarray(a), format)


def _high(function: str) -> Callable[[Array], Array]:
    return lambda a: mufu.high_word(function, (a >> np.uint64(32)).astype(np.uint32)).astype(np.uint64) << np.uint64(32)


def table() -> Iterator[Scalar]:
    """Every spelling."""
    plain = {
        "ex2": _ex2, "lg2": _lg2, "rcp": _rcp, "rsqrt": _scaled(mufu.rsqrt, 2.0**24, 2.0**12), "sqrt": _scaled(mufu.sqrt, 2.0**24, 2.0**-12),
        "sin": _revolutions(mufu.sin, False), "cos": _revolutions(mufu.cos, False),
    }  # fmt: skip
    for name, compute in plain.items():
        yield Scalar(f"{name}.approx.f32", ("f32",), ("f32",), compute, inexact=True)
        bare = _revolutions(mufu.UNIT[name], True) if name in ("sin", "cos") else mufu.UNIT[name]
        yield Scalar(f"{name}.approx.ftz.f32", ("f32",), ("f32",), bare, inexact=True)
    yield Scalar("tanh.approx.f32", ("f32",), ("f32",), mufu.tanh, inexact=True, targets=SINCE[75])
    for name in ("approx", "full"):
        for ftz in ("", ".ftz"):
            yield Scalar(
                f"div.{name}{ftz}.f32", ("f32",), ("f32",) * 2, _divide(name == "full", bool(ftz)), inexact=True
            )
    for function in ("ex2", "tanh"):
        for format in ("f16", "bf16"):
            ftz = ".ftz" if (function, format) == ("ex2", "bf16") else ""
            unit = _narrow(function, format, bool(ftz))
            own = SINCE[90 if format == "bf16" else 75]
            for type, compute in ((format, unit), (f"{format}x2", pairs(unit))):
                yield Scalar(f"{function}.approx{ftz}.{type}", (type,), (type,), compute, inexact=True, targets=own)
    for function in ("rcp", "rsqrt"):
        yield Scalar(f"{function}.approx.ftz.f64", ("f64",), ("f64",), _high(function), inexact=True)
