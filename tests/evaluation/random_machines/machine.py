"""Machines that answer dot products: an exact array implementation of every combination of the vocabulary's keys."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from .formats import FORMATS, Array, Numbers, bit_length, scale_factors, unpack
from .rounding import Sum, exact_sum, to_code

Truth = dict[str, Any]


@dataclass(frozen=True)
class Signature:
    """What a caller may know: products of one instruction, formats, and (format, products that share one) of scales."""

    k: int
    a: str
    b: str
    c: str
    d: str
    scale: tuple[str, int] | None = None


class Terms(NamedTuple):
    """Arrays (batch, terms): value * 2**unit, aligned at `exponent`; a term that is not live has no exponent."""

    value: Array  # int64, signed
    unit: Array
    exponent: Array
    live: Array
    negative: Array
    nan: Array
    infinite: Array

    def columns(self, which: Any) -> Terms:
        """Some of the terms."""
        return Terms(*(x[:, which] for x in self))

    def beside(self, other: Terms) -> Terms:
        """These terms and others."""
        return Terms(*(np.concatenate(pair, axis=1) for pair in zip(self, other, strict=True)))


class Machine:
    """An instruction whose only behaviour is `dot`; `truth` says what it does, for whoever judges an answer."""

    def __init__(self, signature: Signature, truth: Truth) -> None:
        self.signature = signature
        self.truth = truth

    def dot(self, a: Array, b: Array, c: Array, scale_a: Array | None = None, scale_b: Array | None = None) -> Array:
        """Results (batch,) of codes a, b (batch, k), c (batch,), scales (batch, k // width)."""
        signature, truth = self.signature, self.truth
        flush, widen = truth["subnormal_in"] == "zero", truth["as"]
        terms = self.multiply(
            unpack(a, signature.a, flush=flush, widen=widen), unpack(b, signature.b, flush=flush, widen=widen)
        )
        if scale_a is not None and scale_b is not None:
            terms = self.scale(terms, scale_a, scale_b)
        run = truth["scaled"][1] if isinstance(truth["scaled"], tuple) else 1
        addend = as_terms(unpack(c, signature.c, flush=truth["subnormal_c"] == "zero"))
        last = truth["addend"] == "last"
        before = as_terms(unpack(np.zeros(len(c), np.uint32), "f32")) if last else addend
        for step in truth["step"]:
            code = self.step(terms.columns(sorted({k // run for k in step})).beside(before))
            before = as_terms(unpack(code, signature.d))
        if last:
            code = self.add(before.beside(addend))
        return code.astype(FORMATS[signature.d].container)

    def multiply(self, a: Numbers, b: Numbers) -> Terms:
        """Exact products, each with the exponent at which it is aligned."""
        value, unit, exponent = a.magnitude * b.magnitude, a.unit + b.unit, a.exponent + b.exponent
        if self.truth["products"] == "normalised":
            exponent = unit + bit_length(value) - 1
        invalid = (a.infinite & (b.magnitude == 0) & ~b.infinite) | (b.infinite & (a.magnitude == 0) & ~a.infinite)
        nan = a.nan | b.nan | invalid
        negative = a.negative ^ b.negative
        infinite = (a.infinite | b.infinite) & ~nan
        return Terms(np.where(negative, -value, value), unit, exponent, value != 0, negative, nan, infinite)

    def scale(self, terms: Terms, scale_a: Array, scale_b: Array) -> Terms:
        """Products with their exponents moved, or runs of products multiplied by both scales."""
        assert self.signature.scale is not None
        name, width = self.signature.scale
        x, y = scale_factors(scale_a, name), scale_factors(scale_b, name)
        nan, exponent, unit = x.nan | y.nan, x.exponent + y.exponent, x.unit + y.unit
        if self.truth["scaled"] == "product":
            nan, moved = (np.repeat(z, width, axis=1) for z in (nan, exponent))
            return terms._replace(unit=terms.unit + moved, exponent=terms.exponent + moved, nan=terms.nan | nan)
        run = self.truth["scaled"][1]
        nan, exponent, unit, factor = (
            np.repeat(z, width // run, axis=1) for z in (nan, exponent, unit, x.magnitude * y.magnitude)
        )
        batch = len(scale_a)
        base = FORMATS[self.signature.a].unit + FORMATS[self.signature.b].unit
        value, live, negative, wrong = (
            z.reshape(batch, -1, run)
            for z in (terms.value << (terms.unit - base), terms.live, terms.negative, terms.nan)
        )
        return Terms(
            value.sum(axis=2) * factor,
            unit + base,
            exponent,
            live.any(axis=2) & (factor > 0),
            negative.all(axis=2),
            wrong.any(axis=2) | nan,
            np.zeros(exponent.shape, bool),
        )

    def step(self, terms: Terms) -> Array:
        """The rounded sum (batch,) of terms, as codes of the result's format."""
        truth = self.truth
        rounded = to_code(
            self.total(terms),
            FORMATS[self.signature.d],
            truth["significand"],
            mode=truth["rounding"],
            overflow=truth["overflow"],
            flush=truth["subnormal_out"] == "zero",
            signed_zero=truth["zero"] == "ieee",
        )
        return self.finish(terms, rounded, signed_zero=truth["zero"] == "ieee")

    def total(self, terms: Terms) -> Sum:
        """The sum of the terms as they are after alignment; 0 has magnitude 0."""
        truth = self.truth
        if truth["fraction_bits"] is None:
            return exact_sum(terms.value, terms.unit)
        nothing = -(1 << 20)
        largest = np.where(terms.live, terms.exponent, nothing).max(axis=1)
        if truth["floor"] is not None:
            largest = np.maximum(largest, truth["floor"])
        unit = np.where(largest == nothing, 0, largest) - truth["fraction_bits"]
        shift = np.where(terms.live, terms.unit - unit[:, None], 0)
        total = self.align(terms.value, shift).sum(axis=1)
        return Sum(total < 0, np.abs(total), unit, np.zeros(len(total), bool))

    def align(self, value: Array, shift: Array) -> Array:
        """Terms shifted left, or right with the loss of what falls off."""
        left, right = value << np.clip(shift, 0, 61), np.clip(-shift, 0, 63)
        if self.truth["truncation"] == "down":
            return left >> right
        return np.sign(left) * (np.abs(left) >> right)

    def finish(self, terms: Terms, rounded: Array, *, signed_zero: bool) -> Array:
        """Rounded sums with those of zeros, infinities and NaNs put right."""
        form = FORMATS[self.signature.d]
        infinity = ((1 << form.exponent_bits) - 1) << form.fraction_bits
        up, down = (terms.infinite & ~terms.negative).any(axis=1), (terms.infinite & terms.negative).any(axis=1)
        sign = np.int64(1) << (form.bits - 1)
        zeros = (terms.value == 0) & ~terms.live & terms.negative
        code = np.where(zeros.all(axis=1), sign if signed_zero else 0, rounded)
        code = np.where(up, infinity, np.where(down, infinity | sign, code))
        return np.where(terms.nan.any(axis=1) | (up & down), self.truth["nan"], code)

    def add(self, terms: Terms) -> Array:
        """One IEEE addition in the result's format, to nearest even."""
        form = FORMATS[self.signature.d]
        rounded = to_code(exact_sum(terms.value, terms.unit), form, form.fraction_bits + 1, mode="rne")
        return self.finish(terms, rounded, signed_zero=True)


def as_terms(numbers: Numbers) -> Terms:
    """A column of addends."""
    value = np.where(numbers.negative, -numbers.magnitude, numbers.magnitude)
    columns = (value, numbers.unit, numbers.exponent, value != 0, numbers.negative, numbers.nan, numbers.infinite)
    return Terms(*(x[:, None] for x in columns))
