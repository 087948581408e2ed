// One slot of a pair of blocks: each has BLOCK_M rows of A and half of B's columns, and the leader, of rank 0, counts the bytes of both.
#pragma once
#include "tcgen05.cuh"
#include "tma_boxes.cuh"

constexpr u32 HALF_N = BLOCK_N / 2;  // columns of B that a block loads
constexpr u32 A_BYTES = BLOCK_M * SPAN, B_BYTES = HALF_N * SPAN, SLOT = A_BYTES + B_BYTES;
constexpr u16 BOTH = 3;  // blocks 0 and 1 of the cluster
static_assert(BLOCK_M == 128, "rows of one of the two blocks: a row for each lane of Tensor Memory");

// By one thread of each block. `m` and `n`: of this block's parts. `full`: the slot's barrier here; the bytes go to the leader's.
__device__ __forceinline__ void tma_load_pair_slot(u32 slot, const TensorMap* map_a, const TensorMap* map_b, s32 m, s32 n, s32 k, u32 full,
                                                   u32 rank) {
    if (rank == 0) mbarrier_expect(full, 2 * SLOT);  // of both; the other's bytes may come before this
    const u32 barrier = address_in(full, 0);
    operand_boxes<BLOCK_M, A_MN_MAJOR>(slot, m, k, [&](u32 to, s32 x, s32 y) { tma_load_pair(to, map_a, x, y, barrier); });
    operand_boxes<HALF_N, B_MN_MAJOR>(slot + A_BYTES, n, k, [&](u32 to, s32 x, s32 y) { tma_load_pair(to, map_b, x, y, barrier); });
}
