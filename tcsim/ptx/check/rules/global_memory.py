"""Global memory: what one cluster writes there and reads again through another proxy, and tensor maps that it changes.

Kept only for segments that the cluster writes, and only where the program has work that reaches global memory through the async proxy.
Other clusters, and other launches, have no clocks here: races between them are looked for in `tcsim.ptx.check.rules.races`, where asked.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from tcsim.core.errors import listing
from tcsim.model.effects import Access, Order
from tcsim.ptx.check.clocks import ORDERED
from tcsim.ptx.check.operations import Operation
from tcsim.ptx.check.places import accessors
from tcsim.ptx.check.rules.naming import Use
from tcsim.ptx.check.rules.races import FAR, WEAK, Party, Races
from tcsim.ptx.check.words import LANE_BITS, Conflict, Words
from tcsim.ptx.compile.convergence import row_of
from tcsim.ptx.compile.windows import SHARED_WINDOW
from tcsim.ptx.machine.arrays import Array
from tcsim.ptx.machine.memory import Segment

if TYPE_CHECKING:
    from tcsim.ptx.check.checker import Checker
    from tcsim.ptx.compile.compiled import Compiled
    from tcsim.ptx.compile.families import Bound
    from tcsim.ptx.machine.view import EffectsView, ThreadsView

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
        self.maps: list[
            tuple[Words, Array, Array]
        ] = []  # tensor maps that the instruction now uses: their words, and the warps
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

    def accessed(self, block: ThreadsView, kind: str, addresses: Array, size: int, threads: Array, line: int) -> None:
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

    def instruction(self, block: EffectsView, bound: Bound, access: Access, threads: Array, kind: str) -> None:
        """An access of an instruction of the catalog; that of a tensor map by a copy is kept for the copy."""
        line = self.checker.findings.number(block.here)
        if kind == "read" and access.operand in bound.form and bound.form[access.operand].within:
            self._placed(block, bound, access, threads, line)
        if (not self.active and self.party is None) or (access.mask is not None and not access.mask.any()):
            return
        addresses, which = self._within(block, access)
        if not len(addresses):
            return
        who = accessors(access, bound, threads, threads, access.address.size)[which]
        if access.proxy != "tensormap":
            if self.party is not None:
                self.party.accessed(block, kind, addresses, access.size, self.checker.warps(block, who), WEAK)
            if self.active:
                self.accessed(block, kind, addresses, access.size, who, line)
            return
        if not self.active:
            return
        maps = np.unique(addresses)
        for own, segment, words in self._parts(maps, True):
            for address in maps[own].tolist():
                at, _ = words.words(np.array([address - segment.address]), access.size)
                users = who[addresses == address]
                self._used(block, words, at, users, line)
                self.maps.append((words, at, self.checker.some(block, users)))

    @staticmethod
    def _within(block: EffectsView, access: Access) -> tuple[Array, Any]:
        """The addresses of an access that lie in global memory, and which of all they are."""
        if access.space not in ("global", "generic"):
            return np.zeros(0, np.int64), slice(0)
        addresses = block.places(access)[0]
        if access.space == "global":
            return addresses, slice(None)
        which = addresses.astype(np.uint64) < np.uint64(SHARED_WINDOW)  # constants lie in global memory here
        return addresses[which], which

    # --- tensor maps

    def _placed(self, block: EffectsView, bound: Bound, access: Access, threads: Array, line: int) -> None:
        """An operand names a tensor map: it has to lie in a state space that has maps, at a multiple of what they need."""
        if access.space != "generic":
            return
        checker, operand = self.checker, bound.form[access.operand]
        addresses = block.places(access)[0].astype(np.uint64)
        inside = np.logical_or.reduce([block.is_space(addresses, space) for space in operand.within])
        fitting = addresses % np.uint64(operand.boundary) == 0
        if (inside & fitting).all():
            return
        place = int(np.argmin(inside & fitting))
        who = accessors(access, bound, threads, threads, len(addresses))
        what = f"{checker.findings.opcode(line)} takes the tensor map at {int(addresses[place]):#x}"
        rule, valid = "TMA_MISALIGNED", f"multiples of {operand.boundary}"
        if not inside.all():
            space = next(own for own in ("shared", "local", "param", "global") if block.is_space(addresses, own)[place])
            rule, valid = "TENSORMAP_SPACE", listing(own.partition("::")[0] for own in operand.within)
            what += f", in {space} memory"
        checker.findings.report(
            rule,
            f"{what}; valid: {valid}",
            line,
            0,
            checker.index(block),
            int(who[place]),
            address=int(addresses[place]),
        )

    def ordered(self, order: Order, warps: Array) -> None:
        """A fence between the generic and the tensormap proxy, or one half of it."""
        clocks = self.checker.clocks
        if order.sem in ("release", "acq_rel"):
            self.released[warps] = clocks.now[warps]
            clocks.tick(warps)
        if order.sem in ("acquire", "acq_rel"):
            self.acquired[warps] = clocks.known[warps, ORDERED]

    def _used(self, block: EffectsView, words: Words, at: Array, threads: Array, line: int) -> None:
        """Copies take a map: whoever wrote it has released it, and the warp of each copy has acquired it."""
        checker, who = self.checker, words.who[at]
        written = (who > 0) & (who <= checker.clocks.warps)
        if not written.any():
            return
        when, writer = words.when[at][written], who[written]
        warps = checker.warps(block, threads)
        for warp in np.unique(warps).tolist():
            late = (self.released[writer - 1] < when) | (self.acquired[warp, writer] < when)
            if late.any():
                other = int(words.what[at][written][int(np.argmax(late))] >> LANE_BITS)
                opcode = checker.findings.opcode
                said = f"{opcode(line)} uses a tensor map that {opcode(other)} wrote: no fence.proxy.tensormap::generic.release and .acquire are between"
                thread = int(threads[int(np.argmax(warps == warp))])
                checker.findings.report("TENSORMAP_FENCE", said, line, other, checker.index(block), thread)

    # --- asynchronous work

    def reached(
        self, block: EffectsView, bound: Bound, access: Access, threads: Array, asked: Array, writes: bool, made: Collection[Operation]
    ) -> None:  # fmt: skip
        """What operations of one instruction read or write in global memory, each what its own threads do: of this launch, and before those that depend on it."""
        addresses, which = self._within(block, access)
        if not len(addresses):
            return
        mask = touched = None
        if access.mask is not None:
            mask = np.broadcast_to(access.mask, (*access.address.shape, access.size)).reshape(-1, access.size)[which]
            touched = mask.any(1)
        warps: Array | None = None  # of each address, where it matters
        if len(made) > 1:
            warps = self.checker.warps(block, accessors(access, bound, threads, asked, access.address.size)[which])
        for by in made:
            own: Any = slice(None) if warps is None else np.isin(warps, by.warps)
            if self.active and by.proxy == "async":
                self._work(block, addresses[own], access.size, None if mask is None else mask[own], writes, by)
            if touched is not None:
                own = touched if warps is None else own & touched
            self._launched(block, addresses[own], access.size, writes, by)

    def _launched(self, block: EffectsView, addresses: Array, size: int, writes: bool, by: Operation) -> None:
        """What an operation reads or writes, for other blocks and other launches."""
        warps = np.full(len(addresses), by.warps[0])
        if self.party is not None:
            reach = FAR if block.here is not None and _combines(block.here.opcode) else WEAK
            self.party.accessed(block, "write" if writes else "read", addresses, size, warps, reach, work=by)
        dependents = self.checker.dependents
        if dependents.active:
            dependents.accessed(block, addresses, size, warps, by.line, writes)

    def _work(
        self, block: EffectsView, addresses: Array, size: int, mask: Array | None, writes: bool, by: Operation
    ) -> None:
        """What an operation reads or writes; mask: which of the bytes (addresses, size)."""
        if not writes and not self.memories:
            return
        for own, segment, words in self._parts(addresses, writes):
            places = (addresses[own] - segment.address).astype(np.int64)
            at, _ = words.words(places, size, None if mask is None else mask[own])
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
        for words, at, warps in self.maps:
            if np.isin(made.warps, warps).any():
                words.note_fetch(at, made)
