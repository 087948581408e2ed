"""One multiplication on the GPU: operands that lie there, kernels compiled for it, a result that stays there.

Large products are computed by engine_gemm.cu where its unit fits and the GPU has a full-rate f64 unit, those of fp4 whose products are summed in groups
by engine_grouped.cu, ordinary arithmetic by engine_native.cu; everything else by engine_exact.cu.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any

import numpy as np
import numpy.typing as npt

from hwkernels.device.array_protocols import ForeignArray, OperandTypeError, read_array
from hwkernels.device.device_arrays import DeviceArray
from hwkernels.device.driver import call, shared_limit
from hwkernels.device.nvrtc import compile_cubin
from hwkernels.device.stream_launch import (
    StreamLaunch,
    arch_number,
    current_stream,
    load_function,
    make_current,
    multiprocessors,
)
from hwkernels.device.toolchain import AssembleError
from hwkernels.engine import fast, grouped, native
from hwkernels.engine.source import KERNELS, headers_of
from tcsim.engines.contract import Work

FULL_RATE_F64 = (80, 90, 100)
"""Compute capabilities whose f64 unit has half the lanes of the f32 unit. Source: CUDA C++ Programming Guide, Throughput of Native Arithmetic Instructions."""
LEAST = 1 << 24
"""Products of one matrix product from which the fast kernel is worth its decoding."""
_THREADS = 256
_EXACT_THREADS = 128
_CHOICES: dict[str, tuple[dict[str, int | str], ...]] = {
    "exact": ({"LEAST_BLOCKS": 1}, {"LEAST_BLOCKS": 0}, {"LEAST_BLOCKS": 0, "IN_ORDER": "volatile"})
}
"""Of engine_exact.cu: blocks of a multiprocessor (0: ptxas chooses) and loads. Different works spill with each: the first that does not is taken."""
_POINTERS = ("a", "b", "c", "scale_a", "scale_b", "columns", "order", "d")
_STRIDES = (
    "batch_a", "batch_b", "batch_c", "batch_scale_a", "batch_scale_b", "batch_columns",
    "a_m", "a_k", "b_k", "b_n", "c_m", "c_n", "scale_a_m", "scale_a_k", "scale_b_k", "scale_b_n", "columns_m", "outputs",
)  # fmt: skip
_SIZES = ("m", "n", "width", "depth", "blocks", "scales")
_AXES = {
    "a": ("batch_a", "a_m", "a_k"),
    "b": ("batch_b", "b_k", "b_n"),
    "c": ("batch_c", "c_m", "c_n"),
    "scale_a": ("batch_scale_a", "scale_a_m", "scale_a_k"),
    "scale_b": ("batch_scale_b", "scale_b_k", "scale_b_n"),
    "columns": ("batch_columns", "columns_m", ""),
}


class Problem(ctypes.Structure):
    """The kernels' first parameter: engine_exact.cuh says what its fields are."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in _POINTERS),
        *((name, ctypes.c_int64) for name in _STRIDES),
        *((name, ctypes.c_int32) for name in _SIZES),
    )


