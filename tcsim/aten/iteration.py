"""How PyTorch's TensorIterator orders the dimensions of a reduction: reduced ones first, by stride, neighbours joined."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True)
class Iteration:
    """Dimensions from the innermost one on: sizes, the input's strides in elements, and how many of them are reduced."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    reduced: int
    offset: int  # elements from a 16-byte boundary to the first one

    @property
    def inputs(self) -> int:
        """Elements of one output."""
        return prod(self.shape[: self.reduced])

    @property
    def outputs(self) -> int:
        """How many outputs there are."""
        return prod(self.shape[self.reduced :])


@dataclass(frozen=True)
class Arranged:
    """A reduction's input: its iteration; its elements (outputs, inputs), each row in the order in which it is met; where each row starts; the result's shape."""

    iteration: Iteration
    rows: npt.NDArray[Any]
    starts: npt.NDArray[np.int64]
    shape: tuple[int, ...]


def ordered(shape: tuple[int, ...], strides: tuple[int, ...], axes: tuple[int, ...]) -> list[int]:
    """The dimensions from the innermost one on: reduced ones first, each kind by stride (the result's, then the input's)."""
    out = _strides_of_result(shape, axes)
    order = list(range(len(shape)))[::-1]

    def swap(a: int, b: int) -> int:
        if (out[a] == 0) != (out[b] == 0):
            return 1 if out[b] == 0 else -1
        for first, second in ((out[a], out[b]), (strides[a], strides[b])):
            if first == 0 or second == 0:
                continue
            if first != second:
                return -1 if first < second else 1
            if shape[a] > shape[b]:
                return 1
        return 0

    for i in range(1, len(order)):
        at = i
        for before in range(i - 1, -1, -1):
            comparison = swap(order[before], order[at])
            if comparison > 0:
                order[before], order[at] = order[at], order[before]
                at = before
            elif comparison < 0:
                break
    return order


def _strides_of_result(shape: tuple[int, ...], axes: tuple[int, ...]) -> list[int]:
    kept = [1 if d in axes else n for d, n in enumerate(shape)]
    return [0 if d in axes else prod(kept[d + 1 :]) for d in range(len(shape))]


def iteration(shape: tuple[int, ...], strides: tuple[int, ...], axes: tuple[int, ...], offset: int = 0) -> Iteration:
    """The order for an input of `shape` and `strides` (in elements), reduced over `axes` (none negative).

    >>> iteration((4, 5, 6), (30, 6, 1), (1, 2))
    Iteration(shape=(30, 4), strides=(1, 30), reduced=1, offset=0)
    """
    out = _strides_of_result(shape, axes)
    joined: list[tuple[int, int, int]] = []  # size, stride of the result, stride of the input
    for size, o, s in ((shape[d], out[d], strides[d]) for d in ordered(shape, strides, axes)):
        if joined and joined[-1][0] == 1:
            joined[-1] = (size, o, s)
        elif joined and (size == 1 or (joined[-1][0] * joined[-1][1] == o and joined[-1][0] * joined[-1][2] == s)):
            joined[-1] = (joined[-1][0] * size, *joined[-1][1:])
        else:
            joined.append((size, o, s))
    return Iteration(
        tuple(n for n, _, _ in joined), tuple(s for _, _, s in joined), sum(o == 0 for _, o, _ in joined), offset
    )


def arranged(x: npt.NDArray[Any], axes: tuple[int, ...], misaligned: int = 0) -> Arranged:
    """An array as a reduction over `axes` meets it."""
    strides = tuple(s // x.itemsize for s in x.strides)
    left = [d for d in range(x.ndim) if d not in axes]
    inner = [d for d in ordered(x.shape, strides, axes) if d in axes][::-1]
    shape = tuple(x.shape[d] for d in left)
    starts = np.zeros(shape, np.int64)
    for at, d in enumerate(left):
        starts += (np.arange(x.shape[d]) * strides[d]).reshape(-1, *(1,) * (len(left) - at - 1))
    rows = np.transpose(x, (*left, *inner)).reshape(prod(shape), prod(x.shape[d] for d in inner))
    return Arranged(iteration(x.shape, strides, axes, misaligned), rows, starts.reshape(-1) + misaligned, shape)
