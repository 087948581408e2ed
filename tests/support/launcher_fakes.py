"""Imaginary cuda.bindings, cuda.core, CuPy and Triton that share a device: `tcsim.ptx` runs their launches."""

from __future__ import annotations

import ctypes
import enum
import sys
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from itertools import count
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from hwkernels.device.errors import CudaError
from tcsim.ptx import Memory, parse

SCALE = """
.version 8.0
.target sm_90
.address_size 64
.visible .entry scale(.param .u64 to, .param .u64 from, .param .f32 factor, .param .u32 count)
{
  .reg .pred %p; .reg .b32 %r<6>; .reg .f32 %f<3>; .reg .b64 %a<5>;
  ld.param.u64 %a0, [to];
  ld.param.u64 %a1, [from];
  ld.param.f32 %f0, [factor];
  ld.param.u32 %r0, [count];
  mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ntid.x; mov.u32 %r3, %tid.x;
  mad.lo.u32 %r4, %r1, %r2, %r3;
  setp.ge.u32 %p, %r4, %r0;
  @%p bra END;
  mul.wide.u32 %a2, %r4, 4;
  add.s64 %a3, %a0, %a2;
  add.s64 %a4, %a1, %a2;
  ld.global.f32 %f1, [%a4];
  mul.rn.f32 %f2, %f1, %f0;
  st.global.f32 [%a3], %f2;
END:
  ret;
}
"""
"""to[i] = from[i] * factor of the first `count` elements."""


class Device:
    """A GPU: memory, modules by handle, and what launches kernels on it; also what a recording asks of a GPU."""

    info = SimpleNamespace(arch="sm_90", name="imaginary", driver_version="1.2")

    def __init__(self) -> None:
        self.memory = Memory()
        self.handles: dict[int, Any] = {}
        self._next = count(1000)
        self.launches = 0
        self.graph = False  # whether streams are recorded
        self.broken = False  # whether the next launch loses the context

    def handle(self, what: Any) -> int:
        """A new handle of something."""
        found = next(self._next)
        self.handles[found] = what
        return found

    def array(self, data: np.ndarray) -> int:
        """Put an array into memory; its address."""
        return self.memory.allocate(np.ascontiguousarray(data).view(np.uint8).reshape(-1))

    def floats(self, address: int, count: int) -> list[float]:
        """What is in memory."""
        return self.memory.read(address, 4 * count).view(np.float32).tolist()

    def run(
        self, ptx: bytes | str, entry: str, grid: Any, block: Any, cluster: Any, shared: int, params: Sequence[bytes]
    ) -> None:
        """Run a kernel."""
        self.launches += 1
        if self.broken:
            return
        run = parse(ptx).kernel(entry).launch(self.memory, list(params), grid, block, cluster, shared, "sm_90")
        assert run.completed, run.hazards

    # what hwkernels.capture.gpu.Gpu has

    def synchronize(self) -> None:
        """Fails after a launch that lost the context."""
        if self.broken and self.launches:
            raise CudaError("cuCtxSynchronize", "CUDA_ERROR_ILLEGAL_ADDRESS", True)

    def recording(self, stream: int) -> bool:
        """Whether launches go into a graph."""
        return self.graph

    def range_of(self, address: int) -> tuple[int, int] | None:
        """The allocation around an address."""
        found = self.memory.segment(address)
        return None if found is None else (found.address, found.size)

    def read(self, address: int, size: int) -> np.ndarray:
        """Memory."""
        return self.memory.read(address, size)


def pointed(pointers: int, sizes: Sequence[int]) -> list[bytes]:
    """The parameters behind an array of pointers."""
    return [
        ctypes.string_at(ctypes.c_uint64.from_address(pointers + 8 * number).value, size)
        for number, size in enumerate(sizes)
    ]


def sizes_of(ptx: bytes | str, entry: str) -> list[int]:
    """Of the parameters of a kernel."""
    return [own.size for own in parse(ptx).kernel(entry).params]


class Status(enum.IntEnum):
    """CUresult."""

    CUDA_SUCCESS = 0


def modules(monkeypatch: pytest.MonkeyPatch, **made: ModuleType) -> None:
    """Let modules be imported: their names with __ for dots; of every package `__path__` is empty."""
    for name, own in made.items():
        dotted = name.replace("__", ".")
        own.__path__ = []  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, dotted, own)


