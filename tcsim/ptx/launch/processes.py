"""A grid in several processes: each runs a range of its clusters on a copy of memory; the results are those of the grid in order.

Clusters run one after the other, each to its end. So a range of them does what it does in order if it reads nothing that one before it
writes, and asks for nothing that others may have taken: then what it wrote is put into memory, in the order of the ranges. In every other
case (a fault or a limit, a cluster that does not end without others, memory allocated, a process that dies) the results are dropped
and the grid runs in order.
"""

from __future__ import annotations

import gc
import os
import pickle
import selectors
import signal
import sys
import time
import warnings
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import NoReturn

import numpy as np

from tcsim.ptx.counters.tally import Tally
from tcsim.ptx.hazards.hazard import Hazard
from tcsim.ptx.launch.grid import Grid, Launch
from tcsim.ptx.launch.watched import GiveUp, Marks, Watched, Written, shared_marks
from tcsim.ptx.machine.cluster import Cluster
from tcsim.ptx.machine.ledger import Sums
from tcsim.ptx.machine.pending import is_early

MOST_PROCESSES = 64
_LENGTH = 8  # bytes that say how long a result is
_PIECE = 1 << 20  # bytes that are read from a process at once
_LOOK = 0.25  # seconds after which it is looked at whether a range that still runs depends on those that have ended


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
    tally: Tally | None = None


class Range(Grid):
    """Some clusters of a grid, which have to end one after the other without the others. Raises GiveUp where they do not."""

    def __init__(self, launch: Launch, first: int, behind: int, began: float) -> None:
        super().__init__(launch)
        self.first, self.behind, self.began = first, behind, began

    def _numbers(self) -> range:
        return range(self.first, self.behind)

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
    grid, count = Grid(launch), _count(launch)
    if count > 1:
        results = _in_processes(launch, grid.began, count)
        sums = Sums()
        if results is not None and all(sums.take(own.sums) for own in results):
            grid.sums = sums
            _merge(grid, results)
            return grid, True, count
    return grid, grid.run(), 1


def _count(launch: Launch) -> int:
    """How many processes run a grid: as many as asked for, at most one for each cluster; one where a process cannot be forked."""
    if launch.limits.processes == 1 or launch.cooperative or not sys.platform.startswith("linux"):
        return 1
    return min(launch.limits.processes, MOST_PROCESSES, launch.shape.clusters)


# --- the process that launches


def _in_processes(launch: Launch, began: float, count: int) -> list[Result] | None:
    """The results of each range, in order; None if one of them gave up, or the limits of the launch are reached."""
    memory = max(launch.limits.memory // count, 1)  # the limit is one of all blocks that run at once
    part = replace(launch, limits=replace(launch.limits, memory=memory, processes=1), progress=None)
    clusters, reads, workers = launch.shape.clusters, list[dict[int, Marks]](), list[tuple[int, int]]()
    try:
        for number in range(count):
            reads.append(shared_marks(launch.memory.segments))
            first, behind = (clusters * place // count for place in (number, number + 1))
            workers.append(_start(part, reads[-1], first, behind, began))
        results = _collected([file for file, _ in workers], reads, began + launch.limits.seconds)
    except OSError:  # no process, or no pipe, to be had
        return None
    finally:
        for file, process in workers:
            os.close(file)
            with suppress(ProcessLookupError, ChildProcessError):
                os.kill(process, signal.SIGKILL)
                os.waitpid(process, 0)
    if results is None or sum(own.instructions for own in results) > launch.limits.instructions:
        return None
    return results


def _start(launch: Launch, reads: dict[int, Marks], first: int, behind: int, began: float) -> tuple[int, int]:
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
        _work(other, launch, reads, first, behind, began)
    os.close(other)
    return file, process


def _collected(files: list[int], reads: list[dict[int, Marks]], until: float) -> list[Result] | None:
    """What the processes send, in their order; None as soon as one ends without a result or depends on another, or time is up."""
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
        if grid.tally is not None and own.tally is not None:
            grid.tally.take(own.tally)
        for written in own.written:
            segment = grid.launch.memory.segment(written.segment)
            assert segment is not None
            segment.data[written.extent][written.mask] = written.data


# --- a process of its own


def _work(file: int, launch: Launch, reads: dict[int, Marks], first: int, behind: int, began: float) -> NoReturn:
    """Run a range in a forked process, send its result, and end; nothing is sent if it gives up or fails."""
    try:
        gc.freeze()  # what the other process has is not looked at
        told = pickle.dumps(ranged(launch, reads, first, behind, began), pickle.HIGHEST_PROTOCOL)
        with open(file, "wb") as pipe:
            pipe.write(len(told).to_bytes(_LENGTH, "little"))
            pipe.write(told)
    finally:
        os._exit(0)


def ranged(launch: Launch, reads: dict[int, Marks], first: int, behind: int, began: float) -> Result:
    """Run the clusters from one number up to another on a memory that may be changed. Raises GiveUp."""
    memory, params = Watched(launch.memory, reads), launch.params.data.copy()
    own = Range(replace(launch, memory=memory), first, behind, began)
    if not own.run() or not np.array_equal(params, launch.params.data):
        raise GiveUp
    return Result(
        own.instructions, own.hazards, own.inexact, own.sums, own.output, own.checked, own.batch, own.alone, memory.written(),
        own.tally,
    )  # fmt: skip
