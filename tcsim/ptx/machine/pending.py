"""Work in flight: what was issued and is not complete, in which groups, and the order in which it completes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from random import Random
from typing import Any

import numpy as np

from tcsim.model.effects import Outcome, Signal
from tcsim.ptx.machine.arrays import Array
from tcsim.ptx.machine.events import Events
from tcsim.ptx.machine.faults import EXCEPTIONS, Stop, stop_for
from tcsim.ptx.machine.flights import Flight, Tracker

Schedule = str | int
"""When pending work completes: "late", "early", or the seed of a random legal order. "late:24": late, but that of line 24 of the PTX early;
"early:24": early, but that of line 24 late."""

IN_ORDER = ("wgmma", "tcgen05")
"""Groups whose work is executed in the order of issue."""
WITHOUT_COMMIT = ("tcgen05.ld", "tcgen05.st")
"""Groups that are waited for without being committed."""
_CHANCE = 8  # in a random order, one step in eight moves some work on


class Queue:
    """The work in flight of a cluster, the oldest first."""

    def __init__(self, schedule: Schedule, events: Events) -> None:
        self.events = events
        self.flights: list[Flight] = []
        self.unwaited: list[Flight] = []  # those that write registers and are in groups: until a wait covers them
        self.early = is_early(schedule)
        self.other = int(str(schedule).partition(":")[2] or -1)  # the line whose work completes the other way
        self.random = Random(schedule) if isinstance(schedule, int) else None

    def add(self, flight: Flight) -> None:
        """Issue work."""
        self.flights.append(flight)
        if flight.kind not in WITHOUT_COMMIT and flight.bound.model.row.lands_later:
            self.unwaited.append(flight)
        for hear in self.events.issued:
            hear(flight)
        if self.early != (flight.bound.line == self.other):
            self.finish(flight)

    def track(self, kind: str, signals: tuple[Signal, ...], block: Any, threads: Array) -> None:
        """Signal when the earlier work of some threads is complete."""
        earlier = [own for own in self.flights if own.kind == kind and own.block is block and _shared(own, threads)]
        tracker = Tracker(signals, block, threads, len(earlier))
        for flight in earlier:
            flight.followers.append(tracker)
        for hear in self.events.tracking:
            hear(tracker, kind)
        if not earlier:
            self._follow(tracker)

    def wait(self, kind: str, block: Any, threads: Array, counts: Array, left: int, reads_only: bool) -> None:
        """Complete the groups of some threads but the latest few, or only what they read."""
        waiting = np.zeros(len(counts), bool)
        waiting[threads] = True

        def is_due(flight: Flight) -> Array:
            own = flight.threads
            old: Any = True if kind in WITHOUT_COMMIT else flight.groups < counts[own] - left
            return np.asarray(waiting[own] & old)

        mine = [own for own in self.flights if own.kind == kind and own.block is block]
        due = [
            self.part(own, own.threads[which]) for own in mine for which in (is_due(own),) if np.count_nonzero(which)
        ]
        mine = (
            [own for own in self.flights if own.kind == kind and own.block is block]
            if block.threads.batch > 1
            else mine
        )
        self.unwaited = [
            own
            for own in self.unwaited
            if own.kind != kind or own.block is not block or not (which := is_due(own)).any() or self._keeps(own, which)
        ]
        if reads_only:
            for flight in due:
                self.fetch(flight)
        elif kind in IN_ORDER:
            self._in_order(due, mine)
        else:
            for flight in due:
                if flight in self.flights:
                    self.finish(flight)

    def part(self, flight: Flight, threads: Array) -> Flight:
        """The work of the blocks of the batch that some of its threads are of: all of it, or a part that is work of its own from now on."""
        blocks = flight.block.threads.block_of(threads)
        if flight.block.threads.batch == 1 or len(own := flight.blocks) == 1:
            return flight
        which = np.zeros(flight.block.threads.batch, bool)
        which[blocks] = True
        if which[own].all():
            return flight
        found = flight.part(which)
        self.flights.insert(self.flights.index(flight), found)
        if flight in self.unwaited:
            self.unwaited.append(found)
        return found

    def _keeps(self, flight: Flight, which: Array) -> bool:
        """Whether work that some threads have waited for is that of other blocks of the batch too: it is theirs from now on."""
        blocks = np.zeros(flight.block.threads.batch, bool)
        blocks[flight.block.threads.block_of(flight.threads[which])] = True
        if blocks[flight.blocks].all():
            return False
        flight.part(blocks)
        return True

    def fetch(self, flight: Flight) -> None:
        """Let work read what it reads. Raises Stop, at the instruction that issued it."""
        if not flight.fetched:
            for hear in self.events.fetching:
                hear(flight)
            with _issued_by(flight):
                flight.data = flight.pending.fetch(flight.block.performer.look(flight))
            flight.fetched = True
            for hear in self.events.fetched:
                hear(flight)

    def finish_chain(self, flight: Flight) -> None:
        """Let work write what it writes, and with it what is next in flight as long as it continues it: nothing can happen between."""
        run = [flight]
        for other in self.flights[self.flights.index(flight) + 1 :] if flight.pending.accumulator is not None else ():
            if np.isin(other.blocks, flight.blocks).any():
                if not other.continues(run[-1]):
                    break
                run.append(other)
        if len(run) == 1 or self.random is not None:
            self.finish(flight)
        else:
            self._in_order(run, [own for own in self.flights if own.kind == flight.kind and own.block is flight.block])

    def finish(self, flight: Flight) -> None:
        """Let work write what it writes, after the work that has to come before."""
        if flight.kind in IN_ORDER:
            mine = [own for own in self.flights if own.kind == flight.kind and own.block is flight.block]
            self._in_order([flight], mine)
        else:
            self._complete([flight])

    def _in_order(self, due: list[Flight], mine: list[Flight]) -> None:
        """Complete some of the work of a kind, each after what its threads had issued before; what can be is done in one go."""
        wanted = list(due)
        for flight in due:
            for earlier in mine[: mine.index(flight)]:
                if earlier not in wanted and _shared(earlier, flight.threads):
                    wanted.append(self.part(earlier, flight.threads))
        todo = [own for own in self.flights if own in wanted]
        run: list[Flight] = []
        for flight in todo:
            if run and (self.events.delivered or not flight.continues(run[-1])):  # then each is told of
                self._complete(run)
                run = []
            run.append(flight)
        if run:
            self._complete(run)

    def _complete(self, run: list[Flight]) -> None:
        """Complete one piece of work, or several that are a chain."""
        for flight in run:
            self.fetch(flight)
            self.flights.remove(flight)
        *before, last = run
        for flight in before:
            for hear in (*self.events.landing, *self.events.landed):
                hear(flight)
        with _issued_by(last):
            for hear in self.events.landing:
                hear(last)
            if before and last.pending.chain is not None:
                outcome = last.pending.chain([flight.data for flight in run])
            else:
                outcome = last.pending.finish(last.data)
            last.block.performer.finish(last, outcome)
            for hear in self.events.landed:
                hear(last)
            for tracker in last.followers:
                tracker.left -= 1
                if tracker.left == 0:
                    self._follow(tracker)

    def _follow(self, tracker: Tracker) -> None:
        """Give the signals of a tracker whose work is done."""
        for hear in self.events.following:
            hear(tracker)
        tracker.block.performer.apply(Outcome(signals=tracker.signals), tracker.threads)
        for hear in self.events.followed:
            hear(tracker)

    def force(self) -> bool:
        """Complete one piece of work, because nothing else can go on; False where there is none.

        First what no thread can wait for but at an mbarrier.
        """
        if not self.flights:
            return False
        signalling = (own for own in self.flights if own.kind in ("", "tcgen05") or own.followers)
        flight = next(signalling, self.flights[0])
        if self.random is not None:
            flight = self.random.choice(self.flights)
        self.finish_chain(flight)
        return True

    def tick(self) -> None:
        """A moment passes: in a random order, some work may go on."""
        if self.random is None or not self.flights or self.random.randrange(_CHANCE):
            return
        flight = self.random.choice(self.flights)
        if flight.fetched or flight.kind in IN_ORDER:
            self.finish(flight)
        else:
            self.fetch(flight)

    def drain(self) -> None:
        """Complete everything."""
        while self.flights:
            self.finish(self.flights[0])


def is_early(schedule: Schedule) -> bool:
    """Whether work completes as early as it may, that of one line perhaps left out.

    >>> is_early("early:24"), is_early("late:24"), is_early(7)
    (True, False, False)
    """
    return str(schedule).partition(":")[0] == "early"


@contextmanager
def _issued_by(flight: Flight) -> Iterator[None]:
    """A fault of work in flight is one of the instruction that issued it."""
    try:
        yield
    except Stop as stop:
        raise _placed(stop, flight) from None
    except EXCEPTIONS as error:
        raise _placed(stop_for(error), flight) from error


def _placed(stop: Stop, flight: Flight) -> Stop:
    flight.block.cluster.running = flight.block
    stop.item = stop.item or flight.bound.item
    stop.thread = int(flight.threads[0]) if stop.thread is None else stop.thread
    return stop


def _shared(flight: Flight, threads: Array) -> bool:
    """Whether a thread that issued the work is among some; both ascend."""
    own = flight.threads
    if own[0] > threads[-1] or own[-1] < threads[0]:
        return False
    few, many = (own, threads) if len(own) < len(threads) else (threads, own)
    places = np.minimum(np.searchsorted(many, few), len(many) - 1)
    return bool((many[places] == few).any())


__all__ = ["IN_ORDER", "Queue", "Schedule", "is_early"]
