"""Which output tiles' sums, of which parts of K, each output tile holds: its own and others', read off the outputs as whole weights.

One model for what schedulers, split-K and stream-K get wrong: a tile stored in another's place, a workspace of another tile, accumulators that are
not cleared, slices that are missing, doubled or another tile's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import chain, islice, product
from typing import Any

import numpy as np
import numpy.typing as npt

from tcsim.core.ranges import runs
from tcsim.diagnosis.candidate import STORED, STORED_ADVICE
from tcsim.diagnosis.hypothesis import Hypothesis
from tcsim.diagnosis.least_squares import in_parts, in_tile, solved_at
from tcsim.diagnosis.maps import LINES, PARTS, in_units
from tcsim.diagnosis.pipelines import count_name
from tcsim.diagnosis.problem import Codes, Part, Problem
from tcsim.diagnosis.reals import Ints, Mask, Numbers, Reals
from tcsim.diagnosis.where import listing

_TILES = 64  # at most
_ACROSS = 8  # at most, along M and along N
_TERMS = 420  # unknowns of a tile
_LISTED = 4  # tiles that are said one by one
_EACH = 1.5  # outputs for each unknown
_OWN = "its sum"
_NOT_CLEARED = "accumulators not cleared between output tiles"
PARTIALS = "sums of another tile"
_OPERANDS = ((LINES, "a", "rows"), (LINES, "b", "columns"))
_C, _LOOK_C = "c of another block", "look at the block indices in the addresses that C is read from, and at beta"
_INDEX = "look at how the block indices go into the addresses of A and B, and into those of the store"
_PARTIALS = "look at which partial sums are added to a tile: the workspace index, the fix-up, and what clears them; or at accumulators (registers, columns of Tensor Memory) or stages that still hold an earlier tile"
_CARRIED = (
    "clear the accumulators, or set scale_d to 0, at the first K tile of every output tile of a persistent kernel"
)
_RANGES = "look at the range of K tiles that the kernel takes for these output tiles: splits, stream-K, and what clears or overwrites partial sums"


@dataclass(frozen=True)
class Tiles:
    """How an output of size (M, N) falls into tiles of height x width, numbered along N."""

    height: int
    width: int
    size: tuple[int, int]

    @property
    def grid(self) -> tuple[int, int]:
        """Along M and N."""
        return -(-self.size[0] // self.height), -(-self.size[1] // self.width)

    @property
    def count(self) -> int:
        """All of them."""
        return self.grid[0] * self.grid[1]

    def lines(self, tile: int) -> tuple[Ints, Ints]:
        """The rows and the columns of a tile, those behind the edge too."""
        y, x = divmod(tile, self.grid[1])
        return y * self.height + np.arange(self.height), x * self.width + np.arange(self.width)

    def inside(self, tile: int) -> tuple[Ints, Ints]:
        """The rows and the columns of a tile that the output has."""
        rows, columns = self.lines(tile)
        return rows[rows < self.size[0]], columns[columns < self.size[1]]

    def said(self, tile: int) -> str:
        """Where a tile lies."""
        rows, columns = self.inside(tile)
        return f"rows {rows[0]}-{rows[-1]}, columns {columns[0]}-{columns[-1]}"


@dataclass(frozen=True)
class TileSums(Hypothesis):
    """Each output tile as a sum of tiles' products over parts of K."""

    tiles: Tiles
    unit: int  # K of a part
    times: Ints  # (tiles, tiles, parts): how often each holds the product of a tile over a part
    of_c: Ints  # (tiles, tiles): how often each holds a tile of C
    with_c: bool  # C is not zero

    @property
    def in_place(self) -> bool:
        """Whether no tile holds another's product."""
        return not self.times[~np.eye(self.tiles.count, dtype=bool)].any()

    @property
    def full(self) -> bool:
        """Whether each tile holds all of its own sum, and all or nothing of others'."""
        own = np.eye(self.tiles.count, dtype=bool)
        return bool((self.times[own] == 1).all() and (self.times == self.times[:, :, :1]).all())

    @property
    def _moved(self) -> bool:
        """Whether each tile holds one tile's product as a whole, or nothing."""
        whole, first = (self.times == self.times[:, :, :1]).all(), self.times[:, :, 0]
        return bool(whole and np.isin(first, (0, 1)).all() and (first.sum(axis=1) <= 1).all())

    @cached_property
    def _before(self) -> npt.NDArray[np.int64] | None:
        """The tile whose accumulators each goes on from, -1 for none; None if the sums are not such chains."""
        own = np.eye(self.tiles.count, dtype=bool)
        if self.with_c or (self.times[own] != 1).any() or not np.isin(self.times, (0, 1)).all():
            return None
        held = self.times[:, :, 0] == 1
        if (self.times == self.times[:, :, :1]).all():
            last = [np.flatnonzero((held == (row & ~mine)).all(axis=1)) for row, mine in zip(held, own, strict=True)]
            count = held.sum(axis=1)
            if all(len(found) == 1 or more == 1 for found, more in zip(last, count, strict=True)):
                before = np.array([-1 if more == 1 else found[0] for found, more in zip(last, count, strict=True)])
                return before if len(np.unique(before[before >= 0])) == (before >= 0).sum() else None
        return None

    def names(self) -> list[tuple[str, str, str]]:
        """(mistake, detail, advice)."""
        own = np.eye(self.tiles.count, dtype=bool)
        said = f"tiles of {self.tiles.height} x {self.tiles.width}: {self._contents}"
        if self.in_place and self.full:
            return [(_C, said, _LOOK_C)]
        if self._moved:
            if self.with_c and not self.of_c[~own].any():  # the C of its own place
                if self.of_c[own].all():
                    return [(name.format(x=x, lines=lines), said, _INDEX) for name, x, lines in self._operands]
                said += "; c is read there too"  # what holds nothing holds no C either
            if not self.with_c and len(self._operands) == 1:
                ((_, x, lines),) = self._operands
                said += f"; or these {lines} of {x} are read there: C, which is zero here, would tell"
            return [(STORED, said, STORED_ADVICE)]
        if self.in_place:
            return [(f"{count_name(self.times[own])} in some tiles", said, _RANGES)]
        return [(_NOT_CLEARED, said, _CARRIED) if self.full else (PARTIALS, said, _PARTIALS)]

    @property
    def _operands(self) -> tuple[tuple[str, str, str], ...]:
        """The operands whose tiles are others: of tiles that come from their own row of tiles, B alone; from their own column, A."""
        held = self.times[:, :, 0]
        moved = np.flatnonzero(held.any(axis=1))
        source, across = held[moved].argmax(axis=1), self.tiles.grid[1]
        own = (moved % across == source % across).all(), (moved // across == source // across).all()
        return tuple(one for one, same in zip(_OPERANDS, own[::-1], strict=True) if not same) or _OPERANDS

    @property
    def _contents(self) -> str:
        """What tiles hold that is not their own, with other tiles by how far away they are where that takes fewer words."""
        number = np.arange(self.tiles.count)
        listed: list[dict[str, list[int]]] = []
        for order in (None, number, number.reshape(self.tiles.grid).T.reshape(-1)):
            place = None if order is None else np.argsort(order)
            listed.append({})
            for tile in number.tolist():
                listed[-1].setdefault(self._held(tile, partial(self._called, place, tile)), []).append(tile)
            listed[-1].pop(_OWN, None)
        fewest = min(listed, key=len)
        texts = sorted(fewest, key=lambda text: -len(fewest[text]))
        which = listed.index(fewest)
        along = 2 if which and self.tiles.grid[1] == 1 else which  # one tile after another is along M then
        said = listing([f"{self._those(fewest[text], (_LISTED, 2, 2)[which])} {text}" for text in texts], _LISTED)
        return said + ("", ", numbered along N", ", numbered along M")[along]

    def _called(self, place: Ints | None, tile: int, other: int) -> str:
        """Another tile. place: of each in an order, or None."""
        return self.tiles.said(other) if place is None else _neighbour(int(place[other] - place[tile]))

    def _those(self, tiles: list[int], most: int) -> str:
        if len(tiles) == self.tiles.count:
            return "each holds"
        few = len(tiles) <= most
        return f"{'; '.join(map(self.tiles.said, tiles)) if few else f'{len(tiles)} of {self.tiles.count}'} hold"

    def _held(self, tile: int, called: Callable[[int], str]) -> str:
        """What a tile holds. called: the words for another one."""
        if self.in_place and self.full:
            held = np.flatnonzero(self.of_c[tile]).tolist()
            if held == [tile] and self.of_c[tile, tile] == 1:
                return _OWN
            c = [f"{self.of_c[tile, one]} times its c" if one == tile else f"the c of {called(one)}" for one in held]
            return " plus ".join(c) or "no c"
        if self._before is not None:
            before = int(self._before[tile])
            return _OWN if before < 0 else f"sums that go on from those of {called(before)}"
        texts = [_OWN + "".join(self._counted(self.times[tile, tile]))] if self.times[tile, tile].any() else []
        for other in np.flatnonzero(self.times[tile].any(axis=1)).tolist():
            times = self.times[tile, other]
            if other != tile:
                part = "the sum" if times.all() else f"K {self._range(times != 0)}"
                texts.append(f"{part} of {called(other)}" + f", {times.max()} times" * int(times.max() > 1))
        return " plus ".join(texts) or "nothing"

    def _counted(self, own: Ints) -> Iterator[str]:
        for times in sorted(set(own.tolist()) - {1}):
            k = f"K {self._range(own == times)}"
            yield f" with {k} {times} times" if times else f" without {k}"

    def _range(self, parts: npt.NDArray[np.bool_]) -> str:
        return runs(tuple(in_units(np.flatnonzero(parts), self.unit).tolist()))

    def values(self, reals: Reals, matrix: int) -> Numbers:
        """What it predicts of a matrix, (M, N), up to rounding."""
        a, b, c = _padded(reals, matrix, self.tiles)
        found: Numbers = reals.right[matrix].copy()
        for tile in range(self.tiles.count):
            rows, columns = self.tiles.inside(tile)
            total = np.zeros((self.tiles.height, self.tiles.width))
            for other in np.flatnonzero(self.times[tile].any(axis=1) | (self.of_c[tile] != 0)):
                i, j = self.tiles.lines(int(other))
                weights = np.repeat(self.times[tile, other], self.unit)[: a.shape[1]]
                total += (a[i] * weights) @ b[j].T + self.of_c[tile, other] * c[np.ix_(i, j)]
            found[np.ix_(rows, columns)] = total[: len(rows), : len(columns)]
        return found

    def near(self, reals: Reals, matrix: int) -> Mask:
        """Which outputs of a matrix it gives, up to rounding: that of another tile's larger factors, or of more tiles, reaches further."""
        more = reals.factors is not None or (self.times.sum(axis=1) > 1).any()
        size = self.values(reals.absolute(), matrix) if more else 0.0
        return reals.near(self.values(reals, matrix), matrix, size)

    def codes(self, problem: Problem) -> Codes:
        """What it predicts of every output, bit for bit: one chain of sums, the others' first, or in the order of K."""
        found = (self._chained(problem, in_order) for in_order in (False, True))
        return max(found, key=lambda codes: int((codes == problem.observed).sum()))

    def _chained(self, problem: Problem, in_order: bool) -> Codes:
        bare = problem.bare
        out = bare.outputs.copy()
        kept: dict[int, Codes] = {}
        for tile in np.argsort(
            self.times.sum(axis=(1, 2)), kind="stable"
        ).tolist():  # those from which another goes on first
            rows, columns = self.tiles.inside(tile)
            others = [other for other in np.flatnonzero(self.times[tile].any(axis=1)).tolist() if other != tile]
            held = self._start(problem, tile)
            if self._before is not None:
                others, held = [], kept.get(int(self._before[tile]), held)
            parts = np.eye(self.times.shape[2], dtype=np.int64) if in_order else np.ones((1, 1), np.int64)
            for part, other in product(parts, (*others, tile)):
                held = self._added(bare, held, other, np.minimum(self.times[tile, other], 9) * part)
            kept[tile] = held
            out[0][np.ix_(rows, columns)] = held[: len(rows), : len(columns)]
        return problem.after_clamp(out)

    def _added(self, bare: Problem, held: Codes, tile: int, times: Ints) -> Codes:
        """Sums to which a tile's product over some parts of K is added."""
        each = self.unit // bare.step
        steps = (part * each + at for part in range(len(times)) for at in range(each) for _ in range(times[part]))
        order = tuple(step for step in steps if step < bare.blocks)
        if not order:
            return held
        i, j = (lines[:size] for lines, size in zip(self.tiles.lines(tile), held.shape, strict=True))
        a, b, c = _lines(bare.a[0], i)[None], _lines(bare.b[0].T, j).T[None], held[None]
        changed = replace(bare, a=a, b=b, c=c, observed=c, order=order, size=None, known=None)
        if bare.positions is not None:
            changed = replace(changed, positions=_lines(bare.positions[0], i)[None])
        if bare.scales is not None:
            scales = _lines(bare.scales[0][0], i)[None], _lines(bare.scales[1][0].T, j).T[None]
            changed = replace(changed, scales=scales)
        return changed.predict(Part(0, np.arange(held.shape[0]), np.arange(held.shape[1])))

    def _start(self, problem: Problem, tile: int) -> Codes:
        """The C that a tile holds, if it is one's; zeros otherwise."""
        held = np.flatnonzero(self.of_c[tile])
        start = np.zeros((self.tiles.height, self.tiles.width), problem.c.dtype)
        if len(held) == 1:
            i, j = self.tiles.lines(int(held[0]))
            start = _lines(_lines(problem.c[0], i).T, j).T
        return start


def _neighbour(step: int) -> str:
    """The tile that is so many further on.

    >>> _neighbour(-1), _neighbour(3)
    ('the previous one', 'block 3 further on')
    """
    if abs(step) == 1:
        return "the next one" if step == 1 else "the previous one"
    return f"block {abs(step)} {'further on' if step > 0 else 'before'}"


def _lines(source: npt.NDArray[Any], which: Ints) -> npt.NDArray[Any]:
    """Lines of an array, zeros behind its end."""
    inside = which < len(source)
    return np.where(inside[:, None], source[np.where(inside, which, 0)], source.dtype.type(0))


def _padded(reals: Reals, matrix: int, tiles: Tiles) -> tuple[Numbers, Numbers, Numbers]:
    """A, B and C with zeros up to whole tiles."""
    m, n = tiles.size
    below, right = tiles.grid[0] * tiles.height - m, tiles.grid[1] * tiles.width - n
    found = reals.a[matrix, :m], reals.b[matrix, :n], reals.c[matrix, :m, :n]
    if not below and not right:
        return found
    a, b, c = (
        np.pad(x, ((0, one), (0, two))) for x, one, two in zip(found, (below, right, below), (0, 0, right), strict=True)
    )
    return a, b, c


def grids(problem: Problem, reals: Reals) -> list[Tiles]:
    """Tiles of every size, few first."""
    size = problem.sizes
    sizes = [[each for each in reversed(PARTS) if each < extent <= each * _ACROSS] + [extent] for extent in size]
    every = sorted((Tiles(h, w, size) for h, w in product(*sizes)), key=lambda one: (one.count, -one.width))
    return [tiles for tiles in every if 1 < tiles.count <= _TILES]


def tile_sums(problem: Problem, reals: Reals, open_: Mask) -> Iterator[TileSums]:
    """Those of every size of tile that give the outputs, few tiles and whole K first."""
    depth = reals.a.shape[2]
    units = (depth, *(each * problem.step for each in (1, 2, 4, 8) if each * problem.step < depth))
    yield from islice(chain.from_iterable(_of_parts(problem, reals, open_, unit) for unit in units), 1)


def moved_tiles(problem: Problem, reals: Reals, open_: Mask) -> Iterator[TileSums]:
    """Whole tiles, or C of other ones, in a tile's place."""
    for found in _of_parts(problem, reals, open_, reals.a.shape[2]):
        if not found.in_place or found.of_c[~np.eye(found.tiles.count, dtype=bool)].any():
            yield found
            return


def _of_parts(problem: Problem, reals: Reals, open_: Mask, unit: int) -> Iterator[TileSums]:
    """Of one length of the parts of K."""
    for tiles in grids(problem, reals) if len(reals.a) == 1 else ():
        terms = tiles.count * -(-reals.a.shape[2] // unit)
        if terms <= _TERMS and terms * _EACH <= min(tiles.height, problem.sizes[0]) * min(
            tiles.width, problem.sizes[1]
        ):
            found = _solved(reals, open_, tiles, unit)
            if found is not None:
                yield found


def not_cleared(problem: Problem, reals: Reals, open_: Mask) -> Iterator[TileSums]:
    """Tiles that go on from others' sums, all of K; nothing is before the first tile."""
    if not open_[:, :8, :8].all():
        yield from (item for item in moved_tiles(problem, reals, open_) if item.full and not item.in_place)


def _solved(reals: Reals, open_: Mask, tiles: Tiles, unit: int) -> TileSums | None:
    """The weights of every tile; None if one has none."""
    a, b, c = _padded(reals, 0, tiles)
    a, b = (
        in_parts(x, unit).reshape(tiles.grid[axis], -1, -(-x.shape[1] // unit), unit) for axis, x in enumerate((a, b))
    )
    c = c.reshape(tiles.grid[0], tiles.height, tiles.grid[1], tiles.width)
    parts, with_c = a.shape[2], bool(c.any())

    def terms(chosen: Ints) -> Numbers:
        i, j = chosen[:, 1] % tiles.height, chosen[:, 2] % tiles.width
        found = np.einsum("yspu,xspu->syxp", a[:, i], b[:, j], optimize=True).reshape(len(i), -1, parts)
        return np.concatenate([found, c[:, i, :, j].reshape(len(i), -1, 1)], axis=2) if with_c else found

    times = np.zeros((tiles.count, tiles.count, parts), np.int64)
    times[range(tiles.count), range(tiles.count)] = 1
    of_c = np.eye(tiles.count, dtype=np.int64)
    count = [int(open_[0][np.ix_(*tiles.inside(tile))].sum()) for tile in range(tiles.count)]
    for tile in sorted(filter(count.__getitem__, range(tiles.count)), key=lambda one: -count[one]):
        chosen = in_tile(reals, *tiles.inside(tile), tiles.count * (parts + with_c))
        found = solved_at(reals, chosen, terms, usual=parts)
        if found is None:
            return None
        times[tile] = found[:, :parts]
        of_c[tile] += found[:, parts:].sum(axis=1)
        if min(times[tile].min(), of_c[tile].min()) < 0 or max(times[tile].max(), of_c[tile].max()) > 9:
            return None
    return TileSums(tiles, unit, times, of_c, with_c)
