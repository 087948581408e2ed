"""How a cubin is launched: a thin typed layer over the CUDA driver API (cuda-python's `cuda.bindings.driver`).

Importing this module needs neither cuda-python nor a GPU; calling into it does. One launch is one `Launch`, plain data
that can be sent to another process; `hwkernels.device.worker` does so, because a kernel may hang or poison its context.
"""

from __future__ import annotations

import ctypes
import hashlib
import importlib
import math
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import numpy.typing as npt

from hwkernels.device.errors import CudaError, DriverUnavailable
from hwkernels.device.tensor_map import encoded_by_driver

Array = npt.NDArray[Any]
Dim3 = tuple[int, int, int]

POISON = 0xA5  # fills every output before a launch: what the kernel does not write is recognisable
DEFAULT_SHARED_LIMIT = 48 * 1024  # shared bytes a block gets without asking (CUDA C++ programming guide)
PORTABLE_CLUSTER_SIZE = 8  # blocks; larger clusters must be asked for (CUDA C++ programming guide)
MAX_BLOCK_THREADS = 1024  # every architecture
TENSOR_MAP_BYTES = 128  # sizeof(CUtensorMap), cuda.h

# After these the context returns the same error for ever and the process must be replaced. Source: the comments of
# CUresult in cuda.h 13.5 ("leaves the process in an inconsistent state", "cannot be used anymore", "must be
# terminated"), and those that can only follow such an error or a lost device.
STICKY_CODES = frozenset(
    {
        "CUDA_ERROR_DEINITIALIZED",  # the driver is shutting down
        "CUDA_ERROR_ECC_UNCORRECTABLE",
        "CUDA_ERROR_NVLINK_UNCORRECTABLE",
        "CUDA_ERROR_CONTAINED",
        "CUDA_ERROR_ILLEGAL_ADDRESS",
        "CUDA_ERROR_LAUNCH_TIMEOUT",
        "CUDA_ERROR_CONTEXT_IS_DESTROYED",
        "CUDA_ERROR_ASSERT",
        "CUDA_ERROR_HARDWARE_STACK_ERROR",
        "CUDA_ERROR_ILLEGAL_INSTRUCTION",
        "CUDA_ERROR_MISALIGNED_ADDRESS",
        "CUDA_ERROR_INVALID_ADDRESS_SPACE",
        "CUDA_ERROR_INVALID_PC",
        "CUDA_ERROR_LAUNCH_FAILED",
        "CUDA_ERROR_TENSOR_MEMORY_LEAK",  # a tcgen05.alloc without its dealloc
        "CUDA_ERROR_MPS_CLIENT_TERMINATED",
        "CUDA_ERROR_EXTERNAL_DEVICE",
        "CUDA_ERROR_UNKNOWN",  # nothing is promised after it
    }
)


@dataclass(frozen=True)
class DeviceInfo:
    """One GPU, as a recording names it."""

    ordinal: int
    name: str  # "NVIDIA H200"
    arch: str  # "sm_90": its compute capability
    driver_version: str  # of the kernel driver, "580.65.06"; "unknown" if neither NVML nor /proc tells
    cuda_version: str  # the newest CUDA this driver serves, "13.0"
    multiprocessors: int
    memory_bytes: int


