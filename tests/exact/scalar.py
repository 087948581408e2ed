"""What a scalar instruction computes, one operand at a time in Python integers and fractions, read off its spelling.

Written from the PTX manual's pseudocode and from what an H200 answers where the manual is silent (NaN, .ftz, shifts out of range). Nothing is
shared with `tcsim.isa.scalar` or `tcsim.arithmetic.floating`. The special functions have a model of their own (`exact.mufu`).
"""

from __future__ import annotations

from collections.abc import Sequence

from tests.exact.scalar_comparisons import comparison
from tests.exact.scalar_conversions import conversion
from tests.exact.scalar_floats import extreme, float_arithmetic, is_nan, mixed, signs
from tests.exact.scalar_integers import integer_arithmetic, other
from tests.exact.scalar_words import FLOATS, Spelling, bits_of

_ARITHMETIC = (
    "add",
    "sub",
    "addc",
    "subc",
    "mul",
    "mad",
    "madc",
    "mul24",
    "mad24",
    "div",
    "rem",
    "sad",
    "abs",
    "neg",
    "min",
    "max",
    "fma",
    "rcp",
    "sqrt",
)


def compute(name: str, codes: Sequence[int], carry: int = 0, table: int | None = None) -> tuple[int, ...]:
    """The results of an instruction: the destination, then a second predicate or the carry flag."""
    plain = name.removesuffix("|").removesuffix("/3")
    stem, *words = plain.split(".")
    if stem == "prmt":
        words = [*words[1:], words[0]]
    spelling = Spelling(stem, tuple(words))
    if stem in ("setp", "set"):
        return comparison(spelling, codes, name.endswith("|"))
    if stem == "cvt":
        return (conversion(spelling, codes[0]),)
    if stem not in _ARITHMETIC:
        return other(spelling, codes, table)
    element, _, times = spelling.type.partition("x")
    if times:
        bits = bits_of(element)
        parts = [[code >> bits * place & (1 << bits) - 1 for code in codes] for place in range(int(times))]
        own = Spelling(stem, (*words[:-1], element))
        return (sum(arithmetic(own, part, carry)[0] << bits * place for place, part in enumerate(parts)),)
    return arithmetic(spelling, codes, carry)


def arithmetic(spelling: Spelling, codes: Sequence[int], carry: int) -> tuple[int, ...]:
    """One element."""
    if spelling.type not in FLOATS:
        return integer_arithmetic(spelling, codes, carry)
    if spelling.stem in ("min", "max"):
        return (extreme(codes, spelling.type, spelling),)
    if spelling.stem in ("abs", "neg"):
        return (signs(spelling, codes[0]),)
    if spelling.type in ("f16", "bf16") and "f32" in spelling.words:
        return (mixed(spelling, codes),)
    return (float_arithmetic(spelling, codes),)


def atomic(operation: str, type: str, codes: Sequence[int], space: str, noftz: bool = False) -> int:
    """What atom and red leave in memory.

    Sums of f32 in global memory take subnormal numbers as zeros unless .noftz is there, those of f64 leave NaN as it is; in shared memory
    the operand comes first.
    """
    old, *given = codes
    if (
        operation == "add"
        and type == "f64"
        and space == "global"
        and (nans := [x for x in (*given, old) if is_nan(x, type)])
    ):
        return nans[0]
    if operation in ("exch", "cas"):
        return given[0] if operation == "exch" else given[1] if old == given[0] else old
    if operation == "inc":
        return 0 if old >= given[0] else old + 1
    if operation == "dec":
        return given[0] if old == 0 or old > given[0] else old - 1
    flushes = operation == "add" and type == "f32" and space == "global" and not noftz
    words = (operation, "ftz", type) if flushes else (operation, type)
    return compute(".".join(words), [*given, old] if space == "shared" else [old, *given])[0]
