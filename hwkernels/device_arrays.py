"""Operands from anywhere: NumPy, and whatever lies on the GPU and speaks `__cuda_array_interface__` or DLPack (torch, CuPy, JAX)."""

from __future__ import annotations

import ctypes
import importlib
import math
import sys
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

from hwkernels.driver import call

DTYPES: dict[str, np.dtype[Any]] = {
    "f16": np.dtype(np.float16),
    "bf16": np.dtype(ml_dtypes.bfloat16),
    "tf32": np.dtype(np.float32),
    "f32": np.dtype(np.float32),
    "e4m3": np.dtype(ml_dtypes.float8_e4m3fn),
    "e5m2": np.dtype(ml_dtypes.float8_e5m2),
    "s8": np.dtype(np.int8),
    "s32": np.dtype(np.int32),
}
"""NumPy's dtype of each format that the kernels read or write."""

_BY_TYPE = {np.dtype(dtype): name for name, dtype in reversed(DTYPES.items())}  # float32 is tf32 as an operand
_TORCH = {"f16": "float16", "bf16": "bfloat16", "f32": "float32", "s32": "int32"}  # outputs
_FROM_TORCH = {
    "torch.float16": "f16",
    "torch.bfloat16": "bf16",
    "torch.float32": "tf32",
    "torch.float8_e4m3fn": "e4m3",
    "torch.float8_e5m2": "e5m2",
    "torch.int8": "s8",
    "torch.int32": "s32",
}
# (type code, bits) of DLPack to our formats. Source: dlpack.h 1.1, DLDataTypeCode
_FROM_DLPACK = {
    (2, 16): "f16",
    (4, 16): "bf16",
    (2, 32): "tf32",
    (0, 8): "s8",
    (0, 32): "s32",
    (10, 8): "e4m3",
    (12, 8): "e5m2",
}
_DLPACK_CUDA = (2, 13)  # kDLCUDA, kDLCUDAManaged


class OperandTypeError(ValueError):
    """An operand is nothing that a kernel can read."""


@dataclass(frozen=True)
class DeviceMatrix:
    """A matrix on the GPU, or one of NumPy that is still to be copied there (`host`)."""

    format: str
    shape: tuple[int, int]
    strides: tuple[int, int]  # in elements
    address: int = 0
    host: npt.NDArray[Any] | None = None
    owner: Any = None  # keeps the memory alive

    @property
    def item_bytes(self) -> int:
        """Bytes of one element."""
        return DTYPES[self.format].itemsize

    def transposed(self) -> DeviceMatrix:
        """The same memory, rows and columns exchanged."""
        host = None if self.host is None else self.host.T
        return DeviceMatrix(self.format, self.shape[::-1], self.strides[::-1], self.address, host, self.owner)


class DeviceArray:
    """Memory on the GPU that frees itself; other libraries take it by `__cuda_array_interface__`, NumPy by `get()`."""

    def __init__(self, shape: tuple[int, ...], dtype: npt.DTypeLike, strides: tuple[int, ...] | None = None) -> None:
        self.shape, self.dtype = tuple(shape), np.dtype(dtype)
        ends = [self.dtype.itemsize]
        for extent in reversed(self.shape[1:]):
            ends.append(ends[-1] * extent)
        self.strides = tuple(reversed(ends)) if strides is None else strides
        self.bytes = max(1, self.shape[0] * self.strides[0])
        self.address = int(call("cuMemAlloc", self.bytes))

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        typestr = self.dtype.str if self.dtype.kind in "fiu" else f"<V{self.dtype.itemsize}"
        return {
            "shape": self.shape,
            "typestr": typestr,
            "strides": self.strides,
            "data": (self.address, False),
            "version": 3,
        }

    def set(self, values: npt.NDArray[Any]) -> None:
        """Copy from NumPy: as many bytes as this holds."""
        call("cuMemcpyHtoD", self.address, values.ctypes.data, self.bytes)

    def get(self) -> npt.NDArray[Any]:
        """A copy in NumPy."""
        raw = np.empty(self.bytes, np.uint8)
        call("cuMemcpyDtoH", raw.ctypes.data, self.address, self.bytes)
        return np.lib.stride_tricks.as_strided(raw.view(self.dtype), self.shape, self.strides).copy()

    def fill(self, byte: int) -> None:
        """Set every byte."""
        call("cuMemsetD8", self.address, byte, self.bytes)

    def __del__(self) -> None:
        if getattr(self, "address", 0) and not sys.is_finalizing():
            try:
                call("cuMemFree", self.address)
            except Exception:  # a lost context has freed it already
                self.address = 0


