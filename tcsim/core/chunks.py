"""How much of a batch is computed at a time: what is made in between stays in the CPU's L2 cache."""

from __future__ import annotations

PRODUCTS = 1 << 17
"""Products computed at a time: their float64 terms take 1 MiB."""
ELEMENTS = 1 << 14
"""Elements converted at a time: each has several temporaries."""


def step(each: int = 1, most: int = PRODUCTS) -> int:
    """How many items of `each` products to take at a time: at least one.

    >>> step(16 * 8 * 16), step(1 << 20)
    (64, 1)
    """
    return max(1, most // each)


def chunks(count: int, each: int = 1, most: int = PRODUCTS) -> list[slice]:
    """Slices that cut `count` items of `each` products into runs of `step`.

    >>> chunks(5, 50_000)
    [slice(0, 2, None), slice(2, 4, None), slice(4, 6, None)]
    """
    size = step(each, most)
    return [slice(start, start + size) for start in range(0, count, size)]
