"""What a spelling of cvt must be like for a mistake to show in its results: for each mutant of conversions, where it applies."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from tcsim.isa.cvt.semantics import Convert
from tcsim.numbers.conversion import Conversion, numbers
from tcsim.numbers.formats import INFINITY
from tcsim.numbers.rounding import Rounding

Applies = Callable[[Convert], bool]


def conversion_of(instruction: Convert) -> Conversion:
    """What becomes of one element."""
    return instruction.lowering.conversion


def to_float(instruction: Convert) -> bool:
    """The target is a float."""
    return conversion_of(instruction).target.kind == "float"


def from_float(instruction: Convert) -> bool:
    """The source is a float."""
    return conversion_of(instruction).source.kind == "float"


def from_integer(instruction: Convert) -> bool:
    """The source is an integer."""
    return conversion_of(instruction).source.kind == "integer"


@dataclass(frozen=True)
class _Products:
    """What can happen to a source times a scale factor, by trying all of them."""

    inexact: bool
    ties: bool
    too_large: bool
    subnormal: bool


@cache
def _products(conversion: Conversion) -> _Products:
    source, target = conversion.source, conversion.target
    codes = np.arange(1 << source.bits, dtype=source.dtype)
    fields = source.fields(codes) if source.kind == "float" else None
    values = numbers(codes, source)
    values = values[fields.kind < INFINITY] if fields is not None else values
    values = np.maximum(values, 0.0) if conversion.relu else values
    products = np.ldexp(np.abs(values)[:, None], np.arange(-127, 128)[None, :]).reshape(-1)
    products = products[products > 0]
    leading = np.maximum(np.frexp(products)[1] - 1, target.minimum_exponent)
    units = np.ldexp(products, target.fraction_bits - leading)
    return _Products(
        inexact=bool((units != np.trunc(units)).any()),
        ties=bool((units - np.trunc(units) == 0.5).any()),
        too_large=bool((products > target.largest).any()),
        subnormal=bool((products < 2.0**target.minimum_exponent).any()),
    )


def loses_bits(instruction: Convert) -> bool:
    """Some source lies strictly between two numbers of the target."""
    conversion = conversion_of(instruction)
    source, target = conversion.source, conversion.target
    if conversion.scale == "multiply":
        return _products(conversion).inexact
    if source.kind == target.kind == "integer":
        return False
    if source.kind == "integer":
        return source.bits - int(source.signed) > target.fraction_bits + 1
    if target.kind == "integer" or conversion.scale:
        return True
    least = [f.minimum_exponent - f.fraction_bits for f in (source, target)]
    return source.fraction_bits > target.fraction_bits or least[0] < least[1]


def rounds(*modes: Rounding) -> Applies:
    """Bits are lost, and rounded in one of these ways."""
    return lambda i: loses_bits(i) and not conversion_of(i).random_bits and conversion_of(i).rounding in modes


def has_ties(instruction: Convert) -> bool:
    """Some source lies exactly between two numbers of the target."""
    conversion = conversion_of(instruction)
    return _products(conversion).ties if conversion.scale == "multiply" else loses_bits(instruction)


def reaches_infinity(instruction: Convert) -> bool:
    """Some source is infinite or above the target's largest number."""
    conversion = conversion_of(instruction)
    source, target = conversion.source, conversion.target
    if source.kind == "float" and source.infinity:
        return True
    if conversion.scale == "multiply":
        return _products(conversion).too_large
    return bool(conversion.scale) or source.largest > target.largest


def beyond(instruction: Convert) -> bool:
    """The target has a code for what is too large: infinity or NaN."""
    return to_float(instruction) and conversion_of(instruction).target.nan != "none"


def negative(instruction: Convert) -> bool:
    """The source has negative numbers."""
    return conversion_of(instruction).source.signed


def source_nan(instruction: Convert) -> bool:
    """The source has NaN."""
    return from_float(instruction) and conversion_of(instruction).source.nan != "none"


def subnormal_result(instruction: Convert) -> bool:
    """Some result is subnormal."""
    conversion = conversion_of(instruction)
    source, target = conversion.source, conversion.target
    if not (to_float(instruction) and from_float(instruction) and target.zero):
        return False
    if conversion.scale == "multiply":
        return _products(conversion).subnormal
    return bool(conversion.scale) or source.minimum_exponent - source.fraction_bits < target.minimum_exponent


