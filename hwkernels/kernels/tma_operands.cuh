// One slot of a ring, filled by TMA without multicast: BLOCK_M rows of A and BLOCK_N columns of B, 128 bytes of K each.
#pragma once
#include "ptx.cuh"

constexpr u32 A_BYTES = BLOCK_M * SPAN, B_BYTES = BLOCK_N * SPAN, SLOT = A_BYTES + B_BYTES;

// K-major: one box of 128 bytes of K and all rows. MN-major: boxes of 64 of M or N and 64 of K, a panel each.
template <u32 EXTENT, bool MN_MAJOR>
__device__ __forceinline__ void tma_load_operand(u32 to, const TensorMap* map, s32 start, s32 k, u32 barrier) {
    if (MN_MAJOR) {
#pragma unroll
        for (u32 panel = 0; panel < EXTENT / 64; ++panel) {
            tma_load(to + panel * PANEL, map, start + 64 * panel, k, barrier);
        }
    } else {
        tma_load(to, map, k, start, barrier);
    }
}

__device__ __forceinline__ void tma_load_slot(u32 slot, const TensorMap* map_a, const TensorMap* map_b, s32 m, s32 n, s32 k, u32 barrier) {
    mbarrier_expect(barrier, SLOT);
    tma_load_operand<BLOCK_M, A_MN_MAJOR>(slot, map_a, m, k, barrier);
    tma_load_operand<BLOCK_N, B_MN_MAJOR>(slot + A_BYTES, map_b, n, k, barrier);
}