@dataclass(frozen=True, eq=False)
class Launch:
    """One kernel launch as data: what to load, what to pass, how to start it. Picklable.

    The kernel's parameters are, in this order: a device pointer per input, a device pointer per output, the scalars by
    value, the tensor maps by value (128 bytes each, `.align 64`). Raises ValueError for what no GPU could launch.
    """

    cubin: bytes
    kernel: str
    inputs: tuple[Array, ...] = ()  # copied to the device before each repetition
    outputs: tuple[tuple[tuple[int, ...], npt.DTypeLike], ...] = ()  # (shape, dtype), filled with `poison` before each
    scalars: tuple[np.generic, ...] = ()
    grid: Dim3 = (1, 1, 1)
    block: Dim3 = (32, 1, 1)
    shared_bytes: int = 0  # dynamic
    cluster: Dim3 | None = None
    repeat: int = 1  # launches whose outputs are all returned
    tensor_maps: tuple[bytes, ...] = ()
    # Which buffer each tensor map describes: an index into inputs + outputs, whose device address is put into the map,
    # or None to pass the map as it is. Empty: all of them as they are.
    tensor_map_buffers: tuple[int | None, ...] = ()
    driver_map_table: int | None = None  # an input that is a table of tensor maps, uint8 (n, 128)
    driver_maps: bool = False  # the driver encodes the tensor maps anew from what their bytes say, before the launch
    poison: int = POISON

    def __post_init__(self) -> None:
        def need(condition: bool, complaint: str) -> None:
            if not condition:
                raise ValueError(f"Launch of {self.kernel!r}: {complaint}")

        def is_dim3(value: object) -> bool:
            return isinstance(value, tuple) and len(value) == 3 and all(isinstance(n, int) and n > 0 for n in value)

        need(isinstance(self.cubin, bytes) and bool(self.cubin), "cubin must be the bytes of a cubin, and not empty")
        need(isinstance(self.kernel, str) and bool(self.kernel), "kernel must be the name of an entry of the cubin")
        for index, array in enumerate(self.inputs):
            need(isinstance(array, np.ndarray), f"inputs[{index}] is a {type(array).__name__}; give a NumPy array")
            need(not array.dtype.hasobject, f"inputs[{index}] holds Python objects; it must hold numbers")
        for index, scalar in enumerate(self.scalars):
            need(
                isinstance(scalar, np.generic),
                f"scalars[{index}] is a {type(scalar).__name__}; it must be a NumPy scalar such as numpy.uint32(1), "
                "because its type decides how many bytes are passed",
            )
        for name, value in (("grid", self.grid), ("block", self.block), ("cluster", self.cluster or (1, 1, 1))):
            need(is_dim3(value), f"{name} is {value!r}; it must be a tuple of three positive ints")
        threads = math.prod(self.block)
        need(threads <= MAX_BLOCK_THREADS, f"block {self.block} has {threads} threads; at most {MAX_BLOCK_THREADS}")
        if self.cluster is not None:
            divides = all(blocks % part == 0 for blocks, part in zip(self.grid, self.cluster, strict=True))
            need(divides, f"cluster {self.cluster} must divide grid {self.grid} in every dimension")
        need(self.shared_bytes >= 0, f"shared_bytes is {self.shared_bytes}; it must not be negative")
        need(self.repeat >= 1, f"repeat is {self.repeat}; it must be at least 1")
        need(0 <= self.poison <= 255, f"poison is {self.poison}; it must be one byte, 0 to 255")
        for index, tensor_map in enumerate(self.tensor_maps):
            need(
                isinstance(tensor_map, bytes) and len(tensor_map) == TENSOR_MAP_BYTES,
                f"tensor_maps[{index}] must be {TENSOR_MAP_BYTES} bytes",
            )
        buffers = len(self.inputs) + len(self.outputs)
        need(
            len(self.tensor_map_buffers) in (0, len(self.tensor_maps)),
            f"{len(self.tensor_map_buffers)} tensor_map_buffers for {len(self.tensor_maps)} tensor_maps; "
            "give one each, or none",
        )
        for index, buffer in enumerate(self.tensor_map_buffers):
            need(
                buffer is None or 0 <= buffer < buffers,
                f"tensor_map_buffers[{index}] is {buffer}; give None or an index into the {buffers} inputs and outputs",
            )


def driver_module() -> Any:
    """`cuda.bindings.driver`. Raises DriverUnavailable when cuda-python is missing."""
    there = sys.modules.get("cuda.bindings.driver")  # every call comes here
    if there is not None:
        return there
    try:
        return importlib.import_module("cuda.bindings.driver")
    except ImportError as error:
        raise DriverUnavailable(
            f"launching needs cuda-python, which is not installed ({error}); pip install 'cuda-python'"
        ) from None


