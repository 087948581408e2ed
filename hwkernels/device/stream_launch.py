"""Launches into a stream, on memory that is already on the GPU: tensor maps, clusters, parameters by value. Nothing waits."""

from __future__ import annotations

import ctypes
import math
import sys
from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from hwkernels.device.driver import (
    DEFAULT_SHARED_LIMIT,
    PORTABLE_CLUSTER_SIZE,
    TENSOR_MAP_BYTES,
    Array,
    Dim3,
    call,
    driver_module,
)

if TYPE_CHECKING:
    from hwkernels.gemm.tiles import TensorMapSpec


def make_current(ordinal: int = 0) -> None:
    """Make the primary context of a GPU current, unless this thread has one: torch's and CuPy's is the same."""
    call("cuInit", 0)
    if int(call("cuCtxGetCurrent")) == 0:
        call("cuCtxSetCurrent", call("cuDevicePrimaryCtxRetain", call("cuDeviceGet", ordinal)))


def current_stream() -> int:
    """The stream that the caller's library works in: torch's current one if torch uses a GPU here, else the default."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return 0
    raw = getattr(
        torch._C, "_cuda_getCurrentRawStream", None
    )  # what torch.compile's code calls: the public way takes 7 us
    if raw is not None:
        return int(raw(torch._C._cuda_getDevice()))
    return int(torch.cuda.current_stream().cuda_stream)


def encode_tensor_map(spec: TensorMapSpec, address: int) -> bytes:
    """The 128 bytes of a tensor map: two dimensions, zeros out of bounds.

    Raises CudaError, CUDA_ERROR_INVALID_VALUE for an address or pitch that is not a multiple of 16 bytes. Source: the driver.
    """
    driver = driver_module()
    made = call(
        "cuTensorMapEncodeTiled",
        getattr(driver.CUtensorMapDataType, f"CU_TENSOR_MAP_DATA_TYPE_{spec.data_type}"),
        2,
        address,
        [driver.cuuint64_t(value) for value in spec.dims],
        [driver.cuuint64_t(spec.pitch)],
        [driver.cuuint32_t(value) for value in spec.box],
        [driver.cuuint32_t(1)] * 2,
        driver.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE,
        getattr(driver.CUtensorMapSwizzle, f"CU_TENSOR_MAP_SWIZZLE_{spec.swizzle}"),
        getattr(driver.CUtensorMapL2promotion, f"CU_TENSOR_MAP_L2_PROMOTION_{spec.promotion}"),
        driver.CUtensorMapFloatOOBfill.CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
    )
    return ctypes.string_at(int(made.getPtr()), TENSOR_MAP_BYTES)


@cache
def load_function(cubin: bytes, entry: str) -> Any:
    """An entry of a cubin in the current context; it stays loaded for the life of the process."""
    return call("cuModuleGetFunction", call("cuModuleLoadData", cubin), entry.encode())


@cache
def multiprocessors(ordinal: int = 0) -> int:
    """Of a GPU."""
    attribute = driver_module().CUdevice_attribute.CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT
    return int(call("cuDeviceGetAttribute", attribute, call("cuDeviceGet", ordinal)))


@cache
def arch_number(ordinal: int = 0) -> int:
    """90 for a GPU of compute capability 9.0."""
    wanted, device = driver_module().CUdevice_attribute, call("cuDeviceGet", ordinal)
    major, minor = (
        int(call("cuDeviceGetAttribute", getattr(wanted, f"CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_{part}"), device))
        for part in ("MAJOR", "MINOR")
    )
    return 10 * major + minor


class StreamLaunch:
    """One kernel with its parameters, ready to be launched any number of times."""

    def __init__(
        self,
        function: Any,
        parameters: Sequence[Array],
        grid: Dim3,
        block: Dim3,
        shared_bytes: int = 0,
        cluster: int = 1,
        keep: Any = None,
        overlaps: bool = False,
    ) -> None:
        """overlaps: the kernel waits by itself (griddepcontrol) until what is before it in the stream is done, and may start earlier."""
        driver = driver_module()
        self.function, self.keep = function, keep
        self.parameters = [
            np.array(item, order="C", ndmin=1) for item in parameters
        ]  # the addresses below point into these
        self._addresses = np.array([item.ctypes.data for item in self.parameters], np.uint64)
        self._parameters = int(self._addresses.ctypes.data)
        limits = driver.CUfunction_attribute
        if shared_bytes > DEFAULT_SHARED_LIMIT:
            call("cuFuncSetAttribute", function, limits.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, shared_bytes)
        config = driver.CUlaunchConfig()
        config.gridDimX, config.gridDimY, config.gridDimZ = grid
        config.blockDimX, config.blockDimY, config.blockDimZ = block
        config.sharedMemBytes, attributes = shared_bytes, []
        if cluster > 1:
            if cluster > PORTABLE_CLUSTER_SIZE:
                call("cuFuncSetAttribute", function, limits.CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 1)
            attributes.append(driver.CUlaunchAttribute())
            attributes[-1].id = driver.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
            dims = attributes[-1].value.clusterDim
            dims.x, dims.y, dims.z = cluster, 1, 1
        if overlaps:
            attributes.append(driver.CUlaunchAttribute())
            attributes[-1].id = driver.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
            attributes[-1].value.programmaticStreamSerializationAllowed = 1
        if attributes:
            config.attrs = attributes
        config.numAttrs = len(attributes)
        self._config = config
        self.grid, self.block, self.cluster = grid, block, cluster

    def max_clusters(self) -> int:
        """How many clusters the GPU holds at once. Source: cuOccupancyMaxActiveClusters."""
        return int(call("cuOccupancyMaxActiveClusters", self.function, self._config))

    def set_grid(self, grid: Dim3) -> None:
        """Change the grid."""
        if math.prod(grid) % self.cluster:
            raise ValueError(f"grid {grid} is not a multiple of a cluster of {self.cluster}")
        self._config.gridDimX, self._config.gridDimY, self._config.gridDimZ = self.grid = grid

    def __call__(self, stream: int = 0) -> None:
        """Launch. Raises CudaError; what goes wrong inside the kernel shows at the next synchronisation."""
        self._config.hStream = stream
        call("cuLaunchKernelEx", self._config, self.function, self._parameters, 0)
