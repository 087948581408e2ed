"""A machine that runs in a thread of its own and stands still where it is asked to: of the two threads one runs at a time."""

from __future__ import annotations

from collections.abc import Callable
from threading import Semaphore, Thread


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
