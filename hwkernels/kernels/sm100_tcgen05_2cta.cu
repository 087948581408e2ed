// sm100_tcgen05_2cta: two blocks of a cluster multiply one tile of 256 x BLOCK_N together.
//
// Each block loads its own 128 rows of A and its own half of B's columns; tcgen05.mma.cta_group::2 reads both blocks'
// shared memory and writes to each block's Tensor Memory its 128 rows of all columns. So B is loaded once for 256 rows.
// Only the leader, the block of even rank, issues multiplications. The barriers:
//     full[slot], the leader's:  the bytes of both blocks have come. Both blocks' TMA counts there.
//     empty[slot], in each:      the slot's multiplications are done. One commit of the leader arrives at both.
//     done, in each:             all of them are. One commit of the leader arrives at both.
#include "multiply_slot.cuh"
#include "tma_pair.cuh"
#include "tmem_rows.cuh"

constexpr u32 THREADS = 128;
constexpr u32 BLOCK_K = SPAN / ELEMENT_BYTES;

extern "C" __global__ void __launch_bounds__(THREADS)
    gemm(const __grid_constant__ TensorMap map_a, const __grid_constant__ TensorMap map_b,
         const __grid_constant__ TensorMap, const __grid_constant__ Problem problem) {
    extern __shared__ u8 dynamic[];
    const Ring ring = ring_in<SLOT>(dynamic);
    const u32 done = ring.behind, place = done + 8;
    const u32 rank = cluster_rank();
    const s32 m = (2 * blockIdx.y + rank) * BLOCK_M, n = blockIdx.x / 2 * BLOCK_N;
    const u32 steps = (problem.k + BLOCK_K - 1) / BLOCK_K;
    const u32 warp = uniform_warp();

    if (threadIdx.x == 0) {
        mbarrier_init(done, 1);
        ring_init(ring, &map_a, &map_b);
    }
    const u32 accumulator = open_tensor_memory<2>(place, warp == 1);

    if (warp == 0 && elect_one()) {
        Cursor slot = {0, 1};
        for (u32 step = 0; step < steps; ++step, slot.advance<STAGES>()) {
            mbarrier_wait_cluster(ring.empty + 8 * slot.place, slot.parity);
            tma_load_pair_slot(ring.slots + slot.place * SLOT, &map_a, &map_b, m, n + rank * HALF_N, step * BLOCK_K,
                               ring.full + 8 * slot.place, rank);
        }
    } else if (rank == 0 && warp == 1 && elect_one()) {
        Cursor slot = {0, 0};
        for (u32 step = 0; step < steps; ++step, slot.advance<STAGES>()) {
            mbarrier_wait_cluster(ring.full + 8 * slot.place, slot.parity);
            tcgen05_after_sync();
            multiply_slot(accumulator, ring.slots + slot.place * SLOT, step == 0);
            if (step + STAGES < steps) tcgen05_commit_pair(ring.empty + 8 * slot.place, BOTH);  // later slots are not filled again
        }
        tcgen05_commit_pair(done, BOTH);
    }
    mbarrier_wait_cluster(done, 0);
    tcgen05_after_sync();
    store_tmem_rows(problem, accumulator, m, n);
    close_tensor_memory<2>(accumulator, warp == 1);
}
