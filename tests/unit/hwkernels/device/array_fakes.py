"""Arrays of imaginary libraries that speak one protocol each: torch's attributes, `__cuda_array_interface__`, DLPack of two ages."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np

from hwkernels.device.array_protocols import _DLTensor, _Versioned

CUDA, HOST = 2, 1
# Written again from dlpack.h 1.1: DLDataTypeCode and bits of a type
KINDS = {
    "int8": (0, 8),
    "int32": (0, 32),
    "uint8": (1, 8),
    "float16": (2, 16),
    "float32": (2, 32),
    "float64": (2, 64),
    "bfloat16": (4, 16),
    "float8_e4m3fn": (10, 8),
    "float8_e5m2": (12, 8),
    "float8_e8m0fnu": (14, 8),
    "float4_e2m1fn": (17, 4),
}


@dataclass
class Interface:
    """`__cuda_array_interface__` of memory that NumPy holds."""

    values: np.ndarray
    changes: dict[str, Any] = field(default_factory=dict)
    silent: bool = False  # about its dtype, as libraries without ml_dtypes are

    def __post_init__(self) -> None:
        if not self.silent:
            self.dtype = self.values.dtype

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        known = self.values.dtype.isbuiltin == 1
        facts = {
            "shape": self.values.shape,
            "typestr": self.values.dtype.str if known else f"<V{self.values.dtype.itemsize}",
            "strides": None if self.values.flags.c_contiguous else self.values.strides,
            "data": (self.values.ctypes.data, not self.values.flags.writeable),
            "version": 3,
        }
        return facts | self.changes


@dataclass
class Packet:
    """DLPack of the same: versioned, or of the time before."""

    values: np.ndarray
    versioned: bool = True
    device: int = CUDA
    flags: int = 0
    major: int = 1
    changes: dict[str, Any] = field(default_factory=dict)  # of the tensor's fields
    name: bytes = b""  # of the capsule; empty: the right one
    asked: list[Any] = field(default_factory=list)

    def __post_init__(self) -> None:
        size = self.values.dtype.itemsize
        code, bits = KINDS[self.values.dtype.name]
        count = self.values.ndim
        self.shape = (ctypes.c_int64 * count)(*self.values.shape)
        self.steps = (ctypes.c_int64 * count)(*(stride // size for stride in self.values.strides))
        tensor = _DLTensor()
        offset = 64  # the data are said to begin earlier: byte_offset counts
        tensor.data, tensor.byte_offset = self.values.ctypes.data - offset, offset
        tensor.device_type, tensor.ndim = self.device, count
        tensor.code, tensor.bits, tensor.lanes = code, bits, 1
        tensor.shape = ctypes.cast(self.shape, ctypes.POINTER(ctypes.c_int64))
        if not self.values.flags.c_contiguous:
            tensor.strides = ctypes.cast(self.steps, ctypes.POINTER(ctypes.c_int64))
        for name, value in self.changes.items():
            setattr(tensor, name, value)
        self.managed = (
            _Versioned(major=self.major, minor=1, flags=self.flags, tensor=tensor) if self.versioned else tensor
        )

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device, 0

    def __dlpack__(self, **more: Any) -> Any:
        self.asked.append(more)
        if more and not self.versioned:
            raise TypeError("__dlpack__() got an unexpected keyword argument 'max_version'")
        make = ctypes.pythonapi.PyCapsule_New
        make.restype, make.argtypes = ctypes.py_object, (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
        self.name = self.name or (b"dltensor_versioned" if self.versioned else b"dltensor")
        return make(ctypes.addressof(self.managed), self.name, None)


class Tensor:
    """What torch's tensors say of themselves."""

    def __init__(self, values: np.ndarray, is_cuda: bool = True, dtype: str = "") -> None:
        self.values, self.shape, self.is_cuda = values, values.shape, is_cuda
        self.dtype, self.device = f"torch.{dtype or values.dtype.name}", "cuda:0" if is_cuda else "cpu"

    def data_ptr(self) -> int:
        """The address."""
        return self.values.ctypes.data

    def stride(self) -> tuple[int, ...]:
        """In elements."""
        return tuple(step // self.values.dtype.itemsize for step in self.values.strides)


def torch_module() -> Any:
    """As much of torch as makes outputs: `torch.empty`, and the names of its types."""

    class Types(SimpleNamespace):
        def __getattr__(self, name: str) -> str:
            return name

        def empty(self, shape: tuple[int, ...], dtype: str, device: str) -> Any:
            """A tensor."""
            assert device == "cuda:0"
            import ml_dtypes

            kind = np.dtype(getattr(np, dtype, None) or getattr(ml_dtypes, dtype))
            return Sliceable(np.zeros(shape, kind))

    return Types()


class Sliceable(Tensor):
    """With views, as outputs need them."""

    def __getitem__(self, key: Any) -> Sliceable:
        return Sliceable(self.values[key])
