"""Origins that are followed through registers: of tiles that threads stored, and of operands in registers.

Beside what `tcsim.ptx.check.layout.origins` says of one tile, two things hold of every product:

- A and B go through k together: where k goes one step further in A, it does so in B, whatever a step is in either;
- what is added to one accumulator goes on so from instruction to instruction, and takes no element twice.

An operand is told wrong only if there is another way to read it, that differs in one thing, with which all of this holds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import count, islice
from typing import TYPE_CHECKING, Any

import numpy as np

from tcsim.isa.matrix.semantics import LoadMatrix, StoreMatrix, TransposeMatrix
from tcsim.isa.mma.product import MatrixProduct
from tcsim.model.effects import Access, Effects
from tcsim.ptx.check.layout import fragments, scales, tags
from tcsim.ptx.check.layout.copied import Copied, known
from tcsim.ptx.check.layout.origins import fits, written_as
from tcsim.ptx.check.layout.shapes import Shapes
from tcsim.ptx.check.layout.sums import Sums, bytes_of_step
from tcsim.ptx.check.layout.tiles import (
    FILL,
    Mend,
    View,
    common_step,
    is_matrix,
    paired,
    pitch_of_pieces,
    step_of,
    stride,
)
from tcsim.ptx.check.layout.trials import Trial
from tcsim.ptx.compile.carried import Move, Transfer
from tcsim.ptx.compile.families import Rows
from tcsim.ptx.machine.arrays import LANES, Array

if TYPE_CHECKING:
    from tcsim.ptx.check.checker import Checker
    from tcsim.ptx.compile.families import Bound
    from tcsim.ptx.machine.flights import Flight
    from tcsim.ptx.machine.view import EffectsView, ThreadsView

_CHAIN = -2
"""The tag of an accumulator's first register is this, less the number of its sum."""


_MOST_MENDS = 12
"""Ways to read an operand right of which one is chosen."""


