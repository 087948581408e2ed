"""The registers of a block: those of one width are rows of one matrix, so that many are read or written at once."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np

from tcsim.engines.contract import Lanes
from tcsim.engines.contract import Registers as Held
from tcsim.ptx.machine.arrays import LANES, Array

Numbers = Array
"""Registers by number, int64 (...)."""


_PIECE = 1 << 15
"""Registers that are turned at once: they stay in the cache."""


def _parts(threads: Array | None, count: int, registers: int) -> list[tuple[slice, slice]]:
    """Many threads as ranges: of all, and of those that are asked for; none where they are few, or far apart."""
    asked = count if threads is None else len(threads)
    if asked * registers < _PIECE:
        return []
    ends = np.array([0, asked]) if threads is None else np.flatnonzero(np.diff(threads, prepend=-2, append=-2) != 1)
    if len(ends) * LANES > asked:
        return []
    step, found = max(_PIECE // registers, 1), []
    for first, last in pairwise(ends.tolist()):
        start = first if threads is None else int(threads[first])
        for at in range(first, last, step):
            stop = min(at + step, last)
            found.append((slice(start + at - first, start + stop - first), slice(at, stop)))
    return found


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
        if numbers.ndim == 1 and (parts := _parts(threads, matrix.shape[1], len(numbers))):
            found = np.empty((parts[-1][1].stop, len(numbers)), matrix.dtype)
            for there, here in parts:
                found[here] = matrix[self.row[numbers], there].T
            return found
        found = matrix[self.row[numbers]] if threads is None else matrix[self.row[numbers][..., None], threads]
        return np.ascontiguousarray(found.swapaxes(-1, -2))

    def held(self, numbers: Numbers) -> Held | None:
        """The registers (instructions, n) of one width where they lie; None for sinks, and for those that are not words."""
        matrix = self.matrix[int(numbers.flat[0])]
        return Held(matrix, self.row[numbers]) if matrix.dtype == np.uint32 and (numbers >= 0).all() else None

    def lanes(self, numbers: Numbers, threads: Array, lanes: int) -> Lanes | None:
        """Registers (n,) of one width where they lie, for threads in groups of `lanes`; None where `held` has none, or the lanes of a group do not follow one another."""
        matrix, groups = self.matrix[int(numbers.flat[0])], threads.reshape(-1, lanes)
        if matrix.dtype != np.uint32 or (numbers < 0).any() or (groups[:, -1] - groups[:, 0] != lanes - 1).any():
            return None
        return Lanes(matrix, self.row[numbers], groups[:, 0], lanes)

    def scatter(self, numbers: Numbers, threads: Array | None, values: Array) -> None:
        """Put values (..., threads, n) into registers (..., n) of one width; negative numbers get nothing."""
        if (numbers < 0).any():
            kept = numbers >= 0
            if not kept.any():
                return
            numbers, values = numbers[kept], values[..., kept]
        matrix = self.matrix[int(numbers.flat[0])]
        if numbers.ndim == 1 and (parts := _parts(threads, matrix.shape[1], len(numbers))):
            for there, here in parts:
                matrix[self.row[numbers], there] = values[here].T
            return
        flipped = values.swapaxes(-1, -2).astype(matrix.dtype, copy=False)
        if threads is None:
            matrix[self.row[numbers]] = flipped
        else:
            matrix[self.row[numbers][..., None], threads] = flipped
