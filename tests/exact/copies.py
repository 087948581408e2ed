"""A slow model of asynchronous copies, byte by byte, and of reductions with exact fractions: from the PTX manual alone."""

from __future__ import annotations

from tests.exact import numbers

UNDEFINED = None
"""A byte that the manual leaves undefined."""
QUIET_NAN = {"f16": 0x7FFF, "bf16": 0x7FFF, "f32": 0x7FFFFFFF, "f64": 0xFFF8000000000000}
"""The NaN that a sum or a minimum gives, but for sums of f64 with a NaN: that of `add` and `min` (docs/numerics.md, section 1.7)."""


def copy(memory: list[int], smem: list[int], source: int, destination: int, size: int, read: int) -> None:
    """cp.async: `read` bytes, then zeros up to `size`, into smem."""
    for place in range(size):
        smem[destination + place] = memory[source + place] if place < read else 0


def bulk(
    read: list[int],
    written: list[int | None],
    source: int,
    destination: int,
    size: int,
    mask: int = 0xFFFF,
    left: int = 0,
    right: int = 0,
) -> None:
    """cp.async.bulk: the bytes whose bit of the mask is set, but for those that are ignored."""
    for place in range(size):
        if place < left or place >= size - right:
            written[destination + place] = UNDEFINED
        elif mask >> place % 16 & 1:
            written[destination + place] = read[source + place]


def element(operation: str, type: str, old: int, new: int) -> int:
    """One element of a reduction: codes in, code out."""
    bits = int(type.lstrip("subf"))
    if type in ("f16", "bf16", "f32", "f64"):
        return float_element(operation, type, old, new)
    if type[0] == "s":
        old, new = (number - (1 << bits) if number >> (bits - 1) else number for number in (old, new))
    result = {
        "add": lambda: old + new,
        "min": lambda: old if old < new else new,
        "max": lambda: old if old > new else new,
        "inc": lambda: 0 if old >= new else old + 1,
        "dec": lambda: new if old == 0 or old > new else old - 1,
        "and": lambda: old & new,
        "or": lambda: old | new,
        "xor": lambda: old ^ new,
    }[operation]()
    return result % (1 << bits)


def float_element(operation: str, type: str, old: int, new: int) -> int:
    """One float: an exact sum rounded once to nearest even, or the smaller or greater number, -0 below +0."""
    a, b = (numbers.decode(code, type) for code in (old, new))
    nan = QUIET_NAN[type]
    if operation == "add":
        if type == "f64" and "nan" in (a.kind, b.kind):  # on an H200 the source's NaN stays, else the one in memory
            return new if b.kind == "nan" else old
        if "nan" in (a.kind, b.kind):
            return nan
        if a.kind == "infinity" or b.kind == "infinity":
            if a.kind == b.kind and a.sign != b.sign:
                return nan
            return old if a.kind == "infinity" else new
        total = a.value + b.value
        minus = int(a.sign == 1 and b.sign == 1)  # of a sum that is zero
        return numbers.encode(total, minus, type, "rne")
    if a.kind == "nan":
        return nan if b.kind == "nan" else new
    if b.kind == "nan":
        return old
    smaller = old if _below(a, b) else new
    greater = new if _below(a, b) else old
    return smaller if operation == "min" else greater


def _below(a: numbers.Number, b: numbers.Number) -> bool:
    """Whether a is not above b; minus zero is below plus zero."""
    if a.kind == "infinity" or b.kind == "infinity":
        order = [(-2 if n.sign else 2) if n.kind == "infinity" else 0 for n in (a, b)]
        return order[0] <= order[1]
    if a.value == b.value:
        return a.sign >= b.sign
    return a.value < b.value
