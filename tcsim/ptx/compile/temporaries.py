"""Registers that no thread reads outside of one basic block, and there only what the block has written: compiled code need not put them back."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from tcsim.model.emit import Line
from tcsim.ptx.compile.compiled import BasicBlock, Compiled
from tcsim.ptx.compile.families import Bound, Together

_NAME = re.compile(r"\br(\d+)\b")
_WRITE = re.compile(r"copyto\(r(\d+), (.*), where=w(?:, casting='unsafe')?\)")


def temporaries(program: Compiled) -> frozenset[int]:
    """All of them. None in a program that is watched, or that may wait in a loop: whether that spins is seen from all registers."""
    if program.waits or program.watched:
        return frozenset()
    named, written = Counter[int](), set[int]()
    for block in program.sources:
        seen = set[int]()
        for line in block.lines:
            write = _WRITE.fullmatch(line.text)
            own = _names(line.text)
            if write is not None and int(write[1]) not in seen | _names(write[2]):
                written.add(int(write[1]))
            seen |= own
        named.update(seen)
    return frozenset(own for own in written if named[own] == 1) - _of_instructions(program)


def _names(text: str) -> set[int]:
    return {int(number) for number in _NAME.findall(text)}


def _of_instructions(program: Compiled) -> set[int]:
    """Registers that instructions of the catalog name by number."""
    found = set[int]()
    for value in program.names.values():
        if isinstance(value, Together):
            arrays = [numbers for _, numbers in (*value.sources, *value.results) if not isinstance(numbers, int)]
            found.update(number for own in arrays for number in own.reshape(-1).tolist())
        elif isinstance(value, Bound):
            found |= value.written | value.held
    return found


def named_in(lines: Sequence[Line]) -> set[int]:
    """The registers that lines name."""
    return {number for line in lines for number in _names(line.text)}


def left(program: Compiled, block: BasicBlock, behind: int) -> frozenset[int]:
    """Registers that need not be put back by what ends before a line of a basic block."""
    if program.temporaries is None:
        program.temporaries = temporaries(program)
    return program.temporaries - named_in(block.lines[behind:])
