// sm75_mma_ldmatrix: mma.sync with 16 bytes of K, fed by ldmatrix. 8 warps compute 128 x 128; two slots of 64 bytes of K.
//
// There is no cp.async before sm_80: the next slot's bytes wait in registers while the present slot is multiplied.
// f16: m16n8k8. s8: two m8n8k16, whose fragments are the halves of the same rows.
#include "ptx.cuh"
#include "multiply.cuh"  // mma(d, a, b) for 16 x 8; accumulator_t
#include "epilogue.cuh"
#include "panel.cuh"
#include "tiles.cuh"
#include "warp.cuh"

constexpr u32 THREADS = 256;
constexpr u32 ROW = 64;  // bytes of K in a slot
constexpr u32 OPERAND = 128 * ROW, SLOT = 2 * OPERAND;
constexpr u32 BLOCK_K = ROW / ELEMENT_BYTES;
constexpr u32 CHUNKS = 128 * ROW / 16 / THREADS;  // of an operand, per thread
constexpr u32 WARP_M = 64, WARP_N = 32, TILES_M = WARP_M / 16, TILES_N = WARP_N / 8;

// 16-byte chunk of a row of 64 bytes: two rows fill the banks, so the swizzle turns every second row.
constexpr u32 place(u32 row, u32 chunk) { return row * ROW + ((chunk ^ (row / 2 & 3)) << 4); }

__device__ __forceinline__ void fetch(uint4 (&to)[CHUNKS], const void* matrix, s64 leading, s32 start, s32 k, s32 extent, s32 depth) {
#pragma unroll
    for (u32 i = 0; i < CHUNKS; ++i) {
        const u32 row = (threadIdx.x + i * THREADS) / 4, chunk = threadIdx.x % 4;
        const s64 y = start + s32(row), left = (depth - k) * s64(ELEMENT_BYTES) - 16 * s64(chunk);
        const u8* from = static_cast<const u8*>(matrix) + (y * leading + k) * ELEMENT_BYTES + 16 * chunk;
        to[i] = load_chunk(from, y < extent ? left : 0);
    }
}

__device__ __forceinline__ void put(u8* operand, const uint4 (&from)[CHUNKS]) {
#pragma unroll
    for (u32 i = 0; i < CHUNKS; ++i) {
        const u32 row = (threadIdx.x + i * THREADS) / 4, chunk = threadIdx.x % 4;
        *reinterpret_cast<uint4*>(operand + place(row, chunk)) = from[i];
    }
}

extern "C" __global__ void __launch_bounds__(THREADS) gemm(const __grid_constant__ Problem problem) {
    __shared__ alignas(16) u8 slots[2 * SLOT];
    const Tile tile = tile_at(blockIdx.y * gridDim.x + blockIdx.x, gridDim.y, gridDim.x, problem.group);
    const s32 m = tile.row * 128, n = tile.column * 128;
    const u32 warp = threadIdx.x / 32, lane = threadIdx.x % 32, warp_m = warp % 2 * WARP_M, warp_n = warp / 2 * WARP_N;

    uint4 next_a[CHUNKS], next_b[CHUNKS];
    auto fetch_slot = [&](s32 k) {
        fetch(next_a, problem.a, problem.lda, m, k, problem.m, problem.k);
        fetch(next_b, problem.b, problem.ldb, n, k, problem.n, problem.k);
    };
    auto put_slot = [&](u32 slot) {
        put(slots + slot * SLOT, next_a);
        put(slots + slot * SLOT + OPERAND, next_b);
    };
    accumulator_t d[TILES_M][TILES_N][4] = {};
    fetch_slot(0);
    put_slot(0);
    __syncthreads();
    u32 slot = 0;
    for (s32 k = 0; k < problem.k; k += BLOCK_K, slot ^= 1) {
        const bool more = k + s32(BLOCK_K) < problem.k;
        if (more) fetch_slot(k + BLOCK_K);
        const u32 a = shared_address(slots) + slot * SLOT, b = a + OPERAND;
#pragma unroll
        for (u32 chunk = 0; chunk < ROW / 16; ++chunk) {
            u32 rows[TILES_M / 2][4], columns[TILES_N];  // 32 rows of A, 32 columns of B, 16 bytes each
#pragma unroll
            for (u32 i = 0; i < TILES_M / 2; ++i) ldmatrix(rows[i], a + place(warp_m + 32 * i + lane, chunk));
            ldmatrix(columns, b + place(warp_n + lane, chunk));
#pragma unroll
            for (u32 y = 0; y < TILES_M; ++y) {
#pragma unroll
                for (u32 x = 0; x < TILES_N; ++x) mma(d[y][x], &rows[y / 2][y % 2 * 2], &columns[x]);
            }
        }
        if (more) put_slot(slot ^ 1);  // nobody reads it: all passed the barrier behind its multiplications
        __syncthreads();
    }
#pragma unroll
    for (u32 y = 0; y < TILES_M; ++y) {
#pragma unroll
        for (u32 x = 0; x < TILES_N; ++x) {
            const s32 row = m + warp_m + 16 * y + lane / 4, column = n + warp_n + 8 * x + 2 * (lane % 4);
            store_pair(problem, row, column, d[y][x][0], d[y][x][1]);
            store_pair(problem, row + 8, column, d[y][x][2], d[y][x][3]);
        }
    }
}
