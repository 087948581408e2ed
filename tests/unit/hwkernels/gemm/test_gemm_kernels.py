"""The GEMM kernels without a GPU: they compile, their machine code is as claimed, their tiles cover the output."""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

import tcsim
from hwkernels.device.device_arrays import DeviceMatrix, OperandTypeError, read_matrix, round_up
from hwkernels.device.nvrtc import compile_cubin, find_compilers
from hwkernels.device.sass import SassError, disassemble, listing_of, opcode_counts
from hwkernels.device.sass_loops import innermost, loops_in
from hwkernels.device.toolchain import AssembleError, ToolchainError
from hwkernels.gemm import tiles as gemm_tiles
from hwkernels.gemm.build import SHARED_LIMIT, Build, cubin_of
from hwkernels.gemm.call import GemmError, Tuning, find_kernel, problem_dtype, target_for, tuned
from hwkernels.gemm.kernels import KERNELS, OPERAND_FORMATS, OUTPUT_BYTES, OUTPUT_TMA
from hwkernels.gemm.operands import layout_of
from hwkernels.gemm.tiles import Shape, choose
from tests.support.extent import part

SQUARE = Shape(4096, 4096, 4096)
MULTIPLIES = ("HMMA", "QMMA", "IMMA", "HGMMA", "QGMMA", "IGMMA")


def builds_of(name: str) -> list[Build]:
    """For one kernel: one format of each opcode, and one format with each other choice that exists, on each target.

    bf16 and e5m2 differ from f16 and e4m3 in the spelling of one instruction; `python -m conformance.kernels.precompile` compiles all.
    """
    kernel = KERNELS[name]
    found = [
        choose(kernel, SQUARE, (f, f, OPERAND_FORMATS[f].outputs[0]), target=kernel.targets[-1])
        for f in kernel.formats
        if f not in ("bf16", "e5m2")
    ]
    first = found[0]
    found.append(replace(first, out=OPERAND_FORMATS[first.a].outputs[-1], scaled=True))
    if first.a in kernel.mn_major:
        found.append(replace(first, a_mn_major=not kernel.sparse, b_mn_major=True))
    found += [choose(kernel, SQUARE, (first.a, first.b, first.out), target=target) for target in kernel.targets[:-1]]
    if kernel.ctas:
        found.append(tuned(first, Tuning(block_n=kernel.block_n[-1])))
    elif kernel.persistent:
        found += [tuned(first, Tuning(block_n=n)) for n in kernel.block_n[1:]]
        found.append(replace(first, tma_store=False, cluster=(1, 1), a_mn_major=not kernel.sparse))
        mixed = choose(kernel, SQUARE, ("e4m3", "e5m2", "bf16"))
        if kernel.sparse:
            found += [tuned(first, Tuning(cluster=(4, 1))), mixed]
        else:
            found.append(tuned(first, Tuning(cluster=(2, 2), stream=True)))
            found.append(tuned(first, Tuning(panels=4, stagger=0)))
            found.append(tuned(mixed, Tuning(block_n=128, promote=1)))
    return found


@pytest.mark.parametrize("name", KERNELS)
def test_a_kernel_compiles_to_the_machine_code_it_claims(name: str) -> None:
    """No note, no spill (either raises), and the opcodes; no multiplication that is not claimed."""
    checked, builds = 0, part(builds_of(name), 1, name)
    for build in builds:
        cubin = cubin_of(build)
        if build.target == "sm_70":  # no nvdisasm wheel reads it
            with pytest.raises(SassError, match="no installed nvdisasm reads this cubin"):
                disassemble(cubin)
            checked += 1
            continue
        counts = opcode_counts(disassemble(cubin))
        for opcode in build.opcodes:
            assert any(found.startswith(opcode) for found in counts), f"{build}: no {opcode} in {sorted(counts)}"
        others = [
            found for found in counts if found.startswith(MULTIPLIES) and not found.startswith(build.multiply_opcode)
        ]
        assert not others, f"{build}: {others}"
        assert not any(found.startswith(("LDL", "STL")) for found in counts), f"{build} uses local memory"
        checked += 1
    assert checked == len(builds) and len(builds_of(name)) >= len(KERNELS[name].targets) + 1


