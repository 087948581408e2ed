// pack: a matrix of any strides into rows of K at multiples of 16 bytes, for the kernels that need that. 32 x 32 elements a
// block, through shared memory, so that reads and writes both run along memory.
#include "ptx.cuh"

#if ELEMENT_BYTES == 1
using element_t = u8;
#elif ELEMENT_BYTES == 2
using element_t = u16;
#else
using element_t = u32;
#endif

struct Copy {
    const element_t* from;
    element_t* to;
    s64 row_stride, column_stride;  // of `from`, in elements
    s64 leading;                    // of `to`; the columns beyond the last are not written and never read
    s32 rows, columns;
};

extern "C" __global__ void __launch_bounds__(256) gemm(const __grid_constant__ Copy copy) {
    __shared__ element_t tile[32][33];
    const s32 row = blockIdx.y * 32, column = blockIdx.x * 32;
    const u32 x = threadIdx.x % 32, y = threadIdx.x / 32;
    const bool down = copy.row_stride < copy.column_stride;  // neighbours in `from` differ in their row
    for (u32 i = y; i < 32; i += 8) {
        const s32 r = row + (down ? x : i), c = column + (down ? i : x);
        if (r < copy.rows && c < copy.columns) {
            tile[r - row][c - column] = copy.from[r * copy.row_stride + c * copy.column_stride];
        }
    }
    __syncthreads();
    for (u32 i = y; i < 32; i += 8) {
        if (row + s32(i) < copy.rows && column + s32(x) < copy.columns) {
            copy.to[(row + i) * copy.leading + column + x] = tile[i][x];
        }
    }
}
