"""Scalar arithmetic on floating-point codes: rounded once, NaN and subnormal numbers as an H200 has them."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from math import isqrt

from tests.exact.numbers import FLOAT_FORMATS, Mode, decode, encode, floor_log2, infinity, round_to_integer, scaled
from tests.exact.scalar_words import INVALID_F64, NAN, QUIET_F64, Spelling, bits_of


def is_nan(code: int, type: str) -> bool:
    """Whether a code is NaN."""
    return decode(code, type).kind == "nan"


def sign_bit(type: str) -> int:
    """The bit of the sign."""
    return 1 << bits_of(type) - 1


def flushed(code: int, type: str) -> int:
    """A subnormal number as the zero of its sign."""
    return code & sign_bit(type) if decode(code, type).kind == "subnormal" else code


def nan_of(type: str, *order: int) -> int:
    """The NaN of a result: the canonical one, in f64 the first operand in an order that is NaN, made quiet."""
    if type != "f64":
        return NAN[type]
    return next((code | QUIET_F64 for code in order if is_nan(code, type)), INVALID_F64)


def tiny(value: Fraction, type: str, mode: Mode) -> bool:
    """Whether a value rounded as if exponents had no lower limit lies below the normal numbers."""
    if not value:
        return False
    fmt = FLOAT_FORMATS[type]
    ulp = scaled(1, floor_log2(abs(value)) - fmt.fraction_bits)
    return abs(round_to_integer(value / ulp, mode) * ulp) < scaled(1, fmt.min_exponent)


def rounded(value: Fraction, zero_sign: int, type: str, mode: Mode, ftz: bool) -> int:
    """The code of a value."""
    code = encode(value, zero_sign, type, mode)
    return code & sign_bit(type) if ftz and tiny(value, type, mode) else code


def fused(a: int, b: int, c: int, type: str, mode: Mode, ftz: bool, order: Sequence[int]) -> int:
    """a * b + c."""
    if ftz:
        a, b, c = (flushed(code, type) for code in (a, b, c))
    x, y, z = (decode(code, type) for code in (a, b, c))
    if "nan" in (x.kind, y.kind, z.kind):
        return nan_of(type, *order)
    sign = x.sign ^ y.sign
    if "infinity" in (x.kind, y.kind):
        if "zero" in (x.kind, y.kind) or (z.kind == "infinity" and z.sign != sign):
            return nan_of(type)
        return infinity(sign, type)
    if z.kind == "infinity":
        return c
    total = x.value * y.value + z.value
    both_negative = sign and z.sign
    opposite = sign != z.sign
    return rounded(total, int(bool(both_negative or (opposite and mode == "rm"))), type, mode, ftz)


def one(type: str) -> int:
    """The code of 1.0."""
    return encode(Fraction(1), 0, type, "rne")


def added(a: int, b: int, type: str, mode: Mode, ftz: bool) -> int:
    """a + b."""
    return fused(a, one(type), b, type, mode, ftz, (b, a))


def subtracted(a: int, b: int, type: str, mode: Mode, ftz: bool) -> int:
    """a - b: a NaN keeps its sign."""
    return fused(a, one(type), b ^ sign_bit(type), type, mode, ftz, (b, a))


def multiplied(a: int, b: int, type: str, mode: Mode, ftz: bool) -> int:
    """a * b."""
    zero = (a ^ b) & sign_bit(type)
    return fused(a, b, zero, type, mode, ftz, (b, a))


def divided(a: int, b: int, type: str, mode: Mode, ftz: bool) -> int:
    """a / b."""
    if ftz:
        a, b = flushed(a, type), flushed(b, type)
    x, y = decode(a, type), decode(b, type)
    if "nan" in (x.kind, y.kind):
        return nan_of(type, a, b)
    if x.kind == y.kind and x.kind in ("zero", "infinity"):
        return nan_of(type)
    sign = x.sign ^ y.sign
    if x.kind == "infinity" or y.kind == "zero":
        return infinity(sign, type)
    if y.kind == "infinity" or x.kind == "zero":
        return sign * sign_bit(type)
    return rounded(x.value / y.value, sign, type, mode, ftz)


def root(a: int, type: str, mode: Mode, ftz: bool) -> int:
    """The square root: an integer root far finer than the format, with a mark where something is left."""
    a = flushed(a, type) if ftz else a
    x = decode(a, type)
    if x.kind == "nan":
        return nan_of(type, a)
    if x.kind == "zero":
        return a
    if x.sign:
        return nan_of(type)
    if x.kind == "infinity":
        return a
    scale = 1 << 2400
    square = x.value * scale
    near = isqrt(int(square))
    exact = near * near == square
    return rounded((Fraction(near) + (0 if exact else Fraction(1, 2))) / (1 << 1200), 0, type, mode, ftz)


def saturated(code: int, type: str) -> int:
    """Between +0 and 1; NaN is +0."""
    number = decode(code, type)
    if number.kind == "nan" or number.sign:
        return 0
    return one(type) if number.kind == "infinity" or number.value > 1 else code


def without_sign(code: int, type: str) -> int:
    """+0 for what is negative; NaN stays."""
    number = decode(code, type)
    return 0 if number.sign and number.kind != "nan" else code


def finished(code: int, type: str, spelling: Spelling) -> int:
    """What .sat and .relu make of a result."""
    if spelling.has("sat"):
        return saturated(code, type)
    return without_sign(code, type) if spelling.has("relu") else code


def order_key(code: int, type: str) -> tuple[Fraction | float, int]:
    """By which numbers are compared for min and max: -0 below +0."""
    number = decode(code, type)
    if number.kind == "infinity":
        return (float("-inf") if number.sign else float("inf"), 0)
    return (number.value, -number.sign)


def extreme(codes: Sequence[int], type: str, spelling: Spelling) -> int:
    """min and max of two or three."""
    if spelling.has("ftz"):
        codes = [flushed(code, type) for code in codes]
    signs = 0
    if spelling.has("abs"):
        for code in codes:
            signs ^= code & sign_bit(type)
        codes = [code & ~sign_bit(type) for code in codes]
    numbers = [code for code in codes if not is_nan(code, type)]
    if not numbers or (spelling.has("NaN") and len(numbers) < len(codes)):
        return nan_of(type, *reversed(codes))
    choose = max if spelling.stem == "max" else min
    found = choose(numbers, key=lambda code: order_key(code, type))
    return found | signs if spelling.has("xorsign") else found


def conversion_between_floats(code: int, out: str, source: str, mode: Mode, ftz: bool, moves: bool) -> int:
    """A number in another format."""
    if moves:
        return code
    if ftz and source == "f32" and out != "f16":
        code = flushed(code, source)
    number = decode(code, source)
    if number.kind == "nan":
        return converted_nan(NAN["f32"] if ftz and out == "f64" else code, out, source)
    if number.kind == "infinity":
        return infinity(number.sign, out)
    found = encode(number.value, number.sign, out, mode)
    return flushed(found, out) if ftz and out == "f32" else found


def converted_nan(code: int, out: str, source: str) -> int:
    """NaN from or to f64 keeps the upper bits of its payload and its sign; others become the canonical one."""
    if "f64" not in (out, source):
        return NAN[out]
    if source == "f64" and out == "f64":
        return code | QUIET_F64
    wide, narrow = FLOAT_FORMATS[source], FLOAT_FORMATS[out]
    fraction = code & (1 << wide.fraction_bits) - 1
    shift = narrow.fraction_bits - wide.fraction_bits
    payload = fraction << shift if shift >= 0 else fraction >> -shift
    quiet = infinity(0, out) | 1 << narrow.fraction_bits - 1
    return (code >> wide.bits - 1) << narrow.bits - 1 | quiet | payload


def widened(code: int, type: str) -> int:
    """An f16 or bf16 number as f32."""
    return conversion_between_floats(code, "f32", type, "rne", False, False)


def float_arithmetic(spelling: Spelling, codes: Sequence[int]) -> int:
    """add, sub, mul, fma, mad, div, rcp, sqrt on one element of the last word's type."""
    type, mode, ftz = spelling.type.split("x")[0], spelling.mode, spelling.has("ftz")
    if spelling.has("oob") and any(code & 0x7FFF == 0x7FF7 for code in codes[:2]):
        return 0
    if spelling.stem in ("fma", "mad"):
        a, b, c = codes
        found = fused(a, b, c, type, mode, ftz, (b, c, a))
    elif spelling.stem == "rcp":
        found = divided(one(type), codes[0], type, mode, ftz and type == "f32")
    elif spelling.stem == "sqrt":
        found = root(codes[0], type, mode, ftz)
    else:
        operation = {"add": added, "sub": subtracted, "mul": multiplied, "div": divided}[spelling.stem]
        found = operation(codes[0], codes[1], type, mode, ftz)
    return finished(found, type, spelling)


def mixed(spelling: Spelling, codes: Sequence[int]) -> int:
    """add, sub, fma of f32 whose first operands have 16 bits."""
    narrow = 2 if spelling.stem == "fma" else 1
    wide = [widened(code, spelling.type) for code in codes[:narrow]] + list(codes[narrow:])
    return float_arithmetic(Spelling(spelling.stem, (*spelling.words[:-1],)), wide)


def signs(spelling: Spelling, code: int) -> int:
    """abs and neg of a number."""
    type = spelling.type.split("x")[0]
    code = flushed(code, type) if spelling.has("ftz") else code
    if is_nan(code, type):
        return nan_of(type, code)
    return code & ~sign_bit(type) if spelling.stem == "abs" else code ^ sign_bit(type)
