"""What elements an operand of a product is, by where each came from, and whether they can be a matrix: pure functions of origins.

An origin is an address in global memory, FILL where something was filled in or is a constant, or 0 where it is not known. Nothing here
asks in which order rows or k are: a kernel may permute them, as long as it does so everywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import Any

import numpy as np

from tcsim.ptx.machine.arrays import Array

NEAR = 4096
"""Bytes within which a product's operand may have begun at the wrong place of its tile: further on lie other tiles."""
FILL = -1
"""The origin of bytes that a copy filled in, beyond the tensor, and of constants."""


@dataclass(frozen=True, eq=False)
class Mend:
    """What would have to be different in the instruction that reads an operand, and the elements that it would be then."""

    rule: str
    said: str  # "SBO 1024 instead of 64"
    make: Callable[[], Array | None]
    # What is the same whenever the instruction is executed: "16 bytes further on"; None: the words.
    how: Hashable = None
    # The same as data: fields of the descriptor (of start_address by how much it moves), "add" or "xor" of addresses, "trans".
    change: Mapping[str, Any] = field(default_factory=dict)

    @cached_property
    def found(self) -> Array:
        """Origins (rows, columns); none where there is no such operand."""
        own = self.make()
        return np.zeros((0, 0), np.int64) if own is None else own

    @property
    def key(self) -> Hashable:
        """What it is known again by."""
        return self.said if self.how is None else self.how


class Source:
    """Where an operand is read from, and how it would have to be read to be another one; the likeliest ways first."""

    def mends(self) -> Iterator[Mend]:
        """Other ways."""
        return iter(())

    def turned(self) -> Iterator[Mend]:
        """With rows and columns the other way round."""
        return iter(())

    def shifts(self, target: Array) -> Iterator[Mend]:
        """The same operand from elsewhere: where elements of some origins lie."""
        return iter(())

    def again(self, key: Hashable) -> Mend | None:
        """A mend that was found at another execution, by its key."""
        return None

    def through(self, descriptor: int) -> Array | None:
        """The origins that it would have through another descriptor."""
        return None


@dataclass(frozen=True)
class View:
    """One operand of a product, as rows of elements along k."""

    name: str  # "A"
    found: Array  # origins (rows, columns); a column is the elements of one piece of memory
    k: Array  # of each column the k of its first element; -1: of a sparse operand, where a column has no k of its own
    each: int  # elements of a column
    along: str  # "rows" if a column is several rows of one k, else "k"
    pitch: int  # bytes from a row of the tensor to the next, where they are known
    line: int  # the instruction that reads it, by number
    by: int  # the one that put it where it was read
    source: Source
    detail: Mapping[str, Any] = field(default_factory=dict)  # for a hazard
    begin: int = -1  # where it begins in shared memory, the start address of a descriptor; -1: it does not lie there
    should: int | None = None  # where it should have begun, if not there
    descriptor: int = 0  # through which it is read

    @property
    def lines(self) -> Array:
        """Lines of memory: rows, or of an operand that is MN-major steps of k."""
        return self.in_lines(self.found)

    def in_lines(self, found: Array) -> Array:
        """Other elements in the same lines."""
        return found if self.along == "k" else found.T

    def goes_with(self, other: View, found: Array | None = None) -> bool:
        """Whether it goes through k as the other operand does; found: its elements, if not these."""
        return paired(self, other, found) if self.name == "A" else paired(other, self, None, found)

    @property
    def unit(self) -> int:
        """Elements of k from one column to the next."""
        return int(self.k[1] - self.k[0]) if len(self.k) > 1 else 1

    def as_mended(self, found: Array) -> View:
        """The operand with other elements."""
        return replace(self, found=found)

    def element(self, row: int, column: int) -> str:
        """The name of the first element of a piece."""
        if self.along == "rows":
            return self.named(row * self.each, int(self.k[column]))
        return self.named(row, int(self.k[column]) if self.k[column] >= 0 else column * self.each)

    def named(self, row: int, k: int) -> str:
        """The name of an element: A is M x K, B is K x N."""
        return f"{self.name}[{row}, {k}]" if self.name != "B" else f"B[{k}, {row}]"


