// sm90_wgmma_sparse: sm90_wgmma_persistent with wgmma.mma_async.sp. A keeps half of each row (2:4; tf32 1:2).
//
//   - A producer warp fills a ring of STAGES slots: kept elements of A by TMA in rows of 64 bytes (64B swizzle), B by TMA in rows of
//     128 bytes, and the metadata of the tile by one bulk copy, for they lie in global memory in one piece. All bytes of a
//     slot are counted by one mbarrier.
//   - Two consumer warpgroups of 64 x BLOCK_N multiply. A thread reads its metadata from shared memory: a word for
//     both multiplications of a slot, told apart by the selector, or with 8 bits a word for each.
//   - A multiplication eats twice the columns of K of B in the same time, so B is what must not be read twice: the
//     CLUSTER_M blocks of a cluster share its columns, and each multicasts its part.
//   - Persistent blocks, grouped order, warpgroups out of step, TMA stores: as there.
//
// Accumulation order: K ascends in steps of one wgmma; one chain per output.
#include "ptx.cuh"
#include "multiply.cuh"  // wgmma_sparse<SELECTOR>(d, a, b, metadata, scale_d) for 64 x BLOCK_N; accumulator_t
#include "epilogue.cuh"
#include "ring.cuh"
#include "sparse.cuh"
#include "staging.cuh"
#include "tiles.cuh"

constexpr u32 CONSUMERS = BLOCK_M / 64;
constexpr u32 THREADS = 128 * (CONSUMERS + 1);
constexpr u32 STORE_BUFFERS = STORE_TMA ? 2 : 0;  // per consumer, each 64 rows x 128 bytes
constexpr u32 STORES = BLOCK_N / STORE_COLUMNS;
constexpr u32 STAGGER_BARRIER = 1 + CONSUMERS;  // named barriers: 0 the block's, 1 .. CONSUMERS one per consumer, this
constexpr u32 B_PART = BLOCK_N / CLUSTER_M;     // columns of B that a block loads for its cluster
static_assert(BLOCK_N % 64 == 0 && BLOCK_N <= 256, "one wgmma a consumer");
static_assert(CLUSTER_N == 1 && CLUSTER_M <= 4, "blocks share columns of B; four warps release");
static_assert(B_PART % (B_MN_MAJOR ? 64 : 8) == 0, "parts of whole panels, or of 8 columns");
static_assert(STAGGER < STAGES, "the leader must not wait for a slot that the follower has not begun");
static_assert(SLOT % CORE == 0 && A_BYTES % CORE == 0, "tiles are aligned to their swizzle");

