// A warp's part of the output to global memory in chunks of 16 bytes, turned from fragments of mma.sync in shared memory.
#pragma once
#include "epilogue.cuh"

// Elements of an output chunk.
constexpr u32 CHUNK = 16 / sizeof(output_t);

// Shared bytes that ROWS x COLUMNS outputs take. Rows are padded, so that the 8 rows of a fragment lie in different banks.
template <u32 COLUMNS>
constexpr u32 PADDED_ROW = (COLUMNS + 8) * sizeof(output_t);

// One chunk; what lies outside is dropped.
__device__ __forceinline__ void store_chunk(const Problem& problem, s32 row, s32 column, const output_t* from) {
    if (row >= problem.m || column >= problem.n) return;
    output_t* place = static_cast<output_t*>(problem.d) + row * problem.ldd + column;
    if (column + s32(CHUNK) <= problem.n && (reinterpret_cast<u64>(place) & 15) == 0) {
        *reinterpret_cast<uint4*>(place) = *reinterpret_cast<const uint4*>(from);
    } else {
        for (u32 i = 0; i < CHUNK; ++i) {
            if (column + s32(i) < problem.n) place[i] = from[i];
        }
    }
}

// Tiles of 16 x 8 as mma leaves them: a lane has two neighbours of row lane / 4, and two of the row 8 below. room: shared
// memory of this warp alone, 16 TILES_M rows of PADDED_ROW bytes.
template <u32 TILES_M, u32 TILES_N, typename T>
__device__ __forceinline__ void store_warp_tile(u8* room, const Problem& problem, s32 row, s32 column, const T (&d)[TILES_M][TILES_N][4]) {
    constexpr u32 PITCH = PADDED_ROW<8 * TILES_N>, CHUNKS = 8 * TILES_N / CHUNK;
    const u32 lane = threadIdx.x % 32;
#pragma unroll
    for (u32 y = 0; y < TILES_M; ++y) {
#pragma unroll
        for (u32 x = 0; x < TILES_N; ++x) {
#pragma unroll
            for (u32 half = 0; half < 2; ++half) {
                const u32 r = 16 * y + lane / 4 + 8 * half, c = 8 * x + 2 * (lane % 4);
                const scale_t low = scaled(d[y][x][2 * half], problem, row + r, column + c);
                const scale_t high = scaled(d[y][x][2 * half + 1], problem, row + r, column + c + 1);
                u8* const to = room + r * PITCH + c * sizeof(output_t);
#if defined(OUT_F16) || defined(OUT_BF16)
                *reinterpret_cast<u32*>(to) = packed(low, high);
#else
                struct alignas(8) Pair { scale_t low, high; };
                *reinterpret_cast<Pair*>(to) = Pair{low, high};
#endif
            }
        }
    }
    __syncwarp();
#pragma unroll 4
    for (u32 i = lane; i < 16 * TILES_M * CHUNKS; i += 32) {
        const u32 r = i / CHUNKS, chunk = i % CHUNKS;
        store_chunk(problem, row + r, column + chunk * CHUNK, reinterpret_cast<const output_t*>(room + r * PITCH + 16 * chunk));
    }
}
