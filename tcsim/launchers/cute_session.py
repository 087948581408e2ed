"""CuTe DSL's compiler and runtime replaced for a while: functions compile for an arch, and their kernels run on the model."""

from __future__ import annotations

import ctypes
import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from glob import glob
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from math import nan
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TextIO
from unittest.mock import patch

from tcsim.core.errors import OperandError
from tcsim.core.targets import ARCHS
from tcsim.launchers.cute_runtime import Runtime
from tcsim.launchers.session import Session
from tcsim.ptx import Limits

PACKAGE = "nvidia-cutlass-dsl"
SUPPORTED = ("4.8",)  # whose host code was looked at, and which the tests ran with: tox -e cute
CUDA = 2  # DLDeviceType
_CAPSULES = ((b"dltensor", 8), (b"dltensor_versioned", 40))  # and where the device type lies in what they point to
_DUMP = re.compile(r"dump-ptx-path='([^']*)'")


@contextmanager
def cute(
    arch: str, *, schedule: str | int = "late", limits: Limits | None = None, multiprocessors: int | None = None,
    check: bool | str = True, cuda: bool = True, save: str | os.PathLike[str] | None = None, log: TextIO | None = sys.stderr,
    timeline: bool = False, races: bool = False, witnesses: bool = False, counters: bool = False, says: bool = True,
) -> Iterator[Session]:  # fmt: skip
    """Run what CuTe DSL launches on the model of an arch; tensors are CPU tensors of torch, as `from_dlpack` and `make_ptr` take them.

    The arguments, the session that it yields, and what is raised are those of `tcsim.launchers.triton`. What is compiled inside
    runs inside only. Linux only.

    Raises OperandError without a CuTe DSL that is supported, TargetError for another arch; and while it is active LaunchFailed for a
    launch that stops with a hazard.
    """
    check_version()
    session = Session(
        arch, schedule, limits, multiprocessors, save, log, check, timeline, races, witnesses, counters, says
    )
    stand_in: AbstractContextManager[Any] = nullcontext()
    if cuda and find_spec("torch") is not None:
        stand_in = import_module("tcsim.launchers.torch_cuda").cpu_for_cuda(session.arch, session.multiprocessors)
    runtime = Runtime(session)
    try:
        with _replaced(runtime), stand_in:
            yield session
    finally:
        runtime.active = False
        session.say(session.summary())


def check_version() -> None:
    """Raise OperandError if there is no CuTe DSL, or one whose host code may be another."""
    try:
        found = version(PACKAGE)
    except PackageNotFoundError:
        raise OperandError(f"tcsim.launchers.cute needs CuTe DSL: pip install {PACKAGE}") from None
    if not found.startswith(tuple(f"{own}." for own in SUPPORTED)):
        raise OperandError(f"tcsim.launchers.cute: {PACKAGE} {found}; valid: {', '.join(SUPPORTED)}")


def target_of(arch: str) -> str:
    """The target that functions are compiled for: with the arch's own instructions where there is one.

    >>> target_of("sm_80"), target_of("sm_90")
    ('sm_80', 'sm_90a')
    """
    names = [own.name for own in ARCHS[arch].targets]
    return f"{arch}a" if f"{arch}a" in names else arch


