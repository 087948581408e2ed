"""The machine of a stepped launch in a thread of its own, and global memory as it was when the launch began."""

from __future__ import annotations

from collections.abc import Callable
from threading import Semaphore, Thread

from tcsim.core.errors import OperandError
from tcsim.ptx.compile.compiled import Site
from tcsim.ptx.launch.grid import Launch
from tcsim.ptx.machine.arrays import Array
from tcsim.ptx.machine.block import Block
from tcsim.ptx.machine.memory import Memory
from tcsim.ptx.stepping.follower import SteppedGrid
from tcsim.ptx.stepping.log import Log


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


class Closed(BaseException):
    """The machine is not wanted any more; it ends the machine's thread, and is never raised to the caller."""


class Worker:
    """A function that may stand still in the middle.

    >>> seen = []
    >>> def count():
    ...     for number in range(3):
    ...         seen.append(number)
    ...         worker.pause()
    >>> worker = Worker(count)
    >>> worker.resume(); worker.resume(); worker.close()
    >>> seen, worker.ended
    ([0, 1], True)
    """

    def __init__(self, function: Callable[[], None]) -> None:
        self.ended = self.interrupted = self._closing = False
        self._function = function
        self._error: BaseException | None = None
        self._go, self._stood = Semaphore(0), Semaphore(0)
        self._thread = Thread(target=self._run, daemon=True, name="tcsim stepper")

    def resume(self) -> None:
        """Let the function go on until it pauses or ends; raises what it raised. Ctrl-C sets `interrupted`: it should pause soon."""
        if self.ended:
            return
        if self._thread.ident is None:
            self._thread.start()
        self._go.release()
        while True:
            try:
                self._stood.acquire()
                break
            except KeyboardInterrupt:
                self.interrupted = True
        if self._error is not None:
            error, self._error = self._error, None
            raise error

    def pause(self) -> None:
        """Stand still until `resume`; called by the function."""
        self._stood.release()
        self._go.acquire()
        if self._closing:
            raise Closed

    def close(self) -> None:
        """End the function where it stands."""
        self._closing = True
        if self._thread.ident is not None and not self.ended:
            self._go.release()
            self._thread.join()
        self.ended = True

    def _run(self) -> None:
        self._go.acquire()
        try:
            if not self._closing:
                self._function()
        except Closed:
            pass
        except BaseException as error:
            self._error = error
        finally:
            self.ended = True
            self._stood.release()
