// sm90_wgmma_persistent: the last step of the ladder. One block per multiprocessor walks over tiles of BLOCK_M x BLOCK_N.
//
//   - A producer warp fills a ring of STAGES slots by TMA; two consumer warpgroups of 64 x BLOCK_N each multiply, or one.
//   - A cluster of CLUSTER_M x CLUSTER_N blocks computes neighbouring tiles: every block loads a part of A and of B and
//     multicasts it to the blocks that need it, so L2 is read once per cluster.
//   - Tiles are taken in groups of rows, so that the blocks that run together share panels of A and B in L2. With STREAM,
//     B, which changes from one wave of tiles to the next, is marked as the first to leave L2.
//   - The epilogue leaves through shared memory: stmatrix, then TMA stores of 64 rows x 128 bytes. While one warpgroup
//     stores, the other still multiplies: it runs STAGGER slots behind. With DEFER, a tile is
//     held in registers, as outputs of 16 bits or the half that fits, and stored under the first multiplications of the next.
//   - Before the first load: the boxes of the first slot are on their way into L2 while the cluster meets; all of this may
//     happen while the kernel before this one ends.
//
// With CONVOLUTION, A is an image: a row is a pixel of the output, whose taps im2col copies find (window.cuh).
//
// Accumulation order: K ascends in steps of one wgmma; one chain per output. With PROMOTE = p, chains of p slots, whose
// results are added in f32.
#include "ptx.cuh"
#include "multiply.cuh"  // wgmma(d, a, b, scale_d) for 64 x BLOCK_N and the operands' formats; accumulator_t
#include "epilogue.cuh"
#include "multicast.cuh"
#include "ring.cuh"
#include "tiles.cuh"
#if CONVOLUTION
#include "window.cuh"
#define WINDOW , const __grid_constant__ Window window
#else
#define WINDOW
#endif
#if STORE_TMA
#include "staged_store.cuh"  // PANELS: per consumer, each 64 rows x 128 bytes
#endif

