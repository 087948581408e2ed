"""Random samples that are the same in every run: an answer does not depend on chance."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

T = TypeVar("T", bound=np.generic)


def repeatable() -> np.random.Generator:
    """Random numbers, the same ones each time.

    >>> int(repeatable().integers(1 << 30)) == int(repeatable().integers(1 << 30))
    True
    """
    return np.random.default_rng(0)


def some_of(rows: npt.NDArray[T], most: int) -> npt.NDArray[T]:
    """Some rows of an array, at most `most`, in random order.

    >>> sorted(some_of(np.arange(3), 8).tolist()), len(some_of(np.arange(9), 4))
    ([0, 1, 2], 4)
    """
    found: npt.NDArray[Any] = rows[_order(len(rows), most)]
    return found


@lru_cache(64)
def _order(count: int, most: int) -> npt.NDArray[np.int64]:
    """The first places of a random order."""
    found = repeatable().permutation(count)[:most].copy()
    found.setflags(write=False)
    return found
