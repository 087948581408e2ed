// What the sparse kernels know of A: of each row only half is there, and metadata say where it belongs. A slot has 64 bytes
// of kept elements of each row of A, their metadata, and 128 bytes of K of each column of B: two multiplications.
//
// The image of the metadata, written by hwkernels/gemm/sparse_operands.py: for each BLOCK_M rows, for each slot, for each 16 rows,
// METADATA_WORDS words of each lane. So the metadata of a tile and slot are METADATA_BYTES in one piece, and a warp
// reads a word of all its lanes from 128 bytes. Elements of 16 and 32 bits: one word for both multiplications, told apart by the
// selector. Elements of 8 bits: a word each.
#pragma once
#include "ptx.cuh"

constexpr u32 KEPT_SPAN = SPAN / 2;                      // bytes of a row of A in a slot
constexpr u32 GROUP = ELEMENT_BYTES == 4 ? 2 : 4;        // elements of K of which half are kept
constexpr u32 METADATA_WORDS = ELEMENT_BYTES == 1 ? 2 : 1;  // of a lane, for 16 rows
constexpr u32 METADATA_BYTES = BLOCK_M / 16 * METADATA_WORDS * SPAN;
constexpr u32 STEPS = 2;                                 // multiplications along K in a slot
constexpr u32 BLOCK_K = SPAN / ELEMENT_BYTES;
constexpr u32 A_BYTES = BLOCK_M * KEPT_SPAN, B_BYTES = BLOCK_N * SPAN, SLOT = A_BYTES + B_BYTES + METADATA_BYTES;
static_assert(BLOCK_M == 128, "the image has blocks of 128 rows");
static_assert(!A_MN_MAJOR && (!B_MN_MAJOR || ELEMENT_BYTES == 2), "A is compressed along K; B may lie MN-major with 16 bits");

constexpr u32 swizzled_kept(u32 row, u32 chunk) {  // byte offset of a 16-byte chunk in rows of 64 bytes: the 64B swizzle
    return row * KEPT_SPAN + ((chunk ^ (row >> 1 & 3)) << 4);
}

__device__ __forceinline__ s32 kept_of(s32 k) { return (k + GROUP - 1) / GROUP * (GROUP / 2); }  // elements of a row of A

// Where a lane's word of 16 rows is in a slot; `step`: of which multiplication.
__device__ __forceinline__ u32 metadata_place(u32 slot, u32 rows, u32 step, u32 lane) {
    return slot + A_BYTES + B_BYTES + (rows * METADATA_WORDS + (METADATA_WORDS > 1 ? step : 0)) * SPAN + 4 * lane;
}
