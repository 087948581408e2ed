"""How the threads of a block reach memory: loads, stores and atomics of every state space, checked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tcsim.core.arguments import spread
from tcsim.isa.scalar.atomic import Atomic, combination
from tcsim.isa.scalar.table import CONTAINERS, Compute
from tcsim.memory.windows import CONST_WINDOW, LOCAL_WINDOW, PARAM_WINDOW, SHARED_WINDOW
from tcsim.ptx.machine.arrays import LANES, TYPED, Array, Mask
from tcsim.ptx.machine.faults import Stop
from tcsim.ptx.machine.memory import Memory, MemoryFault, Segment
from tcsim.ptx.machine.threads import Threads

RANK_SHIFT = 24
_WINDOW_SHIFT = 48
_WINDOWS = {"const": CONST_WINDOW, "shared": SHARED_WINDOW, "local": LOCAL_WINDOW, "param": PARAM_WINDOW}
"""State spaces that have a window of generic addresses. Parameters lie in that of global memory too (PTX ISA 9.4, isspacep, notes); constants do
not: ptxas 13.5 makes of `isspacep.global` "global, and not in the constant bank", and an H200 agrees."""


def store_order(threads: Array, size: int) -> Array:
    """In which order threads store some bytes each: a warp goes in parts of 128 bytes, and of a part the lowest lane comes last.

    Measured on an H200 for 1 to 16 bytes in global and shared memory; the manual leaves it open.
    """
    return np.argsort(threads ^ (min(LANES, _STORED_AT_ONCE // size) - 1))


_STORED_AT_ONCE = 128


def _first(threads: Array, keys: Array) -> Array:
    """The first thread of every key."""
    _, first = np.unique(keys, return_index=True)
    return threads[np.sort(first)]


def _unhindered(threads: Array, places: Array) -> Array:
    """Of threads that try to swap 8 bytes each, those that get to try: of half a warp the first at every place modulo 128 bytes, as banks lie.

    Found from the values that all lanes of 64 warps saw on an H200: no other period and no other part of a warp explains them.
    """
    halves = (threads // (LANES // 2)).astype(np.uint64)
    return _first(threads, halves * np.uint64(_STORED_AT_ONCE) + places % np.uint64(_STORED_AT_ONCE))


class Accesses(Threads):
    """Threads with memory."""

    memory: Memory
    params: Segment
    shared: Segment
    local: Segment | None
    local_stride: int  # bytes from the local memory of one thread to the next one's
    local_bytes: int
    blocks: Sequence[Accesses]  # of the cluster, by rank
    changed: bool  # whether memory, or who waits, has changed

    # --- memory

    def own_shared(self, container: np.dtype[Any]) -> Any:
        """What an address of a block's own shared memory has above the offset: its rank."""
        return container.type(self.rank << 24)

    def own_everywhere(self, address: Any) -> Array:
        """An address in the block's own shared memory, for every thread."""
        return self.everywhere(address + self.own_shared(np.dtype(np.uint64)))

    def is_space(self, address: Array, space: str) -> Array:
        """Whether generic addresses lie in a state space."""
        top, (place, _, reach) = address >> np.uint64(_WINDOW_SHIFT), space.partition("::")
        if place == "global":
            return (top < np.uint64(CONST_WINDOW >> _WINDOW_SHIFT)) | self.is_space(address, "param")
        inside: Array = top == np.uint64(_WINDOWS[place] >> _WINDOW_SHIFT)
        if place != "shared" or reach == "cluster":
            return inside
        return inside & ((address >> np.uint64(RANK_SHIFT) & np.uint64(0xFF)) == np.uint64(self.rank))

    def _where(self, space: str, addresses: Array) -> list[tuple[Any, Segment, Array]]:
        """(which accesses, the memory, offsets in it) of addresses; a slice where it is all of them."""
        everything = slice(None)
        if space in ("global", "const"):
            return []
        if space.startswith("shared"):
            return self._in_shared(addresses & np.uint64(0xFFFFFFFF))
        if space == "local":
            if self.local is None:
                raise MemoryFault("LOCAL_OUT_OF_RANGE", "the kernel has no local memory")
            return [(everything, self.local, addresses)]
        if space == "param":
            return [(everything, self.params, addresses & np.uint64(0xFFFFFFFF))]
        raise MemoryFault("GMEM_UNMAPPED", f"no state space {space!r}")

    def _in_shared(self, addresses: Array) -> list[tuple[Any, Segment, Array]]:
        first = int(addresses[0]) >> RANK_SHIFT
        offset, rank = addresses & 0xFFFFFF, addresses >> RANK_SHIFT
        if not np.count_nonzero(rank != first):
            return [(slice(None), self._block_of(first).shared, offset)]
        return [
            (own, self._block_of(int(number)).shared, offset[own])
            for number in np.unique(rank)
            for own in (rank == number,)
        ]

    def _block_of(self, rank: int) -> Accesses:
        if rank >= len(self.blocks):
            raise MemoryFault("SMEM_OUT_OF_RANGE", f"shared memory of block {rank} of a cluster of {len(self.blocks)}")
        return self.blocks[rank]

    def _parts(
        self, space: str, addresses: Array, size: int, threads: Array
    ) -> list[tuple[Any, Segment | None, Array]]:
        """Where accesses go; None is global memory. Checks alignment and extents."""
        unaligned = addresses & (min(size, 16) - 1)
        if np.count_nonzero(unaligned):
            lane = int(np.argmax(unaligned != 0))
            raise Stop("ADDRESS_MISALIGNED", f"{size} bytes at {int(addresses[lane]):#x}", int(threads[lane]))
        try:
            if space in ("global", "const"):
                return [(slice(None), None, addresses)]
            if space == "":
                return self._generic(addresses, size, threads)
            found = self._where(space, addresses)
        except MemoryFault as fault:
            raise Stop(fault.name, fault.detail, int(threads[0])) from None
        parts: list[tuple[Any, Segment | None, Array]] = []
        for own, segment, offset in found:
            base, extent = offset, segment.size
            if segment is self.local:
                base, extent = offset + (threads[own] * self.local_stride).astype(np.uint64), self.local_bytes
            if int(offset.max()) + size > extent:
                lane = int(np.argmax(offset >= max(extent - size + 1, 0)))  # a sum could wrap around
                name = (
                    "SMEM_OUT_OF_RANGE"
                    if space.startswith("shared")
                    else "LOCAL_OUT_OF_RANGE"
                    if segment is self.local
                    else "PARAM_OUT_OF_RANGE"
                )
                raise Stop(name, f"{size} bytes at {int(offset[lane]):#x} of {extent}", int(threads[own][lane]))
            parts.append((own, segment, base))
        return parts

    def _generic(self, addresses: Array, size: int, threads: Array) -> list[tuple[Any, Segment | None, Array]]:
        top = addresses >> np.uint64(48)
        if int(top.max()) < SHARED_WINDOW >> 48:
            return [(slice(None), None, addresses)]
        nowhere = top > np.uint64(PARAM_WINDOW >> 48)
        if nowhere.any():
            lane = int(np.argmax(nowhere))
            said = f"an access at {int(addresses[lane]):#x}: no generic address is there"
            raise Stop("GMEM_UNMAPPED", said, int(threads[lane]))
        found: list[tuple[Any, Segment | None, Array]] = []
        for window, space in (
            (SHARED_WINDOW, "shared"),
            (LOCAL_WINDOW, "local"),
            (PARAM_WINDOW, "param"),
            (0, "global"),
        ):
            own = top == np.uint64(window >> 48) if window else top < np.uint64(SHARED_WINDOW >> 48)
            if not own.any():
                continue
            indices = np.nonzero(own)[0]
            for part, segment, offset in self._parts(space, addresses[own] - np.uint64(window), size, threads[own]):
                found.append((indices[part], segment, offset))
        return found

    def load(self, space: str, addresses: Array, size: int, w: Mask, alone: bool = True) -> Array:
        """What lies at addresses, for every thread: unsigned integers of 1 to 8 bytes, else uint8 (threads, size).

        alone: it is an access of its own, not a part of an atomic.
        """
        typed = size in TYPED
        if w is True:
            threads, taken = self.numbers, addresses
        else:
            threads = np.nonzero(w)[0]
            taken = addresses[threads]
            if not len(threads):
                return np.zeros(self.threads, TYPED[size]) if typed else np.zeros((self.threads, size), np.uint8)
        unit = size if typed or size == 16 else 16
        found = np.empty(len(threads), TYPED[size]) if typed else np.empty((len(threads), size), np.uint8)
        for own, segment, offset in self._parts(space, taken, size, threads):
            if alone and self.observer is not None:
                self.observer.accessed(self, "read", segment, offset, size, threads[own])
            for piece in range(0, size, unit):
                at = offset + np.uint64(piece) if piece else offset
                if segment is None:
                    try:
                        values = self.memory.gather(at, unit)
                    except MemoryFault as fault:
                        lane = self.memory.unmapped(at, unit)
                        raise Stop(fault.name, fault.detail, int(threads[own][lane or 0])) from None
                else:
                    values = segment.views[unit][segment.index(at, unit)]
                if typed:
                    found[own] = values
                else:
                    found[own, piece : piece + unit] = values.view(np.uint8).reshape(-1, unit)
        if w is True:
            return found
        full = np.zeros((self.threads, *found.shape[1:]), found.dtype)
        full[threads] = found
        return full

    def store(self, space: str, addresses: Array, values: Array, size: int, w: Mask, alone: bool = True) -> None:
        """Store unsigned integers, or parts joined; where lanes of a warp meet, the bytes of the one that `store_order` has last stay."""
        self.changed = True
        values = spread(values, (self.threads,))
        if w is True:
            threads = self.numbers
        else:
            threads = np.nonzero(w)[0]
            if not len(threads):
                return
            addresses, values = addresses[threads], values[threads]
        if size in TYPED:
            values = values.astype(TYPED[size], copy=False)
        unit = min(size, 16)
        for own, segment, offset in self._parts(space, addresses, size, threads):
            if alone and self.observer is not None:
                self.observer.accessed(self, "write", segment, offset, size, threads[own], values[own])
            turns = store_order(threads[own], size)
            for piece in range(0, size, unit):
                at = offset + np.uint64(piece) if piece else offset
                part = values[own]
                if size > 16:
                    octets = np.ascontiguousarray(part).view(np.uint8).reshape(-1, size)[:, piece : piece + 16]
                    part = np.ascontiguousarray(octets).view(np.dtype((np.void, 16)))[:, 0]
                if segment is None:
                    lane = self.memory.unmapped(at, unit)
                    if lane is not None:
                        raise Stop(
                            "GMEM_UNMAPPED",
                            f"{size} bytes at {int(at[lane]):#x}: nothing is mapped there",
                            int(threads[own][lane]),
                        )
                    self.memory.scatter(at[turns], part[turns], unit)
                else:
                    segment.views[unit][segment.index(at[turns], unit)] = part[turns]

    def took_turns(
        self, item: Atomic, space: str, places: Array, threads: Array, before: Array, after: Array, values: list[Array], needed: int
    ) -> None:  # fmt: skip
        """Told of atomics: a hook for whoever keeps account of what depends on their order."""

    def _combination(self, item: Atomic, space: str, addresses: Array) -> Compute:
        """What an atomic makes of the old values of all threads: of a generic address that of the memory it lies in."""
        outside = combination(item, space)
        if space:
            return outside
        within, inside = combination(item, "shared"), addresses >= np.uint64(SHARED_WINDOW)
        if within is outside or not inside.any():
            return outside
        return lambda *codes: np.where(inside, within(*codes), outside(*codes))

    def atomic(
        self, space: str, addresses: Array, item: Atomic, sources: Any, w: Mask, needed: int
    ) -> list[Array]:  # fmt: skip
        """Atomics, thread after thread; the old values of each element. needed: the bits of them that something depends on."""
        container = CONTAINERS[item.type]
        size, combine = container.itemsize, self._combination(item, space, addresses)
        threads = self.numbers if w is True else np.nonzero(w)[0]
        loops = item.loops and space.startswith("shared")
        if len(threads):
            parts = self._parts(space, addresses[threads], size * item.count, threads)
            for own, segment, offset in parts if self.observer is not None else ():
                self.observer.accessed(self, "atomic", segment, offset, size * item.count, threads[own])  # type: ignore[union-attr]
        results = []
        for place, operands in enumerate(sources):
            given = [np.broadcast_to(np.asarray(own), (self.threads,)) for own in operands]
            old = np.zeros(self.threads, container)
            places = addresses + np.uint64(place * size)
            left = threads
            while len(left):  # each pass takes the first thread of every address
                able = _unhindered(left, places[left]) if loops else left
                now = _first(able, places[able])
                mask = np.zeros(self.threads, bool)
                mask[now] = True
                before = self.load(space, places, size, mask, False)
                before = before if before.ndim == 1 else before.view(container)[:, 0]
                old[now] = before[now]
                after, changed = combine(before, *given), self.changed
                left_there = np.broadcast_to(after, before.shape)[now]
                self.took_turns(
                    item, space, places[now], now, before[now], left_there, [own[now] for own in given], needed
                )
                self.store(space, places, after, size, mask, False)
                self.changed = changed or not np.array_equal(left_there, before[now])
                left = np.setdiff1d(left, now, assume_unique=True)
            results.append(old)
        return results
