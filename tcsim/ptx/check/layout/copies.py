"""The origins that work in flight leaves where it writes: copies of whole units, and, where registers are followed, of any bytes and to any memory."""

from __future__ import annotations

import numpy as np

from tcsim.model.effects import Access
from tcsim.ptx.check.layout import tags
from tcsim.ptx.check.layout.cells import Cells
from tcsim.ptx.check.layout.descriptors import UNIT
from tcsim.ptx.check.layout.origins import Origins
from tcsim.ptx.check.layout.tiles import FILL, pitch_of, pitch_of_pieces
from tcsim.ptx.check.places import shares
from tcsim.ptx.machine.arrays import Array
from tcsim.ptx.machine.block import Block
from tcsim.ptx.machine.flights import Flight

_MARK = np.uint64(0x9E3779B97F4A7C15)
_SHARED = ("shared", "generic")


class Copies:
    """The work of one cluster."""

    def __init__(self, origins: Origins, cells: Cells | None) -> None:
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
                self.cells.note(own.rank, places[mine], found[mine], line)
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
