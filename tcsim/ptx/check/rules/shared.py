"""Shared memory and Tensor Memory: what instructions and their work access there, word by word."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tcsim.model.effects import Access, Effects
from tcsim.ptx.check.lanes import several
from tcsim.ptx.check.layout.layout import Layout
from tcsim.ptx.check.operations import READ, WRITTEN
from tcsim.ptx.check.places import EXTENTS, Extent, contested
from tcsim.ptx.check.rules.cluster import Reaches, is_near
from tcsim.ptx.check.rules.conflicts import Conflicts, Use
from tcsim.ptx.check.rules.global_memory import GlobalMemory
from tcsim.ptx.check.rules.tmem import TensorMemory
from tcsim.ptx.check.state import Issue, State, Touch
from tcsim.ptx.check.words import Words
from tcsim.ptx.compile.families import Bound
from tcsim.ptx.machine.arrays import LANES, Array
from tcsim.ptx.machine.block import Block


class Shared:
    """The shared memories and the Tensor Memories of a cluster."""

    def __init__(
        self, state: State, conflicts: Conflicts, beyond: GlobalMemory, reaches: Reaches, tensor: TensorMemory, layout: Layout
    ) -> None:  # fmt: skip
        """beyond: asked of what the same instructions access in global memory. layout: told of what is written."""
        self.state, self.conflicts, self.beyond = state, conflicts, beyond
        self.reaches, self.tensor, self.layout = reaches, tensor, layout

    def accessed(self, touch: Touch) -> None:
        """Loads, stores and atomics."""
        if touch.rank < 0:
            return
        words = self.state.words("shared", touch.rank)
        at, owner = words.words(touch.offsets, touch.size)
        who, warps = touch.threads[owner], touch.warps[owner]
        use = Use(touch.block, words, at, who, touch.line, touch.kind, touch.rank, warps, who % LANES)
        self.conflicts.touch(use)
        if touch.kind == "write" and touch.written is not None and touch.line not in self.state.strong:
            for place in contested(touch.offsets, touch.threads, touch.written).tolist():
                self.conflicts.at_once(use, int(touch.offsets[place]), int(touch.threads[place]))

    # --- instructions of the catalog

    def performed(self, block: Block, bound: Bound, effects: Effects, threads: Array, mask: Array) -> None:
        """Reads, then writes: each is judged before any is noted."""
        if not effects.seen:
            for access in effects.reads:
                if access.proxy == "tensormap" or "barrier" not in bound.form:
                    for use in list(self._uses(block, bound, access, threads, "read")):
                        self.conflicts.note(use)
        uses: list[Use] = []
        for write in effects.now.writes:
            uses += self._uses(block, bound, write.at, threads, "atomic" if write.combine else "write", write.data)
        for use in uses:
            self.conflicts.note(use)

    def _uses(
        self, block: Block, bound: Bound, access: Access, threads: Array, kind: str, data: Array | None = None
    ) -> Iterator[Use]:
        """The parts of an access, judged."""
        state = self.state
        line, base = state.number(block.here), block.rank * state.per_block
        if access.space in ("global", "generic"):
            self.beyond.instruction(block, bound, access, threads, kind)
        space = "tmem" if access.space == "tmem" else "shared"
        for own in EXTENTS.of(block, bound, access, threads, threads, state.words):
            if not len(own.at):
                continue
            if kind != "read" and space == "shared":
                self.layout.origins.forget(own.rank, own.offsets, own.size)
            if own.rank != block.rank:
                self.reaches.reached(block, own.rank, state.warps(block, own.threads), line)
                if "barrier" not in bound.form and is_near(bound.item.opcode):
                    self.reaches.misses(block, own.rank, line, int(own.threads[0]))
            lanes = own.lanes if bound.lanes == 1 or access.thread is not None else several(len(own.at))
            words = state.words(space, own.rank)
            use = Use(block, words, own.at, own.who, line, kind, own.rank, own.units + base, lanes)
            self.conflicts.judge(use)
            if kind == "write" and data is not None:
                self._meeting(use, own, data.reshape(-1, own.size))
            yield use

    def _meeting(self, use: Use, own: Extent, written: Array, together: int = LANES) -> None:
        """Warps, or lanes, that write different things to one place with one instruction. written: by access."""
        if not own.meets or len(written) != len(own.offsets):
            return
        for place in contested(own.at, own.who, written[own.owner], together).tolist():
            self.conflicts.at_once(
                use, int(own.at[place]) * use.words.unit, int(own.who[place]), "lanes" if together == 1 else "warps"
            )

    # --- work in flight

    def issued(self, issue: Issue) -> None:
        """Work reads and writes from now on, at any time until somebody knows that it is done."""
        pending = issue.flight.pending
        both = {id(access) for access in pending.reads} & {id(access) for access in pending.writes}
        reads = [(access, "read") for access in pending.reads]
        writes = [(access, "atomic" if id(access) in both else "write") for access in pending.writes]
        for access, kind in (*reads, *writes):
            if access.space in ("global", "generic"):
                self.beyond.reached(issue, access, kind != "read")
            if access.space in ("shared", "generic", "tmem") and (kind != "read" or id(access) not in both):
                self._work(issue, access, kind)

    def _work(self, issue: Issue, access: Access, kind: str) -> None:
        state, flight, made, line = self.state, issue.flight, issue.made, issue.line
        block, base, writes = flight.block, flight.block.rank * state.per_block, kind != "read"
        space = "tmem" if access.space == "tmem" else "shared"
        for own in EXTENTS.of(block, flight.bound, access, flight.threads, flight.asked, state.words):
            words = state.words(space, own.rank)
            if own.end > words.count * words.unit:
                self.layout.beyond(flight, line)
                continue  # it ends the run when it is fetched
            if not len(own.at):
                continue
            if space == "tmem":
                self.tensor.used(block, own.rank, own.offsets, own.size, line)
            elif own.rank != block.rank:
                for by in made.values():
                    self.reaches.reached(block, own.rank, by.warps, line, by)
            else:
                for by in made.values():
                    self.reaches.copies(own.rank, WRITTEN if writes else READ, by)
            self._landing(issue, own, kind, words)
            if (  # what each warp issues by itself is judged at once; one by one only to say what is wrong
                len(made) > 1
                and flight.bound.lanes == 1
                and space == "shared"
                and all(by.proxy == "generic" for by in made.values())
                and not words.strong.writes
                and not words.conflicts(own.at, own.units + base, writes, kind != "write", own.lanes)
            ):
                words.note_all(own.at, made, own.units + base, writes, own.lanes)
                continue
            for first, by in made.items():
                here, mine = (own.owner, own.at) if len(made) == 1 else own.share(base, first, issue.together)
                if not len(mine):
                    continue
                lanes: Array | None = None
                if by.each and space == "shared":
                    lanes = (own.threads[here] if len(by.threads) > 1 else by.threads) % LANES
                self.conflicts.touch(Use.of_work(block, words, mine, by, kind, own.rank, lanes))

    def _landing(self, issue: Issue, own: Extent, kind: str, words: Words) -> None:
        """Copies or stores of one instruction that go to one place: of several warps, and of lanes by the async proxy, which come in any order."""
        first, *others = issue.made.values()
        lanes = first.proxy == "async"  # warps of that proxy are told apart already
        alone = lanes == bool(others) or (lanes and len(first.threads) == 1)
        if alone or kind != "write" or first.reduces or issue.flight.bound.lanes > 1 or not own.meets:
            return
        count = len(own.offsets)
        use = Use.of_work(issue.flight.block, words, own.at, first, kind, own.rank)
        away = [read.address.reshape(-1).astype(np.int64) for read in issue.flight.pending.reads[:1]] or [
            np.arange(count)
        ]
        if len(away[0]) == count:
            self._meeting(use, own, away[0] - own.offsets, 1 if lanes else LANES)
