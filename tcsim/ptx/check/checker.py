"""The observer that looks for hazards: what nothing orders, what is used before it is there, what is left behind."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import numpy as np

from tcsim.model.effects import Effects, Order
from tcsim.ptx.check.flags import scope_of
from tcsim.ptx.check.layout.layout import Layout
from tcsim.ptx.check.layout.traced import Traced
from tcsim.ptx.check.order import Ordering
from tcsim.ptx.check.rules.barriers import Barriers
from tcsim.ptx.check.rules.cluster import Reaches
from tcsim.ptx.check.rules.conflicts import Conflicts
from tcsim.ptx.check.rules.deadlocks import Deadlocks
from tcsim.ptx.check.rules.dependents import Dependents, Ledger
from tcsim.ptx.check.rules.global_memory import GlobalMemory
from tcsim.ptx.check.rules.mbarriers import Mbarriers
from tcsim.ptx.check.rules.races import Party, Races
from tcsim.ptx.check.rules.shared import Shared
from tcsim.ptx.check.rules.signals import Cancels, Signals
from tcsim.ptx.check.rules.tmem import TensorMemory
from tcsim.ptx.check.rules.warps import Warps, Wgmma
from tcsim.ptx.check.state import Issue, State, Touch
from tcsim.ptx.compile.families import Bound
from tcsim.ptx.hazards.hazard import Hazard
from tcsim.ptx.machine.arrays import LANES, Array
from tcsim.ptx.machine.block import Block
from tcsim.ptx.machine.cluster import Cluster
from tcsim.ptx.machine.events import EVENTS
from tcsim.ptx.machine.fibers import Wait
from tcsim.ptx.machine.flights import Flight
from tcsim.ptx.machine.memory import Segment
from tcsim.ptx.machine.observer import Observer

Call = Callable[..., None]


class Checker(Observer):
    """Hazards of one cluster: the subjects, in the order in which each hears of the events that it has a method for."""

    def __init__(
        self, cluster: Cluster, races: Races | None = None, ledger: Ledger | None = None, before: Ledger | None = None
    ) -> None:
        """races: of the launch, where races in global memory are looked for. ledger: kept of global memory, for launches after this one; before: of the one before."""
        state = self.state = State(cluster, races is not None)
        mbarriers, reaches = Mbarriers(state), Reaches(state)
        conflicts = Conflicts(state, mbarriers)
        layout = Traced(state) if cluster.blocks[0].program.traced else Layout(state)
        party = Party(races, state) if races is not None else None
        dependents, tensor = Dependents(state, ledger, before), TensorMemory(state, conflicts)
        memory = GlobalMemory(state, conflicts, dependents, party)
        shared = Shared(state, conflicts, memory, reaches, tensor, layout)
        self.deadlocks = Deadlocks(state, mbarriers)
        subjects = (
            party, Ordering(state), memory, dependents, Wgmma(state), Signals(state, mbarriers, conflicts, reaches), reaches, shared, layout,
            Barriers(state), Warps(state), Cancels(state, mbarriers, conflicts), tensor, mbarriers, self.deadlocks,
        )  # fmt: skip

        def heard(*names: str) -> tuple[Call, ...]:
            return tuple(getattr(own, name) for name in names for own in subjects if hasattr(type(own), name))

        # Subjects hear of more than events: before an ordinary access and behind it; before an instruction of the catalog, its fences, and behind it.
        self._accessed = heard("accessing", "accessed", "releasing")
        self._performing, self._performed, self._signalling = map(heard, ("performing", "performed", "signalling"))
        self._ordered, self._issued = heard("ordered"), heard("issued")
        for name in EVENTS.keys() - vars(Checker).keys():
            calls = heard(name)
            if calls:
                setattr(self, name, calls[0] if len(calls) == 1 else partial(_tell, calls))

    def accessed(
        self, block: Block, kind: str, segment: Segment | None, offsets: Array, size: int, threads: Array, written: Array | None = None
    ) -> None:  # fmt: skip
        """Loads, stores and atomics of shared memory; those of global memory only as far as they synchronise, or are asked for."""
        rank = -1
        if segment is not None:
            rank = self.state.ranks.get(id(segment), -1)
            if rank < 0:
                return
            offsets = offsets.astype(np.int64)
        line = self.state.number(block.here)
        touch = Touch(self.state, block, kind, rank, offsets, size, threads, line, block.here, written)
        for call in self._accessed:
            call(touch)

    def performed(self, block: Block, bound: Bound, effects: Effects, threads: Array, mask: Array) -> None:
        """Reads, writes, fences, and phases that were seen; a fence comes behind what is written with it."""
        given = block, bound, effects, threads, mask
        before, behind = ((), effects.orders) if effects.now.writes else (effects.orders, ())
        _tell(self._performing, *given)
        for order in before:
            _tell(self._ordered, block, order, threads)
        _tell(self._performed, *given)
        for order in behind:
            _tell(self._ordered, block, order, threads)
        _tell(self._signalling, *given)

    def fenced(self, block: Block, mask: Array) -> None:
        """membar is a fence as that of the catalog is."""
        fence = Order("fence", scope=scope_of(block.here.opcode) if block.here is not None else "cta")
        _tell(self._ordered, block, fence, np.flatnonzero(mask))

    def issued(self, flight: Flight) -> None:
        """Work reads and writes from now on, at any time until somebody knows that it is done."""
        together = max(1, flight.bound.lanes // LANES)
        line = self.state.number(flight.block.here)
        _tell(self._issued, Issue(flight, line, together, self.state.issue(flight, line, together)))

    def stuck(self, block: Block, waits: Wait) -> str:
        """What threads that wait for ever wait for."""
        return self.deadlocks.stuck(block, waits)

    def hazards(self) -> list[Hazard]:
        """What was found."""
        return self.state.findings.hazards()


def _tell(calls: Iterable[Call], *given: Any) -> None:
    for call in calls:
        call(*given)
