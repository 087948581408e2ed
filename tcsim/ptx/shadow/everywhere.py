"""Global memory: what one cluster writes there and reads again through another proxy, and tensor maps that it changes.

Kept only for segments that the cluster writes, and only where the program has work that reaches global memory through the async proxy.
Other clusters, and other launches, have no clocks here: races between them are looked for in `tcsim.ptx.shadow.races`, where asked.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from tcsim.model.effects import Access, Order
from tcsim.ptx.convergence import row_of
from tcsim.ptx.memory import SHARED_WINDOW, Segment
from tcsim.ptx.shadow.clocks import ORDERED
from tcsim.ptx.shadow.naming import Use
from tcsim.ptx.shadow.operations import Operation
from tcsim.ptx.shadow.races import FAR, WEAK, Party, Races
from tcsim.ptx.shadow.words import LANE_BITS, Conflict, Words
from tcsim.ptx.threads import Array

if TYPE_CHECKING:
    from tcsim.ptx.compiled import Compiled
    from tcsim.ptx.performer import Performer
    from tcsim.ptx.shadow.checker import Checker
    from tcsim.ptx.threads import Threads

MOST_BYTES = 1 << 28
"""Of a segment that is followed; larger ones are not."""
_WORD = 4


def reaches_global(program: Compiled) -> bool:
    """Whether a program has work in global memory through the async proxy: bulk and tensor copies."""
    return any(map(_reaches, {item.opcode for lines in program.lines for item in lines if item is not None}))


@cache
def _reaches(opcode: str) -> bool:
    row = row_of(opcode)
    operands = row.forms[0].operands if row is not None else ()
    return any(own.proxy in ("async", "tensormap") and own.space in ("global", "generic") for own in operands)


@cache
def _combines(opcode: str) -> bool:
    """Whether a copy is a reduction: it combines each element with the one that is there, at once."""
    row = row_of(opcode)
    return bool(row is not None and (getattr(row, "op", "") or getattr(row, "reduction", None)))


class Everywhere:
    """The global memory of one cluster."""

    def __init__(self, checker: Checker, races: Races | None) -> None:
        self.checker = checker
        self.party = Party(races, checker) if races is not None else None
        self.active = reaches_global(checker.cluster.blocks[0].program)
        self.memories: dict[int, Words] = {}  # by the address of the segment
        self.maps: list[tuple[Words, Array]] = []  # words of tensor maps that the instruction now uses
        self.released = np.zeros(
            checker.clocks.warps, np.int64
        )  # of each warp: its clock at its last release of tensor maps
        self.acquired = np.zeros(
            (checker.clocks.warps, checker.clocks.warps + 2), np.int64
        )  # what was known at the last acquire

    def _words(self, segment: Segment, made: bool) -> Words | None:
        """The shadow of a segment; made: if there is none yet, it is made. None for one that is not followed."""
        found = self.memories.get(segment.address)
        if found is None and made and segment.size <= MOST_BYTES:
            found = Words(segment.size, _WORD, self.checker.clocks, self.checker.operations, "global")
            self.memories[segment.address] = found
        return found

    def _parts(self, addresses: Array, made: bool) -> Iterator[tuple[Array, Segment, Words]]:
        """Which of some addresses lie in which segment that is followed."""
        memory, left = self.checker.cluster.blocks[0].memory, np.arange(len(addresses))
        while len(left) and (made or self.memories):
            segment = memory.segment(int(addresses[left[0]]))
            if segment is None:
                left = left[1:]
                continue
            inside = (addresses[left] >= segment.address) & (addresses[left] < segment.address + segment.size)
            words = self._words(segment, made)
            if words is not None:
                yield left[inside], segment, words
            left = left[~inside]

    # --- ordinary accesses

    def accessed(self, block: Threads, kind: str, addresses: Array, size: int, threads: Array, line: int) -> None:
        """Loads, stores and atomics of warps."""
        if kind == "read" and not self.memories:
            return
        checker = self.checker
        for own, segment, words in self._parts(addresses, kind != "read"):
            at, owner = words.words((addresses[own] - segment.address).astype(np.int64), size)
            who = threads[own][owner]
            warps = checker.warps(block, who)
            found = words.conflicts(at, warps, kind != "read")
            found = [each for each in found if each.kind in (("landed",) if kind == "read" else ("fetched",))]
            self._report(Use(block, words, at, who, line, kind, block.rank), found)
            if kind != "read":
                words.note_write(at, warps, line)

    def _report(self, use: Use, found: list[Conflict]) -> None:
        if found:
            self.checker.naming.report(use, found)

    def instruction(self, block: Performer, access: Access, threads: Array, kind: str) -> None:
        """An access of an instruction of the catalog; that of a tensor map by a copy is kept for the copy."""
        addresses = self.addresses(block, access)
        if not len(addresses):
            return
        line = self.checker.findings.number(block.here)
        if access.proxy != "tensormap":
            who = np.resize(threads, len(addresses))
            if self.party is not None:
                self.party.accessed(block, kind, addresses, access.size, self.checker.warps(block, who), WEAK)
            if self.active:
                self.accessed(block, kind, addresses, access.size, who, line)
            return
        if not self.active:
            return
        maps = np.unique(addresses)
        for own, segment, words in self._parts(maps, True):
            at, _ = words.words((maps[own] - segment.address).astype(np.int64), access.size)
            self._used(block, words, at, threads, line)
            self.maps.append((words, at))

    @staticmethod
    def addresses(block: Performer, access: Access) -> Array:
        """Those in global memory."""
        if access.space not in ("global", "generic"):
            return np.zeros(0, np.int64)
        addresses = block.places(access)[0]
        if access.space == "generic":
            addresses = addresses[addresses.view(np.uint64) < np.uint64(SHARED_WINDOW)]
        return addresses

    # --- tensor maps

    def ordered(self, order: Order, warps: Array) -> None:
        """A fence between the generic and the tensormap proxy, or one half of it."""
        clocks = self.checker.clocks
        if order.sem in ("release", "acq_rel"):
            self.released[warps] = clocks.now[warps]
            clocks.tick(warps)
        if order.sem in ("acquire", "acq_rel"):
            self.acquired[warps] = clocks.known[warps, ORDERED]

    def _used(self, block: Performer, words: Words, at: Array, threads: Array, line: int) -> None:
        """A copy takes a map: whoever wrote it has released it, and this warp has acquired it."""
        checker, who = self.checker, words.who[at]
        written = (who > 0) & (who <= checker.clocks.warps)
        if not written.any():
            return
        warp = int(checker.some(block, threads)[0])
        when, writer = words.when[at][written], who[written]
        late = (self.released[writer - 1] < when) | (self.acquired[warp, writer] < when)
        if late.any():
            other = int(words.what[at][written][int(np.argmax(late))] >> LANE_BITS)
            opcode = checker.findings.opcode
            said = f"{opcode(line)} uses a tensor map that {opcode(other)} wrote: no fence.proxy.tensormap::generic.release and .acquire are between"
            checker.findings.report("TENSORMAP_FENCE", said, line, other, checker.index(block), int(threads[0]))

    # --- asynchronous work

    def reached(self, block: Performer, access: Access, writes: bool, by: Operation) -> None:
        """What an operation reads or writes in global memory: of this launch, and before those that depend on it."""
        if self.active and by.proxy == "async":
            self.work(block, access, writes, by)
        if self.party is not None:
            addresses, kind = self._inside(block, access), "write" if writes else "read"
            reach = FAR if block.here is not None and _combines(block.here.opcode) else WEAK
            warps = np.full(len(addresses), by.warps[0])
            self.party.accessed(block, kind, addresses, access.size, warps, reach, work=by)
        dependents = self.checker.dependents
        if dependents.active:
            dependents.accessed(block, self.addresses(block, access), access.size, by.warps, by.line, writes)

    def _inside(self, block: Performer, access: Access) -> Array:
        """The addresses of an access of which any byte counts."""
        addresses = self.addresses(block, access)
        if access.mask is None:
            return addresses
        counts = np.broadcast_to(access.mask, (*access.address.shape, access.size)).reshape(-1, access.size).max(1)
        return addresses[counts] if len(counts) == len(addresses) else addresses

    def work(self, block: Performer, access: Access, writes: bool, by: Operation) -> None:
        """What an operation reads or writes."""
        if not writes and not self.memories:
            return
        addresses = self.addresses(block, access)
        for own, segment, words in self._parts(addresses, writes):
            places = (addresses[own] - segment.address).astype(np.int64)
            mask = None
            if access.mask is not None:
                mask = np.broadcast_to(access.mask, (*access.address.shape, access.size)).reshape(-1, access.size)
                mask = mask[own] if len(mask) == len(addresses) else None
            at, _ = words.words(places, access.size, mask)
            if not len(at):
                continue
            if writes:
                words.note_landing(at, by)
            else:
                kinds = ("written", "unfenced", "landed")
                found = [each for each in words.conflicts_of(at, by, False) if each.kind in kinds]
                self._report(Use(block, words, at, by.threads, by.line, "read", block.rank, by), found)

    def issued(self, made: Operation) -> None:
        """A copy that uses the maps of its instruction is in flight: they may not be changed."""
        for words, at in self.maps:
            words.note_fetch(at, made)
