"""Matrix products in Triton: every type, split along K, grouped, persistent, through tensor descriptors, scaled."""

import triton
import triton.language as tl


@triton.jit
def matmul(
    a,
    b,
    d,
    M,
    N,
    K,
    stride_a,
    stride_b,
    stride_d,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    ACC: tl.constexpr,
):
    """d = a b, tiles at the edges masked."""
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    columns = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    inner = tl.arange(0, BLOCK_K)
    sums = tl.zeros((BLOCK_M, BLOCK_N), ACC)
    for k in range(0, K, BLOCK_K):
        left = tl.load(
            a + rows[:, None] * stride_a + (k + inner)[None, :], (rows < M)[:, None] & (k + inner < K)[None, :], 0.0
        )
        right = tl.load(
            b + (k + inner)[:, None] * stride_b + columns[None, :],
            (k + inner < K)[:, None] & (columns < N)[None, :],
            0.0,
        )
        sums = tl.dot(left, right, sums, out_dtype=ACC)
    tl.store(
        d + rows[:, None] * stride_d + columns[None, :],
        sums.to(d.dtype.element_ty),
        (rows < M)[:, None] & (columns < N)[None, :],
    )


@triton.jit
def matmul_transposed(a, b, bias, d, K, BLOCK: tl.constexpr, BLOCK_K: tl.constexpr):
    """d = relu(a b^T + bias) with b stored N by K."""
    rows, columns, inner = (
        tl.program_id(0) * BLOCK + tl.arange(0, BLOCK),
        tl.program_id(1) * BLOCK + tl.arange(0, BLOCK),
        tl.arange(0, BLOCK_K),
    )
    N = tl.num_programs(1) * BLOCK
    sums = tl.zeros((BLOCK, BLOCK), tl.float32)
    for k in tl.range(0, K, BLOCK_K, num_stages=3):
        left = tl.load(a + rows[:, None] * K + (k + inner)[None, :])
        right = tl.load(b + columns[:, None] * K + (k + inner)[None, :])
        sums += tl.dot(left, right.T)
    sums = tl.maximum(sums + tl.load(bias + columns)[None, :], 0)
    tl.store(d + rows[:, None] * N + columns[None, :], sums.to(d.dtype.element_ty))


@triton.jit
def split_k(a, b, d, K, SPLIT: tl.constexpr, BLOCK: tl.constexpr, BLOCK_K: tl.constexpr):
    """Programs add their part of K into d; whole numbers, so that the order does not show."""
    rows, columns, inner = (
        tl.program_id(0) * BLOCK + tl.arange(0, BLOCK),
        tl.program_id(1) * BLOCK + tl.arange(0, BLOCK),
        tl.arange(0, BLOCK_K),
    )
    N = tl.num_programs(1) * BLOCK
    sums = tl.zeros((BLOCK, BLOCK), tl.float32)
    for k in range(tl.program_id(2) * BLOCK_K, K, SPLIT * BLOCK_K):
        left = tl.load(a + rows[:, None] * K + (k + inner)[None, :])
        right = tl.load(b + (k + inner)[:, None] * N + columns[None, :])
        sums = tl.dot(left, right, sums)
    tl.atomic_add(d + rows[:, None] * N + columns[None, :], sums, sem="relaxed")


@triton.jit
def grouped(pointers, sizes, GROUPS: tl.constexpr, PROGRAMS: tl.constexpr, BLOCK: tl.constexpr, BLOCK_K: tl.constexpr):
    """Several products of different sizes in one launch; addresses and sizes are in memory."""
    tile, done = tl.program_id(0), 0
    for group in range(GROUPS):
        m, n, k = tl.load(sizes + group * 3), tl.load(sizes + group * 3 + 1), tl.load(sizes + group * 3 + 2)
        across = tl.cdiv(n, BLOCK)
        tiles = tl.cdiv(m, BLOCK) * across
        while tile >= done and tile < done + tiles:
            a = tl.load(pointers + group * 3).to(tl.pointer_type(tl.float16))
            b = tl.load(pointers + group * 3 + 1).to(tl.pointer_type(tl.float16))
            d = tl.load(pointers + group * 3 + 2).to(tl.pointer_type(tl.float16))
            rows = (tile - done) // across * BLOCK + tl.arange(0, BLOCK)
            columns = (tile - done) % across * BLOCK + tl.arange(0, BLOCK)
            inner = tl.arange(0, BLOCK_K)
            sums = tl.zeros((BLOCK, BLOCK), tl.float32)
            for step in range(0, k, BLOCK_K):
                left = tl.load(
                    a + rows[:, None] * k + (step + inner)[None, :],
                    (rows < m)[:, None] & (step + inner < k)[None, :],
                    0.0,
                )
                right = tl.load(
                    b + (step + inner)[:, None] * n + columns[None, :],
                    (step + inner < k)[:, None] & (columns < n)[None, :],
                    0.0,
                )
                sums += tl.dot(left, right)
            tl.store(
                d + rows[:, None] * n + columns[None, :],
                sums.to(tl.float16),
                (rows < m)[:, None] & (columns < n)[None, :],
            )
            tile += PROGRAMS
        done += tiles


