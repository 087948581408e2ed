// sm90_wgmma_128: the second step of the ladder. Two warpgroups share a tile of 128 x BLOCK_N: every byte of shared memory
// is used twice as often, and half as much is loaded for each product.
#include "ptx.cuh"
#include "multiply.cuh"  // wgmma(d, a, b, scale_d) for 64 x BLOCK_N and the operands' formats; accumulator_t
#include "epilogue.cuh"
#include "panel.cuh"

constexpr u32 THREADS = 256;
constexpr u32 BLOCK_K = SPAN / ELEMENT_BYTES;
constexpr u32 A_BYTES = 128 * SPAN;

extern "C" __global__ void __launch_bounds__(THREADS) gemm(const __grid_constant__ Problem problem) {
    __shared__ alignas(CORE) u8 tiles[A_BYTES + BLOCK_N * SPAN];
    const s32 m = blockIdx.y * 128, n = blockIdx.x * BLOCK_N;
    const u32 warpgroup = uniform_warp() / 4;  // rows 64 * warpgroup ... of the tile
    const u64 a = descriptor_bits(A_MN_MAJOR) + address_field(shared_address(tiles) + warpgroup * PANEL);
    const u64 b = descriptor_bits(B_MN_MAJOR) + address_field(shared_address(tiles) + A_BYTES);
    accumulator_t d[BLOCK_N / 2];

    for (s32 k = 0; k < problem.k; k += BLOCK_K) {
        fill_operand<128, THREADS, A_MN_MAJOR>(tiles, problem.a, problem.lda, m, k, problem.m, problem.k);
        fill_operand<BLOCK_N, THREADS, B_MN_MAJOR>(tiles + A_BYTES, problem.b, problem.ldb, n, k, problem.n, problem.k);
        async_proxy_fence();
        __syncthreads();
        wgmma_fence();
#pragma unroll
        for (u32 j = 0; j < 4; ++j) {
            wgmma(d, a + j * descriptor_step(A_MN_MAJOR), b + j * descriptor_step(B_MN_MAJOR), k > 0 || j > 0);
        }
        wgmma_commit();
        wgmma_wait<0>();
        __syncthreads();
    }
    keep(d);
    store_accumulator(problem, m + 64 * s32(warpgroup), n, d);
}