def irregular(view: View, other: View | None) -> str:
    """What is wrong with an operand that is not a matrix, or does not go with the other one."""
    found, begin = view.lines, view.element(0, 0)
    name = view.element if view.along == "k" else lambda line, run: view.element(run, line)
    for known, said in ((found == 0, "bytes that no copy wrote"), (found == FILL, "bytes that were filled in")):
        if known.any():
            return f"reads {name(*(int(own) for own in np.argwhere(known)[0]))} from {said}"
    bent = np.argwhere((found - found[:, :1]) != (found[:1] - found[0, 0]))
    if len(bent):
        row, run = (int(own) for own in bent[0])
        here, there = int(found[row, run] - found[row, 0]), int(found[0, run] - found[0, 0])
        ordered = np.sort(found, 1)
        same = ((ordered - ordered[:, :1]) == (ordered[:1] - ordered[0, 0])).all()
        swizzle = "as by a swizzle that is not the one with which they were written"
        why = f": pieces of its rows are exchanged, {swizzle}" if same else ""
        ways = f"from {name(row, 0)} to {name(row, run)} it is {here} bytes in global memory, and from {begin} to {name(0, run)} {there}"
        return f"reads elements that are not rows and columns of one matrix: {ways}{why}"
    if other is not None and not view.goes_with(other):
        one, its = (_bytes(np.diff(own.found[0]).tolist()) for own in (view, other))
        by = f"{view.name} goes on by {one} in global memory, and {other.name} by {its}"
        return f"does not take A and B through k together: from one k to the next {by}"
    rest = f", or it begins at another k than {other.name}" if other is not None else ""
    return f"reads elements that its sum does not need: rows of {view.name} begin in different columns of the tensor, or are there twice{rest}"


def _bytes(steps: list[int]) -> str:
    """Steps in words.

    >>> _bytes([2, 2, 2, 1266, 2])
    '2 or 1266 bytes'
    """
    return " or ".join(map(str, list(dict.fromkeys(steps))[:3])) + " bytes"


def is_matrix(found: Array, pitch: int) -> bool:
    """Whether the elements are rows and columns of something, in any order, each once; what lies beyond the tensor may be anything.

    One line may be there several times: rows beyond a matrix are often read from its last one, or its first.
    """
    if found.min() > 0:  # the same whatever the first element is: the tiles of a matrix are told once
        return _is_whole_matrix((found - found[0, 0]).tobytes(), found.shape, pitch)
    if not found.all():
        return False
    known = found > 0
    if not known.all():
        lines, runs = known.any(1), known.any(0)
        if not known[lines][:, runs].all():
            return True
        found = found[lines][:, runs]
    return _is_regular(found, pitch)


@lru_cache(64)
def _is_whole_matrix(steps: bytes, shape: tuple[int, ...], pitch: int) -> bool:
    """Whether elements that are all known are rows and columns; steps: from the first one to each, int64."""
    return _is_regular(np.frombuffer(steps, np.int64).reshape(shape), pitch)


def _is_regular(found: Array, pitch: int) -> bool:
    """Whether the way from one element to the next is the same in each line, and no element but those of one line is there twice."""
    straight = bool(((found - found[:, :1]) == (found[:1] - found[0, 0])).all())
    across = found[:, 0]
    if pitch and found.shape[1] > 1 and (found[0] % pitch == found[0, 0] % pitch).all():
        across = found[0]  # what threads have turned round: lines go along rows of the tensor
    columns = not pitch or bool((across % pitch == across[0] % pitch).all())
    if not straight or not columns:
        return False
    _, counts = np.unique(found[:, 0], return_counts=True)
    lines = found if not (counts > 1).any() else found[np.unique(found[:, 0], return_index=True)[1]]
    return int((counts > 1).sum()) <= 1 and len(np.unique(lines)) == lines.size