constexpr u32 CONSUMERS = BLOCK_M / 64;
constexpr u32 THREADS = 128 * (CONSUMERS + 1);
constexpr u32 CLUSTER = CLUSTER_M * CLUSTER_N;
constexpr u32 RELEASES = CLUSTER_M + CLUSTER_N - 1;  // blocks that write into a slot of this one
constexpr u32 A_BYTES = BLOCK_M * SPAN, B_BYTES = BLOCK_N * SPAN, SLOT = A_BYTES + B_BYTES;
constexpr u32 BLOCK_K = SPAN / ELEMENT_BYTES;
constexpr u32 STAGGER_BARRIER = 1 + CONSUMERS;  // named barriers: 0 the block's, 1 .. CONSUMERS one per consumer, this
static_assert(CONSUMERS <= 2 && BLOCK_N % 64 == 0 && BLOCK_N <= 256, "one or two consumers of one wgmma each");
static_assert(STAGGER == 0 || CONSUMERS == 2, "one runs behind the other");
static_assert((A_MN_MAJOR ? BLOCK_M / 64 % CLUSTER_N : BLOCK_M / 8 % CLUSTER_N) == 0, "parts of whole panels, or of 8 rows");
static_assert((B_MN_MAJOR ? BLOCK_N / 64 % CLUSTER_M : BLOCK_N / 8 % CLUSTER_M) == 0, "parts of whole panels, or of 8 rows");
static_assert(RELEASES <= 4, "a warp of the warpgroup for each block that is told");
static_assert(STAGGER < STAGES, "the leader must not wait for a slot that the follower has not begun");

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    gemm(const __grid_constant__ TensorMap map_a, const __grid_constant__ TensorMap map_b,
         const __grid_constant__ TensorMap map_d, const __grid_constant__ Problem problem WINDOW) {
    extern __shared__ u8 dynamic[];
    const u32 slots = uniform((shared_address(dynamic) + CORE - 1) & ~(CORE - 1));
    const u32 panels = slots + STAGES * SLOT;
    const u32 full = panels + (STORE_TMA ? CONSUMERS * PANELS * PANEL : 0), empty = full + 8 * STAGES;

    const u32 warp = uniform_warp(), role = warp / 4;
    const u32 rank = CLUSTER > 1 ? uniform(cluster_rank()) : 0;
    const u32 rank_m = rank % CLUSTER_M, rank_n = rank / CLUSTER_M;
    const u32 tile_rows = (problem.m + BLOCK_M * CLUSTER_M - 1) / (BLOCK_M * CLUSTER_M);
    const u32 tile_columns = (problem.n + BLOCK_N * CLUSTER_N - 1) / (BLOCK_N * CLUSTER_N);
    const u32 tiles = tile_rows * tile_columns, first = blockIdx.x / CLUSTER, stride = gridDim.x / CLUSTER;
    const u32 steps = (problem.k + BLOCK_K - 1) / BLOCK_K;
    auto corner_at = [&](u32 index) {  // of this block's tile: its first row and column
        const Tile tile = tile_at(index, tile_rows, tile_columns, problem.group);
        return Tile{s32((tile.row * CLUSTER_M + rank_m) * BLOCK_M), s32((tile.column * CLUSTER_N + rank_n) * BLOCK_N)};
    };

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
    __syncwarp();
    if (CLUSTER > 1) {
        cluster_arrive();
#if !CONVOLUTION
        if (threadIdx.x == 0) {
            const Tile corner = corner_at(first);
            prefetch_part<BLOCK_M, CLUSTER_N, A_MN_MAJOR>(&map_a, corner.row, 0, rank_n);
            prefetch_part<BLOCK_N, CLUSTER_M, B_MN_MAJOR>(&map_b, corner.column, 0, rank_m);
        }
        __syncwarp();
#endif
        cluster_wait();  // no block may signal a barrier that is not there yet
    } else {
        __syncthreads();
    }
    let_next_begin();  // it finds room when blocks of this one end
    wait_for_previous();

    if (role == 0) {  // ---- producer
        if (CONSUMERS == 2) registers_down<PRODUCER_REGISTERS>();
        if (warp == 0 && elect_one()) {
            // The blocks with the same rows of A lie CLUSTER_M ranks apart; those with the same columns of B side by side.
            u16 same_rows = 0;
            for (u32 i = 0; i < CLUSTER_N; ++i) same_rows |= u16(1) << (rank_m + CLUSTER_M * i);
            const u16 same_columns = ((u16(1) << CLUSTER_M) - 1) << (CLUSTER_M * rank_n);
            const u64 policy = STREAM ? evict_first() : 0;
            Slot slot;
            for (u32 index = first; index < tiles; index += stride) {
                const Tile corner = corner_at(index);
#if CONVOLUTION
                const Pixel pixel = pixel_at(window, corner.row + s32(rank_n * (BLOCK_M / CLUSTER_N)));
                Tap tap;
#endif
#pragma unroll 1
                for (u32 step = 0; step < steps; ++step, slot.advance()) {
                    const u32 barrier = full + 8 * slot.index, to = slots + slot.index * SLOT;
                    mbarrier_wait(empty + 8 * slot.index, slot.parity ^ 1);
                    mbarrier_expect(barrier, SLOT);  // all that arrives here, whoever sends it
#if CONVOLUTION
                    load_pixels<BLOCK_M, CLUSTER_N>(to, &map_a, pixel, tap, window, rank_n, barrier, same_rows);
                    load_filters<BLOCK_N, CLUSTER_M>(to + A_BYTES, &map_b, corner.column, tap, window, rank_m, barrier, same_columns);
                    tap.advance(window, BLOCK_K);
#else
                    const s32 k = step * BLOCK_K;
                    load_part<BLOCK_M, CLUSTER_N, A_MN_MAJOR, false>(to, &map_a, corner.row, k, rank_n, barrier, same_rows, 0);
                    load_part<BLOCK_N, CLUSTER_M, B_MN_MAJOR, STREAM>(to + A_BYTES, &map_b, corner.column, k, rank_m, barrier, same_columns,
                                                                      policy);
#endif
                }
            }
            // Nobody may signal a block that has left: wait until all that was sent has been released, wherever it went.
            for (u32 i = 0; CLUSTER > 1 && i < STAGES; ++i, slot.advance()) mbarrier_wait(empty + 8 * slot.index, slot.parity ^ 1);
        }
    } else {  // ---- consumers
        if (CONSUMERS == 2) registers_up<CONSUMER_REGISTERS>();
        const u32 consumer = role - 1, thread = threadIdx.x % 128;
        // A slot is released in every block that writes into it: one thread of the warpgroup for each.
        const u32 mine = warp % 4;
        const bool releases = thread % 32 == 0 && mine < RELEASES;
        const u32 other = mine - CLUSTER_M + (mine + 1 > CLUSTER_M + rank_n);  // of the blocks with the same rows
        const u32 owner = mine >= RELEASES ? rank : mine < CLUSTER_M ? mine + CLUSTER_M * rank_n : rank_m + CLUSTER_M * other;
        const u32 told = CLUSTER > 1 ? address_in_block(empty, owner) : empty;
        auto release = [&](u32 slot) {
            if (CLUSTER > 1) mbarrier_arrive_remote(told + 8 * slot, releases);
            else mbarrier_arrive(told + 8 * slot, releases);
        };
        const u32 low_a = descriptor_low(A_MN_MAJOR) + address_field(slots + consumer * PANEL);
        const u32 low_b = descriptor_low(B_MN_MAJOR) + address_field(slots + A_BYTES);
        accumulator_t d[BLOCK_N / 2];
        Slot slot;
        auto multiply = [&](bool adds) {  // starts one slot's multiplications
            mbarrier_wait(full + 8 * slot.index, slot.parity);
            wgmma_fence();
            const u32 a = low_a + slot.index * (SLOT >> 4), b = low_b + slot.index * (SLOT >> 4);
#pragma unroll
            for (u32 j = 0; j < 4; ++j) {
                wgmma(d, descriptor_of(a + j * descriptor_step(A_MN_MAJOR), A_MN_MAJOR), descriptor_of(b + j * descriptor_step(B_MN_MAJOR), B_MN_MAJOR),
                      adds || j > 0);
            }
            wgmma_commit();
        };
        u32 ahead = consumer == 0 ? STAGGER : 0;  // slots that the leader still begins before the follower is let go
        auto let_go = [&] {
            if (STAGGER > 0 && ahead > 0 && --ahead == 0) named_arrive(STAGGER_BARRIER, 256);
        };
        if (STAGGER > 0 && consumer == 1) named_sync(STAGGER_BARRIER, 256);

#if STORE_TMA
        Staging staging{panels + consumer * PANELS * PANEL, 1 + consumer};
#endif
#if DEFER
        held_t held[HELD];
        s32 held_m = -1, held_n = 0;  // no tile yet
        auto store_held = [&](u32 round) {
            if (held_m >= 0) staging.store_held(round, &map_d, problem, held_m, held_n, held);
        };
#endif

        for (u32 index = first; index < tiles; index += stride) {
#if PROMOTE
            const Tile corner = corner_at(index);
            accumulator_t result[BLOCK_N / 2] = {};
#pragma unroll 1
            for (u32 step = 0; step < steps; ++step) {
                multiply(step % PROMOTE != 0);
                let_go();
                wgmma_wait<0>();
                release(slot.index);
                slot.advance();
                if (step % PROMOTE == PROMOTE - 1 || step == steps - 1) {
                    keep(d);
#pragma unroll
                    for (u32 i = 0; i < BLOCK_N / 2; ++i) result[i] += d[i];
                }
            }
#else
            multiply(false);
            let_go();
            const Tile corner = corner_at(index);  // divisions: under the multiplication
            u32 previous = slot.index;
            slot.advance();
            auto multiply_next = [&] {
                multiply(true);
                wgmma_wait<1>();  // the slot before this one has been read
                release(previous);
                let_go();
                previous = slot.index;
                slot.advance();
            };
            u32 step = 1;
#if DEFER
            // The tile before this one leaves under the first multiplications of this.
            store_held(0);
#pragma unroll
            for (u32 round = 1; round < HELD_ROUNDS; ++round) {
                if (step < steps) {
                    multiply_next();
                    ++step;
                }
                store_held(round);
            }
#endif
#pragma unroll 1
            for (; step < steps; ++step) multiply_next();
            wgmma_wait<0>();
            release(previous);
            keep(d);
            auto& result = d;
#endif
            const s32 m = corner.row + 64 * s32(consumer), n = corner.column;
#if STORE_TMA && !DEFER
            held_t held[HELD];
#endif
#if STORE_TMA
            staging.store_at_once(&map_d, problem, m, n, result);
            hold(held, result, problem, m, n);
#endif
#if DEFER
            held_m = m;
            held_n = n;
#pragma unroll
            for (u32 i = 0; i < BLOCK_N / 2; ++i) d[i] = 0;  // what is held is not the accumulator any more
#elif STORE_TMA
#pragma unroll
            for (u32 round = 0; round < HELD_ROUNDS; ++round) staging.store_held(round, &map_d, problem, m, n, held);
#else
            store_accumulator(problem, m, n, result);
#endif
        }
        if (STAGGER > 0 && ahead > 0) named_arrive(STAGGER_BARRIER, 256);  // there was less to do than that
#if DEFER
        if (HELD_ROUNDS > 1 && HELD_PANELS <= STAGES) {
            // Nothing is loaded any more: in each slot, the rows of A that only this warpgroup has read are free.
            staging.store_all_held(slots + consumer * PANEL, SLOT, &map_d, problem, held_m, held_n, held);
        } else {
#pragma unroll
            for (u32 round = 0; round < HELD_ROUNDS; ++round) store_held(round);
        }
#endif
        if (STORE_TMA && thread == 0) tma_store_wait_read<0>();
    }
}
