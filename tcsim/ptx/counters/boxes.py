"""What TMA asks for when it loads the box of a tile: pieces of global memory, and what it fills in where the box lies outside of the tensor.

A row of the box has up to three parts: what lies before the tensor, what lies in it, in units of 16 bytes, and what lies behind it. Parts are
cut where a line of shared memory ends; a row begins at a multiple of the swizzle's span there. A part in the tensor counts
the sectors of global memory that it touches, one outside the sectors of shared memory that it fills. A multicast counts at each block that gets the
box; there parts are cut where a line of global memory ends, too, a piece in the tensor counts at least 2 sectors, one outside at least 3, and a row whose last 16
bytes are not whole one more. An H200 counted what follows from that of 640 boxes of 640 (`python -m conformance.counters.boxes`): rows and columns
outside on either side, every swizzle, rows at every multiple of 16 bytes, one block, two and four.

L2 is asked for each of these pieces; by a multicast once for all blocks (320 boxes of 320). For one block pieces outside ask for places that no address tells:
if all ask for as many sectors, L2 takes four of them for one, each eight behind the other. Boxes with rows both in the tensor and outside
differ from that by some requests (180 boxes of 220 are equal).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import numpy as np

from tcsim.layouts.coalescing import SECTOR_BYTES, Rows, bulk_pieces, bulk_requests, bulk_sectors
from tcsim.tma.map import TensorMap
from tcsim.tma.types import SWIZZLE_MODES

UNIT_BYTES = 16
"""Of which TMA moves whole ones."""
_LEAST = (2, 3)
"""Sectors of a piece in the tensor, and of one outside, that a multicast counts at least."""
_JOINED, _APART = 4, 8
"""Pieces outside that L2 takes for one, and how many lie between two of them."""


@dataclass(frozen=True)
class Asked:
    """What the load of a box asks for: requests and sectors of L2, and the bytes that all blocks get. inside: whether it lies in the tensor."""

    requests: int
    sectors: int
    bytes: int
    inside: bool


def asked(tmap: TensorMap, base: int, coordinates: Rows, shared: int, blocks: int = 1) -> Asked | None:
    """What a load of a box asks for; None for a map that was not measured.

    base: the tensor's address; shared: the box's in shared memory; blocks: how many get it.

    >>> rows = TensorMap("UINT8", (80, 4), (96,), (32, 2))
    >>> asked(rows, 0, np.array([64, 3]), 0)
    Asked(requests=3, sectors=3, bytes=96, inside=False)
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
    cut = [_cut(part, part, length) for part, length in outside if length]
    filled = (
        np.concatenate([own for own, _ in cut] or [own[:0]]),
        np.concatenate([own for _, own in cut] or [own[:0]]),
    )
    if blocks > 1:
        found = bulk_pieces(found[0], found[1] - found[0], found[0])
        each = [np.maximum(bulk_sectors(*own), least).sum() for own, least in zip((found, filled), _LEAST, strict=True)]
        sectors = int(sum(each)) + (given % UNIT_BYTES > 0) * len(own)
        return Asked(len(found[0]) + len(filled[0]), sectors, sectors * blocks * SECTOR_BYTES, not len(filled[0]))
    inner, outer = bulk_sectors(*found), bulk_sectors(*filled)
    wanted = bulk_requests(*filled, True)
    if len(outer) and wanted.max() == 1 and outer.min() == outer.max():
        whole, rest = divmod(len(outer), _JOINED * _APART)
        wanted = wanted[: whole * _APART + min(rest, _APART)]
    requests = int(bulk_requests(*found, True).sum() + wanted.sum())
    sectors = int(inner.sum() + outer[: len(wanted)].sum())
    return Asked(requests, sectors, int(inner.sum() + outer.sum()) * SECTOR_BYTES, not len(outer))


def _cut(starts: Rows, shared: Rows, length: int) -> tuple[Rows, Rows]:
    return bulk_pieces(starts, np.full(len(starts), length), shared)
