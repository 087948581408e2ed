"""All ordinary instructions by their stem."""

from __future__ import annotations

from tcsim.isa.ordinary import atomic, barrier, control, memory, move, stack, warp
from tcsim.isa.ordinary.table import Ordinary

ORDINARY = {row.stem: row for module in (memory, atomic, move, warp, barrier, control, stack) for row in module.ROWS}


def of_stem(opcode: str) -> Ordinary | None:
    """The row of an instruction by the first word of its spelling; the catalog may have an instruction with that word too.

    >>> of_stem("ld.global.b32").path, of_stem("add.u32")
    ('load', None)
    """
    return ORDINARY.get(opcode.partition(".")[0])
