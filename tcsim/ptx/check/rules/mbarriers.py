"""mbarrier objects: who made them, what arrivals publish, what a wait teaches, and which phase one was for that came too early."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from tcsim.model.effects import Pending, Signal
from tcsim.ptx.check.clocks import EXECUTED, INITIALISED, Clocks
from tcsim.ptx.check.findings import Findings
from tcsim.ptx.check.lanes import EVERY
from tcsim.ptx.check.operations import Operation, Operations
from tcsim.ptx.machine.arrays import LANES, Array

if TYPE_CHECKING:
    from tcsim.ptx.compile.families import Bound

_KEPT = 8  # phases of which is kept who knows of them
_PARITY = 63  # the bit of an object that changes when a phase ends


@dataclass(frozen=True)
class Work:
    """Operations that are complete when something is signalled: one, or the first of all that a warp issued of a kind."""

    operations: list[Operation]
    count: int
    published: Array  # what who issued it, or asked for the signal, knew then
    warps: frozenset[int]  # that did


@dataclass(frozen=True)
class Pass:
    """A wait that found a phase complete."""

    clock: int  # of the warp
    moment: int  # operations issued so far
    ended: int  # phases complete
    line: int


@dataclass(eq=False)
class Object:
    """An mbarrier from its initialisation on."""

    line: int
    warp: int
    when: int
    marker: Operation  # stands in the words of the object
    gathering: Array  # what the arrivals of the phase under way publish
    published: Array  # what those of all complete phases have
    coming: list[Work] = field(default_factory=list)
    complete: list[Work] = field(default_factory=list)
    told: dict[tuple[int, int], int] = field(
        default_factory=dict
    )  # by warp and lanes, as bits: how much of `complete` they know
    expected: dict[int, int] = field(default_factory=dict)  # bytes of the phase under way, by the instruction that told
    delivered: dict[int, int] = field(default_factory=dict)
    arrivals: dict[int, int] = field(default_factory=dict)
    former: dict[int, int] = field(default_factory=dict)  # arrivals of the phase before
    before: dict[int, int] = field(default_factory=dict)  # bytes that it expected
    ended: int = 0  # phases that are complete
    expecting: int = -1  # the last phase in which bytes were expected
    observed: int = 0  # phases of which a wait has found that they are complete
    passes: dict[int, Pass] = field(default_factory=dict)  # by warp: its last
    views: dict[int, dict[int, int]] = field(
        default_factory=dict
    )  # by number of complete phases: the clock of each warp when it first observed that number
    closing: dict[int, dict[int, int]] = field(
        default_factory=dict
    )  # by phase: of each warp that has arrived in it, or issued what has, its clock then
    arriving: set[int] = field(default_factory=set)  # warps that have ever arrived
    flying: list[Operation] = field(default_factory=list)  # copies that will tell it
    begun: dict[int, int] = field(default_factory=dict)  # by number of a copy: the phase in which its first bytes came
    fenced: bool = False  # whether a fence by its warp has made it visible to the async proxy


class Objects:
    """The mbarriers of a cluster, by their shared address with the rank of the block."""

    def __init__(self, clocks: Clocks, operations: Operations, findings: Findings, per_block: int) -> None:
        """per_block: warps of a block."""
        self.clocks, self.operations, self.findings, self.per_block = clocks, operations, findings, per_block
        self.live: dict[int, Object] = {}
        self._known: dict[
            tuple[int, int, int], int
        ] = {}  # of a list of operations, a warp and lanes: how many of them they know
        self._stale: dict[int, int] = {}  # by warp whose last wait that passed told it nothing new: the object
        self.repeated: dict[int, tuple[int, int]] = {}  # by instruction: the object and phase of such a wait

    def initialise(self, key: int, warp: int, line: int, marker: Operation, index: Any, thread: int) -> None:
        """mbarrier.init."""
        before = self.live.get(key)
        if before is not None:
            said = (
                f"the mbarrier at {key:#x} is initialised again; {self.findings.opcode(before.line)} made it, and no mbarrier.inval "
                "came between"
            )
            self.findings.report("MBAR_REINIT", said, line, before.line, index, thread, address=key)
        nothing = np.zeros_like(self.clocks.known[0])
        self.live[key] = Object(
            line, warp, int(self.clocks.now[warp]), marker, nothing, nothing.copy(),
        )  # fmt: skip

    def use(self, key: int, warps: Array, line: int, index: Any, thread: int) -> Object | None:
        """An object that some warps use: it has to be one, and its initialisation to come before."""
        found = self.live.get(key)
        if found is None:
            said = f"{self.findings.opcode(line)} uses {key:#x}, where no mbarrier.init made an object"
            self.findings.report("MBAR_USED_BEFORE_INIT", said, line, 0, index, thread, address=key)
            return None
        if np.count_nonzero(self.clocks.known[warps, INITIALISED, 1 + found.warp] < found.when):
            said = f"{self.findings.opcode(line)} uses the mbarrier at {key:#x}, and nothing orders {self.findings.opcode(found.line)} before it"
            self.findings.report("MBAR_USED_BEFORE_INIT_VISIBLE", said, line, found.line, index, thread, address=key)
        return found

    def signalled(
        self, key: int, found: Object, signal: Signal, count: int, flipped: bool, line: int, warps: Array | None, work: list[Work],
        index: Any, thread: int,
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
                        f"{self.findings.opcode(line)} arrives in phase {found.ended} of the mbarrier at {key:#x}, and no wait has "
                        f"found phase {found.ended - 1} complete"
                    )
                    self.findings.report("MBAR_PHASE_UNOBSERVED", said, line, 0, index, thread, address=key)
        if signal.kind == "complete_tx" and work:
            for copy in work[0].operations[: work[0].count]:
                if found.begun.setdefault(copy.number, found.ended) != found.ended:
                    self._under(key, copy.line, found.ended - 1, found.before, index, thread)
        for own in work:
            found.gathering = np.maximum(found.gathering, own.published)
            closing = found.closing.setdefault(found.ended, {})
            closing.update((warp, int(own.published[EXECUTED, 1 + warp])) for warp in own.warps)
            if found.flying:
                found.flying = [other for other in found.flying if other not in own.operations[: own.count]]
        found.coming += work
        if flipped:
            self._ended(key, found, line, index, thread)

    def _ended(self, key: int, found: Object, line: int, index: Any, thread: int) -> None:
        """A phase is complete, by what an instruction does: the next one begins."""
        for warp, last in found.passes.items():
            if last.ended == found.ended and last.clock > found.gathering[EXECUTED, 1 + warp]:
                why = f"nothing orders that before {self.findings.opcode(line)}, which ends phase {found.ended}"
                self._late(key, found.ended - 1, last.line, warp, why, line, index)
        for own in found.flying:
            if self._phase(own, key, found) <= found.ended:
                self._under(key, own.line, found.ended, found.expected, index, thread)
        found.published = np.maximum(found.published, found.gathering)
        found.complete += found.coming
        found.coming = []
        found.former, found.before = found.arrivals, found.expected
        found.expected, found.delivered, found.arrivals = {}, {}, {}
        found.ended += 1
        for kept in (found.views, found.closing):
            kept.pop(found.ended - _KEPT, None)

    def _late(self, key: int, phase: int, wait: int, warp: int, why: str, line: int, index: Any) -> None:
        """A wait for a phase may come when the next one is over, too: the parity that it asks for is that of the one after it."""
        said = f"{self.findings.opcode(wait)} asks the mbarrier at {key:#x} for phase {phase} in warp {warp % self.per_block}, and may come two phases late: {why}"
        thread = warp % self.per_block * LANES
        self.findings.report("MBAR_PHASE_ALIAS", said, wait, line, index, thread, address=key)

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

    def _under(self, key: int, line: int, phase: int, expected: dict[int, int], index: Any, thread: int) -> None:
        """A phase ends, or has ended, before the bytes of a copy have come."""
        said = (
            f"phase {phase} of the mbarrier at {key:#x} ends before {self.findings.opcode(line)} is done, whose bytes it should wait for: "
            f"it expects {sum(expected.values())}"
        )
        self.findings.report("MBAR_TX_UNDER", said, line, max(expected, default=0), index, thread, address=key)
        self.boxes(key, self.live[key], phase, expected, index, thread)

    def boxes(
        self, key: int, found: Object, phase: int, expected: Mapping[int, int], index: Any, thread: int | None
    ) -> None:
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
        self.findings.report(
            "TMA_BOX_BYTES", said, line, other, index, thread, address=key, expected=total, boxes=whole
        )

    def over(self, key: int, found: Object, index: Any) -> None:
        """An object is done with: bytes that came and that no phase expects are left."""
        left = sum(found.delivered.values()) - sum(found.expected.values())
        if left > 0:
            line = max(found.delivered)
            said = f"the mbarrier at {key:#x} got {left} bytes, at the last from {self.findings.opcode(line)}, that no phase expects"
            self.findings.report("MBAR_TX_UNDER", said, line, max(found.before, default=0), index, None, address=key)
            if found.ended:
                self.boxes(key, found, found.ended - 1, found.before, index, None)

    def fenced(self, warps: Array) -> None:
        """Warps fence what they initialised."""
        some = warps.tolist()
        for found in self.live.values():
            found.fenced |= found.warp in some

    def told(self, operation: Operation, keys: list[int], index: Any) -> None:
        """An operation will tell mbarriers when it is done."""
        tells = []
        for key in keys:
            found = self.live.get(key)
            if found is not None:
                tells.append((key, found.ended))
                if operation.proxy == "async" and not found.fenced:
                    found.fenced = True
                    opcode = self.findings.opcode
                    said = f"{opcode(operation.line)} tells the mbarrier at {key:#x}, and no fence.mbarrier_init or fence.proxy.async follows {opcode(found.line)}"
                    self.findings.report(
                        "MBAR_INIT_NOT_FENCED", said, found.line, operation.line, index, None, address=key
                    )
                found.arriving.update(operation.warps.tolist())
                if operation.kind == "":
                    found.flying.append(operation)
        operation.tells += tuple(tells)

    @staticmethod
    def _phase(own: Operation, key: int, found: Object) -> int:
        """The phase that waits for an operation: the one under way when it was issued, or the one that expected its bytes."""
        phase = next(phase for each, phase in own.tells if each == key)
        return found.expecting if 0 <= found.expecting < phase and own.kind == "" else phase

    def seen(self, key: int, found: Object, warps: Array, lanes: Array, relaxed: bool, line: int, index: Any) -> None:
        """Some warps, or some lanes of each (as bits), see a phase complete: they learn what came before it."""
        for warp in warps.tolist() if found.ended > 2 else ():
            before = found.passes.get(warp)
            if before is not None and before.ended >= found.ended - 2:
                continue
            level = self._level(found, warp)
            if level is not None and level < found.ended - 2 and (found.ended - 1 - level) % 2 == 0:
                self._late(key, level, line, warp, f"phase {found.ended - 1} is over", 0, index)
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
        for (own, told), some in untold.items():
            for work in found.complete[told:]:
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
        return f"{self.findings.opcode(own.line)} asked the mbarrier at {key:#x} for phase {own.ended - 1}, which was complete before"


def box_of(bound: Bound, pending: Pending, signal: Signal) -> tuple[int, int] | None:
    """Of a copy of a box of a tensor: the bytes that an mbarrier counts, and those of them that lie in the tensor."""
    if "tensor_map" not in bound.form:
        return None
    inside = sum(
        own.address.size * own.size if own.mask is None else int(own.mask.sum())
        for own in pending.reads
        if own.space == "global"
    )
    return int(np.ravel(signal.count)[0]), inside


def flipped(before: int, after: int) -> bool:
    """Whether a phase ended between two values of an object's 64 bits."""
    return bool((before ^ after) >> _PARITY & 1)
