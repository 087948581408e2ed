// sm100_tcgen05_persistent: pairs of blocks that stay, and three kinds of warps that overlap loading, multiplying, storing.
//
// Each pair takes tile after tile of 256 x BLOCK_N. Tensor Memory holds two accumulators, so that the next tile is
// multiplied while the last one is stored. Warps 0-3 of both blocks store; warp 4 of both loads; warp 5 of the leader (the
// block of even rank) multiplies. Barriers, besides those of sm100_tcgen05_2cta:
//     ready[buffer], in each:         a tile is accumulated.    One commit of the leader arrives at both.
//     freed[buffer], the leader's:    a tile has been read.     Eight warps arrive: four of each block.
#include "tcgen05.cuh"
#include "multiply.cuh"  // tcgen05_mma, the descriptors and their steps along K, written by the host
#include "tmem_rows.cuh"

constexpr u32 THREADS = 192, STORING_WARPS = 4, LOADING_WARP = 4, MULTIPLYING_WARP = 5;
constexpr u32 BLOCK_K = SPAN / ELEMENT_BYTES;
constexpr u32 HALF_N = BLOCK_N / 2;  // columns of B that a block loads
constexpr u32 A_BYTES = BLOCK_M * SPAN, B_BYTES = HALF_N * SPAN, SLOT = A_BYTES + B_BYTES;
constexpr u32 BUFFERS = 2;
constexpr u16 BOTH = 3;  // blocks 0 and 1 of the cluster
static_assert(BLOCK_M == 128, "rows of one of the two blocks: a row for each lane of Tensor Memory");
static_assert(TMEM_COLUMNS >= BUFFERS * BLOCK_N, "a column of Tensor Memory for each column of both accumulators");

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

// A place in a ring, and the parity of the phase that is waited for there.
struct Cursor {
    u32 place, parity;
    template <u32 COUNT>
    __device__ __forceinline__ void advance() {
        if (++place == COUNT) place = 0, parity ^= 1;
    }
};