class Workspace(ctypes.Structure):
    """The second parameter of the kernels of engine_gemm.cu."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("a", "b", "flags_a", "flags_b")),
        ("steps", ctypes.c_int32),
        ("stages", ctypes.c_int32),
    )


class GroupSpace(ctypes.Structure):
    """The second parameter of the kernels of engine_grouped.cu."""

    _fields_ = tuple((name, ctypes.c_void_p) for name in ("a", "b", "scaling_a", "scaling_b"))


class NanSpace(ctypes.Structure):
    """The second parameter of the kernels of engine_native.cu that write which NaN an f64 result is."""

    _fields_ = (("last", ctypes.c_void_p), ("there", ctypes.c_void_p))


@dataclass(frozen=True)
class Operands:
    """Arrays of codes by name, each with three dimensions: a, b, c, and scale_a, scale_b, columns where the work has them."""

    arrays: Mapping[str, ForeignArray]
    order: ForeignArray | None = None  # int32: the instructions along K in another order than ascending

    @property
    def shape(self) -> tuple[int, int, int]:
        """Of the result."""
        batch, m, n = self.arrays["c"].shape
        return batch, m, n


def problem_of(work: Work, given: Operands, address_of: Any = lambda array: array.address) -> Problem:
    """The parameter of a launch; d is still to be set."""
    found = Problem()
    for name, array in given.arrays.items():
        setattr(found, name, address_of(array))
        for axis, stride in zip(_AXES[name], array.strides, strict=True):
            if axis:
                setattr(found, axis, stride)
    batch, found.m, found.n = given.shape
    found.outputs = batch * found.m * found.n
    found.width, found.depth = given.arrays["a"].shape[2], given.arrays["b"].shape[1]
    found.blocks = -(-found.depth // work.k)
    if "scale_a" in given.arrays:
        found.scales = given.arrays["scale_a"].shape[2]
    if given.order is not None:
        found.order, found.blocks = address_of(given.order), given.order.size
    return found


def multiply(
    work: Work, given: Operands, stream: int | None = None, kernel: str = "", tile: fast.Tile | None = None
) -> DeviceArray:
    """D (batch, M, N) of operands on the GPU, into memory of its own. kernel: one of `kernels_of` instead of a choice; tile: of "fast".

    Raises UnsupportedError for what no kernel computes, CudaError, ToolchainError, AssembleError.
    """
    stream = current_stream() if stream is None else stream
    out = DeviceArray(given.shape, work.result.dtype)
    problem = problem_of(work, given)
    problem.d = out.address
    batch, m, n = given.shape
    if not out.shape[0] * m * n:
        return out
    if not kernel:
        best = kernels_of(work)[-1]
        large = m * n * problem.width >= LEAST and (best != "fast" or arch_number() in FULL_RATE_F64)
        kernel = best if large else "exact"
    if kernel == "fast":
        _fast(work, problem, batch, stream, tile)
    elif kernel == "grouped":
        _grouped(work, problem, batch, stream)
    elif kernel == "native":
        _native(work, problem, batch, stream)
    else:
        exact(work, problem, stream)
    return out


def kernels_of(work: Work) -> tuple[str, ...]:
    """The kernels that compute a work, the fastest last."""
    return ("exact", *(name for name, kind in _KINDS.items() if not kind.why_not(work)))


_KINDS = {"fast": fast, "grouped": grouped, "native": native}


def on_device(work: Work, order: Sequence[int] | None = None, **arrays: Any) -> DeviceArray:
    """D of codes that lie on the GPU already: a, b, c, and scale_a, scale_b, columns where the work has them.

    Each is an array of two dimensions, or of three with the same batch, of torch, CuPy or any library with `__cuda_array_interface__` or
    DLPack, of its format's type or of unsigned integers; columns is int32. The sizes are whole instructions along K, as
    `tcsim.engines.contract.Matrices` has them. Nothing is copied, and nothing waits.

    Raises OperandTypeError for what cannot be read, UnsupportedError, CudaError, ToolchainError, AssembleError.
    """
    make_current()
    found = {}
    for name, value in arrays.items():
        array = read_array(value, name)
        if array.host is not None or len(array.shape) not in (2, 3):
            raise OperandTypeError(f"{name} is {array.shape} on the host; valid: two or three dimensions on the GPU")
        if len(array.shape) == 2:
            array = replace(array, shape=(1, *array.shape), strides=(0, *array.strides))
        found[name] = array
    steps = found["b"].shape[1] // work.k
    return multiply(work, Operands(found, None if order is None else order_of(order, steps)))


CUBINS: dict[tuple[Work, str, fast.Tile | None], bytes] = {}
"""What was compiled in another process, by work, name of the kernel and tile."""


def cubin_of(
    work: Work, kernel: str, target: str, shared: int, tile: fast.Tile | None = None, strict: bool = True
) -> bytes:
    """The machine code of one of `kernels_of`. strict: registers that spill are an AssembleError. Raises UnsupportedError, ToolchainError, AssembleError."""
    if kernel == "fast":
        headers = fast.headers(work, fast.constants_of(work, shared, tile))
    else:
        headers = {"exact": headers_of, "grouped": grouped.headers, "native": native.headers}[kernel](work)
    name = f"engine_{'gemm' if kernel == 'fast' else kernel}.cu"
    source = (KERNELS / name).read_text(encoding="utf-8")
    compiled = partial(compile_cubin, source, target, name=name, headers=headers)
    choices = _CHOICES.get(kernel, ({},))
    for number, defines in enumerate(choices, 1):
        try:
            return compiled(defines=defines).cubin
        except AssembleError as error:
            if not error.notes or (strict and number == len(choices)):
                raise
    return compiled(defines=choices[0], strict=False).cubin


def _here(work: Work, kernel: str, tile: fast.Tile | None = None) -> bytes:
    """The same for the GPU at hand, by whatever compiler there is: one that spills makes it slower, the bits are the same."""
    target, shared = f"sm_{arch_number()}", shared_limit()
    return CUBINS.get((work, kernel, tile)) or cubin_of(work, kernel, target, shared, tile, strict=False)


@cache
def _exact_function(work: Work) -> Any:
    return load_function(_here(work, "exact"), "engine_exact")


def exact(work: Work, problem: Problem, stream: int) -> None:
    """Launch the kernel of engine_exact.cu."""
    blocks = -(-problem.outputs // _EXACT_THREADS)
    StreamLaunch(_exact_function(work), [_bytes(problem)], (blocks, 1, 1), (_EXACT_THREADS, 1, 1))(stream)


@cache
def fast_functions(work: Work, tile: fast.Tile | None = None) -> tuple[fast.Constants, tuple[Any, Any, Any]]:
    """The constants and the kernels that decode a and b and multiply. Raises UnsupportedError."""
    constants = fast.constants_of(work, shared_limit(), tile)
    cubin = _here(work, "fast", tile)
    names = ("engine_decode_a", "engine_decode_b", "engine_gemm")
    decode_a, decode_b, gemm = (load_function(cubin, name) for name in names)
    return constants, (decode_a, decode_b, gemm)


_HELD: list[DeviceArray] = []
"""The workspace of the last product, for the next one in this process; launches follow one another in a stream."""


def _workspace(size: int) -> DeviceArray:
    """Memory of at least this size."""
    if not _HELD or _HELD[0].bytes < size:
        call("cuCtxSynchronize")
        _HELD[:] = []
        _HELD[:] = [DeviceArray((size,), np.uint8)]
    return _HELD[0]


def _fast(work: Work, problem: Problem, batch: int, stream: int, tile: fast.Tile | None = None) -> None:
    """Each product of the batch by itself: decode both operands, multiply."""
    constants, (decode_a, decode_b, gemm) = fast_functions(work, tile)
    shape, steps = constants.tile, problem.blocks * constants.steps
    stages = constants.stages(steps)
    tiles = -(-problem.m // shape.block_m), -(-problem.n // shape.block_n)
    words = -(-constants.length // 32)
    sizes = [count * stages * size for count, size in zip(tiles, constants.chunks, strict=True)]
    sizes += [
        count * size * steps * words * 16 for count, size in zip(tiles, (shape.block_m, shape.block_n), strict=True)
    ]
    kept = _workspace(sum(sizes))
    addresses = [kept.address + sum(sizes[:place]) for place in range(len(sizes))]
    workspace = Workspace(*addresses, steps, stages)
    for place in range(batch):
        parameters = [_bytes(_of_batch(work, problem, place)), _bytes(workspace)]
        StreamLaunch(decode_a, parameters, (tiles[0], steps, 1), (shape.block_m, 1, 1))(stream)
        StreamLaunch(decode_b, parameters, (tiles[1], steps, 1), (shape.block_n, 1, 1))(stream)
        grid = (tiles[1], tiles[0], 1)
        StreamLaunch(gemm, parameters, grid, (shape.threads, 1, 1), constants.shared_bytes, keep=kept)(stream)


@cache
def _grouped_functions(work: Work) -> tuple[Any, Any, Any]:
    """The kernels that write the groups of a and b, and the one that multiplies."""
    cubin = _here(work, "grouped")
    group_a, group_b, gemm = (load_function(cubin, f"engine_{name}") for name in ("group_a", "group_b", "grouped"))
    return group_a, group_b, gemm


def _grouped(work: Work, problem: Problem, batch: int, stream: int) -> None:
    """Each product of the batch by itself: write the groups of both operands, multiply."""
    group_a, group_b, gemm = _grouped_functions(work)
    tiles = -(-problem.m // grouped.TILE), -(-problem.n // grouped.TILE)
    counts = [count * grouped.TILE * problem.blocks * (work.kept // grouped.GROUP) for count in tiles]
    sizes = [count * size for size in (work.k // work.kept * grouped.GROUP, grouped.SCALING_BYTES) for count in counts]
    kept = _workspace(sum(sizes))
    space = _bytes(GroupSpace(*(kept.address + sum(sizes[:place]) for place in range(len(sizes)))))
    for place in range(batch):
        own = _bytes(_of_batch(work, problem, place))
        for function, count in zip((group_a, group_b), counts, strict=True):
            blocks = -(-count // _THREADS)
            StreamLaunch(function, [own, space, np.array([count], np.int64)], (blocks, 1, 1), (_THREADS, 1, 1))(stream)
        StreamLaunch(gemm, [own, space], (tiles[1], tiles[0], 1), (_THREADS, 1, 1), keep=kept)(stream)


@cache
def _native_functions(work: Work) -> tuple[Any, Any, Any, Any]:
    """The kernel that multiplies, and those that say which NaN an output is."""
    cubin = _here(work, "native")
    multiply, last, there, mend = (
        load_function(cubin, f"engine_{name}") for name in ("native", "last_nan", "any_nan", "mend")
    )
    return multiply, last, there, mend


def _native(work: Work, problem: Problem, batch: int, stream: int) -> None:
    """Each product of the batch by itself."""
    multiply, last, there, mend = _native_functions(work)
    rows, columns = (native.SIDE * each for each in native.each_of(work))
    many, threads = 64 * multiprocessors(), (_THREADS, 1, 1)
    kept = _workspace(8 * problem.n + 4 * problem.m)
    space = _bytes(NanSpace(kept.address, kept.address + 8 * problem.n))
    for place in range(batch):
        own = _bytes(_of_batch(work, problem, place))
        grid = (-(-problem.n // columns), -(-problem.m // rows), 1)
        StreamLaunch(multiply, [own], grid, threads)(stream)
        if work.result.name == "f64":
            StreamLaunch(last, [own, space], (-(-problem.n // 64), 1, 1), (64, 1, 1))(stream)
            StreamLaunch(there, [own, space], (problem.m, 1, 1), threads)(stream)
            outputs = -(-problem.m * problem.n // _THREADS)
            StreamLaunch(mend, [own, space], (min(outputs, many), 1, 1), threads, keep=kept)(stream)


def _of_batch(work: Work, problem: Problem, place: int) -> Problem:
    """One product of a batch."""
    one = Problem.from_buffer_copy(problem)
    sizes = {
        "a": work.formats[0], "b": work.formats[1], "c": work.formats[2], "scale_a": work.scale, "scale_b": work.scale,
    }  # fmt: skip
    for name, (batch_axis, _, _) in _AXES.items():
        address = getattr(problem, name)
        if address:
            item = 4 if name == "columns" else sizes[name].dtype.itemsize  # type: ignore[union-attr]
            setattr(one, name, address + place * getattr(problem, batch_axis) * item)
    one.d = problem.d + place * problem.m * problem.n * work.result.dtype.itemsize
    return one


def _bytes(parameter: ctypes.Structure) -> npt.NDArray[np.uint8]:
    return np.frombuffer(bytes(parameter), np.uint8).copy()


def uploaded(array: npt.NDArray[Any], name: str) -> ForeignArray:
    """An array of NumPy on the GPU. What is repeated along an axis (a stride of 0) is copied once."""
    once = tuple(
        slice(0, 1) if stride == 0 and extent > 1 else slice(None)
        for extent, stride in zip(array.shape, array.strides, strict=True)
    )
    values = np.ascontiguousarray(array[once], np.int32 if name == "columns" else array.dtype)
    held = DeviceArray(values.shape, values.dtype)
    if values.size:
        held.set(values)
    strides = tuple(
        0 if one.stop == 1 else stride // values.itemsize for one, stride in zip(once, values.strides, strict=True)
    )
    return ForeignArray(values.dtype, array.shape, strides, held.address, owner=held)


def order_of(order: Sequence[int], blocks: int) -> ForeignArray | None:
    """The order of the instructions on the GPU; None if it is ascending and whole."""
    if list(order) == list(range(blocks)):
        return None
    return uploaded(np.asarray(order, np.int32), "order")
