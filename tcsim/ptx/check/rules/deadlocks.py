"""Deadlocks: what those who wait for ever are waiting for, in words, and the rule that was broken where one is known."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np

from tcsim.memory import mbarrier_bits
from tcsim.ptx.check.operations import Object
from tcsim.ptx.check.rules.mbarriers import Mbarriers
from tcsim.ptx.check.state import Site, State
from tcsim.ptx.machine.arrays import LANES, Array
from tcsim.ptx.machine.block import Block
from tcsim.ptx.machine.faults import Stop
from tcsim.ptx.machine.fibers import Fiber, Wait

_STUCK = {"registers": "SETMAXNREG_OVERSUBSCRIBED", "tmem": "TMEM_DEADLOCK"}
"""By what threads wait for: a rule of its own."""
_APART = {LANES: "WARP_SYNC_MASK", 4 * LANES: "WGMMA_WARPGROUP_DIVERGED"}
"""By how many lanes have to come together."""
Named = tuple[str, str, dict[str, Any]]
"""A rule, what broke it, and the numbers that a mend needs."""


class Deadlocks:
    """Why a cluster cannot go on."""

    def __init__(self, state: State, mbarriers: Mbarriers) -> None:
        self.state, self.mbarriers = state, mbarriers

    # --- in words

    def stuck(self, block: Block, waits: Wait) -> str:
        """What else there is to say of threads that wait; empty for nothing."""
        if waits.kind == "mbarrier":
            found = self.state.mbarriers.get(waits.address)
            if found is None:
                return "; no mbarrier.init made an object there"
            now, last = found.now, found.last
            touched = now.expected or now.delivered or now.arrivals or last.arrivals or found.flying
            return f"; {self._object(found)}" if touched else ""
        if waits.kind == "resource":
            return self._resource(block, waits)
        return ""

    def _object(self, found: Object) -> str:
        """The phase under way: bytes and arrivals, with the instructions that they came from."""
        parts, now = [], found.now
        if now.expected or now.delivered:
            parts.append(f"{now.expected.total():,} bytes expected{self._by(now.expected)}")
            parts.append(f"{now.delivered.total():,} delivered{self._by(now.delivered)}")
        flying = {own.line: 0 for own in found.flying}
        if flying:
            parts.append(f"in flight: {', '.join(self.state.opcode(line) for line in flying)}")
        parts.append(f"{now.arrivals.total()} arrived{self._by(now.arrivals)}")
        if found.last.arrivals:
            parts.append(f"in the phase before {found.last.arrivals.total()}{self._by(found.last.arrivals)}")
        return f"phase {found.ended}: {', '.join(parts)}"

    def _by(self, counts: Mapping[int, int]) -> str:
        found = [(counts[line], self.state.opcode(line)) for line in sorted(counts)]
        if len(found) == 1:
            return f" by {found[0][1]}"
        return f" ({', '.join(f'{count:,} by {opcode}' for count, opcode in found)})" if found else ""

    def _resource(self, block: Block, waits: Wait) -> str:
        if waits.resource == "registers":
            if not block.resources.pools:
                return f"; each of the {block.threads.warps} warps still has the {block.program.registers_at_launch} of its launch, and no setmaxnreg.dec gave any back"
            owned = Counter(sorted(block.resources.pools[0].owned))
            held = ", ".join(f"{warps} warps have {count}" for count, warps in owned.items())
            return f"; {held}, and free are {block.resources.pools[0].free} for the threads of one warp"
        taken = self.state.columns.get(block.rank)
        if waits.resource == "tmem" and taken is not None:
            lines = [line for line in np.unique(taken).tolist() if line]
            held = ", ".join(f"{int((taken == line).sum())} by {self.state.opcode(line)}" for line in lines) or "none"
            return f"; columns taken: {held}, not given back by tcgen05.dealloc; free: {int((taken == 0).sum())}"
        return ""

    # --- by name

    def ended(self, stop: Stop | None) -> None:
        """The cluster has ended; a deadlock is named for each wait whose reason is known."""
        if stop is None or stop.name not in ("DEADLOCK", "MBARRIER_FAULT"):
            return
        state = self.state
        for line, (own, phase) in self.mbarriers.repeated.items():
            said = f"{state.opcode(line)} waits for phase {phase} of {own}, which its warp has already seen complete"
            state.findings.report("MBAR_PARITY", said, line, address=own.key)
        if stop.name != "DEADLOCK":
            return
        for block in self.state.blocks:
            for fiber in block.fibers.waiting:
                if fiber.waits is not None:
                    found = self._named(block, fiber, fiber.waits)
                    if found is not None:
                        self._report(block, fiber, *found)

    def _report(self, block: Block, fiber: Fiber, rule: str, said: str, detail: Mapping[str, Any]) -> None:
        thread = int(np.argmax(fiber.mask))
        waits = fiber.waits.item if fiber.waits is not None else None
        line = waits or next((own for own in block.program.lines[fiber.block] if own is not None), None)
        message = f"warp {thread // LANES} waits forever: {said}"
        self.state.report(rule, block, message, self.state.number(line), 0, thread, **detail)

    def _named(self, block: Block, fiber: Fiber, waits: Wait) -> Named | None:
        if waits.kind == "resource":
            rule = _STUCK.get(waits.resource)
            return (rule, f"{waits.text}, which nobody gives back{self._resource(block, waits)}", {}) if rule else None
        if waits.kind in ("lanes", "warp", "collective"):
            return _APART[waits.count or LANES], "the other lanes that have to execute the instruction never come", {}
        if waits.kind == "bar":
            return self._barrier(block, waits)
        if waits.kind == "mbarrier":
            return self._mbarrier(block, waits.address, self.state.some(block, np.nonzero(fiber.mask)[0]))
        return None

    @staticmethod
    def _barrier(block: Block, waits: Wait) -> Named | None:
        """Of a named barrier: too few threads are left for its count, or the others are elsewhere."""
        here = [own for own in block.fibers.waiting_for("bar") if own.waits and own.waits.number == waits.number]
        arrived = block.barriers.arrived.get(waits.number, np.zeros(1)).sum() + sum(own.mask.sum() for own in here)
        detail = {"barrier": waits.number, "count": waits.count, "arrived": int(arrived)}
        left = int(block.threads.alive.reshape(-1, LANES).any(1).sum()) * LANES
        if waits.count > left:
            return "BARRIER_COUNT", f"barrier {waits.number} is for {waits.count} threads, and {left} are left", detail
        others = {own.waits.number for own in block.fibers.waiting if own.waits is not None and own.waits.kind == "bar"}
        if len(others) > 1:
            said = f"some threads are at barrier {waits.number}, others at another one"
            return "BARRIER_ROLE_DIVERGENCE", said, detail
        return None

    def _mbarrier(self, block: Block, key: int, warps: Array) -> Named | None:
        found = self.state.mbarriers.get(key)
        if found is None:
            return "MBAR_USED_BEFORE_INIT", f"no mbarrier.init made an object at {key:#x}", {}
        last = max((own.ended for warp, own in found.passes.items() if warp in warps), default=0)
        if found.ended >= last + 2:
            said = f"phase {last} of {found} is complete, and so is phase {last + 1}: the parity is that of the phase under way"
            return "MBAR_PHASE_ALIAS", said, {}
        if found.ended == last + 1:
            said = f"it waits for phase {found.ended} of {found}, and has not seen phase {last} complete"
            return "MBAR_PARITY", said, {}
        fields = self._fields(key)
        pending, left, state = fields["pending"], fields.get("tx_count", 0), self._object(found)
        detail = self._facts(found, fields["expected"])
        if pending and (found.now.arrivals or found.now.delivered):
            return "MBAR_ARRIVE_MISSING", f"{found} lacks {pending} arrival{'s' * (pending > 1)}; {state}", detail
        if pending or not left:
            return None
        self.mbarriers.boxes(found, found.ended, found.now.expected, Site(self.state.blocks[key >> 24 & 0xFF]))
        if left > 0:
            return "MBAR_TX_OVER", f"{found} lacks {left} bytes; {state}", detail
        return "MBAR_TX_UNDER", f"{found} got {-left} bytes too many; {state}", detail

    def _facts(self, found: Object, count: int) -> dict[str, Any]:
        """What an object waits for: the lines that gave objects that count, and of what expects bytes (line, bytes, arrivals)."""
        now, items = found.now, self.state.findings
        alike = (key for key in self.state.mbarriers if self._fields(key)["expected"] == count)
        init = {item.line for key in alike if (item := items.instruction(self.state.mbarriers[key].line))}
        expected = [(items.instruction(own), bytes, now.arrivals[own]) for own, bytes in now.expected.items()]
        return {
            "init": sorted(init), "count": count, "arrived": now.arrivals.total(),
            "expected": [[item.line, *counts] for item, *counts in expected if item], "delivered": now.delivered.total(),
        }  # fmt: skip

    def _fields(self, key: int) -> dict[str, int]:
        """The counts of an object."""
        block = self.state.blocks[key >> 24 & 0xFF]
        return mbarrier_bits.counts(block.mbarriers.word(key), block.arch)
