"""The Blackwell kernels' own source on the CPU: tcgen05 with a block and with pairs, and block scales with Tensor Memory and without.

Needs g++ 12 or later and some minutes, so it runs only by name: `pytest tests/emulated`. Multiplications, copies of factors and
commits run late, in a thread of their own; shared addresses carry the block's rank, as in a cluster. Fences around barriers,
allocations and what is under way at the exit are checked (tests/emulated/tcgen05.h).
"""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tcsim
from hwkernels.device.device_arrays import DTYPES
from hwkernels.gemm.call import problem_dtype
from hwkernels.gemm.kernels import KERNELS
from hwkernels.gemm.scaled_call import FACTORS, checked_operands
from hwkernels.gemm.scaled_kernels import SCALED_KERNELS, ScaledBuild
from hwkernels.gemm.scaled_operands import pack_elements, pack_factors, scaled_grid, scaled_maps, whole_tiles
from hwkernels.gemm.tiles import Shape
from tcsim.numbers.formats import FORMATS
from tests.emulated import emulation
from tests.emulated.emulation import HERE, Memory, compile_program, constants, execute, tensor_map
from tests.emulated.tensor_memory_parts import tensor_memory_parts
from tests.emulated.test_emulated_kernels import MAJORS, build_of, run

DENSE = tuple(name for name, row in KERNELS.items() if row.ctas)
PERSISTENT = "sm100_tcgen05_persistent"


@pytest.mark.parametrize("name", DENSE)
@pytest.mark.parametrize(
    ("format_", "majors"), [*(("f16", majors) for majors in MAJORS), *((f, MAJORS[0]) for f in ("tf32", "e4m3", "s8"))]
)
def test_a_ragged_product(name: str, format_: str, majors: tuple[bool, bool], tmp_path: Path) -> None:
    """Edges in every direction, more steps than slots, several tiles."""
    got, want = run(build_of(name, format_, *majors, block_n=128, stages=3), (280, 150, 330), tmp_path)
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize(
    ("name", "size", "changes"),
    [
        ("sm100_tcgen05_basic", (130, 300, 700), {"block_n": 256}),
        ("sm100_tcgen05_basic", (1, 1, 1), {}),
        ("sm100_tcgen05_2cta", (300, 300, 500), {"block_n": 256}),
        ("sm100_tcgen05_2cta", (1, 1, 1), {}),
        (PERSISTENT, (700, 900, 200), {"block_n": 256}),  # nine tiles for two pairs
        (PERSISTENT, (900, 500, 40), {"block_n": 128}),  # tiles shorter than the ring
        (PERSISTENT, (1, 1, 1), {}),
        (PERSISTENT, (300, 300, 200), {"out": "f32", "block_n": 128}),
    ],
)
def test_sizes_of_every_kind(name: str, size: tuple[int, int, int], changes: dict[str, Any], tmp_path: Path) -> None:
    """Full width; one element; blocks that walk over several tiles; rows of the output that are not aligned."""
    got, want = run(build_of(name, **changes), size, tmp_path, odd_rows=True)
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("name", DENSE[::2])
def test_alpha_and_beta(name: str, tmp_path: Path) -> None:
    """In the epilogue from Tensor Memory."""
    build = build_of(name, "bf16", scaled=True, block_n=128, stages=2)
    got, want = run(build, (150, 140, 100), tmp_path, scale=(2.0, 0.5))
    np.testing.assert_array_equal(got, want)


def compiled(build: ScaledBuild, folder: Path, change: tuple[str, str] | None = None) -> Path:
    """A block-scaled kernel as a program."""
    row = build.row
    if row.tensor_memory:
        macros, multiply = tensor_memory_parts(build.constants, (build.a, build.b), row.scale_format, row.block)
    else:
        macros = {
            "FORMAT_A": build.a.upper(),
            "FORMAT_B": build.b.upper(),
            "ELEMENT_BITS": row.element_bits,
            "SCALE_FORMAT": row.scale_format.upper(),
            "SCALE_RUN": row.block,
        }
        multiply = f'#include "{HERE}/gpu.h"\n{constants(build.multiply_header)}\n#include "{HERE}/mma_scaled.h"\n'
    macros |= build.defines | {"USES_TMA": 1, "USES_FACTORS": 1}
    return compile_program(f"{row.source}.cu", macros, multiply, folder, change)


