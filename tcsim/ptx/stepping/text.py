"""What a stepper writes: instructions, threads, numbers and matrices as lines of at most 80 columns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from tcsim.ptx.machine.arrays import LANES, Array
from tcsim.ptx.machine.deadlock import threads_in_words
from tcsim.ptx.stepping.log import runs

WIDTH = 80


def place(source: str) -> str:
    """A line of a source, without the folders of its file.

    >>> place("/src/kernels/softmax.py:12")
    'softmax.py:12'
    """
    return source.rpartition("/")[2]


def cut(text: str, width: int = WIDTH) -> str:
    """A line that fits, its end replaced by dots where it does not.

    >>> cut("abcdefgh", 6)
    'abc...'
    """
    return text if len(text) <= width else text[: max(width - 3, 0)] + "..."


def fitted(*lines: str) -> list[str]:
    """Lines that fit; empty ones are left out."""
    return [cut(line) for line in lines if line]


def block(index: Iterable[int]) -> str:
    """A block by its index.

    >>> block((1, 0, 2))
    'block 1,0,2'
    """
    return f"block {','.join(map(str, index))}"


def threads(numbers: Iterable[int]) -> str:
    """Threads: by warps where those are whole, by lanes where it is one warp.

    >>> threads(range(32)), threads([36, 37, 38, 39])
    ('warp 0', 'warp 1 lanes 4-7')
    """
    every = sorted(set(numbers))
    warps = sorted({thread // LANES for thread in every})
    if every and len(every) == len(warps) * LANES:
        return f"warp{'s' if len(warps) > 1 else ''} {ranges(warps)}"
    return lanes(every) if len(warps) == 1 else threads_in_words(np.isin(np.arange(max(every, default=0) + 1), every))


def lanes(threads: Sequence[int]) -> str:
    """Threads of one warp.

    >>> lanes([33, 34])
    'warp 1 lanes 1-2'
    """
    return f"warp {threads[0] // LANES} lane{'s' if len(threads) > 1 else ''} {ranges(own % LANES for own in threads)}"


def ranges(numbers: Iterable[int], most: int = 6) -> str:
    """Integers, those that follow each other as a range.

    >>> ranges([0, 1, 2, 5, 8, 9])
    '0-2, 5, 8-9'
    """
    shown = [f"{first}" if count == 1 else f"{first}-{first + count - 1}" for first, count in runs(numbers)]
    return ", ".join(shown[:most]) + (", ..." if len(shown) > most else "")


def number(value: Any) -> str:
    """A number in few letters.

    >>> number(np.float32(0.5)), number(np.float32(1e10)), number(7)
    ('0.5', '1e+10', '7')
    """
    return f"{value:.4g}" if isinstance(value, (float, np.floating)) else str(value)


def matrix(
    values: Sequence[Sequence[str]], rows: Sequence[str], columns: Sequence[str], width: int = WIDTH, most: int = 64
) -> Iterator[str]:
    """A matrix with the names of its rows and columns; columns that do not fit side by side come below.

    >>> list(matrix([["1", "2"]], ["0"], ["0", "1"]))
    ['   0  1', '0  1  2']
    """
    left = max((len(name) for name in rows), default=0)
    cell = max((len(text) for line in (*values, columns) for text in line), default=1)
    each = max(1, (width - left) // (cell + 2))
    if each < len(columns):
        each = 1 << each.bit_length() - 1
    shown = min(len(rows), most)
    for start in range(0, len(columns), each):
        yield " " * left + "".join(f"  {name:>{cell}}" for name in columns[start : start + each])
        for name, line in zip(rows[:shown], values[:shown], strict=True):
            yield f"{name:>{left}}" + "".join(f"  {text:>{cell}}" for text in line[start : start + each])
        if shown < len(rows):
            yield f"... {len(rows) - shown} more rows"


def octets(data: Array, start: int, width: int = 16) -> Iterator[str]:
    """Bytes in hexadecimal, 16 a line, with their addresses.

    >>> list(octets(np.arange(18, dtype=np.uint8), 1024))[1]
    '0x00410  10 11'
    """
    for first in range(0, len(data), width):
        yield f"{start + first:#07x}  " + " ".join(f"{byte:02x}" for byte in data[first : first + width].tolist())
