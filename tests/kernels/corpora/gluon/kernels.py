"""Gluon kernels: layouts and copies by hand, mma.sync, TMA, wgmma, warps with roles, im2col, Tensor Memory."""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia import ampere, blackwell, hopper


@gluon.jit
def transpose(x, y, ROWS: gl.constexpr, COLUMNS: gl.constexpr):
    """cp.async into swizzled shared memory, read back through another layout."""
    rows: gl.constexpr = gl.BlockedLayout([1, 8], [4, 8], [4, 1], [1, 0])
    columns: gl.constexpr = gl.BlockedLayout([8, 1], [8, 4], [1, 4], [0, 1])
    shared: gl.constexpr = gl.SwizzledSharedLayout(8, 1, 8, [1, 0])
    tile = gl.allocate_shared_memory(gl.float16, [ROWS, COLUMNS], shared)
    row, column = gl.arange(0, ROWS, gl.SliceLayout(1, rows)), gl.arange(0, COLUMNS, gl.SliceLayout(0, rows))
    base = gl.program_id(0) * ROWS * COLUMNS
    ampere.async_copy.async_load(tile, x + base + row[:, None] * COLUMNS + column[None, :])
    ampere.async_copy.commit_group()
    ampere.async_copy.wait_group(0)
    gl.barrier()
    out_row, out_column = (
        gl.arange(0, ROWS, gl.SliceLayout(1, columns)),
        gl.arange(0, COLUMNS, gl.SliceLayout(0, columns)),
    )
    gl.store(y + base + out_column[None, :] * ROWS + out_row[:, None], tile.load(columns) * 2)


