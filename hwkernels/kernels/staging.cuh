// From accumulators to panels of 64 rows x 128 bytes in shared memory, from where TMA stores take them away.
#pragma once
#include "epilogue.cuh"

constexpr u32 STORE_COLUMNS = SPAN / sizeof(output_t);  // of a panel

#if STORE_TMA
// Rows of a warp's 64 x STORE_COLUMNS part of the accumulator into a swizzled panel.
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
#endif
