"""The registers of a block: those of one width are rows of one matrix, so that many are read or written at once."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from tcsim.ptx.machine.arrays import Array

Numbers = Array
"""Registers by number, int64 (...)."""


class RegisterFile:
    """The registers of all threads.

    >>> file = RegisterFile([np.dtype(np.uint32), np.dtype(bool), np.dtype(np.uint32)], 32)
    >>> file.scatter(np.array([0, 2]), None, np.ones((32, 2), np.uint32))
    >>> file.arrays[2][:3].tolist(), file.gather(np.array([2, 0]), np.array([5])).tolist()
    ([1, 1, 1], [[1, 1]])
    """

    def __init__(self, containers: Iterable[np.dtype[Any]], threads: int) -> None:
        kinds = list(containers)
        totals: dict[np.dtype[Any], int] = {}
        row = []
        for kind in kinds:
            row.append(totals.get(kind, 0))
            totals[kind] = row[-1] + 1
        matrices = {kind: np.zeros((total, threads), kind) for kind, total in totals.items()}
        self.row = np.array(row, np.int64)
        self.matrix: list[Array] = [matrices[kind] for kind in kinds]  # of each register
        self.arrays: list[Array] = [matrix[own] for matrix, own in zip(self.matrix, row, strict=True)]

    def gather(self, numbers: Numbers, threads: Array | None) -> Array:
        """The registers (..., threads, n) of numbers (..., n) of one width, of some threads or all."""
        matrix = self.matrix[int(numbers.flat[0])]
        span = _span(threads)
        found = matrix[self.row[numbers][..., None], threads] if span is None else matrix[self.row[numbers], span]
        return np.ascontiguousarray(found.swapaxes(-1, -2))

    def scatter(self, numbers: Numbers, threads: Array | None, values: Array) -> None:
        """Put values (..., threads, n) into registers (..., n) of one width; negative numbers get nothing."""
        if (numbers < 0).any():
            kept = numbers >= 0
            if not kept.any():
                return
            numbers, values = numbers[kept], values[..., kept]
        matrix = self.matrix[int(numbers.flat[0])]
        flipped = values.swapaxes(-1, -2).astype(matrix.dtype, copy=False)
        span = _span(threads)
        if span is None:
            matrix[self.row[numbers][..., None], threads] = flipped
        else:
            matrix[self.row[numbers], span] = flipped


def _span(threads: Array | None) -> slice | None:
    """All threads, or some that follow one another, as a slice: registers are then copied in runs; None of others.

    >>> _span(np.array([4, 5, 6])), _span(np.array([4, 6, 5])), _span(np.array([4, 6]))
    (slice(4, 7, None), None, None)
    """
    if threads is None:
        return slice(None)
    if not len(threads) or threads[-1] - threads[0] + 1 != len(threads) or (threads[1:] <= threads[:-1]).any():
        return None
    return slice(int(threads[0]), int(threads[-1]) + 1)
