"""Global memory that clusters poll: one that only spins need not run again before what it polls is written."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tcsim.ptx.machine.arrays import Array

_GRANULE = np.uint64(4)  # bits of an address that are not told apart: 16 bytes


class Watch:
    """Some bytes of global memory, by pieces of 16, and whether any was written since."""

    def __init__(self, pieces: Array) -> None:
        self.pieces, self.touched = pieces, False

    def see(self, addresses: Array) -> None:
        """Something is written."""
        written = addresses >> _GRANULE
        if written.max() >= self.pieces[0] and written.min() <= self.pieces[-1]:
            self.touched |= bool(np.isin(written, self.pieces).any())


class Watches:
    """What is watched in a memory: each set of bytes once, as clusters mostly poll the same.

    >>> watches, polled = Watches(), [np.array([64, 68], np.uint64)]
    >>> one, other = watches.over(polled), watches.over(polled)
    >>> watches.see(np.array([128], np.uint64))
    >>> one.touched, one is other
    (False, True)
    >>> watches.see(np.array([72], np.uint64))
    >>> one.touched, watches.over(polled) is one
    (True, False)
    """

    def __init__(self) -> None:
        self._live: dict[bytes, Watch] = {}

    def over(self, polled: Sequence[Array]) -> Watch:
        """A watch over bytes at some addresses, of accesses that do not cross pieces."""
        pieces = np.unique(np.concatenate(polled) >> _GRANULE) if polled else np.zeros(0, np.uint64)
        if not len(pieces):
            return Watch(pieces)
        return self._live.setdefault(pieces.tobytes(), Watch(pieces))

    def see(self, addresses: Array) -> None:
        """Something is written."""
        for key, own in list(self._live.items()):
            own.see(addresses)
            if own.touched:
                del self._live[key]

    def __bool__(self) -> bool:
        return bool(self._live)