@gluon.jit
def mma_pipelined(
    a, b, d, K: gl.constexpr, M: gl.constexpr, N: gl.constexpr, BLOCK_K: gl.constexpr, STAGES: gl.constexpr
):
    """mma.sync with operands from a ring that cp.async fills."""
    layout: gl.constexpr = gl.BlockedLayout([1, 8], [8, 4], [4, 1], [1, 0])
    accumulator: gl.constexpr = gl.NVMMADistributedLayout([2, 0], [4, 1], [16, 8])
    shared: gl.constexpr = gl.SwizzledSharedLayout(8, 2, 4, [1, 0])
    ring_a = gl.allocate_shared_memory(gl.float16, [STAGES, M, BLOCK_K], shared)
    ring_b = gl.allocate_shared_memory(gl.float16, [STAGES, BLOCK_K, N], shared)
    row, inner = gl.arange(0, M, gl.SliceLayout(1, layout)), gl.arange(0, BLOCK_K, gl.SliceLayout(0, layout))
    deep, column = gl.arange(0, BLOCK_K, gl.SliceLayout(1, layout)), gl.arange(0, N, gl.SliceLayout(0, layout))
    for stage in gl.static_range(STAGES - 1):
        ampere.async_copy.async_load(ring_a.index(stage), a + row[:, None] * K + (stage * BLOCK_K + inner)[None, :])
        ampere.async_copy.async_load(ring_b.index(stage), b + (stage * BLOCK_K + deep)[:, None] * N + column[None, :])
        ampere.async_copy.commit_group()
    sums = gl.zeros([M, N], gl.float32, accumulator)
    for step in range(K // BLOCK_K):
        ampere.async_copy.wait_group(STAGES - 2)
        gl.barrier()
        left = ring_a.index(step % STAGES).load(gl.DotOperandLayout(0, accumulator, 2))
        right = ring_b.index(step % STAGES).load(gl.DotOperandLayout(1, accumulator, 2))
        sums = ampere.mma_v2(left, right, sums)
        ahead = step + STAGES - 1
        inside = ahead < K // BLOCK_K
        full_a = (row[:, None] >= 0) & (inner[None, :] >= 0) & inside
        full_b = (deep[:, None] >= 0) & (column[None, :] >= 0) & inside
        ampere.async_copy.async_load(
            ring_a.index(ahead % STAGES), a + row[:, None] * K + (ahead * BLOCK_K + inner)[None, :], mask=full_a
        )
        ampere.async_copy.async_load(
            ring_b.index(ahead % STAGES), b + (ahead * BLOCK_K + deep)[:, None] * N + column[None, :], mask=full_b
        )
        ampere.async_copy.commit_group()
    ampere.async_copy.wait_group(0)
    out = gl.convert_layout(sums, layout)
    gl.store(d + row[:, None] * N + column[None, :], out)


@gluon.jit
def tma_add(source, target, total, ROWS: gl.constexpr, COLUMNS: gl.constexpr):
    """A tile in by TMA, changed, out by TMA, and added to another tensor by TMA."""
    layout: gl.constexpr = gl.BlockedLayout([1, 4], [4, 8], [4, 1], [1, 0])
    tile = gl.allocate_shared_memory(gl.float32, [ROWS, COLUMNS], source.layout)
    bar = hopper.mbarrier.allocate_mbarrier()
    hopper.mbarrier.init(bar, count=1)
    row, column = gl.program_id(0) * ROWS, gl.program_id(1) * COLUMNS
    hopper.mbarrier.expect(bar, source.block_type.nbytes)
    hopper.tma.async_load(source, [row, column], bar, tile)
    hopper.mbarrier.wait(bar, 0)
    hopper.mbarrier.invalidate(bar)
    tile.store(tile.load(layout) * 3 + 1)
    hopper.fence_async_shared()
    gl.barrier()
    hopper.tma.async_store(target, [row, column], tile)
    hopper.tma.async_atomic_add(total, [0, 0], tile)
    hopper.tma.store_wait(0)


@gluon.jit
def wgmma_pipelined(
    left, right, out, K: gl.constexpr, BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr, BLOCK_K: gl.constexpr
):
    """Two buffers filled by TMA, wgmma one step behind, the result out by TMA."""
    ring_a = gl.allocate_shared_memory(left.dtype, [2, BLOCK_M, BLOCK_K], left.layout)
    ring_b = gl.allocate_shared_memory(right.dtype, [2, BLOCK_K, BLOCK_N], right.layout)
    bars = gl.allocate_shared_memory(gl.int64, [2, 1], hopper.mbarrier.MBarrierLayout())
    for i in gl.static_range(2):
        hopper.mbarrier.init(bars.index(i), count=1)
    row, column = gl.program_id(0) * BLOCK_M, gl.program_id(1) * BLOCK_N
    layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BLOCK_N, 16])
    sums = hopper.warpgroup_mma_init(gl.zeros([BLOCK_M, BLOCK_N], gl.float32, layout))
    for step in range(K // BLOCK_K):
        slot = step % 2
        bar, a, b = bars.index(slot), ring_a.index(slot), ring_b.index(slot)
        hopper.mbarrier.expect(bar, left.block_type.nbytes + right.block_type.nbytes)
        hopper.tma.async_load(left, [row, step * BLOCK_K], bar, a)
        hopper.tma.async_load(right, [step * BLOCK_K, column], bar, b)
        hopper.mbarrier.wait(bar, step // 2 % 2)
        sums = hopper.warpgroup_mma_wait(num_outstanding=0, deps=(sums,))
        sums = hopper.warpgroup_mma(a, b, sums, is_async=True)
    sums = hopper.warpgroup_mma_wait(num_outstanding=0, deps=(sums,))
    for i in gl.static_range(2):
        hopper.mbarrier.invalidate(bars.index(i))
    tile = gl.allocate_shared_memory(out.dtype, out.block_type.shape, out.layout)
    tile.store(sums.to(out.dtype))
    hopper.fence_async_shared()
    gl.barrier()
    hopper.tma.async_store(out, [row, column], tile)
    hopper.tma.store_wait(0)


@gluon.jit
def _load_partition(left, right, ring_a, ring_b, full, empty, row, column, steps: gl.constexpr, stages: gl.constexpr):
    for step in range(steps):
        slot, phase = step % stages, step // stages % 2
        hopper.mbarrier.wait(empty.index(slot), phase ^ 1)
        hopper.mbarrier.expect(full.index(slot), left.block_type.nbytes + right.block_type.nbytes)
        hopper.tma.async_load(left, [row, step * left.block_type.shape[1]], full.index(slot), ring_a.index(slot))
        hopper.tma.async_load(right, [step * left.block_type.shape[1], column], full.index(slot), ring_b.index(slot))


@gluon.jit
def _multiply_partition(out, ring_a, ring_b, full, empty, row, column, steps: gl.constexpr, stages: gl.constexpr):
    layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, out.block_type.shape[1], 16])
    sums = gl.zeros(out.block_type.shape, gl.float32, layout)
    for step in range(steps):
        slot, phase = step % stages, step // stages % 2
        hopper.mbarrier.wait(full.index(slot), phase)
        sums = hopper.warpgroup_mma(ring_a.index(slot), ring_b.index(slot), sums, is_async=True)
        sums = hopper.warpgroup_mma_wait(num_outstanding=0, deps=(sums,))
        hopper.mbarrier.arrive(empty.index(slot), count=1)
    tile = gl.allocate_shared_memory(out.dtype, out.block_type.shape, out.layout)
    tile.store(sums.to(out.dtype))
    hopper.fence_async_shared()
    gl.barrier()
    hopper.tma.async_store(out, [row, column], tile)
    hopper.tma.store_wait(0)


