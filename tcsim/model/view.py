"""Memory as an instruction sees it, over one NumPy array: what `execute` reads through, and how its writes are applied."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import chain

import numpy as np
import numpy.typing as npt

from tcsim.model.effects import Access, Write


@dataclass(frozen=True)
class ArrayView:
    """One memory, uint8 (..., bytes), whose index is the address, whatever the space. Leading dimensions are a batch.

    Addresses lie inside the memory: whoever makes an access of arbitrary ones checks them first.

    >>> view = ArrayView(np.arange(16, dtype=np.uint8))
    >>> view.read(Access("shared", np.array([0, 8]), 2)).tolist()
    [[0, 1], [8, 9]]
    """

    memory: npt.NDArray[np.uint8]

    def read(self, access: Access) -> npt.NDArray[np.uint8]:
        """The bytes of an access: uint8 (..., accesses, size)."""
        batch, index = self._flat(access)
        image = np.broadcast_to(self.memory, (*batch, self.memory.shape[-1]))
        found: npt.NDArray[np.uint8] = np.take_along_axis(image, index, axis=-1)
        return found.reshape(*batch, access.address.shape[-1], access.size)

    def written(self, writes: Iterable[Write]) -> npt.NDArray[np.uint8]:
        """The memory after some writes, a copy. Accesses of one write land in order: the last one to an address stays.

        >>> two = Write(Access("shared", np.array([1, 2]), 1), np.uint8([[7], [8]]))
        >>> ArrayView(np.zeros(4, np.uint8)).written([two]).tolist()
        [0, 7, 8, 0]
        """
        memory = self.memory.copy()
        for write in chain.from_iterable(map(_apart, writes)):
            batch, index = ArrayView(memory)._flat(write.at)
            memory = np.broadcast_to(memory, (*batch, memory.shape[-1])).copy()
            data = np.broadcast_to(write.data, (*batch, *write.data.shape[-2:]))
            if write.combine is not None or write.mask is not None:
                old = ArrayView(memory).read(write.at)
                data = data if write.combine is None else write.combine(old, data)
                data = data if write.mask is None else np.where(write.mask, data, old)
            np.put_along_axis(memory, index, data.reshape(index.shape), axis=-1)
        return memory

    def _flat(self, access: Access) -> tuple[tuple[int, ...], npt.NDArray[np.int64]]:
        """The batch of memory and access, and the address of every byte: (*batch, accesses * size)."""
        each = access.address[..., None] + np.arange(access.size)
        batch = np.broadcast_shapes(self.memory.shape[:-1], access.address.shape[:-1])
        flat = each.reshape(*access.address.shape[:-1], access.address.shape[-1] * access.size)
        return batch, np.broadcast_to(flat, (*batch, flat.shape[-1]))


def _apart(write: Write) -> Iterable[Write]:
    """The write access by access, if the result of one depends on what is there; else the write itself."""
    if write.combine is None and write.mask is None:
        return (write,)
    return (
        replace(
            write,
            at=replace(write.at, address=write.at.address[..., i : i + 1]),
            data=write.data[..., i : i + 1, :],
            mask=None if write.mask is None else write.mask[..., i : i + 1, :],
        )
        for i in range(write.at.address.shape[-1])
    )
