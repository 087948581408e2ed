"""Which clusters of a batch do the same: what the check says of one of them it says of all.

The check judges by what it hears (`tcsim.ptx.machine.events`), and by nothing else. So two clusters of which it would hear the same need not both be
watched. Of what is heard everything counts but what data are, and where in a segment of global memory a cluster begins: the check compares
addresses there with each other, never with a number. It is kept as one number of 64 bits for each cluster, made with weights that each process
draws anew: two clusters that differ have the same number only by chance.

At the edges of a tensor boxes are cut off, and fewer threads store. Where nothing that the async proxy touches in global memory is touched in any
other way, that can only make what the check says less: a cluster whose boxes lie alike is fine if one is that is shown more of its tensors.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tcsim.model.effects import Effects, GroupOp, Outcome, Resource, Signal
from tcsim.ptx.check.digest import READS, WRITES, Digest, code_of, halves, mixed
from tcsim.ptx.check.flags import order_of, orders
from tcsim.ptx.check.places import contested
from tcsim.ptx.compile.families import Bound
from tcsim.ptx.machine.arrays import Array
from tcsim.ptx.machine.batch import Batch
from tcsim.ptx.machine.block import Block
from tcsim.ptx.machine.flights import Flight, Tracker
from tcsim.ptx.machine.memory import Segment
from tcsim.ptx.machine.observer import Observer


def _changes(outcome: Outcome) -> tuple[Any, ...]:
    """What is changed, but for registers."""
    return outcome.writes, outcome.undefined, outcome.signals


class Traces(Observer):
    """What the clusters of a batch do: `digest.sums`, a number of each."""

    def __init__(self, cluster: Batch, places: bool = True, boxes: bool = False) -> None:
        """places: whether it matters where ordinary accesses go in shared memory; else only who accesses it how counts, in any order up to the next event.

        boxes: as of `Digest`.
        """
        self.digest, self._places = Digest(cluster, boxes), places
        self._ranks = {id(block.spaces.shared): block.rank for block in cluster.blocks}
        # Of each rank the threads with products that are in no group, and with groups that they have not waited for.
        self._flying = [np.zeros((2, block.threads.count), bool) for block in cluster.blocks]
        self._flags = any(map(orders, cluster.blocks[0].program.opcodes))
        self._loads = any(opcode.startswith("tcgen05.ld") for opcode in cluster.blocks[0].program.opcodes)

    @staticmethod
    def _here(block: Block, *words: Any) -> np.uint64:
        """An event at the instruction that is executed."""
        return code_of(block.rank, id(block.here), *words)

    def accessed(
        self, block: Block, kind: str, segment: Segment | None, offsets: Array, size: int, threads: Array, written: Array | None = None
    ) -> None:  # fmt: skip
        """Loads, stores and atomics: those of local memory are nobody else's."""
        of, rank = self.digest.of(block, threads), -1
        own = threads - of * self.digest.width
        if segment is not None:
            rank = self._ranks.get(id(segment), -1)
            if rank < 0:
                return
            if not self._places:
                code = self._here(block, "accessed", kind, size)
                self.digest.gathered(code, threads)
                return
            values = offsets.astype(np.int64) - of * self.digest.blocks[rank].spaces.shared_stride
            if kind == "write" and written is not None and len(at := contested(offsets, threads, written)):
                self.digest.rows(self._here(block, "contested", rank), of[at] if np.ndim(of) else of, values[at])
        elif self.digest.boxes and not order_of(block.here.opcode if block.here is not None else "")[0]:
            self.digest.use(block, offsets, {"read": READS, "write": WRITES}.get(kind, READS | WRITES))
            self.digest.touched[of] |= np.uint64(1 << block.rank)
            return
        elif self.digest.reaches_global or order_of(block.here.opcode if block.here is not None else "")[0]:
            # Which flag it is matters where flags order anything (`tcsim.ptx.check.flags`).
            values = np.zeros(len(own), np.int64)
            if (self.digest.reaches_global or self._flags) and len(own):
                values = self.digest.in_global(block, offsets, of, use=READS | WRITES)
        else:  # of which the check sees only that there was one since the last barrier
            self.digest.touched[of] |= np.uint64(1 << block.rank)
            return
        self.digest.rows(self._here(block, "accessed", kind, rank, size), of, values + (own << 40))

    def performed(self, block: Block, bound: Bound, effects: Effects, threads: Array, mask: Array) -> None:
        """Reads, writes, signals, phases that were seen."""
        code = self._here(block, "performed", id(bound))
        if effects.orders:
            self.digest.kept(self.digest.of(block, threads))
        self.digest.who(code, block, threads, mask)
        did = effects.reads, *_changes(effects.now), effects.seen, effects.orders, effects.resources
        self.digest.plain(code, block, did, threads)

    def incomplete(self, block: Block, bound: Bound, missing: Array) -> None:
        """Some lanes do not take part."""
        self.digest.who(self._here(block, "incomplete", id(bound)), block, missing)

    def outside(self, block: Block, mask: Array) -> None:
        """Lanes are not in their member mask."""
        self.digest.mask(self._here(block, "outside"), block, mask)

    def issued(self, flight: Flight) -> None:
        """Work begins."""
        block, pending, threads = flight.block, flight.pending, flight.asked
        code = self._here(block, "issued", id(flight.bound), flight.kind)
        if flight.kind == "wgmma":
            self._flying[block.rank][0, flight.threads] = True
            self.digest.kept(self.digest.of(block, flight.threads))
        self.digest.who(code, block, flight.threads)
        self.digest.rows(code, self.digest.of(block, flight.threads), flight.groups)
        adds = () if pending.adds is None else np.asarray(pending.adds)
        reads = () if self.digest.box(code, flight) else pending.reads
        self.digest.plain(code, block, (reads, pending.tells, adds), threads)
        self.digest.plain(code ^ code_of("writes"), block, pending.writes, threads, True)

    def fetching(self, flight: Flight) -> None:
        """It reads."""
        self._flight("fetching", flight)

    def landing(self, flight: Flight) -> None:
        """It writes. Of a copy of a box the map says what goes where."""
        self._flight("landing", flight)
        if "tensor_map" in flight.bound.form and not (self.digest.boxes and flight.pending.box):
            self.digest.placed(code_of("placed", flight.block.rank), flight)

    def _flight(self, event: str, flight: Flight) -> None:
        self.digest.who(code_of(event, id(flight.bound), flight.block.rank), flight.block, flight.threads)

    def grouped(self, block: Block, group: GroupOp, threads: Array) -> None:
        """A commit, or a wait."""
        if group.kind == "wgmma":
            single, grouped = self._flying[block.rank]
            if group.op == "commit":
                grouped[threads] |= single[threads]
                single[threads] = False
            elif group.op == "wait" and not group.pending:
                grouped[threads] = False
        code = self._here(block, "grouped", group.kind, group.op, group.pending, group.reads_only)
        self.digest.who(code, block, threads)

    def tracking(self, tracker: Tracker, kind: str) -> None:
        """Signals are to follow."""
        code = self._here(tracker.block, "tracking", kind, tracker.left)
        self.digest.who(code, tracker.block, tracker.threads)
        self.digest.plain(code, tracker.block, tuple(tracker.signals), tracker.threads)

    def following(self, tracker: Tracker) -> None:
        """They follow."""
        self.digest.who(code_of("following", tracker.block.rank), tracker.block, tracker.threads)

    def needed(self, block: Block, numbers: frozenset[int], mask: Array) -> None:
        """Registers in flight are needed: only of tcgen05.ld it matters."""
        if self._loads:
            self.digest.mask(self._here(block, "needed", numbers), block, mask)

    def touched(self, block: Block, reads: frozenset[int], writes: frozenset[int], mask: Array) -> None:
        """Registers that may be in flight are touched."""
        code = self._here(block, "touched", reads, writes)
        if self._flying[block.rank].any():
            self.digest.mask(code, block, mask)
        else:
            self.digest.keep(code, mask)

    def signalled(
        self, block: Block, signal: Signal, key: int, count: int, before: int, after: int, threads: Array
    ) -> None:
        """An mbarrier changed."""
        code = self._here(block, "signalled", signal.kind, key, count, *halves(before), *halves(after))
        self.digest.who(code, block, threads)

    def arrived(self, block: Block, scope: str, number: int, mask: Array) -> None:
        """Threads arrive at a barrier."""
        self.digest.mask(self._here(block, "arrived", scope, number), block, mask)
        counts = block.barriers.counts.get(number) if scope == "cta" else None
        if counts is not None:
            which = np.flatnonzero(block.threads.blocks_in(mask))
            self.digest.note(code_of("counts"), which, mixed(counts[which]))

    def passed(self, block: Block, scope: str, number: int, mask: Array) -> None:
        """They go on."""
        self.digest.mask(code_of("passed", block.rank, scope, number), block, mask)

    def met(self, block: Block, mask: Array, members: Array) -> None:
        """Lanes have met."""
        threads = np.flatnonzero(mask)
        self.digest.rows(self._here(block, "met"), self.digest.of(block, threads), members[threads])
        self.digest.mask(code_of("met"), block, mask)

    def exchanged(self, block: Block, mask: Array) -> None:
        """Lanes exchange registers."""
        self.digest.mask(self._here(block, "exchanged"), block, block.threads.mask(mask))

    def fenced(self, block: Block, mask: Array) -> None:
        """membar."""
        self.digest.mask(self._here(block, "fenced"), block, mask)

    def granted(self, block: Block, resource: Resource, outcome: Outcome | None, threads: Array) -> None:
        """Something is taken, or given back."""
        code = self._here(block, "granted")
        self.digest.who(code, block, threads)
        self.digest.plain(code, block, (resource, *(_changes(outcome) if outcome is not None else ())), threads)

    def exited(self, block: Block, mask: Array) -> None:
        """Threads end."""
        self.digest.mask(code_of("exited", block.rank), block, mask)
