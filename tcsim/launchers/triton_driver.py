"""Triton's driver interface on the model: what Triton asks of a GPU's driver is answered for a chip that is not there.

Triton reaches a GPU through `triton.runtime.driver.active` and its compiler through `triton.backends`. Here are a driver, its launcher
and a compiler whose binaries carry their PTX. Nothing else of Triton is replaced (`tcsim.launchers.triton_session` puts them in place).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from importlib import import_module
from math import nan
from typing import Any

from triton import backends, runtime, testing
from triton.backends.compiler import GPUTarget
from triton.backends.driver import DriverBase
from triton.backends.nvidia.compiler import CUDABackend
from triton.backends.nvidia.driver import ty_to_cpp
from triton.runtime import _allocation

from tcsim.core.targets import ARCHS
from tcsim.launchers.cubin import resources
from tcsim.launchers.session import Session
from tcsim.launchers.triton_arguments import flattened, packed, pointed
from tcsim.ptx import parse
from tcsim.ptx.machine.limits import THREADS, capacity

__all__ = ["Compiler", "Driver", "backends", "runtime", "testing"]

AUTOTUNING = (0.5, 0.2, 0.8)  # the quantiles that Triton's autotuner asks for, as a tuple, and it alone
WARP = 32
REGISTERS = 65536  # of a multiprocessor, on every arch since sm_30 (CUDA C++ Programming Guide)
_MARK = b"\n// tcsim: PTX\n"


class Compiler(CUDABackend):  # type: ignore[misc]  # Triton has no types
    """Triton's compiler for NVIDIA GPUs; the PTX stands behind each cubin, so that it comes with the binary from Triton's cache."""

    def make_cubin(self, src: str, *rest: Any) -> bytes:
        """The cubin and its PTX."""
        made: bytes = super().make_cubin(src, *rest)
        return made + _MARK + src.encode()

    def hash(self) -> str:
        """The cache's key: a GPU's cubins are kept apart."""
        return f"tcsim-{super().hash()}"


class Loaded:
    """A kernel that was loaded: its PTX, and what the assembler says of it."""

    def __init__(self, name: str, binary: bytes) -> None:
        cubin, _, ptx = binary.partition(_MARK)
        self.kernel = parse(ptx).kernel(name)
        self.registers, self.frame = resources(cubin)


@lru_cache(maxsize=256)
def loaded(name: str, binary: bytes) -> Loaded:
    """A kernel, loaded once."""
    return Loaded(name, binary)


class Utils:
    """What Triton asks of a device."""

    def __init__(self, session: Session) -> None:
        self.session = session

    def load_binary(self, name: str, binary: bytes, shared: int, device: Any) -> tuple[None, Loaded, int, int, int]:
        """A handle of the module (there is none to unload), the kernel, its registers, spilled words, and threads at most."""
        found = loaded(name, binary)
        return None, found, found.registers, found.frame // 4, THREADS

    def get_device_properties(self, device: Any = None) -> dict[str, Any]:
        """The limits of the arch. Clock rates are NaN: nothing here says how fast a GPU is."""
        arch = self.session.arch
        return {
            "max_shared_mem": capacity(arch).shared_kib << 10, "max_num_regs": REGISTERS, "warpSize": WARP,
            "multiprocessor_count": self.session.multiprocessors, "sm_clock_rate": nan, "mem_clock_rate": nan, "mem_bus_width": nan,
        }  # fmt: skip

    def set_printf_fifo_size(self, size: int) -> None:
        """Nothing: all that is printed is kept."""

    def unload_module(self, module: Any) -> None:
        """Nothing."""


class Event:
    """A point in time that was not measured."""

    def __init__(self, **options: Any) -> None:
        self.options = options

    def record(self, stream: Any = None) -> None:
        """Nothing: launches have ended when they return."""

    def synchronize(self) -> None:
        """Nothing."""

    def elapsed_time(self, end: Any) -> float:
        """NaN: the model does not say how fast a GPU is."""
        return nan


class DeviceInterface:
    """What Triton asks of torch.cuda: a stream whose work has been done when it is asked for."""

    Event = Event

    def synchronize(self, device: Any = None) -> None:
        """Nothing."""

    def current_device(self) -> int:
        """The number of the chip."""
        return 0


class Driver(DriverBase):  # type: ignore[misc]  # Triton has no types
    """The driver that Triton finds active."""

    def __init__(self, session: Session, once: Callable[..., Any]) -> None:
        super().__init__()
        self.session, self.utils, self.launcher_cls, self.once = session, Utils(session), Launcher, once
        self.trying, self.tried, self.fitting = False, 0, 0

    @classmethod
    def is_active(cls) -> bool:
        """Never found by itself."""
        return False

    def map_python_to_cpp_type(self, ty: str) -> str:
        """As for a GPU."""
        return str(ty_to_cpp(ty))

    def get_current_target(self) -> Any:
        """What to compile for."""
        return GPUTarget("cuda", ARCHS[self.session.arch].number, WARP)

    def get_current_device(self) -> int:
        """A number for each arch, under which Triton keeps what it compiled."""
        return ARCHS[self.session.arch].number

    def get_device_capability(self, device: Any = None) -> tuple[int, int]:
        """(9, 0) for sm_90."""
        return divmod(ARCHS[self.session.arch].number, 10)

    def set_current_device(self, device: Any) -> None:
        """Nothing: there is one."""

    def get_current_stream(self, device: Any = None) -> int:
        """The stream of all launches."""
        return 0

    def get_active_torch_device(self) -> Any:
        """Where tensors have to be."""
        return import_module("torch").device("cpu")

    def get_device_interface(self) -> DeviceInterface:
        """Streams and events that measure nothing."""
        return DeviceInterface()

    def get_benchmarker(self) -> Callable[..., list[float]]:
        """What autotuning measures with; for others what stands for triton.testing.do_bench."""
        return self._benchmark

    def _benchmark(self, call: Callable[[], Any], *rest: Any, quantiles: Any = None, **options: Any) -> Any:
        if quantiles == AUTOTUNING:
            return self.first_that_fits(call)
        return self.once(call, *rest, quantiles=quantiles, **options)

    def get_empty_cache_for_benchmark(self) -> None:
        """Nothing: there is no cache to clear."""

    def clear_cache(self, cache: Any) -> None:
        """Nothing."""

    def first_that_fits(self, call: Callable[[], Any]) -> list[float]:
        """Of the configurations that autotuning compares, 0.0 for the first that compiles and fits on the arch, infinity for the others.

        Nothing is launched and nothing measured: Triton takes the least.
        """
        worst, self.tried = [float("inf")] * 3, self.tried + 1
        if self.fitting:
            return worst
        self.trying = True
        try:
            call()
        finally:
            self.trying = False
        self.fitting = self.tried
        return [0.0] * 3

    def choice(self) -> tuple[str, ...]:
        """What autotuning took since the last launch."""
        tried, fitting, self.tried, self.fitting = self.tried, self.fitting, 0, 0
        return (
            (f"autotuning: configuration {fitting} of {tried}, the first that fits; none was measured",)
            if fitting
            else ()
        )


class Launcher:
    """What Triton calls to launch a kernel."""

    def __init__(self, src: Any, metadata: Any) -> None:
        self.signature = tuple(src.signature.values())
        self.metadata = metadata

    def __call__(
        self, x: int, y: int, z: int, stream: Any, function: Loaded, packed_metadata: Any, launch_metadata: Any,
        enter_hook: Any, exit_hook: Any, *arguments: Any,
    ) -> None:  # fmt: skip
        """Run the grid, and return when it has ended."""
        active = runtime.driver._active
        if not isinstance(active, Driver):
            raise RuntimeError("this kernel was compiled under tcsim.launchers.triton, which is not active any more")
        if active.trying or not x * y * z:
            return
        if enter_hook is not None:
            enter_hook(launch_metadata)
        self._launch(active, (x, y, z), function, arguments)
        if exit_hook is not None:
            exit_hook(launch_metadata)

    def _launch(self, active: Driver, grid: tuple[int, int, int], function: Loaded, arguments: Sequence[Any]) -> None:
        metadata = self.metadata
        flat = flattened(self.signature, arguments, getattr(metadata, "tensordesc_meta", None))
        programs = grid[0] * grid[1] * grid[2] * metadata.num_ctas
        if metadata.global_scratch_size:
            self._ask_for_scratch()
        scratch = [
            (programs * metadata.global_scratch_size, metadata.global_scratch_align),
            (programs * metadata.profile_scratch_size, metadata.profile_scratch_align),
        ]
        sizes = [own.size for own in function.kernel.params]
        active.session.launch(
            function.kernel,
            grid=(grid[0] * metadata.num_ctas, *grid[1:]), block=(WARP * metadata.num_warps, 1, 1), cluster=(metadata.num_ctas, 1, 1),
            dynamic_smem=metadata.shared, pointers=list(pointed(flat)),
            params=lambda: [packed(kind, value, size) for (kind, value), size in zip(flat, sizes, strict=False)],
            scratch=scratch[: len(sizes) - len(flat)], dependent=metadata.launch_pdl, cooperative=metadata.launch_cooperative_grid,
            notes=active.choice(),
        )  # fmt: skip

    @staticmethod
    def _ask_for_scratch() -> None:
        """Raise what Triton raises where a script has set no allocator; what one would give is not used."""
        allocator = _allocation._allocator.get()
        if isinstance(allocator, _allocation.NullAllocator):
            allocator(0, 0, None)
