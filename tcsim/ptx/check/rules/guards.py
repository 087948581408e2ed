"""Guards that the assembler does not keep to."""

from __future__ import annotations

from tcsim.ptx.compile.compiled import Compiled
from tcsim.ptx.compile.scalars import selecting
from tcsim.ptx.hazards.hazard import Hazard


def ignored(program: Compiled) -> list[Hazard]:
    """Of a program, whether or not they were executed."""
    found = []
    for item in {id(item): item for line in program.lines for item in line if item is not None}.values():
        row = selecting(item)
        if row is not None and row.ignores:
            here, *inlined = item.source.places if item.source and item.source.places else (None,)
            message = f"{item.opcode} has a guard, and {row.ignores}"
            found.append(Hazard("GUARD_IGNORED", message, item.line, source=here, inlined=tuple(inlined)))
    return found
