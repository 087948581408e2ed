"""A dot-add drawn as columns of bits, one for each weight: what was aligned where, cut, added and rounded."""

from __future__ import annotations

from fractions import Fraction

from tcsim.inspection.step_text import short_runs
from tcsim.inspection.trace_steps import Term, TracedStep

LABEL = 6
_PRECISION = {"f32": (24, -149), "e8m13": (14, -149), "f16": (11, -24)}
"""Significant bits of a result, and the weight of its lowest bit at least."""
_LEAST_CUT = 4  # columns right of the last kept bit, at least


def bit_columns(step: TracedStep, width: int = 80) -> tuple[str, ...]:
    """The lines of the drawing; none for a step that is not a dot-add.

    A column is a power of two. `|` stands behind the last bit that is kept; what is right of it was cut, and `>` marks
    bits that go on beyond the picture.

    >>> from tcsim.inspection.trace_steps import trace_steps
    >>> mma = tcsim.instruction("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32", arch="sm_90")
    >>> half = tcsim.encode([1.5, 2**-13, 0, 0, 0, 0, 0, 0], "f16")
    >>> step, = trace_steps(mma, half, half, tcsim.encode(1.0, "f32"))
    >>> print("\\n".join(bit_columns(step, 60)))
            2^1                   2^-25 cut
    k=0    +1001000000000000000000
    k=1    +                           |100000000000000000000
    c      + 100000000000000000000000
           k=2-7: zero products
    sum    +110100000000000000000000000|
    = d    +110100000000000000000000
    """
    if step.unit is None or step.exponent is None:
        return ()
    finite = isinstance(step.total, int)
    total = abs(step.total) if isinstance(step.total, int) else 0
    tops = [term.low + term.magnitude.bit_length() - 1 for term in step.terms if term.magnitude]
    top = max([step.exponent, *tops, step.unit + max(1, total.bit_length()) - 1])
    kept = top - step.unit + 1
    cut = max(_LEAST_CUT, width - LABEL - 2 - kept - 2)
    lines = [_head(top, step.unit, kept)]
    lines += [_term(term, top, step.unit, cut) for term in step.terms]
    if step.zero_products:
        lines.append(f"{'':<{LABEL}} k={short_runs(step.zero_products)}: zero products")
    if finite and isinstance(step.total, int):
        sign = "-" if step.total < 0 else "+"
        lines.append(_row("sum", sign, total, step.unit, top, step.unit, cut, bar=True))
    else:
        lines.append(f"{'sum':<{LABEL}} {step.total}")
    if step.result is not None:
        lines.append(_result(step, top, cut))
    return tuple(line.rstrip() for line in lines)


def said_of(term: Term, step: TracedStep) -> str:
    """One term in words: what it is exactly, what of it is added, and what was cut.

    >>> from tcsim.inspection.trace_steps import trace_steps
    >>> mma = tcsim.instruction("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32", arch="sm_90")
    >>> half = tcsim.encode([1.5, 2**-13, 0, 0, 0, 0, 0, 0], "f16")
    >>> step, = trace_steps(mma, half, half, tcsim.encode(1.0, "f32"))
    >>> said_of(step.terms[1], step)
    'k=1: 1 * 2^-26, of which 0 * 2^-25 is added; cut: 1 * 2^-26'
    """
    sign = "-" if term.negative else ""
    exact = f"{term.name}: {sign}{_odd(term.magnitude, term.low)}"
    if step.unit is None or not isinstance(term.kept, int):
        return exact if step.unit is None else f"{term.name}: {term.kept}"
    low = min(term.low, step.unit)
    whole, kept = term.magnitude << (term.low - low), abs(term.kept) << (step.unit - low)
    cut = f"; cut: {sign}{_odd(whole - kept, low)}" if whole != kept else "; nothing is cut"
    return f"{exact}, of which {term.kept} * 2^{step.unit} is added{cut}"


def _odd(magnitude: int, low: int) -> str:
    """magnitude * 2^low, the first odd or 0."""
    zeros = (magnitude & -magnitude).bit_length() - 1 if magnitude else 0
    return f"{magnitude >> zeros} * 2^{low + zeros}"


def _head(top: int, unit: int, kept: int) -> str:
    left, right = f"2^{top}", f"2^{unit}"
    return " " * (LABEL + 2) + left + f"{right:>{max(len(right) + 1, kept - len(left))}}" + " cut"


def _row(name: str, sign: str, magnitude: int, low: int, top: int, unit: int, cut: int, bar: bool = False) -> str:
    """One number, its bits under their weights; `bar` shows where the kept bits end."""
    high = low + magnitude.bit_length() - 1
    last = unit - cut
    digits = []
    for weight in range(top, last - 1, -1):
        inside = magnitude and low <= weight <= high
        digits.append(str(magnitude >> (weight - low) & 1) if inside else " ")
    more = ">" if magnitude and low < last and magnitude & ((1 << min(last - low, magnitude.bit_length())) - 1) else ""
    keep = top - unit + 1
    tail = "".join(digits[keep:]).rstrip()
    beyond = "|" + (f"{tail:<{cut}}{more}" if more else tail) if tail or more or bar else ""
    return f"{name:<{LABEL}} {sign}{''.join(digits[:keep])}{beyond}"


def _term(term: Term, top: int, unit: int, cut: int) -> str:
    if not term.magnitude:
        value = "0" if term.kept == 0 else str(term.kept)
        return f"{term.name:<{LABEL}} {value}"
    return _row(term.name, "-" if term.negative else "+", term.magnitude, term.low, top, unit, cut)


def _result(step: TracedStep, top: int, cut: int) -> str:
    value = step.result.value if step.result is not None else 0.0
    name = f"= {step.result.name}" if step.result is not None else ""
    if step.unit is None or value != value or value in (float("inf"), float("-inf")):
        return f"{name:<{LABEL}} {value}"
    exact = Fraction(value)
    if not exact:
        return f"{name:<{LABEL}} +0"
    low = -(exact.denominator.bit_length() - 1)
    magnitude = abs(exact.numerator)
    digits, lowest = _PRECISION.get(step.output or "", (0, low))
    shown = max(0, min(digits - magnitude.bit_length(), low - max(lowest, step.unit)))  # its trailing zeros
    magnitude, low = magnitude << shown, low - shown
    return _row(name, "-" if exact < 0 else "+", magnitude, low, top, step.unit, cut)
