"""Any kernel, launched once: parameters that are bytes, addresses of buffers or tensor maps of them; the buffers afterwards."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from hwkernels.device.driver import (
    DEFAULT_SHARED_LIMIT,
    PORTABLE_CLUSTER_SIZE,
    Array,
    Dim3,
    call,
    driver_module,
    place_address,
)
from hwkernels.device.errors import CudaError


@dataclass(frozen=True)
class Address:
    """A parameter: the address of a buffer."""

    buffer: int


@dataclass(frozen=True)
class Map:
    """A parameter: a tensor map, whose tensor is a buffer."""

    data: bytes
    buffer: int


@dataclass(frozen=True, eq=False)
class KernelLaunch:
    """One launch as data, to be sent to a worker."""

    image: bytes  # a cubin, or PTX that ends in NUL
    kernel: str
    params: tuple[bytes | Address | Map, ...]
    buffers: tuple[Array, ...]  # uint8
    grid: Dim3
    block: Dim3
    cluster: Dim3 = (1, 1, 1)
    shared_bytes: int = 0  # dynamic


def open_executor(ordinal: int) -> Callable[[KernelLaunch], list[Array]]:
    """Open a GPU for the life of this process, and return what runs a KernelLaunch on it: the buffers afterwards.

    Raises DriverUnavailable or CudaError.
    """
    call("cuInit", 0)
    call("cuCtxSetCurrent", call("cuDevicePrimaryCtxRetain", call("cuDeviceGet", ordinal)))
    return launched


def launched(launch: KernelLaunch) -> list[Array]:
    """Launch, and return the buffers. Raises CudaError."""
    addresses, module = list[int](), None
    try:
        for data in launch.buffers:
            addresses.append(int(call("cuMemAlloc", max(1, data.nbytes))))
            if data.nbytes:
                call("cuMemcpyHtoD", addresses[-1], np.ascontiguousarray(data).ctypes.data, data.nbytes)
        module = call("cuModuleLoadData", launch.image)
        function = call("cuModuleGetFunction", module, launch.kernel.encode())
        values = [np.frombuffer(_bytes(own, addresses), np.uint8).copy() for own in launch.params]
        pointers = np.array([value.ctypes.data for value in values], np.uint64)
        call("cuLaunchKernelEx", _configured(launch, function), function, int(pointers.ctypes.data) if values else 0, 0)
        call("cuCtxSynchronize")
        found = []
        for address, data in zip(addresses, launch.buffers, strict=True):
            found.append(np.empty(data.nbytes, np.uint8))
            if data.nbytes:
                call("cuMemcpyDtoH", found[-1].ctypes.data, address, data.nbytes)
    except CudaError as error:
        if error.sticky:
            addresses, module = [], None  # lost with the context
        raise
    finally:
        for address in addresses:
            call("cuMemFree", address)
        if module is not None:
            call("cuModuleUnload", module)
    return found


def _bytes(own: bytes | Address | Map, addresses: list[int]) -> bytes:
    if isinstance(own, Address):
        return addresses[own.buffer].to_bytes(8, "little")
    return place_address(own.data, addresses[own.buffer]) if isinstance(own, Map) else own


def _configured(launch: KernelLaunch, function: Any) -> Any:
    """The CUlaunchConfig; raises the kernel's limits where the launch goes beyond the defaults."""
    driver = driver_module()
    limits = driver.CUfunction_attribute
    static = call("cuFuncGetAttribute", limits.CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, function)
    if launch.shared_bytes and launch.shared_bytes + static > DEFAULT_SHARED_LIMIT:
        call(
            "cuFuncSetAttribute", function, limits.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, launch.shared_bytes
        )
    config = driver.CUlaunchConfig()
    config.gridDimX, config.gridDimY, config.gridDimZ = launch.grid
    config.blockDimX, config.blockDimY, config.blockDimZ = launch.block
    config.sharedMemBytes, config.numAttrs = launch.shared_bytes, 0
    if launch.cluster != (1, 1, 1):
        if launch.cluster[0] * launch.cluster[1] * launch.cluster[2] > PORTABLE_CLUSTER_SIZE:
            call("cuFuncSetAttribute", function, limits.CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 1)
        attribute = driver.CUlaunchAttribute()
        attribute.id = driver.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
        dims = attribute.value.clusterDim
        dims.x, dims.y, dims.z = launch.cluster
        config.attrs, config.numAttrs = [attribute], 1
    return config
