"""What a launch has counted so far: by line of the PTX and by block, and the accesses that are still to be counted."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from tcsim.layouts.banks import INACTIVE
from tcsim.layouts.coalescing import Rows
from tcsim.ptx.counters.rules import OPERATIONS
from tcsim.ptx.text.syntax import Instruction

MOST_WAITING = 1 << 13
"""Warps' accesses that are kept before they are counted together."""
_KEYS = np.random.Generator(np.random.PCG64(90)).integers(1, 1 << 63, 64, np.uint64) | np.uint64(1)
_AWAY = np.int64(1 << 40)


Known = tuple[npt.NDArray[np.uint64], Rows]
"""Of one operation and width: keys of accesses that were seen, ascending, and what these add: (accesses, counters)."""
_KNOWN: dict[tuple[str, int], Known] = {}
"""Of all launches of the process: most kernels access alike."""
_MOST_KNOWN = 1 << 16
"""Accesses of one operation and width that are remembered."""


@dataclass
class Tally:
    """Counts of a part of a grid."""

    blocks: int  # of the grid
    lines: dict[int, dict[str, int]] = field(default_factory=lambda: defaultdict(lambda: defaultdict(int)))
    by_block: dict[str, npt.NDArray[np.int64]] = field(default_factory=dict)
    acted: dict[int, int] = field(
        default_factory=lambda: defaultdict(int)
    )  # by line of an instruction with a predicate: warps of which it held in a thread
    parted: dict[int, int] = field(
        default_factory=lambda: defaultdict(int)
    )  # by line of a branch: parts of warps beyond one for each
    operations: dict[int, set[str]] = field(default_factory=lambda: defaultdict(set))  # by line
    items: dict[int, Instruction] = field(default_factory=dict)  # by line: an instruction
    waiting: dict[tuple[int, str, int], list[tuple[Rows, ...]]] = field(
        default_factory=lambda: defaultdict(list), repr=False
    )
    samples: dict[int, tuple[str, int, tuple[Rows, ...]]] = field(
        default_factory=dict
    )  # by line: a costly access of its first ones
    warps: int = 0  # that wait
    each: dict[int, dict[str, float]] = field(
        default_factory=dict, repr=False
    )  # by basic block: what a warp adds, by counter
    ran: dict[int, list[int]] = field(
        default_factory=lambda: defaultdict(lambda: [0, 0])
    )  # by basic block: warps, threads

    def part(self) -> Tally:
        """Counts of a part that may not count in the end."""
        return Tally(self.blocks, each=self.each)

    def __getstate__(self) -> dict[str, Any]:
        self.settle()
        lines = {line: dict(own) for line, own in self.lines.items()}
        plain = {
            "lines": lines,
            "operations": dict(self.operations),
            "acted": dict(self.acted),
            "parted": dict(self.parted),
            "ran": dict(self.ran),
            "waiting": {},
            "each": {},
        }
        return vars(self) | plain

    def take(self, other: Tally) -> None:
        """Count what another has counted."""
        for line, own in other.lines.items():
            for counter, value in own.items():
                self.lines[line][counter] += value
        for line, warps in other.acted.items():
            self.acted[line] += warps
        for line, parts in other.parted.items():
            self.parted[line] += parts
        for line, operations in other.operations.items():
            self.operations[line] |= operations
        for counter, values in other.by_block.items():
            self.block(counter)[:] += values
        for place, (warps, threads) in other.ran.items():
            self.ran[place][0] += warps
            self.ran[place][1] += threads
        for key, kept in other.waiting.items():
            self.waiting[key] += kept
        self.items |= other.items
        self.samples = other.samples | self.samples
        self.warps += other.warps
        if self.warps >= MOST_WAITING:
            self.settle()

    def add(self, item: Instruction, counter: str, value: int, number: int) -> None:
        """Count for a line and a block."""
        self.items[item.line] = item
        self.lines[item.line][counter] += value
        self.block(counter)[number] += value

    def access(self, item: Instruction, operation: str, width: int, block: Rows, *sides: Rows) -> None:
        """Keep accesses of warps, one a row of each side (warps, 32); block: whose they are."""
        if not len(block):
            return
        self.items[item.line] = item
        self.waiting[item.line, operation, width].append((block, *sides))
        self.warps += len(block)
        if self.warps >= MOST_WAITING:
            self.settle()

    def settle(self) -> None:
        """Count all accesses that are kept."""
        alike: defaultdict[tuple[str, int], list[tuple[int, tuple[Rows, ...]]]] = defaultdict(list)
        for (line, operation, width), kept in self.waiting.items():
            alike[operation, width] += [(line, own) for own in kept]
            self.operations[line].add(operation)
        for (operation, width), every in alike.items():
            if not OPERATIONS[operation].rules:
                continue
            block, *sides = (np.concatenate(own) for own in zip(*(own for _, own in every), strict=True))
            values = self._values(operation, width, sides)
            starts = np.cumsum([0, *(len(own[0]) for _, own in every[:-1])])
            sums = np.add.reduceat(values, starts).tolist()
            for (line, own), start in zip(every, starts.tolist(), strict=True):
                if line not in self.samples:
                    worst = int(values[start : start + len(own[0])].sum(1).argmax())
                    self.samples[line] = operation, width, tuple(rows[worst : worst + 1] for rows in own[1:])
            for place, rule in enumerate(OPERATIONS[operation].rules):
                for (line, _), own in zip(every, sums, strict=True):
                    self.lines[line][rule.counter] += own[place]
                np.add.at(self.block(rule.counter), block, values[:, place])
        self.waiting.clear()
        self.warps = 0

    def block(self, counter: str) -> npt.NDArray[np.int64]:
        """What each block has counted."""
        if counter not in self.by_block:
            self.by_block[counter] = np.zeros(self.blocks, np.int64)
        return self.by_block[counter]

    def _values(self, operation: str, width: int, sides: list[Rows]) -> Rows:
        """What each access adds to each counter, (accesses, counters): computed once for those whose lanes lie alike."""
        rules, spans = OPERATIONS[operation].rules, OPERATIONS[operation].spans
        alike, hashed = [], np.zeros(len(sides[0]), np.uint64)
        for number, (rows, span) in enumerate(zip(sides, spans, strict=True)):
            base = rows.max(1, keepdims=True) & -span
            alike.append(np.where(rows == INACTIVE, _AWAY, rows - base))
            hashed += (alike[-1].view(np.uint64) * _KEYS[32 * number : 32 * number + 32]).sum(1)
        keys, first, inverse = np.unique(hashed, return_index=True, return_inverse=True)
        seen, values = _KNOWN.get((operation, width), (keys[:0], np.zeros((0, len(rules)), np.int64)))
        place = np.searchsorted(seen, keys)
        new = (place == len(seen)) | (np.append(seen, 0)[place] != keys)
        if new.any():
            chosen = [np.where((own := rows[first[new]]) == _AWAY, INACTIVE, own - own.min(1, keepdims=True).clip(max=0) // span * span)
                      for rows, span in zip(alike, spans, strict=True)]  # fmt: skip
            added = np.stack([rule.count(*chosen, width) for rule in rules], 1)
            order = np.argsort(np.concatenate([seen, keys[new]]), kind="stable")
            seen, values = np.concatenate([seen, keys[new]])[order], np.concatenate([values, added])[order]
            place = np.searchsorted(seen, keys)
            if len(seen) <= _MOST_KNOWN:
                _KNOWN[operation, width] = seen, values
        return values[place][inverse]
