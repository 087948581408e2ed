"""Where the bytes of shared memory and of Tensor Memory came from: of each unit of bytes an address in global memory, FILL, or 0: not known.

Every copy from global memory leaves, for each 16 bytes that it writes, the address in global memory that they had: that says which logical
element they are, whatever swizzle or layout they lie in. Where registers are followed, each two bytes have an origin, or each byte where threads
store single ones; in Tensor Memory always each two bytes. Work in flight leaves origins where it writes.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from tcsim.model.effects import Access
from tcsim.ptx.check.layout import tags
from tcsim.ptx.check.layout.descriptors import UNIT
from tcsim.ptx.check.layout.tiles import FILL, Mend, Source, View, pitch_of, pitch_of_pieces
from tcsim.ptx.check.places import shares
from tcsim.ptx.check.state import State
from tcsim.ptx.machine.arrays import Array
from tcsim.ptx.machine.block import Block
from tcsim.ptx.machine.flights import Flight
from tcsim.ptx.machine.tensor_memory import COLUMNS
from tcsim.ptx.machine.threads import RANK_SHIFT

_NOTHING: Array = np.zeros(1, np.int64)


class Origins:
    """The origins in the shared memories of a cluster, or in its Tensor Memories, by rank of the block."""

    def __init__(self, state: State, unit: int, tensor: bool = False) -> None:
        """unit: the bytes that have an origin of their own."""
        self.state, self.unit, self.tensor = state, unit, tensor
        self.at: dict[int, Array] = {}
        self.by: dict[int, Array] = {}  # the instruction that copied them
        self.pitch: dict[int, Array] = {}  # bytes from a row of the tensor to the next, where the copy had rows

    def forget(self, rank: int, offsets: Array, size: int) -> None:
        """Something else is written: it has no origin."""
        at = self.at.get(rank)
        if at is None:
            return
        if size <= self.unit and not (offsets & (size - 1)).any() and not size & (size - 1):
            units = offsets // self.unit
            at[units if int(units.max()) < len(at) else units[units < len(at)]] = 0
        else:
            touched = offsets[:, None] // self.unit + np.arange((size + 2 * self.unit - 2) // self.unit)
            at[touched[(touched * self.unit < offsets[:, None] + size) & (touched < len(at))]] = 0

    def note(self, rank: int, places: Array, origins: Array, size: int, line: int, pitch: int = 0) -> None:
        """Some bytes at places have origins, from their first one on."""
        if rank not in self.at:
            block = self.state.blocks[rank]
            bytes = block.spaces.columns.bytes if self.tensor else block.threads.shared_bytes
            count = -(-bytes // self.unit)
            self.at[rank], self.pitch[rank] = np.zeros(count, np.int64), np.zeros(count, np.int64)
            self.by[rank] = np.zeros(count, np.int32)
        if size > self.unit:
            step = np.arange(0, size, self.unit)
            places = (places[:, None] + step).reshape(-1)
            origins = np.where(origins[:, None] > 0, origins[:, None] + step, origins[:, None]).reshape(-1)
        units = places // self.unit
        inside = units < len(self.at[rank])
        if not inside.all():
            units, origins = units[inside], origins[inside]
        self.at[rank][units] = origins
        self.by[rank][units], self.pitch[rank][units] = line, pitch

    def lookup(self, addresses: Array) -> Array:
        """The origins of addresses, which have the rank above: 0 where nothing is known."""
        found = np.zeros(addresses.shape, np.int64)
        for rank in np.unique(addresses >> RANK_SHIFT).tolist():
            own = addresses >> RANK_SHIFT == rank
            found[own] = self.of(rank, addresses[own] & 0xFFFFFF)
        return found

    def of(self, rank: int, offsets: Array) -> Array:
        """The origins of bytes of one memory; 0 where there is none, or no such byte."""
        at, units = self.at.get(rank, _NOTHING), offsets // self.unit
        inside = (units >= 0) & (units < len(at))
        found = np.where(inside, at[np.where(inside, units, 0)], 0)
        return np.where(found > 0, found + offsets % self.unit, found)

    def where(self, origins: Array, rank: int) -> Array | None:
        """Where elements lie in the shared memory of a block: the last place of each; None if one is nowhere."""
        at = self.at.get(rank)
        if at is None or not (origins > 0).all():
            return None
        order = np.argsort(at, kind="stable")
        place = np.searchsorted(at[order], origins, side="right") - 1
        found = order[place]
        return found * self.unit | rank << 24 if (at[found] == origins).all() else None

    def nearest(self, origin: int, near: int) -> int | None:
        """The shared address of an element that is nearest to another address; None if it lies nowhere."""
        at = self.at.get(near >> RANK_SHIFT & 0xFF, next(iter(self.at.values()), None))
        if near < 0 or at is None:
            return None
        found = np.flatnonzero(at == origin // self.unit * self.unit) * self.unit
        if not len(found):
            return None
        nearest = int(found[np.argmin(abs(found - (near & 0xFFFFFF)))])
        return near & ~0xFFFFFF | nearest + origin % self.unit

    def in_one_array(self, found: Array) -> bool:
        """Whether all that is known comes from one array in global memory."""
        known, segment = found[found > 0], self.state.memory.segment
        return not len(known) or segment(int(known.min())) is segment(int(known.max()))


_COLUMN = 4
_STEPS = tuple(sign * step for step in (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128) for sign in (-1, 1))
"""Columns by which the address is tried further on."""


def places_of(accesses: Sequence[Access]) -> Array:
    """Where the elements (rows, columns) of an operand lie in Tensor Memory, in bytes; of several copies the first."""
    layout: Any = accesses[0].cells
    words = np.concatenate([(own.address[:, None] + np.arange(0, own.size, _COLUMN)).reshape(-1) for own in accesses])
    found: Array = (words[layout.word] + layout.cells[3] * layout.element_bits // 8)[0, 0]
    return found


def in_columns(cells: Origins, accesses: Sequence[Access], rank: int, line: int) -> View | None:
    """A in Tensor Memory; None if nothing is known of it. cells: the origins there, as tcgen05.st and tcgen05.cp put them."""
    layout: Any = accesses[0].cells
    if rank not in cells.at or layout.element_bits < 8:
        return None
    place = places_of(accesses)
    found = cells.of(rank, place)
    if not (found > 0).any():
        return None
    by = int(cells.by[rank][int(place.flat[0]) // cells.unit])
    first = int(accesses[0].address.flat[0]) // _COLUMN % COLUMNS
    return View("A", found, np.arange(found.shape[1]), 1, "k", 0, line, by, Column(cells, rank, place, first))


@dataclass(frozen=True, eq=False)
class Column(Source):
    """Where an operand lies: the bytes of its elements, from a column on."""

    cells: Origins
    rank: int
    place: Array
    first: int

    def mends(self) -> Iterator[Mend]:
        """Other columns."""
        for step in _STEPS:
            if self.first + step >= 0:
                said = f"column {self.first + step} instead of {self.first}"
                make = partial(self.cells.of, self.rank, self.place + _COLUMN * step)
                yield Mend("TMEM_COLUMN", said, make, ("column", step))

    def shifts(self, target: Array) -> Iterator[Mend]:
        """As of `mends`."""
        return self.mends()

    def again(self, key: Hashable) -> Mend | None:
        """One of these."""
        return next((own for own in self.mends() if own.key == key), None)


_MARK = np.uint64(0x9E3779B97F4A7C15)
_SHARED = ("shared", "generic")


class Copies:
    """The work of one cluster."""

    def __init__(self, origins: Origins, cells: Origins | None) -> None:
        """cells: of Tensor Memory, where registers are followed."""
        self.origins, self.cells = origins, cells
        self._values: dict[int, Array] = {}  # by flight: the origins of registers that it stores (halves, threads)

    def held(self, flight: Flight, values: Array) -> None:
        """Work stores registers: their origins."""
        self._values[id(flight)] = values

    def landing(self, flight: Flight, line: int) -> None:
        """Work is about to write: a copy leaves the origins of its bytes, other work none."""
        writes = flight.pending.writes
        shared = any(own.space in _SHARED for own in writes)
        if shared and not self._units(flight, line) and not self._bytes(flight, line):
            for access in writes:
                if access.space in _SHARED:
                    self._put(flight.block, access, None, UNIT, line)
        if any(own.space == "tmem" for own in writes):
            self._bytes(flight, line)

    def _pitch(self, address: Array, size: int) -> int:
        """The bytes from one row of a tensor to the next, of what a copy reads; 0 if it has none."""
        return pitch_of(address) or (pitch_of_pieces(address, size) if self.cells is not None else 0)

    # --- whole units

    def _units(self, flight: Flight, line: int) -> bool:
        """Whether work is a copy of whole units, or of a box that lies beyond its tensor."""
        pending, data, pitch = flight.pending, flight.data, 0
        source = [own for own in pending.reads if own.space in ("global", "generic")]
        if not isinstance(data, np.ndarray):
            return False
        if len(source) == len(pending.reads) == 1:
            address, _ = flight.block.octets.places(source[0])
            numbered = _numbered(address, data, source[0].mask)
            if numbered is None:
                return False
            pitch, data = self._pitch(address.astype(np.int64), source[0].size), numbered
        elif pending.reads:
            return False
        writes = pending.finish(data).writes
        if any(own.combine is not None or own.at.mask is not None for own in writes):
            return False
        for write in writes:
            shape = (*np.broadcast_shapes(write.at.address.shape, write.data.shape[:-1]), write.at.size)
            whole = np.broadcast_to(write.data, shape).reshape(-1, write.at.size)
            self._put(flight.block, write.at, _told(whole), UNIT, line, pitch)
        return True

    # --- bytes, where registers are followed

    def _bytes(self, flight: Flight, line: int) -> bool:
        """Whether work moves bytes, of any number and to any memory: each has the origin of the one that it was."""
        if self.cells is None:
            return False
        pending, data = flight.pending, flight.data
        held = self._values.pop(id(flight), None)
        if held is not None:
            (access,) = pending.writes
            halves = held.T[:, :, None]
            each = np.where(halves > 0, halves + np.arange(2), halves).reshape(len(flight.threads), -1)
            self._spread(flight.block, access, each, line, 0)
            return True
        if len(pending.reads) != 1 or not isinstance(data, np.ndarray) or data.dtype != np.uint8:
            return False
        (source,) = pending.reads
        address = flight.block.octets.places(source)[0]
        if source.space not in ("global", "shared") or data.size != len(address) * source.size:
            return False
        writes, shape = pending.finish(data).writes, data.shape
        if data.size >= tags.MOST or any(own.combine is not None for own in writes):
            return False
        found = tags.moved(data.size, lambda own: [each.data for each in pending.finish(own.reshape(shape)).writes])
        if found is None:
            return False
        origin = address.astype(np.int64)[:, None] + np.arange(source.size)
        origin = self.origins.lookup(origin) if source.space == "shared" else origin
        if source.mask is not None:
            origin = np.where(np.broadcast_to(source.mask, shape).reshape(origin.shape), origin, FILL)
        table = np.concatenate([[FILL], origin.reshape(-1)])
        pitch = self._pitch(address.astype(np.int64), source.size) if source.space == "global" else 0
        for write, which in zip(writes, found, strict=True):
            self._spread(flight.block, write.at, table[which.reshape(-1, write.at.size)], line, pitch)
        return True

    def _spread(self, block: Block, access: Access, origin: Array, line: int, pitch: int) -> None:
        """Bytes with origins (accesses, size) are written: those of each unit, if they follow one another."""
        unit = 2 if access.space == "tmem" else self.origins.unit
        own = np.broadcast_to(origin, (access.address.size, access.size))
        first, last = own[:, ::unit], own[:, unit - 1 :: unit]
        known = None if access.size % unit else np.where((last == first + unit - 1) | (first <= 0), first, 0)
        self._put(block, access, known, unit, line, pitch)

    # --- where they are written

    def _put(self, block: Block, access: Access, origins: Array | None, unit: int, line: int, pitch: int = 0) -> None:
        """An access writes bytes with origins, of each unit of them (accesses, units); None: they are not known."""
        for own in shares(block, access):
            if own.rank >= len(self.origins.state.blocks):
                continue
            begins = own.offsets.astype(np.int64)
            places = begins[:, None] + np.arange(0, own.at.size, unit)
            found = origins if origins is None or len(origins) != own.total else origins[own.which]
            mine = np.ones(places.shape, bool) if own.mask is None else own.mask[:, ::unit]
            if self.cells is not None and own.at.space == "tmem" and found is not None:
                self.cells.note(own.rank, places[mine], found[mine], unit, line)
            elif found is None or found.shape != places.shape or (begins % unit).any() or not mine.any():
                self.origins.forget(own.rank, begins, own.at.size)
            else:
                self.origins.note(own.rank, places[mine], found[mine], unit, line, pitch)


def _told(data: Array) -> Array | None:
    """The origins that numbered bytes (accesses, size) say, of each 16; None where they are no multiple of that."""
    if data.shape[1] % UNIT:
        return None
    words = np.ascontiguousarray(data).view(np.uint64).reshape(len(data), -1, 2)
    return np.where(words[..., 0] ^ _MARK == words[..., 1], words[..., 0].astype(np.int64), FILL)


def _numbered(address: Array, data: Array, mask: Array | None) -> Array | None:
    """The bytes that were read, with the address of each 16 in their place, zeros where they were not read; None where they are fewer."""
    size = data.shape[-1] if data.ndim else 0
    if data.dtype != np.uint8 or not size or size % UNIT or data.size != len(address) * size:
        return None
    found = np.empty((len(address), size // UNIT, 2), np.uint64)
    found[..., 0] = address.astype(np.uint64)[:, None] + np.arange(0, size, UNIT, dtype=np.uint64)
    found[..., 1] = found[..., 0] ^ _MARK
    if mask is not None:
        found[~np.broadcast_to(mask, data.shape).reshape(len(address), -1, UNIT).any(-1)] = 0
    return found.view(np.uint8).reshape(data.shape)
