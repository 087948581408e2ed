"""The CUDA runtime that CuTe DSL's host code calls, on the model: libraries, tensor maps, launches.

CuTe DSL compiles a function of the host to machine code, which packs the arguments, makes tensor maps and launches kernels through some
functions of libcute_dsl_runtime.so. They stand here instead, as symbols of the engine that holds the machine code.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from typing import Any

from tcsim.core.errors import OperandError
from tcsim.launchers.host_memory import live_extents
from tcsim.launchers.session import Session
from tcsim.ptx import Kernel, Module, parse
from tcsim.ptx.machine.limits import capacity
from tcsim.tma.map import TensorMap
from tcsim.tma.types import DATA_TYPES

Dim3 = tuple[int, int, int]
Reply = Callable[..., None]

FAILED = 999  # cudaErrorUnknown: what the host code hears; the exception itself is raised when it has returned
CLUSTER, COOPERATIVE, DEPENDENT = 4, 2, 6  # cudaLaunchAttributeID
SHARED_OPTIN, MULTIPROCESSORS, MAJOR, MINOR = 97, 16, 75, 76  # cudaDeviceAttr
_INTERLEAVES = ("NONE", "16B", "32B")  # by CUtensorMapInterleave
_SWIZZLES = ("NONE", "32B", "64B", "128B", "128B_ATOM_32B", "128B_ATOM_32B_FLIP_8B", "128B_ATOM_64B")
_PROMOTIONS = ("NONE", "L2_64B", "L2_128B", "L2_256B")
_FILLS = ("NONE", "NAN_REQUEST_ZERO_FMA")
_ELSE = [
    "cuDeviceGet",
    "cuLibraryGetGlobal",
    "cuLibraryGetKernelCount",
    "cuLibraryGetManaged",
    "cuLibraryGetModule",
    "cuLibraryGetUnifiedFunction",
    "cudaEventCreate",
    "cudaEventDestroy",
    "cudaEventElapsedTime",
    "cudaEventRecord",
    "cudaFree",
    "cudaFreeAsync",
    "cudaFreeHost",
    "cudaGetDeviceCount",
    "cudaGetDeviceProperties",
    "cudaGraphDestroy",
    "cudaGraphExecDestroy",
    "cudaGraphInstantiate",
    "cudaGraphLaunch",
    "cudaKernelGetAttribute",
    "cudaLaunchKernel",
    "cudaLibraryGetGlobal",
    "cudaLibraryGetKernelCount",
    "cudaLibraryGetManaged",
    "cudaLibraryGetUnifiedFunction",
    "cudaLibraryLoadFromFile",
    "cudaMalloc",
    "cudaMallocAsync",
    "cudaMallocHost",
    "cudaMallocManaged",
    "cudaMemcpy",
    "cudaMemcpyAsync",
    "cudaMemset",
    "cudaMemsetAsync",
    "cudaOccupancyMaxActiveBlocksPerMultiprocessor",
    "cudaStreamAddCallback",
    "cudaStreamBeginCapture",
    "cudaStreamCreate",
    "cudaStreamDestroy",
    "cudaStreamEndCapture",
    "cudaStreamWaitEvent",
]
"""The other functions of libcute_dsl_runtime.so: host code links with them, and they are refused when they are called."""
_BY_DRIVER = {row.driver: row.name for row in DATA_TYPES.values()}


class _Attribute(ctypes.Structure):
    """cudaLaunchAttribute."""

    _fields_ = (("id", ctypes.c_int), ("padding", ctypes.c_int), ("value", ctypes.c_uint32 * 16))


class _Config(ctypes.Structure):
    """cudaLaunchConfig_t."""

    _fields_ = (
        ("grid", ctypes.c_uint32 * 3), ("block", ctypes.c_uint32 * 3), ("shared", ctypes.c_size_t), ("stream", ctypes.c_void_p),
        ("attributes", ctypes.POINTER(_Attribute)), ("count", ctypes.c_uint32),
    )  # fmt: skip


class Runtime:
    """What the host code of all functions that are compiled under one session calls."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.error: BaseException | None = None
        self.active = True

    def symbols(self, ptx: str) -> dict[str, Any]:
        """The functions that host code needs, for a module of this PTX, as C functions by name. Whoever takes them keeps them."""
        loaded = Loaded(self, ptx)
        number, address, size = ctypes.c_int, ctypes.c_void_p, ctypes.c_uint64
        tensor_map = (address, number, number, size, address, address, address, address, number, number, number, number)
        signatures: dict[str, tuple[Reply, tuple[Any, ...]]] = {
            "_cudaLibraryLoadData": (loaded.library, (address,) * 8),
            "_cudaLibraryGetKernel": (loaded.kernel, (address, address, ctypes.c_char_p)),
            "_cuKernelGetAttribute": (loaded.kernel_attribute, (address, number, address, number)),
            "_cudaLibraryUnload": (_nothing, (address,)),
            "_cudaFuncSetAttribute": (_nothing, (address, number, number)),
            "_cudaKernelSetAttributeForDevice": (_nothing, (address, number, number, number)),
            "_cudaDeviceGetAttribute": (self.device_attribute, (address, number, number)),
            "_cudaGetDevice": (_zero, (address,)),
            "_cudaSetDevice": (_nothing, (number,)),
            "_cudaDeviceSynchronize": (_nothing, ()),
            "_cudaStreamSynchronize": (_nothing, (address,)),
            "_cuTensorMapEncodeTiled": (_encode, tensor_map),
            "_cudaLaunchKernelEx": (loaded.launch, (ctypes.POINTER(_Config), address, ctypes.POINTER(address))),
        }
        signatures |= {f"_{name}": (_refusing(name), ()) for name in _ELSE}
        return {name: ctypes.CFUNCTYPE(number, *types)(self._caught(own)) for name, (own, types) in signatures.items()}

    def _caught(self, function: Reply) -> Callable[..., int]:
        """A function whose exceptions wait until the host code has returned: C has none."""

        def call(*given: Any) -> int:
            if self.error is not None:
                return FAILED
            try:
                function(*given)
            except BaseException as error:
                self.error = error
                return FAILED
            return 0

        return call

    def raise_error(self) -> None:
        """Raise what a function that the host code called raised."""
        error, self.error = self.error, None
        if error is not None:
            raise error

    def device_attribute(self, value: int, attribute: int, device: int) -> None:
        """cudaDeviceGetAttribute, of the attributes that CuTe DSL asks for."""
        arch = self.session.arch
        major, minor = divmod(int(arch.removeprefix("sm_")), 10)
        known = {
            SHARED_OPTIN: capacity(arch).shared_kib << 10, MULTIPROCESSORS: self.session.multiprocessors, MAJOR: major, MINOR: minor,
        }  # fmt: skip
        if attribute not in known:
            raise OperandError(f"cudaDeviceGetAttribute({attribute}) is not answered here; valid: {sorted(known)}")
        ctypes.c_int.from_address(value).value = known[attribute]


