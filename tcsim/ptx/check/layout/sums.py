"""What is added to one accumulator, product by product: A and B go on through k together, and take every slice once.

A *slice* is the elements of k that one product takes. Four things may be wrong:

- one operand goes on by a slice and the other one does not: named where the slice that it leaves out lies in shared memory, unless the sum takes that too
  and pairs slices more than once, as products of numbers in two parts do;
- both go on by too much, past a slice in shared memory that no product takes, or by too little, so that elements are taken twice;
- both take slices again that they have taken, and no product takes others of the same rows in global memory;
- an operand goes on along its rows or columns, each time by as many as the other one takes of k: it is read with the two exchanged.

What needs to know all products is said at the end of the cluster.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tcsim.ptx.check.layout.mends import Mender
from tcsim.ptx.check.layout.tiles import Mend, View, stride
from tcsim.ptx.check.layout.trials import Trial
from tcsim.ptx.check.state import Site
from tcsim.ptx.machine.arrays import Array

_FAR = 4096
"""Slices of a row that are looked at for one that no product takes."""
_MOST = 8
"""Records of an instruction that are kept."""


@dataclass(frozen=True, eq=False)
class Side:
    """An operand of a product of a sum."""

    view: View
    row: int  # the first of which every element is known
    at: int  # origin of its first element
    step: int  # bytes from one k to the next
    line: int  # from one row to the next; 0: not known
    tensor: int  # the allocation that it lies in

    @property
    def whole(self) -> int:
        """Bytes from one slice to the next."""
        return len(self.view.k) * self.step

    def goes_on(self, other: Side) -> bool:
        """Whether it is of the same rows of the same array, read the same way."""
        return (self.row, self.step, self.tensor) == (other.row, other.step, other.tensor)

    def moved(self, bytes: int) -> Array:
        """Its elements, some bytes further on."""
        found = self.view.found
        return np.where(found > 0, found + bytes, found)


@dataclass(eq=False)
class Record:
    """Something that is wrong if the rest of the launch does not explain it."""

    report: Callable[[], None]
    wrong: Callable[[], bool]
    under: tuple[Trial, ...]  # mends with which it is wrong
    line: int
    kind: str  # "one", "both", "again" or "turned"


@dataclass(eq=False)
class Sum:
    """The products that were added to an accumulator."""

    line: int
    a: Side  # of the last one
    b: Side
    ideal: dict[str, int]  # where they should have begun: origins
    begins: dict[str, int]  # and the places in shared memory
    pairs: dict[tuple[int, int], int]  # the slices of each product, and its line
    in_step: bool = False  # whether its first operands begin at the same k
    moved: bool = False  # whether one of them did not begin where it should have
    mends: tuple[Trial, ...] = ()  # with which the last one was as it is
    steps: int = 0
    turned: int = 0  # steps along rows or columns
    records: list[Record] = field(default_factory=list)
    turns: list[Record] = field(default_factory=list)


class Sums:
    """The sums of one cluster, by accumulator."""

    def __init__(self, mends: Mender) -> None:
        """Where registers are not followed, what is wrong is not reported, and only refutes mends."""
        self.mends, self.state, self.trials = mends, mends.state, mends.trials
        self.now: dict[Any, Sum] = {}
        self.taken: dict[str, set[int]] = {"A": set(), "B": set()}  # the origins where slices of products begin
        self._left: list[Record] = []  # for the end
        self._known: dict[tuple[int, str], int] = {}  # records by line and kind

    def forget(self, key: Any) -> None:
        """What is added next is not known to go on from anything."""
        self._over(self.now.pop(key, None))

    def _over(self, own: Sum | None) -> None:
        if own is not None:
            self._left += own.records
            self._left += own.turns if own.turned == own.steps else []

    # --- products

    def added(self, site: Site, a: View, b: View, key: Any, fresh: bool, under: Iterable[Trial | None]) -> None:
        """A product is added; under: mends with which its operands are these."""
        one, other = self._side(a), self._side(b)
        if one is None or other is None or a.unit != b.unit or len(a.k) != len(b.k):
            self.forget(key)
            return
        self.taken["A"].add(one.at)
        self.taken["B"].add(other.at)
        mends = tuple(trial for trial in under if trial is not None)
        own = None if fresh else self.now.get(key)
        if own is None:
            self.forget(key)
            ideal = {"A": one.at, "B": other.at}
            begins = {"A": a.begin, "B": b.begin}
            pairs = {(one.at, other.at): a.line}
            self.now[key] = Sum(a.line, one, other, ideal, begins, pairs, self.mends.same_k(a, b), mends=mends)
            return
        step = _Step(self, own, site, own.line, (own.a, own.b), (one, other), mends)
        own.line, own.a, own.b, own.mends = a.line, one, other, mends
        first = own.pairs.setdefault((one.at, other.at), a.line) if (one.at, other.at) in own.pairs else None
        own.pairs.setdefault((one.at, other.at), a.line)
        if one.goes_on(step.before[0]) and other.goes_on(step.before[1]):
            own.steps += 1
            step.judge()
        else:
            step.as_it_is()
        if first is not None and not own.moved:
            step.again(first)

    def _side(self, view: View) -> Side | None:
        found = stride(view)
        if found is None:
            return None
        row, at, step = found
        rows = view.found[row : row + 2, 0]
        line = (
            int(rows[1] - rows[0]) // (view.each if view.along == "rows" else 1) if len(rows) > 1 and rows[1] > 0 else 0
        )
        segment = self.state.memory.segment(at)
        return Side(view, row, at, step, line, segment.start if segment is not None else 0)

    def expected(self, view: View, key: Any) -> tuple[Side, int, Array] | None:
        """An operand of the last product of a sum, where it should have begun in shared memory, and the elements that would go on from there."""
        own = self.now.get(key)
        if own is None or own.mends:
            return None
        side = own.a if view.name == "A" else own.b
        if side.view.found.shape != view.found.shape:
            return None
        return side, own.begins[view.name], side.moved(own.ideal[view.name] - side.at + side.whole)

    def confirm(self, key: Any) -> None:
        """An operand has left its tile: what went on too far before was wrong."""
        own = self.now.get(key)
        if own is not None:
            own.moved = True
        for record in own.records if own is not None else ():
            self.settled(record)
        if own is not None:
            own.records.clear()

    # --- what is said

    def settled(self, record: Record) -> None:
        """It is wrong."""
        if record.under:
            self.trials.refute(record.under)
        elif self.mends.traced:
            record.report()

    def keep(self, records: list[Record], record: Record) -> None:
        """For later, a few of each instruction."""
        known = self._known.get((record.line, record.kind), 0)
        if known < _MOST:
            self._known[record.line, record.kind] = known + 1
            records.append(record)

    def over(self, stopped: bool) -> None:
        """The cluster has ended; stopped: before its end, so that products may be missing: they refute mends, and are no reason to report."""
        for key in list(self.now):
            self.forget(key)
        said = set[int]()
        for record in sorted(self._left, key=lambda own: own.kind == "again"):
            if record.kind == "again" and record.line in said:
                continue
            if (record.under and stopped) or (record.wrong() and (not stopped or record.kind == "one")):
                said.add(record.line)
                self.settled(record)


@dataclass(eq=False)
class _Step:
    """From one product of a sum to the next."""

    sums: Sums
    own: Sum
    site: Site
    last: int  # the line of the one before
    before: tuple[Side, Side]
    now: tuple[Side, Side]
    mends: tuple[Trial, ...]

    def judge(self) -> None:
        """Of the same rows as the one before."""
        own, (one, other) = self.own, self.now
        if self._turned() or self._widened():
            return
        far = {side.view.name: side.at - own.ideal[side.view.name] for side in self.now}
        ideal, begins = own.ideal, own.begins
        self.as_it_is()
        if far["A"] % one.step or far["B"] % other.step:
            self.sums.trials.refute(self.mends)
            return
        steps = {side.view.name: far[side.view.name] // side.step for side in self.now}
        whole = len(one.view.k)
        if steps["A"] == steps["B"]:
            if steps["A"] != whole and not self._regular():
                self._both(steps["A"], whole, ideal, begins)
        else:
            self._one(steps, whole, ideal, begins)

    def as_it_is(self) -> None:
        """The sum goes on from where the operands begin."""
        self.own.ideal = {side.view.name: side.at for side in self.now}
        places = {side.view.name: (side.view.begin, side.view.should) for side in self.now}
        self.own.begins = {name: begin if should is None else should for name, (begin, should) in places.items()}

    def _should(self, side: Side, target: int, mend: Mend) -> None:
        """An operand should have begun elsewhere."""
        name = side.view.name
        self.own.ideal[name], self.own.begins[name] = target, self.sums.mends.begin_with(mend, side.view, target)
        self.own.moved = True

    def _regular(self) -> bool:
        """Whether both go on by a slice from where they were, though that was wrong."""
        return all(side.at - before.at == side.whole for side, before in zip(self.now, self.before, strict=True))

    def _by(self, side: Side, before: Side) -> int:
        """The k by which an operand has gone on."""
        return (side.at - before.at) // side.step * side.view.unit

    # --- both

    def _both(self, steps: int, whole: int, ideal: dict[str, int], begins: dict[str, int]) -> None:
        """Both go on by the same k, and that is no slice."""
        sums, one = self.sums, self.now[0]
        targets = [ideal[side.view.name] + side.whole for side in self.now]
        by, takes = self._by(one, self.before[0]), whole * one.view.unit
        said = f"k of A and B goes on by {by}, and each product takes {takes}"
        if 0 < abs(by) < takes:
            named = [
                self._report_one(side, target - side.at, said, None, (before, begins))
                for side, before, target in zip(self.now, self.before, targets, strict=True)
            ]
            if not any(named):
                twice = f"{said}: elements are taken twice"
                sums.settled(Record(lambda: self._say(twice), lambda: True, self.mends, one.view.line, "both"))
            return
        mends = [
            sums.mends.shifted(side.view, side.moved(target - side.at))
            for side, target in zip(self.now, targets, strict=True)
        ]
        if None in mends:
            return
        places = []
        for side, before, target, mend in zip(self.now, self.before, targets, mends, strict=True):
            assert mend is not None
            self._should(side, target, mend)
            own = bytes_of_step(side.view, before.view, begins[side.view.name], self.own.begins[side.view.name])
            places += [f"{side.view.name} by {own}"] if own else []
        said += f" ({', '.join(places)})" if places else ""

        def wrong() -> bool:
            return not any(target in sums.taken[name] for name, target in zip("AB", targets, strict=True))

        def report() -> None:
            why = "elements are left out" if by else "the same elements are taken again"
            self._say(f"{said}: {why}, and what should come next lies in shared memory and no product takes it")

        sums.keep(self.own.records, Record(report, wrong, self.mends, one.view.line, "both"))

    def again(self, first: int) -> None:
        """Both take slices that they have taken before."""
        sums, one = self.sums, self.now[0]

        def wrong() -> bool:
            return next(self._missing(), None) is not None

        def report() -> None:
            takes = len(one.view.k) * one.view.unit
            far = next(self._missing()) * takes
            self._say(
                f"the {takes} elements of k of A and B are those of {sums.state.opcode(first)} again, for the same sum, and no product takes those "
                f"that lie {abs(far)} {'further on' if far > 0 else 'before'} in both"
            )

        sums.keep(self.own.records, Record(report, wrong, self.mends, one.view.line, "again"))

    def _missing(self) -> Iterator[int]:
        """Slices of the same rows of both arrays that no product takes, counted from this one."""
        one, other = self.now
        for sign in (1, -1):
            for far in range(1, _FAR):
                targets = [side.at + sign * far * side.whole for side in self.now]
                if not all(self._in_rows(side, target) for side, target in zip(self.now, targets, strict=True)):
                    break
                if not any(target in self.sums.taken[name] for name, target in zip("AB", targets, strict=True)):
                    yield sign * far

    def _in_rows(self, side: Side, target: int) -> bool:
        """Whether a slice lies in the same rows of an array."""
        segment = self.sums.state.memory.segment(side.at)
        first, last = sorted((target, target + side.whole - side.step))
        if segment is None or not segment.start <= first <= last < segment.start + segment.size:
            return False
        if abs(side.line) <= abs(side.whole):
            return bool(side.line)
        rows = {(place - segment.start) // abs(side.line) for place in (side.at, first, last)}
        return len(rows) == 1

    def _say(self, said: str) -> None:
        sums, view = self.sums, self.now[0].view
        sums.trials.lost = True
        message, last = f"{sums.state.opcode(view.line)}: {said}", self.last if self.last != view.line else 0
        sums.state.report("K_ADVANCE", self.site.block, message, view.line, last, self.site.thread, operand="ab")

    # --- one of them

    def _one(self, steps: dict[str, int], whole: int, ideal: dict[str, int], begins: dict[str, int]) -> None:
        """They do not go on together."""
        (one, other), (first, second) = self.now, self.before
        pairs = [(one, first, other), (other, second, one)]
        for side, before, against in pairs[::-1] if steps["A"] == whole else pairs:
            name = side.view.name
            if abs(steps[against.view.name]) != whole:
                continue
            target = ideal[name] + steps[against.view.name] * side.step
            takes = steps[against.view.name] * side.view.unit
            said = (
                f"k of {name} goes on by {self._by(side, before)} where that of {against.view.name} goes on by {takes}"
            )
            later = None if 0 < abs(steps[name]) < whole else (name, target)
            if self._report_one(side, target - side.at, said, later, (before, begins)):
                return
        if not self.own.in_step or not self.sums.mends.elsewhere(self.site, one.view, other.view):
            self.sums.trials.refute(self.mends)

    def _report_one(
        self, side: Side, further: int, said: str, later: tuple[str, int] | None, was: tuple[Side, dict[str, int]]
    ) -> bool:
        """An operand begins at another element than the sum needs, which lies in shared memory.

        later: not wrong if the sum takes that, and slices twice. was: the operand of the product before, and where both should have begun.
        """
        mend = self.sums.mends.shifted(side.view, side.moved(further))
        if mend is None:
            return False
        self._should(side, side.at + further, mend)
        name = side.view.name
        bytes = bytes_of_step(side.view, was[0].view, was[1][name], self.own.begins[name])
        words = f"{said} ({bytes})" if bytes else said

        def report() -> None:
            self.sums.mends.behind(self.site, side.view, mend, words, self.last)

        record = Record(report, lambda: later is None or not self._explained(*later), self.mends, side.view.line, "one")
        if later is None:
            self.sums.settled(record)
        else:
            self.sums.keep(self.own.records, record)
        return True

    def _explained(self, name: str, target: int) -> bool:
        """Whether a sum takes a slice, and slices with several others: products of numbers in two parts do."""
        place = "AB".index(name)
        if all(pair[place] != target for pair in self.own.pairs):
            return False
        with_it = [pair[place] for pair in self.own.pairs]
        return len(set(with_it)) < len(with_it)

    # --- rows and columns exchanged

    def _turned(self) -> bool:
        """Whether one goes on by a slice, and the other one along its rows by as many as a slice has of k."""
        for side, before, against, its in ((*self.pair(0), *self.pair(1)), (*self.pair(1), *self.pair(0))):
            far, steps = side.at - before.at, (against.at - its.at) // against.step
            if abs(steps) != len(side.view.k) or abs(far) == abs(side.whole) or not side.line:
                continue
            exchanged = self.sums.mends.across(self.site, side.view, before.view, far, steps)
            if (
                not exchanged
                and abs(far) == abs(side.line * steps * side.view.unit)
                and abs(side.line) != abs(side.step)
            ):
                self._turn(side, against)
                self.own.turned += 1
                exchanged = True
            if exchanged:
                self.as_it_is()
                return True
        return False

    def _widened(self) -> bool:
        """Whether both go on by a slice if the mend of one of them is that of the product before, too."""
        sums = self.sums
        if self._regular():
            return False
        for side, before in zip(self.now, self.before, strict=True):
            trial = sums.trials.of(side.view)
            if trial in self.mends and trial is not None and sums.trials.of(before.view) is not trial:
                mend = before.view.source.again(trial.key)
                if mend is None or not mend_moves(mend, before, side):
                    continue
                sums.mends.widened(self.site, trial, side.view, before.view)
                self.as_it_is()
                return True
        return False

    def pair(self, place: int) -> tuple[Side, Side]:
        """An operand now and before."""
        return self.now[place], self.before[place]

    def _turn(self, side: Side, against: Side) -> None:
        sums, view, name = self.sums, side.view, side.view.name
        lines = "rows" if name == "A" else "columns"
        takes = len(view.k) * view.unit
        rule = "DESC_MAJOR" if view.descriptor else "FRAGMENT_LAYOUT"

        def report() -> None:
            sums.trials.lost = True
            said = (
                f"{sums.state.opcode(view.line)}: where k of {against.view.name} goes on by {takes}, {name} goes on by {takes} {lines}, at the same k: "
                f"{lines} and k of {name} are exchanged"
            )
            by = view.by if view.by != view.line else 0
            sums.state.report(rule, self.site.block, said, view.line, by, self.site.thread, operand=name.lower())

        sums.keep(self.own.turns, Record(report, lambda: True, self.mends, view.line, "turned"))


def mend_moves(mend: Mend, before: Side, now: Side) -> bool:
    """Whether an operand as it would be with a mend goes on to the next one."""
    found = mend.found
    return found.shape == now.view.found.shape and int(found[before.row, 0]) + now.whole == now.at


def bytes_of_step(view: View, before: View, begin: int, should: int) -> str:
    """The bytes by which an operand has gone on in shared memory, and by which it should have; begin: where the one before should have begun."""
    if min(view.begin, before.begin, begin, should) < 0:
        return ""
    return f"{view.begin - before.begin} bytes of shared memory instead of {should - begin}"
