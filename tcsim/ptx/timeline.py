"""The timeline of one block: what each warp, the copies, the tensor core and the barriers did, in the order in which the model did it.

Time is a count of what happened, not nanoseconds: the model has an order of events and no clock.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from tcsim.model.effects import Access, Effects, Signal
from tcsim.ptx.check.checker import Checker
from tcsim.ptx.check.operations import flipped
from tcsim.ptx.check.places import shares
from tcsim.ptx.check.rules.races import Races
from tcsim.ptx.compile.families import Bound
from tcsim.ptx.hazards.hazard import Hazard
from tcsim.ptx.machine.arrays import LANES, Array
from tcsim.ptx.machine.block import Block
from tcsim.ptx.machine.cluster import Cluster
from tcsim.ptx.machine.fibers import Wait
from tcsim.ptx.machine.flights import Flight
from tcsim.ptx.machine.memory import Segment
from tcsim.ptx.machine.observer import Observer

MOST_SPANS = 4000
"""Of a timeline: what comes later is counted and left out, so that a page stays small."""
AGENTS = {
    "": "TMA", "bulk": "TMA", "cp.async": "cp.async", "wgmma": "tensor core", "tcgen05": "tensor core", "tcgen05.ld": "Tensor Memory",
    "tcgen05.st": "Tensor Memory",
}  # fmt: skip
"""Who does the work of a group, by its kind; work that only an mbarrier tells of is a copy."""
KINDS = (
    "compute", "read", "write", "atomic", "global", "fence", "issue", "signal", "wait", "work", "phase", "exit",
)  # fmt: skip


@dataclass
class Span:
    """Something from one moment to another."""

    lane: str
    start: int
    end: int
    kind: str  # of KINDS
    line: int  # of the PTX; 0: of none
    text: str
    stage: int | None = None  # of work: an index of `Timeline.stages`; of a phase: its parity
    read: int | None = None  # of work: when it had read what it reads


@dataclass
class Timeline:
    """What a block did; made by passing `observer` to a launch that one process runs.

    Raises nothing: a block that the grid does not have leaves it empty.

    >>> from tcsim.ptx import Memory, parse
    >>> text = ".version 8.0\\n.target sm_90\\n.address_size 64\\n.visible .entry k() { bar.sync 0; ret; }"
    >>> timeline = Timeline()
    >>> run = parse(text).kernel().launch(Memory(), [], block=(64, 1, 1), observe=timeline.observer)
    >>> [(span.lane, span.kind) for span in timeline.spans]
    [('warp 0', 'wait'), ('warp 1', 'wait'), ('barrier 0', 'phase'), ('warp 0', 'exit'), ('warp 1', 'exit')]
    """

    block: tuple[int, int, int] = (0, 0, 0)
    spans: list[Span] = field(default_factory=list)
    stages: list[range] = field(default_factory=list)  # bytes of shared memory that a copy fills, or work reads
    left_out: int = 0
    ticks: int = 0
    threads: int = 0
    races: bool = False  # races in global memory are looked for: `Kernel.launch`
    _everyone: Races | None = field(default=None, init=False, repr=False)

    def observer(self, cluster: Cluster) -> Observer:
        """What `Kernel.launch(observe=)` takes: the hazards are found as without it."""
        rank = next((own.rank for own in cluster.blocks if tuple(own.index) == self.block), None)
        if self.races and self._everyone is None:
            self._everyone = Races(cluster.blocks[0].program.narrowest_global)
        checker = Checker(cluster, self._everyone)
        return checker if rank is None else Recorder(cluster, self, rank, checker)

    def add(self, span: Span) -> Span | None:
        """Keep a span, if there is room."""
        if len(self.spans) >= MOST_SPANS:
            self.left_out += 1
            return None
        self.spans.append(span)
        return span

    def stage(self, address: int, size: int) -> int:
        """The index of the stage in which bytes of shared memory lie: one that has them, else a new one."""
        found = next((number for number, own in enumerate(self.stages) if address in own), len(self.stages))
        if found == len(self.stages):
            self.stages.append(range(address, address + size))
        return found

    @property
    def lanes(self) -> list[str]:
        """The lanes in the order in which they are shown: warps, then who works for them, then barriers."""
        names = list(dict.fromkeys(span.lane for span in self.spans))
        agents = list(dict.fromkeys(AGENTS.values()))
        warps = [f"warp {number}" for number in range(-(-self.threads // LANES))]
        barriers = sorted(own for own in names if own not in warps and own not in agents)
        return [*warps, *(own for own in agents if own in names), *barriers]


class Recorder(Observer):
    """Writes the timeline of a block, beside the checker of its cluster, whose hazards are found as without it."""

    def __init__(self, cluster: Cluster, timeline: Timeline, rank: int, checker: Checker) -> None:
        self.timeline, self.rank = timeline, rank
        self.checker = checker
        cluster.events.subscribe(checker)
        timeline.threads = cluster.blocks[rank].threads.count
        self.last: dict[int, Span] = {}  # by warp
        self.busy: dict[int, int] = {}  # by warp: when it was last seen
        self.flying: dict[int, Span] = {}  # by flight
        self.phases: dict[str, Span] = {}  # by lane: the phase under way
        self.arrivals: dict[tuple[str, int], int] = {}  # by lane and warp: when it came to a barrier where it waits

    def stuck(self, block: Block, waits: Wait) -> str:
        """As of the checker."""
        return self.checker.stuck(block, waits)

    def hazards(self) -> list[Hazard]:
        """As of the checker."""
        return self.checker.hazards()

    # --- what warps do

    def _did(self, block: Block, kind: str, text: str, threads: Array) -> None:
        """Some warps do something, for a moment."""
        if block.rank != self.rank:
            return
        now = self._tick()
        line = block.here.line if block.here is not None else 0
        for warp in np.unique(threads // LANES).tolist():
            start = self.busy.get(warp, now - 1) if kind == "wait" else now - 1
            before = self.last.get(warp)
            if before is not None and (before.kind, before.line, before.end) == (kind, line, start):
                before.end = now
            else:
                self._keep(warp, Span(f"warp {warp}", start, now, kind, line, text))
            self.busy[warp] = now

    def _keep(self, warp: int, span: Span) -> None:
        if self.timeline.add(span) is not None:
            self.last[warp] = span

    def _tick(self) -> int:
        self.timeline.ticks += 1
        return self.timeline.ticks

    def accessed(
        self, block: Block, kind: str, segment: Segment | None, offsets: Array, size: int, threads: Array, written: Array | None = None
    ) -> None:  # fmt: skip
        """Ordinary accesses."""
        if segment is None or id(segment) in self.checker.state.ranks:
            opcode = block.here.opcode if block.here is not None else kind
            where = "" if segment is None else f" at {int(offsets.min()):#x}"
            self._did(block, "global" if segment is None else kind, f"{opcode}{where}", threads)

    def performed(self, block: Block, bound: Bound, effects: Effects, threads: Array, mask: Array) -> None:
        """Instructions of the catalog."""
        self._did(block, _kind(effects), bound.model.mnemonic, threads)

    def exited(self, block: Block, mask: Array) -> None:
        """Threads end."""
        self._did(block, "exit", "ends", np.nonzero(mask)[0])

    # --- work in flight

    def issued(self, flight: Flight) -> None:
        """A bar begins on the lane of who does it."""
        if flight.block.rank != self.rank:
            return
        address, size = self._place(flight)
        text = flight.bound.model.mnemonic + (f", {size:,} bytes at {address:#x}" if address is not None else "")
        stage = self.timeline.stage(address, size) if address is not None else None
        now = self._tick()
        span = Span(AGENTS.get(flight.kind, flight.kind), now, now, "work", flight.bound.line, text, stage)
        if self.timeline.add(span) is not None:
            self.flying[id(flight)] = span

    def _place(self, flight: Flight) -> tuple[int | None, int]:
        """Where in shared memory work writes, else reads, first; and how many bytes."""
        for accesses in (flight.pending.writes, flight.pending.reads):
            found = [own for access in accesses for own in self._shared(flight, access)]
            if found:
                return found[0][0], sum(size for _, size in found)
        return None, 0

    def _shared(self, flight: Flight, access: Access) -> list[tuple[int, int]]:
        every = list(shares(flight.block, access)) if access.space in ("shared", "generic") else []
        return [(int(own.offsets.min()), own.at.size * len(own.offsets)) for own in every if len(own.offsets)]

    def fetched(self, flight: Flight) -> None:
        """It has read."""
        span = self.flying.get(id(flight))
        if span is not None:
            span.read = self._tick()
            span.end = span.read

    def landed(self, flight: Flight) -> None:
        """It ends."""
        span = self.flying.pop(id(flight), None)
        if span is not None:
            span.end = self._tick()

    # --- barriers

    def signalled(
        self, block: Block, signal: Signal, key: int, count: int, before: int, after: int, threads: Array
    ) -> None:
        """An arrival, bytes, or a new phase of an mbarrier."""
        if key >> 24 & 0xFF != self.rank:
            return
        lane = f"mbarrier {key & 0xFFFFFF:#x}"
        line = 0 if self.checker.state.following is not None or block.here is None else block.here.line
        now = self._tick()
        ended = signal.kind == "inval" or (flipped(before, after) and signal.kind != "init")
        phase = self.phases.get(lane)
        number = 0 if phase is None or signal.kind == "init" else int(phase.text.split()[1])
        if phase is not None:
            phase.end = now
        if ended or signal.kind == "init" or phase is None:
            self.phases.pop(lane, None)
            if signal.kind != "inval":
                number += int(ended)
                made = self.timeline.add(Span(lane, now, now, "phase", line, f"phase {number}", number % 2))
                if made is not None:
                    self.phases[lane] = made
        said = {"complete_tx": "bytes delivered", "expect_tx": "bytes expected"}.get(signal.kind, signal.kind)
        self.timeline.add(Span(lane, now, now, "signal", line, f"{said}: {count:,}" if count > 1 else said))

    def arrived(self, block: Block, scope: str, number: int, mask: Array) -> None:
        """Warps come to a barrier."""
        if block.rank != self.rank:
            return
        lane = _barrier(scope, number)
        now = self._tick()
        if lane not in self.phases:
            self.phases[lane] = Span(lane, now, now, "phase", block.here.line if block.here is not None else 0, "phase")
        for warp in np.unique(np.nonzero(mask)[0] // LANES).tolist():
            self.arrivals[lane, warp] = now
            self.busy.setdefault(warp, now)

    def passed(self, block: Block, scope: str, number: int, mask: Array) -> None:
        """They go on."""
        if block.rank != self.rank:
            return
        lane, now = _barrier(scope, number), self._tick()
        line = block.here.line if block.here is not None else 0
        for warp in np.unique(np.nonzero(mask)[0] // LANES).tolist():
            start = self.arrivals.pop((lane, warp), now - 1)
            self._keep(warp, Span(f"warp {warp}", start, now, "wait", line, f"waits at {lane}"))
            self.busy[warp] = now
        phase = self.phases.pop(lane, None)
        if phase is not None:
            phase.end = now
            self.timeline.add(phase)


def _kind(effects: Effects) -> str:
    """What an instruction of the catalog does, in a word of KINDS."""
    for kind, does in (
        ("issue", effects.pending), ("wait", effects.seen), ("fence", effects.orders), ("signal", effects.now.signals or effects.groups),
        ("write", effects.now.writes), ("read", effects.reads),
    ):  # fmt: skip
        if does:
            return kind
    return "compute"


def _barrier(scope: str, number: int) -> str:
    return f"barrier {number}" if scope == "cta" else "cluster barrier"


def rows(spans: Sequence[Span]) -> tuple[list[int], int]:
    """For the spans of a lane, in order of their start: a row each in which they do not overlap, and how many rows there are.

    >>> rows([Span("", 0, 4, "", 0, ""), Span("", 2, 6, "", 0, ""), Span("", 4, 5, "", 0, "")])
    ([0, 1, 0], 2)
    """
    free: list[int] = []
    found = []
    for span in spans:
        row = next((number for number, end in enumerate(free) if end <= span.start), len(free))
        if row == len(free):
            free.append(0)
        free[row] = max(span.end, span.start + 1)
        found.append(row)
    return found, max(1, len(free))
