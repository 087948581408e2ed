"""The trace of one output as data: every term with the bits that alignment kept and those that it cut.

`tcsim.trace` tells the same in sentences; this is for drawing and for programs.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from tcsim.arithmetic.dot import aligned_terms
from tcsim.arithmetic.steps import DotAdd, Values
from tcsim.core.errors import OperandError
from tcsim.inspection.step_text import step_text
from tcsim.numbers.codec import as_codes, decode
from tcsim.numbers.formats import NO_EXPONENT, Format
from tcsim.trace import explain, scales_of, show_code

Number = float | int


@dataclass(frozen=True)
class CodeValue:
    """A code and its value."""

    name: str  # "a", "b", "c", "acc", "d"
    hex: str
    value: Number

    def as_dict(self) -> dict[str, Any]:
        """The keys of JSON."""
        return {"name": self.name, "hex": self.hex, "value": self.value}


@dataclass(frozen=True)
class Term:
    """A product, or the addend, of a dot-add. Its value is (-1)**negative * magnitude * 2**low; kept is what is added."""

    name: str  # "k=3", "c", "acc"
    factors: tuple[CodeValue, ...]  # a and b, or the addend
    exponent: int | None  # before alignment; None of zeros, infinities and NaN
    negative: bool
    magnitude: int  # significand, not normalised
    low: int  # weight of its lowest bit
    kept: Number  # the aligned, cut integer in units of 2**unit; inf or nan as they are

    def as_dict(self) -> dict[str, Any]:
        """The keys of JSON."""
        return {
            "name": self.name, "factors": [factor.as_dict() for factor in self.factors], "exponent": self.exponent,
            "negative": self.negative, "magnitude": self.magnitude, "low": self.low, "kept": self.kept,
        }  # fmt: skip


@dataclass(frozen=True)
class TracedStep:
    """One step: of a dot-add all of it, of any other what it is and what it gives."""

    text: str
    result: CodeValue | None
    notes: tuple[str, ...] = ()  # of a step that is not a dot-add: its operands, in words
    terms: tuple[Term, ...] = ()
    k: tuple[int, ...] = ()  # of the products
    zero_products: tuple[int, ...] = ()  # k of products that are zero, which have no term
    exponent: int | None = None  # the largest, to which all are aligned
    floor: int | None = None
    fraction_bits: int | None = None
    unit: int | None = None  # weight of the last bit that is kept
    total: Number | None = None  # the sum, in units of 2**unit
    output: str | None = None
    rounding: str | None = None

    def as_dict(self) -> dict[str, Any]:
        """The keys of JSON."""
        return {
            "text": self.text, "result": self.result.as_dict() if self.result else None,
            "notes": list(self.notes), "terms": [term.as_dict() for term in self.terms], "k": list(self.k),
            "zero_products": list(self.zero_products), "exponent": self.exponent, "floor": self.floor,
            "fraction_bits": self.fraction_bits, "unit": self.unit, "total": self.total, "output": self.output,
            "rounding": self.rounding,
        }  # fmt: skip


def trace_steps(
    instruction: Any, a: Any, b: Any, c: Any, scale_a: Any = None, scale_b: Any = None
) -> tuple[TracedStep, ...]:
    """Follow one result through the lowering. a, b: the codes of its products; c: one code; scales, if the instruction has any.

    All are as `tcsim.trace.trace` takes them. Steps with scales are described in sentences.

    Raises OperandError for another number of codes or an instruction that computes no products, FormatError for another
    dtype.

    >>> mma = tcsim.instruction("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32", arch="sm_90")
    >>> half = tcsim.encode([1.5, 2**-13, 0, 0, 0, 0, 0, 0], "f16")
    >>> step, = trace_steps(mma, half, half, tcsim.encode(1.0, "f32"))
    >>> [(term.name, term.exponent, term.kept) for term in step.terms], step.unit, step.result.value
    ([('k=0', 0, 75497472), ('k=1', -26, 0), ('c', 0, 33554432)], -25, 3.25)
    """
    formats = getattr(instruction, "formats", None)
    if formats is None or callable(formats) or not {"a", "b", "c"} <= set(formats):
        raise OperandError(f"{instruction!r} computes no products in registers; valid: instructions with a, b and c")
    kinds = {name: formats[name] for name in "abc"}
    length = instruction.operands["a"].shape[1]
    shapes = {"a": (1, 1, -1), "b": (1, -1, 1), "c": (1, 1, -1)}
    codes = {}
    for name, given in (("a", a), ("b", b), ("c", c)):
        codes[name] = as_codes(given, kinds[name], f"trace: {name}").reshape(shapes[name])
        want = 1 if name == "c" else length
        if codes[name].size != want:
            raise OperandError(f"trace of {instruction!r}: {name} has {codes[name].size} codes; valid: {want}")
    codes |= {name: instruction.negated(name, codes[name]) for name in "ab"}
    values = Values(dict(codes), dict(kinds))
    for name, scales, format in scales_of(instruction, scale_a, scale_b):
        values.put(name, scales, format)
    traced = []
    for step in instruction.lowering.steps:
        details = _dot_add(step, values) if type(step) is DotAdd else {"notes": tuple(explain(step, values))}
        step.run(values)
        result = None
        if getattr(step, "result", None) is not None:
            found, format = values.get(step.result)
            result = _code(step.result, found.reshape(-1)[0], format)
        traced.append(TracedStep(step_text(step), result, **details))
    return tuple(traced)


def _code(name: str, code: Any, format: Format) -> CodeValue:
    value = decode(np.array([code], format.dtype), format)[0].item()
    return CodeValue(name, show_code(code, format), value)


def _number(value: float) -> Number:
    return int(value) if np.isfinite(value) else float(value)


def _dot_add(step: DotAdd, values: Values) -> dict[str, Any]:
    a, b, c, formats = step.operands(values)
    unit = step.unit
    aligned = aligned_terms(a, b, c, formats, unit)
    exponent = int(aligned.exponent.reshape(-1)[0])
    products = aligned.products.reshape(len(step.k))
    terms, zeros = [], []
    for place, k in enumerate(step.k):
        codes = ((a[0, 0, place], formats[0]), (b[0, place, 0], formats[1]))
        factors = tuple(_code(name, code, format) for name, (code, format) in zip("ab", codes, strict=True))
        term = _term(f"k={k}", factors, codes, products[place])
        if term.exponent is None and products[place] == 0:
            zeros.append(k)
        else:
            terms.append(term)
    addend = aligned.addend[0, 0, 0]
    terms.append(_term(step.addend, (_code(step.addend, c[0, 0, 0], formats[2]),), ((c[0, 0, 0], formats[2]),), addend))
    with np.errstate(invalid="ignore"):
        total = products.sum() + addend
    return {
        "terms": tuple(terms), "k": step.k, "zero_products": tuple(zeros), "exponent": exponent, "floor": unit.floor,
        "fraction_bits": unit.fraction_bits, "unit": exponent - unit.fraction_bits, "total": _number(total),
        "output": unit.output, "rounding": unit.rounding,
    }  # fmt: skip


def _term(name: str, factors: tuple[CodeValue, ...], codes: tuple[tuple[Any, Format], ...], kept: float) -> Term:
    """A product of codes: exact significand, not renormalised."""
    magnitude, low, exponent, negative = 1, 0, 0, False
    for code, format in codes:
        parts = format.fields(np.array([code], format.dtype))
        own = int(format.exponents(np.array([code], format.dtype))[0])
        exponent += own
        negative ^= bool(parts.sign[0])
        magnitude *= int(parts.significand[0])
        low += int(parts.exponent[0]) - format.fraction_bits
    if exponent <= NO_EXPONENT // 2:
        return Term(name, factors, None, negative, 0, 0, _number(kept))
    return Term(name, factors, exponent, negative, magnitude, low, _number(kept))


def exact_sum(step: TracedStep) -> Fraction:
    """The sum of a dot-add's terms before anything was cut; of finite terms.

    >>> mma = tcsim.instruction("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32", arch="sm_90")
    >>> half = tcsim.encode([1.5, 2**-13, 0, 0, 0, 0, 0, 0], "f16")
    >>> float(exact_sum(trace_steps(mma, half, half, tcsim.encode(1.0, "f32"))[0]) - Fraction(13, 4)) == 2**-26
    True
    """
    signed = (-term.magnitude if term.negative else term.magnitude for term in step.terms)
    return sum((Fraction(n) * Fraction(2) ** term.low for n, term in zip(signed, step.terms, strict=True)), Fraction(0))
