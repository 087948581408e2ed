"""By how much an operand's address moves on: along K, from tile to tile or from instruction to instruction, and from row to row of a tile.

An address that moves by a wrong number of elements still moves evenly. So every step of every tile is tried, in each way that memory may go on: a few
outputs leave hardly any, and what is left is checked on all of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Any

import numpy as np

from tcsim.core.samples import repeatable
from tcsim.diagnosis.candidate import Candidate
from tcsim.diagnosis.maps import ADVANCE, SAME, TILES, Ints, Rule, pitched, within
from tcsim.diagnosis.problem import Problem
from tcsim.diagnosis.reals import Mask, Reals
from tcsim.diagnosis.solve import Solver

_TIMES = (1, 2, 3, 4, 6, 8, 12, 16, 32)  # instructions in a tile's K
_DEEP = (2, 4, 8, 16)  # instructions in a row of it
_SAMPLES = 10  # outputs that a step must give
_DRAWN = 96  # of which those are the largest
_ENDS = 48  # more at the ends of tiles, where those of different sizes differ
_LEFT = 4000  # steps that may be left after the first output; more tell nothing
_TRIED = 6  # that are tried on all outputs
_OTHERS = (1, 2, 4)  # lines of another extent that a tile may be taken for
BEHIND, AROUND, ALONG, ACROSS = "zeros", "the tile's beginning", "K-major", "MN-major"
_READ, _WRITTEN = "read with a pitch", "written with a pitch"  # each with the major behind it
_PITCHES = tuple(f"{which}, {major}" for which in (_READ, _WRITTEN) for major in (ALONG, ACROSS))
_PADDED = "{x}: pitch in shared memory wrong"
_TILE_ADVICE = "the start address of {x}'s descriptor, or of ldmatrix, moves on along K for each instruction: by its K in a K-major tile, by its K lines in an MN-major one"
_ADVICE = "look at the number by which the pointer or the coordinate of {x} moves on for each K tile, and at what it counts: elements, bytes, tiles"


@dataclass(frozen=True)
class Walk:
    """An operand's address, in a tile of `lines` x `deep` (in memory: the whole operand), that moves by `by` elements every `part` of K."""

    order: str  # in which elements lie, or what is behind the end
    part: int
    deep: int
    lines: int
    tiled: bool = True  # a tile in shared memory

    def where(self, by: Any, r: Ints, k: Ints, o: Ints | None = None) -> tuple[Ints, Ints]:
        """The line and the k that are read for (r, k); `by` may be an array."""
        row, at = r % self.lines, k % self.deep
        turn, inner = at // self.part, at % self.part
        if self.order in (BEHIND, AROUND):
            to = inner + turn * by
            return np.where((to < self.deep) | (self.order == AROUND), r, -1), k - at + to % self.deep
        if self.order in _PITCHES:
            written, read = self._pitches(by)
            return pitched(self.along, self.lines, self.deep, written, read, 0, r, k, r)
        place = turn * by + (row * self.deep + inner if self.along else inner * self.lines + row)
        line, to = (place // self.deep, place % self.deep) if self.along else (place % self.lines, place // self.lines)
        inside = (place >= 0) & ((line < self.lines) if self.along else (to < self.deep))
        return np.where(inside, r - row + line, -1), k - at + to

    def _pitches(self, by: Any) -> tuple[Any, Any]:
        """With which it is written and read."""
        return (self.right, by) if self.order.startswith(_READ) else (by, self.right)

    @property
    def along(self) -> bool:
        """Whether the elements of a line lie beside each other."""
        return self.order.endswith(ALONG)

    @property
    def right(self) -> int:
        """The step of a right kernel, or its pitch."""
        if self.order in _PITCHES:
            return self.deep if self.along else self.lines
        return self.part * self.lines if self.order == ACROSS else self.part

    def rule(self, by: int, bits: int, part: str) -> Rule:
        """The rule of reading by this step or pitch; bits: of an element, for what is said in bytes."""
        where = partial(self.where, by)
        if self.order in _PITCHES:
            written, read = self._pitches(by)
            lines = "row to row" if self.along else "k to k"
            said = f"tiles of {self.lines} x {self.deep} written with {written} elements from {lines}, read with {read}"
            return Rule(_PADDED, said, "one constant for the padded pitch of the tile of {x}", where, 5, part=part)
        if self.order == AROUND:
            said = f"inside each K tile of {self.deep} step s begins at {by} s modulo {self.deep}, not at {self.part} s: the index wraps"
            return Rule(ADVANCE, said, _TILE_ADVICE, where, 4, part=part)
        if self.tiled:
            said = (
                f"inside each tile of {self.lines} x {self.deep}, {self.order}, the address moves on by {_sized(by, bits)} for each "
                f"{self.part} along K, where its right step is {_sized(self.right, bits)}"
            )
            return Rule(ADVANCE, said, _TILE_ADVICE, where, 4, part=part)
        counted = _unit(by, self.part, bits) if self.order != ACROSS else ""
        if self.order == BEHIND:
            said = f"each K tile of {self.part} begins {by} further on along K than the one before, not {self.part}{counted}"
            said += f": K {self.part}-{by - 1} of every {by} is left out" if by > self.part else ""
            return Rule(ADVANCE, said, _ADVICE, where, 3, part=part)
        lie = "a line of K after another" if self.order == ALONG else "a line along M or N after another"
        said = (
            f"for each K tile of {self.part} the pointer moves on by {by} elements, not {self.right} ({lie}){counted}"
        )
        return Rule(ADVANCE, said, _ADVICE, where, 4, part=part)


def _sized(elements: int, bits: int) -> str:
    """A number of elements, and of bytes.

    >>> _sized(32, 16)
    '32 elements (64 bytes)'
    """
    return f"{elements} elements" + (f" ({elements * bits // 8} bytes)" if elements * bits % 8 == 0 else "")


def _unit(by: int, right: int, bits: int) -> str:
    """What a step may have been counted in."""
    if by == 1:
        return ": one element, as a coordinate that is given the number of the tile"
    if bits > 8 and by * 8 == right * bits:
        return ": its bytes, taken for elements"
    return ": in units of 16 bytes, taken for elements" if by * 128 == right * bits else ""


@dataclass(frozen=True)
class _Side:
    """One operand, as it lies in memory."""

    count: int  # lines that were given
    depth: int  # K that was given, of a sparse operand what is kept of it
    step: int  # of an instruction
    bits: int
    part: str  # of a rule: its scale factors or metadata do not move along
    padded: int  # K, with what pads it

    def whole(self, times: int, order: str) -> Walk:
        """The operand in memory, its address moving on once for each K tile of `times` instructions."""
        return Walk(order, times * self.step, self.depth, self.count, False)

    def tiles(self, deep: int, order: str) -> list[Walk]:
        """Tiles of each usual number of rows in shared memory, `deep` instructions long, the address moving on for each instruction."""
        return [Walk(order, self.step, deep * self.step, rows) for rows in TILES if rows < 2 * self.count]

    def rule(self, walk: Walk | None, by: Any, said: bool = True) -> Rule:
        """The rule of a step; without words that of several, (steps, 1). None: as it should be."""
        if walk is None:
            return SAME
        plain = Rule("", "", "", partial(walk.where, by), 0, part=self.part)
        found = walk.rule(by, self.bits, self.part) if said else plain
        return found if walk.tiled else within(found, self.depth, self.padded)


_Found = tuple[Walk | None, Walk | None, int]  # the steps of A and of B, by so much


def k_steps(problem: Problem, reals: Reals, open_: Mask) -> Iterator[Candidate]:
    """Steps of one operand or of both alike."""
    chosen = _chosen(reals, open_)[:, None]
    if not len(chosen):
        return
    solver, sides = Solver(problem, reals), _sides(problem, reals)
    left: list[_Found] = []
    for walks, by in _asked(*sides):
        left += _fitting(solver, sides, chosen[0], walks, by)
        if len(left) > _LEFT:
            return
    for place in chosen[1:]:
        asked = ((found, [[walk] if walk else [] for walk in found[:2]], np.array(found[2:])) for found in left)
        left = [found for found, ways, by in asked if found in _fitting(solver, sides, place, ways, by)]
    made = [Candidate(sides[0].rule(one, step), sides[1].rule(two, step)) for one, two, step in left]
    yield from sorted(made, key=lambda item: item.rank)[:_TRIED]


def _chosen(reals: Reals, open_: Mask) -> Ints:
    """Some wrong outputs of one matrix, those first that tell most, and those that tell how large a tile is."""
    known = open_ & reals.usable
    places = np.argwhere(known)
    if not len(places):
        return places
    random = repeatable()
    places = places[places[:, 0] == places[random.integers(len(places)), 0]]
    places = places[random.permutation(len(places))]
    ends = places[(places[:, 1:] % TILES[0] == TILES[0] - 1).any(axis=1)][:_ENDS]
    places = places[:_DRAWN]
    at = tuple(places.T)
    telling = np.abs((reals.observed - reals.c)[at]) / np.maximum(reals.reach[at], 1e-300)
    found: Ints = np.concatenate([places[np.argsort(-telling, kind="stable")[:_SAMPLES]], ends])
    return found


def _sides(problem: Problem, reals: Reals) -> tuple[_Side, _Side]:
    found = []
    for name, count in zip("ab", problem.sizes, strict=True):
        depth, step, lines = problem.length, problem.step, reals.lines(name)
        sparse = name == "a" and reals.kept is not None
        if sparse and reals.kept is not None:
            depth, step, lines = problem.machine.width(depth), problem.kept, reals.kept
        part = "data" if sparse or reals.factors is not None else ""
        found.append(_Side(count, depth, step, problem.machine.formats[name].bits, part, lines.shape[2]))
    return found[0], found[1]


def _asked(a: _Side, b: _Side) -> Iterator[tuple[tuple[list[Walk], list[Walk]], Ints]]:
    """Ways of both operands, and by how many elements."""
    depth, counts = max(a.depth, b.depth), (a.count, b.count)
    for times in _TIMES:
        if times * a.step < a.depth:
            for order in (BEHIND, ALONG):
                several = order == ALONG and 2 * times * a.step < a.depth
                lines = [times * side.step + more * side.depth for side in (a, b) for more in (1, 2)]
                by = np.union1d(np.arange(order == ALONG, depth), np.array(lines * several, np.int64))
                yield ([a.whole(times, order)], [b.whole(times, order)]), by
            part = times * b.step
            more = [part * times * extent for extent in (*counts, depth) for times in _OTHERS]
            yield (
                ([a.whole(times, ACROSS)], [b.whole(times, ACROSS)]),
                np.unique(np.array([*range(1, 2 * part), *more])),
            )
    chunk = 128 // max(a.bits, b.bits)
    for deep in _DEEP:
        if deep * a.step < 2 * a.depth:
            around = [[Walk(AROUND, side.step, deep * side.step, side.count)] for side in (a, b)]
            yield (around[0], around[1]), np.arange(0, deep * a.step, max(chunk, 1))
            for order in (ALONG, ACROSS, *_PITCHES):
                walks = a.tiles(deep, order), b.tiles(deep, order)
                most = max((walk.right for walk in walks[0] + walks[1]), default=0)
                unit = chunk if order in (ALONG, ACROSS) else chunk // 2
                start = 0 if order in (ALONG, ACROSS) else unit * deep
                yield walks, np.arange(start, most * (1 if order == ACROSS else 2) + 1, max(unit, 1))


def _fitting(
    solver: Solver, sides: tuple[_Side, _Side], place: Ints, walks: Sequence[list[Walk]], by: Ints
) -> Iterator[_Found]:
    """The steps that give an output: of A, of B, of both."""
    many, reals, at = np.repeat(place, len(by), axis=0), solver.reals, tuple(place[0])
    read = [
        [(walk, reals.read(name, many, (side.rule(walk, by[:, None], said=False),))[0]) for walk in (*own, None)]
        for name, side, own in zip("ab", sides, walks, strict=True)
    ]
    for (one, a), (two, b) in product(*read):
        fits = np.abs((a * b).sum(axis=1) - (reals.observed - reals.c)[at]) <= reals.reach[at]
        for walk in (one, two):
            fits &= walk is None or by != walk.right
        yield from ((one, two, int(step)) for step in by[fits])
