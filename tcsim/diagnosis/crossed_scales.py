"""Scale factors whose line depends on the line of the other operand: the output's index goes into their address."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from tcsim.diagnosis.hypothesis import Operands, WrongKernel
from tcsim.diagnosis.reals import Ints, Reals
from tcsim.diagnosis.where import described

_MOST = 1 << 27  # products of factors of every pair of lines
_PERIODS = (2, 4, 8, 16, 32)
_LISTED = 8


def crossing(reals: Reals, matrix: int, lines: tuple[int, int], blocks: int) -> Iterator[WrongKernel]:
    """Factors of other lines: A's from rows further down, by a distance that depends on the column, or B's from columns further on, by one that depends on the row; or the same ones for all lines of the other operand."""
    if reals.factors is None or reals.bare is None or len(reals.a) > 1:
        return
    parts = [
        x[matrix, :size].reshape(size, by.shape[2], -1)[:, :blocks]
        for x, by, size in zip(reals.bare, reals.factors, lines, strict=True)
    ]
    by = [x[matrix, :size, :blocks] for x, size in zip(reals.factors, lines, strict=True)]
    inside = np.s_[matrix, : lines[0], : lines[1]]
    seen, reach = (reals.observed - reals.c)[inside], reals.reach[inside]
    for side, name in enumerate("ab") if max(lines) * lines[0] * lines[1] * blocks <= _MOST else ():
        own, size = np.arange(lines[side]), lines[side]
        further = (own[:, None] + own) % size
        found: list[int] = []
        common = np.ones((size, size), bool)
        for at in range(lines[1 - side]):
            sums = np.einsum("igk,gk->ig", parts[side], parts[1 - side][at]) * by[1 - side][at]
            wanted, far = (x[:, at] if name == "a" else x[at] for x in (seen, reach))
            fits = np.abs(sums @ by[side].T - wanted[:, None]) <= far[:, None]
            every = np.take_along_axis(fits, further, axis=1).all(axis=0)
            common &= fits
            found += [int(every.argmax())] if every.any() else []
            if len(found) <= at and not common.any(axis=1).all():
                break
        else:
            source = np.where(np.diag(common), own, common.argmax(axis=1))
            if common.any(axis=1).all() and (source != own).any():
                yield _elsewhere(name, source)
        if len(found) == lines[1 - side] and len(set(found)) > 1:
            yield _crossed(name, np.array(found), size)


def _elsewhere(name: str, source: Ints) -> WrongKernel:
    """Operand `name` with factors of other lines."""
    line, side = ("row", 0) if name == "a" else ("column", 1)

    def read(given: Operands) -> Operands:
        if given.scales is None:
            raise ValueError("no factors")
        by = [x.copy() for x in given.scales]
        by[side][:, : len(source)] = given.scales[side][:, source]
        return given._replace(scales=(by[0], by[1]))

    said = f"{line}s that take others' factors: {described(source, f'{line}s')}"
    advice = f"look at the index with which the factors of {name} are read: lanes, warps, tiles"
    return WrongKernel(((f"scale_{name} of another {line}", said, advice),), read)


def _crossed(name: str, further: Ints, count: int) -> WrongKernel:
    """Operand `name` with factors of other lines; further: how far on they are, for each line of the other operand."""
    steps, which = np.unique(further, return_inverse=True)
    line, other = ("row", "column") if name == "a" else ("column", "row")
    axis = 1 + "ab".index(name)

    def read(given: Operands) -> Operands:  # all lines again for every step
        if given.scales is None:
            raise ValueError("no factors")
        lines, by = given.a if name == "a" else given.b, list(given.scales)
        own = np.arange(lines.shape[1])
        there = [np.where(own < count, (own + step) % count, own) for step in steps]
        by[axis - 1] = np.concatenate([by[axis - 1][:, at] for at in there], axis=1)
        c = np.concatenate([given.c] * len(steps), axis=axis)
        tiled = given.reading(name, np.concatenate([lines] * len(steps), axis=1))
        return tiled._replace(c=c, scales=(by[0], by[1]))

    def store(computed: Any, right: Any) -> Any:
        i, j = np.indices(right.shape[1:])
        copies = np.zeros(max(right.shape[1:]), np.int64)
        copies[: len(which)] = which
        if name == "a":
            return computed[:, copies[j] * right.shape[1] + i, j]
        return computed[:, i, copies[i] * right.shape[2] + j]

    own, total = np.arange(len(further)), len(further)
    period = next(size for size in (*_PERIODS, total) if np.array_equal(further, further[own % min(size, total)]))
    listed = ", ".join(map(str, further[: min(period, _LISTED)])) + ", ..." * (period > _LISTED)
    said = f"for {other} 0, 1, ... of each {period} the factors of the {line} that is {listed} further on"
    advice = f"the {other} of the output goes into the address that the factors of {name} are read from"
    return WrongKernel(((f"scale_{name} of another {line}", said, advice),), read, store)
