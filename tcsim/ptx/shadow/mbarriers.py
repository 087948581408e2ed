"""mbarrier objects: who initialised them, what an arrival publishes, and what a thread learns that sees a phase complete."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tcsim.model.effects import Signal
from tcsim.ptx.shadow.clocks import INITIALISED, Clocks
from tcsim.ptx.shadow.findings import Findings
from tcsim.ptx.shadow.operations import Operation, Operations
from tcsim.ptx.threads import Array

_PARITY = 63  # the bit of an object that changes when a phase ends


@dataclass(frozen=True)
class Work:
    """Operations that are complete when something is signalled: one, or the first of all that a warp issued of a kind."""

    operations: list[Operation]
    count: int
    published: Array  # what who issued it, or asked for the signal, knew then


@dataclass(eq=False)
class Object:
    """An mbarrier from its initialisation on."""

    line: int
    warp: int
    when: int
    marker: Operation  # stands in the words of the object
    gathering: Array  # what the arrivals of the phase under way publish
    published: Array  # what those of all complete phases have
    coming: list[Work] = field(default_factory=list)
    complete: list[Work] = field(default_factory=list)
    told: dict[int, int] = field(default_factory=dict)  # by warp: how much of `complete` it knows
    expected: dict[int, int] = field(
        default_factory=dict
    )  # bytes of the phase under way, by the instruction that told them
    delivered: dict[int, int] = field(default_factory=dict)


class Objects:
    """The mbarriers of a cluster, by their shared address with the rank of the block."""

    def __init__(self, clocks: Clocks, operations: Operations, findings: Findings) -> None:
        self.clocks, self.operations, self.findings = clocks, operations, findings
        self.live: dict[int, Object] = {}
        self._known: dict[tuple[int, int], int] = {}  # of a warp and a list of operations: how many of them it knows

    def initialise(self, key: int, warp: int, line: int, marker: Operation, index: Any, thread: int) -> None:
        """mbarrier.init."""
        before = self.live.get(key)
        if before is not None:
            said = (
                f"the mbarrier at {key:#x} is initialised again; {self.findings.opcode(before.line)} made it, and no mbarrier.inval "
                "came between"
            )
            self.findings.report("MBAR_REINIT", said, line, before.line, index, thread, address=key)
        nothing = np.zeros_like(self.clocks.known[0])
        self.live[key] = Object(
            line, warp, int(self.clocks.now[warp]), marker, nothing, nothing.copy(),
        )  # fmt: skip

    def use(self, key: int, warps: Array, line: int, index: Any, thread: int) -> Object | None:
        """An object that some warps use: it has to be one, and its initialisation to come before."""
        found = self.live.get(key)
        if found is None:
            said = f"{self.findings.opcode(line)} uses {key:#x}, where no mbarrier.init made an object"
            self.findings.report("MBAR_USED_BEFORE_INIT", said, line, 0, index, thread, address=key)
            return None
        if (self.clocks.known[warps, INITIALISED, 1 + found.warp] < found.when).any():
            said = f"{self.findings.opcode(line)} uses the mbarrier at {key:#x}, and nothing orders {self.findings.opcode(found.line)} before it"
            self.findings.report("MBAR_USED_BEFORE_INIT_VISIBLE", said, line, found.line, index, thread, address=key)
        return found

    def signalled(
        self, found: Object, signal: Signal, count: int, flipped: bool, line: int, warps: Array | None, work: list[Work]
    ) -> None:
        """A signal of some warps, or of work that is complete."""
        if signal.kind == "expect_tx":
            found.expected[line] = found.expected.get(line, 0) + count
        elif signal.kind == "complete_tx":
            found.delivered[line] = found.delivered.get(line, 0) + count
        if warps is not None and signal.kind in ("arrive", "drop"):
            found.gathering = np.maximum(found.gathering, self.clocks.published(warps, signal.at.sem == "relaxed"))
        for own in work:
            found.gathering = np.maximum(found.gathering, own.published)
        found.coming += work
        if flipped:
            found.published = np.maximum(found.published, found.gathering)
            found.complete += found.coming
            found.coming = []
            found.expected, found.delivered = {}, {}

    def seen(self, found: Object, warps: Array, relaxed: bool) -> None:
        """Some warps see a phase complete: they learn what came before it."""
        self.clocks.acquire(warps, found.published, relaxed)
        for warp in warps.tolist():
            for work in found.complete[found.told.get(warp, 0) :]:
                self._learn(work, warp)
            found.told[warp] = len(found.complete)

    def _learn(self, work: Work, warp: int) -> None:
        key = id(work.operations), warp
        first = self._known.get(key, 0)
        for own in work.operations[first : work.count]:
            self.operations.seen(own, np.array([warp]))
        self._known[key] = max(first, work.count)


def flipped(before: int, after: int) -> bool:
    """Whether a phase ended between two values of an object's 64 bits."""
    return bool((before ^ after) >> _PARITY & 1)
