"""A grid in several processes: each runs a range of its clusters on a copy of memory; the results are those of the grid in order.

Clusters run one after the other, each to its end. So a range of them does what it does in order if it reads nothing that one before it
writes, and asks for nothing that others may have taken: then what it wrote is put into memory, in the order of the ranges. In every other
case (a fault or a limit, a cluster that does not end without others, memory allocated, a process that dies) the results are dropped
and the grid runs in order.

Where nothing is said of processes, a grid begins in order; once the clusters that are left are expected to take long, by those
that have ended or by earlier launches of the program, there is one for each processor.
"""

from __future__ import annotations

import gc
import os
import pickle
import selectors
import signal
import sys
import threading
import time
import warnings
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from mmap import mmap
from typing import NoReturn

import numpy as np

from tcsim.engines import threads
from tcsim.ptx.counters.tally import Tally
from tcsim.ptx.hazards.hazard import Hazard
from tcsim.ptx.launch.grid import Grid, Launch
from tcsim.ptx.launch.watched import GiveUp, Marks, Watched, Written, shared_marks
from tcsim.ptx.machine.arrays import Array
from tcsim.ptx.machine.cluster import Cluster
from tcsim.ptx.machine.ledger import Sums
from tcsim.ptx.machine.pending import is_early

MOST_PROCESSES = 64
_LENGTH = 8  # bytes that say how long a result is
_PIECE = 1 << 20  # bytes that are read from a process at once
_LOOK = 0.25  # seconds after which it is looked at whether a range that still runs depends on those that have ended
WORTH = 1.0
"""Seconds that clusters are expected to take which are worth processes where nothing is said of them: forking and joining take tenths."""


@dataclass(frozen=True)
class Result:
    """What a range of clusters did."""

    instructions: int
    hazards: list[Hazard]
    inexact: Counter[str]
    sums: Sums
    output: list[str]
    checked: list[tuple[int, int, int]]
    batch: int
    alone: str
    written: list[Written]
    tally: Tally | None
    ended: int
    observed: int


class Range(Grid):
    """Some clusters of a grid, which have to end one after the other without the others. Raises GiveUp where they do not."""

    def __init__(self, launch: Launch, first: int, behind: int, whole: Grid) -> None:
        super().__init__(launch)
        self.first, self.behind, self.began = first, behind, whole.began
        self._kinds, self._way = whole._kinds.copy(), whole._way
        self.told: Array | None = (
            None  # where it says how many clusters have ended, and how many instructions were executed
        )

    def _numbers(self) -> range:
        return range(self.first, self.behind)

    def _spend(self, instructions: int) -> None:
        super()._spend(instructions)
        if self.told is not None:
            self.told[:] = self.ended, self.instructions

    def _advance(self, cluster: Cluster) -> bool | None:
        if not super()._advance(cluster):
            raise GiveUp
        return True

    def _cancel(self) -> tuple[int, int, int] | None:
        if not is_early(self.launch.schedule):
            raise GiveUp
        return None


def run(launch: Launch) -> tuple[Grid, bool, int]:
    """Run a grid: what became of it, whether it ran to its end, and how many processes did it."""
    grid, count, automatic, ran = Grid(launch), _count(launch), not launch.limits.processes, 1
    took, before, lowered = launch.program.took, (grid.next, grid.began), launch.program.lowered

    def share(grid: Grid) -> None:
        nonlocal ran, before
        now, (first, then), left = time.monotonic(), before, launch.shape.clusters - grid.next
        each = (now - then) / (grid.next - first) if grid.next > first else took.expected
        before = grid.next, now
        if automatic and (each * left <= WORTH or left < 2 or grid.alone):
            return
        grid.share, processes = None, min(count, left)
        ran = processes if _shared(grid, processes) else 1

    if count > 1:
        grid.share = share if automatic else None
        share(grid)
    ended = ran > 1 or grid.run()
    if ended and not grid.alone and launch.program.lowered == lowered:  # without the time of compiling regions
        took.note((time.monotonic() - grid.began) / launch.shape.clusters, ran > 1)
    return grid, ended, ran


def _count(launch: Launch) -> int:
    """How many processes may run a grid: as many as asked for, at most one for each cluster; one where a process cannot be forked."""
    asked = launch.limits.processes or (threads.count() if _alone() else 1)
    if asked == 1 or launch.cooperative or not sys.platform.startswith("linux"):
        return 1
    return min(asked, MOST_PROCESSES, launch.shape.clusters)


def _alone() -> bool:
    """Whether no threads run here but those of engines: one might hold a lock for ever in a forked process."""
    return all(own is threading.main_thread() or own.name.startswith(threads.NAME) for own in threading.enumerate())


# --- the process that launches


def _shared(grid: Grid, count: int) -> bool:
    """Run the clusters that are left in processes; whether they did, to their end."""
    results, sums = _in_processes(grid, count), Sums()
    if results is None or not all(sums.take(own.sums) for own in results) or not grid.sums.take(sums):
        return False
    _merge(grid, results)
    grid.next = grid.launch.shape.clusters
    return True


