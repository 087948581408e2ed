"""What the TMA unit moves: loads, stores and reductions of a tensor map's boxes, on whole batches of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from tcsim.core.addresses import (
    Bytes,
    ContestedRowError,
    MisalignedCopyError,
    byte_memory,
    bytes_at,
    integer_addresses,
    require_alignment,
    require_inside,
    with_bytes_at,
)
from tcsim.core.arguments import as_array, broadcast
from tcsim.core.errors import listing
from tcsim.tma.box import WALK, BoxWalk, Integers, Places, pixel_range
from tcsim.tma.fields import TensorFields
from tcsim.tma.reduce import check_reduction, reduce_codes
from tcsim.tma.transfer import Pieces, converted, filling, packed, shared_pieces, tensor_pieces
from tcsim.tma.types import SWIZZLE_MODES, NotModelledError, TensorMapError, padded_swizzles

SHARED_ALIGNMENT = 128
"""What the address in shared memory must be a multiple of, in bytes (CUDA C++ Programming Guide, tensor memory access)."""
BOX_ALIGNMENT = 16
"""What the innermost coordinate must be a multiple of, in bytes (PTX ISA, bounding box; seen on an H200, no recording)."""


class CoordinateError(TensorMapError):
    """Coordinates of another shape or beyond 32 bits, or an im2col base outside the pixel box."""


class MisalignedCoordinateError(CoordinateError):
    """An innermost coordinate that does not fall on 16 bytes: CUDA_ERROR_ILLEGAL_INSTRUCTION on an H200."""


class StoreCoordinateError(CoordinateError):
    """A negative coordinate, or a pixel box beyond the tensor, of a store or reduction."""


class DirectionError(TensorMapError):
    """A data type or swizzle that has no load, or no store."""


WIDE_HALO = {"W": 511, "W128": 31}
"""The largest wHalo of .im2col::w and .im2col::w::128 (PTX ISA, cp.async.bulk.tensor)."""
WIDE_OFFSET = 31
"""The largest wOffset."""


@dataclass(frozen=True)
class Transfer:
    """One copy of a box, or a batch of them: the pieces of the tensor, by offset from its address, and those of shared memory."""

    tensor: Pieces
    shared: Pieces


Direction = Literal["load", "store"]


def transfer(
    tmap: TensorFields,
    direction: Direction,
    coordinates: Any,
    address: Any,
    offsets: Any = None,
    rows4: bool = False,
    op: str | None = None,
    walk: BoxWalk = WALK,
    call: str = "transfer",
) -> Transfer:
    """What a copy reads and writes, its operands checked. See `TensorMap.load` and `TensorMap.store`."""
    tensor, rows = tensor_side(tmap, direction, coordinates, offsets, rows4, op, walk, call)
    start = _start(address, call)
    broadcast([tensor.address.shape[:-1], start.shape], call)
    return Transfer(tensor, shared_pieces(tmap, rows, start, direction == "store", walk))


def tensor_side(
    tmap: TensorFields,
    direction: Direction,
    coordinates: Any,
    offsets: Any = None,
    rows4: bool = False,
    op: str | None = None,
    walk: BoxWalk = WALK,
    call: str = "transfer",
) -> tuple[Pieces, int]:
    """The pieces of the tensor that a copy touches, and how many rows its box has."""
    if op is not None:
        check_reduction(op, tmap.type, call)
    _require_modelled(tmap, direction, call)
    seen = walk.stored(tmap) if direction == "store" else tmap
    places = _places(seen, coordinates, offsets, rows4, walk, call)
    if direction == "store":
        _require_not_negative(tmap, coordinates, call)
    tensor = tensor_pieces(tmap, places)
    if direction == "store" and not _apart(tensor):
        _require_apart(tmap, places, call)
    return tensor, places.rows.shape[-1]


def one_tensor_side(
    tmap: TensorFields,
    direction: Direction,
    corner: Integers,
    offsets: Any = None,
    rows4: bool = False,
    op: str | None = None,
    call: str = "transfer",
) -> tuple[Pieces, int]:
    """As `tensor_side`, of one copy; of a tile wholly inside the tensor at once, from the tile before that differs in its place alone."""
    if not rows4 and offsets is None and not tmap.im2col_mode and not tmap.slice_bytes and len(corner) == tmap.rank:
        if op is not None:
            check_reduction(op, tmap.type, call)
        tile, at = _tile(tmap, direction), corner.tolist()
        if tile.apart and at[0] % tile.step == 0 and all(0 <= c <= last for c, last in zip(at, tile.last, strict=True)):
            offset = sum(c * stride for c, stride in zip(at[1:], tmap.global_strides, strict=True))
            offset += at[0] // tmap.unit.indices * tmap.unit.global_bytes
            return Pieces(tile.tensor.address + offset, tile.tensor.size), tile.rows
    return tensor_side(tmap, direction, corner, offsets, rows4, op, WALK, call)


def tiles(
    tmap: TensorFields, direction: Direction, corners: Integers
) -> tuple[int, list[tuple[Integers, Pieces]]] | None:
    """Of copies of tiles (copies, dimensions): the rows of a tile, and the pieces (copies, pieces) of those wholly inside the tensor, then of the others."""
    if tmap.im2col_mode or tmap.slice_bytes or corners.shape[-1] != tmap.rank:
        return None
    tile = _tile(tmap, direction)
    if not tile.apart or (corners[:, 0] % tile.step).any():
        return None
    outside = ((corners < 0) | (corners > tile.last)).any(1)
    whole, edge, found = np.flatnonzero(~outside), np.flatnonzero(outside), []
    if len(whole):
        offsets = corners[whole, 0].astype(np.int64) // tmap.unit.indices * tmap.unit.global_bytes
        offsets = offsets + corners[whole, 1:].astype(np.int64) @ np.array(tmap.global_strides, np.int64)
        found.append((whole, Pieces(tile.tensor.address + offsets[:, None], tile.tensor.size)))
    if len(edge):
        found.append((edge, tensor_side(tmap, direction, corners[edge])[0]))
    return tile.rows, found


def visible(tmap: TensorFields, corners: Integers) -> tuple[Integers, Integers]:
    """Of boxes of a tiled map (boxes, dimensions) where what lies in the tensor begins, and where it ends, counted from the corner.

    >>> rows = tcsim.TensorMap("UINT16", (16, 5), (32,), (8, 4), (1, 2), swizzle="NONE")
    >>> begin, end = visible(rows, np.array([[-3, -3], [8, 3]]))
    >>> begin.tolist(), end.tolist()
    ([[3, 2], [0, 0]], [[8, 2], [8, 1]])
    """
    steps = np.array(tmap.element_strides, np.int64)
    steps[0] = 1  # the innermost elements are loaded side by side
    ends = (np.array(tmap.global_dim) - corners + steps - 1) // steps
    return np.maximum(-(corners // steps), 0), np.minimum(ends, np.array(tmap.loaded))


@dataclass(frozen=True)
class _Tile:
    """The box of a tiled map at the tensor's beginning."""

    tensor: Pieces
    rows: int
    last: tuple[int, ...]  # the largest corner with which it lies inside the tensor
    step: int  # elements that the innermost coordinate is a multiple of
    apart: bool  # no two of its pieces overlap


