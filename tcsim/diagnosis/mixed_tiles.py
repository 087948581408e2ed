"""Tiles of one operand, of some lines and a part of K, in the place of others, where no rule says it: read off the outputs as whole weights.

One model for stages that hold another output tile, 8 x 8 matrices in another order, and swizzles of any pattern. Either every tile of the operand is
asked for, or those of a period of lines and of K, which repeat.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np

from tcsim.core.ranges import runs
from tcsim.diagnosis.candidate import Candidate, of_operand
from tcsim.diagnosis.least_squares import in_parts, in_tile, solved_at, sources
from tcsim.diagnosis.maps import LATE, TILES, Rule, in_units
from tcsim.diagnosis.problem import Problem
from tcsim.diagnosis.reals import Ints, Mask, Numbers, Reals
from tcsim.diagnosis.rules import stored_bits
from tcsim.diagnosis.where import listing, ranges

_ACROSS, _MOST = 8, 400  # tiles along lines or along K, and unknowns, at most
_LISTED = 4  # places of tiles that are said
ANY, OF_K, OF_LINES = "another", "another part of K", "other lines"
_STAGE = "look at the stage that is read and at the address in it, for these lines and this part of K"
_RING = "; the stages of a persistent kernel go on from one output tile to the next: look at the stage and its phase where a tile begins, and at copies for the next tile that are made too early"
_SWIZZLE = "writer and reader of the tile of {x} must use one swizzle, counted from one address"
_FRAGMENT = "look at the address that each lane passes to ldmatrix, and at the order of {x}'s registers"


@dataclass(frozen=True)
class Grid:
    """Tiles of lines x deep, `blocks` along the lines and `parts` along K, then all again; in the place of each may stand `others` of them."""

    name: str  # of the operand
    lines: int
    blocks: int
    deep: int
    parts: int
    others: str = ANY
    whole: bool = False  # the operand is one period

    @property
    def period(self) -> tuple[int, int]:
        """Lines and k."""
        return self.lines * self.blocks, self.deep * self.parts

    @property
    def unknowns(self) -> int:
        """Of one block."""
        return self.parts * (1 if self.others == OF_K else self.blocks) * (1 if self.others == OF_LINES else self.parts)

    def where(self, source: Ints, shape: tuple[int, int], r: Ints, k: Ints, o: Ints) -> tuple[Ints, Ints]:
        """The line and the k of a map of tiles; shape: lines and K of the operand."""
        (high, wide), (blocks, parts) = self.period, source.shape
        tile = source[r % high // self.lines % blocks, k % wide // self.deep % parts]
        line = r // high * high + tile // parts * self.lines + r % self.lines
        at = k // wide * wide + tile % parts * self.deep + k % self.deep
        return np.where((tile >= 0) & (line < shape[0]) & (at < shape[1]), line, -1), at


def mixed_tiles(problem: Problem, reals: Reals, open_: Mask) -> Iterator[Candidate]:
    """Those of every size that give the outputs."""
    if reals.kept is not None or len(reals.a) > 1:
        return
    found = set()
    for grid in _grids(problem):
        kind = grid.name, grid.others, grid.whole
        source = None if kind in found else _solved(problem, reals, open_, grid)
        if source is not None and not _of_k_alone(source):
            found.add(kind)
            count = problem.sizes["ab".index(grid.name)]
            where = partial(grid.where, source, (count, problem.length))
            part = "" if reals.factors is None else "data"
            yield of_operand(grid.name, Rule(*_said(grid, source, problem.length, count), where, 4, part=part))


def _of_k_alone(source: Ints) -> bool:
    """Whether the map is the same in all lines."""
    own = np.where(source < 0, -1, source - source.shape[1] * np.arange(len(source))[:, None])
    return bool((own == own[:1]).all())


def _grids(problem: Problem) -> Iterator[Grid]:
    depth = problem.length
    for deep in (times * problem.step for times in (8, 4, 2, 1)):
        for name, count in zip("ab", problem.sizes, strict=True):
            for lines in reversed(TILES):
                if deep < depth <= deep * _ACROSS and lines < count <= lines * _ACROSS:
                    yield Grid(name, lines, -(-count // lines), deep, -(-depth // deep), whole=True)
    for name, count in zip("ab", problem.sizes, strict=True):
        chunk = 128 // stored_bits(problem.machine.formats[name], problem.step)
        listed = [Grid(name, 8, 2, chunk, 2), Grid(name, 1, 8, max(chunk // 4, 1), 4)]
        for blocks in (2, 4, 8):
            listed += [
                Grid(name, lines, blocks, deep, 8, OF_K)
                for lines in (1, 2, 4, 8)
                for deep in (chunk, 2 * chunk, chunk // 2)
            ]
            listed += [Grid(name, chunk, blocks, deep, 8, OF_LINES) for deep in (1, 2)]
        yield from (grid for grid in listed if grid.period[0] <= count and grid.deep and grid.period[1] < 2 * depth)


def _solved(problem: Problem, reals: Reals, open_: Mask, grid: Grid) -> Ints | None:
    """(blocks, parts): the tile that stands in the place of each, numbered along K; -1 for none; None if it cannot be told."""
    axis, depth = "ab".index(grid.name), problem.length
    count, others = problem.sizes[axis], np.arange(problem.sizes[1 - axis])
    high, wide = grid.period
    lines = [x[0, :, :depth] for x in reals.bare or (reals.a, reals.b)]
    own = in_parts(lines[axis][:count], wide)
    own = np.pad(own, ((0, -count % high), (0, 0), (0, 0)))
    own = own.reshape(-1, grid.blocks, grid.lines, own.shape[1], grid.parts, grid.deep)
    every = np.arange(grid.blocks * grid.parts).reshape(grid.blocks, grid.parts)
    found: Ints = every.copy()

    def terms(block: int, chosen: Ints) -> Numbers:
        line, met = chosen[:, 1 + axis], lines[1 - axis][chosen[:, 2 - axis]]
        if reals.factors is not None:  # they stay where they are
            by = reals.factors[0][0, chosen[:, 1]] * reals.factors[1][0, chosen[:, 2]]
            met = met * np.repeat(by, reals.a.shape[2] // by.shape[1], axis=1)[:, :depth]
        other = in_parts(met, wide).reshape(len(met), -1, grid.parts, grid.deep)
        read = own[line // high, :, line % grid.lines]
        if grid.others == OF_K:
            return np.einsum("sxqu,sxpu->spq", read[:, block], other, optimize=True)
        if grid.others == OF_LINES:
            return np.einsum("sbxpu,sxpu->spb", read, other, optimize=True)
        return np.einsum("sbxqu,sxpu->spbq", read, other, optimize=True).reshape(len(chosen), grid.parts, -1)

    for block in range(grid.blocks):
        inside = np.flatnonzero(np.arange(count) // grid.lines % grid.blocks == block)
        rows, columns = (inside, others) if axis == 0 else (others, inside)
        if len(inside) and open_[0][np.ix_(rows, columns)].any():
            chosen = in_tile(reals, rows, columns, grid.unknowns) if grid.unknowns <= _MOST else None
            held = sources(solved_at(reals, chosen, partial(terms, block), grid.parts, grid.parts))
            if held is None:
                return None
            if grid.others == OF_K:
                held = np.where(held < 0, -1, held + block * grid.parts)
            elif grid.others == OF_LINES:
                held = np.where(held < 0, -1, held * grid.parts + np.arange(grid.parts))
            found[block] = held
    return found


def _said(grid: Grid, source: Ints, depth: int, count: int) -> tuple[str, str, str]:
    """(mistake, detail, advice)."""
    parts, what = grid.parts, "rows" if grid.name == "a" else "columns"
    tiles = f"tiles of {grid.lines} {what} x {grid.deep} along K"
    if not grid.whole:
        tiles = f"in every {grid.period[0]} {what} x {grid.period[1]} of K, {tiles}"
    pattern = _pattern(grid, source, what)
    if pattern:
        return "{x}: swizzle wrong", pattern, _SWIZZLE
    said = f"{tiles}: {listing(_places(grid, source, depth, count, what), _LISTED)}"
    if not grid.whole:
        matrices = "8 x 8 matrices" if grid.lines == 8 and grid.others == ANY else "elements"
        return f"{{x}}: {matrices} in another order", said, _FRAGMENT
    own = np.arange(source.size).reshape(source.shape)
    steps = np.unique((source - own)[(source != own) & (source >= 0)])
    across = bool((source // parts != own // parts).any())
    sure = bool((np.abs(steps) < (parts if (source < 0).any() else max(2, parts - 1))).all())
    ring = across and len(steps) == 1 and sure
    if ring:
        said += f"; as if one loop went through K and on to the next {what}, and each iteration read the tile of {_iteration(int(steps[0]))}"
    return LATE, said, _STAGE + _RING * ring


def _pattern(grid: Grid, source: Ints, what: str) -> str:
    """A swizzle in words: by what the number of a tile is exchanged or moved, in each line or k; empty if it is none."""
    if grid.others == ANY or (source < 0).any():
        return ""
    along_k = grid.others == OF_K
    to = (source % grid.parts).T if along_k else source // grid.parts  # (chunks, lines or k)
    at, by = np.arange(len(to))[:, None], to[0]
    one = what.removesuffix("s") if along_k else "k"
    size, every = (grid.deep, grid.lines) if along_k else (grid.lines, grid.deep)
    over = f"({one} / {every})" if every > 1 else one
    listed = f"x is {', '.join(map(str, by.tolist()))} for {over} % {len(by)} = 0-{len(by) - 1}"
    chunks = f"chunks of {size} {'along K' if along_k else what}"
    if np.array_equal(to, at ^ by):
        return f"{chunks}: in the place of chunk c is chunk c ^ x, where {listed}, on one side only"
    for turn in (2, 4, 8):
        if np.array_equal(to, at // turn * turn + (at + by) % turn):
            return f"{chunks}: they are rotated in each {turn}, by x, where {listed}, on one side only"
    return ""


def _places(grid: Grid, source: Ints, depth: int, count: int, what: str) -> list[str]:
    """What stands in the place of which tiles, those together that lie as far from it."""
    own = np.arange(source.size).reshape(source.shape)
    further = source // grid.parts - own // grid.parts, source % grid.parts - own % grid.parts
    texts: dict[str, None] = {}
    for block, part in np.argwhere(source != own):
        alike = (source < 0) == (source[block, part] < 0)
        for step in further if source[block, part] >= 0 else ():
            alike = alike & (step == step[block, part])
        at, k = (np.flatnonzero(alike.any(axis=axis)) for axis in (1, 0))
        if not alike[np.ix_(at, k)].all():  # those of one block of lines then
            at, k = np.array([block]), np.flatnonzero(alike[block])
        lines, inside = in_units(at, grid.lines), in_units(k, grid.deep)
        steps = (
            _further(int(further[0][block, part]) * grid.lines, what),
            _further(int(further[1][block, part]) * grid.deep, "of K"),
        )
        held = "nothing" if source[block, part] < 0 else f"what lies {' and '.join(filter(None, steps))}"
        texts[
            f"{what} {runs(tuple(lines[lines < count].tolist()))} have in K {ranges(inside[inside < depth])} {held}"
        ] = None
    return [*texts]


def _further(by: int, unit: str) -> str:
    return f"{abs(by)} {unit} {'further on' if by > 0 else 'before'}" if by else ""


def _iteration(by: int) -> str:
    """An iteration by its distance.

    >>> _iteration(-1), _iteration(2)
    ('the iteration before', 'the iteration 2 after')
    """
    return f"the iteration {f'{abs(by)} ' * (abs(by) > 1)}{'after' if by > 0 else 'before'}"
