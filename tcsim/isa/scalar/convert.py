"""Plain conversions of PTX: cvt between integers, f64, f32, f16 and bf16. The narrow formats are in `tcsim.isa.cvt`.

Sources: PTX ISA, section cvt. A float that does not fit an integer is clamped; NaN gives 0,
or the highest bit alone where the integer has 64 bits or the float is an f64 (measured on an H200).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product

import numpy as np

from tcsim.arithmetic import floating
from tcsim.arithmetic.floating import rounded
from tcsim.isa.scalar.floating import ROUNDINGS, as_float, widened
from tcsim.isa.scalar.table import CONTAINERS, SINCE, Array, Scalar, spellings
from tcsim.lowering.traced import contiguous
from tcsim.numbers.rounding import Rounding

_INTEGERS = ("u8", "u16", "u32", "u64", "s8", "s16", "s32", "s64")
_HALVES = ("f16", "bf16")
_FLOATS = (*_HALVES, "f32", "f64")
_TO_INTEGRAL: dict[str, Callable[[Array], Array]] = {"rni": np.rint, "rzi": np.trunc, "rmi": np.floor, "rpi": np.ceil}


def _bounds(type: str) -> tuple[int, int]:
    bits = int(type[1:])
    return (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if type[0] == "s" else (0, (1 << bits) - 1)


def _values(type: str, codes: Array) -> Array:
    return codes.view(f"i{codes.dtype.itemsize}") if type[0] == "s" else codes


def _between_integers(out: str, source: str, saturate: bool) -> Callable[[Array], Array]:
    low, high = _bounds(out)
    own_low, own_high = _bounds(source)
    container = CONTAINERS[out]

    def compute(a: Array) -> Array:
        value = _values(source, a)
        if saturate:
            if own_low < low:
                value = np.maximum(value, value.dtype.type(max(low, own_low)))
            if own_high > high:
                value = np.minimum(value, value.dtype.type(high))
        return value.astype(f"i{container.itemsize}" if source[0] == "s" else container).view(container)

    return compute


def _to_integer(out: str, source: str, rounding: str, ftz: bool) -> Callable[[Array], Array]:
    low, high = _bounds(out)
    whole = _TO_INTEGRAL[rounding]
    instead = 1 << (int(out[1:]) - 1) if out[1:] == "64" or source == "f64" else 0  # of NaN

    def compute(a: Array) -> Array:
        a = floating.flush(a) if ftz and source == "f32" else a
        with np.errstate(all="ignore"):
            value = whole(as_float(a, source).astype(np.float64))
            inside = (value >= low) & (value < float(high) + 1)
            safe = np.where(inside, value, 0.0)
            found = safe.astype(np.int64).view(np.uint64)
            if high >= 1 << 63:
                large = safe >= 2.0**63
                upper = np.where(large, safe - 2.0**63, 0.0).astype(np.int64).view(np.uint64) + np.uint64(1 << 63)
                found = np.where(large, upper, found)
            clamped = np.where(value < low, np.uint64(low & (1 << 64) - 1), np.uint64(high))
            found = np.where(inside, found, clamped)
            return np.where(np.isnan(value), np.uint64(instead), found).astype(CONTAINERS[out])

    return compute


def _from_integer(out: str, source: str, rounding: Rounding, saturate: bool) -> Callable[[Array], Array]:
    def convert(a: Array) -> Array:
        value = _values(source, a)
        high = value.astype(np.float64)
        if int(source[1:]) < 64:
            low = np.zeros_like(high)
        else:
            top = high >= 2.0**64 if source[0] == "u" else high >= 2.0**63
            back = np.where(top, 0.0, high).astype(value.dtype)
            difference = np.where(top, value, value - back).view(
                np.int64
            )  # of a top value: value - 2**64 (or 2**63), wrapped
            if source[0] == "s":
                difference = np.where(top, (value.view(np.uint64) - np.uint64(1 << 63)).view(np.int64), difference)
            low = difference.astype(np.float64)
        if out == "f64":
            return _double(high, low, rounding)
        return np.where(value == 0, CONTAINERS[out].type(0), rounded(high, low, out, rounding))

    return (lambda a: floating.saturated(convert(a), out)) if saturate else convert


def _double(high: Array, low: Array, rounding: Rounding) -> Array:
    """The f64 next to high + low in the direction of a rounding mode."""
    if rounding == "rne":
        return high.view(np.uint64)
    toward = {"rm": low < 0, "rp": np.zeros_like(low, bool), "rz": (high > 0) & (low < 0)}[rounding]
    away = {"rm": np.zeros_like(low, bool), "rp": low > 0, "rz": (high < 0) & (low > 0)}[rounding]
    found = np.where(toward, np.nextafter(high, -np.inf), np.where(away, np.nextafter(high, np.inf), high))
    return contiguous(found).view(np.uint64)


def _between_floats(out: str, source: str, mode: str, ftz: bool, saturate: bool) -> Callable[[Array], Array]:
    rounding = ROUNDINGS[mode]
    flushes = ftz and source == "f32" and out != "f16"  # to f16 .ftz changes nothing (measured on an H200)
    plain = out == source and out not in _HALVES and not ftz and not saturate  # those of 16 bits ptxas adds to -0

    def compute(a: Array) -> Array:
        a = floating.flush(a) if flushes else a
        with np.errstate(all="ignore"):
            if out == source:
                found = a if plain else _quiet(a, out)
            elif out == "f64":
                wide = a if source == "f32" else widened(a, source)
                wide = _quiet(wide, "f32") if ftz else wide
                found = wide.view(np.float32).astype(np.float64).view(np.uint64)
                payload = (wide & np.uint32(0x7FFFFF)).astype(np.uint64) << np.uint64(
                    29
                )  # a NaN keeps it, and becomes quiet
                nan = (
                    np.uint64(0x7FF8000000000000)
                    | payload
                    | (wide & np.uint32(0x80000000)).astype(np.uint64) << np.uint64(32)
                )
                found = np.where(floating.is_nan(wide, "f32"), nan, found)
            elif source == "f64":
                found = rounded_double(a, out, rounding)
            elif out == "f32":
                found = widened(a, source)
                found = _quiet(found, "f32") if source == "f16" or ftz else found  # of bf16 it is a shift
            else:
                value = as_float(a, source).astype(np.float64)
                found = rounded(value, np.zeros_like(value), out, rounding)
        found = floating.flush(found) if ftz and out == "f32" else found
        return floating.saturated(found, out) if saturate else found

    return compute


def _quiet(codes: Array, type: str) -> Array:
    """NaN canonical; of f64 with its payload."""
    instead = codes | np.uint64(1 << 51) if type == "f64" else codes.dtype.type(0x7FFFFFFF if type == "f32" else 0x7FFF)
    return np.where(floating.is_nan(codes, type), instead, codes)


def rounded_double(a: Array, out: str, rounding: Rounding) -> Array:
    """f64 codes in a narrower format, rounded once."""
    value = a.view(np.float64)
    found = rounded(value, np.zeros_like(value), out, rounding)
    nan = floating.is_nan(a, "f64")
    if not nan.any():
        return found
    exponent, fraction = {"f32": (0x7FC00000, 23), "f16": (0x7E00, 10), "bf16": (0x7FC0, 7)}[out]
    bits = 8 * found.dtype.itemsize
    payload = a >> np.uint64(52 - fraction) & np.uint64((1 << fraction) - 1) | np.uint64(exponent)  # cut, and quiet
    return np.where(nan, (payload | a >> np.uint64(63) << np.uint64(bits - 1)).astype(found.dtype), found)


def _integral(type: str, rounding: str, ftz: bool, saturate: bool) -> Callable[[Array], Array]:
    whole = _TO_INTEGRAL[rounding]

    def compute(a: Array) -> Array:
        a = floating.flush(a) if ftz and type == "f32" else a
        with np.errstate(all="ignore"):
            value = whole(as_float(a, type))
            if type == "f64":
                found = value.view(np.uint64)
            else:
                wide = value.astype(np.float64)
                found = rounded(wide, np.zeros_like(wide), type, "rne")
        return floating.saturated(found, type) if saturate else found

    return compute


_DIRECTED, _NONE = ("rn", "rz", "rm", "rp"), ("",)
_FTZ, _SAT = ("", "ftz"), ("", "sat")
_BETWEEN: dict[tuple[str, str], tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]] = {
    ("f16", "f16"): (_NONE, _NONE, _SAT), ("f64", "f64"): (_NONE, _NONE, _SAT), ("f32", "f32"): (_NONE, _FTZ, _SAT),
    ("f32", "f16"): (_NONE, _FTZ, _SAT), ("f64", "f32"): (_NONE, _FTZ, _SAT), ("f64", "f16"): (_NONE, _NONE, _SAT),
    ("f16", "f64"): (_DIRECTED, _NONE, _SAT), ("f32", "f64"): (_DIRECTED, _FTZ, _SAT), ("f16", "f32"): (_DIRECTED, _FTZ, _SAT),
    ("bf16", "f32"): (_DIRECTED, _FTZ, _NONE), ("bf16", "f64"): (_DIRECTED, _NONE, _NONE), ("bf16", "bf16"): (_NONE, _NONE, _NONE),
    ("f32", "bf16"): (("", *_DIRECTED), _FTZ, _NONE), ("f64", "bf16"): (("", *_DIRECTED), _NONE, _NONE),
    ("f16", "bf16"): (("", *_DIRECTED), _NONE, _NONE), ("bf16", "f16"): (("", *_DIRECTED), _NONE, _NONE),
}  # fmt: skip
"""(result, source): the roundings, .ftz and .sat that a conversion between floating-point formats takes."""


def _first(out: str, source: str, ftz: str) -> frozenset[str]:
    """The targets of a conversion: those of bf16 came with sm_90, from and to f32 with sm_80."""
    if "bf16" not in (out, source):
        return SINCE[70]
    return SINCE[80 if {out, source} == {"bf16", "f32"} and not (ftz and out == "f32") else 90]


def table() -> Iterator[Scalar]:
    """Every spelling."""
    for name, (out, source) in spellings("cvt", _INTEGERS, _INTEGERS):
        (low, high), (own_low, own_high) = _bounds(out), _bounds(source)
        yield Scalar(name, (out,), (source,), _between_integers(out, source, False))
        if own_low < low or own_high > high:
            yield Scalar(f"cvt.sat.{out}.{source}", (out,), (source,), _between_integers(out, source, True))
    for integer, float in product(_INTEGERS, _FLOATS):
        if float == "bf16" and integer[1:] == "8":
            continue
        own = _first(float, float, "")
        ftzs, sats = _FTZ if float == "f32" else _NONE, _NONE if float == "bf16" else _SAT
        for name, (rounding, ftz, _) in spellings("cvt", _TO_INTEGRAL, ftzs, sats):
            compute = _to_integer(integer, float, rounding, bool(ftz))
            yield Scalar(f"{name}.{integer}.{float}", (integer,), (float,), compute, targets=own)
        for name, (rounding, _, sat) in spellings("cvt", _DIRECTED, ftzs, sats):
            compute = _from_integer(float, integer, ROUNDINGS[rounding], bool(sat))
            yield Scalar(f"{name}.{float}.{integer}", (float,), (integer,), compute, targets=own)
    for (out, source), choices in _BETWEEN.items():
        for name, (rounding, ftz, sat) in spellings("cvt", *choices):
            compute = _between_floats(out, source, rounding, bool(ftz), bool(sat))
            own = _first(out, source, ftz)
            yield Scalar(f"{name}.{out}.{source}", (out,), (source,), compute, targets=own)
    for type in _FLOATS:
        ftzs, sats = _FTZ if type == "f32" else _NONE, _NONE if type == "bf16" else _SAT
        for name, (rounding, ftz, sat) in spellings("cvt", _TO_INTEGRAL, ftzs, sats):
            compute = _integral(type, rounding, bool(ftz), bool(sat))
            yield Scalar(f"{name}.{type}.{type}", (type,), (type,), compute, targets=_first(type, type, ""))
