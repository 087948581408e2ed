"""Asynchronous operations: what was issued, in which groups, and which warps know since when that it has read or written; mbarriers that follow them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from functools import cached_property, lru_cache

import numpy as np

from tcsim.ptx.check.clocks import EXECUTED, HANDED, NEVER, ORDERED, PROXIED, Clocks
from tcsim.ptx.check.lanes import EVERY, LEARNS, SEVERAL, Lanes, frozen
from tcsim.ptx.machine.arrays import LANES, Array, distinct

READ, WRITTEN = range(2)
"""What can be known of an operation: that it has read its sources; that it has written its destinations too."""


@lru_cache(64)
def _flags(count: int, value: bool) -> Array:
    """One value for each of some threads."""
    return frozen(np.full(count, value))


@dataclass(eq=False)
class Operation:
    """One operation of the threads of one warp, or of a warpgroup."""

    number: int
    kind: str  # of its group: "cp.async", "bulk", "wgmma", "tcgen05", ...; empty: an mbarrier tells; "mbarrier": an object, not an operation
    line: int  # which instruction
    rank: int  # of the block
    warps: Array  # that issued it, in the cluster
    threads: Array  # of the block
    groups: Array  # of each thread: how many groups it had committed
    since: Array  # of each warp: its clock when it issued it
    left: list[Array] = field(default_factory=list)  # by READ, WRITTEN: threads that have not waited for it
    proxy: str = "async"
    passed_over: bool = False  # whether a wait of a thread that issued it left it in flight
    registers: frozenset[int] = frozenset()  # that it writes
    sources: frozenset[int] = frozenset()  # that it reads
    published: Array | None = None  # of a warpgroup's: what its warps knew when they gave it their registers
    elsewhere: bool = False  # whether threads that did not issue it waited for groups of its kind
    unit: str = ""  # of tcgen05: the family, "tcgen05.mma", "tcgen05.cp" or "tcgen05.shift"
    reduces: bool = False  # whether all that it writes it adds to: it goes with others that do, in any order
    accumulator: tuple[tuple[int, int, int], ...] = ()  # of tcgen05.mma: where and how large
    # Mbarriers that get to know when it is done, by key, with the phase under way.
    tells: tuple[tuple[int, int], ...] = ()
    depended: bool = False  # whether all that is known of its reads is that its registers were needed
    # Of a tensor copy that an mbarrier counts: its bytes, and those that lie in the tensor.
    box: tuple[int, int] | None = None
    tracked: Array | bool = (
        False  # of each thread whether a signal follows its part, where no signal follows all at once
    )
    each: bool = False  # whether each thread has work of its own, and waits for that alone

    @cached_property
    def whole(self) -> tuple[int, int, int, int] | None:
        """Of whole warps: the first in the block, the one behind the last, the fewest and the most groups that a thread had committed."""
        begin, end = int(self.threads[0]) // LANES, int(self.threads[-1]) // LANES + 1
        if len(self.threads) != LANES * (end - begin):
            return None
        groups = self.groups.tolist()
        return begin, end, min(groups), max(groups)


class Operations:
    """All operations of a cluster."""

    def __init__(self, clocks: Clocks, lanes: Lanes) -> None:
        self.clocks, self.lanes = clocks, lanes
        self.all: list[Operation] = []
        # In groups, by kind and rank: those that not all have waited for.
        self.flying: dict[tuple[str, int], list[Operation]] = {}
        self._seen = np.full((2, 64, clocks.warps), NEVER, np.int32)  # clocks of warps when they learnt of it
        self._learnt = np.zeros((2, 64, clocks.warps), np.uint32)  # the lanes that have, as bits
        # Whether a warp is known to come after: read, written, written and fenced.
        self._after = np.zeros((3, 64, clocks.warps), bool)

    def issue(
        self, kind: str, line: int, rank: int, warps: Array, threads: Array, groups: Array, proxy: str
    ) -> Operation:
        """A new operation."""
        number = len(self.all)
        if number == self._seen.shape[1]:
            kept = (self._seen, NEVER), (self._learnt, 0), (self._after, False)
            more = (np.concatenate([own, np.full_like(own, nothing)], axis=1) for own, nothing in kept)
            self._seen, self._learnt, self._after = more
        left = [_flags(len(threads), True)] * 2
        made = Operation(number, kind, line, rank, warps, threads, groups, self.clocks.now[warps], left, proxy)
        self.all.append(made)
        if kind not in ("", "mbarrier"):
            self.flying.setdefault((kind, rank), []).append(made)
        return made

    def seen(self, numbers: Array | int, warps: Array, part: int = WRITTEN, lanes: Array | np.uint32 = EVERY) -> None:
        """Some warps, or some lanes of each (as bits), learn now that an operation has read, or has written, by number: one for all, or one for each."""
        now = self.clocks.now[warps]
        for own in (READ, WRITTEN)[: part + 1]:
            seen, learnt = self._seen[own], self._learnt[own]
            if isinstance(numbers, int):
                seen, learnt, at = seen[numbers], learnt[numbers], warps
            else:
                at = numbers, warps  # type: ignore[assignment]
            seen[at] = np.minimum(seen[at], now)
            learnt[at] |= lanes
        if lanes is not EVERY:
            self.lanes.last[LEARNS, warps] = self.lanes.alone[warps] = now

    def apart(self, numbers: Array, warps: Array, lanes: Array, owners: Array, part: int) -> tuple[Array, Array]:
        """Whether other lanes of a warp know that an operation has read, or has written, and these do not: bool, elementwise; and since when.

        owners: the lane whose work it is, where each thread waits for its own.
        """
        seen, learnt = self._seen[part][numbers, warps], self._learnt[part][numbers, warps]
        found: Array = (seen != NEVER) & (seen > self.lanes.base[warps]) & (learnt != EVERY)
        found &= (lanes == SEVERAL) | (lanes != owners) & (learnt >> np.minimum(lanes, LANES - 1) & 1 == 0)
        for place in np.nonzero(found)[0].tolist():
            known = self.clocks.known[warps[place], ORDERED, 1:-1].copy()
            known[warps[place]] = self.lanes.pairs[warps[place], min(int(lanes[place]), LANES - 1)].max()
            found[place] = not (self._seen[part][numbers[place]] <= known).any()
        return found, seen

    def seen_by(self, operation: Operation, known: Array, part: int = WRITTEN) -> bool:
        """Whether whoever knows of these events of each warp knows that it has written, or read."""
        return bool((self._seen[part, operation.number] <= known).any())

    def is_seen(self, operation: Operation, part: int) -> bool:
        """Whether any warp has learnt of it."""
        return bool((self._seen[part, operation.number] != NEVER).any())

    def given_back(self, operation: Operation, users: Array) -> bool:
        """Whether one of some warps knows what a warp that issued it published afterwards."""
        known = self.clocks.known[users[:, None], ORDERED, 1 + operation.warps]
        return bool((known >= operation.since).any())

    def waited(
        self, kind: str, rank: int, warps: Array, threads: Array, counts: Array, pending: int | None, reads_only: bool
    ) -> None:
        """Some threads have waited for all of their groups but the latest few; None: for all that they have issued."""
        flying = self.flying.get((kind, rank), [])
        if not flying:
            return
        waits = np.full(len(counts), -1)  # of each thread: so many of its first groups are done
        waits[threads] = NEVER if pending is None else np.maximum(counts[threads] - pending, 0)
        part = READ if reads_only else WRITTEN
        least, most = (bound.tolist() for bound in (waits.reshape(-1, LANES).min(1), waits.reshape(-1, LANES).max(1)))
        kept, done = [], []
        for own in flying:
            if own.whole is not None:  # most often all lanes wait for the same, and a comparison of numbers is enough
                begin, end, first, last = own.whole
                high, over = max(most[begin:end]), last < min(least[begin:end])
                more: Array | bool = False if over else high <= first or own.groups >= waits[own.threads]
            else:
                high, over, more = waits[own.threads].max(), False, own.groups >= waits[own.threads]
            if np.all(more):  # none of its threads has waited for it
                own.passed_over |= bool(high >= 0)
                own.elsewhere |= bool(high < 0)
                kept.append(own)
                continue
            for each in (READ, WRITTEN)[: part + 1]:
                own.left[each] = own.left[each] & more
            if over and own.each and end == begin + 1:
                own.depended = False
                done.append(own)
            elif not own.left[part].any():
                own.depended = False
                self.seen(own.number, own.warps, part, np.uint32(0) if own.each else EVERY)
                if own.each:
                    self.lanes.doing[own.warps[0], own.threads % LANES] = True
                if own.published is not None:
                    self.clocks.acquire(own.warps, own.published)
            if own.left[WRITTEN].any():
                kept.append(own)
        if done:
            numbers, owners = np.array([own.number for own in done]), np.concatenate([own.warps for own in done])
            self.seen(numbers, owners, part, np.uint32(0))
            self.lanes.doing[owners] = True
        self.flying[kind, rank] = kept

    def needed(self, kind: str, rank: int, numbers: frozenset[int], mask: Array) -> None:
        """Some threads read registers that operations write: once all have, the operation has read its sources."""
        for own in self.flying.get((kind, rank), []):
            if own.left[READ].any() and not own.registers.isdisjoint(numbers):
                own.left[READ] = own.left[READ] & ~mask[own.threads]
                if not own.left[READ].any():
                    own.depended = True
                    self.seen(own.number, own.warps, READ)

    def after(self, numbers: Array, warps: Array, part: int) -> Array:
        """Whether what each warp does now comes after each operation has read (READ) or written (WRITTEN): bool, elementwise."""
        found: Array = self._after[part].reshape(-1).take(numbers * self.clocks.warps + warps)
        if not found.all():
            missing = np.nonzero(~found)[0]
            numbers, warps = (np.broadcast_to(own, found.shape)[missing] for own in (numbers, warps))
            number, warp = distinct(numbers), distinct(warps)
            known = self.clocks.known[warp, ORDERED, 1:-1]  # of all by all, so that the next question has its answer
            self._after[part][number[:, None], warp] |= (self._seen[part][number, None] <= known).any(2)
            found[missing] = self._after[part][numbers, warps]
        return found

    def known_to_all(self, first: int, last: int, part: int) -> bool:
        """Whether all of some operations, by their numbers, are known to come before what any warp does now."""
        return bool(self._after[part, first : last + 1].all())

    def is_after(self, number: int, warps: Array, part: int) -> bool:
        """Whether what any of some warps does now comes after an operation has read (READ) or written (WRITTEN)."""
        row = self._after[part, number]
        for warp in warps.tolist():
            if not row[warp]:
                known = self.clocks.known[warp, ORDERED, 1:-1]
                row[warp] = (self._seen[part, number] <= known).any()
            if row[warp]:
                return True
        return False

    def after_fence(self, number: int, warps: Array) -> bool:
        """Whether a warp comes after a fence between proxies that came after an operation of the generic proxy was known to be complete."""
        return bool((self._seen[WRITTEN, number] <= self.clocks.known[warps, PROXIED, 1:-1]).any())

    def after_tensor_fence(self, operation: Operation, warp: int) -> bool:
        """Whether tcgen05.fence orders what a warp does now after an operation of tcgen05 that was known to be complete.

        tcgen05.commit is a fence before what it signals. Of one warp's own loads and stores its wait is enough.
        """
        seen = self._seen[READ if operation.kind == "tcgen05.ld" else WRITTEN, operation.number]
        committed = operation.kind == "tcgen05"
        if not committed and warp in operation.warps:
            return bool(seen[warp] <= self.clocks.now[warp])
        kind = EXECUTED if committed else HANDED
        return bool((seen <= self.clocks.tensor[warp, kind, 1:-1]).any())


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


@dataclass
class Tally:
    """What came in one phase, by the instruction that it came from."""

    expected: Counter[int] = field(default_factory=Counter)  # bytes
    delivered: Counter[int] = field(default_factory=Counter)
    arrivals: Counter[int] = field(default_factory=Counter)


@dataclass(eq=False)
class Object:
    """An mbarrier from its initialisation on."""

    key: int  # its shared address, with the rank above
    line: int
    warp: int
    when: int
    gathering: Array  # what the arrivals of the phase under way publish
    published: Array  # what those of all complete phases have
    coming: list[Work] = field(default_factory=list)
    complete: list[Work] = field(default_factory=list)
    # By warp and lanes, as bits: how much of `complete` they know.
    told: dict[tuple[int, int], int] = field(default_factory=dict)
    now: Tally = field(default_factory=Tally)  # of the phase under way
    last: Tally = field(default_factory=Tally)  # of the phase before
    ended: int = 0  # phases that are complete
    expecting: int = -1  # the last phase in which bytes were expected
    observed: int = 0  # phases of which a wait has found that they are complete
    passes: dict[int, Pass] = field(default_factory=dict)  # by warp: its last
    # By number of complete phases: the clock of each warp when it first observed that number.
    views: dict[int, dict[int, int]] = field(default_factory=dict)
    # By phase: of each warp that has arrived in it, or issued what has, its clock then.
    closing: dict[int, dict[int, int]] = field(default_factory=dict)
    arriving: set[int] = field(default_factory=set)  # warps that have ever arrived
    flying: list[Operation] = field(default_factory=list)  # copies that will tell it
    lane: int | None = None  # that initialised it, if it was one thread
    begun: dict[int, int] = field(default_factory=dict)  # by number of a copy: the phase in which its first bytes came
    fenced: bool = False  # whether a fence by its warp has made it visible to the async proxy

    def __str__(self) -> str:
        return f"the mbarrier at {self.key:#x}"

    def phase_of(self, own: Operation) -> int:
        """The phase that waits for an operation: the one under way when it was issued, or the one that expected its bytes."""
        phase = next(phase for each, phase in own.tells if each == self.key)
        return self.expecting if 0 <= self.expecting < phase and own.kind == "" else phase

    def close(self, kept: int) -> None:
        """The phase under way is complete, and the next one begins; kept: phases of which is kept who knows of them."""
        self.published = np.maximum(self.published, self.gathering)
        self.complete += self.coming
        self.coming, self.last, self.now = [], self.now, Tally()
        self.ended += 1
        for each in (self.views, self.closing):
            each.pop(self.ended - kept, None)


def flipped(before: int, after: int) -> bool:
    """Whether a phase ended between two values of an object's 64 bits."""
    return bool((before ^ after) >> _PARITY & 1)
