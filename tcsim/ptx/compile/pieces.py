"""A basic block cut again at run time, so that each instruction that lanes execute as one stands by itself.

Lanes on different paths may meet at different instructions. Code is generated for the usual case, in which they do not: several
such instructions stand in one basic block. Where lanes have to wait for others at another place, the source of their block is
cut into pieces, which are basic blocks like others.
"""

from __future__ import annotations

import re
from itertools import groupby, takewhile

from tcsim.ptx.compile.compiled import COLLECTIVE, SOURCE_NAME, Compiled, head_of
from tcsim.ptx.compile.convergence import collective, together

_HEAD = re.compile(r"def b\d+\(|    (?:r\d+ = R\[|m_own = |m_all = )")


def first_piece(program: Compiled, block: int) -> int:
    """The number of the block that is the first piece of another; 0 where that has no collective instruction."""
    if block not in program.pieces:
        program.pieces[block] = _cut(program, block)
    return program.pieces[block]


def _cut(program: Compiled, block: int) -> int:
    items = program.lines[block]
    if not any(item is not None and collective(item) for item in items):
        return 0
    text = program.texts[block].split("\n")
    head = list(takewhile(_HEAD.match, text))
    found: list[tuple[int, list[int]]] = [(0, [])]  # of each piece: the lanes it needs, and its lines
    for _, group in groupby(range(len(head), len(text)), key=lambda line: id(items[line])):
        lines = list(group)
        item = items[lines[0]]
        if item is not None and collective(item):
            found += [(COLLECTIVE, lines), (0, [])]
        elif item is not None and (lanes := together(item.opcode)):
            found.append((lanes, lines))
        else:
            found[-1][1].extend(lines)
    found = [own for own in found if own[1]]
    first = len(program.blocks)
    texts = []
    for number, (lanes, lines) in enumerate(found, first):
        own = [head_of(number), *head[1:], *(text[line] for line in lines)]
        if number < first + len(found) - 1:
            own.append(f"    return {number + 1}")
        texts.append("\n".join(own))
        program.gathers.append(lanes)
        program.sizes.append(len({id(items[line]) for line in lines}))
        program.lines.append([items[lines[0]]] * len(head) + [items[line] for line in (*lines, lines[-1])])
    program.texts += texts
    exec(compile("\n".join(texts), SOURCE_NAME, "exec"), program.names)
    program.blocks += [program.names[f"b{number}"] for number in range(first, first + len(found))]
    return first
