"""Ways to read an operand with which it would be a matrix that goes with the other one, and what is said of an operand that has one.

An operand is reported only if another way to read it, which differs in one thing, makes it right. Where registers
are followed that is more: A and B go through k together, and rows stay within an array.

A mend is only printed if every product of the launch would be right with it: each later product of the instruction is judged as it would be with it
(`tcsim.ptx.check.layout.origins`), and no other mistake of layout is left without a mend. So much as one product that would not be right, or that is
right as it is, and none is named.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any

import numpy as np

from tcsim.ptx.check.layout.descriptors import UNIT
from tcsim.ptx.check.layout.origins import Origins
from tcsim.ptx.check.layout.tiles import Mend, View, common_step, irregular, is_matrix, paired, step_of, stride
from tcsim.ptx.check.state import Findings, Key, Site
from tcsim.ptx.machine.arrays import Array

_MOST_MENDS = 12
"""Ways to read an operand right of which one is chosen."""
Right = Callable[[Array], bool]
"""Whether elements are what an operand should be."""


class Mender:
    """The mends of one cluster. traced: whether registers are followed."""

    def __init__(self, origins: Origins, traced: bool) -> None:
        self.origins, self.state, self.traced = origins, origins.state, traced
        self.trials = Trials()
        # Operands of an instruction that are wrong, for which another way is looked for.
        self._most = 8 if traced else 2
        self._tried: dict[tuple[int, str], int] = {}  # by instruction and operand
        self._right: dict[tuple[int, str], bytes] = {}  # the last operand of an instruction that was a matrix

    def _may_try(self, line: int, what: str) -> bool:
        """Whether to look for another way again: a few times for each instruction."""
        tries = self._tried.get((line, what), 0)
        self._tried[line, what] = tries + 1
        return tries < self._most

    # --- what is right

    def is_matrix(self, view: View) -> bool:
        """Whether it is a matrix; what differs from the last one by where it begins is what that was."""
        found = view.lines
        if not self.traced:
            return is_matrix(found, view.pitch)
        pattern = (found - found[0, 0]).tobytes() if (found > 0).all() and not view.pitch else b""
        key = view.line, view.name
        if pattern and self._right.get(key) == pattern:
            return True
        right = is_matrix(found, view.pitch or common_step(found)) and self._rows_in_one_array(view.found)
        if right and pattern:
            self._right[key] = pattern
        return right

    def _rows_in_one_array(self, found: Array) -> bool:
        """Whether no row goes from one array in global memory into the next."""
        segment = self.state.memory.segment
        if self.origins.in_one_array(found) or segment(int(found[found > 0].min())) is None:
            return True
        return all(self.origins.in_one_array(row) for row in found[(found > 0).all(1)])

    def whole(self, view: View) -> Right:
        """Whether elements are lines that are whole, from the same first one on."""
        first, size = view.found.flat[0], UNIT if self.origins.unit == UNIT else 0
        return lambda found: bool(found.flat[0] == first and step_of(view.in_lines(found), size, view.pitch))

    def right_with(self, view: View, other: View | None) -> Right:
        """Whether elements are a matrix with even steps that goes through k as the other operand does."""

        def right(found: Array) -> bool:
            if not step_of(view.in_lines(found), 0, view.pitch):
                return False
            return other is None or (self._rows_in_one_array(found) and view.goes_with(other, found))

        return right

    def exchanged(self, site: Site, a: View, b: View) -> bool:
        """Operands of which one is not a matrix: whether both would be through each other's descriptors."""
        one, other = a.source.through(b.descriptor), b.source.through(a.descriptor)
        if one is None or other is None or one.shape != a.found.shape or other.shape != b.found.shape:
            return False
        right = self.right_with(a, None)(one) and self.right_with(b, None)(other) and paired(a, b, one, other)
        if not right or not (self._rows_in_one_array(one) and self._rows_in_one_array(other)):
            return False
        mend = Mend("OPERANDS_EXCHANGED", "the descriptors of A and B exchanged", lambda: one)
        plain = f"{self.state.opcode(a.line)} reads A from where B lies, of which there are too few rows, and B from A"
        said = f"{plain}: with {mend.said} both would be whole"
        self.report(site, a, mend, plain, said, [0, 0], 0, again=False)
        return True

    def column(self, view: View, found: Array) -> int | None:
        """The k of the first element, of an operand whose k lie side by side in rows of global memory that begin with their array."""
        if not (found > 0).all() or min(found.shape) < 2 or not _beside(found):
            return None
        segment = self.state.memory.segment(int(found[0, 0]))
        row, each = abs(int(found[1, 0] - found[0, 0])), int(found[0, 1] - found[0, 0])
        if segment is None or not row or not each:
            return None
        return int(found[0, 0] - segment.start) % row // each * int(view.k[1])

    def same_k(self, a: View | None, b: View | None) -> bool:
        """Whether operands are known to begin at the same k."""
        if not self.traced or a is None or b is None:
            return False
        begins = self.column(a, a.found)
        return begins is not None and begins == self.column(b, b.found)

    # --- mends that are known

    def as_mended(self, site: Site, views: dict[str, View]) -> list[Trial | None]:
        """Put those of the operands for which a mend was found as they would be with it; the mends."""
        under = list[Trial | None]()
        trials = {name: self.trials.of(own) for name, own in views.items()}
        if self.trials.lost or not any(trials.values()):
            return under
        a, b = views.get("A"), views.get("B")
        as_it_is = all(map(self.is_matrix, views.values())) and (a is None or b is None or paired(a, b))
        for name, own in list(views.items()):
            trial = trials[name]
            if trial is None:
                continue
            mend, wide = own.source.again(trial.key), name in self.trials.wide
            alike = as_it_is and (not wide or self.same_k(a, b))
            if mend is None or not fits(own, mend) or (alike and (mend.found != own.found).any()):
                self.trials.refute([trial])
                continue
            if wide and not self.trials.is_named(own):
                self.named(site, own, replace(mend, rule=trial.rule), None, trial)
            views[name] = own.as_mended(mend.found)
            self.trials.rows(views[name])
            under.append(trial)
        return under

    def widened(self, site: Site, trial: Trial, view: View, before: View) -> None:
        """The operand of the product before would be right with a mend of this one: what all instructions need that read it."""
        mend = before.source.again(trial.key)
        if trial is not self.trials.of(view) or mend is None or not fits(before, mend):
            return
        if not self.trials.is_named(before):
            self.named(site, before, replace(mend, rule=trial.rule), None, trial)
        self.trials.widen(view)

    # --- mends that are looked for

    def wrong(self, site: Site, view: View, right: Right, other: View | None = None) -> View | None:
        """Elements of an operand are not a matrix that goes with the other one: what it is with a change that would make it that, if there is one."""
        if not self._may_try(view.line, view.name):
            return None

        def mending(own: Mend) -> bool:
            return fits(view, own) and right(own.found) and bool((own.found != view.found).any())

        known = next(filter(mending, self.trials.known(view)), None)
        mend = known or self._likeliest(view, other, filter(mending, view.source.mends()))
        return None if mend is None else self.named(site, view, mend, other)

    def _likeliest(self, view: View, other: View | None, mends: Iterator[Mend]) -> Mend | None:
        """The first; of a few one that begins at the same k as the other operand, where rows of both are whole, else one with k side by side: that of the nearest rows."""
        if not self.traced:
            return next(mends, None)
        found = list(islice(mends, _MOST_MENDS))
        begins = None if other is None else self.column(other, other.found)
        same = [own for own in found if begins is not None and self.column(view, own.found) == begins]
        beside = [own for own in found if _beside(own.found)]
        return min(same or beside or found[:1], key=lambda own: _apart(own.found), default=None)

    def shifted(self, view: View, target: Array) -> Mend | None:
        """How an operand would be read from elsewhere."""
        known = target > 0
        if not self.traced or not self._may_try(view.line, f"k {view.name}") or not known.any():
            return None
        found = (own for own in view.source.shifts(target) if fits(view, own) and (own.found == target)[known].all())
        return next(found, None)

    def elsewhere(self, site: Site, a: View, b: View) -> bool:
        """A and B are at different k, and neither has the elements at hand that would go on: one of them may have begun at the wrong place."""
        at_a, at_b = self.column(a, a.found), self.column(b, b.found)
        if at_a is None or at_b is None or at_a == at_b:
            return False

        def begun(view: View, other: View, column: int) -> bool:
            right = self.right_with(view, other)

            def there(found: Array) -> bool:
                return right(found) and self.column(view, found) == column

            return self.wrong(site, view, there, other) is not None

        return begun(a, b, at_b) or begun(b, a, at_a)

    def across(self, site: Site, view: View, before: View, far: int, steps: int) -> bool:
        """An operand advances by what is not a step of its k, but is one if rows and columns are the other way round."""
        for mend in view.source.turned() if self.traced and self._may_try(view.line, "across") else ():
            if not mend.found.size:
                continue
            own = stride(replace(view, k=np.arange(mend.found.shape[1]), found=mend.found))
            if own is not None and mend.found.flat[0] == view.found.flat[0] and far == own[2] * steps:
                opcode, read, name = self.state.opcode(view.line), int(view.found[0, 1]), view.name
                plain = f"{opcode}: {name} goes on along its rows and not along k: its rows and its k are exchanged"
                said = _as_written(opcode, view, mend, (0, 1), read)
                self.report(site, view, mend, plain, said, [0, 1], 1, wide=True)
                self.widened(site, self.trials.every[-1], view, before)
                return True
        return False

    def begin_with(self, mend: Mend, view: View, target: int) -> int:
        """Where an operand begins in shared memory with a mend, with which it begins with an origin; -1: it is not known."""
        if view.begin < 0:
            return -1
        if view.descriptor and isinstance(mend.key, tuple):
            return view.begin + int(dict(mend.key).get("start_address", 0))
        where = self.origins.nearest(target, view.begin)
        return -1 if where is None else where

    # --- in words

    def named(self, site: Site, view: View, mend: Mend, other: View | None, wide: Trial | None = None) -> View | None:
        """Say what is wrong with an operand; as it would be with a mend. wide: what is wrong with another instruction that reads it the same way."""
        bad = np.argwhere(mend.found != view.found)
        if not len(bad):
            return None
        opcode = self.state.opcode(view.line)
        row, column = bad[0].tolist()
        read = int(view.found[row, column])
        plain = f"{opcode} {irregular(view, other)}"
        if wide is not None:
            plain = f"{opcode} reads {view.name} the way that {self.state.opcode(wide.finding[1])} does, which is wrong there"
        said, element = _as_written(opcode, view, mend, (row, column), read), [row, int(view.k[column])]
        self.report(site, view, mend, plain, said, element, read, wide=wide is not None)
        mended = view.as_mended(mend.found)
        self.trials.rows(mended)
        return mended

    def behind(self, site: Site, view: View, mend: Mend, said: str, last: int) -> None:
        """An operand begins at another element than its sum needs."""
        plain = f"{self.state.opcode(view.line)}: {said} since {self.state.opcode(last)}"
        message = f"{plain}: right with {mend.said}"
        mended = replace(mend, rule="K_ADVANCE")
        self.report(site, view, mended, plain, message, [0, int(view.k[0])], 1, again=False)

    def report(
        self, site: Site, view: View, mend: Mend, plain: str, said: str, element: list[int], read: int, again: bool = True, wide: bool = False
    ) -> None:  # fmt: skip
        """Something is wrong with an operand; said: with the mend, which is not known to mend the launch yet; again: it would be the same each time."""
        by = view.by if view.by != view.line and read > 0 else 0
        detail = {"operand": view.name.lower(), "element": element, **view.detail}
        found = self.state.report(mend.rule, site.block, plain, view.line, by, site.thread, **detail)
        self.trials.add(Trial(found, mend.rule, mend.key, mend.said, said, mend.change), view if again else None, wide)


