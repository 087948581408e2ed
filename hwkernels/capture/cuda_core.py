"""Launches through cuda.core: `launch` of kernels from a Program or an ObjectCode."""

from __future__ import annotations

import ctypes
import functools
import importlib
from typing import Any

from hwkernels.capture.cuda_bindings import _dim3, text_of
from hwkernels.capture.hooks import Patches
from hwkernels.capture.session import Call, Refused, Session
from hwkernels.device.driver import call

LAUNCHER = "cuda.core"
AGAIN = "the PTX is what Program.compile('ptx') makes of the same source and options"


class _Wrapper:
    """An object of cuda.core, whose classes cannot be changed, with some methods of our own."""

    def __init__(self, own: Any) -> None:
        self._own = own

    def __getattr__(self, name: str) -> Any:
        return getattr(self._own, name)


class Code(_Wrapper):
    """An ObjectCode that remembers which kernels are taken from it."""

    def __init__(self, own: Any, known: dict[int, tuple[bytes, str]], ptx: bytes | None, note: str = "") -> None:
        super().__init__(own)
        self._known, self._ptx, self._note = known, ptx, note

    def get_kernel(self, name: Any) -> Any:
        """As ObjectCode.get_kernel."""
        kernel = self._own.get_kernel(name)
        if self._ptx is not None:
            self._known[int(kernel.handle)] = (self._ptx, self._note)
        return kernel


def install(session: Session, patches: Patches) -> None:
    """Replace launch, Program and ObjectCode."""
    core: Any = importlib.import_module("cuda.core")
    known: dict[int, tuple[bytes, str]] = {}  # by handle of a kernel: PTX, note

    class Program(_Wrapper):
        """A Program whose code remembers its PTX."""

        def __init__(self, *given: Any, **named: Any) -> None:
            super().__init__(real_program(*given, **named))
            self._given, self._named = given, named

        def compile(self, target_type: str, *rest: Any, **more: Any) -> Any:
            """As Program.compile; of machine code the PTX is compiled as well."""
            found = self._own.compile(target_type, *rest, **more)
            if found.code_type == "ptx":
                return Code(found, known, _bytes(found.code))
            try:
                again = real_program(*self._given, **self._named).compile("ptx", *rest, **more)
                return Code(found, known, _bytes(again.code), AGAIN)
            except Exception:  # a program without PTX, such as one of LTO IR
                return Code(found, known, None)

    class ObjectCode:
        """Where code comes from without a Program."""

    def loader(old: Any) -> Any:
        @functools.wraps(old)
        def load(*given: Any, **named: Any) -> Any:
            found = old(*given, **named)
            return Code(found, known, text_of(_bytes(found.code)) if found.code_type == "ptx" else None)

        return load

    real_program, real_code = core.Program, core.ObjectCode
    for name in ("from_ptx", "from_cubin", "from_fatbin", "from_ltoir", "from_object", "from_library"):
        if hasattr(real_code, name):
            setattr(ObjectCode, name, staticmethod(loader(getattr(real_code, name))))
    patches.replace(core, "Program", lambda old: Program)
    patches.replace(core, "ObjectCode", lambda old: ObjectCode)

    def launching(old: Any) -> Any:
        @functools.wraps(old)
        def launch(stream: Any, config: Any, kernel: Any, *arguments: Any) -> Any:
            own = getattr(kernel, "_own", kernel)

            def describe() -> Call:
                return _described(known, stream, config, own, arguments)

            return session.around(_name(own), describe, lambda: old(stream, config, own, *arguments))

        return launch

    patches.replace(core, "launch", launching)


def _described(
    known: dict[int, tuple[bytes, str]], stream: Any, config: Any, kernel: Any, arguments: tuple[Any, ...]
) -> Call:
    if int(kernel.handle) not in known:
        raise Refused(
            "no PTX: its code is machine code, or was made before recording began; valid: Program, ObjectCode.from_ptx"
        )
    ptx, note = known[int(kernel.handle)]
    package = type(kernel).__module__.rpartition(".")[0]
    holder = importlib.import_module(f"{package}._kernel_arg_handler").ParamHolder(arguments)

    def params(declared: Any) -> list[bytes]:
        if len(declared) != len(arguments):
            raise Refused(f"{len(arguments)} arguments for {len(declared)} parameters of its PTX")
        pointers = (ctypes.c_uint64 * len(declared)).from_address(int(holder.ptr)) if declared else ()
        return [ctypes.string_at(int(address), own.size) for address, own in zip(pointers, declared, strict=True)]

    grid, block, cluster = _dim3(config.grid), _dim3(config.block), _dim3(config.cluster or (1, 1, 1))
    if config.cluster:  # then the grid is in clusters
        grid = _dim3(blocks * size for blocks, size in zip(grid, cluster, strict=True))
    own = getattr(stream, "handle", stream)
    return Call(
        LAUNCHER, ptx, _name(kernel), grid, block, params, cluster, int(config.shmem_size or 0), int(own or 0), notes=(note,) if note else (),
    )  # fmt: skip


def _name(kernel: Any) -> str:
    """A kernel's name in its PTX."""
    found = call("cuKernelGetName", kernel.handle)
    return found.decode() if isinstance(found, bytes) else str(found)


def _bytes(code: Any) -> bytes:
    return code.encode() if isinstance(code, str) else bytes(code)
