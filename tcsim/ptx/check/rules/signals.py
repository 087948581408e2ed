"""What instructions and work tell mbarriers, and what waits see there; requests for clusters that have not started, which write an answer and tell one."""

from __future__ import annotations

from functools import lru_cache
from itertools import chain

import numpy as np

from tcsim.isa.clusterlaunchcontrol import encode_response
from tcsim.model.effects import Access, Effects, Outcome, Pending, Resource, Signal
from tcsim.ptx.check.lanes import EVERY
from tcsim.ptx.check.operations import WRITTEN, Operation, Work, flipped
from tcsim.ptx.check.places import shares
from tcsim.ptx.check.rules.cluster import Reaches
from tcsim.ptx.check.rules.conflicts import CANCEL, Conflicts, Use
from tcsim.ptx.check.rules.mbarriers import Mbarriers
from tcsim.ptx.check.rules.unused import is_needed
from tcsim.ptx.check.state import Issue, Site, State
from tcsim.ptx.compile.families import Bound
from tcsim.ptx.machine.arrays import LANES, Array, each_once
from tcsim.ptx.machine.block import Block
from tcsim.ptx.machine.flights import Flight, Tracker
from tcsim.ptx.machine.threads import RANK_SHIFT

_SIGNALLED = ("tcgen05", "cp.async")
"""Kinds of work that a signal can follow."""
_ARRIVALS = ("arrive", "drop")


