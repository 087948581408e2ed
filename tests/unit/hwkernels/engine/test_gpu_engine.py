"""The engine of the GPU without one: NVRTC's PTX of its kernels, run by `tcsim.ptx`, gives the bits of NumPy's engine."""

from __future__ import annotations

import tomllib
from dataclasses import replace
from importlib.metadata import EntryPoint
from pathlib import Path

import numpy as np
import pytest

import tcsim
from conformance.engines.operands import matrices
from hwkernels.device.array_protocols import ForeignArray
from hwkernels.device.nvrtc import compile_cubin
from hwkernels.engine import fast, grouped, native
from hwkernels.engine.engine import ENGINE
from hwkernels.engine.run import GroupSpace, NanSpace, Operands, Problem, Workspace, kernels_of, problem_of
from hwkernels.engine.source import KERNELS, headers_of
from tcsim.engines.contract import Engine, Matrices, Work
from tcsim.engines.reference import ENGINE as NUMPY
from tcsim.ptx import Memory, parse

TILE = fast.Tile(8, 32, 8, 4, 2)
WORKS = {
    "f16": ("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", "sm_90"),
    "two steps": ("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32", "sm_80"),
    "sparse": ("mma.sp.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16", "sm_90"),
    "in parts": ("mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32", "sm_120"),
    "scaled": (
        "mma.sync.aligned.kind::mxf8f6f4.block_scale.m16n8k32.row.col.f32.e4m3.e4m3.f32.ue8m0",
        "sm_120",
    ),
    "in groups": (
        "mma.sync.aligned.kind::mxf4nvf4.block_scale.scale_vec::4X.m16n8k64.row.col.f32.e2m1.e2m1.f32.ue4m3",
        "sm_120",
    ),
    "ordinary": ("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64", "sm_90"),
}


def work_of(name: str) -> Work:
    mnemonic, arch = WORKS[name]
    return tcsim.instruction(mnemonic, arch=arch).work


