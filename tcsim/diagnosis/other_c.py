"""Which element of C a wrong kernel may add to an output: that of another block, of one row or column, with another pitch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from tcsim.diagnosis.enough import enough
from tcsim.diagnosis.maps import SAME, Ints, Rule, line_rules, lines_from, memory_rules, pitched
from tcsim.diagnosis.reals import Mask, Numbers, at_places
from tcsim.diagnosis.rules import index_rules
from tcsim.diagnosis.where import described

_LEAST = 6  # outputs that tell an address of C
_SHARE = 0.7  # of the outputs that it must give
_PITCHES, _OFFSETS = 8192, 1 << 16  # that are tried at most
_ALIKE = 0.6  # the cosine of two lines
_TRIED = 2  # of each kind
_PLACE = "c read from another place"
_LOOK = "look at the addresses that C is read from: its leading dimension, and the indices of blocks and warps"
_WORDS = (("a line of K after another", "row by row"), ("a line along M or N after another", "column by column"))


@dataclass(frozen=True)
class OtherC:
    """Rules of rows, of columns and of addresses of a C that is (rows, columns)."""

    rows: tuple[Rule, ...]
    columns: tuple[Rule, ...]
    flat: tuple[Rule, ...]

    def read(self, c: Numbers, t: Ints, i: Ints, j: Ints) -> tuple[Numbers, list[Rule]]:
        """What each rule reads for some outputs, (rules, outputs), and the rules."""
        row = np.stack([rule.where(i, i * 0, j)[0] for rule in self.rows])
        column = np.stack([rule.where(j, j * 0, i)[0] for rule in self.columns])
        places = [(row[:, None] + 0 * column[None], column[None] + 0 * row[:, None])]
        found = [at_places(c, t, *places[0]).reshape(-1, len(t))]
        for rule in self.flat:
            found.append(at_places(c, t, *rule.where(i, j, i * 0))[None])
        return np.concatenate(found), [*(_both(one, two) for one in self.rows for two in self.columns), *self.flat]


def other_c(rows: int, columns: int) -> OtherC:
    """The rules of a C of this shape."""
    return OtherC(
        (SAME, *_lines(rows, columns)),
        (SAME, *_lines(columns, rows)),
        (*_flat(rows, columns), *_along_the_other_axis()),
    )


def c_addresses(c: Numbers, size: tuple[int, int], places: Ints, wanted: Numbers, reach: Numbers) -> Iterator[Rule]:
    """Pitches and pointers of any size that give what was added to some outputs, (n, 3); zeros behind the end of C."""
    t, i, j = places.T
    if np.count_nonzero(np.abs(wanted) > reach) < _LEAST:
        return
    given = c[:, : size[0], : size[1]]
    for k_first in (True, False):
        flat = (given if k_first else given.swapaxes(1, 2)).reshape(len(c), -1)
        outer, inner, right = (i, j, size[1]) if k_first else (j, i, size[0])
        count = flat.shape[1]
        pitches = np.setdiff1d(np.arange(1, min(count, _PITCHES)), [right])
        offs = np.setdiff1d(np.arange(1 - count, count), [0]) if count <= _OFFSETS else np.arange(0)
        for pitch, off in ((pitches, pitches * 0), (offs * 0 + right, offs)):
            for asked in (slice(_LEAST), slice(None)):
                at = pitch[:, None] * outer[asked] + inner[asked] + off[:, None]
                inside = (at >= 0) & (at < count)
                values = np.where(inside, flat[t[asked], np.where(inside, at, 0)], 0.0)
                fits = np.abs(values - wanted[asked]) <= reach[asked]
                good = fits.mean(axis=1) > (_SHARE if asked.stop is None else 0.4)
                known = (fits & inside & (np.abs(values) > reach[asked])).sum(axis=1) >= _LEAST
                pitch, off, known = pitch[good], off[good], known[good]
            for one in np.flatnonzero(known)[:_TRIED]:
                said = "row by row" if k_first else "column by column"
                where = partial(pitched, k_first, *size, right, int(pitch[one]), int(off[one]))
                name, said = (
                    ("{x}: pointer off", f"by {off[one]} elements ({said})")
                    if off[one]
                    else ("{x}: pitch wrong", f"{pitch[one]} elements for {right} ({said})")
                )
                yield Rule(name, said, _LOOK, where, 4)


def free_lines(c: Numbers, wanted: Numbers, open_: Mask) -> Iterator[Rule]:
    """Maps of rows and of columns of C that what was added to a matrix's outputs shows, c and wanted (M, N), where no rule is known."""
    for what, own, mine in (("rows", wanted, c), ("columns", wanted.T, c.T)):
        lines = nearest(own, mine)
        moved = int((lines != np.arange(len(lines))).sum())
        if moved and enough(int(open_.sum()), moved):
            rule = Rule(_PLACE, described(lines, what), _LOOK, partial(lines_from, lines), 3)
            yield _both(rule, SAME) if what == "rows" else _both(SAME, rule)


def nearest(values: Numbers, lines: Numbers) -> Ints:
    """For each row of values the line that it is most like; itself where it is like none."""
    size = np.linalg.norm(values, axis=1)[:, None] * np.linalg.norm(lines, axis=1)[None] + 1e-300
    alike = values @ lines.T / size
    found: Ints = np.where(alike.max(axis=1) > _ALIKE, alike.argmax(axis=1), np.arange(len(values)))
    return found


def _lines(count: int, others: int) -> Iterator[Rule]:
    yield from (rule for rule in line_rules(count, others) if rule.rank < 3)
    yield from index_rules(count)


def _flat(rows: int, columns: int) -> Iterator[Rule]:
    for rule in memory_rules(rows, columns, rows, 4, 16):
        if "coordinates" not in rule.mistake:
            detail = rule.detail
            for said, better in _WORDS:
                detail = detail.replace(said, better)
            yield replace(rule, detail=detail, advice=_LOOK)


def _along_the_other_axis() -> Iterator[Rule]:
    """A bias of columns that is added to rows, or the other way round."""
    for said, where in (
        ("row 0, column i", lambda r, k, o: (0 * (r + k), r + 0 * k)),
        ("row j, column 0", lambda r, k, o: (k + 0 * r, 0 * (r + k))),
    ):
        detail = f"output (row i, column j) has C of {said} added: the axes are exchanged"
        yield Rule(_PLACE, detail, _LOOK, where, 2)


def _both(one: Rule, two: Rule) -> Rule:
    said = "; ".join(f"{what}: {rule.detail}" for what, rule in (("rows", one), ("columns", two)) if rule is not SAME)
    return Rule(_PLACE, said, _LOOK, partial(_placed, one, two), one.rank + two.rank)


def _placed(one: Rule, two: Rule, r: Ints, k: Ints, o: Ints) -> tuple[Ints, Ints]:
    return one.where(r, k * 0, k)[0], two.where(k, r * 0, r)[0]
