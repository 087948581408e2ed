"""multimem on a multicast object, one number at a time: Python integers and fractions, written from the manual's words."""

from __future__ import annotations

from collections.abc import Sequence

from tests.exact import scalar
from tests.exact.numbers import decode, encode, infinity

NAN = {"e4m3": 0x7F, "e5m2": 0x7F, "f16": 0x7FFF, "bf16": 0x7FFF, "f32": 0x7FFFFFFF}


def bits_of(element: str) -> int:
    """Width of a number."""
    return 8 if element in ("e4m3", "e5m2") else scalar.bits_of(element)


def combined(op: str, element: str, old: int, new: int) -> int:
    """What one number becomes with another."""
    if op in ("and", "or", "xor"):
        return {"and": old & new, "or": old | new, "xor": old ^ new}[op]
    if op == "inc":
        return 0 if old >= new else old + 1
    if op == "dec":
        return new if old == 0 or old > new else old - 1
    if element == "f64" and op == "add":
        for code in (new, old):
            if decode(code, "f64").kind == "nan":
                return code
    return scalar.compute(f"{op}.{element}", [old, new])[0]


def in_another(code: int, source: str, to: str) -> int:
    """A number in another format, to nearest; to fp8 the largest for what is too large."""
    number = decode(code, source)
    if number.kind == "nan":
        return NAN[to]
    if number.kind == "infinity":
        return (number.sign << 7 | (0x7E if to == "e4m3" else 0x7B)) if bits_of(to) == 8 else infinity(number.sign, to)
    return encode(number.value, number.sign, to, "rne", saturate=bits_of(to) == 8)


def load_reduced(op: str, element: str, accumulator: str, codes: Sequence[int]) -> int:
    """ld_reduce of one number of each replica."""
    eight = bits_of(element) == 8
    inner = accumulator or ("f16" if eight else element)
    if op != "add" and not eight:
        inner = element
    if inner == element:
        total = codes[0]
        for code in codes[1:]:
            total = combined(op, element, total, code)
        return total
    wide = [in_another(code, element, inner) for code in codes]
    total = wide[0]
    for code in wide[1:]:
        total = combined(op, inner, total, code)
    return in_another(total, inner, element)
