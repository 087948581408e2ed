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
    itemsize: int
    offset: int  # elements from a 16-byte boundary to the first one

    @property
    def inputs(self) -> int:
        """Elements of one output."""
        return prod(self.shape[: self.reduced])

    @property
    def outputs(self) -> int:
        """How many outputs there are."""
        return prod(self.shape[self.reduced :])


def iteration(shape: tuple[int, ...], strides: tuple[int, ...], axes: tuple[int, ...], itemsize: int, offset: int = 0) -> Iteration:
    """The order for an input of `shape` and `strides` (in elements), reduced over `axes` (none negative).

    >>> iteration((4, 5, 6), (30, 6, 1), (1, 2), 4)
    Iteration(shape=(30, 4), strides=(1, 30), reduced=1, itemsize=4, offset=0)
    """
    kept = [1 if d in axes else n for d, n in enumerate(shape)]
    out = [0 if d in axes else prod(kept[d + 1 :]) for d in range(len(shape))]
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
    dims = [[shape[d], out[d], strides[d]] for d in order]
    joined: list[list[int]] = dims[:1]
    for size, o, s in dims[1:]:
        last = joined[-1]
        if 1 in (last[0], size) or (last[0] * last[1] == o and last[0] * last[2] == s):
            joined[-1] = [last[0] * size, o, s] if last[0] == 1 else [last[0] * size, last[1], last[2]]
        else:
            joined.append([size, o, s])
    sizes, outs, ins = zip(*joined, strict=True) if joined else ((), (), ())
    return Iteration(tuple(sizes), tuple(ins), sum(o == 0 for o in outs), itemsize, offset)


def arranged(x: npt.NDArray[Any], axes: tuple[int, ...]) -> tuple[Iteration, npt.NDArray[Any], tuple[int, ...]]:
    """The iteration of an array; its elements as (outputs, inputs), both in C order of the axes left and reduced; the shape of the result."""
    strides = tuple(s // x.itemsize for s in x.strides)
    it = iteration(x.shape, strides, axes, x.itemsize)
    left = tuple(d for d in range(x.ndim) if d not in axes)
    # the order in which one output's elements are met: reduced axes by stride, the innermost last
    inner = sorted(axes, key=lambda d: (-abs(strides[d]), d))
    shape = tuple(x.shape[d] for d in left)
    return it, np.transpose(x, (*left, *inner)).reshape(prod(shape), prod(x.shape[d] for d in inner)), shape
