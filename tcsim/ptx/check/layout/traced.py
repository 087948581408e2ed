"""Origins that are followed through registers: of tiles that threads stored, and of operands in registers.

Beside what `tcsim.ptx.check.layout.origins` says of one tile, two things hold of every product:

- A and B go through k together: where k goes one step further in A, it does so in B, whatever a step is in either;
- what is added to one accumulator goes on so from instruction to instruction, and takes no element twice.

An operand is reported only if another way to read it, which differs in one thing, makes all of this hold.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import replace
from itertools import count
from typing import Any

import numpy as np

from tcsim.isa.matrix.semantics import LoadMatrix, StoreMatrix, TransposeMatrix
from tcsim.isa.mma.product import MatrixProduct
from tcsim.model.effects import Access, Effects
from tcsim.ptx.check.layout import fragments, tags
from tcsim.ptx.check.layout.layout import Layout
from tcsim.ptx.check.layout.mends import Trial, fits
from tcsim.ptx.check.layout.origins import Origins, in_columns
from tcsim.ptx.check.layout.sums import bytes_of_step
from tcsim.ptx.check.layout.tensor_memory import NAMES, Scales, Shapes
from tcsim.ptx.check.layout.tiles import FILL, View, paired, pitch_of_pieces, stride
from tcsim.ptx.check.state import Issue, Site, State, Touch
from tcsim.ptx.compile.carried import Move, Transfer
from tcsim.ptx.compile.families import Bound, Rows
from tcsim.ptx.machine.arrays import LANES, Array
from tcsim.ptx.machine.block import Block
from tcsim.ptx.machine.flights import Flight
from tcsim.ptx.machine.threads import RANK_SHIFT

_CHAIN = -2
"""The tag of an accumulator's first register is this, less the number of its sum."""
_MOST_RECENT = 64
"""Accesses of one instruction that are remembered: one for each memory."""


