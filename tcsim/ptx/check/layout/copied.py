"""Origins of the bytes that work in flight moves, of any number and to any memory, and of those that it takes from registers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tcsim.model.effects import Access
from tcsim.ptx.check.layout import tags
from tcsim.ptx.check.layout.cells import Cells
from tcsim.ptx.check.layout.origins import Origins
from tcsim.ptx.check.layout.tiles import FILL
from tcsim.ptx.machine.arrays import Array

if TYPE_CHECKING:
    from tcsim.ptx.check.checker import Checker
    from tcsim.ptx.machine.flights import Flight
    from tcsim.ptx.machine.view import EffectsView, ThreadsView


class Copied(Origins):
    """Origins of each two bytes, or of each byte where threads store single ones; of Tensor Memory and registers too."""

    def __init__(self, checker: Checker) -> None:
        super().__init__(checker)
        self.unit = min(checker.unit, 2)
        self.tags: dict[int, tags.Tags] = {}
        self.cells = Cells(checker.cluster)
        self._values: dict[int, Array] = {}  # by flight: the origins of registers that it stores (halves, threads)

    def _tags(self, block: ThreadsView) -> tags.Tags:
        found = self.tags.get(block.rank)
        if found is None:
            program = self.checker.cluster.blocks[block.rank].program
            found = self.tags[block.rank] = tags.Tags(program.carried, block.threads)
        return found

    def lookup(self, addresses: Array) -> Array:
        """The origins of shared addresses: 0 where nothing is known."""
        found = np.zeros(addresses.shape, np.int64)
        ranks, offsets = addresses >> 24, addresses & 0xFFFFFF
        for rank in np.unique(ranks).tolist():
            at = self.at.get(rank)
            if at is None:
                continue
            units = offsets // self.unit
            own = (ranks == rank) & (units < len(at))
            value = at[units[own]]
            found[own] = np.where(value > 0, value + offsets[own] % self.unit, value)
        return found

    def held(self, flight: Flight, numbers: Array) -> None:
        """Work stores registers as they are now."""
        own = self._tags(flight.block)
        self._values[id(flight)] = known(own.origin[own.rows(numbers)[:, None], flight.threads])

    def carried(self, flight: Flight, line: int) -> bool:
        """Work that moves bytes, of any number and to any memory: each has the origin of the one that it was."""
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
        address = flight.block.places(source)[0]
        if source.space not in ("global", "shared") or data.size != len(address) * source.size:
            return False
        writes = pending.finish(data).writes
        found = None
        if data.size < tags.MOST and all(own.combine is None for own in writes):
            found = tags.moved(
                data.size, lambda own: [each.data for each in pending.finish(own.reshape(data.shape)).writes]
            )
        if found is None:
            return False
        origin = address.astype(np.int64)[:, None] + np.arange(source.size)
        origin = self.lookup(origin) if source.space == "shared" else origin
        if source.mask is not None:
            origin = np.where(np.broadcast_to(source.mask, data.shape).reshape(origin.shape), origin, FILL)
        table = np.concatenate([[FILL], origin.reshape(-1)])
        pitch = self.row_pitch(address.astype(np.int64), source.size) if source.space == "global" else 0
        for write, which in zip(writes, found, strict=True):
            self._spread(flight.block, write.at, table[which.reshape(-1, write.at.size)], line, pitch)
        return True

    def _spread(self, block: EffectsView, access: Access, origin: Array, line: int, pitch: int) -> None:
        """Bytes with origins (accesses, size) are written."""
        for at in block.copies(access):
            address, cta = block.places(at)
            count, unit = len(address), 2 if at.space == "tmem" else self.unit
            own = np.broadcast_to(origin, (count, at.size))
            first, rest = own[:, ::unit], own[:, unit - 1 :: unit]
            first = np.where((rest == first + unit - 1) | (first <= 0), first, 0)
            places = address.astype(np.int64)[:, None] + np.arange(0, at.size, unit)
            there = np.ones(places.shape, bool)
            if at.mask is not None:
                there = np.broadcast_to(at.mask, (*at.address.shape, at.size)).reshape(count, -1)[:, ::unit]
            if at.space == "tmem":
                ranks = np.full(count, block.rank) if cta is None else cta
            elif at.size % unit or (address % unit).any():
                ranks = address >> 24 & 0xFF
                there = np.zeros(places.shape, bool)
            else:
                ranks, places = address >> 24 & 0xFF, places & 0xFFFFFF
            for rank in np.unique(ranks).tolist():
                mine = there & (ranks == rank)[:, None]
                if at.space == "tmem":
                    self.cells.note(rank, places[mine], first[mine], line)
                elif mine.any():
                    self.note(rank, places[mine], first[mine], unit, line, pitch)
                else:
                    self.forget(rank, address[ranks == rank] & 0xFFFFFF, at.size)


def known(origin: Array) -> Array:
    """Origins without the numbers of sums."""
    return np.where(origin >= FILL, origin, 0)
