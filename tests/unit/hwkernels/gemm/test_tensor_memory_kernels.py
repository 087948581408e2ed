"""The tcgen05 GEMM kernels without a Blackwell: their constants, and each walked through in the model, tile after tile."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

import hwkernels
import tcsim
from conformance.kernels import gemm as gemm_cases
from conformance.kernels import precompile
from hwkernels.device import stream_launch
from hwkernels.gemm import tiles as gemm_tiles
from hwkernels.gemm.build import SHARED_LIMIT, Build
from hwkernels.gemm.call import GemmError, Tuning, find_kernel, target_for, tuned
from hwkernels.gemm.kernels import KERNELS, OPERAND_FORMATS
from hwkernels.gemm.tensor_memory_constants import constants_of
from hwkernels.gemm.tiles import Shape, choose
from tcsim import catalog
from tcsim.numbers.formats import FORMATS
from tests.support import planted
from tests.unit.hwkernels.gemm.tensor_memory_walk import constants_in, walk_dense
from tests.unit.hwkernels.gemm.test_gemm_call import Driver, integers
from tests.unit.hwkernels.gemm.test_gemm_call import gpu as installed_gpu

gpu = installed_gpu  # the fixture
NAMES = tuple(name for name, row in KERNELS.items() if row.ctas)
NEITHER, BOTH = (False, False), (True, True)


def build_for(name: str, a: str, b: str, majors: tuple[bool, bool] = NEITHER, block_n: int = 128) -> Build:
    """A small build: two slots, so that they are used again."""
    build = choose(KERNELS[name], Shape(512, 512, 512), (a, b, OPERAND_FORMATS[a].outputs[0]), majors)
    return replace(build, block_n=block_n, stages=2)


WALKS = [
    ("sm100_tcgen05_basic", "f16", "f16", NEITHER, 128),
    ("sm100_tcgen05_basic", "f16", "f16", NEITHER, 256),
    ("sm100_tcgen05_basic", "bf16", "bf16", BOTH, 128),
    ("sm100_tcgen05_basic", "f16", "f16", (True, False), 128),
    ("sm100_tcgen05_basic", "f16", "f16", (False, True), 128),
    ("sm100_tcgen05_basic", "tf32", "tf32", NEITHER, 128),
    ("sm100_tcgen05_basic", "e4m3", "e5m2", NEITHER, 128),
    ("sm100_tcgen05_basic", "s8", "s8", NEITHER, 128),
    ("sm100_tcgen05_2cta", "bf16", "bf16", NEITHER, 256),
    ("sm100_tcgen05_2cta", "f16", "f16", BOTH, 256),
    ("sm100_tcgen05_2cta", "e5m2", "e4m3", NEITHER, 128),
    ("sm100_tcgen05_persistent", "f16", "f16", NEITHER, 256),
    ("sm100_tcgen05_persistent", "s8", "s8", NEITHER, 128),
]


@pytest.mark.parametrize(("name", "a", "b", "majors", "block_n"), WALKS)
def test_a_kernel_walked_through_in_the_model(
    name: str, a: str, b: str, majors: tuple[bool, bool], block_n: int
) -> None:
    """Boxes, descriptors, Tensor Memory and its rows together give what tcsim.gemm predicts; sizes fit no tile."""
    build = build_for(name, a, b, majors, block_n)
    random = np.random.default_rng(1)
    k = 2 * build.block_k + 16
    m, n = 128 + 24 if name.endswith("basic") else 256 + 40, block_n + 24
    codes = planted.codes(random, (m, k), FORMATS[a]), planted.codes(random, (k, n), FORMATS[b])
    got, want = walk_dense(build, *codes), build.predict(*codes)
    assert got.shape == want.shape == (m, n) and len(np.unique(want)) > 1000
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("change", [{"ADVANCE_A": 2}, {"DESCRIPTOR_B": 1}, {"INSTRUCTION_DESCRIPTOR": 1 << 16}])
def test_the_walk_sees_a_wrong_constant(change: dict[str, int], monkeypatch: pytest.MonkeyPatch) -> None:
    """A K step too far, B 16 bytes off, A called transposed or N another."""
    from tests.unit.hwkernels.gemm import tensor_memory_walk

    def wrong(header: str) -> dict[str, object]:
        found = constants_in(header)
        for name, amount in change.items():
            value = found[name]
            found[name] = [one ^ amount for one in value] if isinstance(value, list) else value ^ amount
        return found

    build = build_for("sm100_tcgen05_basic", "f16", "f16")
    random = np.random.default_rng(2)
    a, b = (planted.codes(random, shape, FORMATS["f16"]) for shape in ((16, 64), (64, 128)))
    np.testing.assert_array_equal(walk_dense(build, a, b), build.predict(a, b))
    monkeypatch.setattr(tensor_memory_walk, "constants_in", wrong)
    try:
        got = walk_dense(build, a, b)
    except tcsim.OperandError:
        return
    assert (got != build.predict(a, b)).any()


@pytest.mark.parametrize("name", NAMES)
def test_constants_are_those_of_tcsim(name: str) -> None:
    """The header's numbers decode to what the kernel is for, with every format."""
    checked = 0
    for format_ in KERNELS[name].formats:
        build = choose(KERNELS[name], Shape(4096, 4096, 4096), (format_, format_, OPERAND_FORMATS[format_].outputs[0]))
        names = constants_in(build.constants.header())
        kind = build.constants.instruction.row.kind.name
        for number in names["INSTRUCTION_DESCRIPTOR"]:
            one = tcsim.InstructionDescriptor.decode(number, kind, "sm_100a")
            assert (one.m, one.n, one.a_format, one.b_format) == (128 * build.row.ctas, build.block_n, format_, format_)
            one.check_mnemonic(build.instruction.mnemonic)
        for side, rows, start in (("A", 128, 0), ("B", build.block_n // build.row.ctas, 128 * 128)):
            tile = tcsim.MatrixDescriptor.for_tile(
                rows, names["SLOT_K"], format_, "K", "128B", start_address=start, arch="sm_100a", kind=kind
            )
            assert names[f"DESCRIPTOR_{side}"] == tile.descriptor.encode()
            assert [16 * step for step in names[f"ADVANCE_{side}"]] == list(tile.advances)
        assert names["SLOT_K"] * OPERAND_FORMATS[format_].bytes == 128 and names["K_STEPS"] == 4
        assert names["TMEM_COLUMNS"] == build.row.buffers * build.block_n <= 512
        assert build.shared_bytes <= SHARED_LIMIT
        checked += 1
    assert checked == 6


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("size", [(1, 1, 1), (256, 256, 64), (257, 300, 100), (5000, 3000, 64)])
def test_every_output_has_one_tile(name: str, size: tuple[int, int, int]) -> None:
    """The grid and the order of tiles, as the kernels count them."""
    build = choose(KERNELS[name], Shape(*size), ("f16", "f16", "f16"))
    grid = gemm_tiles.launch_grid(build, Shape(*size), resident=5)
    rows, columns = gemm_tiles.grid_of_tiles(build, Shape(*size))
    ctas = build.row.ctas
    assert grid[0] % ctas == 0
    seen = np.zeros((rows, columns), int)
    if build.row.persistent:
        group = gemm_tiles.group_height(build, 10)
        pairs = grid[0] // ctas
        for pair in range(pairs):
            for row, column in gemm_tiles.tiles_of_block(pair, pairs, rows, columns, group):
                seen[row, column] += 1
    else:
        for y in range(grid[1]):
            for x in range(0, grid[0], ctas):
                seen[y, x // ctas] += 1
    assert (seen == 1).all()
    assert rows * 128 * ctas >= size[0] and columns * build.block_n >= size[1]


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: find_kernel("sm100_tcgen05_2cta", "f16", "f16", 90), "sm_110a, this GPU is sm_90"),
        (lambda: tuned(build_for(NAMES[-1], "f16", "f16"), Tuning(cluster=(2, 2))), "valid: block_n, stages, group"),
        (lambda: tuned(build_for(NAMES[0], "f16", "f16"), Tuning(stages=9)), "does not fit"),
    ],
)
def test_wrong_use(call: Callable[[], object], text: str) -> None:
    """Errors say what would be valid."""
    with pytest.raises(GemmError, match=text):
        call()


