"""What a call launches, from a CUDA graph that is captured and never run: names, grids and parameters of its kernels."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from ctypes import byref, c_char_p, c_int, c_size_t, c_uint, c_void_p
from typing import Any, NamedTuple


class _KernelNode(ctypes.Structure):
    """CUDA_KERNEL_NODE_PARAMS_v2."""

    _fields_ = (
        ("func", c_void_p), ("grid", c_uint * 3), ("block", c_uint * 3), ("shared", c_uint), ("params", ctypes.POINTER(c_void_p)), ("extra", c_void_p),
        ("kern", c_void_p), ("context", c_void_p),
    )  # fmt: skip


class Launch(NamedTuple):
    """A kernel as it is launched."""

    name: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    params: tuple[bytes, ...] | None


class Driver:
    """The driver, for graphs."""

    def __init__(self) -> None:
        self.lib = ctypes.CDLL("libcuda.so.1")
        self.names: dict[int, str] = {}

    def call(self, name: str, *arguments: Any) -> None:
        """A function of the driver; RuntimeError unless it answers 0."""
        status = getattr(self.lib, name)(*arguments)
        if status:
            raise RuntimeError(f"{name}: {status}")

    def captured(self, stream: int, run: Callable[[], object], params: bool = False) -> list[Launch]:
        """The launches of `run` on a stream, in order; an empty name for what is not a kernel."""
        graph, kind = c_void_p(), c_int()
        self.call("cuStreamBeginCapture_v2", c_void_p(stream), 2)
        try:
            run()
        finally:
            self.call("cuStreamEndCapture", c_void_p(stream), byref(graph))
        try:
            count = c_size_t(64)
            nodes = (c_void_p * 64)()
            self.call("cuGraphGetNodes", graph, nodes, byref(count))
            found = []
            for pointer in nodes[: count.value]:
                node = c_void_p(pointer)
                self.call("cuGraphNodeGetType", node, byref(kind))
                if kind.value != 0:
                    found.append(Launch(f"#{kind.value}", (0, 0, 0), (0, 0, 0), None))
                    continue
                about = _KernelNode()
                self.call("cuGraphKernelNodeGetParams_v2", node, byref(about))
                key = about.kern or about.func
                if key not in self.names:
                    text = c_char_p()
                    if about.kern:
                        self.call("cuKernelGetName", byref(text), c_void_p(about.kern))
                    else:
                        self.call("cuFuncGetName", byref(text), c_void_p(about.func))
                    self.names[key] = (text.value or b"?").decode()
                found.append(
                    Launch(
                        self.names[key],
                        tuple(about.grid),
                        tuple(about.block),
                        self.parameters(about) if params else None,
                    )
                )
            return found
        finally:
            self.call("cuGraphDestroy", graph)

    def parameters(self, about: _KernelNode) -> tuple[bytes, ...]:
        """The bytes of each parameter."""
        found = []
        for index in range(64):
            offset, size = c_size_t(), c_size_t()
            name, key = ("cuKernelGetParamInfo", about.kern) if about.kern else ("cuFuncGetParamInfo", about.func)
            if getattr(self.lib, name)(c_void_p(key), c_size_t(index), byref(offset), byref(size)):
                break
            found.append(ctypes.string_at(about.params[index], size.value))
        return tuple(found)