def _in_processes(grid: Grid, count: int) -> list[Result] | None:
    """The results of each range, in order; None if one of them gave up, or the limits of the launch are reached."""
    launch = grid.launch
    memory = max(launch.limits.memory // count, 1)  # the limit is one of all blocks that run at once
    part = replace(launch, limits=replace(launch.limits, memory=memory, processes=1), progress=None)
    reads, workers = list[dict[int, Marks]](), list[tuple[int, int]]()
    first, left = grid.next, launch.shape.clusters - grid.next
    told = np.frombuffer(mmap(-1, 16 * count), np.int64).reshape(
        count, 2
    )  # by process: clusters that ended, instructions
    try:
        for number in range(count):
            reads.append(shared_marks(launch.memory.segments))
            begin, behind = (first + left * place // count for place in (number, number + 1))
            workers.append(_start(part, reads[-1], begin, behind, grid, told[number], count))

        def look() -> None:
            ended, instructions = told.sum(0).tolist()
            if launch.progress is not None:
                launch.progress(first + ended, launch.shape.clusters, grid.instructions + instructions)

        results = _collected([file for file, _ in workers], reads, grid.began + launch.limits.seconds, look)
    except OSError:  # no process, or no pipe, to be had
        return None
    finally:
        for file, process in workers:
            os.close(file)
            with suppress(ProcessLookupError, ChildProcessError):
                os.kill(process, signal.SIGKILL)
                os.waitpid(process, 0)
    done = grid.instructions + sum(own.instructions for own in results or ())
    return results if done <= launch.limits.instructions else None


def _start(
    launch: Launch, reads: dict[int, Marks], first: int, behind: int, whole: Grid, told: Array, count: int
) -> tuple[int, int]:
    """Fork a process for a range: the file that its result comes from, and its number."""
    file, other = os.pipe()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of threads: those of a BLAS are prepared for it
            process = os.fork()
    except OSError:
        os.close(file)
        os.close(other)
        raise
    if process == 0:
        os.environ[threads.VARIABLE] = str(max(threads.count() // count, 1))
        _work(other, launch, reads, first, behind, whole, told)
    os.close(other)
    return file, process


def _collected(
    files: list[int], reads: list[dict[int, Marks]], until: float, look: Callable[[], None]
) -> list[Result] | None:
    """What the processes send, in their order; None as soon as one ends without a result or depends on another, or time is up. look: called now and then."""
    received = {file: bytearray() for file in files}
    found: dict[int, Result] = {}
    looked = time.monotonic()
    with selectors.DefaultSelector() as selector:
        for number, file in enumerate(files):
            selector.register(file, selectors.EVENT_READ, number)
        while len(found) < len(files):
            if time.monotonic() > until:
                return None
            for key, _ in selector.select(min(max(until - time.monotonic(), 0), _LOOK)):
                piece = os.read(key.fd, _PIECE)
                received[key.fd] += piece
                if piece:
                    continue
                selector.unregister(key.fd)
                told = bytes(received.pop(key.fd))
                if int.from_bytes(told[:_LENGTH], "little") != len(told) - _LENGTH:
                    return None
                found[key.data] = pickle.loads(told[_LENGTH:])  # of a process that we forked
            if time.monotonic() - looked > _LOOK:  # a range may wait for ever for what one before it has done
                look()
                if not _independent(reads, found):
                    return None
                looked = time.monotonic()
    return [found[number] for number in range(len(files))] if _independent(reads, found) else None


def _independent(reads: list[dict[int, Marks]], found: dict[int, Result]) -> bool:
    """Whether no range has read what one before it wrote, as far as ranges have ended."""
    before: dict[int, np.ndarray[tuple[int], np.dtype[np.bool_]]] = {}
    extents: dict[int, slice] = {}
    for number, marks in enumerate(reads):
        for address, extent in extents.items():
            if (before[address][extent] & marks[address].data[extent].view(bool)).any():
                return False
        for own in found[number].written if number in found else ():
            if own.segment not in before:
                before[own.segment], extents[own.segment] = np.zeros(marks[own.segment].size, bool), own.extent
            before[own.segment][own.extent] |= own.mask
            old, new = extents[own.segment], own.extent
            extents[own.segment] = slice(min(old.start, new.start), max(old.stop, new.stop))
    return True


def _merge(grid: Grid, results: list[Result]) -> None:
    """Put together what the ranges did, in order."""
    for own in results:
        grid.instructions += own.instructions
        grid.hazards += own.hazards
        grid.inexact.update(own.inexact)
        grid.batch, grid.alone = max(grid.batch, own.batch), grid.alone or own.alone
        grid.output += own.output
        grid.checked += own.checked
        grid.ended, grid.observed = grid.ended + own.ended, grid.observed + own.observed
        if grid.tally is not None and own.tally is not None:
            grid.tally.take(own.tally)
        for written in own.written:
            segment = grid.launch.memory.segment(written.segment)
            assert segment is not None
            segment.data[written.extent][written.mask] = written.data


# --- a process of its own


def _work(
    file: int, launch: Launch, reads: dict[int, Marks], first: int, behind: int, whole: Grid, told: Array
) -> NoReturn:
    """Run a range in a forked process, send its result, and end; nothing is sent if it gives up or fails."""
    try:
        gc.freeze()  # what the other process has is not looked at
        found = pickle.dumps(ranged(launch, reads, first, behind, whole, told), pickle.HIGHEST_PROTOCOL)
        with open(file, "wb") as pipe:
            pipe.write(len(found).to_bytes(_LENGTH, "little"))
            pipe.write(found)
    finally:
        os._exit(0)


def ranged(
    launch: Launch, reads: dict[int, Marks], first: int, behind: int, whole: Grid, told: Array | None = None
) -> Result:
    """Run the clusters from one number up to another on a memory that may be changed. Raises GiveUp."""
    memory, params = Watched(launch.memory, reads), launch.params.data.copy()
    own = Range(replace(launch, memory=memory), first, behind, whole)
    own.told = told
    if not own.run() or not np.array_equal(params, launch.params.data):
        raise GiveUp
    return Result(
        own.instructions, own.hazards, own.inexact, own.sums, own.output, own.checked, own.batch, own.alone, memory.written(),
        own.tally, own.ended, own.observed,
    )  # fmt: skip