def run_scaled(
    build: ScaledBuild, size: tuple[int, int, int], folder: Path, change: tuple[str, str] | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """What the kernel makes of small numbers and factors that are powers of two, and what is right."""
    (m, n, k), row = size, build.row
    random, shape = np.random.default_rng(m + n + k), Shape(*size)
    blocks = -(-k // row.block)
    values = random.integers(-3, 4, (m, k)), random.integers(-3, 4, (k, n))
    factors = [np.exp2(random.integers(-2, 3, dims)) for dims in ((m, blocks), (blocks, n))]
    encoded = [tcsim.encode(x.astype(np.float64), f) for x, f in zip(values, (build.a, build.b), strict=True)]
    if row.scale_format == "ue8m0":
        scales = [(np.log2(x) + 127).astype(np.uint8) for x in factors]
    else:
        scales = [tcsim.encode(x, "e4m3") for x in factors]
    left, factors_a, right, factors_b = checked_operands(build, encoded[0], scales[0], encoded[1], scales[1])
    memory, out = Memory(), DTYPES[build.out]
    elements = [memory.put(pack_elements(x, row.element_bits)) for x in (left, right)]
    packed = [pack_factors(row, x) for x in (factors_a, factors_b)]
    tables = [
        memory.put(whole_tiles(build, x, rows))
        for (x, _), rows in zip(packed, (build.block_m, build.block_n), strict=True)
    ]
    place = memory.put(np.full((m + 1, n * out.itemsize), 0xA5, np.uint8))
    problem = np.zeros((), problem_dtype(build))
    problem["d"], problem["ldd"], problem["alpha"], problem["group"] = place, n, 1, 1
    problem["m"], problem["n"], problem["k"] = size
    maps = np.zeros((3, 128), np.uint8)
    for index, spec in enumerate(scaled_maps(build, shape)):
        maps[index] = tensor_map(spec, elements[index])
    columns, rows, _ = scaled_grid(build, shape)
    header = (columns, rows, row.threads, build.shared_bytes, 1)
    table = np.array((*tables, packed[0][1]), FACTORS).tobytes()
    after = execute(compiled(build, folder, change), header, problem, maps, memory, table)
    written = np.frombuffer(after[place:], np.uint8).reshape(m + 1, -1)
    assert (written[m:] == 0xA5).all(), "written beside the output"
    wide = [np.repeat(x, row.block, axis) for x, axis in zip(factors, (1, 0), strict=True)]
    want = (values[0] * wide[0][:, :k]) @ (values[1] * wide[1][:k])
    return written[:m].copy().view(out), want.astype(out)


@pytest.mark.parametrize("size", [(140, 300, 700), (1, 1, 1)])
@pytest.mark.parametrize("name", SCALED_KERNELS)
def test_a_block_scaled_product(name: str, size: tuple[int, int, int], tmp_path: Path) -> None:
    """Edges in every direction, a block of K that is cut short, slots that are filled again."""
    row = SCALED_KERNELS[name]
    got, want = run_scaled(ScaledBuild(name, row.formats[0], row.formats[-1], "f32", row.block_n[0]), size, tmp_path)
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("name", SCALED_KERNELS)
def test_a_long_chain_through_the_ring(name: str, tmp_path: Path) -> None:
    """Several rounds of the ring; the narrowest tiles, outputs of 16 bits."""
    row = SCALED_KERNELS[name]
    build = ScaledBuild(name, row.formats[-1], row.formats[0], "bf16", row.block_n[-1])
    got, want = run_scaled(build, (20, 136, 9 * row.slot_k + 40), tmp_path)
    np.testing.assert_array_equal(got, want)


AFTER = "            tcgen05_after_sync();\n            multiply_slot"
MISTAKES: dict[str, tuple[str, tuple[str, str]]] = {
    "no fence before a multiplication": ("sm100_tcgen05_basic", (AFTER, "            multiply_slot")),
    "no fence before the epilogue": (
        "sm100_tcgen05_basic",
        ("tcgen05_after_sync();\n    store_tmem_rows", "store_tmem_rows"),
    ),
    "no fence before the accumulator is given back": (
        PERSISTENT,
        (
            "            tcgen05_before_sync();\n            __syncwarp();  // the whole",
            "            __syncwarp();  // the whole",
        ),
    ),
    "a phase too far": ("sm100_tcgen05_basic", ("Cursor slot = {0, 1};", "Cursor slot = {0, 0};")),
    "the epilogue does not wait": ("sm100_tcgen05_basic", ("    mbarrier_wait(done, 0);\n", "")),
    "a commit to the leader alone": (
        "sm100_tcgen05_2cta",
        ("tcgen05_commit_pair(done, BOTH)", "tcgen05_commit_pair(done, 1)"),
    ),
    "bytes of one block announced": (
        "sm100_tcgen05_2cta",
        ("mbarrier_expect(full, 2 * SLOT)", "mbarrier_expect(full, SLOT)"),
    ),
    "bytes counted where they come": ("sm100_tcgen05_2cta", ("address_in(full, 0)", "full")),
    "both halves of B the same": ("sm100_tcgen05_2cta", ("n + rank * HALF_N, step", "n, step")),
    "the second accumulator over the first": (PERSISTENT, ("accumulators + buffer.place * BLOCK_N;", "accumulators;")),
    "four arrivals give an accumulator back": (PERSISTENT, ("2 * STORING_WARPS", "STORING_WARPS")),
    "Tensor Memory is kept": ("sm100_tcgen05_basic", ("if (owner) tmem_free<GROUP>(address, TMEM_COLUMNS);", "")),
    "another warp frees": (
        PERSISTENT,
        (
            "close_tensor_memory<2>(accumulators, warp == MULTIPLYING_WARP)",
            "close_tensor_memory<2>(accumulators, warp == 0)",
        ),
    ),
}
SCALED_MISTAKES: dict[str, tuple[str, tuple[str, str]]] = {
    "factors of B where A's are": ("sm100_nvfp4", ("scale_b = scale_a + COLUMNS_A", "scale_b = scale_a")),
    "one slot's columns for all": ("sm100_mxfp8", ("BLOCK_N + slot.place * COLUMNS", "BLOCK_N")),
    "the second 128 columns' factors left out": (
        "sm100_mxfp4",
        (
            "group < GROUPS_B; ++group) {\n                    tcgen05_copy",
            "group < 1; ++group) {\n                    tcgen05_copy",
        ),
    ),
    "factors of the step before": (
        "sm120_mxfp8",
        ("if (step + 1 < steps) fetch(step + 1);", "if (step + 1 < steps) fetch(step);"),
    ),
    "fragments exchange their factors": ("sm120_nvfp4", ("mma_scaled<byte, 1, 2>", "mma_scaled<byte, 0, 2>")),
}
HARMLESS = {"one slot's columns for all"}  # here: copies and multiplications of one thread run in order


def fails(make: Any) -> bool:
    """Whether a run is wrong, aborts or hangs."""
    try:
        got, want = make()
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired):
        return True
    return bool((got != want).any())


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_are_found(mistake: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each makes a wrong product, an abort or a hang."""
    monkeypatch.setattr(emulation, "TIMEOUT_S", 20)
    name, change = MISTAKES[mistake]
    build = build_of(name, block_n=128, stages=2)
    assert fails(lambda: run(build, (600, 300, 330), tmp_path, change=change))


@pytest.mark.parametrize("mistake", SCALED_MISTAKES)
def test_mistakes_with_factors_are_found(mistake: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same with block scales."""
    monkeypatch.setattr(emulation, "TIMEOUT_S", 20)
    name, change = SCALED_MISTAKES[mistake]
    row = SCALED_KERNELS[name]
    build = ScaledBuild(name, row.formats[0], row.formats[0], "f32", row.block_n[0])
    wrong = fails(lambda: run_scaled(build, (130, 260, 3 * row.slot_k), tmp_path, change))
    assert wrong != (mistake in HARMLESS)


def test_formats_are_tcsims(tmp_path: Path) -> None:
    """The emulation's numbers: every code of every small format."""
    program = f'#include "{HERE}/elements.h"\nint main() {{\n'
    names = {"e4m3": 256, "e5m2": 256, "e2m1": 16, "ue8m0": 255, "ue4m3": 128}
    for name, count in names.items():
        kind = name.upper()
        program += (
            f'for (u32 c = 0; c < {count}; ++c) {{ u8 b = c; std::printf("%a\\n", element_of<{kind}>(&b, 0)); }}\n'
        )
    (tmp_path / "t.cpp").write_text(program + "}\n")
    subprocess.run(["g++", "-std=c++20", "-w", str(tmp_path / "t.cpp"), "-o", str(tmp_path / "t")], check=True)
    lines = iter(subprocess.run([tmp_path / "t"], capture_output=True, text=True, check=True).stdout.split())
    checked = 0
    for name, count in names.items():
        want = tcsim.decode(np.arange(count, dtype=FORMATS[name].dtype), name).astype(float)
        for value in want:
            got = float.fromhex(next(lines))
            assert got == value or not np.isfinite(value), name
            checked += 1
    assert checked == sum(names.values())