def read_matrix(value: Any, name: str) -> DeviceMatrix:
    """What an operand is and where it lies. Nothing is copied.

    Raises OperandTypeError for anything but a matrix of a known format, on the GPU or in NumPy.

    >>> read_matrix(np.zeros((4, 8), np.float16), "a").strides
    (8, 1)
    """
    if isinstance(value, np.ndarray):
        found = _from_numpy(value, name)
    elif isinstance(value, DeviceArray):
        found = _from_interface(value, name)
        found = DeviceMatrix(_format(value.dtype, name), found.shape, found.strides, found.address, owner=value)
    elif hasattr(value, "data_ptr") and hasattr(value, "stride"):  # torch, without importing it
        found = _from_torch(value, name)
    elif hasattr(value, "__cuda_array_interface__"):
        found = _from_interface(value, name)
    elif hasattr(value, "__dlpack__"):
        found = _from_dlpack(value, name)
    else:
        raise OperandTypeError(
            f"{name} is a {type(value).__name__}; valid: NumPy arrays, and GPU arrays with __cuda_array_interface__ or __dlpack__"
        )
    if min(found.shape) < 1:
        raise OperandTypeError(f"{name} is {found.shape}; every size must be at least 1")
    return found


def _two(shape: Any, name: str) -> tuple[int, int]:
    if len(shape) != 2:
        raise OperandTypeError(f"{name} has shape {tuple(shape)}; valid: matrices of two dimensions")
    return int(shape[0]), int(shape[1])


def _format(dtype: Any, name: str) -> str:
    if np.dtype(dtype) not in _BY_TYPE:
        raise OperandTypeError(f"{name} has dtype {dtype}; valid: {', '.join(str(item) for item in _BY_TYPE)}")
    return _BY_TYPE[np.dtype(dtype)]


def _from_numpy(value: npt.NDArray[Any], name: str) -> DeviceMatrix:
    shape, size = _two(value.shape, name), value.dtype.itemsize
    if any(stride % size for stride in value.strides):
        value = value.copy()
    strides = value.strides[0] // size, value.strides[1] // size
    return DeviceMatrix(_format(value.dtype, name), shape, strides, host=value)


def _from_torch(value: Any, name: str) -> DeviceMatrix:
    if not value.is_cuda:
        raise OperandTypeError(f"{name} is a torch tensor on {value.device}; valid: CUDA tensors, or NumPy arrays")
    if str(value.dtype) not in _FROM_TORCH:
        raise OperandTypeError(f"{name} has dtype {value.dtype}; valid: {', '.join(_FROM_TORCH)}")
    strides = value.stride()
    shape = _two(value.shape, name)
    return DeviceMatrix(_FROM_TORCH[str(value.dtype)], shape, (strides[0], strides[1]), value.data_ptr(), owner=value)


