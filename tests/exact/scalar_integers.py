"""Scalar integer arithmetic, logic, shifts and fields of bits."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tests.exact.numbers import decode
from tests.exact.scalar_comparisons import combined
from tests.exact.scalar_floats import flushed, is_nan, order_key, sign_bit
from tests.exact.scalar_words import WAYS, Spelling, bits_of, clamped, signed, whole


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
