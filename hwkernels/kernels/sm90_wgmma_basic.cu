// sm90_wgmma_basic: the first step of the ladder. One warpgroup computes a tile of 64 x BLOCK_N; nothing overlaps.
//
// Load both operands into swizzled shared memory with ordinary instructions, tell the async proxy, multiply, wait, repeat.
#include "ptx.cuh"
#include "multiply.cuh"  // wgmma(d, a, b, scale_d) for 64 x BLOCK_N and the operands' formats; accumulator_t
#include "epilogue.cuh"
#include "panel.cuh"

constexpr u32 THREADS = 128;
constexpr u32 BLOCK_K = SPAN / ELEMENT_BYTES;

extern "C" __global__ void __launch_bounds__(THREADS) gemm(const __grid_constant__ Problem problem) {
    __shared__ alignas(CORE) u8 tile_a[64 * SPAN];
    __shared__ alignas(CORE) u8 tile_b[BLOCK_N * SPAN];
    const s32 m = blockIdx.y * 64, n = blockIdx.x * BLOCK_N;
    const u64 a = descriptor_bits(A_MN_MAJOR) + address_field(shared_address(tile_a));
    const u64 b = descriptor_bits(B_MN_MAJOR) + address_field(shared_address(tile_b));
    accumulator_t d[BLOCK_N / 2];

    for (s32 k = 0; k < problem.k; k += BLOCK_K) {
        fill_operand<64, THREADS, A_MN_MAJOR>(tile_a, problem.a, problem.lda, m, k, problem.m, problem.k);
        fill_operand<BLOCK_N, THREADS, B_MN_MAJOR>(tile_b, problem.b, problem.ldb, n, k, problem.n, problem.k);
        async_proxy_fence();  // by every thread that wrote, before the barrier
        __syncthreads();
        wgmma_fence();
#pragma unroll
        for (u32 j = 0; j < 4; ++j) {
            wgmma(d, a + j * descriptor_step(A_MN_MAJOR), b + j * descriptor_step(B_MN_MAJOR), k > 0 || j > 0);
        }
        wgmma_commit();
        wgmma_wait<0>();
        __syncthreads();  // all has been read before it is overwritten
    }
    keep(d);
    store_accumulator(problem, m, n, d);
}