def _from_interface(value: Any, name: str) -> DeviceMatrix:
    facts = value.__cuda_array_interface__
    shape, dtype = _two(facts["shape"], name), np.dtype(facts["typestr"])
    strides = facts.get("strides") or (shape[1] * dtype.itemsize, dtype.itemsize)
    format_ = _format(getattr(value, "dtype", dtype), name)
    return DeviceMatrix(
        format_, shape, (strides[0] // dtype.itemsize, strides[1] // dtype.itemsize), int(facts["data"][0]), owner=value
    )


class _DLTensor(ctypes.Structure):
    """The head of DLManagedTensor. Source: dlpack.h."""

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


def _from_dlpack(value: Any, name: str) -> DeviceMatrix:
    capsule = value.__dlpack__()  # the old, unversioned form; it stays ours, and is freed with the capsule
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
    tensor = _DLTensor.from_address(pointer(capsule, b"dltensor"))
    if tensor.device_type not in _DLPACK_CUDA:
        raise OperandTypeError(f"{name} lies on DLPack device {tensor.device_type}; valid: CUDA (2), or NumPy arrays")
    kind = (tensor.code, tensor.bits)
    if kind not in _FROM_DLPACK or tensor.lanes != 1:
        raise OperandTypeError(f"{name} has DLPack type {kind}; valid: {', '.join(_FROM_DLPACK.values())}")
    shape = _two([tensor.shape[i] for i in range(tensor.ndim)], name)
    strides = (tensor.strides[0], tensor.strides[1]) if tensor.strides else (shape[1], 1)
    address = int(tensor.data or 0) + tensor.byte_offset
    return DeviceMatrix(_FROM_DLPACK[kind], shape, strides, address, owner=(capsule, value))


def new_output(like: Any, shape: tuple[int, int], leading: int, format_: str) -> Any:
    """An uninitialised matrix whose rows lie `leading` elements apart: torch's if `like` is, else a DeviceArray."""
    if hasattr(like, "data_ptr") and hasattr(like, "stride"):
        torch = importlib.import_module("torch")
        return torch.empty((shape[0], leading), dtype=getattr(torch, _TORCH[format_]), device=like.device)[
            :, : shape[1]
        ]
    size = DTYPES[format_].itemsize
    return DeviceArray(shape, DTYPES[format_], (leading * size, size))


def upload(matrix: DeviceMatrix) -> DeviceMatrix:
    """Copy a matrix of NumPy to the GPU, in its own major order, each row at a multiple of 16 bytes."""
    if matrix.host is None:
        return matrix
    column_major = matrix.strides[0] == 1 and matrix.strides[1] != 1
    values = matrix.host.T if column_major else matrix.host
    leading = round_up(values.shape[1], 16 // matrix.item_bytes)
    padded = np.zeros((values.shape[0], leading), values.dtype)
    padded[:, : values.shape[1]] = values
    array = DeviceArray(padded.shape, padded.dtype)
    array.set(padded)
    strides = (1, leading) if column_major else (leading, 1)
    return DeviceMatrix(matrix.format, matrix.shape, strides, array.address, owner=array)


def download(matrix: DeviceMatrix) -> npt.NDArray[Any]:
    """A matrix in NumPy, copied from the GPU if it lies there.

    Raises OperandTypeError for strides below zero on the GPU.
    """
    if matrix.host is not None:
        return matrix.host
    if min(matrix.strides) < 0:
        raise OperandTypeError(f"strides {matrix.strides} on the GPU; valid: none below zero")
    last = sum((extent - 1) * stride for extent, stride in zip(matrix.shape, matrix.strides, strict=True))
    raw = np.empty((last + 1) * matrix.item_bytes, np.uint8)
    call("cuMemcpyDtoH", raw.ctypes.data, matrix.address, raw.size)
    codes = raw.view(f"<u{matrix.item_bytes}")  # NumPy makes no strided views of fp8
    strides = tuple(stride * matrix.item_bytes for stride in matrix.strides)
    return np.lib.stride_tricks.as_strided(codes, matrix.shape, strides).copy().view(DTYPES[matrix.format])


def round_up(value: int, multiple: int) -> int:
    """The least multiple that is not less.

    >>> round_up(17, 8)
    24
    """
    return math.ceil(value / multiple) * multiple