def _call(name: str, *arguments: Any) -> Any:
    """Call a driver function; return its value, a tuple of several, or None. Raises CudaError, DriverUnavailable."""
    driver = driver_module()
    try:
        code, *values = getattr(driver, name)(*arguments)
    except (RuntimeError, AttributeError) as error:  # cuda-python's answer to a libcuda or a function that is not there
        raise DriverUnavailable(f"{name} cannot be called: {error}") from None
    if code != driver.CUresult.CUDA_SUCCESS:
        code_name = getattr(code, "name", str(code))
        raise CudaError(name, code_name, code_name in STICKY_CODES)
    return values[0] if len(values) == 1 else tuple(values) or None


call = _call
"""A function of the driver API by name, for what this module has no wrapper for. Raises CudaError, DriverUnavailable."""


def _kernel_driver_version() -> str:
    """The version of the kernel driver, "580.65.06", from NVML or else /proc/driver/nvidia/version."""
    try:
        nvml, text = ctypes.CDLL("libnvidia-ml.so.1"), ctypes.create_string_buffer(80)
        if nvml.nvmlInit_v2() == 0 and nvml.nvmlSystemGetDriverVersion(text, ctypes.c_uint(len(text))) == 0:
            return text.value.decode()
    except (OSError, AttributeError):
        pass
    try:
        match = re.search(r"\b\d{3,}\.\d+(?:\.\d+)?\b", Path("/proc/driver/nvidia/version").read_text(encoding="utf-8"))
    except OSError:
        match = None
    return match[0] if match else "unknown"


def device_info(ordinal: int = 0) -> DeviceInfo:
    """What GPU `ordinal` is. Raises DriverUnavailable or CudaError. Source: the driver."""
    driver = driver_module()
    _call("cuInit", 0)
    count = _call("cuDeviceGetCount")
    if not 0 <= ordinal < count:
        raise DriverUnavailable(f"there is no GPU {ordinal}: the driver shows {count}")
    device = _call("cuDeviceGet", ordinal)
    wanted = driver.CUdevice_attribute

    def attribute(name: str) -> int:
        return int(_call("cuDeviceGetAttribute", getattr(wanted, f"CU_DEVICE_ATTRIBUTE_{name}"), device))

    cuda = int(_call("cuDriverGetVersion"))  # 1000 * major + 10 * minor
    return DeviceInfo(
        ordinal=ordinal,
        name=_call("cuDeviceGetName", 256, device).split(b"\0")[0].decode(),
        arch=f"sm_{attribute('COMPUTE_CAPABILITY_MAJOR')}{attribute('COMPUTE_CAPABILITY_MINOR')}",
        driver_version=_kernel_driver_version(),
        cuda_version=f"{cuda // 1000}.{cuda % 1000 // 10}",
        multiprocessors=attribute("MULTIPROCESSOR_COUNT"),
        memory_bytes=int(_call("cuDeviceTotalMem", device)),
    )


def shared_limit(ordinal: int = 0) -> int:
    """Bytes of shared memory that a block of GPU `ordinal` may have if it asks. Source: the driver, initialised by `device_info`."""
    attribute = driver_module().CUdevice_attribute.CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN
    return int(_call("cuDeviceGetAttribute", attribute, _call("cuDeviceGet", ordinal)))


def pci_bus_id(ordinal: int = 0) -> str:
    """What nvidia-smi calls GPU `ordinal`, whatever CUDA_VISIBLE_DEVICES says: "0000:1B:00.0". Source: the driver."""
    return str(_call("cuDeviceGetPCIBusId", 13, _call("cuDeviceGet", ordinal)).split(b"\0")[0].decode())


def device_available(ordinal: int = 0) -> tuple[bool, str]:
    """Whether GPU `ordinal` can be used, and which it is or why not. Never raises."""
    try:
        info = device_info(ordinal)
    except Exception as error:  # whatever a broken installation may throw: the answer is no, and this is why
        return False, f"{type(error).__name__}: {error}"
    return True, f"{info.name} ({info.arch}), driver {info.driver_version}"


def place_address(tensor_map: bytes, address: int) -> bytes:
    """`tensor_map` with its global address replaced.

    Source: what ptxas 13.5 makes of `tensormap.replace.tile.global_address` on sm_90a and sm_100a: a 64-bit store at
    byte 0, and bit 21 of the 32-bit word at byte 8 cleared.
    """
    words = np.frombuffer(tensor_map, "<u4").copy()
    words[0], words[1] = address & 0xFFFFFFFF, address >> 32
    words[2] &= ~np.uint32(1 << 21)
    return words.tobytes()


