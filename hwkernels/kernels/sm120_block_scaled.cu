// sm120_mxfp8, sm120_mxfp4, sm120_nvfp4: block-scaled mma.sync on consumer Blackwell, which has no Tensor Memory.
//
// 8 warps, a tile of 128 x 128: each warp has 64 rows and 32 columns, four by four fragments of 16 x 8. TMA fills a ring of
// slots of 128 bytes of K; ldmatrix reads fragments out of the swizzled rows. Scale factors come straight from global memory
// into registers, a slot ahead. Four lanes serve a row of A or a column of B, and the instruction's thread id says which of
// them count: so one register holds the factors of two fragments of A, or of four of B.
#include "warp.cuh"
#include "multiply.cuh"  // mma_scaled<byte, thread_a, thread_b>, and which word and byte a K step takes, written by the host
#include "epilogue.cuh"
#include "tma_operands.cuh"

constexpr u32 THREADS = 256;
constexpr u32 WARP_M = 64, WARP_N = 32, FRAGMENTS_A = WARP_M / 16, FRAGMENTS_B = WARP_N / 8;
static_assert(BLOCK_M == 128 && BLOCK_N == 128, "2 x 4 warps");
static_assert(FRAGMENTS_A % 2 == 0 && FRAGMENTS_B == 4, "registers of scale factors are full");

struct ScaleFactors {  // what scaled_operands.py packs
    const u8* a;       // row after row of A, along K; rows are padded to whole slots
    const u8* b;       // column after column of B
    s64 pitch;         // bytes from one to the next
};

struct alignas(4 * SCALE_WORDS) Words {
    u32 word[SCALE_WORDS];
};

__device__ __forceinline__ Words load_factors(const u8* factors, s64 pitch, s32 row, s32 rows, u32 step) {
    if (row >= rows) return Words{};
    return *reinterpret_cast<const Words*>(factors + row * pitch + step * sizeof(Words));
}

// By one thread; the maps count bytes, elements are packed.
__device__ __forceinline__ void fill(u32 slot, const TensorMap* map_a, const TensorMap* map_b, s32 m, s32 n, s32 byte, u32 barrier) {
    mbarrier_expect(barrier, SLOT);
    tma_load_cta(slot, map_a, byte, m, barrier);
    tma_load_cta(slot + A_BYTES, map_b, byte, n, barrier);
}

// One K step of 32 bytes. Its number is a constant, because which byte of the factors counts is an immediate.
template <u32 J>
__device__ __forceinline__ void multiply(float (&d)[FRAGMENTS_A][FRAGMENTS_B][4], u32 tile_a, u32 tile_b,
                                         const Words (&scale_a)[FRAGMENTS_A / 2], const Words& scale_b) {
    constexpr u32 word = SCALE_WORD[J], byte = SCALE_BYTE[J];
    const u32 warp = uniform_warp(), lane = threadIdx.x % 32, row = lane % 8, matrix = lane / 8;
    // Of A a matrix is 8 rows, the next one 8 rows on, then 16 bytes on; of B 16 bytes on, then 8 columns on.
    const u32 first_a = warp / 4 * WARP_M + row + matrix % 2 * 8, chunk_a = 2 * J + matrix / 2;
    const u32 first_b = warp % 4 * WARP_N + row + matrix / 2 * 8, chunk_b = 2 * J + matrix % 2;
    u32 a[FRAGMENTS_A][4], b[FRAGMENTS_B][2];
#pragma unroll
    for (u32 i = 0; i < FRAGMENTS_A; ++i) {
        ldmatrix(a[i], tile_a + swizzled(first_a + 16 * i, chunk_a));
    }
#pragma unroll
    for (u32 i = 0; i < FRAGMENTS_B; i += 2) {
        u32 two[4];  // fragments
        ldmatrix(two, tile_b + swizzled(first_b + 8 * i, chunk_b));
        b[i][0] = two[0], b[i][1] = two[1], b[i + 1][0] = two[2], b[i + 1][1] = two[3];
    }
#pragma unroll
    for (u32 i = 0; i < FRAGMENTS_A; i += 2) {
        const u32 sa = scale_a[i / 2].word[word], sb = scale_b.word[word];
        mma_scaled<byte, 0, 0>(d[i][0], a[i], b[0], sa, sb);
        mma_scaled<byte, 0, 1>(d[i][1], a[i], b[1], sa, sb);
        mma_scaled<byte, 0, 2>(d[i][2], a[i], b[2], sa, sb);
        mma_scaled<byte, 0, 3>(d[i][3], a[i], b[3], sa, sb);
        mma_scaled<byte, 1, 0>(d[i + 1][0], a[i + 1], b[0], sa, sb);
        mma_scaled<byte, 1, 1>(d[i + 1][1], a[i + 1], b[1], sa, sb);
        mma_scaled<byte, 1, 2>(d[i + 1][2], a[i + 1], b[2], sa, sb);
        mma_scaled<byte, 1, 3>(d[i + 1][3], a[i + 1], b[3], sa, sb);
    }
}

