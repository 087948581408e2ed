"""Operands that are read through matrix descriptors: which elements they are, and the descriptors near by that would read others."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache, partial
from itertools import chain
from typing import Any, TypeVar

import numpy as np

from tcsim.core.errors import OperandError
from tcsim.descriptors.forms import form_of
from tcsim.descriptors.matrix import MatrixDescriptor
from tcsim.descriptors.tile_bytes import TileBytes, tile_bytes
from tcsim.layouts.swizzle import DESCRIPTOR_SWIZZLES, PATTERN_ROW
from tcsim.ptx.check.layout.tiles import NEAR, Mend, Source, View, dense_k
from tcsim.ptx.machine.arrays import Array

Made = TypeVar("Made")
UNIT = 16
"""Bytes that no swizzle parts."""
_FIELD = 16
"""Bytes that one is in a field of a descriptor."""
_STEPS = (128, 256, 512, 1024, 2048)
"""Values of LBO and SBO that are tried besides those that the place of other elements suggests."""
_STARTS = tuple(sign * 16 * step for step in (1, 2, 3, 4, 6, 8, 16, 32, 64) for sign in (-1, 1))
"""Bytes by which the start address is tried further on."""


def valid(make: Callable[..., Made], *given: Any, **named: Any) -> Made | None:
    """What is made of operands; None if they are not valid."""
    try:
        return make(*given, **named)
    except OperandError:
        return None


def _piece(tile: TileBytes, unit: int) -> int:
    """The bytes of a run that have an origin of their own: an element, or two bytes of narrower ones."""
    if unit == UNIT or tile.format.bits not in (4, 8, 16, 32):
        return tile.size
    return max(tile.format.container_bits // 8, 2)


def _elements(tile: TileBytes, unit: int) -> int:
    """The elements in them."""
    bits = tile.format.bits if tile.format.bits < 8 else tile.format.container_bits
    return _piece(tile, unit) * 8 // bits


def unknown(tile: TileBytes, unit: int) -> Array:
    """Origins of a tile of which none is known."""
    each = _elements(tile, unit)
    return np.zeros((tile.rows, tile.k // each) if tile.major == "K" else (tile.rows // each, tile.k), np.int64)


def origins_of(at: Array, unit: int, address: Array, tile: TileBytes) -> Array | None:
    """The origins (rows, columns) of a tile's pieces, 0 where they are not known, or lie outside memory; None if none is known."""
    if tile.size > UNIT:
        return None
    units, outside, rest = _units(address.tobytes(), address.dtype.str, tile.size, _piece(tile, unit), unit, len(at))
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