class Signals:
    """The signals of a cluster."""

    def __init__(self, state: State, mbarriers: Mbarriers, conflicts: Conflicts, reaches: Reaches) -> None:
        self.state, self.mbarriers, self.conflicts, self.reaches = state, mbarriers, conflicts, reaches
        self._flights: dict[int, list[Work]] = {}  # by flight: what an mbarrier is told of
        self._trackers: dict[int, list[Work]] = {}
        self._issuers: dict[
            tuple[str, int], set[bytes]
        ] = {}  # by kind and warp: the threads that issued work, as bytes of arrays

    # --- work that signals follow

    def issued(self, issue: Issue) -> None:
        """Work will tell mbarriers when it is done."""
        state, flight = self.state, issue.flight
        for first, own in issue.made.items():
            for signal in flight.pending.tells:
                own.box = _box(flight.bound, flight.pending, signal)
                keys = self.mbarriers.keys(flight.block, signal, flight.asked, own.warps)
                self.mbarriers.tells(own, keys, flight.block)
            if flight.kind in _SIGNALLED:
                state.histories.setdefault((flight.kind, first), []).append(own)
                self._issuers.setdefault((flight.kind, first), set()).add(own.threads.tobytes())
        if not flight.kind:
            self._flights[id(flight)] = [work_of(state, own.warps, [own]) for own in issue.made.values()]

    def landing(self, flight: Flight) -> None:
        """What work signals follows from it."""
        self.state.following = self._flights.get(id(flight), [])

    def landed(self, flight: Flight) -> None:
        """It is done."""
        self.state.following = None
        self._flights.pop(id(flight), None)

    def tracking(self, tracker: Tracker, kind: str) -> None:
        """A signal will follow what the warps of some threads have issued of a kind."""
        state, found = self.state, list[Work]()
        for warp in state.some(tracker.block, tracker.threads).tolist():
            history, who, block = self._followed(kind, warp, tracker.threads), np.array([warp]), tracker.block
            found.append(work_of(state, who, history))
            told = [self.mbarriers.keys(block, signal, tracker.threads, who) for signal in tracker.signals]
            for own in reversed(history):
                if own.tells:
                    break
                self.mbarriers.tells(own, chain(*told), block)
        self._trackers[id(tracker)] = found

    def _followed(self, kind: str, warp: int, threads: Array) -> list[Operation]:
        """The work of a warp that a signal of some threads follows: each thread's is its own, and what several issued together follows the last of them."""
        history = self.state.histories.get((kind, warp), [])
        if all(_within(own, threads.tobytes(), threads.dtype.str) for own in self._issuers.get((kind, warp), ())):
            return history
        for own in history:
            own.tracked = own.tracked | np.isin(own.threads, threads)
        return [own for own in history if np.all(own.tracked)]

    def following(self, tracker: Tracker) -> None:
        """Signals of a tracker."""
        self.state.following = self._trackers.pop(id(tracker), [])

    def followed(self, tracker: Tracker) -> None:
        """They were given."""
        self.state.following = None

    def given(self) -> None:
        """What follows from what was granted is done."""
        self.state.following = None

    # --- signals of threads

    def signalling(self, block: Block, bound: Bound, effects: Effects, threads: Array, mask: Array) -> None:
        """Threads signal mbarriers."""
        state = self.state
        for signal in effects.now.signals:
            if signal.kind in ("init", "inval"):
                continue
            line = state.number(block.here)
            for key, own in self.mbarriers.told(block, signal, threads):
                self.mbarriers.use(key, state.some(block, own), line, Site(block, int(own[0])), own)
                if key >> RANK_SHIFT & 0xFF != block.rank:
                    self._remote(block, bound, signal.at, key, line, int(own[0]), signal.kind in _ARRIVALS)

    def _remote(self, block: Block, bound: Bound, at: Access, key: int, line: int, thread: int, arrives: bool) -> None:
        """An mbarrier of another block is used: in which form, and for whom."""
        state = self.state
        said = f"{state.opcode(line)} uses the mbarrier at {key:#x} of block {key >> RANK_SHIFT & 0xFF} of the cluster"
        if bound.form["barrier"].space in ("shared", "shared::cta") or not (
            arrives or bound.model.row.arithmetic.endswith("_tx")
        ):
            said += ": valid are arrivals with .shared::cluster"
            state.report("MBAR_REMOTE_FORM", block, said, line, 0, thread, address=key)
        elif arrives and at.sem == "release" and at.scope == "cta":
            state.report("MBAR_SCOPE", block, f"{said} with scope .cta", line, 0, thread, address=key)

    def performed(self, block: Block, bound: Bound, effects: Effects, threads: Array, mask: Array) -> None:
        """Waits ask mbarriers for phases, and find some complete."""
        state = self.state
        for seen in effects.seen:
            line = state.number(block.here)
            keys = block.mbarriers.keys(seen.at)
            who, complete = threads, seen.complete
            if who.shape != keys.shape or np.shape(complete) != keys.shape:
                who, complete = np.broadcast_to(who, keys.shape), np.broadcast_to(complete, keys.shape)
            for key in each_once(keys.reshape(-1)):
                own = keys == key
                asking = who[own]
                thread = int(asking[0])
                found = self.mbarriers.use(key, state.some(block, asking), line, Site(block, thread), asking)
                if key >> RANK_SHIFT & 0xFF != block.rank:
                    self._remote(block, bound, seen.at, key, line, thread, False)
                done = asking[complete[own]]
                if found is None or not len(done):
                    continue
                if not is_needed(block, bound.item):
                    found.observed = max(found.observed, found.ended)
                    continue
                relaxed = seen.at.sem == "relaxed"
                warps, lanes, alive = state.lanes_of(block, done)
                if relaxed:
                    state.relaxed.update(dict.fromkeys(warps.tolist(), "MBAR_RELAXED"))
                else:
                    state.lanes.learning(warps, lanes, alive, found.published)
                whole = np.where(lanes == alive, EVERY, lanes)
                self.mbarriers.seen(found, warps, whole, relaxed, line, block)

    def signalled(
        self, block: Block, signal: Signal, key: int, count: int, before: int, after: int, threads: Array
    ) -> None:
        """An mbarrier is made, ends, or gets an arrival or bytes."""
        state, following = self.state, self.state.following
        line, rank, warps = state.number(block.here), key >> RANK_SHIFT & 0xFF, state.some(block, threads)
        if signal.kind in ("init", "inval"):
            self._object(block, signal.kind == "init", key, line, warps, threads)
            return
        if following and len(following) > 1:
            following = [own for own in following if not own.warps.isdisjoint(warps.tolist())] or following
        if rank != block.rank and following is None:
            self.reaches.reached(block, rank, warps, line)
        found = state.mbarriers.get(key)
        if found is None:
            return
        if following is None and signal.kind in _ARRIVALS:
            if signal.at.sem == "relaxed":
                state.relaxed.update(dict.fromkeys(warps.tolist(), "MBAR_RELAXED"))
            else:
                state.lanes.publishing(*state.lanes_of(block, threads))
        if following and following[0].operations:
            line = following[0].operations[-1].line
        own, ends = warps if following is None else None, flipped(before, after)
        self.mbarriers.take(found, signal, count, ends, line, own, following or [], Site(block, int(threads[0])))

    def _object(self, block: Block, made: bool, key: int, line: int, warps: Array, threads: Array) -> None:
        """mbarrier.init and mbarrier.inval: the words of the object are written."""
        state, rank, thread = self.state, key >> RANK_SHIFT & 0xFF, int(threads[0])
        words = state.words("shared", rank)
        places, _ = words.words(np.array([key & 0xFFFFFF]), 8)
        use = Use.of_one(block, words, places, warps[0], thread, line, rank)
        if key not in state.mbarriers:
            self.conflicts.touch(use)
        if made:
            none = np.zeros(1, np.int64)
            marker = state.operations.issue("mbarrier", line, rank, warps[:1], threads[:1], none, "generic")
            words.note_landing(places, marker)
            self.mbarriers.initialise(
                key, int(warps[0]), line, Site(block, thread), thread % LANES if len(threads) == 1 else None
            )
            return
        self.mbarriers.use(key, warps, line, Site(block, thread), threads)
        ended = state.mbarriers.pop(key, None)
        if ended is not None:
            self.mbarriers.invalidated(ended, warps, line, Site(block, thread))
            self.mbarriers.over(ended, block)
        if len(threads) == 1:
            self.conflicts.note(use)
        else:
            words.note_write(places, use.warps, line)


