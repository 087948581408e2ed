"""The machine of a stepped launch in a thread of its own, and global memory as it was when the launch began."""

from __future__ import annotations

from collections.abc import Callable

from tcsim.core.errors import OperandError
from tcsim.ptx.compile.compiled import Site
from tcsim.ptx.launch.grid import Launch
from tcsim.ptx.machine.arrays import Array
from tcsim.ptx.machine.block import Block
from tcsim.ptx.machine.memory import Memory
from tcsim.ptx.stepping.follower import SteppedGrid
from tcsim.ptx.stepping.log import Log
from tcsim.ptx.stepping.worker import Worker


class Snapshot:
    """Global memory as it was, to begin again."""

    def __init__(self, memory: Memory) -> None:
        self.memory = memory
        self.data = {segment.address: segment.data.copy() for segment in memory.segments}
        self.heap, self.next = dict(memory.heap), memory._next

    def read(self, address: int, size: int) -> Array:
        """Bytes as they were. Raises OperandError where nothing was mapped."""
        for start, data in self.data.items():
            if start <= address and address + size <= start + len(data):
                return data[address - start : address - start + size]
        raise OperandError(f"nothing was mapped at {address:#x}")

    def restore(self) -> None:
        """Make memory what it was; what was allocated since is given back."""
        for segment in self.memory.segments:
            if segment.address not in self.data:
                self.memory.release(segment.address)
            else:
                segment.data[:] = self.data[segment.address]
        self.memory.heap, self.memory._next = dict(self.heap), self.next


class Stepper:
    """The machine in its thread, and when it stands still. It knows no session, so that a session that nobody holds can end it."""

    def __init__(self, launch: Launch, most: int) -> None:
        self.log = Log(most)
        self.grid = SteppedGrid(launch, self.log, self._pause)
        self.worker = Worker(self._run)
        self.block: Block | None = None
        self.site: Site | None = None
        self.mask: Array | None = None
        self.stops: Callable[[Block, Site, Array], str | None] = lambda block, site, mask: "started"
        self.reason = ""

    def _run(self) -> None:
        self.grid.run()

    def _pause(self, block: Block, site: Site, mask: Array) -> None:
        self.block, self.site, self.mask = block, site, mask
        reason = "interrupted" if self.worker.interrupted else self.stops(block, site, mask)
        if reason:
            self.worker.interrupted, self.reason = False, reason
            self.worker.pause()

    def go(self, stops: Callable[[Block, Site, Array], str | None]) -> None:
        """Let the machine run until something stops it, or it ends."""
        self.stops = stops
        self.worker.resume()
        self.stops = lambda block, site, mask: "stopped"
        if self.worker.ended:
            self.site = self.mask = None
            self.reason = "ended" if self.grid.completed else "ended by a hazard"
