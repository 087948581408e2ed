"""Work in flight: what was issued and is not complete, in which groups, and the order in which it completes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Any

import numpy as np

from tcsim.model.effects import Outcome, Pending, Signal
from tcsim.ptx.faults import EXCEPTIONS, stop_for
from tcsim.ptx.threads import Array, Stop

if TYPE_CHECKING:
    from tcsim.ptx.families import Bound
    from tcsim.ptx.performer import Performer

Schedule = str | int
"""When pending work completes: "late", "early", or the seed of a random legal order. "late:24": late, but that of line 24 of the PTX early;
"early:24": early, but that of line 24 late."""

IN_ORDER = ("wgmma", "tcgen05")
"""Groups whose work is executed in the order of issue."""
WITHOUT_COMMIT = ("tcgen05.ld", "tcgen05.st")
"""Groups that are waited for without being committed."""
_CHANCE = 8  # in a random order, one step in eight moves some work on


@dataclass(eq=False)
class Flight:
    """Work that goes on: who issued it, and in which of their groups."""

    pending: Pending
    bound: Bound
    block: Performer
    threads: Array
    groups: Array  # of each thread: how many it had committed
    asked: Array  # the threads of the instruction, whose entries effects count
    followers: list[Tracker] = field(default_factory=list)
    fetched: bool = False
    data: Any = None

    @property
    def kind(self) -> str:
        """The kind of its group."""
        return self.pending.group or ""


@dataclass(eq=False)
class Tracker:
    """Signals that follow when earlier work is complete."""

    signals: tuple[Signal, ...]
    block: Performer
    threads: Array
    left: int  # of the work that is waited for


class Queue:
    """The work in flight of a cluster, the oldest first."""

    def __init__(self, schedule: Schedule) -> None:
        self.flights: list[Flight] = []
        self.early = is_early(schedule)
        self.other = int(str(schedule).partition(":")[2] or -1)  # the line whose work completes the other way
        self.random = Random(schedule) if isinstance(schedule, int) else None

    def add(self, flight: Flight) -> None:
        """Issue work."""
        self.flights.append(flight)
        if flight.block.observer is not None:
            flight.block.observer.issued(flight)
        if self.early != (flight.bound.line == self.other):
            self.finish(flight)

    def track(self, kind: str, signals: tuple[Signal, ...], block: Performer, threads: Array) -> None:
        """Signal when the earlier work of some threads is complete."""
        earlier = [own for own in self.flights if own.kind == kind and own.block is block and _shared(own, threads)]
        tracker = Tracker(signals, block, threads, len(earlier))
        for flight in earlier:
            flight.followers.append(tracker)
        if block.observer is not None:
            block.observer.tracking(tracker, kind)
        if not earlier:
            _follow(tracker)

    def wait(self, kind: str, block: Performer, threads: Array, counts: Array, left: int, reads_only: bool) -> None:
        """Complete the groups of some threads but the latest few, or only what they read."""
        waiting = np.zeros(len(counts), bool)
        waiting[threads] = True
        for flight in [own for own in self.flights if own.kind == kind and own.block is block]:
            own = flight.threads
            old: Any = True if kind in WITHOUT_COMMIT else flight.groups < counts[own] - left
            if (waiting[own] & old).any() and flight in self.flights:
                if reads_only:
                    self.fetch(flight)
                else:
                    self.finish(flight)

    def fetch(self, flight: Flight) -> None:
        """Let work read what it reads. Raises Stop, at the instruction that issued it."""
        if not flight.fetched:
            with _issued_by(flight):
                flight.data = flight.pending.fetch(flight.block.holding(flight))
            flight.fetched = True
            if flight.block.observer is not None:
                flight.block.observer.fetched(flight)

    def finish(self, flight: Flight) -> None:
        """Let work write what it writes, after the work that has to come before."""
        if flight.kind in IN_ORDER:
            for earlier in list(self.flights):
                if earlier is flight:
                    break
                if earlier.kind == flight.kind and earlier.block is flight.block and _shared(earlier, flight.threads):
                    self._complete(earlier)
        self._complete(flight)

    def _complete(self, flight: Flight) -> None:
        self.fetch(flight)
        self.flights.remove(flight)
        observer = flight.block.observer
        with _issued_by(flight):
            if observer is not None:
                observer.landing(flight)
            flight.block.finished(flight, flight.pending.finish(flight.data))
            if observer is not None:
                observer.landed(flight)
            for tracker in flight.followers:
                tracker.left -= 1
                if tracker.left == 0:
                    _follow(tracker)

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
        self.finish(flight)
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


def _follow(tracker: Tracker) -> None:
    """Give the signals of a tracker whose work is done."""
    observer = tracker.block.observer
    if observer is not None:
        observer.following(tracker)
    tracker.block.take_outcome(Outcome(signals=tracker.signals), tracker.threads)
    if observer is not None:
        observer.followed(tracker)


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
    flight.block.cluster.running = flight.block  # type: ignore[assignment]
    stop.line = stop.line or flight.bound.line
    stop.thread = int(flight.threads[0]) if stop.thread is None else stop.thread
    return stop


def _shared(flight: Flight, threads: Array) -> bool:
    """Whether a thread that issued the work is among some."""
    own = flight.threads
    if len(own) == len(threads) and own[0] == threads[0] and own[-1] == threads[-1]:
        return True
    return bool(np.isin(own, threads).any()) if len(own) > 1 or len(threads) > 1 else bool(own[0] == threads[0])


__all__ = ["IN_ORDER", "Flight", "Queue", "Schedule", "Tracker", "is_early"]