class Loaded:
    """A compiled module: its PTX, and the kernels that the host code has handles of."""

    def __init__(self, runtime: Runtime, ptx: str) -> None:
        self.runtime, self.ptx = runtime, ptx
        self._module: Module | None = None
        self._kernels: list[Kernel] = []

    def library(self, library: int, *rest: Any) -> None:
        """cudaLibraryLoadData: a handle; the PTX is known without the machine code."""
        self._module = self._module or parse(self.ptx)
        ctypes.c_void_p.from_address(library).value = 1

    def kernel(self, handle: int, library: int, name: bytes) -> None:
        """cudaLibraryGetKernel: the number of a kernel, from 1."""
        assert self._module is not None
        self._kernels.append(self._module.kernel(name.decode()))
        ctypes.c_void_p.from_address(handle).value = len(self._kernels)

    def kernel_attribute(self, value: int, attribute: int, kernel: int, device: int) -> None:
        """cuKernelGetAttribute, asked for static shared memory, to bound the dynamic one: a launch checks both itself."""
        ctypes.c_int.from_address(value).value = 0

    def launch(self, config: Any, handle: int, params: Any) -> None:
        """cudaLaunchKernelExC."""
        if not self.runtime.active:
            raise RuntimeError("this function was compiled under tcsim.launchers.cute, which is not active any more")
        own, kernel = config.contents, self._kernels[handle - 1]
        values = {item.id: list(item.value) for item in own.attributes[: own.count]} if own.count else {}
        given = [ctypes.string_at(params[number], item.size) for number, item in enumerate(kernel.params)]
        x, y, z = values.get(CLUSTER, [1, 1, 1])[:3]
        self.runtime.session.launch(
            kernel, _dim3(own.grid), _dim3(own.block), (x or 1, y or 1, z or 1), int(own.shared), list(_pointed(given)), lambda: given,
            dependent=bool(values.get(DEPENDENT, [0])[0]), cooperative=bool(values.get(COOPERATIVE, [0])[0]),
        )  # fmt: skip


def _dim3(sizes: Any) -> Dim3:
    x, y, z = (int(size) for size in sizes)
    return x, y, z


def _pointed(params: list[bytes]) -> Iterator[tuple[int, int]]:
    """The tensors that words of the parameters point into, those that tensor maps describe among them."""
    words = {int.from_bytes(data[at : at + 8], "little") for data in params for at in range(0, len(data) - 7, 8)}
    words |= {word & (1 << 57) - 1 for word in words}  # the first word of a tensor map has bits above its address
    for first, end in live_extents():
        if any(first <= word < end for word in words):
            yield first, end


def _nothing(*given: Any) -> None:
    """What has no effect here."""


def _refusing(name: str) -> Reply:
    def refuse(*given: Any) -> None:
        raise OperandError(f"{name} of a host function of CuTe DSL is not modelled; valid: launches and tensor maps")

    return refuse


def _zero(value: int) -> None:
    ctypes.c_int.from_address(value).value = 0


def _encode(
    to: int, data_type: int, rank: int, address: int, global_dim: int, global_strides: int, box_dim: int, element_strides: int,
    interleave: int, swizzle: int, promotion: int, fill: int,
) -> None:  # fmt: skip
    """cuTensorMapEncodeTiled."""

    def read(kind: Any, at: int, count: int) -> tuple[int, ...]:
        return tuple((kind * count).from_address(at)) if count else ()

    found = TensorMap(
        data_type=_BY_DRIVER[data_type], global_dim=read(ctypes.c_uint64, global_dim, rank),
        global_strides=read(ctypes.c_uint64, global_strides, rank - 1), box_dim=read(ctypes.c_uint32, box_dim, rank),
        element_strides=read(ctypes.c_uint32, element_strides, rank), interleave=_INTERLEAVES[interleave], swizzle=_SWIZZLES[swizzle],
        l2_promotion=_PROMOTIONS[promotion], oob_fill=_FILLS[fill],
    )  # fmt: skip
    ctypes.memmove(to, bytes(found.encode(address)), 128)