class Traced(Layout):
    """Origins of each two bytes, or of each byte where threads store single ones; of Tensor Memory and registers too."""

    def __init__(self, state: State) -> None:
        self.cells = Origins(state, 2, tensor=True)
        super().__init__(state, self.cells)
        self.shapes = Shapes(self.origins, self.mends.trials)
        self.scales = Scales(self.origins, self.cells, self.mends.trials)
        self._tags: dict[int, tags.Tags] = {}  # by rank
        self._numbers = count()
        self._registers: dict[int, dict[int, View]] = {}  # by flight: A in registers, as it was issued
        self._recent = deque[Touch](maxlen=_MOST_RECENT)  # accesses of the instruction that a block executes now

    def tags_of(self, block: Block) -> tags.Tags:
        """The registers of a block."""
        found = self._tags.get(block.rank)
        if found is None:
            carried = self.state.blocks[block.rank].program.carried
            found = self._tags[block.rank] = tags.Tags(carried, block.threads.count)
        return found

    def _blank(self, rank: int, address: Array) -> bool:
        """Whether nobody has written a tile."""
        words = self.state.words("shared", rank)
        places = address // words.unit
        return not (words.who[places[places < words.count]]).any()

    # --- ordinary instructions

    def accessed(self, touch: Touch) -> None:
        """Remember it until the instruction moves its elements (`moved`)."""
        super().accessed(touch)
        if self._recent and not self._recent[0].is_by(touch.block):
            self._recent.clear()
        self._recent.append(touch)

    def moved(self, block: Block, carry: Any, mask: Array, partners: Array | None = None) -> None:
        """Registers are moved, loaded or stored."""
        own = self.tags_of(block)
        if isinstance(carry, Move):
            threads = np.flatnonzero(mask)
            own.move(carry, threads, threads if partners is None else partners[threads], mask)
            return
        assert isinstance(carry, Transfer)
        recent = [touch for touch in self._recent if touch.is_by(block)]
        self._recent.clear()
        line = self.state.number(block.here)
        if not carry.stores:
            everyone = np.flatnonzero(mask)
            own.clear(carry.rows, everyone)
            own.put(carry.constant, everyone, np.full(1, FILL))
        for touch in recent:
            at = touch.offsets.astype(np.int64) + carry.offset[:, None]
            if carry.stores and touch.rank >= 0:
                found = _known(own.origin[carry.rows[:, None], touch.threads])
                pitch = pitch_of_pieces(found[0], len(found) * carry.size) if (found > 0).all() else 0
                self.origins.note(touch.rank, at.reshape(-1), found.reshape(-1), carry.size, line, pitch)
            elif carry.stores:
                continue
            elif touch.rank < 0:
                own.put(carry.rows, touch.threads, at, line << tags.LINE)
            else:
                at |= touch.rank << 24
                own.put(carry.rows, touch.threads, self.origins.lookup(at), (at + 1) | line << tags.LINE)

    # --- instructions of the catalog

    def signalling(self, block: Block, bound: Bound, effects: Effects, threads: Array, mask: Array) -> None:
        """Matrices are loaded, stored and multiplied; what else comes into registers was computed."""
        model, own = bound.model, self.tags_of(block)
        numbers = {name: rows.numbers for name, rows in bound.sources if isinstance(rows, Rows)}
        line = self.state.number(block.here)
        if isinstance(model, StoreMatrix):
            at = effects.now.writes[0].at
            address = block.octets.places(at)[0] & 0xFFFFFFFF
            for places, origin in self._halves(block, bound, numbers["registers"], threads, address, at.size):
                offsets = (places & 0xFFFFFF).reshape(-1)
                self.origins.note(int(places.flat[0]) >> RANK_SHIFT, offsets, origin.reshape(-1), 2, line, 0)
        if isinstance(model, LoadMatrix):
            self._matrix_loaded(block, bound, effects, threads, line)
        elif isinstance(model, TransposeMatrix) and "a" in numbers:
            self._turned(block, bound, threads, numbers["a"])
        elif isinstance(model, MatrixProduct) and not effects.pending and "a" in numbers:
            self._multiplied(block, bound, threads, numbers, line)
        else:
            for name, rows in bound.results:
                if name in effects.now.registers:
                    own.clear(own.rows(rows), threads)

    def _matrix_loaded(self, block: Block, bound: Bound, effects: Effects, threads: Array, line: int) -> None:
        """ldmatrix: the halves of each lane are two bytes of some row."""
        own, ((_, numbers),) = self.tags_of(block), bound.results
        rows = own.rows(numbers)
        source = tags.loaded(bound.model, bound.form)
        (access,) = effects.reads
        low = None if source is None else source[:, ::2]
        if low is None or source is None or (source[:, 1::2] != low + 1).any():
            own.clear(rows, threads)
            return
        address = (block.octets.places(access)[0] & 0xFFFFFFFF).reshape(len(threads) // LANES, -1)
        which, byte = np.divmod(low - 1, access.size)
        at = (address[:, which] + byte).reshape(len(threads), -1).T
        own.put(rows, threads, self.origins.lookup(at), (at + 1) | line << tags.LINE)

    def _turned(self, block: Block, bound: Bound, threads: Array, numbers: Array) -> None:
        """movmatrix: halves go to other lanes."""
        own, ((_, results),) = self.tags_of(block), bound.results
        source = tags.turned(bound.model, bound.form)
        if source is None:
            own.clear(own.rows(results), threads)
            return
        lane, half = np.divmod((source[:, ::2] - 1) // 2, 2 * len(numbers))
        rows, partners = own.rows(numbers)[half], threads.reshape(-1, LANES)[:, lane]  # (warps, lanes, halves)
        origin, place = own.origin[rows, partners], own.place[rows, partners]
        own.put(own.rows(results), threads, origin.reshape(len(threads), -1).T, place.reshape(len(threads), -1).T)

    def _halves(
        self, block: Block, bound: Bound, numbers: Array, threads: Array, address: Array, size: int
    ) -> Iterator[tuple[Array, Array]]:
        """stmatrix and tcgen05.st: where the halves of the registers of each warp go, and their origins."""
        own, source = self.tags_of(block), tags.stored(bound.model, bound.form, len(numbers))
        if source is None:
            return
        lane, half = np.divmod((source[:, ::2] - 1) // 2, 2 * len(numbers))
        rows = own.rows(numbers)[half]
        for warp, places in enumerate(address.reshape(len(threads) // LANES, -1)):
            origin = own.origin[rows, threads[warp * LANES + lane]]
            yield places[:, None] + np.arange(0, size, 2), _known(origin)

    def _multiplied(self, block: Block, bound: Bound, threads: Array, numbers: dict[str, Array], line: int) -> None:
        """mma.sync: warp by warp."""
        own = self.tags_of(block)
        for warp in threads.reshape(-1, LANES):
            views = {}
            for name in "ab":
                view = self._fragment(block, bound, name, numbers[name], warp, line)
                if view is not None:
                    views[view.name] = view
            before = own.rows(numbers["c"])[:1] if "c" in numbers else np.zeros(1, np.int64)
            number, fresh = self._sum(int(own.origin[before[0], warp[0]]))
            self.judge(Site(block, int(warp[0])), views, number, fresh)
            for _, rows in bound.results:
                place = own.rows(rows)
                own.clear(place, warp)
                own.put(place[:1], warp, np.full(1, number))

    def _sum(self, number: int, adds: bool = True) -> tuple[int, bool]:
        """The sum that an accumulator has, by the tag of its first register, and whether it begins."""
        fresh = number > _CHAIN or not adds
        return (_CHAIN - next(self._numbers) if fresh else number), fresh

    def _fragment(
        self, block: Block, bound: Bound, name: str, numbers: Array, threads: Array, line: int
    ) -> View | None:
        operand = bound.model.operands[name]
        sparse = name == "a" and operand.shape[1] != bound.model.row.shape[2]
        own = self.tags_of(block)
        return fragments.view_of(name.upper(), own, numbers, operand.layout, threads, self.origins, line, sparse)

    # --- work in flight

    def issued(self, issue: Issue) -> None:
        """Work begins: A in registers is what it is now."""
        super().issued(issue)
        flight, line = issue.flight, issue.line
        numbers = {name: rows.numbers for name, rows in flight.bound.sources if isinstance(rows, Rows)}
        if flight.kind == "tcgen05":
            self.shapes.issued(flight, line)
        if flight.kind == "tcgen05.ld":
            self.shapes.loaded(flight)
        if flight.kind == "tcgen05.st":
            (access,) = flight.pending.writes
            given = flight.block, flight.bound, numbers["registers"], flight.threads, access.address, access.size
            for places, origin in self._halves(*given):
                self.cells.note(flight.block.rank, places, origin, 2, line)
        if flight.bound.model.moves and "value" in numbers:
            own = self.tags_of(flight.block)
            self.copies.held(flight, _known(own.origin[own.rows(numbers["value"])[:, None], flight.threads]))
        operand = flight.bound.model.operands.get("a")
        if flight.kind == "wgmma" and "a" in numbers and operand is not None:
            for place, threads in enumerate(flight.threads.reshape(-1, 4 * LANES)):
                view = self._fragment(flight.block, flight.bound, "a", numbers["a"], threads, line)
                if view is not None:
                    self._registers.setdefault(id(flight), {})[place] = view

    def landing(self, flight: Flight) -> None:
        """Work has read, and is about to write."""
        super().landing(flight)
        own = self.tags_of(flight.block)
        if flight.kind != "wgmma":
            for _, numbers in flight.bound.results:
                own.clear(own.rows(numbers), flight.threads)

    def views(self, flight: Flight) -> dict[int, dict[str, View]]:
        """Those in Tensor Memory and in registers too."""
        views = super().views(flight)
        cells: dict[str, list[Access]] = {}
        for access in flight.pending.reads:
            if access.cells is not None:
                cells.setdefault(access.operand, []).append(access)
        line = self.lines.get(id(flight), 0)
        found = in_columns(self.cells, cells["a"], flight.block.rank, line) if "a" in cells else None
        if found is not None:
            views.setdefault(0, {})["A"] = found
        if any(name in cells for name in NAMES):
            self.scales.judge(flight, cells, views.get(0, {}), line)
        for place, view in self._registers.pop(id(flight), {}).items():
            views.setdefault(place, {})["A"] = view
        return views

    def _accumulator(self, flight: Flight, place: int) -> tuple[Any, bool]:
        if flight.kind != "wgmma":
            writes = flight.pending.writes
            place = int(writes[0].address.flat[0]) if writes else 0
            own = [read for read in flight.pending.reads if writes and read.address is writes[0].address]
            return (flight.block.rank, place), not own
        tagged, thread = self.tags_of(flight.block), flight.threads[4 * LANES * place : 4 * LANES * (place + 1)]
        rows = tagged.rows(dict(flight.bound.results)["d"])[:1]
        adds = flight.pending.adds
        number, fresh = self._sum(int(tagged.origin[rows[0], thread[0]]), adds is None or bool(np.ravel(adds)[place]))
        tagged.put(rows, thread, np.full(1, number))
        return number, fresh

    # --- judging

    def judge(self, site: Site, views: dict[str, View], key: Any, fresh: bool) -> None:
        """Look at the operands of one product."""
        under = self.mends.as_mended(site, views)
        found = self._pair(site, views, None if fresh else key, under)
        if found is None:
            self.sums.forget(key)
            return
        self.sums.added(site, *found, key, fresh, under)
        if not under:
            trials = self.mends.trials
            trials.right |= {(own.line, own.name) for own in found if trials.of(own) is None}

    def _pair(
        self, site: Site, views: dict[str, View], key: Any, under: list[Trial | None]
    ) -> tuple[View, View] | None:
        """A and B, as they would be with mends for what is wrong; None if one is not known, or has no mend."""
        a, b = views.get("A"), views.get("B")
        bad = [own for own in views.values() if not self.mends.is_matrix(own)]
        if bad and a is not None and b is not None and self.mends.exchanged(site, a, b):
            return None
        for own in bad:
            other = None if len(bad) > 1 else b if own is a else a
            mended = self._mended(site, own, other, key, under)
            if mended is None:
                return None
            views[own.name] = mended
        a, b = views.get("A"), views.get("B")
        if a is None or b is None:
            return None
        if paired(a, b):
            return a, b
        if under:
            self.mends.trials.refute(under)
            return None
        order = ((a, b), (b, a)) if stride(a) is None or stride(b) is not None else ((b, a), (a, b))
        found = (self._mended(site, own, other, None, under) for own, other in order)
        mended = next((own for own in found if own is not None), None)
        if mended is None:
            return None
        return (mended, b) if mended.name == "A" else (a, mended)

    def _mended(self, site: Site, view: View, other: View | None, key: Any, under: list[Trial | None]) -> View | None:
        """An operand that is wrong, as it would be with a mend; key: of the sum that it is added to."""
        mends, trials = self.mends, self.mends.trials
        trial = trials.of(view)
        if trial is not None:
            trials.refute([trial])
            return None
        right = mends.right_with(view, other)
        known = any(fits(view, own) and right(own.found) for own in trials.known(view))
        left = None if known or key is None else self._left(site, view, key)
        if left is None:
            left = mends.wrong(site, view, right, other)
            under.append(trials.of(view))
        return left

    def _left(self, site: Site, view: View, key: Any) -> View | None:
        """An operand that is not a matrix would be one where its sum goes on: it has left its tile."""
        expected = self.sums.expected(view, key)
        if expected is None:
            return None
        side, begin, target = expected
        mends, first = self.mends, int(target.flat[0])
        where = self.origins.nearest(first, view.begin)
        mend = mends.shifted(view, target) if where is None or where != view.begin else None
        if mend is None:
            return None
        self.sums.confirm(key)
        should = mends.begin_with(mend, view, first)
        bytes = bytes_of_step(view, side.view, begin, should)
        said = f"{view.name} goes on {f'by {bytes}' if bytes else 'too far'}, and leaves its tile: each product takes {len(view.k) * view.unit} of k"
        mends.behind(site, view, mend, said, side.view.line)
        return replace(view, found=target, should=should)


def _known(origin: Array) -> Array:
    """Origins without the numbers of sums."""
    return np.where(origin >= FILL, origin, 0)
