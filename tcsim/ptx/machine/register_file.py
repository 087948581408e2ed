"""The registers of a block: those of one width are rows of one matrix, so that many are read or written at once."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from typing import Any

import numpy as np

from tcsim.engines.contract import Registers as Held
from tcsim.ptx.machine.arrays import Array

Numbers = Array
"""Registers by number, int64 (...)."""


class Registers(list[Array]):
    """The arrays of all registers, by number; each stays where it is."""

    @cached_property
    def addresses(self) -> Array:
        """Where they lie, uint64."""
        return np.array([own.__array_interface__["data"][0] for own in self], np.uint64)

    @cached_property
    def table(self) -> int:
        """Where these addresses lie, for compiled code."""
        found: int = self.addresses.ctypes.data
        return found


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
        self.arrays = Registers(matrix[own] for matrix, own in zip(self.matrix, row, strict=True))

    def gather(self, numbers: Numbers, threads: Array | None) -> Array:
        """The registers (..., threads, n) of numbers (..., n) of one width, of some threads or all."""
        matrix = self.matrix[int(numbers.flat[0])]
        found = matrix[self.row[numbers]] if threads is None else matrix[self.row[numbers][..., None], threads]
        return np.ascontiguousarray(found.swapaxes(-1, -2))

    def held(self, numbers: Numbers) -> Held | None:
        """The registers (instructions, n) of one width where they lie; None for sinks, and for those that are not words."""
        matrix = self.matrix[int(numbers.flat[0])]
        return Held(matrix, self.row[numbers]) if matrix.dtype == np.uint32 and (numbers >= 0).all() else None

    def scatter(self, numbers: Numbers, threads: Array | None, values: Array) -> None:
        """Put values (..., threads, n) into registers (..., n) of one width; negative numbers get nothing."""
        if (numbers < 0).any():
            kept = numbers >= 0
            if not kept.any():
                return
            numbers, values = numbers[kept], values[..., kept]
        matrix = self.matrix[int(numbers.flat[0])]
        flipped = values.swapaxes(-1, -2).astype(matrix.dtype, copy=False)
        if threads is None:
            matrix[self.row[numbers]] = flipped
        else:
            matrix[self.row[numbers][..., None], threads] = flipped
