"""Where hardware and model disagree about a word that was moved, and what to print of it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from conformance.comparison.moved import LIMIT, MoveMismatch, require_same_shape
from conformance.slice import Array, Comparison

Explain = Callable[[tuple[int, ...]], tuple[str, str, tuple[str, ...]]]
"""Index of a word -> (where it is, what should have come there, how the model came to it)."""


def compare_words(hardware: Array, model: Array, explain: Explain) -> Comparison:
    """All words of two results.

    Raises ValueError if the shapes differ.
    """
    require_same_shape(hardware, model)
    got, want = (np.asarray(array, np.uint32) for array in (hardware, model))
    different = np.argwhere(got != want)
    first = []
    for place in different[:LIMIT]:
        index = tuple(int(i) for i in place)
        where, source, steps = explain(index)
        first.append(MoveMismatch(where, source, f"{int(got[index]):#010x}", f"{int(want[index]):#010x}", steps))
    return Comparison(got.size, len(different), tuple(first))
