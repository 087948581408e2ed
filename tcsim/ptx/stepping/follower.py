"""A stepped launch followed instruction by instruction: it stands still before each, and a log is kept of what is read and written."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from tcsim.model.effects import Access, Effects, Outcome
from tcsim.ptx.compile.compiled import Site
from tcsim.ptx.compile.families import Bound, Operands
from tcsim.ptx.hazards.hazard import Hazard
from tcsim.ptx.launch.grid import Grid, Launch
from tcsim.ptx.machine.arrays import Array
from tcsim.ptx.machine.block import Block
from tcsim.ptx.machine.cluster import Cluster
from tcsim.ptx.machine.faults import Stop
from tcsim.ptx.machine.flights import Flight
from tcsim.ptx.machine.memory import Segment
from tcsim.ptx.machine.observer import Observer
from tcsim.ptx.stepping.log import Asked, Event, Log, Record, placed

Pause = Callable[[Block, Site, Array], None]


class Follower(Observer):
    """Keeps the log of one cluster, and lets a launch pause before each instruction."""

    def __init__(self, cluster: Cluster, log: Log, pause: Pause) -> None:
        self.cluster, self.log, self.pause = cluster, log, pause
        self._asked: Asked | None = None
        self._landing: tuple[Record, Record | None] | None = None

    # --- instructions

    def executing(self, block: Block, site: Site, mask: Array) -> None:
        """An instruction begins, and the one before it is done."""
        self.log.close()
        self.pause(block, site, mask)
        self.log.open(site, block.number, mask, block.registers)

    def shuffled(self, block: Block, sources: Array) -> None:
        """Which thread each value comes from."""
        if self.log.current is not None:
            self.log.current.sources = sources

    def asking(self, block: Block, bound: Bound, threads: Array) -> None:
        """What it reads for its effects is noted."""
        self._asked = Asked(bound, threads, block.rank, threads[::32] // 32)
        if self.log.current is not None:
            self.log.current.asked.append(self._asked)
        self.log.reading = self._asked.reads

    def asked(
        self, block: Block, bound: Bound, given: dict[str, Any], effects: Effects, threads: Array, mask: Array
    ) -> None:  # fmt: skip
        """Its effects and operands, as they were."""
        self.log.reading = None
        assert self._asked is not None
        self._asked.effects = effects
        self._asked.operands = dict(Operands(bound, given, block.performer, threads, mask))

    def performed(self, block: Block, bound: Bound, effects: Effects, threads: Array, mask: Array) -> None:
        """Work begins, which will write some bytes."""
        record = self.log.current
        for pending in effects.pending if record is not None and record.asked else ():
            assert record is not None
            planned = [self._event(block, own) for write in pending.writes for own in block.octets.copies(write)]
            self.log.issue(record.asked[-1], pending, [event for event in planned if len(event.numbers)])

    # --- accesses

    def loaded(self, block: Block, segment: Segment | None, offsets: Array, size: int, threads: Array) -> None:
        """Ordinary loads."""
        if self.log.current is not None:
            numbers = self._in_launch(block, segment, offsets, threads)
            self.log.current.reads.append(Event(numbers, size, threads))

    def stored(self, block: Block, segment: Segment | None, offsets: Array, size: int, threads: Array) -> None:
        """Ordinary stores."""
        if self.log.current is not None:
            numbers = self._in_launch(block, segment, offsets, threads)
            self.log.current.writes.append(Event(numbers, size, threads))

    def looked(self, block: Block, access: Access) -> None:
        """Bytes that effects read."""
        if self.log.reading is not None:
            self.log.reading.append(self._event(block, access))

    def put(self, block: Block, space: str, addresses: Array, size: int, cta: Array | None) -> None:
        """Bytes that effects write."""
        if self.log.current is not None:
            self.log.current.writes.append(Event(self._numbered(block, space, addresses, cta), size))

    # --- work in flight

    def fetching(self, flight: Flight) -> None:
        """It reads."""
        work = self.log.work_of(flight.pending)
        work.fetched, self.log.reading = self.log.serial + 1, work.reads

    def fetched(self, flight: Flight) -> None:
        """It has read."""
        self.log.reading = None

    def delivering(self, flight: Flight, outcome: Outcome) -> None:
        """It writes: a record of its own."""
        self._landing = self.log.land(self.log.work_of(flight.pending))

    def delivered(self, flight: Flight, outcome: Outcome) -> None:
        """It has written."""
        assert self._landing is not None
        results = [numbers for name, numbers in flight.bound.results if name in outcome.registers]
        written = [number for numbers in results for number in numbers.tolist()]
        block = self.cluster.blocks[flight.block.rank]
        self.log.landed(self.log.work_of(flight.pending), *self._landing, written, block.registers)

    # --- bytes as numbers

    def _event(self, block: Block, access: Access) -> Event:
        address, cta = block.octets.places(access)
        return Event(self._numbered(block, access.space, address, cta), access.size)

    def _numbered(self, block: Block, space: str, addresses: Array, cta: Array | None) -> Array:
        found = np.empty(len(addresses), np.uint64)
        for own, segment, offset in block.spaces.segments(space, addresses, 1, cta) if len(addresses) else ():
            found[own] = self._in_launch(block, segment, offset.view(np.uint64), None)
        return found

    def _in_launch(self, block: Block, segment: Segment | None, offset: Array, threads: Array | None) -> Array:
        spaces = block.spaces
        if segment is None:
            return placed("global", 0, offset)
        if segment is spaces.params:
            return placed("param", 0, offset)
        if segment is spaces.local:
            assert threads is not None
            return placed("local", block.number, offset.astype(np.int64) - threads * spaces.local_stride, threads)
        for other in self.cluster.blocks:
            for space, own in (("shared", other.spaces.shared), ("tmem", other.spaces.tensor_memory)):
                if segment is own:
                    return placed(space, other.number, offset)
        raise LookupError("memory of no block of the cluster")


class SteppedGrid(Grid):
    """A grid whose clusters are followed."""

    def __init__(self, launch: Launch, log: Log, pause: Pause) -> None:
        observe = (*launch.observe, lambda cluster: Follower(cluster, log, pause))
        super().__init__(replace(launch, alike=False, observe=observe))
        self.log = log
        self.blocks: list[Block] = []  # of the clusters that run, and of the one that ended last
        self.indices: list[tuple[int, int, int]] = []  # by number: every block that began
        self.completed: bool | None = None
        self._told: list[Any] = []  # clusters that ended since the last one began

    def run(self) -> bool:
        """Run every cluster."""
        self.completed = super().run()
        self.log.close()
        return self.completed

    def found(self) -> list[Hazard]:
        """What was wrong so far, of the clusters that run too."""
        running = dict.fromkeys(own.cluster for own in self.blocks if own.cluster not in self._told)
        return self.hazards + [hazard for own in running for each in own.observers for hazard in each.hazards()]

    def _observed(self, cluster: Cluster, stop: Stop | None) -> None:
        super()._observed(cluster, stop)
        self._told.append(cluster)

    def _cluster(self, number: int) -> Cluster:
        made = super()._cluster(number)
        self.blocks = [own for own in self.blocks if own.cluster not in self._told] + made.blocks
        self._told.clear()
        self.indices += [block.index for block in made.blocks]
        return made