@contextmanager
def _replaced(runtime: Runtime) -> Iterator[None]:
    """CuTe DSL with another arch, empty caches, engines that call the runtime, and no questions to a GPU."""
    dsl = import_module("cutlass.cutlass_dsl").CuTeDSL._get_dsl()
    executors = import_module("cutlass.base_dsl.jit_executor")
    functions = import_module("cutlass.cutlass_dsl.cuda_jit_executor").CudaDialectJitCompiledFunction
    hardware = import_module("cutlass.utils").HardwareInfo
    provider, session = dsl.compiler_provider, runtime.session
    with TemporaryDirectory(prefix="tcsim-") as folder, ExitStack() as stack:

        def replace(owner: Any, name: str, value: Any) -> None:
            stack.enter_context(patch.object(owner, name, value))

        compiler = Compiler(provider, runtime, Path(folder))
        replace(dsl.envar, "arch", target_of(session.arch))
        replace(dsl.envar, "disable_file_caching", True)
        replace(dsl, "jit_cache", type(dsl.jit_cache)(max_elems=dsl.envar.jit_cache_max_elems))
        replace(dsl, "get_shared_libs", list)
        replace(provider, "compile", compiler.compile)
        replace(provider, "jit", compiler.jit)
        replace(functions, "num_devices", 1)
        replace(executors.JitExecutor, "run_compiled_program", _raising(runtime, executors.JitExecutor))
        tensors = import_module("cutlass.cute.runtime")._Tensor
        replace(tensors, "load_dltensor", _on_gpu(tensors.load_dltensor))
        replace(hardware, "__init__", lambda self, device_id=0: None)
        replace(
            hardware, "get_max_active_clusters", lambda self, size, *_, **__: max(session.multiprocessors // size, 1)
        )
        replace(hardware, "get_device_multiprocessor_count", lambda self: session.multiprocessors)
        for name in ("cutlass.testing", "cutlass.cute.testing"):
            replace(import_module(name), "benchmark", _once(session))
        yield


def _raising(runtime: Runtime, executor: Any) -> Callable[..., Any]:
    """JitExecutor.run_compiled_program, which raises what the runtime could not."""
    former = executor.run_compiled_program

    def run(self: Any, arguments: Any) -> Any:
        try:
            return former(self, arguments)
        finally:
            runtime.raise_error()

    return run


def _on_gpu(load: Callable[[Any], None]) -> Callable[[Any], None]:
    """A tensor's loading of what DLPack says of it, which says that it is on a GPU: only then are its addresses global memory."""

    def loaded(tensor: Any) -> None:
        if tensor._dltensor_wrapper is None:
            device_of(tensor._dlpack_data).value = CUDA
        load(tensor)

    return loaded


def device_of(capsule: Any) -> ctypes.c_int32:
    """The device type in a capsule of DLPack, to be read and changed: of a DLManagedTensor, or one with its version before it."""
    api = ctypes.pythonapi
    api.PyCapsule_GetPointer.restype = ctypes.c_void_p
    api.PyCapsule_GetPointer.argtypes = (ctypes.py_object, ctypes.c_char_p)
    api.PyCapsule_IsValid.argtypes = (ctypes.py_object, ctypes.c_char_p)
    name, start = next(own for own in _CAPSULES if api.PyCapsule_IsValid(capsule, own[0]))
    return ctypes.c_int32.from_address(api.PyCapsule_GetPointer(capsule, name) + start)


def _once(session: Session) -> Callable[..., float]:
    """What stands for cutlass.testing.benchmark."""

    def benchmark(
        callable: Callable[..., Any], *, kernel_arguments: Any = None, workspace_generator: Any = None, **options: Any
    ) -> float:
        """Call a function once; NaN for its time."""
        given = kernel_arguments or (workspace_generator() if workspace_generator is not None else None)
        callable(*getattr(given, "args", ()), **getattr(given, "kwargs", {}))
        session.say("benchmark: called once, nothing measured: NaN")
        return nan

    return benchmark


class Compiler:
    """What stands for two methods of CuTe DSL's compiler: they keep the PTX of each module, and give its engine the runtime."""

    def __init__(self, provider: Any, runtime: Runtime, folder: Path) -> None:
        self._compile, self._engines = provider.compile, provider.execution_engine
        self._runtime, self._folder, self._ptx = runtime, folder, ""

    def compile(self, module: Any, pipeline: str, *rest: Any, **options: Any) -> Any:
        """Compile a module, and read the PTX that it becomes."""
        dump = _DUMP.search(pipeline)
        path = dump[1] if dump else str(self._folder / "kernel")
        if dump is None:
            pipeline = pipeline.replace("cubin-format=bin", f"cubin-format=bin dump-ptx-path='{path}'", 1)
        for stale in glob(f"{path}*.ptx"):
            os.unlink(stale)
        compiled = self._compile(module, pipeline, *rest, **options)
        self._ptx = "".join(Path(own).read_text(encoding="utf-8").rstrip("\0") for own in glob(f"{path}*.ptx"))
        return compiled

    def jit(self, module: Any, opt_level: int = 2, shared_libs: Any = ()) -> Any:
        """The machine code of the host, which calls the runtime."""
        engine = self._engines.ExecutionEngine(module, opt_level=opt_level, shared_libs=[])
        engine.tcsim_symbols = self._runtime.symbols(self._ptx)  # as long as the engine lives
        for name, function in engine.tcsim_symbols.items():
            engine.raw_register_runtime(name, ctypes.cast(function, ctypes.c_void_p))
        return engine
