"""A call of a kernel that is ready to run, and such calls as data, for a process that may be lost: what `GpuWorker` runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from hwkernels.device import stream_launch
from hwkernels.device.driver import call

EXECUTOR = "hwkernels.device.plan:open_executor"
POISON = 0xA5  # every byte of an output before each repetition: an element that the kernel forgets shows


class Plan:
    """A whole output that is ready to be computed: call it to launch its kernels, again and again, into a stream."""

    def __init__(self, build: Any, shape: Any, launches: list[stream_launch.StreamLaunch], output: Any) -> None:
        self.build, self.shape, self.launches, self.output = build, shape, launches, output

    def __call__(self, stream: int | None = None) -> Any:
        """Launch; returns the output, which is ready when the stream gets there."""
        where = stream_launch.current_stream() if stream is None else stream
        for launch in self.launches:
            launch(where)
        return self.output

    def fetch(self) -> npt.NDArray[Any]:
        """Launch, wait, and copy the output, which is a DeviceArray, to NumPy."""
        self()
        call("cuCtxSynchronize")
        return np.asarray(self.output.get())


class WholeCall(Protocol):
    """The arguments of a call on NumPy arrays. Picklable."""

    @property
    def kernel(self) -> str:
        """Its name in error texts."""
        ...

    @property
    def repeat(self) -> int:
        """How often it is run."""
        ...

    def plan(self) -> Plan:
        """Operands on the GPU, kernel compiled."""
        ...


def run_call(job: WholeCall) -> list[npt.NDArray[Any]]:
    """The result of each repetition; the output is poisoned before each."""
    plan = job.plan()
    results = []
    for _ in range(job.repeat):
        plan.output.fill(POISON)
        results.append(plan.fetch())
    return results


def open_executor(ordinal: int) -> Callable[[Any], list[npt.NDArray[Any]]]:
    """Open GPU `ordinal` for the life of this process. Raises DriverUnavailable or CudaError."""
    stream_launch.make_current(ordinal)
    return run_call
