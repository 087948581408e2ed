"""Guards that the assembler does not keep to."""

from __future__ import annotations

from tcsim.ptx.compile.compiled import Compiled
from tcsim.ptx.compile.scalars import selects
from tcsim.ptx.hazards.hazard import Hazard

_IGNORED = {"testp": "all threads execute it", "set": "what the register holds is converted where the guard is false"}


def ignored(program: Compiled) -> list[Hazard]:
    """Of a program, whether or not they were executed."""
    found = []
    for item in {id(item): item for line in program.lines for item in line if item is not None}.values():
        said = _IGNORED.get(item.opcode.partition(".")[0])
        if said and selects(item):
            here, *inlined = item.source.places if item.source and item.source.places else (None,)
            message = f"{item.opcode} has a guard, and {said}"
            found.append(Hazard("GUARD_IGNORED", message, item.line, source=here, inlined=tuple(inlined)))
    return found
