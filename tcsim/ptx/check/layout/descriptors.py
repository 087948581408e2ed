"""Operands that are read through matrix descriptors: which elements they are, and the descriptors near by with which they are others."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any

import numpy as np

from tcsim.core.errors import OperandError
from tcsim.descriptors.forms import form_of
from tcsim.descriptors.matrix import MatrixDescriptor
from tcsim.descriptors.tile_bytes import TileBytes, tile_bytes
from tcsim.layouts.swizzle import DESCRIPTOR_SWIZZLES, PATTERN_ROW
from tcsim.ptx.check.layout.tiles import NEAR, Mend, View, dense_k
from tcsim.ptx.machine.arrays import Array

UNIT = 16
"""Bytes that no swizzle parts."""
_FIELD = 16
"""Bytes that one is in a field of a descriptor."""
_STEPS = (128, 256, 512, 1024, 2048)
"""Values of LBO and SBO that are tried besides those that the place of other elements suggests."""
_STARTS = tuple(sign * 16 * step for step in (1, 2, 3, 4, 6, 8, 16, 32, 64) for sign in (-1, 1))
"""Bytes by which the start address is tried further on."""


def piece(tile: TileBytes, unit: int) -> int:
    """The bytes of a run that have an origin of their own: an element, or two bytes of narrower ones."""
    if unit == UNIT or tile.format.bits not in (4, 8, 16, 32):
        return tile.size
    return max(tile.format.container_bits // 8, 2)


def elements_of(tile: TileBytes, size: int) -> int:
    """The elements in some bytes of a tile."""
    bits = tile.format.bits if tile.format.bits < 8 else tile.format.container_bits
    return size * 8 // bits


def origins_of(at: Array, unit: int, address: Array, tile: TileBytes) -> Array | None:
    """The origins (rows, columns) of a tile's pieces, 0 where they are not known, or lie outside memory; None if none is known."""
    if tile.size > UNIT:
        return None
    units, outside, rest = _units(address.tobytes(), address.dtype.str, tile.size, piece(tile, unit), unit, len(at))
    found = at[units]
    if outside is not None:
        found[outside] = 0
    known = found > 0
    if not known.any():
        return None
    if rest is not None:
        found += np.where(known, rest, 0)
    found = found.reshape(tile.lines, -1)
    return found if tile.major == "K" else found.T


@lru_cache(1024)
def _units(
    address: bytes, kind: str, size: int, each: int, unit: int, count: int
) -> tuple[Array, Array | None, Array | None]:
    """Of the pieces of accesses the units where they begin, which of those there are not (they stand as 0), and how far in they begin; None: none.

    address: an array's bytes, of a dtype; size: of each access; each: of its pieces; count: the units that there are.
    """
    places = (np.frombuffer(address, kind)[:, None] + np.arange(0, size, min(each, size))).reshape(-1)
    units, rest = np.divmod(places, unit)
    outside = units >= count
    return np.where(outside, 0, units), outside if outside.any() else None, rest if rest.any() else None


