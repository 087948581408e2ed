"""`hwkernels.convert_call.convert`: f32 to f16, bf16, e4m3 or e5m2 on the GPU, the bits that `tcsim.quantize` gives."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

import tcsim
from hwkernels import stream_launch
from hwkernels.device_arrays import DTYPES, DeviceArray
from hwkernels.driver import call
from hwkernels.gemm_build import SOURCES
from hwkernels.nvrtc import Compilation, compile_cubin
from tcsim.convert import Convert
from tcsim.errors import FormatError, listing
from tcsim.targets import TARGETS

EXECUTOR = "hwkernels.convert_call:open_executor"
THREADS = 256
RUN_BYTES = 16  # of output that a thread writes at a time
BLOCKS_OF_MULTIPROCESSOR = 8  # 2,048 threads
_SATURATING = MappingProxyType({name: f"cvt.rn.satfinite.{name}x2.f32" for name in ("f16", "bf16", "e4m3", "e5m2")})
_OVERFLOWING = MappingProxyType({name: f"cvt.rn.{name}x2.f32" for name in ("f16", "bf16")})  # to infinity
FORMATS = tuple((name, True) for name in _SATURATING) + tuple((name, False) for name in _OVERFLOWING)
"""What there is a kernel for: format, and whether overflow saturates."""
_PAIR = MappingProxyType({8: ("u16", "h"), 16: ("u32", "r")})  # by bits of an output: two of them in C++, constraint


def conversion(format: str, saturate: bool = True, target: str = "sm_90") -> Convert:
    """The instruction that rounds and packs two neighbours.

    Raises FormatError for a format without such a kernel; InstructionError for a target without the instruction.

    >>> conversion("e4m3").mnemonic
    'cvt.rn.satfinite.e4m3x2.f32'
    """
    table = _SATURATING if saturate else _OVERFLOWING
    if format not in table:
        how = "" if saturate else " with saturate=False"
        raise FormatError(f"no kernel converts f32 to {format!r}{how}; valid: {listing(table)}")
    found = tcsim.instruction(table[format], arch=target)
    if not isinstance(found, Convert):
        raise TypeError(f"{found!r} converts nothing")
    return found


def convert_header(instruction: Convert) -> str:
    """The text of convert_pair.cuh: `convert_pair(high, low)`."""
    kind, constraint = _PAIR[instruction.registers["d"].field_bits]
    return f"""#pragma once
using pair_t = {kind};
__device__ __forceinline__ pair_t convert_pair(float high, float low) {{
    pair_t pair;
    asm("{instruction.mnemonic} %0, %1, %2;" : "={constraint}"(pair) : "f"(high), "f"(low));
    return pair;
}}
"""


@cache
def compiled(format: str, saturate: bool = True, target: str = "sm_90") -> Compilation:
    """The kernel for a format and a target.

    Raises as `conversion`; ToolchainError without an NVRTC for the target, AssembleError if the compiler complains of anything.
    """
    headers = {
        "ptx.cuh": (SOURCES / "ptx.cuh").read_text(encoding="utf-8"),
        "convert_pair.cuh": convert_header(conversion(format, saturate, target)),
    }
    source = (SOURCES / "convert.cu").read_text(encoding="utf-8")
    return compile_cubin(source, target, name="convert.cu", headers=headers)


def grid_for(count: int, format: str, multiprocessors: int) -> int:
    """Blocks for an array: one for each 256 runs of 16 bytes, but no more than the GPU holds.

    >>> grid_for(1000, "e4m3", 132), grid_for(1 << 30, "f16", 132)
    (1, 1056)
    """
    runs = math.ceil(count * DTYPES[format].itemsize / RUN_BYTES)
    return max(1, min(math.ceil(runs / THREADS), multiprocessors * BLOCKS_OF_MULTIPROCESSOR))


def convert(x: Any, format: str, saturate: bool = True) -> npt.NDArray[Any]:
    """A float32 NumPy array to another format on the GPU: an array of the same shape, of the format's NumPy dtype.

    Its bits are those of `tcsim.quantize(x, format, saturate=saturate)`: to nearest even; out of range, the largest number
    of its sign, or infinity without saturate.

    Raises FormatError for another dtype or a format without a kernel; InstructionError for a GPU without the instruction;
    DriverUnavailable without a GPU.
    """
    array = np.asarray(x)
    if array.dtype != np.float32:
        raise FormatError(f"x is {array.dtype}; valid: float32")
    stream_launch.make_current()
    number = stream_launch.arch_number()
    target = f"sm_{number}" if f"sm_{number}" in TARGETS else "sm_90"
    made = compiled(format, saturate, target)
    result = np.empty(array.shape, DTYPES[format])
    if not array.size:
        return result
    source = DeviceArray((array.size,), np.float32)
    source.set(np.ascontiguousarray(array).reshape(-1))
    out = DeviceArray((array.size,), tcsim.FORMATS[format].dtype)
    out.fill(0xA5)  # an element that the kernel forgets shows
    launch = stream_launch.StreamLaunch(
        stream_launch.load_function(made.cubin, "convert"),
        [np.array(source.address, np.uint64), np.array(out.address, np.uint64), np.array(array.size, np.int64)],
        (grid_for(array.size, format, stream_launch.multiprocessors()), 1, 1),
        (THREADS, 1, 1),
        keep=(source, out),
    )
    launch()
    call("cuCtxSynchronize")
    return out.get().view(DTYPES[format]).reshape(array.shape)


@dataclass(frozen=True, eq=False)
class ConvertCall:
    """A conversion as data, for a process that may be lost: what `GpuWorker` runs when its executor is this module's."""

    x: npt.NDArray[np.float32]
    format: str
    saturate: bool = True
    repeat: int = 1

    @property
    def kernel(self) -> str:
        """Its name in error texts."""
        return f"convert to {self.format}"


def run_call(job: ConvertCall) -> list[npt.NDArray[Any]]:
    """The result of each repetition."""
    return [convert(job.x, job.format, job.saturate) for _ in range(job.repeat)]


def open_executor(ordinal: int) -> Callable[[Any], list[npt.NDArray[Any]]]:
    """Open GPU `ordinal` for the life of this process. Raises DriverUnavailable or CudaError."""
    stream_launch.make_current(ordinal)
    return run_call
