"""The machine of a stepped launch: it says before every instruction where it is, and keeps a log of what is read and written."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tcsim.model.effects import Access, Effects, Outcome, Signal
from tcsim.ptx.compile.compiled import Site
from tcsim.ptx.compile.families import Bound, Operands
from tcsim.ptx.hazards.hazard import Hazard
from tcsim.ptx.launch.grid import Grid, Launch
from tcsim.ptx.machine.accesses import store_order
from tcsim.ptx.machine.arrays import Array, Mask
from tcsim.ptx.machine.block import Block
from tcsim.ptx.machine.cluster import Cluster
from tcsim.ptx.machine.faults import Stop
from tcsim.ptx.machine.fibers import Fiber
from tcsim.ptx.machine.flights import Flight
from tcsim.ptx.machine.memory import Segment
from tcsim.ptx.machine.performer import Holding
from tcsim.ptx.stepping.log import Asked, Event, Log, Work
from tcsim.ptx.stepping.places import placed

Pause = Callable[["SteppedBlock", Site, Array], None]


@dataclass(eq=False)
class Fetching(Holding):
    """The machine as work in flight sees it, which notes what is read."""

    log: Log
    work: Work

    def read(self, access: Access) -> Array:
        """The bytes of an access."""
        self.log.reading = self.work.reads
        try:
            return self.block.read(access)
        finally:
            self.log.reading = None


class SteppedBlock(Block):
    """A block of threads that tells of every instruction."""

    log: Log
    pause: Pause
    number: int  # of the block, in the order in which blocks began
    chains = False  # each product is told of

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.mbarriers: set[int] = set()  # offsets in shared memory of the objects that were initialised
        self._hearing = self._meeting = False  # what lanes at different instructions ask for, and get
        self._shuffled: Array | None = None

    # --- what the program and the engine call

    def at(self, site: Site, w: Mask) -> None:
        """Threads are about to execute an instruction."""
        if self._hearing:
            return
        item = site.item
        mask = self._array(w)
        if item.predicate is not None:
            holds = self.registers[site.numbers[item.predicate.name]]
            mask = mask & (~holds if item.negated else holds)
        self.log.close()
        self.pause(self, site, mask)
        self.log.open(site, self.number, mask, self.registers).sources = self._shuffled

    def load(self, space: str, addresses: Array, size: int, w: Mask, alone: bool = True) -> Array:
        """A load, which is noted."""
        found = super().load(space, addresses, size, w, alone)
        threads = self.numbers if w is True else np.nonzero(w)[0]
        self._note(self._record_reads(), space, addresses, size, threads)
        return found

    def store(self, space: str, addresses: Array, values: Array, size: int, w: Mask, alone: bool = True) -> None:
        """A store, which is noted."""
        super().store(space, addresses, values, size, w, alone)
        threads = self.numbers if w is True else np.nonzero(w)[0]
        record = self.log.current
        if record is not None:
            self._note(record.writes, space, addresses, size, threads[store_order(threads, size)])

    def shuffle(self, mode: str, a: Array, b: Array, c: Array, w: Mask) -> tuple[Array, Array]:
        """A shuffle; which thread each value comes from is noted."""
        sources = super().shuffle(mode, self.numbers.astype(np.uint32), b, c, w)[0]
        if self._meeting:
            self._shuffled = sources
        elif self.log.current is not None:
            self.log.current.sources = sources
        return super().shuffle(mode, a, b, c, w)

    def read(self, access: Access) -> Array:
        """The bytes of an access, for effects."""
        found = super().read(access)
        if self.log.reading is not None:
            self.log.reading.append(self._event(access))
        return found

    def put_octets(self, space: str, addresses: Array, data: Array, cta: Array | None = None) -> None:
        """Bytes of effects, which are noted."""
        super().put_octets(space, addresses, data, cta)
        if len(addresses) and self.log.current is not None:
            self.log.current.writes.append(Event(self._numbered(space, addresses, cta), data.shape[1]))

    def holding(self, flight: Flight) -> Holding:
        """The machine as work in flight sees it."""
        work = self.log.work_of(flight.pending)
        work.fetched = self.log.serial + 1
        return Fetching(self, flight, self.log, work)

    def finished(self, flight: Flight, outcome: Outcome) -> None:
        """What work in flight comes to."""
        work = self.log.work_of(flight.pending)
        record, before = self.log.land(work)
        super().finished(flight, outcome)
        written = [
            int(number)
            for name, numbers in flight.bound.results
            if name in outcome.registers
            for number in numbers.tolist()
        ]
        self.log.landed(work, record, before, written, self.registers)

    def _request(self, fiber: Fiber) -> Any:
        self._hearing = True
        try:
            return super()._request(fiber)
        finally:
            self._hearing = False

    def _meet(self, requests: Any) -> bool:
        self._meeting = True
        try:
            return super()._meet(requests)
        finally:
            self._meeting, self._shuffled = False, None

    def _ask(self, bound: Bound, given: dict[str, Any], threads: Array, mask: Array) -> Effects:
        own = Asked(bound, threads, self.rank, threads[::32] // 32)
        if self.log.current is not None:
            self.log.current.asked.append(own)
        self.log.reading = own.reads
        try:
            found = super()._ask(bound, given, threads, mask)
        finally:
            self.log.reading = None
        own.effects = found
        own.operands = dict(Operands(bound, given, self, threads, mask))
        return found

    def _take(self, bound: Bound, found: Effects, threads: Array, mask: Array) -> None:
        record = self.log.current
        asked = record.asked[-1] if record is not None and record.asked else None
        if asked is not None:
            for pending in found.pending:
                planned = [self._event(own) for write in pending.writes for own in self.copies(write)]
                self.log.issue(asked, pending, [event for event in planned if len(event.numbers)])
        super()._take(bound, found, threads, mask)

    def _signal(self, signal: Signal, threads: Array) -> None:
        super()._signal(signal, threads)
        for at in self.copies(signal.at):
            for key in self.keys(at).tolist():
                block = self.blocks[key >> 24]
                assert isinstance(block, SteppedBlock)
                if signal.kind == "inval":
                    block.mbarriers.discard(key & 0xFFFFFF)
                elif signal.kind == "init":
                    block.mbarriers.add(key & 0xFFFFFF)

    # --- bytes as numbers

    def _record_reads(self) -> list[Event]:
        return self.log.current.reads if self.log.current is not None else []

    def _note(self, events: list[Event], space: str, addresses: Array, size: int, threads: Array) -> None:
        if not len(threads):
            return
        taken = addresses if len(threads) == self.threads and threads is self.numbers else addresses[threads]
        for own, segment, offset in self._parts(space, taken, size, threads):
            events.append(Event(self._in_launch(segment, offset, threads[own]), size, threads[own]))

    def _event(self, access: Access) -> Event:
        address, cta = self.places(access)
        return Event(self._numbered(access.space, address, cta), access.size)

    def _numbered(self, space: str, addresses: Array, cta: Array | None) -> Array:
        found = np.empty(len(addresses), np.uint64)
        for own, segment, offset in self._segments(space, addresses, 1, cta) if len(addresses) else ():
            found[own] = self._in_launch(segment, offset.view(np.uint64), None)
        return found

    def _in_launch(self, segment: Segment | None, offset: Array, threads: Array | None) -> Array:
        if segment is None:
            return placed("global", 0, offset)
        if segment is self.params:
            return placed("param", 0, offset)
        if segment is self.local:
            assert threads is not None
            return placed("local", self.number, offset.astype(np.int64) - threads * self.local_stride, threads)
        for block in self.blocks:
            assert isinstance(block, SteppedBlock)
            if segment is block.shared:
                return placed("shared", block.number, offset)
            if segment is block.tensor_memory:
                return placed("tmem", block.number, offset)
        raise LookupError("memory of no block of the cluster")


class SteppedGrid(Grid):
    """A grid whose blocks tell of every instruction."""

    kind = SteppedBlock

    def __init__(self, launch: Launch, log: Log, pause: Pause) -> None:
        super().__init__(launch)
        self.log, self.pause = log, pause
        self.blocks: list[SteppedBlock] = []  # of the clusters that run, and of the one that ended last
        self.begun: list[tuple[int, int, int]] = []  # by number: every block that began
        self.completed: bool | None = None
        self._told: list[Cluster] = []  # that ended since the last one began

    def run(self) -> bool:
        """Run every cluster."""
        self.completed = super().run()
        self.log.close()
        return self.completed

    def found(self) -> list[Hazard]:
        """What was wrong so far, of the clusters that run too."""
        running = dict.fromkeys(own.cluster for own in self.blocks if own.cluster not in self._told)
        return self.hazards + [
            hazard for own in running if own.observer is not None for hazard in own.observer.hazards()
        ]

    def _observed(self, cluster: Cluster, stop: Stop | None) -> None:
        super()._observed(cluster, stop)
        self._told.append(cluster)

    def _cluster(self, indices: Sequence[tuple[int, int, int]]) -> Cluster:
        made = super()._cluster(indices)
        self.blocks = [own for own in self.blocks if own.cluster not in self._told]
        self._told.clear()
        for block in made.blocks:
            assert isinstance(block, SteppedBlock)
            block.log, block.pause, block.number = self.log, self.pause, len(self.begun)
            self.begun.append(block.index)
            self.blocks.append(block)
        return made
