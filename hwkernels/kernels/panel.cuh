// Panels of 64 rows x 128 bytes in shared memory, filled by ordinary loads and stores. For the kernels without TMA.
#pragma once
#include "ptx.cuh"

// 16 bytes from global memory, of which `valid` exist; the others are zeros. Whatever the alignment.
__device__ __forceinline__ uint4 load_chunk(const u8* from, s64 valid) {
    if (valid >= 16 && (reinterpret_cast<u64>(from) & 15) == 0) return *reinterpret_cast<const uint4*>(from);
    u32 words[4] = {};
#pragma unroll
    for (int i = 0; i < 16; ++i) {
        if (i < valid) words[i / 4] |= static_cast<u32>(from[i]) << (8 * (i % 4));
    }
    return make_uint4(words[0], words[1], words[2], words[3]);
}

// ROWS rows of 128 bytes from a matrix whose rows lie `pitch` bytes apart; `rows` x `bytes` of it exist.
template <u32 ROWS, u32 THREADS>
__device__ __forceinline__ void fill_panel(u8* panel, const u8* from, s64 pitch, s64 rows, s64 bytes) {
#pragma unroll
    for (u32 i = threadIdx.x; i < ROWS * 8; i += THREADS) {
        const u32 row = i / 8, chunk = i % 8;
        const s64 valid = row < rows ? bytes - 16 * s64(chunk) : 0;
        *reinterpret_cast<uint4*>(panel + swizzled(row, chunk)) = load_chunk(from + row * pitch + 16 * chunk, valid);
    }
}

// An operand's part of a slot: `EXTENT` rows or columns of the output, from `start`, and 128 bytes of K from element `k`.
// K-major: rows of K. MN-major: for each 64 of M or N, 64 rows of one k each.
template <u32 EXTENT, u32 THREADS, bool MN_MAJOR>
__device__ __forceinline__ void fill_operand(u8* tile, const void* matrix, s64 leading, s32 start, s32 k, s32 extent, s32 depth) {
    const u8* base = static_cast<const u8*>(matrix);
    if (MN_MAJOR) {
#pragma unroll
        for (u32 panel = 0; panel < EXTENT / 64; ++panel) {
            const s32 first = start + 64 * panel;
            fill_panel<64, THREADS>(tile + panel * PANEL, base + (k * leading + first) * ELEMENT_BYTES, leading * ELEMENT_BYTES, depth - k,
                                    s64(extent - first) * ELEMENT_BYTES);
        }
    } else {
        fill_panel<EXTENT, THREADS>(tile, base + (start * leading + k) * ELEMENT_BYTES, leading * ELEMENT_BYTES, extent - start,
                                    s64(depth - k) * ELEMENT_BYTES);
    }
}
