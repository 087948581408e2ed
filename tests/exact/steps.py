"""The operations that mma.sync lowers to, each on codes: the fused dot-add, IEEE operations, integer and bit dots."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Literal, NamedTuple

from .numbers import (
    INTEGER_FORMATS,
    Mode,
    Number,
    canonical_nan,
    decode,
    encode,
    encode_rz_overflow_to_infinity,
    infinity,
    scaled,
)

Output = Literal["f32", "f16", "e8m13"]


class Term(NamedTuple):
    """One nonzero term of the sum: (-1)^sign * significand * 2^(exponent - fraction_bits), never renormalised."""

    sign: int
    exponent: int
    significand: int
    fraction_bits: int


def dot_add(
    a: Sequence[int],
    b: Sequence[int],
    c: int,
    *,
    a_format: str,
    b_format: str,
    c_format: str,
    fraction_bits: int,
    floor: int,
    output: Output,
) -> int:
    """The fused step d = c + sum of a_i * b_i, rounded once, all L = len(a) products together (section 1)."""
    if len(a) != len(b):
        raise ValueError(f"{len(a)} elements of A but {len(b)} of B")
    factors = [(decode(x, a_format), decode(y, b_format)) for x, y in zip(a, b, strict=True)]
    addend = decode(c, c_format)

    special = _special_result(factors, addend, output)
    if special is not None:
        return special

    # 1.1 Exact products, exponents added, significands multiplied. 1.2 A zero is no term: only the floor stands for it.
    terms = [
        Term(x.sign ^ y.sign, x.exponent + y.exponent, x.significand * y.significand, x.fraction_bits + y.fraction_bits)
        for x, y in factors
        if x.significand and y.significand
    ]
    if addend.significand:
        terms.append(Term(addend.sign, addend.exponent, addend.significand, addend.fraction_bits))
    e_max = max([floor, *(term.exponent for term in terms)])

    # 1.3 Truncate each magnitude to units of 2^(e_max - fraction_bits). 1.4 Add exactly.
    unit_exponent = e_max - fraction_bits
    total = 0
    for term in terms:
        shift = term.exponent - term.fraction_bits - unit_exponent
        units = term.significand << shift if shift >= 0 else term.significand >> -shift
        total += -units if term.sign else units
    return _round_sum(scaled(total, unit_exponent), output)


def _special_result(factors: Sequence[tuple[Number, Number]], addend: Number, output: Output) -> int | None:
    """The result if a NaN or an infinity takes part, else None (section 1.7)."""
    infinite_signs = set()
    for x, y in factors:
        kinds = (x.kind, y.kind)
        if "nan" in kinds or ("infinity" in kinds and "zero" in kinds):
            return canonical_nan(output)
        if "infinity" in kinds:
            infinite_signs.add(x.sign ^ y.sign)
    if addend.kind == "nan":
        return canonical_nan(output)
    if addend.kind == "infinity":
        infinite_signs.add(addend.sign)
    if len(infinite_signs) == 2:
        return canonical_nan(output)
    return infinity(infinite_signs.pop(), output) if infinite_signs else None


def _round_sum(total: Fraction, output: Output) -> int:
    """The one rounding of a step (section 1.5) and its zero, which is always +0 (section 1.6)."""
    code = encode(total, 0, "f16", "rne") if output == "f16" else encode_rz_overflow_to_infinity(total, output)
    return 0 if decode(code, output).kind == "zero" else code


def ieee_fma(a: int, b: int, c: int, name: str, mode: Mode = "rne") -> int:
    """a * b + c of IEEE 754, rounded once, subnormals kept (section 3).

    A NaN result is the canonical one; but f64 passes a NaN operand on, quietened: that of b, else of c, else of a.
    """
    x, y, z = decode(a, name), decode(b, name), decode(c, name)
    if name == "f64":
        for code, number in ((b, y), (c, z), (a, x)):
            if number.kind == "nan":
                return code | 1 << 51
    product_sign = x.sign ^ y.sign
    kinds = (x.kind, y.kind)
    if "nan" in (*kinds, z.kind) or ("infinity" in kinds and "zero" in kinds):
        return canonical_nan(name)
    if "infinity" in kinds:
        return canonical_nan(name) if z.kind == "infinity" and z.sign != product_sign else infinity(product_sign, name)
    if z.kind == "infinity":
        return infinity(z.sign, name)
    # An exact zero of two addends of one sign (both are zeros then) keeps the sign; any other is +0, or -0 toward -inf.
    sign_of_zero = z.sign if product_sign == z.sign else int(mode == "rm")
    return encode(x.value * y.value + z.value, sign_of_zero, name, mode)


def ieee_add(a: int, b: int, name: str, mode: Mode = "rne") -> int:
    """a + b of IEEE 754, rounded once (section 3): the fma a * 1 + b, whose product is a itself."""
    one = encode(Fraction(1), 0, name, "rne")
    return ieee_fma(a, one, b, name, mode)


def ieee_mul(a: int, b: int, name: str, mode: Mode = "rne") -> int:
    """a * b of IEEE 754, rounded once (section 3)."""
    x, y = decode(a, name), decode(b, name)
    sign = x.sign ^ y.sign
    kinds = (x.kind, y.kind)
    if "nan" in kinds or ("infinity" in kinds and "zero" in kinds):
        return canonical_nan(name)
    if "infinity" in kinds:
        return infinity(sign, name)
    return encode(x.value * y.value, sign, name, mode)


def convert(code: int, source: str, target: str, mode: Mode = "rne") -> int:
    """The number `code` of format `source` rounded once to format `target`; a NaN becomes the canonical one."""
    number = decode(code, source)
    if number.kind == "nan":
        return canonical_nan(target)
    if number.kind == "infinity":
        return infinity(number.sign, target)
    return encode(number.value, number.sign, target, mode)


def integer_dot(
    a: Sequence[int], b: Sequence[int], c: int, *, a_format: str, b_format: str, saturate: bool = False
) -> int:
    """c + sum of a_i * b_i in s32: exact, then wrapped mod 2^32 or clamped, once (section 3, int8)."""
    products = (_integer(x, a_format) * _integer(y, b_format) for x, y in zip(a, b, strict=True))
    return _to_s32(_integer(c, "s32") + sum(products), saturate)


def integer_add(a: int, b: int, *, saturate: bool = False) -> int:
    """a + b in s32, wrapped mod 2^32 or clamped (section 3, int4)."""
    return _to_s32(_integer(a, "s32") + _integer(b, "s32"), saturate)


def bit_dot(a: Sequence[int], b: Sequence[int], c: int, *, operation: Literal["xor", "and"]) -> int:
    """c + the number of ones in a xor b, or in a and b; wraps mod 2^32 (section 3, b1)."""
    pairs = [(_integer(x, "b1"), _integer(y, "b1")) for x, y in zip(a, b, strict=True)]
    ones = sum(x ^ y if operation == "xor" else x & y for x, y in pairs)
    return _to_s32(_integer(c, "s32") + ones, saturate=False)


def _integer(code: int, name: str) -> int:
    """The integer that `code` means."""
    number = decode(code, name)
    return -number.significand if number.sign else number.significand


def _to_s32(integer: int, saturate: bool) -> int:
    """The s32 code of an integer: clamped to the range, or its low 32 bits."""
    if saturate:
        s32 = INTEGER_FORMATS["s32"]
        integer = min(max(integer, s32.smallest), s32.largest)
    return integer % (1 << 32)
