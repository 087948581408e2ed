"""Instructions of PTX on bits: logic, shifts, fields, permutations, counts.

Sources: PTX ISA, sections Logic and Shift Instructions, Integer Arithmetic Instructions (bfe to bmsk), prmt.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tcsim.isa.scalar.table import Array, Compute, Scalar, signed, spellings, unsigned
from tcsim.lowering.traced import entries

_INTEGERS = ("u16", "u32", "u64", "s16", "s32", "s64")
_WORDS = ("u32", "s32", "u64", "s64")
_BITS = ("b16", "b32", "b64")


def _width(type: str) -> int:
    return int(type[1:])


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
    found = np.zeros(np.broadcast_shapes(*map(np.shape, (a, b, c))), np.uint32)
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
    found = np.zeros(np.broadcast_shapes(*map(np.shape, (a, b, c))), np.uint32)
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
    return lambda a, b, c: permute(a, b, entries(selectors, c & np.uint32(3)))


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
    """fns: the place of the |offset|th set bit from `base` upwards or, of a negative offset, downwards; all ones if there is none.

    ptxas makes a search of it that finds nothing from a base beyond 31, and gives 0 for the lowest offset (measured on an H200).
    """
    mask, base, offset = np.broadcast_arrays(mask, base, signed(offset))
    places = np.arange(32, dtype=np.int64)
    from_base = (places - base.astype(np.int64)[..., None]) * np.where(offset < 0, -1, 1)[..., None]
    taken = (
        (mask[..., None] >> places.astype(np.uint32) & np.uint32(1) != 0) & (from_base >= 0) & (base < 32)[..., None]
    )
    order = np.where(offset[..., None] < 0, taken[..., ::-1].cumsum(-1)[..., ::-1], taken.cumsum(-1))
    wanted = np.abs(offset.astype(np.int64))[..., None]
    found = np.where(wanted == 0, taken & (from_base == 0), taken & (order == wanted))
    nothing = np.where(offset == np.iinfo(np.int32).min, 0, 0xFFFFFFFF)
    return np.where(found.any(-1), found.argmax(-1), nothing).astype(np.uint32)


def logic3_with(way: Compute) -> Compute:
    """lop3 with a predicate: the result, and whether it is not zero combined with another predicate."""

    def compute(a: Array, b: Array, c: Array, table: int, p: Array) -> tuple[Array, Array]:
        found = logic3(a, b, c, table)
        return found, way(found != 0, p)

    return compute


def table() -> Iterator[Scalar]:
    """Every spelling."""
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
