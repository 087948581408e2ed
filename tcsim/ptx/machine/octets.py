"""Bytes of effects: what accesses read and write in global, shared and Tensor Memory."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from tcsim.model.effects import EVERY_CTA, Access, Write, turns
from tcsim.ptx.machine.arrays import TYPED, Array
from tcsim.ptx.machine.calls import Calls
from tcsim.ptx.machine.faults import Stop
from tcsim.ptx.machine.memory import MemoryFault, Segment
from tcsim.ptx.machine.tensor_memory import Columns


class Octets(Calls):
    """Threads whose instructions say in effects which bytes they touch."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.changed = False  # whether memory, or who waits, has changed
        self.tensor_memory: Segment | None = None
        self.columns = Columns()

    def image(self) -> Segment:
        """Tensor Memory."""
        if self.tensor_memory is None:
            self.tensor_memory = Segment(0, np.zeros(self.columns.bytes, np.uint8))
        return self.tensor_memory

    def places(self, access: Access) -> tuple[Array, Array | None]:
        """The addresses of an access, flat, with the rank of the CTA above those in shared memory; the CTAs of Tensor Memory."""
        address = access.address
        if access.cta is None:
            return address.reshape(-1), None
        cta = np.asarray(access.cta, np.int64)
        if cta.ndim:  # else one for all
            shape = np.broadcast_shapes(cta.shape, address.shape)
            cta, address = np.broadcast_to(cta, shape).reshape(-1), np.broadcast_to(address, shape)
        if access.space == "tmem":
            return address.reshape(-1), cta
        return (address.reshape(-1) & ~(0xFF << 24)) | cta << 24, None

    def read(self, access: Access) -> Array:
        """The bytes of an access, for effects: uint8 (..., accesses, size)."""
        address, cta = self.places(access)
        lead = access.address.shape
        if access.cta is not None and np.ndim(access.cta):
            lead = np.broadcast_shapes(lead, np.shape(access.cta))
        shape = (*lead, access.size)
        if access.mask is None:
            return self._octets(access.space, address, access.size, cta).reshape(shape)
        mask = np.broadcast_to(access.mask, shape).reshape(-1, access.size)
        found = np.zeros(mask.shape, np.uint8)
        whole: Array = np.asarray(mask.all(-1))
        if whole.any():
            found[whole] = self._octets(access.space, address[whole], access.size, _chosen(cta, whole))
        if not whole.all():
            row, piece = np.nonzero(mask & ~whole[:, None])
            found[row, piece] = self._octets(access.space, address[row] + piece, 1, _chosen(cta, row))[:, 0]
        return found.reshape(shape)

    def apply(self, write: Write, threads: Array) -> None:
        """Do a write of an effect."""
        for at in self.copies(write.at):
            address, cta = self.places(at)
            if write.combine is not None and len(alone := turns(address, at.size)) > 1:
                for turn in alone:  # what comes to one place comes one after the other
                    self.apply(replace(write, at=_part(at, turn), data=write.data.reshape(-1, at.size)[turn]), threads)
                continue
            data = write.data
            if write.combine is not None:
                before = self.read(at)
                data = write.combine(before, data)
                if write.adds is not None:
                    self.added(*write.adds, at, before, write.data)
            if data.shape != (*at.address.shape, at.size):
                data = np.broadcast_to(data, (*np.broadcast_shapes(at.address.shape, data.shape[:-1]), at.size))
            data = data.reshape(-1, at.size)
            self.changed = True
            if at.mask is None:
                self.put_octets(at.space, address, data, cta)
                continue
            mask = np.broadcast_to(at.mask, data.shape) if at.mask.ndim <= 2 else at.mask.reshape(-1, at.size)
            whole: Array = np.asarray(mask.all(1))
            if whole.any():
                self.put_octets(at.space, address[whole], data[whole], _chosen(cta, whole))
            if not whole.all():
                row, piece = np.nonzero(mask & ~whole[:, None])
                self.put_octets(at.space, address[row] + piece, data[row, piece][:, None], _chosen(cta, row))

    def copies(self, at: Access) -> list[Access]:
        """An access, or one in each CTA of the cluster where it is for all of them."""
        if at.cta is None or not np.count_nonzero(np.asarray(at.cta) == EVERY_CTA):
            return [at]
        return [replace(at, cta=np.full(np.shape(at.cta), rank)) for rank in range(len(self.blocks))]

    def _segments(self, space: str, places: Array, unit: int, cta: Array | None) -> Any:
        """Where accesses lie: (which of them, the memory or None for global memory, offsets in it). Checks that they are inside."""
        if space in ("global", "generic"):
            addresses = places.view(np.uint64)
            parts: Any = [(slice(None), None, addresses)]
            return parts if space == "global" else self._generic(addresses, unit, np.zeros(len(places), np.int64))
        try:
            parts = self._in_shared(places & 0xFFFFFFFF) if space != "tmem" else self._in_tensor_memory(places, cta)
        except MemoryFault as fault:
            raise Stop(fault.name, fault.detail) from None
        for _, segment, offset in parts:
            if int(offset.view(np.uint64).max()) + unit > segment.size:
                beyond = int(offset[np.argmax(offset.view(np.uint64) > np.uint64(segment.size - unit))])
                name = "TMEM_OUT_OF_RANGE" if space == "tmem" else "SMEM_OUT_OF_RANGE"
                raise Stop(name, f"{unit} bytes at {beyond:#x} of {segment.size}")
        return parts

    def _in_tensor_memory(self, places: Array, cta: Array | None) -> list[tuple[Any, Segment, Array]]:
        if cta is None:
            return [(slice(None), self.image(), places)]
        found: list[tuple[Any, Segment, Array]] = []
        first, last = int(cta.min()), int(cta.max())
        for rank in range(first, last + 1):
            own: Any = slice(None) if first == last else cta == rank
            if first == last or own.any():
                block = self._block_of(rank)
                assert isinstance(block, Octets)
                found.append((own, block.image(), places[own]))
        return found

    def _octets(self, space: str, addresses: Array, size: int, cta: Array | None = None) -> Array:
        """Bytes (accesses, size) at addresses."""
        if not len(addresses):
            return np.empty((0, size), np.uint8)
        places, unit, cta = _in_units(addresses, size, cta)
        parts = self._segments(space, places, unit, cta)
        if len(parts) == 1 and parts[0][1] is not None:
            _, segment, offset = parts[0]
            one: Array = segment.views[unit][segment.index(offset, unit)]
            return one.view(np.uint8).reshape(-1, size)
        found = np.empty(len(places), TYPED.get(unit, np.dtype((np.void, 16))))
        for own, segment, offset in parts:
            if segment is None:
                try:
                    found[own] = self.memory.gather(offset, unit)
                except MemoryFault as fault:
                    raise Stop(fault.name, fault.detail) from None
            else:
                found[own] = segment.views[unit][segment.index(offset, unit)]
        return found.view(np.uint8).reshape(-1, size)

    def put_octets(self, space: str, addresses: Array, data: Array, cta: Array | None = None) -> None:
        """Store bytes (accesses, size) at addresses."""
        if not len(addresses):
            return
        places, unit, cta = _in_units(addresses, data.shape[1], cta)
        values = np.ascontiguousarray(data).view(TYPED.get(unit, np.dtype((np.void, 16)))).reshape(-1)
        for own, segment, offset in self._segments(space, places, unit, cta):
            if segment is None:
                first = self.memory.unmapped(offset, unit)
                if first is not None:
                    raise Stop("GMEM_UNMAPPED", f"{unit} bytes at {int(offset[first]):#x}: nothing is mapped there")
                self.memory.scatter(offset, values[own], unit)
            else:
                segment.views[unit][segment.index(offset, unit)] = values[own]


def _in_units(addresses: Array, size: int, cta: Array | None) -> tuple[Array, int, Array | None]:
    """Accesses as more of the widest integers that all are made of."""
    places: Array = addresses.astype(np.int64, copy=False)
    low = int(np.bitwise_or.reduce(places)) | size
    unit = min(low & -low, 16)
    if unit < size:
        places = (places[:, None] + np.arange(0, size, unit)).reshape(-1)
        cta = None if cta is None else np.repeat(cta, size // unit) if cta.ndim else cta
    return places, unit, cta


def _part(at: Access, which: slice) -> Access:
    """Some of the accesses."""

    def own(array: Array | None, *each: int) -> Array | None:
        return None if array is None else np.broadcast_to(array, (*at.address.shape, *each)).reshape(-1, *each)[which]

    address = at.address.reshape(-1)[which]
    return replace(at, address=address, mask=own(at.mask, at.size), cta=own(at.cta), thread=own(at.thread))


def _chosen(cta: Array | None, which: Any) -> Array | None:
    return cta[which] if cta is not None and cta.ndim else cta
