"""Conflicts as hazards: which rule two accesses break that nothing orders, and the sentence that says so."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

import numpy as np

from tcsim.ptx.check.clocks import EXECUTED, ORDERED
from tcsim.ptx.check.flags import order_of
from tcsim.ptx.check.lanes import READS, SEVERAL, WRITES
from tcsim.ptx.check.operations import Operation
from tcsim.ptx.check.rules.mbarriers import Mbarriers
from tcsim.ptx.check.rules.unused import is_needed
from tcsim.ptx.check.state import State
from tcsim.ptx.check.words import LANES, Conflict, Lack, Prior, Words
from tcsim.ptx.machine.arrays import Array
from tcsim.ptx.machine.block import Block
from tcsim.ptx.machine.tensor_memory import COLUMNS

SPACES = {"shared": "shared memory", "tmem": "Tensor Memory", "global": "global memory"}
CANCEL = "clusterlaunchcontrol"
"""The family whose answers are written as by a copy."""


@dataclass(frozen=True)
class Name:
    """A rule, and what is missing, in words."""

    rule: str
    missing: str
    line: int = 0  # of another instruction than the access, where that is what is wrong


_FENCE = "no fence.proxy.async is between"
_LANES = {
    Lack.LANES: "no bar.warp.sync or barrier is between the lanes",
    Lack.HEARD: "another lane waited for what orders them, and no bar.warp.sync or barrier is behind the wait",
    Lack.TOLD: "another lane arrived for the one that did it, and no bar.warp.sync or barrier is before the arrival",
}
"""What lanes of one warp lack, by how the two accesses are ordered apart from that."""
_LANES_OF_WORK = "another lane waited for it, and no bar.warp.sync or barrier is between"
_PLAIN = {
    Lack.WARPS: Name("WGMMA_WARPS_APART", "no barrier is between that and the other warps of the warpgroup"),
    Lack.WAIT: Name("TMEM_LD_NO_WAIT", "its registers were needed, but no tcgen05.wait::ld is between"),
    Lack.PIPELINE: Name("TCGEN05_NOT_PIPELINED", "no wait is between, and the two are no pipelined pair"),
}
"""What needs no look at the two accesses."""
_GLOBAL = {
    (Prior.WRITTEN, Lack.FENCE): Name("PROXY_FENCE_GLOBAL", _FENCE),
    (Prior.WRITTEN, Lack.ORDER): Name("GMEM_RACE", "nothing orders them"),
    (Prior.LANDED, Lack.ORDER): Name("TMA_STORE_NOT_VISIBLE", "no cp.async.bulk.wait_group, without .read, is between"),
    (Prior.FETCHED, Lack.ORDER): Name("TENSORMAP_MODIFIED", "it is a tensor map in use until the copy is done"),
}
"""In global memory."""
_TENSOR_FENCE = Name(
    "TCGEN05_FENCE_MISSING", "no tcgen05.fence::before_thread_sync and ::after_thread_sync are around what orders them"
)
_EXIT = Name("TCGEN05_ORDERED_BY_EXIT", "its warp waited for it and ended, and only that released the barrier between")
_OTHER_BLOCK = Name("CLUSTER_SMEM_REUSED", "nothing says that the other block is done with it")
_WAITED = {
    "tcgen05.ld": Name("TMEM_WAIT_LD_MISSING", "no tcgen05.wait::ld is between"),
    "tcgen05.st": Name("TMEM_WAIT_ST_MISSING", "no tcgen05.wait::st is between"),
}
"""By kinds of work that is complete once its warp has waited for it, whoever else knows: of the first read, of the second what it writes."""
_UNORDERED = Name("TCGEN05_UNORDERED", "no barrier follows its wait, or a relaxed one without tcgen05.fence")
_RACES = {(False, Prior.WRITTEN): "SMEM_RACE_RAW", (True, Prior.WRITTEN): "SMEM_RACE_WAW", (True, Prior.READ): "SMEM_RACE_WAR"}  # fmt: skip
"""By whether the access now writes, and what came before."""
_COMMIT = Name("TCGEN05_COMMIT_MISSING", "no mbarrier that tcgen05.commit arrived at was waited for")
_NOT_WAITED = "its mbarrier was not waited for"


@dataclass(eq=False, slots=True)
class Use:
    """Accesses now, elementwise."""

    block: Block
    words: Words
    at: Array  # words
    threads: Array  # of each; of an operation the one that issued it
    line: int
    kind: str  # "read", "write" or "atomic"
    rank: int  # of the block whose memory it is
    warps: Array  # of each; of an operation those that issued it
    lanes: Array | None = None
    by: Operation | None = None

    @classmethod
    def of_one(
        cls, block: Block, words: Words, at: Array, warp: int, thread: int, line: int, rank: int, lane: int | None = None
    ) -> Use:  # fmt: skip
        """Words that one thread writes."""
        whose = thread % 32 if lane is None else lane
        warps, threads, lanes = (np.full(len(at), own) for own in (warp, thread, whose))
        return cls(block, words, at, threads, line, "write", rank, warps, lanes)

    @classmethod
    def of_work(
        cls, block: Block, words: Words, at: Array, by: Operation, kind: str, rank: int, lanes: Array | None = None
    ) -> Use:
        """Words that an operation reads or writes."""
        return cls(block, words, at, by.threads, by.line, kind, rank, by.warps, lanes, by)

    @property
    def writes(self) -> bool:
        """Whether it changes anything."""
        return self.kind != "read"

    def thread(self, place: int) -> int:
        """The thread of one access."""
        return int(self.threads[0 if self.by is not None else place])

    def who(self, place: int) -> Array:
        """The warp of one access, or those of the operation."""
        return self.warps if self.by is not None else self.warps[place : place + 1]


class Conflicts:
    """The conflicts of one cluster."""

    def __init__(self, state: State, mbarriers: Mbarriers) -> None:
        self.state, self.mbarriers = state, mbarriers

    # --- accesses

    def touch(self, use: Use) -> None:
        """Words are accessed: what is wrong with that, and that they were."""
        self.judge(use)
        self.note(use)

    def judge(self, use: Use, of: Collection[tuple[Prior, Lack]] | None = None) -> None:
        """What is wrong with accesses; of: only these kinds of conflict."""
        by = use.warps if use.by is None else use.by
        found = use.words.conflicts(use.at, by, use.kind != "read", use.kind != "write", use.lanes)
        if use.line not in self.state.strong and use.words.strong.have(use.at):
            found = [*self._behind_strong(use, found)]
        if of is not None:
            found = [own for own in found if (own.prior, own.lack) in of]
        if found:
            self.report(use, found)

    def _behind_strong(self, use: Use, found: list[Conflict]) -> Iterator[Conflict]:
        """The conflicts of a weak access: of writes that are not weak all count, not only the last, but none that was seen."""
        strong = use.words.strong
        known = self.state.clocks.known[use.warps[:1] if use.by is not None else use.warps, ORDERED, 1:-1]
        behind = Conflict(Prior.WRITTEN, Lack.ORDER, *strong.before(use.at, known, use.by is None))
        for own in (*found, behind):
            ordered = own is not behind and own.lack is Lack.ORDER and not own.prior.work
            kept = own.without(strong.writes) if ordered else own
            if len(kept.places):
                yield kept

    def note(self, use: Use) -> None:
        """That words were accessed, or are from now on by an operation."""
        words, lanes = use.words, self.state.lanes
        if use.by is not None and use.writes:
            words.note_landing(use.at, use.by, SEVERAL if use.lanes is None else use.lanes)
        elif use.by is not None:
            words.note_fetch(use.at, use.by, SEVERAL if use.lanes is None else use.lanes)
        else:
            assert use.lanes is not None
            if use.line in self.state.strong:
                words.hide(use.at, use.warps, use.line, use.kind, self.state.strong)
                words.strong.note(use.at, use.warps, use.line, use.kind, self._sees(use))
            if use.kind != "write":
                lanes.touched(use.warps, use.lanes, READS)
                words.note_read(use.at, use.warps, use.line, use.lanes)
            if use.kind != "read":
                lanes.touched(use.warps, use.lanes, WRITES)
                words.note_write(use.at, use.warps, use.line, use.lanes)

    def _sees(self, use: Use) -> bool:
        """Whether something depends on what an access that is not weak has read."""
        item = self.state.findings.instruction(use.line)
        reads = item is not None and use.kind != "write" and order_of(item.opcode)[1]
        return reads and item is not None and is_needed(use.block, item)

    def at_once(self, use: Use, where: int, thread: int, who: str = "warps") -> None:
        """Warps, or lanes, store other numbers to one place with one instruction."""
        message = f"{self._does(use, where)}, where other {who} store other numbers with the same instruction: no barrier orders them"
        self.state.report("SMEM_RACE_WAW", use.block, message, use.line, use.line, thread, address=where)

    # --- in words

    def _does(self, use: Use, where: int) -> str:
        """What an instruction does at a place, in words."""
        state, space = self.state, use.words.space
        variable = state.blocks[use.rank].program.shared_name(where) if space == "shared" else ""
        does = f"{state.opcode(use.line)} {'writes' if use.writes else 'reads'} {shown(space, where)}"
        return f"{does}{f' ({variable})' if variable else ''}"

    def report(self, use: Use, found: list[Conflict]) -> None:
        """Name conflicts: one hazard for each earlier instruction."""
        for conflict in found:
            for earlier in np.unique(conflict.earlier).tolist():
                first = int(np.argmax(conflict.earlier == earlier))
                place, warp = int(conflict.places[first]), int(conflict.warps[first])
                named = self._named(use, conflict, earlier, warp, place)
                if named is None:
                    continue
                name, said, other = named
                line, against = (name.line, 0) if name.line else (use.line, other)
                where = int(use.at[place]) * use.words.unit
                message = f"{self._does(use, where)}, {said}: {name.missing}"
                self.state.report(name.rule, use.block, message, line, against, use.thread(place), address=where)

    def _named(self, use: Use, conflict: Conflict, earlier: int, warp: int, place: int) -> tuple[Name, str, int] | None:
        """The rule, what was there before in words, and its instruction; None where it is not one."""
        state, prior, plain = self.state, conflict.prior, _plain(use, conflict)
        if prior is Prior.NOBODY:
            return _uninitialised(use), "which nobody has written", 0
        if prior.work:
            operation = state.operations.all[earlier]
            said = f"{prior.did} by {state.opcode(operation.line)}{'' if plain else ', which may not be done'}"
            return plain or self._against(use, prior, operation, place), said, operation.line
        if use.by is None and earlier in state.strong and use.line in state.strong:
            near = warp // state.per_block == use.block.rank
            if conflict.lack is Lack.LANES and self._polls(earlier) and self._polls(use.line):
                return (
                    Name("WARP_SYNC_VOLATILE", _LANES[Lack.LANES]),
                    f"{prior.did} by {state.opcode(earlier)}",
                    earlier,
                )
            if near or (state.strong[earlier] and state.strong[use.line]):
                return None
        said = f"{prior.did} by {state.opcode(earlier)}"
        return plain or self._race(use, prior, earlier, warp, place), said, earlier

    def _polls(self, line: int) -> bool:
        """Whether an instruction is a load or store that is volatile or relaxed, and orders nothing."""
        item = self.state.findings.instruction(line)
        stem, *words = item.opcode.split(".") if item is not None else ("",)
        return stem in ("ld", "st") and not {"volatile", "relaxed"}.isdisjoint(words)

    def _race(self, use: Use, prior: Prior, earlier: int, warp: int, place: int) -> Name:
        """Of two accesses by instructions of warps."""
        state, now, by = self.state, use.who(place), use.by
        if by is not None and by.unit == CANCEL:
            return Name("CLC_RESPONSE_REUSED", "nothing orders them")
        if by is not None and use.writes and warp // state.per_block == use.rank != by.rank:
            return _OTHER_BLOCK
        time = use.words.time(use.at[place], warp, prior)
        if (state.reduced[now, 1 + warp] >= time).any():
            return Name("RED_NOT_ACQUIRE", "only a red comes between, which gives no value and acquires nothing")
        relaxed = state.relaxed.get(warp) or state.relaxed.get(int(now[0]))
        if relaxed and (state.clocks.known[now, EXECUTED, 1 + warp] >= time).any():
            return Name(relaxed, "a relaxed arrival or wait orders when they are executed, not memory")
        before = np.array([warp])
        stale = self.mbarriers.stale(now, before) or self.mbarriers.stale(before, now)
        if stale is not None:
            return Name(*stale)
        if earlier in state.allocations:
            return Name("TMEM_ADDR_NOT_PUBLISHED", "no barrier is between")
        return _race(use.writes, prior)

    def _against(self, use: Use, prior: Prior, earlier: Operation, place: int) -> Name:
        """Of an access to what an operation reads or writes."""
        state, now, stale = self.state, use.who(place), self.mbarriers.stale
        reason = self.mbarriers.reason(earlier, now) or stale(now, earlier.warps) or stale(earlier.warps, now)
        if reason is not None:
            return Name(*reason)
        fetched, part = prior is Prior.FETCHED, prior.part
        if earlier.kind in _WAITED and state.ended_before(earlier, part, now):
            return _EXIT
        if fetched and use.by is not None and use.rank == earlier.rank != use.by.rank and use.words.space == "shared":
            return _OTHER_BLOCK
        # Where who issued the operation told this one something afterwards, a wait that came later was too late.
        waited = state.operations.is_seen(earlier, part) and not state.operations.given_back(earlier, now)
        if earlier.kind in _WAITED and (earlier.kind == "tcgen05.ld") == fetched:
            return _UNORDERED if waited else _WAITED[earlier.kind]
        if earlier.kind == "tcgen05":
            return _COMMIT
        committed = state.committed(earlier)
        return _fetching(earlier, committed, waited) if fetched else _landing(earlier, committed, waited, use)


def _plain(use: Use, conflict: Conflict) -> Name | None:
    """What needs no look at the two accesses."""
    prior, lack = conflict.prior, conflict.lack
    if use.words.space == "global":
        return _GLOBAL.get((prior, lack))
    if lack in LANES:
        rule = "WARP_SYNC_COLLECTIVE" if conflict.joined else "WARP_SYNC_MISSING"
        return Name(rule, _LANES_OF_WORK if prior.work else _LANES[lack])
    if lack is not Lack.FENCE:
        return _PLAIN.get(lack)
    if prior.work and use.words.space == "tmem":
        return _TENSOR_FENCE
    if prior.work:
        return Name("PROXY_FENCE_CP_ASYNC", "no fence.proxy.async is between its wait and this")
    return Name("PROXY_FENCE_WAR" if use.writes or prior is Prior.READ else "PROXY_FENCE_MISSING", _FENCE)


def _uninitialised(use: Use) -> Name:
    """A read of what nobody wrote."""
    loads = use.by is not None and use.by.kind == "tcgen05.ld"
    tensor = "TMEM_LD_UNINITIALISED" if loads else "TMEM_UNINITIALISED"
    return Name(tensor if use.words.space == "tmem" else "SMEM_UNINITIALISED", "what is there is not defined")


def _race(writes: bool, prior: Prior) -> Name:
    return Name(_RACES[writes, prior], "no barrier orders them")


def _landing(earlier: Operation, committed: bool, waited: bool, use: Use) -> Name:
    """Of an access to what an operation writes."""
    if earlier.kind == "mbarrier":
        return Name("MBAR_OVERWRITTEN", "the object is in use until mbarrier.inval")
    if earlier.kind != "cp.async":
        return Name("ASYNC_DST_WRITTEN" if use.writes else "ASYNC_DST_READ", _NOT_WAITED)
    if waited:
        return _race(use.writes, Prior.WRITTEN)
    if use.by is not None and use.by.kind == "cp.async":
        return Name("CP_ASYNC_WAW", "no cp.async.wait_group is between")
    if not committed:
        missing = "no cp.async.commit_group follows the copy, so that no wait_group waits for it"
        return Name("CP_ASYNC_UNCOMMITTED", missing)
    return Name("CP_ASYNC_WAIT_MISSING", "no wait covers its group")


def _fetching(earlier: Operation, committed: bool, waited: bool) -> Name:
    """Of a write to what an operation reads."""
    if earlier.kind == "wgmma":
        if waited:
            return Name("WGMMA_WAIT_OTHER_WARPGROUP", "only the warpgroup that issued it waited; no barrier is between")
        if earlier.passed_over and committed:
            return Name("WGMMA_WAIT_DEPTH", "wgmma.wait_group leaves its group pending")
        return Name("WGMMA_NO_COMMIT_WAIT_BEFORE_REUSE", "no wgmma.commit_group and wgmma.wait_group are between")
    if earlier.kind != "bulk":
        return Name("ASYNC_SRC_MODIFIED", _NOT_WAITED)
    if waited:
        return Name("SMEM_RACE_WAR", "only the thread that issued it waited; no barrier is between")
    if not committed and earlier.passed_over:
        missing = "no cp.async.bulk.commit_group follows, so that no wait_group waits for it"
        return Name("BULK_GROUP_UNCOMMITTED", missing)
    if earlier.elsewhere and not earlier.passed_over:
        return Name("BULK_WAIT_WRONG_THREAD", "a thread waited for its own groups, not the one that issued it")
    return Name("TMA_STORE_SRC_REUSED", "no cp.async.bulk.wait_group that covers its group is between")


def shown(space: str, where: int) -> str:
    """A place of a memory.

    >>> shown("tmem", 4 * 512 + 8), shown("shared", 1024)
    ('lane 1, column 2 of Tensor Memory', 'shared memory at 0x400')
    """
    if space == "tmem":
        return f"lane {where // 4 // COLUMNS}, column {where // 4 % COLUMNS} of {SPACES[space]}"
    return f"{SPACES[space]} at {where:#x}"
