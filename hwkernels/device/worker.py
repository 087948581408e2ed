"""How a launch that may hang or break its context costs one verdict and not the whole run: a supervised child process.

    with GpuWorker() as worker:
        outputs = worker.run(launch)

The child is spawned, so a script that uses a GpuWorker needs the usual `if __name__ == "__main__":` guard.
"""

from __future__ import annotations

import importlib
import multiprocessing
import os
import signal
import threading
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from types import TracebackType
from typing import Any, Protocol

from hwkernels.device.driver import Array
from hwkernels.device.errors import CudaError

# An executor is named "package.module:function". function(device) prepares that device and returns what runs a Launch;
# it may take START_TIMEOUT_S, so that opening a context never counts against the time of a launch.
Executor = Callable[[Any], list[Array]]
DEFAULT_EXECUTOR = "hwkernels.device.driver:open_executor"
START_TIMEOUT_S = 120.0
STOP_TIMEOUT_S = 5.0  # for an idle child to leave by itself
EXIT_TIMEOUT_S = 2.0  # between the end of a dying child's pipe and its exit code
KILL_TIMEOUT_S = 30.0  # for the system to take back a killed child, whose kernel the driver must stop first


class Job(Protocol):
    """What an executor is given: a Launch, or whatever else it takes. Picklable."""

    @property
    def kernel(self) -> str:
        """Its name in error texts."""
        ...


class WorkerError(RuntimeError):
    """A launch did not give a result. The subclasses say why."""


class Hang(WorkerError):
    """No answer in time. The child was killed; the next run starts a new one."""

    def __init__(self, kernel: str, timeout_s: float) -> None:
        super().__init__(kernel, timeout_s)
        self.kernel, self.timeout_s = kernel, timeout_s

    def __str__(self) -> str:
        return f"kernel {self.kernel!r} gave no answer in {self.timeout_s:g} s; its process was killed"


class ContextLost(WorkerError):
    """The child died, or its context was poisoned and it was ended. The next run starts a new one."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason

    def __str__(self) -> str:
        return f"the GPU process was lost: {self.reason}"


class ExecutorError(WorkerError):
    """The executor did not start, or raised something other than a CudaError; the text holds its traceback."""


def _ending(exitcode: int | None) -> str:
    """How a process ended, in words."""
    if exitcode is None:
        return "it still runs"
    if exitcode < 0:
        try:
            return f"killed by {signal.Signals(-exitcode).name}"
        except ValueError:
            return f"killed by signal {-exitcode}"
    return f"it ended with exit code {exitcode}"


def _end_with_parent() -> None:
    """End this process when the parent does, even in the middle of a kernel that hangs."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
    os._exit(1)


