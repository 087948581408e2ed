"""Where the bytes of shared memory came from: of each unit of bytes an address in global memory, FILL, or 0: not known.

Every copy from global memory leaves, for each 16 bytes that it writes, the address in global memory that they had: that says which logical
element they are, whatever swizzle or layout they lie in. Where registers are followed, each two bytes have an origin, or each byte where threads
store single ones.
"""

from __future__ import annotations

import numpy as np

from tcsim.ptx.check.state import State
from tcsim.ptx.machine.arrays import Array


class Origins:
    """The origins in the shared memories of a cluster, by rank of the block."""

    def __init__(self, state: State, unit: int) -> None:
        """unit: the bytes that have an origin of their own."""
        self.state, self.unit = state, unit
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

    def note(self, rank: int, places: Array, origins: Array, size: int, line: int, pitch: int) -> None:
        """Some bytes at places have origins, from their first one on."""
        if rank not in self.at:
            count = -(-self.state.blocks[rank].threads.shared_bytes // self.unit)
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
        at = self.at.get(near >> 24 & 0xFF, next(iter(self.at.values()), None))
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
