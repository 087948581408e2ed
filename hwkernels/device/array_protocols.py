"""What an array of another library is and where it lies: NumPy, torch, `__cuda_array_interface__`, DLPack. Nothing is copied."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

from hwkernels.device.driver import call

# torch's names of types that NumPy has too, or ml_dtypes
_TORCH = MappingProxyType(
    {
        "torch.float16": np.dtype(np.float16),
        "torch.bfloat16": np.dtype(ml_dtypes.bfloat16),
        "torch.float32": np.dtype(np.float32),
        "torch.float64": np.dtype(np.float64),
        "torch.float8_e4m3fn": np.dtype(ml_dtypes.float8_e4m3fn),
        "torch.float8_e5m2": np.dtype(ml_dtypes.float8_e5m2),
        "torch.float8_e8m0fnu": np.dtype(ml_dtypes.float8_e8m0fnu),
        "torch.uint8": np.dtype(np.uint8),
        "torch.int8": np.dtype(np.int8),
        "torch.int32": np.dtype(np.int32),
    }
)
# (type code, bits) of DLPack. Source: dlpack.h 1.1, DLDataTypeCode
_DLPACK = MappingProxyType(
    {
        (0, 8): np.dtype(np.int8),
        (0, 32): np.dtype(np.int32),
        (1, 8): np.dtype(np.uint8),
        (1, 16): np.dtype(np.uint16),
        (1, 32): np.dtype(np.uint32),
        (2, 16): np.dtype(np.float16),
        (2, 32): np.dtype(np.float32),
        (2, 64): np.dtype(np.float64),
        (4, 16): np.dtype(ml_dtypes.bfloat16),
        (10, 8): np.dtype(ml_dtypes.float8_e4m3fn),
        (12, 8): np.dtype(ml_dtypes.float8_e5m2),
        (14, 8): np.dtype(ml_dtypes.float8_e8m0fnu),
        (17, 4): np.dtype(ml_dtypes.float4_e2m1fn),  # only with the flag that each has a byte of its own
    }
)
_DLPACK_CUDA = (2, 13)  # kDLCUDA, kDLCUDAManaged
_DLPACK_HOST = (1, 3)  # kDLCPU, kDLCUDAHost
_DLPACK_MAJOR = 1  # of the versioned form that is read here; another may lay its fields out differently
_READ_ONLY, _PADDED = 1, 4  # DLPACK_FLAG_BITMASK_READ_ONLY, ..._IS_SUBBYTE_TYPE_PADDED


class OperandTypeError(ValueError):
    """An operand is nothing that a kernel can read."""


@dataclass(frozen=True)
class ForeignArray:
    """An array on the GPU (`address`), or of the host (`host`)."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    strides: tuple[int, ...]  # in elements
    address: int = 0
    host: npt.NDArray[Any] | None = None
    owner: Any = None  # keeps the memory alive
    read_only: bool = False

    @property
    def size(self) -> int:
        """Elements."""
        return int(np.prod(self.shape, dtype=np.int64))

    @property
    def contiguous(self) -> bool:
        """Whether elements follow one another in C order. A dimension of one element has no stride to speak of."""
        wanted = 1
        for extent, stride in zip(reversed(self.shape), reversed(self.strides), strict=True):
            if extent != 1 and stride != wanted:
                return not self.size
            wanted *= extent
        return True

    def download(self) -> npt.NDArray[Any]:
        """The values in NumPy: those of the host as they are, a copy of those on the GPU.

        Raises CudaError.
        """
        if self.host is not None:
            return self.host
        if not self.size:
            return np.empty(self.shape, self.dtype)
        low, count = _reach(self.shape, self.strides)
        size = self.dtype.itemsize
        raw = np.empty(count * size, np.uint8)
        call("cuMemcpyDtoH", raw.ctypes.data, self.address + low * size, raw.size)
        return _view(raw, -low, self.dtype, self.shape, self.strides).copy()