def _serve(connection: Connection, executor: str, device: int) -> None:
    """The child: prepare the executor, then answer every Launch with one message until the pipe closes.

    Messages are (kind, payload): ("ready", None), ("result", arrays), ("cuda", CudaError), ("error", traceback text).
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    threading.Thread(target=_end_with_parent, daemon=True).start()
    try:
        module, _, function = executor.partition(":")
        execute: Executor = getattr(importlib.import_module(module), function)(device)
    except CudaError as error:
        connection.send(("cuda", error))
        return
    except Exception:
        connection.send(("error", traceback.format_exc()))
        return
    connection.send(("ready", None))
    while True:
        try:
            launch = connection.recv()
        except EOFError:
            return
        message: tuple[str, Any]
        try:
            message = ("result", execute(launch))
        except CudaError as error:
            message = ("cuda", error)
        except Exception:
            message = ("error", traceback.format_exc())
        connection.send(message)


class GpuWorker:
    """Runs launches in a child process that is replaced when it hangs or breaks. One caller at a time.

    The child starts with the first run. `executor` names what it executes launches with (see DEFAULT_EXECUTOR);
    `device` is handed to it.
    """

    def __init__(
        self, device: int = 0, executor: str = DEFAULT_EXECUTOR, start_timeout_s: float = START_TIMEOUT_S
    ) -> None:
        module, _, function = executor.partition(":")
        if not module or not function:
            raise ValueError(f"executor is {executor!r}; give 'package.module:function' like {DEFAULT_EXECUTOR!r}")
        self.device, self.executor, self.start_timeout_s = device, executor, start_timeout_s
        self.starts = 0  # how many children there have been
        self._process: SpawnProcess | None = None
        self._connection: Connection | None = None

    def __enter__(self) -> GpuWorker:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def pid(self) -> int | None:
        """The process id of the child, None while there is none."""
        return self._process.pid if self._process else None

    def run(self, launch: Job, timeout_s: float = 20.0) -> list[Array]:
        """The outputs of `launch` (see Context.run), from the child.

        Raises Hang after `timeout_s` seconds without an answer; ContextLost if the child dies or reports a sticky
        error; CudaError for any other CUDA error and ExecutorError for any other exception, which the child survives.
        """
        if timeout_s <= 0:
            raise ValueError(f"timeout_s is {timeout_s}; it must be a positive number of seconds")
        connection = self._ready()
        try:
            try:
                connection.send(launch)
            except (BrokenPipeError, ConnectionResetError):
                raise ContextLost(f"{self._end(EXIT_TIMEOUT_S)} before it received {launch.kernel!r}") from None
            answer = self._receive(timeout_s, f"while it ran {launch.kernel!r}")
            if answer is None:
                raise Hang(launch.kernel, timeout_s)
        except BaseException:  # also Ctrl-C: a late answer must not be taken for that of the next launch
            self._end()
            raise
        kind, payload = answer
        if kind == "cuda" and payload.sticky:
            self._end()
            raise ContextLost(f"{payload} while it ran {launch.kernel!r}")
        if kind == "cuda":
            raise payload
        if kind == "error":
            raise ExecutorError(f"{self.executor} raised an exception while it ran {launch.kernel!r}:\n{payload}")
        result: list[Array] = payload
        return result

    def close(self) -> None:
        """End the child, if there is one, and release its process and pipe. A later run would start a new one."""
        self._end(STOP_TIMEOUT_S)

    def _ready(self) -> Connection:
        """The pipe to a child that waits for a launch; starts one if there is none or it died while idle."""
        if self._process is not None and not self._process.is_alive():
            self._end()
        if self._connection is not None:
            return self._connection
        context = multiprocessing.get_context("spawn")
        self._connection, theirs = context.Pipe()
        self._process = context.Process(
            target=_serve, args=(theirs, self.executor, self.device), name="hwkernels-gpu-worker", daemon=True
        )
        try:
            try:
                self._process.start()
            finally:
                theirs.close()
            self.starts += 1
            answer = self._receive(self.start_timeout_s, "while it started")
            if answer is None:
                limit = f"{self.start_timeout_s:g} s"
                raise ExecutorError(f"{self.executor} for device {self.device} did not start in {limit}")
            kind, payload = answer
            if kind == "cuda":
                raise payload
            if kind == "error":
                raise ExecutorError(f"{self.executor} for device {self.device} cannot be started:\n{payload}")
        except BaseException:
            self._end()
            raise
        return self._connection

    def _receive(self, timeout_s: float, when: str) -> tuple[str, Any] | None:
        """The child's next message; None if there is none in time. Raises ContextLost if the child is gone."""
        if self._connection is None or self._process is None:
            raise ContextLost(f"there is no process {when}")
        if not wait([self._connection, self._process.sentinel], timeout_s):
            return None
        try:
            if not self._connection.poll():
                raise EOFError
            message: tuple[str, Any] = self._connection.recv()
        except (EOFError, ConnectionResetError):
            raise ContextLost(f"{self._end(EXIT_TIMEOUT_S)} {when}") from None
        return message

    def _end(self, patience_s: float = 0.0) -> str:
        """End the child, at once or after `patience_s`, and release its process and pipe; says how it ended."""
        process, connection = self._process, self._connection
        self._process = self._connection = None
        if connection is not None:
            connection.close()  # an idle child's recv ends with EOFError and it leaves by itself
        if process is None or process.pid is None:
            return "it never started"
        process.join(patience_s)
        if process.is_alive():
            process.kill()
            process.join(KILL_TIMEOUT_S)
        ending = _ending(process.exitcode)
        if process.exitcode is not None:
            process.close()
        return ending