def fits(view: View, mend: Mend) -> bool:
    """Whether a mend gives an operand of the same shape."""
    return mend.found.shape == view.found.shape


def _as_written(opcode: str, view: View, mend: Mend, place: tuple[int, int], read: int) -> str:
    """What an element is read from, and with which mend that would not be so."""
    there = _written_as(view, mend.found, read)
    return f"{opcode} reads {view.element(*place)} from {there}: right with {mend.said}"


def _written_as(view: View, mended: Array, read: int) -> str:
    """What the bytes are that were read: an element of the operand as it would be, or near it."""
    if read <= 0:
        return "bytes that no copy wrote" if not read else "bytes that were filled in"
    there = np.argwhere(mended == read)
    if len(there):
        return f"the bytes that were written as {view.element(*(int(own) for own in there[0]))}"
    lines = view.in_lines(mended)
    step = int(lines[1, 0] - lines[0, 0]) if len(lines) > 1 else 0
    each = int(lines[0, 1] - lines[0, 0]) if lines.shape[1] > 1 else 0
    if step <= 0 or each <= 0 or read < lines[0, 0]:
        return f"the bytes that were written from {read:#x}"
    line, rest = divmod(read - int(lines[0, 0]), step)
    along = rest * view.each // each
    return f"the bytes that were written as {view.named(*((line, along) if view.along == 'k' else (along, line)))}"


