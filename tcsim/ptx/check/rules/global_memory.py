"""Global memory: what one cluster writes there and reads again through another proxy, and tensor maps that it changes.

Kept only for segments that the cluster writes, and only where the program has work that reaches global memory through the async proxy.
Other clusters, and other launches, have no clocks here: races between them are looked for in `tcsim.ptx.check.rules.races`, where asked.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from functools import cache
from typing import Any

import numpy as np

from tcsim.core.errors import listing
from tcsim.memory.windows import SHARED_WINDOW
from tcsim.model.effects import Access, Effects, Order
from tcsim.ptx.check.clocks import ORDERED
from tcsim.ptx.check.flags import order_of
from tcsim.ptx.check.operations import READ, Operation
from tcsim.ptx.check.places import accessors, by_segment
from tcsim.ptx.check.rules.conflicts import Conflicts, Use
from tcsim.ptx.check.rules.dependents import Dependents
from tcsim.ptx.check.rules.races import FAR, WEAK, Party
from tcsim.ptx.check.state import Issue, State, Touch
from tcsim.ptx.check.words import LANE_BITS, Lack, Prior, Words
from tcsim.ptx.compile.compiled import Compiled
from tcsim.ptx.compile.families import Bound
from tcsim.ptx.compile.ordinary import row_of
from tcsim.ptx.machine.arrays import Array
from tcsim.ptx.machine.block import Block
from tcsim.ptx.machine.memory import Segment

MOST_BYTES = 1 << 28
"""Of a segment that is followed; larger ones are not."""
_WORD = 4
_OF_COPIES = ((Prior.WRITTEN, Lack.ORDER), (Prior.WRITTEN, Lack.FENCE), (Prior.LANDED, Lack.ORDER))
"""What a copy may not come before when it reads."""
_UNDONE = (Prior.LANDED, Lack.ORDER)
"""A copy that may still write."""


def reaches_global(program: Compiled) -> bool:
    """Whether a program has work in global memory through the async proxy: bulk and tensor copies."""
    return any(map(_reaches, program.opcodes))


@cache
def _reaches(opcode: str) -> bool:
    row = row_of(opcode)
    operands = row.forms[0].operands if row is not None else ()
    return any(own.proxy in ("async", "tensormap") and own.space in ("global", "generic") for own in operands)


@cache
def _combines(opcode: str) -> bool:
    """Whether a copy is a reduction: it combines each element with the one that is there, at once."""
    row = row_of(opcode)
    return row is not None and row.combines


class GlobalMemory:
    """The global memory of one cluster."""

    def __init__(self, state: State, conflicts: Conflicts, dependents: Dependents, party: Party | None) -> None:
        """dependents, party: told of what instructions and work access."""
        self.state, self.conflicts, self.dependents, self.party = state, conflicts, dependents, party
        self.active = reaches_global(state.blocks[0].program)
        self._memories: dict[int, Words] = {}  # by the address of the segment
        self._read: list[
            tuple[Operation, Array, int]
        ] = []  # by copies that nobody knows to be done: where, and bytes at each place
        self._maps: list[tuple[Words, Array, Array]] = []  # tensor maps in use now: their words, and the warps
        warps = state.clocks.warps
        self._released = np.zeros(warps, np.int64)  # of each warp: its clock at its last release of tensor maps
        self._acquired = np.zeros((warps, warps + 2), np.int64)  # what was known at the last acquire

    def _parts(self, addresses: Array, made: bool) -> Iterator[tuple[Array, Segment, Words]]:
        """Which of some addresses lie in which segment that is followed; made: those that are not yet are from now on."""
        state = self.state
        for own, segment in by_segment(state.memory, addresses) if made or self._memories else ():
            words = self._memories.get(segment.address)
            if words is None and made and segment.size <= MOST_BYTES:
                words = Words(segment.size, _WORD, state.clocks, state.operations, "global")
                self._memories[segment.address] = words
            if words is not None:
                yield own, segment, words

    def _judge(self, use: Use, of: Collection[tuple[Prior, Lack]], combines: bool = False) -> None:
        """What is wrong with accesses; combines: each is atomic, and so is a reduction that may not be done."""
        by = use.warps if use.by is None else use.by
        found = [own for own in use.words.conflicts(use.at, by, use.writes) if (own.prior, own.lack) in of]
        if combines:
            work = self.state.operations.all
            found = [own for own in found if not all(self._combining(work[each].line) for each in own.earlier.tolist())]
        if found:
            self.conflicts.report(use, found)

    def _combining(self, line: int) -> bool:
        item = self.state.findings.instruction(line)
        return item is not None and _combines(item.opcode)

    # --- ordinary accesses

    def accessed(self, touch: Touch) -> None:
        """Loads, stores and atomics of warps."""
        if touch.rank < 0 and self.active:
            self._accessed(touch)

    def _accessed(self, touch: Touch) -> None:
        block, kind, line = touch.block, touch.kind, touch.line
        if kind != "read" and self._read:
            self._sources(block, touch.offsets.astype(np.int64), touch.size, line, touch.threads)
        of = (_UNDONE,) if kind == "read" else (_UNDONE, (Prior.FETCHED, Lack.ORDER))
        for own, segment, words in self._parts(touch.offsets, kind != "read"):
            at, owner = words.words((touch.offsets[own] - segment.address).astype(np.int64), touch.size)
            who = touch.threads[own][owner]
            use = Use(block, words, at, who, line, kind, block.rank, self.state.warps(block, who))
            self._judge(use, of, kind == "atomic")
            if use.writes:
                words.note_write(at, use.warps, line)

    def _sources(self, block: Block, places: Array, size: int, line: int, threads: Array) -> None:
        """Whether something is stored where a copy may still read: no wait of any warp has found it done. threads: of each place, or one."""
        state = self.state
        self._read = [own for own in self._read if not state.operations.is_seen(own[0], READ)]
        for by, addresses, each in self._read:
            if places.max() + size <= addresses.min() or places.min() >= addresses.max() + each:
                continue
            first = np.sort(addresses)
            before = np.searchsorted(first, places + size - 1, "right") - 1
            hit = (before >= 0) & (first[before] + each > places)
            if hit.any():
                place = int(np.argmax(hit))
                does = f"{state.opcode(line)} writes global memory at {int(places[place]):#x}, which {state.opcode(by.line)} may still read"
                thread, said = int(threads[min(place, len(threads) - 1)]), f"{does}: its mbarrier was not waited for"
                state.report("ASYNC_SRC_MODIFIED", block, said, line, by.line, thread, address=int(places[place]))

    def performing(self, block: Block, bound: Bound, effects: Effects, threads: Array, mask: Array) -> None:
        """The next instruction begins."""
        self._maps.clear()

    def instruction(self, block: Block, bound: Bound, access: Access, threads: Array, kind: str) -> None:
        """An access of an instruction of the catalog; that of a tensor map by a copy is kept for the copy."""
        state, line = self.state, self.state.number(block.here)
        if kind == "read" and access.operand in bound.form and bound.form[access.operand].within:
            self._placed(block, bound, access, threads, line)
        if (not self.active and self.party is None) or (access.mask is not None and not access.mask.any()):
            return
        addresses, which = self._within(block, access)
        if not len(addresses):
            return
        who = accessors(access, bound, threads, threads, access.address.size)[which]
        if access.proxy != "tensormap":
            touch = Touch(state, block, kind, -1, addresses, access.size, who, line, block.here)
            if self.party is not None and order_of(touch.opcode)[0]:
                self.party.accessed(touch)
                self.state.clocks.tick(touch.some)
            elif self.party is not None:
                self.party.used(touch, WEAK)
            if self.active:
                self._accessed(touch)
            return
        if not self.active:
            return
        maps = np.unique(addresses)
        for own, segment, words in self._parts(maps, True):
            for address in maps[own].tolist():
                at, _ = words.words(np.array([address - segment.address]), access.size)
                users = who[addresses == address]
                self._used(block, words, at, users, line)
                self._maps.append((words, at, state.some(block, users)))

    @staticmethod
    def _within(block: Block, access: Access) -> tuple[Array, Any]:
        """The addresses of an access that lie in global memory, and which of all they are."""
        if access.space not in ("global", "generic"):
            return np.zeros(0, np.int64), slice(0)
        addresses = block.octets.places(access)[0]
        if access.space == "global":
            return addresses, slice(None)
        which = addresses.astype(np.uint64) < np.uint64(SHARED_WINDOW)  # constants lie in global memory here
        return addresses[which], which

    # --- tensor maps

    def _placed(self, block: Block, bound: Bound, access: Access, threads: Array, line: int) -> None:
        """An operand names a tensor map: it has to lie in a state space that has maps, at a multiple of what they need."""
        if access.space != "generic":
            return
        state, operand = self.state, bound.form[access.operand]
        addresses = block.octets.places(access)[0].astype(np.uint64)
        inside = np.logical_or.reduce([block.spaces.is_space(addresses, space) for space in operand.within])
        fitting = addresses % np.uint64(operand.boundary) == 0
        if (inside & fitting).all():
            return
        place = int(np.argmin(inside & fitting))
        address = int(addresses[place])
        thread = int(accessors(access, bound, threads, threads, len(addresses))[place])
        what = f"{state.opcode(line)} takes the tensor map at {address:#x}"
        rule, valid = "TMA_MISALIGNED", f"multiples of {operand.boundary}"
        if not inside.all():
            spaces = ("shared", "local", "param", "global")
            space = next(own for own in spaces if block.spaces.is_space(addresses, own)[place])
            rule, valid = "TENSORMAP_SPACE", listing(own.partition("::")[0] for own in operand.within)
            what += f", in {space} memory"
        state.report(rule, block, f"{what}; valid: {valid}", line, 0, thread, address=address)

    def ordered(self, block: Block, order: Order, threads: Array) -> None:
        """A fence between the generic and the tensormap proxy, or one half of it."""
        if order.kind != "fence.proxy" or "tensormap" not in order.proxies:
            return
        clocks, warps = self.state.clocks, self.state.some(block, threads)
        if order.sem in ("release", "acq_rel"):
            self._released[warps] = clocks.now[warps]
            clocks.tick(warps)
        if order.sem in ("acquire", "acq_rel"):
            self._acquired[warps] = clocks.known[warps, ORDERED]

    def _used(self, block: Block, words: Words, at: Array, threads: Array, line: int) -> None:
        """Copies take a map: whoever wrote it has released it, and the warp of each copy has acquired it."""
        state, who = self.state, words.who[at]
        written = (who > 0) & (who <= state.clocks.warps)
        if not written.any():
            return
        when, writer = words.when[at][written], who[written]
        warps = state.warps(block, threads)
        for warp in np.unique(warps).tolist():
            late = (self._released[writer - 1] < when) | (self._acquired[warp, writer] < when)
            if late.any():
                other = int(words.what[at][written][int(np.argmax(late))] >> LANE_BITS)
                said = f"{state.opcode(line)} uses a tensor map that {state.opcode(other)} wrote: no fence.proxy.tensormap::generic.release and .acquire are between"
                state.report("TENSORMAP_FENCE", block, said, line, other, int(threads[int(np.argmax(warps == warp))]))

    # --- asynchronous work

    def reached(self, issue: Issue, access: Access, writes: bool) -> None:
        """What the operations of one instruction read or write, each what its own threads do: of this launch, and before those that depend on it."""
        flight, block, made = issue.flight, issue.flight.block, issue.made.values()
        addresses, which = self._within(block, access)
        if not len(addresses):
            return
        mask = touched = None
        if access.mask is not None:
            mask = np.broadcast_to(access.mask, (*access.address.shape, access.size)).reshape(-1, access.size)[which]
            touched = mask.any(1)
        warps: Array | None = None  # of each address, where it matters
        if len(made) > 1:
            who = accessors(access, flight.bound, flight.threads, flight.asked, access.address.size)
            warps = self.state.warps(block, who[which])
        for by in made:
            own: Any = slice(None) if warps is None else np.isin(warps, by.warps)
            if self.active and by.proxy == "async":
                self._work(block, addresses[own], access.size, None if mask is None else mask[own], writes, by)
            if touched is not None:
                own = touched if warps is None else own & touched
            self._launched(block, addresses[own], access.size, writes, by)

    def _launched(self, block: Block, addresses: Array, size: int, writes: bool, by: Operation) -> None:
        """What an operation reads or writes, for other blocks and other launches."""
        kind, threads = "write" if writes else "read", np.full(len(addresses), by.threads[0])
        touch = Touch(self.state, block, kind, -1, addresses, size, threads, by.line, block.here)
        if self.party is not None:
            self.party.used(touch, FAR if _combines(touch.opcode) else WEAK, work=by)
        self.dependents.used(touch)

    def _work(self, block: Block, addresses: Array, size: int, mask: Array | None, writes: bool, by: Operation) -> None:
        """What an operation reads or writes; mask: which of the bytes (addresses, size)."""
        if not writes and by.tells:
            self._read.append((by, addresses, size))
        elif writes and self._read:
            self._sources(block, addresses, size, by.line, by.threads)
        if not writes and not self._memories:
            return
        for own, segment, words in self._parts(addresses, writes):
            places = (addresses[own] - segment.address).astype(np.int64)
            at, _ = words.words(places, size, None if mask is None else mask[own])
            if not len(at):
                continue
            use = Use.of_work(block, words, at, by, "write" if writes else "read", block.rank)
            if writes:
                self._judge(use, (_UNDONE,), self._combining(by.line))
                words.note_landing(at, by)
            else:
                self._judge(use, _OF_COPIES)

    def issued(self, issue: Issue) -> None:
        """Copies that use the maps of their instruction are in flight: these may not be changed."""
        for own in issue.made.values():
            for words, at, warps in self._maps:
                if np.isin(own.warps, warps).any():
                    words.note_fetch(at, own)