def work_of(state: State, warps: Array, operations: list[Operation]) -> Work:
    """Operations that warps have issued so far, and what they know now."""
    return Work(operations, len(operations), state.clocks.published(warps), frozenset(warps.tolist()))


@lru_cache(256)
def _within(some: bytes, threads: bytes, kind: str) -> bool:
    """Whether some threads are among others; both as the bytes of an array of a dtype."""
    return bool(np.isin(np.frombuffer(some, kind), np.frombuffer(threads, kind)).all())


def _box(bound: Bound, pending: Pending, signal: Signal) -> tuple[int, int] | None:
    """Of a copy of a box of a tensor: the bytes that an mbarrier counts, and those of them that lie in the tensor."""
    if "tensor_map" not in bound.form:
        return None
    read = [own for own in pending.reads if own.space == "global"]
    inside = sum(own.address.size * own.size if own.mask is None else int(own.mask.sum()) for own in read)
    return int(np.ravel(signal.count)[0]), inside


class Cancels:
    """Requests for the work of clusters that have not started."""

    def __init__(self, state: State, mbarriers: Mbarriers, conflicts: Conflicts) -> None:
        self.state, self.mbarriers, self.conflicts = state, mbarriers, conflicts
        self._refused: list[Operation] = []  # those that were answered with no

    def granted(self, block: Block, resource: Resource, outcome: Outcome | None, threads: Array) -> None:
        """A request is answered."""
        if resource.kind != "launch" or outcome is None:
            return
        state, line, warps = self.state, self.state.number(block.here), self.state.some(block, threads)[:1]
        none = np.zeros(1, np.int64)
        by = state.operations.issue("", line, block.rank, warps, threads[:1], none, "async")
        by.unit = CANCEL
        known = [own for own in self._refused if state.operations.is_after(own.number, warps, WRITTEN)]
        if known:
            said = f"{state.opcode(line)} is issued again, though {state.opcode(known[0].line)} was answered that nothing is left"
            state.report("CLC_AFTER_NO", block, said, line, known[0].line, int(threads[0]))
        if any(int.from_bytes(write.data.tobytes(), "little") == encode_response(None) for write in outcome.writes):
            self._refused.append(by)
        for signal in outcome.signals:
            self.mbarriers.tells(by, self.mbarriers.keys(block, signal, threads, warps), block)
        for own in (each for write in outcome.writes for each in shares(block, write.at)):
            words = state.words("shared", own.rank)
            places, _ = words.words(own.offsets, own.at.size)
            self.conflicts.touch(Use.of_work(block, words, places, by, "write", own.rank))
        state.following = [work_of(state, warps, [by])]
