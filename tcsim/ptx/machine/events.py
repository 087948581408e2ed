"""What happens in a cluster while it runs, and who hears of it: accesses, asynchronous operations, barriers and fences, as they happen.

An event that nobody wants costs nothing. What is compiled differently, so that `block.here` is the instruction that is executed, or that
each instruction is told, is chosen when a kernel is compiled.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any


@dataclass(frozen=True)
class Event:
    """A kind of event: what those who hear of it are called with, and what has happened."""

    parameters: str
    sentence: str


EVENTS: Mapping[str, Event] = MappingProxyType({
    # --- instructions
    "executing": Event("block, site, mask", "Threads are about to execute an instruction: those whose predicate holds. Only of a program that is stepped."),
    "ran": Event("block, place, mask, found", "Threads have executed a basic block to its end, or to where they wait. found: the block where all of them go on, or pairs of threads and where."),
    "shuffled": Event("block, sources", "A shuffle: of each thread the one whose register it gets."),
    "asking": Event("block, bound, threads", "An instruction of the catalog is about to be asked for its effects; what it reads for them is told by `looked`."),
    "asked": Event("block, bound, given, effects, threads, mask", "It was asked. given: its operands in the program."),
    # --- accesses
    "loaded": Event("block, segment, offsets, size, threads", "Ordinary loads, and those of atomics, are done: as of `accessed`."),
    "stored": Event("block, segment, offsets, size, threads", "Ordinary stores, and those of atomics, are done, in the order of `threads`."),
    "looked": Event("block, access", "Bytes were read for effects, or by work in flight."),
    "put": Event("block, space, addresses, size, cta", "Bytes of effects were written: `size` at each address; cta: the blocks of Tensor Memory."),
    "accessed": Event("block, kind, segment, offsets, size, threads, written", 'Ordinary loads ("read"), stores ("write") and atomics ("atomic"): `size` bytes at `offsets`, one for each of `threads`. segment: the memory that it is: None for global memory (offsets are addresses), `shared` of some block of the cluster, else local memory or parameters. Told before it is done. written: what is stored, where that is known.'),
    "performed": Event("block, bound, effects, threads, mask", "An instruction of the catalog that does not wait (any more): reads, writes, fences, phases that it saw; before it is done."),
    "incomplete": Event("block, bound, missing", "An instruction that lanes execute together is executed without some threads of its warps: these have ended, do not exist, or do not take part."),
    "outside": Event("block, mask", "Lanes execute an instruction with a member mask that does not have them."),
    # --- work in flight
    "issued": Event("flight", "Asynchronous work begins: what it reads and writes, its groups, the registers that it holds."),
    "fetching": Event("flight", "It is about to read what it reads."),
    "fetched": Event("flight", "It has read what it reads."),
    "landing": Event("flight", "It is about to write what it writes; what is signalled up to `landed` is signalled by it."),
    "delivering": Event("flight, outcome", "What it comes to is known, and not written yet."),
    "delivered": Event("flight, outcome", "It has written."),
    "landed": Event("flight", "It has written, and signalled."),
    "grouped": Event("block, group, threads", "Some threads commit a group, or have waited for groups."),
    "tracking": Event("tracker, kind", "Signals are to follow the work of a kind that its threads have issued so far."),
    "following": Event("tracker", "That work is done: what is signalled up to `followed` follows from it."),
    "followed": Event("tracker", "Those signals have been given."),
    "needed": Event("block, numbers, mask", "An instruction of some threads needs registers that work without groups writes: it waits for them."),
    "touched": Event("block, reads, writes, mask", "An instruction reads and writes registers, by number, that instructions of a warpgroup may have in flight."),
    "moved": Event("block, carry, mask, partners", "An ordinary instruction has moved elements that are followed (`tcsim.ptx.compile.carried`), from the registers of each thread or of its partner."),
    # --- barriers
    "signalled": Event("block, signal, key, count, before, after, threads", "An mbarrier changed. key: its shared address, with the rank of its block; before, after: its 64 bits."),
    "arrived": Event("block, scope, number, mask", 'Threads arrive at a named barrier ("cta") or at that of the cluster ("cluster"), those that will wait there too.'),
    "passed": Event("block, scope, number, mask", "Threads that waited at a barrier go on: its phase has ended."),
    "met": Event("block, mask, members", "Lanes have met at bar.warp.sync and go on; members: of each thread the lanes that had to come, as bits."),
    "exchanged": Event("block, mask", "Lanes exchange registers: shfl, vote and match."),
    "fenced": Event("block, mask", "membar; other fences are orders of effects."),
    # --- what a block owns
    "granted": Event("block, resource, outcome, threads", "Tensor Memory, registers or a cluster that has not started were taken or given back. outcome: what follows, not done yet."),
    "given": Event("", "What follows from what was granted is done."),
    "exited": Event("block, mask", "Threads end."),
    # --- the end
    "ended": Event("stop", "The cluster has ended; `stop` is the fault, deadlock or limit that ended it."),
})  # fmt: skip
"""By name. block: `tcsim.ptx.machine.block.Block`; masks: bools with an entry for each thread of the block; threads: numbers of threads; flight,
tracker: `tcsim.ptx.machine.flights`; the others are those of `tcsim.model.effects`."""

Hearing = tuple[Callable[..., None], ...]
"""Who hears of an event, in the order in which they subscribed."""


class Events:
    """Of each kind of event the methods of those who subscribed.

    >>> events, heard = Events(), []
    >>> events.subscribe(type("Exits", (), {"exited": lambda self, block, mask: heard.append(mask)})())
    >>> for hear in events.exited:
    ...     hear(None, "all")
    >>> heard, events.passed
    (['all'], ())
    """

    def __init__(self) -> None:
        vars(self).update(dict.fromkeys(EVENTS, ()))

    def __getattr__(self, name: str) -> Hearing:
        raise AttributeError(f"no event {name}; valid: {', '.join(EVENTS)}")

    def subscribe(self, observer: Any) -> None:
        """Let an observer hear of the events that it has methods for."""
        for name in EVENTS:
            method = getattr(observer, name, None)
            if callable(method) and getattr(method, "__func__", None) is not ignored:
                vars(self)[name] += (method,)


def ignored(observer: object, *given: Any, **named: Any) -> None:
    """In place of a method for an event of which an observer does not hear."""
