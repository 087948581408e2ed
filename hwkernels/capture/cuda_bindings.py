"""Launches through cuda.bindings.driver: cuLaunchKernel, cuLaunchCooperativeKernel and cuLaunchKernelEx of modules and libraries whose PTX was loaded as text."""

from __future__ import annotations

import ctypes
import functools
import importlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from hwkernels.capture.hooks import Patches
from hwkernels.capture.session import Call, Refused, Session
from tcsim.ptx.text.syntax import Variable

LAUNCHER = "cuda.bindings"
NO_PTX = (
    "no PTX: its module was loaded from machine code, or before recording began; valid: modules loaded from PTX text"
)

TEXT_BEGINS = (b"/", b".", b" ", b"\n", b"\r", b"\t")
"""How PTX begins: with a comment, a directive or white space. Machine code and fat binaries do not."""


def install(session: Session, patches: Patches) -> None:
    """Hook what loads modules, what finds functions in them, and what launches these."""
    driver: Any = importlib.import_module("cuda.bindings.driver")
    known = Known()

    def loads(name: str, text: Callable[[Any], bytes | None]) -> None:
        def make(old: Any) -> Any:
            @functools.wraps(old)
            def load(given: Any, *rest: Any) -> Any:
                answer = old(given, *rest)
                if len(answer) > 1:  # an error comes without a handle, or with None
                    known.loaded(answer[1], text(given))
                return answer

            return load

        patches.replace(driver, name, make)

    for name in ("cuModuleLoadData", "cuModuleLoadDataEx", "cuLibraryLoadData"):
        loads(name, text_of)
    for name in ("cuModuleLoad", "cuLibraryLoadFromFile"):
        loads(name, _text_of_file)

    def finds(old: Any) -> Any:
        @functools.wraps(old)
        def find(owner: Any, *name: Any) -> Any:
            answer = old(owner, *name)
            if len(answer) > 1:
                known.found(answer[1], owner, name[0] if name else None)
            return answer

        return find

    for name in ("cuModuleGetFunction", "cuLibraryGetKernel", "cuKernelGetFunction"):
        patches.replace(driver, name, finds)

    def launches(name: str, cooperative: bool) -> None:
        def make(old: Any) -> Any:
            @functools.wraps(old)
            def launch(
                f: Any, gridDimX: int, gridDimY: int, gridDimZ: int, blockDimX: int, blockDimY: int, blockDimZ: int, sharedMemBytes: int,
                hStream: Any, kernelParams: Any, *extra: Any,
            ) -> Any:  # fmt: skip
                grid, block = (gridDimX, gridDimY, gridDimZ), (blockDimX, blockDimY, blockDimZ)

                def describe() -> Call:
                    return known.call(
                        f, grid, block, (1, 1, 1), sharedMemBytes, hStream, kernelParams, any(extra), cooperative
                    )

                return session.around(
                    known.name(f),
                    describe,
                    lambda: old(f, *grid, *block, sharedMemBytes, hStream, kernelParams, *extra),
                )

            return launch

        patches.replace(driver, name, make)

    def launch_kernel_ex(old: Any) -> Any:
        @functools.wraps(old)
        def launch(config: Any, f: Any, kernelParams: Any, extra: Any) -> Any:
            def describe() -> Call:
                grid, block = (
                    tuple(getattr(config, f"{what}Dim{axis}") for axis in "XYZ") for what in ("grid", "block")
                )
                found, kinds = _attributes(config), driver.CUlaunchAttributeID
                dims = found.get(kinds.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION)
                cluster = (dims.clusterDim.x, dims.clusterDim.y, dims.clusterDim.z) if dims is not None else (1, 1, 1)
                asked = found.get(kinds.CU_LAUNCH_ATTRIBUTE_COOPERATIVE)
                cooperative = asked is not None and bool(asked.cooperative)
                shared, stream = config.sharedMemBytes, config.hStream
                return known.call(f, grid, block, cluster, shared, stream, kernelParams, extra, cooperative)

            return session.around(known.name(f), describe, lambda: old(config, f, kernelParams, extra))

        return launch

    launches("cuLaunchKernel", False)
    launches("cuLaunchCooperativeKernel", True)
    patches.replace(driver, "cuLaunchKernelEx", launch_kernel_ex)


