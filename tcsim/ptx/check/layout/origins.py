"""Where the bytes of shared memory came from, and whether the operands of a product are the matrix that they were.

Every copy from global memory leaves, for each 16 bytes that it writes, the address in global memory that they had: that says which logical
element they are, whatever swizzle or layout they lie in. A tile that a descriptor reads is told wrong only if both hold:

- its elements are not rows and columns of anything: the way from one element of a row to the next is not the same in each row, an
  element is there twice, or rows of a tensor are read from different columns; rows and columns in any order, gathered or strided, are right;
- with another value of one field (or of two that belong together) it would be a matrix: each row further by one step, its elements side by side.

So it needs no expected result. What threads stored has no origin here, and is not judged; `tcsim.ptx.check.layout.traced` follows it too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from tcsim.model.effects import Access, Effects
from tcsim.ptx.check.layout import descriptors
from tcsim.ptx.check.layout.descriptors import UNIT
from tcsim.ptx.check.layout.sums import Sums
from tcsim.ptx.check.layout.tiles import FILL, Mend, View, irregular, is_matrix, paired, pitch_of, step_of
from tcsim.ptx.check.layout.trials import Trial, Trials
from tcsim.ptx.machine.arrays import Array, each_once

if TYPE_CHECKING:
    from tcsim.ptx.check.checker import Checker
    from tcsim.ptx.compile.families import Bound
    from tcsim.ptx.machine.flights import Flight
    from tcsim.ptx.machine.view import EffectsView, ThreadsView

_MARK = np.uint64(0x9E3779B97F4A7C15)
_MOST_TRIES = 2
"""Operands of an instruction that are not a matrix, for each of which another way to read it is looked for."""


class Origins:
    """The origins in the shared memories of a cluster, by rank of the block: an address for each unit of bytes, FILL, or 0: not known."""

    unit = UNIT
    most_tries = _MOST_TRIES

    def __init__(self, checker: Checker) -> None:
        self.checker = checker
        self.at: dict[int, Array] = {}
        self.by: dict[int, Array] = {}  # the instruction that copied them
        self.pitch: dict[int, Array] = {}  # bytes from a row of the tensor to the next, where the copy had rows
        self.lines: dict[int, int] = {}  # by flight: the instruction that issued it
        self.flying: dict[int, Flight] = {}  # what has not read yet
        self.tried: dict[tuple[int, str], int] = {}  # by instruction and operand
        self.trials, self.sums = Trials(), Sums(self, reports=False)

    # --- what is written

    def stored(self, space: str, kind: str, rank: int, offsets: Array, size: int) -> None:
        """Threads access a memory."""
        if kind != "read" and space == "shared":
            self.forget(rank, offsets, size)

    def moved(self, block: ThreadsView, carry: Any, mask: Array, partners: Array | None = None) -> None:
        """Registers change: those are not followed here."""

    def performed(self, block: EffectsView, bound: Bound, effects: Effects, threads: Array, mask: Array) -> None:
        """An instruction of the catalog is done: registers are not followed here."""

    def forget(self, rank: int, offsets: Array, size: int) -> None:
        """Something else is written: what threads store has no origin."""
        at = self.at.get(rank)
        if at is None:
            return
        if size <= self.unit and not (offsets & (size - 1)).any() and not size & (size - 1):
            units = offsets // self.unit
            at[units if int(units.max()) < len(at) else units[units < len(at)]] = 0
        else:
            touched = offsets[:, None] // self.unit + np.arange((size + 2 * self.unit - 2) // self.unit)
            at[touched[(touched * self.unit < offsets[:, None] + size) & (touched < len(at))]] = 0

    def issued(self, flight: Flight, line: int) -> None:
        """Work begins."""
        if id(flight) not in self.lines:  # else it has been looked at (`beyond`)
            self.lines[id(flight)], self.flying[id(flight)] = line, flight

    def beyond(self, flight: Flight, line: int) -> None:
        """Work is to access what lies outside memory: its operands are looked at before that ends the run."""
        for own in list(self.flying.values()):  # what comes before has read too
            self._read(self.flying.pop(id(own)))
        if self.lines.get(id(flight)) is None:
            self.lines[id(flight)] = line
            self._read(flight)

    def landing(self, flight: Flight) -> None:
        """Work has read, and is about to write: a copy leaves the origins of its bytes, other work none."""
        if self.flying.pop(id(flight), None) is not None:
            self._read(flight)
        pending, line = flight.pending, self.lines.pop(id(flight), 0)
        if not any(own.space in ("shared", "generic") for own in pending.writes):
            return
        outcome, pitch = None, 0
        source = [own for own in pending.reads if own.space in ("global", "generic")]
        if len(source) == 1 and len(pending.reads) == 1 and isinstance(flight.data, np.ndarray):
            address, _ = flight.block.places(source[0])
            numbered, pitch = (
                _numbered(address, flight.data, source[0].mask),
                self.row_pitch(address.astype(np.int64), source[0].size),
            )
            outcome = pending.finish(numbered) if numbered is not None else None
        elif not pending.reads and isinstance(flight.data, np.ndarray):  # a box that lies beyond its tensor
            outcome = pending.finish(flight.data)
        simple = outcome is not None and all(own.combine is None and own.at.mask is None for own in outcome.writes)
        if outcome is None or not simple:
            if not self.carried(flight, line):
                self.rewritten(flight, line)
            return
        for write in outcome.writes:
            shape = (*np.broadcast_shapes(write.at.address.shape, write.data.shape[:-1]), write.at.size)
            self._put(
                flight.block, write.at, np.broadcast_to(write.data, shape).reshape(-1, write.at.size), line, pitch
            )

    def row_pitch(self, address: Array, size: int) -> int:
        """The bytes from one row of a tensor to the next, of what a copy reads; 0 if it has none."""
        return pitch_of(address)

    def carried(self, flight: Flight, line: int) -> bool:
        """Work that is not a copy of whole units: whether the origins of what it writes are known all the same."""
        return False

    def rewritten(self, flight: Flight, line: int) -> None:
        """Work that is not a copy of whole units writes."""
        for access in flight.pending.writes:
            self._put(flight.block, access, None, line, 0)

    def _put(self, block: EffectsView, access: Access, data: Array | None, line: int, pitch: int) -> None:
        """The origins that numbered bytes say, where an access puts them."""
        if access.space not in ("shared", "generic"):
            return
        for at in block.copies(access):
            address, _ = block.places(at)
            ranks, offsets = address >> 24 & 0xFF, address & 0xFFFFFF
            there = each_once(ranks)
            for rank in there:
                if rank >= len(self.checker.cluster.blocks):
                    continue
                own = ranks == rank if len(there) > 1 else slice(None)
                if data is None or access.size % UNIT or (offsets[own] % UNIT).any():
                    self.forget(rank, offsets[own], access.size)
                    continue
                places = (offsets[own][:, None] + np.arange(0, access.size, UNIT)).reshape(-1)
                words = (
                    np.ascontiguousarray(data[own] if len(data) == len(ranks) else data).view(np.uint64).reshape(-1, 2)
                )
                if len(words) != len(places):
                    self.forget(rank, offsets[own], access.size)
                    continue
                marked = words[:, 0] ^ _MARK == words[:, 1]
                self.note(rank, places, np.where(marked, words[:, 0].astype(np.int64), FILL), UNIT, line, pitch)

    def _room(self, rank: int) -> None:
        """Make the arrays of a block."""
        if rank not in self.at:
            count = -(-self.checker.cluster.blocks[rank].shared_bytes // self.unit)
            self.at[rank], self.pitch[rank] = np.zeros(count, np.int64), np.zeros(count, np.int64)
            self.by[rank] = np.zeros(count, np.int32)

    def note(self, rank: int, places: Array, origins: Array, size: int, line: int, pitch: int) -> None:
        """Some bytes at places have origins, from their first one on."""
        self._room(rank)
        if size > self.unit:
            step = np.arange(0, size, self.unit)
            places = (places[:, None] + step).reshape(-1)
            origins = np.where(origins[:, None] > 0, origins[:, None] + step, origins[:, None]).reshape(-1)
        units = places // self.unit
        inside = units < len(self.at[rank])
        if not inside.all():
            units, origins = units[inside], origins[inside]
        self.at[rank][units] = origins
        self.by[rank][units], self.pitch[rank][units] = line, pitch

    # --- what is read

    def views(self, flight: Flight) -> dict[int, dict[str, View]]:
        """The operands that some work reads through descriptors: by number of the warpgroup or thread, and name."""
        rank, line = flight.block.rank, self.lines.get(id(flight), 0)
        at, found = self.at.get(rank), dict[int, dict[str, View]]()
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
                first = min(int(address[0]) // self.unit, len(at) - 1)
                pitch, there = int(self.pitch[rank][first]), descriptors.origins_of(at, self.unit, address, tile)
                known = pitch, line, int(self.by[rank][first])
                sparse = name == "A" and 2 * tile.k == depth
                blank = partial(self._blank, rank, address)
                view = descriptors.view_of(name, at, self.unit, address, tile, descriptor, *known, sparse, blank, there)
                if view is not None:
                    found.setdefault(place, {})[name] = view
        return found

    def _blank(self, rank: int, address: Array) -> bool:
        """Whether nobody has written a tile; looked at only where registers are followed, and all that is written is known."""
        return False

    def _read(self, flight: Flight) -> None:
        """Look at the operands that work has read."""
        for place, views in self.views(flight).items():
            results = dict(flight.bound.results).get("d")
            writes = [own for own in flight.pending.writes if own.space == "tmem"]
            register = int(results[0]) if results is not None and len(results) else -1
            key = flight.block.rank, place, register, int(writes[0].address.flat[0]) if writes else -1
            adds = flight.pending.adds
            fresh = adds is not None and not bool(np.ravel(adds)[min(place, np.size(adds) - 1)])
            self.judge(flight.block, int(flight.threads[0]), views, key, fresh)

    def judge(self, block: ThreadsView, thread: int, views: dict[str, View], key: Any, fresh: bool) -> None:
        """Look at the operands of one product, each by itself; whether they go together only says whether a mend does."""
        under = self.as_mended(block, thread, views, lambda own: is_matrix(own.lines, own.pitch))
        for name, own in list(views.items()):
            if is_matrix(own.lines, own.pitch):
                continue
            trial = self.trials.of(own)
            self.trials.refute([trial])
            mended = self.wrong(block, thread, own, self._whole(own)) if trial is None else None
            if mended is None:
                self.sums.forget(key)
                return
            views[name] = mended
            under.append(self.trials.of(own))
        if not under:
            self.trials.right |= {(own.line, own.name) for own in views.values()}
        if "A" in views and "B" in views:
            if not paired(views["A"], views["B"]):
                self.trials.refute(under)
            self.sums.added(block, thread, views["A"], views["B"], key, fresh, under)

    def as_mended(
        self, block: ThreadsView, thread: int, views: dict[str, View], right: Callable[[View], bool]
    ) -> list[Trial | None]:
        """Put those of the operands for which a mend was found as they would be with it; the mends. right: whether one is, by itself."""
        under = list[Trial | None]()
        trials = {name: self.trials.of(own) for name, own in views.items()}
        if self.trials.lost or not any(trials.values()):
            return under
        a, b = views.get("A"), views.get("B")
        as_it_is = all(map(right, views.values())) and (a is None or b is None or paired(a, b))
        for name, own in list(views.items()):
            trial = trials[name]
            if trial is None:
                continue
            mend = own.again(trial.key)
            wide = name in self.trials.wide
            alike = as_it_is and (not wide or (a is not None and b is not None and self.same_k(a, b)))
            if mend is None or not fits(own, mend) or (alike and (mend.found != own.found).any()):
                self.trials.refute([trial])
                continue
            if wide and not self.trials.is_named(own):
                self.named(block, thread, own, replace(mend, rule=trial.rule), None, trial)
            views[name] = own.as_mended(mend.found)
            self.trials.rows(views[name])
            under.append(trial)
        return under

    def same_k(self, a: View, b: View) -> bool:
        """Whether operands are known to begin at the same k."""
        return False

    def widened(self, block: ThreadsView, thread: int, trial: Trial, view: View, before: View) -> View | None:
        """The operand of the product before as it would be with a mend of this one: what all instructions need that read it."""
        mend = before.again(trial.key)
        if trial is not self.trials.of(view) or mend is None or not fits(before, mend):
            return None
        if not self.trials.is_named(before):
            self.named(block, thread, before, replace(mend, rule=trial.rule), None, trial)
        self.trials.widen(view)
        return before.as_mended(mend.found)

    def over(self, stopped: bool) -> None:
        """The cluster has ended."""
        self.sums.over(stopped)
        self.trials.settle(self.checker.findings)

    def _whole(self, view: View) -> Callable[[Array], bool]:
        """Whether elements are lines that are whole, from the same first one on."""
        first = view.found.flat[0]
        size = UNIT if self.unit == UNIT else 0
        lines = (lambda found: found) if view.along == "k" else np.transpose
        return lambda found: bool(found.flat[0] == first and step_of(lines(found), size, view.pitch))

    def wrong(
        self, block: ThreadsView, thread: int, view: View, right: Callable[[Array], bool], other: View | None = None
    ) -> View | None:
        """Elements of an operand are not a matrix that goes with the other one: what it is with a change that would make it that, if there is one."""
        tries = self.tried.get((view.line, view.name), 0)
        self.tried[view.line, view.name] = tries + 1
        if tries >= self.most_tries:
            return None
        known, every = (
            (own for own in mends if fits(view, own) and right(own.found) and (own.found != view.found).any())
            for mends in (self.trials.known(view), view.mends())
        )
        mend = next(known, None) or self.likeliest(view, other, every)
        return None if mend is None else self.named(block, thread, view, mend, other)

    def named(
        self, block: ThreadsView, thread: int, view: View, mend: Mend, other: View | None, wide: Trial | None = None
    ) -> View | None:
        """Say what is wrong with an operand; as it would be with a mend. wide: what is wrong with another instruction that reads it the same way."""
        if not (mend.found != view.found).any():
            return None
        row, column = (int(own) for own in np.argwhere(mend.found != view.found)[0])
        wanted, read = view.element(row, column), int(view.found[row, column])
        opcode = self.checker.findings.opcode(view.line)
        said = f"{opcode} reads {wanted} from {written_as(view, mend.found, read)}: with {mend.said} every element would be the one that was written"
        plain = f"{opcode} {irregular(view, other)}"
        if wide is not None:
            plain = f"{opcode} reads {view.name} the way that {self.checker.findings.opcode(wide.finding[1])} does, which is wrong there"
        self.report(block, thread, view, mend, plain, said, [row, int(view.k[column])], read, wide=wide is not None)
        mended = view.as_mended(mend.found)
        self.trials.rows(mended)
        return mended

    def likeliest(self, view: View, other: View | None, mends: Iterator[Mend]) -> Mend | None:
        """The first."""
        return next(mends, None)

    def report(
        self, block: ThreadsView, thread: int, view: View, mend: Mend, plain: str, said: str, element: list[int], read: int, again: bool = True, wide: bool = False
    ) -> None:  # fmt: skip
        """Something is wrong with an operand; said: with the mend, which is not known to mend the launch yet; again: it would be the same each time."""
        by = view.by if view.by != view.line and read > 0 else 0
        found = self.checker.findings.report(
            mend.rule, plain, view.line, by, self.checker.index(block), thread, operand=view.name.lower(), element=element, **view.detail
        )  # fmt: skip
        self.trials.add(Trial(found, mend.rule, mend.key, mend.said, said), view if again else None, wide)

    # --- what sums ask (`tcsim.ptx.check.layout.sums`), where registers are followed

    def where_first(self, origin: int, near: int) -> int | None:
        """The shared address of an element that is nearest to another address; None if it lies nowhere."""
        rank = near >> 24 & 0xFF
        places = [own for own in (self.at.get(rank), *self.at.values()) if own is not None]
        found = np.flatnonzero(places[0] == origin // self.unit * self.unit) * self.unit if places else np.zeros(0, int)
        if near < 0 or not len(found):
            return None
        nearest = int(found[np.argmin(abs(found - (near & 0xFFFFFF)))])
        return near & ~0xFFFFFF | nearest + origin % self.unit

    def begin_with(self, mend: Mend, view: View, target: int) -> int:
        """Where an operand begins in shared memory with a mend, with which it begins with an origin; -1: it is not known."""
        if view.begin < 0:
            return -1
        if view.descriptor and isinstance(mend.key, tuple):
            return view.begin + int(dict(mend.key).get("start_address", 0))
        where = self.where_first(target, view.begin)
        return -1 if where is None else where

    def shifted(self, view: View, target: Array) -> Mend | None:
        """How an operand would be read from elsewhere."""
        return None

    def behind(self, block: ThreadsView, thread: int, view: View, mend: Mend, said: str, last: int) -> None:
        """An operand begins at another element than its sum needs."""

    def elsewhere(self, block: ThreadsView, thread: int, a: View, b: View) -> bool:
        """A and B are at different k, and neither has the elements at hand that would go on."""
        return False

    def across(self, block: ThreadsView, thread: int, view: View, before: View, far: int, steps: int) -> bool:
        """An operand goes on by what is no step of its k, but is one if rows and columns are the other way round."""
        return False


def fits(view: View, mend: Mend) -> bool:
    """Whether a mend gives an operand of the same shape."""
    return mend.found.shape == view.found.shape


def written_as(view: View, mended: Array, read: int) -> str:
    """What the bytes are that were read: an element of the operand as it would be, or near it."""
    if read <= 0:
        return "bytes that no copy wrote" if not read else "bytes that were filled in"
    there = np.argwhere(mended == read)
    if len(there):
        return f"the bytes that were written as {view.element(*(int(own) for own in there[0]))}"
    lines = mended if view.along == "k" else mended.T
    step = int(lines[1, 0] - lines[0, 0]) if len(lines) > 1 else 0
    each = int(lines[0, 1] - lines[0, 0]) if lines.shape[1] > 1 else 0
    if step <= 0 or each <= 0 or read < lines[0, 0]:
        return f"the bytes that were written from {read:#x}"
    line, rest = divmod(read - int(lines[0, 0]), step)
    along = rest * view.each // each
    return f"the bytes that were written as {view.named(*((line, along) if view.along == 'k' else (along, line)))}"


def _numbered(address: Array, data: Array, mask: Array | None) -> Array | None:
    """The bytes that were read, with the address of each 16 in their place, zeros where they were not read; None where they are fewer."""
    size = data.shape[-1] if data.ndim else 0
    if data.dtype != np.uint8 or not size or size % UNIT or data.size != len(address) * size:
        return None
    found = np.empty((len(address), size // UNIT, 2), np.uint64)
    found[..., 0] = address.astype(np.uint64)[:, None] + np.arange(0, size, UNIT, dtype=np.uint64)
    found[..., 1] = found[..., 0] ^ _MARK
    if mask is not None:
        found[~np.broadcast_to(mask, data.shape).reshape(len(address), -1, UNIT).any(-1)] = 0
    return found.view(np.uint8).reshape(data.shape)
