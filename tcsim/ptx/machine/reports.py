"""What a program itself tells of, where it was compiled for observers: the instruction that is executed, and what only the source shows."""

from __future__ import annotations

from typing import Any

import numpy as np

from tcsim.ptx.compile.compiled import Site
from tcsim.ptx.machine.arrays import Array, Mask
from tcsim.ptx.machine.events import Events
from tcsim.ptx.machine.threads import Threads
from tcsim.ptx.text.syntax import Instruction


class Reports:
    """The reports of a block's program, by the names of events."""

    here: Instruction | None = None  # the instruction that is executed

    def __init__(self, block: Any, threads: Threads, events: Events) -> None:
        self.block, self.threads, self.events = block, threads, events

    def executing(self, site: Site, w: Mask) -> None:
        """Threads are about to execute an instruction."""
        for hear in self.events.executing:
            hear(self.block, site, self._executing(site, self.threads.mask(w)))

    def _executing(self, site: Site, mask: Array) -> Array:
        item = site.item
        if item.predicate is None:
            return mask
        holds = self.block.registers[site.numbers[item.predicate.name]]
        found: Array = np.asarray(mask & (~holds if item.negated else holds))
        return found

    def fenced(self, w: Mask) -> None:
        """membar."""
        mask = self.threads.mask(w)
        for hear in self.events.fenced if mask.any() else ():
            hear(self.block, mask)

    def touched(self, reads: frozenset[int], writes: frozenset[int], w: Mask) -> None:
        """Registers that work in flight may hold."""
        for hear in self.events.touched:
            hear(self.block, reads, writes, self.threads.mask(w))

    def moved(self, carry: Any, w: Mask, partners: Array | None = None) -> None:
        """Registers whose elements are followed (`tcsim.ptx.compile.carried`) were changed. partners: of each thread the one that they come from."""
        for hear in self.events.moved:
            hear(self.block, carry, self.threads.mask(w), partners)
