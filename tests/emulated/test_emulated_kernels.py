"""The GEMM kernels' own source, compiled for the CPU against an emulation of the PTX wrappers, on whole products: sm_70 to sm_90.

Needs g++ 12 or later (C++20, _Float16) and some minutes, so it runs only by name: `pytest tests/emulated`. What it does not see: the
instructions inside the wrappers, the memory model between fences, and time. It does see every index, every barrier count and
phase, multicast, swizzles, edges, and a slot or panel that is reused too early.
"""

from __future__ import annotations

import math
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from conformance.kernels.gemm import pruned
from conformance.stimuli.stream import Stream
from hwkernels.device.device_arrays import DTYPES, round_up
from hwkernels.gemm import tiles as gemm_tiles
from hwkernels.gemm.build import Build
from hwkernels.gemm.call import Tuning, problem_dtype, tuned
from hwkernels.gemm.kernels import KERNELS, OPERAND_FORMATS
from hwkernels.gemm.sparse_operands import compress, metadata_image, sparsity_in
from hwkernels.gemm.tiles import Shape, choose
from tests.emulated import emulation
from tests.emulated.emulation import HERE, Memory, compile_program, execute, tensor_map
from tests.emulated.tensor_memory_parts import tensor_memory_parts

STYLES = {
    "wgmma": "STYLE_WGMMA",
    "wgmma.sp": "STYLE_WGMMA_SPARSE",
    "wmma.mma": "STYLE_WMMA",
    "mma.sync": "STYLE_MMA",
    "mma.sp": "STYLE_MMA_SPARSE",
}
RESIDENT = 2  # clusters at a time: persistent blocks then walk over several tiles
PERSISTENT, SPARSE = "sm90_wgmma_persistent", "sm90_wgmma_sparse"


def compiled(build: Build, folder: Path, change: tuple[str, str] | None = None) -> Path:
    """The kernel as a program. change: a text of the source and what stands in its place (a planted mistake)."""
    family = build.instruction.row.family
    macros = build.defines | {
        "K_BYTES": build.row.k_bytes,
        "USES_TMA": int(build.row.tma),
        "SPARSE": int(build.row.sparse),
        f"OPERAND_{build.a.upper()}": 1,
    }
    if build.row.ctas:
        more, multiply = tensor_memory_parts(build.constants, (build.a, build.b))
        return compile_program(build.row.file, macros | more, multiply, folder, change)
    style = "STYLE_QUAD_PAIRS" if build.instruction.shape == (8, 8, 4) else STYLES[family]
    return compile_program(build.row.file, macros | {style: 1}, f'#include "{HERE}/multiply.h"\n', folder, change)


