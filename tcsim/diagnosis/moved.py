"""Outputs that are right and lie at another place: every value is looked up among those of the model, and addresses are read off where they lie."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import product

import numpy as np

from tcsim.core.samples import repeatable, some_of
from tcsim.diagnosis.candidate import CROSSED, STORED, Candidate
from tcsim.diagnosis.candidate import STORED_ADVICE as _LOOK
from tcsim.diagnosis.enough import enough, runs
from tcsim.diagnosis.hypothesis import Hypothesis
from tcsim.diagnosis.maps import LINES, PARTS, SAME, TILES, Rule, line_rules, lines_from, memory_rules
from tcsim.diagnosis.moved_rules import (
    MOST_GIVEN,
    OFFSET,
    PITCHES,
    START,
    late_rules,
    offset_rules,
    pitch_rules,
    staged_rules,
    store_rules,
    stored_with,
    turned_rules,
)
from tcsim.diagnosis.other_c import nearest
from tcsim.diagnosis.problem import Codes, Problem
from tcsim.diagnosis.reals import Ints, Mask, Numbers, Reals
from tcsim.diagnosis.where import MORE, described, ranges

_SAMPLES, _TRIED = 48, 6  # outputs that every rule is tried on first; rules that are reckoned out in full
_EITHER = "look at the block and warp indices in the addresses of {x}, and in those that the epilogue stores to"
_STRIDE = "; where a descriptor reads it: of every tile the first 8 lines alone arrive, so at its stride byte offset, which is in units of 16 bytes"
_LANES = "; in Tensor Memory, M = 64 fills the first 16 lanes of every 32 (of some layouts), and 32 lanes were read one after another"
_FIRST = 12  # of those outputs, on which every pair of rules is tried
_PLACES = 2048  # known places that every rule is tried on
_SHIFTS = (1, -1, 2, -2, 4, -4, 8, -8)  # of lines that are stored too far on, or not far enough

_Rules = tuple[list[Rule], list[Rule], list[Rule]]  # of rows, of columns, of both


@dataclass(frozen=True)
class Moved(Hypothesis):
    """Each output is the model's at another place: `rows` and `columns` are rules of lines, or `flat` is a rule of both."""

    rows: Rule = SAME
    columns: Rule = SAME
    flat: Rule | None = None
    alone: bool = False  # only the product: c is read at the place where it is stored

    @property
    def rank(self) -> int:
        """Smaller is simpler: more than one operand's rule, less than two."""
        return 1 + (self.flat.rank if self.flat else max(self.rows.rank, self.columns.rank))

    def names(self) -> list[tuple[str, str, str]]:
        """(mistake, detail, advice)."""
        with_c = "; c is read there too" if self.alone else ""
        if self.flat is not None:
            return [(self.flat.named("d"), self.flat.detail + with_c, self.flat.advice.format(x="d"))]
        said = [
            rule.detail if rule.mistake == OFFSET else f"{what}: {rule.detail}"
            for what, rule in (("rows", self.rows), ("columns", self.columns))
            if rule.detail
        ]
        both = CROSSED if self.rows.crosses and self.columns.crosses else ""
        crossed = (rule.advice for rule in (self.rows, self.columns) if rule.crosses)
        if self.offset:
            return [(OFFSET, "; ".join(said) + ("; c is added at its own place" if self.alone else ""), START)]
        return [(STORED, "; ".join(said) + both + with_c, "; ".join(dict.fromkeys((_LOOK, *crossed))))]

    @property
    def offset(self) -> bool:
        """Whether tiles are read beside their beginning: what is behind their end are zeros, to which C is added."""
        return OFFSET in (self.rows.mistake, self.columns.mistake)

    def as_lines(self, with_c: bool) -> Candidate | None:
        """The same as wrong lines of A and B, C staying where it is; None if it is not the same."""
        if self.flat is not None or (with_c and not self.alone) or STORED in (self.rows.mistake, self.columns.mistake):
            return None
        if self.offset and not self.alone:
            return None
        return Candidate(self.rows, self.columns)

    def source(self, shape: tuple[int, int]) -> tuple[Ints, Ints, Mask]:
        """The row and the column that each output comes from, and which come from anywhere."""
        i, j = np.meshgrid(*map(np.arange, shape), indexing="ij")
        if self.flat is not None:
            row, column = self.flat.where(i, j, i * 0)
        else:
            row, column = self.rows.where(i, j, j)[0], self.columns.where(j, i, i)[0]
        inside = (row >= 0) & (row < shape[0]) & (column >= 0) & (column < shape[1])
        return np.where(inside, row, 0), np.where(inside, column, 0), inside

    def values(self, reals: Reals, matrix: int) -> Numbers:
        """What it predicts of a matrix, (M, N); nothing where nothing was stored."""
        row, column, inside = self.source((reals.c.shape[1], reals.c.shape[2]))
        if self.alone:
            nothing = reals.c[matrix] if self.offset else np.nan
            return np.where(inside, reals.product[matrix][row, column] + reals.c[matrix], nothing)
        return np.where(inside, reals.right[matrix][row, column], np.nan)

    def near(self, reals: Reals, matrix: int) -> Mask:
        """Which outputs of a matrix it gives, up to rounding; where nothing was stored, those that are zero."""
        values = self.values(reals, matrix)
        found: Mask = self.given(reals, matrix) & (np.isfinite(values) | (reals.observed[matrix] == 0))
        return found

    def given(self, reals: Reals, matrix: int) -> Mask:
        """The same, where nothing was stored those that are next to zero. Rounding takes an output as far as at the place it comes from."""
        row, column, _ = self.source((reals.c.shape[1], reals.c.shape[2]))
        size = reals.reach[matrix][row, column] / reals.unit if reals.unit else 0.0
        return reals.near(np.nan_to_num(self.values(reals, matrix)), matrix, size)

    def stored(self, base: Codes, seen: Codes) -> Codes:
        """Codes of d, (batch, M, N), as they are stored: those that were seen where nothing is."""
        row, column, inside = self.source((base.shape[1], base.shape[2]))
        return np.where(inside, base[:, row, column], seen)


