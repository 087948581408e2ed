// In what order tiles are computed. hwkernels/gemm/tiles.py has the same function.
#pragma once
#include "ptx.cuh"

struct Tile {
    s32 row, column;
};

// Groups of `group` rows of tiles; in a group column after column: tiles that run together share rows of A and columns of B.
__device__ __forceinline__ Tile tile_at(u32 index, u32 rows, u32 columns, u32 group) {
    const u32 first = index / (group * columns) * group;
    const u32 height = min(group, rows - first);
    const u32 within = index % (group * columns);
    return Tile{static_cast<s32>(first + within % height), static_cast<s32>(within / height)};
}