class Traced(Copied):
    """Origins of each two bytes, or of each byte where threads store single ones."""

    most_tries = 8

    def __init__(self, checker: Checker) -> None:
        super().__init__(checker)
        self.shapes = Shapes(self)
        self.sums = Sums(self)
        self._numbers = count()
        self._registers: dict[int, dict[int, View]] = {}  # by flight: A in registers, as it was issued
        self._right: dict[tuple[int, str], bytes] = {}  # the last operand of an instruction that was a matrix

    def where(self, origins: Array, rank: int) -> Array | None:
        """Where elements lie in the shared memory of a block: the last place of each; None if one is nowhere."""
        at = self.at.get(rank)
        if at is None or not (origins > 0).all():
            return None
        order = np.argsort(at, kind="stable")
        place = np.searchsorted(at[order], origins, side="right") - 1
        found = order[place]
        return found * self.unit | rank << 24 if (at[found] == origins).all() else None

    def row_pitch(self, address: Array, size: int) -> int:
        """The bytes from one row to the next, of pieces of rows too."""
        return super().row_pitch(address, size) or pitch_of_pieces(address, size)

    def _blank(self, rank: int, address: Array) -> bool:
        """Whether nobody has written a tile."""
        words = self.checker.words("shared", rank)
        places = address // words.unit
        return not (words.who[places[places < words.count]]).any()

    # --- ordinary instructions

    def moved(self, block: ThreadsView, carry: Any, mask: Array, partners: Array | None = None) -> None:
        """Registers are moved, loaded or stored."""
        own = self._tags(block)
        if isinstance(carry, Move):
            threads = np.flatnonzero(mask)
            own.move(carry, threads, threads if partners is None else partners[threads], mask)
            return
        assert isinstance(carry, Transfer)
        recent, block.recent = block.recent or [], None
        line = self.checker.findings.number(block.here)
        if carry.stores:
            for rank, offsets, threads in recent:
                if rank >= 0:
                    self._stored_by(own.origin[carry.rows[:, None], threads], rank, offsets, carry, line)
            return
        everyone = np.flatnonzero(mask)
        own.put(carry.rows, everyone, np.zeros(1, np.int64))
        own.put(carry.constant, everyone, np.full(1, FILL))
        for rank, offsets, threads in recent:
            at = offsets.astype(np.int64) + carry.offset[:, None]
            if rank < 0:
                own.put(carry.rows, threads, at, line << tags.LINE)
            else:
                at |= rank << 24
                own.put(carry.rows, threads, self.lookup(at), (at + 1) | line << tags.LINE)

    def _stored_by(self, origin: Array, rank: int, offsets: Array, carry: Transfer, line: int) -> None:
        places = (offsets.astype(np.int64) + carry.offset[:, None]).reshape(-1)
        own = known(origin)
        pitch = pitch_of_pieces(own[0], len(own) * carry.size) if (own > 0).all() else 0
        self.note(rank, places, own.reshape(-1), carry.size, line, pitch)

    # --- instructions of the catalog

    def performed(self, block: EffectsView, bound: Bound, effects: Effects, threads: Array, mask: Array) -> None:
        """Matrices are loaded, stored and multiplied; what else comes into registers was computed."""
        model, own = bound.model, self._tags(block)
        numbers = {name: rows.numbers for name, rows in bound.sources if isinstance(rows, Rows)}
        line = self.checker.findings.number(block.here)
        if isinstance(model, StoreMatrix):
            self._matrix_stored(block, bound, effects, threads, numbers["registers"], line)
        if isinstance(model, LoadMatrix):
            self._matrix_loaded(block, bound, effects, threads, line)
        elif isinstance(model, TransposeMatrix) and "a" in numbers:
            self._turned(block, bound, threads, numbers["a"])
        elif isinstance(model, MatrixProduct) and not effects.pending and "a" in numbers:
            self._multiplied(block, bound, threads, numbers, line)
        else:
            for name, rows in bound.results:
                if name in effects.now.registers:
                    own.put(own.rows(rows), threads, np.zeros(1, np.int64))

    def _matrix_loaded(self, block: EffectsView, bound: Bound, effects: Effects, threads: Array, line: int) -> None:
        """ldmatrix: the halves of each lane are two bytes of some row."""
        own, ((_, numbers),) = self._tags(block), bound.results
        rows = own.rows(numbers)
        source = tags.loaded(bound.model, bound.form)
        (access,) = effects.reads
        low = None if source is None else source[:, ::2]
        if low is None or source is None or (source[:, 1::2] != low + 1).any():
            own.put(rows, threads, np.zeros(1, np.int64))
            return
        address = (block.places(access)[0] & 0xFFFFFFFF).reshape(len(threads) // LANES, -1)
        which, byte = np.divmod(low - 1, access.size)
        at = (address[:, which] + byte).reshape(len(threads), -1).T
        own.put(rows, threads, self.lookup(at), (at + 1) | line << tags.LINE)

    def _turned(self, block: EffectsView, bound: Bound, threads: Array, numbers: Array) -> None:
        """movmatrix: halves go to other lanes."""
        own, ((_, results),) = self._tags(block), bound.results
        source = tags.turned(bound.model, bound.form)
        if source is None:
            own.put(own.rows(results), threads, np.zeros(1, np.int64))
            return
        lane, half = np.divmod((source[:, ::2] - 1) // 2, 2 * len(numbers))
        rows, partners = own.rows(numbers)[half], threads.reshape(-1, LANES)[:, lane]  # (warps, lanes, halves)
        origin, place = own.origin[rows, partners], own.place[rows, partners]
        own.put(own.rows(results), threads, origin.reshape(len(threads), -1).T, place.reshape(len(threads), -1).T)

    def _matrix_stored(
        self, block: EffectsView, bound: Bound, effects: Effects, threads: Array, numbers: Array, line: int
    ) -> None:
        """stmatrix: rows of halves from registers."""
        own, source = self._tags(block), tags.stored(bound.model, bound.form, len(numbers))
        (write,) = effects.now.writes
        if source is None:
            return
        lane, half = np.divmod((source[:, ::2] - 1) // 2, 2 * len(numbers))
        rows = own.rows(numbers)[half]
        address = block.places(write.at)[0] & 0xFFFFFFFF
        for warp, places in enumerate(address.reshape(len(threads) // LANES, -1)):
            at = places[:, None] + np.arange(0, write.at.size, 2)
            origin = known(own.origin[rows, threads[warp * LANES + lane]])
            self.note(int(at.flat[0]) >> 24, (at & 0xFFFFFF).reshape(-1), origin.reshape(-1), 2, line, 0)

    def _multiplied(
        self, block: EffectsView, bound: Bound, threads: Array, numbers: dict[str, Array], line: int
    ) -> None:
        """mma.sync: warp by warp."""
        own = self._tags(block)
        for warp in threads.reshape(-1, LANES):
            views = {}
            for name in "ab":
                view = self._fragment(block, bound, name, numbers[name], warp, line)
                if view is not None:
                    views[view.name] = view
            before = own.rows(numbers["c"])[:1] if "c" in numbers else np.zeros(1, np.int64)
            number = int(own.origin[before[0], warp[0]])
            fresh = number > _CHAIN
            number = _CHAIN - next(self._numbers) if fresh else number
            self.judge(block, int(warp[0]), views, number, fresh)
            for _, rows in bound.results:
                place = own.rows(rows)
                own.put(place, warp, np.zeros(1, np.int64))
                own.put(place[:1], warp, np.full(1, number))

    def _fragment(
        self, block: ThreadsView, bound: Bound, name: str, numbers: Array, threads: Array, line: int
    ) -> View | None:
        operand = bound.model.operands[name]
        sparse = name == "a" and operand.shape[1] != bound.model.row.shape[2]
        return fragments.view_of(
            name.upper(), self._tags(block), numbers, operand.layout, threads, self.lookup, self.where, line, sparse
        )

    # --- work in flight

    def issued(self, flight: Flight, line: int) -> None:
        """Work begins: A in registers is what it is now."""
        super().issued(flight, line)
        numbers = {name: rows.numbers for name, rows in flight.bound.sources if isinstance(rows, Rows)}
        if flight.kind == "tcgen05":
            self.shapes.issued(flight, line)
        if flight.kind == "tcgen05.ld":
            self.shapes.loaded(flight)
        if flight.kind == "tcgen05.st":
            self._cells_stored(flight, numbers["registers"], line)
        if flight.bound.model.moves and "value" in numbers:
            self.held(flight, numbers["value"])
        operand = flight.bound.model.operands.get("a")
        if flight.kind == "wgmma" and "a" in numbers and operand is not None:
            for place, threads in enumerate(flight.threads.reshape(-1, 4 * LANES)):
                view = self._fragment(flight.block, flight.bound, "a", numbers["a"], threads, line)
                if view is not None:
                    self._registers.setdefault(id(flight), {})[place] = view

    def _cells_stored(self, flight: Flight, numbers: Array, line: int) -> None:
        """tcgen05.st: halves of registers to cells."""
        source = tags.stored(flight.bound.model, flight.bound.form, len(numbers))
        (access,) = flight.pending.writes
        if source is None:
            return
        lane, half = np.divmod((source[:, ::2] - 1) // 2, 2 * len(numbers))
        own = self._tags(flight.block)
        rows = own.rows(numbers)[half]
        for warp, places in enumerate(access.address.reshape(len(flight.threads) // LANES, -1)):
            origin = known(own.origin[rows, flight.threads[warp * LANES + lane]])
            self.cells.note(flight.block.rank, places[:, None] + np.arange(0, access.size, 2), origin, line)

    def landing(self, flight: Flight) -> None:
        """Work is about to write."""
        line = self.lines.get(id(flight), 0)
        super().landing(flight)
        if any(own.space == "tmem" for own in flight.pending.writes):
            self.carried(flight, line)
        own = self._tags(flight.block)
        if flight.kind != "wgmma":
            for _, numbers in flight.bound.results:
                own.put(own.rows(numbers), flight.threads, np.zeros(1, np.int64))

    def _read(self, flight: Flight) -> None:
        views = self.views(flight)
        cells: dict[str, list[Access]] = {}
        for access in flight.pending.reads:
            if access.cells is not None:
                cells.setdefault(access.operand, []).append(access)
        line = self.lines.get(id(flight), 0)
        for name, accesses in cells.items() if cells else ():
            found = self.cells.view(name.upper(), accesses, flight.block.rank, line) if name == "a" else None
            if found is not None:
                views.setdefault(0, {})[found.name] = found
        if any(name in cells for name in scales.NAMES):
            scales.judge(self, flight, cells, views.get(0, {}), line)
        for place, view in self._registers.pop(id(flight), {}).items():
            views.setdefault(place, {})["A"] = view
        for place, own in views.items():
            key, fresh = self._accumulator(flight, place)
            self.judge(flight.block, int(flight.threads[0]), own, key, fresh)

    def _accumulator(self, flight: Flight, place: int) -> tuple[Any, bool]:
        """Which sum work adds to, and whether it begins it."""
        if flight.kind != "wgmma":
            writes = flight.pending.writes
            place = int(writes[0].address.flat[0]) if writes else 0
            own = [read for read in flight.pending.reads if writes and read.address is writes[0].address]
            return (flight.block.rank, place), not own
        tagged, thread = self._tags(flight.block), flight.threads[4 * LANES * place : 4 * LANES * (place + 1)]
        rows = tagged.rows(dict(flight.bound.results)["d"])[:1]
        number = int(tagged.origin[rows[0], thread[0]])
        adds = flight.pending.adds
        fresh = number > _CHAIN or (adds is not None and not bool(np.ravel(adds)[place]))
        number = _CHAIN - next(self._numbers) if fresh else number
        tagged.put(rows, thread, np.full(1, number))
        return number, fresh

    # --- judging

    def judge(self, block: ThreadsView, thread: int, views: dict[str, View], key: Any, fresh: bool) -> None:
        """Look at the operands of one product."""
        under = self.as_mended(block, thread, views, self._is_matrix)
        a, b = views.get("A"), views.get("B")
        bad = [own for own in views.values() if not self._is_matrix(own)]
        if bad and a is not None and b is not None and self._exchanged(block, thread, a, b):
            self.sums.forget(key)
            return
        for own in bad:
            other = None if len(bad) > 1 else b if own is a else a
            mended = self._mended(block, thread, own, other, None if fresh else key, under)
            if mended is None:
                self.sums.forget(key)
                return
            views[own.name] = mended
        a, b = views.get("A"), views.get("B")
        if a is None or b is None:
            self.sums.forget(key)
            return
        if not paired(a, b):
            order = ((a, b), (b, a)) if stride(a) is None or stride(b) is not None else ((b, a), (a, b))
            known, mended = list(under), None
            if not known:
                found = (self._mended(block, thread, own, other, None, under) for own, other in order)
                mended = next((own for own in found if own is not None), None)
            self.trials.refute(known)
            if mended is None:
                self.sums.forget(key)
                return
            a, b = (mended, b) if mended.name == "A" else (a, mended)
        self.sums.added(block, thread, a, b, key, fresh, under)
        if not under:
            self.trials.right |= {(own.line, own.name) for own in (a, b) if self.trials.of(own) is None}

    def _mended(
        self, block: ThreadsView, thread: int, view: View, other: View | None, key: Any, under: list[Trial | None]
    ) -> View | None:
        """An operand that is wrong, as it would be with a mend; key: of the sum that it is added to."""
        trial = self.trials.of(view)
        if trial is not None:
            self.trials.refute([trial])
            return None
        right = self._right_with(view, other)
        known = any(fits(view, own) and right(own.found) for own in self.trials.known(view))
        left = None if known or key is None else self._left(block, thread, view, key)
        if left is None:
            left = self.wrong(block, thread, view, right, other)
            under.append(self.trials.of(view))
        return left

    def _left(self, block: ThreadsView, thread: int, view: View, key: Any) -> View | None:
        """An operand that is no matrix would be one where its sum goes on: it has left its tile."""
        expected = self.sums.expected(view, key)
        if expected is None:
            return None
        side, begin, target = expected
        where = self.where_first(int(target.flat[0]), view.begin)
        mend = self.shifted(view, target) if where is None or where != view.begin else None
        if mend is None:
            return None
        self.sums.confirm(key)
        should = self.begin_with(mend, view, int(target.flat[0]))
        bytes = bytes_of_step(view, side.view, begin, should)
        said = f"{view.name} goes on {f'by {bytes}' if bytes else 'too far'}, and leaves its tile: each product takes {len(view.k) * view.unit} of k"
        self.behind(block, thread, view, mend, said, side.view.line)
        return replace(view, found=target, should=should)

    def _exchanged(self, block: ThreadsView, thread: int, a: View, b: View) -> bool:
        """Operands of which one is no matrix: whether both would be through each other's descriptors."""
        if a.through is None or b.through is None:
            return False
        one, other = a.through(b.descriptor), b.through(a.descriptor)
        if one is None or other is None or one.shape != a.found.shape or other.shape != b.found.shape:
            return False
        right = self._right_with(a, None)(one) and self._right_with(b, None)(other) and paired(a, b, one, other)
        if not right or not (self._in_one_array(one) and self._in_one_array(other)):
            return False
        mend = Mend("OPERANDS_EXCHANGED", "the descriptors of A and B exchanged", lambda: one)
        opcode = self.checker.findings.opcode(a.line)
        plain = f"{opcode} reads A from where B lies, of which there are too few rows, and B from A"
        self.report(
            block, thread, a, mend, plain, f"{plain}: with {mend.said} both would be whole", [0, 0], 0, again=False
        )
        return True

    def _is_matrix(self, view: View) -> bool:
        """Whether it is a matrix; what differs from the last one by where it begins is what that was."""
        found = view.lines
        pattern = (found - found[0, 0]).tobytes() if (found > 0).all() and not view.pitch else b""
        key = view.line, view.name
        if pattern and self._right.get(key) == pattern:
            return True
        right = is_matrix(found, view.pitch or common_step(found)) and self._in_one_array(view.found)
        if right and pattern:
            self._right[key] = pattern
        return right

    def _in_one_array(self, found: Array) -> bool:
        """Whether no row goes from one array in global memory into the next."""
        known = found[found > 0]
        segment = self.checker.cluster.blocks[0].memory.segment
        if not len(known) or (first := segment(int(known.min()))) is segment(int(known.max())) or first is None:
            return True
        rows = found[(found > 0).all(1)]
        return all(segment(int(row.min())) is segment(int(row.max())) for row in rows)

    def _right_with(self, view: View, other: View | None) -> Callable[[Array], bool]:
        """Whether elements are a matrix with even steps that goes through k as the other operand does."""
        if other is None:
            return lambda found: bool(step_of(_lines(view, found), 0, view.pitch))

        def right(found: Array) -> bool:
            if not step_of(_lines(view, found), 0, view.pitch) or not self._in_one_array(found):
                return False
            return paired(view, other, found) if view.name == "A" else paired(other, view, None, found)

        return right

    def likeliest(self, view: View, other: View | None, mends: Iterator[Mend]) -> Mend | None:
        """Of a few one that begins at the same k as the other operand, where rows of both are whole, else one with k side by side: that of the nearest rows."""
        found = list(islice(mends, _MOST_MENDS))
        begins = None if other is None else self._column(other, other.found)
        same = [own for own in found if begins is not None and self._column(view, own.found) == begins]
        beside = [own for own in found if _beside(own.found)]
        return min(same or beside or found[:1], key=lambda own: _apart(own.found), default=None)

    def _column(self, view: View, found: Array) -> int | None:
        """The k of the first element, of an operand whose k lie side by side in rows of global memory that begin with their array."""
        if not (found > 0).all() or min(found.shape) < 2 or not _beside(found):
            return None
        segment = self.checker.cluster.blocks[0].memory.segment(int(found[0, 0]))
        row, each = abs(int(found[1, 0] - found[0, 0])), int(found[0, 1] - found[0, 0])
        if segment is None or not row or not each:
            return None
        return int(found[0, 0] - segment.start) % row // each * int(view.k[1])

    def same_k(self, a: View, b: View) -> bool:
        """Whether operands are known to begin at the same k."""
        begins = self._column(a, a.found)
        return begins is not None and begins == self._column(b, b.found)

    # --- what sums ask

    def elsewhere(self, block: ThreadsView, thread: int, a: View, b: View) -> bool:
        """A and B are at different k, and neither has the elements at hand that would go on: one of them may have begun at the wrong place."""
        at_a, at_b = self._column(a, a.found), self._column(b, b.found)
        if at_a is None or at_b is None or at_a == at_b:
            return False
        return any(
            self.wrong(block, thread, own, self._right_from(own, other, wanted), other) is not None
            for own, other, wanted in ((a, b, at_b), (b, a, at_a))
        )

    def _right_from(self, view: View, other: View, column: int) -> Callable[[Array], bool]:
        """Whether elements go with the other operand, and begin at a k."""
        right = self._right_with(view, other)
        return lambda found: right(found) and self._column(view, found) == column

    def across(self, block: ThreadsView, thread: int, view: View, before: View, far: int, steps: int) -> bool:
        """An operand goes on by what is no step of its k, but is one if rows and columns are the other way round."""
        tries = self.tried.get((view.line, "across"), 0)
        self.tried[view.line, "across"] = tries + 1
        for mend in view.turned() if tries < self.most_tries else ():
            if not mend.found.size:
                continue
            own = stride(replace(view, k=np.arange(mend.found.shape[1]), found=mend.found))
            if own is not None and mend.found.flat[0] == view.found.flat[0] and far == own[2] * steps:
                opcode, read = (
                    self.checker.findings.opcode(view.line),
                    written_as(view, mend.found, int(view.found[0, 1])),
                )
                plain = (
                    f"{opcode}: {view.name} goes on along its rows and not along k: its rows and its k are exchanged"
                )
                said = f"{opcode} reads {view.element(0, 1)} from {read}: with {mend.said} every element would be the one that was written"
                self.report(block, thread, view, mend, plain, said, [0, 1], 1, wide=True)
                self.widened(block, thread, self.trials.every[-1], view, before)
                return True
        return False

    def shifted(self, view: View, target: Array) -> Mend | None:
        """How an operand would be read from elsewhere; looked for a few times for each instruction."""
        tries = self.tried.get((view.line, f"k {view.name}"), 0)
        self.tried[view.line, f"k {view.name}"] = tries + 1
        known = target > 0
        found = view.shifts(target) if tries < self.most_tries and known.any() else iter(())
        return next((own for own in found if fits(view, own) and (own.found == target)[known].all()), None)

    def behind(self, block: ThreadsView, thread: int, view: View, mend: Mend, said: str, last: int) -> None:
        """An operand begins at another element than its sum needs."""
        findings = self.checker.findings
        plain = f"{findings.opcode(view.line)}: {said} since {findings.opcode(last)}"
        mended = replace(mend, rule="K_ADVANCE")
        message = f"{plain}: with {mend.said} both would go on together, element by element"
        self.report(block, thread, view, mended, plain, message, [0, int(view.k[0])], 1, again=False)


def _apart(found: Array) -> int:
    """Bytes from the first row to the next."""
    return abs(int(found[1, 0] - found[0, 0])) if len(found) > 1 else 0


def _beside(found: Array) -> bool:
    """Whether k lie side by side, and rows further apart."""
    return found.shape[1] > 1 and bool(abs(found[0, 1] - found[0, 0]) <= abs(found[-1, 0] - found[0, 0]))


def _lines(view: View, found: Array) -> Array:
    return found if view.along == "k" else found.T
