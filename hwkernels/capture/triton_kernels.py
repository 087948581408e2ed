"""Launches of Triton's and Gluon's kernels, and of those that torch.compile makes: all go through Triton's CudaLauncher."""

from __future__ import annotations

import ctypes
import functools
import gc
import importlib
import inspect
import sys
from collections.abc import Callable, Iterator, Sequence
from types import FrameType
from typing import Any

from hwkernels.capture.hooks import Patches
from hwkernels.capture.session import Call, Extent, Refused, Session
from tcsim.core.errors import TcsimError
from tcsim.launchers.elements import OCTETS, Elements
from tcsim.launchers.triton_arguments import packed
from tcsim.ptx.text.syntax import Variable
from tcsim.tma.map import TensorMap

LAUNCHER = "Triton"
HOOK_ARGUMENTS = 4  # packed metadata, launch metadata, two hooks: between the function and the kernel's arguments
STATIC = (
    "use_static_cuda_launcher",
    "use_static_triton_launcher",
)  # of torch._inductor.config: it would go round Triton's launcher
TRIALS = {"triton.testing": "do_bench", "torch._inductor.runtime.benchmarking": "benchmark"}
"""Modules whose functions with such a beginning launch kernels only to time them: for an autotuner, hundreds of times on the same arrays."""
ELEMENTS = {
    "float16": "f16", "bfloat16": "bf16", "float32": "f32", "float64": "f64", "float8_e4m3fn": "e4m3", "float8_e5m2": "e5m2",
    "int8": "s8", "int16": "s16", "int32": "s32", "int64": "s64", "uint8": "u8", "uint16": "u16", "uint32": "u32", "uint64": "u64", "bool": "u8",
}  # fmt: skip
"""torch's types by name; others are recorded as bytes."""


def install(session: Session, patches: Patches) -> None:
    """Hook the launcher, and what makes the handles of compiled kernels. Source: triton 3.6 and 3.9, backends/nvidia/driver.py."""
    driver: Any = importlib.import_module("triton.backends.nvidia.driver")
    compiler: Any = importlib.import_module("triton.compiler.compiler")
    allocation: Any = importlib.import_module("triton.runtime._allocation")
    kernels: dict[int, Any] = {}  # compiled kernels by handle of their function
    for own in gc.get_objects():
        if type(own) is compiler.CompiledKernel and own.function is not None:
            kernels[int(own.function)] = own
    patches.environment("TORCHINDUCTOR_USE_STATIC_CUDA_LAUNCHER", "0")
    config = sys.modules.get("torch._inductor.config")
    for name in STATIC:
        if hasattr(config, name):
            patches.replace(config, name, lambda old: False)

    def handles(old: Any) -> Any:
        @functools.wraps(old)
        def init(kernel: Any) -> Any:
            found = old(kernel)
            if kernel.function is not None:
                kernels[int(kernel.function)] = kernel
            return found

        return init

    def launches(old: Any) -> Any:
        @functools.wraps(old)
        def launch(launcher: Any, x: int, y: int, z: int, stream: Any, function: Any, *rest: Any) -> Any:
            kernel = kernels.get(int(function))
            scratch: list[Any] = []

            def describe() -> Call:
                if trial(sys._getframe()):
                    raise Refused("it was launched to be timed")
                if kernel is None:
                    raise Refused(
                        "no PTX: Triton compiled it before recording began, in a way that cannot be found again"
                    )
                grid = (x * launcher.num_ctas, y, z)
                allocate = allocation._allocator.get()
                return described(
                    driver, launcher, kernel, grid, int(stream or 0), rest[HOOK_ARGUMENTS:], allocate, scratch
                )

            def go() -> Any:
                if not scratch:
                    return old(launcher, x, y, z, stream, function, *rest)
                allocate = allocation._allocator.get()
                allocation._allocator.set(lambda *_: scratch[0])  # the one whose address is recorded
                try:
                    return old(launcher, x, y, z, stream, function, *rest)
                finally:
                    allocation._allocator.set(allocate)

            return session.around(str(kernel.name) if kernel is not None else "a Triton kernel", describe, go)

        return launch

    patches.replace(compiler.CompiledKernel, "_init_handles", handles)
    patches.replace(driver.CudaLauncher, "__call__", launches)


def trial(frame: FrameType | None) -> bool:
    """Whether a function of `TRIALS` is among the callers."""
    while frame is not None:
        beginning = TRIALS.get(frame.f_globals.get("__name__", ""))
        if beginning and frame.f_code.co_name.startswith(beginning):
            return True
        frame = frame.f_back
    return False