@triton.jit
def persistent(a, b, d, M, N, K, PROGRAMS: tl.constexpr, BLOCK: tl.constexpr, BLOCK_K: tl.constexpr):
    """Each program makes several tiles; the loops are flattened into one."""
    across = tl.cdiv(N, BLOCK)
    for tile in tl.range(tl.program_id(0), tl.cdiv(M, BLOCK) * across, PROGRAMS, flatten=True):
        rows, columns, inner = (
            tile // across * BLOCK + tl.arange(0, BLOCK),
            tile % across * BLOCK + tl.arange(0, BLOCK),
            tl.arange(0, BLOCK_K),
        )
        sums = tl.zeros((BLOCK, BLOCK), tl.float32)
        for k in range(0, K, BLOCK_K):
            left = tl.load(a + (rows % M)[:, None] * K + (k + inner)[None, :])
            right = tl.load(b + (k + inner)[:, None] * N + (columns % N)[None, :])
            sums = tl.dot(left, right, sums)
        tl.store(
            d + rows[:, None] * N + columns[None, :],
            sums.to(d.dtype.element_ty),
            (rows < M)[:, None] & (columns < N)[None, :],
        )


@triton.jit
def descriptors(a, b, d, M, N, K, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr):
    """Loads and stores through tensor descriptors that the kernel makes itself."""
    left = tl.make_tensor_descriptor(a, [M, K], [K, 1], [BLOCK_M, BLOCK_K])
    right = tl.make_tensor_descriptor(b, [N, K], [K, 1], [BLOCK_N, BLOCK_K])
    out = tl.make_tensor_descriptor(d, [M, N], [N, 1], [BLOCK_M, BLOCK_N])
    row, column = tl.program_id(0) * BLOCK_M, tl.program_id(1) * BLOCK_N
    sums = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for k in range(0, K, BLOCK_K):
        sums = tl.dot(left.load([row, k]), right.load([column, k]).T, sums)
    out.store([row, column], sums.to(d.dtype.element_ty))


@triton.jit
def host_descriptors(left, right, out, K, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr):
    """Loads and stores through tensor descriptors that the host passes."""
    row, column = tl.program_id(0) * BLOCK_M, tl.program_id(1) * BLOCK_N
    sums = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for k in range(0, K, BLOCK_K):
        sums = tl.dot(left.load([row, k]), right.load([k, column]), sums)
    out.store([row, column], sums.to(tl.float16))


@triton.jit
def warp_specialised(
    left, right, out, K, TILES: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr
):
    """The compiler gives loads and products to different warps."""
    column = tl.program_id(0) * BLOCK_N
    for tile in tl.range(0, TILES, warp_specialize=True):
        sums = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
        for k in range(0, K, BLOCK_K):
            sums = tl.dot(left.load([tile * BLOCK_M, k]), right.load([column, k]).T, sums)
        out.store([tile * BLOCK_M, column], sums.to(tl.float16))


@triton.jit
def scaled(
    a,
    scale_a,
    b,
    scale_b,
    d,
    K: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    FORMAT_A: tl.constexpr,
    FORMAT_B: tl.constexpr,
    PACK_A: tl.constexpr,
    PACK_B: tl.constexpr,
):
    """A product with a scale for each 32 elements of K."""
    rows, columns = tl.arange(0, BLOCK_M), tl.arange(0, BLOCK_N)
    left = tl.load(a + rows[:, None] * (K // PACK_A) + tl.arange(0, K // PACK_A)[None, :])
    right = tl.load(b + columns[:, None] * (K // PACK_B) + tl.arange(0, K // PACK_B)[None, :]).T
    of_a = tl.load(scale_a + rows[:, None] * (K // 32) + tl.arange(0, K // 32)[None, :])
    of_b = tl.load(scale_b + columns[:, None] * (K // 32) + tl.arange(0, K // 32)[None, :])
    sums = tl.dot_scaled(left, of_a, FORMAT_A, right, of_b, FORMAT_B)
    tl.store(d + rows[:, None] * BLOCK_N + columns[None, :], sums)


FLOAT32, FLOAT16, INT32 = tl.float32, tl.float16, tl.int32
