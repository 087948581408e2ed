"""Conflicts as hazards: which rule two accesses break that nothing orders, and the sentence that says so."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tcsim.ptx.check.clocks import EXECUTED
from tcsim.ptx.check.operations import READ, WRITTEN, Operation
from tcsim.ptx.check.rules import conflicts
from tcsim.ptx.check.rules.conflicts import Name
from tcsim.ptx.check.words import Conflict, Words
from tcsim.ptx.machine.arrays import Array
from tcsim.ptx.machine.tensor_memory import COLUMNS

if TYPE_CHECKING:
    from tcsim.ptx.check.checker import Checker
    from tcsim.ptx.machine.view import ThreadsView

SPACES = {"shared": "shared memory", "tmem": "Tensor Memory", "global": "global memory"}

CANCEL = "clusterlaunchcontrol"
"""The family whose answers are written as by a copy."""


@dataclass(frozen=True)
class Use:
    """Accesses now, whose conflicts are to be named."""

    block: ThreadsView
    words: Words
    at: Array  # words
    threads: Array  # of each; of an operation the one that issued it
    line: int
    kind: str  # "read", "write" or "atomic"
    rank: int  # of the block whose memory it is
    by: Operation | None = None

    @property
    def writes(self) -> bool:
        """Whether it changes anything."""
        return self.kind != "read"

    def thread(self, place: int) -> int:
        """The thread of one access."""
        return int(self.threads[0] if self.by is not None else self.threads[place])


class Naming:
    """What conflicts in one cluster are called."""

    def __init__(self, checker: Checker) -> None:
        self.checker = checker

    def report(self, use: Use, found: list[Conflict]) -> None:
        """Name conflicts: one hazard for each earlier instruction."""
        findings = self.checker.findings
        for conflict in found:
            for earlier in np.unique(conflict.earlier).tolist():
                first = int(np.argmax(conflict.earlier == earlier))
                place, warp = int(conflict.places[first]), int(conflict.warps[first])
                named = self._named(use, conflict.kind, earlier, warp, place)
                if named is None:
                    continue
                name, said, other = named
                line, against = (name.line, 0) if name.line else (use.line, other)
                where = int(use.at[place]) * use.words.unit
                does = "writes" if use.writes else "reads"
                name_there = self._variable(use, where)
                message = f"{findings.opcode(use.line)} {does} {shown(use.words.space, where)}{name_there}, {said}: {name.missing}"
                index, thread = self.checker.index(use.block), use.thread(place)
                findings.report(name.rule, message, line, against, index, thread, address=where)

    def _variable(self, use: Use, where: int) -> str:
        """The variable of shared memory that lies there, in parentheses."""
        name = self.checker.cluster.blocks[use.rank].program.shared_name(where) if use.words.space == "shared" else ""
        return f" ({name})" if name else ""

    def _named(self, use: Use, kind: str, earlier: int, warp: int, place: int) -> tuple[Name, str, int] | None:
        """The rule, what was there before in words, and its instruction; None where it is not one."""
        checker, findings = self.checker, self.checker.findings
        known = conflicts.GLOBAL if use.words.space == "global" else conflicts.PLAIN
        plain = known.get(kind)
        if kind in conflicts.BY_INSTRUCTION:
            said = f"{'read' if kind.endswith('read') else 'written'} by {findings.opcode(earlier)}"
            if use.by is None and earlier in checker.strong and use.line in checker.strong:
                near = warp // checker.per_block == use.block.rank
                if near or (checker.strong[earlier] and checker.strong[use.line]):
                    return None
            if plain is not None:
                return plain, said, earlier
            return self._race(use, kind, earlier, warp, place), said, earlier
        if kind == "nobody":
            return conflicts.uninitialised(use.words.space, use.by), "which nobody has written", 0
        operation = checker.operations.all[earlier]
        did = "read" if kind.endswith(("fetched", "depended", " read")) else "written"
        kind = kind.removesuffix(" read")
        plain = known.get(kind)
        said = f"{did} by {findings.opcode(operation.line)}" + ("" if plain else ", which may not be done")
        if kind == "unfenced operation" and use.words.space == "tmem":
            plain = conflicts.TENSOR_FENCE
        return plain or self._against(use, kind, operation, place), said, operation.line

    def _race(self, use: Use, kind: str, earlier: int, warp: int, place: int) -> Name:
        """Of two accesses by instructions of warps."""
        checker = self.checker
        now = use.by.warps if use.by is not None else checker.warps(use.block, use.threads[place : place + 1])
        if use.by is not None and use.by.unit == CANCEL:
            return Name("CLC_RESPONSE_REUSED", "nothing orders them")
        if use.by is not None and use.writes and warp // checker.per_block == use.rank != use.by.rank:
            return Name("CLUSTER_SMEM_REUSED", "nothing says that the other block is done with it")
        if (checker.reduced[now, 1 + warp] >= use.words.time(use.at[place], warp, kind)).any():
            return Name("RED_NOT_ACQUIRE", "only a red comes between, which gives no value and acquires nothing")
        relaxed = checker.relaxed.get(warp) or checker.relaxed.get(int(now[0]))
        if (
            relaxed
            and (checker.clocks.known[now, EXECUTED, 1 + warp] >= use.words.time(use.at[place], warp, kind)).any()
        ):
            return Name(relaxed, "a relaxed arrival or wait orders when they are executed, not memory")
        earlier_warp = np.array([warp])
        stale = checker.objects.stale(now, earlier_warp) or checker.objects.stale(earlier_warp, now)
        if stale is not None:
            return Name(*stale)
        return conflicts.race(use.writes, kind, checker.blocks.is_allocation(earlier))

    def _against(self, use: Use, kind: str, earlier: Operation, place: int) -> Name:
        """Of an access to what an operation reads or writes."""
        checker = self.checker
        now = use.by.warps if use.by is not None else checker.warps(use.block, use.threads[place : place + 1])
        objects = checker.objects
        reason = objects.reason(earlier, now) or objects.stale(now, earlier.warps) or objects.stale(earlier.warps, now)
        if reason is not None:
            return Name(*reason)
        part = READ if kind == "fetched" else WRITTEN
        if earlier.kind in conflicts.WAITED and checker.meetings.ended_before(earlier, part, now):
            return conflicts.EXIT
        committed, given_back = checker.committed(earlier), checker.operations.given_back(earlier, now)
        if kind == "fetched":
            if use.by is not None and use.rank == earlier.rank != use.by.rank and use.words.space == "shared":
                return Name("CLUSTER_SMEM_REUSED", "nothing says that the other block is done with it")
            return conflicts.against_fetch(earlier, checker.operations, committed, given_back)
        return conflicts.against_landing(earlier, checker.operations, committed, given_back, use.by, use.writes)


def shown(space: str, where: int) -> str:
    """A place of a memory.

    >>> shown("tmem", 4 * 512 + 8), shown("shared", 1024)
    ('lane 1, column 2 of Tensor Memory', 'shared memory at 0x400')
    """
    if space == "tmem":
        return f"lane {where // 4 // COLUMNS}, column {where // 4 % COLUMNS} of {SPACES[space]}"
    return f"{SPACES[space]} at {where:#x}"
