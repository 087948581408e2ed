// sm70_wmma_naive: one warp computes 16 x 16 of the output with wmma, straight from global memory. What one writes first.
//
// wmma.load cannot leave out elements: a tile at the edge, or at an address that is not a multiple of 32 bytes, is first copied
// into shared memory, with zeros where the matrix ends.
#include "ptx.cuh"
#include "multiply.cuh"  // load_a, load_b, mma, store_d_shared of 16 x 16 x 16; accumulator_t
#include "epilogue.cuh"

constexpr u32 WARPS = 4, THREADS = 32 * WARPS;

// 16 x 16 elements at (row, column) of a row-major matrix of `rows` x `columns`; `leading` becomes the tile's own.
__device__ __forceinline__ const u16* reachable(const u16* matrix, s64& leading, s32 row, s32 column, s32 rows, s32 columns, u16* copy) {
    const u16* tile = matrix + row * leading + column;
    if (row + 16 <= rows && column + 16 <= columns && leading % 8 == 0 && reinterpret_cast<u64>(matrix) % 32 == 0) return tile;
    __syncwarp();  // the copy before this one has been read
    for (u32 i = threadIdx.x % 32; i < 256; i += 32) {
        const s32 y = i / 16, x = i % 16;
        copy[i] = row + y < rows && column + x < columns ? tile[y * leading + x] : 0;
    }
    __syncwarp();
    leading = 16;
    return copy;
}

extern "C" __global__ void __launch_bounds__(THREADS, 1) gemm(const __grid_constant__ Problem problem) {
    __shared__ alignas(32) u16 copies[WARPS][2][256];
    __shared__ alignas(32) accumulator_t outputs[WARPS][256];
    const u32 warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const s32 m = blockIdx.y * 16, n = (blockIdx.x * WARPS + warp) * 16;  // warps of a block are neighbours: they share A
    if (n >= problem.n) return;

    accumulator_t d[8] = {};
    for (s32 k = 0; k < problem.k; k += 16) {
        s64 lda = problem.lda, ldb = problem.ldb;
        u32 a[FRAGMENT], b[FRAGMENT];
        const u16* const left = static_cast<const u16*>(problem.a);
        const u16* const right = static_cast<const u16*>(problem.b);
        const u16* const from_a = A_MN_MAJOR ? reachable(left, lda, k, m, problem.k, problem.m, copies[warp][0])
                                             : reachable(left, lda, m, k, problem.m, problem.k, copies[warp][0]);
        const u16* const from_b = B_MN_MAJOR ? reachable(right, ldb, k, n, problem.k, problem.n, copies[warp][1])
                                             : reachable(right, ldb, n, k, problem.n, problem.k, copies[warp][1]);
        load_a(a, from_a, lda);  // only now: the calls above change the leading dimensions
        load_b(b, from_b, ldb);
        mma(d, a, b);
    }
    store_d_shared(shared_address(outputs[warp]), d, 16);  // nobody says where a wmma fragment's elements are; in memory they have places
    __syncwarp();
    for (u32 i = 2 * lane; i < 256; i += 64) {
        store_pair(problem, m + i / 16, n + i % 16, outputs[warp][i], outputs[warp][i + 1]);
    }
}
