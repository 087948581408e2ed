"""Where the accesses of effects lie: block by block, with the thread of each."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tcsim.model.effects import Access
from tcsim.ptx.memory import SHARED_WINDOW
from tcsim.ptx.threads import Array, distinct

if TYPE_CHECKING:
    from tcsim.ptx.families import Bound
    from tcsim.ptx.performer import Performer

Part = tuple[int, Array, int, Array | None, Array]
"""Rank of the block, offsets in its memory, bytes of each, which of them (None: all), threads."""


def parts(block: Performer, bound: Bound, access: Access, threads: Array, asked: Array) -> list[Part]:
    """(rank, offsets, size, mask of bytes, threads) of an access to shared or Tensor Memory: by block."""
    if access.space not in ("shared", "generic", "tmem"):
        return []
    found = []
    for at in block.copies(access):
        address, cta = block.places(at)
        who = _who(at, bound, threads, asked, len(address))
        mask = None
        if at.mask is not None:
            mask = np.broadcast_to(at.mask, (*at.address.shape, at.size)).reshape(-1, at.size)
        if at.space == "tmem":
            ranks = cta if cta is not None else np.full(len(address), block.rank)
            offsets = address
        else:
            ranks, offsets = address >> 24 & 0xFF, address & 0xFFFFFF
            if at.space == "generic":
                ranks = np.where(address >> 48 == SHARED_WINDOW >> 48, ranks, -1)
        first = int(ranks[0]) if len(ranks) else -1
        if (ranks == first).all():
            if first >= 0:
                found.append((first, offsets, at.size, mask, who))
            continue
        for rank in distinct(ranks[ranks >= 0]).tolist():
            own = ranks == rank
            found.append((rank, offsets[own], at.size, None if mask is None else mask[own], who[own]))
    return found


def _who(at: Access, bound: Bound, threads: Array, asked: Array, count: int) -> Array:
    """The thread of each access."""
    if at.thread is not None:
        found = asked[np.broadcast_to(at.thread, at.address.shape).reshape(-1)]
    elif bound.lanes > 1:
        units = threads[:: bound.lanes]
        found = np.repeat(units, max(1, count // len(units)))
    elif count == len(asked):
        found = asked
    else:
        found = np.full(count, threads[0])
    return found if len(found) == count else np.resize(found, count)
