"""What a scalar instruction computes, one operand at a time in Python integers and fractions, read off its spelling.

Written from the PTX manual's pseudocode and from what an H200 answers where the manual is silent (NaN, .ftz, shifts out of range). Nothing is
shared with `tcsim.isa.scalar` or `tcsim.arithmetic.floating`. The special functions have a model of their own (`exact.mufu`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from math import isqrt
from typing import NamedTuple

from exact.numbers import FLOAT_FORMATS, Mode, decode, encode, floor_log2, infinity, round_to_integer, scaled

NAN = {"f16": 0x7FFF, "bf16": 0x7FFF, "f32": 0x7FFFFFFF}
INVALID_F64, QUIET_F64 = 0xFFF8 << 48, 1 << 51
MODES: dict[str, Mode] = {"rn": "rne", "rz": "rz", "rm": "rm", "rp": "rp"}
INTEGRAL: dict[str, Mode] = {"rni": "rne", "rzi": "rz", "rmi": "rm", "rpi": "rp"}
FLOATS = ("f16", "bf16", "f32", "f64")
WAYS = ("and", "or", "xor")


class Spelling(NamedTuple):
    """A mnemonic in parts."""

    stem: str
    words: tuple[str, ...]

    @property
    def type(self) -> str:
        """The last word."""
        return self.words[-1]

    @property
    def mode(self) -> Mode:
        """The rounding of a result: to nearest unless it is named."""
        return next((MODES[word] for word in self.words if word in MODES), "rne")

    def has(self, *words: str) -> bool:
        """Whether one of some modifiers is there."""
        return any(word in self.words for word in words)


def bits_of(type: str) -> int:
    """Width of a type's codes."""
    if type == "pred":
        return 1
    if type in FLOATS:
        return FLOAT_FORMATS[type].bits
    if "x" in type:
        element, times = type.split("x")
        return bits_of(element) * int(times)
    return int(type[1:])


def signed(code: int, bits: int) -> int:
    """Two's complement."""
    return code - (1 << bits) if code >> (bits - 1) else code


def whole(code: int, type: str) -> int:
    """The integer of a code."""
    return signed(code, bits_of(type)) if type[0] == "s" else code


def clamped(value: int, type: str) -> int:
    """An integer held to what a type can be, as a code."""
    bits = bits_of(type)
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if type[0] == "s" else (0, (1 << bits) - 1)
    return min(max(value, low), high) % (1 << bits)


# --- floating point


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


# --- conversions


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


def to_integer(code: int, out: str, source: str, mode: Mode, ftz: bool) -> int:
    """A number rounded to an integer, clamped."""
    code = flushed(code, source) if ftz else code
    number = decode(code, source)
    bits = bits_of(out)
    if number.kind == "nan":
        return 1 << bits - 1 if bits == 64 or source == "f64" else 0
    if number.kind == "infinity":
        return clamped(-(1 << 70) if number.sign else 1 << 70, out)
    return clamped(round_to_integer(number.value, mode), out)


def conversion(spelling: Spelling, code: int) -> int:
    """cvt."""
    out, source = spelling.words[-2:]
    ftz = spelling.has("ftz")
    integral = next((INTEGRAL[word] for word in spelling.words if word in INTEGRAL), None)
    if out not in FLOATS and source not in FLOATS:
        value = whole(code, source)
        return clamped(value, out) if spelling.has("sat") else value % (1 << bits_of(out))
    if out not in FLOATS:
        assert integral is not None
        return to_integer(code, out, source, integral, ftz)
    if source not in FLOATS:
        found = encode(Fraction(whole(code, source)), 0, out, spelling.mode)
    elif integral is not None:
        code = flushed(code, source) if ftz else code
        number = decode(code, source)
        if number.kind == "nan":
            found = NAN[out] if out != "f64" else code | QUIET_F64
        elif number.kind == "infinity":
            found = code
        else:
            found = encode(Fraction(round_to_integer(number.value, integral)), number.sign, out, "rne")
    else:
        moves = out == source and bits_of(out) > 16 and not ftz and not spelling.has("sat")
        moves = moves or ((out, source) == ("f32", "bf16") and not ftz and is_nan(code, source))
        if (out, source) == ("f32", "bf16") and moves:
            found = code << 16
        else:
            found = conversion_between_floats(code, out, source, spelling.mode, ftz, moves)
    return finished(found, out, spelling)


# --- comparisons


