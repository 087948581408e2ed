"""Every spelling of a special function for one input at a time, in Python integers and fractions: the unit, and what stands around it.

Written from the machine code of each spelling and not from `tcsim.isa.special`. Codes in, codes out.
"""

from __future__ import annotations

from fractions import Fraction
from math import isqrt

from .mufu import INFINITY, NAN, TABLES, interpolated, mufu
from .numbers import Mode, decode, encode, floor_log2
from .steps import ieee_add, ieee_fma, ieee_mul

SMALLEST = Fraction(1, 2**126)
MODES: dict[str, Mode] = {"rn": "rne", "rz": "rz", "rm": "rm", "rp": "rp"}
QUIET64, INFINITY64 = 1 << 51, 0x7FF << 52


def value(code: int, name: str = "f32") -> Fraction | None:
    """The number of a code; None of NaN and infinities."""
    number = decode(code, name)
    if number.kind in ("nan", "infinity"):
        return None
    scale = Fraction(2) ** (number.exponent - number.fraction_bits)
    return number.significand * scale * (-1 if number.sign else 1)


def f32(number: float) -> int:
    """The code of a number that f32 has."""
    return encode(Fraction(number), 0, "f32", "rne")


def flush(code: int) -> int:
    """A subnormal f32 as a zero of its sign."""
    return code if code & 0x7F800000 else code & 0x80000000


def flushed_result(exact: Fraction, code: int, mode: Mode) -> int:
    """A zero where the exact result, rounded to 24 bits with any exponent, is below 2**-126."""
    if exact == 0 or abs(exact) >= 2 * SMALLEST:
        return code
    lifted = value(encode(exact * 2**40, 0, "f32", mode))
    assert lifted is not None
    return code & 0x80000000 if abs(lifted) < SMALLEST * 2**40 else code


def multiply(a: int, b: int, mode: Mode = "rne", ftz: bool = False) -> int:
    """FMUL."""
    if ftz:
        a, b = flush(a), flush(b)
    found = ieee_mul(a, b, "f32", mode)
    x, y = value(a), value(b)
    return flushed_result(x * y, found, mode) if ftz and x is not None and y is not None else found


def size(code: int) -> int:
    """Without the sign."""
    return code & 0x7FFFFFFF


def tiny(code: int) -> bool:
    """Below 2**-126."""
    return size(code) < 0x00800000


def huge(code: int) -> bool:
    """Above 2**126, and not NaN."""
    return 0x7E800000 < size(code) <= INFINITY


def approximate(stem: str, a: int) -> int:
    """The seven functions without .ftz."""
    if stem == "ex2":
        x = value(a)
        low = a == 0xFF800000 or (x is not None and x < -126)
        found = mufu("ex2", multiply(a, f32(0.5)) if low else a)
        return multiply(found, found) if low else found
    if stem == "rcp":
        k = f32(0.25) if huge(a) else f32(2.0**24) if tiny(a) else f32(1.0)
        return multiply(k, mufu("rcp", multiply(a, k)))
    if stem in ("sin", "cos"):
        return mufu(stem, multiply(a, 0x3E22F983, "rz"))
    if not tiny(a):
        return mufu(stem, a)
    found = mufu(stem, multiply(a, f32(2.0**24)))
    if stem == "lg2":
        return ieee_add(found, f32(-24.0), "f32")
    return multiply(found, f32(2.0**12 if stem == "rsqrt" else 2.0**-12))


def divide(a: int, b: int, full: bool, ftz: bool) -> int:
    """div.approx and div.full."""
    factor = 1.0
    if full and huge(b):
        factor = 0.25
    elif not ftz and tiny(b):
        factor = 2.0**24
    if factor != 1.0:
        a, b = multiply(a, f32(factor), "rne", ftz), multiply(b, f32(factor), "rne", ftz)
    return multiply(a, mufu("rcp", b), "rne", ftz)


def half(stem: str, code: int, name: str) -> int:
    """f16 or bf16: the f32 result, its low bits dropped."""
    number = decode(code, name)
    if number.kind == "nan":
        return 0x7FFF
    x = value(code, name)
    wide = number.sign << 31 | INFINITY if x is None else encode(x, number.sign, "f32", "rne")
    found = mufu(stem, wide)
    if size(found) > INFINITY:
        return 0x7FFF
    if name == "bf16":
        return found >> 16
    sign, result = found >> 31, value(found)
    if result is None or abs(result) >= 65536:
        return sign << 15 | 0x7C00
    return encode(result, sign, "f16", "rz")