CHOICES: tuple[dict[str, object], ...] = ({}, {"defer": False, "stagger": 2}, {"cluster": (1, 1)}, {"cluster": (2, 2)})


@pytest.mark.parametrize(
    ("format_", "choices"), part(itertools.product(("bf16", "e4m3", "tf32", "s8"), CHOICES), 5, "slots")
)
def test_a_slot_of_the_main_loop_is_short(format_: str, choices: dict[str, object]) -> None:
    """From the wait for a slot to the end of its turn: nothing but barriers, descriptors and counters; no data is moved."""
    loop = innermost(cubin_of(persistent(format_, **choices)), persistent(format_).multiply_opcode)
    assert loop.count("WARPGROUP.DEPBAR.LE") == loop.count("WARPGROUP.ARRIVE") == 1 and loop.count("SYNCS") == 2
    assert loop.count(persistent(format_).multiply_opcode) == 4 and len(loop) <= 54, loop.opcodes
    unwanted = ("R2UR", "S2UR", "SHFL", "WARPSYNC", "MOV", "LD", "ST", "CALL")
    assert not any(loop.count(opcode) for opcode in unwanted), loop.opcodes
    assert loop.count("IMAD.MOV") <= 3, "the count of the stagger"


def test_the_multistage_loop_is_mostly_multiplications() -> None:
    """Of a tile without an edge: four multiplications for each ldmatrix, and at most one other instruction for each."""
    build = choose(KERNELS["sm80_mma_multistage"], SQUARE, ("f16", "f16", "f16"), target="sm_90")
    loops = [loop for loop in loops_in(listing_of(cubin_of(build))) if loop.count("HMMA")]
    (whole,) = (loop for loop in loops if not any("ZFILL" in opcode for opcode in loop.opcodes))
    kinds = whole.kinds
    assert len(loops) == 2 and (kinds["HMMA"], kinds["LDSM"], kinds["LDGSTS"], kinds["BAR"]) == (128, 32, 12, 1)
    assert len(whole) <= 264


def test_the_compiler_is_strict_and_says_what_it_lacks() -> None:
    """Errors, spills and advisories are failures; an unknown target is told what there is."""
    with pytest.raises(AssembleError, match=r"does not compile bad\.cu for sm_90a") as wrong:
        compile_cubin("this is not C++", "sm_90a", name="bad.cu")
    assert "error" in wrong.value.log
    spilling = """extern "C" __global__ void __launch_bounds__(1024, 2) gemm(float* p) {
        float v[64];
        for (int i = 0; i < 64; ++i) v[i] = p[i * threadIdx.x];
        __syncthreads();
        for (int i = 0; i < 64; ++i) p[i * 7 + threadIdx.x] = v[i] * v[(i + 1) % 64];
    }"""
    with pytest.raises(AssembleError, match="register spill"):
        compile_cubin(spilling, "sm_90a")
    ignored = 'extern "C" __global__ void gemm() { asm volatile("setmaxnreg.dec.sync.aligned.u32 40;"); }'
    with pytest.raises(AssembleError, match=r"\(C75\d\d\)"):
        compile_cubin(ignored, "sm_90a")
    with pytest.raises(ToolchainError, match=r"no NVRTC compiles for 'sm_42'.*sm_90"):
        compile_cubin("", "sm_42")
    versions = [compiler.version[0] for compiler in find_compilers()]
    assert 13 in versions and 12 in versions and versions == sorted(versions, reverse=True)


