// sm100_tcgen05_basic: one block, one tile of 128 x BLOCK_N, accumulated in Tensor Memory by tcgen05.mma.
//
// Warp 0 asks TMA for slots, warp 1 multiplies them, and all four warps store the result. Of warps 0 and 1 one thread
// works: tcgen05.mma is issued by a single thread and runs by itself until a commit reports it to an mbarrier.
//     full[slot]:  the slot's bytes have come.           TMA -> the multiplying thread
//     empty[slot]: the slot's multiplications are done.  tcgen05.commit -> the loading thread
//     done:        all multiplications are done.         tcgen05.commit -> everybody
#include "tcgen05.cuh"
#include "multiply.cuh"  // tcgen05_mma, the descriptors and their steps along K, written by the host
#include "tma_operands.cuh"
#include "tmem_rows.cuh"

constexpr u32 THREADS = 128;
constexpr u32 BLOCK_K = SPAN / ELEMENT_BYTES;
static_assert(BLOCK_M == 128, "a row for each lane of Tensor Memory");

extern "C" __global__ void __launch_bounds__(THREADS)
    gemm(const __grid_constant__ TensorMap map_a, const __grid_constant__ TensorMap map_b,
         const __grid_constant__ TensorMap, const __grid_constant__ Problem problem) {
    extern __shared__ u8 dynamic[];
    const u32 slots = (shared_address(dynamic) + CORE - 1) & ~(CORE - 1);
    const u32 full = slots + STAGES * SLOT, empty = full + 8 * STAGES, done = empty + 8 * STAGES, place = done + 8;
    const s32 m = blockIdx.y * BLOCK_M, n = blockIdx.x * BLOCK_N;
    const u32 steps = (problem.k + BLOCK_K - 1) / BLOCK_K;
    const u32 warp = uniform_warp();

    if (threadIdx.x == 0) {
        for (u32 slot = 0; slot < STAGES; ++slot) {
            mbarrier_init(full + 8 * slot, 1);
            mbarrier_init(empty + 8 * slot, 1);
        }
        mbarrier_init(done, 1);
        mbarrier_init_fence();
        tma_prefetch_map(&map_a);
        tma_prefetch_map(&map_b);
    }
    if (warp == 1) tmem_allocate<1>(place, TMEM_COLUMNS);
    tcgen05_before_sync();
    __syncthreads();  // the barriers and the allocation exist
    tcgen05_after_sync();
    const u32 accumulator = load_shared(place);

    if (warp == 0 && elect_one()) {
        u32 slot = 0, parity = 1;  // of the phase before the first: a new barrier counts as past it
        for (u32 step = 0; step < steps; ++step) {
            mbarrier_wait(empty + 8 * slot, parity);
            tma_load_slot(slots + slot * SLOT, &map_a, &map_b, m, n, step * BLOCK_K, full + 8 * slot);
            if (++slot == STAGES) slot = 0, parity ^= 1;
        }
    } else if (warp == 1 && elect_one()) {
        u32 slot = 0, parity = 0;
        for (u32 step = 0; step < steps; ++step) {
            mbarrier_wait(full + 8 * slot, parity);
            tcgen05_after_sync();
            const u64 at = address_field(slots + slot * SLOT);
#pragma unroll
            for (u32 j = 0; j < K_STEPS; ++j) {
                tcgen05_mma(accumulator, DESCRIPTOR_A + at + ADVANCE_A[j], DESCRIPTOR_B + at + ADVANCE_B[j],
                            INSTRUCTION_DESCRIPTOR[j], step > 0 || j > 0);
            }
            if (step + STAGES < steps) tcgen05_commit(empty + 8 * slot);  // later slots are not filled again
            if (++slot == STAGES) slot = 0, parity ^= 1;
        }
        tcgen05_commit(done);
    }
    __syncwarp();  // the loads below are for whole warps
    mbarrier_wait(done, 0);
    tcgen05_after_sync();
    store_tmem_rows(problem, accumulator, m, n);

    tcgen05_before_sync();
    __syncthreads();  // all warps have read Tensor Memory
    tcgen05_after_sync();
    if (warp == 1) tmem_free<1>(accumulator, TMEM_COLUMNS);
}
