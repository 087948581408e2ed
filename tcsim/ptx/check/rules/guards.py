"""Guards that the assembler does not keep to."""

from __future__ import annotations

from tcsim.ptx.check.state import State
from tcsim.ptx.compile.scalars import selects
from tcsim.ptx.machine.faults import Stop

_IGNORED = {
    "testp": "it is executed by all threads",
    "set": "what the register holds is converted where the guard is false",
}


class Guards:
    """The instructions of a program, whether or not they were executed."""

    def __init__(self, state: State) -> None:
        self.state = state

    def ended(self, stop: Stop | None) -> None:
        """The cluster has ended."""
        block = self.state.blocks[0]
        for item in {id(item): item for line in block.program.lines for item in line if item is not None}.values():
            said = _IGNORED.get(item.opcode.partition(".")[0])
            if said and selects(item):
                self.state.report("GUARD_IGNORED", block, f"{item.opcode} has a guard; {said}", self.state.number(item))