def holds(name: str, a: int, b: int, type: str, ftz: bool) -> bool:
    """Whether a comparison of two codes holds."""
    if type not in FLOATS:
        x, y = whole(a, type), whole(b, type)
        return bool(
            {"eq": x == y, "ne": x != y, "lt": x < y, "le": x <= y, "gt": x > y, "ge": x >= y, "lo": x < y, "ls": x <= y, "hi": x > y, "hs": x >= y}[name]
        )  # fmt: skip
    if ftz:
        a, b = flushed(a, type), flushed(b, type)
    unordered = is_nan(a, type) or is_nan(b, type)
    if name in ("num", "nan"):
        return unordered == (name == "nan")
    if unordered:
        return name.endswith("u")
    x, y = (order_key(code, type)[0] for code in (a, b))  # type: ignore[assignment]
    name = name.removesuffix("u")
    return {"eq": x == y, "ne": x != y, "lt": x < y, "le": x <= y, "gt": x > y, "ge": x >= y}[name]


def combined(way: str | None, found: bool, p: int) -> int:
    """A comparison with a predicate."""
    return {None: int(found), "and": int(found and p), "or": int(found or p), "xor": int(found) ^ p}[way]


def comparison(spelling: Spelling, codes: Sequence[int], second: bool) -> tuple[int, ...]:
    """setp and set."""
    type, name, ftz = spelling.type, spelling.words[0], spelling.has("ftz")
    way = next((word for word in spelling.words if word in WAYS), None)
    a, b = codes[:2]
    p = codes[2] if way else 0
    element, _, packed = type.partition("x")
    parts = [(a >> 16 * place & 0xFFFF, b >> 16 * place & 0xFFFF) for place in range(2)] if packed else [(a, b)]
    found = [holds(name, x, y, element, ftz) for x, y in parts]
    if spelling.stem == "setp":
        if packed:
            return tuple(combined(way, item, p) for item in found)
        return (combined(way, found[0], p), *((combined(way, not found[0], p),) if second else ()))
    out = spelling.words[-2].split("x")[0]
    true = one(out) if out in FLOATS else (1 << (16 if packed else bits_of(out))) - 1
    return (sum(true * combined(way, item, p) << 16 * place for place, item in enumerate(found)),)


# --- integers


def quotient(a: int, b: int) -> int:
    """Towards zero."""
    found = abs(a) // abs(b)
    return found if (a < 0) == (b < 0) else -found


