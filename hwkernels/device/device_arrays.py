"""Operands from anywhere: NumPy, and whatever lies on the GPU and speaks `__cuda_array_interface__` or DLPack (torch, CuPy, JAX)."""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass, replace
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

from hwkernels.device.array_protocols import OperandTypeError, read_array, strided
from hwkernels.device.driver import call

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
_TORCH = {
    "f16": "float16",
    "bf16": "bfloat16",
    "f32": "float32",
    "s32": "int32",
    "e4m3": "float8_e4m3fn",
    "e5m2": "float8_e5m2",
}


@dataclass(frozen=True)
class DeviceMatrix:
    """A matrix on the GPU, or one of NumPy that is still to be copied there (`host`)."""

    format: str
    shape: tuple[int, int]
    strides: tuple[int, int]  # in elements
    address: int = 0
    host: npt.NDArray[Any] | None = None
    owner: Any = None  # keeps the memory alive
    read_only: bool = False

    @property
    def item_bytes(self) -> int:
        """Bytes of one element."""
        return DTYPES[self.format].itemsize

    def transposed(self) -> DeviceMatrix:
        """The same memory, rows and columns exchanged."""
        host = None if self.host is None else self.host.T
        return replace(self, shape=self.shape[::-1], strides=self.strides[::-1], host=host)


class DeviceArray:
    """Memory on the GPU that frees itself; other libraries take it by `__cuda_array_interface__`, NumPy by `get()`."""

    def __init__(self, shape: tuple[int, ...], dtype: npt.DTypeLike, strides: tuple[int, ...] | None = None) -> None:
        self.shape, self.dtype = tuple(shape), np.dtype(dtype)
        ends = [self.dtype.itemsize]
        for extent in reversed(self.shape[1:]):
            ends.append(ends[-1] * extent)
        self.strides = tuple(reversed(ends[: len(self.shape)])) if strides is None else strides
        self.bytes = max(1, self.shape[0] * self.strides[0] if self.shape else self.dtype.itemsize)
        self.address = int(call("cuMemAlloc", self.bytes))

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        typestr = self.dtype.str if self.dtype.isbuiltin == 1 else f"<V{self.dtype.itemsize}"  # none for ml_dtypes'
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
        found = strided(raw, self.dtype, self.shape, self.strides)
        return found if found.flags.c_contiguous else found.copy()

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
    found = read_array(value, name)
    if len(found.shape) != 2:
        raise OperandTypeError(f"{name} has shape {found.shape}; valid: matrices of two dimensions")
    if found.dtype not in _BY_TYPE:
        raise OperandTypeError(f"{name} has dtype {found.dtype}; valid: {', '.join(str(item) for item in _BY_TYPE)}")
    shape, strides = (found.shape[0], found.shape[1]), (found.strides[0], found.strides[1])
    if min(shape) < 1:
        raise OperandTypeError(f"{name} is {shape}; every size must be at least 1")
    return DeviceMatrix(_BY_TYPE[found.dtype], shape, strides, found.address, found.host, found.owner, found.read_only)


def new_output(like: Any, shape: tuple[int, int], leading: int, format_: str) -> Any:
    """An uninitialised matrix whose rows lie `leading` elements apart: torch's if `like` is, else a DeviceArray."""
    if is_torch(like):
        made = _torch_empty(like, (shape[0], leading), format_)
        return made if leading == shape[1] else made[:, : shape[1]]
    size = DTYPES[format_].itemsize
    return DeviceArray(shape, DTYPES[format_], (leading * size, size))


def new_array(like: Any, shape: tuple[int, ...], format_: str) -> Any:
    """An uninitialised array in C order: torch's if `like` is, else a DeviceArray."""
    return _torch_empty(like, shape, format_) if is_torch(like) else DeviceArray(shape, DTYPES[format_])


def is_torch(value: Any) -> bool:
    """Whether it is a tensor of torch, without importing it."""
    return hasattr(value, "data_ptr") and hasattr(value, "stride")


def _torch_empty(like: Any, shape: tuple[int, ...], format_: str) -> Any:
    torch = sys.modules["torch"]  # whose tensor `like` is
    return torch.empty(shape, dtype=getattr(torch, _TORCH[format_]), device=like.device)


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
