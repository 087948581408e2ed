"""Launches of CuPy's RawKernel, and of the kernels of a RawModule."""

from __future__ import annotations

import functools
import importlib
from typing import Any

import numpy as np

from hwkernels.capture.cuda_bindings import _dim3, text_of
from hwkernels.capture.hooks import Patches
from hwkernels.capture.session import Call, Extent, Refused, Session
from tcsim.core.errors import OperandError
from tcsim.launchers.elements import OCTETS, elements_of

LAUNCHER = "CuPy"
NO_PTX = "no PTX: it was compiled before recording began, or from machine code; valid: kernels of source or PTX, first called while recording"
Compiled = tuple[tuple[str, ...], bytes, dict[str, str]]  # options, PTX, mangled names by name expression


class Kernel:
    """A RawKernel whose launches are recorded; everything else is its own."""

    def __init__(self, own: Any, name: str, session: Session, ptx: Any) -> None:
        self.__dict__.update(_own=own, _name=name, _session=session, _ptx=ptx)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._own, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._own, name, value)  # max_dynamic_shared_size_bytes

    def __call__(self, grid: Any, block: Any, args: Any, *rest: Any, **named: Any) -> Any:
        """As RawKernel."""
        shared = named.get("shared_mem", rest[0] if rest else 0)

        def describe() -> Call:
            _ = self._own.kernel  # compiles
            ptx, entry = self._ptx(self._own, self._name)
            found = [own for own in (_extent(number, value) for number, value in enumerate(args)) if own is not None]
            stream = named.get("stream")
            return Call(
                LAUNCHER, ptx, entry, _dim3((*grid, 1, 1)[:3]), _dim3((*block, 1, 1)[:3]), lambda declared: [_parameter(value) for value in args],
                dynamic_smem=int(shared), stream=stream.ptr if stream is not None else _current_stream(), extents=tuple(found),
            )  # fmt: skip

        return self._session.around(self._name, describe, lambda: self._own(grid, block, args, *rest, **named))


def install(session: Session, patches: Patches) -> None:
    """Replace RawKernel and RawModule, and let CuPy compile to PTX, in memory, while launches are recorded."""
    cupy: Any = importlib.import_module("cupy")
    compiler: Any = importlib.import_module("cupy.cuda.compiler")
    sources: dict[str, list[Compiled]] = {}

    def compiling(old: Any) -> Any:
        @functools.wraps(old)
        def compile_source(source: str, options: tuple[str, ...] = (), *rest: Any, **named: Any) -> Any:
            found, names = old(source, options, *rest, **named)
            text = text_of(found.encode() if isinstance(found, str) else found)
            if text is not None:
                sources.setdefault(source, []).append((tuple(options), text, dict(names or {})))
            return found, names

        return compile_source

    for name in ("_compile_using_nvrtc_no_warning", "compile_using_nvrtc"):
        patches.replace(compiler, name, compiling)
    patches.replace(compiler, "_use_ptx", lambda old: True)
    patches.environment("CUPY_CACHE_IN_MEMORY", "1")  # what is cached on disk was compiled without PTX
    cupy.clear_memo()  # of architecture options and of modules that are compiled already

    def ptx_of(kernel: Any, name: str) -> tuple[bytes, str]:
        path = kernel.file_path
        if path:
            with open(path, "rb") as file:
                text = text_of(file.read())
            if text is not None:
                return text, name
        for options, text, names in reversed(sources.get(kernel.code or "", [])):
            if all(own in options for own in kernel.options):
                mangled = names.get(name, name)
                return text, mangled.decode() if isinstance(mangled, bytes) else mangled
        raise Refused(NO_PTX)

    class Module:
        """A RawModule whose kernels are recorded."""

        def __init__(self, *given: Any, **named: Any) -> None:
            self._own = real_module(*given, **named)

        def __getattr__(self, name: str) -> Any:
            return getattr(self._own, name)

        def get_function(self, name: str) -> Kernel:
            """As RawModule.get_function."""
            return Kernel(self._own.get_function(name), name, session, ptx_of)

    real_module = cupy.RawModule

    def kernels(old: Any) -> Any:
        @functools.wraps(old, updated=())
        def make(code: str, name: str, *rest: Any, **named: Any) -> Kernel:
            return Kernel(old(code, name, *rest, **named), name, session, ptx_of)

        return make

    patches.replace(cupy, "RawKernel", kernels)
    patches.replace(cupy, "RawModule", lambda old: Module)


def _current_stream() -> int:
    return int(importlib.import_module("cupy").cuda.get_current_stream().ptr)


def _extent(number: int, value: Any) -> Extent | None:
    """Where an array lies: itself if it is contiguous, else all of the memory that it is a part of."""
    if not hasattr(value, "__cuda_array_interface__") or not hasattr(value, "data"):
        return None
    name, memory = f"arg{number}", value.data.mem
    if not value.flags.c_contiguous:
        return Extent(int(memory.ptr), int(memory.size), name)
    try:
        return Extent(int(value.data.ptr), int(value.nbytes), name, elements_of(value.dtype, name), tuple(value.shape))
    except OperandError:  # complex numbers, structures
        return Extent(int(value.data.ptr), int(value.nbytes), name, OCTETS)


def _parameter(value: Any) -> bytes:
    """An argument's bytes. Source: cupy/cuda/function.pyx, `_pointer`."""
    if value is None:
        return bytes(8)
    if hasattr(value, "__cuda_array_interface__") and hasattr(value, "data"):
        return int(value.data.ptr).to_bytes(8, "little")
    if isinstance(value, (np.generic, np.ndarray)):
        return value.tobytes()
    if isinstance(value, bool):
        return np.bool_(value).tobytes()
    if isinstance(value, int):
        return np.int64(value).tobytes()
    if isinstance(value, float):
        return np.float64(value).tobytes()
    if isinstance(value, complex):
        return np.complex128(value).tobytes()
    raise Refused(f"an argument is a {type(value).__name__}; valid: arrays, numbers, NumPy scalars and structures")
