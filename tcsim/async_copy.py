"""cp.async: what a thread copies from global to shared memory, as it is once complete, and the arrival that follows.

`memory` is global memory, `smem` the block's shared memory (`tcsim.copy_instruction`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tcsim.copy_instruction import Bytes, CopyGroup, CopyInstruction, copy_facts
from tcsim.errors import OperandError
from tcsim.instruction import broadcast
from tcsim.mbarrier import LAYOUTS, BarrierError, MBarrier
from tcsim.registry import Row


@dataclass(frozen=True, eq=False, repr=False)
class AsyncCopy(CopyInstruction):
    """cp.async.ca and cp.async.cg: 4, 8 or 16 bytes of global memory to shared memory, by each thread."""

    def execute(
        self,
        memory: Any,
        smem: Any,
        source: Any,
        destination: Any,
        size: int,
        source_size: Any = None,
        ignore: Any = None,
    ) -> Bytes:
        """The new shared memory: memory uint8 (..., bytes), smem uint8 (..., bytes) -> uint8 (..., bytes).

        source, destination: ints, or one for each thread (..., threads). size: 4, 8 or 16 (of .cg: 16). source_size: bytes
        that are read, an int or one for each thread; the rest of the size is zeros. ignore: a bool or one for each thread;
        where it is true nothing is read and zeros are written. Leading dimensions broadcast.

        Raises OperandError for other operands, MisalignedAddressError unless both addresses are multiples of the size,
        OutsideMemoryError, ContestedRowError for different bytes at one address.

        >>> copy = tcsim.instruction("cp.async.ca.shared.global", arch="sm_80")
        >>> memory, smem = np.arange(64, dtype=np.uint8), np.full(16, 255, np.uint8)
        >>> copy.execute(memory=memory, smem=smem, source=[8, 40], destination=[0, 8], size=8, source_size=[8, 3]).tolist()
        [8, 9, 10, 11, 12, 13, 14, 15, 40, 41, 42, 0, 0, 0, 0, 0]
        """
        if size not in self.facts.sizes:
            raise OperandError(
                f"{self._call}: size={size}: valid: {', '.join(str(number) for number in self.facts.sizes)} bytes"
            )
        if source_size is not None and ignore is not None:
            raise OperandError(f"{self._call}: source_size and ignore: an instruction has one of them at most")
        reads = self._integers("source_size", size if source_size is None else source_size)
        if ((reads < 0) | (reads > size)).any():
            bad = int(reads[(reads < 0) | (reads > size)][0])
            raise OperandError(f"{self._call}: source_size={bad}: valid: 0 to size, {size}")
        if ignore is not None:
            skip = np.atleast_1d(np.asarray(ignore))
            if skip.dtype != bool:
                raise OperandError(f"{self._call}: ignore is {skip.dtype}; valid: a bool, or bools (..., threads)")
            reads = np.where(skip, 0, reads)
        image, old = self._memory("memory", memory), self._memory("smem", smem)
        sources, destinations = self._integers("source", source), self._integers("destination", destination)
        for name, places in (("source", sources), ("destination", destinations)):
            self._aligned(name, places, size)
        shape = broadcast([sources.shape, destinations.shape, reads.shape], self._call)
        sources, destinations, reads = (np.broadcast_to(a, shape) for a in (sources, destinations, reads))
        self._inside("source", sources, reads, image.shape[-1])
        self._inside("destination", destinations, size, old.shape[-1])
        batch = broadcast([image.shape[:-1], old.shape[:-1], shape[:-1]], self._call)
        each = np.arange(size)
        there = np.broadcast_to(each < reads[..., None], (*batch, shape[-1], size))
        froms = np.broadcast_to(sources[..., None] + each, there.shape)
        places = np.broadcast_to(destinations[..., None] + each, there.shape)
        data = self._bytes_at(np.broadcast_to(image, (*batch, image.shape[-1])), froms, there)
        return self._put(np.broadcast_to(old, (*batch, old.shape[-1])), places, data)


@dataclass(frozen=True, eq=False, repr=False)
class AsyncArrive(CopyInstruction):
    """cp.async.mbarrier.arrive: an arrival when the thread's earlier cp.async are complete."""

    def execute(self, barrier: MBarrier) -> MBarrier:
        """The barrier after that arrival.

        Without .noinc the pending count goes up by one first, so that nothing changes in the end; with it, it is one arrival.

        Raises BarrierError if the arrival is not pending, or the count beyond its limit.

        >>> barrier = tcsim.MBarrier(2)
        >>> tcsim.instruction("cp.async.mbarrier.arrive.noinc.shared.b64", arch="sm_80").execute(barrier=barrier)
        MBarrier(phase=0, pending=1 of 2, tx_count=0)
        """
        if not isinstance(barrier, MBarrier):
            raise OperandError(f"{self._call}: barrier is a {type(barrier).__name__}; valid: an MBarrier")
        found = barrier.copy()
        if not self.facts.increments:
            found.arrive()
            return found
        found.test_wait_parity(0)  # raises if the barrier is invalid
        if found.pending == LAYOUTS[found.layout]:
            raise BarrierError(f"{self._call}: {found!r}: the pending count would be beyond {LAYOUTS[found.layout]}")
        return found


_CLASSES: dict[str, type[CopyInstruction]] = {
    "copy": AsyncCopy,
    "arrive": AsyncArrive,
    "commit": CopyGroup,
    "wait": CopyGroup,
}


def bind(row: Row, *rest: Any) -> CopyInstruction:
    """The instruction of a row."""
    return _CLASSES[copy_facts(row).operation](row, *rest)
