"""mbarrier objects: who made them, what arrivals publish, what a wait teaches, and which phase one was for that came too early."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import numpy as np

from tcsim.model.effects import Order, Signal
from tcsim.ptx.check.clocks import EXECUTED, INITIALISED
from tcsim.ptx.check.lanes import EVERY
from tcsim.ptx.check.operations import READ, WRITTEN, Object, Operation, Pass, Work
from tcsim.ptx.check.order import FENCES
from tcsim.ptx.check.state import Site, State
from tcsim.ptx.machine.arrays import LANES, Array
from tcsim.ptx.machine.block import Block
from tcsim.ptx.machine.faults import Stop
from tcsim.ptx.machine.mbarriers import told
from tcsim.ptx.machine.threads import RANK_SHIFT

_KEPT = 8  # phases of which is kept who knows of them


class Mbarriers:
    """The mbarriers of a cluster, by their shared address with the rank of the block."""

    def __init__(self, state: State) -> None:
        self.state, self.clocks, self.operations = state, state.clocks, state.operations
        self.live, self.opcode = state.mbarriers, state.opcode
        self._known: dict[tuple[int, int, int], tuple[int, list[Operation]]] = {}
        """Of a list of operations, a warp and lanes: how many of them they know; and the list, so that no other one gets its `id`."""
        # By warp what relaxed waits have told it since its last fence: work that an mbarrier says is done, and lanes.
        self._heard: dict[int, list[tuple[Object, Work, int]]] = {}
        self._fresh: set[int] = set()  # warps that have initialised objects, and passed no barrier since
        self._stale: dict[int, int] = {}  # by warp whose last wait that passed told it nothing new: the object
        self.repeated: dict[int, tuple[Object, int]] = {}  # by instruction: the object and phase of such a wait

    def _report(self, rule: str, key: int, said: str, line: int, other: int, site: Site, **detail: int) -> None:
        """What is wrong with the use of an object."""
        self.state.report(rule, site.block, said, line, other, site.thread, address=key, **detail)

    def initialise(self, key: int, warp: int, line: int, site: Site, lane: int | None) -> None:
        """mbarrier.init; lane: None if several threads execute it."""
        before = self.live.get(key)
        if before is not None:
            made = f"{self.opcode(before.line)} made it, and no mbarrier.inval came between"
            said = f"{before} is initialised again; {made}"
            self._report("MBAR_REINIT", key, said, line, before.line, site)
        nothing = np.zeros_like(self.clocks.known[0])
        self.live[key] = Object(key, line, warp, int(self.clocks.now[warp]), nothing, nothing.copy())
        if lane is not None:
            self.live[key].lane = lane
            self._fresh.add(warp)

    def use(self, key: int, warps: Array, line: int, site: Site, threads: Array) -> Object | None:
        """An object that some threads use, of some warps: it has to be one, and its initialisation to come before."""
        found = self.live.get(key)
        if found is None:
            said = f"{self.opcode(line)} uses {key:#x}, where no mbarrier.init made an object"
            self._report("MBAR_USED_BEFORE_INIT", key, said, line, 0, site)
        elif np.count_nonzero(self.clocks.known[warps, INITIALISED, 1 + found.warp] < found.when) or self._apart(
            found, site.block, threads
        ):
            said = f"{self.opcode(line)} uses {found}, and nothing orders {self.opcode(found.line)} before it"
            self._report("MBAR_USED_BEFORE_INIT_VISIBLE", key, said, line, found.line, site)
        return found

    def _apart(self, found: Object, block: Block, threads: Array) -> bool:
        """Whether other lanes of the warp that initialised an object use it, and nothing has brought them together since."""
        lanes, warp = self.state.lanes, found.warp
        if (
            warp not in self._fresh
            or found.when <= max(lanes.base[warp], lanes.joined[warp])
            or warp // self.state.per_block != block.rank
        ):
            return False
        own = threads[self.state.warps(block, threads) == warp] % LANES
        who = np.full(len(own), warp)
        return bool(lanes.unordered(who, own, np.full_like(own, found.lane), np.full(len(own), found.when)).any())

    def passed(self, block: Block, scope: str, number: int, mask: Array) -> None:
        """A barrier, be it relaxed, brings lanes together."""
        if self._fresh:
            self._fresh.difference_update(self.state.some(block, np.flatnonzero(mask)).tolist())

    def invalidated(self, found: Object, warps: Array, line: int, site: Site) -> None:
        """mbarrier.inval: what others did with the object, and work that signals it, have to come before."""
        known = self.clocks.known[warps, EXECUTED].max(0)
        for uses in (*found.closing.values(), *found.views.values()):
            for warp, clock in uses.items():
                if known[1 + warp] < clock:
                    said = f"{self.opcode(line)} ends {found}, and nothing orders that after its use by warp {warp % self.state.per_block}"
                    self._report("MBAR_INVAL_IN_USE", found.key, said, line, found.line, site)
                    return
        for own in self.operations.all:
            if found.key in dict(own.tells) and not self.operations.is_after(own.number, warps, WRITTEN):
                said = f"{self.opcode(line)} ends {found}, which {self.opcode(own.line)} may still signal"
                self._report("MBAR_INVAL_IN_USE", found.key, said, line, own.line, site)
                return

    def take(
        self, found: Object, signal: Signal, count: int, flipped: bool, line: int, warps: Array | None, work: list[Work], site: Site
    ) -> None:  # fmt: skip
        """A signal of some warps, or of work that is complete (warps: None)."""
        if signal.kind == "expect_tx":
            found.now.expected[line] += count
            found.expecting = found.ended
        elif signal.kind == "complete_tx":
            found.now.delivered[line] += count
            for copy in work[0].operations[: work[0].count] if work else ():
                if found.begun.setdefault(copy.number, found.ended) != found.ended:
                    self._under(found, copy.line, found.ended - 1, found.last.expected, site)
        elif signal.kind in ("arrive", "drop"):
            found.now.arrivals[line] += count
            if warps is not None:
                self._arrived(found, warps, signal.at.sem == "relaxed", line, site)
        for own in work:
            found.gathering = np.maximum(found.gathering, own.published)
            closing = found.closing.setdefault(found.ended, {})
            closing.update((warp, int(own.published[EXECUTED, 1 + warp])) for warp in own.warps)
            if found.flying:
                found.flying = [other for other in found.flying if other not in own.operations[: own.count]]
        found.coming += work
        if flipped:
            self._ended(found, line, site)

    def _arrived(self, found: Object, warps: Array, relaxed: bool, line: int, site: Site) -> None:
        """Warps arrive themselves, in a phase before which one has been seen complete."""
        closing = found.closing.setdefault(found.ended, {})
        closing.update(zip(warps.tolist(), self.clocks.now[warps].tolist(), strict=True))
        what = self.clocks.published(warps, relaxed)
        far = relaxed and found.key >> RANK_SHIFT & 0xFF != site.block.rank
        found.gathering = np.maximum(found.gathering, self.state.flags.beyond(what, warps) if far else what)
        found.arriving.update(warps.tolist())
        if found.observed < found.ended:
            said = f"{self.opcode(line)} arrives in phase {found.ended} of {found}, and no wait has found phase {found.ended - 1} complete"
            self._report("MBAR_PHASE_UNOBSERVED", found.key, said, line, 0, site)

    def _ended(self, found: Object, line: int, site: Site) -> None:
        """A phase is complete, by what an instruction does: the next one begins."""
        for warp, last in found.passes.items():
            if last.ended == found.ended and last.clock > found.gathering[EXECUTED, 1 + warp]:
                why = f"nothing orders that before {self.opcode(line)}, which ends phase {found.ended}"
                self._late(found, found.ended - 1, last.line, warp, why, line, site.block)
        for own in found.flying:
            if found.phase_of(own) <= found.ended:
                self._under(found, own.line, found.ended, found.now.expected, site)
        found.close(_KEPT)

    def _late(self, found: Object, phase: int, wait: int, warp: int, why: str, line: int, block: Block) -> None:
        """A wait for a phase may come when the next one is over, too: the parity that it asks for is that of the one after it."""
        own = warp % self.state.per_block
        waits = f"{self.opcode(wait)} waits for phase {phase} of {found} in warp {own}"
        said = f"{waits}, and may come two phases late: {why}"
        self._report("MBAR_PHASE_ALIAS", found.key, said, wait, line, Site(block, own * LANES))

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

    def _under(self, found: Object, line: int, phase: int, expected: Counter[int], site: Site) -> None:
        """A phase ends, or has ended, before the bytes of a copy have come."""
        said = f"phase {phase} of {found} ends before {self.opcode(line)} is done, whose bytes it should wait for: it expects {expected.total()}"
        self._report("MBAR_TX_UNDER", found.key, said, line, max(expected, default=0), site)
        self.boxes(found, phase, expected, site)

    def boxes(self, found: Object, phase: int, expected: Counter[int], site: Site) -> None:
        """A phase ends too early, or never: whether it expects another number of bytes than the boxes of its copies have."""
        copies = [own for own in self.operations.all if found.key in dict(own.tells) and found.phase_of(own) == phase]
        boxes = [own.box for own in copies if own.box is not None]
        whole, inside = sum(own[0] for own in boxes), sum(own[1] for own in boxes)
        total = expected.total()
        if not boxes or len(boxes) < len(copies) or total == whole:
            return
        said = f"phase {phase} of {found} expects {total} bytes, and the boxes that are copied in it have {whole}"
        if inside < whole:
            said += f", of which {inside} lie in the tensor: a box counts as a whole"
        line, other = copies[-1].line, max(expected, default=0)
        self._report("TMA_BOX_BYTES", found.key, said, line, other, site, expected=total, boxes=whole)

    def ended(self, stop: Stop | None) -> None:
        """The cluster has ended: what is left in those that it has."""
        for key, found in self.live.items() if stop is None else ():
            self.over(found, self.state.blocks[key >> RANK_SHIFT & 0xFF])

    def over(self, found: Object, block: Block) -> None:
        """An object is done with: bytes that came and that no phase expects are left."""
        left = found.now.delivered.total() - found.now.expected.total()
        if left > 0:
            line, before = max(found.now.delivered), found.last.expected
            said = f"{found} got {left} bytes, at the last from {self.opcode(line)}, that no phase expects"
            self._report("MBAR_TX_UNDER", found.key, said, line, max(before, default=0), Site(block))
            if found.ended:
                self.boxes(found, found.ended - 1, before, Site(block))

    @staticmethod
    def told(block: Block, signal: Signal, threads: Array) -> list[tuple[int, Array]]:
        """The mbarriers of a signal, in every block that it is for, with the threads that tell each, warp by warp."""
        every = (told(signal, block.mbarriers.keys(at), threads) for at in block.octets.copies(signal.at))
        return [(key, own) for found in every for key, _, own in found]

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
                said = f"{self.opcode(own.line)} signals {found}, and no fence.mbarrier_init or fence.proxy.async follows {self.opcode(found.line)}"
                self._report("MBAR_INIT_NOT_FENCED", key, said, found.line, own.line, Site(block))
            found.arriving.update(own.warps.tolist())
            if own.kind == "":
                found.flying.append(own)

    def seen(self, found: Object, warps: Array, lanes: Array, relaxed: bool, line: int, block: Block) -> None:
        """Some warps, or some lanes of each (as bits), see a phase complete: they learn what came before it."""
        for warp in warps.tolist() if found.ended > 2 else ():
            before = found.passes.get(warp)
            if before is not None and before.ended >= found.ended - 2:
                continue
            level = self._level(found, warp)
            if level is not None and level < found.ended - 2 and (found.ended - 1 - level) % 2 == 0:
                self._late(found, level, line, warp, f"phase {found.ended - 1} is over", 0, block)
        self.clocks.acquire(warps, found.published, relaxed)
        found.observed = max(found.observed, found.ended)
        moment = len(self.operations.all)
        untold: dict[tuple[int, int], list[int]] = {}  # by lanes, and how much of `complete` they know: warps
        for warp, own in zip(warps.tolist(), lanes.tolist(), strict=True):
            before = found.passes.get(warp)
            found.views.setdefault(found.ended, {}).setdefault(warp, int(self.clocks.now[warp]))
            found.passes[warp] = Pass(int(self.clocks.now[warp]), moment, found.ended, line)
            if before is not None and before.ended == found.ended:
                self._stale[warp] = found.key
                self.repeated.setdefault(line, (found, found.ended - 1))
            else:
                self._stale.pop(warp, None)
            untold.setdefault((own, found.told.get((warp, own), 0)), []).append(warp)
            found.told[warp, own] = len(found.complete)
        for (own, known), some in untold.items():
            for work in found.complete[known:]:
                if not relaxed or work.operations[0].kind == "tcgen05":  # which has fences of its own
                    self._learn(work, some, own)
                    continue
                for copy in work.operations[: work.count]:  # they have read, and what they wrote is acquired by a fence
                    bits = EVERY if own == EVERY else np.uint32(own)
                    self.operations.seen(copy.number, np.array(some), READ, bits)
                for warp in some:
                    self._heard.setdefault(warp, []).append((found, work, own))
        for warp in warps.tolist() if self._heard and not relaxed else ():
            self._acquire(warp, found)

    def ordered(self, block: Block, order: Order, threads: Array) -> None:
        """A fence: what relaxed waits have told is acquired."""
        if self._heard and order.kind in FENCES:
            for warp in self.state.some(block, threads).tolist():
                self._acquire(warp)

    def _acquire(self, warp: int, of: Object | None = None) -> None:
        """A warp acquires what relaxed waits have told; of: those for one mbarrier."""
        heard = self._heard.pop(warp, [])
        for found, work, lanes in heard:
            if of is None or of is found:
                self._learn(work, [warp], lanes)
        left = [own for own in heard if of is not None and own[0] is not of]
        if left:
            self._heard[warp] = left

    def _learn(self, work: Work, warps: list[int], lanes: int) -> None:
        """Some lanes of warps, as bits, know that work is done."""
        firsts: dict[int, list[int]] = {}  # by what they knew of it before
        for warp in warps:
            key = id(work.operations), warp, lanes
            first, _ = self._known.get(key, (0, work.operations))
            firsts.setdefault(first, []).append(warp)
            self._known[key] = max(first, work.count), work.operations
        for first, some in firsts.items():
            for own in work.operations[first : work.count]:
                self.operations.seen(own.number, np.array(some), lanes=EVERY if lanes == EVERY else np.uint32(lanes))

    # --- what a wait was for

    def reason(self, operation: Operation, warps: Array) -> tuple[str, str, int] | None:
        """Why warps that have waited for an operation's mbarrier do not know that it is done: rule, what is missing, the wait; or None."""
        for key, _ in operation.tells:
            found = self.live.get(key)
            if found is None:
                continue
            phase = found.phase_of(operation)
            for warp, own in found.passes.items():
                before = warp in warps or (self.clocks.known[warps, EXECUTED, 1 + warp] >= own.clock).any()
                if not before or own.moment <= operation.number:
                    continue
                if own.ended <= phase:
                    return (
                        "MBAR_PARITY",
                        f"{_repeats(self.opcode(own.line), found, own)}, not for phase {phase}",
                        own.line,
                    )
                if any(heard is found for heard, _, _ in self._heard.get(warp, ())):
                    return "MBAR_RELAXED", f"{self.opcode(own.line)} is relaxed, and no fence follows it", 0
                if operation.kind == "":
                    return "MBAR_TX_UNDER", f"phase {phase} of {found} ended without its bytes", 0
        return None

    def stale(self, warps: Array, others: Array) -> tuple[str, str, int] | None:
        """What is wrong with a wait that should have ordered warps with others: rule, what is missing, the wait; None if none is known.

        A wait that found again the phase complete that the warp had seen before, at an mbarrier where one of the others arrives.
        """
        for warp in warps.tolist():
            found = self.live.get(self._stale.get(warp, -1))
            if found is not None and not found.arriving.isdisjoint(others.tolist()):
                own = found.passes[warp]
                return "MBAR_PARITY", _repeats(self.opcode(own.line), found, own), own.line
        return None


def _repeats(opcode: str, found: Object, own: Pass) -> str:
    """That a wait told a warp nothing new."""
    return f"{opcode} waited for phase {own.ended - 1} of {found}, which was already complete"