@lru_cache(maxsize=256)
def _tile(tmap: TensorFields, direction: Direction) -> _Tile:
    _require_modelled(tmap, direction, f"{tmap}.{direction}")
    places = WALK.tiled(tmap, np.zeros(tmap.rank, np.int64))
    whole = replace(
        places, rows_inside=np.ones_like(places.rows_inside), units_inside=np.ones_like(places.units_inside)
    )
    tensor = tensor_pieces(tmap, whole)
    tensor.address.flags.writeable = False
    counts = zip(tmap.loaded[1:], tmap.element_strides[1:], tmap.global_dim[1:], strict=True)
    last = (tmap.global_dim[0] - tmap.loaded[0], *(size - 1 - (count - 1) * every for count, every, size in counts))
    step = tmap.type.dim_multiple if tmap.type.box else max(8 * BOX_ALIGNMENT // tmap.type.bits, 1)
    return _Tile(tensor, places.rows.shape[-1], last, step, direction == "load" or _apart(tensor))


def load(
    tmap: TensorFields,
    memory: Any,
    coordinates: Any,
    smem: Any,
    address: Any,
    offsets: Any = None,
    rows4: bool = False,
    walk: BoxWalk = WALK,
) -> Bytes:
    """Global to shared. See `TensorMap.load` and `TensorMap.gather4`."""
    call = f"{tmap}.{'gather4' if rows4 else 'load'}"
    _require_modelled(tmap, "load", call)
    image, source = byte_memory(smem, call), byte_memory(memory, call, "memory")
    moved = transfer(tmap, "load", coordinates, address, offsets, rows4, None, walk, call)
    tensor, shared = moved.tensor, moved.shared
    broadcast([part.shape[:-1] for part in (image, source, tensor.address, shared.address)], call)
    require_fits(tmap, tensor, shared, source.shape[-1], image.shape[-1], call)
    found = loaded(tmap, tensor, bytes_at(source, tensor.address, tensor.size, tensor.inside))
    return with_bytes_at(image, shared.address, found.reshape(*found.shape[:-2], shared.address.shape[-1], shared.size))


def store(
    tmap: TensorFields,
    memory: Any,
    coordinates: Any,
    smem: Any,
    address: Any,
    rows4: bool = False,
    op: str | None = None,
    walk: BoxWalk = WALK,
) -> Bytes:
    """Shared to global, combined by `op` if there is one. See `TensorMap.store`, `scatter4` and `reduce`."""
    call = f"{tmap}.{'reduce' if op is not None else 'scatter4' if rows4 else 'store'}"
    if op is not None:
        check_reduction(op, tmap.type, call)
    _require_modelled(tmap, "store", call)
    image, target = byte_memory(smem, call), byte_memory(memory, call, "memory")
    moved = transfer(tmap, "store", coordinates, address, None, rows4, op, walk, call)
    tensor, shared = moved.tensor, moved.shared
    broadcast([part.shape[:-1] for part in (image, target, tensor.address, shared.address)], call)
    require_fits(tmap, tensor, shared, target.shape[-1], image.shape[-1], call)
    found = packed(tmap, bytes_at(image, shared.address, shared.size))
    found = found.reshape(*found.shape[:-2], tensor.address.shape[-1], tensor.size)
    if op is not None:
        old = bytes_at(target, tensor.address, tensor.size, tensor.inside)
        found = combination(tmap, op)(old, found)
    return with_bytes_at(target, tensor.address, found, tensor.inside)


def loaded(tmap: TensorFields, tensor: Pieces, data: Bytes) -> Bytes:
    """What arrives of the bytes of pieces (..., pieces, size): converted, and filled where they lie outside the tensor."""
    found = converted(tmap, data)
    return found if tensor.inside is None else np.where(tensor.inside, found, filling(tmap, tensor.size))


def combination(tmap: TensorFields, op: str) -> Callable[[Bytes, Bytes], Bytes]:
    """What becomes of bytes of the tensor (..., size) when a reduction brings others: (old, new) -> bytes."""
    code = f"<u{tmap.type.bits // 8}"

    def combine(old: Bytes, new: Bytes) -> Bytes:
        parts = (np.ascontiguousarray(part).view(code) for part in (old, new))
        return reduce_codes(op, tmap.type, *parts).view(np.uint8)

    return combine


# --- operands


def _require_modelled(tmap: TensorFields, direction: str, call: str) -> None:
    _require_direction(tmap, direction, call)
    if tmap.slice_bytes and tmap.swizzle != ("32B" if tmap.slice_bytes == 32 else "NONE"):
        raise NotModelledError(
            f"{call}: not modelled: interleave={tmap.interleave!r} with swizzle={tmap.swizzle!r}: the driver takes it, but how far "
            "apart slices lie is neither documented nor measured; known: interleave='16B' without a swizzle, interleave='32B' "
            "with swizzle='32B'"
        )
    if tmap.slice_bytes and tmap.type.shared_bytes > tmap.type.global_bytes:
        raise NotModelledError(
            f"{call}: not modelled: {tmap.data_type} with interleave={tmap.interleave!r}: what is padded of a slice is "
            "neither documented nor measured"
        )


def _require_direction(tmap: TensorFields, direction: str, call: str) -> None:
    """Types and swizzles that the manual or the driver gives to one direction only."""
    if direction == "store" and tmap.type.load_only:
        raise DirectionError(f"{call}: {tmap.data_type} has no store (PTX ISA, restrictions on tensor copies)")
    if direction == "store" and SWIZZLE_MODES[tmap.swizzle].load_only:
        raise DirectionError(f"{call}: swizzle {tmap.swizzle} has no store (PTX ISA, swizzling modes)")
    modes = padded_swizzles(tmap.type).get(direction)
    if modes is not None and tmap.swizzle not in modes:
        raise DirectionError(
            f"{call}: {tmap.data_type} with swizzle {tmap.swizzle} has no {direction} (cuda.h); valid: {listing(modes)}"
        )


def _integers(name: str, given: Any, length: int, what: str, call: str) -> Integers:
    array = as_array(given, f"{call}: {name}", CoordinateError)
    if array.dtype.kind not in "iu" or array.shape[-1:] != (length,):
        raise CoordinateError(
            f"{call}: {name} is {array.dtype} {array.shape}; valid: integers (..., {length}), {what}, innermost first"
        )
    if array.size and (int(array.min()) < -(2**31) or int(array.max()) >= 2**31):
        raise CoordinateError(f"{call}: {name} beyond 32 bits; valid: -2**31 to 2**31 - 1")
    return array.astype(np.int64)


def check_start(address: int, call: str) -> None:
    """Raise MisalignedAddressError unless a box may begin at an address of shared memory."""
    if address % SHARED_ALIGNMENT:
        _start(address, call)


def _start(address: Any, call: str) -> Integers:
    start = integer_addresses(address, call, valid="an integer, or integers (...)")
    require_alignment(start, SHARED_ALIGNMENT, "in shared memory a box", call, each="", error=MisalignedCopyError)
    return start


def _places(tmap: TensorFields, coordinates: Any, offsets: Any, rows4: bool, walk: BoxWalk, call: str) -> Places:
    """The boxes at coordinates, which are checked."""
    if rows4:
        if tmap.im2col_mode or tmap.rank != 2 or tmap.box_dim[1] != 1:
            raise TensorMapError(
                f"{call}: valid: tiled maps of 2 dimensions with box_dim[1] = 1 (PTX ISA, tile::gather4)"
            )
        corners = _integers("coordinates", coordinates, 5, "the column and four rows", call)
    else:
        corners = _integers("coordinates", coordinates, tmap.rank, "one for each dimension", call)
    if not tmap.slice_bytes:  # where every index is 16 or 32 bytes
        _require_aligned(tmap, corners[..., 0], call)
    if offsets is not None and not tmap.im2col_mode:
        raise CoordinateError(f"{call}: offsets={offsets}: only im2col maps have them")
    if rows4:
        return walk.gathered(tmap, corners)
    if not tmap.im2col_mode:
        return walk.tiled(tmap, corners)
    if tmap.im2col_mode == "im2col_wide":
        return walk.im2col_wide(tmap, *_wide_operands(tmap, corners, offsets, call))
    return walk.im2col(tmap, *_im2col_operands(tmap, corners, offsets, call))


def _im2col_operands(tmap: TensorFields, corners: Integers, offsets: Any, call: str) -> tuple[Integers, Integers]:
    spatial = tmap.rank - 2
    given = np.zeros(spatial, np.int64) if offsets is None else offsets
    shifts = _integers("offsets", given, spatial, "one for each of W, H, D", call)
    most = (1 << {3: 16, 4: 8, 5: 5}[tmap.rank]) - 1
    if ((shifts < 0) | (shifts > most)).any():
        raise CoordinateError(f"{call}: offsets={np.asarray(offsets).tolist()}; rank {tmap.rank} has 0 to {most}")
    for place in range(spatial):
        low, high = pixel_range(tmap, place)
        base = corners[..., tmap.first_spatial + place]
        if ((base < low) | (base > high)).any():
            bad = int(base[(base < low) | (base > high)].flat[0])
            raise CoordinateError(
                f"{call}: {'WHD'[place]} coordinate {bad} is outside the pixel box, which reaches from {low} to {high}"
            )
    shape = broadcast([corners.shape[:-1], shifts.shape[:-1]], call)
    return np.broadcast_to(corners, (*shape, tmap.rank)), np.broadcast_to(shifts, (*shape, spatial))


def _wide_operands(tmap: TensorFields, corners: Integers, offsets: Any, call: str) -> tuple[Integers, int, Integers]:
    """Corners (..., rank), wHalo, and wOffset (...)."""
    given = _integers("offsets", np.zeros(2, np.int64) if offsets is None else offsets, 2, "wHalo and wOffset", call)
    halos, shifts = given[..., 0], given[..., 1]
    for name, values, most in (("wHalo", halos, WIDE_HALO[tmap.wide_mode]), ("wOffset", shifts, WIDE_OFFSET)):
        if ((values < 0) | (values > most)).any():
            raise CoordinateError(f"{call}: {name} in offsets={given.tolist()}; mode {tmap.wide_mode} has 0 to {most}")
    if halos.size == 0 or (halos != halos.flat[0]).any():
        raise CoordinateError(f"{call}: offsets={given.tolist()}; valid: one wHalo for all copies of a call")
    high = pixel_range(tmap, 0)[1]
    if (corners[..., 1] > high).any():
        bad = int(corners[..., 1][corners[..., 1] > high].flat[0])
        raise CoordinateError(
            f"{call}: W coordinate {bad} is beyond the pixel box, which ends at {high}; outside it a copy starts on the left "
            "only (PTX ISA)"
        )
    shape = broadcast([corners.shape[:-1], shifts.shape], call)
    return np.broadcast_to(corners, (*shape, tmap.rank)), int(halos.flat[0]), np.broadcast_to(shifts, shape)


def _require_aligned(tmap: TensorFields, column: Integers, call: str) -> None:
    bits = tmap.type.bits
    if tmap.type.box:  # of 128 elements
        wrong, need = column % tmap.type.dim_multiple != 0, f"a multiple of {tmap.type.dim_multiple} elements"
    else:
        wrong = column * bits % (8 * BOX_ALIGNMENT) != 0
        need = f"a multiple of {8 * BOX_ALIGNMENT // bits} elements of {tmap.data_type}"
    if wrong.any():
        bad = int(column[wrong].flat[0])
        raise MisalignedCoordinateError(
            f"{call}: coordinate {bad} of the innermost dimension is byte {bad * bits / 8:g} of the row, and it must fall on "
            f"{BOX_ALIGNMENT} bytes: anything else is an illegal instruction (CUDA_ERROR_ILLEGAL_INSTRUCTION, context lost, on "
            f"an H200); valid: {need}"
        )


def _require_not_negative(tmap: TensorFields, coordinates: Any, call: str) -> None:
    corners = np.asarray(coordinates)
    if (corners < 0).any():
        raise StoreCoordinateError(
            f"{call}: coordinate {int(corners[corners < 0].flat[0])}: stores and reductions start at coordinates that are "
            "not negative (PTX ISA, restrictions on tensor copies)"
        )
    if any(low < 0 for low in tmap.pixel_box_lower_corner) or any(high > 0 for high in tmap.pixel_box_upper_corner):
        raise StoreCoordinateError(
            f"{call}: pixel box from {tmap.pixel_box_lower_corner} to {tmap.pixel_box_upper_corner}: of stores it stays inside "
            "the tensor: lower corners not negative, upper corners not positive (PTX ISA, restrictions on tensor copies)"
        )


def _apart(tensor: Pieces) -> bool:
    """Whether no two pieces inside the tensor overlap, as far as their beginnings say."""
    order = np.sort(tensor.address, axis=-1)
    return bool((np.diff(order, axis=-1) >= tensor.size).all())


def _require_apart(tmap: TensorFields, places: Places, call: str) -> None:
    """No two units inside the tensor may be one place of it."""
    units, inside = _flat(places.offsets(tmap.unit)), _flat(places.inside)
    order = np.sort(np.where(inside, units, -1 - np.arange(units.shape[-1])), axis=-1)
    same = (order[..., 1:] == order[..., :-1]) & (order[..., 1:] >= 0)
    if same.any():
        raise ContestedRowError(
            f"{call}: two elements of the box are one place of the tensor, byte {int(order[..., 1:][same].flat[0])}: which of "
            "them stays is not defined; valid: strides with which rows of the box do not overlap"
        )


# --- bytes


def require_fits(tmap: TensorFields, tensor: Pieces, shared: Pieces, memory: int, image: int, call: str) -> None:
    """Raise OutsideMemoryError unless what a copy touches lies in memories of these numbers of bytes."""
    for end, last in zip(_ends(shared.address), (shared.size - 1, 0), strict=False):
        require_inside(end + last, 1, image, "a byte of the box", call, "shared address")
    unit = tmap.unit.global_bytes
    units = tensor.address[..., None] + np.arange(0, tensor.size, unit)
    where = (
        "memory, which must hold the tensor as far as the box touches it, of stores up to a multiple of 16 bytes a row"
    )
    for end in _ends(units if tensor.inside is None else units[tensor.inside[..., ::unit]]):
        require_inside(end, unit, memory, "an element of the tensor", call, "offset", where=where)


def _ends(addresses: Integers) -> list[Integers]:
    """The last and the first of some addresses."""
    return [np.asarray(end(addresses)) for end in (np.max, np.min)] if addresses.size else []


def _flat(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The last two axes as one."""
    return array.reshape(*array.shape[:-2], array.shape[-2] * array.shape[-1])
