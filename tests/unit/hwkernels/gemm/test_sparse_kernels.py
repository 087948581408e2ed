"""The sparse GEMM kernels without a GPU: what they read of A, lane by lane and byte by byte, and calls from arrays to launch."""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import hwkernels
import tcsim
from conformance.kernels.gemm import GemmCase, operands, predicted, pruned
from conformance.stimuli.stream import Stream
from hwkernels.device.device_arrays import DTYPES, DeviceArray
from hwkernels.gemm import sparse_operands
from hwkernels.gemm import tiles as gemm_tiles
from hwkernels.gemm.build import Build
from hwkernels.gemm.call import GemmError, Tuning, find_kernel, plan_gemm, problem_dtype, tuned
from hwkernels.gemm.kernels import KERNELS, OPERAND_FORMATS
from hwkernels.gemm.sparse_operands import (
    SparseMatrix,
    SparsityError,
    compress,
    metadata_image,
    sparsity_in,
    sparsity_of,
)
from hwkernels.gemm.tiles import Shape, choose
from tests.unit.hwkernels.gemm.test_gemm_call import Driver, _matrix, _pointers, installed, integers

SPARSE = [name for name, row in KERNELS.items() if row.sparse]
Array = np.ndarray


def build_of(name: str, format_: str, **changes: Any) -> Build:
    """The build for a large square."""
    out = OPERAND_FORMATS[format_].outputs[-1]
    build = choose(KERNELS[name], Shape(4096, 4096, 4096), (format_, format_, out), target=KERNELS[name].targets[-1])
    return replace(build, **changes)


def random_operands(name: str, format_: str, size: tuple[int, int, int]) -> tuple[Array, Array]:
    """Codes of a pruned a (M, K) and b (K, N), exponents far apart."""
    out = OPERAND_FORMATS[format_].outputs[-1]
    a, b, _ = operands(GemmCase(name, format_, format_, out, size, "wide"), 5)
    return a, b


# ---- the image of the metadata

FORMATS = [(name, format_) for name in SPARSE for format_ in KERNELS[name].formats]


