"""Where the elements of matrices lie in 32-bit words: of registers, or of arrays of codes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int32]


@dataclass(frozen=True, eq=False)
class Places:
    """The elements of a matrix, row by row."""

    word: Ints  # (rows, columns): which word of the matrix holds an element
    shift: Ints  # (rows, columns): how many bits of that word lie below it
    words: int  # that a matrix takes

    @cached_property
    def transposed(self) -> Places:
        """The places of the transposed matrix."""
        return Places(self.word.T, self.shift.T, self.words)

    @cached_property
    def table(self) -> Ints:
        """Word and shift of each element (rows * columns, 2)."""
        return np.ascontiguousarray(np.stack([self.word, self.shift], axis=-1).reshape(-1, 2))


def at_bits(bit: npt.NDArray[np.intp], words: int) -> Places:
    """Elements whose lowest bits (rows, columns) are so far from the lowest of the first of some words.

    >>> at_bits(np.array([[0, 16], [32, 48]]), words=2).shift.tolist()
    [[0, 16], [0, 16]]
    """
    return Places((bit // 32).astype(np.int32), (bit % 32).astype(np.int32), words)


@lru_cache(maxsize=1024)
def in_order(rows: int, columns: int, bits: int) -> Places:
    """The places in an array of codes of so many bits, whose rows follow one another.

    Pre-conditions:
        rows * columns * bits % 32 == 0
    """
    bit = np.arange(rows * columns).reshape(rows, columns) * bits
    return at_bits(bit, rows * columns * bits // 32)
