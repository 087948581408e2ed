"""Every byte of a launch as one number: its state space, the block and thread whose it is, and the offset there."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from tcsim.ptx.machine.arrays import Array

Byte = int | tuple[int, int, int, int]
"""A byte of memory by its number, or of a register: block, register, thread, byte."""
_TAGS = {"global": 0, "shared": 8, "local": 9, "tmem": 10, "param": 11}
_NAMES = {tag: name for name, tag in _TAGS.items()}
_TAG, _BLOCK, _THREAD = 60, 34, 24  # the lowest bit of each part
_OFFSET = (1 << _THREAD) - 1


class Place(NamedTuple):
    """A byte of memory, taken apart."""

    space: str
    block: int  # number of the block in the order in which blocks began; of local, shared and Tensor Memory
    thread: int  # of local memory
    offset: int  # the address, in global memory


def placed(space: str, block: int, offsets: Array, threads: Array | int = 0) -> Array:
    """Bytes as numbers, uint64.

    >>> taken_apart(int(placed("shared", 3, np.array([1024]))[0]))
    Place(space='shared', block=3, thread=0, offset=1024)
    """
    if space == "global":
        return offsets.astype(np.uint64)  # a copy: registers that hold addresses change
    base = np.uint64(_TAGS[space] << _TAG | block << _BLOCK)
    of_thread = np.asarray(threads).astype(np.uint64) << np.uint64(_THREAD)
    return base | of_thread | np.asarray(offsets).astype(np.uint64)


def taken_apart(number: int) -> Place:
    """What a number stands for.

    >>> taken_apart(int(placed("local", 2, np.array([16]), 5)[0]))
    Place(space='local', block=2, thread=5, offset=16)
    """
    tag = number >> _TAG
    if not tag:
        return Place("global", 0, 0, number)
    block, thread = number >> _BLOCK & (1 << _TAG - _BLOCK) - 1, number >> _THREAD & (1 << _BLOCK - _THREAD) - 1
    return Place(_NAMES[tag], block, thread, number & _OFFSET)


def runs(numbers: Iterable[int]) -> list[tuple[int, int]]:
    """(first, how many) of numbers that follow each other, sorted.

    >>> runs([5, 3, 4, 9])
    [(3, 3), (9, 1)]
    """
    found: list[tuple[int, int]] = []
    for number in sorted(set(numbers)):
        if found and number == found[-1][0] + found[-1][1]:
            found[-1] = found[-1][0], found[-1][1] + 1
        else:
            found.append((number, 1))
    return found
