"""A grid of clusters: run one after the other until all have ended, a fault stops them, or a limit is reached."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from itertools import product
from math import inf, prod
from types import TracebackType
from typing import Any, cast

import numpy as np

from tcsim.ptx.check.intervals import Doubtful, Intervals, Unproven
from tcsim.ptx.check.kinds import Kinds, Trace
from tcsim.ptx.check.rules.dependents import Ledger
from tcsim.ptx.check.traces import Traces
from tcsim.ptx.compile.compiled import SOURCE_NAME, Compiled
from tcsim.ptx.counters.counting import Counting
from tcsim.ptx.counters.tally import Tally
from tcsim.ptx.hazards.hazard import Hazard
from tcsim.ptx.launch.geometry import Geometry, Shape
from tcsim.ptx.machine.arrays import LANES
from tcsim.ptx.machine.batch import Batch
from tcsim.ptx.machine.block import Block
from tcsim.ptx.machine.cluster import SHIFT, SHORT_SHIFT, Cluster
from tcsim.ptx.machine.deadlock import deadlock
from tcsim.ptx.machine.faults import Stop, Stuck, Unbatchable, stopped_by_exceptions
from tcsim.ptx.machine.independence import Independence, ReadBefore
from tcsim.ptx.machine.ledger import Sums
from tcsim.ptx.machine.limits import MOST_BATCHED, Limits
from tcsim.ptx.machine.memory import Memory, Segment
from tcsim.ptx.machine.observer import Observer
from tcsim.ptx.machine.pending import is_early
from tcsim.ptx.machine.setup import Setup
from tcsim.ptx.text.syntax import Instruction

Progress = Callable[[int, int, int], None]
"""What is called while a grid runs: with the clusters that have ended, those of the grid, and the instructions so far."""
MOST_THREADS = 16384
"""Of the blocks of one rank in a batch: with more of them registers leave the caches; with fewer, each instruction is begun more often."""
LEAST, LEAST_STRAIGHT, STRAIGHT = 4, 2, 6
"""Clusters of a grid that runs in batches, and of one whose basic blocks have six instructions or more on average: a batch costs something for
each basic block, and more where threads part. On two cores of an Intel Xeon grids of two or three clusters with such basic blocks took 0.33 to 1.03
times as long as one by one, others 0.29 to 1.89 times (57 launches, with the check and without)."""
LEAST_COMPARED = 8
"""Clusters of a grid of which the check looks for those that do the same: among fewer most differ, and each has to be watched beside the batch.
Nothing else helps where the async proxy is used."""
FEW_COMPARED = "too few blocks to be compared by the check"
FEWER = 4
"""How many times fewer clusters a batch has after one in which a block could not go on: the blocks before it need not run one by one."""
MOST_DIFFERENT, ONE_IN = 8, 4
"""Under the check batches stop when more than 8 clusters, and more than one in four of those that have run, had to be watched; in grids of fewer
than 64 clusters when more than one in eight of the whole grid had to be."""
WATCHED = 2
"""How many times longer a cluster takes under the check, by which a batch may save more; 1.3 to 3 were measured."""
MOST_BESIDE = 1024
"""Clusters that may run beside each other."""
MOST_WATCHED = 8
"""Clusters that are watched where not all are: the first and the last, whose tiles are often whole and cut off, and some between. One
takes as long as tens of small ones that run in a batch, so that more of them would cost what the others save."""
WORKSPACE = b"\x08" + bytes(7)
"""What the driver provides to a cooperative launch, at the address in %envreg1 (high) and %envreg2: its size, and the word in which blocks
count themselves at grid.sync. Source: cooperative_groups/details/driver_abi.h and sync.h of CUDA 13.0. A GPU's size was not measured."""