def read_array(value: Any, name: str) -> ForeignArray:
    """What an operand is and where it lies.

    A producer that names the stream which fills its array is waited for. Raises OperandTypeError for anything that speaks no protocol, or
    says what cannot be read: another device, a mask, strides inside elements, packed fp4.

    >>> read_array(np.zeros((4, 8), np.float16).T, "a").strides
    (1, 8)
    """
    if isinstance(value, np.ndarray):
        return _from_numpy(value)
    if hasattr(value, "data_ptr") and hasattr(value, "stride"):  # torch, without importing it
        return _from_torch(value, name)
    if hasattr(value, "__cuda_array_interface__"):
        return _from_interface(value, name)
    if hasattr(value, "__dlpack__"):
        return _from_dlpack(value, name)
    raise OperandTypeError(
        f"{name} is a {type(value).__name__}; valid: NumPy arrays, and GPU arrays with __cuda_array_interface__ or __dlpack__"
    )


def _reach(shape: tuple[int, ...], strides: tuple[int, ...]) -> tuple[int, int]:
    """The lowest element of a view, counted from its first, and how many it spans."""
    ends = [(extent - 1) * stride for extent, stride in zip(shape, strides, strict=True)]
    low = sum(min(0, end) for end in ends)
    return low, sum(max(0, end) for end in ends) - low + 1


def _view(
    raw: npt.NDArray[np.uint8], first: int, dtype: np.dtype[Any], shape: tuple[int, ...], strides: tuple[int, ...]
) -> npt.NDArray[Any]:
    """Bytes as an array. Through unsigned integers: NumPy makes no strided views of the types of ml_dtypes."""
    size = dtype.itemsize
    steps = tuple(stride * size for stride in strides)
    return np.ndarray(shape, np.dtype(f"u{size}"), raw.data, first * size, steps).view(dtype)


