"""`hwkernels.gemm.convert_call.convert`: f32 to f16, bf16, e4m3 or e5m2 on the GPU, the bits that `tcsim.quantize` gives."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

import tcsim
from hwkernels.device import stream_launch
from hwkernels.device.array_protocols import ForeignArray, OperandTypeError, read_array
from hwkernels.device.device_arrays import DTYPES, DeviceArray, DeviceMatrix, new_array
from hwkernels.device.nvrtc import Compilation, compile_cubin
from hwkernels.device.plan import Plan
from hwkernels.gemm.build import SOURCES
from hwkernels.gemm.operands import pack_launch
from tcsim.core.errors import FormatError, listing
from tcsim.core.targets import TARGETS
from tcsim.isa.cvt.semantics import Convert

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


def plan_convert(x: Any, format: str, saturate: bool = True) -> Plan:
    """Everything but the launch: the operand found (or copied, or repacked), the kernel compiled.

    Arguments and errors as for `convert`.
    """
    found = read_array(x, "x")
    if found.dtype != np.float32:
        raise FormatError(f"x is {found.dtype}; valid: float32")
    if found.host is None and not found.contiguous and len(found.shape) != 2:
        raise OperandTypeError(
            f"x is {found.shape} on the GPU with strides {found.strides}; valid: C order, or any matrix of two dimensions"
        )
    stream_launch.make_current()
    number = stream_launch.arch_number()
    target = f"sm_{number}" if f"sm_{number}" in TARGETS else "sm_90"
    made = compiled(format, saturate, target)
    output = new_array(x, found.shape, format)
    launches: list[stream_launch.StreamLaunch] = []
    if found.size:
        source = _source(found, launches)
        to = read_array(output, "out")
        grid = grid_for(found.size, format, stream_launch.multiprocessors()), 1, 1
        parameters = [
            np.array(source.address, np.uint64),
            np.array(to.address, np.uint64),
            np.array(found.size, np.int64),
        ]
        function = stream_launch.load_function(made.cubin, "convert")
        launches.append(stream_launch.StreamLaunch(function, parameters, grid, (THREADS, 1, 1), keep=(source, output)))
    return Plan((format, saturate, target), found.shape, launches, output)


def _source(found: ForeignArray, launches: list[stream_launch.StreamLaunch]) -> Any:
    """Where the elements lie in C order on the GPU; what copies them there, if it must be done, is added to the launches."""
    if found.host is None and found.contiguous:
        return found
    source = DeviceArray((found.size,), np.float32)
    if found.host is not None:
        source.set(np.ascontiguousarray(found.host).reshape(-1))
    else:
        rows, columns = found.shape
        matrix = DeviceMatrix("tf32", (rows, columns), (found.strides[0], found.strides[1]), found.address, owner=found)
        launches.append(pack_launch(matrix, source, columns))
    return source


def convert(x: Any, format: str, saturate: bool = True) -> Any:
    """A float32 array to another format on the GPU: an array of the same shape, of the format's NumPy dtype.

    x: a NumPy array, or one on the GPU that speaks `__cuda_array_interface__` or DLPack: in C order, or a matrix with any strides. Returns
    a NumPy array for NumPy's, a torch tensor for torch's, else a DeviceArray. Its bits are those of
    `tcsim.quantize(x, format, saturate=saturate)`: to nearest even; out of range, the largest number of its sign, or infinity
    without saturate.

    Raises FormatError for another dtype or a format without a kernel; OperandTypeError for what cannot be read; InstructionError for a
    GPU without the instruction; DriverUnavailable without a GPU.
    """
    plan = plan_convert(x, format, saturate)
    return plan.fetch() if isinstance(x, np.ndarray) else plan()


@dataclass(frozen=True, eq=False)
class ConvertCall:
    """A conversion as data, for a process that may be lost."""

    x: npt.NDArray[np.float32]
    format: str
    saturate: bool = True
    repeat: int = 1

    @property
    def kernel(self) -> str:
        """Its name in error texts."""
        return f"convert to {self.format}"

    def plan(self) -> Plan:
        """Raises what `convert` raises."""
        return plan_convert(self.x, self.format, self.saturate)