@dataclass(frozen=True)
class Launch:
    """A launch that was checked: all that the machine has to know."""

    program: Compiled
    memory: Memory
    params: Segment
    shape: Geometry
    arch: str
    schedule: str | int  # "late", "early" or a seed
    check: bool
    limits: Limits
    progress: Progress | None = None  # called while the grid runs in order
    cooperative: bool = False  # all clusters run beside each other
    observe: tuple[Callable[[Cluster], Observer], ...] = ()  # who watches each cluster
    alike: bool = False  # whether it says the same of clusters that do the same (`tcsim.ptx.check.traces`)
    touched: Ledger | None = None  # what is kept for launches that depend on this one
    plain: Compiled | None = None  # the program of clusters that are not observed, where some are and some are not
    counters: bool = False  # whether accesses are counted

    @property
    def watched(self) -> Sequence[int]:
        """The numbers of the clusters that are observed, if there is an observer: all, or some that are spread evenly."""
        clusters = self.shape.clusters
        if self.plain is None:
            return range(clusters if self.observe else 0)
        count = min(clusters, MOST_WATCHED)
        return [place * (clusters - 1) // max(count - 1, 1) for place in range(count)]


class Way(IntEnum):
    """How the check of a batch goes; each that fails leads to a later one."""

    PROOF = 0  # nothing can be wrong with any cluster (`tcsim.ptx.check.intervals`)
    EVENTS = 1  # clusters that do the same are told apart from others wherever they work in shared memory: that may not matter
    BOXES = 2  # and by where they do; boxes that are cut off are told apart only where that may matter
    PLACES = 3  # by all that is heard


class Grid:
    """The blocks of a launch, and what became of them."""

    def __init__(self, launch: Launch) -> None:
        self.launch, self.watched = launch, launch.watched
        self.plain = launch.plain or launch.program  # of clusters that are not observed
        self.instructions = 0
        self.begun = 0  # blocks
        self.full = False  # whether there is no memory for the next cluster
        self.ended = 0  # clusters
        self.observed = 0  # clusters of which is known what they did, to their end or until the run stopped
        self.checked: list[tuple[int, int, int]] = []  # blocks that were observed, where not all are
        self.hazards: list[Hazard] = []
        self.inexact: Counter[str] = Counter()
        self.sums = Sums()
        self.output: list[str] = []
        self.began = time.monotonic()
        self.next = 0  # number of the first cluster that has not started
        self.environment: dict[str, int] = {}  # special registers that the driver sets
        self.batch = 1  # the most blocks that ran at once as one batch
        self._size = MOST_BATCHED  # clusters that the next batch may have
        self._kinds = Kinds()
        self._way = Way.PROOF
        self.alone = ""  # why blocks ran one after the other; empty if all ran in batches
        self.tally = Tally(prod(launch.shape.grid)) if launch.counters else None
        self._counted: dict[int, Counting] = {}  # by `id` of clusters that run
        self.share: Callable[[Grid], None] | None = None  # asked between clusters: it may run those that are left

    def run(self) -> bool:
        """Run the grid, with a workspace for the time of a cooperative launch; whether all clusters ended."""
        memory = self.launch.memory
        workspace = memory.allocate(WORKSPACE) if self.launch.cooperative else None
        if workspace is not None:
            self.environment = {"envreg1": workspace >> 32, "envreg2": workspace & 0xFFFF_FFFF}
        try:
            return self._run()
        finally:
            memory.watches.end()
            if workspace is not None:
                memory.release(workspace)

    def _run(self) -> bool:
        """Run every cluster, one after the other; whether all of them ended.

        Where a cluster only spins, the next one runs beside it: it may write what the first one waits for, which is left alone until then.
        In a cooperative launch all run beside each other from the beginning.
        """
        active: list[Cluster] = []
        self.next, self.alone = self._numbers().start, self._unbatched()
        with np.errstate(all="ignore"):
            while True:
                if not active:
                    self._batches()
                    self._share()
                while self.launch.cooperative and self._start(active):
                    pass
                if self.full:
                    return False
                stirred = False
                for cluster in [own for own in active if not own.parked]:
                    ended = self._advance(cluster)
                    if ended is None:
                        return False
                    if ended:
                        active.remove(cluster)
                    stirred = stirred or ended or cluster.stirred
                if stirred or self._start(active):
                    continue
                if self.full:
                    return False
                if not active:
                    return True
                if not any(cluster.tired for cluster in active):
                    stop = deadlock([block for cluster in active for block in cluster.blocks])
                    for own in active:
                        self._observed(own, stop)
                    self.hazards.append(hazard_of(stop, active[0].blocks[0]))
                    self._count(active[0])
                    return False

    def _batches(self) -> None:
        """Run the next clusters that are not observed in batches, as long as that makes no difference; the others are left."""
        if self.alone:
            return
        launch, end = self.launch, self._numbers().stop
        if launch.plain is not None:
            end = min(own for own in (*self.watched, end) if own >= self.next)
        independence, most = Independence(launch.memory, launch.limits.memory), self._batch_size()
        while not self.alone:
            proves = launch.alike and self._way is Way.PROOF
            count = min(self._size, most, end - self.next)
            if count < 2:
                return
            try:
                instructions = self.instructions
                self._batched([self._blocks(self.next + own) for own in range(count)], independence)
                self._share()
                continue
            except ReadBefore:
                pass
            except (Doubtful, Unproven, Unbatchable, Stop) as reason:
                if proves or isinstance(reason, Doubtful):
                    doubt = Way.BOXES if self._way < Way.BOXES else Way.PLACES
                    self._way = Way.EVENTS if isinstance(reason, Unproven) else doubt
                    if len(self._numbers()) < LEAST_COMPARED:
                        self.alone = FEW_COMPARED
                elif isinstance(reason, (Stop, Stuck)) and count // FEWER > 1:
                    self._size = count // FEWER
                else:
                    self.alone = f"a block ends with {reason.name}" if isinstance(reason, Stop) else f"{reason}"
            self.instructions = instructions
            independence.end(undo=True)

    def _share(self) -> None:
        if self.share is not None and self.next < self._numbers().stop:
            self.share(self)

    def _unbatched(self) -> str:
        """Why clusters run one after the other from the beginning; empty if they need not."""
        launch, clusters = self.launch, len(self._numbers())
        few = LEAST_STRAIGHT if not launch.program.waits and launch.program.mean_size >= STRAIGHT else LEAST
        reasons = (
            (launch.cooperative, "a cooperative launch"),
            (isinstance(launch.schedule, int), "a random schedule"),
            (not launch.alike and len(self.watched) == launch.shape.clusters, "each cluster is observed"),
            (launch.program.competes, "atomics whose order may show"),
            (clusters < few or self._batch_size() < 2, "too few blocks, or no room for more"),
            (launch.alike and launch.program.async_proxy and clusters < LEAST_COMPARED, FEW_COMPARED),
        )
        return next((said for holds, said in reasons if holds), "")

    def _batch_size(self) -> int:
        """How many clusters may run as one batch."""
        limits, shape = self.launch.limits, self.launch.shape
        threads = -(-prod(shape.block) // LANES) * LANES
        return min(
            limits.batch // prod(shape.cluster),
            MOST_BATCHED,
            MOST_THREADS // threads,
            limits.memory // self._bytes(),
            len(self._numbers()),
        )

    def _batched(self, clusters: list[list[tuple[int, int, int]]], independence: Independence) -> None:
        """Run some clusters as one. Raises what makes that impossible, or impossible in this way: then memory has to be put back."""
        sums, launch = Sums(), self.launch
        independence.begin()
        few = launch.alike and len(clusters) <= MOST_DIFFERENT  # it says what more of them would do
        worth = inf if few else WATCHED if launch.alike else 1
        batch = Batch(self._setup(sums, self.plain), clusters, independence, worth)
        proof = Intervals(batch) if launch.alike and self._way < Way.BOXES else None
        traces = None
        if launch.alike and self._way > Way.PROOF:
            traces = Traces(batch, self._way >= Way.BOXES, self._way is Way.BOXES)
        counting = self._counting(batch, self.tally.part()) if self.tally is not None else None
        batch.joins = counting is None
        for own in (traces, proof):
            if own is not None:
                batch.events.subscribe(own)
        with stopped_by_exceptions():
            batch.run(self._spend)
        if proof is not None and traces is None:
            proof.prove()
        if traces is not None and traces.digest.tangled():
            raise Doubtful
        found = self._judge(clusters, traces.digest.traces(), independence) if traces is not None else []
        if not self.sums.take(sums):
            raise Unbatchable("atomics at an address that others had")
        independence.end(undo=False)
        self.hazards += found
        if self.tally is not None and counting is not None:
            self.tally.take(counting.finish())
        self.batch = max(self.batch, len(clusters) * prod(launch.shape.cluster))
        self.next += len(clusters)
        self.begun += len(clusters) * len(batch.blocks)
        self.ended += len(clusters)
        self.observed += len(clusters) if launch.alike else 0
        for block in batch.blocks:
            self.inexact.update(block.inexact.counts)
        self._spend(0)

    def _judge(
        self, clusters: list[list[tuple[int, int, int]]], traces: list[Trace], independence: Independence
    ) -> list[Hazard]:
        """Watch one of the clusters that do the same: what is wrong with it is wrong with all of them. Raises Unbatchable."""
        found = list[Hazard]()
        for number in sorted(
            range(len(traces)), key=lambda own: int(traces[own].shown.sum())
        ):  # what is shown most first
            if self._kinds.known(traces[number]) is None:
                with independence.before():
                    self._kinds.learn(traces[number], clusters[number], self._watched(clusters[number]))
        for indices, trace in zip(clusters, traces, strict=True):
            own, hazards = cast(tuple[list[Shape], list[Hazard]], self._kinds.known(trace))
            rank = {index: place for place, index in enumerate(own)}
            if any(each.block is not None and tuple(each.block) not in rank for each in hazards):
                raise Unbatchable("what is wrong with a cluster is said of another")
            found += [
                each if each.block is None else replace(each, block=indices[rank[cast(Shape, tuple(each.block))]])
                for each in hazards
            ]
        few = min(MOST_DIFFERENT, self.launch.shape.clusters // (2 * ONE_IN))
        if len(self._kinds) - 1 > max(few, (self.ended + len(clusters)) // ONE_IN):
            self.alone = "blocks do different things, and each has to be watched"
        return found

    def _watched(self, indices: Sequence[tuple[int, int, int]]) -> list[Hazard]:
        """What an observer finds in a cluster, which runs on memory that is put back."""
        cluster = Cluster(self._setup(Sums(), self.launch.program), indices, self.launch.observe)
        with stopped_by_exceptions():
            if not cluster.run(lambda _: self._spend(0)):
                raise Unbatchable("a cluster waits for others")
        for hear in cluster.events.ended:
            hear(None)
        return [hazard for observer in cluster.observers for hazard in observer.hazards()]

    def _start(self, active: list[Cluster]) -> bool:
        """Let the next cluster run beside others, if there is one and memory for it; if only that lacks, it is a hazard."""
        if len(active) >= MOST_BESIDE or self.next >= self._numbers().stop or not self._fits(len(active)):
            return False
        active.append(self._cluster(self.next))
        self.next += 1
        return True

    def _fits(self, beside: int) -> bool:
        """Whether there is memory for the next cluster beside others; if not, that is a hazard."""
        needed, most = self._bytes() * (beside + 1), self.launch.limits.memory
        if needed > most:
            said = f"{needed} bytes for the blocks that run at once; the limit is {most}"
            self.hazards.append(Hazard("LIMIT", said, block=self._blocks(self.next)[0], detail={"limit": "memory"}))
            self.full = True
        return not self.full

    def _bytes(self) -> int:
        """Of the blocks of a cluster, with their registers."""
        program, shape = self.launch.program, self.launch.shape
        thread = program.local_bytes + sum(container.itemsize for _, container, _ in program.registers)
        return (program.shared_bytes + shape.dynamic_smem + thread * prod(shape.block)) * prod(shape.cluster)

    def _numbers(self) -> range:
        """The numbers of the clusters."""
        shape = self.launch.shape
        return range(prod(shape.grid) // prod(shape.cluster))

    def _blocks(self, number: int) -> list[tuple[int, int, int]]:
        """The blocks of a cluster, by rank."""
        (gx, gy, _), (cx, cy, cz) = self.launch.shape.grid, self.launch.shape.cluster
        columns, rows = gx // cx, gy // cy
        x, y, z = number % columns * cx, number // columns % rows * cy, number // (columns * rows) * cz
        return [(x + i, y + j, z + k) for k, j, i in product(range(cz), range(cy), range(cx))]

    def _setup(self, sums: Sums, program: Compiled) -> Setup:
        launch, shape = self.launch, self.launch.shape
        return Setup(
            program, launch.memory, launch.params, shape.grid, shape.block, shape.cluster, shape.dynamic_smem, launch.arch,
            launch.schedule, launch.limits, sums, self.environment,
        )  # fmt: skip

    def _cluster(self, number: int) -> Cluster:
        launch, watched = self.launch, number in self.watched
        program = launch.program if watched else self.plain
        made = Cluster(self._setup(self.sums, program), self._blocks(number), launch.observe if watched else ())
        made.cancel = self._cancel
        for block in made.blocks:
            block.number, self.begun = self.begun, self.begun + 1
        if self.tally is not None:
            self._counted[id(made)] = self._counting(made, self.tally)
        return made

    def _counting(self, cluster: Cluster | Batch, tally: Tally) -> Counting:
        return Counting(cluster.events, tally, self.launch.shape.grid, self.launch.arch)

    def _cancel(self) -> tuple[int, int, int] | None:
        """The first block of a cluster that will not start now; early, all have started."""
        if is_early(self.launch.schedule) or self.next >= self._numbers().stop:
            return None
        self.next += 1
        return self._blocks(self.next - 1)[0]

    def _advance(self, cluster: Cluster) -> bool | None:
        """Let a cluster run as far as it can: whether it ended, or None after a fault."""
        try:
            with stopped_by_exceptions():
                ended = cluster.run(self._spend, SHORT_SHIFT if self.launch.cooperative else SHIFT)
        except Stop as stop:
            self._observed(cluster, stop)
            self.hazards.append(hazard_of(stop, cluster.running or cluster.blocks[0]))
            self._count(cluster)
            return None
        if ended:
            self.ended += 1
            self._observed(cluster, None)
            self._count(cluster)
        return ended

    def _observed(self, cluster: Cluster, stop: Stop | None) -> None:
        """What an observer has found when its cluster ends."""
        self.observed += bool(cluster.observers)
        if cluster.observers and self.launch.plain is not None:
            self.checked += [block.index for block in cluster.blocks]
        for hear in cluster.events.ended:
            hear(stop)
        for observer in cluster.observers:
            self.hazards += observer.hazards()

    def _count(self, cluster: Cluster) -> None:
        if self.tally is not None:
            self._counted.pop(id(cluster)).finish()  # made with the cluster
        for block in cluster.blocks:
            self.inexact.update(block.inexact.counts)
            self.output += block.calls.output

    def _spend(self, instructions: int) -> None:
        """Count instructions, and look at the clock."""
        self.instructions += instructions
        limits = self.launch.limits
        if self.instructions > limits.instructions:
            raise Stop("LIMIT", f"more than {limits.instructions} instructions", limit="instructions")
        if time.monotonic() - self.began > limits.seconds:
            raise Stop("LIMIT", f"more than {limits.seconds} seconds", limit="seconds")
        if self.launch.progress is not None:
            self.launch.progress(self.ended, len(self._numbers()), self.instructions)


def hazard_of(stop: Stop, block: Block) -> Hazard:
    """What stopped a block as a hazard, at the instruction that was executed; of a limit, where its threads were."""
    item = stop.item or _instruction(stop.__traceback__, block.program)
    if item is None and block.fibers.ready:
        item = block.program.first_of(min(block.fibers.ready))
    line, source = (None, ()) if item is None else (item.line, item.source.places if item.source else ())
    detail: dict[str, Any] = dict(stop.more)
    first = source[0] if source else None
    return Hazard(stop.name, stop.detail, line, None, first, None, block.index, stop.thread, detail, inlined=source[1:])


def _instruction(trace: TracebackType | None, program: Compiled) -> Instruction | None:
    """The instruction whose generated line raised."""
    found = None
    while trace is not None:
        code = trace.tb_frame.f_code
        if code.co_filename == SOURCE_NAME and code.co_name[1:].isdigit():
            found = program.instruction_at(int(code.co_name[1:]), trace.tb_lineno - code.co_firstlineno)
        trace = trace.tb_next
    return found
