"""A basic block cut again at run time, so that each instruction that lanes execute as one stands by itself.

Lanes on different paths may meet at different instructions. Code is generated for the usual case, in which they do not: several
such instructions stand in one basic block. Where lanes have to wait for others at another place, the source of their block is
cut into pieces, which are basic blocks like others.
"""

from __future__ import annotations

from itertools import groupby

from tcsim.model.emit import Line
from tcsim.ptx.compile.compiled import COLLECTIVE, BasicBlock, Compiled
from tcsim.ptx.compile.convergence import collective, together


def first_piece(program: Compiled, block: int) -> int:
    """The number of the block that is the first piece of another; 0 where that has no collective instruction."""
    if block not in program.pieces:
        program.pieces[block] = _cut(program, program.sources[block])
    return program.pieces[block]


def _cut(program: Compiled, block: BasicBlock) -> int:
    items = block.items
    if not any(item is not None and collective(item) for item in items):
        return 0
    pieces: list[tuple[int, list[int]]] = [(0, [])]  # of each: the lanes it needs, and its lines
    for _, group in groupby(range(len(block.lines)), key=lambda line: id(items[line])):
        lines = list(group)
        item = items[lines[0]]
        if item is not None and collective(item):
            pieces += [(COLLECTIVE, lines), (0, [])]
        elif item is not None and (lanes := together(item.opcode)):
            pieces.append((lanes, lines))
        else:
            pieces[-1][1].extend(lines)
    pieces = [own for own in pieces if own[1]]
    first = len(program.blocks)
    last = first + len(pieces) - 1
    program.add(
        [
            BasicBlock(
                number,
                block.head,
                [
                    *(block.lines[line] for line in lines),
                    *([Line(str(number + 1), ends=True)] if number < last else []),
                ],
                [items[line] for line in (*lines, lines[-1])],
                len({id(items[line]) for line in lines}),
                lanes,
            )
            for number, (lanes, lines) in enumerate(pieces, first)
        ]
    )
    return first
