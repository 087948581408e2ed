"""What a stepped launch did, instruction by instruction: which registers and bytes were read and written, bounded in memory.

Every byte of a launch is one number: its state space, the block and thread whose it is, and the offset there.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from tcsim.model.effects import Effects, Pending
from tcsim.model.statement import Address, registers_in
from tcsim.ptx.compile.compiled import Site
from tcsim.ptx.compile.families import Bound
from tcsim.ptx.compile.ordinary import ordinary
from tcsim.ptx.machine.arrays import Array

MOST_BYTES = 512 << 20
"""Bytes that the log of a session takes before it forgets what is oldest."""
_RECORD = 600  # bytes of a record without arrays
_KEPT = 0.75  # what is left of a full log
_PAGE = np.uint64(8)  # bits of a byte's number below those of the piece of memory by which writes are found again
_PAGE_BYTES = 1 << int(_PAGE)


Byte = int | tuple[int, int, int, int]
"""A byte of memory by its number, or of a register: block, register, thread, byte."""
_TAGS = {"global": 0, "shared": 8, "local": 9, "tmem": 10, "param": 11}
_NAMES = {tag: name for name, tag in _TAGS.items()}
_TAG, _BLOCK, _THREAD = 60, 34, 24  # the lowest bit of each part
_OFFSET = (1 << _THREAD) - 1


class Place(NamedTuple):
    """A byte of memory, taken apart."""

    space: str
    block: int  # number of the block in the order in which blocks began; of local, shared and Tensor Memory
    thread: int  # of local memory
    offset: int  # the address, in global memory


def placed(space: str, block: int, offsets: Array, threads: Array | int = 0) -> Array:
    """Bytes as numbers, uint64.

    >>> taken_apart(int(placed("shared", 3, np.array([1024]))[0]))
    Place(space='shared', block=3, thread=0, offset=1024)
    """
    if space == "global":
        return offsets.astype(np.uint64)  # a copy: registers that hold addresses change
    base = np.uint64(_TAGS[space] << _TAG | block << _BLOCK)
    of_thread = np.asarray(threads).astype(np.uint64) << np.uint64(_THREAD)
    return base | of_thread | np.asarray(offsets).astype(np.uint64)


def taken_apart(number: int) -> Place:
    """What a number stands for.

    >>> taken_apart(int(placed("local", 2, np.array([16]), 5)[0]))
    Place(space='local', block=2, thread=5, offset=16)
    """
    tag = number >> _TAG
    if not tag:
        return Place("global", 0, 0, number)
    block, thread = number >> _BLOCK & (1 << _TAG - _BLOCK) - 1, number >> _THREAD & (1 << _BLOCK - _THREAD) - 1
    return Place(_NAMES[tag], block, thread, number & _OFFSET)


def runs(numbers: Iterable[int]) -> list[tuple[int, int]]:
    """(first, how many) of numbers that follow each other, sorted.

    >>> runs([5, 3, 4, 9])
    [(3, 3), (9, 1)]
    """
    found: list[tuple[int, int]] = []
    for number in sorted(set(numbers)):
        if found and number == found[-1][0] + found[-1][1]:
            found[-1] = found[-1][0], found[-1][1] + 1
        else:
            found.append((number, 1))
    return found


def results_of(site: Site) -> tuple[int, ...]:
    """The registers that an instruction which is not one of the catalog's writes: those of its first operand."""
    item = site.item
    if not ordinary(item.opcode).writes or not item.operands or isinstance(item.operands[0], Address):
        return ()
    return tuple(site.numbers[name] for name in registers_in(item.operands[0]))


@dataclass(eq=False)
class Event:
    """Accesses of one size."""

    numbers: Array  # the first byte of each, uint64
    size: int
    threads: Array | None = None  # who made each; of several that write one byte the last counts

    @cached_property
    def low(self) -> int:
        """The first byte of all."""
        return int(self.numbers.min())

    @cached_property
    def high(self) -> int:
        """The byte behind the last."""
        return int(self.numbers.max()) + self.size

    def bytes(self) -> Iterator[int]:
        """Every byte, access by access."""
        return (byte for first in self.numbers.tolist() for byte in range(first, first + self.size))

    def pages(self) -> list[int]:
        """The pieces of memory that are touched."""
        steps = np.arange(0, self.size + _PAGE_BYTES - 1, _PAGE_BYTES, dtype=np.uint64)
        touched = np.minimum(self.numbers[:, None] + steps, self.numbers[:, None] + np.uint64(self.size - 1))
        found: list[int] = np.unique(touched >> _PAGE).tolist()
        return found

    def entry(self, byte: int) -> int | None:
        """The last access that touches a byte; None if there is none."""
        if not len(self.numbers) or not self.low <= byte < self.high:
            return None
        found = np.flatnonzero(
            np.uint64(byte) - self.numbers < np.uint64(self.size)
        )  # what begins behind it wraps around
        return int(found[-1]) if len(found) else None


@dataclass(eq=False)
class Asked:
    """An instruction of the catalog that was asked what it does."""

    bound: Bound
    threads: Array  # whose operands it took
    rank: int
    warp: Array
    operands: Mapping[str, Any] = field(default_factory=dict)  # where they may be needed again
    effects: Effects | None = None
    reads: list[Event] = field(default_factory=list)  # what it read of the view, in order
    moved: Any = None  # what tcsim.ptx.stepping.moves found, once it was asked

    def written(self) -> list[int]:
        """The registers that it wrote."""
        if self.effects is None or self.effects.blocked is not None:
            return []
        results = (numbers for name, numbers in self.bound.results if name in self.effects.now.registers)
        return [number for numbers in results for number in numbers.tolist()]


