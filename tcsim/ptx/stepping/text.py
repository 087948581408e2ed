"""What a stepper writes: instructions, threads, numbers and matrices as lines of at most 80 columns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from tcsim.ptx.machine.arrays import LANES, Array
from tcsim.ptx.machine.deadlock import threads_in_words
from tcsim.ptx.text.syntax import (
    Address,
    Group,
    Immediate,
    Instruction,
    Negated,
    Operand,
    Pair,
    Register,
    Special,
    Symbol,
    Tensor,
    Vector,
)

WIDTH = 80


def statement(item: Instruction) -> str:
    """An instruction as PTX writes it.

    >>> statement(Instruction("mov.u32", (Register("%r1"), Special("tid.x")), 1, 1, Register("%p"), True))
    '@!%p mov.u32 %r1, %tid.x;'
    """
    guard = f"@{'!' if item.negated else ''}{item.predicate.name} " if item.predicate else ""
    given = ", ".join(_operand(operand) for operand in item.operands)
    return f"{guard}{item.opcode}{' ' if given else ''}{given};"


def _operand(operand: Operand) -> str:
    if isinstance(operand, Register):
        return operand.name.partition("#")[0]
    if isinstance(operand, Special):
        return f"%{operand.name}"
    if isinstance(operand, Immediate):
        return (
            str(operand.value)
            if operand.kind == "int"
            else f"0{operand.kind[0]}{operand.value:0{int(operand.kind[1:]) // 4}X}"
        )
    if isinstance(operand, Symbol):
        return operand.name.partition("#")[0] + (f"+{operand.offset}" if operand.offset else "")
    if isinstance(operand, Address):
        return f"[{_operand(operand.base)}{f'+{operand.offset}' if operand.offset else ''}]"
    if isinstance(operand, Tensor):
        return f"[{_operand(operand.base)}, {{{', '.join(map(_operand, operand.coordinates))}}}]"
    if isinstance(operand, (Vector, Group)):
        inner = ", ".join(map(_operand, operand.items))
        return f"{{{inner}}}" if isinstance(operand, Vector) else f"({inner})"
    if isinstance(operand, Pair):
        return f"{_operand(operand.first)}|{_operand(operand.second)}"
    return f"!{_operand(operand.register)}" if isinstance(operand, Negated) else "_"


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


def threads(mask: Array) -> str:
    """The threads of a mask: by warps where those are whole, by lanes where it is one warp.

    >>> threads(np.arange(64) < 32), threads(np.arange(64) // 4 == 9)
    ('warp 0', 'warp 1 lanes 4-7')
    """
    per = mask.reshape(-1, LANES)
    own = np.flatnonzero(per.any(1)).tolist()
    if not own:
        return "no thread"
    if per[own].all():
        return f"warp {own[0]}" if len(own) == 1 else f"warps {ranges(own)}"
    if len(own) == 1:
        lanes = np.flatnonzero(per[own[0]]).tolist()
        return f"warp {own[0]} lane{'s' if len(lanes) > 1 else ''} {ranges(lanes)}"
    return threads_in_words(mask)


def ranges(numbers: Iterable[int], most: int = 6) -> str:
    """Integers, those that follow each other as a range.

    >>> ranges([0, 1, 2, 5, 8, 9])
    '0-2, 5, 8-9'
    """
    found: list[list[int]] = []
    for number in sorted(set(numbers)):
        if found and number == found[-1][1] + 1:
            found[-1][1] = number
        else:
            found.append([number, number])
    shown = [f"{first}" if first == last else f"{first}-{last}" for first, last in found]
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
