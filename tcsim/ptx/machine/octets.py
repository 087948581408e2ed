"""Bytes of effects: what accesses read and write in global, shared and Tensor Memory."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from tcsim.model.effects import EVERY_CTA, Access, Write, turns
from tcsim.ptx.machine.arrays import TYPED, Array
from tcsim.ptx.machine.events import Events
from tcsim.ptx.machine.inexact import Inexact
from tcsim.ptx.machine.spaces import Spaces
from tcsim.ptx.machine.threads import RANK_SHIFT, Threads


class Octets:
    """The bytes that effects of a block's instructions touch."""

    def __init__(self, block: object, threads: Threads, spaces: Spaces, inexact: Inexact, events: Events) -> None:
        self.block, self.threads, self.spaces, self.inexact, self.events = block, threads, spaces, inexact, events

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
        return (address.reshape(-1) & ~(0xFF << RANK_SHIFT)) | cta << RANK_SHIFT, None

    def read(self, access: Access) -> Array:
        """The bytes of an access, for effects: uint8 (..., accesses, size)."""
        found = self._read(access)
        for hear in self.events.looked:
            hear(self.block, access)
        return found

    def _read(self, access: Access) -> Array:
        address, cta = self.places(access)
        lead = access.address.shape
        if access.cta is not None and np.ndim(access.cta):
            lead = np.broadcast_shapes(lead, np.shape(access.cta))
        shape = (*lead, access.size)
        if access.mask is None:
            return self.get(access.space, address, access.size, cta).reshape(shape)
        mask = np.broadcast_to(access.mask, shape).reshape(-1, access.size)
        found = np.zeros(mask.shape, np.uint8)
        whole: Array = np.asarray(mask.all(-1))
        if whole.any():
            found[whole] = self.get(access.space, address[whole], access.size, _chosen(cta, whole))
        if not whole.all():
            row, piece = np.nonzero(mask & ~whole[:, None])
            found[row, piece] = self.get(access.space, address[row] + piece, 1, _chosen(cta, row))[:, 0]
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
                    self.inexact.added(*write.adds, at, before, write.data)
            if data.shape != (*at.address.shape, at.size):
                data = np.broadcast_to(data, (*np.broadcast_shapes(at.address.shape, data.shape[:-1]), at.size))
            data = data.reshape(-1, at.size)
            self.threads.changed = True
            if at.mask is None:
                self.put(at.space, address, data, cta)
                continue
            mask = np.broadcast_to(at.mask, data.shape) if at.mask.ndim <= 2 else at.mask.reshape(-1, at.size)
            whole: Array = np.asarray(mask.all(1))
            if whole.any():
                self.put(at.space, address[whole], data[whole], _chosen(cta, whole))
            if not whole.all():
                row, piece = np.nonzero(mask & ~whole[:, None])
                self.put(at.space, address[row] + piece, data[row, piece][:, None], _chosen(cta, row))

    def copies(self, at: Access) -> list[Access]:
        """An access, or one in each CTA of the cluster where it is for all of them."""
        if at.cta is None or not np.count_nonzero(np.asarray(at.cta) == EVERY_CTA):
            return [at]
        return [replace(at, cta=np.full(np.shape(at.cta), rank)) for rank in range(len(self.spaces.blocks))]

    def get(self, space: str, addresses: Array, size: int, cta: Array | None = None) -> Array:
        """Bytes (accesses, size) at addresses."""
        if not len(addresses):
            return np.empty((0, size), np.uint8)
        places, unit, cta = _in_units(addresses, size, cta)
        parts = self.spaces.segments(space, places, unit, cta)
        if len(parts) == 1 and parts[0][1] is not None:
            return self.spaces.gather(parts[0][1], parts[0][2], unit).view(np.uint8).reshape(-1, size)
        found = np.empty(len(places), TYPED.get(unit, np.dtype((np.void, 16))))
        for own, segment, offset in parts:
            found[own] = self.spaces.gather(segment, offset, unit)
        return found.view(np.uint8).reshape(-1, size)

    def put(self, space: str, addresses: Array, data: Array, cta: Array | None = None) -> None:
        """Store bytes (accesses, size) at addresses."""
        if not len(addresses):
            return
        places, unit, of = _in_units(addresses, data.shape[1], cta)
        values = np.ascontiguousarray(data).view(TYPED.get(unit, np.dtype((np.void, 16)))).reshape(-1)
        for own, segment, offset in self.spaces.segments(space, places, unit, of):
            self.spaces.scatter(segment, offset, values[own], unit, unit)
        for hear in self.events.put:
            hear(self.block, space, addresses, data.shape[1], cta)


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
