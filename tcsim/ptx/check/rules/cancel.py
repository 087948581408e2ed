"""Clusters that have not started: clusterlaunchcontrol.try_cancel writes its answer, through the async proxy, and tells an mbarrier."""

from __future__ import annotations

import numpy as np

from tcsim.isa.clusterlaunchcontrol import encode_response
from tcsim.model.effects import Outcome, Resource
from tcsim.ptx.check.operations import WRITTEN, Operation
from tcsim.ptx.check.places import shares
from tcsim.ptx.check.rules.conflicts import CANCEL, Conflicts, Use
from tcsim.ptx.check.rules.mbarriers import Mbarriers
from tcsim.ptx.check.rules.signals import work_of
from tcsim.ptx.check.state import State
from tcsim.ptx.machine.arrays import Array
from tcsim.ptx.machine.block import Block


class Cancels:
    """Requests for the work of clusters that have not started."""

    def __init__(self, state: State, mbarriers: Mbarriers, conflicts: Conflicts) -> None:
        self.state, self.mbarriers, self.conflicts = state, mbarriers, conflicts
        self._refused: list[Operation] = []  # those that were answered with no

    def granted(self, block: Block, resource: Resource, outcome: Outcome | None, threads: Array) -> None:
        """A request is answered."""
        if resource.kind != "launch" or outcome is None:
            return
        state, line, warps = self.state, self.state.number(block.here), self.state.some(block, threads)[:1]
        none = np.zeros(1, np.int64)
        by = state.operations.issue("", line, block.rank, warps, threads[:1], none, "async")
        by.unit = CANCEL
        known = [own for own in self._refused if state.operations.is_after(own.number, warps, WRITTEN)]
        if known:
            said = f"{state.opcode(line)} is issued again, though {state.opcode(known[0].line)} was answered that nothing is left"
            state.report("CLC_AFTER_NO", block, said, line, known[0].line, int(threads[0]))
        if any(int.from_bytes(write.data.tobytes(), "little") == encode_response(None) for write in outcome.writes):
            self._refused.append(by)
        for signal in outcome.signals:
            self.mbarriers.tells(by, self.mbarriers.keys(block, signal, threads, warps), block)
        for own in (each for write in outcome.writes for each in shares(block, write.at)):
            words = state.words("shared", own.rank)
            places, _ = words.words(own.offsets, own.at.size)
            self.conflicts.touch(Use.of_work(block, words, places, by, "write", own.rank))
        state.following = [work_of(state, warps, [by])]