def placed(memory: Memory, given: Matrices, order: list[int]) -> Operands:
    """The operands in the executor's memory."""
    arrays = {name: array for name, array in vars(given).items() if array is not None} | {"order": np.int32(order)}
    found = {}
    for name, array in arrays.items():
        codes = np.ascontiguousarray(array, np.int32) if name == "columns" else np.ascontiguousarray(array)
        strides = tuple(stride // codes.itemsize for stride in codes.strides)
        address = memory.allocate(codes.reshape(-1).view(np.uint8))
        found[name] = ForeignArray(codes.dtype, codes.shape, strides, address)
    return Operands({name: array for name, array in found.items() if name != "order"}, found["order"])


def case(work: Work, name: str, batch: int) -> tuple[Matrices, list[int], np.ndarray]:
    chained = 2 if work.formats[2] == work.result else 1
    given, order = matrices(work, (batch, 3, 5), chained, name, 7), list(range(chained))[::-1]
    return given, order, NUMPY.multiply(work, given, order)


def result(memory: Memory, problem: Problem, like: np.ndarray) -> np.ndarray:
    return memory.read(problem.d, like.nbytes).view(like.dtype).reshape(like.shape)


@pytest.mark.parametrize("name", ["sparse", "in groups", "ordinary"])
def test_the_kernel_for_everything(name: str) -> None:
    work = work_of(name)
    source = (KERNELS / "engine_exact.cu").read_text(encoding="utf-8")
    kernel = parse(compile_cubin(source, "sm_90", headers=headers_of(work), defines={"LEAST_BLOCKS": 1}).ptx).kernel(
        "engine_exact"
    )
    given, order, want = case(work, "bits", 1)
    memory = Memory()
    problem = problem_of(work, placed(memory, given, order))
    problem.d = memory.allocate(want.nbytes)
    run = kernel.launch(memory, [bytes(problem)], grid=(1, 1, 1), block=(64, 1, 1), arch="sm_90")
    assert run.completed and not run.hazards and not run.inexact
    np.testing.assert_array_equal(result(memory, problem, want), want)


@pytest.mark.parametrize("name", ["two steps", "in parts"])
def test_the_kernels_for_large_products(name: str) -> None:
    """Two steps an instruction, or one long step in spans; rows and columns that do not fill a tile, infinities and NaN; no access out of bounds."""
    work = work_of(name)
    given, order, want = case(work, "bits", 1)
    np.testing.assert_array_equal(large(work, given, order, want), want)


@pytest.mark.parametrize("name", ["two steps", "scaled"])
def test_subnormal_addends(name: str) -> None:
    """Their exponent is that of the smallest normal number, where products beside them are smaller still: of one step in one span, or in two."""
    work = work_of(name)
    given, order, _ = case(work, "near", 1)
    stream = np.random.default_rng(3)
    for codes in (given.a, given.b) if work.scale is None else (given.scale_a, given.scale_b):
        assert codes is not None
        field = np.uint32(127 - 70) + stream.integers(-6, 7, codes.shape, np.int32).astype(np.uint32)
        codes[...] = field if work.scale else (codes & np.uint32(0x807FE000)) | field << np.uint32(23)
    given.c[...] &= np.uint32(0x807FFFFF)
    want = NUMPY.multiply(work, given, order)
    assert ((want << np.uint32(1)) - np.uint32(1) < np.uint32((1 << 24) - 1)).any()  # some are subnormal again
    np.testing.assert_array_equal(large(work, given, order, want), want)


def large(work: Work, given: Matrices, order: list[int], like: np.ndarray) -> np.ndarray:
    """The result of the kernels of engine_gemm.cu."""
    constants = fast.constants_of(work, tile=TILE)
    text = (KERNELS / "engine_gemm.cu").read_text(encoding="utf-8")
    module = parse(compile_cubin(text, "sm_90", headers=fast.headers(work, constants)).ptx)
    memory = Memory()
    problem = problem_of(work, placed(memory, given, order))
    problem.d = memory.allocate(like.nbytes)
    steps = problem.blocks * constants.steps
    stages = constants.stages(steps)
    sizes = [stages * size for size in constants.chunks] + [16 * steps * size for size in (8, 32)]
    parameters = [bytes(problem), bytes(Workspace(*(memory.allocate(size) for size in sizes), steps, stages))]
    for entry, threads, grid, shared in (
        ("engine_decode_a", TILE.block_m, (1, steps, 1), 0),
        ("engine_decode_b", TILE.block_n, (1, steps, 1), 0),
        ("engine_gemm", TILE.threads, (1, 1, 1), constants.shared_bytes),
    ):
        kernel = module.kernel(entry)
        run = kernel.launch(memory, parameters, grid=grid, block=(threads, 1, 1), dynamic_smem=shared, arch="sm_90")
        assert run.completed and not run.hazards and not run.inexact
    return result(memory, problem, like)


def test_the_kernels_for_groups() -> None:
    """fp4 whose products are summed before they are scaled: two instructions, the last first, rows and columns that do not fill a tile."""
    work = work_of("in groups")
    text = (KERNELS / "engine_grouped.cu").read_text(encoding="utf-8")
    module = parse(compile_cubin(text, "sm_90", headers=grouped.headers(work)).ptx)
    given, order, want = case(work, "bits", 1)
    memory = Memory()
    problem = problem_of(work, placed(memory, given, order))
    problem.d = memory.allocate(want.nbytes)
    count = grouped.TILE * problem.blocks * work.k // grouped.GROUP
    sizes = [count * size for size in (grouped.GROUP,) * 2 + (grouped.SCALING_BYTES,) * 2]
    parameters = [bytes(problem), bytes(GroupSpace(*(memory.allocate(size) for size in sizes)))]
    for entry, grid, more in (
        ("group_a", -(-count // 256), [count]),
        ("group_b", -(-count // 256), [count]),
        ("grouped", 1, []),
    ):
        kernel = module.kernel(f"engine_{entry}")
        run = kernel.launch(memory, [*parameters, *more], grid=(grid, 1, 1), block=(256, 1, 1), arch="sm_90")
        assert run.completed and not run.hazards and not run.inexact
    np.testing.assert_array_equal(result(memory, problem, want), want)


def test_the_kernels_for_ordinary_arithmetic() -> None:
    """f64 of random bits, NaN among them: two instructions, the last first, and rows and columns that do not fill a tile."""
    work = work_of("ordinary")
    text = (KERNELS / "engine_native.cu").read_text(encoding="utf-8")
    module = parse(compile_cubin(text, "sm_90", headers=native.headers(work)).ptx)
    given, order, want = case(work, "bits", 1)
    a = np.array(given.a)
    a[0, 1, 2], a[0, 2, 0] = np.uint64(0x7FF0_0000_0000_1234), np.uint64(0xFFF8_0000_0000_0007)
    given = given.part(a=a)
    want = NUMPY.multiply(work, given, order)
    assert len(np.unique(want[0, 1:3])) > 1 and (want[0, 2] == a[0, 2, 0]).any()
    memory = Memory()
    problem = problem_of(work, placed(memory, given, order))
    problem.d = memory.allocate(want.nbytes)
    space = bytes(NanSpace(memory.allocate(8 * problem.n), memory.allocate(4 * problem.m)))
    for entry, grid, parameters in (
        ("native", 1, []),
        ("last_nan", 1, [space]),
        ("any_nan", problem.m, [space]),
        ("mend", 1, [space]),
    ):
        kernel = module.kernel(f"engine_{entry}")
        run = kernel.launch(memory, [bytes(problem), *parameters], grid=(grid, 1, 1), block=(256, 1, 1), arch="sm_90")
        assert run.completed and not run.hazards and not run.inexact
    np.testing.assert_array_equal(result(memory, problem, want), want)


def test_it_is_installed_and_says_what_it_does_not_compute() -> None:
    project = tomllib.loads((Path(tcsim.__file__).parents[1] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    entry = EntryPoint("gpu", project["entry-points"]["tcsim.engines"]["gpu"], "tcsim.engines")
    assert entry.load() is ENGINE and isinstance(ENGINE, Engine)
    assert ENGINE.takes(work_of("f16")) == ""
    integers = tcsim.instruction("mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32", arch="sm_90").work
    assert ENGINE.takes(integers) == "s8 is an integer format"
    (step,) = work_of("f16").steps
    odd = replace(work_of("f16"), steps=(replace(step, unit=replace(step.unit, keep_negative_zero=True)),))  # type: ignore[arg-type]
    assert "-0" in ENGINE.takes(odd)
    chosen = {name: kernels_of(work_of(name))[-1] for name in WORKS}
    assert chosen == {
        "f16": "fast", "two steps": "fast", "sparse": "fast", "in parts": "fast", "scaled": "fast", "in groups": "grouped", "ordinary": "native",
    }  # fmt: skip


def test_sums_of_a_part_fit_32_bits() -> None:
    """The most products of the largest significands that a part may have, and one more."""
    for name in ("f16", "in parts"):
        work = work_of(name)
        constants = fast.constants_of(work)
        bits = [2 - 2.0**-item.fraction_bits for item in work.formats[:2]]
        part = constants.length // constants.parts
        largest = part * bits[0] * bits[1] * 2**25
        assert largest < 2**31 and (constants.parts == 1 or 2 * largest >= 2**31)
