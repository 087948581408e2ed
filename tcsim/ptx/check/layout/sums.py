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
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from tcsim.ptx.check.layout.mends import Mender, Trial
from tcsim.ptx.check.layout.tiles import Mend, View, stride
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

    kind: str  # "one", "both", "again" or "turned"
    line: int
    under: tuple[Trial, ...]  # mends with which it is wrong
    report: Callable[[], None]
    wrong: Callable[[], bool]


class Start(NamedTuple):
    """Where an operand should have begun."""

    at: int  # the origin
    begin: int  # the place in shared memory; -1: it does not lie there


@dataclass(eq=False)
class Sum:
    """The products that were added to an accumulator."""

    line: int
    a: Side  # of the last one
    b: Side
    starts: dict[str, Start]  # where they should have begun
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
        own = self.now.pop(key, None)
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
            starts = {"A": Start(one.at, a.begin), "B": Start(other.at, b.begin)}
            pairs = {(one.at, other.at): a.line}
            self.now[key] = Sum(a.line, one, other, starts, pairs, self.mends.same_k(a, b), mends=mends)
            return
        step = _Step(self, own, site, own.line, (own.a, own.b), (one, other), mends, dict(own.starts))
        own.line, own.a, own.b, own.mends = a.line, one, other, mends
        first = own.pairs.get((one.at, other.at))
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
        rows, each = view.found[row : row + 2, 0], view.each if view.along == "rows" else 1
        line = int(rows[1] - rows[0]) // each if len(rows) > 1 and rows[1] > 0 else 0
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
        start = own.starts[view.name]
        return side, start.begin, side.moved(start.at - side.at + side.whole)

    def confirm(self, key: Any) -> None:
        """An operand has left its tile: what went on too far before was wrong."""
        own = self.now.get(key)
        if own is None:
            return
        own.moved = True
        for record in own.records:
            self.settled(record)
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
    starts: dict[str, Start]  # where the operands of the one before should have begun

    def judge(self) -> None:
        """Of the same rows as the one before."""
        if self._turned() or self._widened():
            return
        self.as_it_is()
        moved = [(side.at - self.starts[side.view.name].at, side.step) for side in self.now]
        steps, rest = zip(*(divmod(far, step) for far, step in moved), strict=True)
        if any(rest):
            self.sums.trials.refute(self.mends)
        elif steps[0] != steps[1]:
            self._one(steps)
        elif steps[0] != len(self.now[0].view.k) and not self._regular():
            self._both()

    def as_it_is(self) -> None:
        """The sum goes on from where the operands begin."""
        for side in self.now:
            own = side.view
            self.own.starts[own.name] = Start(side.at, own.begin if own.should is None else own.should)

    def _should(self, side: Side, target: int, mend: Mend) -> None:
        """An operand should have begun elsewhere."""
        begin = self.sums.mends.begin_with(mend, side.view, target)
        self.own.starts[side.view.name] = Start(target, begin)
        self.own.moved = True

    def _record(self, kind: str, report: Callable[[], None], wrong: Callable[[], bool] = lambda: True) -> Record:
        """That the operands now are wrong."""
        return Record(kind, self.now[0].view.line, self.mends, report, wrong)

    def _regular(self) -> bool:
        """Whether both go on by a slice from where they were, though that was wrong."""
        return all(side.at - before.at == side.whole for side, before in zip(self.now, self.before, strict=True))

    def _by(self, side: Side, before: Side) -> int:
        """The k by which an operand has gone on."""
        return (side.at - before.at) // side.step * side.view.unit

    # --- both

    def _both(self) -> None:
        """Both go on by the same k, and that is not a slice."""
        sums, view = self.sums, self.now[0].view
        further = [self.starts[side.view.name].at + side.whole - side.at for side in self.now]
        sides = list(zip(self.now, self.before, further, strict=True))
        by, takes = self._by(self.now[0], self.before[0]), len(view.k) * view.unit
        said = f"k of A and B goes on by {by}, and each product takes {takes}"
        if 0 < abs(by) < takes:
            named = [self._report_one(*own, said, None) for own in sides]
            if not any(named):
                sums.settled(self._record("both", partial(self._say, f"{said}: elements are taken twice")))
            return
        shifted = [sums.mends.shifted(side.view, side.moved(far)) for side, _, far in sides]
        mends, places = [mend for mend in shifted if mend is not None], []
        if len(mends) < len(sides):
            return
        for (side, before, far), mend in zip(sides, mends, strict=True):
            self._should(side, side.at + far, mend)
            own = self._bytes(side, before)
            places += [f"{side.view.name} by {own}"] if own else []
        said += f" ({', '.join(places)})" if places else ""
        why = "elements are left out" if by else "the same elements are taken again"
        said += f": {why}, and what should come next lies in shared memory and no product takes it"
        targets = [side.at + far for side, _, far in sides]
        sums.keep(self.own.records, self._record("both", partial(self._say, said), lambda: not self._taken(targets)))

    def _taken(self, targets: Iterable[int]) -> bool:
        """Whether any product takes one of two slices, of A and of B."""
        return any(target in self.sums.taken[name] for name, target in zip("AB", targets, strict=True))

    def _bytes(self, side: Side, before: Side) -> str:
        """How far an operand has gone on in shared memory, in words."""
        name = side.view.name
        return bytes_of_step(side.view, before.view, self.starts[name].begin, self.own.starts[name].begin)

    def again(self, first: int) -> None:
        """Both take slices that they have taken before."""
        view, opcode = self.now[0].view, self.sums.state.opcode

        def report() -> None:
            takes = len(view.k) * view.unit
            far = next(self._missing()) * takes
            self._say(
                f"the {takes} elements of k of A and B are those of {opcode(first)} again, for the same sum, and no product takes those "
                f"that lie {abs(far)} {'further on' if far > 0 else 'before'} in both"
            )

        self.sums.keep(self.own.records, self._record("again", report, lambda: any(self._missing())))

    def _missing(self) -> Iterator[int]:
        """Slices of the same rows of both arrays that no product takes, counted from this one."""
        one, other = self.now
        for sign in (1, -1):
            for far in range(1, _FAR):
                targets = [side.at + sign * far * side.whole for side in self.now]
                if not all(self._in_rows(side, target) for side, target in zip(self.now, targets, strict=True)):
                    break
                if not self._taken(targets):
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

    def _one(self, steps: tuple[int, ...]) -> None:
        """They do not advance together."""
        whole = len(self.now[0].view.k)
        sides = list(zip(self.now, self.before, steps, steps[::-1], self.now[::-1], strict=True))
        for side, before, own, its, against in sides[::-1] if steps[0] == whole else sides:
            if abs(its) != whole:
                continue
            name, target = side.view.name, self.starts[side.view.name].at + its * side.step
            said = f"k of {name} goes on by {self._by(side, before)} where that of {against.view.name} goes on by {its * side.view.unit}"
            later = None if 0 < abs(own) < whole else target
            if self._report_one(side, before, target - side.at, said, later):
                return
        one, other = self.now
        if not self.own.in_step or not self.sums.mends.elsewhere(self.site, one.view, other.view):
            self.sums.trials.refute(self.mends)

    def _report_one(self, side: Side, before: Side, further: int, said: str, later: int | None) -> bool:
        """An operand begins at another element than the sum needs, which lies in shared memory. later: not wrong if the sum takes that, and slices twice."""
        sums, mend = self.sums, self.sums.mends.shifted(side.view, side.moved(further))
        if mend is None:
            return False
        self._should(side, side.at + further, mend)
        bytes, name = self._bytes(side, before), side.view.name
        words = f"{said} ({bytes})" if bytes else said
        report = partial(sums.mends.behind, self.site, side.view, mend, words, self.last)

        def unexplained() -> bool:
            """No product of the sum takes the slice, or each takes others: products of numbers in two parts pair slices more than once."""
            taken = [pair["AB".index(name)] for pair in self.own.pairs]
            return later not in taken or len(set(taken)) == len(taken)

        if later is None:
            sums.settled(self._record("one", report))
        else:
            sums.keep(self.own.records, self._record("one", report, unexplained))
        return True

    # --- rows and columns exchanged

    def _turned(self) -> bool:
        """Whether one goes on by a slice, and the other one along its rows by as many as a slice has of k."""
        for side, before, against, its in zip(self.now, self.before, self.now[::-1], self.before[::-1], strict=True):
            far, steps = side.at - before.at, (against.at - its.at) // against.step
            if abs(steps) != len(side.view.k) or abs(far) == abs(side.whole) or not side.line:
                continue
            along = abs(far) == abs(side.line * steps * side.view.unit) and abs(side.line) != abs(side.step)
            exchanged = self.sums.mends.across(self.site, side.view, before.view, far, steps)
            if not exchanged and along:
                self._turn(side, against)
                self.own.turned += 1
            if exchanged or along:
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
                fitting = mend is not None and mend.found.shape == side.view.found.shape
                if mend is not None and fitting and int(mend.found[before.row, 0]) + side.whole == side.at:
                    sums.mends.widened(self.site, trial, side.view, before.view)
                    self.as_it_is()
                    return True
        return False

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

        sums.keep(self.own.turns, self._record("turned", report))


def bytes_of_step(view: View, before: View, begin: int, should: int) -> str:
    """The bytes by which an operand has gone on in shared memory, and by which it should have; begin: where the one before should have begun."""
    if min(view.begin, before.begin, begin, should) < 0:
        return ""
    return f"{view.begin - before.begin} bytes of shared memory instead of {should - begin}"