def test_the_best_kernel_of_sm_100_is_the_last_step() -> None:
    """For every format."""
    found = [gemm_tiles.best_kernel(100, item, item) for item in KERNELS[NAMES[0]].formats]
    assert [item.name for item in found if item is not None] == ["sm100_tcgen05_persistent"] * 6


@pytest.mark.parametrize("arch", [100, 103, 110])
def test_formats_are_those_whose_instruction_the_chip_has(arch: int) -> None:
    """What the rows say and what tcsim's registry says agree; each build is for the chip's own target."""
    checked = 0
    for name in NAMES:
        row = KERNELS[name]
        there = [f for f in row.formats if f"sm_{arch}a" in catalog.rows()[row.instructions[f]].targets]
        assert list(gemm_tiles.formats_on(row, arch)) == there
        assert target_for(row, arch) == f"sm_{arch}a"
        for format_ in there:
            build = choose(
                row, Shape(512, 512, 512), (format_,) * 2 + OPERAND_FORMATS[format_].outputs[:1], target=f"sm_{arch}a"
            )
            kind = build.constants.instruction.row.kind.name
            for one in build.constants.descriptors:  # no bit of them depends on the chip
                assert tcsim.InstructionDescriptor.decode(one.encode(), kind, f"sm_{arch}a") == one
            assert (
                build.constants.a.descriptor.encode()
                == choose(
                    row, Shape(512, 512, 512), (format_,) * 2 + OPERAND_FORMATS[format_].outputs[:1]
                ).constants.a.descriptor.encode()
            )
            checked += 1
    assert checked == 3 * (5 if arch == 103 else 6)
    assert {case.kernel for case in gemm_cases.cases(f"sm_{arch}")} >= set(NAMES)


