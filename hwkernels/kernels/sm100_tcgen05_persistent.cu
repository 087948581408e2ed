// sm100_tcgen05_persistent: pairs of blocks that stay, and three kinds of warps that overlap loading, multiplying, storing.
//
// Each pair takes tile after tile of 256 x BLOCK_N. Tensor Memory holds two accumulators, so that the next tile is
// multiplied while the last one is stored. Warps 0-3 of both blocks store; warp 4 of both loads; warp 5 of the leader (the
// block of even rank) multiplies. Barriers, besides those of sm100_tcgen05_2cta:
//     ready[buffer], in each:         a tile is accumulated.    One commit of the leader arrives at both.
//     freed[buffer], the leader's:    a tile has been read.     Eight warps arrive: four of each block.
#include "multiply_slot.cuh"
#include "tiles.cuh"
#include "tma_pair.cuh"
#include "tmem_rows.cuh"

constexpr u32 THREADS = 192, STORING_WARPS = 4, LOADING_WARP = 4, MULTIPLYING_WARP = 5;
constexpr u32 BLOCK_K = SPAN / ELEMENT_BYTES;
constexpr u32 BUFFERS = 2;
static_assert(TMEM_COLUMNS >= BUFFERS * BLOCK_N, "a column of Tensor Memory for each column of both accumulators");

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    gemm(const __grid_constant__ TensorMap map_a, const __grid_constant__ TensorMap map_b,
         const __grid_constant__ TensorMap, const __grid_constant__ Problem problem) {
    extern __shared__ u8 dynamic[];
    const Ring ring = ring_in<SLOT>(dynamic);
    const u32 ready = ring.behind, freed = ready + 8 * BUFFERS, place = freed + 8 * BUFFERS;
    const u32 rank = cluster_rank(), warp = uniform_warp();
    const u32 pair = blockIdx.x / 2, pairs = gridDim.x / 2;
    const u32 steps = (problem.k + BLOCK_K - 1) / BLOCK_K;
    const u32 rows = (problem.m + 2 * BLOCK_M - 1) / (2 * BLOCK_M), columns = (problem.n + BLOCK_N - 1) / BLOCK_N;
    const u32 count = rows * columns;

    if (threadIdx.x == 0) {
        for (u32 buffer = 0; buffer < BUFFERS; ++buffer) {
            mbarrier_init(ready + 8 * buffer, 1);
            mbarrier_init(freed + 8 * buffer, 2 * STORING_WARPS);
        }
        ring_init(ring, &map_a, &map_b);
    }
    const u32 accumulators = open_tensor_memory<2>(place, warp == MULTIPLYING_WARP);

    if (warp == LOADING_WARP && elect_one()) {
        Cursor slot = {0, 1};
        for (u32 index = pair; index < count; index += pairs) {
            const Tile tile = tile_at(index, rows, columns, problem.group);
            const s32 m = (2 * tile.row + rank) * BLOCK_M, n = tile.column * BLOCK_N + rank * HALF_N;
            for (u32 step = 0; step < steps; ++step, slot.advance<STAGES>()) {
                mbarrier_wait_cluster(ring.empty + 8 * slot.place, slot.parity);
                tma_load_pair_slot(ring.slots + slot.place * SLOT, &map_a, &map_b, m, n, step * BLOCK_K, ring.full + 8 * slot.place,
                                   rank);
            }
        }
    } else if (rank == 0 && warp == MULTIPLYING_WARP && elect_one()) {
        Cursor slot = {0, 0}, buffer = {0, 1};
        u32 left = (count - pair + pairs - 1) / pairs * steps;  // slots that are still to be multiplied
        for (u32 index = pair; index < count; index += pairs) {
            mbarrier_wait_cluster(freed + 8 * buffer.place, buffer.parity);
            tcgen05_after_sync();
            const u32 accumulator = accumulators + buffer.place * BLOCK_N;
            for (u32 step = 0; step < steps; ++step, --left, slot.advance<STAGES>()) {
                mbarrier_wait_cluster(ring.full + 8 * slot.place, slot.parity);
                tcgen05_after_sync();
                multiply_slot(accumulator, ring.slots + slot.place * SLOT, step == 0);
                if (left > STAGES) tcgen05_commit_pair(ring.empty + 8 * slot.place, BOTH);  // later slots are not filled again
            }
            tcgen05_commit_pair(ready + 8 * buffer.place, BOTH);
            buffer.advance<BUFFERS>();
        }
    } else if (warp < STORING_WARPS) {
        const u32 leaders = address_in(freed, 0);
        Cursor buffer = {0, 0};
        for (u32 index = pair; index < count; index += pairs) {
            const Tile tile = tile_at(index, rows, columns, problem.group);
            mbarrier_wait_cluster(ready + 8 * buffer.place, buffer.parity);
            tcgen05_after_sync();
            store_tmem_rows(problem, accumulators + buffer.place * BLOCK_N, (2 * tile.row + rank) * BLOCK_M, tile.column * BLOCK_N);
            tcgen05_before_sync();
            __syncwarp();  // the whole warp has read
            if (elect_one()) mbarrier_arrive_cluster(leaders + 8 * buffer.place);
            buffer.advance<BUFFERS>();
        }
    }
    close_tensor_memory<2>(accumulators, warp == MULTIPLYING_WARP);
}
