"""Integer and logic instructions of PTX.

Sources: PTX ISA 9.4, sections Integer Arithmetic Instructions, Extended-Precision Integer Arithmetic Instructions, Logic and
Shift Instructions. Division by zero is not defined there.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np

from tcsim.isa.scalar.table import (
    BYTES_IN_WORDS,
    CONTAINERS,
    SINCE,
    Array,
    Compute,
    Scalar,
    pairs,
    signed,
    spellings,
    unsigned,
)

_INTEGERS = ("u16", "u32", "u64", "s16", "s32", "s64")
_WORDS = ("u32", "s32", "u64", "s64")
_BITS = ("b16", "b32", "b64")


def _width(type: str) -> int:
    return int(type[1:])


def _of(type: str, code: Array) -> Array:
    return signed(code) if type[0] == "s" else code


def _codes(values: Array) -> Array:
    return unsigned(values) if values.dtype.kind == "i" else values


def _wide(type: str, code: Array) -> Array:
    """Values of at most 32 bits as 64-bit integers of the same signedness."""
    return _of(type, code).astype(np.int64 if type[0] == "s" else np.uint64)


def _multiply_high_64(type: str, a: Array, b: Array) -> Array:
    low32, shift = np.uint64(0xFFFFFFFF), np.uint64(32)
    a0, a1, b0, b1 = a & low32, a >> shift, b & low32, b >> shift
    middle = a1 * b0 + (a0 * b0 >> shift)
    middle2 = a0 * b1 + (middle & low32)
    high = a1 * b1 + (middle >> shift) + (middle2 >> shift)
    if type[0] == "s":
        high = high - np.where(signed(a) < 0, b, np.uint64(0)) - np.where(signed(b) < 0, a, np.uint64(0))
    return high


def multiply(type: str, part: str) -> Compute:
    """The low or high half of a product, or the whole of it (wide)."""
    bits = _width(type)

    def compute(a: Array, b: Array) -> Array:
        if part == "lo":
            return a * b
        if bits == 64:
            return _multiply_high_64(type, a, b)
        product = _codes(_wide(type, a) * _wide(type, b))
        if part == "wide":
            return product.astype(f"u{bits // 4}")
        return (product >> np.uint64(bits)).astype(a.dtype)

    return compute


_RANGES = {
    f"{kind}{bits}": (-(1 << bits - 1), (1 << bits - 1) - 1) if kind == "s" else (0, (1 << bits) - 1)
    for kind in "us"
    for bits in (8, 16, 32)
}


def _saturate(values: Array, type: str = "s32") -> Array:
    """Numbers of 64 bits as codes of a type, clamped to what it holds."""
    low, high = _RANGES[type]
    return np.clip(values, low, high).astype(np.int64).view(np.uint64).astype(CONTAINERS[type])


def _saturating(way: Compute, type: str) -> Compute:
    return lambda a, b: _saturate(way(_of(type, a).astype(np.int64), _of(type, b).astype(np.int64)), type)


def _relu(choose: Compute) -> Compute:
    """The function, negative results as 0."""

    def compute(*codes: Array) -> Array:
        found = choose(*codes)
        return np.where(signed(found) < 0, found.dtype.type(0), found)

    return compute


def _saturated_sum(product: Compute) -> Compute:
    """A product of 32 bits and an addend, clamped."""
    return lambda a, b, c: _saturate(signed(product(a, b)).astype(np.int64) + signed(c).astype(np.int64))


def _multiply_24(type: str, part: str) -> Compute:
    """The low or high 32 of the 48 bits that the low 24 bits of two numbers give."""

    def value(code: Array) -> Array:
        return _wide(type, _codes(_of(type, code << np.uint32(8)) >> _of(type, np.array(8, code.dtype))))

    def compute(a: Array, b: Array) -> Array:
        product = value(a) * value(b)
        return (product >> product.dtype.type(16) if part == "hi" else product).astype(np.uint64).astype(np.uint32)

    return compute


def _divide(type: str, remainder: bool) -> Compute:
    def compute(a: Array, b: Array) -> Array:
        a, b = np.broadcast_arrays(a, b)
        x, y = _of(type, a), _of(type, b)
        zero = y == 0
        safe = np.where(zero, y.dtype.type(1), y)
        if type[0] == "s":
            low = np.iinfo(x.dtype).min
            overflow = (x == low) & (safe == -1)
            safe = np.where(overflow, y.dtype.type(1), safe)  # the quotient wraps to itself, the remainder is 0
        quotient = np.floor_divide(x, safe)
        rest = x - quotient * safe
        if type[0] == "s":
            off = (rest != 0) & ((x < 0) != (safe < 0))  # floor to truncation
            quotient, rest = quotient + off, np.where(off, rest - safe, rest).astype(x.dtype)
        found = rest if remainder else quotient
        instead = x.dtype.type(-1) if type[0] == "s" else np.iinfo(x.dtype).max  # of quotient and remainder
        return _codes(np.where(zero, instead, found).astype(x.dtype))

    return compute


def _carrying(operation: str, takes: bool) -> Compute:
    """Sums and differences with a carry or borrow flag."""

    def compute(a: Array, b: Array, *flag: Array) -> tuple[Array, Array]:
        extra = flag[0].astype(a.dtype) if takes else a.dtype.type(0)
        if operation == "add":
            first = a + b
            found = first + extra
            return found, (first < a) | (found < first)
        less = flag[0] if takes else np.True_  # the flag is a carry here too: set where nothing is borrowed
        found = a + ~b + less.astype(a.dtype)
        return found, (a > b) | ((a == b) & less)

    return compute


def _mad_carry(type: str, part: str, takes: bool) -> Compute:
    product, total = multiply(type, part), _carrying("add", takes)
    return lambda a, b, c, *flag: total(product(a, b), c, *flag)


def _without_carry(compute: Compute) -> Compute:
    return lambda *operands: compute(*operands)[0]


def _shift(type: str, left: bool) -> Compute:
    bits = _width(type)

    def compute(a: Array, b: Array) -> Array:
        count = np.minimum(b, np.uint32(bits - 1)).astype(a.dtype)
        beyond = b >= bits
        if left:
            return np.where(beyond, a.dtype.type(0), a << count)
        if type[0] == "s":
            return unsigned(signed(a) >> signed(count))
        return np.where(beyond, a.dtype.type(0), a >> count)

    return compute


def _funnel(left: bool, wrap: bool) -> Compute:
    def compute(a: Array, b: Array, c: Array) -> Array:
        count = (c & np.uint32(31) if wrap else np.minimum(c, np.uint32(32))).astype(np.uint64)
        both = b.astype(np.uint64) << np.uint64(32) | a
        if left:
            return ((both << count) >> np.uint64(32)).astype(np.uint32)
        return (both >> count).astype(np.uint32)

    return compute


def _place(bits: int, code: Array) -> Array:
    """A start or length: its low 8 bits count, of the 64-bit forms all (measured on an H200)."""
    return (code if bits == 64 else code & np.uint32(0xFF)).astype(np.int64)


def _extract(type: str) -> Compute:
    """bfe: a field of `length` bits at `start`, sign-extended if the type is signed."""
    bits = _width(type)

    def compute(a: Array, b: Array, c: Array) -> Array:
        a, b, c = np.broadcast_arrays(a, b, c)
        start, length = _place(bits, b), _place(bits, c)
        value = a.astype(np.uint64)
        one = np.uint64(1)
        taken = np.minimum(length, np.maximum(bits - start, 0))
        field = np.where(start < bits, value >> np.minimum(start, 63).astype(np.uint64), np.uint64(0))
        mask = np.where(taken >= 64, ~np.uint64(0), (one << np.minimum(taken, 63).astype(np.uint64)) - one)
        found = field & mask
        if type[0] == "s":
            place = np.minimum(start + length - 1, bits - 1)
            sign = (value >> np.clip(place, 0, 63).astype(np.uint64)) & one
            found = np.where((sign == 1) & (length > 0), found | ~mask, found)
        return np.where(length == 0, np.uint64(0), found).astype(a.dtype)

    return compute


def _insert(type: str) -> Compute:
    """bfi: the low `length` bits of a put into b at `start`."""
    bits = _width(type)

    def compute(a: Array, b: Array, c: Array, d: Array) -> Array:
        a, b, c, d = np.broadcast_arrays(a, b, c, d)
        start, length = _place(bits, c), _place(bits, d)
        one = np.uint64(1)
        ones = np.where(length >= 64, ~np.uint64(0), (one << np.minimum(length, 63).astype(np.uint64)) - one)
        mask = np.where(start < bits, ones << np.minimum(start, 63).astype(np.uint64), np.uint64(0))
        field = np.where(start < bits, a.astype(np.uint64) << np.minimum(start, 63).astype(np.uint64), np.uint64(0))
        return (b.astype(np.uint64) & ~mask | field & mask).astype(a.dtype)

    return compute


def bit_length(codes: Array) -> Array:
    """The place of the highest set bit plus one, 0 for zero: uint32."""
    rest = codes.astype(np.uint64)
    length = np.zeros(rest.shape, np.uint32)
    for step in (32, 16, 8, 4, 2, 1):
        above = rest >> np.uint64(step) != 0
        length += np.uint32(step) * above
        rest = np.where(above, rest >> np.uint64(step), rest)
    return (length + (rest != 0)).astype(np.uint32)


def _find_highest(type: str, amount: bool) -> Compute:
    bits = _width(type)

    def compute(a: Array) -> Array:
        value = np.where(signed(a) < 0, ~a, a) if type[0] == "s" else a
        length = bit_length(value)
        place = (np.uint32(bits) - length if amount else length - np.uint32(1)).astype(np.uint32)
        return np.where(length == 0, np.uint32(0xFFFFFFFF), place)

    return compute


def _reverse(bits: int) -> Compute:
    def compute(a: Array) -> Array:
        found, value = np.zeros(np.shape(a), np.uint64), a.astype(np.uint64)
        for place in range(bits):
            found |= (value >> np.uint64(place) & np.uint64(1)) << np.uint64(bits - 1 - place)
        return found.astype(a.dtype)

    return compute


def logic3(a: Array, b: Array, c: Array, table: int) -> Array:
    """Any logic function of three words: bit 4a + 2b + c of the table.

    >>> hex(logic3(np.array([0xF0], np.uint32), np.uint32(0xCC), np.uint32(0xAA), 0x96)[0] & 0xFF)  # exclusive or of all
    '0x96'
    """
    found = np.zeros(np.broadcast(a, b, c).shape, np.uint32)
    for row in range(8):
        if table >> row & 1:
            found = found | (a if row & 4 else ~a) & (b if row & 2 else ~b) & (c if row & 1 else ~c)
    return found


def permute(a: Array, b: Array, c: Array) -> Array:
    """prmt: four bytes picked from eight, each by four bits of c; the highest of them spreads the byte's sign.

    >>> hex(permute(np.array([0x33221100], np.uint32), np.uint32(0x77665544), np.uint32(0x7654))[0])
    '0x77665544'
    """
    both = b.astype(np.uint64) << np.uint64(32) | a
    found = np.zeros(np.broadcast(a, b, c).shape, np.uint32)
    for place in range(4):
        pick = c >> np.uint32(4 * place)
        octet = (both >> ((pick & np.uint32(7)).astype(np.uint64) << np.uint64(3)) & np.uint64(0xFF)).astype(np.uint32)
        sign = np.where(octet & 0x80 != 0, np.uint32(0xFF), np.uint32(0))
        octet = np.where(pick & np.uint32(8) != 0, sign, octet)
        found = found | octet << np.uint32(8 * place)
    return found


_PERMUTATIONS = {
    "f4e": ((0, 1, 2, 3), (1, 2, 3, 4), (2, 3, 4, 5), (3, 4, 5, 6)), "b4e": ((0, 7, 6, 5), (1, 0, 7, 6), (2, 1, 0, 7), (3, 2, 1, 0)),
    "rc8": tuple((k,) * 4 for k in range(4)), "ecl": ((0, 1, 2, 3), (1, 1, 2, 3), (2, 2, 2, 3), (3, 3, 3, 3)),
    "ecr": ((0, 0, 0, 0), (0, 1, 1, 1), (0, 1, 2, 2), (0, 1, 2, 3)), "rc16": ((0, 1, 0, 1), (2, 3, 2, 3), (0, 1, 0, 1), (2, 3, 2, 3)),
}  # fmt: skip
"""prmt's modes: for each value of c's two bits the bytes of the result, lowest first (PTX ISA, section prmt)."""


def _permute_mode(mode: str) -> Compute:
    selectors = np.array([sum(pick << 4 * i for i, pick in enumerate(row)) for row in _PERMUTATIONS[mode]], np.uint32)
    return lambda a, b, c: permute(a, b, selectors[c & np.uint32(3)])


def _dot4(a_type: str, b_type: str) -> Compute:
    def compute(a: Array, b: Array, c: Array) -> Array:
        a, b, c = np.broadcast_arrays(a, b, c)
        x, y = (
            np.ascontiguousarray(v).view(np.int8 if t[0] == "s" else np.uint8).reshape(*v.shape, 4).astype(np.int64)
            for v, t in ((a, a_type), (b, b_type))
        )
        return (signed(c).astype(np.int64) + (x * y).sum(-1)).astype(np.uint64).astype(np.uint32)

    return compute


def _dot2(a_type: str, b_type: str, half: str) -> Compute:
    """dp2a: two 16-bit numbers of a times the two low or high bytes of b, plus c."""

    def compute(a: Array, b: Array, c: Array) -> Array:
        a, b, c = (np.ascontiguousarray(code) for code in np.broadcast_arrays(a, b, c))
        x = a.view(np.int16 if a_type[0] == "s" else np.uint16).reshape(*a.shape, 2)
        y = b.view(np.int8 if b_type[0] == "s" else np.uint8).reshape(*b.shape, 4)
        y = y[..., :2] if half == "lo" else y[..., 2:]
        return (signed(c).astype(np.int64) + (x.astype(np.int64) * y).sum(-1)).astype(np.uint64).astype(np.uint32)

    return compute


def _extend(is_signed: bool, wrap: bool) -> Compute:
    """szext: the low b bits of a, extended by their sign or by zeros."""

    def compute(a: Array, b: Array) -> Array:
        a, b = np.broadcast_arrays(a, b)
        place = b & np.uint32(31)
        whole = (b >= 32) & (not wrap)
        above = np.where(whole, np.uint32(0), np.uint32(0xFFFFFFFF) << place)
        sign = (a >> (place - np.uint32(1) & np.uint32(31)) & np.uint32(1) != 0) & (place != 0) & ~whole & is_signed
        return a & ~above | np.where(sign, above, np.uint32(0))

    return compute


def _mask(wrap: bool) -> Compute:
    """bmsk: b ones from bit a on."""

    def compute(a: Array, b: Array) -> Array:
        a, b = np.broadcast_arrays(a, b)
        first, count = a & np.uint32(31), b & np.uint32(31)
        ones = np.uint32(0xFFFFFFFF)
        from_first, end = ones << first, first + count
        if not wrap:
            from_first = np.where(a >= 32, np.uint32(0), from_first)
        open_end = (end >= 32) | (((a >= 32) | (b >= 32)) & (not wrap))
        beyond = np.where(open_end, np.uint32(0), ones << (end & np.uint32(31)))
        return from_first & ~beyond

    return compute


def find_nth_set(mask: Array, base: Array, offset: Array) -> Array:
    """fns: the place of the |offset|th set bit from `base` upwards or, of a negative offset, downwards; all ones if there is none."""
    mask, base, offset = np.broadcast_arrays(mask, base, signed(offset))
    places = np.arange(32, dtype=np.int64)
    from_base = (places - base.astype(np.int64)[..., None]) * np.where(offset < 0, -1, 1)[..., None]
    taken = (mask[..., None] >> places.astype(np.uint32) & np.uint32(1) != 0) & (from_base >= 0)
    order = np.where(offset[..., None] < 0, taken[..., ::-1].cumsum(-1)[..., ::-1], taken.cumsum(-1))
    wanted = np.abs(offset.astype(np.int64))[..., None]
    found = np.where(wanted == 0, taken & (from_base == 0), taken & (order == wanted))
    return np.where(found.any(-1), found.argmax(-1), 0xFFFFFFFF).astype(np.uint32)


def _multiply_without_carries(part: str) -> Compute:
    """clmad: the low or high 64 bits of the product of two polynomials over GF(2), plus c."""

    def compute(a: Array, b: Array, c: Array) -> Array:
        a, b, c = np.broadcast_arrays(a, b, c)
        found = c.copy()
        for place in range(64):
            chosen = (b >> np.uint64(place) & np.uint64(1)) != 0
            if part == "lo":
                term = a << np.uint64(place)
            else:
                term = a >> np.uint64(64 - place) if place else np.zeros_like(a)
            found ^= np.where(chosen, term, np.uint64(0))
        return found

    return compute


def logic3_with(way: Compute) -> Compute:
    """lop3 with a predicate: the result, and whether it is not zero combined with another predicate."""

    def compute(a: Array, b: Array, c: Array, table: int, p: Array) -> tuple[Array, Array]:
        found = logic3(a, b, c, table)
        return found, way(found != 0, p)

    return compute


def _compare_low(type: str, largest: bool) -> Compute:
    choose = np.maximum if largest else np.minimum
    return lambda a, b: _codes(choose(_of(type, a), _of(type, b)))


def _absolute(a: Array) -> Array:
    return unsigned(np.abs(signed(a)))


def _sum_of_differences(type: str) -> Compute:
    def compute(a: Array, b: Array, c: Array) -> Array:
        x, y = _of(type, a), _of(type, b)
        return np.where(x < y, b - a, a - b) + c

    return compute


def _arithmetic() -> Iterator[Scalar]:
    for type in _INTEGERS:
        yield Scalar(f"add.{type}", (type,), (type,) * 2, np.add)
        yield Scalar(f"sub.{type}", (type,), (type,) * 2, np.subtract)
        wide = type[0] + str(2 * _width(type))
        for part in ("lo", "hi", *(("wide",) if _width(type) < 64 else ())):
            out, multiplied = (wide if part == "wide" else type), multiply(type, part)
            yield Scalar(f"mul.{part}.{type}", (out,), (type,) * 2, multiplied)
            yield Scalar(f"mad.{part}.{type}", (out,), (type, type, out), lambda a, b, c, p=multiplied: p(a, b) + c)
        yield Scalar(f"div.{type}", (type,), (type,) * 2, _divide(type, False))
        yield Scalar(f"rem.{type}", (type,), (type,) * 2, _divide(type, True))
        yield Scalar(f"min.{type}", (type,), (type,) * 2, _compare_low(type, False))
        yield Scalar(f"max.{type}", (type,), (type,) * 2, _compare_low(type, True))
        yield Scalar(f"sad.{type}", (type,), (type,) * 3, _sum_of_differences(type))
        if type[0] == "s":
            yield Scalar(f"abs.{type}", (type,), (type,), _absolute)
            yield Scalar(f"neg.{type}", (type,), (type,), np.negative)
    for name, way in (("add", np.add), ("sub", np.subtract)):
        yield Scalar(f"{name}.sat.s32", ("s32",), ("s32",) * 2, _saturating(way, "s32"))
    yield Scalar("add.sat.u32", ("u32",), ("u32",) * 2, _saturating(np.add, "u32"), targets=BYTES_IN_WORDS)
    yield from _packed()
    for type in _WORDS:
        for name in ("add", "sub"):
            taking, plain = _carrying(name, True), _carrying(name, False)
            yield Scalar(f"{name}.cc.{type}", (type,), (type,) * 2, plain, writes_carry=True)
            yield Scalar(f"{name}c.{type}", (type,), (type,) * 2, _without_carry(taking), reads_carry=True)
            yield Scalar(f"{name}c.cc.{type}", (type,), (type,) * 2, taking, reads_carry=True, writes_carry=True)
        for part in ("lo", "hi"):
            taking = _mad_carry(type, part, True)
            yield Scalar(
                f"mad.{part}.cc.{type}", (type,), (type,) * 3, _mad_carry(type, part, False), writes_carry=True
            )
            yield Scalar(f"madc.{part}.{type}", (type,), (type,) * 3, _without_carry(taking), reads_carry=True)
            yield Scalar(f"madc.{part}.cc.{type}", (type,), (type,) * 3, taking, reads_carry=True, writes_carry=True)
    for type in ("u16", "s16"):
        for name in ("add", "sub"):
            yield Scalar(
                f"{name}c.{type}", (type,), (type,) * 2, _without_carry(_carrying(name, True)), reads_carry=True
            )
        for part in ("lo", "hi"):
            taking = _without_carry(_mad_carry(type, part, True))
            yield Scalar(f"madc.{part}.{type}", (type,), (type,) * 3, taking, reads_carry=True)
    # ptxas takes .sat here and leaves it out of what it makes
    clamped = _without_carry(_mad_carry("s32", "hi", True))
    yield Scalar("madc.hi.sat.s32", ("s32",), ("s32",) * 3, clamped, reads_carry=True)
    yield Scalar("mad.hi.sat.s32", ("s32",), ("s32",) * 3, _saturated_sum(multiply("s32", "hi")))
    yield Scalar("mad24.hi.sat.s32", ("s32",), ("s32",) * 3, _saturated_sum(_multiply_24("s32", "hi")))
    for type, part in product(("u32", "s32"), ("lo", "hi")):
        low = _multiply_24(type, part)
        yield Scalar(f"mul24.{part}.{type}", (type,), (type,) * 2, low)
        yield Scalar(f"mad24.{part}.{type}", (type,), (type,) * 3, lambda a, b, c, p=low: p(a, b) + c)
    for a, b in product(("u32", "s32"), repeat=2):
        out = "s32" if "s32" in (a, b) else "u32"
        yield Scalar(f"dp4a.{a}.{b}", (out,), ("b32", "b32", out), _dot4(a, b))
        for half in ("lo", "hi"):
            yield Scalar(f"dp2a.{half}.{a}.{b}", (out,), ("b32", "b32", out), _dot2(a, b, half))
    for part in ("lo", "hi"):
        compute = _multiply_without_carries(part)
        yield Scalar(f"clmad.{part}.u64", ("u64",), ("u64",) * 3, compute, targets=SINCE[80])


def _packed() -> Iterator[Scalar]:
    """Arithmetic on the two halves or the four bytes of a register."""
    for type in ("u16x2", "s16x2", "u8x4", "s8x4"):
        element, times = type.split("x")
        octets, own = times == "4", SINCE[90] if times == "2" else BYTES_IN_WORDS
        container = CONTAINERS[element]
        sources = (type,) * 2
        yield Scalar(f"add.{type}", (type,), sources, pairs(np.add, container), targets=own)
        saturating = pairs(_saturating(np.add, element), container)
        yield Scalar(f"add.sat.{type}", (type,), sources, saturating, targets=BYTES_IN_WORDS)
        if octets:
            yield Scalar(f"sub.{type}", (type,), sources, pairs(np.subtract, container), targets=own)
            yield Scalar(
                f"sub.sat.{type}", (type,), sources, pairs(_saturating(np.subtract, element), container), targets=own
            )
        for name, largest in (("min", False), ("max", True)):
            choose = _compare_low(element, largest)
            yield Scalar(f"{name}.{type}", (type,), sources, pairs(choose, container), targets=own)
            if type[0] == "s":
                yield Scalar(f"{name}.relu.{type}", (type,), sources, pairs(_relu(choose), container), targets=own)
    for name, largest in (("min", False), ("max", True)):
        choose = _relu(_compare_low("s32", largest))
        yield Scalar(f"{name}.relu.s32", ("s32",), ("s32",) * 2, choose, targets=SINCE[90])
    yield Scalar("neg.s8x4", ("s8x4",), ("s8x4",), pairs(np.negative, CONTAINERS["s8"]), targets=BYTES_IN_WORDS)


def _logic() -> Iterator[Scalar]:
    for name, way in (("and", np.bitwise_and), ("or", np.bitwise_or), ("xor", np.bitwise_xor)):
        for type in ("pred", *_BITS):
            yield Scalar(f"{name}.{type}", (type,), (type,) * 2, way)
    for type in ("pred", *_BITS):
        yield Scalar(f"not.{type}", (type,), (type,), np.invert)
    for type in _BITS:
        yield Scalar(f"cnot.{type}", (type,), (type,), lambda a: (a == 0).astype(a.dtype))
        yield Scalar(f"shl.{type}", (type,), (type, "u32"), _shift(type, True))
    for type in (*_BITS, *_INTEGERS):
        yield Scalar(f"shr.{type}", (type,), (type, "u32"), _shift(type, False))
    for name, (side, mode) in spellings("shf", ("l", "r"), ("wrap", "clamp")):
        yield Scalar(f"{name}.b32", ("b32",), ("b32", "b32", "u32"), _funnel(side == "l", mode == "wrap"))
    for type in _WORDS:
        yield Scalar(f"bfe.{type}", (type,), (type, "u32", "u32"), _extract(type))
        yield Scalar(f"bfind.{type}", ("u32",), (type,), _find_highest(type, False))
        yield Scalar(f"bfind.shiftamt.{type}", ("u32",), (type,), _find_highest(type, True))
    for type in ("b32", "b64"):
        bits = _width(type)
        yield Scalar(f"bfi.{type}", (type,), (type, type, "u32", "u32"), _insert(type))
        yield Scalar(f"brev.{type}", (type,), (type,), _reverse(bits))
        yield Scalar(f"popc.{type}", ("u32",), (type,), lambda a: np.bitwise_count(a).astype(np.uint32))
        yield Scalar(
            f"clz.{type}", ("u32",), (type,), lambda a, n=bits: (np.uint32(n) - bit_length(a)).astype(np.uint32)
        )
    yield Scalar("lop3.b32", ("b32",), ("b32",) * 4, logic3, immediates=(3,))
    for name, combine in (("and", np.logical_and), ("or", np.logical_or)):
        own = logic3_with(combine)
        yield Scalar(f"lop3.{name}.b32|", ("b32", "pred"), (*("b32",) * 4, "pred"), own, immediates=(3,))
    for mode in ("clamp", "wrap"):
        for type in ("u32", "s32"):
            yield Scalar(f"szext.{mode}.{type}", (type,), (type, "u32"), _extend(type == "s32", mode == "wrap"))
        yield Scalar(f"bmsk.{mode}.b32", ("b32",), ("u32", "u32"), _mask(mode == "wrap"))
    yield Scalar("fns.b32", ("b32",), ("b32", "u32", "s32"), find_nth_set)
    yield Scalar("prmt.b32", ("b32",), ("b32",) * 3, permute)
    for mode in _PERMUTATIONS:
        yield Scalar(f"prmt.b32.{mode}", ("b32",), ("b32",) * 3, _permute_mode(mode))


_COMPARISONS: dict[str, Any] = {
    "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal,
    "lo": np.less, "ls": np.less_equal, "hi": np.greater, "hs": np.greater_equal,
}  # fmt: skip


def comparisons() -> Iterator[tuple[str, str, Compute]]:
    """(comparison, type, function of two codes) of integers."""
    for type in (*_BITS, *_INTEGERS):
        for name, way in _COMPARISONS.items():
            if type[0] == "b" and name not in ("eq", "ne"):
                continue
            if name in ("lo", "ls", "hi", "hs") and type[0] != "u":
                continue
            yield name, type, lambda a, b, w=way, t=type: w(_of(t, a), _of(t, b))


def table() -> Iterator[Scalar]:
    """Every spelling."""
    yield from _arithmetic()
    yield from _logic()
