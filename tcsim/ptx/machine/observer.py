"""What happens in a cluster while it runs, and who hears of it: accesses, asynchronous operations, barriers and fences, as they happen.

`Observer` names the events: every method is one, and does nothing here. A subclass overrides those that it wants to hear of. What is
compiled differently, so that `block.here` is the instruction that is executed or that each instruction is told, is chosen when a kernel
is compiled. An event that nobody wants costs nothing (`tcsim.ptx.machine.events`).

Masks are bools with an entry for each thread of the block; `threads` are thread numbers.
"""

from __future__ import annotations

from typing import Any

from tcsim.model.effects import Access, Effects, GroupOp, Outcome, Resource, Signal
from tcsim.ptx.compile.compiled import Site
from tcsim.ptx.compile.families import Bound
from tcsim.ptx.hazards.hazard import Hazard
from tcsim.ptx.machine.arrays import Array
from tcsim.ptx.machine.block import Block
from tcsim.ptx.machine.faults import Stop
from tcsim.ptx.machine.fibers import Wait
from tcsim.ptx.machine.flights import Flight, Tracker
from tcsim.ptx.machine.memory import Segment


class Observer:
    """What happens in one cluster."""

    # --- instructions

    def executing(self, block: Block, site: Site, mask: Array) -> None:
        """Threads are about to execute an instruction: those whose predicate holds. Only of a program that is stepped."""

    def shuffled(self, block: Block, sources: Array) -> None:
        """A shuffle: of each thread the one whose register it gets."""

    def asking(self, block: Block, bound: Bound, threads: Array) -> None:
        """An instruction of the catalog is about to be asked for its effects; what it reads for them is told by `looked`."""

    def asked(
        self, block: Block, bound: Bound, given: dict[str, Any], effects: Effects, threads: Array, mask: Array
    ) -> None:  # fmt: skip
        """It was asked. given: its operands in the program."""

    # --- accesses

    def loaded(self, block: Block, segment: Segment | None, offsets: Array, size: int, threads: Array) -> None:
        """Ordinary loads, and those of atomics, are done: as of `accessed`."""

    def stored(self, block: Block, segment: Segment | None, offsets: Array, size: int, threads: Array) -> None:
        """Ordinary stores, and those of atomics, are done, in the order of `threads`."""

    def looked(self, block: Block, access: Access) -> None:
        """Bytes were read for effects, or by work in flight."""

    def put(self, block: Block, space: str, addresses: Array, size: int, cta: Array | None) -> None:
        """Bytes of effects were written: `size` at each address; cta: the blocks of Tensor Memory."""

    def accessed(
        self, block: Block, kind: str, segment: Segment | None, offsets: Array, size: int, threads: Array, written: Array | None = None
    ) -> None:  # fmt: skip
        """Ordinary loads ("read"), stores ("write") and atomics ("atomic"): `size` bytes at `offsets`, one for each of `threads`.

        segment: the memory that it is: None for global memory (offsets are addresses), `shared` of some block of the cluster, else
        local memory or parameters. Told before it is done. written: what is stored, where that is known.
        """

    def performed(self, block: Block, bound: Bound, effects: Effects, threads: Array, mask: Array) -> None:
        """An instruction of the catalog that does not wait (any more): reads, writes, fences, phases that it saw; before it is done."""

    def incomplete(self, block: Block, bound: Bound, missing: Array) -> None:
        """An instruction that lanes execute together is executed without some threads of its warps: these have ended, do not exist, or do not take part."""

    # --- work in flight

    def issued(self, flight: Flight) -> None:
        """Asynchronous work begins: what it reads and writes, its groups, the registers that it holds."""

    def fetching(self, flight: Flight) -> None:
        """It is about to read what it reads."""

    def fetched(self, flight: Flight) -> None:
        """It has read what it reads."""

    def landing(self, flight: Flight) -> None:
        """It is about to write what it writes; what is signalled up to `landed` is signalled by it."""

    def delivering(self, flight: Flight, outcome: Outcome) -> None:
        """What it comes to is known, and not written yet."""

    def delivered(self, flight: Flight, outcome: Outcome) -> None:
        """It has written."""

    def landed(self, flight: Flight) -> None:
        """It has written, and signalled."""

    def grouped(self, block: Block, group: GroupOp, threads: Array) -> None:
        """Some threads commit a group, or have waited for groups."""

    def tracking(self, tracker: Tracker, kind: str) -> None:
        """Signals are to follow the work of a kind that its threads have issued so far."""

    def following(self, tracker: Tracker) -> None:
        """That work is done: what is signalled up to `followed` follows from it."""

    def followed(self, tracker: Tracker) -> None:
        """Those signals have been given."""

    def needed(self, block: Block, numbers: frozenset[int], mask: Array) -> None:
        """An instruction of some threads needs registers that work without groups writes: it waits for them."""

    def touched(self, block: Block, reads: frozenset[int], writes: frozenset[int], mask: Array) -> None:
        """An instruction reads and writes registers, by number, that instructions of a warpgroup may have in flight."""

    def moved(self, block: Block, carry: Any, mask: Array, partners: Array | None = None) -> None:
        """An ordinary instruction has moved elements that are followed (`tcsim.ptx.compile.carried`), from the registers of each thread or of its partner."""

    # --- barriers

    def signalled(
        self, block: Block, signal: Signal, key: int, count: int, before: int, after: int, threads: Array
    ) -> None:
        """An mbarrier changed. key: its shared address, with the rank of its block; before, after: its 64 bits."""

    def arrived(self, block: Block, scope: str, number: int, mask: Array) -> None:
        """Threads arrive at a named barrier ("cta") or at that of the cluster ("cluster"), those that will wait there too."""

    def passed(self, block: Block, scope: str, number: int, mask: Array) -> None:
        """Threads that waited at a barrier go on: its phase has ended."""

    def met(self, block: Block, mask: Array, members: Array) -> None:
        """Lanes have met at bar.warp.sync and go on; members: of each thread the lanes that had to come, as bits."""

    def exchanged(self, block: Block, mask: Array) -> None:
        """Lanes exchange registers: shfl, vote and match."""

    def fenced(self, block: Block, mask: Array) -> None:
        """membar; other fences are orders of effects."""

    # --- what a block owns

    def granted(self, block: Block, resource: Resource, outcome: Outcome | None, threads: Array) -> None:
        """Tensor Memory, registers or a cluster that has not started were taken or given back. outcome: what follows, not done yet."""

    def given(self) -> None:
        """What follows from what was granted is done."""

    def exited(self, block: Block, mask: Array) -> None:
        """Threads end."""

    # --- the end

    def ended(self, stop: Stop | None) -> None:
        """The cluster has ended; `stop` is the fault, deadlock or limit that ended it."""

    def stuck(self, block: Block, waits: Wait) -> str:
        """What else there is to say of threads that wait for ever; empty for nothing."""
        return ""

    def hazards(self) -> list[Hazard]:
        """What was wrong, in the order in which it was found."""
        return []
