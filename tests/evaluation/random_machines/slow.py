"""The same machines on Python's fractions, one dot product at a time, written to be read; shares no code with machine.py."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from .formats import FORMATS
from .machine import Signature, Truth

_FIELDS = {"f32": (8, 23), "f16": (5, 10)}  # bits of exponent and fraction of results


@dataclass(frozen=True)
class Value:
    """A number as a machine sees it: `kind` is "finite", "infinite" or "nan"; `exponent` None is a zero's."""

    kind: str
    value: Fraction = Fraction(0)
    exponent: int | None = None
    negative: bool = False


def power(exponent: int) -> Fraction:
    """Two to an exponent."""
    return Fraction(2) ** exponent


def exponent_of(value: Fraction) -> int:
    """The largest e with 2**e <= |value|; value is not zero."""
    x = abs(value)
    e = x.numerator.bit_length() - x.denominator.bit_length()
    return e if power(e) <= x else e - 1


def read(code: int, name: str, *, flush: bool = False, widen: str | None = None) -> Value:
    """What a code means."""
    form = FORMATS[name]
    digits = f"{code >> form.unused:064b}"[-form.bits :]
    negative, field, fraction = digits[0] == "1", digits[1 : 1 + form.exponent_bits], digits[1 + form.exponent_bits :]
    if "0" not in field:
        if form.specials == "ieee":
            return Value("nan") if "1" in fraction else Value("infinite", negative=negative)
        if form.specials == "nan" and "0" not in fraction:
            return Value("nan")
    hidden = 1 if "1" in field else 0
    exponent = max(int(field, 2), 1) - form.bias
    value = (hidden + Fraction(int(fraction, 2), 2 ** len(fraction))) * power(exponent)
    smallest = 1 - (FORMATS[widen] if widen else form).bias
    if widen and value:
        exponent = max(exponent_of(value), smallest)
    if value == 0 or (flush and value < power(smallest)):
        return Value("finite", negative=negative)
    return Value("finite", -value if negative else value, exponent, negative)


def read_scale(code: int, name: str) -> Value:
    """What a scale's code means."""
    if name == "ue8m0":
        return Value("nan") if code == 255 else Value("finite", power(code - 127), code - 127)
    return read(code % 128, "ue4m3")


def product(x: Value, y: Value, rule: str) -> Value:
    """An exact product."""
    negative = x.negative != y.negative
    if "nan" in (x.kind, y.kind):
        return Value("nan")
    if "infinite" in (x.kind, y.kind):
        zero = any(v.kind == "finite" and v.value == 0 for v in (x, y))
        return Value("nan") if zero else Value("infinite", negative=negative)
    if x.exponent is None or y.exponent is None:
        return Value("finite", negative=negative)
    value = x.value * y.value
    return Value("finite", value, x.exponent + y.exponent if rule == "raw" else exponent_of(value), negative)


def rounded(value: Fraction, name: str, bits: int, mode: str, overflow: str, flush: bool) -> tuple[str, Fraction]:
    """A number with `bits` significant bits, or ("infinite", its sign)."""
    highest = 127 if name == "f32" else 15
    lowest = 1 - highest
    quantum = power(max(exponent_of(value), lowest) - bits + 1)
    count = abs(value) / quantum
    whole = count.numerator // count.denominator if mode == "rz" else round(count)  # Python rounds halves to even
    result = whole * quantum
    if result >= power(highest + 1):
        if overflow == "infinity":
            return "infinite", Fraction(-1 if value < 0 else 1)
        result = (2 - power(1 - bits)) * power(highest)
    if flush and result < power(lowest):
        result = Fraction(0)
    return "finite", -result if value < 0 else result


def code_of(kind: str, value: Fraction, negative: bool, name: str) -> int:
    """The code of a number that the format holds."""
    exponent_bits, fraction_bits = _FIELDS[name]
    sign = int(negative) << (exponent_bits + fraction_bits)
    if kind == "infinite":
        return sign | ((1 << exponent_bits) - 1) << fraction_bits
    if value == 0:
        return sign
    bias = (1 << (exponent_bits - 1)) - 1
    e = max(exponent_of(value), 1 - bias)
    count = abs(value) / power(e - fraction_bits)
    assert count.denominator == 1
    field = e + bias if count >= 1 << fraction_bits else 0
    return sign | field << fraction_bits | int(count) % (1 << fraction_bits)