class Module:
    """A cubin loaded into a context."""

    def __init__(self, handle: Any, cubin_sha256: str) -> None:
        self.handle, self.cubin_sha256 = handle, cubin_sha256
        self._functions: dict[str, Any] = {}

    def function(self, name: str) -> Any:
        """The driver's handle of kernel `name`. Raises CudaError, CUDA_ERROR_NOT_FOUND for an unknown name."""
        if name not in self._functions:
            self._functions[name] = _call("cuModuleGetFunction", self.handle, name.encode())
        return self._functions[name]


def parameter_sizes(function: Any) -> tuple[int, ...]:
    """The size in bytes of each parameter of a loaded kernel. Source: cuFuncGetParamInfo (CUDA 12.4 and later)."""
    sizes: list[int] = []
    while True:
        try:
            _, size = _call("cuFuncGetParamInfo", function, len(sizes))
        except CudaError as error:
            if error.code != "CUDA_ERROR_INVALID_VALUE":  # which says: no parameter of this index
                raise
            return tuple(sizes)
        sizes.append(int(size))


class Context:
    """The primary context of one GPU, current while the `with` block runs. Modules stay loaded until it ends."""

    def __init__(self, ordinal: int = 0) -> None:
        self.ordinal = ordinal
        self._device: Any = None
        self._modules: dict[str, Module] = {}
        self._poisoned = False

    def __enter__(self) -> Context:
        _call("cuInit", 0)
        device = _call("cuDeviceGet", self.ordinal)
        context = _call("cuDevicePrimaryCtxRetain", device)
        self._device = device
        _call("cuCtxPushCurrent", context)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        modules, device = list(self._modules.values()), self._device
        self._modules.clear()
        self._device = None
        if self._poisoned:  # every call would only repeat the error; the process is about to end
            return
        for module in modules:
            _call("cuModuleUnload", module.handle)
        _call("cuCtxPopCurrent")
        _call("cuDevicePrimaryCtxRelease", device)

    def load(self, cubin: bytes) -> Module:
        """The module of `cubin`, loaded once. Raises CudaError, CUDA_ERROR_NO_BINARY_FOR_GPU for another arch."""
        key = hashlib.sha256(cubin).hexdigest()
        if key not in self._modules:
            self._modules[key] = Module(_call("cuModuleLoadData", cubin), key)
        return self._modules[key]

    def run(self, launch: Launch) -> list[Array]:
        """Launch `repeat` times and return the outputs, those of the first launch first: repeat * len(outputs) arrays.

        Every repetition starts from the same inputs and from poisoned outputs. Device memory is freed before returning.
        Raises CudaError, and ValueError if the arguments do not fit the kernel's parameters. Source: the driver.
        """
        try:
            return self._run(launch)
        except CudaError as error:
            self._poisoned = self._poisoned or error.sticky
            raise

    def _run(self, launch: Launch) -> list[Array]:
        function = self.load(launch.cubin).function(launch.kernel)
        if launch.driver_maps:
            launch = _with_driver_maps(launch)
        inputs = [np.ascontiguousarray(array) for array in launch.inputs]
        results: list[Array] = []
        pointers: list[Any] = []
        try:
            sizes = [array.nbytes for array in inputs]
            sizes += [math.prod(shape) * np.dtype(dtype).itemsize for shape, dtype in launch.outputs]
            for size in sizes:
                pointers.append(_call("cuMemAlloc", max(1, size)))
            arguments = _arguments(launch, [int(pointer) for pointer in pointers])
            _check_parameters(launch, parameter_sizes(function), [argument.nbytes for argument in arguments])
            addresses = np.array([argument.ctypes.data for argument in arguments], np.uint64)
            config = _configure(launch, function)
            for _ in range(launch.repeat):
                for pointer, array in zip(pointers, inputs, strict=False):
                    if array.nbytes:
                        _call("cuMemcpyHtoD", pointer, array.ctypes.data, array.nbytes)
                for pointer, size in list(zip(pointers, sizes, strict=True))[len(inputs) :]:
                    _call("cuMemsetD8", pointer, launch.poison, max(1, size))
                _call("cuLaunchKernelEx", config, function, int(addresses.ctypes.data), 0)
                _call("cuCtxSynchronize")
                for pointer, (shape, dtype) in zip(pointers[len(inputs) :], launch.outputs, strict=True):
                    result = np.empty(shape, dtype)
                    if result.nbytes:
                        _call("cuMemcpyDtoH", result.ctypes.data, pointer, result.nbytes)
                    results.append(result)
        except CudaError as error:
            if error.sticky:
                pointers.clear()  # lost with the context
            raise
        finally:
            for pointer in pointers:
                _call("cuMemFree", pointer)
        return results


