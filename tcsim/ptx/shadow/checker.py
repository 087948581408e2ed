"""The observer that looks for hazards: what nothing orders, what is used before it is there, what is left behind."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from tcsim.model.effects import Access, Effects, GroupOp, Order, Outcome, Resource, Signal
from tcsim.ptx.convergence import row_of
from tcsim.ptx.observer import Observer
from tcsim.ptx.shadow import conflicts
from tcsim.ptx.shadow.blocks import Blocks
from tcsim.ptx.shadow.clocks import Clocks
from tcsim.ptx.shadow.findings import Findings
from tcsim.ptx.shadow.mbarriers import Objects, Work, flipped
from tcsim.ptx.shadow.operations import Operation, Operations
from tcsim.ptx.shadow.places import parts
from tcsim.ptx.shadow.registers import Registers
from tcsim.ptx.shadow.words import Conflict, Words
from tcsim.ptx.tensor_memory import COLUMNS
from tcsim.ptx.threads import LANES, Array

if TYPE_CHECKING:
    from tcsim.ptx.barriers import Barriers
    from tcsim.ptx.cluster import Cluster
    from tcsim.ptx.families import Bound
    from tcsim.ptx.hazards import Hazard
    from tcsim.ptx.memory import Segment
    from tcsim.ptx.pending import Flight, Tracker
    from tcsim.ptx.performer import Performer
    from tcsim.ptx.threads import Stop, Threads

_STRONG = frozenset(("volatile", "relaxed", "acquire", "release", "acq_rel", "mmio"))
_SIGNALLED = ("tcgen05", "cp.async")
"""Kinds of work that a signal can follow."""


@cache
def _order_of(opcode: str) -> tuple[bool, bool, bool]:
    """Of an ordinary access: whether it is not weak, whether it acquires, and whether it releases."""
    stem, *words = opcode.split(".")
    strong = stem in ("atom", "red") or not _STRONG.isdisjoint(words)
    both = "acq_rel" in words
    return strong, both or "acquire" in words, both or "release" in words


class Checker(Observer):
    """Hazards of one cluster."""

    def __init__(self, cluster: Cluster) -> None:
        blocks = cluster.blocks
        self.cluster = cluster
        self.per_block = blocks[0].warps
        self.clocks = Clocks(self.per_block * len(blocks))
        self.operations = Operations(self.clocks)
        self.findings = Findings()
        self.objects = Objects(self.clocks, self.operations, self.findings)
        self.memories: dict[tuple[str, int], Words] = {}
        self.blocks = Blocks(self)
        self.registers = Registers(self)
        self.ranks = {id(block.shared): rank for rank, block in enumerate(blocks)}
        self.unit = blocks[0].program.narrowest
        self.strong: set[int] = set()  # instructions that are not weak
        self.barriers: dict[tuple[str, int, int], Array] = {}  # what arrivals at barriers have published
        self.synchronising = np.zeros_like(self.clocks.known[0])  # what accesses that release have
        self.histories: dict[tuple[str, int], list[Operation]] = {}  # by kind and warp: all that it issued
        self.flights: dict[int, list[Work]] = {}  # by flight: what an mbarrier is told of
        self.trackers: dict[int, list[Work]] = {}
        self.following_now: list[Work] | None = None  # the work whose signals are given

    # --- places and people

    def warps(self, block: Threads, threads: Array) -> Array:
        """The warps of threads, in the cluster, one for each thread."""
        found: Array = threads // LANES + block.rank * self.per_block
        return found

    def some(self, block: Threads, threads: Array) -> Array:
        """The warps of threads, each once."""
        return np.unique(self.warps(block, threads))

    def index(self, block: Threads) -> Sequence[int]:
        """Which block it is, for a hazard."""
        return block.index

    def words(self, space: str, rank: int) -> Words:
        """The shadow of a memory."""
        found = self.memories.get((space, rank))
        if found is None:
            block = self.cluster.blocks[rank]
            size, unit = (block.columns.bytes, 4) if space == "tmem" else (block.shared_bytes, self.unit)
            found = self.memories[space, rank] = Words(size, unit, self.clocks, self.operations, space == "shared")
        return found

    def hazards(self) -> list[Hazard]:
        """What was found."""
        return self.findings.hazards()

    # --- ordinary accesses

    def accessed(
        self, block: Threads, kind: str, segment: Segment | None, offsets: Array, size: int, threads: Array, written: Array | None = None
    ) -> None:  # fmt: skip
        """Loads, stores and atomics of shared memory; those of global memory only as far as they synchronise."""
        rank = self.ranks.get(id(segment), -1)
        if rank < 0 and segment is not None:
            return
        opcode = block.here.opcode if block.here is not None else ""
        strong, acquires, releases = _order_of(opcode)
        if strong:
            some = self.some(block, threads)
            if kind != "write":
                self.clocks.acquire(some, self.synchronising, not acquires)
        if rank >= 0:
            line = self.findings.number(block.here)
            if strong:
                self.strong.add(line)
            warps = self.warps(block, threads)
            if rank != block.rank:
                self.blocks.reached(block, rank, warps, line)
            words = self.words("shared", rank)
            at, owner = words.words(offsets.astype(np.int64), size)
            self._touch(block, words, "shared", at, warps[owner], threads[owner], line, kind)
        if strong and kind != "read":
            self.synchronising = np.maximum(self.synchronising, self.clocks.published(some, not releases))

    def _touch(
        self, block: Threads, words: Words, space: str, at: Array, warps: Array, threads: Array, line: int, kind: str
    ) -> None:  # fmt: skip
        found = words.conflicts(at, warps, kind != "read")
        for conflict in found:
            self._ordinary(block, words, space, at, threads, line, kind, conflict)
        if kind != "write":
            words.note_read(at, warps, line)
        if kind != "read":
            words.note_write(at, warps, line)

    def _ordinary(
        self, block: Threads, words: Words, space: str, at: Array, threads: Array, line: int, kind: str, conflict: Conflict
    ) -> None:  # fmt: skip
        """Name the conflicts of an ordinary access."""
        writes = kind != "read"
        for earlier in np.unique(conflict.earlier).tolist():
            place = int(conflict.places[np.argmax(conflict.earlier == earlier)])
            if conflict.kind in ("written", "read"):
                if earlier in self.strong and line in self.strong:
                    continue
                name = conflicts.race(writes, conflict.kind, self.blocks.is_allocation(earlier))
                said = f"{self._verb(conflict.kind)} by {self.findings.opcode(earlier)}"
                other = earlier
            else:
                operation = self.operations.all[earlier]
                user = self.warps(block, threads[place : place + 1])
                name, said = self._against(conflict.kind, operation, None, writes, user)
                other = operation.line
            self._report(name, said, block, words, space, at[place], line, other, int(threads[place]), writes)

    def _against(
        self, kind: str, earlier: Operation, by: Operation | None, writes: bool, users: Array
    ) -> tuple[conflicts.Name, str]:
        """users: the warps of the access now."""
        committed = self.committed(earlier)
        given_back = self.operations.given_back(earlier, users)
        if kind == "fetched":
            return conflicts.against_fetch(earlier, self.operations, committed, given_back), (
                f"read by {self.findings.opcode(earlier.line)}, which may not be done"
            )
        name = conflicts.against_landing(earlier, self.operations, committed, given_back, by, writes)
        return name, f"written by {self.findings.opcode(earlier.line)}, which may not be done"

    def committed(self, operation: Operation) -> bool:
        """Whether the operation is in a group that was committed."""
        counts = self.cluster.blocks[operation.rank].groups.get(operation.kind)
        return counts is not None and bool((counts[operation.threads] > operation.groups).all())

    @staticmethod
    def _verb(kind: str) -> str:
        return "read" if kind == "read" else "written"

    def _report(
        self, name: conflicts.Name, said: str, block: Threads, words: Words, space: str, at: Any, line: int, other: int, thread: int, writes: bool
    ) -> None:  # fmt: skip
        where = int(at) * words.unit
        memory = "Tensor Memory" if space == "tmem" else "shared memory"
        does = "writes" if writes else "reads"
        shown = (
            f"lane {where // 4 // 512}, column {where // 4 % 512} of {memory}"
            if space == "tmem"
            else f"{memory} at {where:#x}"
        )
        message = f"{self.findings.opcode(line)} {does} {shown}, {said}: {name.missing}"
        self.findings.report(name.rule, message, line, other, self.index(block), thread, address=where)

    # --- instructions of the catalog

    def performed(self, block: Performer, bound: Bound, effects: Effects, threads: Array, mask: Array) -> None:
        """Reads, writes, fences, and phases that were seen."""
        if effects.orders:
            for order in effects.orders:
                self._ordered(block, order, threads)
        if effects.seen:
            self._saw(block, effects, threads)
        elif effects.reads and "barrier" not in bound.form:
            for access in effects.reads:
                self._instruction(block, bound, access, threads, "read")
        for write in effects.now.writes:
            self._instruction(block, bound, write.at, threads, "atomic" if write.combine else "write")
        for resource in effects.resources:
            if resource.kind == "tmem.permit":
                self.blocks.relinquished[block.rank] = self.findings.number(block.here)
        for signal in effects.now.signals:
            if signal.kind not in ("init", "inval"):
                self._use(block, signal.at, threads)

    def _use(self, block: Performer, at: Access, threads: Array) -> None:
        """Threads use mbarriers."""
        line, some = self.findings.number(block.here), self.some(block, threads)
        for each in block.copies(at):
            for key in np.unique(block._keys(each)).tolist():
                self.objects.use(key, some, line, self.index(block), int(threads[0]))

    def _instruction(self, block: Performer, bound: Bound, access: Access, threads: Array, kind: str) -> None:
        line = self.findings.number(block.here)
        for rank, offsets, size, mask, who in parts(block, bound, access, threads, threads):
            space = "tmem" if access.space == "tmem" else "shared"
            words = self.words(space, rank)
            at, owner = words.words(offsets, size, mask)
            if len(at):
                warps = self.warps(block, who)
                if rank != block.rank:
                    self.blocks.reached(block, rank, warps, line)
                self._touch(block, words, space, at, warps[owner], who[owner], line, kind)

    # --- order

    def _ordered(self, block: Performer, order: Order, threads: Array) -> None:
        some = self.some(block, threads)
        if order.kind == "fence.proxy":
            if "async" in order.proxies and (not order.spaces or "shared" in order.spaces):
                self.clocks.fence_proxies(some)
        elif order.kind == "wgmma.fence":
            self.registers.fence(block, threads)
        elif order.kind == "fence.mbarrier_init":
            self.clocks.fence_initialisation(some)
        elif order.kind in ("fence", "fence.sc"):
            self.clocks.fence(some)

    def fenced(self, block: Threads, mask: Array) -> None:
        """membar."""
        self.clocks.fence(self.some(block, np.nonzero(mask)[0]))

    def _saw(self, block: Performer, effects: Effects, threads: Array) -> None:
        line = self.findings.number(block.here)
        for seen in effects.seen:
            keys = block._keys(seen.at)
            warps = self.warps(block, np.broadcast_to(threads, keys.shape))
            complete = np.broadcast_to(seen.complete, keys.shape)
            for key in np.unique(keys).tolist():
                own = keys == key
                some = np.unique(warps[own])
                found = self.objects.use(key, some, line, self.index(block), int(threads[int(np.argmax(own))]))
                done = np.unique(warps[own & complete])
                if found is not None and len(done):
                    self.objects.seen(found, done, seen.at.sem == "relaxed")

    def arrived(self, block: Barriers, scope: str, number: int, mask: Array) -> None:
        """Arrivals at barriers publish what was before them."""
        some = self.some(block, np.nonzero(mask)[0])
        if scope == "cta":
            key, relaxed = (scope, block.rank, number), False
        else:
            key = scope, 0, block.cluster.phase
            row = row_of(block.here.opcode) if block.here is not None else None
            relaxed = getattr(row, "sem", "") == "relaxed"
        found = self.clocks.published(some, relaxed)
        before = self.barriers.get(key)
        self.barriers[key] = found if before is None else np.maximum(before, found)

    def passed(self, block: Barriers, scope: str, number: int, mask: Array) -> None:
        """Those who waited learn it."""
        some = self.some(block, np.nonzero(mask)[0])
        if scope == "cta":
            found = self.barriers.pop((scope, block.rank, number), None)
            if found is not None and len(some):
                self.clocks.acquire(some, found)
            return
        for phase in (block.cluster.phase - 1, block.cluster.phase - 2):
            found = self.barriers.get((scope, 0, phase))
            if found is not None:
                self.clocks.acquire(some, found)
        self.barriers.pop((scope, 0, block.cluster.phase - 3), None)

    # --- mbarriers

    def signalled(
        self, block: Performer, signal: Signal, key: int, count: int, before: int, after: int, threads: Array
    ) -> None:
        """An mbarrier is made, ends, or gets an arrival or bytes."""
        line, rank = self.findings.number(block.here), key >> 24 & 0xFF
        following = self.following_now
        at, thread = np.array([key & 0xFFFFFF]), int(threads[0])
        warps = self.some(block, threads)
        if signal.kind in ("init", "inval"):
            words = self.words("shared", rank)
            places, _ = words.words(at, 8)
            each, who = np.full(len(places), warps[0]), np.full(len(places), thread)
            if key not in self.objects.live:
                self._touch(block, words, "shared", places, each, who, line, "write")
            if signal.kind == "inval":
                self.objects.use(key, warps, line, self.index(block), thread)
                self.objects.live.pop(key, None)
                words.note_write(places, each, line)
                return
            marker = self.operations.issue(
                "mbarrier", line, rank, warps[:1], threads[:1], np.zeros(1, np.int64), "generic"
            )
            words.note_landing(places, marker)
            self.objects.initialise(key, int(warps[0]), line, marker, self.index(block), thread)
            return
        if rank != block.rank and following is None:
            self.blocks.reached(block, rank, warps, line)
        found = self.objects.live.get(key)
        if following and following[0].operations:
            line = following[0].operations[-1].line
        if found is not None:
            own = warps if following is None else None
            self.objects.signalled(found, signal, count, flipped(before, after), line, own, following or [])

    # --- work in flight

    def issued(self, flight: Flight) -> None:
        """Work reads and writes from now on, at any time until somebody knows that it is done."""
        block, bound, pending = flight.block, flight.bound, flight.pending
        line = self.findings.number(block.here)
        every = self.warps(block, flight.threads)
        made: dict[int, Operation] = {}
        together = max(1, bound.lanes // LANES)
        proxy = "async" if any(own.proxy == "async" for own in (*pending.reads, *pending.writes)) else "generic"
        for first in np.unique(every // together * together).tolist():
            own = (every >= first) & (every < first + together)
            made[first] = self.operations.issue(
                flight.kind, line, block.rank, np.unique(every[own]), flight.threads[own], flight.groups[own], proxy,
            )  # fmt: skip
            made[first].registers, made[first].sources = bound.written, bound.held
            if flight.kind == "wgmma":
                made[first].published = self.clocks.published(made[first].warps)
                self.registers.issued(block, made[first])
            if flight.kind in _SIGNALLED:
                self.histories.setdefault((flight.kind, first), []).append(made[first])
        self.flights[id(flight)] = [
            Work([own], 1, self.clocks.published(own.warps)) for own in made.values() if not flight.kind
        ]
        written = {id(access) for access in pending.writes}
        for accesses, writes in ((pending.reads, False), (pending.writes, True)):
            for access in accesses:
                if access.space in ("shared", "generic", "tmem") and (writes or id(access) not in written):
                    self._work(flight, access, writes, made, line, together)

    def _work(
        self, flight: Flight, access: Access, writes: bool, made: dict[int, Operation], line: int, together: int
    ) -> None:
        block = flight.block
        space = "tmem" if access.space == "tmem" else "shared"
        for rank, offsets, size, mask, who in parts(block, flight.bound, access, flight.threads, flight.asked):
            words = self.words(space, rank)
            at, owner = words.words(offsets, size, mask)
            if not len(at):
                continue
            if space == "tmem":
                self.blocks.used(block, rank, offsets, size, line)
            elif rank != block.rank:
                for by in made.values():
                    self.blocks.reached(block, rank, by.warps, line, by)
            firsts = self.warps(block, who) // together * together
            for first, by in made.items():
                mine = at if len(made) == 1 else at[(firsts == first)[owner]]
                if not len(mine):
                    continue
                for conflict in words.conflicts_of(mine, by, writes):
                    self._asynchronous(block, words, space, mine, by, writes, conflict)
                if writes:
                    words.note_landing(mine, by)
                else:
                    words.note_fetch(mine, by)

    def _asynchronous(
        self, block: Threads, words: Words, space: str, at: Array, by: Operation, writes: bool, conflict: Conflict
    ) -> None:
        """Name the conflicts of an operation."""
        for earlier in np.unique(conflict.earlier).tolist():
            place = int(conflict.places[np.argmax(conflict.earlier == earlier)])
            if conflict.kind in ("written", "read", "unfenced"):
                other, said = earlier, f"{self._verb(conflict.kind)} by {self.findings.opcode(earlier)}"
                if conflict.kind == "unfenced":
                    name = conflicts.Name("PROXY_FENCE_MISSING", "no fence.proxy.async is between")
                else:
                    name = conflicts.race(writes, conflict.kind)
            else:
                operation = self.operations.all[earlier]
                other = operation.line
                if conflict.kind == "unfenced operation":
                    said = f"written by {self.findings.opcode(other)}"
                    name = conflicts.Name("PROXY_FENCE_CP_ASYNC", "no fence.proxy.async is between its wait and this")
                else:
                    name, said = self._against(conflict.kind, operation, by, writes, by.warps)
            self._report(name, said, block, words, space, at[place], by.line, other, int(by.threads[0]), writes)

    def landing(self, flight: Flight) -> None:
        """What work signals follows from it."""
        self.following_now = self.flights.get(id(flight), [])

    def landed(self, flight: Flight) -> None:
        """It is done."""
        self.following_now = None
        self.flights.pop(id(flight), None)

    def grouped(self, block: Performer, group: GroupOp, threads: Array) -> None:
        """Waits for groups: those who wait know that their work is done."""
        if group.op != "wait":
            return
        counts = block._counts(group.kind)
        pending = None if group.kind in ("tcgen05.ld", "tcgen05.st") else group.pending
        some = self.some(block, threads)
        self.operations.waited(group.kind, block.rank, some, threads, counts, pending, group.reads_only)

    def needed(self, block: Performer, numbers: frozenset[int], mask: Array) -> None:
        """A register that tcgen05.ld writes is read: the load is over for that thread."""
        self.operations.needed("tcgen05.ld", block.rank, numbers, mask)

    def touched(self, block: Threads, reads: frozenset[int], writes: frozenset[int], mask: Array) -> None:
        """Registers that wgmma uses are read and written."""
        self.registers.touched(block, reads, writes, mask)

    def tracking(self, tracker: Tracker, kind: str) -> None:
        """A signal will follow all that these threads have issued."""
        found = []
        for warp in self.some(tracker.block, tracker.threads).tolist():
            history = self.histories.get((kind, warp), [])
            found.append(Work(history, len(history), self.clocks.published(np.array([warp]))))
        self.trackers[id(tracker)] = found

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
            words.who[at] = words.read[at] = 0
            for fetched in words.fetched.values():
                fetched[at] = 0

    def told_address(self, block: Performer, at: Access, threads: Array, line: int) -> None:
        """tcgen05.alloc writes where its columns are."""
        address, _ = block.places(at)
        offsets = address & 0xFFFFFF
        words = self.words("shared", block.rank)
        places, _ = words.words(offsets, at.size)
        self._touch(
            block, words, "shared", places, np.full(len(places), self.some(block, threads)[0]), np.full(len(places), threads[0]), line, "write",
        )  # fmt: skip

    def granted(self, block: Performer, resource: Resource, outcome: Outcome | None, threads: Array) -> None:
        """Tensor Memory is taken or given back."""
        self.blocks.granted(block, resource, outcome, threads)

    def exited(self, block: Barriers, mask: Array) -> None:
        """Threads end: nothing that they or others have in flight may need them."""
        self.blocks.exited(block, mask)

    def ended(self, stop: Stop | None) -> None:
        """The cluster has ended."""
        self.blocks.ended(stop)