def add_up(terms: Sequence[Value], truth: Truth, d: str) -> int:
    """One step: the code of its result."""
    special = _special(terms, truth, d)
    if special is not None:
        return special
    ieee = truth["zero"] == "ieee"
    if all(t.exponent is None for t in terms):
        return code_of("finite", Fraction(0), ieee and all(t.negative for t in terms), d)
    exponents = [t.exponent for t in terms if t.exponent is not None]
    if truth["floor"] is not None:
        exponents.append(truth["floor"])
    total = Fraction(0)
    for term in terms:
        count = term.value
        if truth["fraction_bits"] is not None:
            unit = power(max(exponents) - truth["fraction_bits"])
            ratio = term.value / unit
            below = ratio.numerator // ratio.denominator
            toward_zero = below + 1 if below < 0 and below != ratio else below
            count = (toward_zero if truth["truncation"] == "zero" else below) * unit
        total += count
    if total == 0:
        return code_of("finite", Fraction(0), False, d)
    flush = truth["subnormal_out"] == "zero"
    kind, value = rounded(total, d, truth["significand"], truth["rounding"], truth["overflow"], flush)
    return code_of(kind, value, total < 0 and (ieee or value != 0), d)


def ieee_add(x: Value, y: Value, truth: Truth, d: str) -> int:
    """x + y to nearest even."""
    special = _special((x, y), truth, d)
    if special is not None:
        return special
    total = x.value + y.value
    if total == 0:
        both = x.value == y.value == 0
        return code_of("finite", total, both and x.negative and y.negative, d)
    kind, value = rounded(total, d, 24 if d == "f32" else 11, "rne", "infinity", False)
    return code_of(kind, value, total < 0, d)


def _special(terms: Sequence[Value], truth: Truth, d: str) -> int | None:
    signs = {t.negative for t in terms if t.kind == "infinite"}
    if any(t.kind == "nan" for t in terms) or len(signs) == 2:
        return int(truth["nan"])
    return code_of("infinite", Fraction(0), signs.pop(), d) if signs else None


def dot(signature: Signature, truth: Truth, a: Any, b: Any, c: Any, scale_a: Any = (), scale_b: Any = ()) -> int:
    """One result, for sequences of integers a and b, an integer c, and sequences of scales."""
    flush, widen, d = truth["subnormal_in"] == "zero", truth["as"], signature.d
    rule = "raw" if isinstance(truth["scaled"], tuple) else truth["products"]
    x = [read(int(code), signature.a, flush=flush, widen=widen) for code in a]
    y = [read(int(code), signature.b, flush=flush, widen=widen) for code in b]
    terms = [product(p, q, rule) for p, q in zip(x, y, strict=True)]
    addend = read(int(c), signature.c, flush=truth["subnormal_c"] == "zero")
    if signature.scale is not None:
        name, width = signature.scale
        scales = [(read_scale(int(p), name), read_scale(int(q), name)) for p, q in zip(scale_a, scale_b, strict=True)]
        scaled = _moved if truth["scaled"] == "product" else _runs
        terms = scaled(terms, scales, width, truth)
    accumulator = Value("finite") if truth["addend"] == "last" else addend
    for step in truth["step"]:
        run = truth["scaled"][1] if isinstance(truth["scaled"], tuple) else 1
        chosen = [terms[k] for k in step if k % run == 0]  # a run's term stands at each of its products
        accumulator = read(add_up([*chosen, accumulator], truth, d), d)
        if accumulator.kind == "nan":
            return int(truth["nan"])
    if truth["addend"] == "last":
        return ieee_add(accumulator, addend, truth, d)
    return code_of(accumulator.kind, accumulator.value, accumulator.negative, d)


def _moved(terms: list[Value], scales: list[tuple[Value, Value]], width: int, truth: Truth) -> list[Value]:
    """Products with both scales' exponents in theirs."""
    result = []
    for k, term in enumerate(terms):
        x, y = scales[k // width]
        if "nan" in (x.kind, y.kind):
            term = Value("nan")
        elif term.exponent is not None:
            assert x.exponent is not None and y.exponent is not None
            moved = x.exponent + y.exponent
            term = Value("finite", term.value * power(moved), term.exponent + moved, term.negative)
        result.append(term)
    return result


def _runs(terms: list[Value], scales: list[tuple[Value, Value]], width: int, truth: Truth) -> list[Value]:
    """For each product the term of its run: the same object for all of a run."""
    run = truth["scaled"][1]
    result: list[Value] = []
    for start in range(0, len(terms), run):
        part, (x, y) = terms[start : start + run], scales[start // width]
        negative = all(t.negative for t in part)
        if any(v.kind == "nan" for v in (*part, x, y)):
            term = Value("nan")
        elif x.exponent is None or y.exponent is None or all(t.exponent is None for t in part):
            term = Value("finite", negative=negative)
        else:
            total = sum((t.value for t in part), Fraction(0)) * x.value * y.value
            term = Value("finite", total, x.exponent + y.exponent, negative)
        result += [term] * run
    return result
