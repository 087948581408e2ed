"""CuTe's layout algebra one coordinate at a time: what the functions are, and whether a layout is the one asked for.

A layout is taken apart into the list of its indices, coordinate by coordinate. Nothing is simplified, sorted or divided:
the algebra is compared with lists and sets. Nothing here is fast.
"""

from __future__ import annotations

from itertools import product

from tcsim.layouts.layout import IntTuple, Layout


def coordinates(shape: IntTuple) -> list[IntTuple]:
    """All coordinates of a shape, nested like it, the first part fastest."""
    if isinstance(shape, int):
        return list(range(shape))
    backwards = product(*(coordinates(part) for part in reversed(shape)))
    return [tuple(reversed(coordinate)) for coordinate in backwards]


def index_at(coordinate: IntTuple, stride: IntTuple) -> int:
    """The index at a nested coordinate."""
    if isinstance(coordinate, int):
        assert isinstance(stride, int)
        return coordinate * stride
    assert isinstance(stride, tuple)
    return sum(index_at(*pair) for pair in zip(coordinate, stride, strict=True))


def indices(layout: Layout) -> list[int]:
    """The index of every coordinate in order: the layout as a function."""
    return [index_at(coordinate, layout.stride) for coordinate in coordinates(layout.shape)]


def composed(outer: Layout, inner: Layout) -> list[int] | None:
    """outer(inner(i)) for all i; None where inner leaves the coordinates of outer."""
    table = indices(outer)
    wanted = indices(inner)
    return [table[i] for i in wanted] if max(wanted) < len(table) else None


def is_a_layout(values: list[int], extent: int) -> bool:
    """Whether `extent` values, as one mode, are the function of some layout: tried for every order of factors."""
    if extent == 1:
        return values[0] == 0

    def continues(done: int) -> bool:
        if done == extent:
            return True
        for factor in range(2, extent // done + 1):
            step = values[done]
            grown = [values[i] + digit * step for digit in range(factor) for i in range(done)]
            if extent % (done * factor) == 0 and grown == values[: done * factor] and continues(done * factor):
                return True
        return False

    return values[0] == 0 and continues(1)


def is_compatible(finer: IntTuple, coarser: IntTuple) -> bool:
    """Whether a coordinate of `coarser` is one of `finer` too: finer splits only the integers of coarser."""
    if isinstance(coarser, int):
        return len(coordinates(finer)) == coarser
    return (
        isinstance(finer, tuple)
        and len(finer) == len(coarser)
        and all(is_compatible(*pair) for pair in zip(finer, coarser, strict=True))
    )


def sums(first: Layout, second: Layout) -> list[int]:
    """Every index of `first` plus every index of `second`, the first faster."""
    return [a + b for b in indices(second) for a in indices(first)]


def ordered_complement(layout: Layout, size: int) -> list[int] | None:
    """The smallest offsets at which copies of the set of indices fill 0, ..., size - 1, no index twice; None: they cannot.

    Found greedily: the smallest index that is not filled yet is where the next copy begins, until the first `size`
    are filled and none beyond a gap.
    """
    tile = set(indices(layout))
    filled: set[int] = set()
    offsets: list[int] = []
    gap = 0
    while gap < size or len(filled) != gap:
        copy = {gap + i for i in tile}
        if filled & copy:
            return None
        filled |= copy
        offsets.append(gap)
        while gap in filled:
            gap += 1
    return offsets
