"""Random words that are the same on every machine: a Philox generator, whose stream NumPy guarantees not to change."""

from __future__ import annotations

import hashlib
import math
from typing import Any

import numpy as np
import numpy.typing as npt

_HIGH, _LOW = np.uint64(33), np.uint64(31)


class Stream:
    """Deterministic random words for one case."""

    def __init__(self, *key: object) -> None:
        digest = hashlib.sha256("/".join(str(part) for part in key).encode()).digest()
        self._generator = np.random.Philox(key=int.from_bytes(digest[:16], "little"))

    def words(self, shape: tuple[int, ...]) -> npt.NDArray[np.uint64]:
        """Uniform 64-bit words."""
        return self._generator.random_raw(math.prod(shape)).reshape(shape)

    def below(self, limit: int, shape: tuple[int, ...]) -> npt.NDArray[np.int64]:
        """Integers in [0, limit): the high bits of words, limit at most 2**31."""
        if shape == ():
            return np.int64((self._generator.random_raw() >> 33) * limit >> 31)  # type: ignore[return-value]
        words = self.words(shape)
        words >>= _HIGH
        words *= np.uint64(limit)
        words >>= _LOW
        return words.view(np.int64)

    def between(self, low: int, high: int, shape: tuple[int, ...]) -> npt.NDArray[np.int64]:
        """Integers in [low, high]."""
        found = self.below(high - low + 1, shape)
        found += low
        return found

    def chance(self, numerator: int, denominator: int, shape: tuple[int, ...]) -> npt.NDArray[np.bool_]:
        """True with the given odds."""
        return self.below(denominator, shape) < numerator

    def choice(self, values: npt.ArrayLike, shape: tuple[int, ...]) -> npt.NDArray[Any]:
        """Elements of a table."""
        table = np.asarray(values)
        return table[self.below(len(table), shape)]
