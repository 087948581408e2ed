"""The GPU of a recording: which it is, what is allocated, what is in memory."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np

from hwkernels.device.driver import DeviceInfo, call, device_info
from hwkernels.device.errors import CudaError
from tcsim.launchers.elements import Bytes


class Gpu:
    """The device of the current context, through the driver. Every method raises DriverUnavailable without cuda-python."""

    @cached_property
    def info(self) -> DeviceInfo:
        """What it is."""
        return device_info(int(call("cuCtxGetDevice")))

    def synchronize(self) -> None:
        """Wait for everything that was launched. Raises CudaError for what went wrong in it."""
        call("cuCtxSynchronize")

    def recording(self, stream: int) -> bool:
        """Whether a stream is recorded into a CUDA graph, in which nothing runs and nothing may be waited for."""
        try:
            found: Any = call("cuStreamIsCapturing", stream)
        except CudaError:  # of the legacy stream, while another one is recorded
            return True
        return int(found) != 0

    def range_of(self, address: int) -> tuple[int, int] | None:
        """The address and the size of the allocation that an address lies in, or None."""
        try:
            base, size = call("cuMemGetAddressRange", address)
        except CudaError as error:
            if error.sticky:
                raise
            return None
        return int(base), int(size)

    def read(self, address: int, size: int) -> Bytes:
        """Bytes of global memory. Raises CudaError."""
        data = np.empty(size, np.uint8)
        if size:
            call("cuMemcpyDtoH", data.ctypes.data, address, size)
        return data
