"""How a GEMM is cut into tiles: which build suits a size, in what order tiles are taken, which boxes TMA moves. No GPU here."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from hwkernels.gemm.build import SHARED_KIB, SHARED_LIMIT, Build
from hwkernels.gemm.kernels import KERNELS, OPERAND_FORMATS, OUTPUT_BYTES, OUTPUT_TMA, GemmKernel
from tcsim.core.targets import TARGETS

PANEL_ROWS = 64  # rows of 128 bytes that one MN-major box and one stored box have
MAX_STAGES = 8
STAGGER = 2  # slots that the second consumer runs behind, where a block stores while it could multiply. Not measured

# The model of time that picks a build: tensor-core cycles of a slot, and what a tile costs besides. Not measured: a wgmma
# of N columns and 32 bytes of K takes N / 2 cycles, and reads 64 x 32 + N x 32 bytes at 128 a cycle, so narrow
# tiles are bound by shared memory.
_SLOWER = {256: 1.0, 192: 1.02, 128: 1.05, 64: 1.25}
# A sparse one reads 64 x 32 + N x 64 bytes in the same time, more than 128 a cycle at every width: that share more.
_SLOWER_SPARSE = {256: 1.13, 192: 1.17, 128: 1.25, 64: 1.5}
_TILE_CYCLES = 2500  # of an epilogue of 256 columns


@dataclass(frozen=True)
class Shape:
    """The sizes of a product: A is m x k, B is k x n."""

    m: int
    n: int
    k: int


@dataclass(frozen=True)
class TensorMapSpec:
    """The arguments of cuTensorMapEncodeTiled that matter here: two dimensions, innermost first."""

    data_type: str  # "BFLOAT16": the suffix of CU_TENSOR_MAP_DATA_TYPE_
    dims: tuple[int, int]  # elements
    pitch: int  # bytes from one row to the next
    box: tuple[int, int]  # elements
    swizzle: str = "128B"  # the suffix of CU_TENSOR_MAP_SWIZZLE_
    promotion: str = "L2_256B"  # the suffix of CU_TENSOR_MAP_L2_PROMOTION_: what a miss brings into L2


def choose(
    kernel: GemmKernel,
    shape: Shape,
    formats: tuple[str, str, str],
    majors: tuple[bool, bool] = (False, False),
    *,
    target: str | None = None,
    multiprocessors: int = 132,
    aligned_output: bool = True,
    scaled: bool = False,
) -> Build:
    """The build that should be fastest for a size: tile width, cluster, stages.

    formats: of A, B and d. majors: whether A and B are MN-major. aligned_output: rows of d start at multiples of 16 bytes.

    >>> build = choose(KERNELS["sm90_wgmma_persistent"], Shape(8192, 8192, 8192), ("bf16", "bf16", "bf16"))
    >>> build.block_n, build.stages, build.cluster, build.shared_bytes
    (256, 4, (2, 1), 230464)
    """
    a, b, out = formats
    build = Build(
        kernel.name,
        a,
        b,
        out,
        target or kernel.target,
        block_n=kernel.block_n[0],
        block_m=kernel.block_m,
        stages=kernel.stages,
        a_mn_major=majors[0] and not kernel.sparse,  # compressed along K, whatever it was
        b_mn_major=majors[1],
        scaled=scaled,
    )
    if kernel.ctas:
        return fitted(replace(build, cluster=(kernel.ctas, 1)))
    if not kernel.persistent:
        return fitted(build) if kernel.stages and not kernel.padded else build
    pair = (2, 1) if shape.m > kernel.block_m else (1, 1)
    candidates = [
        item if parts_fit(item) else replace(item, cluster=(1, 1))
        for n in kernel.block_n
        for item in (replace(build, block_n=n, cluster=pair, tma_store=aligned_output, defer=not kernel.sparse),)
    ]
    best = min(candidates, key=lambda item: estimated_cycles(item, shape, multiprocessors))
    clusters = max(1, multiprocessors // math.prod(best.cluster))
    alone = (best.deferred and OUTPUT_BYTES[out] == 2) or tile_count(
        best, shape
    ) <= clusters  # stored under the next tile, or there is no next
    stagger = 0 if alone else STAGGER
    return replace(best, stages=most_stages(best), stagger=stagger)


def fitted(build: Build) -> Build:
    """The first tile width and the longest ring of the kernel, with 3 slots at least if possible, that a target's shared memory holds.

    >>> build = Build("sm80_mma_multistage", "f16", "f16", "f16", "sm_86", block_n=256, stages=4)
    >>> fitted(build).block_n, fitted(build).stages
    (128, 3)
    """
    number = TARGETS[build.target].number
    limit = 1024 * SHARED_KIB.get(number, 99)
    for least in (3, 2):
        for n in (n for n in build.row.block_n if number not in build.row.too_wide.get(n, ())):
            for stages in range(build.row.stages, least - 1, -1):
                item = replace(build, block_n=n, stages=stages)
                if item.shared_bytes <= limit:
                    return item
    raise ValueError(f"{build.kernel} does not fit into the {limit} shared bytes of {build.target}")


def panels_fit(build: Build) -> bool:
    """Whether the panels of a consumer take its part of a tile in whole rounds: all at once, or half the panels at a time.

    >>> [panels_fit(Build("sm90_wgmma_persistent", "f16", "f16", "f16", "sm_90a", block_n=256, panels=n)) for n in (1, 2, 3, 4)]
    [False, True, False, True]
    """
    stores = build.block_n * OUTPUT_BYTES[build.out] // 128
    return build.panels in (2, 4) and (build.panels >= stores or stores % (build.panels // 2) == 0)


def parts_fit(build: Build) -> bool:
    """Whether a tile can be cut into the parts that the blocks of its cluster load: whole panels, or 8 rows and more.

    A slot is released by a warp of a warpgroup for each block that writes into it: there are four.

    >>> parts_fit(Build("sm90_wgmma_persistent", "f16", "f16", "f16", "sm_90a", block_n=64, cluster=(2, 1), b_mn_major=True))
    False
    """
    unit_a, unit_b = (PANEL_ROWS if mn_major else 8 for mn_major in (build.a_mn_major, build.b_mn_major))
    told = sum(build.cluster) - 1 <= 4
    return (
        told and build.block_m % (unit_a * build.cluster[1]) == 0 and build.block_n % (unit_b * build.cluster[0]) == 0
    )


def estimated_cycles(build: Build, shape: Shape, multiprocessors: int = 132) -> float:
    """Cycles of a whole GEMM in the model above: waves of tiles, each its slots and an epilogue."""
    slot = 4 * build.block_n * _SLOWER[build.block_n]
    if build.row.sparse:
        slot = 2 * build.block_n * _SLOWER_SPARSE[build.block_n]
    waves = math.ceil(tile_count(build, shape) / max(1, multiprocessors // math.prod(build.cluster)))
    steps = math.ceil(shape.k / build.block_k)
    return waves * (steps * slot + _TILE_CYCLES * build.block_n / 256)


def most_stages(build: Build) -> int:
    """The longest ring that fits in shared memory.

    >>> most_stages(Build("sm90_wgmma_persistent", "f16", "f16", "f32", "sm_90a", block_n=128, tma_store=True))
    6
    """
    fitting = [n for n in range(2, MAX_STAGES + 1) if replace(build, stages=n).shared_bytes <= SHARED_LIMIT]
    return fitting[-1]


def grid_of_tiles(build: Build, shape: Shape) -> tuple[int, int]:
    """Rows and columns of tiles; of a cluster's tile where there are clusters."""
    return (
        math.ceil(shape.m / (build.block_m * build.cluster[0])),
        math.ceil(shape.n / (build.block_n * build.cluster[1])),
    )