def moved(
    problem: Problem, reals: Reals, open_: Mask, given: Callable[[Moved], Mask] | None = None
) -> list[tuple[Moved, Mask]]:
    """The rules by which most open outputs are the model's of other places, and which each gives; none if they are few.

    given: which outputs a rule gives, if not those of `gives_of`.
    """
    matrix = int(open_.sum(axis=(1, 2)).argmax())
    shape = problem.sizes
    place = np.s_[matrix, : shape[0], : shape[1]]
    seen, reach, own = reals.observed[place], reals.reach[place], open_[place]
    rules = _line_rules(*shape, "rows"), _line_rules(shape[1], shape[0], "columns"), _flat_rules(shape)
    found: list[tuple[int, Moved, Mask]] = []
    for alone in (False, True)[: 1 + bool(reals.c.any())]:
        base, wanted = (reals.product[place], seen - reals.c[place]) if alone else (reals.right[place], seen)
        listed = _sampled(rules, base, wanted, reach, own) + overwritten(base, wanted, reach, own)
        places = None if listed else _places(base, wanted, reach, own)
        for one in listed if places is None else _candidates(rules, *places, shape):
            candidate = replace(one, alone=alone)
            gives = gives_of(candidate, problem, reals) if given is None else given(candidate)
            found.append((int((gives & open_).sum()), candidate, gives))
    most = max((count for count, _, _ in found), default=0)
    if most < max(8, open_.sum() // 20):
        return []
    return [(candidate, gives) for count, candidate, gives in found if count == most]


def gives_of(item: Moved, problem: Problem, reals: Reals) -> Mask:
    """Which outputs a rule gives, (batch, M, N): also those that nothing is stored to, if all hold one code, as memory did."""
    inside = item.source((reals.c.shape[1], reals.c.shape[2]))[2]
    kept = ~inside & problem.inside()
    codes = problem.observed[kept]
    given = (inside | item.offset) & np.stack([item.given(reals, t) for t in range(len(reals.c))])
    return given | kept if codes.size and (codes == codes[0]).all() else given


def line_maps(reals: Reals, open_: Mask) -> tuple[tuple[Rule, ...], tuple[Rule, ...]]:
    """Maps of A's rows and of B's columns that the data show where no rule is known, C staying where it is."""
    matrix = int(open_.sum(axis=(1, 2)).argmax())
    seen = reals.observed[matrix] - reals.c[matrix]
    product = reals.product[matrix]
    found: list[tuple[Rule, ...]] = []
    for name, values, mine in (("a", seen, product), ("b", seen.T, product.T)):
        lines = nearest(values, mine)
        rules = [zero_lines(reals, open_, name)]
        others = int((lines != np.arange(len(lines))).sum())
        if others and enough(int(open_[matrix].sum()), others):
            what = "rows" if name == "a" else "columns"
            rules.append(free_rule(lines, what))
            if rules[0] is not None:
                own = np.arange(len(lines))
                rules.append(free_rule(np.where(rules[0].where(own, own, own)[0] < 0, -1, lines), what))
        found.append(tuple(rule for rule in rules if rule is not None))
    return found[0], found[1]


def zero_lines(reals: Reals, open_: Mask, name: str) -> Rule | None:
    """Rows of A, or columns of B, that are zero: all their outputs are C; None if there are none, or no others."""
    across = 2 if name == "a" else 1
    zero: Mask = reals.finite & (np.abs(reals.observed - reals.c) <= reals.reach)
    lines = np.all(zero | ~open_, axis=(0, across)) & np.any(open_, axis=(0, across))
    theirs = int((open_ & np.expand_dims(lines, (0, across))).sum())
    if not lines.any() or lines.all() or not (runs(lines) == 1 or enough(theirs, 2 * runs(lines))):
        return None
    said = f"{'rows' if name == 'a' else 'columns'} {ranges(np.flatnonzero(lines))} of {name} are zero"
    given = lines[: 1 + int(np.flatnonzero(reals.finite.any(axis=(0, across)))[-1])]
    rest = given[int(given.argmax()) :]
    said += ", as of a block that begins past the end" if rest.all() and len(rest) >= 8 else ""
    advice = "look at which threads load {x} into shared memory, and at its box"
    core = any(np.array_equal(given, np.arange(len(given)) % tile >= 8) for tile in TILES)
    advice += _STRIDE if core else ""
    where = partial(lines_from, np.where(lines, -1, np.arange(len(lines))))
    return Rule("{x}: {lines} not loaded", said, advice, where, 2, lines_only=True)


def free_rule(lines: Ints, what: str) -> Rule:
    """A map of lines as a rule, with the map in words."""
    said, at = described(lines, what), np.arange(len(lines))
    spread = (np.where(at % 32 < 16, at - at % size + at % size // 32 * 16 + at % 32, -1) for size in TILES[1:])
    advice = _EITHER + _LANES * any(np.array_equal(lines, map_) for map_ in spread)
    return Rule(LINES, said, advice, partial(lines_from, lines), 5 if MORE in said else 3, lines_only=True)


def _places(right: Numbers, seen: Numbers, reach: Numbers, open_: Mask) -> tuple[Ints, Ints, Ints, Ints] | None:
    """(row, column, row of the model, column of the model) of open outputs whose value is the model's at exactly one place."""
    i, j = np.nonzero(open_)
    order = np.argsort(right.reshape(-1), kind="stable")
    values = right.reshape(-1)[order]
    low = np.searchsorted(values, seen[i, j] - reach[i, j])
    high = np.searchsorted(values, seen[i, j] + reach[i, j])
    once = high - low == 1
    if once.sum() < max(4, 0.2 * len(i)):
        return None
    place = order[low[once]]
    return i[once], j[once], place // right.shape[1], place % right.shape[1]


def _sampled(rules: _Rules, base: Numbers, seen: Numbers, reach: Numbers, open_: Mask) -> list[Moved]:
    """The rules that give nearly all of some open outputs, simplest first: also where many outputs are nearly equal."""
    shape = base.shape[0], base.shape[1]
    random = repeatable()
    i, j = np.concatenate(
        [where[random.permutation(len(where))[:_SAMPLES]] for where in map(np.argwhere, (open_, ~open_))]
    ).T
    wanted, far = seen[i, j], reach[i, j]
    count = min(_SAMPLES, int(open_.sum()))

    def same(row: Ints, column: Ints, which: slice = slice(None)) -> Mask:
        row, column = np.broadcast_arrays(row, column)
        inside = (row >= 0) & (row < shape[0]) & (column >= 0) & (column < shape[1])
        values = base[np.where(inside, row, 0), np.where(inside, column, 0)]
        found: Mask = np.where(inside, np.abs(values - wanted[which]) <= far[which], wanted[which] == 0)
        return found

    listed: list[tuple[bool, int, Moved]] = []
    opened = slice(0, count)
    late = late_rules(base, i[opened], j[opened], wanted[opened], far[opened])
    rows, columns, flat = rules
    for rule in (*flat, *late):
        fits = same(*rule.where(i, j, i * 0))
        if fits[:count].mean() >= MOST_GIVEN:
            listed.append((not fits.all(), Moved(flat=rule).rank, Moved(flat=rule)))
    row = np.stack([rule.where(i, i * 0, j)[0] for rule in rows])
    column = np.stack([rule.where(j, j * 0, i)[0] for rule in columns])
    few = slice(0, min(_FIRST, count))
    missed = (~same(row[:, None, few], column[None, :, few], few)).sum(axis=2)
    for one, two in np.argwhere(missed <= (1 - MOST_GIVEN) * count):
        fits = same(row[one], column[two])
        if fits[:count].mean() >= MOST_GIVEN:
            item = Moved(rows[one], columns[two])
            listed.append((not fits.all(), item.rank, item))
    listed.sort(key=lambda item: item[:2])  # those that hold everywhere first
    of_lines, of_both = ([item for _, _, item in listed if (item.flat is None) == one] for one in (True, False))
    return [*of_lines[:_TRIED], *of_both[:_TRIED]]


def _line_rules(count: int, others: int, what: str) -> list[Rule]:
    """Lines of the output that may stand in for others, or lie further on: then nothing is stored to the first ones."""
    shifted = (_shifted(by) for by in _SHIFTS if abs(by) < count)
    return [
        SAME,
        *line_rules(count, others),
        *shifted,
        *_overwriting(count),
        *_stepped(count),
        *offset_rules(count, what),
    ]


def _overwriting(count: int) -> Iterator[Rule]:
    """Parts of every block that are all stored where the first one belongs: a warp's index that is left out."""
    own = np.arange(count)
    for size, part in product((size for size in PARTS if size < 2 * count), PARTS):
        if part < min(size, count):
            said = (
                f"in every block of {size} all parts of {part} are stored in the place of the first: each is overwritten by the next, "
                "and the others' places are never written"
            )
            line = own + size - part
            source = np.where((own % size < part) & (line < count), line, -1)
            yield Rule(STORED, said, _LOOK, partial(lines_from, source), 2, lines_only=True)


def _stepped(count: int) -> Iterator[Rule]:
    """Blocks that are stored at multiples of another tile's size."""
    own = np.arange(count)
    for size, step in product((size for size in PARTS if size < count), PARTS):
        if step != size and step < 2 * count:
            over = (
                "each overwrites a part of the one before, and the end is never written"
                if step < size
                else "what lies between them is never written"
            )
            said = f"block i of {size} is stored at {step} i, as if its size were {step}: {over}"
            advice = _LOOK + _LANES * ((size, step) == (16, 32))
            block = np.minimum(own // step, -(-count // size) - 1)
            source = np.where(own - block * step < size, block * (size - step) + own, -1)
            yield Rule(STORED, said, advice, partial(lines_from, source), 2, lines_only=True)


def _shifted(by: int) -> Rule:
    said = f"moved by {abs(by)}, {'away from' if by > 0 else 'toward'} the first"
    return Rule(LINES, said, _EITHER, lambda r, k, o: (np.maximum(r - by, -1), k), 2, lines_only=True)


def _flat_rules(shape: tuple[int, int]) -> list[Rule]:
    """Outputs at other addresses: read as memory is, or stored with another pitch."""
    return [
        *turned_rules(shape),
        *memory_rules(*shape, shape[0], 8, 16),
        *pitch_rules(shape),
        *staged_rules(shape),
        *_fragment_rules(),
        *_tile_pitches(shape),
    ]


def _fragment_rules() -> Iterator[Rule]:
    """Accumulators of a 16 x 8 tile that are stored in the order of lanes or of registers."""
    advice = (
        "look at where an element of D's fragment belongs: lane / 4 is its row, two neighbours are in registers 0 and 1"
    )
    for said, by_lane in (
        ("each lane stores its four accumulators as four neighbours of the tile of 16 x 8, lane after lane", True),
        ("the accumulators are stored register after register into the tile of 16 x 8, of each all 32 lanes", False),
    ):
        yield Rule(STORED, said, advice, partial(_by_register, by_lane), 3)


def _by_register(by_lane: bool, r: Ints, k: Ints, o: Ints) -> tuple[Ints, Ints]:
    place = r % 16 * 8 + k % 8
    lane, register = (place // 4, place % 4) if by_lane else (place % 32, place // 32)
    return r // 16 * 16 + lane // 4 + register // 2 * 8, k // 8 * 8 + lane % 4 * 2 + register % 2


def _tile_pitches(shape: tuple[int, int]) -> Iterator[Rule]:
    """Tiles that are stored from their own place on with the pitch of a tile, the later over the earlier ones."""
    rows, columns = shape
    for height, width in ((16, 16), (16, 8), (32, 8), (8, 32), (32, 32), (64, 64)):
        if width < columns and height <= rows and rows % height == 0 and columns % width == 0:
            row, column = np.indices(shape)
            place = row // height * height * columns + column // width * width + row % height * width + column % width
            order = np.lexsort((column.reshape(-1), column.reshape(-1) // width, row.reshape(-1) // height))
            held = np.full(rows * columns, -1)
            held[place.reshape(-1)[order]] = order
            source = held.reshape(shape)
            said = f"tiles of {height} x {width} are stored with {width} elements from row to row, not {columns}: each over the next ones' rows, the later over the earlier"
            where = partial(
                _listed, np.where(source < 0, -1, source // columns), np.where(source < 0, 0, source % columns)
            )
            yield Rule(
                "{x}: pitch wrong", said, "look at the leading dimension that the epilogue stores with", where, 3
            )


def _candidates(rules: _Rules, i: Ints, j: Ints, row: Ints, column: Ints, shape: tuple[int, int]) -> Iterator[Moved]:
    every, kept = (i, j, row, column), repeatable().permutation(len(i))[:_PLACES]
    i, j, row, column = (x[kept] for x in every)
    rows, columns = _fitting(rules[0], i, j, row), _fitting(rules[1], j, i, column)
    if rows and columns:
        yield Moved(rows[0], columns[0])
    for rule in rules[2]:
        line, at = rule.where(i, j, i * 0)
        if ((line == row) & (at == column)).mean() >= MOST_GIVEN:
            yield Moved(flat=rule)
    i, j, row, column = every
    yield from (Moved(flat=rule) for rule in store_rules(i, j, row, column, shape))
    free = []
    for own, found, size, what in ((i, row, shape[0], "rows"), (j, column, shape[1], "columns")):
        usual = _usual(own, found, size)
        tells = enough(len(own), int((usual != np.arange(size)).sum()))
        free.append(free_rule(usual, what) if tells else None)
    for one in (rows[0] if rows else None, free[0]):
        for two in (columns[0] if columns else None, free[1]):
            if one is not None and two is not None:
                yield Moved(one, two)


def overwritten(base: Numbers, seen: Numbers, reach: Numbers, open_: Mask) -> list[Moved]:
    """Outputs stored with too small a pitch: of two rows that meet at an address, each output is the one that came last."""
    rows, columns = base.shape
    places = np.argwhere(open_)
    i, j = some_of(places, _SAMPLES).T
    found: list[Moved] = []
    for pitch in sorted({*range(max(columns - PITCHES, columns // 2), columns), columns // 2, rows}):
        if not 0 < pitch < columns:
            continue
        fits, _, _ = _last(base, seen, reach, pitch, i, j)
        if fits.mean() >= MOST_GIVEN:
            _, row, column = _last(base, seen, reach, pitch, *np.indices((rows, columns)))
            where = partial(_listed, row, column)
            found.append(Moved(flat=replace(stored_with(pitch, 0, (rows, columns)), where=where)))
    return found[:_TRIED]


def _last(base: Numbers, seen: Numbers, reach: Numbers, pitch: int, i: Ints, j: Ints) -> tuple[Mask, Ints, Ints]:
    """Whether one of the rows that meet at an output gives it, and where the nearest lies."""
    rows, columns = base.shape
    place = i * columns + j
    off = np.full(i.shape, np.inf)
    row, column = place // pitch, place % pitch
    for back in range(-(-columns // pitch)):
        line, at = place // pitch - back, place % pitch + back * pitch
        inside = (line >= 0) & (line < rows) & (at < columns)
        values = base[np.where(inside, line, 0), np.where(inside, at, 0)]
        own = np.where(inside, np.abs(values - seen[i, j]), np.inf)
        row, column = np.where(own < off, line, row), np.where(own < off, at, column)
        off = np.minimum(own, off)
    fits = np.where(np.isinf(off), seen[i, j] == 0, off <= reach[i, j])
    return fits, np.where(row < rows, row, -1), column


def _listed(row: Ints, column: Ints, r: Ints, k: Ints, o: Ints) -> tuple[Ints, Ints]:
    """The places of a list; none beyond it."""
    inside = (r < row.shape[0]) & (k < row.shape[1])
    r, k = np.where(inside, r, 0), np.where(inside, k, 0)
    return np.where(inside, row[r, k], -1), column[r, k]


def _fitting(rules: list[Rule], own: Ints, other: Ints, found: Ints) -> list[Rule]:
    shares = [(rule.where(own, own, other)[0] == found).mean() for rule in rules]
    good = [
        (-share, rule.rank, place)
        for place, (share, rule) in enumerate(zip(shares, rules, strict=True))
        if share >= MOST_GIVEN
    ]
    return [rules[place] for _, _, place in sorted(good)]


def _usual(own: Ints, found: Ints, size: int) -> Ints:
    """For each line the one that most of its outputs come from; itself where nothing is known."""
    counts = np.zeros((size, size), np.int64)
    np.add.at(counts, (own, found), 1)
    usual: Ints = counts.argmax(axis=1)
    return np.where(counts.any(axis=1), usual, np.arange(size))
