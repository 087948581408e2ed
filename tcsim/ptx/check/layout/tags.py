"""Origins of the elements in registers: of each half of 16 bits where it came from, and the shared memory that it was loaded from."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

import numpy as np

from tcsim.model.effects import Access
from tcsim.model.form import Form
from tcsim.ptx.check.layout.tiles import FILL
from tcsim.ptx.compile.carried import CONSTANT, UNKNOWN, Move
from tcsim.ptx.machine.arrays import LANES, Array

DIGIT = 7
"""Bits of a byte's number that the byte carries at a time: the eighth may be changed by a negation."""
CHECK = 50
"""In place of a digit: something else that follows from the number."""
LINE = 40
"""Bits of a place below the number of the instruction that loaded it."""
_PLANES = 3  # digits by which a byte that is moved is known again
MOST = 1 << DIGIT * _PLANES
"""Bytes that can be told apart so."""


class Tags:
    """The registers of one block that are followed."""

    def __init__(self, rows: Mapping[int, tuple[int, int]], threads: int) -> None:
        total = 2 + sum(count for _, count in rows.values())
        self._rows = rows
        self.origin = np.zeros((total, threads), np.int64)
        # 1 + shared address, with the instruction above; 0: not from there.
        self.place = np.zeros((total, threads), np.int64)
        self.origin[CONSTANT] = FILL

    def rows(self, numbers: Array) -> Array:
        """The rows of registers, the lowest half of each first."""
        found = list[int]()
        for number in numbers.tolist():
            first, count = self._rows.get(number, (UNKNOWN, 2))
            found += range(first, first + count) if first else [UNKNOWN] * count
        return np.array(found, np.int64)

    def put(self, rows: Array, threads: Array, origin: Array, place: Array | int = 0) -> None:
        """Origins (rows, threads) into registers; those that are not followed get nothing."""
        kept = rows > CONSTANT
        self.origin[rows[kept][:, None], threads] = np.broadcast_to(origin, (len(rows), len(threads)))[kept]
        self.place[rows[kept][:, None], threads] = np.broadcast_to(place, (len(rows), len(threads)))[kept]

    def clear(self, rows: Array, threads: Array) -> None:
        """Registers hold what was computed."""
        self.put(rows, threads, np.zeros(1, np.int64))

    def move(self, carry: Move, threads: Array, partners: Array, executing: Array) -> None:
        """What an ordinary instruction does. partners: whose registers each thread gets; of one that does not execute nothing is known."""
        source, to = carry.source[:, None], carry.to[:, None]
        there = executing[partners]
        origin = np.where(there, self.origin[source, partners], 0)
        place = np.where(there, self.place[source, partners], 0)
        more = np.where(origin > 0, carry.plus[:, None], 0)
        self.origin[to, threads], self.place[to, threads] = origin + more, place


def digits(numbers: Array, digit: int) -> Array:
    """A digit of numbers, as bytes."""
    if digit == CHECK:
        return np.where(numbers > 0, (numbers * 2654435761 >> 16) & (1 << DIGIT) - 1, 0).astype(np.uint8)
    return (numbers >> DIGIT * digit & (1 << DIGIT) - 1).astype(np.uint8)


def moved(count: int, move: Callable[[Array], list[Array]]) -> list[Array] | None:
    """Which of `count` bytes, from 1 on, each byte is that `move` makes of them, or 0; None if it does more than move them.

    >>> [own.tolist() for own in moved(4, lambda data: [data[::-1], data[:2] * 0])]
    [[4, 3, 2, 1], [0, 0]]
    """
    numbers = np.arange(1, count + 1)
    *parts, checks = (move(digits(numbers, digit)) for digit in (*range(_PLANES), CHECK))
    planes = ([own.astype(np.int64) << DIGIT * plane for own in part] for plane, part in enumerate(parts))
    found: list[Array] = [np.add.reduce(part) for part in zip(*planes, strict=True)]
    same = all((digits(own, CHECK) == check).all() for own, check in zip(found, checks, strict=True))
    return found if same else None


class _Bytes:
    """Memory of which every access gives the bytes that it is made with."""

    rank, warp = 0, np.zeros(1, np.int64)

    def __init__(self, data: Array | None = None) -> None:
        """None: zeros, of any number."""
        self._data = data

    def read(self, access: Access) -> Array:
        """The bytes."""
        shape = *access.address.shape, access.size
        return np.zeros(shape, np.uint8) if self._data is None else self._data.reshape(shape)

    def held(self, name: str) -> Array:
        """Nothing is in flight."""
        raise KeyError(name)


def _sources(count: int, move: Callable[[Array], Array]) -> Array | None:
    """As `moved`, of what makes one array."""
    found = moved(count, lambda data: [move(data)])
    return None if found is None else found[0]


@lru_cache(maxsize=256)
def loaded(model: Any, form: Form) -> Array | None:
    """Of ldmatrix: which byte of its rows, counted from 1 on, each byte of a lane's registers is (32, bytes)."""
    (rows,) = model.effects(form, {"address": np.zeros((1, LANES), np.int64)}, _Bytes()).reads
    count = rows.address.size * rows.size

    def load(data: Array) -> Array:
        found = model.effects(form, {"address": np.zeros((1, LANES), np.int64)}, _Bytes(data)).now.registers["d"]
        return _lane_bytes(found)

    return _sources(count, load)


@lru_cache(maxsize=64)
def turned(model: Any, form: Form) -> Array | None:
    """Of movmatrix: which byte of the registers of a warp, counted from 1 on, each byte of a lane's result is (32, bytes)."""

    def turn(data: Array) -> Array:
        return _lane_bytes(model.compute(form, {"a": data.view(np.uint32).reshape(1, LANES, -1)})["d"])

    return _sources(4 * LANES * model.operands["a"].registers, turn)


def _lane_bytes(registers: Array) -> Array:
    """The bytes of registers, lane by lane."""
    return np.ascontiguousarray(registers).view(np.uint8).reshape(LANES, -1)


@lru_cache(maxsize=256)
def stored(model: Any, form: Form, registers: int) -> Array | None:
    """Of stmatrix and tcgen05.st: which byte of the registers of a warp, counted from 1 on, each byte of its rows is (rows, size)."""

    def store(data: Array) -> Array:
        given = {"address": np.zeros((1, LANES), np.int64), "half_split_offset": np.asarray(model.row.shape[1])}
        given["registers"] = data.view(np.uint32).reshape(1, LANES, registers)
        effects = model.effects(form, given, _Bytes())
        writes = effects.now.writes or effects.pending[0].finish(effects.pending[0].fetch(_Bytes())).writes
        return writes[0].data.reshape(-1, writes[0].at.size)

    return _sources(4 * LANES * registers, store)


@lru_cache(maxsize=512)
def halves_of(layout: Any, transposed: bool) -> tuple[Array, Array, int] | None:
    """(lane, half) of the elements (rows, columns) of a fragment, and elements of a half: those of one half are one column.

    transposed: the fragment is K x N, and its columns are the rows. None for a layout of several matrices.
    """
    if layout.matrices > 1:
        return None
    bits = layout.element_bits
    each = max(1, 16 // bits)
    rows, columns = np.arange(layout.rows), np.arange(layout.columns)
    if transposed:
        row, column = np.meshgrid(rows[::each], columns)
    else:
        column, row = np.meshgrid(columns[::each], rows)
    lane, register, slot = layout.where(row, column)
    return np.asarray(lane), np.asarray(register) * 2 + np.asarray(slot) * bits // 16, each
