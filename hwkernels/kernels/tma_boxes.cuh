// Which TMA boxes an operand's part of a slot is: EXTENT rows of A or columns of B, 128 bytes of K.
#pragma once
#include "ptx.cuh"

// K-major: one box of 128 bytes of K and all rows. MN-major: boxes of 64 of M or N and 64 of K, a panel each. `load` is given where in
// shared memory a box goes, and its coordinates.
template <u32 EXTENT, bool MN_MAJOR, typename Load>
__device__ __forceinline__ void operand_boxes(u32 to, s32 start, s32 k, Load load) {
    if (MN_MAJOR) {
#pragma unroll
        for (u32 panel = 0; panel < EXTENT / 64; ++panel) load(to + panel * PANEL, start + s32(64 * panel), k);
    } else {
        load(to, k, start);
    }
}
