"""What TMA reads for the box of a tile: pieces of global memory, and what it fills in where the box lies outside of the tensor.

A row of the box has up to three parts: what lies before the tensor, what lies in it, in units of 16 bytes, and what lies behind it. Parts are
cut where a line of shared memory ends; a row begins at a multiple of the swizzle's span there. A part in the tensor counts
the sectors of global memory that it touches, one outside the sectors of shared memory that it fills. A multicast counts at each block that gets the
box; there parts are cut where a line of global memory ends, too, a piece in the tensor counts at least 2 sectors, one outside at least 3, and a row whose last 16
bytes are not whole one more. An H200 counted what follows from that of 640 boxes of 640 (`python -m conformance.counters.boxes`): rows and columns
outside on either side, every swizzle, rows at every multiple of 16 bytes, one block, two and four.
"""

from __future__ import annotations

from math import prod

import numpy as np

from tcsim.layouts.coalescing import Rows, bulk_pieces, bulk_sectors
from tcsim.tma.map import TensorMap
from tcsim.tma.types import SWIZZLE_MODES

UNIT_BYTES = 16
"""Of which TMA moves whole ones."""
_LEAST = (2, 3)
"""Sectors of a piece in the tensor, and of one outside, that a multicast counts at least."""


def pieces(
    tmap: TensorMap, base: int, coordinates: Rows, shared: int, blocks: int = 1
) -> tuple[tuple[Rows, Rows], int] | None:
    """((where the pieces in the tensor begin, where they end), sectors that are counted of all) of a box; None for a map that was not measured.

    base: the tensor's address; shared: the box's in shared memory; blocks: how many get it.

    >>> rows = TensorMap("UINT8", (80, 4), (96,), (32, 2))
    >>> (starts, ends), sectors = pieces(rows, 0, np.array([64, 3]), 0)
    >>> starts.tolist(), ends.tolist(), sectors
    ([352], [368], 3)
    """
    if (
        tmap.im2col_mode
        or tmap.interleave != "NONE"
        or tmap.type.packed
        or any(own != 1 for own in tmap.element_strides)
    ):
        return None
    size, at = tmap.type.bits // 8, np.asarray(coordinates, np.int64)
    width, first = tmap.box_dim[0] * size, int(at[0]) * size
    before = min(width, max(0, -first))
    given = max(0, min(tmap.global_dim[0] * size, first + width) - max(0, first))
    inside = min(-(-given // UNIT_BYTES) * UNIT_BYTES, width - before)
    number = np.arange(prod(tmap.box_dim[1:]))
    there, starts = np.full(len(number), inside > 0), np.full(len(number), base + max(0, first))
    rows = np.unravel_index(number, tmap.box_dim[1:], order="F") if len(at) > 1 else ()
    for corner, row, dim, stride in zip(at[1:], rows, tmap.global_dim[1:], tmap.global_strides, strict=True):
        there &= (corner + row >= 0) & (corner + row < dim)
        starts = starts + (corner + row) * stride
    begins = shared + number * (SWIZZLE_MODES[tmap.swizzle].span or width)
    own = begins[there]
    outside = [(begins[~there], width), (own, before), (own + before + inside, width - before - inside)]
    found = _cut(starts[there], own + before, inside)
    counted, least = found, (0, 0)
    if blocks > 1:
        counted, least = bulk_pieces(found[0], found[1] - found[0], found[0]), _LEAST
    sectors = _sectors(counted, least[0]) + (least[0] > 0 and given % UNIT_BYTES > 0) * len(own)
    sectors += sum(_sectors(_cut(part, part, length), least[1]) for part, length in outside if length)
    return found, sectors * blocks


def _sectors(found: tuple[Rows, Rows], least: int) -> int:
    return int(np.maximum(bulk_sectors(*found), least).sum())


def _cut(starts: Rows, shared: Rows, length: int) -> tuple[Rows, Rows]:
    return bulk_pieces(starts, np.full(len(starts), length), shared)
