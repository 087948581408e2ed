"""CuTe DSL kernels: vectors, warps that reduce, a swizzled tile in shared memory, mma.sync through a tiled MMA with ldmatrix."""

import cutlass
import cutlass.cute as cute
from cutlass.cute.nvgpu import cpasync, warp

ROWS, COLUMNS = 32, 64  # of the transpose
M, N, K = 64, 64, 96  # of the product


@cute.kernel
def _axpy(x: cute.Tensor, y: cute.Tensor, a: cutlass.Float32):
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    tile_x, tile_y = (cute.zipped_divide(own, (4,)) for own in (x, y))
    at = block * 64 + thread
    part_x, part_y = tile_x[(None, at)], tile_y[(None, at)]
    part_y.store(part_x.load() * a + part_y.load())


@cute.jit
def axpy(x: cute.Pointer, y: cute.Pointer, a: cutlass.Float32):
    """y = a x + y, four numbers a thread."""
    layout = cute.make_layout((512,))
    _axpy(cute.make_tensor(x, layout), cute.make_tensor(y, layout), a).launch(grid=(2, 1, 1), block=(64, 1, 1))


@cute.kernel
def _rms_norm(x: cute.Tensor, weight: cute.Tensor, y: cute.Tensor, eps: cutlass.Float32):
    thread, _, _ = cute.arch.thread_idx()
    row, _, _ = cute.arch.block_idx()
    part = cute.zipped_divide(x[(row, None)], (4,))[(None, thread)].load().to(cutlass.Float32)
    total = (part * part).reduce(cute.ReductionOp.ADD, cutlass.Float32(0), 0)
    for step in cutlass.range_constexpr(5):
        total = total + cute.arch.shuffle_sync_bfly(total, offset=16 >> step)
    inverse = cute.math.rsqrt(total / 128 + eps, fastmath=True)
    scaled = part * inverse * cute.zipped_divide(weight, (4,))[(None, thread)].load()
    cute.zipped_divide(y[(row, None)], (4,))[(None, thread)].store(scaled.to(cutlass.Float16))


@cute.jit
def rms_norm(x: cute.Pointer, weight: cute.Pointer, y: cute.Pointer, eps: cutlass.Float32):
    """A warp a row of 128: root mean square, then scaled."""
    layout = cute.make_ordered_layout((6, 128), order=(1, 0))
    _rms_norm(
        cute.make_tensor(x, layout),
        cute.make_tensor(weight, cute.make_layout((128,))),
        cute.make_tensor(y, layout),
        eps,
    ).launch(grid=(6, 1, 1), block=(32, 1, 1))


