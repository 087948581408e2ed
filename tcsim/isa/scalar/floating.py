"""Floating-point instructions of PTX: f32, f64, f16, bf16 and their packed pairs.

Sources: PTX ISA, sections Floating Point Instructions, Half Precision Floating Point Instructions, Mixed Precision Floating
Point Instructions. Special functions are in `tcsim.isa.scalar.special`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import product
from typing import Any

import numpy as np

from tcsim.arithmetic import floating
from tcsim.isa.scalar.table import SINCE, Array, Compute, Scalar, pairs, spellings
from tcsim.numbers.rounding import Rounding

ROUNDINGS: dict[str, Rounding] = {"": "rne", "rn": "rne", "rz": "rz", "rm": "rm", "rp": "rp"}
_HALVES = ("f16", "bf16")
_FIRST = {"bf16": 90, "bf16x2": 90, "f32x2": 100}
"""The compute capability whose targets first add and multiply a type; 70 of the others."""
_SIGNS = {"add": (1, 1), "sub": (1, -1)}
Finish = Callable[[Array], Array]


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


def _subtract(a: Array, b: Array, type: str, rounding: Rounding, ftz: bool) -> Array:
    """a - b; a NaN is not negated."""
    other = floating.negated(b)
    if type == "f64":
        other = np.where(floating.is_nan(b, type), b, other)
    return floating.add(a, other, type, rounding, ftz)


def _in_format(
    operation: Compute, type: str, rounding: Rounding = "rne", ftz: bool = False, finish: Finish | None = None
) -> Compute:
    """An operation of `tcsim.arithmetic.floating` in a format, on each half of a packed type."""
    element = _element(type)

    def compute(*codes: Array) -> Array:
        if ftz and element == "f16":
            codes = tuple(_flush_half(code) for code in codes)
        found: Array = operation(*codes, element, rounding, ftz)
        if ftz and element == "f16":
            found = _flush_half(found)
        return finish(found) if finish else found

    return _each(type, compute)


def _saturating(type: str, asked: str) -> Finish | None:
    """What .sat or .relu makes of a result."""
    if asked == "relu":
        return _relu
    return partial(floating.saturated, format=_element(type)) if asked else None


def _factors(constant: bool, a: Array, b: Array) -> tuple[Array, Array]:
    return a, b


def _sums() -> Iterator[Scalar]:
    operations: dict[str, Compute] = {"add": floating.add, "sub": _subtract, "mul": floating.multiply}
    wide = ("", "rn", "rz", "rm", "rp"), ("", "ftz"), ("", "sat"), ("f32", "f64", "f32x2")
    half = ("", "rn"), ("", "ftz"), ("", "sat"), ("f16", "f16x2", "bf16", "bf16x2")
    for (stem, operation), choices in product(operations.items(), (wide, half)):
        for name, (rounding, ftz, sat, type) in spellings(stem, *choices):
            if not _exists(type, ftz, sat):
                continue
            compute = _in_format(operation, type, ROUNDINGS[rounding], bool(ftz), _saturating(type, sat))
            own, open_ = SINCE[_FIRST.get(type, 70)], not rounding
            yield Scalar(
                name, (type,), (type,) * 2, compute, signs=_SIGNS.get(stem) if open_ else None, factors=_factors if open_ and stem == "mul" else None, targets=own,
            )  # fmt: skip
    mixed: dict[str, Compute] = {"add": floating.add, "sub": _subtract}
    for stem, operation in mixed.items():
        for name, (rounding, sat, _, type) in spellings(stem, ROUNDINGS, ("", "sat"), ("f32",), _HALVES):
            compute = _mixed(operation, type, 1, ROUNDINGS[rounding], _saturating("f32", sat))
            yield Scalar(name, ("f32",), (type, "f32"), compute, targets=SINCE[100])


def _exists(type: str, ftz: str, finish: str) -> bool:
    """Whether a type takes the modifiers."""
    if type == "f64" or _element(type) == "bf16":
        return not ftz and finish != "sat"
    return not (type == "f32x2" and finish)


def _flush_half(codes: Array) -> Array:
    """f16 codes with subnormal numbers as zeros of their sign."""
    return np.where(codes & 0x7C00 == 0, codes & np.uint16(0x8000), codes)


def _fused() -> Iterator[Scalar]:
    wide = ("rn", "rz", "rm", "rp"), ("", "ftz"), ("", "sat"), ("f32", "f64", "f32x2")
    half = ("rn",), ("", "ftz"), ("", "sat", "relu"), ("f16", "f16x2", "bf16", "bf16x2")
    for stem, choices in (("fma", wide), ("mad", wide), ("fma", half)):
        for name, (rounding, ftz, finish, type) in spellings(stem, *choices):
            if not _exists(type, ftz, finish) or (type == "f32x2" and stem == "mad"):
                continue
            compute = _in_format(floating.fma, type, ROUNDINGS[rounding], bool(ftz), _saturating(type, finish))
            first = 100 if type == "f32x2" else 80 if finish == "relu" or _element(type) == "bf16" else 70
            yield Scalar(name, (type,), (type,) * 3, compute, targets=SINCE[first])
    for name, (finish, type) in spellings("fma.rn.oob", ("", "relu"), ("f16", "f16x2", "bf16", "bf16x2")):
        fused = _in_format(floating.fma, _element(type), finish=_saturating(type, finish))
        yield Scalar(name, (type,), (type,) * 3, _each(type, _zero_outside(fused)), targets=SINCE[90])
    for name, (rounding, sat, _, type) in spellings("fma", tuple(ROUNDINGS)[1:], ("", "sat"), ("f32",), _HALVES):
        compute = _mixed(floating.fma, type, 2, ROUNDINGS[rounding], _saturating("f32", sat))
        yield Scalar(name, ("f32",), (type, type, "f32"), compute, targets=SINCE[100])


OUTSIDE = np.uint16(0x7FF7)
"""The NaN, of either sign, that stands for an element outside a tensor: what tensor copies fill with (measured on an H200)."""


def _zero_outside(fused: Compute) -> Compute:
    """.oob: +0 where a factor is the NaN of elements outside a tensor."""

    def compute(a: Array, b: Array, c: Array) -> Array:
        outside = (a & np.uint16(0x7FFF) == OUTSIDE) | (b & np.uint16(0x7FFF) == OUTSIDE)
        return np.where(outside, np.uint16(0), fused(a, b, c))

    return compute


def _mixed(operation: Compute, type: str, narrow: int, rounding: Rounding, finish: Finish | None) -> Compute:
    """An f32 operation whose first operands are f16 or bf16 codes."""

    def compute(*codes: Array) -> Array:
        wide = (*(widened(code, type) for code in codes[:narrow]), *codes[narrow:])
        found: Array = operation(*wide, "f32", rounding, False)
        return finish(found) if finish else found

    return compute


def widened(codes: Array, type: str) -> Array:
    """f16 or bf16 codes as f32 codes; NaN becomes what the conversion makes of it."""
    if type == "bf16":
        return codes.astype(np.uint32) << np.uint32(16)
    with np.errstate(invalid="ignore"):
        return codes.view(np.float16).astype(np.float32).view(np.uint32)


def _magnitudes() -> Iterator[Scalar]:
    for type in ("f32", "f64", "f16", "bf16", "f16x2", "bf16x2"):
        for name, (ftz, _) in (*spellings("abs", ("", "ftz"), (type,)), *spellings("neg", ("", "ftz"), (type,))):
            if not ftz or type in ("f32", "f16", "f16x2"):
                negates = name[:3] == "neg"
                compute = _each(type, _signed(_element(type), negates, bool(ftz)))
                own, guarded = SINCE[80 if _element(type) == "bf16" else 70], None
                if type == "f32" and not ftz:  # ptxas makes a selection of it, which keeps the bits of a NaN
                    guarded = _selecting(np.uint32(1 << 31), negates)
                yield Scalar(name, (type,), (type,), compute, passes=-negates, targets=own, guarded=guarded)
    for type, sign in (("f32", np.uint32(1 << 31)), ("f64", np.uint64(1 << 63))):
        yield Scalar(f"copysign.{type}", (type,), (type,) * 2, _with_sign_of(sign))


def _selecting(sign: np.uint32, negates: bool) -> Compute:
    return lambda guard, old, a: np.where(guard, a ^ sign if negates else a & ~sign, old)


def _with_sign_of(sign: np.unsignedinteger) -> Compute:
    return lambda a, b: a & sign | b & ~sign


def _signed(type: str, negates: bool, ftz: bool) -> Compute:
    """The magnitude or the negation; of a NaN the canonical one."""
    sign: Any = {"f32": np.uint32(1 << 31), "f64": np.uint64(1 << 63)}.get(type, np.uint16(1 << 15))

    def compute(a: Array) -> Array:
        given = _flushed(a, type, ftz)
        return _kept_nan(a, given ^ sign if negates else given & ~sign, type)

    return compute


def _kept_nan(a: Array, found: Array, type: str) -> Array:
    """The result, but of a NaN the canonical one; of f64 the NaN itself, made quiet."""
    wrong = floating.is_nan(a, type)
    if not np.any(wrong):
        return found
    instead = a | np.uint64(1 << 51) if type == "f64" else a.dtype.type(0x7FFFFFFF if type == "f32" else 0x7FFF)
    return np.where(wrong, instead, found)


def flushed(codes: Array, type: str) -> Array:
    """f32 or f16 codes with subnormal numbers as zeros of their sign."""
    return floating.flush(codes) if type == "f32" else _flush_half(codes)


def _flushed(codes: Array, type: str, ftz: bool) -> Array:
    return flushed(codes, type) if ftz else codes


def _extremes() -> Iterator[Scalar]:
    types = ("f32", "f64", "f16", "f16x2", "bf16", "bf16x2")
    for stem in ("min", "max"):
        for name, (ftz, nan, xor, type) in spellings(stem, ("", "ftz"), ("", "NaN"), ("", "xorsign.abs"), types):
            if (type == "f64" and (ftz or nan or xor)) or (_element(type) == "bf16" and ftz):
                continue
            choose = _extreme(_element(type), stem == "max", bool(nan), bool(ftz), bool(xor))
            first = 86 if xor else 80 if nan or type not in ("f32", "f64") else 70
            yield Scalar(name, (type,), (type,) * 2, _each(type, choose), targets=SINCE[first])
        for name, (ftz, nan, absolute, _) in spellings(stem, ("", "ftz"), ("", "NaN"), ("", "abs"), ("f32",)):
            choose = _extreme("f32", stem == "max", bool(nan), bool(ftz), False)
            three = _of_three(choose, bool(absolute))
            yield Scalar(name + "/3", ("f32",), ("f32",) * 3, three, targets=SINCE[100])


def _of_three(choose: Compute, absolute: bool) -> Compute:
    magnitude = np.uint32(0x7FFFFFFF if absolute else 0xFFFFFFFF)
    return lambda a, b, c: choose(choose(a & magnitude, b & magnitude), c & magnitude)


def _extreme(type: str, largest: bool, nan: bool, ftz: bool, xor: bool) -> Compute:
    """The smaller or larger of two; with .xorsign.abs of the magnitudes, its sign the exclusive or of both."""

    def compute(a: Array, b: Array) -> Array:
        a, b = (_flushed(code, type, ftz) for code in np.broadcast_arrays(a, b))
        if not xor:
            return floating.extreme(a, b, type, largest, nan)
        top = a.dtype.type(1 << (8 * a.dtype.itemsize - 1))
        found = floating.extreme(a & ~top, b & ~top, type, largest, nan)
        return np.where(floating.is_nan(found, type), found, found | (a ^ b) & top)

    return compute


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
        for name, unordered in product(_COMPARISONS, (False, True)):
            yield name + "u" * unordered, type, _comparison(name, type, unordered)
        either = partial(_either_nan, type=type)
        yield "num", type, _negation(either)
        yield "nan", type, either


def _either_nan(a: Array, b: Array, type: str) -> Array:
    return floating.is_nan(a, type) | floating.is_nan(b, type)


def _negation(holds: Compute) -> Compute:
    return lambda a, b: ~holds(a, b)


def _comparison(name: str, type: str, unordered: bool) -> Compute:
    way = _COMPARISONS[name]

    def compute(a: Array, b: Array) -> Array:
        with np.errstate(invalid="ignore"):
            found: Array = way(as_float(a, type), as_float(b, type))
        if unordered:
            return found | _either_nan(a, b, type)
        return found & ~_either_nan(a, b, type) if name == "ne" else found

    return compute


def table() -> Iterator[Scalar]:
    """Every spelling."""
    for part in (_sums, _fused, _magnitudes, _extremes):
        yield from part()
