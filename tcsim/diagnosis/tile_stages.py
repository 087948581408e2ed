"""Which K of one operand each output tile takes, where tiles differ: a persistent kernel's stage or phase that goes on from the tile before."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np

from tcsim.diagnosis.candidate import Candidate, of_operand
from tcsim.diagnosis.least_squares import in_parts, in_tile, solved_at, sources
from tcsim.diagnosis.maps import Rule
from tcsim.diagnosis.mixed import said_of
from tcsim.diagnosis.problem import Problem
from tcsim.diagnosis.reals import Ints, Mask, Reals
from tcsim.diagnosis.tile_sums import Tiles, grids

_MOST = 24  # units of K
_LISTED = 4  # tiles that are said one by one
_STAGE = "look at the stage and the phase with which a persistent kernel begins its next output tile: counted on by one side, and from 0 by the other"


def tile_stages(problem: Problem, reals: Reals, open_: Mask) -> Iterator[Candidate]:
    """Tiles that read the wrong units of K of one operand; the same in all of them is what other maps say."""
    if len(reals.a) > 1 or reals.positions is not None or reals.factors is not None:
        return
    depth = reals.a.shape[2]
    units = [size * problem.step for size in (8, 4, 2, 1) if 1 < -(-depth // (size * problem.step)) <= _MOST]
    for tiles in grids(problem, reals):
        for unit in units:
            mixing = _solved(reals, open_, tiles, unit)
            if mixing is None:
                continue
            for name, own in (("a", mixing.swapaxes(1, 2)), ("b", mixing)):
                source = sources(own)
                if source is not None:
                    yield of_operand(name, _rule(tiles, source, unit, depth, name))
            return


def _solved(reals: Reals, open_: Mask, tiles: Tiles, unit: int) -> Ints | None:
    """(tiles, units, units): whether a unit of A meets one of B; None if a tile has no such map."""
    a, b = (in_parts(x[0], unit) for x in (reals.a, reals.b))
    parts = a.shape[1]
    found = np.broadcast_to(np.eye(parts, dtype=np.int64), (tiles.count, parts, parts)).copy()
    for tile in range(tiles.count):
        rows, columns = tiles.inside(tile)
        if not open_[0][np.ix_(rows, columns)].any():
            continue
        chosen = in_tile(reals, rows, columns, parts**2)
        terms = None if chosen is None else a[chosen[:, 1]] @ b[chosen[:, 2]].swapaxes(1, 2)
        times = None if chosen is None or terms is None else solved_at(reals, chosen, terms, parts)
        if times is None or not np.isin(times, (0, 1)).all():
            return None
        found[tile] = times
    return found


def _rule(tiles: Tiles, source: Ints, unit: int, depth: int, name: str) -> Rule:
    said: dict[str, list[str]] = {}
    own = np.arange(source.shape[1])
    for tile, units in enumerate(source):
        if not np.array_equal(units, own):
            inner = np.where(units[:, None] < 0, -1, units[:, None] * unit + np.arange(unit)).reshape(-1)[:depth]
            said.setdefault(said_of(inner), []).append(tiles.said(tile))
    texts = [f"in {'; '.join(places[:_LISTED])} {text}" for text, places in said.items()]
    detail = "; ".join(texts[:_LISTED]) + (f"; and {len(texts) - _LISTED} more" if len(texts) > _LISTED else "")
    later = bool((source > own).any())  # a stage holds earlier tiles, not later ones
    where = partial(_at, tiles, source, unit, name)
    return Rule("K blocks of {x} mismatched in some tiles", detail, _STAGE, where, 4 + later, crosses=True)


def _at(tiles: Tiles, source: Ints, unit: int, name: str, r: Ints, k: Ints, o: Ints) -> tuple[Ints, Ints]:
    row, column = (r, o) if name == "a" else (o, r)
    down, across = tiles.grid
    tile = np.minimum(row // tiles.height, down - 1) * across + np.minimum(column // tiles.width, across - 1)
    part = source[tile, np.minimum(k // unit, source.shape[1] - 1)]
    return r, np.where(part < 0, -1, part * unit + k % unit)
