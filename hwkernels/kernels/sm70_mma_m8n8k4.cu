// sm70_mma_m8n8k4: Volta's own instruction. A warp is four quad pairs (lanes 4q .. 4q+3 and 16+4q .. 16+4q+3); each of
// them multiplies 8 x 4 by 4 x 8 on its own. Here a warp has 32 x 32, a quad pair 16 x 16 of it. 4 warps a tile of 64 x 64.
#include "ptx.cuh"
#include "multiply.cuh"  // mma(d, a, b), four 8 x 8 x 4 at once; accumulator_t
#include "epilogue.cuh"
#include "panel.cuh"

constexpr u32 THREADS = 128;
constexpr u32 BLOCK_K = SPAN / ELEMENT_BYTES;

extern "C" __global__ void __launch_bounds__(THREADS) gemm(const __grid_constant__ Problem problem) {
    __shared__ alignas(16) u8 tile_a[64 * SPAN];
    __shared__ alignas(16) u8 tile_b[64 * SPAN];
    const s32 m = blockIdx.y * 64, n = blockIdx.x * 64;
    const u32 warp = threadIdx.x / 32, lane = threadIdx.x % 32, pair = lane / 4 % 4;
    const u32 own = lane % 4 + (lane < 16 ? 0 : 4);  // this lane's row of A and column of B in the 8 x 8 of its quad pair
    const u32 row = warp % 2 * 32 + pair % 2 * 16, column = warp / 2 * 32 + pair / 2 * 16;

    accumulator_t d[2][2][8] = {};
    for (s32 k = 0; k < problem.k; k += BLOCK_K) {
        fill_operand<64, THREADS, false>(tile_a, problem.a, problem.lda, m, k, problem.m, problem.k);
        fill_operand<64, THREADS, false>(tile_b, problem.b, problem.ldb, n, k, problem.n, problem.k);
        __syncthreads();
#pragma unroll
        for (u32 chunk = 0; chunk < 8; ++chunk) {  // 16 bytes: 8 elements of K, two multiplications
            uint4 a[2], b[2];
#pragma unroll
            for (u32 i = 0; i < 2; ++i) {
                a[i] = *reinterpret_cast<const uint4*>(tile_a + swizzled(row + 8 * i + own, chunk));
                b[i] = *reinterpret_cast<const uint4*>(tile_b + swizzled(column + 8 * i + own, chunk));
            }
#pragma unroll
            for (u32 half = 0; half < 2; ++half) {
#pragma unroll
                for (u32 y = 0; y < 2; ++y) {
#pragma unroll
                    for (u32 x = 0; x < 2; ++x) {
                        const u32 left[2] = {half ? a[y].z : a[y].x, half ? a[y].w : a[y].y};
                        const u32 right[2] = {half ? b[x].z : b[x].x, half ? b[x].w : b[x].y};
                        mma(d[y][x], left, right);
                    }
                }
            }
        }
        __syncthreads();
    }
    // Register i of a lane: row (lane & 1) + (i & 2) + 4 [lane >= 16], column (i & 4) + (lane & 2) + (i & 1).
#pragma unroll
    for (u32 y = 0; y < 2; ++y) {
#pragma unroll
        for (u32 x = 0; x < 2; ++x) {
#pragma unroll
            for (u32 i = 0; i < 8; i += 2) {
                store_pair(problem, m + row + 8 * y + (lane & 1) + (i & 2) + (lane < 16 ? 0 : 4),
                           n + column + 8 * x + (i & 4) + (lane & 2), d[y][x][i], d[y][x][i + 1]);
            }
        }
    }
}
