// sm100_tcgen05_basic: one block, one tile of 128 x BLOCK_N, accumulated in Tensor Memory by tcgen05.mma.
//
// Warp 0 asks TMA for slots, warp 1 multiplies them, and all four warps store the result. Of warps 0 and 1 one thread
// works: tcgen05.mma is issued by a single thread and runs by itself until a commit reports it to an mbarrier. Besides the ring's
// barriers (tcgen05_ring.cuh):
//     done:  all multiplications are done.  tcgen05.commit -> everybody
#include "multiply_slot.cuh"
#include "tma_operands.cuh"
#include "tmem_rows.cuh"

constexpr u32 THREADS = 128;
constexpr u32 BLOCK_K = SPAN / ELEMENT_BYTES;
static_assert(BLOCK_M == 128, "a row for each lane of Tensor Memory");

extern "C" __global__ void __launch_bounds__(THREADS)
    gemm(const __grid_constant__ TensorMap map_a, const __grid_constant__ TensorMap map_b,
         const __grid_constant__ TensorMap, const __grid_constant__ Problem problem) {
    extern __shared__ u8 dynamic[];
    const Ring ring = ring_in<SLOT>(dynamic);
    const u32 done = ring.behind, place = done + 8;
    const s32 m = blockIdx.y * BLOCK_M, n = blockIdx.x * BLOCK_N;
    const u32 steps = (problem.k + BLOCK_K - 1) / BLOCK_K;
    const u32 warp = uniform_warp();

    if (threadIdx.x == 0) {
        mbarrier_init(done, 1);
        ring_init(ring, &map_a, &map_b);
    }
    const u32 accumulator = open_tensor_memory<1>(place, warp == 1);

    if (warp == 0 && elect_one()) {
        Cursor slot = {0, 1};
        for (u32 step = 0; step < steps; ++step, slot.advance<STAGES>()) {
            mbarrier_wait(ring.empty + 8 * slot.place, slot.parity);
            tma_load_slot(ring.slots + slot.place * SLOT, &map_a, &map_b, m, n, step * BLOCK_K, ring.full + 8 * slot.place);
        }
    } else if (warp == 1 && elect_one()) {
        Cursor slot = {0, 0};
        for (u32 step = 0; step < steps; ++step, slot.advance<STAGES>()) {
            mbarrier_wait(ring.full + 8 * slot.place, slot.parity);
            tcgen05_after_sync();
            multiply_slot(accumulator, ring.slots + slot.place * SLOT, step == 0);
            if (step + STAGES < steps) tcgen05_commit(ring.empty + 8 * slot.place);  // later slots are not filled again
        }
        tcgen05_commit(done);
    }
    mbarrier_wait(done, 0);
    tcgen05_after_sync();
    store_tmem_rows(problem, accumulator, m, n);
    close_tensor_memory<1>(accumulator, warp == 1);
}
