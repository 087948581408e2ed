"""One copy of a box as pieces of memory: contiguous bytes of the tensor, contiguous bytes of shared memory, and how they correspond.

What `tcsim.tma.box` says byte by byte is put together here, so that a copy is a few long accesses. Leading dimensions are a batch.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from tcsim.core.addresses import Bytes
from tcsim.tma.box import WALK, BoxWalk, Flags, Integers, Places
from tcsim.tma.fields import TensorFields
from tcsim.tma.reduce import round_tf32
from tcsim.tma.types import NAN_FILL, SWIZZLE_MODES

CHUNK = 16
"""Bytes that a swizzle moves whole, but for the one that exchanges halves of them."""
SWIZZLE_PERIOD = 1024
"""After how many bytes of addresses every swizzle begins anew."""


@dataclass(frozen=True)
class Pieces:
    """Runs of `size` bytes: where each begins, and which of its bytes count."""

    address: Integers  # (..., pieces)
    size: int
    inside: Flags | None = None  # (..., pieces, size); None: all


def tensor_pieces(tmap: TensorFields, places: Places) -> Pieces:
    """The bytes of a box in the tensor, by offset from its address: a row each, or a slice of an interleaved layout.

    Together they are the box without padding, in the order of its elements.
    """
    size = tmap.unit.global_bytes
    if tmap.slice_bytes:
        offsets, inside = places.offsets(tmap.unit), places.inside
        flat = (*offsets.shape[:-2], offsets.shape[-2] * offsets.shape[-1])
        found, within = offsets.reshape(flat), inside.reshape(flat)[..., None]
    else:
        found = places.rows + places.units[..., :1] * size
        within = places.rows_inside[..., None] & np.repeat(places.units_inside, size, axis=-1)[..., None, :]
        size *= tmap.row_units
    return Pieces(found, size, None if within.all() else np.broadcast_to(within, (*found.shape, size)))


def shared_pieces(tmap: TensorFields, rows: int, start: Integers, padding: bool, walk: BoxWalk = WALK) -> Pieces:
    """The bytes of a box in shared memory, by address, for start addresses (...): chunks in the order of the elements.

    padding: whether the bytes that pad an element belong to it, as of a store; a load leaves them alone.
    """
    unit, mode = tmap.unit, SWIZZLE_MODES[tmap.swizzle]
    step = size = 8 if len(mode.parts) > 1 else CHUNK
    if unit.shared_bytes != unit.global_bytes:
        step = unit.shared_bytes
        size = step if padding else unit.global_bytes
    if start.size == 1:
        where = int(start.reshape(-1)[0])
        found = _chunks(walk, tmap, rows, step, where % SWIZZLE_PERIOD) + (where - where % SWIZZLE_PERIOD)
        return Pieces(found.reshape(*start.shape, -1), size)
    plain = _plain(walk, tmap, rows, step)
    return Pieces(walk.swizzled(mode, plain, start[..., None]), size)


def _plain(walk: BoxWalk, tmap: TensorFields, rows: int, step: int) -> Integers:
    """Where the chunks would be without a swizzle, after the start."""
    found = np.arange(rows)[:, None] * walk.pitch(tmap) + np.arange(0, tmap.row_bytes, step)
    return np.asarray(found).reshape(-1)


@lru_cache(maxsize=256)
def _chunks(walk: BoxWalk, tmap: TensorFields, rows: int, step: int, start: int) -> Integers:
    found = walk.swizzled(SWIZZLE_MODES[tmap.swizzle], _plain(walk, tmap, rows, step), np.asarray(start))
    found.flags.writeable = False
    return found


def shared_runs(tmap: TensorFields, rows: int, start: int, padding: bool) -> Runs:
    """The bytes of one box in shared memory as `shared_pieces` has them, joined to one run where they are one.

    What is computed of a start address is kept for the next box that begins like it.
    """
    kept = _shared_runs(tmap, rows, start % SWIZZLE_PERIOD, padding)
    return Runs(kept.address + (start - start % SWIZZLE_PERIOD), kept.size, kept.piece, kept.order)


@lru_cache(maxsize=256)
def _shared_runs(tmap: TensorFields, rows: int, start: int, padding: bool) -> Runs:
    return joined(shared_pieces(tmap, rows, np.asarray(start), padding))


@dataclass(frozen=True)
class Runs:
    """Pieces that were joined where they follow each other in memory: `order` puts the pieces' bytes in the order of memory."""

    address: Integers  # (runs,)
    size: int
    piece: int  # bytes of a piece
    order: npt.NDArray[np.intp] | None  # of the pieces; None: as they are

    def gathered(self, data: Bytes) -> Bytes:
        """Bytes of all pieces, in their order, as those of runs (runs, size)."""
        pieces = data.reshape(-1, self.piece)
        return (pieces if self.order is None else pieces[self.order]).reshape(len(self.address), self.size)

    def scattered(self, data: Bytes) -> Bytes:
        """Bytes of runs as those of pieces (pieces, size of a piece)."""
        pieces = data.reshape(-1, self.piece)
        if self.order is None:
            return pieces
        found = np.empty_like(pieces)
        found[self.order] = pieces
        return found


