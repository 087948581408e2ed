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

// Rows of a warp's 64 x STORE_COLUMNS part of the accumulator into a panel.
__device__ __forceinline__ void stage_panel(u32 panel, const scale_t* d, const Problem& problem, s32 row, s32 column) {
    const u32 lane = lane_id(), warp = threadIdx.x / 32 % 4;
    row += 16 * warp + lane / 4;
    column += 2 * (lane % 4);
#if defined(OUT_F16) || defined(OUT_BF16)
    const u32 to = 16 * warp + lane % 16;  // stmatrix: lanes 0-15 give rows of columns 0-7, lanes 16-31 of columns 8-15
#pragma unroll
    for (u32 g = 0; g < STORE_COLUMNS / 16; ++g) {
        u32 pair[4];
#pragma unroll
        for (u32 i = 0; i < 4; ++i) {
            const s32 r = row + 8 * (i % 2), c = column + 16 * g + 8 * (i / 2);
            pair[i] = packed(scaled(d[8 * g + 2 * i], problem, r, c), scaled(d[8 * g + 2 * i + 1], problem, r, c + 1));
        }
        stmatrix(panel + swizzled(to, 2 * g + lane / 16), pair);
    }
#else
#pragma unroll
    for (u32 i = 0; i < STORE_COLUMNS / 2; i += 2) {
        const u32 half = i / 2 % 2, to = 16 * warp + lane / 4 + 8 * half;
        const s32 r = row + 8 * half, c = column + 8 * (i / 4);
        store_shared_pair(panel + swizzled(to, 2 * (i / 4) + lane % 4 / 2) + lane % 2 * 8, scaled(d[i], problem, r, c),
                          scaled(d[i + 1], problem, r, c + 1));
    }
#endif
}

// The whole tile. `room`: PANELS panels of this warpgroup; `turn`: where the next round goes, kept from tile to tile.
// barrier: a named barrier for its 128 threads, of which the first asks for the stores.
__device__ __forceinline__ void store_staged(u32 room, u32& turn, u32 barrier, const TensorMap* map, const Problem& problem, s32 m, s32 n,
                                             const scale_t* result) {
    const bool asks = threadIdx.x % 128 == 0;
#pragma unroll
    for (u32 first = 0; first < STORES; first += ROUND) {
        const u32 panels = room + turn * ROUND * PANEL;
        if (asks) tma_store_wait_read<ROUNDS_UNDER_WAY - 1>();  // what lay in these panels has left
        named_sync(barrier, 128);
#pragma unroll
        for (u32 i = 0; i < ROUND; ++i) {
            stage_panel(panels + i * PANEL, result + (first + i) * STORE_COLUMNS / 2, problem, m, n + (first + i) * STORE_COLUMNS);
        }
        async_proxy_fence();  // by every thread that wrote, before the barrier
        named_sync(barrier, 128);
        if (asks) {
#pragma unroll
            for (u32 i = 0; i < ROUND; ++i) tma_store(map, n + (first + i) * STORE_COLUMNS, m, panels + i * PANEL);
            tma_store_commit();
        }
        if (ROUNDS_UNDER_WAY > 1 && ++turn == ROUNDS_UNDER_WAY) turn = 0;
    }
}
