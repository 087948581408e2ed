"""Global memory that clusters poll: one that only spins need not run again before what it polls is written."""

from __future__ import annotations

import numpy as np

from tcsim.ptx.machine.arrays import Array

_GRANULE = np.uint64(4)  # bits of an address that are not told apart: 16 bytes
MOST_POLLED = 1 << 21
"""Accesses after which a cluster that only reads is at work, not waiting: it does not rest."""


class Polled:
    """Which pieces of global memory are read while spinning is looked for. Addresses may be registers, which change: pieces are kept.

    >>> polled, address = Polled(), np.array([64], np.uint64)
    >>> polled.note(address)
    >>> address += np.uint64(64)
    >>> polled.note(address)
    >>> polled.pieces.tolist()
    [4, 8]
    """

    def __init__(self) -> None:
        self._noted = [np.zeros(0, np.uint64)]
        self._left = MOST_POLLED

    @property
    def many(self) -> bool:
        """Whether there were too many accesses to be noted."""
        return self._left < 0

    def note(self, addresses: Array) -> None:
        """Accesses that do not cross pieces."""
        if self._left < 0:
            return
        self._left -= len(addresses)
        if self._left < 0:
            self._noted.clear()
        else:
            self._noted.append(addresses >> _GRANULE)

    @property
    def pieces(self) -> Array:
        """Each once, in order."""
        return np.unique(np.concatenate(self._noted))


class Watch:
    """Some bytes of global memory, by pieces of 16, and whether any was written since, or may have been."""

    def __init__(self, pieces: Array, touched: bool = False) -> None:
        self.pieces, self.touched = pieces, touched

    def see(self, addresses: Array) -> None:
        """Something is written."""
        written = addresses >> _GRANULE
        if written.max() >= self.pieces[0] and written.min() <= self.pieces[-1]:
            self.touched |= bool(np.isin(written, self.pieces).any())


class Watches:
    """What is watched in a memory: each set of bytes once, as clusters mostly poll the same.

    >>> watches, polled = Watches(), Polled()
    >>> polled.note(np.array([64, 68], np.uint64))
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

    def over(self, polled: Polled | None) -> Watch:
        """A watch over what was polled; one that is touched if that is not known."""
        if polled is None or polled.many:
            return Watch(np.zeros(0, np.uint64), touched=True)
        pieces = polled.pieces
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

    def end(self) -> None:
        """Nothing is watched any more: a launch has ended. Clusters of another one look again."""
        for own in self._live.values():
            own.touched = True
        self._live.clear()