def described(
    driver: Any, launcher: Any, kernel: Any, grid: tuple[int, int, int], stream: int, args: Sequence[Any], allocate: Callable[..., Any],
    scratch: list[Any],
) -> Call:  # fmt: skip
    """A launch of a compiled kernel; its scratch memory is taken here, and put into `scratch`."""
    if "ptx" not in kernel.asm:
        raise Refused("no PTX: Triton did not keep it")
    if getattr(launcher, "profile_scratch_size", 0):
        raise Refused("it writes a profile, into memory that is taken during the launch")
    metas = iter(getattr(kernel.metadata, "tensordesc_meta", None) or ())
    values = list(_flattened(driver, list(kernel.src.signature.values()), args, metas))
    extents = [
        own for own in (_extent(f"arg{number}", value) for number, (_, value) in enumerate(values)) if own is not None
    ]
    values = [(kind, value.value if isinstance(value, Encoded) else value) for kind, value in values]
    size = getattr(launcher, "global_scratch_size", 0) * grid[0] * grid[1] * grid[2]
    if size:
        scratch.append(allocate(size, launcher.global_scratch_align, stream))
        extents.append(Extent(int(scratch[0].data_ptr()), size, "scratch", scratch=True))

    def params(declared: Sequence[Variable]) -> list[bytes]:
        every = [
            *values,
            ("*", scratch[0] if scratch else None),
            ("*", None),
        ]  # older versions have one or none of the last two
        if not len(values) <= len(declared) <= len(every):
            raise Refused(f"{len(values)} arguments for {len(declared)} parameters of its PTX")
        return [
            value if isinstance(value, bytes) else packed(kind, value, own.size)
            for (kind, value), own in zip(every, declared, strict=False)
        ]

    cluster = (launcher.num_ctas, 1, 1)
    return Call(
        LAUNCHER, str(kernel.asm["ptx"]).encode(), str(kernel.name), grid, None, params, cluster, int(kernel.metadata.shared), stream, tuple(extents),
        cooperative=bool(getattr(kernel.metadata, "launch_cooperative_grid", False)),
    )  # fmt: skip


class Encoded:
    """The tensor map of a descriptor: its 128 bytes, and the tensor that it describes."""

    def __init__(self, value: bytes, base: Any) -> None:
        self.value, self.base = value, base


def _flattened(
    driver: Any, signature: Sequence[Any], args: Sequence[Any], metas: Iterator[Any]
) -> Iterator[tuple[str, Any]]:
    """The types and values that the kernel gets: without constants, tuples and descriptors taken apart."""
    if len(args) != len(signature):
        raise Refused(f"{len(args)} arguments for {len(signature)} of its signature")
    for kind, value in zip(signature, args, strict=True):
        if isinstance(kind, tuple):
            yield from _flattened(driver, kind, value, metas)
        elif kind.startswith("tensordesc"):
            meta = next(metas, None)
            make = driver.make_tensordesc_arg
            parts = make(value, meta, ()) if len(inspect.signature(make).parameters) > 2 else make(value, meta)
            first = parts[0]
            yield (
                ("*", first)
                if meta is None
                else ("map", Encoded(_map_bytes(first, int(value.base.data_ptr())), value.base))
            )
            yield from (("i", own) for own in parts[1:])
        elif kind != "constexpr":
            yield kind, value


def _map_bytes(held: Any, address: int) -> bytes:
    """The CUtensorMap in one of Triton's objects, which shows it to nobody: found in the object as the map of that address.

    Raises Refused if no 128 bytes in it are one.
    """
    if isinstance(held, bytes):
        return held
    found = map_within(ctypes.string_at(id(held), type(held).__basicsize__), address)
    if found is None:
        raise Refused("the tensor map of a descriptor cannot be read")
    return found


def map_within(data: bytes, address: int) -> bytes | None:
    """The 128 bytes, at a multiple of 16, that are a tensor map of a tensor at that address."""
    for start in range(0, len(data) - 127, 16):
        piece = data[start : start + 128]
        try:
            TensorMap.decode(piece)
        except (TcsimError, ValueError):
            continue
        if TensorMap.address_of(piece) == address:
            return piece
    return None


def _extent(name: str, value: Any) -> Extent | None:
    """The storage of a tensor, which views of it share."""
    tensor = value.base if isinstance(value, Encoded) else getattr(value, "base", value)
    tensor = tensor if hasattr(tensor, "data_ptr") else value
    if not hasattr(tensor, "untyped_storage"):
        return None
    storage, kind = tensor.untyped_storage(), ELEMENTS.get(str(tensor.dtype).removeprefix("torch."))
    size, address = int(storage.nbytes()), int(storage.data_ptr())
    if kind is None:
        return Extent(address, size, name, OCTETS)
    elements = Elements(kind)
    whole = int(tensor.numel()) * elements.dtype.itemsize == size and tensor.is_contiguous()
    return Extent(
        address,
        size,
        name,
        elements,
        tuple(int(own) for own in tensor.shape) if whole else (size // elements.dtype.itemsize,),
    )
