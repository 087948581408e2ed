"""The observer that looks for hazards: what nothing orders, what is used before it is there, what is left behind."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tcsim.model.effects import Access, Effects, GroupOp, Order, Outcome, Resource, Signal
from tcsim.ptx.check.clocks import GLOBALLY, ORDERED, Clocks
from tcsim.ptx.check.findings import Findings
from tcsim.ptx.check.flags import Flags
from tcsim.ptx.check.lanes import EACH, READS, SEVERAL, WRITES, Lanes, lanes_in, mask_of, several, shares_in, warps_in
from tcsim.ptx.check.layout.origins import Origins
from tcsim.ptx.check.layout.traced import Traced
from tcsim.ptx.check.operations import Operation, Operations
from tcsim.ptx.check.places import EXTENTS
from tcsim.ptx.check.rules.barriers import Meetings
from tcsim.ptx.check.rules.cluster import Blocks
from tcsim.ptx.check.rules.deadlocks import Deadlocks
from tcsim.ptx.check.rules.dependents import Dependents, Ledger
from tcsim.ptx.check.rules.global_memory import Everywhere
from tcsim.ptx.check.rules.mbarriers import Objects, Work, box_of
from tcsim.ptx.check.rules.naming import Naming, Use
from tcsim.ptx.check.rules.races import Races
from tcsim.ptx.check.rules.signals import Signals
from tcsim.ptx.check.rules.warps import Together
from tcsim.ptx.check.rules.wgmma import Registers
from tcsim.ptx.check.strength import order_of, scope_of
from tcsim.ptx.check.words import Words
from tcsim.ptx.machine.arrays import LANES, Array
from tcsim.ptx.machine.observer import Observer
from tcsim.ptx.machine.tensor_memory import COLUMNS

if TYPE_CHECKING:
    from tcsim.ptx.compile.families import Bound
    from tcsim.ptx.hazards.hazard import Hazard
    from tcsim.ptx.machine.cluster import Cluster
    from tcsim.ptx.machine.faults import Stop
    from tcsim.ptx.machine.fibers import Wait
    from tcsim.ptx.machine.flights import Flight, Tracker
    from tcsim.ptx.machine.memory import Segment
    from tcsim.ptx.machine.view import BlockView, EffectsView, ThreadsView

_SIGNALLED = ("tcgen05", "cp.async")
"""Kinds of work that a signal can follow."""
TENSOR_FENCES = ("tcgen05.fence::before_thread_sync", "tcgen05.fence::after_thread_sync")


class Checker(Observer):
    """Hazards of one cluster."""

    def __init__(
        self, cluster: Cluster, races: Races | None = None, ledger: Ledger | None = None, before: Ledger | None = None
    ) -> None:
        """races: of the launch, where races in global memory are looked for. ledger: kept of global memory, for launches after this one; before: of the one before."""
        blocks = cluster.blocks
        self.cluster, self.per_block = cluster, blocks[0].warps
        self.clocks = Clocks(self.per_block * len(blocks) + (races is not None))
        self.lanes = Lanes(self.clocks)
        self.operations = Operations(self.clocks, self.lanes)
        self.findings = Findings()
        self.objects = Objects(self.clocks, self.operations, self.findings, self.per_block)
        self.memories: dict[tuple[str, int], Words] = {}
        self.naming = Naming(self)
        self.blocks = Blocks(self)
        self.deadlocks = Deadlocks(self)
        self.everywhere, self.dependents = Everywhere(self, races), Dependents(self, ledger, before)
        self.registers, self.together = Registers(self), Together(self)
        self.ranks = {id(block.shared): rank for rank, block in enumerate(blocks)}
        self.unit = blocks[0].program.narrowest
        self.origins = Traced(self) if blocks[0].program.traced else Origins(self)
        self.strong: dict[int, bool] = {}  # instructions that are not weak: whether for more than their block
        self.relaxed: dict[int, str] = {}  # by warp: the rule of the last relaxed arrival or wait
        self.meetings = Meetings(self)
        self.signals = Signals(self)
        self.flags = Flags(self.clocks, len(blocks))
        self.reduced = np.zeros_like(self.clocks.known[:, ORDERED])  # by warp: what its reductions would have told it
        self.histories: dict[tuple[str, int], list[Operation]] = {}  # by kind and warp: all that it issued
        self.flights: dict[int, list[Work]] = {}  # by flight: what an mbarrier is told of
        self.trackers: dict[int, list[Work]] = {}
        self.following_now: list[Work] | None = None  # the work whose signals are given

    # --- places and people

    def warps(self, block: ThreadsView, threads: Array) -> Array:
        """The warps of threads, in the cluster, one for each thread."""
        found: Array = threads // LANES + block.rank * self.per_block
        return found

    def some(self, block: ThreadsView, threads: Array) -> Array:
        """The warps of threads, each once."""
        return warps_in(threads.tobytes(), threads.dtype.str, block.rank * self.per_block)

    def bits(self, block: ThreadsView, mask: Array) -> tuple[Array, Array, Array]:
        """Of threads the warps, and of each the lanes and those that have not ended, as bits."""
        alive = self.cluster.blocks[block.rank].alive
        return lanes_in(mask.tobytes(), alive.tobytes(), block.rank * self.per_block)

    def index(self, block: ThreadsView) -> Sequence[int]:
        """Which block it is, for a hazard."""
        return block.index

    def words(self, space: str, rank: int) -> Words:
        """The shadow of a memory."""
        found = self.memories.get((space, rank))
        if found is None:
            block = self.cluster.blocks[rank]
            size, unit = (block.columns.bytes, 4) if space == "tmem" else (block.shared_bytes, self.unit)
            found = self.memories[space, rank] = Words(size, unit, self.clocks, self.operations, space)
        return found

    def hazards(self) -> list[Hazard]:
        """What was found."""
        return self.findings.hazards()

    # --- ordinary accesses

    def accessed(
        self, block: ThreadsView, kind: str, segment: Segment | None, offsets: Array, size: int, threads: Array, written: Array | None = None
    ) -> None:  # fmt: skip
        """Loads, stores and atomics of shared memory; those of global memory only as far as they synchronise."""
        rank = self.ranks.get(id(segment), -1)
        if rank < 0 and segment is not None:
            return
        if block.recent is not None:
            block.recent.append((rank, offsets, threads))
        self.meetings.activity[block.rank] += 1
        line, opcode = self.findings.number(block.here), block.here.opcode if block.here is not None else ""
        strong, reads, acquires, releases = order_of(opcode)
        if strong:
            some, told = self.some(block, threads), self.flags.told(block.rank, opcode)
            self.strong[line] = scope_of(opcode) != "cta"
            if kind != "write" and reads:
                if acquires:
                    self.lanes.learning(*self.bits(block, mask_of(block.threads, threads)), told)
                self.flags.acquire(block.rank, some, opcode, acquires)
            elif kind != "write":
                self.reduced[some] = np.maximum(self.reduced[some], told[ORDERED])
        if rank < 0 and self.everywhere.party is not None:
            self.everywhere.party.ordinary(block, kind, offsets, size, self.warps(block, threads), opcode)
        if rank < 0 and self.everywhere.active:
            self.everywhere.accessed(block, kind, offsets, size, threads, line)
        if rank < 0 and self.dependents.active:
            self.dependents.accessed(block, offsets, size, self.warps(block, threads), line, kind != "read")
        if rank >= 0:
            warps = self.warps(block, threads)
            if rank != block.rank:
                self.blocks.reached(block, rank, warps, line)
            words = self.words("shared", rank)
            offsets = offsets.astype(np.int64)
            self.origins.stored("shared", kind, rank, offsets, size)
            at, owner = words.words(offsets, size)
            who = threads[owner]
            self.touch(block, words, rank, at, warps[owner], who, line, kind, who % LANES)
        if strong and kind != "read":
            self.flags.release(block.rank, some, opcode, releases)

    def touch(
        self, block: ThreadsView, words: Words, rank: int, at: Array, warps: Array, threads: Array, line: int, kind: str, lanes: Array
    ) -> None:  # fmt: skip
        """Lanes access words: what is wrong with that, and that they did."""
        self._judge(block, words, rank, at, warps, threads, line, kind, lanes)
        self._note(words, at, warps, line, kind, lanes)

    def _judge(
        self, block: ThreadsView, words: Words, rank: int, at: Array, warps: Array, threads: Array, line: int, kind: str, lanes: Array
    ) -> None:  # fmt: skip
        found = words.conflicts(at, warps, kind != "read", kind != "write", lanes)
        if found:
            self.naming.report(Use(block, words, at, threads, line, kind, rank), found)

    def _note(self, words: Words, at: Array, warps: Array, line: int, kind: str, lanes: Array) -> None:
        if kind != "write":
            self.lanes.touched(warps, lanes, READS)
            words.note_read(at, warps, line, lanes)
        if kind != "read":
            self.lanes.touched(warps, lanes, WRITES)
            words.note_write(at, warps, line, lanes)

    def committed(self, operation: Operation) -> bool:
        """Whether the operation is in a group that was committed."""
        counts = self.cluster.blocks[operation.rank].groups.get(operation.kind)
        return counts is not None and bool((counts[operation.threads] > operation.groups).all())

    # --- instructions of the catalog

    def performed(self, block: EffectsView, bound: Bound, effects: Effects, threads: Array, mask: Array) -> None:
        """Reads, writes, fences, and phases that were seen."""
        self.everywhere.maps.clear()
        self.meetings.activity[block.rank] += 1
        for barrier in effects.barriers:
            if barrier.scope == "grid" and barrier.op == "wait":
                self.dependents.wait(self.some(block, threads))
        if bound.lanes >= LANES and self.lanes.is_apart():
            self.lanes.join(*self.bits(block, mask))
        group = getattr(bound.model.row, "cta_group", None)
        if group:
            self.blocks.grouped(block, group, int(threads[0]))
        for order in effects.orders if not effects.now.writes else ():
            self._ordered(block, order, threads)
        if effects.seen:
            self.signals.saw(block, bound, effects, threads)
        else:
            for access in effects.reads:
                if access.proxy == "tensormap" or "barrier" not in bound.form:
                    for note in self._instruction(block, bound, access, threads, "read"):
                        self._note(*note)
        notes = [
            self._instruction(block, bound, write.at, threads, "atomic" if write.combine else "write")
            for write in effects.now.writes
        ]
        for note in (each for own in notes for each in own):
            self._note(*note)
        for resource in effects.resources:
            if resource.kind == "tmem.permit":
                self.blocks.relinquished[block.rank] = self.findings.number(block.here)
        if effects.now.writes:
            for order in effects.orders:
                self._ordered(block, order, threads)
        for signal in effects.now.signals:
            if signal.kind not in ("init", "inval"):
                self.signals.given(block, bound, signal, threads)
        self.origins.performed(block, bound, effects, threads, mask)

    def incomplete(self, block: EffectsView, bound: Bound, missing: Array) -> None:
        """Threads of a warp or warpgroup do not execute what all of it has to."""
        self.together.incomplete(block, bound, missing)

    def _instruction(
        self, block: EffectsView, bound: Bound, access: Access, threads: Array, kind: str
    ) -> list[tuple[Words, Array, Array, int, str, Array]]:
        """Judge an access; what is to be noted of it, once all that the instruction accesses is judged."""
        line, notes = self.findings.number(block.here), []
        if access.space in ("global", "generic"):
            self.everywhere.instruction(block, bound, access, threads, kind)
        space = "tmem" if access.space == "tmem" else "shared"
        for own in EXTENTS.of(block, bound, access, threads, threads, self.words):
            if not len(own.at):
                continue
            words, warps = self.words(space, own.rank), own.units + block.rank * self.per_block
            self.origins.stored(space, kind, own.rank, own.offsets, own.size)
            if own.rank != block.rank:
                self.blocks.reached(block, own.rank, self.warps(block, own.threads), line)
            apart = bound.lanes == 1 or access.thread is not None
            lanes = own.lanes if apart else several(len(own.at))
            self._judge(block, words, own.rank, own.at, warps, own.who, line, kind, lanes)
            notes.append((words, own.at, warps, line, kind, lanes))
        return notes

    def moved(self, block: ThreadsView, carry: Any, mask: Array, partners: Array | None = None) -> None:
        """Elements go from register to register, to memory and back."""
        self.origins.moved(block, carry, mask, partners)

    # --- order

    def _ordered(self, block: EffectsView, order: Order, threads: Array) -> None:
        some = self.some(block, threads)
        if order.kind == "fence.proxy":
            if "async" in order.proxies and (not order.spaces or "shared" in order.spaces):
                self.objects.fenced(some)
                self.clocks.fence_proxies(some)
            if "async" in order.proxies and (not order.spaces or "global" in order.spaces):
                self.clocks.fence_proxies(some, GLOBALLY)
            if "tensormap" in order.proxies:
                self.everywhere.ordered(order, some)
        elif order.kind == "wgmma.fence":
            self.registers.fence(block, threads)
        elif order.kind in TENSOR_FENCES:
            self.clocks.fence_tensor(some, order.kind == TENSOR_FENCES[0])
        elif order.kind == "fence.mbarrier_init":
            self.objects.fenced(some)
            self.clocks.fence_initialisation(some)
        elif order.kind in ("fence", "fence.sc"):
            self._fence(block, mask_of(block.threads, threads), order.scope)

    def fenced(self, block: ThreadsView, mask: Array) -> None:
        """membar."""
        self.meetings.activity[block.rank] += 1
        self._fence(block, mask, scope_of(block.here.opcode) if block.here is not None else "cta")

    def _fence(self, block: ThreadsView, mask: Array, scope: str) -> None:
        warps, now, alive = self.bits(block, mask)
        if self.everywhere.party is not None:
            self.everywhere.party.fence(warps, scope, block.here)
        self.flags.fence(warps, scope)
        self.lanes.learning(warps, now, alive, self.clocks.heard[warps].max(0))
        self.clocks.fence(warps)

    def exchanged(self, block: ThreadsView, mask: Array) -> None:
        """Lanes wait for each other, and no memory is ordered."""
        self.lanes.join(*self.bits(block, mask))

    def met(self, block: BlockView, mask: Array, members: Array) -> None:
        """bar.warp.sync orders what its lanes did."""
        self.meetings.activity[block.rank] += 1
        for each in np.unique(members[mask]).tolist():
            warps, now, alive = self.bits(block, mask & (members == each))
            self.lanes.together(warps, now & np.uint32(each), alive)

    def arrived(self, block: BlockView, scope: str, number: int, mask: Array) -> None:
        """Arrivals at barriers publish what was before them."""
        self.meetings.arrived(block, scope, number, mask)

    def passed(self, block: BlockView, scope: str, number: int, mask: Array) -> None:
        """Those who waited learn it."""
        self.meetings.passed(block, scope, number, mask)

    # --- mbarriers

    def signalled(
        self, block: EffectsView, signal: Signal, key: int, count: int, before: int, after: int, threads: Array
    ) -> None:
        """An mbarrier is made, ends, or gets an arrival or bytes."""
        self.signals.signalled(block, signal, key, count, before, after, threads)

    # --- work in flight

    def issued(self, flight: Flight) -> None:
        """Work reads and writes from now on, at any time until somebody knows that it is done."""
        block, bound, pending = flight.block, flight.bound, flight.pending
        line = self.findings.number(block.here)
        made: dict[int, Operation] = {}
        together = max(1, bound.lanes // LANES)
        proxy = "async" if any(own.proxy == "async" for own in (*pending.reads, *pending.writes)) else "generic"
        threads, first_warp = flight.threads, block.rank * self.per_block
        for first, warps, begin, end in shares_in(threads.tobytes(), threads.dtype.str, first_warp, together):
            made[first] = self.operations.issue(
                flight.kind, line, block.rank, warps, threads[begin:end], flight.groups[begin:end], proxy
            )
            made[first].registers, made[first].sources = bound.written, bound.held
            made[first].unit = bound.model.row.family
            made[first].each = bound.lanes == 1
            for signal in pending.tells:
                made[first].box = box_of(bound, pending, signal)
                self.objects.told(made[first], self.signals.keys(block, signal, flight.asked, warps), self.index(block))
            if flight.kind == "wgmma":
                made[first].published = self.clocks.published(made[first].warps)
                self.registers.issued(block, made[first])
            if flight.kind in _SIGNALLED:
                self.histories.setdefault((flight.kind, first), []).append(made[first])
        self.flights[id(flight)] = [
            Work([own], 1, self.clocks.published(own.warps), frozenset(own.warps.tolist()))
            for own in made.values()
            if not flight.kind
        ]
        read, written = ({id(access) for access in accesses} for accesses in (pending.reads, pending.writes))
        for accesses, writes in ((pending.reads, False), (pending.writes, True)):
            for access in accesses:
                if access.space in ("global", "generic"):
                    self.everywhere.reached(block, bound, access, threads, flight.asked, writes, made.values())
                if access.space in ("shared", "generic", "tmem") and (writes or id(access) not in written):
                    self._work(flight, access, id(access) in read, writes, made, line, together)
        self.origins.issued(flight, line)
        for own in made.values():
            self.everywhere.issued(own)

    def _work(
        self, flight: Flight, access: Access, reads: bool, writes: bool, made: dict[int, Operation], line: int, together: int
    ) -> None:  # fmt: skip
        block = flight.block
        space = "tmem" if access.space == "tmem" else "shared"
        for own in EXTENTS.of(block, flight.bound, access, flight.threads, flight.asked, self.words):
            rank, at, who = own.rank, own.at, own.threads
            words, offsets, size = self.words(space, rank), own.offsets, own.size
            if own.end > words.count * words.unit:
                self.origins.beyond(flight, line)
                continue  # it ends the run when it is fetched
            if not len(at):
                continue
            if space == "tmem":
                self.blocks.used(block, rank, offsets, size, line)
            elif rank != block.rank:
                for by in made.values():
                    self.blocks.reached(block, rank, by.warps, line, by)
            if len(made) > 1:
                every, each = self.warps(block, own.who), own.lanes
                if (  # what each warp issues by itself is judged at once; one by one only to say what is wrong
                    together == 1
                    and flight.bound.lanes == 1
                    and space == "shared"
                    and all(by.proxy == "generic" for by in made.values())
                    and not words.conflicts(at, every, writes, reads, each)
                ):
                    words.note_all(at, made, every, writes, each)
                    continue
            for first, by in made.items():
                whole = len(made) == 1
                here, mine = (own.owner, at) if whole else own.share(block.rank * self.per_block, first, together)
                if not len(mine):
                    continue
                lanes = (
                    (who[here] if len(by.threads) > 1 else by.threads) % LANES
                    if by.each and space == "shared"
                    else None
                )
                found = words.conflicts_of(mine, by, writes, reads, lanes)
                if found:
                    kind = "write" if writes else "read"
                    self.naming.report(Use(block, words, mine, by.threads, line, kind, rank, by), found)
                if writes:
                    words.note_landing(mine, by, SEVERAL if lanes is None else lanes)
                else:
                    words.note_fetch(mine, by)

    def landing(self, flight: Flight) -> None:
        """What work signals follows from it."""
        self.origins.landing(flight)
        self.following_now = self.flights.get(id(flight), [])

    def landed(self, flight: Flight) -> None:
        """It is done."""
        self.following_now = None
        self.flights.pop(id(flight), None)

    def grouped(self, block: EffectsView, group: GroupOp, threads: Array) -> None:
        """Waits for groups: those who wait know that their work is done."""
        if group.op != "wait":
            return
        counts = block.committed(group.kind)
        pending = None if group.kind in ("tcgen05.ld", "tcgen05.st") else group.pending
        some = self.some(block, threads)
        self.operations.waited(group.kind, block.rank, some, threads, counts, pending, group.reads_only)

    def needed(self, block: EffectsView, numbers: frozenset[int], mask: Array) -> None:
        """A register that tcgen05.ld writes is read: the load is over for that thread."""
        self.operations.needed("tcgen05.ld", block.rank, numbers, mask)

    def touched(self, block: ThreadsView, reads: frozenset[int], writes: frozenset[int], mask: Array) -> None:
        """Registers that wgmma uses are read and written."""
        self.registers.touched(block, reads, writes, mask)

    def tracking(self, tracker: Tracker, kind: str) -> None:
        """A signal will follow all that these threads have issued."""
        self.trackers[id(tracker)] = self.signals.tracking(tracker, kind)

    def following(self, tracker: Tracker) -> None:
        """Signals of a tracker."""
        self.following_now = self.trackers.pop(id(tracker), [])

    def followed(self, tracker: Tracker) -> None:
        """They were given."""
        self.following_now = None

    # --- what blocks own

    def forget(self, rank: int, first: int, count: int) -> None:
        """Columns of Tensor Memory are taken anew: nobody has touched them."""
        words = self.memories.get(("tmem", rank))
        if words is not None:
            at = (np.arange(128)[:, None] * COLUMNS + first + np.arange(count)).reshape(-1)
            words.forget(at)

    def told_address(self, block: EffectsView, at: Access, threads: Array, line: int) -> None:
        """tcgen05.alloc writes where its columns are."""
        address, _ = block.places(at)
        offsets = address & 0xFFFFFF
        words = self.words("shared", block.rank)
        places, _ = words.words(offsets, at.size)
        self.touch(
            block, words, block.rank, places, np.full(len(places), self.some(block, threads)[0]), np.full(len(places), threads[0]), line, "write",
            np.full(len(places), EACH),
        )  # fmt: skip

    def granted(self, block: EffectsView, resource: Resource, outcome: Outcome | None, threads: Array) -> None:
        """Tensor Memory is taken or given back; a cluster that has not started is cancelled."""
        self.blocks.granted(block, resource, outcome, threads)

    def given(self) -> None:
        """What follows from what was granted is done."""
        self.following_now = None

    def exited(self, block: BlockView, mask: Array) -> None:
        """Threads end: nothing that they or others have in flight may need them."""
        self.meetings.exited(block, mask)
        self.blocks.exited(block, mask)

    def ended(self, stop: Stop | None) -> None:
        """The cluster has ended."""
        self.origins.over(stop is not None)
        if stop is None:
            self.meetings.ended()
            self.together.ended()
            for key, found in self.objects.live.items():
                self.objects.over(key, found, self.index(self.cluster.blocks[key >> 24 & 0xFF]))
        self.deadlocks.ended(stop)

    def stuck(self, block: BlockView, waits: Wait) -> str:
        """What threads that wait for ever wait for."""
        return self.deadlocks.explained(block, waits)
