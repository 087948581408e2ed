"""What instructions and work tell mbarriers, and what waits see there, for the hazards of a cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tcsim.model.effects import Access, Effects, Signal
from tcsim.ptx.check.lanes import EVERY, mask_of
from tcsim.ptx.check.rules.mbarriers import Work, flipped
from tcsim.ptx.machine.arrays import LANES, Array, each_once
from tcsim.ptx.machine.mbarriers import told

if TYPE_CHECKING:
    from tcsim.ptx.check.checker import Checker
    from tcsim.ptx.compile.families import Bound
    from tcsim.ptx.machine.flights import Tracker
    from tcsim.ptx.machine.view import EffectsView


class Signals:
    """The signals of a cluster."""

    def __init__(self, checker: Checker) -> None:
        self.checker = checker

    @staticmethod
    def told(block: EffectsView, signal: Signal, threads: Array) -> list[tuple[int, Array]]:
        """The mbarriers of a signal, in every block that it is for, with the threads that tell each, warp by warp."""
        return [(key, own) for at in block.copies(signal.at) for key, _, own in told(signal, block.keys(at), threads)]

    def keys(self, block: EffectsView, signal: Signal, threads: Array, warps: Array) -> list[int]:
        """The mbarriers of a signal that some of the warps of its threads tell."""
        given = self.told(block, signal, threads)
        return [key for key, own in given if np.isin(self.checker.some(block, own), warps).any()]

    def tracking(self, tracker: Tracker, kind: str) -> list[Work]:
        """A signal will follow what the warps of some threads have issued of a kind."""
        checker, found = self.checker, []
        for warp in checker.some(tracker.block, tracker.threads).tolist():
            history, who = checker.histories.get((kind, warp), []), np.array([warp])
            found.append(Work(history, len(history), checker.clocks.published(who), frozenset((warp,))))
            keys = [key for signal in tracker.signals for key in self.keys(tracker.block, signal, tracker.threads, who)]
            for own in reversed(history):
                if own.tells:
                    break
                checker.objects.told(own, keys, checker.index(tracker.block))
        return found

    def given(self, block: EffectsView, bound: Bound, signal: Signal, threads: Array) -> None:
        """Threads signal mbarriers."""
        checker = self.checker
        line = checker.findings.number(block.here)
        for key, own in self.told(block, signal, threads):
            checker.objects.use(key, checker.some(block, own), line, checker.index(block), int(own[0]))
            if key >> 24 & 0xFF != block.rank:
                self._remote(block, bound, signal.at, key, line, int(own[0]), signal.kind in ("arrive", "drop"))

    def _remote(
        self, block: EffectsView, bound: Bound, at: Access, key: int, line: int, thread: int, arrives: bool
    ) -> None:
        """An mbarrier of another block is used: in which form, and for whom."""
        checker = self.checker
        where = (
            f"{checker.findings.opcode(line)} uses the mbarrier at {key:#x} of block {key >> 24 & 0xFF} of the cluster"
        )
        if bound.form["barrier"].space == "shared::cta" or not (arrives or bound.model.row.arithmetic.endswith("_tx")):
            said = f"{where}: valid are arrivals with .shared::cluster"
            checker.findings.report("MBAR_REMOTE_FORM", said, line, 0, checker.index(block), thread, address=key)
        elif arrives and at.sem == "release" and at.scope == "cta":
            checker.findings.report(
                "MBAR_SCOPE", f"{where} with scope .cta", line, 0, checker.index(block), thread, address=key
            )

    def saw(self, block: EffectsView, bound: Bound, effects: Effects, threads: Array) -> None:
        """Waits ask mbarriers for phases, and find some complete."""
        checker = self.checker
        line = checker.findings.number(block.here)
        for seen in effects.seen:
            keys = block.keys(seen.at)
            who, complete = threads, seen.complete
            if who.shape != keys.shape or np.shape(complete) != keys.shape:
                who, complete = np.broadcast_to(who, keys.shape), np.broadcast_to(complete, keys.shape)
            for key in each_once(keys.reshape(-1)):
                own = keys == key
                asking = who[own]
                some, thread = checker.some(block, asking), int(asking[0])
                found = checker.objects.use(key, some, line, checker.index(block), thread)
                if key >> 24 & 0xFF != block.rank:
                    self._remote(block, bound, seen.at, key, line, thread, False)
                mask = mask_of(block.threads, asking[complete[own]])
                if found is not None and mask.any():
                    relaxed = seen.at.sem == "relaxed"
                    done, lanes, alive = checker.bits(block, mask)
                    if not relaxed:
                        checker.lanes.learning(done, lanes, alive, found.published)
                    whole = np.where(lanes == alive, EVERY, lanes)
                    checker.objects.seen(key, found, done, whole, relaxed, line, checker.index(block))
                    if relaxed:
                        checker.relaxed.update(dict.fromkeys(done.tolist(), "MBAR_RELAXED"))

    def signalled(
        self, block: EffectsView, signal: Signal, key: int, count: int, before: int, after: int, threads: Array
    ) -> None:
        """As of `Observer`."""
        checker = self.checker
        line, rank = checker.findings.number(block.here), key >> 24 & 0xFF
        thread, warps = int(threads[0]), checker.some(block, threads)
        following = checker.following_now
        if following and len(following) > 1:
            following = [own for own in following if not own.warps.isdisjoint(warps.tolist())] or following
        if signal.kind in ("init", "inval"):
            words = checker.words("shared", rank)
            places, _ = words.words(np.array([key & 0xFFFFFF]), 8)
            each, who = np.full(len(places), warps[0]), np.full(len(places), thread)
            if key not in checker.objects.live:
                checker.touch(block, words, rank, places, each, who, line, "write", who % LANES)
            if signal.kind == "inval":
                checker.objects.use(key, warps, line, checker.index(block), thread)
                ended = checker.objects.live.pop(key, None)
                if ended is not None:
                    checker.objects.over(key, ended, checker.index(block))
                words.note_write(places, each, line)
                return
            marker = checker.operations.issue(
                "mbarrier", line, rank, warps[:1], threads[:1], np.zeros(1, np.int64), "generic"
            )
            words.note_landing(places, marker)
            checker.objects.initialise(key, int(warps[0]), line, marker, checker.index(block), thread)
            return
        if rank != block.rank and following is None:
            checker.blocks.reached(block, rank, warps, line)
        found = checker.objects.live.get(key)
        if following and following[0].operations:
            line = following[0].operations[-1].line
        if found is not None:
            own = warps if following is None else None
            if own is not None and signal.kind in ("arrive", "drop"):
                if signal.at.sem == "relaxed":
                    checker.relaxed.update(dict.fromkeys(own.tolist(), "MBAR_RELAXED"))
                else:
                    checker.lanes.publishing(*checker.bits(block, mask_of(block.threads, threads)))
            checker.objects.signalled(
                key,
                found,
                signal,
                count,
                flipped(before, after),
                line,
                own,
                following or [],
                checker.index(block),
                thread,
            )
