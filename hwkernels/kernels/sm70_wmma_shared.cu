// sm70_wmma_shared: wmma with tiles in shared memory. 8 warps compute 128 x 128, 64 x 32 each; every byte that is loaded is
// used 128 times.
//
// From sm_80 on, cp.async fills a ring of three slots; before, registers carry the next slot while the present one is used.
// Rows of 64 bytes of K lie 80 bytes apart (MN-major: 256 bytes, 272 apart): 8 rows then fall into different banks.
#include "ptx.cuh"
#include "multiply.cuh"  // load_a_shared, load_b_shared, mma, store_d_shared of 16 x 16 x 16; accumulator_t
#include "epilogue.cuh"
#include "panel.cuh"
#include "tiles.cuh"
#include "warp.cuh"

constexpr u32 THREADS = 256, BLOCK_K = 32;
constexpr u32 A_PITCH = A_MN_MAJOR ? 272 : 80, B_PITCH = B_MN_MAJOR ? 272 : 80;
constexpr u32 A_BYTES = A_MN_MAJOR ? BLOCK_K * 272 : 128 * 80, B_BYTES = B_MN_MAJOR ? BLOCK_K * 272 : 128 * 80;
constexpr u32 SLOT = A_BYTES + B_BYTES;
constexpr u32 CHUNKS = 128 * BLOCK_K * 2 / 16 / THREADS;  // of an operand, per thread
constexpr bool ASYNC = __CUDA_ARCH__ >= 800;
constexpr u32 SLOTS = ASYNC ? 3 : 2;
constexpr u32 STAGED = 16 * 20 * 4;  // bytes of one output tile of a warp, rows 20 elements apart
static_assert(SLOTS * SLOT >= 8 * STAGED, "the outputs reuse the ring");

// Where chunk i of this thread's part of an operand comes from, how much of it exists, and where it goes.
struct Chunk {
    const u8* from;
    u32 valid, to;
};

template <bool MN_MAJOR>
__device__ __forceinline__ Chunk chunk_of(u32 i, const void* matrix, s64 leading, s32 start, s32 k, s32 extent, s32 depth) {
    constexpr u32 PER_ROW = MN_MAJOR ? 16 : 4, PITCH = MN_MAJOR ? 272 : 80;
    const u32 index = threadIdx.x + i * THREADS, row = index / PER_ROW, chunk = index % PER_ROW;
    const s64 y = (MN_MAJOR ? k : start) + s32(row), x = (MN_MAJOR ? start : k) * s64(2) + 16 * chunk;
    const u32 valid = y < (MN_MAJOR ? depth : extent) ? valid_bytes((MN_MAJOR ? extent : depth) * s64(2) - x) : 0;
    return Chunk{static_cast<const u8*>(matrix) + (valid ? y * leading * 2 + x : 0), valid, row * PITCH + 16 * chunk};
}

// All chunks of this thread where there is no edge, slot after slot.
template <bool MN_MAJOR>
struct WholeChunks {
    static constexpr u32 PER_ROW = MN_MAJOR ? 16 : 4, PITCH = MN_MAJOR ? 272 : 80, ROWS = THREADS / PER_ROW;
    const u8* from;
    s64 pitch;

    __device__ __forceinline__ WholeChunks(const void* matrix, s64 leading, s32 start) : pitch(leading * 2) {
        const u32 row = threadIdx.x / PER_ROW, chunk = threadIdx.x % PER_ROW;
        from = static_cast<const u8*>(matrix) + ((MN_MAJOR ? 0 : start) + s32(row)) * pitch + (MN_MAJOR ? start : 0) * s64(2) + 16 * chunk;
    }
    __device__ __forceinline__ void copy(u32 to) {
        to += threadIdx.x / PER_ROW * PITCH + 16 * (threadIdx.x % PER_ROW);
#pragma unroll
        for (u32 i = 0; i < CHUNKS; ++i) async_copy(to + i * ROWS * PITCH, from + i * ROWS * pitch);
        from += MN_MAJOR ? BLOCK_K * pitch : 2 * BLOCK_K;
    }
};