def _with_driver_maps(launch: Launch) -> Launch:
    """A launch whose tensor maps are those that the driver makes of them."""
    inputs, table = list(launch.inputs), launch.driver_map_table
    if table is not None:
        inputs[table] = encoded_by_driver(inputs[table])
    maps = [encoded_by_driver(np.frombuffer(data, np.uint8)[None])[0].tobytes() for data in launch.tensor_maps]
    return replace(launch, inputs=tuple(inputs), tensor_maps=tuple(maps), driver_maps=False)


def _arguments(launch: Launch, pointers: list[int]) -> list[Array]:
    """The value of each kernel parameter, as arrays whose bytes are what the kernel receives."""
    buffers = launch.tensor_map_buffers or (None,) * len(launch.tensor_maps)
    maps = [
        tensor_map if buffer is None else place_address(tensor_map, pointers[buffer])
        for tensor_map, buffer in zip(launch.tensor_maps, buffers, strict=True)
    ]
    arguments = [np.array(pointer, np.uint64) for pointer in pointers]
    arguments += [np.array(scalar) for scalar in launch.scalars]
    return arguments + [np.frombuffer(tensor_map, np.uint8).copy() for tensor_map in maps]


def _check_parameters(launch: Launch, declared: tuple[int, ...], given: list[int]) -> None:
    """Raise ValueError unless the arguments have the number and sizes that the kernel declares."""
    if list(declared) != given:
        raise ValueError(
            f"kernel {launch.kernel!r} declares {len(declared)} parameters of {list(declared)} bytes; the launch gives "
            f"{len(given)} of {given} bytes: {len(launch.inputs)} inputs, {len(launch.outputs)} outputs, "
            f"{len(launch.scalars)} scalars, {len(launch.tensor_maps)} tensor maps"
        )


def _configure(launch: Launch, function: Any) -> Any:
    """The CUlaunchConfig of `launch`; raises the kernel's limits where the launch goes beyond the defaults."""
    driver = driver_module()
    limits = driver.CUfunction_attribute
    static = _call("cuFuncGetAttribute", limits.CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, function)
    if launch.shared_bytes and launch.shared_bytes + static > DEFAULT_SHARED_LIMIT:
        attribute = limits.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        _call("cuFuncSetAttribute", function, attribute, launch.shared_bytes)
    config = driver.CUlaunchConfig()
    config.gridDimX, config.gridDimY, config.gridDimZ = launch.grid
    config.blockDimX, config.blockDimY, config.blockDimZ = launch.block
    config.sharedMemBytes = launch.shared_bytes
    config.numAttrs = 0
    if launch.cluster is not None:
        if math.prod(launch.cluster) > PORTABLE_CLUSTER_SIZE:
            _call("cuFuncSetAttribute", function, limits.CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 1)
        attribute = driver.CUlaunchAttribute()
        attribute.id = driver.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
        dims = attribute.value.clusterDim
        dims.x, dims.y, dims.z = launch.cluster
        config.attrs = [attribute]
        config.numAttrs = 1
    return config


def open_executor(ordinal: int) -> Callable[[Launch], list[Array]]:
    """Open GPU `ordinal` for the life of this process and return what runs a Launch on it.

    The executor that `GpuWorker` uses by default. Raises DriverUnavailable or CudaError.
    """
    return Context(ordinal).__enter__().run