// Where tiles lie. Groups of `group` rows of tiles, in a group column after column (gemm_tiles.tile_at).
struct Tiles {
    u32 rows, columns, group;
    __device__ __forceinline__ void at(u32 tile, u32& row, u32& column) const {
        const u32 first = tile / (group * columns) * group, within = tile % (group * columns);
        const u32 height = min(group, rows - first);
        row = first + within % height;
        column = within / height;
    }
};

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    gemm(const __grid_constant__ TensorMap map_a, const __grid_constant__ TensorMap map_b,
         const __grid_constant__ TensorMap, const __grid_constant__ Problem problem) {
    extern __shared__ u8 dynamic[];
    const u32 slots = (shared_address(dynamic) + CORE - 1) & ~(CORE - 1);  // the same offset in both blocks
    const u32 full = slots + STAGES * SLOT, empty = full + 8 * STAGES;
    const u32 ready = empty + 8 * STAGES, freed = ready + 8 * BUFFERS, place = freed + 8 * BUFFERS;
    const u32 rank = cluster_rank(), warp = uniform_warp();
    const u32 pair = blockIdx.x / 2, pairs = gridDim.x / 2;
    const u32 steps = (problem.k + BLOCK_K - 1) / BLOCK_K;
    const Tiles tiles = {(problem.m + 2 * BLOCK_M - 1u) / (2 * BLOCK_M), (problem.n + BLOCK_N - 1u) / BLOCK_N, u32(problem.group)};
    const u32 count = tiles.rows * tiles.columns;

    if (threadIdx.x == 0) {
        for (u32 slot = 0; slot < STAGES; ++slot) {
            mbarrier_init(full + 8 * slot, 1);
            mbarrier_init(empty + 8 * slot, 1);
        }
        for (u32 buffer = 0; buffer < BUFFERS; ++buffer) {
            mbarrier_init(ready + 8 * buffer, 1);
            mbarrier_init(freed + 8 * buffer, 2 * STORING_WARPS);
        }
        mbarrier_init_fence();
        tma_prefetch_map(&map_a);
        tma_prefetch_map(&map_b);
    }
    __syncwarp();
    if (warp == MULTIPLYING_WARP) tmem_allocate<2>(place, TMEM_COLUMNS);  // one warp of each block, together
    tcgen05_before_sync();
    cluster_sync();  // the barriers and the allocations of both exist
    tcgen05_after_sync();
    const u32 accumulators = load_shared(place);

    if (warp == LOADING_WARP && elect_one()) {
        const u32 leaders = address_in(full, 0);
        Cursor slot = {0, 1};  // the phase before the first: a new barrier counts as past it
        for (u32 tile = pair; tile < count; tile += pairs) {
            u32 row, column;
            tiles.at(tile, row, column);
            const s32 m = (2 * row + rank) * BLOCK_M, n = column * BLOCK_N + rank * HALF_N;
            for (u32 step = 0; step < steps; ++step) {
                mbarrier_wait_cluster(empty + 8 * slot.place, slot.parity);
                if (rank == 0) mbarrier_expect(full + 8 * slot.place, 2 * SLOT);  // of both blocks
                const u32 to = slots + slot.place * SLOT, barrier = leaders + 8 * slot.place;
                load_operand<BLOCK_M, A_MN_MAJOR>(to, &map_a, m, step * BLOCK_K, barrier);
                load_operand<HALF_N, B_MN_MAJOR>(to + A_BYTES, &map_b, n, step * BLOCK_K, barrier);
                slot.advance<STAGES>();
            }
        }
    } else if (rank == 0 && warp == MULTIPLYING_WARP && elect_one()) {
        Cursor slot = {0, 0}, buffer = {0, 1};
        u32 left = (count - pair + pairs - 1) / pairs * steps;  // slots that are still to be multiplied
        for (u32 tile = pair; tile < count; tile += pairs) {
            mbarrier_wait_cluster(freed + 8 * buffer.place, buffer.parity);
            tcgen05_after_sync();
            const u32 accumulator = accumulators + buffer.place * BLOCK_N;
            for (u32 step = 0; step < steps; ++step, --left) {
                mbarrier_wait_cluster(full + 8 * slot.place, slot.parity);
                tcgen05_after_sync();
                const u64 at = address_field(slots + slot.place * SLOT);
#pragma unroll
                for (u32 j = 0; j < K_STEPS; ++j) {
                    tcgen05_mma(accumulator, DESCRIPTOR_A + at + ADVANCE_A[j], DESCRIPTOR_B + at + ADVANCE_B[j],
                                INSTRUCTION_DESCRIPTOR[j], step > 0 || j > 0);
                }
                if (left > STAGES) tcgen05_commit_pair(empty + 8 * slot.place, BOTH);  // later slots are not filled again
                slot.advance<STAGES>();
            }
            tcgen05_commit_pair(ready + 8 * buffer.place, BOTH);
            buffer.advance<BUFFERS>();
        }
    } else if (warp < STORING_WARPS) {
        const u32 leaders = address_in(freed, 0);
        Cursor buffer = {0, 0};
        for (u32 tile = pair; tile < count; tile += pairs) {
            u32 row, column;
            tiles.at(tile, row, column);
            mbarrier_wait_cluster(ready + 8 * buffer.place, buffer.parity);
            tcgen05_after_sync();
            __syncwarp();
            store_tmem_rows(problem, accumulators + buffer.place * BLOCK_N, (2 * row + rank) * BLOCK_M, column * BLOCK_N);
            tcgen05_before_sync();
            __syncwarp();  // the whole warp has read
            if (elect_one()) mbarrier_arrive_cluster(leaders + 8 * buffer.place);
            buffer.advance<BUFFERS>();
        }
    }
    __syncwarp();
    tcgen05_before_sync();
    cluster_sync();  // both blocks have read Tensor Memory, and nobody reads or signals the other's shared memory any more
    tcgen05_after_sync();
    if (warp == MULTIPLYING_WARP) tmem_free<2>(accumulators, TMEM_COLUMNS);
}
