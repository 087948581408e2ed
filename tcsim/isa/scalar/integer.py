"""Integer arithmetic of PTX.

Sources: PTX ISA, sections Integer Arithmetic Instructions, Extended-Precision Integer Arithmetic Instructions. Division by zero is not defined there.
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
    unsigned,
)
from tcsim.lowering.traced import contiguous

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


def _multiply_add_words(type: str) -> Compute:
    """madc.hi of 16 bits: ptxas multiplies registers of 32 bits, so that of the product only its sign is added (measured on an H200)."""

    def compute(a: Array, b: Array, c: Array, carry: Array) -> Array:
        sign = (_wide(type, a) * _wide(type, b) >> 32).astype(a.dtype)
        return sign + c + carry.astype(a.dtype)

    return compute


def _without_carry(compute: Compute) -> Compute:
    return lambda *operands: compute(*operands)[0]


def _dot4(a_type: str, b_type: str) -> Compute:
    def compute(a: Array, b: Array, c: Array) -> Array:
        a, b, c = np.broadcast_arrays(a, b, c)
        x, y = (
            contiguous(v).view(np.int8 if t[0] == "s" else np.uint8).reshape(*v.shape, 4).astype(np.int64)
            for v, t in ((a, a_type), (b, b_type))
        )
        return (signed(c).astype(np.int64) + (x * y).sum(-1)).astype(np.uint64).astype(np.uint32)

    return compute


def _dot2(a_type: str, b_type: str, half: str) -> Compute:
    """dp2a: two 16-bit numbers of a times the two low or high bytes of b, plus c."""

    def compute(a: Array, b: Array, c: Array) -> Array:
        a, b, c = (contiguous(code) for code in np.broadcast_arrays(a, b, c))
        x = a.view(np.int16 if a_type[0] == "s" else np.uint16).reshape(*a.shape, 2)
        y = b.view(np.int8 if b_type[0] == "s" else np.uint8).reshape(*b.shape, 4)
        y = y[..., :2] if half == "lo" else y[..., 2:]
        return (signed(c).astype(np.int64) + (x.astype(np.int64) * y).sum(-1)).astype(np.uint64).astype(np.uint32)

    return compute


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
        yield Scalar(f"div.{type}", (type,), (type,) * 2, _divide(type, False), subroutine=type != "u32")
        yield Scalar(f"rem.{type}", (type,), (type,) * 2, _divide(type, True), subroutine=type != "u32")
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
        yield Scalar(
            f"madc.lo.{type}", (type,), (type,) * 3, _without_carry(_mad_carry(type, "lo", True)), reads_carry=True
        )
        yield Scalar(f"madc.hi.{type}", (type,), (type,) * 3, _multiply_add_words(type), reads_carry=True)
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