def high_word(stem: str, code: int) -> int:
    """rcp and rsqrt of the high word of an f64."""
    high = code >> 32
    sign, biased, mantissa = high >> 31, high >> 20 & 0x7FF, (high & 0xFFFFF) << 3
    exponent = biased - 1023
    if biased == 0x7FF and mantissa:
        return 0x7FFFFFFF << 32
    if biased == 0:
        return (sign << 31 | 0x7FF00000) << 32
    if stem == "rsqrt" and sign:
        return 0x7FFFFFFF << 32
    if biased == 0x7FF:
        return sign << 63
    if stem == "rcp":
        found = interpolated(TABLES["rcp"][mantissa >> 16], (mantissa & 0xFFFF) << 1, (14, 0, 1), 4046) >> 19
        power = -exponent - 1
    else:
        odd, power = exponent & 1, -((exponent - (exponent & 1)) // 2) - 1
        found = interpolated(TABLES["rsq"][64 * odd + (mantissa >> 17)], mantissa & 0x1FFFF, (14, 0, 2), -1) >> 19
        if not odd and not mantissa:
            found = 1 << 21
    if found >> 21:
        found, power = 1 << 20, power + 1
    field = power + 1023
    return (sign << 31 | (field << 20 | (found & 0xFFFFF) if field > 0 else 0)) << 32


def refined_root(code: int) -> int:
    """rsqrt.approx.f64."""
    sign, magnitude = code >> 63, code & ((1 << 63) - 1)
    if magnitude > INFINITY64:
        return code | QUIET64
    if magnitude == 0:
        return code | INFINITY64
    if sign:
        return 0xFFF8 << 48
    if magnitude == INFINITY64:
        return 0

    def number(x: float) -> int:
        return encode(Fraction(x), 0, "f64", "rne")

    small = code >> 52 == 0
    x = ieee_mul(code, number(2.0**54), "f64") if small else code
    y = high_word("rsqrt", x)
    e = ieee_fma(x, ieee_mul(y, y, "f64") ^ 1 << 63, number(1.0), "f64")
    d = ieee_fma(ieee_fma(e, number(0.375), number(0.5), "f64"), ieee_mul(y, e, "f64"), y, "f64")
    return ieee_mul(d, number(2.0**27), "f64") if small else d


def root_of(x: Fraction) -> Fraction:
    """A square root, or a number between the same two f64 (and half way points) as it."""
    shift = 120 - floor_log2(x) // 2
    shifted = x * Fraction(4) ** shift
    whole = int(shifted)
    found = isqrt(whole)
    exact = found * found == shifted
    return (Fraction(found) if exact else Fraction(2 * found + 1, 2)) / Fraction(2) ** shift


def rounded(stem: str, name: str, mode: Mode, ftz: bool, a: int, b: int | None) -> int:
    """A quotient or a root with one rounding."""
    bits = 64 if name == "f64" else 32
    top, infinite = 1 << bits - 1, INFINITY64 if bits == 64 else INFINITY
    one = encode(Fraction(1), 0, name, "rne")
    x, y = (one, a) if stem == "rcp" else (a, b)
    if ftz:
        x, y = flush(x), y if y is None else flush(y)
    for code in (x, y):
        if code is not None and code & top - 1 > infinite:
            return code | QUIET64 if bits == 64 else NAN
    invalid = 0xFFF8 << 48 if bits == 64 else NAN
    if y is None:
        if x & top - 1 == 0 or x == infinite:
            return x
        if x & top:
            return invalid
        number = value(x, name)
        assert number is not None
        return encode(root_of(number), 0, name, mode)
    sign, first, second = (x ^ y) & top, value(x, name), value(y, name)
    if (first is None and second is None) or (first == 0 and second == 0):
        return invalid
    if first is None or second == 0:
        return sign | infinite
    if second is None or first == 0:
        return sign
    found = encode(first / second, 0, name, mode)
    return flushed_result(first / second, found, mode) if ftz else found


def special(mnemonic: str, a: int, b: int | None = None) -> int:
    """The result register of any of the 70 spellings.

    Raises ValueError for another mnemonic.
    """
    stem, *words = mnemonic.split(".")
    name, ftz, mode = words[-1], "ftz" in words, words[0]
    if mode in MODES:
        return rounded(stem, name, MODES[mode], ftz and name == "f32", a, b)
    if name.endswith("x2"):
        low, high = (half(stem, a >> shift & 0xFFFF, name[:-2]) for shift in (0, 16))
        return high << 16 | low
    if name in ("f16", "bf16"):
        return half(stem, a, name)
    if name == "f64":
        return high_word(stem, a) if ftz else refined_root(a)
    if stem == "div" and b is not None:
        return divide(a, b, mode == "full", ftz)
    if stem in ("sin", "cos"):
        return mufu(stem, multiply(a, 0x3E22F983, "rz", ftz))
    return mufu(stem, a) if ftz or stem == "tanh" else approximate(stem, a)
