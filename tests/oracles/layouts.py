"""Where tcsim says the elements of a fragment are, in the terms in which others say it."""

from __future__ import annotations

import ast
from typing import Any

import numpy as np
import numpy.typing as npt

from tcsim.layouts.layout import FragmentLayout

Ints = npt.NDArray[np.int64]


def values_of(layout: FragmentLayout) -> tuple[Ints, Ints]:
    """(row, column) of every (lane, value), values in register order: through the public call of the layout."""
    bits = np.arange(layout.registers * 32 // layout.element_bits) * layout.element_bits
    lane, register, slot = (
        np.arange(layout.lanes)[:, None],
        bits[None, :] // 32,
        bits[None, :] % 32 // layout.element_bits,
    )
    row, column = layout(lane, register, slot if layout.element_bits < 32 else np.zeros_like(slot))
    return row, column


def leaves(x: Any) -> list[int]:
    """The numbers of a nested tuple in order."""
    return [x] if isinstance(x, int) else [leaf for item in x for leaf in leaves(item)]


def evaluate(text: str) -> Ints:
    """The index of every (thread, value) of a CuTe layout `(threads,values):(strides,strides)`."""
    shape, stride = (ast.literal_eval(part) for part in text.split(":"))

    def mode(sizes: Any, strides: Any) -> Ints:
        index = np.zeros(1, np.int64)
        for size, step in zip(leaves(sizes), leaves(strides), strict=True):  # the first leaf runs fastest
            index = (np.arange(size)[:, None] * step + index[None, :]).reshape(-1)
        return index

    threads, values = (mode(s, d) for s, d in zip(shape, stride, strict=True))
    return threads[:, None] + values[None, :]