def run(
    build: Build,
    size: tuple[int, int, int],
    folder: Path,
    *,
    scale: tuple[float, float] | None = None,
    odd_rows: bool = False,
    change: tuple[str, str] | None = None,
) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """What the kernel makes of small whole numbers, and what is right. Checks that nothing beside the output was written."""
    m, n, k = size
    random = np.random.default_rng(m + n + k)
    a, b = random.integers(-3, 4, (m, k)), random.integers(-3, 4, (n, k))
    sparse = None
    if build.row.sparse:
        sparse = compress(pruned(a, OPERAND_FORMATS[build.a].group, Stream(build.a)).astype(DTYPES[build.a]))
        a = sparse.dense().astype(int)
    out = DTYPES[build.out]
    c = random.integers(-5, 6, (m, n)).astype(out)
    memory, leading, places = Memory(), [], []
    left = a if sparse is None else sparse.kept
    for values, mn_major, format_ in ((left, build.a_mn_major, build.a), (b, build.b_mn_major, build.b)):
        rows = (values.T if mn_major else values).astype(DTYPES[format_])
        pitch = round_up(rows.shape[1], 16 // rows.dtype.itemsize) if build.row.needs_aligned else rows.shape[1]
        padded = np.full((rows.shape[0], pitch), 3, rows.dtype)  # what lies between rows must not count
        padded[:, : rows.shape[1]] = rows
        leading.append(pitch)
        places.append(memory.put(padded))
    places.append(memory.put(c))
    ldd = n if odd_rows else round_up(n, 16 // out.itemsize)
    places.append(memory.put(np.full((m + 1, ldd * out.itemsize), 0xA5, np.uint8)))
    metadata = 0
    if sparse is not None:
        image = metadata_image(sparse.groups(), build.a, sparsity_in(build.instruction))
        metadata = memory.put(image)
        memory.bytes.extend(bytes(image[0].nbytes))  # beyond the end: metadata that are not defined
    shape = Shape(m, n, k)
    problem = np.zeros((), problem_dtype(build))
    for name, place in zip("abcd", places, strict=True):
        problem[name] = place
    problem["c"] *= scale is not None
    problem["lda"], problem["ldb"], problem["ldc"], problem["ldd"] = *leading, n, ldd
    problem["m"], problem["n"], problem["k"] = size
    problem["group"] = 2
    problem["alpha"], problem["beta"] = scale or (1, 0)
    maps = np.zeros((3, 128), np.uint8)
    if build.row.tma:
        specs = gemm_tiles.tensor_maps(build, shape, (leading[0], leading[1], ldd))
        maps = np.stack([tensor_map(*one) for one in zip(specs, (places[0], places[1], places[3]), strict=True)])
    columns, rows, _ = gemm_tiles.launch_grid(build, shape, RESIDENT)
    header = (columns, rows, build.row.threads, build.shared_bytes, math.prod(build.cluster))
    after = execute(compiled(build, folder, change), header, problem, maps, memory, metadata=metadata)[places[3] :]
    written = np.frombuffer(after, np.uint8, (m + 1) * ldd * out.itemsize).reshape(m + 1, -1)
    assert (written[m:] == 0xA5).all() and (written[:m, n * out.itemsize :] == 0xA5).all(), "written beside the output"
    got = written[:m, : n * out.itemsize].copy().view(out)
    alpha, beta = scale or (1.0, 0.0)
    want = alpha * (a @ b.T).astype(np.float32) + beta * c.astype(np.float32)
    return got, want.astype(out)


def build_of(
    kernel: str, format_: str = "f16", *majors: bool, out: str | None = None, target: str | None = None, **changes: Any
) -> Build:
    """The kernel's build for a large square, with changes."""
    row = KERNELS[kernel]
    formats = (format_, format_, out or OPERAND_FORMATS[format_].outputs[0])
    build = choose(row, Shape(4096, 4096, 4096), formats, majors or (False, False), target=target or row.targets[-1])  # type: ignore[arg-type]
    return replace(build, **changes)


MAJORS = ((False, False), (True, False), (False, True), (True, True))
EARLIER = [
    *(
        (name, "f16", majors)
        for name in ("sm70_wmma_naive", "sm70_wmma_shared", "sm80_mma_multistage")
        for majors in MAJORS
    ),
    ("sm70_mma_m8n8k4", "f16", (False, False)),
    *(("sm75_mma_ldmatrix", format_, (False, False)) for format_ in ("f16", "s8")),
    *(("sm80_mma_multistage", format_, (False, False)) for format_ in ("tf32", "s8")),
    ("sm89_mma_multistage", "e4m3", (False, False)),
    *(("sm80_mma_sparse", format_, (False, False)) for format_ in ("f16", "tf32", "s8")),
    ("sm80_mma_sparse", "f16", (False, True)),
    ("sm89_mma_sparse", "e4m3", (False, False)),
]
LADDER = [
    (name, format_, majors)
    for name in ("sm90_wgmma_basic", "sm90_wgmma_128", "sm90_wgmma_tma", "sm90_wgmma_specialized")
    for format_, majors in (
        ("f16", (False, False)),
        ("f16", (True, True)),
        ("tf32", (False, False)),
        ("e4m3", (False, False)),
        ("s8", (False, False)),
    )
]


@pytest.mark.parametrize(("kernel", "format_", "majors"), EARLIER + LADDER)
def test_a_ragged_product(kernel: str, format_: str, majors: tuple[bool, bool], tmp_path: Path) -> None:
    """Edges in every direction, more steps than slots."""
    got, want = run(build_of(kernel, format_, *majors), (140, 150, 330), tmp_path)
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize(
    ("kernel", "format_", "majors", "out"),
    [
        *(("sm80_mma_multistage", "f16", majors, "f16") for majors in MAJORS),
        *(("sm70_wmma_shared", "f16", majors, "f16") for majors in MAJORS),
        ("sm80_mma_multistage", "f16", (False, False), "f32"),
        ("sm80_mma_multistage", "s8", (False, False), "s32"),
        ("sm89_mma_multistage", "e4m3", (False, False), "bf16"),
    ],
)
def test_tiles_without_an_edge_beside_others(
    kernel: str, format_: str, majors: tuple[bool, bool], out: str, tmp_path: Path
) -> None:
    """They are copied without a thought of edges; K is a whole number of slots, more than the ring has."""
    got, want = run(build_of(kernel, format_, *majors, out=out), (160, 520, 768), tmp_path)
    np.testing.assert_array_equal(got, want)


CHOICES: list[tuple[Build, tuple[int, int, int]]] = [
    (build_of(PERSISTENT), (600, 520, 394)),
    (build_of(PERSISTENT, "f16", True, True), (300, 300, 576)),
    (build_of(PERSISTENT, out="f32"), (300, 300, 200)),
    (build_of(PERSISTENT, "s8"), (257, 300, 1000)),
    (build_of(PERSISTENT, "e4m3"), (129, 40, 1000)),
    (build_of(PERSISTENT, "tf32", tma_store=False), (300, 301, 33)),
    (build_of(PERSISTENT), (1, 1, 1)),
    (build_of(PERSISTENT, cluster=(1, 1), stagger=0), (140, 600, 70)),
    *((tuned(build_of(PERSISTENT), Tuning(block_n=n)), (700, 500, 700)) for n in (192, 128, 64)),
    *((tuned(build_of(PERSISTENT), Tuning(panels=4, stagger=s)), (600, 520, 394)) for s in (0, 2)),
    *((tuned(build_of(PERSISTENT, out="f32"), Tuning(panels=p)), (600, 520, 200)) for p in (2, 4)),
    (tuned(build_of(PERSISTENT), Tuning(block_n=64, panels=2, stages=3)), (700, 500, 40)),
    *(
        (tuned(build_of(PERSISTENT, "f16", *majors), Tuning(stream=True)), (600, 520, 200))
        for majors in ((False, False), (False, True))
    ),
    (tuned(build_of(PERSISTENT), Tuning(cluster=(1, 1), stream=True, stagger=1)), (600, 520, 200)),
    (build_of(PERSISTENT), (600, 520, 40)),  # tiles of one slot
    *((build_of(PERSISTENT, "s8"), (600, 520, k)) for k in (100, 700)),
    (build_of(PERSISTENT, "tf32"), (600, 520, 200)),
    (tuned(build_of(PERSISTENT, "tf32"), Tuning(block_n=192, panels=4)), (600, 600, 100)),
    (tuned(build_of(PERSISTENT, "s8"), Tuning(direct=True)), (600, 520, 200)),
    *((tuned(build_of(PERSISTENT), Tuning(defer=False, stagger=s)), (600, 520, 200)) for s in (0, 1, 2, 3)),
    (tuned(build_of(PERSISTENT), Tuning(stagger=1)), (600, 520, 200)),
    (tuned(build_of(PERSISTENT), Tuning(block_n=192, panels=2)), (600, 700, 130)),
    *((tuned(build_of(PERSISTENT), Tuning(cluster=shape)), (700, 1100, 300)) for shape in ((2, 2), (1, 2), (4, 1))),
    (tuned(build_of(PERSISTENT, "f16", True, True), Tuning(cluster=(2, 2))), (400, 1100, 300)),
    *((tuned(build_of(PERSISTENT, "e4m3"), Tuning(block_n=128, promote=p)), (400, 300, 1000)) for p in (1, 3)),
    (build_of(SPARSE), (600, 520, 394)),
    (build_of(SPARSE, "f16", False, True), (300, 300, 576)),
    (build_of(SPARSE, out="f32"), (300, 300, 200)),
    (build_of(SPARSE, "s8"), (257, 300, 1000)),
    (build_of(SPARSE, "e4m3"), (129, 40, 1000)),
    (build_of(SPARSE, "tf32", tma_store=False), (300, 301, 333)),
    (build_of(SPARSE), (1, 1, 1)),
    (build_of(SPARSE, cluster=(1, 1), stagger=0), (140, 600, 70)),
    *((tuned(build_of(SPARSE), Tuning(block_n=n)), (700, 500, 700)) for n in (192, 128, 64)),
    (tuned(build_of(SPARSE), Tuning(cluster=(4, 1))), (700, 1100, 300)),
    (tuned(build_of(SPARSE, "bf16", False, True), Tuning(cluster=(4, 1))), (400, 300, 300)),
    *((tuned(build_of("sm80_mma_sparse"), Tuning(block_n=n)), (140, 300, 330)) for n in (128, 64)),
    (tuned(build_of("sm80_mma_sparse", "s8"), Tuning(block_n=128)), (140, 200, 700)),
]


@pytest.mark.parametrize(("build", "size"), CHOICES)
def test_every_choice_of_the_persistent_kernels(build: Build, size: tuple[int, int, int], tmp_path: Path) -> None:
    """Clusters, widths, majors, promotion; blocks that walk over several tiles; a product of one element."""
    got, want = run(build, size, tmp_path, odd_rows=not build.tma_store)
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("kernel", [PERSISTENT, SPARSE, "sm90_wgmma_tma", "sm70_wmma_shared", "sm80_mma_sparse"])
def test_alpha_and_beta(kernel: str, tmp_path: Path) -> None:
    """In every kind of epilogue."""
    got, want = run(build_of(kernel, "bf16", scaled=True), (150, 140, 100), tmp_path, scale=(2.0, 0.5))
    np.testing.assert_array_equal(got, want)


LONG, SHORT = (600, 520, 700), (600, 520, 40)  # several tiles a block, of eleven slots and of one
MISTAKES = {
    "a slot is released while it is read": ("wgmma_wait<1>();", "wgmma_wait<2>();", LONG),
    "a panel is filled while it is stored": (
        "tma_store_wait_read<ROUNDS_UNDER_WAY - 1>();",
        "tma_store_wait_read<8>();",
        LONG,
    ),
    "a neighbour's release is not counted": ("CONSUMERS * RELEASES", "CONSUMERS", LONG),
    "the first half of B twice": ("MN_MAJOR ? k : start + s32(first);", "MN_MAJOR ? k : start;", LONG),
    "a phase too far": (
        "slot.parity ^ 1);\n                    mbarrier_expect",
        "slot.parity);\n                    mbarrier_expect",
        LONG,
    ),
    "a block leaves before its neighbours have signalled": (
        "CLUSTER > 1 && i < STAGES;",
        "CLUSTER > 1 && i < 0;",
        LONG,
    ),
    "a neighbour is reached before it is there": ("cluster_wait();", "", LONG),
    "the follower is let go by slots alone": (
        "if (STAGGER > 0 && ahead > 0) named",
        "if (false) named",
        (100, 100, 40),
    ),
    "the last tile is not stored": ("staging.store_all_held(", "if (false) staging.store_all_held(", SHORT),
    "the last slot of a tile is kept": ("wgmma_wait<0>();\n            release(previous);", "wgmma_wait<0>();", SHORT),
    "a tile is added to what was there before": ("multiply(false);", "multiply(true);", SHORT),
    "every block has the same rank": ("uniform(cluster_rank())", "0", LONG),
}


SPARSE_MISTAKES = {
    "a slot is released while it is read": ("wgmma_wait<1>();", "wgmma_wait<2>();"),
    "the metadata of the first consumer for both": ("4 * consumer + warp % 4, i", "warp % 4, i"),
    "one selector for both steps": ("wgmma_sparse<METADATA_WORDS == 1>", "wgmma_sparse<0>"),
    "the metadata are not announced": (
        "mbarrier_expect(barrier, SLOT);  //",
        "mbarrier_expect(barrier, SLOT - METADATA_BYTES);  //",
    ),
    "the metadata of the first rows": ("static_cast<s64>(min(rows, last_rows))", "static_cast<s64>(0 * last_rows)"),
    "metadata beyond the last rows": ("min(rows, last_rows)", "(rows + 0 * last_rows)"),
    "half a step of B": (": 64 >> 4;", ": 32 >> 4;"),
}


@pytest.mark.parametrize(
    ("kernel", "mistake"),
    [
        *(pytest.param(PERSISTENT, mistake, id=name) for name, mistake in MISTAKES.items()),
        *(pytest.param(SPARSE, (*change, LONG), id=f"sparse: {name}") for name, change in SPARSE_MISTAKES.items()),
    ],
)
def test_mistakes_are_found(
    kernel: str, mistake: tuple[str, str, tuple[int, int, int]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each makes a wrong product, an abort or a hang: the emulation can fail."""
    monkeypatch.setattr(emulation, "TIMEOUT_S", 20)
    right, wrong, size = mistake
    changes = {"stagger": 2 if "ahead" in right else 0} if kernel == PERSISTENT else {}
    if right == "multiply(false);":  # a kernel that defers its stores zeroes the accumulator itself
        changes["defer"] = False
    try:
        got, want = run(build_of(kernel, **changes), size, tmp_path, change=(right, wrong))
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired):
        return
    assert (got != want).any()
