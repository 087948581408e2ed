// sm90_wgmma_persistent: the last step of the ladder. One block per multiprocessor walks over tiles of BLOCK_M x BLOCK_N.
//
//   - A producer warp fills a ring of STAGES slots by TMA; two consumer warpgroups of 64 x BLOCK_N each multiply.
//   - A cluster of CLUSTER_M x CLUSTER_N blocks computes neighbouring tiles: every block loads a part of A and of B and
//     multicasts it to the blocks that need it, so L2 is read once per cluster.
//   - Tiles are taken in groups of rows, so that the blocks that run together share panels of A and B in L2.
//   - The epilogue leaves through shared memory: stmatrix, then TMA stores of 64 rows x 128 bytes, two in flight per
//     warpgroup. While one warpgroup stores, the other still multiplies: it runs STAGGER slots behind.
//
// Accumulation order: K ascends in steps of one wgmma; one chain per output. With PROMOTE = p, chains of p slots, whose
// results are added in f32.
#include "ptx.cuh"
#include "multiply.cuh"  // wgmma(d, a, b, scale_d) for 64 x BLOCK_N and the operands' formats; accumulator_t
#include "epilogue.cuh"
#include "ring.cuh"
#include "staging.cuh"
#include "tiles.cuh"

constexpr u32 CONSUMERS = BLOCK_M / 64;
constexpr u32 THREADS = 128 * (CONSUMERS + 1);
constexpr u32 CLUSTER = CLUSTER_M * CLUSTER_N;
constexpr u32 RELEASES = CLUSTER_M + CLUSTER_N - 1;  // blocks that write into a slot of this one
constexpr u32 A_BYTES = BLOCK_M * SPAN, B_BYTES = BLOCK_N * SPAN, SLOT = A_BYTES + B_BYTES;
constexpr u32 BLOCK_K = SPAN / ELEMENT_BYTES;
constexpr u32 STORE_BUFFERS = STORE_TMA ? 2 : 0;  // per consumer, each 64 rows x 128 bytes
constexpr u32 STORES = BLOCK_N / STORE_COLUMNS;
constexpr u32 STAGGER_BARRIER = 1 + CONSUMERS;  // named barriers: 0 the block's, 1 .. CONSUMERS one per consumer, this
static_assert(BLOCK_M == 128 && BLOCK_N % 64 == 0 && BLOCK_N <= 256, "two consumers of one wgmma each");
static_assert((A_MN_MAJOR ? BLOCK_M / 64 % CLUSTER_N : BLOCK_M / 8 % CLUSTER_N) == 0, "parts of whole panels, or of 8 rows");
static_assert((B_MN_MAJOR ? BLOCK_N / 64 % CLUSTER_M : BLOCK_N / 8 % CLUSTER_M) == 0, "parts of whole panels, or of 8 rows");
static_assert(STAGGER < STAGES, "the leader must not wait for a slot that the follower has not begun");

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    gemm(const __grid_constant__ TensorMap map_a, const __grid_constant__ TensorMap map_b,
         const __grid_constant__ TensorMap map_d, const __grid_constant__ Problem problem) {
    extern __shared__ u8 dynamic[];
    const u32 slots = (shared_address(dynamic) + CORE - 1) & ~(CORE - 1);
    const u32 panels = slots + STAGES * SLOT;
    const u32 full = panels + CONSUMERS * STORE_BUFFERS * PANEL, empty = full + 8 * STAGES;

    const u32 warp = uniform_warp(), role = warp / 4;
    const u32 rank = CLUSTER > 1 ? cluster_rank() : 0;
    const u32 rank_m = rank % CLUSTER_M, rank_n = rank / CLUSTER_M;
    const u32 tile_rows = (problem.m + BLOCK_M * CLUSTER_M - 1) / (BLOCK_M * CLUSTER_M);
    const u32 tile_columns = (problem.n + BLOCK_N * CLUSTER_N - 1) / (BLOCK_N * CLUSTER_N);
    const u32 tiles = tile_rows * tile_columns, first = blockIdx.x / CLUSTER, stride = gridDim.x / CLUSTER;
    const u32 steps = (problem.k + BLOCK_K - 1) / BLOCK_K;

    if (threadIdx.x == 0) {
        tma_prefetch_map(&map_a);
        tma_prefetch_map(&map_b);
        if (STORE_TMA) tma_prefetch_map(&map_d);
        for (u32 slot = 0; slot < STAGES; ++slot) {
            mbarrier_init(full + 8 * slot, 1);                     // the producer's announcement, then bytes
            mbarrier_init(empty + 8 * slot, CONSUMERS * RELEASES);  // every consumer that reads what this block writes
        }
        mbarrier_init_fence();
    }
    if (CLUSTER > 1) cluster_sync();  // no block may signal a barrier that is not there yet
    else __syncthreads();

    if (role == 0) {  // ---- producer
        registers_down<PRODUCER_REGISTERS>();
        if (warp == 0 && elect_one()) {
            // The blocks with the same rows of A lie CLUSTER_M ranks apart; those with the same columns of B side by side.
            u16 same_rows = 0;
            for (u32 i = 0; i < CLUSTER_N; ++i) same_rows |= u16(1) << (rank_m + CLUSTER_M * i);
            const u16 same_columns = ((u16(1) << CLUSTER_M) - 1) << (CLUSTER_M * rank_n);
            Slot slot;
            for (u32 index = first; index < tiles; index += stride) {
                const Tile tile = tile_at(index, tile_rows, tile_columns, problem.group);
                const s32 m = (tile.row * CLUSTER_M + rank_m) * BLOCK_M, n = (tile.column * CLUSTER_N + rank_n) * BLOCK_N;
                for (u32 step = 0; step < steps; ++step, slot.advance()) {
                    const u32 barrier = full + 8 * slot.index, to_a = slots + slot.index * SLOT, to_b = to_a + A_BYTES;
                    const s32 k = step * BLOCK_K;
                    mbarrier_wait(empty + 8 * slot.index, slot.parity ^ 1);
                    mbarrier_expect(barrier, SLOT);  // all that arrives here, whoever sends it
#if A_MN_MAJOR
#pragma unroll
                    for (u32 i = 0; i < BLOCK_M / 64 / CLUSTER_N; ++i) {
                        const u32 panel = rank_n * (BLOCK_M / 64 / CLUSTER_N) + i;
                        if (CLUSTER_N > 1) tma_load_multicast(to_a + panel * PANEL, &map_a, m + 64 * panel, k, barrier, same_rows);
                        else tma_load(to_a + panel * PANEL, &map_a, m + 64 * panel, k, barrier);
                    }
#else
                    const u32 part_a = rank_n * (BLOCK_M / CLUSTER_N);  // the box has BLOCK_M / CLUSTER_N rows
                    if (CLUSTER_N > 1) tma_load_multicast(to_a + part_a * SPAN, &map_a, k, m + part_a, barrier, same_rows);
                    else tma_load(to_a, &map_a, k, m, barrier);
#endif
#if B_MN_MAJOR
#pragma unroll
                    for (u32 i = 0; i < BLOCK_N / 64 / CLUSTER_M; ++i) {
                        const u32 panel = rank_m * (BLOCK_N / 64 / CLUSTER_M) + i;
                        if (CLUSTER_M > 1) tma_load_multicast(to_b + panel * PANEL, &map_b, n + 64 * panel, k, barrier, same_columns);
                        else tma_load(to_b + panel * PANEL, &map_b, n + 64 * panel, k, barrier);
                    }
#else
                    const u32 part_b = rank_m * (BLOCK_N / CLUSTER_M);
                    if (CLUSTER_M > 1) tma_load_multicast(to_b + part_b * SPAN, &map_b, k, n + part_b, barrier, same_columns);
                    else tma_load(to_b, &map_b, k, n, barrier);
#endif
                }
            }
        }
        __syncwarp();
    } else {  // ---- consumers
        registers_up<CONSUMER_REGISTERS>();
        const u32 consumer = role - 1, thread = threadIdx.x % 128, lane = threadIdx.x % 32;
        // A slot is released in every block that writes into it: one thread of the warpgroup for each.
        const u32 mine = warp % 4;
        const u32 other = mine - CLUSTER_M + (mine - CLUSTER_M >= rank_n);  // of the blocks with the same rows
        const u32 release_rank = mine < CLUSTER_M ? mine + CLUSTER_M * rank_n : rank_m + CLUSTER_M * other;
        const bool releases = lane == 0 && mine < RELEASES;
        auto release = [&](u32 slot) {
            if (CLUSTER > 1) mbarrier_arrive_at(empty + 8 * slot, release_rank, releases);
            else mbarrier_arrive(empty + 8 * slot, releases);
        };
        const u64 descriptor_a = descriptor_bits(A_MN_MAJOR) + address_field(slots + consumer * PANEL);
        const u64 descriptor_b = descriptor_bits(B_MN_MAJOR) + address_field(slots + A_BYTES);
        accumulator_t d[BLOCK_N / 2];
#if PROMOTE
        accumulator_t sum[BLOCK_N / 2];
#endif
        Slot slot;
        u32 buffer = 0;  // of the store to come
        bool leading = STAGGER > 0 && consumer == 0;  // until the follower has been let go
        if (STAGGER > 0 && consumer == 1) named_sync(STAGGER_BARRIER, 256);

        for (u32 index = first; index < tiles; index += stride) {
            u32 previous = 0;
#if PROMOTE
#pragma unroll
            for (u32 i = 0; i < BLOCK_N / 2; ++i) sum[i] = 0;
#endif
            for (u32 step = 0; step < steps; ++step) {
                mbarrier_wait(full + 8 * slot.index, slot.parity);
                wgmma_fence();
                const u64 a = descriptor_a + slot.index * (SLOT >> 4), b = descriptor_b + slot.index * (SLOT >> 4);
#pragma unroll
                for (u32 j = 0; j < 4; ++j) {
                    const bool adds = j > 0 || (PROMOTE ? step % (PROMOTE + !PROMOTE) != 0 : step != 0);
                    wgmma(d, a + j * descriptor_step(A_MN_MAJOR), b + j * descriptor_step(B_MN_MAJOR), adds);
                }
                wgmma_commit();
#if PROMOTE
                wgmma_wait<0>();
                release(slot.index);
                if (step % PROMOTE == PROMOTE - 1 || step == steps - 1) {
                    keep(d);
#pragma unroll
                    for (u32 i = 0; i < BLOCK_N / 2; ++i) sum[i] += d[i];
                }
#else
                wgmma_wait<1>();  // the slot before this one has been read
                if (step > 0) release(previous);
#endif
                previous = slot.index;
                slot.advance();
                if (leading && (step == STAGGER - 1 || step == steps - 1)) {
                    named_arrive(STAGGER_BARRIER, 256);
                    leading = false;
                }
            }
#if PROMOTE
            auto& result = sum;
#else
            wgmma_wait<0>();
            release(previous);
            keep(d);
            auto& result = d;
#endif
            const Tile tile = tile_at(index, tile_rows, tile_columns, problem.group);
            const s32 m = (tile.row * CLUSTER_M + rank_m) * BLOCK_M + 64 * consumer;
            const s32 n = (tile.column * CLUSTER_N + rank_n) * BLOCK_N;
#if STORE_TMA
            const u32 mine_panels = panels + consumer * STORE_BUFFERS * PANEL;
#pragma unroll
            for (u32 i = 0; i < STORES; ++i, buffer ^= 1) {
                const u32 panel = mine_panels + buffer * PANEL;
                if (thread == 0) tma_store_wait_read<1>();  // the store before the last one has left this panel
                named_sync(1 + consumer, 128);
                stage_panel(panel, &result[i * STORE_COLUMNS / 2], problem, m, n + i * STORE_COLUMNS);
                async_proxy_fence();
                named_sync(1 + consumer, 128);
                if (thread == 0) {
                    tma_store(&map_d, n + i * STORE_COLUMNS, m, panel);
                    tma_store_commit();
                }
            }
#else
            store_accumulator(problem, m, n, result);
#endif
        }
        if (STORE_TMA && thread == 0) tma_store_wait_read<0>();
    }
    if (CLUSTER > 1) cluster_sync();  // nobody leaves while others still write or signal here
}