@cute.kernel
def _transpose(x: cute.Tensor, y: cute.Tensor, layout: cute.ComposedLayout):
    thread, _, _ = cute.arch.thread_idx()
    tile = cutlass.utils.SmemAllocator().allocate_tensor(cutlass.Float16, layout, byte_alignment=128)
    copy = cute.make_copy_atom(cpasync.CopyG2SOp(), cutlass.Float16, num_bits_per_copy=128)
    tiled = cute.make_tiled_copy_tv(copy, cute.make_ordered_layout((16, 8), order=(1, 0)), cute.make_layout((1, 8)))
    own = tiled.get_slice(thread)
    cute.copy(tiled, own.partition_S(x), own.partition_D(tile))
    cute.arch.cp_async_commit_group()
    cute.arch.cp_async_wait_group(0)
    cute.arch.sync_threads()
    for step in cutlass.range(ROWS * COLUMNS // 128):
        at = step * 128 + thread
        y[(at // ROWS, at % ROWS)] = tile[(at % ROWS, at // ROWS)]


@cute.jit
def transpose(x: cute.Pointer, y: cute.Pointer):
    """Rows in by cp.async, columns out, through a swizzled tile."""
    layout = cute.make_composed_layout(
        cute.make_swizzle(3, 3, 3), 0, cute.make_ordered_layout((ROWS, COLUMNS), order=(1, 0))
    )
    _transpose(
        cute.make_tensor(x, cute.make_ordered_layout((ROWS, COLUMNS), order=(1, 0))),
        cute.make_tensor(y, cute.make_ordered_layout((COLUMNS, ROWS), order=(1, 0))), layout,
    ).launch(grid=(1, 1, 1), block=(128, 1, 1))  # fmt: skip


@cute.kernel
def _matmul(
    a: cute.Tensor,
    b: cute.Tensor,
    d: cute.Tensor,
    tiled_mma: cute.TiledMma,
    layout_a: cute.ComposedLayout,
    layout_b: cute.ComposedLayout,
):
    thread, _, _ = cute.arch.thread_idx()
    memory = cutlass.utils.SmemAllocator()
    tile_a = memory.allocate_tensor(cutlass.Float16, layout_a, byte_alignment=128)
    tile_b = memory.allocate_tensor(cutlass.Float16, layout_b, byte_alignment=128)
    copy = cute.make_copy_atom(cpasync.CopyG2SOp(), cutlass.Float16, num_bits_per_copy=128)
    tiled = cute.make_tiled_copy_tv(copy, cute.make_ordered_layout((32, 4), order=(1, 0)), cute.make_layout((1, 8)))
    loads, products = tiled.get_slice(thread), tiled_mma.get_slice(thread)
    load = cute.make_copy_atom(warp.LdMatrix8x8x16bOp(False, 4), cutlass.Float16)
    load_a, load_b = cute.make_tiled_copy_A(load, tiled_mma), cute.make_tiled_copy_B(load, tiled_mma)
    part_a = tiled_mma.make_fragment_A(products.partition_A(tile_a))
    part_b = tiled_mma.make_fragment_B(products.partition_B(tile_b))
    part_d = products.partition_C(d)
    sums = tiled_mma.make_fragment_C(part_d)
    sums.fill(0.0)
    from_a, from_b = load_a.get_slice(thread).partition_S(tile_a), load_b.get_slice(thread).partition_S(tile_b)
    to_a, to_b = load_a.get_slice(thread).retile(part_a), load_b.get_slice(thread).retile(part_b)
    for step in cutlass.range(K // 32):
        cute.copy(tiled, loads.partition_S(cute.local_tile(a, (M, 32), (0, step))), loads.partition_D(tile_a))
        cute.copy(tiled, loads.partition_S(cute.local_tile(b, (N, 32), (0, step))), loads.partition_D(tile_b))
        cute.arch.cp_async_commit_group()
        cute.arch.cp_async_wait_group(0)
        cute.arch.sync_threads()
        cute.copy(load_a, from_a, to_a)
        cute.copy(load_b, from_b, to_b)
        cute.gemm(tiled_mma, sums, part_a, part_b, sums)
        cute.arch.sync_threads()
    cute.autovec_copy(sums, part_d)


@cute.jit
def matmul(a: cute.Pointer, b: cute.Pointer, d: cute.Pointer):
    """d = a b^T with four warps of mma.sync."""
    tiled_mma = cute.make_tiled_mma(
        warp.MmaF16BF16Op(cutlass.Float16, cutlass.Float32, (16, 8, 16)),
        cute.make_layout((2, 2, 1)),
        permutation_mnk=(32, 32, 16),
    )
    swizzle = cute.make_swizzle(2, 3, 3)
    layouts = [
        cute.make_composed_layout(swizzle, 0, cute.make_ordered_layout((rows, 32), order=(1, 0))) for rows in (M, N)
    ]
    tensors = [
        cute.make_tensor(own, cute.make_ordered_layout(shape, order=(1, 0)))
        for own, shape in ((a, (M, K)), (b, (N, K)), (d, (M, N)))
    ]
    _matmul(*tensors, tiled_mma, *layouts).launch(grid=(1, 1, 1), block=(128, 1, 1))