@pytest.mark.parametrize(("name", "format_"), FORMATS)
def test_the_image_holds_each_group_where_the_manual_says(name: str, format_: str) -> None:
    """Each 4 bits, found by the manual's table from row and group alone. Beyond the ends: the first two elements."""
    item, random = OPERAND_FORMATS[format_], np.random.default_rng(1)
    rows, k = 150, 2 * 128 // item.bytes + 5
    wide = item.bytes == 1
    valid = (0b0100, 0b1110) if item.bytes == 4 else (0b0100, 0b1000, 0b1100, 0b1001, 0b1101, 0b1110)
    groups = random.choice(np.array(valid, np.uint8), (rows, -(-k // item.group)))
    sparsity = sparsity_in(build_of(name, format_).instruction)
    image = metadata_image(groups, format_, sparsity)
    per_step = 16 if wide else 8  # groups of one multiplication
    assert image.shape == (2, 3, 8, 2 if wide else 1, 32) and image.dtype == np.uint32
    assert image[0, 0].nbytes == build_of(name, format_).metadata_bytes
    checked = 0
    for row, group in itertools.product(range(256), range(3 * 2 * per_step)):
        (block, within), (slot, at) = divmod(row, 128), divmod(group, 2 * per_step)
        (tile, r), (step, q) = divmod(within, 16), divmod(at, per_step)
        if wide:  # a word for each step; selector 0
            word, lane, bit = step, r % 8 * 4 + r // 8 + q // 8 * 2, 4 * (q % 8)
        else:  # one word: the step is the selector
            word, lane, bit = 0, r % 8 * 4 + 2 * step + q // 4, 16 * (r // 8) + 4 * (q % 4)
        want = groups[row, group] if row < rows and group < groups.shape[1] else 0b0100
        assert int(image[block, slot, tile, word, lane]) >> bit & 15 == want
        checked += 1
    assert checked * 4 == image.nbytes * 8  # nothing else is in it


def test_one_image_serves_every_kernel_of_a_format() -> None:
    """mma.sp of 16 rows and wgmma of 64 hold metadata alike, so a compressed matrix needs no kernel to be named."""
    compared = 0
    for name, format_ in FORMATS:
        groups = np.random.default_rng(2).choice(np.array([4, 14], np.uint8), (200, 77))
        own = metadata_image(groups, format_, sparsity_in(build_of(name, format_).instruction))
        np.testing.assert_array_equal(own, metadata_image(groups, format_, sparsity_of(format_)))
        compared += own.size
    assert compared > 10_000


# ---- a tile, walked through in the model


def slot_rows(rows: Array, x: int, y: int, height: int, span: int) -> Array:
    """What fills a slot: `span` bytes of `height` rows of bytes, zeros beyond the ends, chunks of 16 swizzled as rows of that width are."""
    out = np.zeros((height, span), np.uint8)
    inside = rows[y : y + height, x : x + span]
    out[: inside.shape[0], : inside.shape[1]] = inside
    chunks, row = out.reshape(height, span // 16, 16), np.arange(height)[:, None]
    turned = np.empty_like(chunks)
    turned[row, np.arange(span // 16) ^ (row % 8 if span == 128 else row // 2 % 4)] = chunks
    return turned.reshape(-1)


def slots_of(build: Build, matrix: SparseMatrix, b: Array, block: int) -> Iterator[Array]:
    """Every slot of one tile of 128 rows from row 128 `block`, all columns of b: kept elements, b, metadata."""
    size = OPERAND_FORMATS[build.a].bytes
    kept = np.ascontiguousarray(matrix.kept).view(np.uint8)
    right = np.ascontiguousarray(b if build.b_mn_major else b.T).view(np.uint8)
    image = metadata_image(matrix.groups(), build.a, sparsity_in(build.instruction))
    for step in range(-(-matrix.k * size // 128)):
        of_b = [slot_rows(right, 128 * step, 0, build.block_n, 128)]
        if build.b_mn_major:
            of_b = [slot_rows(right, 128 * panel, 64 * step, 64, 128) for panel in range(build.block_n // 64)]
        yield np.concatenate(
            [
                slot_rows(kept, 64 * step, 128 * block, 128, 64),
                *of_b,
                image[block, step].reshape(-1).view(np.uint8),
            ]
        )


def words_at(slot: Array, build: Build, rows: Array, step: int, lane: Array) -> Array:
    """`metadata_place` of sparse.cuh, and what is there."""
    words = build.metadata_bytes // 1024
    place = 128 * 64 + build.block_n * 128 + (rows * words + (step if words > 1 else 0)) * 128 + 4 * lane
    return np.stack([slot[place + byte].astype(np.uint32) << 8 * byte for byte in range(4)]).sum(0, dtype=np.uint32)


WALKED = [(name, format_, False) for name, format_ in FORMATS] + [
    (name, "f16", True) for name in SPARSE if "f16" in KERNELS[name].mn_major
]


@pytest.mark.parametrize(("name", "format_", "mn_major"), [item for item in WALKED if item[0] != "sm90_wgmma_sparse"])
def test_lanes_of_mma_sp(name: str, format_: str, mn_major: bool) -> None:
    """ldmatrix, metadata, selectors and the rows of the epilogue as sm80_mma_sparse.cu has them, for the second rows of tiles."""
    build = build_of(name, format_, block_n=64, b_mn_major=mn_major)
    size = 137, 64, 2 * build.block_k + 7
    a, b = random_operands(name, format_, size)
    matrix = compress(a.view(DTYPES[format_]))
    mma, (ldmatrix, turning) = (
        build.instruction,
        (tcsim.instruction(f"ldmatrix.sync.aligned.m8n8.x4{turn}.shared.b16", arch="sm_90") for turn in ("", ".trans")),
    )
    lane = np.arange(32)
    got = np.zeros((128, 64), np.uint32)
    totals = {tile: np.zeros((32, 4), np.uint32) for tile in itertools.product(range(8), range(8))}
    for slot in slots_of(build, matrix, b, 1):
        for step in range(2):
            row = 16 * np.arange(1)[:, None] + lane % 16  # only the first 16 rows exist
            chunk = 2 * step + lane // 16
            from_a = ldmatrix.execute(smem=slot, address=row * 64 + ((chunk ^ row // 2 % 4) << 4))  # type: ignore[attr-defined]
            column = 8 * np.arange(8)[:, None] + lane % 8
            chunk = 4 * step + lane // 8
            from_b = ldmatrix.execute(smem=slot, address=128 * 64 + column * 128 + ((chunk ^ column % 8) << 4))  # type: ignore[attr-defined]
            if mn_major:
                row, chunk = 32 * step + lane, np.arange(8)[:, None]
                from_b = turning.execute(smem=slot, address=128 * 64 + row * 128 + ((chunk ^ row % 8) << 4))  # type: ignore[attr-defined]
            selector = step if build.metadata_bytes == 1024 else 0
            for x in range(8):
                totals[0, x] = mma.execute(  # type: ignore[attr-defined]
                    from_a[0],
                    from_b[x],
                    totals[0, x],
                    metadata=words_at(slot, build, np.zeros(32, int), step, lane),
                    selector=selector,
                )
    for x, register in itertools.product(range(8), range(4)):
        got[lane // 4 + 8 * (register // 2), 8 * x + 2 * (lane % 4) + register % 2] = totals[0, x][:, register]
    want = build.predict(a, b)[128:]
    assert want.shape == (9, 64) and len(np.unique(want)) > 300
    np.testing.assert_array_equal(got[:9], want)


@pytest.mark.parametrize(
    ("format_", "mn_major"), [(format_, mn) for name, format_, mn in WALKED if name == "sm90_wgmma_sparse"]
)
def test_descriptors_of_wgmma_sp(format_: str, mn_major: bool) -> None:
    """Descriptors, K steps, metadata of each warp and selectors as sm90_wgmma_sparse.cu has them, both consumers."""
    build = build_of("sm90_wgmma_sparse", format_, block_n=128, b_mn_major=mn_major)
    size = 100, 128, 2 * build.block_k + 7
    a, b = random_operands(build.kernel, format_, size)
    matrix, wgmma, start = compress(a.view(DTYPES[format_])), build.instruction, 1024
    kept = tcsim.MatrixDescriptor.for_tile(
        64, 64 // OPERAND_FORMATS[format_].bytes, format_, "K", "64B", start_address=start
    )
    assert kept.descriptor.encode() & ~(0x3FFF << 16) == 2 << 62 | 512 >> 4 << 32 | start >> 4  # LBO is not read
    descriptor_a = 2 << 62 | 512 >> 4 << 32 | 1 << 16
    descriptor_b = 1 << 62 | 1024 >> 4 << 32 | (8192 >> 4 if mn_major else 1) << 16
    step_b = 32 * 128 if mn_major else 64
    thread = np.arange(128)
    totals = [np.zeros((128, wgmma.operands["d"].registers), np.uint32) for _ in range(2)]
    for slot in slots_of(build, matrix, b, 0):
        smem = np.concatenate([np.zeros(start, np.uint8), slot])
        for consumer, step in itertools.product(range(2), range(2)):
            words = words_at(slot, build, 4 * consumer + thread // 32, step, thread % 32)
            totals[consumer] = wgmma.execute(  # type: ignore[attr-defined]
                smem=smem,
                a=descriptor_a + (start + consumer * 4096 + 32 * step >> 4),
                b=descriptor_b + (start + 8192 + step_b * step >> 4),
                trans_b=int(mn_major),
                c=totals[consumer],
                metadata=words,
                selector=step if build.metadata_bytes == 1024 else 0,
            )
    got = np.concatenate([wgmma.matrix("d", total) for total in totals])  # type: ignore[attr-defined]
    want = build.predict(a, b)
    assert len(np.unique(want)) > 1000
    np.testing.assert_array_equal(got[:100], want)


# ---- compressing


@pytest.mark.parametrize("format_", OPERAND_FORMATS)
@pytest.mark.parametrize("size", [(1, 1), (37, 101), (130, 64)])
def test_a_matrix_comes_back_dense(format_: str, size: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    """In chunks of rows too; half is kept, of whole groups."""
    item = OPERAND_FORMATS[format_]
    dense = pruned(integers(size, format_, 3), item.group, Stream(4))
    matrix = compress(dense)
    assert (matrix.format, matrix.shape) == (format_, size)
    assert matrix.kept.shape == (size[0], item.kept(size[1])) and matrix.kept.dtype == dense.dtype
    np.testing.assert_array_equal(matrix.dense().astype(float), dense.astype(float))
    monkeypatch.setattr(sparse_operands, "_CHUNK_ELEMENTS", 300)
    again = compress(np.asfortranarray(dense))
    np.testing.assert_array_equal(again.positions, matrix.positions)
    np.testing.assert_array_equal(again.kept.astype(float), matrix.kept.astype(float))


def test_what_is_not_sparse_enough_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """By a named error that says where; and so are parts that do not belong together."""
    dense = np.zeros((300, 40), np.float16)
    dense[170, 21:24] = 1
    with pytest.raises(SparsityError, match="a: row 170, columns 20 to 23: more than 2 of 4 elements are nonzero"):
        compress(dense)
    monkeypatch.setattr(sparse_operands, "_CHUNK_ELEMENTS", 400)
    with pytest.raises(SparsityError, match=r"row 170, columns 20 to 23: more than 2 of 4"):
        compress(dense)
    with pytest.raises(SparsityError, match="more than 1 of 2 elements"):
        compress(np.ones((1, 2), np.float32))
    kept, positions = np.ones((2, 4), np.float16), np.tile(np.uint8([0, 1]), (2, 2))
    assert SparseMatrix(kept, positions, 7).shape == (2, 7)
    for arguments, text in (
        ((kept, positions, 9), r"valid for k = 9 of f16: \(2, 6\)"),
        ((kept, positions[:1], 8), r"positions uint8 \(1, 4\)"),
        ((kept, positions * 1.0, 8), "positions float64"),
        ((kept, positions[:, ::-1].copy(), 8), "positions: metadata 0b0001 of row 0, group 0 is undefined"),
        ((kept, positions + 3, 8), "positions must be 0 to 3"),
        ((kept[0], positions[0], 8), r"kept is \(4,\)"),
        ((kept.astype(np.int32), positions, 8), "kept elements are int32; valid: f16"),
    ):
        with pytest.raises(SparsityError, match=text):
            SparseMatrix(*arguments)
    assert issubclass(SparsityError, ValueError)


# ---- from arrays to launch


class SparseDriver(Driver):
    """The driver in memory, which also does what a sparse kernel is for: it reads kept elements and the image as the kernels do."""

    def multiply(self, build: Build, parameters: int) -> None:
        """Put the dense A in the place of the kept elements, then multiply."""
        if not build.row.sparse:
            super().multiply(build, parameters)
            return
        count = 4 if build.row.tma else 1
        pointers = _pointers(parameters, count + 1)
        problem = np.frombuffer(
            ctypes.string_at(pointers[-2], problem_dtype(build).itemsize), problem_dtype(build)
        ).copy()
        m, k = int(problem["m"][0]), int(problem["k"][0])
        item, sparsity = OPERAND_FORMATS[build.a], sparsity_of(build.a)
        kept = _matrix(int(problem["a"][0]), DTYPES[build.a], (m, item.kept(k)), (int(problem["lda"][0]), 1))
        (image_at,) = np.frombuffer(ctypes.string_at(pointers[-1], 8), "<u8")
        blocks, slots = -(-m // 128), -(-k * item.bytes // 128)
        words = np.frombuffer(ctypes.string_at(int(image_at), blocks * slots * build.metadata_bytes), "<u4")
        image = words.reshape(blocks, slots, 8, -1, 32)
        steps = [image[..., step % image.shape[3], :] for step in range(2)]
        selectors = (0, 1) if image.shape[3] == 1 else (0, 0)
        groups = np.stack(
            [sparsity.groups_of(w, s) for w, s in zip(steps, selectors, strict=True)], -2
        )  # b, slot, tile, row, step, group
        rows = groups.transpose(0, 2, 3, 1, 4, 5).reshape(blocks * 128, -1)[:m, : -(-k // item.group)]
        positions = replace(sparsity, rows=m, k=2 * kept.shape[1]).positions_of(rows)
        dense = np.ascontiguousarray(SparseMatrix(kept.copy(), positions, k).dense())
        problem["a"], problem["lda"] = dense.ctypes.data, k
        addresses = np.array([*pointers[: count - 1], problem.ctypes.data], "<u8")
        super().multiply(
            replace(build, kernel="sm90_wgmma_persistent" if build.row.tma else "sm80_mma_multistage"),
            addresses.ctypes.data,
        )


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[SparseDriver]:
    """The driver in place of NVIDIA's."""
    with installed(SparseDriver(), monkeypatch) as made:
        yield made  # type: ignore[misc]


@pytest.mark.parametrize("size", [(128, 256, 64), (37, 53, 29), (1, 1, 1), (300, 1, 77), (1, 40, 8), (5, 8, 1)])
@pytest.mark.parametrize(
    ("format_", "kernel"),
    [("f16", None), ("bf16", "sm80_mma_sparse"), ("tf32", None), ("e4m3", "sm89_mma_sparse"), ("s8", None)],
)
def test_products(gpu: SparseDriver, format_: str, kernel: str | None, size: tuple[int, int, int]) -> None:
    """A compressed a, once for several products, and a dense one with a kernel that is named; any order in memory."""
    m, n, k = size
    a = pruned(integers((m, k), format_, 1), OPERAND_FORMATS[format_].group, Stream(1))
    b = integers((k, n), format_, 2)
    want = a.astype(np.float64) @ b.astype(np.float64)
    matrix = hwkernels.compress(a)
    for left, right, name in (
        (matrix, b, kernel),
        (matrix, np.asfortranarray(b), kernel),
        (np.asfortranarray(a), b, kernel or "sm90_wgmma_sparse"),
    ):
        got = hwkernels.gemm(left, right, kernel=name)
        assert isinstance(got, np.ndarray) and got.shape == (m, n)
        np.testing.assert_array_equal(got.astype(np.float64), want)
    assert [build.kernel for build in gpu.builds] == [kernel or "sm90_wgmma_sparse"] * 3


def test_the_launch(gpu: SparseDriver) -> None:
    """Kept elements in rows of 64 bytes with the 64B swizzle, b as ever; a matrix of the GPU is compressed; alpha, beta, out."""
    a = pruned(integers((2048, 320), "f16", 1), 4, Stream(1))
    b = integers((320, 2048), "f16", 2)
    device = DeviceArray(a.shape, a.dtype)
    device.set(a)
    plan = plan_gemm(
        device,
        np.asfortranarray(b),
        integers((2048, 2048), "f32", 3),
        "sm90_wgmma_sparse",
        alpha=2.0,
        beta=-1.0,
        out_format="f32",
    )
    got = plan(77)
    want = 2 * a.astype(float) @ b.astype(float) - integers((2048, 2048), "f32", 3)
    np.testing.assert_array_equal(got.get(), want)
    config, build = gpu.configs[-1], plan.build
    assert (config.gridDimX, config.blockDimX, config.sharedMemBytes) == (128, 384, build.shared_bytes)
    assert config.attrs[0].value.clusterDim.x == 2
    swizzles = [arguments[8].rpartition("_")[2] for arguments in gpu.maps]
    assert swizzles == ["64B", "128B", "128B"]
    assert gpu.maps[0][3] == [160, 2048] and gpu.maps[0][5] == [32, 128] and gpu.maps[1][5] == [64, build.block_n // 2]
    assert not build.b_mn_major and gpu.packed == 0
    hwkernels.gemm(hwkernels.compress(device), b)
    assert gpu.builds[-1].b_mn_major and gpu.maps[-2][5] == [64, 64] and gpu.packed == 0


def test_refusals(gpu: SparseDriver) -> None:
    """Each says what would be valid."""
    a, b = pruned(integers((8, 16), "f16", 1), 4, Stream(1)), integers((16, 8), "f16", 2)
    matrix, full = hwkernels.compress(a), np.ones((8, 16), np.float16)
    calls: list[tuple[Callable[[], Any], type[Exception], str]] = [
        (lambda: hwkernels.gemm(full, b, kernel="sm90_wgmma_sparse"), SparsityError, "row 0, columns 0 to 3: more than 2"),
        (lambda: hwkernels.gemm(matrix, b, kernel="sm90_wgmma_tma"), GemmError, "sm90_wgmma_tma takes no compressed a; valid on sm_90: "
         r"sm80_mma_sparse .*; sm90_wgmma_sparse \(f16"),
        (lambda: hwkernels.gemm(matrix, b[:15]), GemmError, r"a is \(8, 16\) and b \(15, 8\)"),
        (lambda: hwkernels.gemm(matrix, b.astype(np.int8)), GemmError, "a is f16 and b s8"),
        (lambda: find_kernel(None, "f16", "f16", 75, True), GemmError, "no kernel multiplies sparse f16 by f16 on sm_75; valid there: none"),
        (lambda: find_kernel("sm90_wgmma_sparse", "f16", "f16", 80), GemmError, "is for sm_90a, this GPU is sm_80"),
        (lambda: tuned(build_of("sm90_wgmma_sparse", "f16"), Tuning(cluster=(1, 2))), GemmError, "clusters of 1, 2 or 4 rows"),
        (lambda: tuned(build_of("sm90_wgmma_sparse", "e4m3"), Tuning(block_n=64, promote=1)), GemmError, "valid: block_n, stages"),
    ]  # fmt: skip
    for call, error, text in calls:
        with pytest.raises(error, match=text):
            call()
    assert not gpu.builds


def test_the_best_kernel_is_dense_unless_a_is_compressed() -> None:
    """By GPU and format."""
    for number, format_, dense, sparse in (
        (80, "bf16", "sm80_mma_multistage", "sm80_mma_sparse"),
        (89, "e4m3", "sm89_mma_multistage", "sm89_mma_sparse"),
        (90, "e4m3", "sm90_wgmma_persistent", "sm90_wgmma_sparse"),
        (100, "f16", "sm100_tcgen05_persistent", "sm80_mma_sparse"),
    ):
        for wanted, is_sparse in ((dense, False), (sparse, True)):
            found = gemm_tiles.best_kernel(number, format_, format_, is_sparse)
            assert found is not None and found.name == wanted


@pytest.mark.parametrize("format_", ["f16", "bf16", "tf32", "e4m3"])
def test_cases_tell_mutants_apart(format_: str) -> None:
    """The inputs of the conformance cases contradict: the dense product, another instruction, other positions of the zeros."""
    case = GemmCase("sm90_wgmma_sparse", format_, format_, "f32", (70, 520, 1096), "wide")
    a, b, _ = operands(case, 0)
    a, b = a[:16], b[:, :48]
    right = predicted(case, "sm_90", a, b, None)
    half = KERNELS["sm89_mma_sparse" if format_ == "e4m3" else "sm80_mma_sparse"].name
    down = build_of("sm90_wgmma_sparse", format_).instruction
    kept, positions = sparsity_in(down).compress_matrix(a, format_)
    blocks = -(-1096 // down.shape[2])
    wrongs = {
        "dense": build_of("sm90_wgmma_persistent", format_).predict(a, b),
        "K descending": tcsim.gemm(kept, b, metadata=positions, instruction=down, k_order=range(blocks)[::-1]),
    }
    if format_ == "e4m3":
        wrongs["emulated mma.sp"] = replace(build_of(half, format_), target="sm_90").predict(a, b)
    else:
        wrongs["mma.sp of sm_80"] = replace(build_of(half, format_), target="sm_80").predict(a, b)
    for name, wrong in wrongs.items():
        assert (wrong != right).any(), name