def step_of(found: Array, size: int, pitch: int) -> int:
    """The bytes from one line to the next, of a matrix whose lines are whole and follow one another; 0 if it is none.

    size: bytes from one element of a line to the next; 0: any.
    """
    if not (found > 0).all():
        return 0
    step = int(found[1, 0] - found[0, 0]) if len(found) > 1 else 0
    lines, runs = found.shape
    each = size or (int(found[0, 1] - found[0, 0]) if runs > 1 else 1)
    whole = found[0, 0] + np.arange(lines)[:, None] * step + np.arange(runs) * each
    apart = abs(step) >= runs * abs(each) or (not size and 0 < lines * abs(step) <= abs(each))
    whole_rows = not pitch or not step % pitch or (not size and not each % pitch)
    right = bool(each) and apart and whole_rows and bool((found == whole).all())
    return step if right else 0


def common_step(lines: Array) -> int:
    """The bytes from one line of a matrix to the next, if half of all lines follow so; else 0."""
    steps, counts = np.unique(abs(np.diff(lines[:, 0])), return_counts=True)
    most = int(np.argmax(counts)) if len(counts) else 0
    return int(steps[most]) if len(lines) > 3 and 2 * counts[most] >= len(lines) and (lines > 0).all() else 0


def pitch_of(address: Array) -> int:
    """The bytes from one row to the next, of accesses that are rows of a tensor; 0 if they are not."""
    steps: Array = np.diff(address.astype(np.int64))
    if not len(steps):
        return 0
    pitch = int(abs(steps).min())
    regular = pitch > 16 and not (steps % pitch).any() and 2 * int((steps == pitch).sum()) >= len(steps)
    return pitch if regular else 0


def pitch_of_pieces(address: Array, size: int) -> int:
    """The bytes from one row to the next, of pieces of rows that threads copy one after the other; 0 if they are not that."""
    steps = np.diff(address)
    rows = np.concatenate([address[:1], address[1:][steps != size]])
    apart = np.diff(rows)
    return int(apart[0]) if 1 < len(apart) < len(steps) and (apart == apart[0]).all() and apart[0] > size else 0


def dense_k(k: Array, bits: int) -> Array:
    """Of a sparse operand the k of its first element of each group of which it has half; -1 of the others."""
    half = {32: 1, 4: 4}.get(bits, 2)
    return np.where(k % half == 0, 2 * k, -1)


def along_k(view: View, found: Array | None = None) -> tuple[int, Array] | None:
    """(row, origins) of the first row of which every element is known."""
    own = view.found if found is None else found
    rows = np.flatnonzero((own > 0).all(1))
    return (int(rows[0]), own[rows[0]]) if len(rows) else None


def paired(a: View, b: View, found_a: Array | None = None, found_b: Array | None = None) -> bool:
    """Whether each product takes elements of one k: from one k to another both go the same number of steps.

    True too where it cannot be said: of operands of which no row is known, or all elements are one.
    """
    one, other = along_k(a, found_a), along_k(b, found_b)
    if one is None or other is None:
        return True
    _, at_a, at_b = np.intersect1d(np.where(a.k < 0, -2, a.k), np.where(b.k < 0, -3, b.k), return_indices=True)
    if len(at_a) < 2:
        return True
    x, y = one[1][at_a], other[1][at_b]
    x, y = x - x[0], y - y[0]
    if not x.any() or not y.any():
        return True
    far = int(np.argmax(abs(x)))
    return bool((x * y[far] == y * x[far]).all())


def stride(view: View, found: Array | None = None) -> tuple[int, int, int] | None:
    """(row, origin of its first element, bytes from one column to the next) of an operand whose k follow one another evenly."""
    own = along_k(view, found)
    if own is None or len(own[1]) < 2 or (view.k < 0).any():
        return None
    steps = np.diff(own[1])
    return (own[0], int(own[1][0]), int(steps[0])) if steps[0] and (steps == steps[0]).all() else None