def _apart(found: Array) -> int:
    """Bytes from the first row to the next."""
    return abs(int(found[1, 0] - found[0, 0])) if len(found) > 1 else 0


def _beside(found: Array) -> bool:
    """Whether k lie side by side, and rows further apart."""
    return found.shape[1] > 1 and bool(abs(found[0, 1] - found[0, 0]) <= abs(found[-1, 0] - found[0, 0]))


@dataclass(eq=False)
class Trial:
    """A mend, and the finding that it is for."""

    finding: Key
    rule: str
    key: Hashable  # of the mend
    mend: str  # in words
    said: str  # the message with it
    change: Mapping[str, Any] = field(default_factory=dict)  # the mend as data
    early: bool = False  # whether the instruction was right before, as it is


class Trials:
    """The mends of one cluster."""

    def __init__(self) -> None:
        self.every: list[Trial] = []
        self.right: set[tuple[int, str]] = set()  # instructions and operands that were right as they are
        self.lost = False  # whether something is wrong that no mend is known for, or that one does not mend
        self.wide: dict[str, Trial] = {}  # that all instructions need, which read an operand
        self._of: dict[tuple[int, str], Trial] = {}
        self._rows: dict[tuple[str, int], frozenset[int]] = {}  # by operand and element that begins a row, of one k

    def rows(self, view: View) -> None:
        """Note the rows of an operand as it would be with a mend: two have the same ones, or others."""
        own = frozenset(view.found[:, 0].tolist())
        if any(self._rows.setdefault((view.name, row), own) != own for row in own):
            self.lost = True

    def of(self, view: View) -> Trial | None:
        """That of an instruction's operand."""
        return self._of.get((view.line, view.name)) or self.wide.get(view.name)

    def is_named(self, view: View) -> bool:
        """Whether an instruction's operand has a finding of its own."""
        return (view.line, view.name) in self._of

    def widen(self, view: View) -> None:
        """What mends an instruction's operand is what all need that read it, those too that are right by themselves."""
        trial = self._of[view.line, view.name]
        trial.early = False
        self.wide[view.name] = trial

    def add(self, trial: Trial, view: View | None = None, wide: bool = False) -> None:
        """A mend is found; view: of an operand that is read otherwise each time; wide: so is each that others read."""
        self.every.append(trial)
        if view is not None:
            key = view.line, view.name
            trial.early = key in self.right and not wide
            self._of[key] = trial

    def known(self, view: View) -> Iterator[Mend]:
        """Mends of other instructions for an operand of the same name, as they would be here."""
        for key in dict.fromkeys(own.key for (_, name), own in reversed(self._of.items()) if name == view.name):
            rule = next(own.rule for own in self._of.values() if own.key == key)
            mend = view.source.again(key)
            if mend is not None:
                yield replace(mend, rule=rule)

    def refute(self, trials: Iterable[Trial | None]) -> None:
        """A product would not be right with these: then none is named."""
        self.lost = self.lost or any(own is not None for own in trials)

    def settle(self, findings: Findings) -> None:
        """Name the mends, if all together mend all."""
        if self.lost or any(own.early for own in self.every):
            return
        for own in reversed(self.every):
            findings.mended(own.finding, own.said, own.mend, own.change)