def module(name: str, **members: Any) -> ModuleType:
    """A module."""
    made = ModuleType(name)
    vars(made).update(members)
    return made


def cuda_bindings(device: Device) -> ModuleType:
    """cuda.bindings.driver."""
    ok = Status.CUDA_SUCCESS

    def load(image: Any, *rest: Any) -> Any:
        data = bytes(image) if not isinstance(image, int) else ctypes.string_at(image)
        return ok, device.handle(data)

    def launch(
        f: int,
        gx: int,
        gy: int,
        gz: int,
        bx: int,
        by: int,
        bz: int,
        shared: int,
        stream: int,
        params: Any,
        extra: int = 0,
    ) -> Any:
        config = SimpleNamespace(
            gridDimX=gx, gridDimY=gy, gridDimZ=gz, blockDimX=bx, blockDimY=by, blockDimZ=bz, sharedMemBytes=shared, attrs=[], numAttrs=0,
        )  # fmt: skip
        return launch_ex(config, f, params, extra)

    def launch_ex(config: Any, f: int, params: Any, extra: int) -> Any:
        ptx, entry = device.handles[int(f)]
        sizes = sizes_of(ptx, entry)
        if isinstance(params, tuple):
            given = [bytes(kind(value)) for value, kind in zip(*params, strict=True)]
        else:
            given = pointed(params if isinstance(params, int) else params.ctypes.data, sizes)
        cluster = next(((own.value.clusterDim.x, 1, 1) for own in config.attrs if own.id == 4), (1, 1, 1))
        grid, block = ([getattr(config, f"{what}Dim{axis}") for axis in "XYZ"] for what in ("grid", "block"))
        device.run(ptx, entry, grid, block, cluster, config.sharedMemBytes, given)
        return (ok,)

    def named(owner: int, name: bytes) -> Any:
        return ok, device.handle((device.handles[int(owner)], name.decode()))

    def copy(to: int, source: int, size: int) -> Any:
        device.memory.write(to, ctypes.string_at(source, size))
        return (ok,)

    def copy_back(to: int, source: int, size: int) -> Any:
        ctypes.memmove(to, device.memory.read(source, size).ctypes.data, size)
        return (ok,)

    def release(address: int) -> Any:
        device.memory.release(address)
        return (ok,)

    def nothing(*_: Any) -> Any:
        return ok, 0

    return module(
        "cuda.bindings.driver", cuInit=nothing, cuDeviceGet=nothing, cuDevicePrimaryCtxRetain=nothing, cuCtxSetCurrent=nothing,
        cuCtxSynchronize=nothing, cuMemAlloc=lambda size: (ok, device.memory.allocate(size)), cuMemcpyHtoD=copy, cuMemcpyDtoH=copy_back, cuMemFree=release, cuModuleUnload=nothing, cuFuncGetAttribute=nothing,
        cuFuncSetAttribute=nothing, CUfunction_attribute=SimpleNamespace(CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES=1),
        CUlaunchAttribute=lambda: SimpleNamespace(id=0, value=SimpleNamespace(clusterDim=SimpleNamespace(x=1, y=1, z=1))),
        CUlaunchConfig=lambda: SimpleNamespace(attrs=[], hStream=0),
        CUresult=Status, CUlaunchAttributeID=SimpleNamespace(CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION=4, CU_LAUNCH_ATTRIBUTE_COOPERATIVE=2),
        cuModuleLoadData=load, cuLibraryLoadData=load, cuModuleGetFunction=named, cuLibraryGetKernel=named,
        cuKernelGetFunction=lambda kernel: (ok, device.handle(device.handles[int(kernel)])),
        cuKernelGetName=lambda kernel: (ok, device.handles[int(kernel)][1].encode()),
        cuLaunchKernel=launch, cuLaunchCooperativeKernel=launch, cuLaunchKernelEx=launch_ex,
    )  # fmt: skip


class Holder:
    """cuda.core's ParamHolder: arguments to an array of pointers."""

    def __init__(self, arguments: Sequence[Any]) -> None:
        self.values = [np.array(own if isinstance(own, np.generic) else np.int64(own)) for own in arguments]
        self.pointers = np.array([own.ctypes.data for own in self.values], np.uint64)
        self.ptr = self.pointers.ctypes.data


class CoreKernel:
    """A Kernel of cuda.core."""

    def __init__(self, device: Device, ptx: bytes, name: str) -> None:
        self.handle = device.handle((ptx, name))


