"""Arrays with an entry for each thread of a block, and numbers of threads, warps and blocks in arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Mask = Any  # True for all threads, or a bool array with an entry for each

LANES = 32
TYPED: dict[int, Any] = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}
"""Unsigned integers by their bytes."""


_MANY, _SMALL = 64, 1 << 16
"""Numbers, and how small they have to be, that are told apart by counting."""


def each_once(values: Array) -> list[int]:
    """Numbers, each once, ascending: most often they are all the same.

    >>> each_once(np.array([3, 3])), each_once(np.array([5, 3, 5])), each_once(np.array([], np.int64))
    ([3], [3, 5], [])
    """
    if len(values) and not np.count_nonzero(values != values[0]):
        return [int(values[0])]
    if len(values) > _MANY and values.min() >= 0 and values.max() < _SMALL:
        return [int(own) for own in distinct(values.astype(np.int64))]
    return sorted(set(values.tolist()))


def distinct(values: Array) -> Array:
    """Each of some small numbers once, ascending: of warps, blocks and the like, where sorting takes too long.

    >>> distinct(np.array([3, 1, 3])).tolist()
    [1, 3]
    """
    found: Array = np.flatnonzero(np.bincount(values))
    return found