@pytest.mark.parametrize("mn_major", [False, True])
@pytest.mark.parametrize("format_", KERNELS["sm90_wgmma_persistent"].formats)
def test_descriptor_constants_are_those_of_the_canonical_tile(format_: str, mn_major: bool) -> None:
    """`descriptor_bits` and `descriptor_step` of ptx.cuh, written here once more, against MatrixDescriptor.for_tile."""
    if mn_major and format_ not in KERNELS["sm90_wgmma_persistent"].mn_major:
        with pytest.raises(ValueError, match="K-major"):
            assert replace(persistent(format_), a_mn_major=True).headers
        return
    block_k = persistent(format_).block_k
    for rows in (64, 128, 256):
        if mn_major and rows == 64:
            continue  # one panel: LBO is never used, and may be anything
        tile = tcsim.MatrixDescriptor.for_tile(
            rows, block_k, format_, "MN" if mn_major else "K", "128B", start_address=2048
        )
        leading = 64 * 128 >> 4 if mn_major else tile.descriptor.leading_byte_offset >> 4
        bits = 1 << 62 | (1024 >> 4) << 32 | leading << 16 | 2048 >> 4
        assert tile.descriptor.encode() == bits
        step = 16 * 128 if mn_major else 32
        assert list(tile.advances) == [step * j for j in range(4)]
        assert tile.bytes == rows * 128


def persistent(format_: str = "bf16", **choices: object) -> Build:
    """The build for a large square."""
    out = OPERAND_FORMATS[format_].outputs[0]
    build = choose(KERNELS["sm90_wgmma_persistent"], SQUARE, (format_, format_, out))
    return replace(build, **choices)  # type: ignore[arg-type]


def test_tiles_cover_the_output_exactly_once() -> None:
    """Every size, group and number of blocks: each tile is computed by one block, once."""
    compared = 0
    for rows, columns, group, blocks in itertools.product((1, 2, 7, 16, 33), (1, 3, 8, 21), (1, 2, 8, 40), (1, 5, 66)):
        tiles = [t for block in range(blocks) for t in gemm_tiles.tiles_of_block(block, blocks, rows, columns, group)]
        assert Counter(tiles) == Counter(itertools.product(range(rows), range(columns)))
        compared += len(tiles)
    assert compared > 20_000


def test_neighbours_in_time_are_neighbours_in_space() -> None:
    """The tiles in flight at once touch few rows and columns: about twice the root of their number."""
    rows, columns, group = 32, 32, 8
    for start in range(0, rows * columns - 66, 66):
        flying = [gemm_tiles.tile_at(index, rows, columns, group) for index in range(start, start + 66)]
        assert len({row for row, _ in flying}) + len({column for _, column in flying}) <= 27


def test_shared_memory_fits_everywhere() -> None:
    """Every choice of the heuristics stays within 227 KiB, for every format, major, size and alignment."""
    checked = 0
    sizes = [
        Shape(m, n, k) for m, n, k in itertools.product((1, 128, 1000, 2048, 16384), (1, 64, 300, 8192), (16, 4096))
    ]
    for kernel, shape, aligned in itertools.product(KERNELS.values(), sizes, (False, True)):
        for format_ in kernel.formats:
            for majors in (
                itertools.product((False, True), repeat=2) if format_ in kernel.mn_major else ((False, False),)
            ):
                out = OPERAND_FORMATS[format_].outputs[-1]
                target = kernel.targets[-1]
                build = choose(kernel, shape, (format_, format_, out), majors, target=target, aligned_output=aligned)
                assert build.shared_bytes <= SHARED_LIMIT
                if kernel.persistent:
                    assert gemm_tiles.parts_fit(build) and build.stagger < build.stages
                    grown = replace(build, stages=build.stages + 1).shared_bytes
                    assert grown > SHARED_LIMIT or build.stages == 8 or kernel.target != "sm_90a"
                checked += 1
    assert checked > 2000


