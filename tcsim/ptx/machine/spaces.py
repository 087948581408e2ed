"""Where state spaces lie: which memory an address means, and where in it; alignment and extents are checked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from tcsim.memory.windows import CONST_WINDOW, LOCAL_WINDOW, PARAM_WINDOW, SHARED_WINDOW, in_bank
from tcsim.ptx.machine.arrays import Array, each_once
from tcsim.ptx.machine.faults import Stop, Stuck, Unbatchable
from tcsim.ptx.machine.independence import Independence
from tcsim.ptx.machine.memory import Memory, MemoryFault, Segment
from tcsim.ptx.machine.polling import Polled
from tcsim.ptx.machine.tensor_memory import Columns
from tcsim.ptx.machine.threads import RANK_SHIFT, Threads

_WINDOW_SHIFT = 48
_WINDOWS = {"const": CONST_WINDOW, "shared": SHARED_WINDOW, "local": LOCAL_WINDOW, "param": PARAM_WINDOW}
"""State spaces that have a window of generic addresses. Parameters lie in that of global memory too (PTX ISA, isspacep, notes); constants do
not: ptxas 13.5 makes of `isspacep.global` "global, and not in the constant bank", and an H200 agrees."""
Parts = list[tuple[Any, Segment | None, Array]]
"""Of accesses: which of them (a slice where it is all), the memory or None for global memory, and their offsets in it."""


class Placed(Protocol):
    """A block, to the others of its cluster."""

    @property
    def spaces(self) -> Spaces:
        """Its memory."""
        ...


class Spaces:
    """The memory of a block, or of each block of a batch. blocks: those of its cluster, by rank."""

    def __init__(
        self, threads: Threads, memory: Memory, params: Segment, local_bytes: int, blocks: Sequence[Placed]
    ) -> None:
        self.threads, self.memory, self.params, self.blocks = threads, memory, params, blocks
        # Bytes from the shared memory of one block to the next one's.
        self.shared_stride = threads.shared_bytes if threads.batch == 1 else -(-threads.shared_bytes // 16) * 16
        self.shared = Segment(0, np.zeros(self.shared_stride * threads.batch, np.uint8))
        self.independence: Independence | None = None  # of a batch: of its blocks in global memory
        self.local_bytes = np.full(threads.batch, local_bytes)  # of each thread, by block
        self.local_stride = (
            -(-max(local_bytes, 1) // 16) * 16
        )  # bytes from the local memory of one thread to the next one's
        self.local = Segment(0, np.zeros(self.local_stride * threads.count, np.uint8)) if local_bytes else None
        self.columns_of = [Columns() for _ in range(threads.batch)]
        self.polled: Polled | None = None  # where global memory is read while spinning is looked for
        self.tensor_memory: Segment | None = (
            None  # that of each block behind the one before; None if nothing has touched it
        )

    @property
    def columns(self) -> Columns:
        """The columns of Tensor Memory of the first block."""
        return self.columns_of[0]

    def image(self) -> Segment:
        """Tensor Memory of the blocks."""
        if self.tensor_memory is None:
            self.tensor_memory = Segment(0, np.zeros(self.columns.bytes * self.threads.batch, np.uint8))
        return self.tensor_memory

    def is_space(self, address: Array, space: str) -> Array:
        """Whether generic addresses lie in a state space."""
        top, (place, _, reach) = address >> np.uint64(_WINDOW_SHIFT), space.partition("::")
        if place == "global":
            return (top < np.uint64(CONST_WINDOW >> _WINDOW_SHIFT)) | self.is_space(address, "param")
        inside: Array = top == np.uint64(_WINDOWS[place] >> _WINDOW_SHIFT)
        if place != "shared" or reach == "cluster":
            return inside
        return inside & ((address >> np.uint64(RANK_SHIFT) & np.uint64(0xFF)) == np.uint64(self.threads.rank))

    # --- ordinary accesses

    def _where(self, space: str, addresses: Array, size: int, block: Any) -> list[tuple[Any, Segment, Array]]:
        """(which accesses, the memory, offsets in it) of addresses; a slice where it is all of them."""
        if space.startswith("shared"):
            return self._in_shared(addresses, block, size)
        if space == "local":
            if self.local is None:
                raise MemoryFault("LOCAL_OUT_OF_RANGE", "the kernel has no local memory")
            return [(slice(None), self.local, addresses)]
        if space == "param":
            return [(slice(None), self.params, addresses & np.uint64(0xFFFFFFFF))]
        raise MemoryFault("GMEM_UNMAPPED", f"no state space {space!r}")

    def _in_shared(self, addresses: Array, block: Any, size: int) -> list[tuple[Any, Segment, Array]]:
        places = addresses.view(np.int64)
        window = int(places[0]) & ~0xFFFFFF
        offset = places - window
        first, alike = (
            window >> RANK_SHIFT & 0xFF,
            int(offset.view(np.uint64).max()) + size <= self.threads.shared_bytes,
        )
        if not alike:
            offset, rank = places & 0xFFFFFF, places >> RANK_SHIFT & 0xFF
            alike = not np.count_nonzero(rank != first)
        if self.threads.batch > 1:
            if int(offset.max()) + size > self.threads.shared_bytes:
                raise Stuck("an access beyond shared memory")
            offset = offset + block * self.shared_stride
        offset = offset.view(addresses.dtype)
        if alike:
            return [(slice(None), self.of(first).shared, offset)]
        return [(own, self.of(number).shared, offset[own]) for number in each_once(rank) for own in (rank == number,)]

    def of(self, rank: int) -> Spaces:
        """The memory of a block of the cluster."""
        if rank >= len(self.blocks):
            raise MemoryFault("SMEM_OUT_OF_RANGE", f"shared memory of block {rank} of a cluster of {len(self.blocks)}")
        return self.blocks[rank].spaces

    def parts(self, space: str, addresses: Array, size: int, threads: Array) -> Parts:
        """Where accesses go; None is global memory. Checks alignment and extents."""
        unaligned = addresses & (min(size, 16) - 1)
        if np.count_nonzero(unaligned):
            lane = int(np.argmax(unaligned != 0))
            raise Stop("ADDRESS_MISALIGNED", f"{size} bytes at {int(addresses[lane]):#x}", int(threads[lane]))
        try:
            if space == "global":
                return [(slice(None), None, addresses)]
            if space == "const":
                return [(slice(None), None, in_bank(addresses))]
            if space == "":
                return self._generic(addresses, size, threads)
            found = self._where(space, addresses, size, self.threads.block_of(threads))
        except MemoryFault as fault:
            raise Stop(fault.name, fault.detail, int(threads[0])) from None
        parts: Parts = []
        near = space in ("shared", "shared::cta")
        for own, segment, offset in found:
            if near and segment is not self.shared:
                at = addresses[own]
                said = f"{int(at[0]):#x} is in block {int(at[0]) >> RANK_SHIFT & 0xFF} of the cluster: valid is .shared::cluster"
                raise Stop("SMEM_REMOTE_FORM", said, int(threads[own][0]))
            base, least = offset, segment.size
            if segment is self.local:
                base, least = offset + (threads[own] * self.local_stride).astype(np.uint64), int(self.local_bytes.min())
            if int(offset.max()) + size > least:
                local = segment is self.local
                extents = self.local_bytes[threads[own] // self.threads.width] if local else np.full(len(offset), least)
                beyond = offset >= np.maximum(extents - size + 1, 0).astype(np.uint64)  # a sum could wrap around
                if beyond.any():
                    lane = int(np.argmax(beyond))
                    kind = "SMEM" if space.startswith("shared") else "LOCAL" if local else "PARAM"
                    said = f"{size} bytes at {int(offset[lane]):#x} of {extents[lane]}"
                    raise Stop(f"{kind}_OUT_OF_RANGE", said, int(threads[own][lane]))
            parts.append((own, segment, base))
        return parts

    def _generic(self, addresses: Array, size: int, threads: Array) -> Parts:
        top = addresses >> np.uint64(48)
        if int(top.max()) < SHARED_WINDOW >> 48:
            return [(slice(None), None, addresses)]
        nowhere = top > np.uint64(PARAM_WINDOW >> 48)
        if nowhere.any():
            lane = int(np.argmax(nowhere))
            said = f"an access at {int(addresses[lane]):#x}: no generic address is there"
            raise Stop("GMEM_UNMAPPED", said, int(threads[lane]))
        found: Parts = []
        for window, space in (
            (SHARED_WINDOW, "shared::cluster"),
            (LOCAL_WINDOW, "local"),
            (PARAM_WINDOW, "param"),
            (0, "global"),
        ):
            own = top == np.uint64(window >> 48) if window else top < np.uint64(SHARED_WINDOW >> 48)
            if not own.any():
                continue
            indices = np.nonzero(own)[0]
            for part, segment, offset in self.parts(space, addresses[own] - np.uint64(window), size, threads[own]):
                found.append((indices[part], segment, offset))
        return found

    # --- accesses of effects

    def segments(self, space: str, places: Array, unit: int, cta: Array | None, block: Any = 0) -> Parts:
        """Where accesses lie: (which of them, the memory or None for global memory, offsets in it). Checks that they are inside.

        block: of the batch, one for all or one for each.
        """
        if space in ("global", "generic"):
            addresses = places.view(np.uint64)
            parts: Any = [(slice(None), None, addresses)]
            threads = np.broadcast_to(np.asarray(block) * self.threads.width, places.shape)  # the first of each block
            return parts if space == "global" else self._generic(addresses, unit, threads)
        try:
            if space != "tmem":
                parts = self._in_shared(places, block, unit)
            else:
                parts = self._in_tensor_memory(places, cta, block)
        except MemoryFault as fault:
            raise Stop(fault.name, fault.detail) from None
        for _, segment, offset in parts:
            if int(offset.view(np.uint64).max()) + unit > segment.size:
                beyond = int(offset[np.argmax(offset.view(np.uint64) > np.uint64(segment.size - unit))])
                name = "TMEM_OUT_OF_RANGE" if space == "tmem" else "SMEM_OUT_OF_RANGE"
                raise Stop(name, f"{unit} bytes at {beyond:#x} of {segment.size}")
        return parts

    def _in_tensor_memory(self, places: Array, cta: Array | None, block: Any) -> list[tuple[Any, Segment, Array]]:
        places = places + block * self.columns.bytes
        if cta is None:
            return [(slice(None), self.image(), places)]
        found: list[tuple[Any, Segment, Array]] = []
        first, last = int(cta.min()), int(cta.max())
        for rank in range(first, last + 1):
            own: Any = slice(None) if first == last else cta == rank
            if first == last or own.any():
                found.append((own, self.of(rank).image(), places[own]))
        return found

    # --- values

    def gather(
        self, segment: Segment | None, at: Array, unit: int, threads: Array | None = None, block: Any = 0
    ) -> Array:
        """Values of `unit` bytes at offsets in a part. threads: who reads, to name one where nothing is mapped. block: of the batch."""
        if segment is not None:
            found: Array = segment.views[unit][segment.index(at, unit)]
            return found
        if self.independence is not None:
            self.independence.read(at, unit, block)
        if self.polled is not None:
            self.polled.note(at)
        try:
            return self.memory.gather(at, unit)
        except MemoryFault as fault:
            lane = self.memory.unmapped(at, unit) or 0
            raise Stop(fault.name, fault.detail, None if threads is None else int(threads[lane])) from None

    def scatter(
        self, segment: Segment | None, at: Array, values: Array, unit: int, size: int, threads: Array | None = None, turns: Any = slice(None),
        block: Any = 0,
    ) -> None:  # fmt: skip
        """Put values of `unit` bytes, of accesses of `size` bytes, at offsets in a part: in turns, of several at one place the last stays."""
        if segment is not None:
            if segment is self.params and self.threads.batch > 1:
                raise Unbatchable("a store to parameters")
            segment.views[unit][segment.index(at[turns], unit)] = values[turns]
            return
        lane = self.memory.unmapped(at, unit)
        if lane is not None:
            said = f"{size} bytes at {int(at[lane]):#x}: nothing is mapped there"
            raise Stop("GMEM_UNMAPPED", said, None if threads is None else int(threads[lane]))
        if self.independence is not None:
            self.independence.write(at, unit, block)
        self.memory.scatter(at[turns], values[turns], unit)
        if self.memory.watches:
            self.memory.watches.see(at)

    # --- reductions

    def values(self, segment: Segment | None, at: Array, unit: int) -> tuple[Array, Array] | None:
        """All values of a memory, and which of them lie at offsets in a part; None where it is not one piece of global memory."""
        own = self.memory.covering(at, unit) if segment is None else segment
        return None if own is None else (own.views[unit], own.index(at, unit))

    def reducing(self, segment: Segment | None, at: Array, unit: int, kind: str) -> None:
        """Values are about to be changed by reductions of one operation and type."""
        if segment is self.params and self.threads.batch > 1:
            raise Unbatchable("a store to parameters")
        if segment is not None:
            return
        if self.independence is not None:
            self.independence.reduce(at, unit, kind)
        self.memory.change(at, unit)
        if self.polled is not None:
            self.polled.note(at)
        if self.memory.watches:
            self.memory.watches.see(at)