extern "C" __global__ void __launch_bounds__(THREADS) gemm(const __grid_constant__ Problem problem) {
    extern __shared__ u8 dynamic[];  // aligned to 16 bytes at least; wmma.load wants 32
    u8* const slots = dynamic + (32 - shared_address(dynamic) % 32) % 32;
    const Tile tile = tile_at(blockIdx.y * gridDim.x + blockIdx.x, gridDim.y, gridDim.x, problem.group);
    const s32 m = tile.row * 128, n = tile.column * 128, steps = (problem.k + BLOCK_K - 1) / BLOCK_K;
    const u32 warp = threadIdx.x / 32, lane = threadIdx.x % 32, warp_m = warp % 2 * 64, warp_n = warp / 2 * 32;

    const bool whole = m + 128 <= problem.m && n + 128 <= problem.n && problem.k % BLOCK_K == 0;
    WholeChunks<A_MN_MAJOR> whole_a(problem.a, problem.lda, m);
    WholeChunks<B_MN_MAJOR> whole_b(problem.b, problem.ldb, n);
    uint4 held[2 * CHUNKS];  // before sm_80: the next slot
    auto fetch = [&](s32 step) {
        u8* const slot = slots + step % SLOTS * SLOT;
        if (ASYNC && whole && step < steps) {
            const u32 to = shared_address(slot);
            whole_a.copy(to);
            whole_b.copy(to + A_BYTES);
        } else if (step < steps) {
#pragma unroll
            for (u32 i = 0; i < 2 * CHUNKS; ++i) {
                const bool first = i < CHUNKS;
                const Chunk chunk = first ? chunk_of<A_MN_MAJOR>(i, problem.a, problem.lda, m, step * BLOCK_K, problem.m, problem.k)
                                          : chunk_of<B_MN_MAJOR>(i - CHUNKS, problem.b, problem.ldb, n, step * BLOCK_K, problem.n, problem.k);
                if (ASYNC) async_copy(shared_address(slot + (first ? 0 : A_BYTES) + chunk.to), chunk.from, chunk.valid);
                else held[i] = load_chunk(chunk.from, chunk.valid);
            }
        }
        if (ASYNC) async_copy_commit();
    };
    auto put = [&](s32 step) {
        if (ASYNC || step >= steps) return;
        u8* const slot = slots + step % SLOTS * SLOT;
#pragma unroll
        for (u32 i = 0; i < 2 * CHUNKS; ++i) {
            const u32 index = threadIdx.x + i % CHUNKS * THREADS;
            const bool first = i < CHUNKS;
            const u32 per_row = (first ? A_MN_MAJOR : B_MN_MAJOR) ? 16 : 4, pitch = first ? A_PITCH : B_PITCH;
            *reinterpret_cast<uint4*>(slot + (first ? 0 : A_BYTES) + index / per_row * pitch + index % per_row * 16) = held[i];
        }
    };

    accumulator_t d[4][2][8] = {};
    for (u32 step = 0; step < SLOTS - 1; ++step) {
        fetch(step);
        put(step);
    }
    for (s32 step = 0; step < steps; ++step) {
        if (ASYNC) async_copy_wait<1>();  // this slot has come, for this thread
        __syncthreads();                  // for all; and nobody reads the slot before it
        fetch(step + SLOTS - 1);
        const u32 a = shared_address(slots) + step % SLOTS * SLOT, b = a + A_BYTES;
#pragma unroll
        for (u32 k = 0; k < BLOCK_K; k += 16) {
            u32 left[4][FRAGMENT], right[2][FRAGMENT];
#pragma unroll
            for (u32 i = 0; i < 4; ++i) {
                const u32 row = warp_m + 16 * i;
                load_a_shared(left[i], a + (A_MN_MAJOR ? k * A_PITCH + 2 * row : row * A_PITCH + 2 * k), A_PITCH / 2);
            }
#pragma unroll
            for (u32 i = 0; i < 2; ++i) {
                const u32 column = warp_n + 16 * i;
                load_b_shared(right[i], b + (B_MN_MAJOR ? k * B_PITCH + 2 * column : column * B_PITCH + 2 * k), B_PITCH / 2);
            }
#pragma unroll
            for (u32 y = 0; y < 4; ++y) {
#pragma unroll
                for (u32 x = 0; x < 2; ++x) mma(d[y][x], left[y], right[x]);
            }
        }
        put(step + SLOTS - 1);
    }
    __syncthreads();  // the ring is free: each warp stages its outputs in it
    accumulator_t* const staged = reinterpret_cast<accumulator_t*>(slots + warp * STAGED);
#pragma unroll
    for (u32 y = 0; y < 4; ++y) {
#pragma unroll
        for (u32 x = 0; x < 2; ++x) {
            store_d_shared(shared_address(staged), d[y][x], 20);
            __syncwarp();
#pragma unroll
            for (u32 i = 2 * lane; i < 256; i += 64) {
                const u32 at = i / 16 * 20 + i % 16;
                store_pair(problem, m + warp_m + 16 * y + i / 16, n + warp_n + 16 * x + i % 16, staged[at], staged[at + 1]);
            }
            __syncwarp();
        }
    }
}
