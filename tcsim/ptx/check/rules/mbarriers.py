"""mbarrier objects: who made them, what arrivals publish, what a wait teaches, and which phase one was for that came too early."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from tcsim.model.effects import Signal
from tcsim.ptx.check.clocks import EXECUTED, INITIALISED
from tcsim.ptx.check.lanes import EVERY
from tcsim.ptx.check.objects import Object, Pass, Work
from tcsim.ptx.check.operations import Operation
from tcsim.ptx.check.state import Site, State
from tcsim.ptx.machine.arrays import LANES, Array
from tcsim.ptx.machine.block import Block
from tcsim.ptx.machine.faults import Stop
from tcsim.ptx.machine.mbarriers import told

_KEPT = 8  # phases of which is kept who knows of them


class Mbarriers:
    """The mbarriers of a cluster, by their shared address with the rank of the block."""

    def __init__(self, state: State) -> None:
        self.state, self.clocks, self.operations = state, state.clocks, state.operations
        self.live, self.opcode = state.mbarriers, state.opcode
        self._known: dict[tuple[int, int, int], int] = {}
        """Of a list of operations, a warp and lanes: how many of them they know."""
        self._stale: dict[int, int] = {}  # by warp whose last wait that passed told it nothing new: the object
        self.repeated: dict[int, tuple[int, int]] = {}  # by instruction: the object and phase of such a wait

    def initialise(self, key: int, warp: int, line: int, marker: Operation, site: Site) -> None:
        """mbarrier.init."""
        before = self.live.get(key)
        if before is not None:
            said = (
                f"the mbarrier at {key:#x} is initialised again; {self.opcode(before.line)} made it, and no mbarrier.inval "
                "came between"
            )
            self.state.report("MBAR_REINIT", site.block, said, line, before.line, site.thread, address=key)
        nothing = np.zeros_like(self.clocks.known[0])
        self.live[key] = Object(line, warp, int(self.clocks.now[warp]), marker, nothing, nothing.copy())

    def use(self, key: int, warps: Array, line: int, site: Site) -> Object | None:
        """An object that some warps use: it has to be one, and its initialisation to come before."""
        found = self.live.get(key)
        if found is None:
            said = f"{self.opcode(line)} uses {key:#x}, where no mbarrier.init made an object"
            self.state.report("MBAR_USED_BEFORE_INIT", site.block, said, line, 0, site.thread, address=key)
            return None
        if np.count_nonzero(self.clocks.known[warps, INITIALISED, 1 + found.warp] < found.when):
            said = f"{self.opcode(line)} uses the mbarrier at {key:#x}, and nothing orders {self.opcode(found.line)} before it"
            self.state.report(
                "MBAR_USED_BEFORE_INIT_VISIBLE", site.block, said, line, found.line, site.thread, address=key
            )
        return found

    def take(
        self, key: int, found: Object, signal: Signal, count: int, flipped: bool, line: int, warps: Array | None, work: list[Work],
        site: Site,
    ) -> None:  # fmt: skip
        """A signal of some warps, or of work that is complete (warps: None)."""
        if signal.kind == "expect_tx":
            found.expected[line] = found.expected.get(line, 0) + count
            found.expecting = found.ended
        elif signal.kind == "complete_tx":
            found.delivered[line] = found.delivered.get(line, 0) + count
        elif signal.kind in ("arrive", "drop"):
            found.arrivals[line] = found.arrivals.get(line, 0) + count
            if warps is not None:
                closing = found.closing.setdefault(found.ended, {})
                closing.update(zip(warps.tolist(), self.clocks.now[warps].tolist(), strict=True))
                found.gathering = np.maximum(found.gathering, self.clocks.published(warps, signal.at.sem == "relaxed"))
                found.arriving.update(warps.tolist())
                if found.observed < found.ended:
                    said = (
                        f"{self.opcode(line)} arrives in phase {found.ended} of the mbarrier at {key:#x}, and no wait has "
                        f"found phase {found.ended - 1} complete"
                    )
                    self.state.report("MBAR_PHASE_UNOBSERVED", site.block, said, line, 0, site.thread, address=key)
        if signal.kind == "complete_tx" and work:
            for copy in work[0].operations[: work[0].count]:
                if found.begun.setdefault(copy.number, found.ended) != found.ended:
                    self._under(key, copy.line, found.ended - 1, found.before, site)
        for own in work:
            found.gathering = np.maximum(found.gathering, own.published)
            closing = found.closing.setdefault(found.ended, {})
            closing.update((warp, int(own.published[EXECUTED, 1 + warp])) for warp in own.warps)
            if found.flying:
                found.flying = [other for other in found.flying if other not in own.operations[: own.count]]
        found.coming += work
        if flipped:
            self._ended(key, found, line, site)

    def _ended(self, key: int, found: Object, line: int, site: Site) -> None:
        """A phase is complete, by what an instruction does: the next one begins."""
        for warp, last in found.passes.items():
            if last.ended == found.ended and last.clock > found.gathering[EXECUTED, 1 + warp]:
                why = f"nothing orders that before {self.opcode(line)}, which ends phase {found.ended}"
                self._late(key, found.ended - 1, last.line, warp, why, line, site.block)
        for own in found.flying:
            if self._phase(own, key, found) <= found.ended:
                self._under(key, own.line, found.ended, found.expected, site)
        found.published = np.maximum(found.published, found.gathering)
        found.complete += found.coming
        found.coming = []
        found.former, found.before = found.arrivals, found.expected
        found.expected, found.delivered, found.arrivals = {}, {}, {}
        found.ended += 1
        for kept in (found.views, found.closing):
            kept.pop(found.ended - _KEPT, None)

    def _late(self, key: int, phase: int, wait: int, warp: int, why: str, line: int, block: Block) -> None:
        """A wait for a phase may come when the next one is over, too: the parity that it asks for is that of the one after it."""
        said = f"{self.opcode(wait)} asks the mbarrier at {key:#x} for phase {phase} in warp {warp % self.state.per_block}, and may come two phases late: {why}"
        thread = warp % self.state.per_block * LANES
        self.state.report("MBAR_PHASE_ALIAS", block, said, wait, line, thread, address=key)

    def _level(self, found: Object, warp: int) -> int | None:
        """How many phases a warp may know to be complete; None if what is kept does not say.

        It, or a warp whose past it knows, has observed the phase as complete or has arrived in the next one; or it knows of all arrivals.
        """
        known = self.clocks.known[warp, EXECUTED, 1:-1]
        for level in range(found.ended, max(found.ended - _KEPT, 0), -1):
            events = (*found.views.get(level, {}).items(), *found.closing.get(level, {}).items())
            before = found.closing.get(level - 1, {})
            if any(clock <= known[other] for other, clock in events):
                return level
            if before and all(clock <= known[other] for other, clock in before.items()):
                return level
        return 0 if found.ended <= _KEPT else None

    def _under(self, key: int, line: int, phase: int, expected: dict[int, int], site: Site) -> None:
        """A phase ends, or has ended, before the bytes of a copy have come."""
        said = (
            f"phase {phase} of the mbarrier at {key:#x} ends before {self.opcode(line)} is done, whose bytes it should wait for: "
            f"it expects {sum(expected.values())}"
        )
        self.state.report("MBAR_TX_UNDER", site.block, said, line, max(expected, default=0), site.thread, address=key)
        self.boxes(key, self.live[key], phase, expected, site)

    def boxes(self, key: int, found: Object, phase: int, expected: Mapping[int, int], site: Site) -> None:
        """A phase ends too early, or never: whether it expects another number of bytes than the boxes of its copies have."""
        copies = [
            own for own in self.operations.all if (key in dict(own.tells)) and self._phase(own, key, found) == phase
        ]
        boxes = [own.box for own in copies if own.box is not None]
        whole, inside = sum(own[0] for own in boxes), sum(own[1] for own in boxes)
        total = sum(expected.values())
        if not boxes or len(boxes) < len(copies) or total == whole:
            return
        said = f"phase {phase} of the mbarrier at {key:#x} expects {total} bytes, and the boxes that are copied in it have {whole}"
        if inside < whole:
            said += f", of which {inside} lie in the tensor: a box counts as a whole"
        line, other = copies[-1].line, max(expected, default=0)
        self.state.report(
            "TMA_BOX_BYTES", site.block, said, line, other, site.thread, address=key, expected=total, boxes=whole
        )

    def ended(self, stop: Stop | None) -> None:
        """The cluster has ended: what is left in those that it has."""
        for key, found in self.live.items() if stop is None else ():
            self.over(key, found, self.state.blocks[key >> 24 & 0xFF])

    def over(self, key: int, found: Object, block: Block) -> None:
        """An object is done with: bytes that came and that no phase expects are left."""
        left = sum(found.delivered.values()) - sum(found.expected.values())
        if left > 0:
            line = max(found.delivered)
            said = f"the mbarrier at {key:#x} got {left} bytes, at the last from {self.opcode(line)}, that no phase expects"
            self.state.report("MBAR_TX_UNDER", block, said, line, max(found.before, default=0), None, address=key)
            if found.ended:
                self.boxes(key, found, found.ended - 1, found.before, Site(block))

    @staticmethod
    def told(block: Block, signal: Signal, threads: Array) -> list[tuple[int, Array]]:
        """The mbarriers of a signal, in every block that it is for, with the threads that tell each, warp by warp."""
        return [
            (key, own)
            for at in block.octets.copies(signal.at)
            for key, _, own in told(signal, block.mbarriers.keys(at), threads)
        ]

    def keys(self, block: Block, signal: Signal, threads: Array, warps: Array) -> list[int]:
        """The mbarriers of a signal that some of the warps of its threads tell."""
        given = self.told(block, signal, threads)
        return [key for key, own in given if np.isin(self.state.some(block, own), warps).any()]

    def tells(self, own: Operation, keys: Iterable[int], block: Block) -> None:
        """An operation will tell mbarriers when it is done."""
        for key in keys:
            found = self.live.get(key)
            if found is None:
                continue
            own.tells += ((key, found.ended),)
            if own.proxy == "async" and not found.fenced:
                found.fenced = True
                said = f"{self.opcode(own.line)} tells the mbarrier at {key:#x}, and no fence.mbarrier_init or fence.proxy.async follows {self.opcode(found.line)}"
                self.state.report("MBAR_INIT_NOT_FENCED", block, said, found.line, own.line, address=key)
            found.arriving.update(own.warps.tolist())
            if own.kind == "":
                found.flying.append(own)

    @staticmethod
    def _phase(own: Operation, key: int, found: Object) -> int:
        """The phase that waits for an operation: the one under way when it was issued, or the one that expected its bytes."""
        phase = next(phase for each, phase in own.tells if each == key)
        return found.expecting if 0 <= found.expecting < phase and own.kind == "" else phase

    def seen(self, key: int, found: Object, warps: Array, lanes: Array, relaxed: bool, line: int, block: Block) -> None:
        """Some warps, or some lanes of each (as bits), see a phase complete: they learn what came before it."""
        for warp in warps.tolist() if found.ended > 2 else ():
            before = found.passes.get(warp)
            if before is not None and before.ended >= found.ended - 2:
                continue
            level = self._level(found, warp)
            if level is not None and level < found.ended - 2 and (found.ended - 1 - level) % 2 == 0:
                self._late(key, level, line, warp, f"phase {found.ended - 1} is over", 0, block)
        self.clocks.acquire(warps, found.published, relaxed)
        found.observed = max(found.observed, found.ended)
        moment = len(self.operations.all)
        untold: dict[tuple[int, int], list[int]] = {}  # by lanes, and how much of `complete` they know: warps
        for warp, own in zip(warps.tolist(), lanes.tolist(), strict=True):
            before = found.passes.get(warp)
            found.views.setdefault(found.ended, {}).setdefault(warp, int(self.clocks.now[warp]))
            found.passes[warp] = Pass(int(self.clocks.now[warp]), moment, found.ended, line)
            if before is not None and before.ended == found.ended:
                self._stale[warp] = key
                self.repeated.setdefault(line, (key, found.ended - 1))
            else:
                self._stale.pop(warp, None)
            untold.setdefault((own, found.told.get((warp, own), 0)), []).append(warp)
            found.told[warp, own] = len(found.complete)
        for (own, known), some in untold.items():
            for work in found.complete[known:]:
                self._learn(work, some, own)

    def _learn(self, work: Work, warps: list[int], lanes: int) -> None:
        """Some lanes of warps, as bits, know that work is done."""
        firsts: dict[int, list[int]] = {}  # by what they knew of it before
        for warp in warps:
            key = id(work.operations), warp, lanes
            first = self._known.get(key, 0)
            firsts.setdefault(first, []).append(warp)
            self._known[key] = max(first, work.count)
        for first, some in firsts.items():
            for own in work.operations[first : work.count]:
                self.operations.seen(own, np.array(some), lanes=EVERY if lanes == EVERY else np.uint32(lanes))

    # --- what a wait was for

    def reason(self, operation: Operation, warps: Array) -> tuple[str, str, int] | None:
        """Why warps that have waited for an operation's mbarrier do not know that it is done: rule, what is missing, the wait; or None."""
        for key, _ in operation.tells:
            found = self.live.get(key)
            if found is None:
                continue
            phase = self._phase(operation, key, found)
            for warp, own in found.passes.items():
                before = warp in warps or (self.clocks.known[warps, EXECUTED, 1 + warp] >= own.clock).any()
                if not before or own.moment <= operation.number:
                    continue
                if own.ended <= phase:
                    return "MBAR_PARITY", f"{self._repeats(key, own)}, not for phase {phase}", own.line
                if operation.kind == "":
                    return "MBAR_TX_UNDER", f"phase {phase} of the mbarrier at {key:#x} ended without its bytes", 0
        return None

    def stale(self, warps: Array, others: Array) -> tuple[str, str, int] | None:
        """What is wrong with a wait that should have ordered warps with others: rule, what is missing, the wait; None if none is known.

        A wait that found again the phase complete that the warp had seen before, at an mbarrier where one of the others arrives.
        """
        for warp in warps.tolist():
            key = self._stale.get(warp, -1)
            found = self.live.get(key)
            if found is not None and not found.arriving.isdisjoint(others.tolist()):
                own = found.passes[warp]
                return "MBAR_PARITY", self._repeats(key, own), own.line
        return None

    def _repeats(self, key: int, own: Pass) -> str:
        return f"{self.opcode(own.line)} asked the mbarrier at {key:#x} for phase {own.ended - 1}, which was complete before"
