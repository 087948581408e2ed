// sm80_mma_sparse: mma.sp of 16 x 8 and 64 bytes of K, of which A keeps half (2:4; tf32 1:2). 8 warps a tile.
//
//   - A ring as in sm80_mma_multistage, filled by cp.async. A slot holds 64 bytes of kept elements of every row of A, 128 bytes
//     of K of every column of B, both swizzled, and the metadata, which lie in global memory as they are needed: in one piece.
//   - A fragment of A is 16 rows x 32 bytes, one of B 8 columns x 64 bytes: an ldmatrix each. The metadata of 16 rows
//     are a word of each lane. With 16 and 32 bits that word serves both multiplications of a slot: the selector says which lanes
//     of a quad are read.
//   - Where registers are left (AHEAD), the fragments of the next step are loaded before the present ones are multiplied.
//
// The same file for f16, bf16, tf32, s8 (sm_80) and e4m3, e5m2 (sm_89): the fragments of all of them are the same bytes.
// An MN-major B (16 bits) lies in panels of 64 of N x 64 of K and is turned by ldmatrix.trans.
#include "ptx.cuh"
#include "multiply.cuh"  // mma_sparse<SELECTOR>(d, a, b, metadata) of the operands' formats; accumulator_t
#include "epilogue.cuh"
#include "sparse.cuh"
#include "tiles.cuh"
#include "warp.cuh"

constexpr u32 THREADS = 256;
constexpr u32 WARPS_M = 2, WARPS_N = 4;
constexpr u32 WARP_M = BLOCK_M / WARPS_M, WARP_N = BLOCK_N / WARPS_N;
constexpr u32 TILES_M = WARP_M / 16, TILES_N = WARP_N / 8;
#if ELEMENT_BYTES == 1 && !defined(OUT_S32) && __CUDA_ARCH__ != 890 && __CUDA_ARCH__ < 1200
constexpr bool EMULATED = true;  // fp8 in f16, which takes registers: nothing is loaded ahead, the steps are a loop
#else
constexpr bool EMULATED = false;
#endif
constexpr bool AHEAD = BLOCK_N <= 128 && !EMULATED;
static_assert(METADATA_BYTES / 16 <= THREADS, "a thread copies one chunk of metadata");

// EXTENT rows of CHUNKS chunks of 16 bytes, from row `start` and byte `first` of a matrix of `rows` x `bytes`.
template <u32 EXTENT, u32 CHUNKS>
__device__ __forceinline__ void copy_rows(u32 to, const void* matrix, s64 pitch, s32 start, s32 rows, s64 first, s64 bytes) {
    constexpr u32 PASS = THREADS / CHUNKS;  // rows at a time; that many rows on, the swizzle is the same
    const u32 row = threadIdx.x / CHUNKS, chunk = threadIdx.x % CHUNKS;
    const u8* from = static_cast<const u8*>(matrix) + (start + s32(row)) * pitch + first + 16 * chunk;
    const s64 width = bytes - first - 16 * s64(chunk);
    to += CHUNKS == 4 ? swizzled_kept(row, chunk) : swizzled(row, chunk);
#pragma unroll
    for (u32 i = 0; i < EXTENT / PASS; ++i) {
        const u32 valid = start + s32(row + i * PASS) < rows ? valid_bytes(width) : 0;
        async_copy(to + i * PASS * 16 * CHUNKS, valid ? from : static_cast<const u8*>(matrix), valid);
        from += PASS * pitch;
    }
}

