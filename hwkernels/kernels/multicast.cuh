// What one block of a cluster loads of an operand's tile: its part, to itself or to every block that needs it.
#pragma once
#include "ptx.cuh"

// Part `part` of PARTS of a tile of EXTENT rows or columns that starts at `start`, 128 bytes of K from element k on.
// K-major: one box, as the tensor map has it. MN-major: whole panels of 64. With PARTS > 1 it goes to all of `blocks`.
template <u32 EXTENT, u32 PARTS, bool MN_MAJOR, bool HINTED>
__device__ __forceinline__ void load_part(u32 to, const TensorMap* map, s32 start, s32 k, u32 part, u32 barrier, u16 blocks, u64 policy) {
    constexpr u32 BOXES = MN_MAJOR ? EXTENT / 64 / PARTS : 1, ROWS = MN_MAJOR ? 64 : EXTENT / PARTS;
#pragma unroll
    for (u32 i = 0; i < BOXES; ++i) {
        const u32 first = ROWS * (part * BOXES + i), at = to + first * SPAN;
        const s32 x = MN_MAJOR ? start + s32(first) : k, y = MN_MAJOR ? k : start + s32(first);
        if (PARTS > 1 && HINTED) tma_load_multicast(at, map, x, y, barrier, blocks, policy);
        else if (PARTS > 1) tma_load_multicast(at, map, x, y, barrier, blocks);
        else if (HINTED) tma_load(at, map, x, y, barrier, policy);
        else tma_load(at, map, x, y, barrier);
    }
}

// The same part into L2.
template <u32 EXTENT, u32 PARTS, bool MN_MAJOR>
__device__ __forceinline__ void prefetch_part(const TensorMap* map, s32 start, s32 k, u32 part) {
    constexpr u32 BOXES = MN_MAJOR ? EXTENT / 64 / PARTS : 1, ROWS = MN_MAJOR ? 64 : EXTENT / PARTS;
#pragma unroll
    for (u32 i = 0; i < BOXES; ++i) {
        const s32 first = start + s32(ROWS * (part * BOXES + i));
        tma_prefetch(map, MN_MAJOR ? first : k, MN_MAJOR ? k : first);
    }
}