def strided(
    raw: npt.NDArray[np.uint8], dtype: np.dtype[Any], shape: tuple[int, ...], strides: tuple[int, ...]
) -> npt.NDArray[Any]:
    """An array inside bytes, whatever its type; strides in bytes.

    >>> strided(np.arange(4, dtype=np.uint8), np.dtype(ml_dtypes.float8_e5m2), (2, 1), (2, 1)).view(np.uint8).tolist()
    [[0], [2]]
    """
    return _view(raw, 0, dtype, shape, tuple(stride // dtype.itemsize for stride in strides))


def _elements(strides: Any, size: int, name: str) -> tuple[int, ...]:
    if any(stride % size for stride in strides):
        raise OperandTypeError(
            f"{name} has strides {tuple(strides)} in bytes; valid: multiples of its {size}-byte elements"
        )
    return tuple(int(stride) // size for stride in strides)


def _from_numpy(value: npt.NDArray[Any]) -> ForeignArray:
    size = value.dtype.itemsize
    if any(stride % size for stride in value.strides):
        value = value.copy()
    strides = tuple(stride // size for stride in value.strides)
    return ForeignArray(value.dtype, value.shape, strides, host=value, read_only=not value.flags.writeable)


def _from_torch(value: Any, name: str) -> ForeignArray:
    if not value.is_cuda:
        raise OperandTypeError(f"{name} is a torch tensor on {value.device}; valid: CUDA tensors, or NumPy arrays")
    if str(value.dtype) not in _TORCH:
        raise OperandTypeError(f"{name} has dtype {value.dtype}; valid: {', '.join(_TORCH)}")
    shape, strides = tuple(map(int, value.shape)), tuple(map(int, value.stride()))
    return ForeignArray(_TORCH[str(value.dtype)], shape, strides, int(value.data_ptr()), owner=value)


def _from_interface(value: Any, name: str) -> ForeignArray:
    facts = value.__cuda_array_interface__
    if facts.get("mask") is not None:
        raise OperandTypeError(f"{name} has a mask; valid: arrays without one")
    shape, dtype = tuple(map(int, facts["shape"])), np.dtype(facts["typestr"])
    said = getattr(value, "dtype", dtype)  # typestr has no name for the types of ml_dtypes
    if isinstance(said, np.dtype) and said.itemsize == dtype.itemsize:
        dtype = said
    if facts.get("strides") is None:
        strides = _packed(shape)
    else:
        strides = _elements(facts["strides"], dtype.itemsize, name)
    if facts.get("stream") is not None:  # 1 and 2 are the two default streams, as the driver numbers them
        call("cuStreamSynchronize", int(facts["stream"]))
    address, read_only = facts["data"]
    return ForeignArray(dtype, shape, strides, int(address or 0), owner=value, read_only=bool(read_only))


def _packed(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Strides of C order."""
    strides = [1]
    for extent in reversed(shape[1:]):
        strides.append(strides[-1] * extent)
    return tuple(reversed(strides[: len(shape)]))


class _DLTensor(ctypes.Structure):
    """The array itself. Source: dlpack.h."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


class _Versioned(ctypes.Structure):
    """DLManagedTensorVersioned. The older DLManagedTensor begins with its DLTensor. Source: dlpack.h 1.1."""

    _fields_ = (
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("manager_ctx", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", _DLTensor),
    )


def _capsule(value: Any) -> Any:
    """The capsule of a producer, versioned if it makes such. It stays ours, under its name, and is freed with it."""
    try:
        return value.__dlpack__(max_version=(_DLPACK_MAJOR, 1))
    except TypeError:  # a producer from before versions
        return value.__dlpack__()


def _tensor_of(capsule: Any, name: str) -> tuple[_DLTensor, int]:
    """The tensor in a capsule, and its flags."""
    valid, pointer = ctypes.pythonapi.PyCapsule_IsValid, ctypes.pythonapi.PyCapsule_GetPointer
    valid.restype, valid.argtypes = ctypes.c_int, (ctypes.py_object, ctypes.c_char_p)
    pointer.restype, pointer.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
    if valid(capsule, b"dltensor_versioned"):
        whole = _Versioned.from_address(pointer(capsule, b"dltensor_versioned"))
        if whole.major != _DLPACK_MAJOR:
            raise OperandTypeError(f"{name} speaks DLPack {whole.major}.{whole.minor}; valid: {_DLPACK_MAJOR}.x")
        return whole.tensor, whole.flags
    if valid(capsule, b"dltensor"):
        return _DLTensor.from_address(pointer(capsule, b"dltensor")), 0
    raise OperandTypeError(f"{name} gives no DLPack capsule that is unused; valid: dltensor, dltensor_versioned")


def _from_dlpack(value: Any, name: str) -> ForeignArray:
    capsule = _capsule(value)
    tensor, flags = _tensor_of(capsule, name)
    if tensor.device_type not in _DLPACK_CUDA + _DLPACK_HOST:
        raise OperandTypeError(f"{name} lies on DLPack device {tensor.device_type}; valid: CUDA (2, 13), host (1, 3)")
    kind = (tensor.code, tensor.bits)
    if kind not in _DLPACK or tensor.lanes != 1 or (tensor.bits < 8 and not flags & _PADDED):
        raise OperandTypeError(
            f"{name} has DLPack type {kind}, {tensor.lanes} lanes; valid: one of {', '.join(map(str, _DLPACK.values()))} in a byte or more of its own"
        )
    dtype = _DLPACK[kind]
    shape = tuple(int(tensor.shape[i]) for i in range(tensor.ndim))
    strides = tuple(int(tensor.strides[i]) for i in range(tensor.ndim)) if tensor.strides else _packed(shape)
    address = int(tensor.data or 0) + tensor.byte_offset
    found = ForeignArray(dtype, shape, strides, address, None, (capsule, value), bool(flags & _READ_ONLY))
    if tensor.device_type in _DLPACK_CUDA:
        return found
    return ForeignArray(dtype, shape, strides, 0, _of_host(found), found.owner, found.read_only)


def _of_host(found: ForeignArray) -> npt.NDArray[Any]:
    """A view of host memory at an address."""
    if not found.size:
        return np.empty(found.shape, found.dtype)
    low, count = _reach(found.shape, found.strides)
    size = found.dtype.itemsize
    memory = (ctypes.c_uint8 * (count * size)).from_address(found.address + low * size)
    return _view(np.ctypeslib.as_array(memory), -low, found.dtype, found.shape, found.strides)