def _attributes(config: Any) -> dict[Any, Any]:
    """The values of a launch's attributes, by kind."""
    return {own.id: own.value for own in list(config.attrs or ())[: config.numAttrs]}


class Known:
    """The PTX of modules, and the entries of functions, by the driver's handles."""

    def __init__(self) -> None:
        self._texts: dict[int, bytes] = {}
        self._entries: dict[int, tuple[bytes, str]] = {}

    def loaded(self, module: Any, text: bytes | None) -> None:
        """A module, and its PTX if it is text; a handle may be used again for another module."""
        if text is not None:
            self._texts[int(module)] = text
        else:
            self._texts.pop(int(module), None)

    def found(self, function: Any, owner: Any, name: Any) -> None:
        """A function of a module by name, or, without a name, that of a kernel."""
        key = int(function)
        if name is None:
            known = self._entries.get(int(owner))
        else:
            text = self._texts.get(int(owner))
            known = None if text is None else (text, name.decode() if isinstance(name, bytes) else str(name))
        if known is None:
            self._entries.pop(key, None)
        else:
            self._entries[key] = known

    def name(self, function: Any) -> str:
        """What a function is called."""
        known = self._entries.get(int(function))
        return known[1] if known else f"function {int(function):#x}"

    def call(
        self, function: Any, grid: Any, block: Any, cluster: Any, shared: int, stream: Any, params: Any, extra: Any, cooperative: bool = False,
    ) -> Call:  # fmt: skip
        """A launch of a function. Raises Refused where its PTX is not known or its parameters are in one buffer."""
        known = self._entries.get(int(function))
        if known is None:
            raise Refused(NO_PTX)
        if extra:
            raise Refused("its parameters are in one buffer (extra); valid: kernelParams")
        return Call(
            LAUNCHER, *known, _dim3(grid), _dim3(block), lambda declared: parameters(params, declared), _dim3(cluster), int(shared),
            int(stream or 0), cooperative=cooperative,
        )  # fmt: skip


def _dim3(sizes: Any) -> tuple[int, int, int]:
    x, y, z = (int(size) for size in sizes)
    return x, y, z


def text_of(image: Any) -> bytes | None:
    """The PTX that was given as a module's image: bytes, a buffer, or an address; None for anything else."""
    if isinstance(image, (int, np.integer)) or hasattr(image, "getPtr"):
        address = int(image)
        if not address or ctypes.string_at(address, 1) not in TEXT_BEGINS:
            return None
        data = ctypes.string_at(address)
    else:
        try:
            data = bytes(memoryview(image)).split(b"\0", 1)[0]
        except TypeError:
            return None
    return data if data[:1] in TEXT_BEGINS and b".version" in data and b".target" in data else None


def _text_of_file(name: Any) -> bytes | None:
    try:
        with open(name, "rb") as file:
            return text_of(file.read())
    except OSError:
        return None


def parameters(given: Any, declared: Sequence[Variable]) -> list[bytes]:
    """The bytes of each parameter, from what cuda.bindings takes: an address of pointers, a buffer of them, or (values, types).

    Source: cuda-python, Kernel Parameters in "Tips and Tricks" of the manual, `_HelperKernelParams`.
    """
    if given is None or (isinstance(given, (int, np.integer)) and not int(given)):
        return []
    if isinstance(given, tuple):
        values, types = given
        if not isinstance(values, tuple):
            values, types = (values,), (types,)
        return [_value(value, kind, own) for value, kind, own in zip(values, types, declared, strict=True)]
    pointers = (
        np.ctypeslib.as_array((ctypes.c_uint64 * len(declared)).from_address(int(given)))
        if isinstance(given, (int, np.integer))
        else np.frombuffer(given, np.uint64, len(declared))
    )
    return [ctypes.string_at(int(address), own.size) for address, own in zip(pointers, declared, strict=True)]


def _value(value: Any, kind: Any, declared: Variable) -> bytes:
    if kind is None:
        if hasattr(value, "getPtr"):  # CUdeviceptr, CUtensorMap and other types of the driver
            return ctypes.string_at(int(value.getPtr()), declared.size)
        return bytes(value)  # a ctypes object
    return bytes(kind(int(value) if kind is ctypes.c_void_p else value))