@pytest.mark.parametrize(("extent", "block_n"), [(1024, 64), (2048, 256), (4096, 256), (8192, 256), (16384, 256)])
def test_the_tile_suits_the_size(extent: int, block_n: int) -> None:
    """Wide tiles where they fill the chip, narrow ones where they would leave it idle."""
    build = choose(KERNELS["sm90_wgmma_persistent"], Shape(extent, extent, extent), ("bf16", "bf16", "bf16"))
    assert (build.block_n, build.cluster) == (block_n, (2, 1))


def test_tensor_maps_obey_the_driver() -> None:
    """Inner boxes of 128 bytes, at most 256 rows, pitches that are multiples of 16; together they fill a slot."""
    checked = 0
    for format_ in KERNELS["sm90_wgmma_persistent"].formats:
        size = OPERAND_FORMATS[format_].bytes
        for majors in itertools.product((False, True), repeat=2) if size == 2 else ((False, False),):
            for cluster in ((1, 1), (2, 1), (1, 2), (2, 2)):
                build = replace(persistent(format_), cluster=cluster, a_mn_major=majors[0], b_mn_major=majors[1])
                shape = Shape(300, 500, 200)
                extents = [200 if not majors[0] else 304, 200 if not majors[1] else 504, 512]
                leading = tuple(round_up(extent, 16 // size) for extent in extents)
                maps = gemm_tiles.tensor_maps(build, shape, leading)  # type: ignore[arg-type]
                for spec, bytes_, rows in zip(
                    maps, (size, size, OUTPUT_BYTES[build.out]), (128, build.block_n, 64), strict=True
                ):
                    assert spec.box[0] * bytes_ == 128 and spec.box[1] <= 256 and spec.pitch % 16 == 0
                    assert spec.pitch >= spec.dims[0] * bytes_
                    checked += rows > 0
                loaded = 0
                for spec, mn_major, extent, parts in zip(
                    maps, majors, (128, build.block_n), cluster[::-1], strict=False
                ):
                    boxes = extent // 64 // parts if mn_major else 1
                    loaded += boxes * parts * spec.box[0] * spec.box[1] * size
                assert loaded == build.slot_bytes
                assert maps[0].dims == ((300, 200) if majors[0] else (200, 300))
                assert maps[2].data_type == OUTPUT_TMA[build.out] and maps[2].dims == (500, 300)
    assert checked > 60


def test_grids() -> None:
    """Persistent kernels have no more blocks than the GPU holds; the others one for each tile."""
    build = persistent()
    assert gemm_tiles.launch_grid(build, SQUARE, 66) == (128, 1, 1)  # four waves either way
    assert gemm_tiles.launch_grid(build, Shape(16384, 16384, 64), 66) == (132, 1, 1)
    for tiles in range(1, 300):
        grid = gemm_tiles.launch_grid(build, Shape(256 * tiles, 256, 64), 66)[0] // 2
        assert -(-tiles // grid) == -(-tiles // 66) and grid <= 66, "as few waves as with all"
    assert gemm_tiles.launch_grid(build, Shape(100, 100, 64), 66) == (2, 1, 1)
    basic = choose(KERNELS["sm90_wgmma_basic"], SQUARE, ("f16", "f16", "f16"))
    assert gemm_tiles.launch_grid(basic, Shape(65, 129, 64), 66) == (3, 2, 1)
    with pytest.raises(ValueError, match="rows of tiles"):
        gemm_tiles.launch_grid(basic, Shape(64 * 65536, 64, 64), 66)


def test_the_best_kernel_is_picked_and_wrong_ones_are_told_what_is_valid() -> None:
    """By GPU and format; every refusal lists what runs."""
    picked = {
        (number, f): kernel.name if (kernel := gemm_tiles.best_kernel(number, f, f)) else None
        for number in (70, 75, 80, 89, 90, 100)
        for f in ("f16", "bf16", "e4m3", "s8")
    }
    assert picked[70, "f16"] == "sm70_wmma_shared" and picked[70, "bf16"] is None
    assert picked[75, "s8"] == "sm75_mma_ldmatrix"
    assert picked[80, "bf16"] == "sm80_mma_multistage" and picked[100, "f16"] == "sm100_tcgen05_persistent"
    assert picked[89, "e4m3"] == "sm89_mma_multistage" and picked[80, "e4m3"] is None
    assert {picked[90, f] for f in ("f16", "bf16", "e4m3", "s8")} == {"sm90_wgmma_persistent"}
    with pytest.raises(
        GemmError, match=r"sm90_wgmma_tma is for sm_90a, this GPU is sm_80; valid there: .*sm80_mma_multistage \(f16"
    ):
        find_kernel("sm90_wgmma_tma", "f16", "f16", 80)
    with pytest.raises(GemmError, match=r"no kernel 'fast'; valid on sm_90: .*sm90_wgmma_persistent"):
        find_kernel("fast", "f16", "f16", 90)
    with pytest.raises(GemmError, match="a is f16 and b bf16; valid: the same format"):
        find_kernel(None, "f16", "bf16", 90)
    with pytest.raises(GemmError, match="takes f16, s8, not bf16 and bf16"):
        find_kernel("sm75_mma_ldmatrix", "bf16", "bf16", 90)
    with pytest.raises(GemmError, match="no kernel multiplies e4m3 by e4m3 on sm_80"):
        find_kernel(None, "e4m3", "e4m3", 80)
    assert find_kernel(None, "e4m3", "e5m2", 90).name == "sm90_wgmma_persistent"
    assert target_for(KERNELS["sm80_mma_multistage"], 90) == "sm_90"


def test_choices_by_hand_are_checked() -> None:
    """Tuning that a kernel does not have, or that does not fit, is refused."""
    build = persistent()
    assert tuned(build, Tuning(block_n=128)).stages == 6
    for wrong, why in (
        (Tuning(block_n=100), "no tiles 100 wide; valid: "),
        (Tuning(stages=5), "does not fit"),
        (Tuning(promote=1), "at most 128 wide"),
        (Tuning(cluster=(1, 4), block_n=64), None),
    ):
        if why is None:
            assert tuned(build, wrong).cluster == (1, 4)
        else:
            with pytest.raises(GemmError, match=why):
                tuned(build, wrong)
    with pytest.raises(GemmError, match="no parts for a cluster"):
        tuned(replace(build, b_mn_major=True), Tuning(block_n=64, cluster=(2, 1)))
    with pytest.raises(GemmError, match="valid: block_n, stages"):
        tuned(choose(KERNELS["sm90_wgmma_tma"], SQUARE, ("f16", "f16", "f16")), Tuning(stagger=1))


def test_layouts_that_kernels_can_read_where_they_lie() -> None:
    """K-major, MN-major, or to be repacked."""

    def layout(
        shape: tuple[int, int], strides: tuple[int, int], address: int = 0, mn: bool = True, aligned: bool = True
    ) -> bool | None:
        return layout_of(DeviceMatrix("f16", shape, strides, address), mn, aligned)

    assert layout((64, 32), (32, 1)) is False
    assert layout((64, 32), (40, 1)) is False
    assert layout((64, 32), (1, 64)) is True
    assert layout((64, 32), (1, 64), mn=False) is None
    assert layout((64, 33), (33, 1)) is None
    assert layout((64, 33), (33, 1), aligned=False) is False
    assert layout((64, 32), (32, 1), address=8) is None
    assert layout((64, 32), (0, 1)) is None  # a row repeated
    assert layout((64, 32), (64, 2)) is None
    assert layout((1, 32), (7, 1)) is False  # one row has no pitch
    assert problem_dtype(persistent("s8"))["alpha"] == np.dtype(np.int32)
    for wrong in ([1.0], np.zeros(4, np.float16), np.zeros((2, 2)), np.zeros((0, 2), np.float16)):
        with pytest.raises(OperandTypeError, match=r"a (is|has)"):
            read_matrix(wrong, "a")