@gluon.jit
def warp_specialised(left, right, out, STEPS: gl.constexpr, STAGES: gl.constexpr):
    """A warp loads, four warps multiply; a ring with full and empty barriers between them."""
    ring_a = gl.allocate_shared_memory(left.dtype, [STAGES] + left.block_type.shape, left.layout)
    ring_b = gl.allocate_shared_memory(right.dtype, [STAGES] + right.block_type.shape, right.layout)
    full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], hopper.mbarrier.MBarrierLayout())
    empty = gl.allocate_shared_memory(gl.int64, [STAGES, 1], hopper.mbarrier.MBarrierLayout())
    for i in gl.static_range(STAGES):
        hopper.mbarrier.init(full.index(i), count=1)
        hopper.mbarrier.init(empty.index(i), count=1)
    row, column = gl.program_id(0) * out.block_type.shape[0], gl.program_id(1) * out.block_type.shape[1]
    gl.warp_specialize(
        [
            (_multiply_partition, (out, ring_a, ring_b, full, empty, row, column, STEPS, STAGES)),
            (_load_partition, (left, right, ring_a, ring_b, full, empty, row, column, STEPS, STAGES)),
        ],
        [1],
        [24],
    )


@gluon.jit
def im2col(image, out, PIXELS: gl.constexpr, CHANNELS: gl.constexpr):
    """Columns of an image for each of the nine places of a 3 x 3 filter."""
    layout: gl.constexpr = gl.BlockedLayout([1, 8], [4, 8], [4, 1], [1, 0])
    tile = gl.allocate_shared_memory(gl.float16, [PIXELS, CHANNELS], image.layout)
    bar = hopper.mbarrier.allocate_mbarrier()
    hopper.mbarrier.init(bar, count=1)
    row, column = gl.arange(0, PIXELS, gl.SliceLayout(1, layout)), gl.arange(0, CHANNELS, gl.SliceLayout(0, layout))
    sums = gl.zeros([PIXELS, CHANNELS], gl.float32, layout)
    for r in gl.static_range(3):
        for s in gl.static_range(3):
            hopper.mbarrier.expect(bar, PIXELS * CHANNELS * 2)
            hopper.tma.async_load_im2col(
                image, [0, -1, -1, 0], [gl.to_tensor(r).to(gl.int16), gl.to_tensor(s).to(gl.int16)], bar, tile
            )
            hopper.mbarrier.wait(bar, (3 * r + s) % 2)
            sums += tile.load(layout).to(gl.float32) * (3 * r + s + 1)
            gl.barrier()
    hopper.mbarrier.invalidate(bar)
    gl.store(out + row[:, None] * CHANNELS + column[None, :], sums)


@gluon.jit
def tcgen05(left, right, out, K: gl.constexpr, BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr, BLOCK_K: gl.constexpr):
    """tcgen05.mma from shared memory into Tensor Memory, waited for by commits."""
    a = gl.allocate_shared_memory(left.dtype, [BLOCK_M, BLOCK_K], left.layout)
    b = gl.allocate_shared_memory(right.dtype, [BLOCK_K, BLOCK_N], right.layout)
    loaded, done = hopper.mbarrier.allocate_mbarrier(), hopper.mbarrier.allocate_mbarrier()
    hopper.mbarrier.init(loaded, count=1)
    hopper.mbarrier.init(done, count=1)
    sums = blackwell.allocate_tensor_memory(
        gl.float32, [BLOCK_M, BLOCK_N], blackwell.TensorMemoryLayout([BLOCK_M, BLOCK_N], col_stride=1)
    )
    row, column = gl.program_id(0) * BLOCK_M, gl.program_id(1) * BLOCK_N
    for step in range(K // BLOCK_K):
        hopper.mbarrier.expect(loaded, left.block_type.nbytes + right.block_type.nbytes)
        hopper.tma.async_load(left, [row, step * BLOCK_K], loaded, a)
        hopper.tma.async_load(right, [step * BLOCK_K, column], loaded, b)
        hopper.mbarrier.wait(loaded, step % 2)
        blackwell.tcgen05_mma(a, b, sums, use_acc=step > 0)
        blackwell.tcgen05_commit(done)
        hopper.mbarrier.wait(done, step % 2)
    hopper.mbarrier.invalidate(loaded)
    hopper.mbarrier.invalidate(done)
    tile = gl.allocate_shared_memory(out.dtype, out.block_type.shape, out.layout)
    tile.store(sums.load().to(out.dtype))
    hopper.fence_async_shared()
    gl.barrier()
    hopper.tma.async_store(out, [row, column], tile)
    hopper.tma.store_wait(0)
