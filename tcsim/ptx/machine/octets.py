"""Bytes of effects: what accesses read and write in global, shared and Tensor Memory."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from tcsim.model.effects import EVERY_CTA, Access, Write, turns
from tcsim.ptx.machine.arrays import LANES, TYPED, Array
from tcsim.ptx.machine.events import Events
from tcsim.ptx.machine.faults import Unbatchable
from tcsim.ptx.machine.inexact import Inexact
from tcsim.ptx.machine.spaces import Spaces
from tcsim.ptx.machine.threads import RANK_SHIFT, Threads

_MOST_TILES = 64
"""Tiles of which is kept where they lie: those of a loop over some stages."""


class Octets:
    """The bytes that effects of a block's instructions touch."""

    def __init__(self, block: object, threads: Threads, spaces: Spaces, inexact: Inexact, events: Events) -> None:
        self.block, self.threads, self.spaces, self.inexact, self.events = block, threads, spaces, inexact, events
        # Of tiles that blocks of a batch have read: the addresses, which are looked up again and again, and where these are in shared memory.
        self._tiles: dict[tuple[int, bytes], tuple[Array, Array, int]] = {}

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

    def block_of(self, access: Access, threads: Array) -> Any:
        """Of which block of the batch an access of an instruction of some threads is: one number for all, or one for each entry."""
        block = self.threads.block_of(threads)
        if not np.ndim(block):
            return block
        count, lead = access.address.size, access.address.shape
        alike = access.cta is None or np.size(access.cta) in (1, count)
        if alike and access.thread is not None and access.thread.size == count:
            return block[access.thread.reshape(-1)]
        if access.cta is None or not np.ndim(access.cta):
            if access.thread is None and count == len(threads):
                return block
            each = len(threads) // lead[0] if lead and lead[0] else 0  # lanes, of instructions of warps and warpgroups
            if (
                access.thread is None
                and len(lead) == 2
                and each in (LANES, 4 * LANES)
                and each * lead[0] == len(threads)
            ):
                return np.repeat(block[::each], lead[1])
        raise Unbatchable("an access of several blocks that does not say of which each part is")

    def read(self, access: Access, threads: Array) -> Array:
        """The bytes of an access of an instruction of some threads, for effects: uint8 (..., accesses, size)."""
        found = self._tile(access, threads)
        if found is None:
            found = self._read(access, self.block_of(access, threads))
        for hear in self.events.looked:
            hear(self.block, access)
        return found

    def _tile(self, access: Access, threads: Array) -> Array | None:
        """What warpgroups of several blocks read through descriptors in their own shared memory; None where it is something else."""
        address = access.address
        if access.tile is None or access.mask is not None or self.threads.batch == 1 or access.space != "shared":
            return None
        own = access.cta is not None and not np.ndim(access.cta) and int(access.cta) == self.threads.rank
        if not own or address.ndim != 2 or len(threads) != 4 * LANES * len(address):
            return None
        of = np.broadcast_to(self.threads.block_of(threads), len(threads))[:: 4 * LANES]
        key = id(address), of.tobytes()
        kept = self._tiles.get(key)
        if kept is None or kept[0] is not address:
            offset = address & (1 << RANK_SHIFT) - 1
            if not offset.size or int(offset.max()) + access.size > self.threads.shared_bytes:
                return None
            places, unit, *_ = _in_units(
                (offset + of[:, None] * self.spaces.shared_stride).reshape(-1), access.size, None, 0
            )
            if len(self._tiles) == _MOST_TILES:
                self._tiles.clear()
            kept = self._tiles[key] = address, self.spaces.shared.index(places, unit), unit
        _, index, unit = kept
        return self.spaces.shared.views[unit][index].view(np.uint8).reshape(*address.shape, access.size)

    def _read(self, access: Access, block: Any) -> Array:
        address, cta = self.places(access)
        lead = access.address.shape
        if access.cta is not None and np.ndim(access.cta):
            lead = np.broadcast_shapes(lead, np.shape(access.cta))
        shape = (*lead, access.size)
        if access.mask is None:
            return self.get(access.space, address, access.size, cta, block).reshape(shape)
        mask = np.broadcast_to(access.mask, shape).reshape(-1, access.size)
        found = np.zeros(mask.shape, np.uint8)
        whole: Array = np.asarray(mask.all(-1))
        if whole.any():
            found[whole] = self.get(
                access.space, address[whole], access.size, _chosen(cta, whole), _chosen(block, whole)
            )
        if not whole.all():
            row, piece = np.nonzero(mask & ~whole[:, None])
            own = _chosen(cta, row), _chosen(block, row)
            found[row, piece] = self.get(access.space, address[row] + piece, 1, *own)[:, 0]
        return found.reshape(shape)

    def apply(self, write: Write, threads: Array, only: Array | None = None) -> None:
        """Do a write of an effect of some threads. only: the blocks of the batch for which it is done now; None: all."""
        for at in self.copies(write.at):
            address, cta = self.places(at)
            block = self.block_of(at, threads)
            if write.combine is not None and len(alone := turns(address, at.size)) > 1:
                for turn in alone:  # what comes to one place comes one after the other
                    self.apply(replace(write, at=_part(at, turn), data=write.data.reshape(-1, at.size)[turn]), threads)
                continue
            data = write.data
            if write.combine is not None:
                before = self.read(at, threads)
                data = write.combine(before, data)
                if write.adds is not None:
                    self.inexact.added(*write.adds, at, before, write.data)
            if data.shape != (*at.address.shape, at.size):
                data = np.broadcast_to(data, (*np.broadcast_shapes(at.address.shape, data.shape[:-1]), at.size))
            data = data.reshape(-1, at.size)
            self.threads.change(threads if only is None else np.flatnonzero(only) * self.threads.width)
            if at.mask is None and only is None:
                self.put(at.space, address, data, cta, block)
                continue
            given = np.True_ if at.mask is None else at.mask
            mask = np.broadcast_to(given, data.shape) if given.ndim <= 2 else given.reshape(-1, at.size)
            if only is not None:
                mask = mask & np.broadcast_to(only[block], len(data))[:, None]
            whole: Array = np.asarray(mask.all(1))
            if whole.any():
                self.put(at.space, address[whole], data[whole], _chosen(cta, whole), _chosen(block, whole))
            if not whole.all():
                row, piece = np.nonzero(mask & ~whole[:, None])
                own = _chosen(cta, row), _chosen(block, row)
                self.put(at.space, address[row] + piece, data[row, piece][:, None], *own)

    def copies(self, at: Access) -> list[Access]:
        """An access, or one in each CTA of the cluster where it is for all of them."""
        if at.cta is None or not np.count_nonzero(np.asarray(at.cta) == EVERY_CTA):
            return [at]
        return [replace(at, cta=np.full(np.shape(at.cta), rank)) for rank in range(len(self.spaces.blocks))]

    def get(self, space: str, addresses: Array, size: int, cta: Array | None = None, block: Any = 0) -> Array:
        """Bytes (accesses, size) at addresses. block: of the batch, one for all or one for each."""
        if not len(addresses):
            return np.empty((0, size), np.uint8)
        places, unit, cta, block = _in_units(addresses, size, cta, block)
        parts = self.spaces.segments(space, places, unit, cta, block)
        if len(parts) == 1 and parts[0][1] is not None:
            return self.spaces.gather(parts[0][1], parts[0][2], unit).view(np.uint8).reshape(-1, size)
        found = np.empty(len(places), TYPED.get(unit, np.dtype((np.void, 16))))
        for own, segment, offset in parts:
            found[own] = self.spaces.gather(segment, offset, unit, None, _chosen(block, own))
        return found.view(np.uint8).reshape(-1, size)

    def put(self, space: str, addresses: Array, data: Array, cta: Array | None = None, block: Any = 0) -> None:
        """Store bytes (accesses, size) at addresses. block: as of `get`."""
        if not len(addresses):
            return
        places, unit, of, block = _in_units(addresses, data.shape[1], cta, block)
        values = np.ascontiguousarray(data).view(TYPED.get(unit, np.dtype((np.void, 16)))).reshape(-1)
        for own, segment, offset in self.spaces.segments(space, places, unit, of, block):
            self.spaces.scatter(segment, offset, values[own], unit, unit, block=_chosen(block, own))
        for hear in self.events.put:
            hear(self.block, space, addresses, data.shape[1], cta)


def _in_units(addresses: Array, size: int, cta: Array | None, block: Any) -> tuple[Array, int, Array | None, Any]:
    """Accesses as more of the widest integers that all are made of."""
    places: Array = addresses.astype(np.int64, copy=False)
    low = int(np.bitwise_or.reduce(places)) | size
    unit = min(low & -low, 16)
    if unit < size:
        places = (places[:, None] + np.arange(0, size, unit)).reshape(-1)
        cta, block = _each(cta, size // unit), _each(block, size // unit)
    return places, unit, cta, block


def _part(at: Access, which: slice) -> Access:
    """Some of the accesses."""

    def own(array: Array | None, *each: int) -> Array | None:
        return None if array is None else np.broadcast_to(array, (*at.address.shape, *each)).reshape(-1, *each)[which]

    address = at.address.reshape(-1)[which]
    return replace(at, address=address, mask=own(at.mask, at.size), cta=own(at.cta), thread=own(at.thread))


def _each(values: Any, count: int) -> Any:
    """Of numbers for each access as many; one for all stays."""
    return np.repeat(values, count) if np.ndim(values) else values


def _chosen(values: Any, which: Any) -> Any:
    """Of numbers for each access those of some; one for all is one for these."""
    return values[which] if np.ndim(values) else values