def view_of(
    name: str,
    at: Array,
    unit: int,
    address: Array,
    tile: TileBytes,
    descriptor: int,
    pitch: int,
    line: int,
    by: int,
    sparse: bool,
    blank: Callable[[], bool],
    found: Array | None,
) -> View | None:
    """A tile as an operand; None if nothing is known of it. sparse: it has half of the elements; blank: whether nobody has written it.

    found: its origins (`origins_of`).
    """
    each = elements_of(tile, piece(tile, unit))
    if found is None and (tile.size > UNIT or not blank()):
        return None
    if found is None:
        found = np.zeros((tile.rows, tile.k // each) if tile.major == "K" else (tile.rows // each, tile.k), np.int64)
    k = np.arange(found.shape[1]) * (each if tile.major == "K" else 1)
    k = dense_k(k, tile.format.bits) if sparse else k
    along = "k" if tile.major == "K" else "rows"

    def mends() -> Iterator[Mend]:
        return _mends(at, unit, address, tile, descriptor, view.lines, pitch)

    def turned() -> Iterator[Mend]:
        return _turned(at, unit, tile, descriptor)

    def shifts(target: Array) -> Iterator[Mend]:
        return _shifts(at, unit, tile, descriptor, int(address[0]), int(target.flat[0]))

    def through(other: int) -> Array | None:
        return _through(at, unit, tile, other)

    def again(key: Hashable) -> Mend | None:
        return _again(at, unit, address, tile, descriptor, key)

    own = _decoded(descriptor, tile.arch)
    detail, begin = {"descriptor": hex(descriptor)}, own.start_address if own is not None else -1
    view = View(
        name, found, k, each, along, pitch, line, by, mends, turned, shifts, detail, begin,
        again=again, descriptor=descriptor, through=through,
    )  # fmt: skip
    return view


def _decoded(descriptor: int, arch: str) -> MatrixDescriptor | None:
    try:
        return MatrixDescriptor.decode(descriptor, arch=arch)
    except OperandError:
        return None


def _through(at: Array, unit: int, tile: TileBytes, descriptor: int) -> Array | None:
    """The origins of a tile through another descriptor."""
    try:
        other = tile.under(descriptor)
    except OperandError:
        return None
    return origins_of(at, unit, other.address, other) if other.size == tile.size else None


def _under(
    at: Array, unit: int, tile: TileBytes, changed: MatrixDescriptor, rule: str, said: str, how: Hashable
) -> Iterator[Mend]:
    """What is read through another descriptor."""
    try:
        encoded = changed.encode()
    except OperandError:
        return
    yield Mend(rule, said, partial(_through, at, unit, tile, encoded), how)


def _mends(
    at: Array, unit: int, place: Array, tile: TileBytes, descriptor: int, lines: Array, pitch: int
) -> Iterator[Mend]:
    own = _decoded(descriptor, tile.arch)
    if own is None:
        return
    if unit < UNIT:
        yield from _off_pattern(at, unit, place, tile, own)
    for rule, changed in _candidates(at, unit, tile, own, lines, pitch):
        yield from _under(at, unit, tile, changed, rule, _difference(own, changed), _fields(own, changed))
    if unit < UNIT:
        yield from _phases(at, unit, place, tile, own)
        for step in _STARTS:
            yield from _started(at, unit, tile, own, step)
        yield from _turned(at, unit, tile, descriptor)


def _phases(at: Array, unit: int, place: Array, tile: TileBytes, own: MatrixDescriptor) -> Iterator[Mend]:
    """The tile as it was stored with another phase of the swizzle: the pieces of each row exchanged as those of another row are."""
    for rows in range(1, _rows(own)):
        said = f"the swizzle of what was stored {rows} row{'s' * (rows > 1)} back"
        yield Mend("DESC_SWIZZLE_MODE", said, partial(origins_of, at, unit, place ^ _exchanged(place, rows, own), tile))


def _off_pattern(at: Array, unit: int, place: Array, tile: TileBytes, own: MatrixDescriptor) -> Iterator[Mend]:
    """The tile as it was stored with a swizzle that counts rows from where the tile begins, not from where the pattern does."""
    begins = own.start_address // PATTERN_ROW % _rows(own)
    if begins and not own.base_offset:
        period = DESCRIPTOR_SWIZZLES[own.swizzle].period
        said = f"the tile at a multiple of {period} bytes instead of {own.start_address}, or base offset {begins},"
        make = partial(origins_of, at, unit, place ^ _exchanged(place, -begins, own), tile)
        yield Mend("SWIZZLE_PHASE_1024", said, make, ("pattern", begins))


def _rows(own: MatrixDescriptor) -> int:
    """The rows of a swizzle's pattern."""
    return DESCRIPTOR_SWIZZLES[own.swizzle].span // UNIT if own.swizzle != "NONE" else 1


def _exchanged(place: Array, rows: int, own: MatrixDescriptor) -> Array:
    """What is flipped in addresses by a swizzle that is some rows further."""
    mask, row = _rows(own) - 1, place // PATTERN_ROW
    found: Array = (row & mask ^ (row + rows) & mask) * UNIT
    return found


def _started(at: Array, unit: int, tile: TileBytes, own: MatrixDescriptor, step: int) -> Iterator[Mend]:
    """The tile from a start address some bytes further on."""
    start = own.start_address + step
    if step and start >= 0 and not start % 16:
        said = f"start address {start} instead of {own.start_address}"
        changed = _changed(own, start_address=start)
        yield from _under(at, unit, tile, changed, "DESC_START", said, _fields(own, changed))


def _turned(at: Array, unit: int, tile: TileBytes, descriptor: int) -> Iterator[Mend]:
    """The tile with the other dimension along its lines, as the instruction or its descriptor says."""
    major: Any = "MN" if tile.major == "K" else "K"
    try:
        other = tile_bytes(descriptor, tile.rows, tile.k, tile.format, major, tile.arch, tile.kind)
    except OperandError:
        return
    said = f"{major}-major instead of {tile.major}-major"
    yield Mend("DESC_MAJOR", said, partial(origins_of, at, unit, other.address, other))


def _shifts(at: Array, unit: int, tile: TileBytes, descriptor: int, address: int, origin: int) -> Iterator[Mend]:
    """The tile from where the element with an origin lies."""
    own = _decoded(descriptor, tile.arch)
    if own is None:
        return
    places = np.flatnonzero(at == origin // unit * unit) * unit + origin % unit
    begins = (own.start_address, address)  # a swizzle may put the first element elsewhere
    near = [int(place) - begin for begin in begins for place in places if abs(int(place) - begin) <= NEAR]
    for step in dict.fromkeys((*near, *_STARTS)):
        yield from _started(at, unit, tile, own, step)


def _candidates(
    at: Array, unit: int, tile: TileBytes, own: MatrixDescriptor, found: Array, pitch: int
) -> Iterator[tuple[str, MatrixDescriptor]]:
    """Descriptors that differ in little, the likeliest first."""
    leading, stride = own.leading_byte_offset, own.stride_byte_offset
    for factor in (_FIELD, 1 / _FIELD, tile.format.container_bits / 8 / _FIELD):  # twice or never divided; elements
        fields = (
            ("stride_byte_offset", stride),
            ("leading_byte_offset", leading),
            ("start_address", own.start_address),
        )
        changes = [{name: int(value * factor)} for name, value in fields]
        for change in (*changes, changes[0] | changes[1], changes[0] | changes[1] | changes[2]):
            yield "DESC_UNITS", _changed(own, **change)
    yield "DESC_LBO_SBO", _changed(own, leading_byte_offset=stride, stride_byte_offset=leading)
    first, line = int(found.flat[0]), pitch or (int(found[1, 0] - found[0, 0]) if len(found) > 1 else 0)
    wanted = [first + step for step in (16, 32, 64, 128, 4 * line, 8 * line)]
    places = np.flatnonzero(np.isin(at, wanted)) * unit - own.start_address
    near = [int(place) for place in places[places > 0] if not place % UNIT]
    values = list(dict.fromkeys((*_STEPS, *near)))[:24]
    for value in values:
        yield "DESC_LBO_SBO", _changed(own, stride_byte_offset=value)
        yield "DESC_LBO_SBO", _changed(own, leading_byte_offset=value)
    modes = [mode for mode in form_of(tile.arch)[1].modes if mode != own.swizzle]
    for mode in modes:
        yield "DESC_SWIZZLE_MODE", _changed(own, swizzle=mode)
    for mode in modes:
        span = DESCRIPTOR_SWIZZLES[mode].span
        yield "DESC_SWIZZLE_MODE", _changed(own, swizzle=mode, stride_byte_offset=8 * span)
    for value in values:
        for other in values:
            yield "DESC_LBO_SBO", _changed(own, leading_byte_offset=value, stride_byte_offset=other)
    for mode in modes:
        for value in values:
            yield "DESC_SWIZZLE_MODE", _changed(own, swizzle=mode, stride_byte_offset=value)
            yield "DESC_SWIZZLE_MODE", _changed(own, swizzle=mode, leading_byte_offset=value)


def _changed(own: MatrixDescriptor, **fields: Any) -> MatrixDescriptor:
    return replace(own, **fields)


_NAMES = {
    "start_address": "start address",
    "leading_byte_offset": "LBO",
    "stride_byte_offset": "SBO",
    "swizzle": "swizzle",
}


def _fields(own: MatrixDescriptor, changed: MatrixDescriptor) -> Hashable:
    """What is different, whatever the start address is: that by how far it moves."""
    moved = changed.start_address - own.start_address
    rest = {name: getattr(changed, name) for name in _NAMES if getattr(changed, name) != getattr(own, name)}
    return tuple((rest | ({"start_address": moved} if moved else {})).items())


def _again(at: Array, unit: int, place: Array, tile: TileBytes, descriptor: int, key: Hashable) -> Mend | None:
    """A mend of another execution of the instruction."""
    own = _decoded(descriptor, tile.arch)
    if own is None:
        return None
    if isinstance(key, tuple) and key and isinstance(key[0], tuple):
        fields = dict(key)
        fields |= {"start_address": own.start_address + fields["start_address"]} if "start_address" in fields else {}
        changed = _changed(own, **fields)
        found = _under(at, unit, tile, changed, "", _difference(own, changed), key)
    else:
        found = (
            own
            for way in (_off_pattern(at, unit, place, tile, own), _phases(at, unit, place, tile, own), _turned(at, unit, tile, descriptor))
            for own in way
            if own.key == key
        )  # fmt: skip
    return next(found, None)


def _difference(own: MatrixDescriptor, changed: MatrixDescriptor) -> str:
    """What is different, in words: "SBO 1024 instead of 64"."""
    said = [
        f"{word} {getattr(changed, name)} instead of {getattr(own, name)}"
        for name, word in _NAMES.items()
        if getattr(changed, name) != getattr(own, name)
    ]
    return " and ".join(said)
