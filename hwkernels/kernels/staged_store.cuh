// A warpgroup's accumulator to global memory through shared memory: swizzled panels of 64 rows x 128 bytes, stored by TMA.
#pragma once
#include "epilogue.cuh"

constexpr u32 STORE_COLUMNS = SPAN / sizeof(output_t);
constexpr u32 STORES = BLOCK_N / STORE_COLUMNS;  // panels of a tile
// Panels that are filled between two barriers. All of the tile where there is room for it, else one half of the room: it
// is filled while the other half leaves.
constexpr u32 ROUND = PANELS >= STORES ? STORES : PANELS / 2;
constexpr u32 ROUNDS_UNDER_WAY = PANELS / ROUND;
static_assert(STORES % ROUND == 0, "whole rounds");

constexpr u32 ROUNDS = STORES / ROUND;

#if defined(OUT_F16) || defined(OUT_BF16)
using held_t = u32;  // two outputs that lie side by side
constexpr u32 HELD = BLOCK_N / 4, HELD_OF_PANEL = STORE_COLUMNS / 4;

// The accumulator as outputs: half as many registers, and the accumulator is free.
__device__ __forceinline__ void hold(held_t (&held)[HELD], const scale_t* d, const Problem& problem, s32 row, s32 column) {
    const u32 lane = lane_id(), warp = threadIdx.x / 32 % 4;
    row += 16 * warp + lane / 4;
    column += 2 * (lane % 4);
#pragma unroll
    for (u32 i = 0; i < HELD; ++i) {
        const s32 r = row + 8 * (i % 2), c = column + 8 * (i / 2);
        held[i] = packed(scaled(d[2 * i], problem, r, c), scaled(d[2 * i + 1], problem, r, c + 1));
    }
}

// Rows of a warp's 64 x STORE_COLUMNS part into a panel.
__device__ __forceinline__ void stage_panel(u32 panel, const held_t* held, const Problem&, s32, s32) {
    const u32 lane = lane_id(), to = 16 * (threadIdx.x / 32 % 4) + lane % 16;
#pragma unroll
    for (u32 g = 0; g < STORE_COLUMNS / 16; ++g) {  // stmatrix: lanes 0-15 give rows of columns 0-7, lanes 16-31 of columns 8-15
        const u32 pair[4] = {held[4 * g], held[4 * g + 1], held[4 * g + 2], held[4 * g + 3]};
        stmatrix(panel + swizzled(to, 2 * g + lane / 16), pair);
    }
}
#else
using held_t = scale_t;  // the accumulator itself
constexpr u32 HELD = BLOCK_N / 2, HELD_OF_PANEL = STORE_COLUMNS / 2;

__device__ __forceinline__ void stage_panel(u32 panel, const held_t* d, const Problem& problem, s32 row, s32 column) {
    const u32 lane = lane_id(), warp = threadIdx.x / 32 % 4;
    row += 16 * warp + lane / 4;
    column += 2 * (lane % 4);
#pragma unroll
    for (u32 i = 0; i < HELD_OF_PANEL; i += 2) {
        const u32 half = i / 2 % 2, to = 16 * warp + lane / 4 + 8 * half;
        const s32 r = row + 8 * half, c = column + 8 * (i / 4);
        store_shared_pair(panel + swizzled(to, 2 * (i / 4) + lane % 4 / 2) + lane % 2 * 8, scaled(d[i], problem, r, c),
                          scaled(d[i + 1], problem, r, c + 1));
    }
}
#endif

// Where a warpgroup stages its outputs.
struct Staging {
    u32 room, barrier;  // PANELS panels; a named barrier for 128 threads, of which the first asks for the stores
    u32 turn = 0;       // where the next round goes

    // One round of a tile at m, n; `round` is known when this is compiled.
    __device__ __forceinline__ void store_round(u32 round, const TensorMap* map, const Problem& problem, s32 m, s32 n, const held_t* held) {
        const bool asks = threadIdx.x % 128 == 0;
        const u32 panels = room + turn * ROUND * PANEL;
        if (asks) tma_store_wait_read<ROUNDS_UNDER_WAY - 1>();  // what lay in these panels has left
        named_sync(barrier, 128);
#pragma unroll
        for (u32 i = 0; i < ROUND; ++i) {
            const u32 at = round * ROUND + i;
            stage_panel(panels + i * PANEL, held + at * HELD_OF_PANEL, problem, m, n + at * STORE_COLUMNS);
        }
        async_proxy_fence();  // by every thread that wrote, before the barrier
        named_sync(barrier, 128);
        if (asks) {
#pragma unroll
            for (u32 i = 0; i < ROUND; ++i) tma_store(map, n + (round * ROUND + i) * STORE_COLUMNS, m, panels + i * PANEL);
            tma_store_commit();
        }
        if (ROUNDS_UNDER_WAY > 1 && ++turn == ROUNDS_UNDER_WAY) turn = 0;
    }

    __device__ __forceinline__ void store(const TensorMap* map, const Problem& problem, s32 m, s32 n, const held_t* held) {
#pragma unroll
        for (u32 round = 0; round < ROUNDS; ++round) store_round(round, map, problem, m, n, held);
    }
};
