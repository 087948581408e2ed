// sm100_tcgen05_2cta: two blocks of a cluster multiply one tile of 256 x BLOCK_N together.
//
// Each block loads its own 128 rows of A and its own half of B's columns; tcgen05.mma.cta_group::2 reads both blocks'
// shared memory and writes to each block's Tensor Memory its 128 rows of all columns. So B is loaded once for 256 rows.
// Only the leader, the block of even rank, issues multiplications. The barriers:
//     full[slot], the leader's:  the bytes of both blocks have come. Both blocks' TMA counts there.
//     empty[slot], in each:      the slot's multiplications are done. One commit of the leader arrives at both.
//     done, in each:             all of them are. One commit of the leader arrives at both.
#include "tcgen05.cuh"
#include "multiply.cuh"  // tcgen05_mma, the descriptors and their steps along K, written by the host
#include "tmem_rows.cuh"

constexpr u32 THREADS = 128;
constexpr u32 BLOCK_K = SPAN / ELEMENT_BYTES;
constexpr u32 HALF_N = BLOCK_N / 2;  // columns of B that a block loads
constexpr u32 A_BYTES = BLOCK_M * SPAN, B_BYTES = HALF_N * SPAN, SLOT = A_BYTES + B_BYTES;
constexpr u16 BOTH = 3;  // blocks 0 and 1 of the cluster
static_assert(BLOCK_M == 128, "rows of one of the two blocks: a row for each lane of Tensor Memory");

// `barrier` may be another block's: a shared::cluster address.
template <u32 EXTENT, bool MN_MAJOR>
__device__ __forceinline__ void load_operand(u32 to, const TensorMap* map, s32 start, s32 k, u32 barrier) {
    if (MN_MAJOR) {
#pragma unroll
        for (u32 panel = 0; panel < EXTENT / 64; ++panel) {
            tma_load_pair(to + panel * PANEL, map, start + 64 * panel, k, barrier);
        }
    } else {
        tma_load_pair(to, map, k, start, barrier);
    }
}

extern "C" __global__ void __launch_bounds__(THREADS)
    gemm(const __grid_constant__ TensorMap map_a, const __grid_constant__ TensorMap map_b,
         const __grid_constant__ TensorMap, const __grid_constant__ Problem problem) {
    extern __shared__ u8 dynamic[];
    const u32 slots = (shared_address(dynamic) + CORE - 1) & ~(CORE - 1);  // the same offset in both blocks
    const u32 full = slots + STAGES * SLOT, empty = full + 8 * STAGES, done = empty + 8 * STAGES, place = done + 8;
    const u32 rank = cluster_rank();
    const s32 m = (2 * blockIdx.y + rank) * BLOCK_M, n = blockIdx.x / 2 * BLOCK_N;
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
    __syncwarp();
    if (warp == 1) tmem_allocate<2>(place, TMEM_COLUMNS);  // one warp of each block, together
    tcgen05_before_sync();
    cluster_sync();  // the barriers and the allocations of both exist
    tcgen05_after_sync();
    const u32 accumulator = load_shared(place);

    if (warp == 0 && elect_one()) {
        const u32 leaders = address_in(full, 0);
        u32 slot = 0, parity = 1;
        for (u32 step = 0; step < steps; ++step) {
            mbarrier_wait_cluster(empty + 8 * slot, parity);
            if (rank == 0) mbarrier_expect(full + 8 * slot, 2 * SLOT);  // of both; the other's bytes may come before this
            const u32 slot_at = slots + slot * SLOT;
            load_operand<BLOCK_M, A_MN_MAJOR>(slot_at, &map_a, m, step * BLOCK_K, leaders + 8 * slot);
            load_operand<HALF_N, B_MN_MAJOR>(slot_at + A_BYTES, &map_b, n + rank * HALF_N, step * BLOCK_K, leaders + 8 * slot);
            if (++slot == STAGES) slot = 0, parity ^= 1;
        }
    } else if (rank == 0 && warp == 1 && elect_one()) {
        u32 slot = 0, parity = 0;
        for (u32 step = 0; step < steps; ++step) {
            mbarrier_wait_cluster(full + 8 * slot, parity);
            tcgen05_after_sync();
            const u64 at = address_field(slots + slot * SLOT);
#pragma unroll
            for (u32 j = 0; j < K_STEPS; ++j) {
                tcgen05_mma(accumulator, DESCRIPTOR_A + at + ADVANCE_A[j], DESCRIPTOR_B + at + ADVANCE_B[j],
                            INSTRUCTION_DESCRIPTOR[j], step > 0 || j > 0);
            }
            if (step + STAGES < steps) tcgen05_commit_pair(empty + 8 * slot, BOTH);  // later slots are not filled again
            if (++slot == STAGES) slot = 0, parity ^= 1;
        }
        tcgen05_commit_pair(done, BOTH);
    }
    __syncwarp();  // the loads below are for whole warps
    mbarrier_wait_cluster(done, 0);
    tcgen05_after_sync();
    store_tmem_rows(problem, accumulator, m, n);

    tcgen05_before_sync();
    cluster_sync();  // both blocks have read Tensor Memory, and nobody reads or signals the other's shared memory any more
    tcgen05_after_sync();
    if (warp == 1) tmem_free<2>(accumulator, TMEM_COLUMNS);
}