CoreKernel.__module__ = "cuda.core._module"


def cuda_core(device: Device) -> ModuleType:
    """cuda.core: Program, ObjectCode, launch. The source of a program is its PTX."""

    class ObjectCode:
        def __init__(self, code: bytes, code_type: str) -> None:
            self.code, self.code_type = code, code_type

        @staticmethod
        def from_ptx(code: bytes) -> ObjectCode:
            return ObjectCode(code, "ptx")

        @staticmethod
        def from_cubin(code: bytes) -> ObjectCode:
            return ObjectCode(code, "cubin")

        def get_kernel(self, name: str) -> CoreKernel:
            return CoreKernel(device, self.code.removeprefix(b"ELF"), name)

    class Program:
        def __init__(self, code: str, code_type: str) -> None:
            self.code = code

        def compile(self, target_type: str) -> ObjectCode:
            return ObjectCode(self.code.encode() if target_type == "ptx" else b"ELF" + self.code.encode(), target_type)

    def launch(stream: Any, config: Any, kernel: CoreKernel, *arguments: Any) -> None:
        ptx, name = device.handles[kernel.handle]
        cluster = config.cluster or (1, 1, 1)
        grid = [blocks * size for blocks, size in zip(config.grid, cluster, strict=True)]
        params = pointed(Holder(arguments).ptr, sizes_of(ptx, name)) if arguments else []
        device.run(ptx, name, grid, config.block, cluster, config.shmem_size, params)

    return module("cuda.core", Program=Program, ObjectCode=ObjectCode, launch=launch)


class CupyArray:
    """cupy.ndarray."""

    def __init__(self, device: Device, values: np.ndarray) -> None:
        self.dtype, self.shape, self.nbytes, self.flags = values.dtype, values.shape, values.nbytes, values.flags
        address = device.array(values)
        self.data = SimpleNamespace(ptr=address, mem=SimpleNamespace(ptr=address, size=values.nbytes))
        self.__cuda_array_interface__ = {"data": (address, False)}


def cupy(device: Device, compiled: list[str]) -> tuple[ModuleType, ModuleType]:
    """cupy and cupy.cuda.compiler. The source of a kernel is its PTX; `compiled` are the sources that were compiled."""
    cache: dict[str, bytes] = {}

    def compile_using_nvrtc(source: str, options: tuple[str, ...] = (), arch: Any = None) -> Any:
        compiled.append(source)
        data = source.encode() if compiler._use_ptx else b"\x7fELF" + source.encode()
        return data, {"scale<float>": "scale"}

    class RawKernel:
        def __init__(self, code: str | None, name: str, options: tuple[str, ...] = (), path: str | None = None) -> None:
            self.code, self.name, self.options, self.file_path = code, name, options, path
            self.max_dynamic_shared_size_bytes = 0

        @property
        def kernel(self) -> Any:
            if self.file_path:
                with open(self.file_path, "rb") as file:
                    return file.read()
            assert self.code is not None
            if self.code not in cache:
                cache[self.code] = compiler.compile_using_nvrtc(self.code, (*self.options, "-ftz=true"))[0]
            return cache[self.code]

        def __call__(self, grid: Any, block: Any, args: Any, *, shared_mem: int = 0, stream: Any = None) -> None:
            ptx = self.kernel.removeprefix(b"\x7fELF")
            params = []
            for own, size in zip(args, sizes_of(ptx, "scale"), strict=True):
                value = np.uint64(own.data.ptr) if isinstance(own, CupyArray) else own
                params.append((np.int64(value) if isinstance(value, int) else value).tobytes()[:size])
            device.run(ptx, "scale", (*grid, 1, 1)[:3], (*block, 1, 1)[:3], (1, 1, 1), shared_mem, params)

    class RawModule:
        def __init__(self, *, code: str | None = None, path: str | None = None) -> None:
            self.code, self.path = code, path

        def get_function(self, name: str) -> RawKernel:
            return RawKernel(self.code, name, path=self.path)

    compiler = module("cupy.cuda.compiler", compile_using_nvrtc=compile_using_nvrtc, _use_ptx=False)
    cuda = SimpleNamespace(get_current_stream=lambda: SimpleNamespace(ptr=0))
    return module("cupy", RawKernel=RawKernel, RawModule=RawModule, clear_memo=cache.clear, cuda=cuda), compiler