extern "C" __global__ void __launch_bounds__(THREADS)
    gemm(const __grid_constant__ TensorMap map_a, const __grid_constant__ TensorMap map_b,
         const __grid_constant__ TensorMap, const __grid_constant__ Problem problem,
         const __grid_constant__ ScaleFactors factors) {
    extern __shared__ u8 dynamic[];
    const u32 slots = (shared_address(dynamic) + CORE - 1) & ~(CORE - 1), full = slots + STAGES * SLOT;
    const s32 m = blockIdx.y * BLOCK_M, n = blockIdx.x * BLOCK_N;
    const u32 steps = (problem.k + SLOT_K - 1) / SLOT_K;
    const u32 warp = uniform_warp(), lane = threadIdx.x % 32;
    const s32 warp_m = warp / 4 * WARP_M, warp_n = warp % 4 * WARP_N;

    if (threadIdx.x == 0) {
        for (u32 slot = 0; slot < STAGES; ++slot) mbarrier_init(full + 8 * slot, 1);
        mbarrier_init_fence();
        for (u32 step = 0; step < STAGES && step < steps; ++step) {
            fill(slots + step * SLOT, &map_a, &map_b, m, n, step * SPAN, full + 8 * step);
        }
    }
    __syncthreads();  // the barriers exist

    // Lane 4g + q holds factors of row g + 8 (q % 2) of fragment 2i + q / 2 of A, and of column g of fragment q of B.
    const s32 row_a = m + warp_m + lane / 4 + 8 * (lane % 2) + 16 * (lane % 4 / 2);
    const s32 row_b = n + warp_n + lane / 4 + 8 * (lane % 4);
    Words next_a[FRAGMENTS_A / 2], next_b;
    const auto fetch = [&](u32 step) {
#pragma unroll
        for (u32 i = 0; i < FRAGMENTS_A / 2; ++i) next_a[i] = load_factors(factors.a, factors.pitch, row_a + 32 * i, problem.m, step);
        next_b = load_factors(factors.b, factors.pitch, row_b, problem.n, step);
    };

    float d[FRAGMENTS_A][FRAGMENTS_B][4] = {};
    u32 slot = 0, parity = 0;
    if (steps > 0) fetch(0);
#pragma unroll 1
    for (u32 step = 0; step < steps; ++step) {
        Words scale_a[FRAGMENTS_A / 2], scale_b = next_b;
#pragma unroll
        for (u32 i = 0; i < FRAGMENTS_A / 2; ++i) scale_a[i] = next_a[i];
        if (step + 1 < steps) fetch(step + 1);
        mbarrier_wait(full + 8 * slot, parity);
        const u32 tile_a = slots + slot * SLOT, tile_b = tile_a + A_BYTES;
        multiply<0>(d, tile_a, tile_b, scale_a, scale_b);
        multiply<1>(d, tile_a, tile_b, scale_a, scale_b);
        multiply<2>(d, tile_a, tile_b, scale_a, scale_b);
        multiply<3>(d, tile_a, tile_b, scale_a, scale_b);
        __syncthreads();  // everybody has read the slot
        if (threadIdx.x == 0 && step + STAGES < steps) {
            fill(tile_a, &map_a, &map_b, m, n, (step + STAGES) * SPAN, full + 8 * slot);
        }
        if (++slot == STAGES) slot = 0, parity ^= 1;
    }

    const s32 row = m + warp_m + lane / 4, column = n + warp_n + 2 * (lane % 4);
#pragma unroll
    for (u32 i = 0; i < FRAGMENTS_A; ++i) {
#pragma unroll
        for (u32 j = 0; j < FRAGMENTS_B; ++j) {
            store_pair(problem, row + 16 * i, column + 8 * j, d[i][j][0], d[i][j][1]);
            store_pair(problem, row + 16 * i + 8, column + 8 * j, d[i][j][2], d[i][j][3]);
        }
    }
}
