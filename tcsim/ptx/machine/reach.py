"""Where compiled code finds a block's memory, so that its loads and stores need no call each."""

from __future__ import annotations

import numpy as np

from tcsim.lowering.strip import AT_PIECES, CHANGED, OWN, PIECES, SHARED_AT, SHARED_SIZE, SHARED_STEP, THREADS, TOUCHED
from tcsim.ptx.machine.arrays import Array
from tcsim.ptx.machine.events import Events
from tcsim.ptx.machine.spaces import Spaces
from tcsim.ptx.machine.threads import RANK_SHIFT, Threads


class Reach:
    """The memory of a block, for compiled code. Pieces of global memory whose accesses are kept account of one by one are not in it."""

    def __init__(self, threads: Threads, spaces: Spaces, events: Events) -> None:
        self.threads, self.spaces, self.events = threads, spaces, events
        self._words = np.zeros(8, np.uint64)
        self._words[SHARED_AT] = spaces.shared.store.ctypes.data
        self._words[SHARED_STEP], self._words[SHARED_SIZE] = spaces.shared_stride, threads.shared_bytes
        self._words[OWN], self._words[THREADS] = threads.rank << RANK_SHIFT, threads.width
        self._changed = np.zeros(threads.batch, bool)
        self._words[CHANGED] = self._changed.ctypes.data
        self._starts: list[int] = []
        self._rows: Array = np.zeros((0, TOUCHED + 1), np.uint64)
        self._version: object = None
        self.world = int(self._words.ctypes.data)

    def begin(self) -> bool:
        """Be ready for compiled code; False where somebody hears of every access, and it may not run."""
        events = self.events
        heard = events.accessed, events.loaded, events.stored, events.shuffled, events.exchanged
        if any(heard) or self.spaces.polled is not None:
            return False
        independence = self.spaces.independence
        version = self.spaces.memory.version, independence.followed if independence is not None else 0
        if version != self._version:
            self._version = version
            self._look()
        return True

    def _look(self) -> None:
        """Find the pieces of global memory."""
        memory, independence = self.spaces.memory, self.spaces.independence
        pieces = [own for own in memory.segments if independence is None or not independence.follows(own)]
        self._starts = [own.address for own in pieces]
        self._rows = np.zeros((len(pieces) + 1, TOUCHED + 1), np.uint64)  # the last one is nowhere
        for row, own in zip(self._rows, pieces, strict=False):
            marks = memory.reads.get(own.address)
            to_marks = 0 if marks is None else (marks.store.ctypes.data - own.start) % (1 << 64)
            row[:TOUCHED] = own.address, own.size, (own.store.ctypes.data - own.start) % (1 << 64), to_marks
        self._words[PIECES], self._words[AT_PIECES] = len(pieces), self._rows.ctypes.data

    def end(self, stores: bool) -> None:
        """Compiled code has run: note what it has read, and in which blocks memory has changed. stores: whether it stores."""
        if self.spaces.independence is not None and self._rows[:, TOUCHED].any():
            for place in np.flatnonzero(self._rows[:, TOUCHED]).tolist():
                self.spaces.independence.has_read(self._starts[place])
            self._rows[:, TOUCHED] = 0
        if stores and self.threads.batch == 1:
            self.threads.changed = True
        elif stores:
            self.threads.changed |= self._changed
            self._changed[:] = False
