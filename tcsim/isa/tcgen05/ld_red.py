"""What `.red` of tcgen05.ld makes of the words of a lane: their smallest or largest.

Source: PTX ISA, section tcgen05.ld (`.abs`, `.NaN`), and for what it leaves open sections min and max: -0 is below +0,
a NaN loses against a number, subnormals stay, and of nothing but NaNs the result is the canonical NaN.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

Extreme = Literal["min", "max"]
Type = Literal["f32", "u32", "s32"]
CANONICAL_NAN = 0x7FFFFFFF
_INFINITY = 0x7F800000
_MAGNITUDE = 0x7FFFFFFF


@dataclass(frozen=True)
class Reduction:
    """A reduction over the last axis of words.

    >>> words = np.array([1.0, np.nan, -5.0], np.float32).view(np.uint32)
    >>> float(Reduction("max", "f32")(words).view(np.float32)), hex(Reduction("max", "f32", nan=True)(words))
    (1.0, '0x7fffffff')
    """

    operation: Extreme
    type: Type
    absolute: bool = False  # `.abs`: of the magnitudes, and so is the result
    nan: bool = False  # `.NaN`: one NaN makes the result the canonical NaN

    def __call__(self, words: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint32]:
        """Reduce uint32 (..., n) to (...)."""
        choose = np.min if self.operation == "min" else np.max
        if self.type == "u32":
            return np.asarray(choose(words, axis=-1), np.uint32)
        if self.type == "s32":
            return np.asarray(choose(words.view(np.int32), axis=-1)).astype(np.int32).view(np.uint32)
        magnitude = (words & np.uint32(_MAGNITUDE)).astype(np.int64)
        negative = (words >> np.uint32(31)).astype(bool) & (not self.absolute)
        order = np.where(negative, -1 - magnitude, magnitude)  # -0 is -1, +0 is 0
        number = magnitude <= _INFINITY
        worst = 1 << 32 if self.operation == "min" else -1 << 32
        best = choose(np.where(number, order, worst), axis=-1)
        bits = np.where(best < 0, (-1 - best) | 1 << 31, best)
        replaced = ~number.all(axis=-1) if self.nan else ~number.any(axis=-1)
        return np.where(replaced, CANONICAL_NAN, bits).astype(np.uint32)
