"""Who hears of what happens in a cluster: the base of observers (`Kernel.launch(observe=)`)."""

from __future__ import annotations

from tcsim.ptx.hazards.hazard import Hazard
from tcsim.ptx.machine.block import Block
from tcsim.ptx.machine.events import EVENTS, ignored
from tcsim.ptx.machine.fibers import Wait


class Observer:
    """Hears of nothing. A subclass has a method for each event that it wants to hear of, with the event's name (`EVENTS`).

    >>> sorted(EVENTS["issued"].parameters.split()), Observer().issued("a flight")
    (['flight'], None)
    """

    def stuck(self, block: Block, waits: Wait) -> str:
        """What else there is to say of threads that wait for ever; empty for nothing."""
        return ""

    def hazards(self) -> list[Hazard]:
        """What was wrong, in the order in which it was found."""
        return []


for _name in EVENTS:
    setattr(Observer, _name, ignored)
