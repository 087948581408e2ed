"""The block-scaled GEMM kernels without a Blackwell: machine code, packed operands, and each walked through in the model."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tcsim
from hwkernels.device.sass import disassemble, opcode_counts
from hwkernels.gemm.call import GemmError, problem_dtype
from hwkernels.gemm.scaled_call import FACTORS, checked_operands, scaled_build
from hwkernels.gemm.scaled_kernels import (
    OUTPUTS,
    SCALED_KERNELS,
    ScaledBuild,
    ScaledKernel,
    scaled_cubin_of,
    step_places,
)
from hwkernels.gemm.scaled_operands import pack_elements, pack_factors, scaled_grid, scaled_maps, whole_tiles
from hwkernels.gemm.tensor_memory_constants import scale_block_offsets
from hwkernels.gemm.tiles import Shape
from tcsim.isa.mma.scaled_multiply import ScaledMatrixMultiply
from tcsim.memory.tmem_layout import scale_layout
from tcsim.numbers.formats import FORMATS
from tests.support import planted
from tests.support.extent import part
from tests.unit.hwkernels.gemm.tensor_memory_walk import box, constants_in, walk_scaled

IN_TENSOR_MEMORY = [name for name, row in SCALED_KERNELS.items() if row.tensor_memory]
IN_REGISTERS = [name for name, row in SCALED_KERNELS.items() if not row.tensor_memory]
Array = np.ndarray


def builds_of(kernel: ScaledKernel) -> list[ScaledBuild]:
    """Every format as A and as B, each output, each tile, each target."""
    pairs = zip(kernel.formats, reversed(kernel.formats), strict=True)
    builds = [ScaledBuild(kernel.name, a, b, "f32", kernel.block_n[0]) for a, b in pairs]
    first = kernel.formats[0]
    return builds + [
        ScaledBuild(kernel.name, first, first, out, kernel.block_n[-1], scaled=True, target=target)
        for out, target in zip(OUTPUTS, (*kernel.targets[1:], *kernel.targets), strict=False)
    ]


@pytest.mark.parametrize("name", SCALED_KERNELS)
def test_a_kernel_compiles_to_the_machine_code_it_claims(name: str) -> None:
    """No note, no spill (either raises), no local memory, the opcodes, and no multiplication but the claimed one."""
    kernel = SCALED_KERNELS[name]
    checked, builds = 0, part(builds_of(kernel), 1, name)
    for build in builds:
        counts = opcode_counts(disassemble(scaled_cubin_of(build)))
        for opcode in build.opcodes:
            assert any(found.startswith(opcode) for found in counts), f"{build}: no {opcode} in {sorted(counts)}"
        assert not [found for found in counts if found.startswith(build.foreign_opcodes)], build
        assert build.shared_bytes <= build.shared_limit
        checked += 1
    assert checked == len(builds) and len(builds_of(kernel)) == len(kernel.formats) + 3


def random_operands(kernel: ScaledKernel, a: str, b: str, size: tuple[int, int, int]) -> tuple[Array, ...]:
    """Codes of A, its factors, B, its factors; a few factors are extreme."""
    random, (m, n, k) = np.random.default_rng(3), size
    blocks = -(-k // kernel.block)
    one = {"ue8m0": 127, "ue4m3": 0x38}[kernel.scale_format]
    scale_a, scale_b = (
        random.integers(one - 6, one + 7, shape).astype(np.uint8) for shape in ((m, blocks), (blocks, n))
    )
    scale_a[m // 2, -1], scale_b[0, n // 2] = 0, 255
    return planted.codes(random, (m, k), FORMATS[a]), scale_a, planted.codes(random, (k, n), FORMATS[b]), scale_b


@pytest.mark.parametrize("block_n", [128, 256])
@pytest.mark.parametrize("name", IN_TENSOR_MEMORY)
def test_a_kernel_walked_through_in_the_model(name: str, block_n: int) -> None:
    """Packing, boxes, copies of factors, descriptors together give what tcsim.gemm predicts; sizes fit no tile."""
    kernel = SCALED_KERNELS[name]
    build = ScaledBuild(name, kernel.formats[0], kernel.formats[-1], "f32", block_n)
    size = (150, block_n + 30, 2 * kernel.slot_k + 3 * kernel.block + 5)
    a, scale_a, b, scale_b = random_operands(kernel, build.a, build.b, size)
    codes_a, factors_a, codes_b, factors_b = checked_operands(build, a, scale_a, b, scale_b)
    elements = pack_elements(codes_a, kernel.element_bits), pack_elements(codes_b, kernel.element_bits)
    factors = [
        whole_tiles(build, pack_factors(kernel, codes)[0], rows)
        for codes, rows in ((factors_a, build.block_m), (factors_b, build.block_n))
    ]
    got = walk_scaled(build, elements, factors, kernel.slot_k, size[2])
    want = build.predict(a, scale_a, b, scale_b)
    assert got.shape == want.shape == size[:2] and len(np.unique(want)) > 1000
    np.testing.assert_array_equal(got, want)
    flat = build.predict(a, np.full_like(scale_a, scale_a[0, 0]), b, scale_b)
    assert (flat != want).mean() > 0.5  # the factors count


@pytest.mark.parametrize("name", IN_TENSOR_MEMORY)
def test_factors_lie_where_tcsim_says(name: str) -> None:
    """What tcgen05.cp writes of a slot's blocks is scale_layout's, for both sides and every K step."""
    kernel = SCALED_KERNELS[name]
    build = ScaledBuild(name, kernel.formats[0], kernel.formats[0], "f32", 256)
    names, checked = constants_in(build.constants.header()), 0
    each = kernel.factors // names["K_STEPS"]
    for side, rows, columns in (("a", 128, names["SCALE_COLUMN_A"]), ("b", 256, names["SCALE_COLUMN_B"])):
        row, factor = np.indices((rows, kernel.factors))
        block, within = np.divmod(factor, 4)
        byte = scale_block_offsets()[row % 128, within]
        lane, word, slot = byte // 16, byte % 16 // 4, byte % 4
        column = 4 * (block * (rows // 128) + row // 128) + word
        for step, one in enumerate(build.constants.descriptors):
            mine = slice(step * each, (step + 1) * each)
            identity = one.scale_a_id if side == "a" else one.scale_b_id
            layout = scale_layout(side, rows, each, scale_id=identity)  # type: ignore[arg-type]
            _, lanes, at, slots = layout.where(*np.indices((rows, each)))
            np.testing.assert_array_equal(lanes, lane[:, mine])
            np.testing.assert_array_equal(at + columns[step], column[:, mine])
            np.testing.assert_array_equal(slots, slot[:, mine])
            checked += lanes.size
    assert checked == 384 * kernel.factors


@pytest.mark.parametrize("name", IN_TENSOR_MEMORY)
def test_constants_are_those_of_tcsim(name: str) -> None:
    """The header's numbers decode to what the kernel is for, on every target, with every pair of formats and width."""
    kernel, checked = SCALED_KERNELS[name], 0
    for target, a, b, block_n in itertools.product(kernel.targets, kernel.formats, kernel.formats, kernel.block_n):
        build = ScaledBuild(name, a, b, "f32", block_n, target=target)
        names, kind = constants_in(build.constants.header()), build.constants.instruction.row.kind.name
        each = kernel.factors // names["K_STEPS"]
        for step, number in enumerate(names["INSTRUCTION_DESCRIPTOR"]):
            one = tcsim.InstructionDescriptor.decode(number, kind, target)
            assert (one.m, one.n, one.a_format, one.b_format, one.scale_format) == (
                128,
                block_n,
                a,
                b,
                kernel.scale_format,
            )
            assert one.scale_a_id == one.scale_b_id == step * each % 4 and one.scale_vectors(kernel.block) == each
            assert not (one.transpose_a or one.transpose_b or one.negate_a or one.negate_b)
            one.check_mnemonic(build.instruction.mnemonic)
        for side, rows, start in (("A", 128, 0), ("B", block_n, 128 * 128)):
            tile = tcsim.MatrixDescriptor.for_tile(
                rows, names["SLOT_K"], a if side == "A" else b, "K", "128B", start_address=start, arch=target, kind=kind
            )
            assert names[f"DESCRIPTOR_{side}"] == tile.descriptor.encode()
            assert [16 * advance for advance in names[f"ADVANCE_{side}"]] == list(tile.advances)
        scales = tcsim.MatrixDescriptor.decode(names["DESCRIPTOR_SCALES"], arch=target)
        assert (scales.swizzle, scales.stride_byte_offset, scales.start_address) == ("NONE", 8 * 16, 0)
        assert names["TMEM_COLUMNS"] >= block_n + kernel.stages * 4 * names["SCALE_BLOCKS"] * (1 + block_n // 128)
        assert names["TMEM_COLUMNS"] in (256, 512) and build.shared_bytes <= build.shared_limit
        checked += 1
    assert checked == 3 * len(kernel.formats) ** 2 * 2


@pytest.mark.parametrize("name", IN_REGISTERS)
def test_lanes_of_sm_120(name: str) -> None:
    """ldmatrix, the lanes of factors, selectors and the rows of the epilogue, as the kernel has them: one slot of one tile."""
    kernel = SCALED_KERNELS[name]
    build = ScaledBuild(name, kernel.formats[0], kernel.formats[-1], "f32", 128)
    mma, ldmatrix = build.instruction, tcsim.instruction("ldmatrix.sync.aligned.m8n8.x4.shared.b16", arch="sm_120")
    assert isinstance(mma, ScaledMatrixMultiply)
    a, scale_a, b, scale_b = random_operands(kernel, build.a, build.b, (128, 128, kernel.slot_k))
    smem = np.concatenate([box(pack_elements(x, kernel.element_bits), 0, 0, 128) for x in (a, b.T)])
    words = [pack_factors(kernel, x)[0].view("<u4") for x in (scale_a, scale_b.T)]
    lane = np.arange(32)
    row, matrix = lane % 8, lane // 8
    got = np.zeros((128, 128), np.uint32)
    for warp in range(8):
        m, n = warp // 4 * 64, warp % 4 * 32
        row_a, row_b = m + lane // 4 + 8 * (lane % 2) + 16 * (lane % 4 // 2), n + lane // 4 + 8 * (lane % 4)
        total = np.zeros((4, 4, 32, 4), np.uint32)
        for step, (word, byte) in enumerate(step_places(kernel)):
            rows_a = m + row + matrix % 2 * 8 + 16 * np.arange(4)[:, None]
            rows_b = n + row + matrix // 2 * 8 + 16 * np.arange(2)[:, None]
            from_a = ldmatrix.execute(smem=smem, address=swizzled(rows_a, 2 * step + matrix // 2))
            from_b = ldmatrix.execute(smem=smem, address=128 * 128 + swizzled(rows_b, 2 * step + matrix % 2))
            for i, j in itertools.product(range(4), range(4)):
                total[i, j] = mma.execute(
                    from_a[i],
                    from_b[j // 2][:, j % 2 * 2 : j % 2 * 2 + 2],
                    total[i, j],
                    scale_a=words[0][row_a + 32 * (i // 2), word].astype(np.uint32),
                    scale_b=words[1][row_b, word].astype(np.uint32),
                    byte_id_a=byte,
                    thread_id_a=i % 2,
                    byte_id_b=byte,
                    thread_id_b=j,
                )
        for i, j, register in itertools.product(range(4), range(4), range(4)):
            place = m + lane // 4 + 16 * i + 8 * (register // 2), n + 2 * (lane % 4) + 8 * j + register % 2
            got[place] = total[i, j, :, register]
    want = build.predict(a, scale_a, b, scale_b)
    assert len(np.unique(want)) > 1000
    np.testing.assert_array_equal(got, want)


def swizzled(row: Array, chunk: Any) -> Array:
    """ptx.cuh's: the byte of a 16-byte chunk in a tile of rows of 128 bytes."""
    return np.asarray(row * 128 + ((chunk ^ row % 8) << 4), np.int64)


def test_packed_elements_are_the_canonical_tile() -> None:
    """The boxes of packed elements are what MatrixDescriptor.for_tile reads, for 4 and 8 bits."""
    checked = 0
    for format_, kind in (("e4m3", "mxf8f6f4"), ("e2m1", "mxf4nvf4")):
        bits = FORMATS[format_].bits
        k = 1024 // bits
        codes = planted.codes(np.random.default_rng(4), (64, k), FORMATS[format_])
        tile = tcsim.MatrixDescriptor.for_tile(64, k, format_, arch="sm_100a", kind=kind)
        np.testing.assert_array_equal(box(pack_elements(codes, bits), 0, 0, 64), tile.image(codes))
        checked += tile.bytes
    assert checked == 2 * 64 * 128


@pytest.mark.parametrize("name", SCALED_KERNELS)
@pytest.mark.parametrize("size", [(1, 1, 1), (130, 300, 100), (4096, 64, 1000)])
def test_host_side_of_a_launch(name: str, size: tuple[int, int, int]) -> None:
    """Maps reach the end of K, pitches are whole 16 bytes, the grid covers the output, every slot has its factors."""
    kernel, shape = SCALED_KERNELS[name], Shape(*size)
    build = scaled_build(name, kernel.formats[0], kernel.formats[-1], "bf16", shape)
    codes = np.ones((shape.m, shape.k), np.uint8)
    packed = pack_elements(codes, kernel.element_bits)
    for spec, rows in zip(scaled_maps(build, shape), (shape.m, shape.n), strict=True):
        assert spec.dims == (-(-shape.k * kernel.element_bits // 8), rows)
        assert spec.pitch == packed.shape[1] and spec.pitch % 16 == 0 and spec.pitch >= spec.dims[0]
        assert max(spec.box) <= 256
    columns, rows, _ = scaled_grid(build, shape)
    assert columns * build.block_n >= shape.n > (columns - 1) * build.block_n
    assert rows * 128 >= shape.m > (rows - 1) * 128
    factors, pitch = pack_factors(kernel, np.ones((shape.n, -(-shape.k // kernel.block)), np.uint8))
    slots = -(-shape.k // kernel.slot_k)
    whole = whole_tiles(build, factors, build.block_n)
    assert int(whole.sum()) == shape.n * -(-shape.k // kernel.block)
    if kernel.tensor_memory:
        assert whole.shape[0] * 128 == columns * build.block_n and pitch == slots * kernel.factors * 128
    else:
        assert pitch == slots * kernel.factors and pitch % (kernel.factors) == 0
    assert FACTORS.itemsize == 24 and problem_dtype(build).itemsize == 88


FINE = np.zeros((4, 64), np.uint8), np.zeros((4, 2), np.uint8), np.zeros((64, 4), np.uint8), np.zeros((2, 4), np.uint8)
BUILD = ScaledBuild("sm100_mxfp8", "e4m3", "e4m3", "f32", 128)


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: scaled_build("mxfp8", "e4m3", "e4m3", "f32", Shape(1, 1, 1)), "valid: sm100_mxfp8, sm100_mxfp4"),
        (lambda: scaled_build("sm100_nvfp4", "e4m3", "e2m1", "f32", Shape(1, 1, 1)), "takes e2m1"),
        (lambda: scaled_build("sm100_nvfp4", "e2m1", "e2m1", "s32", Shape(1, 1, 1)), "valid: bf16, f16, f32"),
        (lambda: checked_operands(BUILD, FINE[0], FINE[1], FINE[2][:32], FINE[3]), r"\(4, 64\) and b \(32, 4\)"),
        (lambda: checked_operands(BUILD, FINE[0], FINE[1][:, :1], *FINE[2:]), r"valid: \(4, 2\) and \(2, 4\)"),
    ],
)
def test_wrong_use(call: Callable[[], object], text: str) -> None:
    """Errors say what would be valid."""
    with pytest.raises(GemmError, match=text):
        call()