def test_wrong_constants_are_refused() -> None:
    """N that the instruction has not, and accumulators that do not fit."""
    mma = tcsim.instruction("tcgen05.mma.cta_group::2.kind::f16", arch="sm_100a")
    with pytest.raises(tcsim.OperandError, match="N = 264"):
        constants_of(mma, ("f16", "f16", "f32"), 264)
    with pytest.raises(ValueError, match="valid: up to 512"):
        _ = constants_of(mma, ("f16", "f16", "f32"), 256, buffers=3).tmem_columns


@pytest.mark.parametrize("size", [(130, 300, 72), (600, 1100, 24), (3, 5, 7)])
@pytest.mark.parametrize("name", NAMES)
def test_from_arrays_to_a_launch(
    gpu: Driver,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    size: tuple[int, int, int],
) -> None:
    """On a driver in memory: the operands that the kernel is given, its maps, its grid and its cluster."""
    monkeypatch.setattr(stream_launch, "arch_number", functools.cache(lambda ordinal=0: 100))
    (m, n, k), row = size, KERNELS[name]
    a, b = integers((m, k), "bf16", 1), integers((k, n), "bf16", 2)
    got = hwkernels.gemm(a, b, kernel=name)
    np.testing.assert_array_equal(got.astype(float), a.astype(float) @ b.astype(float))
    build, config = gpu.builds[-1], gpu.configs[-1]
    assert (build.kernel, build.target, build.cluster) == (name, "sm_100a", (row.ctas, 1))
    assert config.blockDimX == row.threads and config.sharedMemBytes == build.shared_bytes
    assert config.gridDimX % row.ctas == 0 and config.numAttrs == (row.ctas == 2)
    boxes = [tuple(arguments[5]) for arguments in gpu.maps[-2:]]
    heights = (128, build.block_n // row.ctas)
    assert boxes == [
        (64, 64) if mn_major else (64, height)
        for mn_major, height in zip((build.a_mn_major, build.b_mn_major), heights, strict=True)
    ]
    if not row.persistent:
        tiles = -(-m // (128 * row.ctas)), -(-n // build.block_n)
        assert (config.gridDimY, config.gridDimX) == (tiles[0], tiles[1] * row.ctas)


def test_cases_wait_for_a_blackwell() -> None:
    """Every kernel has some on sm_100, each with a build and a prediction."""
    found = [case for case in gemm_cases.cases("sm_100") if case.kernel in NAMES]
    assert {case.kernel for case in found} == set(NAMES) and len(found) > 200
    case = next(one for one in found if one.size == (70, 520, 1096) and one.a == "e4m3")
    a, b, _ = gemm_cases.operands(case, 0)
    np.testing.assert_array_equal(gemm_cases.predicted(case, "sm_100", a, b, None), case.build("sm_100").predict(a, b))
    assert {one.target for one in precompile.builds("sm_100") if one.kernel in NAMES} == {"sm_100a"}
