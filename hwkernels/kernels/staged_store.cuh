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

// What is held of a tile to be stored later takes at most 64 registers: all of it as 16 bits, else the last four panels.
// The rounds before are stored at once.
constexpr u32 HELD_PANELS = sizeof(output_t) == 2 || STORES < 4 ? STORES : 4;
constexpr u32 HELD_OF_PANEL = SPAN / 8, HELD = HELD_PANELS * HELD_OF_PANEL;  // registers of a thread
constexpr u32 HELD_ROUNDS = HELD_PANELS / ROUND, AT_ONCE = ROUNDS - HELD_ROUNDS;
static_assert(HELD_PANELS % ROUND == 0, "whole rounds are held");

#if defined(OUT_F16) || defined(OUT_BF16)
using held_t = u32;  // two outputs that lie side by side

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
#ifdef OUT_S32
__device__ __forceinline__ u32 bits_of(s32 value) { return static_cast<u32>(value); }
__device__ __forceinline__ s32 from_bits(u32 bits) { return static_cast<s32>(bits); }
#else
__device__ __forceinline__ u32 bits_of(float value) { return __float_as_uint(value); }
__device__ __forceinline__ float from_bits(u32 bits) { return __uint_as_float(bits); }
#endif
using held_t = scale_t;

// Copies that the compiler cannot take for the accumulator itself (it would wait for the next tile's multiplications before
// it reads them): by an exclusive or with a zero that it does not know.
__device__ __forceinline__ void hold(held_t (&held)[HELD], const scale_t* d, const Problem& problem, s32, s32) {
    const u32 zero = static_cast<u32>(problem.k) >> 31;
#pragma unroll
    for (u32 i = 0; i < HELD; ++i) held[i] = from_bits(bits_of(d[AT_ONCE * ROUND * HELD_OF_PANEL + i]) ^ zero);
}

__device__ __forceinline__ void stage_panel(u32 panel, const held_t* d, const Problem& problem, s32 row, s32 column) {
    const u32 lane = lane_id(), warp = threadIdx.x / 32 % 4;
    row += 16 * warp + lane / 4;
    column += 2 * (lane % 4);
    // Lanes of odd rows take their columns in another order: four rows then lie in different banks.
    const bool odd = lane / 4 % 2;
#pragma unroll
    for (u32 i = 0; i < HELD_OF_PANEL; i += 2) {
        const u32 half = i / 2 % 2, to = 16 * warp + lane / 4 + 8 * half, group = i / 4 ^ (odd ? 2 : 0);
        const held_t low = odd ? d[i ^ 8] : d[i], high = odd ? d[(i ^ 8) + 1] : d[i + 1];
        const s32 r = row + 8 * half, c = column + 8 * group;
        store_shared_pair(panel + swizzled(to, 2 * group + lane % 4 / 2) + lane % 2 * 8, scaled(low, problem, r, c),
                          scaled(high, problem, r, c + 1));
    }
}
#endif

// Where a warpgroup stages its outputs.
struct Staging {
    u32 room, barrier;  // PANELS panels; a named barrier for 128 threads, of which the first asks for the stores
    u32 turn = 0;       // where the next round goes

    // Round `round` of a tile at m, n, whose registers begin at `part`.
    __device__ __forceinline__ void store_round(u32 round, const TensorMap* map, const Problem& problem, s32 m, s32 n, const held_t* part) {
        const bool asks = threadIdx.x % 128 == 0;
        const u32 panels = room + turn * ROUND * PANEL;
        if (asks) tma_store_wait_read<ROUNDS_UNDER_WAY - 1>();  // what lay in these panels has left
        named_sync(barrier, 128);
#pragma unroll
        for (u32 i = 0; i < ROUND; ++i) {
            stage_panel(panels + i * PANEL, part + i * HELD_OF_PANEL, problem, m, n + (round * ROUND + i) * STORE_COLUMNS);
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

    // What is stored before the rest is held.
    __device__ __forceinline__ void store_at_once(const TensorMap* map, const Problem& problem, s32 m, s32 n, const scale_t* d) {
#if defined(OUT_F32) || defined(OUT_S32)
#pragma unroll
        for (u32 round = 0; round < AT_ONCE; ++round) store_round(round, map, problem, m, n, d + round * ROUND * HELD_OF_PANEL);
#endif
    }

    // What is held, in one round, through other panels: the first at `first`, the next ones `pitch` bytes apart.
    __device__ __forceinline__ void store_all_held(u32 first, u32 pitch, const TensorMap* map, const Problem& problem, s32 m, s32 n,
                                                   const held_t* held) {
        named_sync(barrier, 128);  // all of the warpgroup have read what lies there
#pragma unroll
        for (u32 i = 0; i < HELD_PANELS; ++i) {
            stage_panel(first + i * pitch, held + i * HELD_OF_PANEL, problem, m, n + (AT_ONCE * ROUND + i) * STORE_COLUMNS);
        }
        async_proxy_fence();
        named_sync(barrier, 128);
        if (threadIdx.x % 128 == 0) {
#pragma unroll
            for (u32 i = 0; i < HELD_PANELS; ++i) tma_store(map, n + (AT_ONCE * ROUND + i) * STORE_COLUMNS, m, first + i * pitch);
            tma_store_commit();
        }
    }

    __device__ __forceinline__ void store_held(u32 round, const TensorMap* map, const Problem& problem, s32 m, s32 n, const held_t* held) {
        store_round(AT_ONCE + round, map, problem, m, n, held + round * ROUND * HELD_OF_PANEL);
    }
};
