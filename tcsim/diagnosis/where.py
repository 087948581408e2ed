"""Which outputs a mask holds, in words."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tcsim.core.ranges import runs
from tcsim.diagnosis.reals import Mask


def where_text(mask: Mask) -> str:
    """Matrices, rows and columns that hold any.

    >>> where_text(np.eye(4, dtype=bool)[None])
    'rows 0-3, columns 0-3'
    """
    texts = []
    if len(mask) > 1:
        texts.append(f"matrices {ranges(np.flatnonzero(mask.any(axis=(1, 2))))}")
    for name, axes in (("row", (0, 2)), ("column", (0, 1))):
        places = np.flatnonzero(mask.any(axis=axes))
        texts.append(f"{name}{'s' * (len(places) != 1)} {ranges(places)}")
    return ", ".join(texts)


def tiles_text(mask: Mask) -> str:
    """The same, with the tiles one after another where they are no rectangle.

    >>> tiles_text(np.kron(np.eye(2, dtype=bool), np.ones((16, 32), bool))[None])
    'rows 0-15, columns 0-31; rows 16-31, columns 32-63'
    """
    _, height, width = mask.shape
    padded = np.pad(mask.any(axis=0), ((0, -height % _EDGE), (0, -width % _EDGE)))
    held: Mask = np.any(padded.reshape(len(padded) // _EDGE, _EDGE, -1, _EDGE), axis=(1, 3))
    bands = [row.tobytes() for row in held]
    kinds = [kind for kind in dict.fromkeys(bands) if any(kind)]
    if len(mask) > 1 or not 1 < len(kinds) <= _TILES:
        return where_text(mask)
    texts = []
    for kind in kinds:
        lines = np.repeat([band == kind for band in bands], _EDGE)[:height]
        texts.append(where_text(mask & lines[:, None]))
    return "; ".join(texts)


def ranges(places: npt.NDArray[np.intp]) -> str:
    """Indices as ranges; of many, their period if they have one.

    >>> ranges(np.flatnonzero(np.arange(256) % 16 >= 8))
    '8-15 of every 16 in 0-255'
    """
    text = runs(tuple(int(x) for x in places))
    if text.count(",") < 3:
        return text
    last = int(places[-1]) + 1
    for period in _PERIODS:
        first, inside = int(places[0]) // period * period, np.unique(places % period)
        whole = np.add.outer(np.arange(first, last, period), inside).reshape(-1)
        if len(inside) < period and np.array_equal(whole, places):
            return f"{runs(tuple(int(x) for x in inside))} of every {period} in {first}-{last - 1 | period - 1}"
    return text if len(text) <= 60 else f"{len(places)} of {places[0]}-{last - 1}"


def beyond_diagonal(mask: Mask, held: Mask) -> str:
    """The side of a diagonal that a mask is, all of which is held; empty if it is none.

    >>> mask = np.tri(32, dtype=bool)[None]
    >>> beyond_diagonal(mask, mask), beyond_diagonal(~mask, ~mask)
    ('the triangle left of the diagonal, column <= row', 'the triangle right of the diagonal, column >= row + 1')
    """
    _, height, width = mask.shape
    off = np.arange(width) - np.arange(height)[:, None]
    own = off[mask.any(axis=0)]
    if len(np.unique(own)) < _DIAGONALS:
        return ""
    for first, said, sign in (
        (int(own.min()), "right of the diagonal, column >= row", 1),
        (int(own.max()), "left of the diagonal, column <= row", -1),
    ):
        side = sign * (off - first) >= 0
        partly = side.any(axis=1) & ~side.all(axis=1)
        if partly.sum() >= _DIAGONALS and held[:, side].all():
            return f"the triangle {said}" + (f" {'+' if first > 0 else '-'} {abs(first)}" if first else "")
    return ""


_EDGE, _TILES = 8, 4  # rows and columns of what is asked for; bands of tiles that are listed
_DIAGONALS = 8  # of a triangle, at least
_PERIODS = tuple(1 << power for power in range(1, 10))
