"""Where the assembler does not do what PTX says."""

from __future__ import annotations

from collections.abc import Iterator

from tcsim import catalog
from tcsim.ptx.compile.compiled import Compiled
from tcsim.ptx.compile.scalars import selecting
from tcsim.ptx.hazards.hazard import Hazard
from tcsim.ptx.text.syntax import Instruction, Register, Vector


def told(program: Compiled, arch: str) -> list[Hazard]:
    """Of a program, whether or not it was executed there."""
    found = []
    for item in {id(item): item for line in program.lines for item in line if item is not None}.values():
        for name, message in (*_guard(item), *_accumulator(item, arch)):
            here, *inlined = item.source.places if item.source and item.source.places else (None,)
            found.append(Hazard(name, message, item.line, source=here, inlined=tuple(inlined)))
    return found


def _guard(item: Instruction) -> Iterator[tuple[str, str]]:
    row = selecting(item)
    if row is not None and row.ignores:
        yield "GUARD_IGNORED", f"{item.opcode} has a guard, and {row.ignores}"


def _accumulator(item: Instruction, arch: str) -> Iterator[tuple[str, str]]:
    """Registers of c that are earlier ones of d, where c is added in turn."""
    if len(item.operands) < 4:
        return
    d, c = item.operands[0], item.operands[3]
    if not isinstance(d, Vector) or not isinstance(c, Vector):
        return
    late = [(at, own) for at, own in enumerate(c.items) if isinstance(own, Register) and own in d.items[:at]]
    who = catalog.instruction(item.opcode, arch).lowering.adds_in_turn if late else ""
    for at, own in late if who else ():
        first = d.items.index(own)
        said = f"{own.name} is register {at} of c, and {who} writes it before, as register {first} of d"
        yield "ACCUMULATOR_OVERWRITTEN", said