def joined(pieces: Pieces) -> Runs:
    """The pieces of one copy as a single run if they are one, in any order; else as they are."""
    first = int(pieces.address.min())
    rank, rest = np.divmod(pieces.address - first, pieces.size)
    count = len(rank)
    if rest.any() or int(rank.max()) != count - 1:
        return Runs(pieces.address, pieces.size, pieces.size, None)
    order = np.full(count, -1, np.intp)
    order[rank] = np.arange(count)
    if (order < 0).any():  # two pieces are one place
        return Runs(pieces.address, pieces.size, pieces.size, None)
    plain = bool((rank[1:] > rank[:-1]).all())
    return Runs(np.array([first]), count * pieces.size, pieces.size, None if plain else order)


def narrowed(pieces: Pieces) -> tuple[Pieces, tuple[npt.NDArray[np.intp], slice]]:
    """The pieces of one copy without the bytes that do not count: those that stay, and which (pieces, bytes) of the box they are.

    A mask stays only where what counts is not whole columns of some rows.
    """
    if pieces.inside is None:
        return pieces, (np.arange(len(pieces.address)), slice(0, pieces.size))
    rows = np.flatnonzero(pieces.inside.any(axis=1))
    if not len(rows):
        return Pieces(pieces.address[:0], pieces.size), (rows, slice(0, pieces.size))
    kept = pieces.inside[rows]
    columns = np.flatnonzero(kept[0])
    window = slice(int(columns[0]), int(columns[-1]) + 1)
    found = Pieces(pieces.address[rows] + window.start, window.stop - window.start)
    if not kept[:, window].all():
        found = Pieces(found.address, found.size, kept[:, window])
    return found, (rows, window)


def filling(tmap: TensorFields, size: int) -> Bytes:
    """What a load puts in place of `size` bytes outside the tensor."""
    if tmap.oob_fill == "NONE":
        return np.zeros(size, np.uint8)
    return np.resize(np.array([NAN_FILL], "<u2").view(np.uint8), size)


def converted(tmap: TensorFields, data: Bytes) -> Bytes:
    """What a load makes of bytes of the tensor (..., n), on their way."""
    if not tmap.type.rounds:
        return data
    return round_tf32(np.ascontiguousarray(data).view("<u4")).view(np.uint8)


def packed(tmap: TensorFields, data: Bytes) -> Bytes:
    """What a store makes of units with their padding (..., shared bytes): (..., global bytes)."""
    return pack6(data) if tmap.data_type == "16U6_ALIGN16B" else data


def pack6(found: Bytes) -> Bytes:
    """Units of 16 bytes whose low 6 bits count to the 12 bytes that they fill."""
    bits = np.unpackbits(found, axis=-1, bitorder="little").reshape(*found.shape[:-1], 16, 8)[..., :6]
    packed_bits: Any = bits.reshape(*found.shape[:-1], 96)
    return np.packbits(packed_bits, axis=-1, bitorder="little")
