// sm90_wgmma_tma: the third step of the ladder. The copy engine fills a ring of STAGES slots while two warpgroups multiply.
//
// One thread asks for boxes and announces their bytes to the slot's mbarrier; everybody waits there for the slot's phase.
// A slot is refilled as soon as all have seen that the multiplications before the newest are done.
#include "ptx.cuh"
#include "multiply.cuh"  // wgmma(d, a, b, scale_d) for 64 x BLOCK_N and the operands' formats; accumulator_t
#include "epilogue.cuh"
#include "tma_operands.cuh"

constexpr u32 THREADS = 256;
constexpr u32 BLOCK_K = SPAN / ELEMENT_BYTES;
static_assert(BLOCK_M == 128, "two warpgroups of 64 rows");

extern "C" __global__ void __launch_bounds__(THREADS)
    gemm(const __grid_constant__ TensorMap map_a, const __grid_constant__ TensorMap map_b,
         const __grid_constant__ TensorMap, const __grid_constant__ Problem problem) {
    extern __shared__ u8 dynamic[];
    const u32 slots = (shared_address(dynamic) + CORE - 1) & ~(CORE - 1), full = slots + STAGES * SLOT;
    const s32 m = blockIdx.y * BLOCK_M, n = blockIdx.x * BLOCK_N;
    const u32 steps = (problem.k + BLOCK_K - 1) / BLOCK_K;
    const u32 warpgroup = uniform_warp() / 4;

    if (threadIdx.x == 0) {
        for (u32 slot = 0; slot < STAGES; ++slot) mbarrier_init(full + 8 * slot, 1);
        mbarrier_init_fence();
        for (u32 step = 0; step < STAGES && step < steps; ++step) {
            tma_load_slot(slots + step * SLOT, &map_a, &map_b, m, n, step * BLOCK_K, full + 8 * step);
        }
    }
    __syncthreads();  // the barriers exist

    const u64 descriptor_a = descriptor_bits(A_MN_MAJOR) + address_field(slots + warpgroup * PANEL);
    const u64 descriptor_b = descriptor_bits(B_MN_MAJOR) + address_field(slots + A_BYTES);
    accumulator_t d[BLOCK_N / 2];
    u32 slot = 0, parity = 0, previous = 0;
    for (u32 step = 0; step < steps; ++step) {
        mbarrier_wait(full + 8 * slot, parity);
        wgmma_fence();
        const u64 a = descriptor_a + slot * (SLOT >> 4), b = descriptor_b + slot * (SLOT >> 4);
#pragma unroll
        for (u32 j = 0; j < 4; ++j) {
            wgmma(d, a + j * descriptor_step(A_MN_MAJOR), b + j * descriptor_step(B_MN_MAJOR), step > 0 || j > 0);
        }
        wgmma_commit();
        wgmma_wait<1>();  // all but this slot's have read their operands
        __syncthreads();  // in both warpgroups
        if (threadIdx.x == 0 && step > 0 && step - 1 + STAGES < steps) {
            tma_load_slot(slots + previous * SLOT, &map_a, &map_b, m, n, (step - 1 + STAGES) * BLOCK_K, full + 8 * previous);
        }
        previous = slot;
        if (++slot == STAGES) {
            slot = 0;
            parity ^= 1;
        }
    }
    wgmma_wait<0>();
    keep(d);
    store_accumulator(problem, m + 64 * s32(warpgroup), n, d);
}
