"""In which order a launch accesses each word of shared and Tensor Memory: what two launches that do the same have in common.

Every access is known by its instruction, its warp, and how often that warp executed the instruction before. Of each word the pairs
that conflict are summed up: a write with the reads since the write before, with that write, and each read with the write that it sees.
The sum depends on the pairs alone, not on the order in which words are touched or reads follow each other. An asynchronous
operation counts where it is issued: a run without hazards says that what comes before and behind it is ordered with all of it.
The last write of a word counts once something follows it: until the launch ends, and the memory with it, nobody sees it.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np

from tcsim.ptx.check.checker import Checker
from tcsim.ptx.check.lanes import SEVERAL
from tcsim.ptx.check.operations import Operation
from tcsim.ptx.check.words import Words
from tcsim.ptx.machine.arrays import Array
from tcsim.ptx.machine.cluster import Cluster
from tcsim.ptx.observer import Observer

_ODD = np.uint64(0x9E3779B97F4A7C15)
_ALL = 1 << 64


def _mixed(values: Array) -> Array:
    """Numbers of 64 bits that look random (SplitMix64)."""
    found = (values + _ODD) * np.uint64(0xBF58476D1CE4E5B9)
    found ^= found >> np.uint64(27)
    found *= np.uint64(0x94D049BB133111EB)
    mixed: Array = found ^ (found >> np.uint64(31))
    return mixed


class History(Words):
    """The words of one memory, with the pairs of accesses that conflict."""

    def __init__(self, given: Words, recorder: Recorder) -> None:
        vars(self).update(vars(given))
        self.recorder = recorder
        self.writer = np.zeros(self.count, np.uint64)
        self.readers = np.zeros(self.count, np.uint64)
        self.last = np.zeros(self.count, np.uint64)  # the pairs of the last write, as long as nothing follows it
        self.total = 0

    def note_read(self, at: Array, warps: Array, line: int, lanes: Array | int = SEVERAL) -> None:
        """As of `Words`."""
        super().note_read(at, warps, line, lanes)
        self._read(at, self.recorder.accesses(line, warps))

    def note_write(self, at: Array, warps: Array, line: int, lanes: Array | int = SEVERAL) -> None:
        """As of `Words`."""
        super().note_write(at, warps, line, lanes)
        self._write(at, self.recorder.accesses(line, warps))

    def note_fetch(self, at: Array, by: Operation, lanes: Array | int = SEVERAL) -> None:
        """As of `Words`."""
        super().note_fetch(at, by, lanes)
        self._read(at, self.recorder.operation(by))

    def note_landing(self, at: Array, by: Operation, lanes: Array | int = SEVERAL) -> None:
        """As of `Words`."""
        super().note_landing(at, by, lanes)
        if by.kind != "mbarrier":
            self._write(at, self.recorder.operation(by))

    def note_all(self, at: Array, made: Mapping[int, Operation], warps: Array, writes: bool, lanes: Array) -> None:
        """As of `Words`."""
        super().note_all(at, made, warps, writes, lanes)
        for warp, by in made.items() if writes else ():
            self._write(at[warps == warp], self.recorder.operation(by))

    def _read(self, at: Array, who: Array) -> None:
        own = _mixed(np.broadcast_to(who, at.shape))
        self._followed(at)
        np.add.at(self.readers, at, own)
        self._count(_pairs(at, self.writer[at], own, 1))

    def _write(self, at: Array, who: Array) -> None:
        own = _mixed(np.broadcast_to(who, at.shape))
        self._followed(at)
        for earlier, kind in ((self.writer[at], 2), (self.readers[at], 3)):
            met = earlier != 0  # the first write meets nobody: alone it conflicts with nothing
            np.add.at(self.last, at[met], _pairs(at[met], earlier[met], own[met], kind))
        self.writer[at], self.readers[at] = own, 0

    def _followed(self, at: Array) -> None:
        """The last writes of these words are seen."""
        words = np.unique(at)
        self._count(self.last[words])
        self.last[words] = 0

    def _count(self, pairs: Array) -> None:
        self.total = (self.total + int(pairs.sum(dtype=np.uint64))) % _ALL


def _pairs(at: Array, earlier: Array, later: Array, kind: int) -> Array:
    """A number for each pair of accesses to a word."""
    places = _mixed(at.astype(np.uint64) * np.uint64(4) + np.uint64(kind))
    return _mixed(earlier * np.uint64(3) + later * np.uint64(5) + places)


class Recorder(Checker):
    """The check for hazards, which also writes down the history of the memories."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster)
        self.clocks, self.findings, self.memories = self.state.clocks, self.state.findings, self.state.memories
        self._shadow = self.state.words
        self.state.words = self.words  # type: ignore[method-assign]
        self._counts: Counter[tuple[int, int]] = Counter()
        self._numbers: dict[int, Array] = {}

    def words(self, space: str, rank: int) -> Words:
        """The shadow of a memory, with its history."""
        if (space, rank) not in self.memories:
            self.memories[space, rank] = History(self._shadow(space, rank), self)
        return self.memories[space, rank]

    def accesses(self, line: int, warps: Array) -> Array:
        """A number for the access of each warp: the same in each launch that does the same."""
        item = self.findings.instruction(line)
        said = f"{item.opcode} {item.line}" if item is not None else ""
        known = int.from_bytes(hashlib.blake2b(said.encode(), digest_size=8).digest(), "little")
        found = np.zeros(self.clocks.warps, np.uint64)
        for warp in np.unique(warps).tolist():
            self._counts[line, warp] += 1
            found[warp] = (known + (warp << 32) + self._counts[line, warp] * 65537) % _ALL
        numbers: Array = found[warps]
        return numbers

    def operation(self, by: Operation) -> Array:
        """A number for an operation."""
        if by.number not in self._numbers:
            self._numbers[by.number] = self.accesses(by.line, by.warps[:1])
        return self._numbers[by.number]

    @property
    def signature(self) -> tuple[tuple[str, int, int], ...]:
        """What is known of each memory that was touched."""
        found = [(*key, own.total) for key, own in self.memories.items() if isinstance(own, History)]
        return tuple(sorted(found))


class Lines(Observer):
    """The lines of the instructions that an observer is told of: those that synchronise or access memory."""

    def __init__(self) -> None:
        self.lines: set[int] = set()

    def __getattribute__(self, name: str) -> Any:
        if name in ("hazards", "lines", "stuck") or name.startswith("_") or not hasattr(Observer, name):
            return super().__getattribute__(name)

        def told(*given: Any, **named: Any) -> None:
            block = next((own for own in given if hasattr(own, "here")), None)
            if block is not None and block.here is not None:
                self.lines.add(block.here.line)

        return told