@dataclass(frozen=True, eq=False)
class Through(Source):
    """A tile as a descriptor reads it, of the origins `at` of units of bytes."""

    at: Array
    unit: int
    address: Array
    tile: TileBytes
    descriptor: int
    found: Array  # origins (rows, columns) of its pieces
    pitch: int

    @cached_property
    def own(self) -> MatrixDescriptor | None:
        """The descriptor; None for one that is not valid."""
        return valid(MatrixDescriptor.decode, self.descriptor, arch=self.tile.arch)

    def view(self, name: str, line: int, by: int, sparse: bool) -> View:
        """The tile as an operand. sparse: it has half of the elements."""
        tile, found = self.tile, self.found
        each, in_rows = _elements(tile, self.unit), tile.major == "K"
        k = np.arange(found.shape[1]) * (each if in_rows else 1)
        return View(
            name, found, dense_k(k, tile.format.bits) if sparse else k, each, "k" if in_rows else "rows", self.pitch, line, by, self,
            {"descriptor": hex(self.descriptor)}, self.own.start_address if self.own is not None else -1, descriptor=self.descriptor,
        )  # fmt: skip

    def mends(self) -> Iterator[Mend]:
        """Other descriptors, and where registers are followed other ways to have stored the tile."""
        own = self.own
        if own is None:
            return
        if self.unit < UNIT:
            yield from self._off_pattern(own)
        for rule, changed in self._candidates(own):
            yield from self._under(own, changed, rule)
        if self.unit < UNIT:
            yield from self._phases(own)
            for step in _STARTS:
                yield from self._started(own, step)
            yield from self.turned()

    def through(self, descriptor: int) -> Array | None:
        """The origins of the tile through another descriptor."""
        other = valid(self.tile.under, descriptor)
        return self._origins(other.address, other) if other is not None and other.size == self.tile.size else None

    def _origins(self, address: Array, tile: TileBytes) -> Array | None:
        return origins_of(self.at, self.unit, address, tile)

    def _under(
        self, own: MatrixDescriptor, changed: MatrixDescriptor, rule: str, how: Hashable = None
    ) -> Iterator[Mend]:
        """What is read through another descriptor."""
        encoded, fields = valid(changed.encode), _fields(own, changed)
        if encoded is not None:
            how, make = fields if how is None else how, partial(self.through, encoded)
            yield Mend(rule, _difference(own, changed), make, how, dict(fields))

    def _phases(self, own: MatrixDescriptor) -> Iterator[Mend]:
        """The tile as it was stored with another phase of the swizzle: the pieces of each row exchanged as those of another row are."""
        for rows in range(1, _rows(own)):
            said = f"the swizzle of what was stored {rows} row{'s' * (rows > 1)} back"
            yield Mend("DESC_SWIZZLE_MODE", said, partial(self._origins, self._exchanged(own, rows), self.tile))

    def _off_pattern(self, own: MatrixDescriptor) -> Iterator[Mend]:
        """The tile as it was stored with a swizzle that counts rows from where the tile begins, not from where the pattern does."""
        begins = own.start_address // PATTERN_ROW % _rows(own)
        if begins and not own.base_offset:
            period = DESCRIPTOR_SWIZZLES[own.swizzle].period
            said = f"the tile at a multiple of {period} bytes instead of {own.start_address}, or base offset {begins},"
            make = partial(self._origins, self._exchanged(own, -begins), self.tile)
            yield Mend("SWIZZLE_PHASE_1024", said, make, ("pattern", begins))

    def _exchanged(self, own: MatrixDescriptor, rows: int) -> Array:
        """Addresses with a swizzle that is some rows further."""
        mask, row = _rows(own) - 1, self.address // PATTERN_ROW
        found: Array = self.address ^ (row & mask ^ (row + rows) & mask) * UNIT
        return found

    def _started(self, own: MatrixDescriptor, step: int) -> Iterator[Mend]:
        """The tile from a start address some bytes further on."""
        start = own.start_address + step
        if step and start >= 0 and not start % 16:
            yield from self._under(own, replace(own, start_address=start), "DESC_START")

    def turned(self) -> Iterator[Mend]:
        """The tile with the other dimension along its lines, as the instruction or its descriptor says."""
        tile = self.tile
        major = "MN" if tile.major == "K" else "K"
        other = valid(tile_bytes, self.descriptor, tile.rows, tile.k, tile.format, major, tile.arch, tile.kind)
        if other is not None:
            said = f"{major}-major instead of {tile.major}-major"
            yield Mend("DESC_MAJOR", said, partial(self._origins, other.address, other))

    def shifts(self, target: Array) -> Iterator[Mend]:
        """The tile from where an element lies."""
        own, origin = self.own, int(target.flat[0])
        if own is None:
            return
        places = np.flatnonzero(self.at == origin // self.unit * self.unit) * self.unit + origin % self.unit
        begins = (own.start_address, int(self.address[0]))  # a swizzle may put the first element elsewhere
        near = [int(place) - begin for begin in begins for place in places if abs(int(place) - begin) <= NEAR]
        for step in dict.fromkeys((*near, *_STARTS)):
            yield from self._started(own, step)

    def again(self, key: Hashable) -> Mend | None:
        """A mend of another execution of the instruction."""
        own = self.own
        if own is None:
            return None
        if isinstance(key, tuple) and key and isinstance(key[0], tuple):
            fields: dict[str, Any] = dict(key)
            if "start_address" in fields:
                fields["start_address"] += own.start_address
            return next(self._under(own, replace(own, **fields), "", key), None)
        ways = chain(self._off_pattern(own), self._phases(own), self.turned())
        return next((way for way in ways if way.key == key), None)

    def _candidates(self, own: MatrixDescriptor) -> Iterator[tuple[str, MatrixDescriptor]]:
        """Descriptors that differ in little, the likeliest first."""
        begin, leading, stride = own.start_address, own.leading_byte_offset, own.stride_byte_offset
        # Divided by the unit of a field twice or never; counted in elements.
        for factor in (_FIELD, 1 / _FIELD, self.tile.format.container_bits / 8 / _FIELD):
            steps: dict[str, Any] = {"stride_byte_offset": int(stride * factor)}
            lines: dict[str, Any] = {"leading_byte_offset": int(leading * factor)}
            start: dict[str, Any] = {"start_address": int(begin * factor)}
            for change in (steps, lines, start, steps | lines, steps | lines | start):
                yield "DESC_UNITS", replace(own, **change)
        yield "DESC_LBO_SBO", replace(own, leading_byte_offset=stride, stride_byte_offset=leading)
        found = self.found if self.tile.major == "K" else self.found.T
        first, line = int(found.flat[0]), self.pitch or (int(found[1, 0] - found[0, 0]) if len(found) > 1 else 0)
        wanted = [first + step for step in (16, 32, 64, 128, 4 * line, 8 * line)]
        places = np.flatnonzero(np.isin(self.at, wanted)) * self.unit - own.start_address
        near = [int(place) for place in places[places > 0] if not place % UNIT]
        values = list(dict.fromkeys((*_STEPS, *near)))[:24]
        for value in values:
            yield "DESC_LBO_SBO", replace(own, stride_byte_offset=value)
            yield "DESC_LBO_SBO", replace(own, leading_byte_offset=value)
        modes = [mode for mode in form_of(self.tile.arch)[1].modes if mode != own.swizzle]
        for mode in modes:
            yield "DESC_SWIZZLE_MODE", replace(own, swizzle=mode)
        for mode in modes:
            span = DESCRIPTOR_SWIZZLES[mode].span
            yield "DESC_SWIZZLE_MODE", replace(own, swizzle=mode, stride_byte_offset=8 * span)
        for value in values:
            for other in values:
                yield "DESC_LBO_SBO", replace(own, leading_byte_offset=value, stride_byte_offset=other)
        for mode in modes:
            for value in values:
                yield "DESC_SWIZZLE_MODE", replace(own, swizzle=mode, stride_byte_offset=value)
                yield "DESC_SWIZZLE_MODE", replace(own, swizzle=mode, leading_byte_offset=value)


def _rows(own: MatrixDescriptor) -> int:
    """The rows of a swizzle's pattern."""
    return DESCRIPTOR_SWIZZLES[own.swizzle].span // UNIT if own.swizzle != "NONE" else 1


_NAMES = {
    "start_address": "start address",
    "leading_byte_offset": "LBO",
    "stride_byte_offset": "SBO",
    "swizzle": "swizzle",
}


def _fields(own: MatrixDescriptor, changed: MatrixDescriptor) -> tuple[tuple[str, Any], ...]:
    """What is different, whatever the start address is: that by how far it moves."""
    moved = changed.start_address - own.start_address
    rest = {name: getattr(changed, name) for name in _NAMES if getattr(changed, name) != getattr(own, name)}
    return tuple((rest | ({"start_address": moved} if moved else {})).items())


def _difference(own: MatrixDescriptor, changed: MatrixDescriptor) -> str:
    """What is different, in words: "SBO 1024 instead of 64"."""
    pairs = [(word, getattr(changed, name), getattr(own, name)) for name, word in _NAMES.items()]
    return " and ".join(f"{word} {new} instead of {old}" for word, new, old in pairs if new != old)