struct Fragments {
    u32 a[TILES_M][4];
    u32 b[TILES_N][4];
    u32 metadata[TILES_M];
};

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    gemm(const __grid_constant__ Problem problem, const u8* const metadata) {
    extern __shared__ u8 dynamic[];
    const u32 slots = shared_address(dynamic);
    const Tile tile = tile_at(blockIdx.y * gridDim.x + blockIdx.x, gridDim.y, gridDim.x, problem.group);
    const s32 m = tile.row * BLOCK_M, n = tile.column * BLOCK_N;
    const u32 steps = (problem.k + BLOCK_K - 1) / BLOCK_K;
    const u32 warp = threadIdx.x / 32, lane = threadIdx.x % 32, warp_m = warp % WARPS_M * WARP_M, warp_n = warp / WARPS_M * WARP_N;
    const u8* const metadata_of_rows = metadata + static_cast<s64>(tile.row) * steps * METADATA_BYTES;

    auto copy = [&](u32 step) {  // always a group, even an empty one: waiting counts groups
        if (step < steps) {
            const u32 slot = slots + step % STAGES * SLOT;
            copy_rows<BLOCK_M, 4>(slot, problem.a, problem.lda * ELEMENT_BYTES, m, problem.m, s64(step) * KEPT_SPAN,
                                  kept_of(problem.k) * s64(ELEMENT_BYTES));
            const s64 pitch = problem.ldb * ELEMENT_BYTES;
            if (B_MN_MAJOR) {  // a row is one k
#pragma unroll
                for (u32 i = 0; i < BLOCK_N / 64; ++i) {
                    copy_rows<64, 8>(slot + A_BYTES + i * PANEL, problem.b, pitch, step * BLOCK_K, problem.k,
                                     s64(n + 64 * i) * ELEMENT_BYTES, problem.n * s64(ELEMENT_BYTES));
                }
            } else {
                copy_rows<BLOCK_N, 8>(slot + A_BYTES, problem.b, pitch, n, problem.n, s64(step) * SPAN, problem.k * s64(ELEMENT_BYTES));
            }
            if (threadIdx.x < METADATA_BYTES / 16) {
                async_copy(slot + A_BYTES + B_BYTES + 16 * threadIdx.x, metadata_of_rows + s64(step) * METADATA_BYTES + 16 * threadIdx.x, 16);
            }
        }
        async_copy_commit();
    };
    // Lane 8i + r gives row r of matrix i. Of A: rows 8 (i % 2), chunk 2 step + i / 2. Of B: columns 0-7, chunk 4 step + i;
    // MN-major: k = 32 step + 8i + r, the chunk of the 8 columns.
    auto load = [&](Fragments& to, const Fragments& before, u32 slot, u32 step) {
#pragma unroll
        for (u32 i = 0; i < TILES_M; ++i) {
            ldmatrix(to.a[i], slot + swizzled_kept(warp_m + 16 * i + lane % 16, 2 * step + lane / 16));
            if (METADATA_WORDS > 1 || step == 0) to.metadata[i] = load_shared(metadata_place(slot, warp_m / 16 + i, step, lane));
            else to.metadata[i] = before.metadata[i];
        }
#pragma unroll
        for (u32 i = 0; i < TILES_N; ++i) {
            const u32 column = warp_n + 8 * i;
            if (B_MN_MAJOR) ldmatrix_transposed(to.b[i], slot + A_BYTES + column / 64 * PANEL + swizzled(32 * step + lane, column % 64 / 8));
            else ldmatrix(to.b[i], slot + A_BYTES + swizzled(column + lane % 8, 4 * step + lane / 8));
        }
    };

    accumulator_t d[TILES_M][TILES_N][4] = {};
    Fragments fragments[AHEAD ? 2 : 1];
    for (u32 step = 0; step < STAGES - 1; ++step) copy(step);
    async_copy_wait<STAGES - 2>();
    __syncthreads();
    if (AHEAD) load(fragments[0], fragments[0], slots, 0);
    for (u32 step = 0; step < steps; ++step) {
#pragma unroll(EMULATED ? 1 : STEPS)
        for (u32 j = 0; j < STEPS; ++j) {
            u32 slot = slots + step % STAGES * SLOT;
            if (!AHEAD) load(fragments[0], fragments[0], slot, j);
            if (j == STEPS - 1) {
                async_copy_wait<STAGES - 2>();  // the next slot has come, for this thread
                __syncthreads();                // for all; and all have loaded the last of this slot
                slot = slots + (step + 1) % STAGES * SLOT;
            }
            Fragments& present = fragments[AHEAD ? j % 2 : 0];
            if (AHEAD && (j < STEPS - 1 || step + 1 < steps)) load(fragments[(j + 1) % 2], present, slot, (j + 1) % STEPS);
            if (j == 0) copy(step + STAGES - 1);  // into the slot before this one, which nobody reads any more
#pragma unroll
            for (u32 y = 0; y < TILES_M; ++y) {
#pragma unroll
                for (u32 x = 0; x < TILES_N; ++x) {
                    const u32 turn = y % 2 ? TILES_N - 1 - x : x;  // back and forth: a fragment of B is used twice in a row
                    if (METADATA_WORDS == 1 && j == 1) mma_sparse<METADATA_WORDS == 1>(d[y][turn], present.a[y], present.b[turn], present.metadata[y]);
                    else mma_sparse<0>(d[y][turn], present.a[y], present.b[turn], present.metadata[y]);
                }
            }
        }
    }
#pragma unroll
    for (u32 y = 0; y < TILES_M; ++y) {
#pragma unroll
        for (u32 x = 0; x < TILES_N; ++x) {
            const s32 row = m + warp_m + 16 * y + lane / 4, column = n + warp_n + 8 * x + 2 * (lane % 4);
            store_pair(problem, row, column, d[y][x][0], d[y][x][1]);
            store_pair(problem, row + 8, column, d[y][x][2], d[y][x][3]);
        }
    }
}