class Tensor:
    """A tensor of torch on the device."""

    def __init__(self, device: Device, values: np.ndarray, start: int = 0) -> None:
        self.dtype, self.shape, self.address, self.size = (
            f"torch.{values.dtype.name}",
            values.shape,
            device.array(values),
            values.nbytes,
        )
        self.start = start * values.dtype.itemsize
        if start:
            self.shape = (values.size - start,)

    def data_ptr(self) -> int:
        """The address of the first element."""
        return self.address + self.start

    def untyped_storage(self) -> Any:
        """What views share."""
        return SimpleNamespace(data_ptr=lambda: self.address, nbytes=lambda: self.size)

    def numel(self) -> int:
        """Elements."""
        return int(np.prod(self.shape))

    def is_contiguous(self) -> bool:
        """Always."""
        return True


def triton(device: Device) -> dict[str, ModuleType]:
    """The modules of Triton that launch kernels."""

    def no_allocator(*_: Any) -> Any:
        raise RuntimeError("no allocator was set")

    allocator: ContextVar[Callable[..., Any]] = ContextVar("_allocator", default=no_allocator)

    class CompiledKernel:
        def __init__(self, ptx: str, name: str, signature: dict[str, Any], shared: int = 0, metas: Any = None) -> None:
            self.asm, self.name, self.src = {"ptx": ptx}, name, SimpleNamespace(signature=signature)
            self.metadata = SimpleNamespace(shared=shared, tensordesc_meta=metas)
            self.function: int | None = None

        def _init_handles(self) -> None:
            self.function = device.handle(self)

    class CudaLauncher:
        def __init__(self, num_ctas: int = 1, scratch: int = 0) -> None:
            self.num_ctas, self.global_scratch_size, self.global_scratch_align, self.profile_scratch_size = (
                num_ctas,
                scratch,
                16,
                0,
            )

        def __call__(
            self,
            x: int,
            y: int,
            z: int,
            stream: int,
            function: int,
            packed: Any,
            meta: Any,
            enter: Any,
            leave: Any,
            *args: Any,
        ) -> None:
            kernel = device.handles[function]
            params, sizes = [], sizes_of(kernel.asm["ptx"], kernel.name)
            for kind, value in zip(kernel.src.signature.values(), args, strict=True):
                if kind == "constexpr":
                    continue
                if kind.startswith("tensordesc"):
                    own, *rest = make_tensordesc_arg(value, kernel.metadata.tensordesc_meta[0])
                    params += [
                        own,
                        *(
                            np.int64(item).tobytes()[:size]
                            for item, size in zip(rest, sizes[len(params) + 1 :], strict=False)
                        ),
                    ]
                elif hasattr(value, "data_ptr"):
                    params.append(np.uint64(value.data_ptr()).tobytes())
                elif kind == "fp32":
                    params.append(np.float32(value).tobytes())
                else:
                    params.append(np.int64(value).tobytes()[: sizes[len(params)]])
            if self.global_scratch_size:
                taken = allocator.get()(
                    self.global_scratch_size * x * y * z * self.num_ctas, self.global_scratch_align, stream
                )
                params.append(np.uint64(taken.data_ptr()).tobytes())
            params += [bytes(8)] * (len(sizes) - len(params))
            device.run(
                kernel.asm["ptx"],
                kernel.name,
                (x * self.num_ctas, y, z),
                (32, 1, 1),
                (self.num_ctas, 1, 1),
                kernel.metadata.shared,
                params,
            )

    def make_tensordesc_arg(arg: Any, metadata: Any) -> list[Any]:
        return [arg.tensor_map.encode(arg.base.data_ptr()), *arg.shape, *arg.strides]

    return {
        "triton": module("triton"), "triton__backends__nvidia__driver": module("driver", CudaLauncher=CudaLauncher, make_tensordesc_arg=make_tensordesc_arg),
        "triton__compiler__compiler": module("compiler", CompiledKernel=CompiledKernel), "triton__runtime___allocation": module("allocation", _allocator=allocator),
    }  # fmt: skip


def allocate(device: Device) -> Callable[..., Any]:
    """An allocator for Triton's scratch memory."""

    def allocator(size: int, align: int, stream: int) -> Any:
        address = device.memory.allocate(size)
        return SimpleNamespace(data_ptr=lambda: address)

    return allocator
