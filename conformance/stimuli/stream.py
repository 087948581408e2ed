"""Random words that are the same on every machine: a Philox generator, whose stream NumPy guarantees not to change."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import numpy.typing as npt


class Stream:
    """Deterministic random words for one case."""

    def __init__(self, *key: object) -> None:
        digest = hashlib.sha256("/".join(str(part) for part in key).encode()).digest()
        self._generator = np.random.Philox(key=int.from_bytes(digest[:16], "little"))

    def words(self, shape: tuple[int, ...]) -> npt.NDArray[np.uint64]:
        """Uniform 64-bit words."""
        return self._generator.random_raw(int(np.prod(shape))).reshape(shape)

    def below(self, limit: int, shape: tuple[int, ...]) -> npt.NDArray[np.int64]:
        """Integers in [0, limit): the high bits of words, limit at most 2**31."""
        return (((self.words(shape) >> np.uint64(33)) * np.uint64(limit)) >> np.uint64(31)).astype(np.int64)

    def between(self, low: int, high: int, shape: tuple[int, ...]) -> npt.NDArray[np.int64]:
        """Integers in [low, high]."""
        return self.below(high - low + 1, shape) + low

    def chance(self, numerator: int, denominator: int, shape: tuple[int, ...]) -> npt.NDArray[np.bool_]:
        """True with the given odds."""
        return self.below(denominator, shape) < numerator

    def choice(self, values: npt.ArrayLike, shape: tuple[int, ...]) -> npt.NDArray[Any]:
        """Elements of a table."""
        table = np.asarray(values)
        return table[self.below(len(table), shape)]