def subnormal_source_matters(instruction: Convert) -> bool:
    """A subnormal source has a result other than zero."""
    conversion = conversion_of(instruction)
    source, target = conversion.source, conversion.target
    if not from_float(instruction) or not source.zero or conversion.flush_source:
        return False
    if conversion.scale == "multiply":
        return True
    if conversion.scale or target.kind == "integer":
        return conversion.rounding in ("rm", "rp") and target.kind == "integer" and _half_open(conversion)
    away = conversion.rounding in ("rm", "rp")
    return away or (target.zero and source.minimum_exponent > target.minimum_exponent - target.fraction_bits)


def _half_open(conversion: Conversion) -> bool:
    """A tiny number rounds away from zero to something that the target has."""
    return conversion.target.signed or conversion.rounding == "rp"


def all_of(*conditions: Applies) -> Applies:
    """All of these."""
    return lambda instruction: all(condition(instruction) for condition in conditions)


def unless(condition: Applies) -> Applies:
    """The opposite."""
    return lambda instruction: not condition(instruction)


def field(**wanted: Any) -> Applies:
    """Attributes of the conversion with these values."""
    return lambda i: all(getattr(conversion_of(i), name) == value for name, value in wanted.items())


def packs(instruction: Convert) -> bool:
    """The result holds several elements."""
    return instruction.registers["d"].elements > 1


def has(name: str) -> Applies:
    """There is such an operand."""
    return lambda instruction: name in instruction.registers


def narrow_integer(instruction: Convert) -> bool:
    """The target is an integer of fewer than 32 bits."""
    target = conversion_of(instruction).target
    return target.kind == "integer" and target.bits < 32 and not target.fraction_bits


def sign_extends(instruction: Convert) -> bool:
    """An s8 alone in its register."""
    return conversion_of(instruction).target.name == "s8" and not packs(instruction)


def eight_of_sixteen(instruction: Convert) -> bool:
    """An 8-bit integer in a 16-bit register."""
    a = instruction.registers["a"]
    return a.format.kind == "integer" and a.format.bits == 8 and a.dtype.itemsize == 2


def target_is(*names: str) -> Applies:
    """The target is one of these."""
    return lambda instruction: conversion_of(instruction).target.name in names


def source_is(*names: str) -> Applies:
    """The source is one of these."""
    return lambda instruction: conversion_of(instruction).source.name in names


def kept_payload(instruction: Convert) -> bool:
    """A NaN keeps sign and payload."""
    return source_nan(instruction) and conversion_of(instruction).nan is None


def canonical(instruction: Convert) -> bool:
    """Every NaN becomes the same."""
    return source_nan(instruction) and conversion_of(instruction).nan is not None


def payload_fits(instruction: Convert) -> bool:
    """A canonical NaN where a payload would have room."""
    conversion = conversion_of(instruction)
    return canonical(instruction) and to_float(instruction) and conversion.target.nan == "ieee" == conversion.source.nan


def truncation_shows(instruction: Convert) -> bool:
    """Where nothing is negative, rounding toward minus infinity truncates."""
    conversion = conversion_of(instruction)
    return rounds("rne", "rna", "rp")(instruction) or (rounds("rm")(instruction) and conversion.target.signed)


def nearest_matters(instruction: Convert) -> bool:
    """Bits are lost, and not to nearest even."""
    return loses_bits(instruction) and not field(rounding="rne")(instruction) and not random(instruction)


def random(instruction: Convert) -> bool:
    """There are random bits."""
    return bool(instruction.row.random)


def clamps(instruction: Convert) -> bool:
    """Some result is clamped to the largest number."""
    return reaches_infinity(instruction) and (conversion_of(instruction).saturate or not to_float(instruction))


def signed_float(instruction: Convert) -> bool:
    """The target is a float with a sign."""
    return to_float(instruction) and conversion_of(instruction).target.signed


def random_shared(instruction: Convert) -> bool:
    """Four elements share the random bits."""
    return len(instruction.row.random) == 4
