"""Whether two hypotheses answer every question alike, shown by what the formats reach and not by questions.

Three stages are compared: the terms (every code of a and b is read), the aligned sum (both lose nothing, or neither floor lifts anything), the
rounded result (no sum overflows, is subnormal, or has more bits than are kept). What differs must be without effect in both hypotheses.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from fractions import Fraction
from functools import lru_cache

import numpy as np

from hwkernels.identification.machine import Array, Machine, Signature, read
from tcsim.numbers.formats import FORMATS, Format

_ALIGNMENT = {"fraction_bits", "truncation", "floor"}
_TERMS = {"products", "widened", "subnormal_in"}


def alike(signature: Signature, one: Machine, other: Machine) -> bool:
    """True only if no question can tell two hypotheses apart; False says nothing.

    >>> from dataclasses import replace
    >>> f16 = Signature(4, "f16", "f16", "f32", "f32")
    >>> own = Machine(((0, 1, 2, 3),), fraction_bits=24, floor=None)
    >>> alike(f16, own, replace(own, floor=-133)), alike(f16, own, replace(own, floor=-20))
    (True, False)
    """
    differ = {field.name for field in fields(Machine) if getattr(one, field.name) != getattr(other, field.name)}
    reach = [_Reach.of(signature, machine) for machine in (one, other)]
    if differ & _TERMS:
        grouped = isinstance(one.scaled, tuple)
        for name in {signature.a, signature.b}:
            (value, exponent), (rival, rival_exponent) = (_terms(name, m.subnormal_in, m.widened) for m in (one, other))
            if not np.array_equal(value.view(np.int64), rival.view(np.int64)):
                return False
            normal = one.products == other.products == "normalised"
            if not (grouped or normal or np.array_equal(exponent, rival_exponent)) and not _whole(reach):
                return False
        if one.products != other.products and not grouped and not _whole(reach):
            return False
        differ -= _TERMS
    if differ & _ALIGNMENT:
        same = one.fraction_bits == other.fraction_bits and one.truncation == other.truncation
        if not _whole(reach) and not (same and all(own.floor_is_idle for own in reach)):
            return False
        differ -= _ALIGNMENT
    told = {
        "overflow": not any(own.overflows for own in reach),
        "subnormal_out": all(own.unit >= FORMATS[signature.d].minimum_exponent for own in reach),
        "significand": all(own.is_exact for own in reach),
        "rounding": all(own.is_exact for own in reach),
        "zero": all(own.never_minus_zero for own in reach),
    }
    return all(told.get(key, False) for key in differ)


def _whole(reach: list[_Reach]) -> bool:
    return all(own.loses_nothing for own in reach)


@dataclass(frozen=True)
class _Reach:
    """Bounds of the terms, c and results of a hypothesis: exponents; magnitudes."""

    machine: Machine
    least: int  # of a normal result
    unit: int  # everything that is added is a multiple of 2**unit
    lowest: int  # no term but zero has a lower exponent
    highest: int
    largest: float  # no sum before or after rounding is larger
    overflows: bool  # False: none is rounded to more than the largest result

    @classmethod
    def of(cls, signature: Signature, machine: Machine) -> _Reach:
        """Of every question that there is."""
        forms, c, d = (FORMATS[signature.a], FORMATS[signature.b]), FORMATS[signature.c], FORMATS[signature.d]
        first, grouped = machine.addend == "first", isinstance(machine.scaled, tuple)
        unit = sum(map(_unit, forms))
        highest = sum(math.frexp(form.largest)[1] - 1 for form in forms) + 1
        lowest = unit
        if machine.products == "raw":
            lowest = sum(_lowest(form, machine) for form in forms)
        product = forms[0].largest * forms[1].largest
        if signature.scale is not None and machine.scaled is not None:
            scale = FORMATS[signature.scale[0]]
            low, high = 2 * _unit(scale), 2 * (math.frexp(scale.largest)[1] - 1)
            lowest, highest = (low, high) if grouped else (lowest + low, highest + high)
            unit, product = unit + low, product * scale.largest**2
        if first:
            unit, lowest = min(unit, _unit(c)), min(lowest, c.minimum_exponent)
            highest = max(highest, math.frexp(c.largest)[1] - 1)
        largest = c.largest if first else 0.0
        top, p = math.frexp(d.largest)[1], machine.significand
        limit = Fraction(2) ** top - (Fraction(2) ** (top - p - 1) if machine.rounding == "rne" else 0)
        overflows = False  # whether any sum may round to more than the largest result
        for step in machine.step:
            overflows |= Fraction(largest) + len(step) * Fraction(product) >= limit or machine.truncation == "down"
            largest += len(step) * product
            if machine.fraction_bits is not None and machine.truncation == "down":
                high = max(highest, math.frexp(largest)[1], machine.floor if machine.floor is not None else -1000)
                largest += (len(step) + 1) * math.ldexp(1.0, high - machine.fraction_bits)
            largest *= 1 + math.ldexp(1.0, 1 - p)
            if not overflows:
                largest = min(largest, math.ldexp(1.0, top) - math.ldexp(1.0, top - p))
        if len(machine.step) > 1:
            lowest = min(lowest, d.minimum_exponent)
            highest = max(highest, min(math.frexp(largest)[1], math.frexp(d.largest)[1]))
        overflows &= largest >= d.largest / 2
        return cls(machine, d.minimum_exponent, unit, lowest, highest, largest, overflows)

    @property
    def loses_nothing(self) -> bool:
        """Whether every bit of every term lies above the last one that alignment keeps."""
        bits, floor = self.machine.fraction_bits, self.machine.floor
        return bits is None or max(self.highest, self.highest if floor is None else floor) - bits <= self.unit

    @property
    def floor_is_idle(self) -> bool:
        """Whether no sum lies below the floor, or none that does has a bit to lose."""
        bits, floor = self.machine.fraction_bits, self.machine.floor
        return bits is None or floor is None or floor <= self.lowest or floor - bits <= self.unit

    @property
    def is_exact(self) -> bool:
        """Whether no sum has more bits than a result."""
        p = self.machine.significand
        return math.frexp(self.largest)[1] - self.unit <= p and self.unit >= self.least + 1 - p

    @property
    def never_minus_zero(self) -> bool:
        """Whether the sum starts from +0 and no result becomes zero by rounding."""
        own = self.machine
        vanishes = self.unit < (self.least if own.subnormal_out == "zero" else self.least + 1 - own.significand)
        return own.addend == "last" and not vanishes


@lru_cache(maxsize=32)
def _terms(name: str, subnormal: str, widened: str | None) -> tuple[Array, Array]:
    """Values and exponents of every code of a format."""
    form = FORMATS[name]
    codes = (np.arange(form.code_mask + 1 >> form.ignored_low_bits) << form.ignored_low_bits).astype(form.dtype)
    return read(codes, form, subnormal, widened)


def _unit(form: Format) -> int:
    return form.minimum_exponent - form.fraction_bits


def _lowest(form: Format, machine: Machine) -> int:
    """The lowest exponent of a number that is not zero."""
    value, exponent = _terms(form.name, machine.subnormal_in, machine.widened)
    return int(exponent[(value != 0) & np.isfinite(value)].min())