def integer_arithmetic(spelling: Spelling, codes: Sequence[int], carry: int) -> tuple[int, ...]:
    """add, sub, mul, mad, mul24, mad24, div, rem, sad, abs, neg, min, max of one element; with .cc the carry flag too."""
    stem, type = spelling.stem, spelling.type.split("x")[0]
    bits = bits_of(type)
    top = 1 << bits
    values = [whole(code, type) for code in codes]
    if stem in ("add", "sub", "addc", "subc"):
        return summed(spelling, codes, values, type, carry)
    if stem in ("mul24", "mad24"):
        values[:2] = [signed(code & 0xFFFFFF, 24) if type[0] == "s" else code & 0xFFFFFF for code in codes[:2]]
        product = values[0] * values[1] >> (16 if spelling.has("hi") else 0)
        product = signed(product % top, bits) if type[0] == "s" else product % top
        total = product + (values[2] if stem == "mad24" else 0)
        return (clamped(total, type) if spelling.has("sat") else total % top,)
    if stem in ("mul", "mad", "madc"):
        product = values[0] * values[1]
        if spelling.has("wide"):
            return ((product + (codes[2] if stem == "mad" else 0)) % (1 << 2 * bits),)
        shift = 32 if stem == "madc" and bits == 16 else bits  # of madc ptxas multiplies registers of 32 bits
        part = (product >> shift if spelling.has("hi") else product) % top
        if stem == "mul":
            return (part,)
        if spelling.has("sat") and stem == "mad":
            return (clamped(signed(part, bits) + values[2], type),)
        total = part + codes[2] + (carry if stem == "madc" else 0)
        return (total % top, total // top) if spelling.has("cc") else (total % top,)
    if stem in ("div", "rem"):
        a, b = values
        if b == 0:
            return (top - 1,)
        return ((quotient(a, b) if stem == "div" else a - quotient(a, b) * b) % top,)
    if stem == "sad":
        return ((abs(values[0] - values[1]) + codes[2]) % top,)
    if stem in ("abs", "neg"):
        return ((abs(values[0]) if stem == "abs" else -values[0]) % top,)
    found = (max if stem == "max" else min)(values)
    return (max(found, 0) if spelling.has("relu") else found % top,)


def summed(spelling: Spelling, codes: Sequence[int], values: Sequence[int], type: str, carry: int) -> tuple[int, ...]:
    """Sums and differences; the flag of a difference is set where nothing is borrowed."""
    top = 1 << bits_of(type)
    if spelling.has("sat"):
        return (clamped(values[0] + values[1] if spelling.stem == "add" else values[0] - values[1], type),)
    if spelling.stem.startswith("add"):
        total = codes[0] + codes[1] + (carry if spelling.stem == "addc" else 0)
    else:
        total = codes[0] + (top - 1 - codes[1]) + (carry if spelling.stem == "subc" else 1)
    return (total % top, total // top) if spelling.has("cc") else (total % top,)


def dot(spelling: Spelling, a: int, b: int, c: int) -> int:
    """dp4a and dp2a."""
    a_type, b_type = spelling.words[-2:]
    wide = 8 if spelling.stem == "dp4a" else 16
    first = 2 if spelling.has("hi") else 0
    total = c
    for place in range(32 // wide):
        x, y = a >> wide * place & (1 << wide) - 1, b >> 8 * (place + first) & 0xFF
        total += (signed(x, wide) if a_type[0] == "s" else x) * (signed(y, 8) if b_type[0] == "s" else y)
    return total % (1 << 32)


def shift(spelling: Spelling, a: int, count: int) -> int:
    """shl, shr: counts beyond the width shift everything out."""
    bits = bits_of(spelling.type)
    if spelling.stem == "shl":
        return a << min(count, bits) & (1 << bits) - 1
    return (whole(a, spelling.type) >> min(count, bits)) % (1 << bits)


def funnel(spelling: Spelling, a: int, b: int, count: int) -> int:
    """shf."""
    count = count & 31 if spelling.has("wrap") else min(count, 32)
    both = b << 32 | a
    return (both << count >> 32 if spelling.has("l") else both >> count) & 0xFFFFFFFF


def extract(spelling: Spelling, a: int, start: int, length: int) -> int:
    """bfe, bit by bit as in the manual."""
    bits = bits_of(spelling.type)
    start, length = (start, length) if bits == 64 else (start & 0xFF, length & 0xFF)
    if not length:
        return 0
    sign = a >> min(start + length - 1, bits - 1) & 1 if spelling.type[0] == "s" else 0
    return sum(
        (a >> place + start & 1 if place < length and place + start < bits else sign) << place for place in range(bits)
    )


def insert(spelling: Spelling, a: int, b: int, start: int, length: int) -> int:
    """bfi, bit by bit as in the manual."""
    bits = bits_of(spelling.type)
    start, length = (start, length) if bits == 64 else (start & 0xFF, length & 0xFF)
    found = b
    for place in range(min(length, bits)):
        if start + place < bits:
            found = found & ~(1 << start + place) | (a >> place & 1) << start + place
    return found


def highest(spelling: Spelling, a: int) -> int:
    """bfind."""
    bits = bits_of(spelling.type)
    value = ~a & (1 << bits) - 1 if spelling.type[0] == "s" and a >> bits - 1 else a
    place = value.bit_length() - 1
    if place < 0:
        return 0xFFFFFFFF
    return bits - 1 - place if spelling.has("shiftamt") else place


def nth_set(mask: int, base: int, offset: int) -> int:
    """fns, as in the manual."""
    offset = signed(offset, 32)
    if offset == -(1 << 31):  # whose negative is negative: the search of ptxas counts 31 places down
        return 0
    if offset == 0:
        return base if base < 32 and mask >> base & 1 else 0xFFFFFFFF
    step, left = (1, offset) if offset > 0 else (-1, -offset)
    place = base
    while 0 <= place < 32:
        left -= mask >> place & 1
        if left == 0:
            return place
        place += step
    return 0xFFFFFFFF


def extend(spelling: Spelling, a: int, b: int) -> int:
    """szext."""
    width = b & 31 if spelling.has("wrap") else min(b, 32)
    low = a & (1 << width) - 1
    return signed(low, width) % (1 << 32) if spelling.type == "s32" and width else low


def mask(spelling: Spelling, a: int, b: int) -> int:
    """bmsk."""
    first, count = (a & 31, b & 31) if spelling.has("wrap") else (a, b)
    return sum(1 << place for place in range(32) if first <= place < first + count)


def permute(spelling: Spelling, a: int, b: int, c: int) -> int:
    """prmt, with the selectors of the manual's table of modes."""
    octets = [(b << 32 | a) >> 8 * place & 0xFF for place in range(8)]
    k = c & 3
    modes = {
        "f4e": [k, k + 1, k + 2, k + 3], "b4e": [k, (k - 1) % 8, (k - 2) % 8, (k - 3) % 8], "rc8": [k] * 4, "ecl": [max(k, i) for i in range(4)],
        "ecr": [min(k, i) for i in range(4)], "rc16": [2 * (k & 1), 2 * (k & 1) + 1] * 2,
    }  # fmt: skip
    for mode, picks in modes.items():
        if spelling.has(mode):
            return sum(octets[pick] << 8 * place for place, pick in enumerate(picks))
    found = 0
    for place in range(4):
        pick = c >> 4 * place & 15
        octet = octets[pick & 7]
        found |= (0xFF * (octet >> 7) if pick & 8 else octet) << 8 * place
    return found


def logic3(a: int, b: int, c: int, table: int) -> int:
    """lop3, bit by bit."""
    return sum((table >> ((a >> i & 1) << 2 | (b >> i & 1) << 1 | c >> i & 1) & 1) << i for i in range(32))


def differences(spelling: Spelling, a: int, b: int, c: int) -> int:
    """The differences of the bytes or half words of a word, or their sum on top of c."""
    bits = 32 // int(spelling.stem[-1])
    found = [
        abs(
            whole(a >> place & (1 << bits) - 1, f"{spelling.words[1][0]}{bits}")
            - whole(b >> place & (1 << bits) - 1, f"{spelling.words[2][0]}{bits}")
        )
        for place in range(0, 32, bits)
    ]
    if spelling.has("add"):
        return (c + sum(found)) % (1 << 32)
    return sum(value << bits * place for place, value in enumerate(found))


def without_carries(spelling: Spelling, a: int, b: int, c: int) -> int:
    """clmad."""
    product = 0
    for place in range(64):
        product ^= a << place if b >> place & 1 else 0
    return (product >> 64 if spelling.has("hi") else product & (1 << 64) - 1) ^ c


_BITWISE: dict[str, Callable[[int, int], int]] = {"and": int.__and__, "or": int.__or__, "xor": int.__xor__}
_TESTS = {
    "finite": ("zero", "subnormal", "normal"), "infinite": ("infinity",), "number": ("zero", "subnormal", "normal", "infinity"),
    "notanumber": ("nan",), "normal": ("zero", "normal"), "subnormal": ("subnormal",),
}  # fmt: skip


def other(spelling: Spelling, codes: Sequence[int], table: int | None) -> tuple[int, ...]:
    """Logic, shifts, fields of bits, selections."""
    stem, type = spelling.stem, spelling.type
    if stem.startswith("vabsdiff"):
        return (differences(spelling, *codes),)
    bits = bits_of(type)
    top = (1 << bits) - 1
    if stem == "lop3":
        assert table is not None
        found = logic3(*codes[:3], table)
        way = next((word for word in spelling.words if word in WAYS), None)
        return (found, combined(way, found != 0, codes[3])) if way else (found,)
    if stem in _BITWISE:
        return (_BITWISE[stem](*codes),)
    if stem == "copysign":
        return (codes[0] & sign_bit(type) | codes[1] & ~sign_bit(type),)
    if stem == "testp":
        return (int(decode(codes[0], type).kind in _TESTS[spelling.words[0]]),)
    if stem == "selp":
        return (codes[0] if codes[2] else codes[1],)
    if stem == "slct":
        third = codes[2]
        if type == "s32":
            return (codes[0] if signed(third, 32) >= 0 else codes[1],)
        third = flushed(third, "f32") if spelling.has("ftz") else third
        return (codes[0] if not is_nan(third, "f32") and order_key(third, "f32")[0] >= 0 else codes[1],)
    if stem in ("shl", "shr"):
        return (shift(spelling, *codes),)
    if stem in ("dp4a", "dp2a"):
        return (dot(spelling, *codes),)
    named: dict[str, Callable[..., int]] = {
        "shf": funnel, "bfe": extract, "bfi": insert, "bfind": highest, "szext": extend, "bmsk": mask, "prmt": permute, "clmad": without_carries,
    }  # fmt: skip
    if stem in named:
        return (named[stem](spelling, *codes),)
    a = codes[0]
    simple: dict[str, Callable[[], int]] = {
        "fns": lambda: nth_set(*codes), "not": lambda: ~a & top, "cnot": lambda: int(a == 0), "popc": lambda: a.bit_count(),
        "clz": lambda: bits - a.bit_length(), "brev": lambda: sum((a >> i & 1) << bits - 1 - i for i in range(bits)),
    }  # fmt: skip
    return (simple[stem](),)


# --- all of them

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
