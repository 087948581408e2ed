"""GEMM kernels of hwkernels run whole on the CPU: compiled by NVRTC, launched on the machine, compared with `tcsim.gemm` byte by byte."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from time import process_time
from typing import Any

import numpy as np
import numpy.typing as npt

import tcsim
from conformance.kernels import gemm, scaled
from conformance.kernels.gemm import GemmCase
from conformance.kernels.scaled import ScaledCase
from hwkernels.device.device_arrays import DTYPES
from hwkernels.device.nvrtc import compile_cubin
from hwkernels.gemm import tiles
from hwkernels.gemm.build import ENTRY, SOURCES, Build
from hwkernels.gemm.call import problem_dtype
from hwkernels.gemm.kernels import OPERAND_FORMATS, OUTPUT_BYTES
from hwkernels.gemm.scaled_call import FACTORS
from hwkernels.gemm.scaled_kernels import ScaledBuild
from hwkernels.gemm.scaled_operands import pack_elements, pack_factors, scaled_grid, scaled_maps, whole_tiles
from hwkernels.gemm.sparse_operands import compress, metadata_image, sparsity_in
from hwkernels.gemm.tiles import Shape, TensorMapSpec
from tcsim.core.targets import ARCHS, TARGETS
from tcsim.ptx import Limits, Memory, Run, parse
from tcsim.ptx.kernel import Kernel

Array = npt.NDArray[Any]
Case = GemmCase | ScaledCase
Timer = Callable[[], float]
Schedule = str | int
RESIDENT = 2  # clusters of a persistent kernel at a time: blocks take several tiles
UNTOUCHED = 0xA5  # what the output holds before, and its rows' padding afterwards


@dataclass(frozen=True)
class Product:
    """One product by a kernel on the machine."""

    case: Case
    target: str
    schedule: Schedule
    run: Run
    compared: int  # bytes of the output, padding of its rows included
    wrong: int  # of those
    seconds: float  # of the launch alone; of CPU, where no other timer is given

    @property
    def good(self) -> bool:
        """Whether the kernel ran to its end, without an error, and left the bytes that are expected."""
        return self.run.completed and not self.run.errors and self.wrong == 0 < self.compared


@cache
def kernel_of(build: Build | ScaledBuild) -> Kernel:
    """The kernel of a build. Raises ToolchainError without an NVRTC for its target."""
    text = (SOURCES / build.row.file).read_text(encoding="utf-8")
    made = compile_cubin(text, build.target, name=build.row.file, headers=build.headers, defines=build.defines)
    return parse(made.ptx).kernel(ENTRY)


def multiplied(
    case: Case, arch: str, schedule: Schedule = "late", seed: int = 0, check: bool = False,
    origins: bool = False, races: bool = False, limits: Limits | None = None, timer: Timer = process_time,
) -> Product:  # fmt: skip
    """Run a case's kernel on its operands. check: look for hazards; origins: and follow elements; races: and global memory.

    timer: what its seconds are measured by.

    Post-conditions:
        result.good, if the machine does what the hardware does
    """
    launch = _scaled if isinstance(case, ScaledCase) else _plain
    return launch(case, arch, schedule, seed, check, origins, races, limits, timer)  # type: ignore[operator]


def _plain(
    case: GemmCase, arch: str, schedule: Schedule, seed: int, check: bool, origins: bool, races: bool,
    limits: Limits | None, timer: Timer,
) -> Product:  # fmt: skip
    build, shape = case.build(arch), Shape(*case.size)
    row, memory = build.row, Memory()
    a, b, c = gemm.operands(case, seed)
    metadata: list[Array] = []
    left, right = a.T if build.a_mn_major else a, b if build.b_mn_major else b.T
    if row.sparse:
        matrix = compress(a.view(DTYPES[case.a]))
        left = matrix.kept.view(a.dtype)
        metadata = [metadata_image(matrix.groups(), case.a, sparsity_in(build.instruction))]
    step = 16 // OPERAND_FORMATS[case.a].bytes if row.needs_aligned or row.tma else 1
    stored = [_padded(x, step) for x in (left, right)]
    alpha, beta = (gemm.WHOLE if case.out == "s32" else gemm.SCALE) if case.scaled else (1, 1)
    problem = _problem(build, shape, memory, (alpha, beta), c)
    output = _Output(memory, shape, case.out)
    problem["a"], problem["b"] = (memory.allocate(_bytes(x)) for x in stored)
    problem["d"], problem["ldd"] = output.address, output.leading
    problem["lda"], problem["ldb"] = (x.shape[1] for x in stored)
    problem["group"] = case.tuning.group or 1
    parameters: list[bytes] = []
    if row.tma:
        specs = tiles.tensor_maps(build, shape, tuple(int(problem[name]) for name in ("lda", "ldb", "ldd")))  # type: ignore[arg-type]
        parameters = [_map(spec, int(problem[name])) for spec, name in zip(specs, "abd", strict=True)]
        if not build.tma_store:
            parameters[2] = bytes(128)
    parameters += [problem.tobytes(), *(np.uint64(memory.allocate(_bytes(x))).tobytes() for x in metadata)]
    cluster = math.prod(build.cluster)
    grid = tiles.launch_grid(build, shape, case.tuning.clusters or RESIDENT)
    expected = _expected(case, arch, a, b, c)
    if build.tma_store:  # a row that TMA stores ends at a multiple of 16 bytes: columns of zeros of B (docs/tma.md)
        nothing = np.zeros((shape.k, output.leading - shape.n), b.dtype)
        expected = np.concatenate([expected, _expected(case, arch, a, nothing, None)], axis=1)
    start = timer()
    run = kernel_of(build).launch(
        memory, parameters, grid, (row.threads, 1, 1), (cluster, 1, 1), build.shared_bytes, arch=arch, schedule=schedule,
        check=check, origins=origins, races=races, limits=limits,
    )  # fmt: skip
    return output.compared(case, build.target, schedule, run, expected, timer() - start)


def _expected(case: GemmCase, arch: str, a: Array, b: Array, c: Array | None) -> Array:
    """The codes of d. Archs before sm_80 lack the instruction that `gemm.predicted` rounds with; the rounding is the same."""
    if case.out == "f16" and ARCHS[arch].number < 80:
        return gemm.output_codes(case.build(arch).predict(a, b), case.out, c, "sm_80")
    return gemm.predicted(case, arch, a, b, c)


def _scaled(
    case: ScaledCase, arch: str, schedule: Schedule, seed: int, check: bool, origins: bool, races: bool,
    limits: Limits | None, timer: Timer,
) -> Product:  # fmt: skip
    build, shape = case.build(arch), Shape(*case.size)
    row, memory = build.row, Memory()
    found = scaled.operands(case, seed)
    elements = [pack_elements(x, row.element_bits) for x in (found["a"], found["b"].T)]
    packed = [pack_factors(row, x) for x in (found["scale_a"], found["scale_b"].T)]
    factors = [whole_tiles(build, x, n) for (x, _), n in zip(packed, (build.block_m, build.block_n), strict=True)]
    problem = _problem(build, shape, memory, gemm.SCALE if case.scaled else (1, 1), found.get("c"))
    output = _Output(memory, shape, case.out)
    problem["d"], problem["ldd"], problem["group"] = output.address, output.leading, 1
    words = np.zeros((), FACTORS)
    words["a"], words["b"] = (memory.allocate(_bytes(x)) for x in factors)
    words["pitch"] = packed[0][1]
    pointers = [memory.allocate(_bytes(x)) for x in elements]
    maps = [_map(spec, at) for spec, at in zip(scaled_maps(build, shape), pointers, strict=True)]
    parameters = [*maps, bytes(128), problem.tobytes(), words.tobytes()]
    expected = scaled.predicted(case, arch, found)
    start = timer()
    run = kernel_of(build).launch(
        memory, parameters, scaled_grid(build, shape), (row.threads, 1, 1), (1, 1, 1), build.shared_bytes, arch=arch,
        schedule=schedule, check=check, origins=origins, races=races, limits=limits,
    )  # fmt: skip
    return output.compared(case, build.target, schedule, run, expected, timer() - start)


@dataclass
class _Output:
    """The output in memory: rows at multiples of 16 bytes."""

    memory: Memory
    shape: Shape
    format: str

    def __post_init__(self) -> None:
        size = OUTPUT_BYTES[self.format]
        self.leading = -(-self.shape.n * size // 16) * 16 // size
        self.bytes = self.shape.m * self.leading * size
        self.address = self.memory.allocate(np.full(self.bytes, UNTOUCHED, np.uint8))

    def compared(
        self, case: Case, target: str, schedule: Schedule, run: Run, expected: Array, seconds: float
    ) -> Product:
        """The product, every byte of the output compared."""
        wanted = np.full(self.bytes, UNTOUCHED, np.uint8).view(f"u{OUTPUT_BYTES[self.format]}")
        wanted = wanted.reshape(self.shape.m, self.leading)
        wanted[:, : expected.shape[1]] = expected.view(wanted.dtype)
        got = self.memory.read(self.address, self.bytes)
        return Product(case, target, schedule, run, self.bytes, int((got != _bytes(wanted)).sum()), seconds)


def _problem(
    build: Build | ScaledBuild, shape: Shape, memory: Memory, factors: tuple[Any, Any], c: Array | None
) -> Array:
    """The struct Problem without a, b and d."""
    problem = np.zeros((), problem_dtype(build))
    problem["m"], problem["n"], problem["k"] = shape.m, shape.n, shape.k
    problem["alpha"], problem["beta"] = factors
    if c is not None:
        problem["c"], problem["ldc"] = memory.allocate(_bytes(c)), c.shape[1]
    return problem


def _padded(matrix: Array, step: int) -> Array:
    """Rows of a multiple of `step` elements; what is added is zero."""
    wide = np.zeros((len(matrix), -(-matrix.shape[1] // step) * step), matrix.dtype)
    wide[:, : matrix.shape[1]] = matrix
    return wide


def _bytes(array: Array) -> npt.NDArray[np.uint8]:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


def _map(spec: TensorMapSpec, address: int) -> bytes:
    made = tcsim.TensorMap(
        spec.data_type, global_dim=spec.dims, global_strides=(spec.pitch,), box_dim=spec.box, swizzle=spec.swizzle,
        l2_promotion=spec.promotion,
    )  # fmt: skip
    return made.encode(address)


def arch_of(target: str) -> str:
    """The arch of a target."""
    return TARGETS[target].arch
