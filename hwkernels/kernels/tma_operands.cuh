// One slot of a ring, filled by TMA without multicast: BLOCK_M rows of A and BLOCK_N columns of B, 128 bytes of K each.
#pragma once
#include "tma_boxes.cuh"

constexpr u32 A_BYTES = BLOCK_M * SPAN, B_BYTES = BLOCK_N * SPAN, SLOT = A_BYTES + B_BYTES;

__device__ __forceinline__ void tma_load_slot(u32 slot, const TensorMap* map_a, const TensorMap* map_b, s32 m, s32 n, s32 k, u32 barrier) {
    mbarrier_expect(barrier, SLOT);
    operand_boxes<BLOCK_M, A_MN_MAJOR>(slot, m, k, [&](u32 to, s32 x, s32 y) { tma_load(to, map_a, x, y, barrier); });
    operand_boxes<BLOCK_N, B_MN_MAJOR>(slot + A_BYTES, n, k, [&](u32 to, s32 x, s32 y) { tma_load(to, map_b, x, y, barrier); });
}