// Matrix descriptors without their address. A: 64B swizzle (2 in bits 62-63), 8 rows take 512 bytes. B: as in ptx.cuh.
constexpr u64 DESCRIPTOR_A = u64(2) << 62 | u64(8 * KEPT_SPAN >> 4) << 32 | u64(1) << 16;
constexpr u64 DESCRIPTOR_B = descriptor_bits(B_MN_MAJOR);
// What a multiplication adds to them: 32 kept bytes; 64 bytes of K, or 32 rows of one k each.
constexpr u32 STEP_A = 32 >> 4, STEP_B = B_MN_MAJOR ? 32 * SPAN >> 4 : 64 >> 4;

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    gemm(const __grid_constant__ TensorMap map_a, const __grid_constant__ TensorMap map_b,
         const __grid_constant__ TensorMap map_d, const __grid_constant__ Problem problem, const u8* const metadata) {
    extern __shared__ u8 dynamic[];
    const u32 slots = (shared_address(dynamic) + CORE - 1) & ~(CORE - 1);
    const u32 panels = slots + STAGES * SLOT;
    const u32 full = panels + CONSUMERS * STORE_BUFFERS * PANEL, empty = full + 8 * STAGES;

    const u32 warp = uniform_warp(), role = warp / 4;
    const u32 rank = CLUSTER_M > 1 ? cluster_rank() : 0;
    const u32 tile_rows = (problem.m + BLOCK_M * CLUSTER_M - 1) / (BLOCK_M * CLUSTER_M);
    const u32 tile_columns = (problem.n + BLOCK_N - 1) / BLOCK_N;
    const u32 tiles = tile_rows * tile_columns, first = blockIdx.x / CLUSTER_M, stride = gridDim.x / CLUSTER_M;
    const u32 steps = (problem.k + BLOCK_K - 1) / BLOCK_K;

    if (threadIdx.x == 0) {
        tma_prefetch_map(&map_a);
        tma_prefetch_map(&map_b);
        if (STORE_TMA) tma_prefetch_map(&map_d);
        for (u32 slot = 0; slot < STAGES; ++slot) {
            mbarrier_init(full + 8 * slot, 1);                      // the producer's announcement, then bytes
            mbarrier_init(empty + 8 * slot, CONSUMERS * CLUSTER_M);  // every consumer that reads what this block writes
        }
        mbarrier_init_fence();
    }
    if (CLUSTER_M > 1) cluster_sync();
    else __syncthreads();

    if (role == 0) {  // ---- producer
        registers_down<PRODUCER_REGISTERS>();
        if (warp == 0 && elect_one()) {
            const u32 last_rows = (problem.m - 1) / BLOCK_M;  // a cluster may reach beyond the last rows: any metadata will do
            Slot slot;
            for (u32 index = first; index < tiles; index += stride) {
                const Tile tile = tile_at(index, tile_rows, tile_columns, problem.group);
                const u32 rows = tile.row * CLUSTER_M + rank;
                const s32 m = rows * BLOCK_M, n = tile.column * BLOCK_N + rank * B_PART;
                const u8* from = metadata + static_cast<s64>(min(rows, last_rows)) * steps * METADATA_BYTES;
                for (u32 step = 0; step < steps; ++step, slot.advance(), from += METADATA_BYTES) {
                    const u32 barrier = full + 8 * slot.index, to_a = slots + slot.index * SLOT, to_b = to_a + A_BYTES;
                    const s32 k = step * BLOCK_K;
                    mbarrier_wait(empty + 8 * slot.index, slot.parity ^ 1);
                    mbarrier_expect(barrier, SLOT);  // all that arrives here, whoever sends it
                    tma_load(to_a, &map_a, k / 2, m, barrier);
                    constexpr u16 ALL = (1 << CLUSTER_M) - 1;
                    const u32 to_part = to_b + rank * B_PART * SPAN;
#if B_MN_MAJOR
#pragma unroll
                    for (u32 i = 0; i < B_PART / 64; ++i) {
                        if (CLUSTER_M > 1) tma_load_multicast(to_part + i * PANEL, &map_b, n + 64 * i, k, barrier, ALL);
                        else tma_load(to_part + i * PANEL, &map_b, n + 64 * i, k, barrier);
                    }
#else
                    if (CLUSTER_M > 1) tma_load_multicast(to_part, &map_b, k, n, barrier, ALL);
                    else tma_load(to_part, &map_b, k, n, barrier);
#endif
                    bulk_load(to_b + B_BYTES, from, METADATA_BYTES, barrier);
                }
            }
        }
        __syncwarp();
    } else {  // ---- consumers
        registers_up<CONSUMER_REGISTERS>();
        const u32 consumer = role - 1, thread = threadIdx.x % 128, lane = threadIdx.x % 32;
        // A slot is released in every block of the cluster: one warp for each.
        const bool releases = lane == 0 && warp % 4 < CLUSTER_M;
        const u32 told = CLUSTER_M > 1 ? address_in_block(empty, releases ? warp % 4 : rank) : empty;
        auto release = [&](u32 slot) {
            if (CLUSTER_M > 1) mbarrier_arrive_remote(told + 8 * slot, releases);
            else mbarrier_arrive(told + 8 * slot, releases);
        };
        const u64 descriptor_a = DESCRIPTOR_A + address_field(slots + consumer * 64 * KEPT_SPAN);
        const u64 descriptor_b = DESCRIPTOR_B + address_field(slots + A_BYTES);
        accumulator_t d[BLOCK_N / 2];
        Slot slot;
        u32 buffer = 0;  // of the store to come
        bool leading = STAGGER > 0 && consumer == 0;  // until the follower has been let go
        if (STAGGER > 0 && consumer == 1) named_sync(STAGGER_BARRIER, 256);

        for (u32 index = first; index < tiles; index += stride) {
            u32 previous = 0;
            for (u32 step = 0; step < steps; ++step) {
                mbarrier_wait(full + 8 * slot.index, slot.parity);
                u32 words[METADATA_WORDS];
#pragma unroll
                for (u32 i = 0; i < METADATA_WORDS; ++i) {
                    words[i] = load_shared(metadata_place(slots + slot.index * SLOT, 4 * consumer + warp % 4, i, lane));
                }
                wgmma_fence();
                const u64 a = descriptor_a + slot.index * (SLOT >> 4), b = descriptor_b + slot.index * (SLOT >> 4);
                wgmma_sparse<0>(d, a, b, words[0], step != 0);
                wgmma_sparse<METADATA_WORDS == 1>(d, a + STEP_A, b + STEP_B, words[METADATA_WORDS - 1], true);
                wgmma_commit();
                wgmma_wait<1>();  // the slot before this one has been read
                if (step > 0) release(previous);
                previous = slot.index;
                slot.advance();
                if (leading && (step == STAGGER - 1 || step == steps - 1)) {
                    named_arrive(STAGGER_BARRIER, 256);
                    leading = false;
                }
            }
            wgmma_wait<0>();
            release(previous);
            keep(d);
            const Tile tile = tile_at(index, tile_rows, tile_columns, problem.group);
            const s32 m = (tile.row * CLUSTER_M + rank) * BLOCK_M + 64 * consumer, n = tile.column * BLOCK_N;
#if STORE_TMA
            const u32 mine_panels = panels + consumer * STORE_BUFFERS * PANEL;
#pragma unroll
            for (u32 i = 0; i < STORES; ++i, buffer ^= 1) {
                const u32 panel = mine_panels + buffer * PANEL;
                if (thread == 0) tma_store_wait_read<1>();  // the store before the last one has left this panel
                named_sync(1 + consumer, 128);
                stage_panel(panel, &d[i * STORE_COLUMNS / 2], problem, m, n + i * STORE_COLUMNS);
                async_proxy_fence();
                named_sync(1 + consumer, 128);
                if (thread == 0) {
                    tma_store(&map_d, n + i * STORE_COLUMNS, m, panel);
                    tma_store_commit();
                }
            }
#else
            store_accumulator(problem, m, n, d);
#endif
        }
        if (STORE_TMA && thread == 0) tma_store_wait_read<0>();
    }
    if (CLUSTER_M > 1) cluster_sync();  // nobody leaves while others still write or signal here
}
