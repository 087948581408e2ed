"""Whether the operands of products are the matrices that they were: where copies put each element, and as what it is read.

A tile that a descriptor reads is reported only if both hold:

- its elements are not rows and columns of anything: the way from one element of a row to the next is not the same in each row, an
  element is there twice, or rows of a tensor are read from different columns; rows and columns in any order, gathered or strided, are right;
- with another value of one field (or of two that belong together) it would be a matrix: each row further by one step, its elements side by side.

So it needs no expected result. What threads stored has no origin here, and is not judged; `tcsim.ptx.check.layout.traced` follows it too.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tcsim.ptx.check.layout import descriptors
from tcsim.ptx.check.layout.descriptors import UNIT
from tcsim.ptx.check.layout.mends import Mender
from tcsim.ptx.check.layout.origins import Copies, Origins
from tcsim.ptx.check.layout.sums import Sums
from tcsim.ptx.check.layout.tiles import View, paired
from tcsim.ptx.check.state import Issue, Site, State, Touch
from tcsim.ptx.machine.arrays import Array
from tcsim.ptx.machine.faults import Stop
from tcsim.ptx.machine.flights import Flight


class Layout:
    """The products of one cluster, of operands that copies put into shared memory."""

    def __init__(self, state: State, cells: Origins | None = None) -> None:
        """cells: the origins in Tensor Memory, where registers are followed."""
        traced = cells is not None
        self.state, self.origins = state, Origins(state, min(state.unit, 2) if traced else UNIT)
        self.copies, self.mends = Copies(self.origins, cells), Mender(self.origins, traced)
        self.sums = Sums(self.mends)
        self.lines: dict[int, int] = {}  # by flight: the instruction that issued it
        self._flying: dict[int, Flight] = {}  # what has not read yet

    # --- what happens

    def accessed(self, touch: Touch) -> None:
        """Threads store: that has no origin."""
        if touch.kind != "read" and touch.rank >= 0:
            self.origins.forget(touch.rank, touch.offsets, touch.size)

    def issued(self, issue: Issue) -> None:
        """Work begins."""
        flight = issue.flight
        if id(flight) not in self.lines:  # else it has been looked at (`beyond`)
            self.lines[id(flight)], self._flying[id(flight)] = issue.line, flight

    def beyond(self, flight: Flight, line: int) -> None:
        """Work is to access what lies outside memory: its operands are looked at before that ends the run."""
        for own in list(self._flying.values()):  # what comes before has read too
            self._read(self._flying.pop(id(own)))
        if id(flight) not in self.lines:
            self.lines[id(flight)] = line
            self._read(flight)

    def landing(self, flight: Flight) -> None:
        """Work has read, and is about to write."""
        if self._flying.pop(id(flight), None) is not None:
            self._read(flight)
        self.copies.landing(flight, self.lines.pop(id(flight), 0))

    def ended(self, stop: Stop | None) -> None:
        """The cluster has ended."""
        self.sums.over(stop is not None)
        self.mends.trials.settle(self.state.findings)

    # --- what is read

    def views(self, flight: Flight) -> dict[int, dict[str, View]]:
        """The operands that some work reads through descriptors: by number of the warpgroup or thread, and name."""
        rank, line, unit = flight.block.rank, self.lines.get(id(flight), 0), self.origins.unit
        at, found = self.origins.at.get(rank), dict[int, dict[str, View]]()
        if at is None:
            return found
        depth = max((own.tile.k for own in flight.pending.reads if own.tile is not None), default=0)
        for access in flight.pending.reads:
            name, tile = access.operand.upper(), access.tile
            if tile is None or not name:
                continue
            addresses = tile.address.reshape(-1, tile.address.shape[-1])
            named = np.asarray(tile.descriptor, np.uint64).reshape(-1).tolist()
            for place, (address, descriptor) in enumerate(zip(addresses, named, strict=True)):
                there = descriptors.origins_of(at, unit, address, tile)
                if there is None and (tile.size > UNIT or not self._blank(rank, address)):
                    continue
                there = descriptors.unknown(tile, unit) if there is None else there
                first = min(int(address[0]) // unit, len(at) - 1)
                pitch, by = int(self.origins.pitch[rank][first]), int(self.origins.by[rank][first])
                source = descriptors.Through(at, unit, address, tile, descriptor, there, pitch)
                sparse = name == "A" and 2 * tile.k == depth
                found.setdefault(place, {})[name] = source.view(name, line, by, sparse)
        return found

    def _blank(self, rank: int, address: Array) -> bool:
        """Whether nobody has written a tile; looked at only where registers are followed, and all that is written is known."""
        return False

    def _read(self, flight: Flight) -> None:
        """Look at the operands that work has read."""
        for place, views in self.views(flight).items():
            self.judge(Site(flight.block, int(flight.threads[0])), views, *self._accumulator(flight, place))

    def _accumulator(self, flight: Flight, place: int) -> tuple[Any, bool]:
        """Which sum work adds to, and whether it begins it."""
        results = dict(flight.bound.results).get("d")
        writes = [own for own in flight.pending.writes if own.space == "tmem"]
        register = int(results[0]) if results is not None and len(results) else -1
        key = flight.block.rank, place, register, int(writes[0].address.flat[0]) if writes else -1
        adds = flight.pending.adds
        return key, adds is not None and not bool(np.ravel(adds)[min(place, np.size(adds) - 1)])

    def judge(self, site: Site, views: dict[str, View], key: Any, fresh: bool) -> None:
        """Look at the operands of one product, each by itself; whether they go together only says whether a mend does."""
        mends, trials = self.mends, self.mends.trials
        under = mends.as_mended(site, views)
        for name, own in list(views.items()):
            if mends.is_matrix(own):
                continue
            trial = trials.of(own)
            trials.refute([trial])
            mended = mends.wrong(site, own, mends.whole(own)) if trial is None else None
            if mended is None:
                self.sums.forget(key)
                return
            views[name] = mended
            under.append(trials.of(own))
        if not under:
            trials.right |= {(own.line, own.name) for own in views.values()}
        if "A" in views and "B" in views:
            if not paired(views["A"], views["B"]):
                trials.refute(under)
            self.sums.added(site, views["A"], views["B"], key, fresh, under)