def tile_count(build: Build, shape: Shape) -> int:
    """How many tiles a GEMM has; of clusters where there are clusters."""
    return math.prod(grid_of_tiles(build, shape))


def group_height(build: Build, multiprocessors: int) -> int:
    """Rows of tiles in a group: so many that the tiles in flight cover about a square of the output.

    Then what they read of A and of B together is least.

    >>> group_height(Build("sm90_wgmma_persistent", "f16", "f16", "f16", "sm_90a", block_n=256, cluster=(2, 1)), 132)
    8
    """
    flying = max(1, multiprocessors // math.prod(build.cluster))
    height, width = build.block_m * build.cluster[0], build.block_n * build.cluster[1]
    return max(1, round(math.sqrt(flying * width / height)))


def tile_at(index: int, rows: int, columns: int, group: int) -> tuple[int, int]:
    """The tile with a number, as sm90_wgmma_persistent.cu counts: groups of rows, in a group column after column.

    >>> [tile_at(i, 3, 2, 2) for i in range(6)]
    [(0, 0), (1, 0), (0, 1), (1, 1), (2, 0), (2, 1)]
    """
    first = index // (group * columns) * group
    height = min(group, rows - first)
    within = index % (group * columns)
    return first + within % height, within // height


def tiles_of_block(block: int, blocks: int, rows: int, columns: int, group: int) -> Iterator[tuple[int, int]]:
    """The tiles that one persistent block (or cluster) of `blocks` computes, in its order."""
    for index in range(block, rows * columns, blocks):
        yield tile_at(index, rows, columns, group)


def launch_grid(build: Build, shape: Shape, resident: int) -> tuple[int, int, int]:
    """The grid: for a persistent kernel at most `resident` clusters, else a block for each tile, columns first.

    A persistent kernel takes no more clusters than it needs for as few waves: the rest would only draw power.

    >>> build = Build("sm90_wgmma_persistent", "f16", "f16", "f16", "sm_90a", block_n=256, cluster=(2, 1))
    >>> launch_grid(build, Shape(4096, 4096, 4096), 66)[0] // 2  # 256 tiles: 4 waves of 64, not 3 of 66 and one of 58
    64

    Raises ValueError if the grid would be too large for a launch (65,535 rows of tiles).
    """
    rows, columns = grid_of_tiles(build, shape)
    if build.row.persistent:
        waves = math.ceil(rows * columns / resident)
        return math.ceil(rows * columns / waves) * math.prod(build.cluster), 1, 1
    if rows > 65535:
        raise ValueError(f"m = {shape.m} makes {rows} rows of tiles of {build.kernel}; valid: up to 65535")
    return columns * build.cluster[0] * build.cluster[1], rows, 1


def operand_map(build: Build, mn_major: bool, extent: int, k: int, leading: int, box_rows: int) -> TensorMapSpec:
    """The tensor map of A (extent = m) or B (extent = n). leading: elements from one row to the next.

    K-major: boxes of 128 bytes of K and `box_rows` rows. MN-major: boxes of 128 bytes of M or N and as many rows of k as a
    slot holds. Beyond the ends the box is filled with zeros, which add nothing.
    """
    item = OPERAND_FORMATS[build.a]
    elements = build.row.span // item.bytes
    if mn_major:
        return TensorMapSpec(item.tma, (extent, k), leading * item.bytes, (PANEL_ROWS, build.block_k))
    return TensorMapSpec(item.tma, (k, extent), leading * item.bytes, (elements, box_rows))


def kept_map(build: Build, extent: int, k: int, leading: int, box_rows: int) -> TensorMapSpec:
    """The tensor map of a sparse A's kept elements: boxes of half a span, swizzled as rows of 64 bytes.

    >>> build = Build("sm90_wgmma_sparse", "f16", "f16", "f16", "sm_90a", block_n=256, stages=4)
    >>> kept_map(build, 300, 101, 56, 128)
    TensorMapSpec(data_type='FLOAT16', dims=(52, 300), pitch=112, box=(32, 128), swizzle='64B', promotion='L2_256B')
    """
    item = OPERAND_FORMATS[build.a]
    box = build.row.span // 2 // item.bytes, box_rows
    return TensorMapSpec(item.tma, (item.kept(k), extent), leading * item.bytes, box, "64B")


def tensor_maps(build: Build, shape: Shape, leading: tuple[int, int, int]) -> tuple[TensorMapSpec, ...]:
    """The maps of A, B and d. With a cluster, each block loads its part: the boxes are that part."""
    lda, ldb, ldd = leading
    size = OUTPUT_BYTES[build.out]
    rows = build.block_m // build.cluster[1]
    return (
        kept_map(build, shape.m, shape.k, lda, rows)
        if build.row.sparse
        else operand_map(build, build.a_mn_major, shape.m, shape.k, lda, rows),
        operand_map(build, build.b_mn_major, shape.n, shape.k, ldb, build.block_n // build.cluster[0]),
        TensorMapSpec(OUTPUT_TMA[build.out], (shape.n, shape.m), ldd * size, (128 // size, PANEL_ROWS)),
    )


def best_kernel(arch_number: int, a: str, b: str, sparse: bool = False) -> GemmKernel | None:
    """The kernel to take on a chip generation (90 for sm_90) when none is named, for a dense or a sparse A; None if none fits."""
    fitting = [
        item for item in KERNELS.values() if item.sparse == sparse and {a, b} <= set(formats_on(item, arch_number))
    ]
    return fitting[-1] if fitting else None


def formats_on(kernel: GemmKernel, arch_number: int) -> tuple[str, ...]:
    """The formats that a kernel multiplies on a chip generation; none if it does not run there.

    A kernel runs on its own generation, and on later ones unless it is written for the generations of its targets alone.

    >>> formats_on(KERNELS["sm70_wmma_naive"], 75), formats_on(KERNELS["sm90_wgmma_tma"], 100)
    (('f16',), ())
    >>> formats_on(KERNELS["sm100_tcgen05_basic"], 103)
    ('f16', 'bf16', 'tf32', 'e4m3', 'e5m2')
    """
    own = TARGETS[kernel.target].number
    if arch_number not in kernel.archs and not (kernel.later and arch_number > own):
        return ()
    fitting = (name for name in kernel.formats if arch_number not in kernel.lacking.get(name, ()))
    return tuple(name for name in fitting if arch_number >= kernel.since.get(name, own))