@dataclass(eq=False)
class Work:
    """Work in flight: when it was issued, read and written."""

    record: Record
    asked: Asked
    pending: Pending
    planned: list[Event]  # what it will write in memory
    reads: list[Event] = field(default_factory=list)  # what it read, in order
    fetched: int | None = None
    landed: int | None = None
    moved: Any = None


@dataclass(eq=False)
class Record:
    """One execution of an instruction, or the landing of its work."""

    time: int
    site: Site
    block: int  # number of the block
    bits: Array  # the threads that executed it, packed
    work: Work | None = None  # of a landing: what landed
    values: dict[int, Array] = field(default_factory=dict)  # registers that it wrote, as they were then: of all threads
    reads: list[Event] = field(default_factory=list)
    writes: list[Event] = field(default_factory=list)
    asked: list[Asked] = field(default_factory=list)
    sources: Array | None = None  # of shfl: the thread that each takes its value from

    def executed_by(self, thread: int) -> bool:
        """Whether a thread executed it."""
        return bool(self.bits[thread >> 3] >> (7 - (thread & 7)) & 1)

    def wrote(self, byte: Byte) -> bool:
        """Whether it wrote a byte of memory, or of a register that it writes."""
        if isinstance(byte, int):
            return any(event.entry(byte) is not None for event in self.writes)
        return self.executed_by(byte[2])

    @property
    def size(self) -> int:
        """About how many bytes it takes."""
        arrays = [*self.values.values(), *(event.numbers for event in (*self.reads, *self.writes))]
        arrays += [own for asked in self.asked for own in asked.operands.values() if isinstance(own, np.ndarray)]
        return _RECORD + sum(array.nbytes for array in arrays)


class Log:
    """The records of a launch in order, and who wrote what."""

    def __init__(self, most: int = MOST_BYTES) -> None:
        self.most, self.bytes, self.serial, self.first = most, 0, 0, 0
        self.position = 0  # instructions begun
        self.records: deque[tuple[Record, int]] = deque()
        self.writers: dict[tuple[int, int], list[Record]] = {}  # by block and register
        self.stores: dict[int, list[Record]] = {}  # by piece of memory
        self.works: list[Work] = []
        self.current: Record | None = None
        self.reading: list[Event] | None = None  # where reads of a view go
        self._results: tuple[int, ...] = ()
        self._registers: list[Array] = []
        self._flights: dict[int, Work] = {}  # by id of what is pending

    def open(self, site: Site, block: int, mask: Array, registers: list[Array]) -> Record:
        """An instruction begins."""
        self.position += 1
        self._registers, self._results = registers, results_of(site)
        return self._begin(site, block, np.packbits(mask))

    def _begin(self, site: Site, block: int, bits: Array, work: Work | None = None) -> Record:
        self.serial += 1
        self.current = Record(self.serial, site, block, bits, work)
        return self.current

    def close(self) -> None:
        """The instruction that was begun is done: keep what it wrote."""
        record, self.current = self.current, None
        if record is None:
            return
        written: Iterable[int] = self._results
        if record.asked:
            written = [number for asked in record.asked for number in asked.written()]
        self._keep(record, written, self._registers)

    def _keep(self, record: Record, written: Iterable[int], registers: list[Array]) -> None:
        for number in written:
            if number >= 0 and number not in record.values:
                record.values[number] = registers[number].copy()
                self.writers.setdefault((record.block, number), []).append(record)
        for page in {page for event in record.writes for page in event.pages()}:
            self.stores.setdefault(page, []).append(record)
        size = record.size
        self.records.append((record, size))
        self.bytes += size
        if self.bytes > self.most:
            self._forget()

    def _forget(self) -> None:
        while self.records and self.bytes > self.most * _KEPT:
            record, size = self.records.popleft()
            self.bytes -= size
            self.first = record.time
        for index in (self.writers, self.stores):
            for key, found in list(index.items()):
                index[key] = [own for own in found if own.time > self.first]  # type: ignore[index]
        self.works = [own for own in self.works if own.landed is None or own.landed > self.first]

    # --- work in flight

    def issue(self, asked: Asked, pending: Pending, planned: list[Event]) -> None:
        """Work begins."""
        assert self.current is not None
        own = Work(self.current, asked, pending, planned)
        self._flights[id(pending)] = own
        self.works.append(own)

    def work_of(self, pending: Pending) -> Work:
        """What is known of work in flight."""
        return self._flights[id(pending)]

    def land(self, work: Work) -> tuple[Record, Record | None]:
        """Work begins to write: its record, and the instruction that was under way."""
        before = self.current
        return self._begin(work.record.site, work.record.block, work.record.bits, work), before

    def landed(
        self, work: Work, record: Record, before: Record | None, written: Iterable[int], registers: list[Array]
    ) -> None:
        """Work has written."""
        work.landed = record.time
        del self._flights[id(work.pending)]
        self._keep(record, written, registers)
        self.current = before

    # --- questions

    def writer(self, byte: Byte, before: int) -> Record | None:
        """What wrote a byte last, before a time."""
        found = self.stores.get(byte >> int(_PAGE), ()) if isinstance(byte, int) else self.writers.get(byte[:2], ())
        return next((own for own in reversed(found) if own.time < before and own.wrote(byte)), None)

    def under_way(self, at: int) -> list[Work]:
        """Work that was issued before a time, and lands after it or never."""
        return [own for own in self.works if own.record.time < at and (own.landed is None or own.landed > at)]
