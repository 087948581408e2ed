"""setp and set."""

from __future__ import annotations

from collections.abc import Sequence

from tests.exact.scalar_floats import flushed, is_nan, one, order_key
from tests.exact.scalar_words import FLOATS, WAYS, Spelling, bits_of, whole


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
