// sm90_wgmma_specialized: the fourth step of the ladder. Warpgroups have roles: one loads, two multiply 64 x BLOCK_N each.
//
// Nobody waits for the whole block any more: a slot's `full` barrier tells the consumers that it came, its `empty` barrier
// tells the producer that both have read it. The producer gives registers away (setmaxnreg), so that a consumer can hold
// 64 x 256 accumulators.
#include "ptx.cuh"
#include "multiply.cuh"  // wgmma(d, a, b, scale_d) for 64 x BLOCK_N and the operands' formats; accumulator_t
#include "epilogue.cuh"
#include "ring.cuh"
#include "tma_operands.cuh"

constexpr u32 CONSUMERS = 2, THREADS = 128 * (CONSUMERS + 1);
constexpr u32 BLOCK_K = SPAN / ELEMENT_BYTES;
static_assert(BLOCK_M == 64 * CONSUMERS, "a consumer has 64 rows");

extern "C" __global__ void __launch_bounds__(THREADS, 1)  // setmaxnreg counts from the registers that this leaves a thread
    gemm(const __grid_constant__ TensorMap map_a, const __grid_constant__ TensorMap map_b,
         const __grid_constant__ TensorMap, const __grid_constant__ Problem problem) {
    extern __shared__ u8 dynamic[];
    const u32 slots = (shared_address(dynamic) + CORE - 1) & ~(CORE - 1);
    const u32 full = slots + STAGES * SLOT, empty = full + 8 * STAGES;
    const s32 m = blockIdx.y * BLOCK_M, n = blockIdx.x * BLOCK_N;
    const u32 steps = (problem.k + BLOCK_K - 1) / BLOCK_K;
    const u32 warp = uniform_warp(), role = warp / 4;

    if (threadIdx.x == 0) {
        for (u32 slot = 0; slot < STAGES; ++slot) {
            mbarrier_init(full + 8 * slot, 1);           // the producer's announcement, then bytes
            mbarrier_init(empty + 8 * slot, CONSUMERS);  // one arrival for each warpgroup
        }
        mbarrier_init_fence();
    }
    __syncthreads();

    if (role == 0) {
        registers_down<PRODUCER_REGISTERS>();
        if (warp == 0 && elect_one()) {
            Slot slot;
            for (u32 step = 0; step < steps; ++step, slot.advance()) {
                mbarrier_wait(empty + 8 * slot.index, slot.parity ^ 1);  // the phase before the first counts as ended
                tma_load_slot(slots + slot.index * SLOT, &map_a, &map_b, m, n, step * BLOCK_K, full + 8 * slot.index);
            }
        }
    } else {
        registers_up<CONSUMER_REGISTERS>();
        const u32 consumer = role - 1;
        const bool releases = threadIdx.x % 128 == 0;
        const u64 descriptor_a = descriptor_bits(A_MN_MAJOR) + address_field(slots + consumer * PANEL);
        const u64 descriptor_b = descriptor_bits(B_MN_MAJOR) + address_field(slots + A_BYTES);
        accumulator_t d[BLOCK_N / 2];
        Slot slot;
        u32 previous = 0;
        for (u32 step = 0; step < steps; ++step) {
            mbarrier_wait(full + 8 * slot.index, slot.parity);
            wgmma_fence();
            const u64 a = descriptor_a + slot.index * (SLOT >> 4), b = descriptor_b + slot.index * (SLOT >> 4);
#pragma unroll
            for (u32 j = 0; j < 4; ++j) {
                wgmma(d, a + j * descriptor_step(A_MN_MAJOR), b + j * descriptor_step(B_MN_MAJOR), step > 0 || j > 0);
            }
            wgmma_commit();
            wgmma_wait<1>();  // the slot before this one has been read
            mbarrier_arrive(empty + 8 * previous, releases && step > 0);
            previous = slot.index;
            slot.advance();
        }
        wgmma_wait<0>();
        keep(d);
        store_accumulator(problem, m + 64 * s32(consumer), n, d);
    }
}
